//! The JSON lines of a history.
//!
//! Invariant: a history is read back as it was written. Cost: one line at a time, of at most [`MAX_LINE`] bytes.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufRead, Read as _, Write};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Call, CallAnswer, History, MAX_OPERATIONS, Operation, Precondition};

/// An operation in one line.
#[derive(Serialize, Deserialize)]
pub(super) struct OperationLine {
    pub(super) process: u32,
    pub(super) op: Cow<'static, str>,
    pub(super) key: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) condition: Option<Precondition>,
    pub(super) call: u64,
    #[serde(default, rename = "return", skip_serializing_if = "Option::is_none")]
    pub(super) returned: Option<u64>,
    pub(super) outcome: Cow<'static, str>,
}

/// The longest line, in bytes. A header may be long.
const MAX_LINE: u64 = 64 * 1024;
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

    /// Reads a history of at most `max_operations` operations. It stops at the first further operation, because the
    /// source may be endless.
    pub(super) fn read_at_most(max_operations: usize, mut source: impl BufRead) -> Result<Self, ReadError> {
        let (mut operations, mut lines) = (Vec::new(), Vec::new());
        let mut text = Vec::new();
        for number in 1.. {
            text.clear();
            if (&mut source).take(MAX_LINE + 1).read_until(b'\n', &mut text)? == 0 {
                break;
            }
            let wrong = |why: String| ReadError::Line(number, why);
            if text.len() as u64 > MAX_LINE {
                return Err(wrong(format!("it is longer than {MAX_LINE} bytes")));
            }
            let line = text.trim_ascii();
            if line.is_empty() || (operations.is_empty() && is_header(line).map_err(wrong)?) {
                continue;
            }
            let line: OperationLine = serde_json::from_slice(line).map_err(|error| wrong(message_of(&error)))?;
            if operations.len() == max_operations {
                return Err(wrong(format!("a history has at most {max_operations} operations")));
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
fn message_of(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(message, _)| message.to_owned())
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
        let &Operation { process, key, call, condition, answer, called, returned } = operation;
        let found = if let Some(CallAnswer::Found(value)) = answer { Some(value) } else { None };
        let (value, returned) = (operation.put_value().or(found), answer.map(|_| returned));
        let (op, outcome) = (call.word().into(), answer.map_or("unknown", CallAnswer::word).into());
        Self { process, op, key, value, condition, call: called, returned, outcome }
    }

    /// Returns the operation. [`History::new`] checks whether its answer fits its call.
    pub(super) fn operation(self) -> Result<Operation, String> {
        let Self { process, op, key, value, condition, call: called, returned, outcome } = self;
        let about = || format!("a {op} that was {outcome}");
        let unknown = |word: &str| Err(format!("unknown variant `{word}`"));
        let needed = || value.ok_or_else(|| format!("{} needs a value", about()));
        let answer = match &*outcome {
            "found" => Some(CallAnswer::Found(needed()?)),
            "absent" => Some(CallAnswer::Absent),
            "created" => Some(CallAnswer::Created),
            "replaced" => Some(CallAnswer::Replaced),
            "removed" => Some(CallAnswer::Removed),
            "refused" => Some(CallAnswer::Refused),
            "unknown" => None,
            word => return unknown(word),
        };
        let call = match &*op {
            "get" => Call::Get,
            "put" => Call::Put(needed()?),
            "remove" => Call::Remove,
            word => return unknown(word),
        };
        if value.is_some() && !matches!((call, answer), (Call::Put(_), _) | (_, Some(CallAnswer::Found(_)))) {
            return Err(format!("{} has no value", about()));
        }
        if returned.is_none() && answer.is_some() {
            return Err(format!("{} needs its return", about()));
        }
        let returned = returned.unwrap_or(u64::MAX);
        Ok(Operation { process, key, call, condition, answer, called, returned })
    }
}
