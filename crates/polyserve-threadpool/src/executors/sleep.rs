//! The sleeping workers of [`StealingPool`], and the choice of the worker that a new job wakes. The argument that no
//! wake-up is lost is in [`StealingPool`]'s module.
//!
//! [`StealingPool`]: super::StealingPool
//!
//! Invariant: the list of sleepers and the number of awake workers change together, under the list's lock. A thread that
//! takes a sleeper off the list counts it as awake and searching before it runs.
//!
//! Cost: a submitter reads one word. It takes the lock only if a worker sleeps and none searches. A worker writes the
//! word when it begins to search and when it has found a job, not for each job.

use crossbeam_utils::CachePadded;
use polyserve_core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use polyserve_core::sync::thread::{self, Thread};
use polyserve_core::sync::{Mutex, lock};

/// The workers of one pool that sleep, search, or run.
pub(super) struct Sleep {
    /// The number of searching workers in the low 16 bits, the number of awake workers in the bits above.
    state: CachePadded<AtomicUsize>,
    sleepers: Mutex<Vec<Sleeper>>,
    /// For each worker: whether it is on the list.
    asleep: Box<[AtomicBool]>,
}

struct Sleeper {
    worker: usize,
    thread: Thread,
}

const SEARCHING: usize = 1;
const AWAKE: usize = 1 << 16;

fn searching(state: usize) -> usize {
    state % AWAKE
}

fn awake(state: usize) -> usize {
    state / AWAKE
}

impl Sleep {
    /// All workers count as awake and searching from the start. A thread that has not started yet will search first.
    pub(super) fn new(workers: usize) -> Self {
        Self {
            state: CachePadded::new(AtomicUsize::new(workers * (SEARCHING + AWAKE))),
            sleepers: Mutex::default(),
            asleep: (0..workers).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// Ensures that a worker searches. To be called after a job was queued.
    #[inline]
    pub(super) fn job_queued(&self) {
        if self.needs_wake(self.state.load(Ordering::SeqCst)) {
            self.wake_one();
        }
    }

    /// Whether a worker sleeps and none searches.
    fn needs_wake(&self, state: usize) -> bool {
        searching(state) == 0 && awake(state) < self.asleep.len()
    }

    #[cold]
    pub(super) fn wake_one(&self) {
        let mut sleepers = lock(&self.sleepers);
        // Another worker may have been woken meanwhile. It finds this job too.
        if self.needs_wake(self.state.load(Ordering::SeqCst)) {
            let sleeper = sleepers.pop();
            self.wake(sleeper);
        }
    }

    /// Wakes all workers. To be called after the pool was closed.
    pub(super) fn wake_all(&self) {
        let mut sleepers = lock(&self.sleepers);
        sleepers.drain(..).for_each(|sleeper| self.wake(Some(sleeper)));
    }

    fn wake(&self, sleeper: Option<Sleeper>) {
        if let Some(Sleeper { worker, thread }) = sleeper {
            self.state.fetch_add(SEARCHING + AWAKE, Ordering::SeqCst);
            self.asleep[worker].store(false, Ordering::Release);
            thread.unpark();
        }
    }

    /// Counts one more searching worker.
    pub(super) fn begin_search(&self) {
        self.state.fetch_add(SEARCHING, Ordering::SeqCst);
    }

    /// Counts one less searching worker: it has found a job. Returns whether another must be woken if there are more jobs.
    pub(super) fn found_job(&self) -> bool {
        let before = self.state.fetch_sub(SEARCHING, Ordering::SeqCst);
        self.needs_wake(before - SEARCHING)
    }

    /// Puts a searching worker to sleep if `is_open_and_empty` still returns true. Returns whether the worker slept. The
    /// worker counts as searching when this returns.
    pub(super) fn sleep(&self, worker: usize, is_open_and_empty: impl Fn() -> bool) -> bool {
        let mut sleepers = lock(&self.sleepers);
        self.state.fetch_sub(SEARCHING + AWAKE, Ordering::SeqCst);
        if !is_open_and_empty() {
            self.state.fetch_add(SEARCHING + AWAKE, Ordering::SeqCst);
            return false;
        }
        self.asleep[worker].store(true, Ordering::Relaxed);
        sleepers.push(Sleeper { worker, thread: thread::current() });
        drop(sleepers);
        // A park may end spuriously, or by an unpark that was meant for a job on this thread.
        while self.asleep[worker].load(Ordering::Acquire) {
            thread::park();
        }
        true
    }
}
