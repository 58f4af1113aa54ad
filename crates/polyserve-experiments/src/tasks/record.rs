//! The lines of a record of the experiment, and what they are when they are read.
//!
//! Kinds: `calibration` once; `sequence`, one a task number; `single`, one a run of a task alone; `cell`, one an
//! observation, with its schedule; `failure`, one a contestant that has no figure.

use anyhow::Context as _;
use polyserve_lab::journal::of_kind;
use polyserve_lab::statistics::median;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::figures::{Alone, Figures};
use super::sequence::{Limit, Order, Terms};

/// The experiment's name, and its record's.
pub const EXPERIMENT: &str = "tasks";

/// What is to be measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Who takes part, those among them too who cannot.
    pub contestants: Vec<String>,
    /// About how long one task takes, in milliseconds.
    pub task_ms: f64,
    /// How many tasks at once, in turn.
    pub counts: Vec<usize>,
    /// Batches of so many, at the multiples of it among the counts; 0 for none.
    pub series: usize,
    /// The starting terms' seed.
    pub seed: u64,
    /// The order of the recurrence.
    pub order: Order,
    /// The contestants' cores.
    pub cores: String,
    /// How many these are.
    pub core_count: usize,
    /// The workers of those that have some.
    pub workers: usize,
}

/// How many steps a task has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Steps, for every contestant the same.
    pub steps: u64,
    /// What a task took of a contestant then, in milliseconds.
    pub measured_ms: f64,
    /// Which contestant that was.
    pub contestant: String,
}

/// What was found of a task's sequence, on no clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sequence {
    /// The task's number.
    pub task: usize,
    /// Its starting terms.
    pub first: f64,
    /// The second.
    pub second: f64,
    /// The third.
    pub third: f64,
    /// The term that it must answer.
    pub last: f64,
    /// Its limit, where it converges.
    pub limit: Option<f64>,
    /// Where it is reached.
    pub step: Option<u64>,
}

impl Sequence {
    /// Of a task with these starting terms.
    pub fn new(task: usize, [first, second, third]: Terms, last: f64, found: Option<Limit>) -> Self {
        let (limit, step) = (found.map(|found| found.limit), found.map(|found| found.step));
        Self { task, first, second, third, last, limit, step }
    }
}

/// When single runs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Before all observations: d1.
    Before,
    /// After them, for the drift.
    After,
}

/// One of a contestant's single runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SingleRun {
    /// When.
    pub when: When,
    /// Which of them, from 1.
    pub run: usize,
}

/// A task that ran alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Single {
    /// Whose.
    pub contestant: String,
    /// When.
    pub when: When,
    /// Which of them, from 1.
    pub run: usize,
    /// Its duration.
    pub duration_ms: f64,
    /// What it took of a core's time.
    pub cpu_ms: f64,
}

/// A task of an observation; times are from its first task's start.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scheduled {
    /// Its number.
    pub task: usize,
    /// When it was handed over; that may be before the first task's start.
    pub submitted_ms: f64,
    /// When it began.
    pub started_ms: f64,
    /// When it was done.
    pub finished_ms: f64,
    /// What its thread spent on it; `None` where threads change under a task.
    pub cpu_ms: Option<f64>,
}

impl Scheduled {
    /// From its start to its end.
    pub fn duration_ms(&self) -> f64 {
        self.finished_ms - self.started_ms
    }
}

/// An observation: so many tasks of one contestant at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// How many tasks.
    pub tasks: usize,
    /// Whose.
    pub contestant: String,
    /// Batches of so many; 0 is all at once.
    pub series: usize,
    /// What was computed of it.
    #[serde(flatten)]
    pub figures: Figures,
    /// What the task takes alone.
    #[serde(flatten)]
    pub alone: Alone,
    /// Whether `cpu_ms` is of the tasks' own threads, or of the whole process.
    pub cpu_of: CpuOf,
    /// The most threads that the process was seen to have.
    pub threads: Option<u64>,
    /// The tasks, by number.
    pub schedule: Vec<Scheduled>,
}

/// Whose processor time it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuOf {
    /// Of the threads that ran the tasks, while they did.
    Tasks,
    /// Of the contestant's process.
    Process,
}

/// A contestant that has no figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Its name.
    pub contestant: String,
    /// At how many tasks; `None` where it did not take part at all.
    pub tasks: Option<usize>,
    /// In batches of so many; 0 is all at once.
    #[serde(default)]
    pub series: usize,
    /// In which of the single runs, where it was one.
    #[serde(default)]
    pub single: Option<SingleRun>,
    /// Why.
    pub why: String,
    /// Whether it did wrong: then a rerun does not try it again.
    #[serde(default)]
    pub wrong: bool,
}

/// Everything that was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Measured {
    /// What was to be measured.
    pub plan: Option<Plan>,
    /// How long a task is.
    pub calibration: Option<Calibration>,
    /// What was found of the sequences.
    pub sequences: Vec<Sequence>,
    /// The single runs.
    pub singles: Vec<Single>,
    /// The observations.
    pub cells: Vec<Cell>,
    /// Who has none, and why.
    pub failed: Vec<Failed>,
    /// Whether it was ended early.
    pub interrupted: bool,
}

impl Measured {
    /// What a record holds. Of failures, what was not measured since, the last of each contestant; but what it did wrong
    /// stays.
    ///
    /// # Errors
    ///
    /// Where a line is not what its kind says.
    pub fn read(lines: &[Value]) -> anyhow::Result<Self> {
        let plan = match lines.first() {
            Some(header) => Some(serde_json::from_value(header["plan"].clone()).context("the plan")?),
            None => None,
        };
        let cells: Vec<Cell> = of_kind(lines, "cell")?;
        let calibration = of_kind(lines, "calibration")?.pop();
        let (sequences, singles) = (of_kind(lines, "sequence")?, of_kind(lines, "single")?);
        let mut read = Self { plan, calibration, sequences, singles, cells, failed: Vec::new(), interrupted: false };
        for failed in of_kind::<Failed>(lines, "failure")? {
            if failed.wrong || !read.is_made_good(&failed) {
                read.fail(failed);
            }
        }
        read.sort();
        Ok(read)
    }

    /// Adds a failure in place of an earlier one of its contestant, for one that fails is out of its run; but what it did
    /// wrong stays.
    pub fn fail(&mut self, failed: Failed) {
        match self.failed.iter_mut().find(|other| other.contestant == failed.contestant) {
            Some(other) if other.wrong => {}
            Some(other) => *other = failed,
            None => self.failed.push(failed),
        }
    }

    /// Whether that has figures now in which it failed; all of one that took no part, if it has any.
    fn is_made_good(&self, Failed { contestant, tasks, series, single, .. }: &Failed) -> bool {
        match (single, tasks) {
            (Some(SingleRun { when, run }), _) => {
                let is_it = |one: &Single| one.contestant == *contestant && (one.when, one.run) == (*when, *run);
                self.singles.iter().any(is_it)
            }
            (None, Some(tasks)) => self.cell(contestant, *tasks, *series).is_some(),
            (None, None) => self.cells.iter().any(|cell| cell.contestant == *contestant),
        }
    }

    /// Puts the observations in the order of their number of tasks, and within that of the contestants, for a run that was
    /// gone on with may have made them in another.
    pub fn sort(&mut self) {
        let names = self.plan.as_ref().map(|plan| plan.contestants.as_slice()).unwrap_or_default();
        let place = |name: &String| names.iter().position(|other| other == name);
        self.cells.sort_by_key(|cell| (cell.tasks, cell.series, place(&cell.contestant)));
        self.sequences.sort_by_key(|sequence| sequence.task);
    }

    /// What a contestant's task took alone; `None` without such runs.
    pub fn alone(&self, contestant: &str, when: When) -> Option<Alone> {
        let those = || self.singles.iter().filter(|single| single.contestant == contestant && single.when == when);
        those().next()?;
        let middle = |of: fn(&Single) -> f64| median(&mut those().map(of).collect::<Vec<_>>());
        Some(Alone { d1_ms: middle(|single| single.duration_ms), cpu1_ms: middle(|single| single.cpu_ms) })
    }

    /// By how much a contestant's task took longer at the end than at the start, in percent.
    pub fn drift_pct(&self, contestant: &str) -> Option<f64> {
        let (before, after) = (self.alone(contestant, When::Before)?, self.alone(contestant, When::After)?);
        Some(100.0 * (after.d1_ms / before.d1_ms - 1.0))
    }

    /// The observation of so many tasks.
    pub fn cell(&self, contestant: &str, tasks: usize, series: usize) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.tasks == tasks && cell.series == series && cell.contestant == contestant)
    }

    /// A contestant's observations of all at once, by the number of tasks.
    pub fn all_at_once(&self, contestant: &str) -> Vec<&Cell> {
        let mut cells: Vec<&Cell> =
            self.cells.iter().filter(|cell| cell.series == 0 && cell.contestant == contestant).collect();
        cells.sort_by_key(|cell| cell.tasks);
        cells
    }

    /// Who has observations, in their order.
    pub fn contestants(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for cell in &self.cells {
            if !names.contains(&cell.contestant.as_str()) {
                names.push(&cell.contestant);
            }
        }
        names
    }
}

/// To a thousandth: microseconds where it is milliseconds.
pub(super) fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::super::claims::tests::{Made, lines};
    use super::*;
    use crate::tasks::runner::{RAYON, STD_THREADS};
    use polyserve_lab::journal::as_line;

    fn failure(tasks: Option<usize>, series: usize, single: Option<SingleRun>, wrong: bool) -> Value {
        let failed = Failed { contestant: STD_THREADS.into(), tasks, series, single, why: "any".into(), wrong };
        as_line("failure", &failed).unwrap()
    }

    /// What is read of `more` behind a whole record, in which another one has failed.
    fn failed(more: Vec<Value>) -> Vec<Failed> {
        let mut lines = lines(&Made::fair());
        lines.extend(more);
        let mut failed = Measured::read(&lines).unwrap().failed;
        assert_eq!(failed.remove(0).contestant, RAYON);
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

    /// Who is asked often enough may be lucky.
    #[test]
    fn what_was_wrong_is_never_made_good() {
        assert_eq!(failed(vec![failure(Some(9), 0, None, true)]).len(), 1);
        let both = failed(vec![failure(Some(9), 0, None, true), failure(Some(99), 0, None, false)]);
        assert!(both.len() == 1 && both[0].wrong, "{both:?}");
        // As records before had it.
        let mut old = failure(Some(99), 0, None, false);
        let fields = old.as_object_mut().unwrap();
        assert!(fields.remove("wrong").is_some() && fields.remove("single").is_some());
        assert!(!failed(vec![old])[0].wrong);
    }

    /// A run of several contestants, and one that failed in it and then in the next: their lines are no neighbours.
    #[test]
    fn of_a_contestants_failures_the_last_is_told() {
        let mut other = failure(Some(99), 0, None, false);
        other["contestant"] = "another".into();
        let read = failed(vec![failure(Some(98), 0, None, false), other, failure(Some(99), 8, None, false)]);
        let of: Vec<_> = read.iter().map(|failed| (failed.contestant.as_str(), failed.tasks, failed.series)).collect();
        assert_eq!(of, [(STD_THREADS, Some(99), 8), ("another", Some(99), 0)]);
    }

    #[test]
    fn observations_are_in_the_order_of_their_number_of_tasks() {
        let mut lines = lines(&Made::fair());
        lines[1..].reverse();
        let measured = Measured::read(&lines).unwrap();
        let at: Vec<_> = measured.cells.iter().map(|cell| (cell.tasks, cell.series)).collect();
        assert!(at.is_sorted() && at.len() == 88, "{at:?}");
        assert_eq!(measured.cells[0].contestant, STD_THREADS);
        assert_eq!(measured.drift_pct(STD_THREADS).map(round), Some(1.0));
    }
}
