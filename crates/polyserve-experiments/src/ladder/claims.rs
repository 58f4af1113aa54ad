//! The verdicts on the published claims.
//!
//! The published claims are about warp, so they are judged by the figures of warp. The figure of a claim also has the ratios
//! of our servers for the same step; they decide nothing.
//!
//! * A claim of a size is two-sided. It has an equivalence interval: from half of the published difference to one and a half
//!   times it. It is confirmed if the rung differs from the rung below, beyond noise, and the whole interval of its ratio is in
//!   the equivalence interval. It is refuted if the ratio's interval, with the noise, is wholly outside.
//! * No gain is confirmed if the interval and the noise lie below the smallest published gain. It is refuted if the rung is
//!   faster.
//!
//! Any other claim is undecided, and so is every claim with fewer than ten rounds, or with more than one request at once on a
//! connection: the published load sends one.
//!
//! The claims share one error of 5 %, by the procedure of Holm. The printed intervals are those of 5 % for each.
//!
//! The server is not the bottleneck if the client's cores were at least as busy as [`BUSY`], or the server's cores were less
//! busy. Such servers seem more alike than they are: then a claim is refuted if the measured difference is already too large, and undecided otherwise.

use polyserve_lab::compare::ranking::BUSY;
use polyserve_lab::statistics::{Interval, Verdict};
use polyserve_report::Claim;
use polyserve_report::figures::counted;

use super::NAME;
use super::results::{Ratio, Results};
use super::rung::BuildSettings;
use super::table::{FASTHTTP, shown};
use crate::error_budget::sharing;

/// The subject of the published ladder.
const WARP: &str = "warp";
/// In place of a step: the highest rung.
const TOP: &str = "top";
/// The smallest published gain: that of jemalloc.
const SMALLEST_GAIN: f64 = 1.018;

/// A claim about a ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Claimed {
    /// The ratio is about this: a gain above 1, a loss below.
    About(f64),
    /// The ratio is not above 1.
    NoGain,
}

/// The claims, each with its verdict.
pub fn claims(results: &Results) -> Vec<Claim> {
    let step = |claim: &'static str, step: &'static str, claimed: Claimed| -> Box<dyn Fn(f64) -> Claim + '_> {
        Box::new(move |error| of_step(results, claim, step, claimed, error))
    };
    let claims = [
        step("Optimisation at link time (LTO) gives warp 5 %.", "lto", Claimed::About(1.05)),
        step("jemalloc gives warp 1.8 %.", "jemalloc", Claimed::About(1.018)),
        step("Flushing pipelined answers together gives warp 3.8 %.", "pipeline-flush", Claimed::About(1.038)),
        step(
            "tokio's array of wakers, left uninitialised, gives warp 2.8 %: so initialising it costs 2.7 %.",
            "waker-array",
            Claimed::About(1.0 / 1.028),
        ),
        Box::new(|error| top(results, error)),
        step("aHash for the names of headers gives nothing.", "header-hash", Claimed::NoGain),
        step("Fewer readings of the clock for the Date header give nothing.", "clock-reads", Claimed::NoGain),
        step(
            "Building for the processor at hand (target-cpu=native) costs warp 10 %.",
            "target-cpu",
            Claimed::About(0.9),
        ),
    ];
    sharing(&claims, 0)
}

/// The claim about `step`: the verdict by warp, with the figures of all subjects.
fn of_step(results: &Results, claim: &str, step: &str, claimed: Claimed, error: f64) -> Claim {
    let pair = |subject: &str| {
        let rung = results.rung(subject, step)?;
        Some((rung.name.as_str(), compared_with(results, subject, rung.below.as_deref()?, step)?))
    };
    let own = pair(WARP).and_then(|(own, other)| judged(results, WARP, [own, &other], claimed, error));
    let (holds, own) = own.unwrap_or_else(|| (None, reason_without_figure(results, step)));
    let others = results.subjects().into_iter().filter(|subject| *subject != WARP);
    let others = others.filter_map(|subject| {
        let (own, other) = pair(subject)?;
        Some(figure(subject, &results.throughput(own, &other)?))
    });
    let figures: Vec<String> = std::iter::once(own).chain(others).collect();
    Claim::new(NAME, claim, holds, figures.join("; "))
}

/// The name of the rung that `step` is compared with: the rung below, or the lowest rung for link-time optimisation.
fn compared_with(results: &Results, subject: &str, below: &str, step: &str) -> Option<String> {
    if step != "lto" {
        return Some(below.to_owned());
    }
    results.rungs(subject).find(|rung| rung.below.is_none()).map(|rung| rung.name.clone())
}

/// The claim about warp's highest rung and fasthttp. A rung has all steps if it has all published steps that can still be
/// set. Its other steps are ours.
fn top(results: &Results, error: f64) -> Claim {
    let claim =
        |holds, figure| Claim::new(NAME, "With all steps warp does 3.7 % more than Go's fasthttp.", holds, figure);
    let highest = results.rungs(WARP).filter(|rung| !rung.aside && results.has_figures(&rung.name)).last();
    let verdict = highest.and_then(|rung| {
        let name = rung.name.as_str();
        Some((rung.settings.as_ref(), judged(results, name, [name, FASTHTTP], Claimed::About(1.037), error)?))
    });
    let Some((settings, (holds, figure))) = verdict else {
        let reference = results.not_run.iter().find(|absent| absent.name == FASTHTTP);
        let why = reference.map(|absent| format!("{FASTHTTP}: {}", absent.why));
        let why = why.unwrap_or_else(|| reason_without_figure(results, TOP));
        return claim(None, why);
    };
    let lacking = lacking(settings);
    if lacking.is_empty() {
        return claim(holds, figure);
    }
    claim(None, format!("{figure}; that is not with all steps, but without {}", lacking.join(", ")))
}

/// The published steps that can still be set and that `settings` do not have.
fn lacking(settings: Option<&BuildSettings>) -> Vec<&'static str> {
    let has = |step: fn(&BuildSettings) -> bool| settings.is_some_and(step);
    [
        (has(|settings| settings.lto == "fat"), "lto"),
        (has(|settings| settings.allocator == "jemalloc"), "jemalloc"),
        (has(|settings| settings.pipeline_flush), "pipeline-flush"),
    ]
    .into_iter()
    .filter_map(|(has, step)| (!has).then_some(step))
    .collect()
}

/// Whether a claim about a pair holds at this error, and the figure under `name`; `None` if one of the two has no figures.
fn judged(
    results: &Results,
    name: &str,
    pair: [&str; 2],
    claimed: Claimed,
    error: f64,
) -> Option<(Option<bool>, String)> {
    let [own, other] = pair;
    let (ratio, at_error) = (results.throughput(own, other)?, results.throughput_at(own, other, error)?);
    let cost = results.cost(own, other).map(|cost| format!(", for each CPU second {}", shown(&cost.estimate)));
    let (holds, figure) = (holds(&at_error, claimed), figure(name, &ratio) + &cost.unwrap_or_default());
    if results.pipeline > 1 {
        let why =
            format!("{} requests were sent at once, and the published load sends one at a time", results.pipeline);
        return Some((None, format!("{figure} ({why})")));
    }
    let Some(why) = hidden(results, pair) else { return Some((holds, figure)) };
    let refuted = exceeds(&at_error, claimed).then_some(false);
    Some((refuted, format!("{figure} ({why}, so a difference may be hidden)")))
}

/// Why the throughput of one of the two may be limited by more than the server.
fn hidden(results: &Results, pair: [&str; 2]) -> Option<String> {
    pair.into_iter().find_map(|name| {
        let client = results.busy(name, |sample| Some((sample.client_cpu_s, sample.client_idle_s?)));
        let server = results.busy(name, |sample| sample.server_cpu_s.zip(sample.server_idle_s));
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

/// Whether a claim about a ratio holds; `None` if it is undecided.
fn holds(ratio: &Ratio, claimed: Claimed) -> Option<bool> {
    let Ratio { estimate, band, verdict } = ratio;
    if *verdict == Verdict::TooFewRounds {
        return None;
    }
    if exceeds(ratio, claimed) {
        return Some(false);
    }
    let interval = &estimate.interval;
    let (low, high) = (interval.low.min(band.low), interval.high.max(band.high));
    let (confirmed, refuted) = match claimed {
        Claimed::About(about) => {
            let Interval { low: least, high: most } = equivalent(about);
            let differs = *verdict == if about > 1.0 { Verdict::Faster } else { Verdict::Slower };
            (differs && interval.low >= least && interval.high <= most, high < least || low > most)
        }
        Claimed::NoGain => (high < SMALLEST_GAIN, false),
    };
    if confirmed { Some(true) } else { refuted.then_some(false) }
}

/// Whether the difference is larger than claimed, beyond noise.
fn exceeds(Ratio { estimate, verdict, .. }: &Ratio, claimed: Claimed) -> bool {
    let interval = &estimate.interval;
    match claimed {
        Claimed::About(about) if about > 1.0 => *verdict == Verdict::Faster && interval.low > equivalent(about).high,
        Claimed::About(about) => *verdict == Verdict::Slower && interval.high < equivalent(about).low,
        Claimed::NoGain => *verdict == Verdict::Faster,
    }
}

/// The equivalence interval of a published ratio.
fn equivalent(about: f64) -> Interval {
    let [half, more] = [0.5, 1.5].map(|share| 1.0 + (about - 1.0) * share);
    Interval { low: half.min(more), high: half.max(more) }
}

fn figure(name: &str, Ratio { estimate, verdict, .. }: &Ratio) -> String {
    let rounds = match verdict {
        Verdict::TooFewRounds => format!(", only {}", counted(estimate.rounds as u64, "round")),
        _ => String::new(),
    };
    format!("{name} {}{rounds}", shown(estimate))
}

/// Why there is no figure of warp.
fn reason_without_figure(results: &Results, step: &str) -> String {
    let is_warp = |name: &str| name == WARP || name.starts_with("warp+");
    let failed = results.failed.iter().find(|failed| is_warp(&failed.key.name));
    let failed = failed.map(|failed| format!("{}: {}", failed.key.name, failed.why));
    let is_of_step = |name: &str| step == TOP || name.ends_with(&format!("+{step}"));
    let not_run = results.not_run.iter().find(|absent| is_warp(&absent.name) && is_of_step(&absent.name));
    let why = failed.or_else(|| not_run.map(|absent| format!("{}: {}", absent.name, absent.why)));
    why.unwrap_or_else(|| match step {
        TOP => format!("warp or {FASTHTTP} was not measured"),
        _ => format!("the rung {step} of warp was not measured"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::fixtures::{cell, contestant, results};
    use polyserve_report::Verdict as Decision;
    use serde_json::{Value, json};

    /// A rung of warp with all published steps.
    fn with_all_steps(name: &str, step: &str, below: &str) -> Value {
        let (lto, allocator) = (String::from("fat"), String::from("jemalloc"));
        let settings = BuildSettings { lto, allocator, pipeline_flush: true, ..BuildSettings::lowest() };
        let mut line = contestant(name, "rung", Some(step), Some(below));
        line["settings"] = serde_json::to_value(settings).unwrap();
        line
    }

    /// A made-up ladder. `lto`, `flush`, `clock` and `native` are the factors of these steps; `spread` is the noise.
    /// The hash has the factor of the clock; the wakers have 0.27 of the loss of `native`.
    fn lines(rounds: usize, [lto, flush, clock, native]: [f64; 4], spread: f64) -> Vec<Value> {
        let mut lines = vec![
            contestant("warp", "rung", None, None),
            contestant("warp (again)", "control", None, None),
            contestant("warp+lto", "rung", Some("lto"), Some("warp")),
            contestant("warp+lto+pipeline-flush", "rung", Some("pipeline-flush"), Some("warp+lto")),
            with_all_steps("warp+clock", "clock-reads", "warp+lto+pipeline-flush"),
            contestant("warp+native", "rung", Some("target-cpu"), Some("warp+clock")),
            contestant("warp+wakers", "rung", Some("waker-array"), Some("warp+clock")),
            contestant("warp+hash", "rung", Some("header-hash"), Some("warp+clock")),
            contestant("go-fasthttp", "reference", None, None),
        ];
        for round in 1..=rounds {
            // A multiplicative hash scatters the noise: it differs between contestants.
            let noise = |phase: usize| {
                let hash = ((round * 31 + phase) as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
                1.0 + spread * (hash as f64 / (1 << 23) as f64 - 1.0)
            };
            let mut speed = 1000.0;
            lines.push(cell("warp", round, speed * noise(0)));
            lines.push(cell("warp (again)", round, speed * noise(1)));
            for (phase, (name, by)) in
                [("warp+lto", lto), ("warp+lto+pipeline-flush", flush), ("warp+clock", clock), ("warp+native", native)]
                    .into_iter()
                    .enumerate()
            {
                speed *= by;
                lines.push(cell(name, round, speed * noise(phase + 2)));
            }
            let top = 1000.0 * lto * flush * clock;
            lines.push(cell("warp+wakers", round, top * (1.0 - 0.27 * (1.0 - native)) * noise(7)));
            lines.push(cell("warp+hash", round, top * clock * noise(8)));
            // With all steps as published, warp does 3.7 % more.
            lines.push(cell("go-fasthttp", round, 1053.0 * noise(6)));
        }
        lines
    }

    fn about(lines: &[Value], word: &str) -> Claim {
        let all = claims(&results(lines));
        assert_eq!(all.len(), 8);
        all.into_iter().find(|claim| claim.claim.contains(word)).unwrap()
    }

    #[test]
    fn what_is_measured_as_published_is_confirmed() {
        let lines = lines(12, [1.05, 1.04, 1.0, 0.88], 0.005);
        for word in ["(LTO)", "Flushing", "clock", "native", "fasthttp", "wakers", "aHash"] {
            let claim = about(&lines, word);
            assert_eq!(claim.verdict, Decision::Confirmed, "{claim:?}");
        }
        assert!(about(&lines, "(LTO)").figure.starts_with("warp 1.05"));
    }

    #[test]
    fn what_is_measured_otherwise_is_refuted() {
        let lines = lines(12, [1.01, 1.0, 1.06, 1.0], 0.005);
        for word in ["(LTO)", "Flushing", "clock", "native", "wakers", "aHash"] {
            let claim = about(&lines, word);
            assert_eq!(claim.verdict, Decision::Refuted, "{claim:?}");
        }
        let slower = super::tests::lines(12, [0.9, 1.0, 1.0, 1.0], 0.005);
        assert_eq!(about(&slower, "fasthttp").verdict, Decision::Refuted);
    }

    /// Regression test: any gain above the published one confirmed it, such as 243 % for 3.8 %.
    #[test]
    fn a_difference_that_is_too_large_is_refuted() {
        for (factors, word) in [
            ([1.2, 1.04, 1.0, 0.88], "(LTO)"),
            ([1.05, 3.43, 1.0, 0.88], "Flushing"),
            ([1.05, 1.04, 1.0, 0.7], "native"),
            ([1.05, 1.04, 1.0, 0.7], "wakers"),
            ([1.05, 1.75, 1.0, 0.88], "fasthttp"),
        ] {
            let claim = about(&lines(12, factors, 0.005), word);
            assert_eq!(claim.verdict, Decision::Refuted, "{claim:?}");
        }
        let near = about(&lines(12, [1.075, 1.04, 1.0, 0.88], 0.005), "(LTO)");
        assert_eq!(near.verdict, Decision::Undecided, "the end of the equivalence interval: {near:?}");
    }

    #[test]
    fn what_the_data_cannot_tell_is_undecided() {
        let few = lines(9, [1.05, 1.04, 1.0, 0.88], 0.005);
        let noisy = lines(12, [1.05, 1.04, 1.0, 0.9], 0.3);
        for lines in [&few, &noisy] {
            for word in ["(LTO)", "Flushing", "clock", "native", "wakers", "aHash"] {
                assert_eq!(about(lines, word).verdict, Decision::Undecided, "{word}");
            }
        }
        assert!(about(&few, "(LTO)").figure.contains("only 9 rounds"));
        for claim in claims(&results(&[])) {
            assert!(claim.verdict == Decision::Undecided && !claim.figure.is_empty(), "{claim:?}");
        }
    }

    /// The published load sends one request at a time.
    #[test]
    fn what_is_measured_with_several_requests_at_once_is_undecided() {
        let mut results = results(&lines(12, [1.05, 1.04, 1.0, 0.88], 0.005));
        results.pipeline = 16;
        for claim in claims(&results) {
            assert_eq!(claim.verdict, Decision::Undecided, "{claim:?}");
            assert!(claim.claim.contains("jemalloc") || claim.figure.contains("16 requests"), "{claim:?}");
        }
    }

    /// If something else than the server limits the throughput, all servers seem equally fast.
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
            let large = bound([1.2, 1.2, 1.2, 0.7]);
            for word in four {
                let claim = about(&alike, word);
                assert!(claim.verdict == Decision::Undecided && claim.figure.contains(why), "{claim:?}");
                let wanted = if word == "clock" { Decision::Refuted } else { Decision::Undecided };
                assert_eq!(about(&different, word).verdict, wanted, "it may be larger than it seems: {word}");
                assert_eq!(about(&large, word).verdict, Decision::Refuted, "it is too large in any case: {word}");
            }
            let claim = about(&bound([0.9, 1.0, 1.0, 1.0]), "fasthttp");
            assert!(claim.verdict == Decision::Undecided && claim.figure.contains(why), "{claim:?}");
        }
        let mut unknown = lines(12, [1.0; 4], 0.005);
        for cell in unknown.iter_mut().filter(|line| line["kind"] == "cell" && line["name"] == "go-fasthttp") {
            cell["server_idle_s"] = Value::Null;
        }
        let claim = about(&unknown, "fasthttp");
        assert!(
            claim.verdict == Decision::Undecided && claim.figure.contains("go-fasthttp were is not known"),
            "{claim:?}"
        );
        assert_eq!(about(&unknown, "(LTO)").verdict, Decision::Refuted, "only fasthttp is not known");
    }

    #[test]
    fn the_top_has_every_published_step() {
        for (setting, other, step) in [
            ("lto", json!("thin"), "lto"),
            ("allocator", json!("system"), "jemalloc"),
            ("pipeline_flush", json!(false), "pipeline-flush"),
        ] {
            let mut lines = lines(12, [1.05, 1.04, 1.0, 0.88], 0.005);
            let top = lines.iter_mut().find(|line| line["name"] == "warp+clock").unwrap();
            top["settings"][setting] = other;
            let claim = about(&lines, "fasthttp");
            assert_eq!(claim.verdict, Decision::Undecided, "{claim:?}");
            assert!(claim.figure.starts_with("warp+clock 1.0") && claim.figure.ends_with(&format!("without {step}")));
        }
        assert_eq!(lacking(None), ["lto", "jemalloc", "pipeline-flush"]);
    }

    #[test]
    fn an_absent_contestant_is_named() {
        let mut lines = lines(12, [1.05, 1.04, 1.0, 0.88], 0.005);
        lines.retain(|line| line["name"] != "go-fasthttp");
        lines
            .push(json!({"kind": "not_run", "name": "go-fasthttp", "role": "reference", "why": "go is not installed"}));
        lines.push(json!({"kind": "failure", "name": "warp+lto", "round": 3, "why": "it died"}));
        assert!(about(&lines, "fasthttp").figure.contains("go is not installed"));
        let claim = about(&lines, "(LTO)");
        assert_eq!((claim.verdict, claim.figure.as_str()), (Decision::Undecided, "warp+lto: it died"));
        assert!(about(&lines, "jemalloc").figure.contains("it died"));
    }
}
