//! The verdicts on the published claims: the stress scenario ends without an error, in Rust and in Go. It has 40 000
//! requests, each on a connection of its own, all at once.
//!
//! Only rounds of the published size and mode are judged, and only of the published servers: [`CLASSIC`] and [`TWIN`], in
//! any build. A claim is confirmed if no round had an error, including the final state. It is refuted if a round had an
//! error. The rounds of all servers of the language are counted next to it.
//!
//! A round decides nothing if a server with bounded queues rejected a request by a right 503: the published servers
//! rejected none. Such rounds are counted.

use polyserve_report::Claim;
use polyserve_report::figures::counted;

use super::NAME;
use super::outcome::RoundOutcome;
use super::report::{RoundRecord, Sample};
use crate::matrix::claims::{CLASSIC, TWIN};

/// The published number of requests, and the published mode.
const REQUESTS: u64 = 40_000;
pub(super) const MODE: &str = "burst";

/// A claim for each language; none for a language of which no server took part.
pub fn claims(rounds: &[RoundRecord]) -> Vec<Claim> {
    let rounds: Vec<&RoundRecord> = rounds.iter().collect();
    let took_part = |lang: &str| rounds.is_empty() || rounds.iter().any(|round| round.sample.lang == lang);
    let languages = [("rust", "Rust"), ("go", "Go")].into_iter().filter(|(lang, _)| took_part(lang));
    languages.map(|(lang, name)| claim(&rounds, lang, name)).collect()
}

fn claim(rounds: &[&RoundRecord], lang: &str, name: &str) -> Claim {
    let is_as_published = |RoundRecord { key, sample }: &RoundRecord| {
        sample.lang == lang && sample.requests >= REQUESTS && key.mode == MODE
    };
    let own: Vec<&RoundRecord> = rounds.iter().copied().filter(|round| is_as_published(round)).collect();
    let is_published = |round: &&RoundRecord| [CLASSIC, TWIN].iter().any(|name| round.key.tested.server.contains(name));
    let published: Vec<&RoundRecord> = own.iter().copied().filter(is_published).collect();
    let (holds, figure) = judged(&published);
    let figure = format!("the published server: {figure}; all servers: {}", judged(&own).1);
    Claim::new(NAME, &format!("the stress scenario ends without an error in {name}"), holds, figure)
        .with_published(format!("0 errors in {REQUESTS} requests"))
}

/// Whether no round had an error, and the figures; `None` without a round that answered all.
fn judged(rounds: &[&RoundRecord]) -> (Option<bool>, String) {
    let has_refused = |round: &&RoundRecord| {
        let RoundOutcome { groups, error_count, .. } = &round.sample.outcome;
        *error_count == 0 && groups.iter().any(|group| group.refused > 0)
    };
    let (refusing, own): (Vec<&RoundRecord>, Vec<&RoundRecord>) = rounds.iter().copied().partition(has_refused);
    let wrong: Vec<&RoundRecord> = own.iter().copied().filter(|round| round.sample.outcome.error_count > 0).collect();
    let figure = match (own.len(), wrong.first()) {
        (0, _) => format!("no round of {REQUESTS} connections at once answered all"),
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
    ((!own.is_empty()).then_some(wrong.is_empty()), figure)
}

#[cfg(test)]
mod tests {
    use polyserve_lab::experiment::{Experiment as _, Records};
    use polyserve_report::ClaimVerdict;

    use super::*;
    use crate::stress::Stress;
    use crate::stress::fixtures::{line, records};

    fn claims_of(records: &Records<Stress>) -> Vec<Claim> {
        Stress::summarize(records, &Stress::report(records).unwrap()).unwrap().claims
    }

    fn verdicts(records: &Records<Stress>) -> [ClaimVerdict; 2] {
        let claims = claims_of(records);
        [claims[0].verdict, claims[1].verdict]
    }

    #[test]
    fn rounds_of_the_published_size_decide() {
        let (undecided, confirmed, refuted) = (ClaimVerdict::Undecided, ClaimVerdict::Confirmed, ClaimVerdict::Refuted);
        assert!(claims(&[]).iter().all(|claim| claim.verdict == undecided));
        let small = [line(CLASSIC, "burst", 400, 0), line(TWIN, "close", 40_000, 0)];
        assert_eq!(verdicts(&records(&small)), [undecided; 2]);
        let good = [line(CLASSIC, "burst", 40_000, 0), line(TWIN, "burst", 40_000, 0)];
        assert_eq!(verdicts(&records(&good)), [confirmed; 2]);
        let debug = format!("debug/{CLASSIC}");
        let wrong = [good[0].clone(), line(&debug, "burst", 40_000, 3), good[1].clone()];
        assert_eq!(verdicts(&records(&wrong)), [refuted, confirmed]);
        let figure = format!("1 of 2 rounds had errors: {debug} over any 3");
        assert!(claims_of(&records(&wrong))[0].figure.contains(&figure));
        let others = [line("tokio_tcp", "burst", 40_000, 3), line("go/nethttp", "burst", 40_000, 0)];
        assert_eq!(verdicts(&records(&others)), [undecided; 2], "not the published servers");
        let figure = &claims_of(&records(&others))[0].figure;
        assert!(figure.ends_with("; all servers: 1 of 1 round had errors: tokio_tcp over any 3"), "{figure}");
    }

    /// The published servers refused nothing.
    #[test]
    fn a_round_with_refused_requests_decides_nothing() {
        let mut refusing = line(CLASSIC, "burst", 40_000, 0);
        refusing["groups"][0]["refused"] = 7.into();
        let alone = records(&[refusing.clone()]);
        assert_eq!(claims_of(&alone).iter().map(|claim| claim.verdict).collect::<Vec<_>>(), [ClaimVerdict::Undecided]);
        let claim = claims_of(&alone).remove(0);
        assert!(
            claim.figure.ends_with("answered all; 1 round more had 503s from a full queue, and decide nothing"),
            "{claim:?}"
        );
        let both = records(&[refusing, line(&format!("debug/{CLASSIC}"), "burst", 40_000, 0)]);
        let claims = claims_of(&both);
        assert_eq!((claims.len(), claims[0].verdict), (1, ClaimVerdict::Confirmed), "no server in Go took part");
        let figure = &claims[0].figure;
        assert!(figure.starts_with("the published server: 0 errors in 1 round"), "{figure}");
    }
}
