//! The result: the cells, the cells without a sample, and the verdicts on the published claims.

use std::fmt;

use polyserve_lab::experiment::{Absence, Experiment, Records};
use polyserve_lab::journal::Header;
use polyserve_report::{Claim, shown_claims};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::claims::claims;
use super::{Cell, EVERY_ROUND, Key, Method, Sample, table};

/// The result of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where and with what it was measured first.
    #[serde(flatten)]
    pub header: Header,
    /// The cells, contestant by contestant in the plan's order.
    pub cells: Vec<Cell>,
    /// The cells without a sample, and the contestants without a cell.
    pub failed: Vec<Missing>,
    /// The verdicts on the published claims.
    pub claims: Vec<Claim>,
    /// Whether a signal ended the run.
    pub interrupted: bool,
    /// Planned cells that have neither a sample nor an absence.
    pub left: usize,
}

/// A cell without a sample, or a contestant without a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// The contestant's name.
    pub contestant: String,
    /// Whether this is the contestant's second entry, the A/A control.
    pub control: bool,
    /// The cell; `None` stands for all cells of the contestant.
    pub cell: Option<CellPosition>,
    /// Why.
    pub why: String,
    /// Whether the contestant did wrong.
    pub wrong: bool,
    /// The key.
    #[serde(skip)]
    pub key: Key,
}

/// The place of a cell in the matrix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CellPosition {
    /// The method of the requests.
    pub method: Method,
    /// The number of concurrent connections.
    pub connections: usize,
    /// The pool's size; `None` if it cannot be chosen.
    pub pool_size: Option<usize>,
    /// The round, from 1.
    pub round: u32,
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
        let failed = records.absences().filter(is_absent).map(missing).collect();
        let claims = claims(&header.environment.server_cores, &cells)?;
        let (interrupted, left) = (records.is_interrupted(), records.end.map_or(0, |end| end.missing));
        Ok(Self { header, cells, failed, claims, interrupted, left })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", table::cells(&self.cells))?;
        for Missing { key, why, .. } in &self.failed {
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

fn missing((key, absence): (&Key, &Absence)) -> Missing {
    let Key { contestant, control, method, pool_size, connections, round } = key.clone();
    let cell = (round != EVERY_ROUND).then_some(CellPosition { method, connections, pool_size, round });
    Missing { contestant, control, cell, why: absence.why.clone(), wrong: absence.is_wrong(), key: key.clone() }
}
