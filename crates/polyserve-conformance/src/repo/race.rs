//! Racing threads: in step, and for a limited time.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::Entity;

use crate::history;

/// The number of racing threads, unless a property sets another.
pub(super) const RACERS: usize = 4;

/// A race ends when this time has passed and at least [`MIN_STEPS`] steps were taken.
const MAX_DURATION: Duration = Duration::from_secs(1);
const MIN_STEPS: usize = 32;

/// The state that racing threads share.
pub(super) struct Race {
    threads: usize,
    arrived: AtomicUsize,
    over: AtomicBool,
    /// The time at which the race ends. `None` means no limit.
    deadline: Option<Instant>,
}

impl Race {
    /// Returns whether to go on. Ends the race for all threads once its time is up.
    pub(super) fn goes_on(&self) -> bool {
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.end();
        }
        !self.over.load(SeqCst)
    }

    /// The numbers of `turns`, until the race is over. The first is always taken.
    pub(super) fn turns(&self, turns: Range<u64>) -> impl Iterator<Item = u64> {
        let first = turns.start;
        turns.take_while(move |turn| *turn == first || self.goes_on())
    }

    /// Ends the race for all threads.
    pub(super) fn end(&self) {
        self.over.store(true, SeqCst);
    }

    /// Waits until every thread is about to take step `step`. Returns `false` if the race is over and no thread takes
    /// that step.
    ///
    /// The wait spins, and yields if it takes longer. Threads that sleep would wake one after the other, and not race.
    fn meet(&self, step: usize) -> bool {
        if step >= MIN_STEPS && !self.goes_on() {
            return false;
        }
        let expected = (step + 1) * self.threads;
        self.arrived.fetch_add(1, SeqCst);
        let mut spins = 0;
        loop {
            // This order matters: a thread that ends the race at a later step has seen all threads arrive at this one.
            let over = self.over.load(SeqCst);
            if self.arrived.load(SeqCst) >= expected {
                return true;
            }
            if over {
                return false;
            }
            if spins < 100 {
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
            spins += 1;
        }
    }
}

/// Ends the race if its thread panics, so that no thread waits for it.
struct EndOnPanic<'a>(&'a Race);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.end();
        }
    }
}

/// Runs `racer` on `threads` threads from a common start, each with its number. Returns their results by number.
pub(super) fn race<T: Send>(threads: usize, racer: impl Fn(usize, &Race) -> T + Sync) -> Vec<T> {
    run(MAX_DURATION, threads, |number, race| {
        race.meet(0);
        racer(number, race)
    })
}

/// Runs `racer` on `threads` threads, each with its number and the step's number. All threads take each step together.
/// Returns the results by step and number.
pub(super) fn lockstep<T: Send>(threads: usize, steps: usize, racer: impl Fn(usize, usize) -> T + Sync) -> Vec<Vec<T>> {
    lockstep_within(MAX_DURATION, threads, steps, racer)
}

/// [`lockstep`] with a time limit.
pub(crate) fn lockstep_within<T: Send>(
    max_duration: Duration,
    threads: usize,
    steps: usize,
    racer: impl Fn(usize, usize) -> T + Sync,
) -> Vec<Vec<T>> {
    let mut by_thread: Vec<_> = run(max_duration, threads, |number, race| {
        let taken = (0..steps).take_while(|&step| race.meet(step));
        taken.map(|step| racer(number, step)).collect::<Vec<_>>().into_iter()
    });
    let mut by_step = Vec::new();
    loop {
        let step: Vec<T> = by_thread.iter_mut().filter_map(Iterator::next).collect();
        if step.is_empty() {
            return by_step;
        }
        assert_eq!(step.len(), threads, "every thread takes every step");
        by_step.push(step);
    }
}

fn run<T: Send>(max_duration: Duration, threads: usize, racer: impl Fn(usize, &Race) -> T + Sync) -> Vec<T> {
    let deadline = Instant::now().checked_add(max_duration);
    let race = Race { threads, arrived: AtomicUsize::new(0), over: AtomicBool::new(false), deadline };
    let results: Vec<_> = thread::scope(|scope| {
        let (race, racer) = (&race, &racer);
        let run = move |number| {
            let _end = EndOnPanic(race);
            racer(number, race)
        };
        let racers: Vec<_> = (0..threads).map(|number| scope.spawn(move || run(number))).collect();
        racers.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    results.into_iter().map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect()
}

/// An entity with `stamp` in both its parts. The descriptions of neighbouring stamps differ in length.
pub(super) fn stamped(id: i64, stamp: u64) -> Entity {
    history::entity(id, stamp)
}

/// The stamp of an entity.
///
/// # Panics
///
/// Panics if its parts have different stamps: then it has parts of two entities.
pub(super) fn stamp(entity: &Entity) -> u64 {
    history::value_of(entity.id, entity.as_ref()).unwrap_or_else(|wrong| panic!("{wrong}"))
}
