//! The experiments of recorded files, for reports.

use serde_json::Value;

use super::Records;
use super::record::End;
use crate::bench::DefinedExperiment;
use crate::report::Summary;

/// A recorded file, summarized.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Tables, claims and CSV files.
    pub summary: Summary,
    /// Why the record is not complete; `None` if it is complete.
    pub incomplete: Option<String>,
}

/// An experiment that reports know.
#[derive(Clone, Copy, Debug)]
pub struct KnownExperiment {
    /// The experiment's name.
    pub name: &'static str,
    /// Its title.
    pub title: &'static str,
    /// Summarizes the lines of a record. Returns an error if the record is not of this experiment, or a line does not have the
    /// fields of its kind.
    pub read: fn(&[Value]) -> anyhow::Result<Recorded>,
}

/// Summarizes the record of an experiment from a definition.
///
/// # Errors
///
/// Returns an error if the record is not of such an experiment, or a line does not have the fields of its kind.
pub fn recorded(lines: &[Value]) -> anyhow::Result<Recorded> {
    let records = Records::of(lines)?;
    let result = DefinedExperiment::report(&records)?;
    let incomplete = match records.end {
        Some(End { missing: 0, .. }) => None,
        Some(End { missing, planned, .. }) => Some(format!("{missing} of {planned} planned measurements are missing")),
        None => Some("the run has not ended, or it was killed".to_owned()),
    };
    Ok(Recorded { summary: result.summarize(&records)?, incomplete })
}
