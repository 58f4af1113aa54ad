//! What was published of the stress scenario: 40 000 requests, each on a connection of its own, without an error, in Rust
//! and in Go.
//!
//! It is judged by rounds of the published size and mode alone, of all servers of a language that were run: it holds
//! where none of them had anything wrong, a final state that is not what was put included; it does not where one had.
//! A round that was tried again is not forgotten: who is asked often enough may be lucky.

use polyserve_lab::journal::of_kind;
use polyserve_report::Claim;
use serde_json::Value;

use super::record::{ROUND, RoundLine};

/// The published requests, and how connections were used.
const REQUESTS: u64 = 40_000;
const MODE: &str = "close";

/// One for each language.
///
/// # Errors
///
/// Where a line is no round.
pub fn claims(lines: &[Value]) -> anyhow::Result<Vec<Claim>> {
    let rounds: Vec<RoundLine> = of_kind(lines, ROUND)?;
    let judged = |(lang, name): (&str, &str)| {
        let is_as_published =
            |line: &&RoundLine| line.lang == lang && line.requests >= REQUESTS && line.round.mode == MODE;
        let own: Vec<&RoundLine> = rounds.iter().filter(is_as_published).collect();
        let wrong: Vec<&RoundLine> = own.iter().copied().filter(|line| line.round.error_count > 0).collect();
        let figure = match (own.len(), wrong.first()) {
            (0, _) => format!("no round of {REQUESTS} requests, each on a connection of its own, was run"),
            (all, None) => format!("0 errors in {all} rounds of {REQUESTS} requests or more, final states included"),
            (all, Some(RoundLine { server, repo, round, .. })) => {
                let (errors, count) = (round.error_count, wrong.len());
                format!("{count} of {all} rounds had errors: {server} over {repo} {errors}")
            }
        };
        let holds = (!own.is_empty()).then_some(wrong.is_empty());
        let claim = format!("the stress scenario ends without an error in {name}");
        Claim::new("stress", &claim, holds, figure)
    };
    Ok([("rust", "Rust"), ("go", "Go")].map(judged).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stress::report::{Final, Round};
    use polyserve_lab::journal::as_line;
    use polyserve_report::Verdict;

    fn line(server: &str, requests: u64, mode: &str, error_count: u64) -> Value {
        let round = Round {
            mode: mode.into(),
            connections_at_once: 300,
            groups: Vec::new(),
            connections: requests,
            reconnects: 0,
            final_state: Final::default(),
            store_count: None,
            drain: None,
            answers: requests,
            error_count,
            errors: Vec::new(),
        };
        as_line(ROUND, &RoundLine::new(server, "any", requests, round)).unwrap()
    }

    fn verdicts(lines: &[Value]) -> [Verdict; 2] {
        let claims = claims(lines).unwrap();
        [claims[0].verdict, claims[1].verdict]
    }

    #[test]
    fn rounds_of_the_published_size_decide() {
        let (undecided, confirmed, refuted) = (Verdict::Undecided, Verdict::Confirmed, Verdict::Refuted);
        assert_eq!(verdicts(&[]), [undecided; 2]);
        let small = [line("pool_server", 400, "close", 0), line("go/twin", 40_000, "keep-alive", 0)];
        assert_eq!(verdicts(&small), [undecided; 2]);
        let good = [line("pool_server", 40_000, "close", 0), line("go/twin", 40_000, "close", 0)];
        assert_eq!(verdicts(&good), [confirmed; 2]);
        let wrong = [good[0].clone(), line("tokio_tcp", 40_000, "close", 3), good[1].clone()];
        assert_eq!(verdicts(&wrong), [refuted, confirmed]);
        let tried_again = [&wrong[..], &[line("tokio_tcp", 40_000, "close", 0)]].concat();
        assert_eq!(verdicts(&tried_again), [refuted, confirmed]);
        assert!(claims(&wrong).unwrap()[0].figure.contains("1 of 2 rounds had errors: tokio_tcp over any 3"));
    }
}
