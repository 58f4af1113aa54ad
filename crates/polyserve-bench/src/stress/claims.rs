//! The verdicts on the published claims: `defs/stress.toml`, judged by the rounds.
//!
//! The errors of a round include those of the final state. A round decides nothing if a server with bounded queues rejected a
//! request by a right 503: the published servers rejected none.

use crate::claim::{ClaimRow, ClaimSet};
use crate::report::Claim;

use super::report::{Key, RoundRecord, Sample};

/// The published mode.
pub(super) const MODE: &str = "burst";

/// The claims about each language; none about a language of which no server took part.
///
/// # Errors
///
/// Returns an error if the definition has one.
pub fn claims(rounds: &[RoundRecord]) -> anyhow::Result<Vec<Claim>> {
    let mut set = ClaimSet::parse("defs/stress.toml", include_str!("claims.toml"))?;
    let rows: Vec<ClaimRow> = rounds.iter().map(row).collect();
    if !rows.is_empty() {
        set.claims.retain(|claim| rows.iter().any(|row| claim.conditions.hold_at("lang", row)));
    }
    Ok(set.verdicts(&rows, 0, &[]))
}

fn row(RoundRecord { key: Key { tested, mode }, sample }: &RoundRecord) -> ClaimRow {
    let Sample { lang, requests, outcome } = sample;
    let has_refused = outcome.error_count == 0 && outcome.groups.iter().any(|group| group.refused > 0);
    let row = ClaimRow::new(&tested.server, 1)
        .at("repo", tested.repo.as_str())
        .at("lang", lang.as_str())
        .at("mode", mode.as_str())
        .at("requests", *requests as f64);
    match has_refused {
        true => ClaimRow { why: Some("it had 503s from a full queue".into()), ..row },
        false => row.with("errors", outcome.error_count as f64),
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::{Experiment as _, Records};
    use crate::report::ClaimVerdict;

    use super::*;
    use crate::matrix::claims::{CLASSIC, TWIN};
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
        assert!(claims(&[]).unwrap().iter().all(|claim| claim.verdict == undecided));
        let small = [line(CLASSIC, "burst", 400, 0), line(TWIN, "close", 40_000, 0)];
        assert_eq!(verdicts(&records(&small)), [undecided; 2]);
        let good = [line(CLASSIC, "burst", 40_000, 0), line(TWIN, "burst", 40_000, 0)];
        assert_eq!(verdicts(&records(&good)), [confirmed; 2]);
        let debug = format!("debug/{CLASSIC}");
        let wrong = [good[0].clone(), line(&debug, "burst", 40_000, 3), good[1].clone()];
        assert_eq!(verdicts(&records(&wrong)), [refuted, confirmed]);
        let figure = &claims_of(&records(&wrong))[0].figure;
        assert_eq!(figure, &format!("errors: 1 of 2 rounds not as claimed: {debug} 3"));
        let others = [line("tokio_tcp", "burst", 40_000, 3), line("go/nethttp", "burst", 40_000, 0)];
        assert_eq!(verdicts(&records(&others)), [undecided; 2], "not the published servers");
    }

    /// The published servers refused nothing.
    #[test]
    fn a_round_with_refused_requests_decides_nothing() {
        let mut refusing = line(CLASSIC, "burst", 40_000, 0);
        refusing["groups"][0]["refused"] = 7.into();
        let claim = claims_of(&records(std::slice::from_ref(&refusing))).remove(0);
        assert!(claim.figure.ends_with("; 1 round without it: it had 503s from a full queue"), "{claim:?}");
        assert_eq!(claim.verdict, ClaimVerdict::Undecided);
        let both = records(&[refusing, line(&format!("debug/{CLASSIC}"), "burst", 40_000, 0)]);
        let claims = claims_of(&both);
        assert_eq!((claims.len(), claims[0].verdict), (1, ClaimVerdict::Confirmed), "no server in Go took part");
        assert!(claims[0].figure.starts_with("errors: 0 in 1 round; "), "{claims:?}");
    }
}
