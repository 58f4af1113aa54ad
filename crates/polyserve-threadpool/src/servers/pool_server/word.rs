//! A slot's word: who may touch its connection.
//!
//! Who moves it to `RUNNING` owns the connection until it moves it on:
//!
//! ```text
//! FREE -> QUEUED             accepted, a job is queued          (poller)
//! QUEUED -> RUNNING          the job runs                       (worker)
//! RUNNING -> PARKED          waits for bytes                    (worker)
//! RUNNING -> LINGERING       closed, still read from            (worker, poller)
//! RUNNING -> QUEUED          had its turn, has more to do       (worker)
//! RUNNING -> AGAIN           bytes came meanwhile               (poller)
//! AGAIN -> RUNNING           so it does not park                (worker)
//! PARKED -> QUEUED           bytes came, a job is queued        (poller)
//! PARKED, LINGERING -> RUNNING   timeout, 503, drain, waste     (poller)
//! RUNNING -> FREE            closed                             (worker, poller)
//! ```
//!
//! Invariant: an event finds `PARKED` and queues, or finds `RUNNING` and leaves `AGAIN`, so none is lost. It is checked by
//! model (`models/word.rs`). Cost: a compare-and-swap for each step.

use polyserve_core::sync::atomic::{AtomicU8, Ordering};

pub(super) const FREE: u8 = 0;
pub(super) const QUEUED: u8 = 1;
pub(super) const RUNNING: u8 = 2;
pub(super) const AGAIN: u8 = 3;
pub(super) const PARKED: u8 = 4;
pub(super) const LINGERING: u8 = 5;

#[derive(Debug)]
pub(super) struct Word(AtomicU8);

/// What is to be done about an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A job: the connection was parked, and is `QUEUED`.
    Job,
    /// It lingers: what has come is to be thrown away.
    Waste,
    /// Nothing: whoever runs it, or is going to, looks again; or it is gone.
    Nothing,
}

impl Word {
    /// A free slot's.
    pub(super) fn new() -> Self {
        Self(AtomicU8::new(FREE))
    }

    pub(super) fn get(&self) -> u8 {
        self.0.load(Ordering::Acquire)
    }

    /// Moves it, whatever it was; for who owns the connection.
    pub(super) fn set(&self, to: u8) {
        self.0.store(to, Ordering::Release);
    }

    /// Moves it; false where it was not `from`.
    pub(super) fn move_on(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Moves it from `RUNNING` to `rest`. False where bytes have come since it was run: it is to run on.
    pub(super) fn rest(&self, rest: u8) -> bool {
        if self.move_on(RUNNING, rest) {
            return true;
        }
        self.move_on(AGAIN, RUNNING);
        false
    }

    /// Bytes, or an end, have come. For the poller alone.
    pub(super) fn event(&self) -> Event {
        loop {
            match self.get() {
                PARKED if self.move_on(PARKED, QUEUED) => return Event::Job,
                RUNNING if self.move_on(RUNNING, AGAIN) => return Event::Nothing,
                LINGERING => return Event::Waste,
                FREE | QUEUED | AGAIN => return Event::Nothing,
                _ => {} // it was moved at this moment
            }
        }
    }
}
