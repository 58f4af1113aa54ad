//! The lines of the record of `cargo bench -p polyserve-benches`.

use serde::{Deserialize, Serialize};

/// The time of an operation of a benchmark that criterion has timed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchLine {
    /// The group of the benchmark.
    pub group: String,
    /// The name of the benchmark in its group.
    pub bench: String,
    /// The median in nanoseconds.
    pub ns: f64,
    /// The low end of its 95 % interval.
    pub low_ns: f64,
    /// The high end of its 95 % interval.
    pub high_ns: f64,
}

impl BenchLine {
    /// The `kind` of its line in a record.
    pub const KIND: &str = "bench";
}
