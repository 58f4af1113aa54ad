//! The first experiment: an entity server under a connection for every request, its pool's size against the connections.
//!
//! A cell is one server with one pool under one number of connections, asked to GET one id or to PUT it. All contestants
//! take a cell in turn before the next one begins, so that a machine that drifts does so for all. The first of them is
//! entered twice: what differs between the two is noise, and the claims are judged by it.
//!
//! Invariant: every answer of a cell was verified, and the server says in the end that it gave exactly as many; otherwise
//! there is no figure. Cost: a process each, a warm-up, the requests, and a look at the process every 100 ms, taken on the
//! client's cores.

pub mod claims;
mod csv;
mod judge;
mod measure;
pub mod plan;
mod published;
mod seen;
pub mod table;

use polyserve_lab::launch::Launch;
use serde::{Deserialize, Serialize};

pub use self::csv::write as write_csv;
pub use self::measure::Experiment;

/// The experiment's name: of its file, and of its claims.
pub const NAME: &str = "matrix";

/// Who takes part: the columns that say so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contestant {
    /// Its name: `pool_server/mpsc_pool/two_level`, `go/twin-rwmutex`.
    pub contestant: String,
    /// What it is written in: `rust` or `go`.
    pub lang: String,
    /// How its connections become work.
    pub server: String,
    /// On what; empty where the server is of one piece.
    pub executor: String,
    /// How its data is shared.
    pub repo: String,
    /// How it was built, or which of its kind it is.
    pub variant: String,
    /// Whether it is the first one once more.
    pub control: bool,
}

/// Who takes part, and how it is started with each size of its pool.
#[derive(Clone, Debug)]
pub struct Entrant {
    /// Who.
    pub contestant: Contestant,
    /// Each size, and the process; one without a size where it cannot be chosen.
    pub pools: Vec<(Option<usize>, Launch)>,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// `GET /1`.
    Get,
    /// `PUT /`, of a new value for the id 1.
    Put,
}

impl Method {
    /// Its name, as in file names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
        }
    }
}

/// What tells a cell from all others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The contestant's name.
    pub contestant: String,
    /// Whether it is the first one once more.
    pub control: bool,
    /// What was asked.
    pub method: Method,
    /// Connections at a time.
    pub connections: usize,
    /// The size of the pool.
    pub pool_size: Option<usize>,
    /// Which repetition; the first is 1.
    pub round: u32,
}

/// A measured cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Who.
    #[serde(flatten)]
    pub who: Contestant,
    /// What was asked.
    pub method: Method,
    /// The size of its pool, where it can be chosen.
    pub pool_size: Option<usize>,
    /// Requests, each on a connection of its own.
    pub requests: u64,
    /// Connections at a time.
    pub connections: usize,
    /// Which repetition; the first is 1.
    pub round: u32,
    /// The server's processor time, user and system, in per cent of the run's time: 100 is one core.
    pub avg_cpu_pct: f64,
    /// The most of it within 100 ms; none where there were fewer than 5 samples.
    pub max_cpu_pct: Option<f64>,
    /// The server's resident memory, in per cent of the machine's: the mean of what was seen.
    pub avg_mem_pct: f64,
    /// The most of what was seen; none where there were fewer than 5 samples.
    pub max_mem_pct: Option<f64>,
    /// From the first connect to the last answer.
    pub total_s: f64,
    /// `total_s` x connections / requests: the mean time of a request, as it was published.
    pub per_request_ms: f64,
    /// Bytes of HTTP that the client read, in 1024 a second.
    #[serde(rename = "received_kB_s")]
    pub received_kb_s: f64,
    /// Bytes of HTTP that it wrote. The published figure is of requests with a body alone: 0 for a GET.
    #[serde(rename = "sent_kB_s")]
    pub sent_kb_s: f64,
    /// Mean time from when a connect began until the connection was established.
    pub connect_ms: f64,
    /// Mean time from then until the answer's last byte was read.
    pub processing_ms: f64,
    /// Right answers a second.
    pub requests_per_s: f64,
    /// The median of what `connect_ms` is the mean of.
    pub connect_p50_ms: f64,
    /// The median of what `processing_ms` is the mean of.
    pub processing_p50_ms: f64,
    /// And 99 % of it.
    pub processing_p99_ms: f64,
    /// The server's processor time for each request.
    pub server_cpu_us_per_request: f64,
    /// The client's processor time as a share of its threads' time: at 100 it was the bottleneck.
    pub client_busy_pct: f64,
    /// The server's resident memory: the mean of what was seen, in 1024 bytes.
    #[serde(rename = "avg_resident_kB")]
    pub avg_resident_kb: f64,
    /// The most of it.
    #[serde(rename = "max_resident_kB")]
    pub max_resident_kb: f64,
    /// What of `avg_resident_kB` is of no file, heaps and stacks, where the system tells it apart: all of our servers are one
    /// large program, whose pages count as theirs.
    #[serde(rename = "avg_anonymous_kB")]
    pub avg_anonymous_kb: Option<f64>,
    /// How often the process was looked at.
    pub samples: usize,
    /// Answers that the server says it gave, those of the warm-up too. The client had as many.
    pub server_answered: u64,
}

impl Cell {
    /// The `kind` of its line.
    pub const KIND: &str = "cell";

    /// Which one it is.
    pub fn key(&self) -> Key {
        Key {
            contestant: self.who.contestant.clone(),
            control: self.who.control,
            method: self.method,
            connections: self.connections,
            pool_size: self.pool_size,
            round: self.round,
        }
    }
}

/// A cell without figures, or a contestant without cells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Who.
    #[serde(flatten)]
    pub who: Contestant,
    /// Which cell; none where it takes no part at all.
    pub cell: Option<FailedCell>,
    /// Why.
    pub why: String,
    /// Whether it did wrong: then a rerun does not try that cell again.
    #[serde(default)]
    pub wrong: bool,
}

/// Which cell has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedCell {
    /// What was asked.
    pub method: Method,
    /// Connections at a time.
    pub connections: usize,
    /// The size of the pool, where it can be chosen.
    pub pool_size: Option<usize>,
    /// Which repetition.
    pub round: u32,
}

impl Failed {
    /// The `kind` of its line.
    pub const KIND: &str = "failure";

    /// Which one it is; none where it takes no part at all.
    pub fn key(&self) -> Option<Key> {
        let FailedCell { method, connections, pool_size, round } = *self.cell.as_ref()?;
        let Contestant { contestant, control, .. } = self.who.clone();
        Some(Key { contestant, control, method, connections, pool_size, round })
    }
}

/// What is asked in one cell.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// What.
    pub method: Method,
    /// Connections at a time.
    pub connections: usize,
    /// Which repetition.
    pub round: u32,
}
