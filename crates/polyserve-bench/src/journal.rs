//! The record of a long measurement: JSON lines. Each line is written as soon as it is known, so a run that is ended early
//! keeps all its measurements, and the next run resumes after them.
//!
//! The first line is a [`Header`]: the experiment, its plan and the environment. Every line has a field `kind`. A run that
//! resumes adds its own header.
//!
//! Invariants: all lines of a file were measured by one program on one machine with one plan; a line that was cut off does
//! not count; only one process at a time writes to a file. Cost: a write for each line.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use polyserve::files::{MAX_CONTENT, read_text};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Misuse;
use crate::machine::Environment;

/// The extension of a record's file.
pub const EXTENSION: &str = "jsonl";

/// The version of the record format that this build writes.
///
/// A record of another version cannot be read.
pub const FORMAT: u32 = 3;

/// The first line of a record. Each run that resumes it adds another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The experiment's name.
    pub experiment: String,
    /// The version of the format that the lines are written in: see [`FORMAT`].
    pub format: u32,
    /// The plan, as its command describes it.
    pub plan: Value,
    /// The environment.
    #[serde(flatten)]
    pub environment: Environment,
}

impl Header {
    /// The `kind` of its line.
    pub const KIND: &str = "environment";

    /// The header of a record in the current format.
    pub fn new(experiment: impl Into<String>, plan: Value, environment: Environment) -> Self {
        Self { experiment: experiment.into(), format: FORMAT, plan, environment }
    }

    /// Why a run with the header `now` cannot resume the record of `self`; `None` if it can.
    fn differs_from(&self, now: &Self) -> Option<String> {
        if self.experiment != now.experiment {
            return Some(format!("it holds the experiment {}", self.experiment));
        }
        if self.plan != now.plan {
            return Some(format!("its plan is {}, and the plan of this run is {}", self.plan, now.plan));
        }
        if self.format != now.format {
            return Some(format!("it has record format {}, and this build writes format {}", self.format, now.format));
        }
        let recorded = Environment {
            command: now.environment.command.clone(),
            date: now.environment.date.clone(),
            toolchains: now.environment.toolchains.clone(),
            ..self.environment.clone()
        };
        (recorded != now.environment).then(|| String::from("it has another build, machine, seed or set of cores"))
    }
}

/// The lines of one experiment: the lines of earlier runs, and the file for further lines.
#[derive(Debug)]
pub struct Journal {
    file: Option<File>,
    path: PathBuf,
    before: Vec<Value>,
}

impl Drop for Journal {
    /// Releases the lock. Closing the file is not enough: a process that is being started has a copy for a moment.
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

impl Journal {
    /// A journal that records nothing.
    pub fn none() -> Self {
        Self { file: None, path: PathBuf::new(), before: Vec::new() }
    }

    /// The record `DIR/EXPERIMENT.jsonl`. It is created if it does not exist, and continued if it has the same experiment with
    /// the same plan. Without a `dir`, nothing is recorded.
    ///
    /// # Errors
    ///
    /// Returns [`Misuse`] if the file has other content, which is not overwritten, or if another process writes to it. Returns
    /// an error if the file cannot be created, read or written.
    pub fn open(dir: Option<&Path>, header: &Header) -> anyhow::Result<Self> {
        Self::named(dir, &header.experiment, header)
    }

    /// The record `DIR/NAME.jsonl`, as [`open`](Self::open). One directory can hold an experiment several times, with different
    /// plans; the header names the experiment. `name` must be valid for [`file_name`].
    ///
    /// # Errors
    ///
    /// Returns the errors of [`open`](Self::open).
    pub fn named(dir: Option<&Path>, name: &str, header: &Header) -> anyhow::Result<Self> {
        let Some(dir) = dir else { return Ok(Self::none()) };
        fs::create_dir_all(dir).with_context(|| format!("{} cannot be created", dir.display()))?;
        let path = dir.join(format!("{name}.{EXTENSION}"));
        let path_text = || path.display().to_string();
        let mut options = OpenOptions::new();
        // In append mode, the lines of a program that ignores the lock are not overwritten.
        let mut file = options.read(true).append(true).create(true).open(&path).with_context(path_text)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(Misuse(format!("{} is being written by another process", path.display())).into());
            }
            Err(error) => return Err(error).with_context(path_text),
        }
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(path_text)?;
        let complete_len = text.rfind('\n').map_or(0, |end| end + 1);
        let before = parse(&text[..complete_len]).with_context(path_text)?;
        if !before.is_empty() {
            let recorded = first_header(&before).with_context(path_text)?;
            if let Some(why) = recorded.differs_from(header) {
                return Err(Misuse(format!("{} is not overwritten: {why}", path.display())).into());
            }
        }
        file.set_len(complete_len as u64).with_context(path_text)?; // a line that was cut off goes
        let mut journal = Self { file: Some(file), path, before };
        journal.line(Header::KIND, header)?;
        Ok(journal)
    }

    /// All lines that were there already, headers too.
    pub(crate) fn lines_before(&self) -> &[Value] {
        &self.before
    }

    /// Adds a line of this kind.
    ///
    /// # Errors
    ///
    /// Returns an error if the line cannot be written, or if the value cannot be JSON.
    pub fn line(&mut self, kind: &str, value: &impl Serialize) -> anyhow::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut text = serde_json::to_string(&RecordLine { kind, value })?;
        text.push('\n');
        // The whole line in one write, without a buffer.
        file.write_all(text.as_bytes()).with_context(|| self.path.display().to_string())
    }

    /// [`line`](Self::line), unless the record has the same line. It is for facts that each run finds again, such as the
    /// contestants that cannot run here.
    pub(crate) fn once(&mut self, kind: &str, value: &impl Serialize) -> anyhow::Result<()> {
        let line = as_line(kind, value)?;
        if self.before.contains(&line) { Ok(()) } else { self.line(kind, value) }
    }
}

/// Checks a name for [`Journal::named`] from a command line: it stays within its directory, and needs no quotes.
///
/// # Errors
///
/// Returns an error if the name does not begin with a letter or digit, has a character that is no letter, digit, dot,
/// hyphen or underscore, or is longer than 100 bytes.
pub fn file_name(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let starts_plain = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if starts_plain && text.len() <= 100 && text.bytes().all(is_plain) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "{text:?} is not a record name: letters, digits, dots, hyphens and underscores, the first a letter or a digit"
    ))
}

#[derive(Serialize)]
struct RecordLine<'a, T> {
    kind: &'a str,
    #[serde(flatten)]
    value: &'a T,
}

/// Returns `value` as [`read`] returns a line of this kind. It is for values that were never written.
pub(crate) fn as_line(kind: &str, value: &impl Serialize) -> anyhow::Result<Value> {
    Ok(serde_json::to_value(RecordLine { kind, value })?)
}

/// Reads all complete lines of a recorded file.
///
/// # Errors
///
/// Returns an error if the file cannot be read, a line is not JSON, or the format is not [`FORMAT`].
pub fn read(path: &Path) -> anyhow::Result<Vec<Value>> {
    let path_text = || path.display().to_string();
    let text = read_text(path, MAX_CONTENT).with_context(path_text)?;
    let lines = parse(&text[..text.rfind('\n').map_or(0, |end| end + 1)]).with_context(path_text)?;
    let format = lines.first().map_or(u64::from(FORMAT), |line| line["format"].as_u64().unwrap_or(FORMAT.into()));
    anyhow::ensure!(format == u64::from(FORMAT), "{}: the record's format is {format}, not {FORMAT}", path_text());
    Ok(lines)
}

/// The header of these lines.
pub(crate) fn first_header(lines: &[Value]) -> anyhow::Result<Header> {
    let first = lines.first().context("there is no line in it")?;
    serde_json::from_value(first.clone()).context("its first line is not a header")
}

/// Returns the lines of this kind.
///
/// # Errors
///
/// Returns an error if a line is not a `T`.
pub fn of_kind<T: DeserializeOwned>(lines: &[Value], kind: &str) -> anyhow::Result<Vec<T>> {
    let found = lines.iter().filter(|line| line["kind"] == kind);
    found.map(|line| serde_json::from_value(line.clone()).with_context(|| format!("a line of kind {kind:?}"))).collect()
}

fn parse(text: &str) -> anyhow::Result<Vec<Value>> {
    let lines = text.lines().zip(1..);
    lines.map(|(line, number)| serde_json::from_str(line).with_context(|| format!("line {number}"))).collect()
}

#[cfg(test)]
mod tests;
