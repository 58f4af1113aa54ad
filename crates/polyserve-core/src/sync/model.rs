//! The synchronisation primitives of a model checker, and the functions that run models.
//!
//! Locks and atomics are the checker's. Condition variables and parking are built here from the checker's primitives, because
//! time does not pass in the checkers: their `wait_timeout` never times out. Here a thread of the model advances the time
//! ([`clock`]), so that a timeout may come between any two steps.
//!
//! Limits: `Arc` is std's, so its counts are no steps of the model. `notify_one` wakes the thread that has waited longest,
//! whereas std may wake any. There are no spurious wake-ups.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, LockResult};
use std::time::Duration;

#[doc(hidden)]
#[cfg(polyserve_loom)]
pub use loom as checker;
#[doc(hidden)]
#[cfg(polyserve_shuttle)]
pub use shuttle as checker;

pub use checker::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, atomic};

pub use crate::model_thread_local as thread_local;

/// A `thread_local!` of constants, each with the checker's initialiser, because loom's macro does not accept `const`.
#[macro_export]
#[doc(hidden)]
macro_rules! model_thread_local {
    ($($(#[$attr:meta])* static $name:ident: $type:ty = const $init:block;)*) => {
        $crate::sync::model::checker::thread_local! { $($(#[$attr])* static $name: $type = $init;)* }
    };
}

pub use self::check::{Bounds, DEADLOCK, PrimitiveFault, check, finds};
pub use self::clock::now;

mod check;
pub mod clock;
pub mod thread;

/// A mutex around the checker's. Its guard has a reference to the mutex.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    inner: checker::sync::Mutex<T>,
}

/// The guard of a [`Mutex`].
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    inner: checker::sync::MutexGuard<'a, T>,
}

impl<T> Mutex<T> {
    /// A mutex around `value`.
    #[track_caller]
    pub fn new(value: T) -> Self {
        Self { inner: checker::sync::Mutex::new(value) }
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks.
    ///
    /// # Errors
    ///
    /// Never: a thread that panics while it holds the mutex fails the model.
    #[track_caller]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        Ok(MutexGuard { mutex: self, inner: self.inner.lock().expect("no thread panicked with this lock") })
    }

    /// Returns the value, without locking: the caller has the only reference.
    ///
    /// # Errors
    ///
    /// Never, as [`lock`](Self::lock).
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.inner.get_mut()
    }
}

impl<T: ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex(..)")
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MutexGuard").field(&&**self).finish()
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A condition variable. Its waits may time out.
#[derive(Default)]
pub struct Condvar {
    waiting: Arc<WaitList>,
}

/// The waits. A wait is over when it is not in `queue` any more.
#[derive(Default)]
struct WaitList {
    queue: checker::sync::Mutex<WaitQueue>,
    changed: checker::sync::Condvar,
}

#[derive(Default)]
struct WaitQueue {
    next: u64,
    waits: VecDeque<u64>,
}

impl Condvar {
    /// A condition variable on which no thread waits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for a notice.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn wait<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let mutex = guard.mutex;
        let mut queue = self.waiting.queue.lock().expect("no poison");
        let wait_id = queue.enter();
        // A thread that changes the condition notifies after this, and so finds the wait in the queue.
        drop(guard);
        while queue.waits.contains(&wait_id) {
            queue = self.waiting.changed.wait(queue).expect("no poison");
        }
        drop(queue);
        mutex.lock()
    }

    /// Waits for a notice, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn wait_timeout<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let mutex = guard.mutex;
        let waiting = &self.waiting;
        let mut queue = waiting.queue.lock().expect("no poison");
        let wait_id = queue.enter();
        let end_wait = {
            let waiting = Arc::clone(waiting);
            move || waiting.leave(wait_id)
        };
        let Some(timer) = clock::set(timeout, end_wait) else {
            queue.leave(wait_id);
            drop((guard, queue));
            checker::thread::yield_now();
            return Ok((super::lock(mutex), WaitTimeoutResult(true)));
        };
        drop(guard);
        while queue.waits.contains(&wait_id) {
            queue = waiting.changed.wait(queue).expect("no poison");
        }
        drop(queue);
        let timed_out = clock::has_fired(timer);
        Ok((super::lock(mutex), WaitTimeoutResult(timed_out)))
    }

    /// Ends the wait that has lasted longest.
    pub fn notify_one(&self) {
        if !PrimitiveFault::Notice.is_on() {
            self.waiting.queue.lock().expect("no poison").waits.pop_front();
            self.waiting.changed.notify_all();
        }
    }

    /// Ends every wait.
    pub fn notify_all(&self) {
        if !PrimitiveFault::Notice.is_on() {
            self.waiting.queue.lock().expect("no poison").waits.clear();
            self.waiting.changed.notify_all();
        }
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condvar(..)")
    }
}

impl WaitList {
    fn leave(&self, wait: u64) {
        self.queue.lock().expect("no poison").leave(wait);
        self.changed.notify_all();
    }
}

impl WaitQueue {
    fn enter(&mut self) -> u64 {
        self.next += 1;
        self.waits.push_back(self.next);
        self.next
    }

    fn leave(&mut self, wait: u64) {
        self.waits.retain(|other| *other != wait);
    }
}

/// The result of a wait with a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the wait has timed out.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}
