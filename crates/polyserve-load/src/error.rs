//! The errors of a load that could not run.

use std::fmt;
use std::io;

/// Why a load could not run. Failures of single requests are in the report.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// A setting is out of range.
    Setting(String),
    /// A system call of the client failed.
    System {
        /// The call or the resource.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// The server failed in the preparation of the load. The text describes the failure.
    Server(String),
    /// The load was stopped before its first request.
    Stopped,
}

impl LoadError {
    pub(crate) fn setting(why: impl Into<String>) -> Self {
        Self::Setting(why.into())
    }

    /// Makes the argument of `map_err`. Allocates only if there is an error.
    pub(crate) fn system<E: Into<io::Error>>(what: &str) -> impl FnOnce(E) -> Self {
        move |source| Self::System { what: what.to_owned(), source: source.into() }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(why) | Self::Server(why) => f.write_str(why),
            Self::Stopped => f.write_str("stopped before the load began"),
            Self::System { what, source } => write!(f, "{what}: {source}"),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { source, .. } => Some(source),
            Self::Setting(_) | Self::Server(_) | Self::Stopped => None,
        }
    }
}
