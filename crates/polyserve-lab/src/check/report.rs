//! What came of the recordings.

use std::fmt;

use polyserve_conformance::history::History;
use polyserve_report::Table;
use serde::Serialize;

/// What a history is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// There is an order in which every answer is right.
    Linearizable,
    /// There is none.
    NotLinearizable,
    /// It is not known, and why.
    Undecided,
    /// An answer that no order makes right: a torn value, another id, a status that does not belong there.
    WrongAnswer,
    /// It could not be recorded.
    Failed,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Linearizable => "linearizable",
            Self::NotLinearizable => "NOT LINEARIZABLE",
            Self::Undecided => "UNDECIDED",
            Self::WrongAnswer => "WRONG ANSWER",
            Self::Failed => "FAILED",
        })
    }
}

/// A recording, and what it is.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The server's name.
    pub server: String,
    /// The repo's, or the file's.
    pub repo: String,
    /// What it is.
    pub verdict: Verdict,
    /// What shows that, or how little it shows, for people; empty where all is well.
    pub why: String,
    /// How many operations were recorded.
    pub operations: usize,
    /// Of how many keys.
    pub keys: usize,
    /// How many of the key that has the fewest, and of the one that has the most.
    pub per_key: [usize; 2],
    /// How many lost their answer.
    pub unknown: usize,
    /// Pairs of operations of one key that were on their way at the same time.
    pub overlaps: u64,
    /// Seconds of recording.
    pub recorded_s: f64,
    /// Seconds of checking.
    pub checked_s: f64,
    /// Whether it was ended early, and checked as far as it went.
    pub interrupted: bool,
}

impl Run {
    pub(super) fn new(server: &str, repo: &str) -> Self {
        Self {
            server: server.to_owned(),
            repo: repo.to_owned(),
            verdict: Verdict::Failed,
            why: String::new(),
            operations: 0,
            keys: 0,
            per_key: [0; 2],
            unknown: 0,
            overlaps: 0,
            recorded_s: 0.0,
            checked_s: 0.0,
            interrupted: false,
        }
    }

    pub(super) fn count(&mut self, history: &History) {
        let keys = history.keys();
        self.operations = history.operations().len();
        self.keys = keys.len();
        self.per_key = [keys.values().min(), keys.values().max()].map(|count| count.copied().unwrap_or(0));
        self.unknown = history.unknown();
        self.overlaps = history.overlaps();
    }

    pub(super) fn ended(mut self, verdict: Verdict, why: String) -> Self {
        (self.verdict, self.why) = (verdict, why);
        self
    }
}

/// What came of all.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Each of them.
    pub runs: Vec<Run>,
    /// Whether all that was asked for was recorded, and is linearizable.
    pub passed: bool,
    /// Whether it was ended early.
    pub interrupted: bool,
}

impl Report {
    /// Of these runs; `early`: there were to be more.
    pub fn new(runs: Vec<Run>, early: bool) -> Self {
        let interrupted = early || runs.iter().any(|run| run.interrupted);
        let whole = !runs.is_empty() && !interrupted;
        let passed = whole && runs.iter().all(|run| run.verdict == Verdict::Linearizable);
        Self { runs, passed, interrupted }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header =
            ["server", "repo", "operations", "keys", "per key", "unknown", "overlaps", "recorded s", "checked s", ""];
        let mut table = Table::of_numbers(&header);
        for run in &self.runs {
            let [least, most] = run.per_key;
            table.row(vec![
                run.server.clone(),
                run.repo.clone(),
                run.operations.to_string(),
                run.keys.to_string(),
                if least == most { least.to_string() } else { format!("{least}..{most}") },
                run.unknown.to_string(),
                run.overlaps.to_string(),
                format!("{:.2}", run.recorded_s),
                format!("{:.2}", run.checked_s),
                run.verdict.to_string(),
            ]);
        }
        write!(f, "{table}")?;
        for run in self.runs.iter().filter(|run| !run.why.is_empty()) {
            writeln!(f, "\n{} over {}: {}\n{}", run.server, run.repo, run.verdict, run.why.trim_end())?;
        }
        if self.interrupted {
            writeln!(f, "\nended early; what was recorded until then was checked")?;
        }
        f.write_str(match self {
            Self { passed: true, .. } => "\npassed\n",
            Self { runs, .. } if runs.is_empty() => "\nUNDECIDED: nothing was recorded\n",
            Self { interrupted: true, runs, .. } if runs.iter().all(|run| run.verdict == Verdict::Linearizable) => {
                "\nUNDECIDED: not all that was asked for was recorded\n"
            }
            Self { .. } => "\nFAILED\n",
        })
    }
}
