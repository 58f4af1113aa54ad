//! A runtime's threads, counted: most runtimes own theirs, and lend out a hook at a thread's start and one at its end.
//!
//! Invariant: whatever a closing waits for is changed before `changed` is notified under, or after, the lock of `state`.
//!
//! A thread that is one of an executor's own knows it by a thread-local, also while its other thread-locals are being
//! destroyed: it waits for no thread that may wait for it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
#[cfg(feature = "tokio")]
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use polyserve_core::sync::lock;

thread_local! {
    /// Which executor's thread this is.
    static OWNER: Cell<u64> = const { Cell::new(0) };
    /// How many closings of that executor are under way on this thread, one inside the other.
    static CLOSING: Cell<usize> = const { Cell::new(0) };
}

pub(super) struct Threads {
    /// No other executor has the same, ever.
    id: u64,
    pub(super) state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    /// Threads that have been started and have not said that they end.
    pub(super) alive: usize,
    /// Those of them that are closing their own executor.
    pub(super) closing: usize,
    /// The runtime was told to end its threads.
    pub(super) stopped: bool,
    /// A closing's deadline passed with threads in a job.
    pub(super) left_behind: bool,
}

/// Joins the thread unless that is done. Others who call this meanwhile wait too: the lock is held.
#[cfg(feature = "tokio")]
pub(super) fn join_once(thread: &Mutex<Option<JoinHandle<()>>>) {
    let mut thread = lock(thread);
    if let Some(thread) = thread.take() {
        let _ = thread.join(); // a panic has been reported
    }
}

impl Threads {
    pub(super) fn new() -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { id, state: Mutex::default(), changed: Condvar::new() })
    }

    /// One was started.
    pub(super) fn started(&self) {
        lock(&self.state).alive += 1;
    }

    /// This thread is one of them.
    pub(super) fn adopt(&self) {
        OWNER.set(self.id);
    }

    /// Whether this thread is one of them.
    pub(super) fn is_own(&self) -> bool {
        OWNER.get() == self.id
    }

    /// One runs no more jobs, and is about to end.
    pub(super) fn ended(&self) {
        lock(&self.state).alive -= 1;
        self.changed.notify_all();
    }

    /// Something that closings wait for has changed; not to be called with the lock in hand.
    pub(super) fn notify(&self) {
        drop(lock(&self.state)); // who has looked before the change waits by now
        self.changed.notify_all();
    }

    /// Counts this thread among those that close their own executor, if it is one.
    pub(super) fn closing(&self) -> Closing<'_> {
        let is_own = self.is_own();
        if is_own {
            let before = CLOSING.replace(CLOSING.get() + 1);
            lock(&self.state).closing += usize::from(before == 0);
            self.changed.notify_all();
        }
        Closing { threads: self, is_own }
    }

    pub(super) fn wait<'a>(&self, state: MutexGuard<'a, State>, until: Option<Instant>) -> MutexGuard<'a, State> {
        match until.map(|until| until.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => state,
            Some(most) => self.changed.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0,
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

pub(super) struct Closing<'a> {
    threads: &'a Threads,
    /// Whether it is on a thread of the executor that is closed.
    pub(super) is_own: bool,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        if self.is_own {
            CLOSING.set(CLOSING.get() - 1);
            lock(&self.threads.state).closing -= usize::from(CLOSING.get() == 0);
        }
    }
}
