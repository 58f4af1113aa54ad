//! The samples of a record.

use std::fmt;

use polyserve_lab::experiment::RecordRow;
use serde::{Deserialize, Serialize};

use super::published::PageFigures;

/// A part of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The published set-up: pools of 100, 100 connections, 10 000 requests, of which every 10th waits.
    Published,
    /// Pools of every size, and the servers that hold no thread during a wait.
    Sweep,
}

/// A server with a number of workers, in a part of the run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The part.
    pub part: Part,
    /// The server's name.
    pub server: String,
    /// Its number of workers, if it was chosen.
    pub workers: Option<usize>,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.workers {
            Some(workers) => write!(f, "{} with {workers} workers", self.server),
            None => f.write_str(&self.server),
        }
    }
}

/// What was measured of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The columns that were published.
    #[serde(flatten)]
    pub figures: PageFigures,
    /// The server's name in the published figures.
    pub published_as: Option<String>,
    /// The columns that were not published.
    #[serde(flatten)]
    pub bounds: Bounds,
}

/// How a server was loaded, and what bounds its throughput.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// The max number of requests a second that its workers answer, if a wait holds a worker.
    pub bound_per_s: Option<f64>,
    /// The max number of requests a second that the connections send.
    pub connections_bound_per_s: f64,
    /// The throughput as a share of the lower of the two bounds.
    pub of_bound: f64,
    /// The number of requests.
    pub requests: u64,
    /// The number of concurrent connections.
    pub connections: usize,
    /// The page waited on one request in this number of requests.
    pub every: u64,
    /// The length of a wait.
    pub wait_s: f64,
    /// The server's CPU time in cores.
    pub server_busy: Option<f64>,
}

/// A sample and its key.
pub type Row = RecordRow<Key, Sample>;

/// The max number of requests a second if one request in `every` waits for `wait_s`, and at most `waiting` wait at once.
pub(super) fn bound(waiting: usize, every: u64, wait_s: f64) -> f64 {
    waiting as f64 * every as f64 / wait_s
}
