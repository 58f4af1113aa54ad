//! Trials of comparisons. A server compared with itself must seldom be different, and a server that is slowed on purpose
//! must be slower.
//!
//! Comparisons that stop when they are sure must also be quick: half of the planned rounds must be enough for most of them.
//!
//! Invariant: a trial that is incomplete, or in which no comparison has a verdict, has not passed. Cost: that of the comparisons,
//! one for each cell.

use std::fmt;

use crate::report::{Summary, Table, or_empty};
use polyserve::Shutdown;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::compare::ranking::STOPS_WHEN_SURE;
use crate::compare::{Comparison, Role};
use crate::experiment::{Absence, Experiment, Notebook, Plan, Records, run_with};
use crate::journal::{Header, Journal};
use crate::machine::Environment;
use crate::progress::Progress;
use crate::statistics::{Compared, Verdict, median_of};

/// The name of the experiment, its command and its record.
pub const NAME: &str = "trial";
/// The max share of comparisons in which a server is called different from itself.
const MAX_FALSE_SHARE: f64 = 0.05;
/// The min share of comparisons in which a slowed server is called slower.
const MIN_FOUND_SHARE: f64 = 0.8;

/// The max share of the planned rounds that the median comparison with a slowed server takes, if it stops when it is sure. An
/// early end that saves less is not worth its wider intervals.
const MAX_ROUNDS_SHARE: f64 = 0.5;

/// The kind of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialKind {
    /// The baseline is compared with itself.
    Same,
    /// The baseline is compared with itself, slowed.
    Slowed,
}

/// A comparison of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The trial.
    pub trial: TrialKind,
    /// The number of the comparison, from 1.
    pub number: u32,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.trial {
            TrialKind::Same => "the same",
            TrialKind::Slowed => "slowed",
        };
        write!(f, "{name}: comparison {}", self.number)
    }
}

/// The verdicts of a comparison.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The verdict on throughput.
    pub throughput: Option<Compared>,
    /// The verdict on cost.
    pub cost: Option<Compared>,
}

/// The comparisons of one kind.
#[derive(Debug)]
pub struct TrialPart {
    /// The kind.
    pub kind: TrialKind,
    /// The number of comparisons.
    pub times: u32,
    /// The baseline, the baseline again, and the contestant that is judged.
    pub comparison: Comparison,
}

/// Trials of one or both kinds.
#[derive(Debug)]
pub struct Trials {
    /// The kinds.
    pub parts: Vec<TrialPart>,
    /// The percentage of CPU time that the slowed server wastes.
    pub slowed_percent: f64,
    /// The environment of the measurement.
    pub environment: Environment,
    /// The shutdown that the first signal begins.
    pub stop: Shutdown,
}

/// The verdicts of one trial.
#[derive(Debug, Default, Serialize)]
pub struct TrialTally {
    comparisons: usize,
    faster: usize,
    slower: usize,
    tie: usize,
    too_few_rounds: usize,
}

/// The result of one trial.
#[derive(Debug, Serialize)]
pub struct Trial {
    kind: TrialKind,
    times: usize,
    slowed_percent: f64,
    /// The median number of rounds of a comparison.
    median_rounds: Option<f64>,
    /// The planned number of rounds, if comparisons stop when they are sure.
    most_rounds: Option<f64>,
    throughput: TrialTally,
    cost: TrialTally,
}

/// The result of all trials.
#[derive(Debug, Serialize)]
pub struct Report {
    trials: Vec<Trial>,
    interrupted: bool,
    passed: bool,
}

/// The description of a trial, in the record's header.
#[derive(Debug, Serialize, Deserialize)]
struct PlannedTrial {
    kind: TrialKind,
    times: u32,
    comparison: Value,
}

impl Experiment for Trials {
    const NAME: &'static str = NAME;
    const UNITS: &'static str = "comparisons";
    type Key = Key;
    type Sample = Sample;
    type Report = Report;

    fn describe(&self) -> Value {
        let planned = |part: &TrialPart| PlannedTrial {
            kind: part.kind,
            times: part.times,
            comparison: part.comparison.describe(),
        };
        json!({
            "trials": self.parts.iter().map(planned).collect::<Vec<_>>(),
            "slowed_percent": self.slowed_percent,
        })
    }

    fn plan(&self) -> Plan<Key> {
        let keys = |part: &TrialPart| {
            let trial = part.kind;
            (1..=part.times).map(move |number| Key { trial, number })
        };
        Plan::series(self.parts.iter().flat_map(keys))
    }

    fn measure(&mut self, key: &Key, notebook: &mut Notebook<'_, Self>) -> Result<Sample, Absence> {
        let part = self.parts.iter_mut().find(|part| part.kind == key.trial);
        let part = part.ok_or_else(|| Absence::failed(format!("{key} is not planned")))?;
        // Each comparison has its own resamples.
        let seed = self.environment.seed.wrapping_add(key.number.into());
        let environment = Environment { seed, ..self.environment.clone() };
        let header = Header::new(Comparison::NAME, part.comparison.describe(), environment);
        let (mut journal, mut progress) = (Journal::none(), Progress::hidden());
        let records = run_with(&mut part.comparison, &header, &mut journal, &mut progress, &self.stop);
        let ranking = records.and_then(|records| Comparison::report(&records));
        let ranking = ranking.map_err(|error| Absence::failed(error.to_string()))?;
        if let Some(failed) = ranking.failed.first() {
            return Err(Absence::new(format!("{}: {}", failed.key.name, failed.why), failed.wrong));
        }
        let row = ranking.rows.iter().find(|row| matches!(row.role, Role::Ranked | Role::Slowed(_)));
        let (throughput, cost) = row.map_or((None, None), |row| (row.throughput, row.cost));
        if let (Some(Compared { estimate, verdict, .. }), Some(band)) = (throughput, ranking.bands.throughput) {
            let (ratio, interval) = (estimate.ratio, estimate.interval);
            let times = part.times;
            notebook.progress.print_line(&format!("{key} of {times}: {ratio:.3} {interval}, band {band}: {verdict:?}"));
        }
        Ok(Sample { throughput, cost })
    }

    fn is_essential(&self, _: &Key) -> bool {
        true
    }

    fn report(records: &Records<Self>) -> anyhow::Result<Report> {
        let plan = &records.header.plan;
        let planned: Vec<PlannedTrial> = serde_json::from_value(plan["trials"].clone())?;
        let slowed_percent = plan["slowed_percent"].as_f64().unwrap_or(0.0);
        let trial = |PlannedTrial { kind, times, comparison }: PlannedTrial| {
            let (mut throughput, mut cost) = (TrialTally::default(), TrialTally::default());
            for (_, sample) in records.samples().filter(|(key, _)| key.trial == kind) {
                throughput.count(sample.throughput);
                cost.count(sample.cost);
            }
            let slowed_percent = if kind == TrialKind::Slowed { slowed_percent } else { 0.0 };
            let samples = records.samples().filter(|(key, _)| key.trial == kind).map(|(_, sample)| sample);
            let median_rounds = median_of(samples.filter_map(|sample| Some(sample.throughput?.estimate.rounds as f64)));
            let most_rounds = comparison["rounds"].as_f64().filter(|_| comparison[STOPS_WHEN_SURE] == true);
            Trial { kind, times: times as usize, slowed_percent, median_rounds, most_rounds, throughput, cost }
        };
        Ok(Report::of(planned.into_iter().map(trial).collect(), records.is_interrupted()))
    }

    fn summarize(_: &Records<Self>, report: &Report) -> anyhow::Result<Summary> {
        let tables = vec![("Verdicts of comparisons".to_owned(), report.table())];
        Ok(Summary { tables, ..Summary::default() })
    }

    fn is_passed(report: &Report) -> bool {
        report.interrupted || report.passed
    }
}

impl TrialTally {
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
    /// Returns true if no comparison is missing, and enough of the verdicts on throughput are right.
    fn is_passed(&self) -> bool {
        let TrialTally { comparisons, slower, faster, too_few_rounds, .. } = self.throughput;
        if comparisons != self.times || too_few_rounds == comparisons {
            return false;
        }
        match self.kind {
            TrialKind::Same => self.throughput.share(slower + faster) <= MAX_FALSE_SHARE,
            TrialKind::Slowed => self.throughput.share(slower) >= MIN_FOUND_SHARE && self.is_quick(),
        }
    }

    /// Returns false if comparisons that stop when they are sure take too many rounds to find a slowed server.
    fn is_quick(&self) -> bool {
        self.most_rounds.is_none_or(|max| self.median_rounds.is_some_and(|median| median <= max * MAX_ROUNDS_SHARE))
    }
}

impl Report {
    fn of(trials: Vec<Trial>, interrupted: bool) -> Self {
        // An interrupted run lacks comparisons.
        let passed = !interrupted && !trials.is_empty() && trials.iter().all(Trial::is_passed);
        Self { trials, interrupted, passed }
    }

    fn table(&self) -> Table {
        let header = ["contestant", "comparisons", "slower", "tie", "faster", "too few rounds", "median rounds"];
        let mut table = Table::of_numbers(&header);
        for trial in &self.trials {
            let name = match trial.kind {
                TrialKind::Same => String::from("the same"),
                TrialKind::Slowed => format!("slowed by {} %", trial.slowed_percent),
            };
            for (figure, tally) in [("throughput", &trial.throughput), ("cost", &trial.cost)] {
                let counts = [tally.comparisons, tally.slower, tally.tie, tally.faster, tally.too_few_rounds];
                let rounds = or_empty(trial.median_rounds.map(|rounds| format!("{rounds:.0}")));
                let cells = [format!("{name}, {figure}")].into_iter().chain(counts.map(|count| count.to_string()));
                table.row(cells.chain([rounds]).collect());
            }
        }
        table
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.table())?;
        for trial in self
            .trials
            .iter()
            .filter(|trial| trial.kind == TrialKind::Slowed && trial.median_rounds.is_some() && !trial.is_quick())
        {
            let max_rounds = or_empty(trial.most_rounds.map(|max| format!("{:.0}", max * MAX_ROUNDS_SHARE)));
            writeln!(f, "a comparison that stops when it is sure should find this difference in {max_rounds} rounds")?;
        }
        writeln!(f, "{}", if self.passed { "passed" } else { "FAILED: do not rely on comparisons like these" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::{Estimate, Interval};

    fn tally(faster: usize, slower: usize, tie: usize, too_few: usize) -> TrialTally {
        let mut tally = TrialTally::default();
        let estimate = Estimate { ratio: 1.0, interval: Interval { low: 0.9, high: 1.1 }, rounds: 10 };
        let verdicts = [Verdict::Faster, Verdict::Slower, Verdict::Tie, Verdict::TooFewRounds];
        for (count, verdict) in [faster, slower, tie, too_few].into_iter().zip(verdicts) {
            (0..count).for_each(|_| tally.count(Some(Compared { estimate, verdict, min_difference: None })));
        }
        tally.count(None);
        tally
    }

    fn trial(kind: TrialKind, times: usize, throughput: TrialTally) -> Trial {
        Trial {
            kind,
            times,
            slowed_percent: 5.0,
            median_rounds: Some(10.0),
            most_rounds: None,
            throughput,
            cost: TrialTally::default(),
        }
    }

    #[test]
    fn an_instrument_that_sees_what_is_not_there_or_not_what_is_there_fails() {
        let passed = |kind, times, [faster, slower, tie]: [usize; 3]| {
            trial(kind, times, tally(faster, slower, tie, 0)).is_passed()
        };
        assert!(passed(TrialKind::Same, 100, [2, 3, 95]) && !passed(TrialKind::Same, 100, [3, 3, 94]));
        assert!(passed(TrialKind::Slowed, 20, [0, 16, 4]) && !passed(TrialKind::Slowed, 20, [0, 15, 5]));
        assert!(!passed(TrialKind::Slowed, 20, [20, 0, 0]) && !passed(TrialKind::Slowed, 20, [0, 0, 0]));
    }

    /// A comparison that stops when it is sure must not take more than half of the rounds to find a difference.
    #[test]
    fn an_early_end_that_comes_late_fails() {
        let of = |kind, median_rounds, most_rounds| {
            let found = if kind == TrialKind::Slowed { tally(0, 20, 0, 0) } else { tally(0, 0, 20, 0) };
            Trial { median_rounds: Some(median_rounds), most_rounds, ..trial(kind, 20, found) }
        };
        assert!(of(TrialKind::Slowed, 25.0, Some(50.0)).is_passed());
        assert!(!of(TrialKind::Slowed, 26.0, Some(50.0)).is_passed());
        assert!(of(TrialKind::Slowed, 50.0, None).is_passed(), "a fixed number of rounds");
        assert!(of(TrialKind::Same, 50.0, Some(50.0)).is_passed(), "equal servers take all rounds");
        let late = Report::of(vec![of(TrialKind::Slowed, 26.0, Some(50.0))], false).to_string();
        assert!(late.contains("in 25 rounds") && late.contains("FAILED"), "{late}");
    }

    #[test]
    fn an_incomplete_trial_fails() {
        assert!(!trial(TrialKind::Same, 10, tally(0, 0, 0, 0)).is_passed(), "nothing was compared");
        assert!(!trial(TrialKind::Same, 10, tally(0, 0, 9, 0)).is_passed(), "a comparison is missing");
        assert!(!trial(TrialKind::Same, 10, tally(0, 0, 0, 10)).is_passed(), "nothing was decided");
        assert!(trial(TrialKind::Slowed, 10, tally(0, 9, 0, 1)).is_passed(), "one comparison was not decided");
        assert!(!trial(TrialKind::Slowed, 10, tally(0, 7, 0, 3)).is_passed(), "three were not decided");
        let done = || vec![trial(TrialKind::Same, 10, tally(0, 0, 10, 0))];
        assert!(Report::of(done(), false).passed && !Report::of(done(), true).passed, "ended early");
        assert!(!Report::of(Vec::new(), false).passed);
    }
}
