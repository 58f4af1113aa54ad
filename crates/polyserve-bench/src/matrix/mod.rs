//! The entity server with one connection for each request: the pool's size against the number of connections.
//!
//! A cell is one server with one pool size under one number of connections, with GET or PUT of one id. All contestants
//! are measured in a cell before the next cell begins, so that a slowdown of the machine affects all of them. One
//! contestant has a second entry, the control: the two entries differ by noise only, and the claims are judged by it.
//!
//! Invariant: every answer of a cell was verified, and the server counted the same number; otherwise the cell has no
//! sample. Cost of a cell: a process, a warm-up, the requests, and a sample of the process every 100 ms on the client's cores.
//!
//! # Layout
//!
//! * [`experiment`]: the experiment. [`plan`]: the order of its cells. [`mod@bench`]: measures one cell.
//! * [`report`]: the result. [`table`], `chart`: its tables and charts. [`claims`]: the verdicts on the published claims.

pub mod bench;
mod causes;
mod chart;
pub mod claims;
mod compared;
mod csv;
pub mod experiment;
#[cfg(test)]
mod fixtures;
pub mod missing;
pub mod plan;
mod published;
mod ratio_test;
pub mod report;
pub mod table;

use std::fmt;

use crate::experiment::{RecordRow, again};
use crate::launch::Launch;
use serde::{Deserialize, Serialize};

pub use self::bench::Bench;
pub use self::experiment::{Matrix, MatrixCandidate};

/// The experiment's name: of its file, and of its claims.
pub const NAME: &str = "matrix";
/// The prefix of a server that is built without optimisation and prints a line for each request, like the published one.
pub const DEBUG: &str = "debug/";
/// The variant of such a server.
pub const DEBUG_VARIANT: &str = "debug, prints";
/// The prefix of a server that is built without optimisation and prints nothing: one cause alone.
pub const UNOPTIMISED: &str = "unoptimised/";
/// The variant of such a server.
pub const UNOPTIMISED_VARIANT: &str = "debug";

/// The columns that describe a contestant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The language: `rust` or `go`.
    pub lang: String,
    /// The server's strategy for connections.
    pub server: String,
    /// The executor; empty if the server does not use one.
    pub executor: String,
    /// The store.
    pub repo: String,
    /// The build profile, or the variant of the program.
    pub variant: String,
}

/// A contestant, and its process for each pool size.
#[derive(Clone, Debug)]
pub struct Entrant {
    /// The contestant's name: `pool_server/mpsc_pool/two_level`, `go/twin-rwmutex`.
    pub name: String,
    /// Whether this is the second entry of a contestant, the A/A control.
    pub control: bool,
    /// The columns that describe the contestant.
    pub origin: Origin,
    /// The pool sizes and their processes; a single `None` if the size cannot be chosen.
    pub pools: Vec<(Option<usize>, Launch)>,
}

/// The request of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum CellMethod {
    /// `GET /1`.
    Get,
    /// `PUT /`, of a new value for the id 1.
    Put,
}

impl CellMethod {
    /// The method's name, as in file names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
        }
    }
}

/// Identifies a cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The contestant's name.
    pub contestant: String,
    /// Whether this is the contestant's second entry, the A/A control.
    pub control: bool,
    /// The method of the requests.
    pub method: CellMethod,
    /// The pool's size; `None` if it cannot be chosen.
    pub pool_size: Option<usize>,
    /// The number of concurrent connections.
    pub connections: usize,
    /// The round, from 1; 0 stands for all cells of the contestant.
    pub round: u32,
}

/// The round of a key that stands for all cells of the contestant.
pub(crate) const EVERY_ROUND: u32 = 0;

impl Key {
    /// The key of a contestant that has no cells at all.
    pub fn of_all(contestant: &str) -> Self {
        let contestant = contestant.to_owned();
        Self {
            contestant,
            control: false,
            method: CellMethod::Get,
            pool_size: None,
            connections: 0,
            round: EVERY_ROUND,
        }
    }

    /// Returns true if `other` is a cell of the same entry.
    pub fn is_of_same_entry(&self, other: &Self) -> bool {
        (&self.contestant, self.control) == (&other.contestant, other.control)
    }

    /// Returns the entry's name. The name of the control has a suffix.
    pub fn name(&self) -> String {
        if self.control { again(&self.contestant) } else { self.contestant.clone() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, pool_size, connections, round, .. } = self;
        f.write_str(&self.name())?;
        if *round == EVERY_ROUND {
            return Ok(());
        }
        write!(f, ", {}, {connections} connections", method.name().to_uppercase())?;
        if let Some(size) = pool_size {
            write!(f, ", {size} workers")?;
        }
        write!(f, ", round {round}")
    }
}

/// The figures of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The columns that describe the contestant.
    #[serde(flatten)]
    pub origin: Origin,
    /// The number of requests, each on a connection of its own.
    pub requests: u64,
    /// The server's CPU time, user and system, in per cent of the elapsed time: 100 is one core.
    pub avg_cpu_pct: f64,
    /// The maximum CPU use within 100 ms; `None` for fewer than 5 samples.
    pub max_cpu_pct: Option<f64>,
    /// The server's mean resident memory, in per cent of the machine's memory.
    pub avg_mem_pct: f64,
    /// The maximum resident memory, in per cent of the machine's memory; `None` for fewer than 5 samples.
    pub max_mem_pct: Option<f64>,
    /// The time from the first connect to the last answer.
    pub total_s: f64,
    /// `total_s` x connections / requests: the mean time of a request, as published.
    pub per_request_ms: f64,
    /// HTTP bytes that the client received, in units of 1024 bytes per second.
    #[serde(rename = "received_kB_s")]
    pub received_kb_s: f64,
    /// HTTP bytes that the client sent. The published figure counts requests with a body only: 0 for a GET.
    #[serde(rename = "sent_kB_s")]
    pub sent_kb_s: f64,
    /// The mean time from the start of a connect to the established connection.
    pub connect_ms: f64,
    /// The mean time from the established connection to the last byte of the answer.
    pub processing_ms: f64,
    /// Right answers per second.
    pub requests_per_s: f64,
    /// The median of the connect times.
    pub connect_p50_ms: f64,
    /// The median of the processing times.
    pub processing_p50_ms: f64,
    /// The 99th percentile of the processing times.
    pub processing_p99_ms: f64,
    /// The server's CPU time for each request.
    pub server_cpu_us_per_request: f64,
    /// The client's CPU time in per cent of its threads' time: at 100 the client was the bottleneck.
    pub client_busy_pct: f64,
    /// The server's mean resident memory, in units of 1024 bytes.
    #[serde(rename = "avg_resident_kB")]
    pub avg_resident_kb: f64,
    /// The maximum of the server's resident memory.
    #[serde(rename = "max_resident_kB")]
    pub max_resident_kb: f64,
    /// The part of `avg_resident_kB` that no file backs, such as heaps and stacks; `None` if the system does not report it.
    /// All Rust servers are one large program, and its pages count as resident.
    #[serde(rename = "avg_anonymous_kB")]
    pub avg_anonymous_kb: Option<f64>,
    /// The number of samples of the process.
    pub samples: usize,
    /// Answers that the server counted, with those of the warm-up. The client counted the same number.
    pub server_answered: u64,
}

/// A measured cell: its key and its sample.
pub type Cell = RecordRow<Key, Sample>;
