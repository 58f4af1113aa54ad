//! The one measuring loop.
//!
//! Invariant: a result that arrives after the stop signal is discarded, for the signal may have cut the measurement short.
//! Cost: that of the cells.

use std::fmt;
use std::time::Instant;

use anyhow::bail;
use polyserve::Shutdown;
use serde::Serialize;

use super::plan::Absent;
use super::record::{END, End, FAILURE};
use super::{Absence, Batch, Experiment, Plan, RecordRow, Records};
use crate::journal::{Header, Journal, as_line};
use crate::progress::Progress;

/// The record of a run under way, and its progress bar.
pub struct Notebook<'a, E: Experiment> {
    records: Records<E>,
    journal: &'a mut Journal,
    /// The progress bar.
    pub progress: &'a mut Progress,
    stop: &'a Shutdown,
}

impl<E: Experiment> Notebook<'_, E> {
    /// The present record, with the lines of earlier runs.
    pub fn records(&self) -> &Records<E> {
        &self.records
    }

    /// Returns true once a signal has asked for the end of the run.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_begun()
    }

    /// Records a fact: a value that is neither a sample nor an absence, such as a calibration.
    ///
    /// # Errors
    ///
    /// Returns an error if the record cannot be written.
    pub fn fact(&mut self, kind: &str, fact: &impl Serialize) -> anyhow::Result<()> {
        self.journal.line(kind, fact)?;
        self.records.add_fact(as_line(kind, fact)?);
        Ok(())
    }

    /// Records a sample of a cell, also of one that is not planned.
    ///
    /// # Errors
    ///
    /// Returns an error if the record cannot be written.
    pub fn sample(&mut self, key: E::Key, sample: E::Sample) -> anyhow::Result<()> {
        self.journal.line(E::SAMPLE, &RecordRow { key: &key, sample: &sample })?;
        self.records.add(key, sample);
        Ok(())
    }

    /// Records the absence of a cell, also of one that is not planned.
    ///
    /// # Errors
    ///
    /// Returns an error if the record cannot be written.
    pub fn absence(&mut self, key: E::Key, absence: Absence) -> anyhow::Result<()> {
        self.progress.print_line(&format!("no figures: {key}: {absence}"));
        self.journal.once(FAILURE, &RecordRow { key: &key, sample: &absence })?;
        self.records.leave_out(key, absence);
        Ok(())
    }
}

impl<E: Experiment> fmt::Debug for Notebook<'_, E> {
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
pub fn run<E: Experiment>(
    experiment: &mut E,
    header: &Header,
    journal: &mut Journal,
    stop: &Shutdown,
) -> anyhow::Result<Records<E>> {
    let mut progress = Progress::counting(0, E::UNITS);
    let result = run_with(experiment, header, journal, &mut progress, stop);
    progress.finish();
    result
}

/// [`run`] with the caller's progress bar. If a cell is a run of another experiment, the inner run has a hidden bar.
///
/// # Errors
///
/// Returns the errors of [`run`].
pub fn run_with<E: Experiment>(
    experiment: &mut E,
    header: &Header,
    journal: &mut Journal,
    progress: &mut Progress,
    stop: &Shutdown,
) -> anyhow::Result<Records<E>> {
    let mut records = match journal.lines_before() {
        [] => Records::new(header.clone()),
        lines => Records::of(lines)?,
    };
    records.end = None;
    records.retry();
    let mut notebook = Notebook { records, journal, progress, stop };
    let result = run_in(experiment, &mut notebook);
    let records = notebook.records;
    result.map(|()| records)
}

fn run_in<E: Experiment>(experiment: &mut E, notebook: &mut Notebook<'_, E>) -> anyhow::Result<()> {
    experiment.prepare(notebook)?;
    let plan = experiment.plan();
    notebook.progress.grow(plan.keys().map(|key| experiment.weight(key)).sum());
    for Absent { key, absence, excused } in &plan.absent {
        if notebook.is_stopped() {
            break; // a build that was interrupted is no reason
        }
        if *excused {
            notebook.records.excused.insert(key.clone());
        }
        notebook.absence(key.clone(), absence.clone())?;
    }
    let started = Instant::now();
    let mut is_decided = false;
    for batch in &plan.batches {
        is_decided = experiment.is_decided(&notebook.records);
        if is_decided {
            break;
        }
        if notebook.is_stopped() || plan.time_limit.is_some_and(|limit| started.elapsed() >= limit) {
            break;
        }
        if batch.together {
            measure_together(experiment, batch, notebook)?;
        } else {
            measure_series(experiment, &plan, batch, started, notebook)?;
        }
    }
    experiment.finish(notebook)?;
    let planned = plan.keys().filter(|key| !is_decided || notebook.records.has(key)).count();
    let missing = plan.keys().filter(|key| !is_decided && !notebook.records.has(key)).count();
    let end = End { missing, planned, interrupted: notebook.is_stopped() };
    notebook.journal.line(END, &end)?;
    notebook.records.end = Some(end);
    Ok(())
}

/// Measures the cells of a batch one by one.
fn measure_series<E: Experiment>(
    experiment: &mut E,
    plan: &Plan<E::Key>,
    batch: &Batch<E::Key>,
    started: Instant,
    notebook: &mut Notebook<'_, E>,
) -> anyhow::Result<()> {
    for key in &batch.keys {
        let weight = experiment.weight(key);
        if notebook.records.has(key) {
            notebook.progress.skip_steps(weight);
            continue;
        }
        if notebook.is_stopped() || plan.time_limit.is_some_and(|limit| started.elapsed() >= limit) {
            return Ok(());
        }
        notebook.progress.begin(key.to_string());
        let position_after = notebook.progress.position() + weight as u64;
        let result = experiment.measure(key, notebook);
        if notebook.is_stopped() {
            return Ok(());
        }
        record(experiment, key, result, notebook)?;
        notebook.progress.reached(position_after);
    }
    Ok(())
}

/// Measures the cells of a batch by one call, unless all cells are recorded. Excluded cells are not measured.
fn measure_together<E: Experiment>(
    experiment: &mut E,
    batch: &Batch<E::Key>,
    notebook: &mut Notebook<'_, E>,
) -> anyhow::Result<()> {
    let weight: usize = batch.keys.iter().map(|key| experiment.weight(key)).sum();
    if batch.keys.iter().all(|key| notebook.records.has(key)) {
        notebook.progress.skip_steps(weight);
        return Ok(());
    }
    let keys: Vec<E::Key> = batch.keys.iter().filter(|key| notebook.records.absence(key).is_none()).cloned().collect();
    let position_after = notebook.progress.position() + weight as u64;
    let results = experiment.measure_together(&keys, notebook);
    if notebook.is_stopped() {
        return Ok(());
    }
    for (key, result) in keys.iter().zip(results) {
        record(experiment, key, result, notebook)?;
    }
    notebook.progress.reached(position_after);
    Ok(())
}

fn record<E: Experiment>(
    experiment: &E,
    key: &E::Key,
    result: Result<E::Sample, Absence>,
    notebook: &mut Notebook<'_, E>,
) -> anyhow::Result<()> {
    match result {
        Ok(sample) => notebook.sample(key.clone(), sample),
        Err(absence) => {
            if notebook.records.absence(key).is_none() {
                notebook.absence(key.clone(), absence.clone())?;
            }
            if experiment.is_essential(key) {
                bail!("{key} failed, and nothing can be compared without it: {absence}");
            }
            Ok(())
        }
    }
}
