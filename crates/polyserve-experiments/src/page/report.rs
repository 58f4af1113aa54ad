//! The samples of a record, and the result.
//!
//! Invariant: the rows of a result are in the order of the plan. Cost: a sort of the rows.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use polyserve_lab::experiment::{self, Experiment, Failed, Records};
use polyserve_report::Claim;

use super::Part;
use super::claims::claims;
use super::published::PageFigures;

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
pub type Row = experiment::RecordRow<Key, Sample>;

/// The result of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The max number of requests a second that the sweep's connections send.
    pub connections_bound_per_s: f64,
    /// A row for each server and number of workers.
    pub rows: Vec<Row>,
    /// The cells without a row, and why.
    pub failed: Vec<Failed<Key>>,
    /// Whether it was ended early.
    pub interrupted: bool,
    /// The published claims.
    pub claims: Vec<Claim>,
}

impl Report {
    /// The result of these records.
    ///
    /// # Errors
    ///
    /// Returns an error if the plan of the record is not of this experiment.
    pub fn of<E>(records: &Records<E>) -> anyhow::Result<Self>
    where
        E: Experiment<Key = Key, Sample = Sample>,
    {
        let mut rows = records.rows();
        let claims = claims(&rows);
        let plan = &records.header.plan;
        rows.sort_by_cached_key(|Row { key, .. }| (key.part, place(plan, key), key.workers));
        let connections = plan["connections"].as_u64().unwrap_or_default() as usize;
        let (every, wait_s) = (plan["every"].as_u64().unwrap_or_default(), plan["wait_s"].as_f64().unwrap_or_default());
        Ok(Self {
            connections_bound_per_s: bound(connections, every, wait_s),
            rows,
            failed: records.absences().map(Failed::new).collect(),
            interrupted: records.is_interrupted(),
            claims,
        })
    }
}

/// The max number of requests a second if one request in `every` waits for `wait_s`, and at most `waiting` wait at once.
pub(super) fn bound(waiting: usize, every: u64, wait_s: f64) -> f64 {
    waiting as f64 * every as f64 / wait_s
}

/// The place of a server in the plan of its part: a list of `[server, workers, requests]`.
fn place(plan: &Value, key: &Key) -> usize {
    let part = match key.part {
        Part::Published => &plan["published"],
        Part::Sweep => &plan["sweep"],
    };
    let planned = part.as_array().map_or(&[][..], Vec::as_slice);
    planned.iter().position(|entrant| entrant[0] == key.server.as_str()).unwrap_or(planned.len())
}
