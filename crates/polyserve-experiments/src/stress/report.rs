//! What came of it, for people and as JSON.

use std::fmt;

use polyserve::Drain;
use polyserve_report::Table;
use serde::{Deserialize, Serialize};

use super::client::{Errors, Tally};
use super::round::Mode;
use super::scenario::Phase;

/// A stress run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The server's name.
    pub server: String,
    /// The repo's name.
    pub repo: String,
    /// How many requests a round has; 40 000 are as published.
    pub requests: u64,
    /// The data's seed.
    pub seed: u64,
    /// Each round.
    pub rounds: Vec<Round>,
    /// Whether nothing was wrong.
    pub passed: bool,
    /// Whether it was ended early: rounds are missing then.
    pub interrupted: bool,
}

/// A round of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// `close`, `keep-alive` or `burst`.
    pub mode: String,
    /// Connections at a time.
    pub connections_at_once: u64,
    /// Each group, and the total.
    pub groups: Vec<Group>,
    /// Connections that were opened.
    pub connections: u64,
    /// Idle connections that the server had closed when their next request was sent, so that it was sent again.
    pub reconnects: u64,
    /// What was left in the store.
    pub final_state: Final,
    /// How many entities the store counts in the end; `None` where it is in another process, which nobody can ask that.
    pub store_count: Option<u64>,
    /// How the server ended, as it says; `None` where it says nothing of that.
    pub drain: Option<Counts>,
    /// The whole answers that the clients counted; as many as the server's.
    pub answers: u64,
    /// How many things were wrong.
    pub error_count: u64,
    /// What the first few were.
    pub errors: Vec<String>,
}

/// A group of a round; columns as published.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// `put-new`, `get`, `put-update` or `total`.
    pub phase: String,
    /// Requests.
    pub samples: u64,
    /// Those without a right answer.
    pub errors: u64,
    /// Their share, in per cent.
    pub error_pct: f64,
    /// Those refused by a 503, where that is a right answer.
    pub refused: u64,
    /// Requests a second, from the start to the group's last answer.
    pub requests_per_s: f64,
    /// 1 024 bytes a second.
    #[serde(rename = "received_kB_s")]
    pub received_kb_s: f64,
    /// 1 024 bytes a second.
    #[serde(rename = "sent_kB_s")]
    pub sent_kb_s: f64,
}

/// What was left in the store, seen over HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Final {
    /// Ids that were asked for.
    pub checked: u64,
    /// Ids that were there.
    pub present: u64,
    /// Ids with something wrong.
    pub wrong: u64,
}

impl Final {
    /// Adds what another has seen.
    pub fn add(&mut self, other: &Self) {
        self.checked += other.checked;
        self.present += other.present;
        self.wrong += other.wrong;
    }
}

/// A [`Drain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Counts {
    /// Whole answers.
    pub answered: u64,
    /// Connections that were cut.
    pub cut: u64,
    /// Threads that were left behind.
    pub stuck: u64,
}

impl From<Drain> for Counts {
    fn from(Drain { answered, cut, stuck }: Drain) -> Self {
        Self { answered, cut, stuck }
    }
}

impl Round {
    /// A round's report; `groups` as [`Phase::ALL`] has them.
    pub fn new(
        mode: Mode,
        groups: [Tally; 3],
        left: Final,
        store_count: Option<u64>,
        drain: Option<Counts>,
        answers: u64,
        errors: &Errors,
    ) -> Self {
        let mut total = Tally::default();
        groups.iter().for_each(|group| total.add(group));
        let named = Phase::ALL.iter().map(|phase| phase.name()).zip(&groups).chain([("total", &total)]);
        let connections_at_once = match mode {
            Mode::Groups(_, clients) => clients as u64 * 3,
            Mode::Burst(size, _) => size.min(total.samples),
        };
        Self {
            mode: mode.name().to_owned(),
            connections_at_once,
            groups: named.map(|(phase, tally)| Group::new(phase, tally)).collect(),
            connections: total.connections,
            reconnects: total.reconnects,
            final_state: left,
            store_count,
            drain,
            answers,
            error_count: errors.count(),
            errors: errors.first(),
        }
    }
}

impl Group {
    fn new(phase: &'static str, tally: &Tally) -> Self {
        let per_second = |count: u64| if tally.took.is_zero() { 0.0 } else { count as f64 / tally.took.as_secs_f64() };
        Self {
            phase: phase.to_owned(),
            samples: tally.samples,
            errors: tally.errors,
            error_pct: if tally.samples == 0 { 0.0 } else { tally.errors as f64 / tally.samples as f64 * 100.0 },
            refused: tally.refused,
            requests_per_s: per_second(tally.samples),
            received_kb_s: per_second(tally.traffic.received) / 1024.0,
            sent_kb_s: per_second(tally.traffic.sent) / 1024.0,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, repo, requests, seed, .. } = self;
        writeln!(f, "{server} over {repo}, {requests} requests a round, seed {seed}")?;
        self.rounds.iter().try_for_each(|round| write!(f, "\n{round}"))?;
        let end = match (self.passed, self.interrupted) {
            (false, _) => "FAILED",
            (true, true) => "ended early",
            (true, false) => "passed",
        };
        writeln!(f, "\n{end}")
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, connections_at_once, connections, reconnects, final_state, answers, .. } = self;
        writeln!(
            f,
            "{mode}: {connections_at_once} connections at once, {connections} opened, {reconnects} reconnects"
        )?;
        let header = ["phase", "samples", "errors", "error %", "refused", "requests/s", "received kB/s", "sent kB/s"];
        let mut table = Table::of_numbers(&header);
        for group in &self.groups {
            table.row(vec![
                group.phase.clone(),
                group.samples.to_string(),
                group.errors.to_string(),
                format!("{:.2}", group.error_pct),
                group.refused.to_string(),
                format!("{:.1}", group.requests_per_s),
                format!("{:.2}", group.received_kb_s),
                format!("{:.2}", group.sent_kb_s),
            ]);
        }
        write!(f, "{table}")?;
        let Final { checked, present, wrong } = final_state;
        writeln!(f, "final state: {checked} ids checked, {present} present, {wrong} wrong")?;
        if self.store_count.is_none() {
            writeln!(f, "not asked: how many the store counts, for it is in a process of its own")?;
        }
        match self.drain {
            Some(Counts { answered, cut, stuck }) => {
                write!(f, "server: answered {answered}, cut {cut}, stuck {stuck}; ")?;
            }
            None => write!(f, "server: it does not say what it answered; ")?,
        }
        writeln!(f, "clients: {answers} whole answers")?;
        self.errors.iter().try_for_each(|error| writeln!(f, "error: {error}"))?;
        let more = self.error_count - self.errors.len() as u64;
        if more > 0 { writeln!(f, "and {more} errors more") } else { Ok(()) }
    }
}
