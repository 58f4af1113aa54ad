//! All that threads meet at in `actor`: std's, or a model checker's.

pub(super) use std::sync::PoisonError;

pub(super) use polyserve_core::sync::{Condvar, Mutex, MutexGuard};
