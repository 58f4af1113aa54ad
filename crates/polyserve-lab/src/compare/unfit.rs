//! Why somebody has no figures: it could not be tried, or it was tried and did wrong. And how a server of ours has to end.
//!
//! Invariant: only what the contestant itself did is wrong. A build, a start, a thread of the client that this machine had
//! not may be tried again; who did wrong may not, for who is asked often enough may be lucky. Cost: none.

use std::fmt;

use polyserve_load::LoadError;
use serde::Deserialize;

use crate::launch::process::{Failure, Process};

/// Why there are no figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// In a line or a few.
    pub why: String,
    /// Whether the contestant did wrong: an answer that is not right or never came, a count that is not the client's, an
    /// end that is no good one. Then no rerun tries it again.
    pub wrong: bool,
}

impl Unfit {
    /// One that did wrong.
    pub fn wrong(why: impl Into<String>) -> Self {
        Self { why: why.into(), wrong: true }
    }

    /// What was seen in talking to `process`: that it died, if it did, and then that is wrong, whatever was seen first.
    #[must_use]
    pub fn explained(self, process: &mut Process) -> Self {
        let Failure(why) = process.explain(Failure(self.why.clone()));
        Self { wrong: self.wrong || why != self.why, why }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Unfit {}

/// One that was not tried.
impl From<Failure> for Unfit {
    fn from(Failure(why): Failure) -> Self {
        Self { why, wrong: false }
    }
}

/// Only what the server did is its own doing; all else is the client's.
impl From<LoadError> for Unfit {
    fn from(error: LoadError) -> Self {
        Self { why: error.to_string(), wrong: matches!(error, LoadError::Server(_)) }
    }
}

/// How a server of ours ended.
#[derive(Deserialize)]
struct Drained {
    answered: u64,
    cut: u64,
    stuck: u64,
}

/// Nobody asked for anything any more, so nothing was to be cut; and every answer that was seen has been given. Answers how
/// many the server says that it gave.
///
/// # Errors
///
/// Where that is not so, which is wrong.
pub fn check_drain(said: Option<&str>, answers: u64) -> Result<u64, Unfit> {
    match said.map(serde_json::from_str) {
        Some(Ok(Drained { answered, cut: 0, stuck: 0 })) if answered >= answers => Ok(answered),
        Some(Ok(Drained { answered, cut, stuck })) => {
            let ended = format!("answered {answered}, cut {cut}, stuck {stuck}");
            Err(Unfit::wrong(format!("it ended with {ended} where the client has {answers} answers or more")))
        }
        Some(Err(_)) | None => Err(Unfit::wrong(format!("it did not say how it ended, but {said:?}"))),
    }
}

/// [`check_drain`], where the client has read every answer that there was: then the server must have given just as many.
///
/// # Errors
///
/// As there.
pub fn check_count(said: Option<&str>, answers: u64) -> Result<(), Unfit> {
    match check_drain(said, answers)? {
        given if given == answers => Ok(()),
        given => Err(Unfit::wrong(format!("it says that it gave {given} answers, and the client has had {answers}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::launch::process::PATIENCE;
    use crate::launch::{AddressFrom, Launch};
    use crate::machine::Cores;

    #[test]
    fn an_end_is_good_where_nothing_was_cut_and_all_is_counted() {
        assert_eq!(check_drain(Some(r#"{"answered":10,"cut":0,"stuck":0}"#), 9), Ok(10));
        for (said, why) in [
            (Some(r#"{"answered":8,"cut":0,"stuck":0}"#), "9 answers or more"),
            (Some(r#"{"answered":10,"cut":1,"stuck":0}"#), "cut 1"),
            (Some(r#"{"answered":10,"cut":0,"stuck":1}"#), "stuck 1"),
            (Some("bye"), "bye"),
            (None, "did not say"),
        ] {
            let unfit = check_drain(said, 9).unwrap_err();
            assert!(unfit.why.contains(why) && unfit.wrong, "{unfit:?}");
            assert_eq!(check_count(said, 9), Err(unfit));
        }
    }

    /// Answers that nobody has read were once no matter where the client knew of all.
    #[test]
    fn a_count_is_the_clients_own() {
        let said = Some(r#"{"answered":10,"cut":0,"stuck":0}"#);
        assert_eq!(check_count(said, 10), Ok(()));
        for (answers, why) in [(9, "gave 10 answers, and the client has had 9"), (11, "11 answers or more")] {
            let unfit = check_count(said, answers).unwrap_err();
            assert!(unfit.why.contains(why) && unfit.wrong, "{unfit:?}");
        }
    }

    #[test]
    fn what_the_client_could_not_do_is_not_wrong() {
        let none = std::io::Error::from(std::io::ErrorKind::OutOfMemory);
        let system = LoadError::System { what: "epoll".into(), source: none };
        for error in [system, LoadError::Setting("no process".into()), LoadError::Stopped] {
            assert!(!Unfit::from(error).wrong);
        }
        assert!(Unfit::from(LoadError::Server("status 500".into())).wrong);
        assert!(!Unfit::from(Failure("it cannot be started".into())).wrong);
    }

    /// Whatever the client says of a process that is gone: it should not be gone.
    #[test]
    fn to_die_is_wrong() {
        let script = |script: &str| {
            let args = ["-c", script].map(Into::into).to_vec();
            let launch =
                Launch { program: "/bin/sh".into(), args, env: Vec::new(), address: AddressFrom::Line("at ".into()) };
            Process::start(&launch, &Cores::available().unwrap()).unwrap()
        };
        let seen = || Unfit::from(LoadError::Setting("there is no process".into()));
        let mut alive = script("echo at 127.0.0.1:7; while read line; do :; done");
        assert_eq!(seen().explained(&mut alive), seen());
        let (mut dead, deadline) = (script("echo at 127.0.0.1:7; exit 3"), Instant::now() + PATIENCE);
        let unfit = loop {
            let unfit = seen().explained(&mut dead); // it may be about to
            if unfit.wrong || Instant::now() > deadline {
                break unfit;
            }
        };
        assert!(unfit.wrong && unfit.why.contains("exit status: 3") && unfit.why.contains("no process"), "{unfit:?}");
    }
}
