//! The cells without a sample.

use crate::experiment::Absence;
use serde::Serialize;

use super::{CellMethod, EVERY_ROUND, Key};

/// A cell without a sample, or a contestant without a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MissingCell {
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
    pub method: CellMethod,
    /// The number of concurrent connections.
    pub connections: usize,
    /// The pool's size; `None` if it cannot be chosen.
    pub pool_size: Option<usize>,
    /// The round, from 1.
    pub round: u32,
}

impl From<(&Key, &Absence)> for MissingCell {
    fn from((key, absence): (&Key, &Absence)) -> Self {
        let Key { contestant, control, method, pool_size, connections, round } = key.clone();
        let cell = (round != EVERY_ROUND).then_some(CellPosition { method, connections, pool_size, round });
        Self { contestant, control, cell, why: absence.why.clone(), wrong: absence.is_wrong(), key: key.clone() }
    }
}
