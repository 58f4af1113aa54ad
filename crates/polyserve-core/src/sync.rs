//! Locks that outlive a panic; and where whoever waits takes what it waits with.
//!
//! Invariant: nothing in polyserve leaves data half-changed across a point that can panic, so a poisoned lock holds
//! sound data and is recovered; otherwise one panic would turn into an outage.
//!
//! What is re-exported here is std's. Built with `--cfg polyserve_loom` or `--cfg polyserve_shuttle` it is the model
//! checker's of that name, for code that takes its primitives from here: the checker then decides who runs when, and
//! what time it is. `ci/models.sh` does that; docs/DESIGN.md says what is modelled. The names are prefixed because such a
//! flag reaches dependencies too, and some of them know a plain `loom`.
//!
//! Cost: none; each name is another name of std's.

use std::sync::PoisonError;

#[cfg(not(any(polyserve_loom, polyserve_shuttle)))]
mod primitives {
    pub use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic};
    pub use std::{thread, thread_local};

    /// The time, as deadlines have it. A checker has a clock of its own.
    #[inline]
    pub fn now() -> std::time::Instant {
        std::time::Instant::now()
    }
}

#[cfg(any(polyserve_loom, polyserve_shuttle))]
pub mod model;
#[cfg(any(polyserve_loom, polyserve_shuttle))]
use model as primitives;

pub use primitives::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic, now, thread, thread_local,
};

/// Locks, recovering from poison.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for reading, recovering from poison.
pub fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for writing, recovering from poison.
pub fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
