//! The facts and samples of a record.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::rung::BuildSettings;

/// The kind of a [`RungEntry`].
pub(super) const ENTRY: &str = "contestant";
/// The round of a key before the first round.
pub(super) const BEFORE_ROUNDS: usize = 0;

/// The role of a contestant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RungRole {
    /// A rung.
    Rung,
    /// The second entry of a subject's lowest rung. The ratio of the two entries is noise.
    Control,
    /// A server that the rungs are also compared with.
    Reference,
}

/// A contestant, as it is recorded before its first round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RungEntry {
    /// The name: `warp+lto` of a rung, `warp (again)` of a control, `go-fasthttp` of a reference.
    pub name: String,
    /// The role.
    pub role: RungRole,
    /// The subject: a server of ours, or `warp`.
    pub subject: String,
    /// The step that the rung adds; `None` for the lowest rung and for references.
    pub step: Option<String>,
    /// The name of the rung below.
    pub below: Option<String>,
    /// Whether no other rung builds on this one.
    pub aside: bool,
    /// The settings; `None` for a reference.
    pub settings: Option<BuildSettings>,
    /// The length of the program, in bytes.
    pub program_bytes: u64,
    /// A hash of the program.
    pub program_hash: String,
    /// The length of one answer, head and body, in bytes.
    pub answer_bytes: u64,
}

/// Identifies a sample: a contestant in a round.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The contestant's name.
    pub name: String,
    /// The round, from 1; 0 before the first round.
    pub round: usize,
    /// The number of requests that were sent at once on a connection; 0 is the number in the header.
    #[serde(default)]
    pub pipeline: usize,
}

impl Key {
    /// The key of a contestant before the first round.
    pub(super) fn before_rounds(name: String) -> Self {
        Self { name, round: BEFORE_ROUNDS, pipeline: 0 }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, round, pipeline } = self;
        match *round {
            BEFORE_ROUNDS => f.write_str(name),
            _ if *pipeline > 1 => write!(f, "{name}, {pipeline} requests at once, round {round}"),
            _ => write!(f, "{name}, round {round}"),
        }
    }
}

/// The figures of a contestant's turn in a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Right answers per second.
    pub requests_per_s: f64,
    /// Bytes of answers per second, in units of 2^20 bytes, as wrk counts.
    #[serde(rename = "transfer_MB_s")]
    pub transfer_mb_s: f64,
    /// The average number of requests under way, as a share of the connections. By Little's law it is 1. `None` if
    /// several requests are sent at once.
    #[serde(default)]
    pub under_way: Option<f64>,
    /// Right answers for each second of the server's CPU time.
    pub requests_per_cpu_s: Option<f64>,
    /// The number of right answers.
    pub answered: u64,
    /// The measured time.
    pub elapsed_s: f64,
    /// The server's CPU time.
    pub server_cpu_s: Option<f64>,
    /// The client's CPU time.
    pub client_cpu_s: f64,
    /// The server's CPU time as a share of its cores' time.
    #[serde(default)]
    pub server_busy: Option<f64>,
    /// The client's CPU time as a share of its threads' time.
    #[serde(default)]
    pub client_busy: Option<f64>,
    /// The time in which the server's cores were idle, from before the connections were opened.
    pub server_idle_s: Option<f64>,
    /// The time in which the client's cores were idle.
    pub client_idle_s: Option<f64>,
    /// Context switches of the server for each request.
    pub switches_per_request: Option<f64>,
    /// Resident memory with all connections open, in units of 1024 bytes.
    #[serde(rename = "loaded_kB")]
    pub loaded_kb: Option<f64>,
}

/// A contestant that is not available.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotRun {
    /// The contestant's name.
    pub name: String,
    /// The contestant's role.
    pub role: RungRole,
    /// Why.
    pub why: String,
}
