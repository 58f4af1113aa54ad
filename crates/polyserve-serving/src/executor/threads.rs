//! The threads of an executor: counted, joined after they have ended, or left behind.
//!
//! Some executors start their threads here. Most runtimes own theirs, and call a hook at a thread's start and another at
//! its end. Both are counted in the same way.
//!
//! Invariant: a value that a close waits for is changed while the lock of `state` is held, or before that lock is taken
//! and released. Then `changed` is notified. So no close misses the change. The start of a job is not signalled: a close
//! past its deadline checks for it.
//!
//! A thread-local marks the threads of an executor. The mark stays while a thread destroys its other thread-locals. A
//! marked thread waits neither for itself nor for other threads of its executor that close it too, and it joins none. So
//! no two threads wait for each other. A thread is joined only after all have reported their end. A join is short unless a thread-local
//! of a job's code has a long destructor. So a close with a deadline joins until then.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use polyserve_core::sync::thread::{self, JoinHandle};
use polyserve_core::sync::{Condvar, Mutex, MutexGuard, lock, now, thread_local};

/// How often a close past its deadline checks the threads that run no job.
const LATE_CHECK: Duration = Duration::from_millis(1);

thread_local! {
    /// The id of the executor that owns this thread, or 0.
    static OWNER: Cell<u64> = const { Cell::new(0) };
    /// The number of nested `close` calls of that executor on this thread. It is one higher for ever once the thread has reported its
    /// end.
    static CLOSING: Cell<usize> = const { Cell::new(0) };
}

/// The threads of one executor.
pub struct ThreadRegistry {
    /// Unique in the process.
    id: u64,
    state: Mutex<ThreadState>,
    changed: Condvar,
    /// The threads that were started here and not joined.
    handles: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct ThreadState {
    /// The number of threads that were started and have not reported their end.
    alive: usize,
    /// The number of those threads that close their own executor.
    closing: usize,
    /// A close has left threads behind, because its deadline had passed.
    left_behind: bool,
}

impl ThreadRegistry {
    pub(super) fn new() -> Arc<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { id, state: Mutex::default(), changed: Condvar::new(), handles: Mutex::default() })
    }

    /// Starts the next thread, named `{name}-{index}`.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot start a thread.
    pub(super) fn start(self: &Arc<Self>, name: &str, main: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut handles = lock(&self.handles);
        let (threads, index) = (Arc::clone(self), handles.len());
        self.started();
        let handle = thread::Builder::new().name(format!("{name}-{index}")).spawn(move || {
            threads.adopt();
            let _end_guard = EndGuard(threads);
            main();
        });
        handles.push(handle.inspect_err(|_| lock(&self.state).alive -= 1)?);
        Ok(())
    }

    /// Counts a thread that was started.
    pub fn started(&self) {
        lock(&self.state).alive += 1;
    }

    /// Marks the current thread as one of the executor's.
    pub fn adopt(&self) {
        OWNER.with(|owner| owner.set(self.id));
    }

    /// Whether the current thread is one of the executor's.
    #[inline]
    pub fn is_own(&self) -> bool {
        OWNER.with(Cell::get) == self.id
    }

    /// Counts the current thread, one of the executor's, as ended. It runs no more jobs.
    pub fn ended(&self) {
        CLOSING.with(|closing| closing.set(closing.get() + 1));
        lock(&self.state).alive -= 1;
        self.changed.notify_all();
    }

    /// Wakes every close, after a change that it may wait for.
    pub fn notify(&self) {
        drop(lock(&self.state)); // a close that found the state before the change waits by now
        self.changed.notify_all();
    }

    /// The number of threads that close their own executor.
    pub fn closing(&self) -> usize {
        lock(&self.state).closing
    }

    /// Begins a close. If the current thread belongs to the executor, counts the thread as closing.
    pub(super) fn begin_close(&self) -> CloseGuard<'_> {
        let is_own = self.is_own();
        if is_own {
            let before = CLOSING.with(|closing| closing.replace(closing.get() + 1));
            lock(&self.state).closing += usize::from(before == 0);
            self.changed.notify_all();
        }
        CloseGuard { threads: self, is_own }
    }

    /// Joins the threads that were started here, at the latest until `deadline`. All must have reported their end. Concurrent callers
    /// wait for the joins.
    pub(super) fn join(&self, deadline: Option<Instant>) {
        let mut handles = lock(&self.handles);
        if let Some(deadline) = deadline {
            crate::join_until(handles.drain(..).collect(), deadline);
        }
        for handle in handles.drain(..) {
            let _ = handle.join(); // the panics of jobs are caught
        }
    }

    /// Whether the deadline of a close passed while threads ran jobs.
    pub(super) fn were_left_behind(&self) -> bool {
        lock(&self.state).left_behind
    }

    fn wait<'a>(&self, state: MutexGuard<'a, ThreadState>, limit: Option<Duration>) -> MutexGuard<'a, ThreadState> {
        match limit {
            Some(limit) => self.changed.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0,
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// Marks a thread as ended in its `drop`, so that an unwinding thread is marked too.
struct EndGuard(Arc<ThreadRegistry>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.ended();
    }
}

/// One `close` call, for as long as it lives.
pub(super) struct CloseGuard<'a> {
    threads: &'a ThreadRegistry,
    /// Whether the call is on a thread of the executor that is closed.
    is_own: bool,
}

impl CloseGuard<'_> {
    /// Waits until `all_started` is true and all threads have reported their end. Once `deadline` has passed, it calls
    /// `cut` and waits only for threads that run no job. Returns the number of threads that have not reported their end,
    /// and at least one if the current thread is one of the executor's.
    pub(super) fn wait(
        &self,
        deadline: Option<Instant>,
        all_started: &dyn Fn() -> bool,
        running: &dyn Fn() -> u64,
        cut: &dyn Fn(),
    ) -> usize {
        let mut state = lock(&self.threads.state);
        let mut is_late = false;
        loop {
            if !is_late && deadline.is_some_and(|deadline| deadline <= now()) {
                is_late = true;
                drop(state);
                cut();
                state = lock(&self.threads.state);
            }
            let is_over = if self.is_own && state.alive <= state.closing {
                true
            } else if is_late {
                state.alive as u64 <= running()
            } else {
                !self.is_own && state.alive == 0 && all_started()
            };
            if is_over {
                break;
            }
            let limit = if is_late { Some(LATE_CHECK) } else { deadline.map(|d| d.saturating_duration_since(now())) };
            state = self.threads.wait(state, limit);
        }
        let left = state.alive.max(usize::from(self.is_own));
        state.left_behind |= is_late && state.alive > state.closing;
        left
    }
}

impl Drop for CloseGuard<'_> {
    fn drop(&mut self) {
        if self.is_own {
            let left = CLOSING.with(|closing| closing.replace(closing.get() - 1)) - 1;
            lock(&self.threads.state).closing -= usize::from(left == 0);
        }
    }
}
