//! The instrument's side of a contestant: its process, the requests and the answers.
//!
//! Invariant: a returned answer has every task once, and no task ends before it begins. Cost: a count of the process's
//! threads every quarter of a task, or every 100 ms if that is shorter.

use std::time::{Duration, Instant};

use crate::experiment::Absence;
use crate::launch::Launch;
use crate::launch::line_process::LineProcess;
use crate::machine::proc::Spent;
use crate::machine::{Cores, proc};
use polyserve::Shutdown;

use super::figures::{Scheduled, round};
use super::protocol::{AnswerLine, Done, RanTask, RunRequest};

/// A contestant, and its process once it has one.
#[derive(Debug)]
pub(crate) struct TaskContestant {
    pub(crate) name: String,
    launch: Launch,
    process: Option<LineProcess>,
}

/// The answer of a contestant.
pub(crate) struct TaskAnswer {
    /// The tasks, by number.
    pub(crate) ran: Vec<RanTask>,
    process_cpu_ns: i64,
    /// The largest number of threads that its process was seen to have.
    pub(crate) threads: Option<u64>,
    /// The share of the cores' time that other processes used meanwhile; `None` if the system does not report it.
    pub(crate) others: Option<f64>,
}

/// The max time of a request without the time of its tasks.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// The longest time between two counts of its threads.
const MAX_COUNT_INTERVAL: Duration = Duration::from_millis(100);

impl TaskContestant {
    pub(crate) fn new(name: &str, launch: Launch) -> Self {
        Self { name: name.to_owned(), launch, process: None }
    }

    /// Ends its process.
    pub(crate) fn end(&mut self) {
        self.process = None;
    }

    /// Runs the tasks of `request`, each of which takes about `task`. Returns `None` if the run was ended meanwhile. Returns an
    /// absence: failed if the process cannot be started, wrong if it ended or did not run all tasks in time.
    pub(crate) fn ask(
        &mut self,
        request: &RunRequest,
        task: Duration,
        cores: &Cores,
        stop: &Shutdown,
    ) -> Result<Option<TaskAnswer>, Absence> {
        let process = match &mut self.process {
            Some(process) => process,
            slot => slot.insert(LineProcess::start(&self.launch, cores)?),
        };
        let text = serde_json::to_string(request).map_err(|error| Absence::failed(error.to_string()))?;
        let (before, started) = (Spent::on(cores.numbers()), Instant::now());
        process.send_line(&text)?;
        // The machine may be busy, and Go's tasks may be slower.
        let deadline = Instant::now() + MAX_WAIT + task * 20 * request.starts.len() as u32;
        let count_interval = (task / 4).clamp(Duration::from_millis(1), MAX_COUNT_INTERVAL);
        let (mut ran, mut threads) = (Vec::new(), None);
        loop {
            match process.next_line(count_interval)? {
                None if stop.is_begun() => {
                    self.process = None;
                    return Ok(None);
                }
                None if Instant::now() > deadline => {
                    return Err(Absence::wrong(format!("{} tasks have not ended in time", request.starts.len())));
                }
                None => threads = threads.max(proc::threads(process.pid()).ok()),
                Some(line) => match serde_json::from_str(&line) {
                    Ok(AnswerLine::Ran(ran_task)) => ran.push(ran_task),
                    Ok(AnswerLine::Done(Done { process_cpu_ns })) => {
                        let all_s = started.elapsed().as_secs_f64() * cores.count() as f64;
                        let idle_s =
                            before.zip(Spent::on(cores.numbers())).map(|(before, now)| now.idle_since(&before));
                        let others = idle_s.map(|idle_s| 1.0 - (idle_s + process_cpu_ns as f64 / 1e9) / all_s);
                        let others = others.map(|share| round(share.clamp(0.0, 1.0)));
                        return complete(TaskAnswer { ran, process_cpu_ns, threads, others }, request).map(Some);
                    }
                    Ok(AnswerLine::Failed(failed)) => return Err(Absence::wrong(failed.error)),
                    Err(error) => return Err(Absence::wrong(format!("unexpected line {line:?}: {error}"))),
                },
            }
        }
    }
}

/// Checks that every task ran once, and forward in time.
fn complete(answer: TaskAnswer, request: &RunRequest) -> Result<TaskAnswer, Absence> {
    let numbers = answer.ran.iter().map(|ran| ran.task);
    if !numbers.eq(1..=request.starts.len()) {
        return Err(Absence::wrong(format!("it ran {} of {} tasks", answer.ran.len(), request.starts.len())));
    }
    match answer.ran.iter().find(|ran| ran.submitted_ns > ran.started_ns || ran.started_ns >= ran.finished_ns) {
        Some(ran) => Err(Absence::wrong(format!("task {} ended before it began: {ran:?}", ran.task))),
        None => Ok(answer),
    }
}

impl TaskAnswer {
    /// The CPU time in milliseconds, and whether it is that of the process: a task of Go can change threads.
    pub(crate) fn cpu_ms(&self) -> (f64, bool) {
        let of_tasks: Option<i64> = self.ran.iter().map(|ran| ran.cpu_ns).sum();
        match of_tasks {
            Some(sum) => (sum as f64 / 1e6, false),
            None => (self.process_cpu_ns as f64 / 1e6, true),
        }
    }

    /// The times of the tasks from the first start, to the microsecond.
    pub(crate) fn schedule(&self) -> Vec<Scheduled> {
        let first = self.ran.iter().map(|ran| ran.started_ns).min().unwrap_or(0);
        let ms = |ns: i64| round((ns - first) as f64 / 1e6);
        let scheduled = |ran: &RanTask| Scheduled {
            task: ran.task,
            submitted_ms: ms(ran.submitted_ns),
            started_ms: ms(ran.started_ns),
            finished_ms: ms(ran.finished_ns),
            cpu_ms: ran.cpu_ns.map(|ns| round(ns as f64 / 1e6)),
        };
        self.ran.iter().map(scheduled).collect()
    }
}
