//! The header fields that a reply cannot have.

use std::error::Error;
use std::fmt;

use http::{HeaderName, HeaderValue};

/// Whether a server sets the field, because it frames the message or names the server.
pub(super) fn is_set_by_the_server(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "content-length"
            | "date"
            | "keep-alive"
            | "server"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// Whether a value has white space at an end. That would not be a part of the value (RFC 9110, 5.5).
pub(super) fn has_outer_space(value: &HeaderValue) -> bool {
    let value = value.as_bytes();
    value.trim_ascii().len() < value.len()
}

/// The error for a header field that a reply cannot have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidHeader {
    /// The name is not a token.
    Name,
    /// The value has a control character, or white space at an end.
    Value {
        /// The name of the field.
        name: HeaderName,
    },
    /// The server sets the field itself.
    Reserved {
        /// The name of the field.
        name: HeaderName,
    },
}

impl fmt::Display for InvalidHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => write!(f, "the name of a header field is not valid: it is a token, such as cache-control"),
            Self::Value { name } => {
                write!(
                    f,
                    "the value of the header field {name} is not valid: it has a control character, or white space at an end"
                )
            }
            Self::Reserved { name } => write!(f, "the header field {name} is set by the server itself"),
        }
    }
}

impl Error for InvalidHeader {}
