//! What stress runs leave behind: a line a round. One file holds the rounds of many servers and repos.
//!
//! Invariant: of two rounds of one server, repo and mode the later one counts: where something was wrong, it was tried again.
//! Cost: a write a round.

use std::path::Path;

use polyserve_lab::journal::{Header, Journal, of_kind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::report::Round;

/// The experiment's name, and its file's where no other was given.
pub const NAME: &str = "stress";
/// The kind of a [`RoundLine`].
pub const ROUND: &str = "round";

/// A round in a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundLine {
    /// The server's name.
    pub server: String,
    /// The repo's name.
    pub repo: String,
    /// What the server is written in, as far as the name tells: `rust`, `go` or `c`.
    pub lang: String,
    /// How many requests it had; 40 000 are as published.
    pub requests: u64,
    /// What came of it.
    #[serde(flatten)]
    pub round: Round,
}

impl RoundLine {
    /// A round of `server` over `repo`.
    pub fn new(server: &str, repo: &str, requests: u64, round: Round) -> Self {
        let lang = match server.split('/').next() {
            Some("go") => "go",
            Some("nginx") => "c",
            _ => "rust",
        };
        Self { server: server.to_owned(), repo: repo.to_owned(), lang: lang.to_owned(), requests, round }
    }

    fn is_of(&self, server: &str, repo: &str, mode: &str) -> bool {
        (self.server.as_str(), self.repo.as_str(), self.round.mode.as_str()) == (server, repo, mode)
    }
}

/// The rounds of these lines, each of a server, repo and mode of its own.
///
/// # Errors
///
/// Where a line is no round.
pub fn rounds_of(lines: &[Value]) -> anyhow::Result<Vec<RoundLine>> {
    let mut rounds = Vec::new();
    of_kind(lines, ROUND)?.into_iter().for_each(|line| add(&mut rounds, line));
    Ok(rounds)
}

fn add(rounds: &mut Vec<RoundLine>, line: RoundLine) {
    match rounds.iter_mut().find(|other| other.is_of(&line.server, &line.repo, &line.round.mode)) {
        Some(other) => *other = line,
        None => rounds.push(line),
    }
}

/// Where rounds go, and those that were there.
#[derive(Debug)]
pub struct Record {
    journal: Journal,
    rounds: Vec<RoundLine>,
}

impl Record {
    /// One that keeps nothing.
    pub fn none() -> Self {
        Self { journal: Journal::none(), rounds: Vec::new() }
    }

    /// `DIR/NAME.jsonl`: made if need be, or gone on with, as [`Journal::named`] says.
    ///
    /// # Errors
    ///
    /// As there; or where what is in it is no stress run's.
    pub fn open(dir: Option<&Path>, name: &str, header: &Header) -> anyhow::Result<Self> {
        let journal = Journal::named(dir, name, header)?;
        let rounds = rounds_of(journal.lines_before())?;
        Ok(Self { journal, rounds })
    }

    /// All rounds, those that were there too.
    pub fn rounds(&self) -> &[RoundLine] {
        &self.rounds
    }

    /// The round of this server, repo and mode.
    pub fn round(&self, server: &str, repo: &str, mode: &str) -> Option<&Round> {
        self.rounds.iter().find(|line| line.is_of(server, repo, mode)).map(|line| &line.round)
    }

    /// Adds a round.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn add(&mut self, line: RoundLine) -> anyhow::Result<()> {
        self.journal.line(ROUND, &line)?;
        add(&mut self.rounds, line);
        Ok(())
    }
}
