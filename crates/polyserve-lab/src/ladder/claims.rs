//! What was published of the ladder, held against what was measured.
//!
//! The published claims are warp's, so they are judged on warp; what the same step does to our servers stands beside, and
//! decides nothing.
//!
//! * A gain is confirmed where the rung is faster than what it is held against, beyond noise, and its interval reaches the
//!   published gain; refuted where the interval and the noise lie below that.
//! * No gain is confirmed where the interval and the noise lie below the smallest gain that was published as one; refuted
//!   where the rung is faster.
//! * A loss is confirmed where the rung is slower, beyond noise, and its interval reaches the published loss; refuted where
//!   the interval and the noise lie above that.
//!
//! Anything else is undecided, and so is everything with fewer than ten rounds.

use serde_json::Value;

use super::record::{Ratio, Recorded};
use super::table::{FASTHTTP, shown};
use crate::claims::Claim;
use crate::statistics::Verdict;

const EXPERIMENT: &str = "ladder";
/// Whose ladder was published.
const WARP: &str = "warp";
/// The smallest gain that was published as one: jemalloc's.
const SMALLEST_GAIN: f64 = 1.018;

/// What is claimed of a ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Says {
    /// At least about so much.
    Gain(f64),
    /// None.
    NoGain,
    /// Down to about so much.
    Loss(f64),
}

/// The claims, each with its verdict.
///
/// # Errors
///
/// Where a line is not what its kind says.
pub fn claims(lines: &[Value]) -> anyhow::Result<Vec<Claim>> {
    let recorded = Recorded::of(lines)?;
    let step = |claim: &str, step: &str, says: Says| of_step(&recorded, claim, step, says);
    let never = |claim: &str, why: &str| Claim::new(EXPERIMENT, claim, None, why.to_owned());
    let mut flush = step("Flushing pipelined answers together gives warp 3.8 %.", "pipeline-flush", Says::Gain(1.038));
    if recorded.pipeline == 1 {
        let why = "one request was sent at a time, so there was nothing to gather".to_owned();
        flush = Claim::new(EXPERIMENT, &flush.claim, None, why);
    }
    Ok(vec![
        step("Optimisation at link time (LTO) gives warp 5 %.", "lto", Says::Gain(1.05)),
        step("jemalloc gives warp 1.8 %.", "jemalloc", Says::Gain(1.018)),
        flush,
        never(
            "tokio's array of wakers, left uninitialised, gives warp 2.8 %.",
            "it has been part of tokio since, so there is no rung without it",
        ),
        top(&recorded),
        never(
            "aHash for the names of headers gives nothing.",
            "the http crate lets nobody choose the hash, and our codec hashes no names",
        ),
        step("Fewer readings of the clock for the Date header give nothing.", "date-cache", Says::NoGain),
        step("Building for the processor at hand (target-cpu=native) costs warp 10 %.", "target-cpu", Says::Loss(0.9)),
    ])
}

/// What `step` does to warp, and to the others.
fn of_step(recorded: &Recorded, claim: &str, step: &str, says: Says) -> Claim {
    let ratio = |subject: &str| {
        let rung = recorded.rung(subject, step)?;
        recorded.throughput(&rung.name, &held_against(recorded, subject, rung.below.as_deref()?, step)?)
    };
    let own = ratio(WARP);
    let others = recorded.subjects().into_iter().filter(|subject| *subject != WARP);
    let others: Vec<String> = others.filter_map(|subject| Some(figure(subject, &ratio(subject)?))).collect();
    let own_figure = own.map_or_else(|| wanting(recorded, step), |ratio| figure(WARP, &ratio));
    let figures: Vec<String> = std::iter::once(own_figure).chain(others).collect();
    Claim::new(EXPERIMENT, claim, own.and_then(|ratio| holds(&ratio, says)), figures.join("; "))
}

/// The name of the rung that `step` is held against: the one below; for LTO as a whole the one without any.
fn held_against(recorded: &Recorded, subject: &str, below: &str, step: &str) -> Option<String> {
    if step != "lto" {
        return Some(below.to_owned());
    }
    recorded.rungs(subject).find(|rung| rung.below.is_none()).map(|rung| rung.name.clone())
}

/// The highest rung of warp beside fasthttp.
fn top(recorded: &Recorded) -> Claim {
    let claim = "With all steps warp does 3.7 % more than Go's fasthttp.";
    let highest = recorded.rungs(WARP).filter(|rung| !rung.aside && recorded.has_figures(&rung.name)).last();
    let beside = highest.and_then(|rung| Some((rung, recorded.throughput(&rung.name, FASTHTTP)?)));
    match beside {
        Some((rung, ratio)) => {
            Claim::new(EXPERIMENT, claim, holds(&ratio, Says::Gain(1.037)), figure(&rung.name, &ratio))
        }
        None => {
            let reference = recorded.not_run.iter().find(|one| one.name == FASTHTTP);
            let why = reference.map_or_else(|| wanting(recorded, "top"), |one| format!("{FASTHTTP}: {}", one.why));
            Claim::new(EXPERIMENT, claim, None, why)
        }
    }
}

/// Whether what is said of a ratio holds; `None` where that cannot be told.
fn holds(Ratio { estimate, band, verdict }: &Ratio, says: Says) -> Option<bool> {
    let (low, high) = (estimate.interval.low.min(band.low), estimate.interval.high.max(band.high));
    let (confirmed, refuted) = match (says, verdict) {
        (_, Verdict::TooFewRounds) => return None,
        (Says::Gain(gain), _) => (*verdict == Verdict::Faster && estimate.interval.high >= gain, high < gain),
        (Says::NoGain, _) => (*verdict != Verdict::Faster && high < SMALLEST_GAIN, *verdict == Verdict::Faster),
        (Says::Loss(loss), _) => (*verdict == Verdict::Slower && estimate.interval.low <= loss, low > loss),
    };
    if confirmed { Some(true) } else { refuted.then_some(false) }
}

fn figure(who: &str, Ratio { estimate, verdict, .. }: &Ratio) -> String {
    let rounds =
        if *verdict == Verdict::TooFewRounds { format!(", only {} rounds", estimate.rounds) } else { String::new() };
    format!("{who} {}{rounds}", shown(estimate))
}

/// Why there is no figure of warp's.
fn wanting(recorded: &Recorded, step: &str) -> String {
    let is_warp = |name: &str| name == WARP || name.starts_with("warp+");
    let failed = recorded.failed.iter().find(|one| is_warp(&one.name)).map(|one| format!("{}: {}", one.name, one.why));
    let not_run = recorded.not_run.iter().find(|one| is_warp(&one.name));
    let why = failed.or_else(|| not_run.map(|one| format!("{}: {}", one.name, one.why)));
    why.unwrap_or_else(|| format!("the rungs for {step} of warp were not measured"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Verdict as Said;
    use crate::ladder::made_up::{cell, contestant};
    use serde_json::json;

    /// A made-up ladder: `lto`, `flush`, `date` and `native` are what these steps multiply by; `spread` is noise.
    fn lines(rounds: usize, [lto, flush, date, native]: [f64; 4], spread: f64) -> Vec<Value> {
        let mut lines = vec![
            contestant("warp", "rung", None, None),
            contestant("warp (again)", "control", None, None),
            contestant("warp+lto", "rung", Some("lto"), Some("warp")),
            contestant("warp+lto+pipeline-flush", "rung", Some("pipeline-flush"), Some("warp+lto")),
            contestant("warp+date", "rung", Some("date-cache"), Some("warp+lto+pipeline-flush")),
            contestant("warp+native", "rung", Some("target-cpu"), Some("warp+date")),
            contestant("go-fasthttp", "reference", None, None),
        ];
        for round in 1..=rounds {
            // Everybody's noise is another; a multiplicative hash scatters it.
            let noise = |phase: usize| {
                let hash = ((round * 31 + phase) as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
                1.0 + spread * (hash as f64 / (1 << 23) as f64 - 1.0)
            };
            let mut speed = 1000.0;
            lines.push(cell("warp", round, speed * noise(0)));
            lines.push(cell("warp (again)", round, speed * noise(1)));
            for (phase, (name, by)) in
                [("warp+lto", lto), ("warp+lto+pipeline-flush", flush), ("warp+date", date), ("warp+native", native)]
                    .into_iter()
                    .enumerate()
            {
                speed *= by;
                lines.push(cell(name, round, speed * noise(phase + 2)));
            }
            lines.push(cell("go-fasthttp", round, 1000.0 * noise(6)));
        }
        lines
    }

    fn judged(lines: &[Value], word: &str) -> Claim {
        let all = claims(lines).unwrap();
        assert_eq!(all.len(), 8);
        all.into_iter().find(|claim| claim.claim.contains(word)).unwrap()
    }

    #[test]
    fn what_is_measured_as_published_is_confirmed() {
        let lines = lines(12, [1.05, 1.04, 1.0, 0.88], 0.005);
        for word in ["(LTO)", "Flushing", "clock", "native", "fasthttp"] {
            let claim = judged(&lines, word);
            assert_eq!(claim.verdict, Said::Confirmed, "{claim:?}");
        }
        assert!(judged(&lines, "(LTO)").figure.starts_with("warp 1.05"));
    }

    #[test]
    fn what_is_measured_otherwise_is_refuted() {
        let lines = lines(12, [1.01, 1.0, 1.06, 1.0], 0.005);
        for word in ["(LTO)", "Flushing", "clock", "native"] {
            let claim = judged(&lines, word);
            assert_eq!(claim.verdict, Said::Refuted, "{claim:?}");
        }
        let slower = super::tests::lines(12, [0.9, 1.0, 1.0, 1.0], 0.005);
        assert_eq!(judged(&slower, "fasthttp").verdict, Said::Refuted);
    }

    #[test]
    fn what_the_data_cannot_tell_is_undecided() {
        let few = lines(9, [1.05, 1.04, 1.0, 0.88], 0.005);
        let noisy = lines(12, [1.05, 1.04, 1.0, 0.9], 0.3);
        for lines in [&few, &noisy] {
            for word in ["(LTO)", "Flushing", "clock", "native"] {
                assert_eq!(judged(lines, word).verdict, Said::Undecided, "{word}");
            }
        }
        assert!(judged(&few, "(LTO)").figure.contains("only 9 rounds"));
        for claim in claims(&[]).unwrap() {
            assert!(claim.verdict == Said::Undecided && !claim.figure.is_empty(), "{claim:?}");
        }
    }

    #[test]
    fn who_is_not_there_is_named() {
        let mut lines = lines(12, [1.05, 1.04, 1.0, 0.88], 0.005);
        lines.retain(|line| line["name"] != "go-fasthttp");
        lines
            .push(json!({"kind": "not_run", "name": "go-fasthttp", "role": "reference", "why": "go is not installed"}));
        lines.push(json!({"kind": "failure", "name": "warp+lto", "round": 3, "why": "it died"}));
        assert!(judged(&lines, "fasthttp").figure.contains("go is not installed"));
        let claim = judged(&lines, "(LTO)");
        assert_eq!((claim.verdict, claim.figure.as_str()), (Said::Undecided, "warp+lto: it died"));
        assert!(judged(&lines, "jemalloc").figure.contains("it died"));
    }
}
