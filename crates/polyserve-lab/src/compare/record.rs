//! What a comparison leaves behind: JSON lines, each on the disk's way as soon as it is there, so that a run that is
//! ended early has left all that it had measured.
//!
//! The first line is the environment, then one for everybody who cannot take part, one for what each peer keeps of the
//! contract, one a turn or failure; the last is the ranking.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;

use super::contestant::Contestant;
use super::contract::Contract;
use super::ranking::Ranking;
use super::turn::Turn;
use crate::Misuse;
use crate::machine::Environment;

/// The name of the file.
pub const FILE: &str = "compare.jsonl";

/// Where lines go.
#[derive(Debug)]
pub struct Record {
    file: Option<File>,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line<'a> {
    Environment(&'a Environment),
    Turn {
        round: usize,
        #[serde(flatten)]
        who: Who<'a>,
        #[serde(flatten)]
        turn: &'a Turn,
    },
    Failure {
        round: usize,
        #[serde(flatten)]
        who: Who<'a>,
        why: &'a str,
    },
    /// Somebody who was to take part and was not started.
    Refusal {
        name: &'a str,
        why: &'a str,
    },
    /// What somebody who is not ours keeps of the contract.
    Contract(&'a Contract),
    Ranking(&'a Ranking),
}

#[derive(Serialize)]
struct Who<'a> {
    name: &'a str,
    role: super::contestant::Role,
}

impl<'a> From<&'a Contestant> for Who<'a> {
    fn from(contestant: &'a Contestant) -> Self {
        Self { name: &contestant.name, role: contestant.role }
    }
}

impl Record {
    /// One that keeps nothing.
    pub fn none() -> Self {
        Self { file: None }
    }

    /// One in `dir`, which is made if need be. What was recorded there before is not written over.
    ///
    /// # Errors
    ///
    /// Where there is a record already, or it cannot be made.
    pub fn within(dir: &Path) -> anyhow::Result<Self> {
        Self::named(dir, FILE)
    }

    /// [`within`](Self::within), in a file of another name: of another kind of measurement.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn named(dir: &Path, file: &str) -> anyhow::Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("{} cannot be made", dir.display()))?;
        let path = dir.join(file);
        match File::create_new(&path) {
            Ok(file) => Ok(Self { file: Some(file) }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(Misuse(format!("{} is there already; it is not written over", path.display())).into())
            }
            Err(error) => Err(error).with_context(|| format!("{} cannot be made", path.display())),
        }
    }

    /// The first line.
    ///
    /// # Errors
    ///
    /// Where it cannot be written; so with all others.
    pub fn environment(&mut self, environment: &Environment) -> io::Result<()> {
        self.line(&Line::Environment(environment))
    }

    /// A turn of a round; those of round 0 only calibrate.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn turn(&mut self, round: usize, contestant: &Contestant, turn: &Turn) -> io::Result<()> {
        self.line(&Line::Turn { round, who: contestant.into(), turn })
    }

    /// A turn that failed.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn failure(&mut self, round: usize, contestant: &Contestant, why: &str) -> io::Result<()> {
        self.line(&Line::Failure { round, who: contestant.into(), why })
    }

    /// Somebody who cannot take part.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn refusal(&mut self, name: &str, why: &str) -> io::Result<()> {
        self.line(&Line::Refusal { name, why })
    }

    /// What a contestant that is not ours keeps of the contract.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn contract(&mut self, contract: &Contract) -> io::Result<()> {
        self.line(&Line::Contract(contract))
    }

    /// The last line.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn ranking(&mut self, ranking: &Ranking) -> io::Result<()> {
        self.line(&Line::Ranking(ranking))
    }

    /// A line of another kind of measurement; it should have a field `kind`.
    ///
    /// # Errors
    ///
    /// Where it cannot be written, or is no JSON.
    pub fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        file.write_all(text.as_bytes()) // whole, in one write, past no buffer of ours
    }
}
