//! The synchronisation primitives of `actor`: those of std, or of a model checker.

pub(super) use std::sync::PoisonError;

pub(super) use polyserve_core::sync::{Condvar, Mutex, MutexGuard};
