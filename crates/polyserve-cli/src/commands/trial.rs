//! `polyserve trial`: whether comparisons can be believed. The same server beside itself must seldom be called
//! different, and one that is slowed on purpose must be called slower.

use std::fmt;
use std::process::ExitCode;

use polyserve::Shutdown;
use polyserve::catalog::Catalog;
use polyserve_lab::Misuse;
use polyserve_lab::compare::ranking::Compared;
use polyserve_lab::compare::{Comparison, Contestant, Record, Role};
use polyserve_lab::machine::cores::Cores;
use polyserve_lab::output::{print, print_json};
use polyserve_lab::progress::Progress;
use polyserve_lab::statistics::{LEAST_ROUNDS, Verdict};
use polyserve_report::Table;
use serde::Serialize;

use super::compare::PlanArgs;
use super::stop;

/// What `polyserve trial` is told.
#[derive(Debug, clap::Args)]
pub(crate) struct TrialArgs {
    /// So many comparisons of the baseline with itself.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    same: u32,
    /// So many comparisons of the baseline with the one that --slowed slows.
    #[arg(long, value_name = "M", default_value_t = 0, requires = "slowed", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    times: u32,
    #[command(flatten)]
    plan: PlanArgs,
}

/// What was said in so many comparisons of one kind.
#[derive(Debug, Default, Serialize)]
struct Tally {
    comparisons: usize,
    faster: usize,
    slower: usize,
    tie: usize,
    too_few_rounds: usize,
}

/// A kind of comparison, and what was said in it.
#[derive(Debug, Serialize)]
struct Trial {
    kind: &'static str,
    times: usize,
    slowed_percent: f64,
    throughput: Tally,
    cost: Tally,
}

/// What came of all.
#[derive(Debug, Serialize)]
struct Outcome {
    trials: Vec<Trial>,
    interrupted: bool,
    passed: bool,
}

/// The same may be called different in this share of comparisons, and what is slowed must be found in that share.
const MOST_FALSE: f64 = 0.1;
const LEAST_FOUND: f64 = 0.8;

impl Tally {
    fn count(&mut self, compared: Option<Compared>) {
        let Some(Compared { verdict, .. }) = compared else { return };
        self.comparisons += 1;
        *match verdict {
            Verdict::Faster => &mut self.faster,
            Verdict::Slower => &mut self.slower,
            Verdict::Tie => &mut self.tie,
            Verdict::TooFewRounds => &mut self.too_few_rounds,
        } += 1;
    }

    fn share(&self, count: usize) -> f64 {
        if self.comparisons == 0 { 0.0 } else { count as f64 / self.comparisons as f64 }
    }
}

impl Trial {
    /// Whether throughput, on which all verdicts rest first, was judged as often as was asked for, and well enough.
    fn passed(&self) -> bool {
        let Tally { comparisons, slower, faster, too_few_rounds, .. } = self.throughput;
        if comparisons != self.times || too_few_rounds > 0 {
            return false;
        }
        match self.kind {
            SAME => self.throughput.share(slower + faster) <= MOST_FALSE,
            _ => self.throughput.share(slower) >= LEAST_FOUND,
        }
    }
}

const SAME: &str = "same";
const SLOWED: &str = "slowed";

/// Runs the trials.
pub(crate) fn run(catalog: &Catalog, args: &TrialArgs, json: bool) -> anyhow::Result<ExitCode> {
    if args.same == 0 && args.times == 0 {
        return Err(Misuse(String::from("a trial needs --same N, or --slowed PERCENT --times M")).into());
    }
    if args.plan.rounds() < LEAST_ROUNDS {
        return Err(Misuse(format!("a trial needs --rounds {LEAST_ROUNDS} or more: fewer decide nothing")).into());
    }
    let stop = stop::on_signal()?;
    let percent = args.plan.slowed.unwrap_or(0.0);
    let mut trials = Vec::new();
    for (kind, times, slowed_percent) in [(SAME, args.same, 0.0), (SLOWED, args.times, percent)] {
        if times == 0 {
            continue;
        }
        let comparison = comparison(catalog, args, kind, &stop)?;
        let mut trial =
            Trial { kind, times: times as usize, slowed_percent, throughput: Tally::default(), cost: Tally::default() };
        repeat(&comparison, times, &stop, &mut trial)?;
        trials.push(trial);
    }
    let outcome = Outcome::of(trials, stop.is_begun());
    if json { print_json(&outcome) } else { print(&outcome.to_string()) }?;
    Ok(if outcome.passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The baseline, the baseline again, and the one that is judged; nobody else.
fn comparison(catalog: &Catalog, args: &TrialArgs, kind: &str, stop: &Shutdown) -> anyhow::Result<Comparison> {
    let mut plan = args.plan.clone();
    plan.slowed = plan.slowed.filter(|_| kind == SLOWED);
    let mut comparison = plan.comparison(catalog, &[], &Cores::available()?, stop)?;
    comparison.latency = false;
    comparison.refused.clear();
    comparison.contestants.retain(|one| !matches!(one.role, Role::Limit | Role::Ranked));
    if kind == SAME {
        let baseline = comparison.contestants.iter().find(|one| one.role == Role::Baseline).cloned();
        let same = baseline.map(|one| Contestant { name: format!("{} (same)", one.name), role: Role::Ranked, ..one });
        comparison.contestants.extend(same);
    }
    Ok(comparison)
}

fn repeat(comparison: &Comparison, times: u32, stop: &Shutdown, trial: &mut Trial) -> anyhow::Result<()> {
    let mut progress = Progress::of(comparison.turns() * times as usize);
    for time in 0..times {
        let comparison = Comparison { seed: comparison.seed.wrapping_add(time.into()), ..comparison.clone() };
        let ranking = comparison.run(&mut Record::none(), &mut progress)?;
        if stop.is_begun() {
            break;
        }
        if let Some(failed) = ranking.failed.first() {
            anyhow::bail!("{} failed: {}", failed.name, failed.why);
        }
        let judged = ranking.rows.iter().find(|row| matches!(row.role, Role::Ranked | Role::Slowed(_)));
        let Some(row) = judged else { continue };
        trial.throughput.count(row.throughput);
        trial.cost.count(row.cost);
        if let (Some(own), Some(band)) = (row.throughput, ranking.bands.throughput) {
            let Compared { estimate, verdict } = own;
            let (ratio, interval) = (estimate.ratio, estimate.interval);
            progress.say(&format!("{} of {times}: {ratio:.3} {interval}, band {band}: {verdict:?}", time + 1));
        }
    }
    progress.finish();
    Ok(())
}

impl Outcome {
    fn of(trials: Vec<Trial>, interrupted: bool) -> Self {
        // One that was ended early has not tried what it was asked to.
        let passed = !interrupted && !trials.is_empty() && trials.iter().all(Trial::passed);
        Self { trials, interrupted, passed }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::of_numbers(&["", "comparisons", "slower", "tie", "faster", "too few rounds"]);
        for trial in &self.trials {
            let name = match trial.kind {
                SAME => String::from("the same"),
                _ => format!("slowed by {} %", trial.slowed_percent),
            };
            for (figure, tally) in [("throughput", &trial.throughput), ("cost", &trial.cost)] {
                let counts = [tally.comparisons, tally.slower, tally.tie, tally.faster, tally.too_few_rounds];
                let cells = [format!("{name}, {figure}")].into_iter().chain(counts.map(|count| count.to_string()));
                table.row(cells.collect());
            }
        }
        write!(f, "{table}")?;
        if self.interrupted {
            writeln!(f, "ended early")?;
        }
        writeln!(f, "{}", if self.passed { "passed" } else { "FAILED: comparisons like these are not to be believed" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyserve_lab::statistics::{Estimate, Interval};

    fn tally(faster: usize, slower: usize, tie: usize, too_few: usize) -> Tally {
        let mut tally = Tally::default();
        let estimate = Estimate { ratio: 1.0, interval: Interval { low: 0.9, high: 1.1 }, rounds: 10 };
        let said = [Verdict::Faster, Verdict::Slower, Verdict::Tie, Verdict::TooFewRounds];
        for (count, verdict) in [faster, slower, tie, too_few].into_iter().zip(said) {
            (0..count).for_each(|_| tally.count(Some(Compared { estimate, verdict })));
        }
        tally.count(None);
        tally
    }

    fn trial(kind: &'static str, times: usize, throughput: Tally) -> Trial {
        Trial { kind, times, slowed_percent: 5.0, throughput, cost: Tally::default() }
    }

    #[test]
    fn an_instrument_that_sees_what_is_not_there_or_not_what_is_there_fails() {
        let passed =
            |kind, times, [faster, slower, tie]: [usize; 3]| trial(kind, times, tally(faster, slower, tie, 0)).passed();
        assert!(passed(SAME, 100, [5, 5, 90]) && !passed(SAME, 100, [5, 6, 89]));
        assert!(passed(SLOWED, 20, [0, 16, 4]) && !passed(SLOWED, 20, [0, 15, 5]));
        assert!(!passed(SLOWED, 20, [20, 0, 0]) && !passed(SLOWED, 20, [0, 0, 0]));
    }

    #[test]
    fn a_trial_that_has_not_tried_what_it_was_asked_to_fails() {
        assert!(!trial(SAME, 10, tally(0, 0, 0, 0)).passed(), "nothing was compared");
        assert!(!trial(SAME, 10, tally(0, 0, 9, 0)).passed(), "a comparison is missing");
        assert!(!trial(SAME, 10, tally(0, 0, 0, 10)).passed(), "nothing was decided");
        assert!(!trial(SLOWED, 10, tally(0, 9, 0, 1)).passed(), "one was not decided");
        let done = || vec![trial(SAME, 10, tally(0, 0, 10, 0))];
        assert!(Outcome::of(done(), false).passed && !Outcome::of(done(), true).passed, "ended early");
        assert!(!Outcome::of(Vec::new(), false).passed);
    }
}
