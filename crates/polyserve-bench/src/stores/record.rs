//! The cells of the experiment and their samples.
//!
//! Invariant: a store run measures all cells of a store at a point in a round, and is recorded as a whole.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::workload::StoreLoad;
use crate::scale::Axis;

/// A store at a point of an axis, in a round, under a workload.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The axis.
    pub axis: Axis,
    /// The point of the axis.
    pub x: u64,
    /// The store: `two_level`, `bare/dashmap`; a baseline's second entry is `NAME (again)`.
    pub name: String,
    /// The round, from 1; 0 means all rounds.
    pub round: usize,
    /// The workload; `None` means all workloads of a store run.
    #[serde(flatten)]
    pub load: Option<StoreLoad>,
}

impl Key {
    /// The store at its point.
    pub(super) fn point(&self) -> (Axis, u64, &str) {
        (self.axis, self.x, &self.name)
    }

    /// The key of the store run that measures the cell.
    pub(super) fn without_load(&self) -> Self {
        Self { load: None, ..self.clone() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { axis, x, name, round, load } = self;
        if *round > 0 {
            write!(f, "round {round}: ")?;
        }
        write!(f, "{name}, {x} {axis}")?;
        load.as_ref().map_or(Ok(()), |load| write!(f, ", {load}"))
    }
}

/// A point on all axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoreSettings {
    /// Stored entities.
    pub keys: u64,
    /// Threads.
    pub threads: usize,
    /// Bytes of a description.
    pub payload_bytes: usize,
}

/// The measurement of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The point on all axes.
    #[serde(flatten)]
    pub place: StoreSettings,
    /// The figures.
    #[serde(flatten)]
    pub figures: StoreFigures,
}

/// The figures of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StoreFigures {
    /// The figures of a workload that has operations.
    Operations(Throughput),
    /// The figures of [`StoreWorkload::Memory`](super::StoreWorkload::Memory).
    Memory(StoreMemory),
}

/// The throughput of a store under a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Operations, all with right answers.
    pub operations: u64,
    /// Their time in seconds.
    pub elapsed_s: f64,
    /// Operations a second. Each thread waits for an answer before its next operation.
    pub per_s: f64,
    /// CPU time of the measuring threads for each operation, in microseconds.
    pub cpu_us: Option<f64>,
    /// Operations a second with many operations outstanding; `None` for a store without deferred answers.
    pub windowed_per_s: Option<f64>,
    /// Latencies of single operations.
    #[serde(flatten)]
    pub latency: Option<StoreLatency>,
}

/// Latencies of single operations, in microseconds. They include the cost of reading the clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreLatency {
    /// Operations that were timed.
    pub sampled: u64,
    /// The cost of reading the clock, in nanoseconds.
    pub clock_ns: u64,
    /// Median.
    pub p50_us: f64,
    /// 99 %.
    pub p99_us: f64,
    /// 99.9 %.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// Resident memory of the process in bytes, and the time of each step in seconds. The steps include making the entities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreMemory {
    /// Before the store was made.
    pub start_bytes: Option<u64>,
    /// With all entities.
    pub filled_bytes: Option<u64>,
    /// Storing all entities, with one thread.
    pub fill_s: f64,
    /// With all of them removed.
    pub emptied_bytes: Option<u64>,
    /// Removing all entities.
    pub empty_s: Option<f64>,
    /// With all of them stored again.
    pub refilled_bytes: Option<u64>,
    /// Storing all entities again.
    pub refill_s: Option<f64>,
}

impl StoreMemory {
    /// Returns the memory for each of `keys` entities, in bytes: with all stored, with all removed, and with all stored again.
    /// `None` if `keys` is below [`MIN_KEYS`].
    pub fn per_entity(&self, keys: u64) -> [Option<f64>; 3] {
        let per_key = |bytes: Option<u64>| {
            let (bytes, start) = bytes.zip(self.start_bytes).filter(|_| keys >= MIN_KEYS)?;
            Some((bytes as f64 - start as f64) / keys as f64)
        };
        [self.filled_bytes, self.emptied_bytes, self.refilled_bytes].map(per_key)
    }
}

/// The min number of entities for a figure per entity: the kernel counts resident memory in steps of some hundred KiB per
/// core.
pub const MIN_KEYS: u64 = 50_000;

/// A step that did not end within its time limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unfinished {
    /// The step: filling, removing, or filling again.
    pub what: String,
    /// Entities that were done.
    pub done: u64,
    /// The limit in seconds.
    pub limit_s: f64,
}

impl Unfinished {
    /// `two_level did not finish filling 10000000 keys in 60 s: it got to 1234567`.
    pub(super) fn why(&self, name: &str, keys: u64) -> String {
        let Self { what, done, limit_s } = self;
        format!("{name} did not finish {what} {keys} keys in {limit_s} s: it got to {done}")
    }
}
