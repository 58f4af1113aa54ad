//! The JSON lines of a history.
//!
//! Invariant: a history is read back as it was written. Cost: one line at a time, of at most [`MAX_LINE`] bytes.

use std::fmt;
use std::io::{self, BufRead, Read as _, Write};

use polyserve_core::{Conditional, Put, Removed};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Action, History, MAX_OPERATIONS, Operation, Precondition, ReadValue};

/// An operation in one line.
#[derive(Serialize, Deserialize)]
struct OperationLine {
    process: u32,
    op: OpField,
    key: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    condition: Option<ConditionField>,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StateWord {
    Absent,
    Present,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a condition is \"absent\", \"present\" or a value")]
enum ConditionField {
    State(StateWord),
    Value(u64),
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OutcomeField {
    Created,
    Replaced,
    Found,
    Absent,
    Removed,
    Refused,
    Unknown,
}

impl From<Precondition> for ConditionField {
    fn from(condition: Precondition) -> Self {
        match condition {
            Precondition::Absent => Self::State(StateWord::Absent),
            Precondition::Present => Self::State(StateWord::Present),
            Precondition::Value(value) => Self::Value(value),
        }
    }
}

impl From<ConditionField> for Precondition {
    fn from(field: ConditionField) -> Self {
        match field {
            ConditionField::State(StateWord::Absent) => Self::Absent,
            ConditionField::State(StateWord::Present) => Self::Present,
            ConditionField::Value(value) => Self::Value(value),
        }
    }
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
        let &Operation { process, key, action, called, returned } = operation;
        let (op, value, condition) = match action {
            Action::Get(Some(ReadValue::Value(value))) => (OpField::Get, Some(value), None),
            Action::Get(_) => (OpField::Get, None, None),
            Action::Put(value, _) => (OpField::Put, Some(value), None),
            Action::Remove(_) => (OpField::Remove, None, None),
            Action::PutIf(value, condition, _) => (OpField::Put, Some(value), Some(condition.into())),
            Action::RemoveIf(condition, _) => (OpField::Remove, None, Some(condition.into())),
        };
        let put = |put| match put {
            Put::Created => OutcomeField::Created,
            Put::Replaced => OutcomeField::Replaced,
        };
        let removed = |removed| match removed {
            Removed::Removed => OutcomeField::Removed,
            Removed::Absent => OutcomeField::Absent,
        };
        let outcome = match action {
            Action::Get(Some(ReadValue::Value(_))) => OutcomeField::Found,
            Action::Get(Some(ReadValue::Absent)) => OutcomeField::Absent,
            Action::Put(_, Some(answer)) | Action::PutIf(_, _, Some(Conditional::Done(answer))) => put(answer),
            Action::Remove(Some(answer)) | Action::RemoveIf(_, Some(Conditional::Done(answer))) => removed(answer),
            Action::PutIf(_, _, Some(Conditional::Refused)) | Action::RemoveIf(_, Some(Conditional::Refused)) => {
                OutcomeField::Refused
            }
            _ => OutcomeField::Unknown,
        };
        let returned = Some(returned).filter(|_| !operation.is_unknown());
        Self { process, op, key, value, condition, call: called, returned, outcome }
    }

    fn operation(self) -> Result<Operation, String> {
        let Self { process, op, key, value, condition, call: called, returned, outcome } = self;
        let (name, answer) = (format!("{op:?}").to_lowercase(), format!("{outcome:?}").to_lowercase());
        let needs_value = matches!(op, OpField::Put) || matches!((op, outcome), (OpField::Get, OutcomeField::Found));
        if needs_value && value.is_none() {
            return Err(format!("a {name} that was {answer} needs a value"));
        }
        let never = || format!("the outcome of a {name} is never {answer}");
        let action = match (op, condition) {
            (OpField::Get, None) => Action::Get(match (outcome, value) {
                (OutcomeField::Found, Some(value)) => Some(ReadValue::Value(value)),
                (OutcomeField::Absent, _) => Some(ReadValue::Absent),
                (OutcomeField::Unknown, _) => None,
                _ => return Err(never()),
            }),
            (OpField::Get, Some(_)) => return Err(String::from("a get has no condition")),
            (OpField::Put, condition) => {
                let put = match outcome {
                    OutcomeField::Created => Some(Conditional::Done(Put::Created)),
                    OutcomeField::Replaced => Some(Conditional::Done(Put::Replaced)),
                    OutcomeField::Refused if condition.is_some() => Some(Conditional::Refused),
                    OutcomeField::Unknown => None,
                    _ => return Err(never()),
                };
                let value = value.unwrap_or_default();
                condition.map_or(Action::Put(value, put.and_then(Conditional::done)), |condition| {
                    Action::PutIf(value, condition.into(), put)
                })
            }
            (OpField::Remove, condition) => {
                let removed = match outcome {
                    OutcomeField::Removed => Some(Conditional::Done(Removed::Removed)),
                    OutcomeField::Absent => Some(Conditional::Done(Removed::Absent)),
                    OutcomeField::Refused if condition.is_some() => Some(Conditional::Refused),
                    OutcomeField::Unknown => None,
                    _ => return Err(never()),
                };
                condition.map_or(Action::Remove(removed.and_then(Conditional::done)), |condition| {
                    Action::RemoveIf(condition.into(), removed)
                })
            }
        };
        if value.is_some() && !needs_value {
            return Err(format!("a {name} that was {answer} has no value"));
        }
        let returned = match returned {
            Some(returned) => returned,
            None if matches!(outcome, OutcomeField::Unknown) => u64::MAX,
            None => return Err(format!("a {name} that was {answer} needs its return")),
        };
        Ok(Operation { process, key, action, called, returned })
    }
}
