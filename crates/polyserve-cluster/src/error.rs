//! [`ConnectError`], and why an operation failed.

use std::error::Error;
use std::fmt;

use polyserve_core::RepoError;

/// The source of an error.
pub(crate) type Source = Box<dyn Error + Send + Sync>;

/// The reason why a store could not be constructed.
#[derive(Debug)]
pub struct ConnectError {
    what: String,
    source: Option<Source>,
}

impl ConnectError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }

    pub(crate) fn caused(what: impl Into<String>, source: impl Into<Source>) -> Self {
        Self { what: what.into(), source: Some(source.into()) }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        // A client library says "db error" or "transport error"; the reason is below.
        let mut source = self.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as _)
    }
}

/// Why an engine did not do what it was asked.
#[derive(Debug)]
pub(crate) enum EngineFailure {
    /// It was certainly not done, and another try may succeed.
    NotDone(Source),
    /// It may have been done, or may still be done.
    Unknown(Source),
    /// It was certainly not done, and another try fails too.
    Rejected(Source),
}

impl EngineFailure {
    /// Makes it a failure after which the operation may have been done.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "only Redis answers a write in two parts"))]
    pub(crate) fn into_unknown(self) -> Self {
        let (Self::NotDone(source) | Self::Unknown(source) | Self::Rejected(source)) = self;
        Self::Unknown(source)
    }

    /// The error of the repo's operation. `engine` is the engine's name.
    pub(crate) fn into_repo_error(self, engine: &'static str) -> RepoError {
        let error = |what, source| Box::new(EngineError { engine, what, source });
        match self {
            Self::NotDone(source) => RepoError::Unavailable(error("did not do it", source)),
            Self::Unknown(source) => RepoError::Unavailable(error("may have done it or not", source)),
            Self::Rejected(source) => RepoError::Other(error("rejected it", source)),
        }
    }
}

/// An error of an engine.
#[derive(Debug)]
struct EngineError {
    engine: &'static str,
    what: &'static str,
    source: Source,
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.engine, self.what)
    }
}

impl Error for EngineError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.source.as_ref())
    }
}
