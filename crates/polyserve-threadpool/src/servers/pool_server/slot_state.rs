//! The state of a slot: which thread may touch its connection.
//!
//! The thread that moves the state to `RUNNING` owns the connection until it moves the state on:
//!
//! ```text
//! FREE             -> QUEUED           accepted, in the ready list            (the thread that polls)
//! FREE             -> QUEUED           rejected; taken next by the same thread (the thread that polls)
//! QUEUED           -> RUNNING          taken from the ready list              (worker)
//! RUNNING          -> PARKED           it waits for its socket, or lingers    (owner)
//! RUNNING, AGAIN   -> QUEUED           its turn is over, it has more to do    (owner)
//! RUNNING          -> AGAIN            an event came meanwhile                (the thread that polls)
//! AGAIN            -> RUNNING          so it is not parked                    (owner)
//! PARKED           -> QUEUED           an event came, or a drain begins       (the thread that polls, supervisor)
//! PARKED, QUEUED   -> RUNNING          timeout, eviction, end                 (the thread that polls, supervisor)
//! RUNNING, AGAIN   -> FREE             closed                                 (owner)
//! ```
//!
//! Invariant: an event finds `PARKED` and queues the connection, or finds `RUNNING` and leaves `AGAIN`. So no event is
//! lost. A model checks this (`models/slot_state.rs`). Cost: one compare-and-swap for each step.

use polyserve_core::sync::atomic::{AtomicU8, Ordering};

pub(super) const FREE: u8 = 0;
pub(super) const QUEUED: u8 = 1;
pub(super) const RUNNING: u8 = 2;
pub(super) const AGAIN: u8 = 3;
pub(super) const PARKED: u8 = 4;

/// One slot's state. It begins as [`FREE`].
#[derive(Debug, Default)]
pub(super) struct SlotState(AtomicU8);

impl SlotState {
    /// The state. Sequentially consistent, as [`set`](Self::set) is.
    pub(super) fn get(&self) -> u8 {
        self.0.load(Ordering::SeqCst)
    }

    /// Moves the state to `to`. For the owner of the connection. Sequentially consistent, so that a sweep overlooks no new
    /// connection: see `set_deadline` in `worker.rs`.
    pub(super) fn set(&self, to: u8) {
        self.0.store(to, Ordering::SeqCst);
    }

    /// Moves the state from `from` to `to`. Returns false if it was not `from`.
    pub(super) fn advance(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Moves the state from `RUNNING` to `to`. Returns false if an event came since the connection was taken: the state is
    /// `RUNNING` then, and the owner has to read again.
    pub(super) fn leave_running(&self, to: u8) -> bool {
        if self.advance(RUNNING, to) {
            return true;
        }
        self.advance(AGAIN, RUNNING);
        false
    }

    /// Moves the state of a running connection to `QUEUED`. An event that came meanwhile is served with the rest.
    pub(super) fn requeue(&self) {
        while !self.advance(RUNNING, QUEUED) && !self.advance(AGAIN, QUEUED) {}
    }

    /// Notes an event: bytes have arrived, the other side has closed, or the socket can be written to. Returns true if the
    /// connection was parked. It is `QUEUED` now, and the caller has it served.
    pub(super) fn event(&self) -> bool {
        loop {
            match self.get() {
                PARKED if self.advance(PARKED, QUEUED) => return true,
                RUNNING if self.advance(RUNNING, AGAIN) => return false, // its owner reads again
                FREE | QUEUED | AGAIN => return false,
                _ => {} // another thread has just moved it
            }
        }
    }
}
