//! All that threads meet at in `actor`. A model checker builds `mailbox.rs` over its own instead.

pub(super) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
