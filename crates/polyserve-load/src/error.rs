//! Why there is no report.

use std::fmt;
use std::io;

/// Why a load could not be run. What goes wrong with single requests is in the report.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// A setting asks for what cannot be done.
    Setting(String),
    /// The system refuses what the client itself needs.
    System {
        /// What was tried.
        what: String,
        /// What the system says.
        source: io::Error,
    },
    /// The server does not do what has to be done before the load: the text says what it did.
    Server(String),
    /// It was stopped before the load began.
    Stopped,
}

impl LoadError {
    pub(crate) fn setting(why: impl Into<String>) -> Self {
        Self::Setting(why.into())
    }

    /// For `map_err`: what was tried. Nothing is allocated unless it failed.
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
