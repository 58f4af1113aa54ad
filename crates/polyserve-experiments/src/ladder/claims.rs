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
//! Anything else is undecided, and so is everything with fewer than ten rounds. Where one of the two that are compared kept
//! the client's cores as busy as [`BUSY`], or its own less than that, something else than the server bounds it, and both look
//! alike: then a difference that is seen counts, and one that is not seen is undecided.

use polyserve_lab::compare::ranking::BUSY;
use polyserve_lab::statistics::Verdict;
use polyserve_report::Claim;
use serde_json::Value;

use super::record::{Ratio, Recorded};
use super::rung::Settings;
use super::table::{FASTHTTP, shown};

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
    let pair = |subject: &str| {
        let rung = recorded.rung(subject, step)?;
        Some((rung.name.as_str(), held_against(recorded, subject, rung.below.as_deref()?, step)?))
    };
    let own = pair(WARP).and_then(|(own, other)| beside(recorded, WARP, [own, &other], says));
    let (holds, own) = own.unwrap_or_else(|| (None, wanting(recorded, step)));
    let others = recorded.subjects().into_iter().filter(|subject| *subject != WARP);
    let others = others.filter_map(|subject| {
        let (own, other) = pair(subject)?;
        Some(figure(subject, &recorded.throughput(own, &other)?))
    });
    let figures: Vec<String> = std::iter::once(own).chain(others).collect();
    Claim::new(EXPERIMENT, claim, holds, figures.join("; "))
}

/// The name of the rung that `step` is held against: the one below; for LTO as a whole the one without any.
fn held_against(recorded: &Recorded, subject: &str, below: &str, step: &str) -> Option<String> {
    if step != "lto" {
        return Some(below.to_owned());
    }
    recorded.rungs(subject).find(|rung| rung.below.is_none()).map(|rung| rung.name.clone())
}

/// The highest rung of warp beside fasthttp. It has all steps where it has those that were published and can still be set;
/// what else it has is ours.
fn top(recorded: &Recorded) -> Claim {
    let claim = |holds, figure| {
        Claim::new(EXPERIMENT, "With all steps warp does 3.7 % more than Go's fasthttp.", holds, figure)
    };
    let highest = recorded.rungs(WARP).filter(|rung| !rung.aside && recorded.has_figures(&rung.name)).last();
    let said = highest.and_then(|rung| {
        let name = rung.name.as_str();
        Some((rung.settings.as_ref(), beside(recorded, name, [name, FASTHTTP], Says::Gain(1.037))?))
    });
    let Some((settings, (holds, figure))) = said else {
        let reference = recorded.not_run.iter().find(|one| one.name == FASTHTTP);
        let why = reference.map_or_else(|| wanting(recorded, "top"), |one| format!("{FASTHTTP}: {}", one.why));
        return claim(None, why);
    };
    let lacking = lacking(settings);
    if lacking.is_empty() {
        return claim(holds, figure);
    }
    claim(None, format!("{figure}; that is not with all steps, but without {}", lacking.join(", ")))
}

/// Which of the published steps that can still be set are not among these.
fn lacking(settings: Option<&Settings>) -> Vec<&'static str> {
    let has = |step: fn(&Settings) -> bool| settings.is_some_and(step);
    [
        (has(|settings| settings.lto == "fat"), "lto"),
        (has(|settings| settings.allocator == "jemalloc"), "jemalloc"),
        (has(|settings| settings.pipeline_flush), "pipeline-flush"),
    ]
    .into_iter()
    .filter_map(|(has, step)| (!has).then_some(step))
    .collect()
}

/// Whether what is said of one beside another holds, and the figure, in which the one is called `who`; `None` where there
/// is none.
fn beside(recorded: &Recorded, who: &str, pair: [&str; 2], says: Says) -> Option<(Option<bool>, String)> {
    let [own, other] = pair;
    let ratio = recorded.throughput(own, other)?;
    let (holds, figure) = (holds(&ratio, says), figure(who, &ratio));
    let Some(why) = hidden(recorded, pair) else { return Some((holds, figure)) };
    // A gain or a loss is seen where it holds; where there is said to be none, where that does not hold.
    let seen = says != Says::NoGain;
    Some((holds.filter(|holds| *holds == seen), format!("{figure} ({why}, so a difference may be hidden)")))
}

/// Why one of the two could not show all that it does.
fn hidden(recorded: &Recorded, pair: [&str; 2]) -> Option<String> {
    pair.into_iter().find_map(|name| {
        let client = recorded.busy(name, |cell| Some((cell.client_cpu_s, cell.client_idle_s?)));
        let server = recorded.busy(name, |cell| cell.server_cpu_s.zip(cell.server_idle_s));
        match (client, server) {
            (Some(client), _) if client >= BUSY => {
                Some(format!("the client's cores were busy for {:.1} % of {name}'s time", client * 100.0))
            }
            (_, Some(server)) if server < BUSY => {
                Some(format!("the cores of {name} were busy for {:.1} % only", server * 100.0))
            }
            (_, None) => Some(format!("how busy the cores of {name} were is not known")),
            _ => None,
        }
    })
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
    use crate::ladder::made_up::{cell, contestant};
    use polyserve_report::Verdict as Said;
    use serde_json::json;

    /// A rung of warp with all that was published.
    fn with_all_steps(name: &str, step: &str, below: &str) -> Value {
        let (lto, allocator) = (String::from("fat"), String::from("jemalloc"));
        let settings = Settings { lto, allocator, pipeline_flush: true, ..Settings::lowest() };
        let mut line = contestant(name, "rung", Some(step), Some(below));
        line["settings"] = serde_json::to_value(settings).unwrap();
        line
    }

    /// A made-up ladder: `lto`, `flush`, `date` and `native` are what these steps multiply by; `spread` is noise.
    fn lines(rounds: usize, [lto, flush, date, native]: [f64; 4], spread: f64) -> Vec<Value> {
        let mut lines = vec![
            contestant("warp", "rung", None, None),
            contestant("warp (again)", "control", None, None),
            contestant("warp+lto", "rung", Some("lto"), Some("warp")),
            contestant("warp+lto+pipeline-flush", "rung", Some("pipeline-flush"), Some("warp+lto")),
            with_all_steps("warp+date", "date-cache", "warp+lto+pipeline-flush"),
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

    /// What bounds all servers makes them alike.
    #[test]
    fn what_a_full_client_or_an_idle_server_may_hide_is_undecided() {
        let four = ["(LTO)", "Flushing", "clock", "native"];
        for (idle, seconds, why) in
            [("client_idle_s", json!(0.0), "client's"), ("server_idle_s", json!(0.1), "90.9 % only")]
        {
            let bound = |factors: [f64; 4]| {
                let mut lines = lines(12, factors, 0.005);
                for cell in lines.iter_mut().filter(|line| line["kind"] == "cell") {
                    cell[idle] = seconds.clone();
                }
                lines
            };
            let (alike, different) = (bound([1.0; 4]), bound([1.05, 1.04, 1.06, 0.88]));
            for word in four {
                let claim = judged(&alike, word);
                assert!(claim.verdict == Said::Undecided && claim.figure.contains(why), "{claim:?}");
                let wanted = if word == "clock" { Said::Refuted } else { Said::Confirmed };
                assert_eq!(judged(&different, word).verdict, wanted, "it is seen all the same: {word}");
            }
            let claim = judged(&bound([0.9, 1.0, 1.0, 1.0]), "fasthttp");
            assert!(claim.verdict == Said::Undecided && claim.figure.contains(why), "{claim:?}");
        }
        let mut unknown = lines(12, [1.0; 4], 0.005);
        for cell in unknown.iter_mut().filter(|line| line["kind"] == "cell" && line["name"] == "go-fasthttp") {
            cell["server_idle_s"] = Value::Null;
        }
        let claim = judged(&unknown, "fasthttp");
        assert!(
            claim.verdict == Said::Undecided && claim.figure.contains("go-fasthttp were is not known"),
            "{claim:?}"
        );
        assert_eq!(judged(&unknown, "(LTO)").verdict, Said::Refuted, "only fasthttp is not known");
    }

    #[test]
    fn the_top_has_every_published_step() {
        for (setting, other, step) in [
            ("lto", json!("thin"), "lto"),
            ("allocator", json!("system"), "jemalloc"),
            ("pipeline_flush", json!(false), "pipeline-flush"),
        ] {
            let mut lines = lines(12, [1.05, 1.04, 1.0, 0.88], 0.005);
            let top = lines.iter_mut().find(|line| line["name"] == "warp+date").unwrap();
            top["settings"][setting] = other;
            let claim = judged(&lines, "fasthttp");
            assert_eq!(claim.verdict, Said::Undecided, "{claim:?}");
            assert!(claim.figure.starts_with("warp+date 1.0") && claim.figure.ends_with(&format!("without {step}")));
        }
        assert_eq!(lacking(None), ["lto", "jemalloc", "pipeline-flush"]);
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
