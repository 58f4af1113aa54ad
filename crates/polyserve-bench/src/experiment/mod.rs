//! The experiment framework. An experiment is data, one `measure` function and one `report` function; everything else is here.
//!
//! ```text
//!   describe ──> header of the record        (an old record with another header is not overwritten)
//!   prepare  ──> facts: builds, calibrations
//!   plan     ──> batches of cells, and the cells that cannot be measured here
//!   measure  ──> a sample or an absence for each cell that the record does not have yet
//!   report   ──> the result; the same from a run and from a recorded file
//! ```
//!
//! The framework owns resume, Ctrl-C, progress, the order of contestants, the A/A control's name, disqualification, exit
//! codes, JSON, the record and completeness (planned cells minus recorded cells).
//!
//! Invariants: a cell is recorded once it is complete, and never measured again. A contestant that did wrong or timed out is
//! not measured again, in this run or a later one. Every other absence is measured again by the next run. Cost: one line of
//! JSON for each cell.
//!
//! # Layout
//!
//! * `plan`: cells, batches and their order. `absence`: why a cell has no sample. `record`: what is recorded.
//! * `runner`: the one measuring loop. `command`: the shared flags, and how a command runs an experiment.
//! * `rows`: samples with their keys, and CSV. `known`: experiments without their types, for reports of recorded files.

mod absence;
mod command;
mod known;
mod plan;
mod record;
mod rows;
mod runner;
#[cfg(test)]
mod tests;

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::slice;

use crate::report::{Summary, wrapped};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::output::INDENT;

pub use absence::{Absence, Failed, Reason};
pub use command::{Execution, RecordArgs};
pub use known::{KnownExperiment, Recorded};
pub use plan::{Absent, Batch, Plan, again, distinct, first_of, interleaved, order, with_second_entries};
pub use record::{End, Records};
pub use rows::{RecordRow, csv, with_short_floats};
pub use runner::{Notebook, run, run_with};

/// A measurement: cells that are measured one by one or together, and the result of their samples.
///
/// A cell's key identifies it: the contestant, the settings and the round. Its sample is the result of one measurement.
/// Both are the fields of one line of the record, so a key and a sample must not share a field's name.
pub trait Experiment: Sized {
    /// The name of the experiment, of its command and, by default, of its record.
    const NAME: &'static str;
    /// The `kind` of a sample's line in the record.
    const SAMPLE: &'static str = "cell";
    /// Plural of what [`weight`](Self::weight) counts, for the progress bar.
    const UNITS: &'static str = "cells";
    /// Identifies a cell. `Display` names the cell in progress and errors.
    type Key: Clone + Eq + Hash + Debug + Display + Serialize + DeserializeOwned;
    /// One observation of a cell.
    type Sample: Clone + Debug + Serialize + DeserializeOwned;
    /// The result. `Serialize` is the command's JSON, `Display` is what the command prints.
    type Report: Serialize + Display;

    /// The description of the measurement, for the record's header. A record is resumed only under an equal description.
    fn describe(&self) -> Value;

    /// Prepares the plan: builds contestants, calibrates. Results that a resumed run needs again are
    /// [facts](Notebook::fact) of the record. By default, does nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if the experiment cannot be done at all.
    fn prepare(&mut self, notebook: &mut Notebook<'_, Self>) -> anyhow::Result<()> {
        let _ = notebook;
        Ok(())
    }

    /// The cells and their order.
    fn plan(&self) -> Plan<Self::Key>;

    /// Measures one cell. A result that arrives after the stop signal is discarded. An experiment implements this or
    /// [`measure_together`](Self::measure_together). It can advance the progress bar by parts of the cell's
    /// [`weight`](Self::weight); the framework advances it by the rest.
    ///
    /// # Errors
    ///
    /// Returns why the cell has no sample.
    fn measure(&mut self, key: &Self::Key, notebook: &mut Notebook<'_, Self>) -> Result<Self::Sample, Absence> {
        let result = self.measure_together(slice::from_ref(key), notebook).pop();
        result.unwrap_or_else(|| Err(Absence::failed(format!("{key} was not measured"))))
    }

    /// Measures the cells of a [`Batch::together`]. Returns one result for each key, in the order of the keys. By default,
    /// measures one cell after the other. An absence is not recorded if an earlier absence [excludes](Self::excludes) its cell.
    fn measure_together(
        &mut self,
        keys: &[Self::Key],
        notebook: &mut Notebook<'_, Self>,
    ) -> Vec<Result<Self::Sample, Absence>> {
        keys.iter().map(|key| self.measure(key, notebook)).collect()
    }

    /// Runs after the last cell, to record facts about the whole run. By default, does nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if the record cannot be written.
    fn finish(&mut self, notebook: &mut Notebook<'_, Self>) -> anyhow::Result<()> {
        let _ = notebook;
        Ok(())
    }

    /// Returns true if the absence of cell `of` leaves `key` without a sample too: a contestant that gave a wrong answer is
    /// disqualified from all rounds. By default a cell excludes itself only.
    fn excludes(absence: &Absence, of: &Self::Key, key: &Self::Key) -> bool {
        let _ = absence;
        of == key
    }

    /// Returns true if nothing can be compared without this cell: its absence ends the run with an error. By default false.
    fn is_essential(&self, key: &Self::Key) -> bool {
        let _ = key;
        false
    }

    /// Returns true if the samples so far answer the question: no further batch is measured then, and none is missing. It is
    /// called before each batch. By default false.
    fn is_decided(&self, records: &Records<Self>) -> bool {
        let _ = records;
        false
    }

    /// The share of the run's time that a cell takes, in [`UNITS`](Self::UNITS). By default 1.
    fn weight(&self, key: &Self::Key) -> usize {
        let _ = key;
        1
    }

    /// Computes the result of the records.
    ///
    /// # Errors
    ///
    /// Returns an error if the record is not of this experiment.
    fn report(records: &Records<Self>) -> anyhow::Result<Self::Report>;

    /// The report as the command prints it, with the flags that change only that. By default its `Display`, in
    /// lines of at most [`WIDTH`](crate::report::WIDTH) characters.
    fn text(&self, report: &Self::Report) -> String {
        wrapped(&report.to_string(), INDENT)
    }

    /// Tables, claims and CSV files of a result.
    ///
    /// # Errors
    ///
    /// Returns an error if a table cannot be written.
    fn summarize(records: &Records<Self>, report: &Self::Report) -> anyhow::Result<Summary>;

    /// Returns false if the result itself makes the command fail. The report can be of an interrupted run. By default true.
    fn is_passed(report: &Self::Report) -> bool {
        let _ = report;
        true
    }
}
