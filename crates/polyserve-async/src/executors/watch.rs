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
//! Cost: for each job a read of the counts and a read of `on`. While jobs come, at most two wake-ups of the thread
//! every 5 ms. Without jobs the thread sleeps.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use polyserve_serving::executor::JobCounts;

use super::counted_runtime::join_once;

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

#[derive(Default)]
struct WatchState {
    on: AtomicBool,
    ended: AtomicBool,
}

impl WatchThread {
    /// Starts the thread. It calls `wake` if a check finds that a job waits and fewer than `workers` jobs run.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot start a thread.
    pub(super) fn start(
        workers: usize,
        progress: impl Fn() -> JobCounts + Send + 'static,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let state = Arc::new(WatchState::default());
        let its_state = Arc::clone(&state);
        let main = move || its_state.run(workers, progress, wake);
        let handle = thread::Builder::new().name(String::from("watch")).spawn(main)?;
        Ok(Self { state, thread: handle.thread().clone(), handle: Mutex::new(Some(handle)) })
    }

    /// Turns the watch on if a job waits. To be called after a job was counted as waiting, before or after it is spawned.
    #[inline]
    pub(super) fn submitted(&self, waiting: u64) {
        if waiting > 0 && !self.is_on() {
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
        join_once(&self.handle, None);
    }
}

/// The time between two checks, and what the last check found.
struct CheckState {
    interval: Duration,
    /// The counts at the last check, if that check woke a thread.
    woken_at: Option<JobCounts>,
}

impl Default for CheckState {
    fn default() -> Self {
        Self { interval: CHECK_INTERVAL, woken_at: None }
    }
}

impl WatchState {
    fn is_on(&self) -> bool {
        self.on.load(Ordering::SeqCst)
    }

    fn run(&self, workers: usize, progress: impl Fn() -> JobCounts, wake: impl Fn()) {
        let mut last_check = CheckState::default();
        while !self.ended.load(Ordering::SeqCst) {
            if !self.is_on() {
                thread::park();
                continue;
            }
            thread::park_timeout(last_check.interval);
            if self.check(workers, &progress, &mut last_check) {
                wake();
            }
        }
    }

    /// Returns whether to wake a thread: a job waits, and fewer than `workers` jobs run. Marks the watch as off if no job
    /// waits.
    fn check(&self, workers: usize, progress: impl Fn() -> JobCounts, last_check: &mut CheckState) -> bool {
        let found = progress();
        if found.waiting > 0 && found.running < workers as u64 {
            last_check.interval = if last_check.woken_at == Some(found) {
                MAX_CHECK_INTERVAL.min(last_check.interval * 2)
            } else {
                CHECK_INTERVAL
            };
            last_check.woken_at = Some(found);
            return true;
        }
        if found.waiting == 0 {
            self.on.store(false, Ordering::SeqCst);
            self.on.fetch_or(progress().waiting > 0, Ordering::SeqCst);
        }
        *last_check = CheckState::default();
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use polyserve_core::sync::lock;

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    /// The counts that a watch sees.
    #[derive(Clone, Default)]
    struct Counts(Arc<Mutex<JobCounts>>);

    impl Counts {
        fn read(&self) -> JobCounts {
            *lock(&self.0)
        }

        fn waits(&self) {
            lock(&self.0).waiting += 1;
        }

        fn begins(&self) {
            let mut counts = lock(&self.0);
            (counts.waiting, counts.running) = (counts.waiting - 1, counts.running + 1);
        }

        fn ends(&self) {
            let mut counts = lock(&self.0);
            (counts.running, counts.ended) = (counts.running - 1, counts.ended + 1);
        }
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
        let counts = Counts::default();
        let (woken, wakes) = mpsc::channel();
        let watched = counts.clone();
        let watch = WatchThread::start(2, move || watched.read(), move || woken.send(()).unwrap()).unwrap();
        for _ in 0..3 {
            counts.waits();
            counts.begins();
            watch.submitted(counts.read().waiting);
            assert!(!watch.is_on(), "no job waits");
            counts.waits();
            watch.submitted(counts.read().waiting);
            assert!(watch.is_on(), "a job waits");
            (0..3).for_each(|_| wakes.recv_timeout(LONG).unwrap());
            counts.begins();
            goes_off(&watch);
            (0..2).for_each(|_| counts.ends());
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
        let (counts, state, mut last_check) = (Counts::default(), WatchState::default(), CheckState::default());
        counts.waits();
        counts.begins();
        counts.waits();
        state.on.store(true, Ordering::SeqCst);
        for _ in 0..3 {
            assert!(!state.check(1, || counts.read(), &mut last_check), "the only worker is busy");
            assert!(state.is_on(), "the job still waits");
        }
        counts.begins();
        assert!(!state.check(1, || counts.read(), &mut last_check) && !state.is_on(), "no job waits");
    }

    #[test]
    fn wake_ups_that_change_nothing_become_rare() {
        let (counts, state, mut last_check) = (Counts::default(), WatchState::default(), CheckState::default());
        counts.waits();
        let mut next = || {
            assert!(state.check(2, || counts.read(), &mut last_check), "a job waits and two threads are idle");
            last_check.interval
        };
        assert_eq!([next(), next(), next()], [CHECK_INTERVAL, CHECK_INTERVAL * 2, CHECK_INTERVAL * 4]);
        assert_eq!((0..10).map(|_| next()).last(), Some(MAX_CHECK_INTERVAL));
        counts.begins();
        counts.waits();
        assert_eq!(next(), CHECK_INTERVAL, "a job has begun since");
    }
}
