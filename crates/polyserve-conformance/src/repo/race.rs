//! Threads that race: together, step by step, and not for long.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::Entity;

use crate::history;

/// How many threads race, unless a property says otherwise.
pub(super) const RACERS: usize = 4;

/// A race that is not over by then ends, once it has taken [`LEAST`] steps.
const LONGEST: Duration = Duration::from_secs(1);
const LEAST: usize = 32;

/// What racing threads share.
pub(super) struct Race {
    threads: usize,
    arrived: AtomicUsize,
    over: AtomicBool,
    /// When its time is up; `None`: never.
    ends: Option<Instant>,
}

impl Race {
    /// Whether to go on. Ends the race for all once its time is up.
    pub(super) fn goes_on(&self) -> bool {
        if self.ends.is_some_and(|ends| Instant::now() >= ends) {
            self.end();
        }
        !self.over.load(SeqCst)
    }

    /// Ends it for all.
    pub(super) fn end(&self) {
        self.over.store(true, SeqCst);
    }

    /// Waits until every thread is about to take step `step`. `false`: the race is over, and no thread takes that step.
    ///
    /// The wait spins, and yields where it takes longer: threads that sleep would wake one after the other, and not
    /// meet.
    fn meet(&self, step: usize) -> bool {
        if step >= LEAST && !self.goes_on() {
            return false;
        }
        let all = (step + 1) * self.threads;
        self.arrived.fetch_add(1, SeqCst);
        let mut spins = 0;
        loop {
            // In this order: whoever ends the race at a later step has seen all arrive at this one.
            let over = self.over.load(SeqCst);
            if self.arrived.load(SeqCst) >= all {
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

/// A racer that panics ends the race, so that nobody waits for it.
struct EndOnPanic<'a>(&'a Race);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.end();
        }
    }
}

/// Runs `racer` on `threads` threads, each with its number, from a common start; their results by number.
pub(super) fn race<T: Send>(threads: usize, racer: impl Fn(usize, &Race) -> T + Sync) -> Vec<T> {
    run(LONGEST, threads, |number, race| {
        race.meet(0);
        racer(number, race)
    })
}

/// Runs `racer` on `threads` threads, each with its number and the step's, all of them taking every step together;
/// returns what each did, by step and number.
pub(super) fn lockstep<T: Send>(threads: usize, steps: usize, racer: impl Fn(usize, usize) -> T + Sync) -> Vec<Vec<T>> {
    lockstep_within(LONGEST, threads, steps, racer)
}

/// [`lockstep`], for so long at most.
pub(crate) fn lockstep_within<T: Send>(
    longest: Duration,
    threads: usize,
    steps: usize,
    racer: impl Fn(usize, usize) -> T + Sync,
) -> Vec<Vec<T>> {
    let mut by_thread: Vec<_> = run(longest, threads, |number, race| {
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

fn run<T: Send>(longest: Duration, threads: usize, racer: impl Fn(usize, &Race) -> T + Sync) -> Vec<T> {
    let ends = Instant::now().checked_add(longest);
    let race = Race { threads, arrived: AtomicUsize::new(0), over: AtomicBool::new(false), ends };
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

/// An entity that carries `stamp` in both its parts. The stamps of neighbours differ in the description's length.
pub(super) fn stamped(id: i64, stamp: u64) -> Entity {
    history::entity(id, stamp)
}

/// The stamp that an entity carries.
///
/// # Panics
///
/// Where its parts carry two: it was put together from two entities.
pub(super) fn stamp(entity: &Entity) -> u64 {
    history::value_of(entity.id, entity.as_ref()).unwrap_or_else(|wrong| panic!("{wrong}"))
}
