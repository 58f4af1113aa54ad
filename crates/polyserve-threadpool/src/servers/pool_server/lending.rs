//! When the poller lends accepting to workers, and when it takes it back.

use std::time::{Duration, Instant};

use super::worker::Shared;

/// How often the poller looks how the workers get on with accepting, while they are at it.
pub(super) const LOOK: Duration = Duration::from_millis(5);

/// The poller's view of [`Intake`](super::intake::Intake).
#[derive(Debug)]
pub(super) struct Lending {
    /// So many workers there are.
    workers: usize,
    /// Those who have seats are held up: the poller accepts.
    alone: bool,
    /// Those who have seats are too few: where connections wait now, they waited at the last look too.
    crowded: bool,
    /// What the workers had accepted at the last look, and when the next is due.
    seen: u64,
    next: Instant,
}

impl Lending {
    pub(super) fn new(workers: usize) -> Self {
        Self { workers, alone: false, crowded: false, seen: 0, next: Instant::now() }
    }

    /// Connections wait. A worker is to accept them, if that is worth it and one can; false: the poller is to.
    pub(super) fn lend(&mut self, shared: &Shared) -> bool {
        let intake = &shared.intake;
        let full = shared.slots.used() >= shared.server.config.max_connections;
        let trouble = intake.take_trouble();
        if self.alone || full || trouble || intake.is_slow() || shared.server.shutdown.is_begun() {
            return false;
        }
        let seats = intake.seats();
        if seats == 0 {
            self.seen = intake.accepted();
            self.next = Instant::now() + LOOK;
        }
        let most = if seats == 0 || self.crowded { (2 * seats).clamp(1, self.workers) } else { 0 };
        let given = (seats..most).filter(|_| shared.give_seat(most)).count();
        if given == 0 && intake.is_lent() {
            intake.deafen(&shared.registry);
            return true;
        }
        given > 0
    }

    /// Looks how the workers get on. True where they do not: then the poller is to accept.
    pub(super) fn look(&mut self, shared: &Shared) -> bool {
        let intake = &shared.intake;
        self.crowded = false;
        if !intake.is_lent() {
            self.alone = false;
            return false;
        }
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        self.next = now + LOOK;
        // None accepted: whoever has a seat is held up in the service, or still waits for a worker.
        let accepted = intake.accepted();
        self.alone = accepted == self.seen;
        self.crowded = !self.alone;
        self.seen = accepted;
        intake.hear(&shared.registry, false);
        self.alone
    }
}
