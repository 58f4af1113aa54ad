//! Locks that recover from poison, and the synchronisation primitives of code that a model checker runs.
//!
//! Invariant: polyserve never leaves data half-changed at a point that can panic. So a poisoned lock holds sound data and
//! is recovered; otherwise one panic would become an outage.
//!
//! The primitives are those of std. With `--cfg polyserve_loom` or `--cfg polyserve_shuttle`, they are those of the model
//! checker of that name, which then decides the order of threads, and the time. `ci/models.sh` does that; docs/DESIGN.md
//! lists what is modelled. The flags have a prefix because dependencies see them too, and some of those know a plain `loom`.
//!
//! Cost: none; each name is an alias.

use std::sync::PoisonError;

#[cfg(not(any(polyserve_loom, polyserve_shuttle)))]
mod primitives {
    pub use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic};
    pub use std::{thread, thread_local};

    /// Returns the time that deadlines are compared with. A model checker has a clock of its own.
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

/// Locks a mutex. Recovers from poison.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for reading. Recovers from poison.
pub fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for writing. Recovers from poison.
pub fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
