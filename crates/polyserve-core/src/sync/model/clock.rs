//! A model's time: it stands still until a thread of the model moves it.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::{Fault, checker};

type Ring = Arc<dyn Fn() + Send + Sync>;

/// Since the model's begin.
#[derive(Default)]
struct Clock {
    now: Duration,
    /// Waits with a timeout end at once from now on.
    run_out: bool,
    next: u64,
    /// Alarms that have not rung: number, time, what to call.
    alarms: Vec<(u64, Duration, Ring)>,
}

checker::lazy_static! {
    static ref CLOCK: checker::sync::Mutex<Clock> = checker::sync::Mutex::new(Clock::default());
}

/// The time.
///
/// # Panics
///
/// Outside a model.
pub fn now() -> Instant {
    // The same for all models of a process: instants of one execution mean the same in the next.
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now) + CLOCK.lock().expect("no poison").now
}

/// Lets `time` pass: timeouts that are due end.
pub fn advance(time: Duration) {
    let mut clock = CLOCK.lock().expect("no poison");
    clock.now += time;
    let now = clock.now;
    let due: Vec<_> = clock.alarms.extract_if(.., |(_, at, _)| *at <= now).collect();
    drop(clock);
    ring(due);
}

/// Lets all the time pass that anybody waits for, now and from now on: a wait with a timeout ends at once, at its time.
pub fn run_out() {
    let mut clock = CLOCK.lock().expect("no poison");
    clock.run_out = true;
    let due = std::mem::take(&mut clock.alarms);
    clock.now = due.iter().map(|(_, at, _)| *at).fold(clock.now, Duration::max);
    drop(clock);
    ring(due);
}

fn ring(due: Vec<(u64, Duration, Ring)>) {
    for (_, _, ring) in due {
        if !Fault::Timeout.is_on() {
            ring();
        }
    }
}

/// Has `ring` called once `after` has passed. `None`: it has passed already, for time has run out.
pub(super) fn set(after: Duration, ring: impl Fn() + Send + Sync + 'static) -> Option<u64> {
    let mut clock = CLOCK.lock().expect("no poison");
    let at = clock.now.saturating_add(after);
    if clock.run_out {
        clock.now = at;
        return None;
    }
    clock.next += 1;
    let alarm = clock.next;
    clock.alarms.push((alarm, at, Arc::new(ring)));
    Some(alarm)
}

/// Takes an alarm back; whether it has rung, or is about to.
pub(super) fn has_rung(alarm: u64) -> bool {
    let mut clock = CLOCK.lock().expect("no poison");
    let before = clock.alarms.len();
    clock.alarms.retain(|(other, ..)| *other != alarm);
    clock.alarms.len() == before
}
