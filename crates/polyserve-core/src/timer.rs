//! Timers: one thread, with a sorted map of promises that it completes in time. It needs no runtime, so that every strategy can
//! use it.
//!
//! Invariants: a promise is completed no earlier than its instant; a waker that panics does not end the thread.
//!
//! If the system refuses the thread, a wait looks at the clock itself, each millisecond, on the thread that polls it. The next wait
//! asks for the timer's thread again.
//!
//! Cost: a lock and O(log n) for each wait. The thread starts with the first wait, and sleeps while there is none. Abandoned
//! waits are removed when the map has doubled, so that it stays within twice the number of live waits.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::answer::{Answer, Completer, promise};
use crate::panics::isolate;
use crate::sync::{Condvar, Mutex, lock, now, thread};

/// Returns an answer that is ready once `duration` has passed.
///
/// ```
/// use polyserve_core::timer;
/// use std::time::Duration;
/// timer::after(Duration::from_millis(1)).wait();
/// ```
pub fn after(duration: Duration) -> Answer<()> {
    match now().checked_add(duration) {
        Some(instant) => at(instant),
        None => Answer::later(std::future::pending()),
    }
}

/// Returns an answer that is ready once `instant` has passed. If it has passed already, the answer is
/// [`Now`](Answer::Now).
///
/// ```
/// use polyserve_core::timer;
/// assert!(timer::at(std::time::Instant::now()).is_now());
/// ```
pub fn at(instant: Instant) -> Answer<()> {
    if instant <= now() {
        return Answer::Now(());
    }
    match timer() {
        Some(timer) => timer.at(instant),
        None => without_thread(instant),
    }
}

/// How long a wait without the timer's thread sleeps at each poll.
const LOOK_AFTER: Duration = Duration::from_millis(1);

/// Returns an answer that is ready once `instant` has passed. Each poll sleeps for up to [`LOOK_AFTER`], so that the wait does not take all
/// of its thread's time, and wakes its task at once.
fn without_thread(instant: Instant) -> Answer<()> {
    let poll = move |cx: &mut Context<'_>| {
        let left = instant.saturating_duration_since(now());
        if left.is_zero() {
            return Poll::Ready(());
        }
        std::thread::sleep(left.min(LOOK_AFTER));
        cx.waker().wake_by_ref();
        Poll::Pending
    };
    Answer::later(poll_fn(poll))
}

pub(crate) struct Timer {
    state: Mutex<TimerState>,
    changed: Condvar,
}

struct TimerState {
    /// The waits by their instants. A number tells those of one instant apart.
    waits: BTreeMap<(Instant, u64), Completer<()>>,
    next_number: u64,
    sweep_at: usize,
}

impl TimerState {
    /// Returns the earliest instant.
    fn first(&self) -> Option<Instant> {
        self.waits.first_key_value().map(|((instant, _), _)| *instant)
    }
}

/// With fewer waits than this, abandoned waits stay until their time comes.
const SWEEP_FLOOR: usize = 1024;

/// Returns the timer of the process, and starts its thread if it does not run; `None` if the system refuses it.
fn timer() -> Option<&'static Timer> {
    static RUNNING: OnceLock<Arc<Timer>> = OnceLock::new();
    static STARTING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    if let Some(timer) = RUNNING.get() {
        return Some(timer);
    }
    let starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(timer) = RUNNING.get() {
        return Some(timer); // another thread has started it
    }
    let timer = Arc::new(Timer::new());
    let on_thread = Arc::clone(&timer);
    match thread::Builder::new().name("polyserve-timer".into()).spawn(move || on_thread.run()) {
        Ok(_) => Some(RUNNING.get_or_init(|| timer)),
        Err(error) => {
            drop(starting); // the log is foreign code
            crate::throttled!(warn, %error, "the timer's thread cannot be started; waits look at the clock themselves");
            None
        }
    }
}

impl Timer {
    pub(crate) fn new() -> Self {
        let state = TimerState { waits: BTreeMap::new(), next_number: 0, sweep_at: SWEEP_FLOOR };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Returns an answer that is ready once `instant` has passed.
    pub(crate) fn at(&self, instant: Instant) -> Answer<()> {
        let (completer, answer) = promise(());
        let mut state = lock(&self.state);
        if state.waits.len() >= state.sweep_at {
            state.waits.retain(|_, completer| !completer.is_abandoned());
            state.sweep_at = SWEEP_FLOOR.max(state.waits.len() * 2);
        }
        let is_earliest = state.first().is_none_or(|first| instant < first);
        state.next_number += 1;
        let key = (instant, state.next_number);
        state.waits.insert(key, completer);
        drop(state);
        if is_earliest {
            self.changed.notify_one();
        }
        answer
    }

    fn run(&self) {
        let mut due = Vec::new();
        loop {
            self.run_once(&mut due);
        }
    }

    /// Completes the waits that are due, or waits until one may be. Returns the number of waits completed. `due` is empty
    /// before and after.
    pub(crate) fn run_once(&self, due: &mut Vec<Completer<()>>) -> usize {
        let mut state = lock(&self.state);
        let now = now();
        while state.first().is_some_and(|first| first <= now) {
            due.extend(state.waits.pop_first().map(|(_, completer)| completer));
        }
        if due.is_empty() {
            match state.first().map(|first| first.saturating_duration_since(now)) {
                None => drop(self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)),
                Some(time) => drop(self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner)),
            }
            return 0;
        }
        drop(state);
        let completed = due.len();
        for completer in due.drain(..) {
            // A waker is foreign code: if it panics, the thread must live on.
            if let Err(text) = isolate(|| completer.complete(()).is_ok()) {
                let _ = isolate(|| crate::throttled!(warn, panic = text, "a waker panicked"));
            }
        }
        completed
    }
}

#[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
mod tests {
    use super::*;
    use std::future::{Future, IntoFuture};
    use std::pin::Pin;
    use std::task::Context;

    #[test]
    fn waits_end_in_their_order_and_not_early() {
        let start = Instant::now();
        let late = after(Duration::from_millis(30));
        let early = after(Duration::from_millis(10));
        early.wait();
        assert!(start.elapsed() >= Duration::from_millis(10));
        late.wait();
        assert!(start.elapsed() >= Duration::from_millis(30));
        assert!(at(start).is_now());
    }

    /// Regression test: a wait panicked if the system refused the timer's thread.
    #[test]
    fn a_wait_without_the_thread_ends_and_not_early() {
        let start = Instant::now();
        without_thread(start + Duration::from_millis(10)).wait();
        assert!(start.elapsed() >= Duration::from_millis(10));
        assert!(without_thread(start + Duration::from_secs(60)).wait_until(start + Duration::from_millis(20)).is_err());
        without_thread(start).wait();
    }

    #[test]
    fn abandoned_waits_are_swept() {
        for _ in 0..5 * SWEEP_FLOOR {
            drop(after(Duration::from_secs(3600)));
        }
        assert!(lock(&timer().unwrap().state).waits.len() <= 2 * SWEEP_FLOOR);
    }

    /// Regression test: a waker that panicked ended the timer thread. No later wait in the process ended.
    #[test]
    fn a_waker_that_panics_does_not_end_the_thread() {
        let mut answer = after(Duration::from_millis(1)).into_future();
        let waker = crate::test_wakers::panicking();
        let mut polled = Pin::new(&mut answer).poll(&mut Context::from_waker(&waker));
        while polled.is_pending() {
            after(Duration::from_millis(1)).wait_until(Instant::now() + Duration::from_secs(60)).unwrap();
            polled = Pin::new(&mut answer).poll(&mut Context::from_waker(&waker));
        }
    }

    #[test]
    fn a_wait_beyond_the_clock_does_not_panic() {
        assert!(after(Duration::MAX).wait_until(Instant::now()).is_err());
    }
}
