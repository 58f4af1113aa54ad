//! The result.
//!
//! Invariant: the rows of a result are in the order of the plan. Cost: a sort of the rows.

use crate::experiment::{Experiment, Failed, Records};
use crate::report::Claim;
use serde::Serialize;
use serde_json::Value;

use super::claims::claims;
use super::record::{Key, PagePart, PageRow, Sample, bound};

/// The result of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The max number of requests a second that the sweep's connections send.
    pub connections_bound_per_s: f64,
    /// A row for each server and number of workers.
    pub rows: Vec<PageRow>,
    /// The cells without a row, and why.
    pub failed: Vec<Failed<Key>>,
    /// Whether a signal ended the run.
    pub interrupted: bool,
    /// The published claims.
    pub claims: Vec<Claim>,
}

impl Report {
    /// The result of these records.
    ///
    /// # Errors
    ///
    /// Returns an error if the published figures cannot be read.
    pub fn of<E>(records: &Records<E>) -> anyhow::Result<Self>
    where
        E: Experiment<Key = Key, Sample = Sample>,
    {
        let mut rows = records.rows();
        let claims = claims(&rows)?;
        let plan = &records.header.plan;
        rows.sort_by_cached_key(|PageRow { key, .. }| (key.part, place(plan, key), key.workers, key.page, key.round));
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

/// The place of a server in the plan of its part: a list of `[server, workers, requests, page, rounds]`, without the last two in
/// earlier records.
fn place(plan: &Value, key: &Key) -> usize {
    let part = match key.part {
        PagePart::Published => &plan["published"],
        PagePart::Twins => &plan["twins"],
        PagePart::Sweep => &plan["sweep"],
    };
    let planned = part.as_array().map_or(&[][..], Vec::as_slice);
    planned.iter().position(|entrant| entrant[0] == key.server.as_str()).unwrap_or(planned.len())
}
