//! Threads of a model, and parking: each thread has a token, which `unpark` sets and `park` takes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use super::checker::thread::{Builder, JoinHandle, ThreadId, panicking, spawn, yield_now};
use super::{PrimitiveFault, checker, clock};

checker::thread_local! {
    static PARKER: Arc<Parker> = Arc::default();
}

#[derive(Default)]
struct Parker {
    state: checker::sync::Mutex<Parked>,
    changed: checker::sync::Condvar,
}

#[derive(Default)]
struct Parked {
    token: bool,
    parked: bool,
    timed_out: bool,
}

/// A thread that can be woken.
#[derive(Clone)]
pub struct Thread {
    inner: checker::thread::Thread,
    parker: Arc<Parker>,
}

impl Thread {
    /// The number of the thread.
    pub fn id(&self) -> ThreadId {
        self.inner.id()
    }

    /// Ends the park of the thread, or its next one.
    pub fn unpark(&self) {
        let mut state = self.parker.state.lock().expect("no poison");
        if state.parked || !PrimitiveFault::Token.is_on() {
            state.token = true;
        }
        drop(state);
        self.parker.changed.notify_one();
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Thread(..)")
    }
}

/// Returns the current thread.
pub fn current() -> Thread {
    Thread { inner: checker::thread::current(), parker: parker() }
}

fn parker() -> Arc<Parker> {
    // While the thread's locals are destroyed, it has no parker any more. A new parker works too, because no other thread
    // has a handle to that parker.
    PARKER.try_with(Arc::clone).unwrap_or_default()
}

/// Waits for an `unpark`.
pub fn park() {
    let parker = parker();
    parker.wait(|parked| !parked.token);
}

/// Waits for an `unpark`, for at most `timeout`.
pub fn park_timeout(timeout: Duration) {
    let parker = parker();
    parker.state.lock().expect("no poison").timed_out = false;
    let set_timed_out = {
        let parker = Arc::clone(&parker);
        move || {
            parker.state.lock().expect("no poison").timed_out = true;
            parker.changed.notify_one();
        }
    };
    match clock::set(timeout, set_timed_out) {
        Some(timer) => {
            parker.wait(|parked| !(parked.token || parked.timed_out));
            clock::has_fired(timer);
        }
        None => {
            parker.state.lock().expect("no poison").token = false;
            yield_now();
        }
    }
}

impl Parker {
    fn wait(&self, must_wait: impl Fn(&Parked) -> bool) {
        let mut state = self.state.lock().expect("no poison");
        while must_wait(&state) {
            state.parked = true;
            state = self.changed.wait(state).expect("no poison");
        }
        state.parked = false;
        state.token = false;
    }
}
