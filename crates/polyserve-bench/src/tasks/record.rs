//! The cells and facts of a record.
//!
//! Facts: `calibration` once; `sequence`, one for each task number. A `cell` is a single run, or an observation with its
//! schedule.

use std::fmt;

use crate::contestants::GO;
use serde::{Deserialize, Serialize};

use super::figures::{Alone, Scheduled, TaskFigures};
use super::sequence::{SequenceLimit, TermOrder, Terms};

/// The experiment's name, and its record's.
pub const EXPERIMENT: &str = "tasks";

/// The settings of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskSettings {
    /// The contestants, with those that are not available.
    pub contestants: Vec<String>,
    /// About how long one task takes, in milliseconds.
    pub task_ms: f64,
    /// The number of steps of a task; `None` if each language is calibrated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Whether each task also looks for convergence, as the published code does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub check: bool,
    /// The numbers of concurrent tasks, in their order.
    pub counts: Vec<usize>,
    /// The size of the batches; 0 for none. Only larger multiples among the counts are measured in batches.
    pub series: usize,
    /// The starting terms' seed.
    pub seed: u64,
    /// The order of the recurrence.
    pub order: TermOrder,
    /// The contestants' cores.
    pub cores: String,
    /// The number of these cores.
    pub core_count: usize,
    /// Workers of a contestant that has workers.
    pub workers: usize,
}

/// The number of steps of a task in a language.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Steps, for every contestant of the language the same.
    pub steps: u64,
    /// The duration of a task in the calibration, in milliseconds.
    pub measured_ms: f64,
    /// The contestant of the calibration.
    pub contestant: String,
}

/// Whether a contestant is in Go. The others are in Rust.
pub(super) fn is_go(contestant: &str) -> bool {
    contestant.starts_with(GO)
}

/// The calibration of the language of a contestant.
pub(super) fn calibration_of<'a>(calibrations: &'a [Calibration], contestant: &str) -> Option<&'a Calibration> {
    let own = calibrations.iter().find(|known| is_go(&known.contestant) == is_go(contestant));
    own.or(calibrations.first())
}

/// The limit and the last term of a task's sequence, computed outside the measured time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sequence {
    /// The task's number.
    pub task: usize,
    /// The number of its steps.
    pub steps: u64,
    /// The first starting term.
    pub first: f64,
    /// The second starting term.
    pub second: f64,
    /// The third starting term.
    pub third: f64,
    /// The term that it must answer.
    pub last: f64,
    /// The limit, if the sequence converges.
    pub limit: Option<f64>,
    /// The step at which the limit is reached.
    pub step: Option<u64>,
}

impl Sequence {
    /// The sequence of a task with these terms.
    pub fn new(
        task: usize,
        steps: u64,
        [first, second, third]: Terms,
        last: f64,
        found: Option<SequenceLimit>,
    ) -> Self {
        let (limit, step) = (found.map(|found| found.limit), found.map(|found| found.step));
        Self { task, steps, first, second, third, last, limit, step }
    }
}

/// Before or after the observations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Before all observations: d1.
    Before,
    /// After them, for the drift.
    After,
}

/// A cell: a contestant and its tasks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The contestant.
    pub contestant: String,
    /// The tasks.
    #[serde(flatten)]
    pub step: CellTasks,
}

/// The tasks of a contestant in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CellTasks {
    /// Concurrent tasks, or tasks in batches.
    Cell {
        /// The number of tasks.
        tasks: usize,
        /// The size of the batches; 0 if all tasks are in one.
        #[serde(default)]
        series: usize,
    },
    /// A task alone.
    Single {
        /// Before or after the observations.
        when: When,
        /// The number of the run, from 1.
        run: usize,
    },
    /// All tasks: the contestant has no cell at all. This variant is last, because any fields match it.
    All {},
}

impl Key {
    /// All cells of a contestant.
    pub fn all_of(contestant: &str) -> Self {
        Self { contestant: contestant.to_owned(), step: CellTasks::All {} }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.contestant;
        match self.step {
            CellTasks::Single { when, run } => write!(f, "{name}: {}, {run}", when.shown()),
            CellTasks::Cell { tasks, series: 0 } => write!(f, "{name}: {tasks} at once"),
            CellTasks::Cell { tasks, series } => write!(f, "{name}: {tasks} tasks in batches of {series}"),
            CellTasks::All {} => f.write_str(name),
        }
    }
}

impl When {
    pub(super) fn shown(self) -> &'static str {
        match self {
            Self::Before => "alone",
            Self::After => "alone again",
        }
    }
}

/// The measurement of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Sample {
    /// Concurrent tasks, or tasks in batches.
    Cell(Observation),
    /// A task alone.
    Single {
        /// The duration.
        duration_ms: f64,
        /// The CPU time.
        cpu_ms: f64,
    },
}

/// The measurement of concurrent tasks, or of tasks in batches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The figures.
    #[serde(flatten)]
    pub figures: TaskFigures,
    /// The duration and the CPU time of the task alone.
    #[serde(flatten)]
    pub alone: Alone,
    /// Whether `cpu_ms` is of the tasks' own threads, or of the whole process.
    pub cpu_of: CpuScope,
    /// The largest number of threads that the process was seen to have.
    pub threads: Option<u64>,
    /// The share of the cores' time that other processes used meanwhile, 0 to 1; `None` if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<f64>,
    /// The tasks, by number.
    pub schedule: Vec<Scheduled>,
}

/// The scope of a CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuScope {
    /// The threads that run tasks, during the tasks.
    Tasks,
    /// The whole process.
    Process,
}
