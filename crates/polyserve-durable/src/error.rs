//! The errors of opening and of maintaining a store.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The reason why a store cannot be opened, checked, repaired or copied.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// Another store has the directory open.
    InUse {
        /// The directory.
        path: PathBuf,
        /// The number of the process, if it is a store that the lock file names.
        process: Option<u32>,
    },
    /// A file has damage that no crash leaves. `polyserve durable check` lists all damage, and
    /// `polyserve durable repair` keeps what is whole.
    Damaged(Damage),
    /// The files have a format of another version.
    Version {
        /// The name of the file.
        file: String,
        /// The version of its format.
        version: u16,
    },
    /// A record is whole, but is no entity of the type of this store.
    NotAnEntity {
        /// The place of the record's frame.
        damage: Damage,
        /// The id of the record, as text.
        id: String,
    },
    /// A directory or a file cannot be read, written or created.
    Io {
        /// What failed, as a verb.
        action: &'static str,
        /// The directory or the file.
        path: PathBuf,
        /// The error of the call.
        source: io::Error,
    },
    /// The repo in memory did not take an entity.
    Memory(polyserve_core::RepoError),
}

/// A place in a file that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The name of the file.
    pub file: String,
    /// The offset of the first byte of the damaged frame.
    pub offset: u64,
    /// What is wrong, in a few words.
    pub reason: String,
}

impl OpenError {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }
}

impl Damage {
    pub(crate) fn new(file: &str, offset: u64, reason: impl Into<String>) -> Self {
        Self { file: file.to_owned(), offset, reason: reason.into() }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}: {}", self.file, self.offset, self.reason)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { path, process } => {
                write!(f, "the directory {} is in use by ", path.display())?;
                match process {
                    Some(process) => write!(f, "process {process}"),
                    None => f.write_str("another process"),
                }
            }
            Self::Damaged(damage) => {
                write!(f, "damaged: {damage}; `polyserve durable repair DIRECTORY` keeps what is whole")
            }
            Self::Version { file, version } => {
                write!(
                    f,
                    "{file} has format version {version}; this program reads versions 1 to {}",
                    crate::format::VERSION
                )
            }
            Self::NotAnEntity { damage, id } => {
                write!(f, "the record of id {id:?} is no entity of this store: {damage}")
            }
            Self::Io { action, path, .. } => write!(f, "cannot {action} {}", path.display()),
            Self::Memory(_) => f.write_str("the repo in memory did not take an entity"),
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Memory(source) => Some(source),
            Self::InUse { .. } | Self::Damaged(_) | Self::Version { .. } | Self::NotAnEntity { .. } => None,
        }
    }
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        let kind = match &error {
            OpenError::InUse { .. } => io::ErrorKind::ResourceBusy,
            OpenError::Io { source, .. } => source.kind(),
            OpenError::Memory(_) => io::ErrorKind::Other,
            OpenError::Damaged(_) | OpenError::Version { .. } | OpenError::NotAnEntity { .. } => {
                io::ErrorKind::InvalidData
            }
        };
        Self::new(kind, error)
    }
}
