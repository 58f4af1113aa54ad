//! Why a cell has no sample.

use std::fmt;

use polyserve_load::{LoadError, Report};
use serde::{Deserialize, Serialize};

use crate::bench::Key;

/// Why a cell has no sample: the reason, and one sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absence {
    /// The reason.
    pub reason: Reason,
    /// One sentence, or a few lines of a contestant's output.
    pub why: String,
}

/// The reason of an [`Absence`]. It decides what a later run does, and the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The contestant is not installed, was not built, or cannot serve the cell's settings.
    NotAvailable,
    /// The measurement failed for a reason that may be the machine's. A later run tries again.
    Failed,
    /// The contestant did wrong: a wrong answer, a crash, a wrong count. No later run tries again.
    Wrong,
    /// The contestant did not finish within its time limit. No later run tries again; the command does not fail.
    TimedOut,
}

impl Absence {
    /// An absence of a contestant that is not installed, was not built, or cannot serve the cell's settings.
    pub fn not_available(why: impl Into<String>) -> Self {
        Self { reason: Reason::NotAvailable, why: why.into() }
    }

    /// An absence after a failure that may be the machine's.
    pub(crate) fn failed(why: impl Into<String>) -> Self {
        Self { reason: Reason::Failed, why: why.into() }
    }

    /// An absence of a contestant that did wrong.
    pub(crate) fn wrong(why: impl Into<String>) -> Self {
        Self { reason: Reason::Wrong, why: why.into() }
    }

    /// An absence of a contestant that was too slow to be measured.
    pub(crate) fn timed_out(why: impl Into<String>) -> Self {
        Self { reason: Reason::TimedOut, why: why.into() }
    }

    /// Returns `report` if all answers were right.
    pub(crate) fn unless_right(report: Report) -> Result<Report, Self> {
        let failed = report.failed.total();
        if failed == 0 {
            return Ok(report);
        }
        let first = report.first_failure.as_deref().unwrap_or("no reason is known");
        Err(Self::wrong(format!("{failed} of its answers were not right, the first: {first}")))
    }

    /// Returns true if no later run measures the cell again.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self.reason, Reason::Wrong | Reason::TimedOut)
    }

    /// Returns true if the contestant did wrong.
    pub(crate) fn is_wrong(&self) -> bool {
        self.reason == Reason::Wrong
    }
}

/// A cell without a sample, as reports list it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The cell.
    #[serde(flatten)]
    pub key: Key,
    /// Why.
    pub why: String,
    /// Whether the contestant did wrong.
    pub wrong: bool,
}

impl Failed {
    /// A cell and its absence.
    pub(crate) fn new((key, absence): (&Key, &Absence)) -> Self {
        Self { key: key.clone(), why: absence.why.clone(), wrong: absence.is_wrong() }
    }
}

impl std::error::Error for Absence {}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// An error that the server caused is wrong; every other error is a failure of the client.
impl From<LoadError> for Absence {
    fn from(error: LoadError) -> Self {
        let reason = if matches!(error, LoadError::Server(_)) { Reason::Wrong } else { Reason::Failed };
        Self { reason, why: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::fixtures;
    use crate::launch::AddressFrom;
    use crate::launch::process::{MAX_WAIT, Process};
    use crate::machine::Cores;

    #[test]
    fn what_the_client_could_not_do_is_not_wrong() {
        let none = std::io::Error::from(std::io::ErrorKind::OutOfMemory);
        let system = LoadError::System { what: "epoll".into(), source: none };
        for error in [system, LoadError::Setting("no process".into()), LoadError::Stopped] {
            assert!(!Absence::from(error).is_wrong());
        }
        assert!(Absence::from(LoadError::Server("status 500".into())).is_wrong());
    }

    /// If the process has ended, its end is the reason, not the client's error.
    #[test]
    fn to_die_is_wrong() {
        let script = |text: &str| {
            let launch = fixtures::script(text, AddressFrom::Line("at ".into()));
            Process::start(&launch, &Cores::available().unwrap()).unwrap()
        };
        let seen = || Absence::from(LoadError::Setting("there is no process".into()));
        let mut alive = script("echo at 127.0.0.1:7; while read line; do :; done");
        assert_eq!(alive.explain(seen()), seen());
        let (mut dead, deadline) = (script("echo at 127.0.0.1:7; exit 3"), Instant::now() + MAX_WAIT);
        let absence = loop {
            let absence = dead.explain(seen()); // it may be about to
            if absence.is_wrong() || Instant::now() > deadline {
                break absence;
            }
        };
        assert!(
            absence.is_wrong() && absence.why.contains("exit status: 3") && absence.why.contains("no process"),
            "{absence:?}"
        );
    }
}
