//! The mode `tasks`: a number of CPU tasks run at once, or in batches.
//!
//! Before the first round each language is calibrated, the right answer of every task is computed, and each contestant runs
//! single tasks; after the last round it runs them again. While a contestant runs tasks, all others wait.
//!
//! Invariant: every last term equals the computed one, bit for bit; otherwise there is no figure. All contestants of a language
//! have the same steps, and all have the same starting terms. Cost: `t` tasks on the cores for each contestant at a cell.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::bail;
use polyserve::Shutdown;
use polyserve::sync::lock;
use serde::{Deserialize, Serialize};

use super::{ReadKeys, Turns};
use crate::Misuse;
use crate::bench::definition::{Definition, time};
use crate::bench::experiment::{Key, Sample};
use crate::bench::pattern::ContestantOrigin;
use crate::bench::sweep::{CellValue, SweepAxis, SweepCell};
use crate::contestants::GO;
use crate::experiment::{Absence, Notebook, Records, distinct};
use crate::launch::Launch;
use crate::machine::Cores;
use crate::output::spinner;
use crate::report::figures::count;
use crate::statistics::median;
use crate::tasks::contestant::{TaskAnswer, TaskContestant};
use crate::tasks::figures::{self, Alone, Scheduled, TaskFigures, round};
use crate::tasks::protocol::RunRequest;
use crate::tasks::sequence::{SequenceLimit, TermOrder, Terms, compute, starts};
use crate::turn::Role;

/// Tasks run at once.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TasksMode {
    /// The approximate time of a task. Each language is calibrated.
    #[serde(deserialize_with = "time")]
    pub task: Duration,
    /// The number of steps of a task in all languages, instead of a calibration.
    pub steps: Option<u64>,
    /// The order of the recurrence. The listings have the published one only.
    pub order: TermOrder,
    /// Whether our contestants test for convergence in each step, as the listings do.
    pub check_convergence: bool,
}

/// What the mode reads of a definition.
pub(super) const READS: ReadKeys = ReadKeys {
    origins: &[ContestantOrigin::Executor, ContestantOrigin::Peer],
    has_sizes: true,
    axes: &[SweepAxis::Tasks, SweepAxis::Series],
    workload: &["workers"],
};

impl Default for TasksMode {
    fn default() -> Self {
        Self { task: Duration::from_secs(1), steps: None, order: TermOrder::AsPublished, check_convergence: false }
    }
}

impl TasksMode {
    /// The max number of tasks at once. Each may have a thread.
    pub(crate) const MAX_TASKS: u64 = 1000;

    pub(super) fn check(&self, definition: &Definition) -> Result<(), Misuse> {
        if !(Duration::from_millis(1)..=Duration::from_secs(60)).contains(&self.task) {
            return Err(definition.misuse("task", "it must be from 1ms to 1m"));
        }
        if self.steps.is_some_and(|steps| !(1..=100_000_000_000).contains(&steps)) {
            return Err(definition.misuse("steps", "it must be from 1 to 100000000000"));
        }
        let counts = definition.sweep.get(&SweepAxis::Tasks);
        let is_right = |counts: &Vec<CellValue>| {
            counts.iter().all(|value| value.number().is_some_and(|tasks| tasks <= Self::MAX_TASKS))
        };
        if !counts.is_some_and(is_right) {
            let why = format!("the sweep needs numbers of tasks, at most {}", Self::MAX_TASKS);
            return Err(definition.misuse(if counts.is_some() { "tasks" } else { "kind" }, why));
        }
        Ok(())
    }

    /// Whether there are such tasks: all at once, or a larger multiple of a batch.
    pub fn has(cell: &SweepCell) -> bool {
        let (tasks, series) = tasks_of(cell);
        series == 0 || (tasks > series && tasks.is_multiple_of(series))
    }
}

/// In words: `CPU tasks of about 1s, in the published order`.
impl fmt::Display for TasksMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.steps {
            Some(steps) => write!(f, "CPU tasks of {} steps", count(steps as f64))?,
            None => write!(f, "CPU tasks of about {}", humantime::format_duration(self.task))?,
        }
        f.write_str(match self.order {
            TermOrder::AsPublished => ", in the order of the published code",
            TermOrder::AsDescribed => ", in the order of the published text",
        })?;
        if self.check_convergence { f.write_str(", ours with the check for convergence") } else { Ok(()) }
    }
}

/// The number of tasks of a cell, and the size of its batches; 0 if all tasks are in one.
fn tasks_of(cell: &SweepCell) -> (usize, usize) {
    let number = |axis| cell.get(&axis).and_then(CellValue::number).unwrap_or_default();
    (number(SweepAxis::Tasks) as usize, number(SweepAxis::Series) as usize)
}

/// Contestants that run tasks.
#[derive(Debug)]
pub struct TaskTurns {
    mode: TasksMode,
    contestants: Vec<(TaskContestant, Role)>,
    cores: Cores,
    stop: Shutdown,
    starts: Vec<Terms>,
}

/// The number of steps of a task in a language: the `kind` of a record's line.
pub(crate) const CALIBRATION: &str = "calibration";
/// The limit and the last term of a task's sequence.
pub(crate) const SEQUENCE: &str = "sequence";
/// A task that ran alone.
pub(crate) const SINGLE: &str = "single";
/// The times of the tasks of a cell.
pub(crate) const SCHEDULE: &str = "schedule";

/// Single runs of each contestant, before and after the rounds.
pub(crate) const SINGLES: usize = 5;

/// The longest task of a given number of steps, in milliseconds.
const MAX_TASK_MS: f64 = 60_000.0;

/// The number of steps of a task in a language.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Calibration {
    /// Steps, for every contestant of the language the same.
    pub steps: u64,
    /// The duration of a task in the calibration, in milliseconds.
    pub measured_ms: f64,
    /// The contestant of the calibration.
    pub contestant: String,
}

/// The right answer of a task, computed outside the measured time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Sequence {
    /// The task's number.
    pub task: usize,
    /// The number of its steps.
    pub steps: u64,
    /// The term that it must answer.
    pub last: f64,
    /// Where the sequence stands still, and at which step, if it converges.
    pub limit: Option<SequenceLimit>,
}

/// A task that ran alone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Single {
    /// The contestant.
    pub contestant: String,
    /// Whether it ran after the rounds, and not before them.
    pub after: bool,
    /// The number of the run, from 1.
    pub run: usize,
    /// The duration, in milliseconds.
    pub duration_ms: f64,
    /// The CPU time, in milliseconds.
    pub cpu_ms: f64,
}

/// The times of the tasks of a cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TaskSchedule {
    /// The contestant, the cell and the round.
    #[serde(flatten)]
    pub key: Key,
    /// The tasks, by number.
    pub schedule: Vec<Scheduled>,
}

/// A contestant of the mode, and its process.
#[derive(Clone, Debug)]
pub struct TaskEntrant {
    /// The name.
    pub name: String,
    /// The role.
    pub role: Role,
    /// The process.
    pub launch: Launch,
}

/// Whether a contestant is in Go. The others are in Rust.
fn is_go(contestant: &str) -> bool {
    contestant.starts_with(GO)
}

/// The calibration of the language of a contestant.
pub(crate) fn calibration_of<'a>(calibrations: &'a [Calibration], contestant: &str) -> Option<&'a Calibration> {
    let own = calibrations.iter().find(|known| is_go(&known.contestant) == is_go(contestant));
    own.or(calibrations.first())
}

/// The duration and the CPU time of a contestant's task alone, before or after the rounds: medians.
pub(crate) fn alone(singles: &[Single], contestant: &str, after: bool) -> Option<Alone> {
    let own = singles.iter().filter(|single| single.contestant == contestant && single.after == after);
    let (mut durations, mut cpus): (Vec<f64>, Vec<f64>) = own.map(|single| (single.duration_ms, single.cpu_ms)).unzip();
    (!durations.is_empty()).then(|| Alone { d1_ms: median(&mut durations), cpu1_ms: median(&mut cpus) })
}

/// The change of the duration of a contestant's task alone from the start of a run to its end, in per cent.
pub(crate) fn drift_pct(singles: &[Single], contestant: &str) -> Option<f64> {
    let (before, after) = (alone(singles, contestant, false)?, alone(singles, contestant, true)?);
    Some(100.0 * (after.d1_ms / before.d1_ms - 1.0))
}

type Notes<'a, 'b> = &'a mut Notebook<'b>;

impl TaskTurns {
    /// The turns of these contestants, at most `max_tasks` at once.
    pub fn new(
        mode: TasksMode,
        entrants: Vec<TaskEntrant>,
        max_tasks: usize,
        seed: u64,
        cores: Cores,
        stop: Shutdown,
    ) -> Self {
        let contestant = |one: TaskEntrant| (TaskContestant::new(&one.name, one.launch), one.role);
        let contestants = entrants.into_iter().map(contestant).collect();
        Self { mode, contestants, cores, stop, starts: starts(seed, max_tasks) }
    }

    /// Finds the number of steps of a task with the target duration, in each language with the first contestant that can run
    /// a task.
    fn calibrate(&mut self, notebook: Notes<'_, '_>) -> anyhow::Result<()> {
        for is_in_go in [false, true] {
            let is_own = |place: &usize| is_go(&self.contestants[*place].0.name) == is_in_go;
            for place in (0..self.contestants.len()).filter(is_own).collect::<Vec<_>>() {
                let known: Vec<Calibration> = notebook.records.facts(CALIBRATION)?;
                let key = no_cell(&self.contestants[place].0.name);
                if known.iter().any(|known| is_go(&known.contestant) == is_in_go) {
                    break;
                }
                if notebook.records.absence(&key).is_some() {
                    continue;
                }
                notebook.progress.begin(format!("calibration: {}", key.contestant));
                match self.calibration(place) {
                    _ if self.stop.is_begun() => return Ok(()),
                    Ok(calibration) => notebook.fact(CALIBRATION, &calibration)?,
                    Err(absence) => self.leave_out(place, absence, notebook)?,
                }
            }
        }
        if self.stop.is_begun() || !notebook.records.facts::<Calibration>(CALIBRATION)?.is_empty() {
            return Ok(());
        }
        let why: Vec<String> =
            notebook.records.absences().map(|(key, absence)| format!("{}: {absence}", key.contestant)).collect();
        bail!("no contestant can run a task: {}", why.join("; "))
    }

    /// Ends a contestant's process, and leaves the contestant out of all cells.
    fn leave_out(&mut self, place: usize, absence: Absence, notebook: Notes<'_, '_>) -> anyhow::Result<()> {
        self.contestants[place].0.end();
        notebook.absence(no_cell(&self.contestants[place].0.name), absence)
    }

    fn calibration(&mut self, place: usize) -> Result<Calibration, Absence> {
        let (target_ms, given_steps) = (self.mode.task.as_secs_f64() * 1000.0, self.mode.steps);
        let contestant = self.contestants[place].0.name.clone();
        let expected_ms = if given_steps.is_some() { MAX_TASK_MS } else { target_ms };
        let mut time = |steps: u64| -> Result<f64, Absence> {
            let answer = self.ask(place, 1, (steps, expected_ms), 0)?;
            Ok((answer.ran[0].finished_ns - answer.ran[0].started_ns) as f64 / 1e6)
        };
        if let Some(steps) = given_steps {
            return Ok(Calibration { steps, measured_ms: round(time(steps)?), contestant });
        }
        let mut steps = 10_000_u64;
        let mut elapsed_ms: f64 = 0.0;
        // The steps are multiplied by 4 up to a quarter of the time, then scaled in proportion three times.
        while elapsed_ms < target_ms / 4.0 {
            steps = steps.saturating_mul(4);
            elapsed_ms = time(steps)?;
        }
        for _ in 0..3 {
            let mut samples = [0.0; 3];
            for ms in &mut samples {
                *ms = time(steps)?;
            }
            elapsed_ms = median(&mut samples);
            steps = ((steps as f64 * target_ms / elapsed_ms.max(1e-6)) as u64).max(1);
        }
        let measured_ms = round(time(steps)?);
        Ok(Calibration { steps, measured_ms, contestant })
    }

    /// Computes the right answer of every task, and whether its sequence converges. It uses all cores, because nothing is
    /// measured.
    fn sequences(&self, notebook: Notes<'_, '_>) -> anyhow::Result<()> {
        let calibrations: Vec<Calibration> = notebook.records.facts(CALIBRATION)?;
        let known: Vec<Sequence> = notebook.records.facts(SEQUENCE)?;
        let is_known = |task: usize, steps: u64| known.iter().any(|known| (known.task, known.steps) == (task, steps));
        let steps = distinct(calibrations.iter().map(|calibration| calibration.steps));
        let all = steps.into_iter().flat_map(|steps| (1..=self.starts.len()).map(move |task| (task, steps)));
        let missing: Vec<(usize, u64)> = all.filter(|(task, steps)| !is_known(*task, *steps)).collect();
        let bar = spinner();
        bar.set_prefix("computing the right answers");
        bar.set_message(format!("{} sequences", missing.len()));
        let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let (starts, order, stop) = (&self.starts, self.mode.order, &self.stop);
        let work = || {
            while let Some((task, steps)) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                let Some(end) = compute(order, starts[task - 1], *steps, stop) else { return };
                lock(&found).push(Sequence { task: *task, steps: *steps, last: end.last, limit: end.limit });
            }
        };
        thread::scope(|scope| (0..self.cores.count().min(missing.len())).for_each(|_| drop(scope.spawn(work))));
        let mut found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        bar.finish_and_clear();
        found.sort_by_key(|sequence| (sequence.steps, sequence.task));
        found.iter().try_for_each(|sequence| notebook.fact(SEQUENCE, sequence))
    }

    /// Runs the single tasks that the record lacks. The contestants take turns.
    fn singles(&mut self, after: bool, notebook: Notes<'_, '_>) -> anyhow::Result<()> {
        for run in 1..=SINGLES {
            for place in 0..self.contestants.len() {
                let contestant = self.contestants[place].0.name.clone();
                let known: Vec<Single> = notebook.records.facts(SINGLE)?;
                let is_known =
                    |single: &Single| (&single.contestant, single.after, single.run) == (&contestant, after, run);
                if known.iter().any(is_known) || notebook.records.absence(&no_cell(&contestant)).is_some() {
                    continue;
                }
                notebook.progress.begin(format!("{contestant}: alone, {run}"));
                let single = self.answer(place, (1, 0), &notebook.records).map(|answer| {
                    let (duration_ms, (cpu_ms, _)) = (round(answer.schedule()[0].duration_ms()), answer.cpu_ms());
                    Single { contestant, after, run, duration_ms, cpu_ms: round(cpu_ms) }
                });
                match single {
                    _ if self.stop.is_begun() => return Ok(()),
                    Ok(single) => notebook.fact(SINGLE, &single)?,
                    Err(absence) => {
                        let why = format!("alone{}, run {run}: {}", if after { " again" } else { "" }, absence.why);
                        self.leave_out(place, Absence { why, ..absence }, notebook)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn observe(&mut self, key: &Key, notebook: Notes<'_, '_>) -> Result<Sample, Absence> {
        let place = self.contestants.iter().position(|(contestant, _)| contestant.name == key.contestant);
        let place = place.ok_or_else(|| Absence::failed(format!("{key} is not planned")))?;
        let tasks = tasks_of(&key.cell);
        let answer = self.answer(place, tasks, &notebook.records)?;
        let singles: Vec<Single> = facts(&notebook.records, SINGLE)?;
        let alone = alone(&singles, &key.contestant, false);
        let alone = alone.ok_or_else(|| Absence::failed("there was no single run"))?;
        let schedule = answer.schedule();
        let (cpu_ms, is_of_process) = answer.cpu_ms();
        let of = TaskFigures::of(&schedule, cpu_ms, alone);
        let mut figures = named(&of, &schedule, alone, self.cores.count(), (answer.threads, answer.others));
        figures.insert("cpu_of_process".to_owned(), f64::from(is_of_process));
        let schedule = TaskSchedule { key: key.clone(), schedule };
        notebook.fact(SCHEDULE, &schedule).map_err(|error| Absence::failed(error.to_string()))?;
        Ok(Sample { role: self.contestants[place].1, figures })
    }

    /// Runs tasks of the language's number of steps. Their last terms are right.
    fn answer(
        &mut self,
        place: usize,
        (tasks, series): (usize, usize),
        records: &Records,
    ) -> Result<TaskAnswer, Absence> {
        let calibrations: Vec<Calibration> = facts(records, CALIBRATION)?;
        let calibration = calibration_of(&calibrations, &self.contestants[place].0.name);
        let calibration = calibration.ok_or_else(|| Absence::failed("there was no calibration"))?;
        let sequences: Vec<Sequence> = facts(records, SEQUENCE)?;
        let (steps, ms) = (calibration.steps, calibration.measured_ms);
        verified(self.ask(place, tasks, (steps, ms), series)?, &sequences, steps)
    }

    /// Requests tasks of this number of steps, which take about `task_ms` each.
    fn ask(
        &mut self,
        place: usize,
        tasks: usize,
        (steps, task_ms): (u64, f64),
        batch: usize,
    ) -> Result<TaskAnswer, Absence> {
        let TasksMode { order, check_convergence: check, task, .. } = self.mode;
        let request = RunRequest { starts: self.starts[..tasks].to_vec(), steps, order, batch, check };
        let task = Duration::from_secs_f64(task_ms / 1000.0).max(task);
        let answer = self.contestants[place].0.ask(&request, task, &self.cores, &self.stop)?;
        answer.ok_or_else(|| Absence::failed("the run was ended"))
    }
}

impl Turns for TaskTurns {
    fn prepare(&mut self, notebook: Notes<'_, '_>) -> anyhow::Result<()> {
        self.calibrate(notebook)?;
        self.sequences(notebook)?;
        self.singles(false, notebook)
    }

    fn measure_one(&mut self, key: &Key, notebook: Notes<'_, '_>) -> Result<Sample, Absence> {
        let result = self.observe(key, notebook);
        if result.is_err() {
            let failed = self.contestants.iter_mut().filter(|(contestant, _)| contestant.name == key.contestant);
            failed.for_each(|(contestant, _)| contestant.end());
        }
        result
    }

    /// The number of tasks that all cores run in the time of the cell.
    fn weight(&self, key: &Key) -> usize {
        tasks_of(&key.cell).0.max(self.cores.count())
    }

    fn finish(&mut self, notebook: Notes<'_, '_>) -> anyhow::Result<()> {
        if notebook.is_stopped() { Ok(()) } else { self.singles(true, notebook) }
    }
}

/// All cells of a contestant.
fn no_cell(contestant: &str) -> Key {
    Key { contestant: contestant.to_owned(), cell: SweepCell::new(), round: 0 }
}

fn facts<T: for<'de> Deserialize<'de>>(records: &Records, kind: &str) -> Result<Vec<T>, Absence> {
    records.facts(kind).map_err(|error| Absence::failed(error.to_string()))
}

/// Checks that each last term equals the one computed by this process.
fn verified(answer: TaskAnswer, sequences: &[Sequence], steps: u64) -> Result<TaskAnswer, Absence> {
    for ran in &answer.ran {
        let known = sequences.iter().find(|known| (known.task, known.steps) == (ran.task, steps));
        let Some(Sequence { last, .. }) = known else {
            return Err(Absence::failed(format!("what task {} must answer is not known", ran.task)));
        };
        if last.to_bits() != ran.bits {
            let wrong = f64::from_bits(ran.bits);
            return Err(Absence::wrong(format!("the last term of task {} is {last}, not {wrong}", ran.task)));
        }
    }
    Ok(answer)
}

/// The figures of tasks, by their names. `threads` is the largest number of threads, `others` the share of other processes.
pub(crate) fn named(
    of: &TaskFigures,
    schedule: &[Scheduled],
    alone: Alone,
    cores: usize,
    (threads, others): (Option<u64>, Option<f64>),
) -> BTreeMap<String, f64> {
    let (count, cores) = (schedule.len() as f64, cores as f64);
    let (total, to_single) = (of.total_duration_ms, of.total_duration_ms / alone.d1_ms);
    let threads = threads.map(|threads| threads as f64);
    let last_start = schedule.iter().map(|task| task.started_ms).fold(0.0, f64::max);
    let ideal_pct = 100.0 * (1.0 - 1.0 / cores);
    let all = [
        ("mean_duration_ms", Some(of.mean_duration_ms)),
        ("std_dev_ms", Some(of.std_dev_ms)),
        ("total_duration_ms", Some(total)),
        ("cost_pct", Some(of.cost_pct)),
        ("profit_pct", Some(of.profit_pct)),
        ("working_pct", Some(of.working_pct)),
        ("waiting_pct", Some(of.waiting_pct)),
        ("overhead_pct", Some(of.overhead_pct)),
        ("cpu_ms", Some(of.cpu_ms)),
        ("d1_ms", Some(alone.d1_ms)),
        ("cpu1_ms", Some(alone.cpu1_ms)),
        ("threads", threads),
        ("others_share", others),
        ("cores", Some(cores)),
        ("tasks_per_core", Some(count / cores)),
        ("profit_to_ideal", (cores > 1.0).then(|| of.profit_pct / ideal_pct)),
        ("total_to_single", Some(to_single)),
        ("total_to_ideal", Some(to_single * cores / count)),
        ("last_start_pct", Some(100.0 * last_start / total)),
        ("start_order", Some(figures::start_order(schedule))),
        ("spread_of_starts", figures::deviation_of_starts(schedule).map(|deviation| deviation / total)),
        ("spread_of_durations", Some(of.std_dev_ms / of.mean_duration_ms)),
        ("threads_beyond_cores", threads.map(|threads| threads - cores)),
        ("threads_beyond_tasks", threads.map(|threads| threads - count)),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

#[cfg(test)]
mod tests;
