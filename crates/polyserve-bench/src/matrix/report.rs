//! The result: the cells, the cells without a sample, and the verdicts on the published claims.

use std::fmt;

use crate::experiment::{Absence, Experiment, Records};
use crate::journal::Header;
use crate::report::{Claim, shown_claims};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::claims::claims;
use super::missing::MissingCell;
use super::{Cell, EVERY_ROUND, Key, Sample, table};

/// The result of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The header of the first run: the machine, the build and the command.
    #[serde(flatten)]
    pub header: Header,
    /// The cells, contestant by contestant in the plan's order.
    pub cells: Vec<Cell>,
    /// The cells without a sample, and the contestants without a cell.
    pub failed: Vec<MissingCell>,
    /// The verdicts on the published claims.
    pub claims: Vec<Claim>,
    /// Whether a signal ended the run.
    pub interrupted: bool,
    /// Planned cells that have neither a sample nor an absence.
    pub left: usize,
}

impl Report {
    /// The result of these records.
    ///
    /// # Errors
    ///
    /// Returns an error if the header has no valid server cores.
    pub fn of<E>(records: &Records<E>) -> anyhow::Result<Self>
    where
        E: Experiment<Key = Key, Sample = Sample>,
    {
        let header = records.header.clone();
        let cells = in_order(records);
        let is_absent = |(key, _): &(&Key, &Absence)| {
            key.round != EVERY_ROUND || !cells.iter().any(|cell| cell.key.is_of_same_entry(key))
        };
        let failed = records.absences().filter(is_absent).map(MissingCell::from).collect();
        let environment = &header.environment;
        let claims = claims([&environment.server_cores, &environment.client_cores], &cells)?;
        let (interrupted, left) = (records.is_interrupted(), records.end.map_or(0, |end| end.missing));
        Ok(Self { header, cells, failed, claims, interrupted, left })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", table::cells(&self.cells))?;
        for MissingCell { key, why, .. } in &self.failed {
            writeln!(f, "no figures: {key}: {why}")?;
        }
        write!(f, "\n{}", shown_claims(&self.claims))
    }
}

/// A list of the header's plan; empty if the plan does not have it.
pub(super) fn planned<T: DeserializeOwned>(header: &Header, name: &str) -> Vec<T> {
    header.plan.get(name).cloned().and_then(|list| serde_json::from_value(list).ok()).unwrap_or_default()
}

/// The cells, contestant by contestant in the plan's order: the order of the lines changes from pass to pass. A contestant
/// that is not in the plan comes last.
fn in_order<E: Experiment<Key = Key, Sample = Sample>>(records: &Records<E>) -> Vec<Cell> {
    let mut cells = records.rows();
    let names: Vec<String> = planned(&records.header, "contestants");
    cells.sort_by_key(|cell| names.iter().position(|name| *name == cell.key.contestant).unwrap_or(names.len()));
    cells
}
