//! The experiment: calibration, the sequences' limits, single runs, observations, and single runs again.
//!
//! Contestants take turns within every number of tasks (A B C, A B C), so that a change of the machine affects all of them.
//!
//! Invariant: while a contestant runs tasks, all other contestants wait. This process only counts the contestant's
//! threads now and then. A contestant that fails is excluded from the rest of the run. A contestant that did wrong is
//! excluded from every resumed run too.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::experiment::{Absence, Absent, Batch, Experiment, Notebook, Plan, Records, distinct};
use crate::launch::Launch;
use crate::machine::Cores;
use crate::output::spinner;
use crate::report::Summary;
use crate::statistics::median;
use anyhow::bail;
use polyserve::Shutdown;
use polyserve::sync::lock;
use serde_json::Value;

use super::contestant::{TaskAnswer, TaskContestant};
use super::figures::{TaskFigures, round};
use super::measured::{Measured, alone};
use super::protocol::RunRequest;
use super::record::{
    Calibration, CellTasks, EXPERIMENT, Key, Observation, Sample, Sequence, TaskSettings, When, calibration_of, is_go,
};
use super::report::Report;
use super::sequence::{Terms, compute, starts};
use super::{chart, table};

/// Single runs of each contestant, before and after the observations.
pub const SINGLES: usize = 5;

/// A contestant and how it is started.
#[derive(Clone, Debug)]
pub struct TaskEntrant {
    /// The contestant's name.
    pub name: String,
    /// The process, or why the contestant is not available.
    pub launch: Result<Launch, String>,
    /// Whether the command line has its name.
    pub is_named: bool,
}

/// The experiment of concurrent CPU tasks.
#[derive(Debug)]
pub struct CpuTasks {
    settings: TaskSettings,
    contestants: Vec<TaskContestant>,
    absent: Vec<Absent<Key>>,
    cores: Cores,
    stop: Shutdown,
    starts: Vec<Terms>,
}

impl CpuTasks {
    /// The experiment with these contestants. It ends when `stop` begins.
    pub fn new(settings: TaskSettings, entrants: Vec<TaskEntrant>, cores: Cores, stop: Shutdown) -> Self {
        let (mut contestants, mut absent) = (Vec::new(), Vec::new());
        for TaskEntrant { name, launch, is_named } in entrants {
            match launch {
                Ok(launch) => contestants.push(TaskContestant::new(&name, launch)),
                Err(why) => {
                    let absence = Absence::not_available(why);
                    absent.push(Absent { key: Key::all_of(&name), absence, excused: !is_named });
                }
            }
        }
        let max_tasks = settings.counts.iter().copied().max().unwrap_or(1);
        let starts = starts(settings.seed, max_tasks);
        Self { settings, contestants, absent, cores, stop, starts }
    }

    /// Finds the number of steps of a task with the target duration, in each language with the first contestant that
    /// can run a task.
    fn calibrate(&mut self, notebook: &mut Notebook<'_, Self>) -> anyhow::Result<()> {
        for is_in_go in [false, true] {
            let places = (0..self.contestants.len()).filter(|place| is_go(&self.contestants[*place].name) == is_in_go);
            for place in places.collect::<Vec<_>>() {
                let known: Vec<Calibration> = notebook.records().facts(CALIBRATION)?;
                let key = Key::all_of(&self.contestants[place].name);
                if known.iter().any(|known| is_go(&known.contestant) == is_in_go) {
                    break;
                }
                if notebook.records().absence(&key).is_some() {
                    continue;
                }
                let result = self.calibration(place);
                if self.stop.is_begun() {
                    return Ok(());
                }
                match result {
                    Ok(calibration) => notebook.fact(CALIBRATION, &calibration)?,
                    Err(absence) => {
                        self.contestants[place].end();
                        notebook.absence(key, absence)?;
                    }
                }
            }
        }
        if self.stop.is_begun() || !notebook.records().facts::<Calibration>(CALIBRATION)?.is_empty() {
            return Ok(());
        }
        let absent = self.absent.iter().map(|absent| (&absent.key, &absent.absence));
        let why = notebook.records().absences().chain(absent);
        let why: Vec<String> = why.map(|(key, absence)| format!("{}: {absence}", key.contestant)).collect();
        bail!("no contestant can run a task: {}", why.join("; "))
    }

    fn calibration(&mut self, place: usize) -> Result<Calibration, Absence> {
        let (target_ms, given_steps) = (self.settings.task_ms, self.settings.steps);
        let contestant = self.contestants[place].name.clone();
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

    /// Computes the right answer of every task, and whether its sequence converges. It uses all cores, because nothing
    /// is measured.
    fn sequences(&self, notebook: &mut Notebook<'_, Self>) -> anyhow::Result<()> {
        let calibrations: Vec<Calibration> = notebook.records().facts(CALIBRATION)?;
        let known: Vec<Sequence> = notebook.records().facts(SEQUENCE)?;
        let is_known =
            |task: usize, steps: u64| known.iter().any(|known| known.task == task && [0, steps].contains(&known.steps));
        let steps = distinct(calibrations.iter().map(|calibration| calibration.steps));
        let all = steps.into_iter().flat_map(|steps| (1..=self.starts.len()).map(move |task| (task, steps)));
        let missing: Vec<(usize, u64)> = all.filter(|(task, steps)| !is_known(*task, *steps)).collect();
        let bar = spinner();
        bar.set_prefix("computing the right answers");
        bar.set_message(format!("{} sequences", missing.len()));
        let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let (starts, order, stop) = (&self.starts, self.settings.order, &self.stop);
        let work = || {
            while let Some((task, steps)) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                let start = starts[task - 1];
                let Some(end) = compute(order, start, *steps, stop) else { return };
                lock(&found).push(Sequence::new(*task, *steps, start, end.last, end.limit));
            }
        };
        thread::scope(|scope| (0..self.cores.count().min(missing.len())).for_each(|_| drop(scope.spawn(work))));
        let mut found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        bar.finish_and_clear();
        found.sort_by_key(|sequence| (sequence.steps, sequence.task));
        found.iter().try_for_each(|sequence| notebook.fact(SEQUENCE, sequence))
    }

    /// Prints the estimated time of the missing cells.
    fn announce(&self, notebook: &Notebook<'_, Self>) -> anyhow::Result<()> {
        let is_absent = |key: &Key| self.absent.iter().any(|absent| absent.key.contestant == key.contestant);
        let plan = self.plan();
        let left: Vec<&Key> = plan.keys().filter(|key| !is_absent(key) && !notebook.records().has(key)).collect();
        if left.is_empty() || notebook.is_stopped() {
            return Ok(());
        }
        let calibrations: Vec<Calibration> = notebook.records().facts(CALIBRATION)?;
        let task_ms = |key: &Key| calibration_of(&calibrations, &key.contestant).map_or(0.0, |known| known.measured_ms);
        let all_ms: f64 = left.iter().map(|key| self.weight(key) as f64 * task_ms(key)).sum();
        let seconds = (all_ms / 1000.0 / self.cores.count() as f64).ceil();
        let time = humantime::format_duration(Duration::from_secs_f64(seconds.max(1.0)));
        let contestants = self.contestants.len();
        notebook.progress.print_line(&format!("about {time}: {} runs of {contestants} contestants", left.len()));
        Ok(())
    }

    fn observe(&mut self, key: &Key, notebook: &Notebook<'_, Self>) -> Result<Sample, Absence> {
        let failed = |error: anyhow::Error| Absence::failed(error.to_string());
        let calibrations: Vec<Calibration> = notebook.records().facts(CALIBRATION).map_err(failed)?;
        let calibration = calibration_of(&calibrations, &key.contestant);
        let Calibration { steps, measured_ms, .. } =
            calibration.ok_or_else(|| Absence::failed("there was no calibration"))?.clone();
        let sequences: Vec<Sequence> = notebook.records().facts(SEQUENCE).map_err(failed)?;
        let place = self.contestants.iter().position(|contestant| contestant.name == key.contestant);
        let place = place.ok_or_else(|| Absence::failed(format!("{key} is not planned")))?;
        let (tasks, series) = match key.step {
            CellTasks::Cell { tasks, series } => (tasks, series),
            CellTasks::Single { .. } | CellTasks::All {} => (1, 0),
        };
        let answer = verified(self.ask(place, tasks, (steps, measured_ms), series)?, &sequences, steps)?;
        let (cpu_ms, cpu_of) = answer.cpu_ms();
        let schedule = answer.schedule();
        if !matches!(key.step, CellTasks::Cell { .. }) {
            return Ok(Sample::Single { duration_ms: round(schedule[0].duration_ms()), cpu_ms: round(cpu_ms) });
        }
        let alone = alone(notebook.records(), &key.contestant, When::Before);
        let alone = alone.ok_or_else(|| Absence::failed("there was no single run"))?;
        let figures = TaskFigures::of(&schedule, cpu_ms, alone).rounded();
        let TaskAnswer { threads, others, .. } = answer;
        Ok(Sample::Cell(Observation { figures, alone, cpu_of, threads, others, schedule }))
    }

    /// Requests tasks of this number of steps, which take about `task_ms` each.
    fn ask(
        &mut self,
        place: usize,
        tasks: usize,
        (steps, task_ms): (u64, f64),
        batch: usize,
    ) -> Result<TaskAnswer, Absence> {
        let TaskSettings { order, check, .. } = self.settings;
        let request = RunRequest { starts: self.starts[..tasks].to_vec(), steps, order, batch, check };
        let task = Duration::from_secs_f64(task_ms.max(self.settings.task_ms) / 1000.0);
        let answer = self.contestants[place].ask(&request, task, &self.cores, &self.stop)?;
        answer.ok_or_else(|| Absence::failed("the run was ended"))
    }
}

/// The longest task of a given number of steps, in milliseconds.
const MAX_TASK_MS: f64 = 60_000.0;
/// The kind of a [`Calibration`] in a record.
const CALIBRATION: &str = "calibration";
/// The kind of a [`Sequence`] in a record.
const SEQUENCE: &str = "sequence";

/// Checks that each last term equals the one computed by this process.
fn verified(answer: TaskAnswer, sequences: &[Sequence], steps: u64) -> Result<TaskAnswer, Absence> {
    for ran in &answer.ran {
        let known = sequences.iter().find(|known| known.task == ran.task && [0, steps].contains(&known.steps));
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

impl Experiment for CpuTasks {
    const NAME: &'static str = EXPERIMENT;
    const UNITS: &'static str = "tasks";
    type Key = Key;
    type Sample = Sample;
    type Report = Report;

    fn describe(&self) -> Value {
        serde_json::to_value(&self.settings).unwrap_or_default()
    }

    fn prepare(&mut self, notebook: &mut Notebook<'_, Self>) -> anyhow::Result<()> {
        self.calibrate(notebook)?;
        self.sequences(notebook)?;
        self.announce(notebook)
    }

    fn plan(&self) -> Plan<Key> {
        let TaskSettings { counts, series, contestants, .. } = &self.settings;
        let singles = |when| (1..=SINGLES).map(move |run| CellTasks::Single { when, run });
        let cells = counts.iter().flat_map(|tasks| {
            let (tasks, series) = (*tasks, *series);
            let batches = (series > 0 && tasks > series && tasks % series == 0).then_some(series);
            [Some(0), batches].into_iter().flatten().map(move |series| CellTasks::Cell { tasks, series })
        });
        let steps = singles(When::Before).chain(cells).chain(singles(When::After));
        let turn = |step: CellTasks| contestants.iter().map(move |name| Key { contestant: name.clone(), step });
        Plan { absent: self.absent.clone(), ..Plan::new(vec![Batch::series(steps.flat_map(turn))]) }
    }

    fn measure(&mut self, key: &Key, notebook: &mut Notebook<'_, Self>) -> Result<Sample, Absence> {
        self.observe(key, notebook).map_err(|absence| {
            self.contestants
                .iter_mut()
                .filter(|contestant| contestant.name == key.contestant)
                .for_each(TaskContestant::end);
            match key.step {
                CellTasks::Single { when, run } => {
                    let why = format!("{}, run {run}: {}", when.shown(), absence.why);
                    Absence { why, ..absence }
                }
                _ => absence,
            }
        })
    }

    /// A contestant that fails is out of the whole run.
    fn excludes(_: &Absence, of: &Key, key: &Key) -> bool {
        of.contestant == key.contestant
    }

    /// The number of tasks that all cores run in the time that the cell takes.
    fn weight(&self, key: &Key) -> usize {
        let cores = self.cores.count();
        match key.step {
            CellTasks::Cell { tasks, .. } => tasks.max(cores),
            CellTasks::Single { .. } | CellTasks::All {} => cores,
        }
    }

    fn report(records: &Records<Self>) -> anyhow::Result<Report> {
        Report::of(Measured::of(records)?)
    }

    fn summarize(_: &Records<Self>, report: &Report) -> anyhow::Result<Summary> {
        let Report { measured, claims, .. } = report;
        let csv = [("", table::csv(&measured.cells)?), ("_schedule", table::schedules_csv(&measured.cells)?)];
        let csv = csv.map(|(suffix, text)| (suffix.to_owned(), text)).into();
        let (tables, charts) = (table::tables(measured)?, chart::charts(measured)?);
        Ok(Summary { tables, charts, claims: claims.clone(), csv, ..Summary::default() })
    }
}

#[cfg(test)]
mod tests;
