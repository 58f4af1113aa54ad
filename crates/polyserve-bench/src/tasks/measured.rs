//! Everything that is recorded, in one value: single runs, observations and failures as the command's JSON lists them.

use crate::experiment::{Experiment, Records, distinct};
use crate::statistics::median;
use anyhow::Context as _;
use serde::Serialize;

use super::figures::Alone;
use super::record::{Calibration, CellTasks, Key, Observation, Sample, Sequence, TaskSettings, When, calibration_of};

/// A single run of a contestant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SingleRun {
    /// Before or after the observations.
    pub when: When,
    /// The number of the run, from 1.
    pub run: usize,
}

/// A task that ran alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Single {
    /// The contestant.
    pub contestant: String,
    /// Before or after the observations.
    pub when: When,
    /// The number of the run, from 1.
    pub run: usize,
    /// The duration of the task.
    pub duration_ms: f64,
    /// The CPU time of the task.
    pub cpu_ms: f64,
}

/// An observation: concurrent tasks of one contestant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredCell {
    /// The number of tasks.
    pub tasks: usize,
    /// The contestant.
    pub contestant: String,
    /// The size of the batches; 0 if all tasks are in one.
    pub series: usize,
    /// The measurement.
    #[serde(flatten)]
    pub observed: Observation,
}

/// The speed of a contestant: the steps per second of a task that runs alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Speed {
    /// The contestant.
    pub contestant: String,
    /// The number of steps of its tasks.
    pub steps: u64,
    /// The steps per second.
    pub steps_per_s: f64,
}

/// A contestant that has no figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MissingFigure {
    /// The contestant's name.
    pub contestant: String,
    /// The number of tasks; `None` if it was no observation.
    pub tasks: Option<usize>,
    /// The size of the batches; 0 if all tasks are in one.
    pub series: usize,
    /// The single run, if it was one.
    pub single: Option<SingleRun>,
    /// Why.
    pub why: String,
    /// Whether it did wrong. No later run tries it again.
    pub wrong: bool,
}

/// Everything that was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Measured {
    /// The settings of the run.
    pub plan: Option<TaskSettings>,
    /// The first calibration.
    pub calibration: Option<Calibration>,
    /// The calibration of each language.
    pub calibrations: Vec<Calibration>,
    /// The limits and last terms of the sequences.
    pub sequences: Vec<Sequence>,
    /// The single runs.
    pub singles: Vec<Single>,
    /// The observations.
    pub cells: Vec<MeasuredCell>,
    /// The contestants without figures, and why.
    pub failed: Vec<MissingFigure>,
    /// Whether a signal ended it.
    pub interrupted: bool,
}

impl Measured {
    /// Everything that is recorded. A contestant has one failure, the last; but a wrong answer stays.
    ///
    /// # Errors
    ///
    /// Returns an error if the header's plan or a fact does not have the fields of its kind.
    pub fn of<E: Experiment<Key = Key, Sample = Sample>>(records: &Records<E>) -> anyhow::Result<Self> {
        let plan = Some(serde_json::from_value(records.header.plan.clone()).context("the plan")?);
        let calibrations: Vec<Calibration> = records.facts("calibration")?;
        let calibration = calibrations.first().cloned();
        let (sequences, interrupted) = (records.facts("sequence")?, records.is_interrupted());
        let mut measured = Self { plan, calibration, calibrations, sequences, interrupted, ..Self::default() };
        for (Key { contestant, step }, sample) in records.samples() {
            let contestant = contestant.clone();
            match (*step, sample) {
                (CellTasks::Cell { tasks, series }, Sample::Cell(observation)) => {
                    let observed = observation.clone();
                    measured.cells.push(MeasuredCell { tasks, contestant, series, observed });
                }
                (CellTasks::Single { when, run }, Sample::Single { duration_ms, cpu_ms }) => {
                    let (duration_ms, cpu_ms) = (*duration_ms, *cpu_ms);
                    measured.singles.push(Single { contestant, when, run, duration_ms, cpu_ms });
                }
                (step, _) => anyhow::bail!("a sample of {step:?} does not have its fields"),
            }
        }
        for (Key { contestant, step }, absence) in records.absences() {
            let is_measured = measured.cells.iter().any(|cell| cell.contestant == *contestant);
            // It is available now.
            if *step == (CellTasks::All {}) && is_measured && !absence.is_wrong() {
                continue;
            }
            let (tasks, series, single) = match *step {
                CellTasks::Cell { tasks, series } => (Some(tasks), series, None),
                CellTasks::Single { when, run } => (None, 0, Some(SingleRun { when, run })),
                CellTasks::All {} => (None, 0, None),
            };
            let (contestant, why, wrong) = (contestant.clone(), absence.why.clone(), absence.is_wrong());
            measured.fail(MissingFigure { contestant, tasks, series, single, why, wrong });
        }
        measured.sort();
        Ok(measured)
    }

    /// Adds a failure. It replaces an earlier one of its contestant, but not a wrong answer.
    fn fail(&mut self, failed: MissingFigure) {
        match self.failed.iter_mut().find(|other| other.contestant == failed.contestant) {
            Some(other) if other.wrong => {}
            Some(other) => *other = failed,
            None => self.failed.push(failed),
        }
    }

    /// Sorts the observations by their number of tasks, then by contestant: a resumed run may have measured them in another
    /// order.
    fn sort(&mut self) {
        let names = self.plan.as_ref().map(|plan| plan.contestants.as_slice()).unwrap_or_default();
        let place = |name: &String| names.iter().position(|other| other == name);
        self.cells.sort_by_key(|cell| (cell.tasks, cell.series, place(&cell.contestant)));
        // The sequences of another language have the same terms and another number of steps.
        let steps = self.calibration.as_ref().map_or(0, |calibration| calibration.steps);
        self.sequences.retain(|sequence| [0, steps].contains(&sequence.steps));
        self.sequences.sort_by_key(|sequence| sequence.task);
    }

    /// The speed of a contestant's task alone; `None` without such runs.
    pub fn speed(&self, contestant: &str) -> Option<Speed> {
        let steps = calibration_of(&self.calibrations, contestant)?.steps;
        let seconds = self.alone(contestant, When::Before)?.d1_ms / 1000.0;
        Some(Speed { contestant: contestant.to_owned(), steps, steps_per_s: (steps as f64 / seconds).round() })
    }

    /// The speeds of all contestants that have single runs, in the order of the plan.
    pub fn speeds(&self) -> Vec<Speed> {
        let names = self.plan.as_ref().map(|plan| plan.contestants.as_slice()).unwrap_or_default();
        names.iter().filter_map(|name| self.speed(name)).collect()
    }

    /// Returns the duration and the CPU time of a contestant's task alone; `None` without single runs.
    pub fn alone(&self, contestant: &str, when: When) -> Option<Alone> {
        let singles = self.singles.iter().filter(|single| single.contestant == contestant && single.when == when);
        medians(singles.map(|single| (single.duration_ms, single.cpu_ms)))
    }

    /// The growth of the duration of a contestant's task from the start to the end, in percent.
    pub fn drift_pct(&self, contestant: &str) -> Option<f64> {
        let (before, after) = (self.alone(contestant, When::Before)?, self.alone(contestant, When::After)?);
        Some(100.0 * (after.d1_ms / before.d1_ms - 1.0))
    }

    /// The observation of a number of tasks.
    pub fn cell(&self, contestant: &str, tasks: usize, series: usize) -> Option<&MeasuredCell> {
        self.cells.iter().find(|cell| cell.tasks == tasks && cell.series == series && cell.contestant == contestant)
    }

    /// Returns a contestant's observations without batches, by the number of tasks.
    pub fn all_at_once(&self, contestant: &str) -> Vec<&MeasuredCell> {
        let mut cells: Vec<&MeasuredCell> =
            self.cells.iter().filter(|cell| cell.series == 0 && cell.contestant == contestant).collect();
        cells.sort_by_key(|cell| cell.tasks);
        cells
    }

    /// The mean share of the cores' time that other processes used during a contestant's observations; `None` if it is unknown.
    pub fn others(&self, contestant: &str) -> Option<f64> {
        let cells = self.cells.iter().filter(|cell| cell.contestant == contestant);
        let shares: Vec<f64> = cells.filter_map(|cell| cell.observed.others).collect();
        (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
    }

    /// The contestants that have observations, in their order.
    pub fn contestants(&self) -> Vec<&str> {
        distinct(self.cells.iter().map(|cell| cell.contestant.as_str()))
    }
}

/// Returns the duration and the CPU time of a contestant's task alone; `None` without single runs.
pub(super) fn alone<E>(records: &Records<E>, contestant: &str, when: When) -> Option<Alone>
where
    E: Experiment<Key = Key, Sample = Sample>,
{
    let is_single_run = |key: &Key| {
        key.contestant == contestant && matches!(key.step, CellTasks::Single { when: of, .. } if of == when)
    };
    let of_single = |(key, sample): (&Key, &Sample)| match sample {
        Sample::Single { duration_ms, cpu_ms } if is_single_run(key) => Some((*duration_ms, *cpu_ms)),
        _ => None,
    };
    medians(records.samples().filter_map(of_single))
}

/// The medians of durations and CPU times; `None` if there are none.
fn medians(runs: impl Iterator<Item = (f64, f64)>) -> Option<Alone> {
    let (mut durations, mut cpus): (Vec<f64>, Vec<f64>) = runs.unzip();
    (!durations.is_empty()).then(|| Alone { d1_ms: median(&mut durations), cpu1_ms: median(&mut cpus) })
}

#[cfg(test)]
mod tests {
    use super::super::claims::tests::{Simulated, failure_line, lines, measured};
    use super::*;
    use crate::tasks::figures::round;
    use crate::tasks::runner::{RAYON, STD_THREADS};
    use serde_json::Value;

    fn failure(tasks: Option<usize>, series: usize, single: Option<SingleRun>, wrong: bool) -> Value {
        failure_line(MissingFigure { contestant: STD_THREADS.into(), tasks, series, single, why: "any".into(), wrong })
    }

    /// The failures of a record with the lines `more`, without the failure of another contestant in the record itself.
    fn failed(more: Vec<Value>) -> Vec<MissingFigure> {
        let mut lines = lines(&Simulated::fair());
        lines.splice(1..1, more);
        let mut failed = measured(&lines).failed;
        assert_eq!(failed.pop().unwrap().contestant, RAYON);
        failed
    }

    #[test]
    fn a_failure_is_forgotten_when_it_was_made_good() {
        let single = |when, run| Some(SingleRun { when, run });
        for (tasks, series, single, is_there) in [
            (None, 0, None, false),
            (Some(9), 0, None, false),
            (Some(9), 8, None, true),
            (Some(99), 0, None, true),
            (None, 0, single(When::After, 1), false),
            (None, 0, single(When::After, 2), true),
        ] {
            let read = failed(vec![failure(tasks, series, single, false)]);
            assert_eq!(read.len(), usize::from(is_there), "{read:?}");
            assert!(read.iter().all(|failed| failed.single == single), "{read:?}");
        }
    }

    /// A later right answer does not replace a wrong one.
    #[test]
    fn what_was_wrong_is_never_made_good() {
        assert_eq!(failed(vec![failure(Some(9), 0, None, true)]).len(), 1);
        let both = failed(vec![failure(Some(9), 0, None, true), failure(Some(99), 0, None, false)]);
        assert!(both.len() == 1 && both[0].wrong, "{both:?}");
    }

    /// A contestant failed in one run and then in the next. Lines of other contestants lie between.
    #[test]
    fn of_a_contestants_failures_the_last_is_listed() {
        let mut other = failure(Some(99), 0, None, false);
        other["contestant"] = "another".into();
        let read = failed(vec![failure(Some(98), 0, None, false), other, failure(Some(99), 8, None, false)]);
        let of: Vec<_> = read.iter().map(|failed| (failed.contestant.as_str(), failed.tasks, failed.series)).collect();
        assert_eq!(of, [(STD_THREADS, Some(99), 8), ("another", Some(99), 0)]);
    }

    #[test]
    fn observations_are_in_the_order_of_their_number_of_tasks() {
        let mut lines = lines(&Simulated::fair());
        lines[1..].reverse();
        let measured = measured(&lines);
        let at: Vec<_> = measured.cells.iter().map(|cell| (cell.tasks, cell.series)).collect();
        assert!(at.is_sorted() && at.len() == 132, "{at:?}");
        assert_eq!(measured.cells[0].contestant, STD_THREADS);
        assert_eq!(measured.drift_pct(STD_THREADS).map(round), Some(1.0));
    }
}
