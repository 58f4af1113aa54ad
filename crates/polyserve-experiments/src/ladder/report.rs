//! The result: a row for each contestant, the contestants without figures, and the verdicts on the published claims.

use std::fmt;

use polyserve_lab::compare::ranking::BUSY;
use polyserve_lab::experiment::{Experiment, Failed, Records};
use polyserve_report::{Claim, or_nothing, shown_claims};
use serde::Serialize;

use super::claims;
use super::record::{Key, NotRun, Sample};
use super::results::Results;
use super::table::{self, RungRow, percent};

/// The kind of a [`RungRow`].
pub(super) const RUNG: &str = "rung";

/// The result of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The request and the load, in words.
    pub asked: String,
    /// The contestants with figures.
    pub rungs: Vec<RungRow>,
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
    /// Returns an error if a fact does not have its fields.
    pub fn of<E>(records: &Records<E>) -> anyhow::Result<Self>
    where
        E: Experiment<Key = Key, Sample = Sample>,
    {
        let results = Results::of(records)?;
        let plan = &records.header.plan;
        let (connections, pipeline) = (&plan["connections"], &plan["pipeline"]);
        Ok(Self {
            asked: format!("GET /welcome; {connections} connections, kept alive, {pipeline} requests at once"),
            rungs: table::rows(&results),
            not_run: results.not_run.clone(),
            failed: results.failed.clone(),
            claims: claims::claims(&results),
            interrupted: records.is_interrupted(),
            results,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.rungs.is_empty() {
            writeln!(f, "{}\n\n{}\n{}", self.asked, table::ladder(&self.rungs), table::waterfall(&self.rungs))?;
            for row in self.rungs.iter().filter(|row| row.server_busy.is_some_and(|busy| busy < BUSY)) {
                let busy = or_nothing(row.server_busy.map(percent));
                writeln!(f, "{}: its core was busy for {busy} only, so it could have done more", row.rung)?;
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
