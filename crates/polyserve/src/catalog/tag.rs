//! The tags of strategies: which commands take them by default.

use std::fmt;

/// A tag of a strategy: a command or an experiment that takes it by default. An executor passes its tags on to the server
/// `pool_server/X` that runs on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tag {
    /// `compare --quick` takes this server: one of each kind.
    Quick,
    /// `recommend` measures this server.
    Recommended,
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quick => f.write_str("quick"),
            Self::Recommended => f.write_str("recommended"),
        }
    }
}
