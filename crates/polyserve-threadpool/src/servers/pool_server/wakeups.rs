//! How threads wake each other: the supervisor, which parks or polls, and the worker that polls.
//!
//! Invariant: a wake-up of the supervisor is never lost. The caller stores `is_woken`, and then loads whether the
//! supervisor polls. The supervisor stores that it polls, and then loads `is_woken`. All four are sequentially consistent:
//! one of the two sees the other. A park cannot miss it either: an unpark that comes first makes the park return.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use mio::Waker;

#[derive(Debug)]
pub(super) struct Wakeups {
    /// Ends the poll, whichever thread polls.
    waker: Waker,
    /// The supervisor's thread.
    supervisor: OnceLock<Thread>,
    /// The supervisor must read the ready list before it waits again.
    is_woken: AtomicBool,
    /// The supervisor polls, or is about to.
    supervisor_polls: AtomicBool,
}

impl Wakeups {
    pub(super) fn new(waker: Waker) -> Self {
        let [is_woken, supervisor_polls] = [const { AtomicBool::new(false) }; 2];
        Self { waker, supervisor: OnceLock::new(), is_woken, supervisor_polls }
    }

    /// Notes that the calling thread is the supervisor.
    pub(super) fn set_supervisor(&self) {
        let _ = self.supervisor.set(thread::current());
    }

    pub(super) fn wake_supervisor(&self) {
        self.is_woken.store(true, Ordering::SeqCst);
        if self.supervisor_polls.load(Ordering::SeqCst) {
            let _ = self.waker.wake();
        }
        if let Some(thread) = self.supervisor.get() {
            thread.unpark();
        }
    }

    /// Wakes the thread that polls.
    pub(super) fn wake_poller(&self) {
        let _ = self.waker.wake();
    }

    /// Parks the supervisor for at most `timeout`, unless it was woken since its last wait.
    pub(super) fn park_supervisor(&self, timeout: Option<Duration>) {
        if !self.is_woken.swap(false, Ordering::SeqCst) {
            match timeout {
                Some(timeout) => thread::park_timeout(timeout),
                None => thread::park(),
            }
            self.is_woken.store(false, Ordering::SeqCst);
        }
    }

    /// Calls `poll` for the supervisor, with `timeout`. The timeout is zero if the supervisor was woken since its last wait.
    pub(super) fn poll_as_supervisor(&self, timeout: Option<Duration>, poll: impl FnOnce(Option<Duration>)) {
        self.supervisor_polls.store(true, Ordering::SeqCst);
        let is_woken = self.is_woken.swap(false, Ordering::SeqCst);
        poll(if is_woken { Some(Duration::ZERO) } else { timeout });
        self.supervisor_polls.store(false, Ordering::SeqCst);
    }
}
