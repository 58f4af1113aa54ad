//! The result: the rounds of one server over one store.

use std::fmt;

use crate::experiment::{Experiment, Failed, RecordRow, Records};
use crate::report::Table;
use crate::report::figures::count;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::outcome::{DrainCounts, FinalState, RoundOutcome};

/// The kind of a [`Tested`]: the subject of a run.
pub(super) const SUBJECT: &str = "subject";

/// A server over a store.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tested {
    /// The server's name.
    pub server: String,
    /// The store's name.
    pub repo: String,
}

impl Tested {
    /// The server's language, by its name: `rust`, `go` or `c`.
    pub fn lang(&self) -> &'static str {
        match self.server.split('/').next() {
            Some("go") => "go",
            Some("nginx") => "c",
            _ => "rust",
        }
    }
}

/// Identifies a round.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The server and the store.
    #[serde(flatten)]
    pub tested: Tested,
    /// How connections are used: `close`, `keep-alive` or `burst`.
    pub mode: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tested: Tested { server, repo }, mode } = self;
        write!(f, "{server} over {repo}, {mode}")
    }
}

/// The measurement of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The server's language: `rust`, `go` or `c`.
    pub lang: String,
    /// The number of requests; 40 000 are as published.
    pub requests: u64,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: RoundOutcome,
}

/// A sample and its key.
pub type RoundRecord = RecordRow<Key, Sample>;

/// The result of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The server's name.
    pub server: String,
    /// The store's name.
    pub repo: String,
    /// The number of requests of a round; 40 000 are as published.
    pub requests: u64,
    /// The data's seed.
    pub seed: u64,
    /// The rounds.
    pub rounds: Vec<Round>,
    /// The rounds that could not be measured.
    pub failed: Vec<Failed<Key>>,
    /// Whether all rounds were measured without an error, and each has verified an answer.
    pub passed: bool,
    /// Whether a signal ended the run.
    pub interrupted: bool,
    /// The rounds of all servers and stores of the record.
    #[serde(skip)]
    pub recorded: Vec<RoundRecord>,
}

/// A round of a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Round {
    /// How connections were used: `close`, `keep-alive` or `burst`.
    pub mode: String,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: RoundOutcome,
}

impl Report {
    /// The result of these records: the rounds of the last subject.
    ///
    /// # Errors
    ///
    /// Returns an error if a fact does not have its fields, or the records have neither a subject nor a round.
    pub fn of<E>(records: &Records<E>) -> anyhow::Result<Self>
    where
        E: Experiment<Key = Key, Sample = Sample>,
    {
        let recorded = records.rows();
        let subject = records.facts(SUBJECT)?.pop().or_else(|| recorded.last().map(|round| round.key.tested.clone()));
        let subject = subject.context("the record has neither a subject nor a round")?;
        let own = recorded.iter().filter(|round| round.key.tested == subject);
        let round = |RoundRecord { key, sample }: &RoundRecord| Round {
            mode: key.mode.clone(),
            outcome: sample.outcome.clone(),
        };
        let rounds: Vec<Round> = own.map(round).collect();
        let failed: Vec<_> = records.failed().into_iter().filter(|failed| failed.key.tested == subject).collect();
        let (interrupted, is_verified) = (records.is_interrupted(), rounds.iter().all(Round::is_verified));
        let mut report = Self {
            requests: records.header.plan["requests"].as_u64().unwrap_or(0),
            seed: records.header.environment.seed,
            passed: !interrupted && !rounds.is_empty() && is_verified,
            interrupted,
            server: subject.server,
            repo: subject.repo,
            rounds,
            failed,
            recorded,
        };
        report.passed &= !report.has_error();
        Ok(report)
    }

    /// Whether a round had an error or could not be measured.
    pub fn has_error(&self) -> bool {
        !self.failed.is_empty() || self.rounds.iter().any(|round| round.outcome.error_count > 0)
    }
}

impl Round {
    /// Whether a request had a right answer that is no refusal.
    fn is_verified(&self) -> bool {
        self.outcome.groups.iter().any(|group| group.samples > group.errors + group.refused)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, repo, requests, seed, .. } = self;
        writeln!(f, "{server} over {repo}, {requests} requests a round, seed {seed}")?;
        self.rounds.iter().try_for_each(|round| write!(f, "\n{round}"))?;
        for Failed { key, why, .. } in &self.failed {
            writeln!(f, "\nno figures: {key}: {why}")?;
        }
        let end = match self {
            Self { passed: true, .. } => "passed",
            report if report.has_error() => "FAILED",
            Self { interrupted: true, .. } => "ended early",
            Self { .. } => "FAILED: no answer was verified",
        };
        writeln!(f, "\n{end}")
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, outcome } = self;
        let RoundOutcome { connections_at_once, connections, reconnects, final_state, answers, .. } = outcome;
        writeln!(
            f,
            "{mode}: {connections_at_once} connections at once, {connections} opened, {reconnects} reconnects"
        )?;
        let table = Table::of_columns(
            &outcome.groups,
            &[
                ("phase", &|group| group.phase.clone()),
                ("samples", &|group| count(group.samples as f64)),
                ("errors", &|group| count(group.errors as f64)),
                ("error %", &|group| format!("{:.2}", group.error_pct)),
                ("refused", &|group| count(group.refused as f64)),
                ("requests/s", &|group| count(group.requests_per_s)),
                ("received KiB/s", &|group| count(group.received_kb_s)),
                ("sent KiB/s", &|group| count(group.sent_kb_s)),
            ],
        );
        write!(f, "{table}")?;
        let FinalState { checked, present, wrong } = final_state;
        writeln!(f, "final state: {checked} ids checked, {present} present, {wrong} wrong")?;
        if outcome.store_count.is_none() {
            writeln!(f, "unknown: the number of entities in the store, which the server does not print")?;
        }
        match outcome.drain {
            Some(DrainCounts { answered, cut, stuck }) => {
                write!(f, "server: answered {answered}, cut {cut}, stuck {stuck}; ")?;
            }
            None => write!(f, "server: it does not report its counts; ")?,
        }
        writeln!(f, "clients: {answers} whole answers")?;
        outcome.errors.iter().try_for_each(|error| writeln!(f, "error: {error}"))?;
        let more = outcome.error_count - outcome.errors.len() as u64;
        if more > 0 { writeln!(f, "and {more} more errors") } else { Ok(()) }
    }
}
