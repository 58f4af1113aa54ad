//! The queues that the pools use: std's and crossbeam's.
//!
//! A model checker cannot see into those. Under a checker, `queues.rs` has stand-ins with the same names, built on the
//! checker's locks. So the models check what the pools do around their queues, not the queues. Locks, parking and time
//! come from `polyserve_core::sync`.

#[cfg(not(any(polyserve_loom, polyserve_shuttle)))]
mod queues {
    pub(crate) use std::sync::mpsc;

    pub(crate) use crossbeam_channel as channel;
    pub(crate) use crossbeam_deque as deque;
}

#[cfg(any(polyserve_loom, polyserve_shuttle))]
mod queues;

pub(crate) use queues::{channel, deque, mpsc};
