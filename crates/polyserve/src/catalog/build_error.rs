//! The error of building a strategy by its name.

use std::error::Error;
use std::fmt;
use std::io;

use polyserve_core::ConfigError;

use super::UnknownName;

/// A strategy of the catalog cannot be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The catalog has no strategy of this name.
    Unknown(UnknownName),
    /// The server cannot honour a setting, or a value is wrong.
    Config(ConfigError),
    /// A thread, a directory or an engine that the strategy needs is not available.
    Io(io::Error),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(error) => error.fmt(f),
            Self::Config(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unknown(error) => error.source(),
            Self::Config(error) => error.source(),
            Self::Io(error) => error.source(),
        }
    }
}

impl From<BuildError> for io::Error {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::Unknown(error) => Self::new(io::ErrorKind::InvalidInput, error),
            BuildError::Config(error) => error.into(),
            BuildError::Io(error) => error,
        }
    }
}

impl From<UnknownName> for BuildError {
    fn from(error: UnknownName) -> Self {
        Self::Unknown(error)
    }
}

impl From<ConfigError> for BuildError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<io::Error> for BuildError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
