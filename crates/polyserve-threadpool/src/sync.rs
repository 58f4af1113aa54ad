//! Where the pools take their queues from.
//!
//! They are std's and crossbeam's. Under a model checker, which cannot see into those, they are queues behind the
//! checker's locks, with the same names (`queues.rs`): what is checked is what the pools do around their queues, not the
//! queues. Locks, parking and time are `polyserve_core::sync`'s.

#[cfg(not(any(polyserve_loom, polyserve_shuttle)))]
mod queues {
    pub(crate) use std::sync::mpsc;

    pub(crate) use crossbeam_channel as channel;
    pub(crate) use crossbeam_deque as deque;
}

#[cfg(any(polyserve_loom, polyserve_shuttle))]
mod queues;

pub(crate) use queues::{channel, deque, mpsc};
