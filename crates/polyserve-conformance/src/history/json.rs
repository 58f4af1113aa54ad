//! The documented form of a history: JSON lines.
//!
//! Invariant: what is written is read back as it was. Cost: a line at a time, of at most [`LONGEST`] bytes.

use std::fmt;
use std::io::{self, BufRead, Read as _, Write};

use polyserve_core::{Put, Removed};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Did, History, MAX_OPERATIONS, Operation, Seen};

/// An operation in a line.
#[derive(Serialize, Deserialize)]
struct Line {
    process: u32,
    op: Op,
    key: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<u64>,
    call: u64,
    #[serde(default, rename = "return", skip_serializing_if = "Option::is_none")]
    returned: Option<u64>,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Op {
    Get,
    Put,
    Remove,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Created,
    Replaced,
    Found,
    Absent,
    Removed,
    Unknown,
}

/// The longest line that is read: a header may tell much.
const LONGEST: u64 = 64 * 1024;
/// The form's version.
const FORMAT: u64 = 1;

/// Why a history cannot be read.
#[derive(Debug)]
pub enum ReadError {
    /// The source failed.
    Io(io::Error),
    /// A line, from 1, that is no operation of a history, and why.
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
    /// Reads one, in the form that the [module](super) describes.
    ///
    /// # Errors
    ///
    /// Where `source` fails, a line is no operation, or the operations are no history.
    pub fn read(source: impl BufRead) -> Result<Self, ReadError> {
        Self::read_at_most(MAX_OPERATIONS, source)
    }

    /// Reads one of so many operations at most: what is more is not kept until the end is there, which may never be.
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
            let line: Line = serde_json::from_slice(line).map_err(|error| wrong(said(&error)))?;
            if operations.len() == most {
                return Err(wrong(format!("a history has at most {most} operations")));
            }
            operations.push(line.operation().map_err(wrong)?);
            lines.push(number);
        }
        Self::new(operations).map_err(|senseless| ReadError::Line(lines[senseless.place], senseless.why))
    }

    /// Writes it, after a header with what `about`, a JSON object, says.
    ///
    /// # Errors
    ///
    /// Where `sink` fails.
    pub fn write(&self, mut sink: impl Write, about: &Value) -> io::Result<()> {
        let mut header = json!({"kind": "header", "format": FORMAT});
        if let (Some(header), Some(about)) = (header.as_object_mut(), about.as_object()) {
            header.extend(about.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        writeln!(sink, "{header}")?;
        for operation in self.operations() {
            serde_json::to_writer(&mut sink, &Line::of(operation))?;
            sink.write_all(b"\n")?;
        }
        sink.flush()
    }
}

/// What went wrong, without the place in the text, which is a line of its own.
fn said(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(said, _)| said.to_owned())
}

/// Whether `line` is a header, and one that is known.
fn is_header(line: &[u8]) -> Result<bool, String> {
    #[derive(Deserialize)]
    struct Header {
        kind: String,
        format: u64,
    }
    match serde_json::from_slice::<Header>(line) {
        Ok(Header { kind, format }) if kind == "header" && format == FORMAT => Ok(true),
        Ok(Header { kind, format }) if kind == "header" => Err(format!("format {format} is not known, only {FORMAT}")),
        _ => Ok(false),
    }
}

impl Line {
    fn of(operation: &Operation) -> Self {
        let &Operation { process, key, did, called, returned } = operation;
        let (op, value, outcome) = match did {
            Did::Get(Some(Seen::Value(value))) => (Op::Get, Some(value), Outcome::Found),
            Did::Get(Some(Seen::Absent)) => (Op::Get, None, Outcome::Absent),
            Did::Get(None) => (Op::Get, None, Outcome::Unknown),
            Did::Put(value, Some(Put::Created)) => (Op::Put, Some(value), Outcome::Created),
            Did::Put(value, Some(Put::Replaced)) => (Op::Put, Some(value), Outcome::Replaced),
            Did::Put(value, None) => (Op::Put, Some(value), Outcome::Unknown),
            Did::Remove(Some(Removed::Removed)) => (Op::Remove, None, Outcome::Removed),
            Did::Remove(Some(Removed::Absent)) => (Op::Remove, None, Outcome::Absent),
            Did::Remove(None) => (Op::Remove, None, Outcome::Unknown),
        };
        let returned = Some(returned).filter(|_| !operation.is_unknown());
        Self { process, op, key, value, call: called, returned, outcome }
    }

    fn operation(self) -> Result<Operation, String> {
        let Self { process, op, key, value, call: called, returned, outcome } = self;
        let (name, answer) = (format!("{op:?}").to_lowercase(), format!("{outcome:?}").to_lowercase());
        let did = match (op, outcome, value) {
            (Op::Get, Outcome::Found, Some(value)) => Did::Get(Some(Seen::Value(value))),
            (Op::Get, Outcome::Absent, None) => Did::Get(Some(Seen::Absent)),
            (Op::Get, Outcome::Unknown, None) => Did::Get(None),
            (Op::Put, Outcome::Created, Some(value)) => Did::Put(value, Some(Put::Created)),
            (Op::Put, Outcome::Replaced, Some(value)) => Did::Put(value, Some(Put::Replaced)),
            (Op::Put, Outcome::Unknown, Some(value)) => Did::Put(value, None),
            (Op::Remove, Outcome::Removed, None) => Did::Remove(Some(Removed::Removed)),
            (Op::Remove, Outcome::Absent, None) => Did::Remove(Some(Removed::Absent)),
            (Op::Remove, Outcome::Unknown, None) => Did::Remove(None),
            (Op::Put, _, None) | (Op::Get, Outcome::Found, None) => {
                return Err(format!("a {name} that was {answer} needs a value"));
            }
            (Op::Get | Op::Remove, Outcome::Absent | Outcome::Unknown | Outcome::Removed, Some(_)) => {
                return Err(format!("a {name} that was {answer} has no value"));
            }
            _ => return Err(format!("the outcome of a {name} is never {answer}")),
        };
        let returned = match returned {
            Some(returned) => returned,
            None if matches!(outcome, Outcome::Unknown) => u64::MAX,
            None => return Err(format!("a {name} that was {answer} needs its return")),
        };
        Ok(Operation { process, key, did, called, returned })
    }
}
