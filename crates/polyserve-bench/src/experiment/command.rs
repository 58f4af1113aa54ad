//! How a command runs an experiment: the flags that all experiments share, the record, what is printed, the exit code.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use polyserve::Shutdown;
use serde_json::Value;

use super::record::End;
use super::{Records, run};
use crate::bench::{DefinedExperiment, NAME};
use crate::journal::{Header, Journal, file_name};
use crate::machine::Environment;
use crate::output::{WithEnvironment, print, print_json};
use crate::report::Summary;

/// The flags of a command that records what it measures.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct RecordArgs {
    /// A directory to record every measurement in, as JSON lines, with the CSV files. A run that was ended early, or
    /// failed, is resumed there: what is recorded is not measured again.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The record's name: one directory can hold several, as NAME.jsonl. [default: the command's name]
    #[arg(long, value_name = "NAME", value_parser = file_name, requires = "out")]
    pub name: Option<String>,
}

/// The settings of a command that its experiment does not have.
#[derive(Debug)]
pub struct Execution<'a> {
    /// The environment of the measurement.
    pub environment: Environment,
    /// The flags for the record.
    pub record: &'a RecordArgs,
    /// The record's name if none was given.
    pub name: &'a str,
    /// Whether JSON is printed.
    pub json: bool,
    /// The shutdown that the first signal begins.
    pub stop: &'a Shutdown,
}

impl Execution<'_> {
    /// Runs the experiment, records it, prints its report.
    ///
    /// # Errors
    ///
    /// Returns [`Misuse`](crate::Misuse) if the record holds another experiment; returns an error if the record cannot be
    /// written, or the experiment cannot be done at all.
    pub fn run(self, experiment: &mut DefinedExperiment) -> anyhow::Result<ExitCode> {
        let Self { environment, record, name, json, stop } = self;
        let environment = if record.out.is_some() { environment.with_toolchains() } else { environment };
        let is_recorded = record.out.is_some();
        let header = Header::new(NAME, experiment.describe(), environment);
        let name = record.name.as_deref().unwrap_or(name);
        let mut journal = Journal::named(record.out.as_deref(), name, &header)?;
        let records = run(experiment, &header, &mut journal, stop)?;
        let report = DefinedExperiment::report(&records)?;
        if json {
            print_json(&WithEnvironment { environment: &header.environment, report: &report })?;
        } else {
            print(&(experiment.text(&report) + &ending(records.end, is_recorded)))?;
        }
        if let Some(dir) = &record.out {
            for (suffix, text) in report.summarize(&records)?.csv {
                let path = dir.join(format!("{name}{suffix}.csv"));
                fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))?;
            }
        }
        let is_good = !records.is_failed() && report.is_passed();
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// The last line of a run that is not complete.
fn ending(end: Option<End>, is_recorded: bool) -> String {
    let then = if is_recorded {
        "the same command measures them"
    } else {
        "with --out, the same command would go on from here"
    };
    match end {
        Some(End { missing, planned, .. }) if missing > 0 => {
            format!("ended early: {missing} of {planned} measurements are missing; {then}\n")
        }
        _ => String::new(),
    }
}

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
