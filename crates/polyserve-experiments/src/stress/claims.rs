//! The verdicts on the published claims: the stress scenario ends without an error, in Rust and in Go. It has 40 000
//! requests, each on a connection of its own, all at once.
//!
//! Only rounds of the published size and mode are judged, of all servers of a language. A claim is confirmed if no
//! round had an error, including the final state. It is refuted if a round had an error.
//!
//! A round decides nothing if a server with bounded queues rejected a request by a right 503: the published servers
//! rejected none. Such rounds are counted. A wrong round counts even if it was measured again.

use polyserve_report::Claim;
use polyserve_report::figures::counted;

use super::NAME;
use super::outcome::RoundOutcome;
use super::report::{RoundRecord, Sample};

/// The published number of requests, and the published mode.
const REQUESTS: u64 = 40_000;
pub(super) const MODE: &str = "burst";

/// A claim for each language. `wrong` are wrong rounds, which `rounds` may lack.
pub fn claims(rounds: &[RoundRecord], wrong: &[RoundRecord]) -> Vec<Claim> {
    let again = wrong.iter().filter(|wrong| !rounds.contains(wrong));
    let rounds: Vec<&RoundRecord> = rounds.iter().chain(again).collect();
    [("rust", "Rust"), ("go", "Go")].map(|(lang, name)| claim(&rounds, lang, name)).into()
}

fn claim(rounds: &[&RoundRecord], lang: &str, name: &str) -> Claim {
    let is_as_published = |RoundRecord { key, sample }: &RoundRecord| {
        sample.lang == lang && sample.requests >= REQUESTS && key.mode == MODE
    };
    let own = rounds.iter().copied().filter(|round| is_as_published(round));
    let has_refused = |round: &&RoundRecord| {
        let RoundOutcome { groups, error_count, .. } = &round.sample.outcome;
        *error_count == 0 && groups.iter().any(|group| group.refused > 0)
    };
    let (refusing, own): (Vec<&RoundRecord>, Vec<&RoundRecord>) = own.partition(has_refused);
    let wrong: Vec<&RoundRecord> = own.iter().copied().filter(|round| round.sample.outcome.error_count > 0).collect();
    let figure = match (own.len(), wrong.first()) {
        (0, _) => {
            format!("no round of {REQUESTS} requests, each on a connection of its own and all at once, answered all")
        }
        (all, None) => {
            let all = counted(all as u64, "round");
            format!("0 errors in {all} of {REQUESTS} requests or more, final states included")
        }
        (all, Some(RoundRecord { key, sample: Sample { outcome, .. } })) => {
            let (count, all, errors) = (wrong.len(), counted(all as u64, "round"), outcome.error_count);
            format!("{count} of {all} had errors: {} over {} {errors}", key.tested.server, key.tested.repo)
        }
    };
    let figure = match refusing.len() as u64 {
        0 => figure,
        all => format!("{figure}; {} more had 503s from a full queue, and decide nothing", counted(all, "round")),
    };
    let holds = (!own.is_empty()).then_some(wrong.is_empty());
    Claim::new(NAME, &format!("the stress scenario ends without an error in {name}"), holds, figure)
        .with_published(format!("0 errors in {REQUESTS} requests"))
}

#[cfg(test)]
mod tests {
    use polyserve_lab::experiment::{Experiment as _, Records};
    use polyserve_report::ClaimVerdict;

    use super::*;
    use crate::stress::Stress;
    use crate::stress::fixtures::{line, old_records, records};

    fn judged(records: &Records<Stress>) -> Vec<Claim> {
        Stress::summarize(records, &Stress::report(records).unwrap()).unwrap().claims
    }

    fn verdicts(records: &Records<Stress>) -> [ClaimVerdict; 2] {
        let claims = judged(records);
        [claims[0].verdict, claims[1].verdict]
    }

    #[test]
    fn rounds_of_the_published_size_decide() {
        let (undecided, confirmed, refuted) = (ClaimVerdict::Undecided, ClaimVerdict::Confirmed, ClaimVerdict::Refuted);
        assert!(claims(&[], &[]).iter().all(|claim| claim.verdict == undecided));
        let small = [line("pool_server", "burst", 400, 0), line("go/twin", "close", 40_000, 0)];
        assert_eq!(verdicts(&records(&small)), [undecided; 2]);
        let good = [line("pool_server", "burst", 40_000, 0), line("go/twin", "burst", 40_000, 0)];
        assert_eq!(verdicts(&records(&good)), [confirmed; 2]);
        let wrong = [good[0].clone(), line("tokio_tcp", "burst", 40_000, 3), good[1].clone()];
        assert_eq!(verdicts(&records(&wrong)), [refuted, confirmed]);
        let again = [&wrong[..], &[line("tokio_tcp", "burst", 40_000, 0)]].concat();
        assert_eq!(verdicts(&old_records(&again)), [refuted, confirmed], "old records measured it again");
        for (records, figure) in [
            (records(&wrong), "1 of 2 rounds had errors: tokio_tcp over any 3"),
            (old_records(&wrong), "1 of 2 rounds had errors: tokio_tcp over any 3"),
            (old_records(&again), "1 of 3 rounds had errors: tokio_tcp over any 3"),
        ] {
            assert!(judged(&records)[0].figure.contains(figure));
        }
    }

    /// The published servers refused nothing.
    #[test]
    fn a_round_with_refused_requests_decides_nothing() {
        let mut refusing = line("pool_classic", "burst", 40_000, 0);
        refusing["groups"][0]["refused"] = 7.into();
        let alone = records(&[refusing.clone()]);
        assert_eq!(verdicts(&alone)[0], ClaimVerdict::Undecided);
        let claim = judged(&alone).remove(0);
        assert!(
            claim.figure.ends_with("answered all; 1 round more had 503s from a full queue, and decide nothing"),
            "{claim:?}"
        );
        let both = records(&[refusing, line("tokio_tcp", "burst", 40_000, 0)]);
        assert_eq!(verdicts(&both)[0], ClaimVerdict::Confirmed);
        assert!(judged(&both)[0].figure.starts_with("0 errors in 1 round"), "{:?}", judged(&both)[0]);
    }
}
