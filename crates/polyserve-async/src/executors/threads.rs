//! The count of a backend's threads. Most runtimes own their threads, and call a hook at a thread's start and another at its
//! end.
//!
//! Invariant: a value that a close waits for is changed while the lock of `state` is held, or before that lock is taken and
//! released. Then `changed` is notified. So no close misses the change.
//!
//! A thread-local marks the threads of an executor. The mark stays while a thread destroys its other thread-locals. A marked
//! thread does not wait for its own executor's threads, because they may wait for it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
#[cfg(feature = "tokio")]
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use polyserve_core::sync::lock;

thread_local! {
    /// The id of the executor that owns this thread, or 0.
    static OWNER: Cell<u64> = const { Cell::new(0) };
    /// The number of nested `close` calls of that executor on this thread.
    static CLOSING: Cell<usize> = const { Cell::new(0) };
}

/// The threads of one executor.
pub(super) struct Threads {
    /// Unique in the process.
    id: u64,
    pub(super) state: Mutex<ThreadState>,
    changed: Condvar,
}

#[derive(Default)]
pub(super) struct ThreadState {
    /// The number of threads that were started and have not reported their end.
    pub(super) alive: usize,
    /// The number of those threads that close their own executor.
    pub(super) closing: usize,
    /// The backend has begun to end its threads.
    pub(super) stopped: bool,
    /// A close has left threads behind, because its deadline had passed.
    pub(super) left_behind: bool,
}

/// Joins the thread unless it was joined before. Concurrent callers wait for the join too: the lock is held.
#[cfg(feature = "tokio")]
pub(super) fn join_once(thread: &Mutex<Option<JoinHandle<()>>>) {
    let mut thread = lock(thread);
    if let Some(thread) = thread.take() {
        let _ = thread.join(); // a panic has been reported
    }
}

impl Threads {
    pub(super) fn new() -> Arc<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { id, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Counts a thread that was started.
    pub(super) fn started(&self) {
        lock(&self.state).alive += 1;
    }

    /// Marks the current thread as one of the executor's.
    pub(super) fn adopt(&self) {
        OWNER.set(self.id);
    }

    /// Whether the current thread is one of the executor's.
    pub(super) fn is_own(&self) -> bool {
        OWNER.get() == self.id
    }

    /// Counts a thread as ended. It runs no more jobs.
    pub(super) fn ended(&self) {
        lock(&self.state).alive -= 1;
        self.changed.notify_all();
    }

    /// Wakes every close, after a change that it may wait for. Must not be called while the lock is held.
    pub(super) fn notify(&self) {
        drop(lock(&self.state)); // a close that found the state before the change waits by now
        self.changed.notify_all();
    }

    /// Begins a close. If the current thread belongs to the executor, counts the thread as closing.
    pub(super) fn closing(&self) -> CloseGuard<'_> {
        let is_own = self.is_own();
        if is_own {
            let before = CLOSING.replace(CLOSING.get() + 1);
            lock(&self.state).closing += usize::from(before == 0);
            self.changed.notify_all();
        }
        CloseGuard { threads: self, is_own }
    }

    pub(super) fn wait<'a>(
        &self,
        state: MutexGuard<'a, ThreadState>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'a, ThreadState> {
        match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => state,
            Some(timeout) => self.changed.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner).0,
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// One `close` call, for as long as it lives.
pub(super) struct CloseGuard<'a> {
    threads: &'a Threads,
    /// Whether the call is on a thread of the executor that is closed.
    pub(super) is_own: bool,
}

impl Drop for CloseGuard<'_> {
    fn drop(&mut self) {
        if self.is_own {
            CLOSING.set(CLOSING.get() - 1);
            lock(&self.threads.state).closing -= usize::from(CLOSING.get() == 0);
        }
    }
}
