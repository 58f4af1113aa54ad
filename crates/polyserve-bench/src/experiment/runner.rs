//! The one measuring loop.
//!
//! Invariant: a result that arrives after the stop signal is discarded, for the signal may have cut the measurement short.
//! Cost: that of the cells.

use std::fmt;

use anyhow::bail;
use polyserve::Shutdown;
use serde::Serialize;

use super::record::{END, End, FAILURE, SAMPLE};
use super::{Absence, Absent, Records};
use crate::bench::{DefinedExperiment, Key, Sample};
use crate::journal::{Header, Journal, as_line};
use crate::progress::Progress;

/// The record of a run under way, and its progress bar.
pub struct Notebook<'a> {
    /// The present record, with the lines of earlier runs.
    pub(crate) records: Records,
    journal: &'a mut Journal,
    /// The progress bar.
    pub progress: &'a mut Progress,
    stop: &'a Shutdown,
}

/// A line about a cell: the fields of its key, and those of its sample or absence.
#[derive(Serialize)]
struct CellLine<'a, T> {
    #[serde(flatten)]
    key: &'a Key,
    #[serde(flatten)]
    result: &'a T,
}

impl Notebook<'_> {
    /// Returns true once a signal has asked for the end of the run.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_begun()
    }

    /// Records a fact: a value that is neither a sample nor an absence, such as a calibration.
    pub(crate) fn fact(&mut self, kind: &str, fact: &impl Serialize) -> anyhow::Result<()> {
        self.journal.line(kind, fact)?;
        self.records.add_fact(as_line(kind, fact)?);
        Ok(())
    }

    fn sample(&mut self, key: Key, sample: Sample) -> anyhow::Result<()> {
        self.journal.line(SAMPLE, &CellLine { key: &key, result: &sample })?;
        self.records.add(key, sample);
        Ok(())
    }

    /// Records the absence of a cell, also of one that is not planned.
    pub(crate) fn absence(&mut self, key: Key, absence: Absence) -> anyhow::Result<()> {
        self.progress.print_line(&format!("no figures: {key}: {absence}"));
        self.journal.once(FAILURE, &CellLine { key: &key, result: &absence })?;
        self.records.leave_out(key, absence);
        Ok(())
    }
}

impl fmt::Debug for Notebook<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notebook").field("records", &self.records).finish_non_exhaustive()
    }
}

/// Measures what `journal` does not have yet, until everything is measured or `stop` begins. Returns everything recorded.
///
/// # Errors
///
/// Returns an error if the record cannot be read or written, an essential cell has no sample, or the experiment cannot be
/// prepared. Other cells without a sample are in the records, with the reason.
pub fn run(
    experiment: &mut DefinedExperiment,
    header: &Header,
    journal: &mut Journal,
    stop: &Shutdown,
) -> anyhow::Result<Records> {
    let mut progress = Progress::counting(0, "measurements");
    let result = run_with(experiment, header, journal, &mut progress, stop);
    progress.finish();
    result
}

/// [`run`] with the caller's progress bar. If a cell is a run of another experiment, the inner run has a hidden bar.
pub(crate) fn run_with(
    experiment: &mut DefinedExperiment,
    header: &Header,
    journal: &mut Journal,
    progress: &mut Progress,
    stop: &Shutdown,
) -> anyhow::Result<Records> {
    let mut records = match journal.lines_before() {
        [] => Records::new(header.clone()),
        lines => Records::of(lines)?,
    };
    records.end = None;
    records.retry();
    let mut notebook = Notebook { records, journal, progress, stop };
    run_in(experiment, &mut notebook)?;
    Ok(notebook.records)
}

fn run_in(experiment: &mut DefinedExperiment, notebook: &mut Notebook<'_>) -> anyhow::Result<()> {
    experiment.prepare(notebook)?;
    let batches = experiment.batches();
    let planned = || batches.iter().flatten();
    notebook.progress.grow(planned().map(|key| experiment.turns.weight(key)).sum());
    for Absent { key, absence, excused } in &experiment.absent {
        if notebook.is_stopped() {
            break; // a build that was interrupted is no reason
        }
        if *excused {
            notebook.records.excused.insert(key.clone());
        }
        notebook.absence(key.clone(), absence.clone())?;
    }
    let mut is_decided = false;
    for batch in &batches {
        is_decided = experiment.turns.is_decided(&notebook.records, &experiment.plan.contestants);
        if is_decided || notebook.is_stopped() {
            break;
        }
        measure(experiment, batch, notebook)?;
    }
    experiment.turns.finish(notebook)?;
    let recorded = planned().filter(|key| notebook.records.has(key)).count();
    let planned = if is_decided { recorded } else { planned().count() };
    let end = End { missing: planned - recorded, planned, interrupted: notebook.is_stopped() };
    notebook.journal.line(END, &end)?;
    notebook.records.end = Some(end);
    Ok(())
}

/// Measures the cells of a batch, unless all are recorded. Excluded cells are not measured.
fn measure(experiment: &mut DefinedExperiment, batch: &[Key], notebook: &mut Notebook<'_>) -> anyhow::Result<()> {
    let weight: usize = batch.iter().map(|key| experiment.turns.weight(key)).sum();
    if batch.iter().all(|key| notebook.records.has(key)) {
        notebook.progress.skip_steps(weight);
        return Ok(());
    }
    let keys: Vec<Key> = batch.iter().filter(|key| notebook.records.absence(key).is_none()).cloned().collect();
    let position_after = notebook.progress.position() + weight as u64;
    let results = experiment.turns.measure(&keys, notebook);
    if notebook.is_stopped() {
        return Ok(());
    }
    for (key, result) in keys.into_iter().zip(results) {
        match result {
            Ok(sample) => notebook.sample(key, sample)?,
            Err(absence) => {
                notebook.absence(key.clone(), absence.clone())?;
                if experiment.is_essential(&key) {
                    bail!("{key} failed, and nothing can be compared without it: {absence}");
                }
            }
        }
    }
    notebook.progress.reached(position_after);
    Ok(())
}
