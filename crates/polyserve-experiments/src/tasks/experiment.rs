//! The run itself: calibration, the sequences' limits, single runs, observations, and single runs again.
//!
//! Contestants take their turns within every number of tasks (A B C, A B C), so that what the machine does meanwhile
//! strikes all of them.
//!
//! Invariant: while a contestant runs tasks, all others and this process wait, but for a look at its threads now and then.
//! A contestant that fails is out for the rest of the run; one that did wrong, for those that go on with it too.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use polyserve::Shutdown;
use polyserve::sync::lock;
use polyserve_lab::experiment::Absence;
use polyserve_lab::journal::Journal;
use polyserve_lab::launch::Launch;
use polyserve_lab::machine::Cores;
use polyserve_lab::output::spinner;
use polyserve_lab::progress::Progress;
use polyserve_lab::statistics::median;

use super::figures::{Alone, Figures};
use super::member::{Answer, Member};
use super::record::{Calibration, Cell, Failed, Measured, Plan, Sequence, Single, SingleRun, When, round};
use super::sequence::{Terms, look, starts};
use super::talk::Request;

/// Single runs of each contestant, before and after.
pub const SINGLES: usize = 5;

/// Somebody who is to take part.
#[derive(Clone, Debug)]
pub struct Contestant {
    /// Its name.
    pub name: String,
    /// How its process is started, or why it is not.
    pub launch: Result<Launch, String>,
}

/// What is left to be measured of one contestant at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Single { when: When, run: usize },
    Cell { tasks: usize, series: usize },
}

struct Run<'a> {
    plan: &'a Plan,
    cores: &'a Cores,
    stop: &'a Shutdown,
    journal: &'a mut Journal,
    measured: Measured,
    starts: Vec<Terms>,
}

/// Measures what `journal` does not hold yet, and answers everything. Ends early where `stop` begins.
///
/// # Errors
///
/// Where the journal fails, or nobody can run a task.
pub fn run(
    plan: &Plan,
    contestants: &[Contestant],
    cores: &Cores,
    journal: &mut Journal,
    stop: &Shutdown,
) -> anyhow::Result<Measured> {
    let measured = Measured {
        plan: Some(plan.clone()),
        calibration: journal.before("calibration")?.pop(),
        sequences: journal.before("sequence")?,
        singles: journal.before("single")?,
        cells: journal.before("cell")?,
        ..Measured::default()
    };
    let before = journal.before::<Failed>("failure")?.into_iter().filter(|failed| failed.wrong);
    let most = plan.counts.iter().copied().max().unwrap_or(1);
    let mut run = Run { plan, cores, stop, journal, measured, starts: starts(plan.seed, most) };
    before.for_each(|failed| run.measured.fail(failed));
    let mut members = Vec::new();
    for Contestant { name, launch } in contestants {
        match launch {
            // Who is asked often enough may be lucky.
            _ if run.measured.failed.iter().any(|failed| failed.wrong && failed.contestant == *name) => {}
            Ok(launch) => members.push(Member::new(name, launch)),
            Err(_) if stop.is_begun() => {} // it was interrupted while it was built
            Err(why) => {
                let failed = Failed::of(name, None, Absence::failed(why.clone()));
                run.journal.once("failure", &failed)?;
                run.measured.fail(failed);
            }
        }
    }
    run.calibrate(&mut members)?;
    run.sequences()?;
    run.steps(&mut members)?;
    let mut measured = run.measured;
    measured.interrupted = stop.is_begun();
    measured.sort();
    Ok(measured)
}

impl Run<'_> {
    fn failed(&mut self, name: &str, step: Option<Step>, absence: Absence) -> anyhow::Result<()> {
        let failed = Failed::of(name, step, absence);
        self.journal.line("failure", &failed)?;
        self.measured.fail(failed);
        Ok(())
    }

    /// Finds how many steps take as long as a task is to take, with the first contestant that can run one.
    fn calibrate(&mut self, members: &mut [Member]) -> anyhow::Result<()> {
        if self.measured.calibration.is_some() {
            return Ok(());
        }
        for member in members {
            match self.calibration(member) {
                Ok(Some(calibration)) => {
                    self.journal.line("calibration", &calibration)?;
                    self.measured.calibration = Some(calibration);
                    return Ok(());
                }
                Ok(None) => return Ok(()), // it was ended
                Err(absence) => {
                    member.leave();
                    self.failed(&member.name, None, absence)?;
                }
            }
        }
        if self.stop.is_begun() {
            return Ok(());
        }
        let why: Vec<String> =
            self.measured.failed.iter().map(|failed| format!("{}: {}", failed.contestant, failed.why)).collect();
        bail!("nobody can run a task: {}", why.join("; "))
    }

    fn calibration(&self, member: &mut Member) -> Result<Option<Calibration>, Absence> {
        let mut time = |steps: u64| -> Result<Option<f64>, Absence> {
            let answer = self.ask(member, &self.request(1, steps, 0))?;
            Ok(answer.map(|answer| (answer.ran[0].finished_ns - answer.ran[0].started_ns) as f64 / 1e6))
        };
        let wanted = self.plan.task_ms;
        let mut steps = 10_000_u64;
        let mut took: f64 = 0.0;
        // Up to a quarter of the time fourfold each time, then thrice in proportion.
        while took < wanted / 4.0 {
            steps = steps.saturating_mul(4);
            let Some(ms) = time(steps)? else { return Ok(None) };
            took = ms;
        }
        for _ in 0..3 {
            let mut thrice = [0.0; 3];
            for ms in &mut thrice {
                let Some(took) = time(steps)? else { return Ok(None) };
                *ms = took;
            }
            took = median(&mut thrice);
            steps = ((steps as f64 * wanted / took.max(1e-6)) as u64).max(1);
        }
        let Some(measured_ms) = time(steps)? else { return Ok(None) };
        Ok(Some(Calibration { steps, measured_ms: round(measured_ms), contestant: member.name.clone() }))
    }

    /// Computes what every task must answer, and whether its sequence converges; on all cores, for nothing is measured.
    fn sequences(&mut self) -> anyhow::Result<()> {
        let Some(steps) = self.measured.calibration.as_ref().map(|calibration| calibration.steps) else {
            return Ok(());
        };
        let is_known = |task: usize| self.measured.sequences.iter().any(|known| known.task == task);
        let missing: Vec<usize> = (1..=self.starts.len()).filter(|task| !is_known(*task)).collect();
        let bar = spinner();
        bar.set_prefix("what the tasks must answer");
        bar.set_message(format!("{} sequences of {steps} steps", missing.len()));
        let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            while let Some(task) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                let start = self.starts[task - 1];
                let Some(seen) = look(self.plan.order, start, steps, self.stop) else { return };
                lock(&found).push(Sequence::new(*task, start, seen.last, seen.limit));
            }
        };
        thread::scope(|scope| (0..self.cores.count().min(missing.len())).for_each(|_| drop(scope.spawn(work))));
        let mut found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        bar.finish_and_clear();
        found.sort_by_key(|sequence| sequence.task);
        for sequence in found {
            self.journal.line("sequence", &sequence)?;
            self.measured.sequences.push(sequence);
        }
        Ok(())
    }

    /// Everything that is measured, in turn.
    fn steps(&mut self, members: &mut [Member]) -> anyhow::Result<()> {
        let todo = self.todo(members);
        let weights = todo.iter().map(|(step, _)| self.weight(*step));
        let all: usize = weights.sum();
        let mut progress = Progress::counting(all, "tasks");
        if all > 0 && !self.stop.is_begun() {
            let seconds = (all as f64 * self.plan.task_ms / 1000.0 / self.cores.count() as f64).ceil();
            let time = humantime::format_duration(Duration::from_secs_f64(seconds.max(1.0)));
            progress.say(&format!("about {time}: {} runs of {} contestants", todo.len(), members.len()));
        }
        for (step, member) in todo {
            let member = &mut members[member];
            if self.stop.is_begun() {
                break;
            }
            if !member.is_out() {
                progress.begin(step.shown(&member.name));
                if let Err(absence) = self.step(step, member)? {
                    member.leave();
                    self.failed(&member.name, Some(step), absence)?;
                }
            }
            (0..self.weight(step)).for_each(|_| progress.turn_over());
        }
        progress.finish();
        Ok(())
    }

    /// What is not recorded yet, and whose turn it is.
    fn todo(&self, members: &[Member]) -> Vec<(Step, usize)> {
        let Plan { counts, series, .. } = self.plan;
        let singles = |when| (1..=SINGLES).map(move |run| Step::Single { when, run });
        let cells = counts.iter().flat_map(|tasks| {
            let (tasks, series) = (*tasks, *series);
            let batches = (series > 0 && tasks > series && tasks % series == 0).then_some(series);
            [Some(0), batches].into_iter().flatten().map(move |series| Step::Cell { tasks, series })
        });
        let steps = singles(When::Before).chain(cells).chain(singles(When::After));
        steps
            .flat_map(|step| (0..members.len()).map(move |member| (step, member)))
            .filter(|(step, member)| !self.is_recorded(*step, &members[*member].name))
            .collect()
    }

    fn is_recorded(&self, step: Step, name: &str) -> bool {
        match step {
            Step::Single { when, run } => {
                (self.measured.singles.iter()).any(|one| one.contestant == name && (one.when, one.run) == (when, run))
            }
            Step::Cell { tasks, series } => self.measured.cell(name, tasks, series).is_some(),
        }
    }

    /// How many tasks' time it takes with all cores.
    fn weight(&self, step: Step) -> usize {
        let cores = self.cores.count();
        match step {
            Step::Single { .. } => cores,
            Step::Cell { tasks, .. } => tasks.max(cores),
        }
    }

    fn step(&mut self, step: Step, member: &mut Member) -> anyhow::Result<Result<(), Absence>> {
        let Some(steps) = self.measured.calibration.as_ref().map(|calibration| calibration.steps) else {
            return Ok(Ok(())); // it was ended
        };
        let (tasks, series) = match step {
            Step::Single { .. } => (1, 0),
            Step::Cell { tasks, series } => (tasks, series),
        };
        let asked = self.ask(member, &self.request(tasks, steps, series));
        let answer = match asked.and_then(|answer| answer.map(|answer| self.verified(answer)).transpose()) {
            Ok(Some(answer)) => answer,
            Ok(None) => return Ok(Ok(())),
            Err(absence) => return Ok(Err(absence)),
        };
        let (cpu_ms, cpu_of) = answer.cpu_ms();
        let (contestant, schedule) = (member.name.clone(), answer.schedule());
        match step {
            Step::Single { when, run } => {
                let duration_ms = round(schedule[0].duration_ms());
                let single = Single { contestant, when, run, duration_ms, cpu_ms: round(cpu_ms) };
                self.journal.line("single", &single)?;
                self.measured.singles.push(single);
            }
            Step::Cell { tasks, series } => {
                let alone: Alone =
                    (self.measured.alone(&contestant, When::Before)).context("there was no single run")?;
                let figures = Figures::of(&schedule, cpu_ms, alone).rounded();
                let threads = answer.threads;
                let cell = Cell { tasks, contestant, series, figures, alone, cpu_of, threads, schedule };
                self.journal.line("cell", &cell)?;
                self.measured.cells.push(cell);
            }
        }
        Ok(Ok(()))
    }

    fn request(&self, tasks: usize, steps: u64, batch: usize) -> Request {
        Request { starts: self.starts[..tasks].to_vec(), steps, order: self.plan.order, batch }
    }

    fn ask(&self, member: &mut Member, request: &Request) -> Result<Option<Answer>, Absence> {
        let task = Duration::from_secs_f64(self.plan.task_ms / 1000.0);
        member.ask(request, task, self.cores, self.stop)
    }

    /// That each last term is the one that was computed here.
    fn verified(&self, answer: Answer) -> Result<Answer, Absence> {
        for ran in &answer.ran {
            let known = self.measured.sequences.iter().find(|known| known.task == ran.task);
            let Some(Sequence { last, .. }) = known else {
                let why = format!("what task {} must answer is not known", ran.task);
                return Err(Absence::failed(why));
            };
            if last.to_bits() != ran.bits {
                let wrong = f64::from_bits(ran.bits);
                return Err(Absence::wrong(format!("the last term of task {} is {last}, not {wrong}", ran.task)));
            }
        }
        Ok(answer)
    }
}

impl Failed {
    /// Of a contestant, at a step; without one it does not take part at all.
    fn of(name: &str, step: Option<Step>, absence: Absence) -> Self {
        let (wrong, why) = (absence.is_wrong(), absence.why);
        let contestant = name.to_owned();
        match step {
            Some(Step::Cell { tasks, series }) => {
                Self { contestant, tasks: Some(tasks), series, single: None, why, wrong }
            }
            Some(Step::Single { when, run }) => {
                let why = format!("{}, run {run}: {why}", when.shown());
                Self { contestant, tasks: None, series: 0, single: Some(SingleRun { when, run }), why, wrong }
            }
            None => Self { contestant, tasks: None, series: 0, single: None, why, wrong },
        }
    }
}

impl Step {
    fn shown(self, name: &str) -> String {
        match self {
            Self::Single { when, run } => format!("{name}: {}, {run}", when.shown()),
            Self::Cell { tasks, series: 0 } => format!("{name}: {tasks} at once"),
            Self::Cell { tasks, series } => format!("{name}: {tasks} by {series}"),
        }
    }
}

impl When {
    fn shown(self) -> &'static str {
        match self {
            Self::Before => "alone",
            Self::After => "alone again",
        }
    }
}

#[cfg(test)]
mod tests;
