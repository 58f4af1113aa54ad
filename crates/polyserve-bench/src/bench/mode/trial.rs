//! The mode `trial`: repeated comparisons of a contestant with itself. A server compared with itself must seldom be different, and a
//! server that is slowed on purpose must be slower.
//!
//! A turn is a whole [comparison](crate::bench::ranking): its own rounds, with the contestant as the baseline, again as the control,
//! and once more as the one that is judged. Comparisons that stop when they are sure must also be quick: half of the planned
//! rounds must be enough for most of them.
//!
//! Invariant: a trial that is incomplete, or in which no comparison has a verdict, has not passed. Cost: a comparison for each
//! contestant, cell and round.

use std::time::Duration;

use polyserve::Shutdown;
use serde::{Deserialize, Serialize};

use super::requests::{self, CellPlan, RequestSettings, RequestTurns};
use super::{ModeKind, Turns, check_slowed, check_times};
use crate::Misuse;
use crate::bench::NAME;
use crate::bench::definition::{Definition, time};
use crate::bench::experiment::{BenchPlan, CellEntries, DefinedExperiment, Key, Sample};
use crate::bench::figures::{self, NamedFigures};
use crate::bench::pattern::{ContestantOrigin, Pattern};
use crate::bench::ranking::{self, Intervals, Ranking};
use crate::bench::sweep::{SweepAxis, SweepCell};
use crate::experiment::{Absence, Notebook, Records, again, distinct, run_with};
use crate::journal::{Header, Journal};
use crate::machine::Environment;
use crate::progress::Progress;
use crate::report::{Table, or_empty};
use crate::statistics::{Compared, MIN_ROUNDS, Verdict, median_of};
use crate::turn::{Contestant, Role};

#[cfg(test)]
mod tests;

/// The max share of comparisons in which a server is called different from itself.
const MAX_FALSE_SHARE: f64 = 0.05;
/// The min share of comparisons in which a slowed server is called slower.
const MIN_FOUND_SHARE: f64 = 0.8;

/// The max share of the planned rounds that the median comparison with a slowed server takes, if it stops when it is sure. An
/// early end that saves less is not worth its wider intervals.
const MAX_ROUNDS_SHARE: f64 = 0.5;

/// Comparisons of a contestant with itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrialMode {
    /// The percentage of CPU time per request that the judged copy wastes; `None` if it is the same as the baseline.
    pub slowed: Option<f64>,
    /// The number of rounds of a comparison; the max number if it stops when it is sure.
    pub comparison_rounds: usize,
    /// Whether a comparison ends as soon as its verdict is certain, by intervals that hold after any number of rounds.
    pub stops_when_sure: bool,
    /// The measured time of a contestant in a round of a comparison.
    #[serde(deserialize_with = "time")]
    pub slice: Duration,
    /// The time for verification and warm-up.
    #[serde(deserialize_with = "time")]
    pub warm_up: Duration,
}

impl Default for TrialMode {
    fn default() -> Self {
        Self {
            slowed: None,
            comparison_rounds: 50,
            stops_when_sure: false,
            slice: Duration::from_millis(200),
            warm_up: Duration::from_millis(60),
        }
    }
}

impl TrialMode {
    /// The closed loop.
    pub(crate) fn requests(&self) -> RequestSettings {
        let Self { slice, warm_up, .. } = *self;
        RequestSettings { warm_up, slice, latency_slice: slice / 2, rate: None, latency: false }
    }

    pub(super) fn check(&self, definition: &Definition) -> Result<(), Misuse> {
        if definition.sweep.contains_key(&SweepAxis::RatePercent) {
            return Err(definition.misuse("rate_percent", "a trial does not measure the null server"));
        }
        if self.comparison_rounds < MIN_ROUNDS {
            let why = format!("a comparison needs {MIN_ROUNDS} or more: fewer decide nothing");
            return Err(definition.misuse("comparison_rounds", why));
        }
        check_slowed(definition, self.slowed)?;
        let is_of_catalog = |pattern: &Pattern| pattern.origin == ContestantOrigin::Catalog;
        if self.slowed.is_some() && !definition.contestants.iter().all(is_of_catalog) {
            return Err(definition.misuse("slowed", "only a server of the catalog can be slowed"));
        }
        check_times(definition, [("slice", self.slice), ("warm_up", self.warm_up)])
    }

    /// The comparison of a contestant with itself.
    fn comparison(&self, contestant: &Contestant, plan: &CellPlan) -> DefinedExperiment {
        let name = &contestant.name;
        let (judged, role) = match self.slowed {
            Some(percent) => (format!("{name} (slowed {percent} %)"), Role::Slowed(percent)),
            None => (format!("{name} (same)"), Role::Ranked),
        };
        let entries = [(name.clone(), Role::Baseline), (again(name), Role::Same), (judged, role)];
        let entries = entries.map(|(name, role)| Contestant { name, role, ..contestant.clone() });
        let contestants: Vec<String> = entries.iter().map(|one| one.name.clone()).collect();
        let (cell, instrument) = (SweepCell::new(), plan.instrument.clone());
        let cells = vec![CellEntries { cell: cell.clone(), contestants: contestants.clone() }];
        let plan = CellPlan { cell, contestants: entries.into(), instrument, rate: None, latency: false };
        let turns = RequestTurns::new(vec![plan], None).stopping_when_sure(self.stops_when_sure);
        let plan = BenchPlan {
            name: name.clone(),
            mode: ModeKind::Compare,
            compared: figures::REQUESTS_PER_S.to_owned(),
            contestants,
            baseline: name.clone(),
            rounds: self.comparison_rounds,
            ..BenchPlan::default()
        };
        DefinedExperiment::new(plan, cells, Vec::new(), Box::new(turns))
    }

    /// How the rounds of a comparison are judged.
    fn intervals(&self, seed: u64) -> Intervals {
        if self.stops_when_sure { Intervals::AnyRounds } else { Intervals::FixedRounds { seed } }
    }
}

/// Contestants that are compared with themselves.
#[derive(Debug)]
pub struct TrialTurns {
    /// The settings.
    pub mode: TrialMode,
    /// The cells and their contestants, each once.
    pub cells: Vec<CellPlan>,
    /// The environment of the measurement.
    pub environment: Environment,
    /// The shutdown that the first signal begins.
    pub stop: Shutdown,
}

impl Turns for TrialTurns {
    fn measure_one(&mut self, key: &Key, notebook: &mut Notebook<'_>) -> Result<Sample, Absence> {
        let (plan, contestant) = requests::planned(&self.cells, key)?;
        let mut comparison = self.mode.comparison(contestant, plan);
        // Each comparison has its own resamples.
        let seed = self.environment.seed.wrapping_add(key.round as u64);
        let environment = Environment { seed, ..self.environment.clone() };
        let header = Header::new(NAME, comparison.describe(), environment);
        let (mut journal, mut progress) = (Journal::none(), Progress::hidden());
        let records = run_with(&mut comparison, &header, &mut journal, &mut progress, &self.stop);
        let failed = |error: anyhow::Error| Absence::failed(error.to_string());
        let records = records.map_err(failed)?;
        if let Some((key, Absence { reason, why })) = records.absences().next() {
            return Err(Absence { reason: *reason, why: format!("{}: {why}", key.contestant) });
        }
        let entries = ranking::entries(&records, &comparison.plan.contestants, &SweepCell::new()).map_err(failed)?;
        let ranking = Ranking::new(&entries, None, self.mode.intervals(seed), None);
        let row = ranking.rows.iter().find(|row| matches!(row.role, Role::Ranked | Role::Slowed(_)));
        let (throughput, cost) = row.map_or((None, None), |row| (row.throughput, row.cost));
        if let (Some(Compared { estimate, verdict, .. }), Some(band)) = (throughput, ranking.bands.throughput) {
            let (ratio, interval) = (estimate.ratio, estimate.interval);
            notebook.progress.print_line(&format!("{key}: {ratio:.3} {interval}, band {band}: {verdict:?}"));
        }
        Ok(Sample { role: Role::Ranked, figures: figures_of(throughput, cost) })
    }
}

/// The verdicts in a sample: 1 for more than the baseline, -1 for less, 0 for a tie. If too few rounds decided nothing, there is a
/// ratio and no verdict.
fn figures_of(throughput: Option<Compared>, cost: Option<Compared>) -> NamedFigures {
    let verdict = |compared: Option<Compared>| match compared?.verdict {
        Verdict::Faster => Some(1.0),
        Verdict::Slower => Some(-1.0),
        Verdict::Tie => Some(0.0),
        Verdict::TooFewRounds => None,
    };
    let all = [
        (figures::THROUGHPUT_RATIO, throughput.map(|compared| compared.estimate.ratio)),
        (THROUGHPUT_VERDICT, verdict(throughput)),
        (COST_RATIO, cost.map(|compared| compared.estimate.ratio)),
        (COST_VERDICT, verdict(cost)),
        (ROUNDS, throughput.map(|compared| compared.estimate.rounds as f64)),
    ];
    figures::known(all).collect()
}

const THROUGHPUT_VERDICT: &str = "throughput_verdict";
const COST_RATIO: &str = "cost_ratio";
const COST_VERDICT: &str = "cost_verdict";
const ROUNDS: &str = "comparison_rounds";

/// The verdicts of one trial.
#[derive(Debug, Default)]
struct TrialTally {
    comparisons: usize,
    faster: usize,
    slower: usize,
    tie: usize,
    too_few_rounds: usize,
}

impl TrialTally {
    /// Counts a comparison, if it has a ratio.
    fn count(&mut self, sample: &Sample, ratio: &str, verdict: &str) {
        if !sample.figures.contains_key(ratio) {
            return;
        }
        self.comparisons += 1;
        *match sample.figures.get(verdict) {
            None => &mut self.too_few_rounds,
            Some(verdict) if *verdict > 0.0 => &mut self.faster,
            Some(verdict) if *verdict < 0.0 => &mut self.slower,
            Some(_) => &mut self.tie,
        } += 1;
    }

    fn share(&self, count: usize) -> f64 {
        if self.comparisons == 0 { 0.0 } else { count as f64 / self.comparisons as f64 }
    }
}

/// The comparisons of a contestant at a cell.
#[derive(Debug)]
struct Trial {
    name: String,
    times: usize,
    mode: TrialMode,
    /// The median number of rounds of a comparison.
    median_rounds: Option<f64>,
    throughput: TrialTally,
    cost: TrialTally,
}

impl Trial {
    /// Returns true if no comparison is missing, and enough of the verdicts on throughput are right.
    fn is_passed(&self) -> bool {
        let TrialTally { comparisons, slower, faster, too_few_rounds, .. } = self.throughput;
        if comparisons != self.times || too_few_rounds == comparisons {
            return false;
        }
        match self.mode.slowed {
            None => self.throughput.share(slower + faster) <= MAX_FALSE_SHARE,
            Some(_) => self.throughput.share(slower) >= MIN_FOUND_SHARE && self.is_quick(),
        }
    }

    /// Returns false if comparisons that stop when they are sure take too many rounds to find a slowed server.
    fn is_quick(&self) -> bool {
        let max = self.mode.comparison_rounds as f64 * MAX_ROUNDS_SHARE;
        !self.mode.stops_when_sure || self.median_rounds.is_some_and(|median| median <= max)
    }
}

/// The result of all trials of a run.
#[derive(Debug)]
pub(crate) struct TrialResult {
    trials: Vec<Trial>,
    interrupted: bool,
}

impl TrialResult {
    /// The result of a record.
    pub(crate) fn of(plan: &BenchPlan, records: &Records) -> anyhow::Result<Self> {
        let mode: TrialMode = plan.mode_settings()?;
        let trial = |(contestant, cell): (&String, &SweepCell)| {
            let own = || records.samples().filter(|(key, _)| key.contestant == *contestant && key.cell == *cell);
            let (mut throughput, mut cost) = (TrialTally::default(), TrialTally::default());
            for (_, sample) in own() {
                throughput.count(sample, figures::THROUGHPUT_RATIO, THROUGHPUT_VERDICT);
                cost.count(sample, COST_RATIO, COST_VERDICT);
            }
            let median_rounds = median_of(own().filter_map(|(_, sample)| sample.figures.get(ROUNDS).copied()));
            let place: String = cell.iter().map(|(axis, value)| format!(", {axis} {value}")).collect();
            let name = format!("{contestant}{place}");
            Trial { name, times: plan.rounds, mode: mode.clone(), median_rounds, throughput, cost }
        };
        let cells = distinct(records.samples().map(|(key, _)| (&key.contestant, &key.cell)));
        Ok(Self { trials: cells.into_iter().map(trial).collect(), interrupted: records.is_interrupted() })
    }

    /// Whether all trials have passed. An interrupted run lacks comparisons.
    pub(crate) fn is_passed(&self) -> bool {
        !self.interrupted && !self.trials.is_empty() && self.trials.iter().all(Trial::is_passed)
    }

    /// The answer in a sentence.
    pub(crate) fn answer(&self) -> String {
        let late = self
            .trials
            .iter()
            .find(|trial| trial.mode.slowed.is_some() && trial.median_rounds.is_some() && !trial.is_quick());
        if let Some(late) = late {
            let max = late.mode.comparison_rounds as f64 * MAX_ROUNDS_SHARE;
            return format!(
                "FAILED: a comparison that stops when it is sure should find this difference in {max:.0} rounds."
            );
        }
        match self.is_passed() {
            true => String::from("Passed: comparisons like these can be relied on."),
            false => String::from("FAILED: do not rely on comparisons like these."),
        }
    }

    /// The verdicts, counted.
    pub(crate) fn table(&self) -> Table {
        let header = ["contestant", "comparisons", "slower", "tie", "faster", "too few rounds", "median rounds"];
        let mut table = Table::of_numbers(&header);
        for trial in &self.trials {
            let kind = match trial.mode.slowed {
                None => String::from("the same"),
                Some(percent) => format!("slowed by {percent} %"),
            };
            for (figure, tally) in [("throughput", &trial.throughput), ("cost", &trial.cost)] {
                let counts = [tally.comparisons, tally.slower, tally.tie, tally.faster, tally.too_few_rounds];
                let rounds = or_empty(trial.median_rounds.map(|rounds| format!("{rounds:.0}")));
                let cells = [format!("{}, {kind}, {figure}", trial.name)].into_iter();
                table.row(cells.chain(counts.map(|count| count.to_string())).chain([rounds]).collect());
            }
        }
        table
    }
}
