//! The time of a model: it passes only if a thread of the model advances it.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::{PrimitiveFault, checker};

type Callback = Arc<dyn Fn() + Send + Sync>;

/// The time since the start of the model.
#[derive(Default)]
struct Clock {
    now: Duration,
    /// From now on, waits with a timeout end at once.
    run_out: bool,
    next: u64,
    /// Timers that are not due yet: number, time, and function to call.
    timers: Vec<(u64, Duration, Callback)>,
}

checker::lazy_static! {
    static ref CLOCK: checker::sync::Mutex<Clock> = checker::sync::Mutex::new(Clock::default());
}

/// Returns the time of the model.
///
/// # Panics
///
/// Panics if it is called outside a model.
pub fn now() -> Instant {
    // The same for all models of a process, so that an instant means the same in every execution.
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now) + CLOCK.lock().expect("no poison").now
}

/// Advances the time. A wait ends if its timeout is due.
pub fn advance(time: Duration) {
    let mut clock = CLOCK.lock().expect("no poison");
    clock.now += time;
    let now = clock.now;
    let due: Vec<_> = clock.timers.extract_if(.., |(_, at, _)| *at <= now).collect();
    drop(clock);
    fire(due);
}

/// Lets time run out: every wait with a timeout ends at once, also one that begins later. The time then is that of its
/// timeout.
pub fn run_out() {
    let mut clock = CLOCK.lock().expect("no poison");
    clock.run_out = true;
    let due = std::mem::take(&mut clock.timers);
    clock.now = due.iter().map(|(_, at, _)| *at).fold(clock.now, Duration::max);
    drop(clock);
    fire(due);
}

fn fire(due: Vec<(u64, Duration, Callback)>) {
    for (_, _, callback) in due {
        if !PrimitiveFault::Timeout.is_on() {
            callback();
        }
    }
}

/// Calls `callback` once `after` has passed. Returns `None` if it has passed already, because time has run out.
pub(super) fn set(after: Duration, callback: impl Fn() + Send + Sync + 'static) -> Option<u64> {
    let mut clock = CLOCK.lock().expect("no poison");
    let at = clock.now.saturating_add(after);
    if clock.run_out {
        clock.now = at;
        return None;
    }
    clock.next += 1;
    let timer = clock.next;
    clock.timers.push((timer, at, Arc::new(callback)));
    Some(timer)
}

/// Cancels a timer. Returns whether it has fired, or is about to.
pub(super) fn has_fired(timer: u64) -> bool {
    let mut clock = CLOCK.lock().expect("no poison");
    let before = clock.timers.len();
    clock.timers.retain(|(other, ..)| *other != timer);
    clock.timers.len() == before
}
