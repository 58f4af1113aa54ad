//! The cells of an experiment and their order.
//!
//! Contestants take turns within a round (A B C, A B C, ...), in an order that changes from round to round, so that a
//! machine that slows down does so for all of them. Cost: one key a cell in memory.

use std::time::Duration;

pub use crate::compare::contestant::order;

use super::Absence;

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Plan<K> {
    /// The batches, in the order in which they are measured.
    pub batches: Vec<Batch<K>>,
    /// The cells that cannot be measured here.
    pub absent: Vec<Absent<K>>,
    /// After this time no batch begins; the run is then incomplete. `None` is no limit.
    pub time_limit: Option<Duration>,
}

/// A planned cell that cannot be measured here. With [`excludes`](super::Experiment::excludes) one cell can stand for all
/// cells of its contestant.
#[derive(Clone, Debug)]
pub struct Absent<K> {
    /// The cell.
    pub key: K,
    /// Why.
    pub absence: Absence,
    /// Whether the command succeeds without it: the contestant was not asked for by name.
    pub excused: bool,
}

/// Cells that are measured next to each other.
#[derive(Clone, Debug)]
pub struct Batch<K> {
    /// The cells, in the order in which they are measured.
    pub keys: Vec<K>,
    /// Whether the samples are comparable only with each other: the cells are measured by one call, recorded once all are
    /// measured, and measured again as a whole if one of them is missing.
    pub together: bool,
}

impl<K> Plan<K> {
    /// A plan without absent cells and without a time limit.
    pub fn new(batches: Vec<Batch<K>>) -> Self {
        Self { batches, absent: Vec::new(), time_limit: None }
    }

    /// A plan of cells that are measured one by one, in this order.
    pub fn series(keys: impl IntoIterator<Item = K>) -> Self {
        Self::new(vec![Batch::series(keys)])
    }

    /// All cells of all batches.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.batches.iter().flat_map(|batch| &batch.keys)
    }
}

impl<K> Batch<K> {
    /// Cells that are measured one by one.
    pub fn series(keys: impl IntoIterator<Item = K>) -> Self {
        Self { keys: keys.into_iter().collect(), together: false }
    }

    /// Cells that are measured by one call.
    pub fn together(keys: impl IntoIterator<Item = K>) -> Self {
        Self { keys: keys.into_iter().collect(), together: true }
    }
}

/// The cells of one pass in their order: the contestants take turns, and [`order`] says which is when.
pub fn interleaved<K: Clone>(pass: usize, keys: &[K]) -> Vec<K> {
    order(pass, keys.len()).into_iter().filter_map(|place| keys.get(place).cloned()).collect()
}

/// The name of a baseline's second entry, the A/A control: what differs between the two entries is noise.
pub fn again(name: &str) -> String {
    format!("{name} (again)")
}
