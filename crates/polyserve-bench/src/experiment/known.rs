//! Experiments with an erased type, for reports of recorded files.

use crate::report::Summary;
use serde_json::Value;

use super::record::End;
use super::{Experiment, Records};

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
    read: fn(&[Value]) -> anyhow::Result<Recorded>,
}

impl KnownExperiment {
    /// An experiment under its title.
    pub const fn new<E: Experiment>(title: &'static str) -> Self {
        Self { name: E::NAME, title, read: recorded::<E> }
    }

    /// An experiment outside the framework: `read` summarizes its lines.
    pub const fn of_lines(
        name: &'static str,
        title: &'static str,
        read: fn(&[Value]) -> anyhow::Result<Recorded>,
    ) -> Self {
        Self { name, title, read }
    }

    /// Summarizes the lines of a record.
    ///
    /// # Errors
    ///
    /// Returns an error if the record is not of this experiment, or a line does not have the fields of its kind.
    pub fn read(&self, lines: &[Value]) -> anyhow::Result<Recorded> {
        (self.read)(lines)
    }
}

fn recorded<E: Experiment>(lines: &[Value]) -> anyhow::Result<Recorded> {
    let records = Records::<E>::of(lines)?;
    let report = E::report(&records)?;
    let incomplete = match records.end {
        Some(End { missing: 0, .. }) => None,
        Some(End { missing, planned, .. }) => Some(format!("{missing} of {planned} planned measurements are missing")),
        None => Some("the run has not ended, or it was killed".to_owned()),
    };
    Ok(Recorded { summary: E::summarize(&records, &report)?, incomplete })
}
