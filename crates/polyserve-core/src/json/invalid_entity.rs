//! Why a body is not an entity.

use std::error::Error;
use std::fmt;

/// The reason why a body is not an entity. As text, it is one sentence.
///
/// ```
/// use polyserve_core::{Entity, Identifiable, InvalidEntity};
/// assert!(matches!(Entity::read_json(b"{"), Err(InvalidEntity::NotJson(_))));
/// let error = Entity::read_json(b"{}").unwrap_err();
/// assert!(matches!(error, InvalidEntity::NotAnEntity(_)));
/// assert_eq!(error.to_string(), "The body is not an entity: missing field `id` at line 1 column 2.");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidEntity {
    /// It is not JSON (RFC 8259), or it is nested too deeply. Over HTTP: 400.
    NotJson(BodyFault),
    /// It is JSON, but not an entity. Over HTTP: 422. The fault names the field.
    NotAnEntity(BodyFault),
}

impl fmt::Display for InvalidEntity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson(fault) | Self::NotAnEntity(fault) => fault.fmt(f),
        }
    }
}

impl Error for InvalidEntity {}

/// What is wrong with a body, and where. As text, it is one sentence.
///
/// A type with a [`read_json`](crate::Identifiable::read_json) of its own makes it.
///
/// ```
/// use polyserve_core::BodyFault;
/// let fault = BodyFault::new("has no version");
/// assert_eq!(fault.to_string(), "The body has no version.");
/// assert_eq!(fault.at(2, 5).to_string(), "The body has no version at line 2 column 5.");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyFault {
    what: String,
    /// The line and the column.
    place: Option<(usize, usize)>,
}

impl BodyFault {
    /// A fault without a place. `what` goes on after "The body", and has no full stop.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), place: None }
    }

    /// Sets the place of the fault. Lines and columns count from 1.
    #[must_use]
    pub fn at(self, line: usize, column: usize) -> Self {
        Self { place: Some((line, column)), ..self }
    }

    /// Returns what is wrong, as [`new`](Self::new) has set it.
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl fmt::Display for BodyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "The body {}", self.what)?;
        if let Some((line, column)) = self.place {
            write!(f, " at line {line} column {column}")?;
        }
        f.write_str(".")
    }
}
