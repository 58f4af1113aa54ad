//! A thread that looks now and then whether a runtime has overlooked a job, and has it look again.
//!
//! A runtime that wakes no thread for a job may count on one that it takes to be awake, and that one may be falling
//! asleep. Where jobs end soon nobody sees it, for who has ended one looks for the next; a job that waits for another
//! would wait for ever, beside an idle thread. With a watch it mostly waits for [`EVERY`] and a moment.
//!
//! Invariant: while a job waits and another one waits or runs, the watch is on or about to be. A submitter counts its job
//! before it looks whether the watch is on; the thread says that it is off before it looks a last time who waits.
//!
//! Which threads are idle is reckoned from the jobs alone: a thread that somebody else's task holds counts as idle and is
//! woken for in vain, ever more seldom; a job that calls tokio's `block_in_place` counts as holding its thread.
//!
//! Cost: a look at the queue's word for each job, and one at `on` where another job is about; at most two wake-ups of the
//! thread each 5 ms while a job waits beside another, and one more to find that none does. Otherwise it sleeps.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use super::queue::{Look, Queue};
use super::threads::join_once;

const EVERY: Duration = Duration::from_millis(5);
/// How seldom it looks where nothing was done since a wake, time after time: what nobody takes must not pile up.
const SELDOM: Duration = Duration::from_millis(320);

pub(super) struct Watch {
    state: Arc<State>,
    thread: Thread,
    /// Until it is joined.
    handle: Mutex<Option<JoinHandle<()>>>,
}

struct State {
    queue: Arc<Queue>,
    on: AtomicBool,
    ended: AtomicBool,
}

impl Watch {
    /// Starts the thread, which calls `wake` each time that it finds a job waiting and fewer than `workers` running.
    ///
    /// # Errors
    ///
    /// Where the system has no thread left.
    pub(super) fn start(queue: &Arc<Queue>, workers: usize, wake: impl Fn() + Send + 'static) -> io::Result<Self> {
        let state = State { queue: Arc::clone(queue), on: AtomicBool::new(false), ended: AtomicBool::new(false) };
        let state = Arc::new(state);
        let its = Arc::clone(&state);
        let handle = thread::Builder::new().name(String::from("watch")).spawn(move || its.run(workers, wake))?;
        Ok(Self { state, thread: handle.thread().clone(), handle: Mutex::new(Some(handle)) })
    }

    /// To be called once a job is counted as waiting, before or after the runtime has it.
    #[inline]
    pub(super) fn submitted(&self) {
        if is_needed(self.state.queue.look()) && !self.is_on() {
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

    /// Has the thread end; does not wait for it.
    pub(super) fn end(&self) {
        self.state.ended.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }

    /// Waits for the thread's end, which it was told of.
    pub(super) fn join(&self) {
        join_once(&self.handle);
    }
}

/// Whether a job waits and is not alone.
fn is_needed(look: Look) -> bool {
    look.waiting() > 0 && look.waiting() + look.running() > 1
}

impl State {
    fn run(&self, workers: usize, wake: impl Fn()) {
        let (mut every, mut woken_at) = (EVERY, None);
        while !self.ended.load(Ordering::SeqCst) {
            if !self.on.load(Ordering::SeqCst) {
                thread::park();
                continue;
            }
            thread::park_timeout(every);
            let stand @ (look, _) = self.queue.stand();
            if !is_needed(look) {
                self.on.store(false, Ordering::SeqCst);
                self.on.fetch_or(is_needed(self.queue.look()), Ordering::SeqCst);
            } else if look.running() < workers {
                every = if woken_at == Some(stand) { SELDOM.min(every * 2) } else { EVERY };
                woken_at = Some(stand);
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
            assert!(Instant::now() < deadline, "it is on with nobody waiting");
            thread::yield_now();
        }
    }

    #[test]
    fn who_waits_beside_an_idle_thread_is_seen_to_until_it_runs() {
        let queue = Arc::new(Queue::new(4));
        let (woken, wakes) = mpsc::channel();
        let watch = Watch::start(&queue, 2, move || woken.send(()).unwrap()).unwrap();
        for _ in 0..3 {
            begins(&queue, waits(&queue));
            watch.submitted();
            assert!(!watch.is_on(), "a job alone");
            let place = waits(&queue);
            watch.submitted();
            assert!(watch.is_on(), "a job waits beside another");
            (0..3).for_each(|_| wakes.recv_timeout(LONG).unwrap());
            begins(&queue, place);
            goes_off(&watch);
            (0..2).for_each(|_| assert!(!queue.end().is_closed()));
            while wakes.try_recv().is_ok() {}
        }
        watch.end();
        watch.join();
        watch.join();
        assert_eq!(wakes.recv_timeout(LONG), Err(mpsc::RecvTimeoutError::Disconnected), "none since, and it has ended");
    }

    #[test]
    fn who_waits_for_a_thread_to_be_free_wakes_nobody() {
        let queue = Arc::new(Queue::new(4));
        let (woken, wakes) = mpsc::channel();
        let watch = Watch::start(&queue, 1, move || woken.send(()).unwrap()).unwrap();
        begins(&queue, waits(&queue));
        let place = waits(&queue);
        watch.submitted();
        assert!(watch.is_on(), "a job waits beside another");
        // For it to look some times; where it does not come to it, this test sees less.
        thread::sleep(8 * EVERY);
        assert!(watch.is_on(), "it still waits");
        begins(&queue, place);
        goes_off(&watch);
        watch.end();
        watch.join();
        assert!(wakes.recv().is_err(), "the one worker was busy all the time");
    }
}
