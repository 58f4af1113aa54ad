//! Why a write of the store fails: its log cannot be written for now, or never again.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};

use polyserve_core::RepoError;

/// The error of every write after the first failure of the log: the source of [`RepoError::ReadOnly`], and of
/// [`RepoError::Unavailable`] for the writes of the batch that failed. Its text is the reason in general words, and its source is
/// what failed. Reads still work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritesStopped {
    reason: &'static str,
    cause: Cause,
}

/// What failed, and the error of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cause(String);

impl WritesStopped {
    /// `reason` is `cause` in general words.
    pub(crate) fn new(reason: &'static str, cause: String) -> Self {
        Self { reason, cause: Cause(cause) }
    }

    /// Returns what failed.
    pub(crate) fn cause(&self) -> &str {
        &self.cause.0
    }

    /// Returns the error of a write that was not done.
    pub(crate) fn to_repo_error(&self) -> RepoError {
        RepoError::ReadOnly(Box::new(self.clone()))
    }

    /// Returns the error of a write that may have been done: the next start may find it.
    pub(crate) fn to_unknown(&self) -> RepoError {
        RepoError::Unavailable(Box::new(self.clone()))
    }
}

impl fmt::Display for WritesStopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

impl Error for WritesStopped {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Cause {}

/// The reason why a batch was not done, although later ones may be.
#[derive(Clone, Debug)]
pub(crate) struct NotAppended {
    is_full: bool,
    cause: String,
}

impl NotAppended {
    pub(crate) fn new(error: &io::Error) -> Self {
        let is_full =
            matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge);
        Self { is_full, cause: format!("the log cannot be written: {error}") }
    }

    pub(crate) fn to_repo_error(&self) -> RepoError {
        let cause = self.cause.clone().into();
        if self.is_full { RepoError::Full(cause) } else { RepoError::NotDone(cause) }
    }
}

/// What an error of a disk means, in words that name no file.
pub(crate) fn in_general(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull => "no space is left on the disk",
        ErrorKind::QuotaExceeded => "the quota of the disk is exceeded",
        ErrorKind::ReadOnlyFilesystem => "the file system is read-only",
        ErrorKind::FileTooLarge => "a file would exceed the max size",
        _ => "a write to the disk failed",
    }
}
