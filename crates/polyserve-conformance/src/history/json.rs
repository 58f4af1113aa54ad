//! The JSON lines of a history.
//!
//! Invariant: a history is read back as it was written. Cost: one line at a time, of at most [`LONGEST`] bytes.

use std::fmt;
use std::io::{self, BufRead, Read as _, Write};

use polyserve_core::{Put, Removed};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Action, History, MAX_OPERATIONS, Operation, ReadValue};

/// An operation in one line.
#[derive(Serialize, Deserialize)]
struct OperationLine {
    process: u32,
    op: OpField,
    key: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<u64>,
    call: u64,
    #[serde(default, rename = "return", skip_serializing_if = "Option::is_none")]
    returned: Option<u64>,
    outcome: OutcomeField,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OpField {
    Get,
    Put,
    Remove,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OutcomeField {
    Created,
    Replaced,
    Found,
    Absent,
    Removed,
    Unknown,
}

/// The longest line, in bytes. A header may be long.
const LONGEST: u64 = 64 * 1024;
/// The version of the format.
const FORMAT: u64 = 1;

/// Why a history cannot be read.
#[derive(Debug)]
pub enum ReadError {
    /// The source failed.
    Io(io::Error),
    /// The number of an invalid line, from 1, and why it is invalid.
    Line(usize, String),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the history cannot be read: {error}"),
            Self::Line(line, why) => write!(f, "line {line} of the history: {why}"),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Line(..) => None,
        }
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl History {
    /// Reads a history in the format that the [module](super) describes.
    ///
    /// # Errors
    ///
    /// Returns an error if `source` fails, if a line is not an operation, or if the operations are not a history.
    pub fn read(source: impl BufRead) -> Result<Self, ReadError> {
        Self::read_at_most(MAX_OPERATIONS, source)
    }

    /// Reads a history of at most `most` operations. It stops at the first further operation, because the source may
    /// be endless.
    pub(super) fn read_at_most(most: usize, mut source: impl BufRead) -> Result<Self, ReadError> {
        let (mut operations, mut lines) = (Vec::new(), Vec::new());
        let mut text = Vec::new();
        for number in 1.. {
            text.clear();
            if (&mut source).take(LONGEST + 1).read_until(b'\n', &mut text)? == 0 {
                break;
            }
            let wrong = |why: String| ReadError::Line(number, why);
            if text.len() as u64 > LONGEST {
                return Err(wrong(format!("it is longer than {LONGEST} bytes")));
            }
            let line = text.trim_ascii();
            if line.is_empty() || (operations.is_empty() && is_header(line).map_err(wrong)?) {
                continue;
            }
            let line: OperationLine = serde_json::from_slice(line).map_err(|error| wrong(said(&error)))?;
            if operations.len() == most {
                return Err(wrong(format!("a history has at most {most} operations")));
            }
            operations.push(line.operation().map_err(wrong)?);
            lines.push(number);
        }
        Self::new(operations).map_err(|invalid| ReadError::Line(lines[invalid.place], invalid.why))
    }

    /// Writes the history after a header with the members of `about`, a JSON object.
    ///
    /// # Errors
    ///
    /// Returns an error if `sink` fails.
    pub fn write(&self, mut sink: impl Write, about: &Value) -> io::Result<()> {
        let mut header = json!({"kind": "header", "format": FORMAT});
        if let (Some(header), Some(about)) = (header.as_object_mut(), about.as_object()) {
            header.extend(about.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        writeln!(sink, "{header}")?;
        for operation in self.operations() {
            serde_json::to_writer(&mut sink, &OperationLine::of(operation))?;
            sink.write_all(b"\n")?;
        }
        sink.flush()
    }
}

/// The message of an error without the place in the text, which is always one line.
fn said(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(said, _)| said.to_owned())
}

/// Returns whether `line` is a header.
fn is_header(line: &[u8]) -> Result<bool, String> {
    #[derive(Deserialize)]
    struct HeaderLine {
        kind: String,
        format: u64,
    }
    match serde_json::from_slice::<HeaderLine>(line) {
        Ok(HeaderLine { kind, format }) if kind == "header" && format == FORMAT => Ok(true),
        Ok(HeaderLine { kind, format }) if kind == "header" => {
            Err(format!("format {format} is not known, only {FORMAT}"))
        }
        _ => Ok(false),
    }
}

impl OperationLine {
    fn of(operation: &Operation) -> Self {
        let &Operation { process, key, action, called, returned } = operation;
        let (op, value, outcome) = match action {
            Action::Get(Some(ReadValue::Value(value))) => (OpField::Get, Some(value), OutcomeField::Found),
            Action::Get(Some(ReadValue::Absent)) => (OpField::Get, None, OutcomeField::Absent),
            Action::Get(None) => (OpField::Get, None, OutcomeField::Unknown),
            Action::Put(value, Some(Put::Created)) => (OpField::Put, Some(value), OutcomeField::Created),
            Action::Put(value, Some(Put::Replaced)) => (OpField::Put, Some(value), OutcomeField::Replaced),
            Action::Put(value, None) => (OpField::Put, Some(value), OutcomeField::Unknown),
            Action::Remove(Some(Removed::Removed)) => (OpField::Remove, None, OutcomeField::Removed),
            Action::Remove(Some(Removed::Absent)) => (OpField::Remove, None, OutcomeField::Absent),
            Action::Remove(None) => (OpField::Remove, None, OutcomeField::Unknown),
        };
        let returned = Some(returned).filter(|_| !operation.is_unknown());
        Self { process, op, key, value, call: called, returned, outcome }
    }

    fn operation(self) -> Result<Operation, String> {
        let Self { process, op, key, value, call: called, returned, outcome } = self;
        let (name, answer) = (format!("{op:?}").to_lowercase(), format!("{outcome:?}").to_lowercase());
        let action = match (op, outcome, value) {
            (OpField::Get, OutcomeField::Found, Some(value)) => Action::Get(Some(ReadValue::Value(value))),
            (OpField::Get, OutcomeField::Absent, None) => Action::Get(Some(ReadValue::Absent)),
            (OpField::Get, OutcomeField::Unknown, None) => Action::Get(None),
            (OpField::Put, OutcomeField::Created, Some(value)) => Action::Put(value, Some(Put::Created)),
            (OpField::Put, OutcomeField::Replaced, Some(value)) => Action::Put(value, Some(Put::Replaced)),
            (OpField::Put, OutcomeField::Unknown, Some(value)) => Action::Put(value, None),
            (OpField::Remove, OutcomeField::Removed, None) => Action::Remove(Some(Removed::Removed)),
            (OpField::Remove, OutcomeField::Absent, None) => Action::Remove(Some(Removed::Absent)),
            (OpField::Remove, OutcomeField::Unknown, None) => Action::Remove(None),
            (OpField::Put, _, None) | (OpField::Get, OutcomeField::Found, None) => {
                return Err(format!("a {name} that was {answer} needs a value"));
            }
            (
                OpField::Get | OpField::Remove,
                OutcomeField::Absent | OutcomeField::Unknown | OutcomeField::Removed,
                Some(_),
            ) => {
                return Err(format!("a {name} that was {answer} has no value"));
            }
            _ => return Err(format!("the outcome of a {name} is never {answer}")),
        };
        let returned = match returned {
            Some(returned) => returned,
            None if matches!(outcome, OutcomeField::Unknown) => u64::MAX,
            None => return Err(format!("a {name} that was {answer} needs its return")),
        };
        Ok(Operation { process, key, action, called, returned })
    }
}
