//! The result of the recordings.

use std::fmt;

use crate::report::Table;
use polyserve_conformance::history::History;
use serde::Serialize;

/// The verdict on a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordingVerdict {
    /// There is a sequential order in which every answer is right.
    Linearizable,
    /// There is no such order.
    NotLinearizable,
    /// The check was not conclusive.
    Undecided,
    /// An answer that is wrong in every order: a torn value, another id, an impossible status.
    WrongAnswer,
    /// The recording failed.
    #[default]
    Failed,
}

impl fmt::Display for RecordingVerdict {
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

/// A recording and its verdict.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CheckRun {
    /// The server's name.
    pub server: String,
    /// The name of the repo, or of the file.
    pub repo: String,
    /// The verdict.
    pub verdict: RecordingVerdict,
    /// The reason of the verdict as text; empty if the history is linearizable.
    pub why: String,
    /// The number of recorded operations.
    pub operations: usize,
    /// The number of keys.
    pub keys: usize,
    /// The min and the max number of operations of a key.
    pub per_key: [usize; 2],
    /// The number of operations without an answer.
    pub unknown: usize,
    /// The number of pairs of concurrent operations of one key.
    pub overlaps: u64,
    /// Seconds of recording.
    pub recorded_s: f64,
    /// Seconds of checking.
    pub checked_s: f64,
    /// Whether the recording was ended early. The recorded part is checked.
    pub interrupted: bool,
}

impl CheckRun {
    pub(super) fn new(server: &str, repo: &str) -> Self {
        Self { server: server.to_owned(), repo: repo.to_owned(), ..Self::default() }
    }

    pub(super) fn count(&mut self, history: &History) {
        let keys = history.keys();
        self.operations = history.operations().len();
        self.keys = keys.len();
        self.per_key = [keys.values().min(), keys.values().max()].map(|count| count.copied().unwrap_or(0));
        self.unknown = history.unknown();
        self.overlaps = history.overlaps();
    }

    pub(super) fn ended(mut self, verdict: RecordingVerdict, why: String) -> Self {
        (self.verdict, self.why) = (verdict, why);
        self
    }
}

/// The result of all recordings.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    /// The recordings.
    pub runs: Vec<CheckRun>,
    /// Whether all planned operations were recorded and all histories are linearizable.
    pub passed: bool,
    /// Whether it was ended early.
    pub interrupted: bool,
}

impl CheckReport {
    /// The result of these runs. `early` is true if more runs were planned.
    pub fn new(runs: Vec<CheckRun>, early: bool) -> Self {
        let interrupted = early || runs.iter().any(|run| run.interrupted);
        let whole = !runs.is_empty() && !interrupted;
        let passed = whole && runs.iter().all(|run| run.verdict == RecordingVerdict::Linearizable);
        Self { runs, passed, interrupted }
    }

    /// Whether the command must fail: it has not passed, and the reason is not only that it was ended early.
    pub fn is_failed(&self) -> bool {
        let is_open = |run: &CheckRun| match run.verdict {
            RecordingVerdict::Linearizable => true,
            RecordingVerdict::Undecided => run.interrupted,
            RecordingVerdict::NotLinearizable | RecordingVerdict::WrongAnswer | RecordingVerdict::Failed => false,
        };
        !(self.passed || self.interrupted && self.runs.iter().all(is_open))
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per_key = |[min, max]: [usize; 2]| match min == max {
            true => min.to_string(),
            false => format!("{min}..{max}"),
        };
        let table = Table::of_columns(
            &self.runs,
            &[
                ("server", &|run| run.server.clone()),
                ("repo", &|run| run.repo.clone()),
                ("verdict", &|run| run.verdict.to_string()),
                ("ops", &|run| run.operations.to_string()),
                ("keys", &|run| run.keys.to_string()),
                ("ops/key", &|run| per_key(run.per_key)),
                ("unknown", &|run| run.unknown.to_string()),
                ("overlaps", &|run| run.overlaps.to_string()),
                ("record (s)", &|run| format!("{:.2}", run.recorded_s)),
                ("check (s)", &|run| format!("{:.2}", run.checked_s)),
            ],
        )
        .with_texts_in(1)
        .with_texts_in(2)
        .named_by(2);
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
            report if report.is_failed() => "\nFAILED\n",
            Self { .. } => "\nUNDECIDED: fewer operations were recorded than planned\n",
        })
    }
}
