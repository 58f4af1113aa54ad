//! What is written down of each point.
//!
//! Invariant: of two lines of the same key the later one counts; a point that failed has no figures in any round.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::workload::Load;
use crate::journal::of_kind;
use crate::scale::Axis;
pub use crate::scale::report::Key;

/// The kind of a [`Cell`] in a record.
pub const CELL: &str = "cell";
/// Of a [`Failed`].
pub const FAILURE: &str = "failure";
/// Of a [`NotRun`].
pub const NOT_RUN: &str = "not_run";
/// The kind of a [`Kept`] in a record.
pub const MEMORY: &str = "memory";
/// Of a [`Short`].
pub const UNFINISHED: &str = "unfinished";

/// A cell that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failed {
    /// Whose.
    #[serde(flatten)]
    pub key: Key,
    /// Why.
    pub why: String,
    /// Whether it did wrong: then a rerun does not try that point again.
    #[serde(default)]
    pub wrong: bool,
}

/// Where on all axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Stored entities.
    pub keys: u64,
    /// Threads.
    pub threads: usize,
    /// Bytes of a description.
    pub payload_bytes: usize,
}

/// What a store has shown under a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// Operations, all answered right.
    pub operations: u64,
    /// In so many seconds.
    pub elapsed_s: f64,
    /// A second; each thread waits for one answer before it asks again.
    pub per_s: f64,
    /// Processor time of the asking threads for each, in microseconds.
    pub cpu_us: Option<f64>,
    /// Operations a second with many outstanding, of a store that answers later.
    pub windowed_per_s: Option<f64>,
    /// Latencies of single operations.
    #[serde(flatten)]
    pub latency: Option<Latency>,
}

/// Latencies of single operations, in microseconds; what a look at the clock costs is in them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Operations that were timed.
    pub sampled: u64,
    /// What a look at the clock costs, in nanoseconds.
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

/// Resident memory of the process, in bytes, and how long each step took, in seconds; the making of entities is in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Before there was a store.
    pub start_bytes: Option<u64>,
    /// With all entities.
    pub filled_bytes: Option<u64>,
    /// Storing them, one thread.
    pub fill_s: f64,
    /// With all of them removed.
    pub emptied_bytes: Option<u64>,
    /// Removing them.
    pub empty_s: Option<f64>,
    /// With all of them stored again.
    pub refilled_bytes: Option<u64>,
    /// Storing them again.
    pub refill_s: Option<f64>,
}

impl Memory {
    /// What an entity of `keys` takes: with all of them, with all removed, with all there again. Nothing where there are too
    /// few to tell.
    pub fn per_entity(&self, keys: u64) -> [Option<f64>; 3] {
        let each = |bytes: Option<u64>| {
            let (bytes, start) = bytes.zip(self.start_bytes).filter(|_| keys >= LEAST_KEYS)?;
            Some((bytes as f64 - start as f64) / keys as f64)
        };
        [self.filled_bytes, self.emptied_bytes, self.refilled_bytes].map(each)
    }
}

/// The kernel counts resident memory in steps of some hundred KiB a core.
pub const LEAST_KEYS: u64 = 50_000;

/// What was not done within the limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unfinished {
    /// Filling, removing, or filling again.
    pub what: String,
    /// Entities that it got to.
    pub done: u64,
    /// In so many seconds.
    pub limit_s: f64,
}

/// A store under a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Whose.
    #[serde(flatten)]
    pub key: Key,
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// Under which workload.
    #[serde(flatten)]
    pub load: Load,
    /// What it has shown.
    #[serde(flatten)]
    pub shown: Shown,
}

/// What entities take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Whose.
    #[serde(flatten)]
    pub key: Key,
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// What.
    #[serde(flatten)]
    pub memory: Memory,
}

/// A store that ran out of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Short {
    /// Whose.
    #[serde(flatten)]
    pub key: Key,
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// With what.
    #[serde(flatten)]
    pub unfinished: Unfinished,
}

/// A store that is not measured at a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotRun {
    /// The axis.
    pub axis: Axis,
    /// Where on it.
    pub x: u64,
    /// Who.
    pub name: String,
    /// Why.
    pub why: String,
}

/// All that is recorded.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// Workloads.
    pub cells: Vec<Cell>,
    /// Memory.
    pub kept: Vec<Kept>,
    /// Out of time.
    pub short: Vec<Short>,
    /// Failed.
    pub failed: Vec<Failed>,
    /// Left out.
    pub not_run: Vec<NotRun>,
}

impl Lines {
    /// What is recorded in these.
    ///
    /// # Errors
    ///
    /// Where one is of a kind of ours and not what that should be.
    pub fn of(lines: &[Value]) -> anyhow::Result<Self> {
        let cells = latest(of_kind(lines, CELL)?, |cell: &Cell| (cell.key.clone(), cell.load.clone()));
        let kept = latest(of_kind(lines, MEMORY)?, |kept: &Kept| kept.key.clone());
        let short = latest(of_kind(lines, UNFINISHED)?, |short: &Short| short.key.clone());
        let failed = of_kind(lines, FAILURE)?;
        Ok(Self { cells, kept, short, failed, not_run: of_kind(lines, NOT_RUN)? })
    }

    /// Whether this store has no figures at this place: it failed in some round that no later one has made good.
    pub fn is_out(&self, axis: Axis, x: u64, name: &str) -> bool {
        self.failed.iter().any(|failed| {
            let is_here = failed.key.axis == axis && failed.key.x == x && failed.key.name == name;
            is_here && (failed.wrong || !self.is_there(&failed.key))
        })
    }

    /// Whether there are figures of this key.
    pub fn is_there(&self, key: &Key) -> bool {
        self.cells.iter().any(|cell| cell.key == *key) || self.kept.iter().any(|kept| kept.key == *key)
    }
}

/// The later of each key, in the order in which they came first.
fn latest<T, K: Eq + std::hash::Hash>(all: Vec<T>, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut places = std::collections::HashMap::new();
    let mut kept: Vec<T> = Vec::new();
    for one in all {
        match places.entry(key(&one)) {
            std::collections::hash_map::Entry::Occupied(place) => kept[*place.get()] = one,
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(kept.len());
                kept.push(one);
            }
        }
    }
    kept
}
