//! The record of an experiment: samples, absences and facts.
//!
//! | line's kind | content |
//! |---|---|
//! | `environment` | the [`Header`]; one more for each time that the run was resumed |
//! | [`SAMPLE`] | the fields of a key and of its sample |
//! | `failure` | the fields of a key and of its [`Absence`] |
//! | `end` | how a run ended: the cells that are missing, whether a signal ended it |
//! | any other | a fact |
//!
//! Invariant: of two lines about one cell the later one counts, but a wrong answer stays. Cost: all lines in memory.

use std::collections::{HashMap, HashSet};
use std::fmt;

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Absence, Reason};
use crate::bench::{Key, Sample};
use crate::journal::{Header, first_header, of_kind};

/// The kind of a sample's line.
pub const SAMPLE: &str = "row";
/// The kind of an absence's line.
pub(super) const FAILURE: &str = "failure";
/// The kind of an [`End`]'s line.
pub(super) const END: &str = "end";
/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Cells that have neither a sample nor an absence.
    pub missing: usize,
    /// All cells.
    pub planned: usize,
    /// Whether a signal ended it.
    pub interrupted: bool,
}

/// The record of an experiment.
pub struct Records {
    /// The header of the first run.
    pub header: Header,
    /// How the last run ended; `None` if it did not.
    pub end: Option<End>,
    samples: Vec<(Key, Sample)>,
    indexes: HashMap<Key, usize>,
    absences: Vec<(Key, Absence)>,
    pub(super) excused: HashSet<Key>,
    facts: Vec<Value>,
}

impl Records {
    /// The record of a run that begins.
    pub(crate) fn new(header: Header) -> Self {
        let (samples, indexes, absences) = (Vec::new(), HashMap::new(), Vec::new());
        Self { header, end: None, samples, indexes, absences, excused: HashSet::new(), facts: Vec::new() }
    }

    /// Reads the lines of a record.
    ///
    /// # Errors
    ///
    /// Returns an error if the first line is not a header, or a line does not have the fields of its kind.
    pub fn of(lines: &[Value]) -> anyhow::Result<Self> {
        let mut records = Self::new(first_header(lines)?);
        for line in lines.iter().cloned() {
            let kind = line["kind"].as_str().unwrap_or_default().to_owned();
            let line_kind = || format!("a line of kind {kind:?}");
            if kind == Header::KIND {
                records.end = None;
            } else if kind == END {
                records.end = Some(serde_json::from_value(line).with_context(line_kind)?);
            } else if kind == SAMPLE {
                let key = serde_json::from_value(line.clone()).with_context(line_kind)?;
                records.add(key, serde_json::from_value(line).with_context(line_kind)?);
            } else if kind == FAILURE {
                let key = serde_json::from_value(line.clone()).with_context(line_kind)?;
                records.leave_out(key, serde_json::from_value(line).with_context(line_kind)?);
            } else {
                records.facts.push(line);
            }
        }
        Ok(records)
    }

    /// The samples, in the order in which their cells were measured first.
    pub fn samples(&self) -> impl Iterator<Item = (&Key, &Sample)> {
        self.samples.iter().map(|(key, sample)| (key, sample))
    }

    /// The sample of a cell.
    pub(crate) fn sample(&self, key: &Key) -> Option<&Sample> {
        self.indexes.get(key).and_then(|place| self.samples.get(*place)).map(|(_, sample)| sample)
    }

    /// The absences, in the order in which they were recorded.
    pub fn absences(&self) -> impl Iterator<Item = (&Key, &Absence)> {
        self.absences.iter().map(|(key, absence)| (key, absence))
    }

    /// The absence that leaves this cell without a sample.
    pub(crate) fn absence(&self, key: &Key) -> Option<&Absence> {
        self.absences().find(|(of, absence)| excludes(absence, of, key)).map(|(_, absence)| absence)
    }

    /// The facts of this kind.
    pub(crate) fn facts<T: DeserializeOwned>(&self, kind: &str) -> anyhow::Result<Vec<T>> {
        of_kind(&self.facts, kind)
    }

    /// Returns true if a signal ended the run.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.end.is_some_and(|end| end.interrupted)
    }

    /// Returns true if nothing is left to measure: a cell has a sample or an absence.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.indexes.contains_key(key) || self.absence(key).is_some()
    }

    /// Returns true if the command must fail: a cell was wrong, or a run that was not interrupted has a failure or lacks a
    /// contestant that was asked for by name.
    pub fn is_failed(&self) -> bool {
        let counts = |(key, absence): (&Key, &Absence)| match absence.reason {
            Reason::Wrong => true,
            Reason::TimedOut => false,
            Reason::Failed | Reason::NotAvailable => !self.is_interrupted() && !self.excused.contains(key),
        };
        self.absences().any(counts)
    }

    /// Adds a sample. It replaces an earlier sample and an earlier absence of its cell, but not a wrong answer.
    pub(super) fn add(&mut self, key: Key, sample: Sample) {
        if self.absences().any(|(of, absence)| *of == key && absence.is_wrong()) {
            return;
        }
        self.absences.retain(|(of, _)| *of != key);
        match self.indexes.get(&key) {
            Some(place) => self.samples[*place].1 = sample,
            None => {
                self.indexes.insert(key.clone(), self.samples.len());
                self.samples.push((key, sample));
            }
        }
    }

    /// Adds an absence. It replaces an earlier absence of its cell, but not a wrong answer.
    pub(super) fn leave_out(&mut self, key: Key, absence: Absence) {
        if self.absences().any(|(of, absence)| *of == key && absence.is_wrong()) {
            return;
        }
        self.absences.retain(|(of, _)| *of != key);
        self.absences.push((key, absence));
    }

    /// Removes the absences that this run measures again.
    pub(super) fn retry(&mut self) {
        self.absences.retain(|(_, absence)| absence.is_final());
    }

    pub(super) fn add_fact(&mut self, line: Value) {
        self.facts.push(line);
    }
}

/// Whether the absence of cell `of` leaves `key` without a sample too. A wrong answer excludes a contestant from all cells, and so
/// does a failure at no cell. Any other failure excludes it from its cell.
fn excludes(absence: &Absence, of: &Key, key: &Key) -> bool {
    of.contestant == key.contestant && (absence.is_wrong() || of.cell == key.cell || of.cell.is_empty())
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (samples, absences) = (self.samples.len(), &self.absences);
        f.debug_struct("Records").field("samples", &samples).field("absences", absences).finish_non_exhaustive()
    }
}
