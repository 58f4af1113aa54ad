//! The verdicts on the published claims.
//!
//! The published claims are about warp, so they are judged by the figures of warp. The figure of a claim also has the ratios
//! of our servers for the same step; they decide nothing.
//!
//! * A claim of a size is two-sided. Its equivalence interval reaches from 0.5 times to 1.5 times the published
//!   difference. It is confirmed if the rung differs from the rung below by more than noise, and the interval of the
//!   ratio is wholly in the equivalence interval. It is refuted if the interval of the ratio, with the noise, is wholly
//!   outside.
//! * A claim of no gain is confirmed if the interval and the noise lie below the smallest published gain. It is refuted
//!   if the rung is faster.
//!
//! Any other claim is undecided. So is every claim with fewer than ten rounds, or with another load than the published
//! one: 1 000 connections, with one request at a time on each.
//!
//! The claims share one error of 5 %, by the procedure of Holm. The printed intervals are those of 5 % for each.
//!
//! The server is not the bottleneck if the client's cores were at least as busy as [`BUSY`], or the server's cores were
//! less busy. Then servers seem more alike than they are: a claim is refuted if the measured difference is already too
//! large, and otherwise undecided.

use polyserve_lab::compare::ranking::BUSY;
use polyserve_lab::statistics::{Interval, MIN_ROUNDS, Verdict};
use polyserve_report::Claim;
use polyserve_report::figures::counted;

use super::NAME;
use super::record::RungEntry;
use super::results::{PUBLISHED_CONNECTIONS, Ratio, Results};
use super::rung::BuildSettings;
use super::table::{FASTHTTP, shown};
use crate::error_budget::sharing;

/// The subject of the published ladder.
const WARP: &str = "warp";
/// The highest rung, in place of the name of a step.
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

impl Claimed {
    /// The published ratio, and the ratios that count as equal.
    fn published(self) -> String {
        match self {
            Self::About(about) => {
                let Interval { low, high } = Interval::equal_to(about);
                format!("{about:.3}; equal from {low:.3} to {high:.3}")
            }
            Self::NoGain => format!("no gain: confirmed below {SMALLEST_GAIN}, refuted if faster beyond the noise"),
        }
    }
}

/// The claims, each with its verdict.
pub fn claims(results: &Results) -> Vec<Claim> {
    let step = |claim: &'static str, step: &'static str, claimed: Claimed| -> Box<dyn Fn(f64) -> Claim + '_> {
        Box::new(move |error| of_step(results, claim, step, claimed, error))
    };
    let claims = [
        step("Optimisation at link time (LTO) makes warp 5 % faster.", "lto", Claimed::About(1.05)),
        step("jemalloc makes warp 1.8 % faster.", "jemalloc", Claimed::About(1.018)),
        step("Flushing pipelined answers together makes warp 3.8 % faster.", "pipeline-flush", Claimed::About(1.038)),
        step(
            "tokio's array of wakers, left uninitialised, makes warp 2.8 % faster: so initialising it costs 2.7 %.",
            "waker-array",
            Claimed::About(1.0 / 1.028),
        ),
        Box::new(|error| top(results, error)),
        step("aHash for the names of headers gains nothing.", "header-hash", Claimed::NoGain),
        step("Fewer readings of the clock for the Date header gain nothing.", "clock-reads", Claimed::NoGain),
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
    let verdict = pair(WARP).and_then(|(rung, baseline)| judged(results, WARP, [rung, &baseline], claimed, error));
    let (holds, warp_figure) = verdict.unwrap_or_else(|| (None, reason_without_figure(results, step)));
    let others = results.subjects().into_iter().filter(|subject| *subject != WARP);
    let others = others.filter_map(|subject| {
        let (rung, baseline) = pair(subject)?;
        Some(figure(subject, &results.throughput(rung, &baseline)?))
    });
    let figures: Vec<String> = std::iter::once(warp_figure).chain(others).collect();
    Claim::new(NAME, claim, holds, figures.join("; ")).with_published(claimed.published())
}

/// The name of the rung that `step` is compared with: the rung below, or the lowest rung for link-time optimisation.
fn compared_with(results: &Results, subject: &str, below: &str, step: &str) -> Option<String> {
    if step != "lto" {
        return Some(below.to_owned());
    }
    results.rungs(subject).find(|rung| rung.below.is_none()).map(|rung| rung.name.clone())
}

/// The claim about fasthttp and the highest rung of warp without our own steps. The claim is undecided if the rung
/// lacks a published step that can still be set.
fn top(results: &Results, error: f64) -> Claim {
    let claimed = Claimed::About(1.037);
    let claim = |holds, figure| {
        Claim::new(NAME, "With all steps warp does 3.7 % more than Go's fasthttp.", holds, figure)
            .with_published(claimed.published())
    };
    let lowest = BuildSettings::lowest();
    let has_ours = |settings: &BuildSettings| settings.codegen_units != lowest.codegen_units || settings.date_cache;
    let is_published = |rung: &&RungEntry| !rung.aside && !rung.settings.as_ref().is_some_and(has_ours);
    let highest = results.rungs(WARP).filter(|rung| is_published(rung) && results.has_figures(&rung.name)).last();
    let verdict = highest.and_then(|rung| {
        let name = rung.name.as_str();
        Some((rung.settings.as_ref(), judged(results, name, [name, FASTHTTP], claimed, error)?))
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
    claim(None, format!("{figure}; not all steps: without {}", lacking.join(", ")))
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
    let [rung, baseline] = pair;
    let (ratio, at_error) = (results.throughput(rung, baseline)?, results.throughput_at(rung, baseline, error)?);
    let cost = results.cost(rung, baseline).map(|cost| format!("; for each CPU second {}", shown(&cost.estimate)));
    let (holds, figure) = (holds(&at_error, claimed), figure(name, &ratio) + &cost.unwrap_or_default());
    if results.pipeline > 1 {
        let why =
            format!("{} requests were sent at once, and the published load sends one at a time", results.pipeline);
        return Some((None, format!("{figure} ({why})")));
    }
    if let Some(connections) = results.connections.filter(|connections| *connections != PUBLISHED_CONNECTIONS) {
        let why = format!("over {connections} connections, and the published load has {PUBLISHED_CONNECTIONS}");
        return Some((None, format!("{figure} ({why})")));
    }
    let Some(why) = other_limit(results, pair) else { return Some((holds, figure)) };
    let refuted = exceeds(&at_error, claimed).then_some(false);
    Some((refuted, format!("{figure} ({why}, so a difference may be hidden)")))
}

/// Returns why something other than the server may limit a throughput of the pair.
fn other_limit(results: &Results, pair: [&str; 2]) -> Option<String> {
    pair.into_iter().find_map(|name| match (results.client_busy(name), results.server_busy(name)) {
        (Some(client), _) if client >= BUSY => {
            Some(format!("the client's cores were busy for {:.1} % of {name}'s time", client * 100.0))
        }
        (_, Some(server)) if server < BUSY => {
            Some(format!("the cores of {name} were busy for {:.1} % only", server * 100.0))
        }
        (_, None) => Some(format!("how busy the cores of {name} were is not known")),
        _ => None,
    })
}

/// Whether a claim about a ratio holds; `None` if it is undecided.
fn holds(ratio: &Ratio, claimed: Claimed) -> Option<bool> {
    let Ratio { estimate, band, verdict } = ratio;
    if estimate.rounds < MIN_ROUNDS {
        return None;
    }
    if exceeds(ratio, claimed) {
        return Some(false);
    }
    let interval = &estimate.interval;
    let (low, high) = (interval.low.min(band.low), interval.high.max(band.high));
    let (confirmed, refuted) = match claimed {
        Claimed::About(about) => {
            let Interval { low: least, high: most } = Interval::equal_to(about);
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
        Claimed::About(about) if about > 1.0 => {
            *verdict == Verdict::Faster && interval.low > Interval::equal_to(about).high
        }
        Claimed::About(about) => *verdict == Verdict::Slower && interval.high < Interval::equal_to(about).low,
        Claimed::NoGain => *verdict == Verdict::Faster,
    }
}

fn figure(name: &str, Ratio { estimate, .. }: &Ratio) -> String {
    let rounds = match estimate.rounds {
        rounds if rounds < MIN_ROUNDS => format!(", only {}", counted(rounds as u64, "round")),
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
mod tests;
