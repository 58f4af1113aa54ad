//! The published claims on tasks at once, each judged by a rule. The module `rules` has the rules.
//!
//! A claim on 8 cores is judged per core: `c` cores can gain a profit of at most `1 - 1/c`. The figure of a claim is
//! always printed. Its verdict is undecided in these cases:
//!
//! * A task alone took less than [`MIN_TASK_MS`], or worked for less than [`MIN_WORK_PCT`] of that time.
//! * A task alone took [`MAX_DRIFT_PCT`] more or less at the end than at the start.
//! * Other processes used more than [`MAX_OTHERS_PCT`] of the cores' time meanwhile.
//!
//! An observation is a single run. So a claim on one number of tasks is judged by the median over at least
//! [`MIN_OBSERVATIONS`] neighbouring numbers. A figure near a threshold decides nothing.

mod cells;
mod published_figures;
mod rules;

use polyserve_lab::claim::sharing;
use polyserve_report::Claim;

pub use self::cells::MIN_OBSERVATIONS;
use self::published_figures::PublishedFigures;
use self::rules::{Judge, Judged};
pub use self::rules::{MAX_DRIFT_PCT, MAX_OTHERS_PCT, MIN_TASK_MS, MIN_WORK_PCT, NEAR, NEAR_SHARE, SMALLER};
use super::measured::Measured;
use super::published::{GO, GO_GC_OFF};
use super::runner::STD_THREADS;

/// The claims, judged by what was `measured`.
///
/// # Errors
///
/// Returns an error if a published file cannot be read.
pub fn verdicts(measured: &Measured) -> anyhow::Result<Vec<Claim>> {
    let judge = Judge {
        measured,
        cores: measured.plan.as_ref().map_or(1, |plan| plan.core_count),
        rust: measured.all_at_once(STD_THREADS),
        go: measured.all_at_once(GO),
    };
    let published = PublishedFigures::read()?;
    let judged = [
        (
            "running CPU tasks at once gains a profit of about 80 % on 8 cores in both languages",
            judge.profit(),
            Some(published.profit),
        ),
        (
            "40 tasks at once take as long as 5.8 single tasks in Go and as 7.7 in Rust, on 8 cores, where 5 are ideal",
            judge.total_of_40(published.totals_to_ideal),
            Some(published.total_of_40),
        ),
        ("at full load 25 % of the tasks' time is work and 75 % overhead", judge.overhead(), Some(published.cost)),
        (
            "the total duration grows linearly once the cores are used up, without steps",
            judge.linear(),
            Some(published.totals),
        ),
        ("Rust's mean duration flattens after about 20 tasks", judge.flat(), Some(published.rust_means)),
        ("Go starts all tasks at once, Rust in order", judge.starts(), None),
        ("Go runs 9 to 11 threads on 8 cores, Rust one more than there are tasks", judge.threads(), None),
        ("batches of 8 are no faster than all tasks at once", judge.series(), None),
        (
            "a task makes 8.3 times as many steps a second in Rust as in Go: 367 million and 44 million",
            judge.steps_per_second(),
            Some(published.steps_per_second),
        ),
        ("Go's mean duration grows linearly", judge.go_is_linear(), Some(published.go_means)),
        ("tasks run in parallel, up to the number of cores", judge.parallel(), None),
    ];
    let claim = |(claim, (holds, figure), published): (&str, Judged, Option<String>)| Claim {
        published,
        ..Claim::new("tasks", claim, holds, figure)
    };
    let mut claims: Vec<Claim> = judged.map(claim).into();
    let predictable = [
        (
            "Rust's schedule, without a garbage collector, is more predictable than Go's",
            judge.more_predictable(STD_THREADS, GO),
        ),
        ("Go's schedule is more predictable without its garbage collector", judge.more_predictable(GO_GC_OFF, GO)),
    ];
    let at_error = predictable.map(|(claim, judged)| -> Box<dyn Fn(f64) -> Claim + '_> {
        Box::new(move |error| {
            let (holds, figure) = judged(error);
            Claim::new("tasks", claim, holds, figure)
        })
    });
    let place = claims.len() - 1;
    let predictable = sharing(&at_error, claims.len());
    claims.splice(place..place, predictable);
    Ok(claims)
}

#[cfg(test)]
pub(super) mod tests;
