//! The result: a row for each contestant, the contestants without figures, and the verdicts on the published claims.

use std::fmt;

use crate::compare::ranking::BUSY;
use crate::experiment::{Experiment, Failed, Records};
use crate::report::{Claim, or_empty, shown_claims};
use serde::Serialize;

use super::claims;
use super::record::{Key, NotRun, Sample};
use super::results::{Results, pipelines};
use super::table::{self, FlushRow, RungRow, percent};

/// The kind of a [`RungRow`].
pub(super) const RUNG: &str = "rung";

/// The result of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The request and the load, in words.
    pub asked: String,
    /// The contestants with figures, at the smallest number of requests at once.
    pub rungs: Vec<RungRow>,
    /// The gain of the flush at each number of requests at once, if there are several.
    pub flush: Option<Vec<FlushRow>>,
    /// The contestants that are not available.
    pub not_run: Vec<NotRun>,
    /// The contestants that failed.
    pub failed: Vec<Failed<Key>>,
    /// The verdicts on the published claims.
    pub claims: Vec<Claim>,
    /// Whether a signal ended the run.
    pub interrupted: bool,
    /// The samples.
    #[serde(skip)]
    pub results: Results,
}

impl Report {
    /// The result of these records.
    ///
    /// # Errors
    ///
    /// Returns an error if a fact does not have its fields, or the definition of the claims has an error.
    pub fn of<E>(records: &Records<E>) -> anyhow::Result<Self>
    where
        E: Experiment<Key = Key, Sample = Sample>,
    {
        let plan = &records.header.plan;
        let pipelines = pipelines(plan);
        let pipeline = pipelines.first().copied().unwrap_or(0);
        let results = Results::of(records, pipeline)?;
        let all = pipelines.iter().map(|pipeline| Results::of(records, *pipeline)).collect::<Result<Vec<_>, _>>()?;
        let flush = (all.len() > 1).then(|| all.iter().flat_map(table::flush_rows).collect());
        let (connections, plural) = (&plan["connections"], if pipeline == 1 { "" } else { "s" });
        Ok(Self {
            asked: format!("GET /welcome; {connections} connections, kept alive, {pipeline} request{plural} at once"),
            flush,
            rungs: table::rows(&results),
            not_run: results.not_run.clone(),
            failed: results.failed.clone(),
            claims: claims::claims(&results)?,
            interrupted: records.is_interrupted(),
            results,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.rungs.is_empty() {
            writeln!(f, "{}\n\n{}\n{}", self.asked, table::ladder(&self.rungs), table::waterfall(&self.rungs))?;
            if let Some(flush) = &self.flush {
                writeln!(
                    f,
                    "the flush of pipelined answers, by the number of requests at once:\n{}",
                    table::flush(flush)
                )?;
            }
            if self.rungs.iter().any(|row| row.requests_per_cpu_s.is_some() && !row.is_full()) {
                writeln!(
                    f,
                    "~: a cost that cannot be compared: the server's cores were not full, or the client's were"
                )?;
            }
            for row in self.rungs.iter().filter(|row| row.server_busy.is_some_and(|busy| busy < BUSY)) {
                let busy = or_empty(row.server_busy.map(percent));
                writeln!(f, "{}: its cores were busy for {busy} only, so it could have done more", row.rung)?;
            }
        }
        for NotRun { name, why, .. } in &self.not_run {
            writeln!(f, "not available: {name}: {why}")?;
        }
        for Failed { key, why, .. } in &self.failed {
            writeln!(f, "no figures: {key}: {why}")?;
        }
        write!(f, "\n{}", shown_claims(&self.claims))
    }
}
