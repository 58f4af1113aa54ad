//! A thread that wakes a runtime for jobs that the runtime has overlooked.
//!
//! A runtime wakes no thread for a job if it counts one as awake, and that thread may be falling asleep. If jobs end soon,
//! this has no effect: a thread that has ended a job looks for the next. But a job that waits behind a long job, or behind
//! another task that holds its thread, would wait although a thread is idle. With a watch it waits for about [`EVERY`].
//!
//! Invariant: while a job waits, the watch is on or about to be. A submitter counts its job before it checks whether the
//! watch is on. The thread marks the watch as off before it checks a last time for waiting jobs.
//!
//! The number of idle threads is derived from the jobs alone. A thread that runs a task that is not a job counts as idle:
//! it is woken in vain, less and less often. A job that calls tokio's `block_in_place` counts as holding its thread.
//!
//! Cost: for each job a read of the queue's word and a read of `on`. While jobs come, at most two wake-ups of the thread
//! every 5 ms. Without jobs the thread sleeps.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use super::queue::Queue;
use super::threads::join_once;

/// The time between two checks.
const EVERY: Duration = Duration::from_millis(5);
/// The longest time between two checks. The time doubles while wake-ups change nothing, so that empty tasks do not pile up.
const SELDOM: Duration = Duration::from_millis(320);

/// A handle of the thread.
pub(super) struct Watch {
    state: Arc<WatchState>,
    thread: Thread,
    /// `None` once it is joined.
    handle: Mutex<Option<JoinHandle<()>>>,
}

struct WatchState {
    queue: Arc<Queue>,
    on: AtomicBool,
    ended: AtomicBool,
}

impl Watch {
    /// Starts the thread. It calls `wake` at each check that finds a job waiting and fewer than `workers` jobs running.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot start a thread.
    pub(super) fn start(queue: &Arc<Queue>, workers: usize, wake: impl Fn() + Send + 'static) -> io::Result<Self> {
        let state = WatchState { queue: Arc::clone(queue), on: AtomicBool::new(false), ended: AtomicBool::new(false) };
        let state = Arc::new(state);
        let its = Arc::clone(&state);
        let handle = thread::Builder::new().name(String::from("watch")).spawn(move || its.run(workers, wake))?;
        Ok(Self { state, thread: handle.thread().clone(), handle: Mutex::new(Some(handle)) })
    }

    /// Turns the watch on if a job waits. To be called once a job counts as waiting, before or after it is spawned.
    #[inline]
    pub(super) fn submitted(&self) {
        if self.state.queue.snapshot().waiting() > 0 && !self.is_on() {
            self.turn_on();
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.state.on.load(Ordering::SeqCst)
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

impl WatchState {
    fn run(&self, workers: usize, wake: impl Fn()) {
        let (mut every, mut woken_at) = (EVERY, None);
        while !self.ended.load(Ordering::SeqCst) {
            if !self.on.load(Ordering::SeqCst) {
                thread::park();
                continue;
            }
            thread::park_timeout(every);
            let progress @ (snapshot, _) = self.queue.progress();
            if snapshot.waiting() == 0 {
                self.on.store(false, Ordering::SeqCst);
                self.on.fetch_or(self.queue.snapshot().waiting() > 0, Ordering::SeqCst);
            } else if snapshot.running() < workers {
                every = if woken_at == Some(progress) { SELDOM.min(every * 2) } else { EVERY };
                woken_at = Some(progress);
                wake();
                continue;
            }
            (every, woken_at) = (EVERY, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use polyserve_core::Job;

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn waits(queue: &Queue) -> usize {
        queue.enter().unwrap();
        queue.put(Job::new(|| {}))
    }

    fn begins(queue: &Queue, place: usize) {
        assert!(queue.take(place).is_some());
        queue.begin();
    }

    fn goes_off(watch: &Watch) {
        let deadline = Instant::now() + LONG;
        while watch.is_on() {
            assert!(Instant::now() < deadline, "it is on although no job waits");
            thread::yield_now();
        }
    }

    #[test]
    fn a_waiting_job_wakes_idle_threads_until_it_runs() {
        let queue = Arc::new(Queue::new(4));
        let (woken, wakes) = mpsc::channel();
        let watch = Watch::start(&queue, 2, move || woken.send(()).unwrap()).unwrap();
        for _ in 0..3 {
            begins(&queue, waits(&queue));
            watch.submitted();
            assert!(!watch.is_on(), "no job waits");
            let place = waits(&queue);
            watch.submitted();
            assert!(watch.is_on(), "a job waits");
            (0..3).for_each(|_| wakes.recv_timeout(LONG).unwrap());
            begins(&queue, place);
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
        let queue = Arc::new(Queue::new(4));
        let (woken, wakes) = mpsc::channel();
        let watch = Watch::start(&queue, 1, move || woken.send(()).unwrap()).unwrap();
        begins(&queue, waits(&queue));
        let place = waits(&queue);
        watch.submitted();
        assert!(watch.is_on(), "a job waits");
        // Time for several checks. If the thread makes fewer, this test shows less.
        thread::sleep(8 * EVERY);
        assert!(watch.is_on(), "the job still waits");
        begins(&queue, place);
        goes_off(&watch);
        watch.end();
        watch.join();
        assert!(wakes.recv().is_err(), "the only worker was busy all the time");
    }
}
