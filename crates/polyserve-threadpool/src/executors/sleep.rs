//! Which workers sleep, and whom a new job wakes. The argument that no wake-up is lost is [`StealingPool`]'s.
//!
//! [`StealingPool`]: super::StealingPool
//!
//! Invariant: the list of sleepers and the number of those awake change together, under the list's lock; whoever takes
//! a sleeper off the list counts it as awake and searching, before it runs.
//!
//! Cost: a submitter reads one word; it takes the lock only where somebody sleeps and nobody searches. A worker writes
//! the word when it begins to search and when it has found something, not for each job.

use crossbeam_utils::CachePadded;
use polyserve_core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use polyserve_core::sync::thread::{self, Thread};
use polyserve_core::sync::{Mutex, lock};

pub(super) struct Sleep {
    /// Workers that search, in the low half; workers that are awake, in the high half.
    state: CachePadded<AtomicUsize>,
    sleepers: Mutex<Vec<Sleeper>>,
    /// For each worker, whether it is on the list.
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
    /// All workers count as awake and searching, also before their threads have started: they will look for jobs.
    pub(super) fn new(workers: usize) -> Self {
        Self {
            state: CachePadded::new(AtomicUsize::new(workers * (SEARCHING + AWAKE))),
            sleepers: Mutex::default(),
            asleep: (0..workers).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// Sees to it that somebody looks for a job that was just queued.
    #[inline]
    pub(super) fn job_queued(&self) {
        if self.nobody_searches(self.state.load(Ordering::SeqCst)) {
            self.wake_one();
        }
    }

    /// Whether somebody sleeps and nobody searches.
    fn nobody_searches(&self, state: usize) -> bool {
        searching(state) == 0 && awake(state) < self.asleep.len()
    }

    #[cold]
    pub(super) fn wake_one(&self) {
        let mut sleepers = lock(&self.sleepers);
        // Another may have been woken meanwhile; it looks for this job too.
        if self.nobody_searches(self.state.load(Ordering::SeqCst)) {
            let sleeper = sleepers.pop();
            self.wake(sleeper);
        }
    }

    /// Wakes everyone: the pool was closed.
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

    /// A worker begins to search.
    pub(super) fn search(&self) {
        self.state.fetch_add(SEARCHING, Ordering::SeqCst);
    }

    /// A worker has found a job. Whether another must be woken if there are more.
    pub(super) fn found(&self) -> bool {
        let before = self.state.fetch_sub(SEARCHING, Ordering::SeqCst);
        self.nobody_searches(before - SEARCHING)
    }

    /// A worker that searches goes to sleep, unless `is_quiet` says that there is something to do after all. Answers
    /// whether it slept; it searches again when this returns.
    pub(super) fn sleep(&self, worker: usize, is_quiet: impl Fn() -> bool) -> bool {
        let mut sleepers = lock(&self.sleepers);
        self.state.fetch_sub(SEARCHING + AWAKE, Ordering::SeqCst);
        if !is_quiet() {
            self.state.fetch_add(SEARCHING + AWAKE, Ordering::SeqCst);
            return false;
        }
        self.asleep[worker].store(true, Ordering::Relaxed);
        sleepers.push(Sleeper { worker, thread: thread::current() });
        drop(sleepers);
        // A park may end for nothing, or for an unpark that was meant for a job that ran here.
        while self.asleep[worker].load(Ordering::Acquire) {
            thread::park();
        }
        true
    }
}
