//! A thread that wakes a runtime for jobs that the runtime has overlooked.
//!
//! A runtime wakes no thread for a job if it counts a thread as awake. That thread may be about to sleep. Short jobs hide
//! this: a thread that has ended a job looks for the next. But behind a long job, or another task that holds its thread, a
//! job would wait although a thread is idle. With a watch it waits for about [`CHECK_INTERVAL`].
//!
//! Invariant: while a job waits, the watch is on or about to be. A submitter counts its job before it checks whether the
//! watch is on. The thread marks the watch as off before it checks for the last time whether a job waits.
//!
//! The number of idle threads is computed from the running jobs alone. A thread that runs a task that is no job counts as
//! idle: it is woken without effect, less and less often. A job that calls tokio's `block_in_place` counts as running.
//!
//! Cost: for each job a read of the queue's word and a read of `on`. While jobs come, at most two wake-ups of the thread
//! every 5 ms. Without jobs the thread sleeps.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use super::queue::{JobQueue, Snapshot};
use super::threads::join_once;

/// The time between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// The maximum time between two checks. The time doubles while wake-ups change nothing, so that few empty tasks are queued.
const MAX_CHECK_INTERVAL: Duration = Duration::from_millis(320);

/// A handle of the thread.
pub(super) struct WatchThread {
    state: Arc<WatchState>,
    thread: Thread,
    /// `None` once it is joined.
    handle: Mutex<Option<JoinHandle<()>>>,
}

struct WatchState {
    queue: Arc<JobQueue>,
    on: AtomicBool,
    ended: AtomicBool,
}

impl WatchThread {
    /// Starts the thread. It calls `wake` if a check finds that a job waits and fewer than `workers` jobs run.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot start a thread.
    pub(super) fn start(queue: &Arc<JobQueue>, workers: usize, wake: impl Fn() + Send + 'static) -> io::Result<Self> {
        let state = Arc::new(WatchState::new(queue));
        let its_state = Arc::clone(&state);
        let handle = thread::Builder::new().name(String::from("watch")).spawn(move || its_state.run(workers, wake))?;
        Ok(Self { state, thread: handle.thread().clone(), handle: Mutex::new(Some(handle)) })
    }

    /// Turns the watch on if a job waits. To be called after a job was counted as waiting, before or after it is spawned.
    #[inline]
    pub(super) fn submitted(&self) {
        if self.state.queue.snapshot().waiting() > 0 && !self.is_on() {
            self.turn_on();
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.state.is_on()
    }

    #[cold]
    fn turn_on(&self) {
        if !self.state.on.swap(true, Ordering::SeqCst) {
            self.thread.unpark();
        }
    }

    /// Ends the thread. Does not wait for it.
    pub(super) fn end(&self) {
        self.state.ended.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }

    /// Waits for the thread. [`end`](Self::end) must have been called.
    pub(super) fn join(&self) {
        join_once(&self.handle);
    }
}

/// The time between two checks, and what the last check found.
struct CheckState {
    interval: Duration,
    /// The queue's progress at the last check, if that check woke a thread.
    woken_at: Option<(Snapshot, usize)>,
}

impl Default for CheckState {
    fn default() -> Self {
        Self { interval: CHECK_INTERVAL, woken_at: None }
    }
}

impl WatchState {
    fn new(queue: &Arc<JobQueue>) -> Self {
        Self { queue: Arc::clone(queue), on: AtomicBool::new(false), ended: AtomicBool::new(false) }
    }

    fn is_on(&self) -> bool {
        self.on.load(Ordering::SeqCst)
    }

    fn run(&self, workers: usize, wake: impl Fn()) {
        let mut last_check = CheckState::default();
        while !self.ended.load(Ordering::SeqCst) {
            if !self.is_on() {
                thread::park();
                continue;
            }
            thread::park_timeout(last_check.interval);
            if self.check(workers, &mut last_check) {
                wake();
            }
        }
    }

    /// Returns whether to wake a thread: a job waits, and fewer than `workers` jobs run. Marks the watch as off if no job
    /// waits.
    fn check(&self, workers: usize, last_check: &mut CheckState) -> bool {
        let progress @ (snapshot, _) = self.queue.progress();
        if snapshot.waiting() > 0 && snapshot.running() < workers {
            last_check.interval = if last_check.woken_at == Some(progress) {
                MAX_CHECK_INTERVAL.min(last_check.interval * 2)
            } else {
                CHECK_INTERVAL
            };
            last_check.woken_at = Some(progress);
            return true;
        }
        if snapshot.waiting() == 0 {
            self.on.store(false, Ordering::SeqCst);
            self.on.fetch_or(self.queue.snapshot().waiting() > 0, Ordering::SeqCst);
        }
        *last_check = CheckState::default();
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use polyserve_core::Job;

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn waits(queue: &JobQueue) -> usize {
        queue.enter().unwrap();
        queue.put(Job::new(|| {}))
    }

    fn begins(queue: &JobQueue, slot: usize) {
        assert!(queue.take(slot).is_some());
        queue.begin();
    }

    fn goes_off(watch: &WatchThread) {
        let deadline = Instant::now() + LONG;
        while watch.is_on() {
            assert!(Instant::now() < deadline, "it is on although no job waits");
            thread::yield_now();
        }
    }

    #[test]
    fn a_waiting_job_wakes_idle_threads_until_it_runs() {
        let queue = Arc::new(JobQueue::new(4));
        let (woken, wakes) = mpsc::channel();
        let watch = WatchThread::start(&queue, 2, move || woken.send(()).unwrap()).unwrap();
        for _ in 0..3 {
            begins(&queue, waits(&queue));
            watch.submitted();
            assert!(!watch.is_on(), "no job waits");
            let slot = waits(&queue);
            watch.submitted();
            assert!(watch.is_on(), "a job waits");
            (0..3).for_each(|_| wakes.recv_timeout(LONG).unwrap());
            begins(&queue, slot);
            goes_off(&watch);
            (0..2).for_each(|_| assert!(!queue.end().is_closed()));
            while wakes.try_recv().is_ok() {}
        }
        watch.end();
        watch.join();
        watch.join();
        assert_eq!(
            wakes.recv_timeout(LONG),
            Err(mpsc::RecvTimeoutError::Disconnected),
            "no wakes since, and the thread has ended"
        );
    }

    #[test]
    fn a_job_without_an_idle_thread_causes_no_wakes() {
        let queue = Arc::new(JobQueue::new(4));
        let (state, mut last_check) = (WatchState::new(&queue), CheckState::default());
        begins(&queue, waits(&queue));
        let slot = waits(&queue);
        state.on.store(true, Ordering::SeqCst);
        for _ in 0..3 {
            assert!(!state.check(1, &mut last_check), "the only worker is busy");
            assert!(state.is_on(), "the job still waits");
        }
        begins(&queue, slot);
        assert!(!state.check(1, &mut last_check) && !state.is_on(), "no job waits");
    }

    #[test]
    fn wake_ups_that_change_nothing_become_rare() {
        let queue = Arc::new(JobQueue::new(4));
        let (state, mut last_check) = (WatchState::new(&queue), CheckState::default());
        let slot = waits(&queue);
        let mut next = || {
            assert!(state.check(2, &mut last_check), "a job waits and two threads are idle");
            last_check.interval
        };
        assert_eq!([next(), next(), next()], [CHECK_INTERVAL, CHECK_INTERVAL * 2, CHECK_INTERVAL * 4]);
        assert_eq!((0..10).map(|_| next()).last(), Some(MAX_CHECK_INTERVAL));
        begins(&queue, slot);
        waits(&queue);
        assert_eq!(next(), CHECK_INTERVAL, "a job has begun since");
    }
}
