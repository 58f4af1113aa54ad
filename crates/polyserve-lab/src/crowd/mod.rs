//! How a server bears many connections that do nothing useful, beside one good client.
//!
//! Some are idle, as browsers leave them; some are slow on purpose, as attackers are. What counts is what the good client
//! notices, and what a connection costs the server that nobody asks for anything on.
//!
//! Invariant: no figure without a server that had answered rightly, beside the same figure without the crowd, in the
//! same process or in slices in turn. Cost: a descriptor and a port each; a crowd has one thread, which sleeps while
//! the crowd is idle.
//!
//! # Layout
//!
//! * `script`: what the members of a crowd say. `member`: one connection. [`gathering`]: all of them, on their thread.
//! * [`bench`](mod@bench): a server beside and without a crowd. [`report`]: what came of it; [`table`]: for people.

pub mod bench;
pub mod gathering;
mod member;
pub mod report;
mod script;
pub mod table;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use bench::Bench;
pub use gathering::{Counts, Crowd, Plan};
pub use report::{Outcome, Report, Row};

/// What the members of a crowd do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Ask once, take the answer, and say nothing any more.
    Idle,
    /// Send a head byte by byte, which never ends.
    SlowHeads,
    /// Send a PUT's body byte by byte, which never ends.
    SlowBodies,
    /// Ask for many large answers at once, and read a few bytes now and then.
    SlowReaders,
}

impl Kind {
    /// All of them, the harmless one first.
    pub const ALL: [Self; 4] = [Self::Idle, Self::SlowHeads, Self::SlowBodies, Self::SlowReaders];

    /// Its name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::SlowHeads => "slow-heads",
            Self::SlowBodies => "slow-bodies",
            Self::SlowReaders => "slow-readers",
        }
    }
}
