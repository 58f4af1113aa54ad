//! The check of a server's end: no request was cut, and the server's count of answers matches the client's.
//!
//! Cost: none.

use serde::Deserialize;

use crate::experiment::Absence;

/// The counts of a [`Drain`](polyserve::Drain), which a server prints at its end.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct DrainCounts {
    /// The number of whole answers.
    pub answered: u64,
    /// The number of connections that were cut.
    pub cut: u64,
    /// The number of threads that did not end.
    pub stuck: u64,
}

/// Checks the server's last line after a drain. The client had no request under way, so the server must not have cut any, and
/// it must have sent at least the `answers` that the client has read. Returns the server's count of answers. Returns an
/// [`Absence`] that is marked as wrong, if the line cannot be read or its counts contradict the client's.
pub(crate) fn check_drain(last_line: Option<&str>, answers: u64) -> Result<u64, Absence> {
    match last_line.map(serde_json::from_str) {
        Some(Ok(DrainCounts { answered, cut: 0, stuck: 0 })) if answered >= answers => Ok(answered),
        Some(Ok(DrainCounts { answered, cut, stuck })) => {
            let ended = format!("answered {answered}, cut {cut}, stuck {stuck}");
            Err(Absence::wrong(format!(
                "its last line reports {ended}, and the client received at least {answers} answers"
            )))
        }
        Some(Err(_)) | None => Err(Absence::wrong(format!("it did not say how it ended, but {last_line:?}"))),
    }
}

/// [`check_drain`] for a client that has read every answer: the server must have sent exactly `answers`. Returns an [`Absence`]
/// as [`check_drain`] does, and if the counts differ.
pub(crate) fn check_count(last_line: Option<&str>, answers: u64) -> Result<(), Absence> {
    match check_drain(last_line, answers)? {
        reported if reported == answers => Ok(()),
        reported => Err(Absence::wrong(format!("it reports {reported} answers, and the client received {answers}"))),
    }
}

/// The count that a twin prints at its end.
#[derive(Deserialize)]
struct Answered {
    answered: u64,
}

/// Checks the last line of a server that counts its answers and nothing else, if the client has read every answer. Returns an
/// [`Absence`] that is marked as wrong, if the line cannot be read or its count is not `answers`.
pub(crate) fn check_answered(last_line: Option<&str>, answers: u64) -> Result<(), Absence> {
    match last_line.map(serde_json::from_str) {
        Some(Ok(Answered { answered })) if answered == answers => Ok(()),
        Some(Ok(Answered { answered })) => {
            Err(Absence::wrong(format!("it reports {answered} answers, and the client received {answers}")))
        }
        Some(Err(_)) | None => {
            Err(Absence::wrong(format!("it did not print the number of its answers, but {last_line:?}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_good_where_nothing_was_cut_and_all_is_counted() {
        assert_eq!(check_drain(Some(r#"{"answered":10,"cut":0,"stuck":0}"#), 9), Ok(10));
        for (last_line, why) in [
            (Some(r#"{"answered":8,"cut":0,"stuck":0}"#), "at least 9 answers"),
            (Some(r#"{"answered":10,"cut":1,"stuck":0}"#), "cut 1"),
            (Some(r#"{"answered":10,"cut":0,"stuck":1}"#), "stuck 1"),
            (Some("bye"), "bye"),
            (None, "did not say"),
        ] {
            let absence = check_drain(last_line, 9).unwrap_err();
            assert!(absence.why.contains(why) && absence.is_wrong(), "{absence:?}");
            assert_eq!(check_count(last_line, 9), Err(absence));
        }
    }

    /// A regression test: surplus answers of the server once passed, although the client had read all answers.
    #[test]
    fn a_count_is_the_clients_own() {
        let last_line = Some(r#"{"answered":10,"cut":0,"stuck":0}"#);
        assert_eq!(check_count(last_line, 10), Ok(()));
        for (answers, why) in [(9, "10 answers, and the client received 9"), (11, "at least 11 answers")] {
            let absence = check_count(last_line, answers).unwrap_err();
            assert!(absence.why.contains(why) && absence.is_wrong(), "{absence:?}");
        }
    }

    #[test]
    fn a_twin_has_only_a_count() {
        assert_eq!(check_answered(Some(r#"{"answered":10}"#), 10), Ok(()));
        for (last_line, why) in [(Some(r#"{"answered":9}"#), "reports 9 answers"), (Some("bye"), "bye"), (None, "None")]
        {
            let absence = check_answered(last_line, 10).unwrap_err();
            assert!(absence.why.contains(why) && absence.is_wrong(), "{absence:?}");
        }
    }
}
