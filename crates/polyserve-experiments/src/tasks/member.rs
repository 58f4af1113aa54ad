//! The lab's side of a contestant: its process, what it is asked, and what it answers.
//!
//! Invariant: an answer that gets out of here has every task once, forward in time. Cost: a look at the process's threads
//! every quarter of a task, every 100 ms at most, about 20 us each.

use std::time::{Duration, Instant};

use polyserve::Shutdown;
use polyserve_lab::experiment::Absence;
use polyserve_lab::launch::Launch;
use polyserve_lab::launch::conversation::Conversation;
use polyserve_lab::launch::process::Failure;
use polyserve_lab::machine::{Cores, proc};

use super::record::{CpuOf, Scheduled, round};
use super::talk::{Done, Ran, Request, Said};

/// A contestant, its process once it has one, and whether it is still in.
pub(super) struct Member {
    pub(super) name: String,
    launch: Launch,
    talk: Option<Conversation>,
    is_out: bool,
}

/// What a contestant answered.
pub(super) struct Answer {
    /// The tasks, by number.
    pub(super) ran: Vec<Ran>,
    process_cpu_ns: i64,
    /// The most threads that its process was seen to have.
    pub(super) threads: Option<u64>,
}

/// How long a contestant may take beside its tasks.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked at, at least.
const LOOK: Duration = Duration::from_millis(100);

impl Member {
    pub(super) fn new(name: &str, launch: &Launch) -> Self {
        Self { name: name.to_owned(), launch: launch.clone(), talk: None, is_out: false }
    }

    /// Whether it takes part no more.
    pub(super) fn is_out(&self) -> bool {
        self.is_out
    }

    /// Ends it.
    pub(super) fn leave(&mut self) {
        (self.is_out, self.talk) = (true, None);
    }

    /// Has the tasks of `request` run, each of which takes about `task`; `None` where the run was ended meanwhile.
    ///
    /// # Errors
    ///
    /// Where it cannot be started; and, which is wrong, where it dies, does not run all of them, or not in time.
    pub(super) fn ask(
        &mut self,
        request: &Request,
        task: Duration,
        cores: &Cores,
        stop: &Shutdown,
    ) -> Result<Option<Answer>, Absence> {
        let talk = match &mut self.talk {
            Some(talk) => talk,
            none => none.insert(Conversation::start(&self.launch, cores)?),
        };
        let text = serde_json::to_string(request).map_err(|error| Failure(error.to_string()))?;
        let wrong = |Failure(why)| Absence::wrong(why);
        talk.tell(&text).map_err(wrong)?;
        // Others may be at work too, and Go's tasks may be slower.
        let deadline = Instant::now() + PATIENCE + task * 20 * request.starts.len() as u32;
        let look = (task / 4).clamp(Duration::from_millis(1), LOOK);
        let (mut ran, mut threads) = (Vec::new(), None);
        loop {
            match talk.hear(look).map_err(wrong)? {
                None if stop.is_begun() => {
                    self.talk = None;
                    return Ok(None);
                }
                None if Instant::now() > deadline => {
                    return Err(Absence::wrong(format!("{} tasks have not ended in time", request.starts.len())));
                }
                None => threads = threads.max(proc::threads(talk.pid()).ok()),
                Some(line) => match serde_json::from_str(&line) {
                    Ok(Said::Ran(one)) => ran.push(one),
                    Ok(Said::Done(Done { process_cpu_ns })) => {
                        return complete(Answer { ran, process_cpu_ns, threads }, request).map(Some);
                    }
                    Ok(Said::Failed(failed)) => return Err(Absence::wrong(failed.error)),
                    Err(error) => return Err(Absence::wrong(format!("it says {line:?}: {error}"))),
                },
            }
        }
    }
}

/// That every task ran once, and forward in time.
fn complete(answer: Answer, request: &Request) -> Result<Answer, Absence> {
    let numbers = answer.ran.iter().map(|ran| ran.task);
    if !numbers.eq(1..=request.starts.len()) {
        return Err(Absence::wrong(format!("it ran {} of {} tasks", answer.ran.len(), request.starts.len())));
    }
    match answer.ran.iter().find(|ran| ran.submitted_ns > ran.started_ns || ran.started_ns >= ran.finished_ns) {
        Some(ran) => Err(Absence::wrong(format!("task {} ended before it began: {ran:?}", ran.task))),
        None => Ok(answer),
    }
}

impl Answer {
    /// What the tasks spent of the cores' time, in milliseconds; of the process where threads cannot say.
    pub(super) fn cpu_ms(&self) -> (f64, CpuOf) {
        let of_tasks: Option<i64> = self.ran.iter().map(|ran| ran.cpu_ns).sum();
        match of_tasks {
            Some(sum) => (sum as f64 / 1e6, CpuOf::Tasks),
            None => (self.process_cpu_ns as f64 / 1e6, CpuOf::Process),
        }
    }

    /// From the first start, to the microsecond.
    pub(super) fn schedule(&self) -> Vec<Scheduled> {
        let first = self.ran.iter().map(|ran| ran.started_ns).min().unwrap_or(0);
        let ms = |ns: i64| round((ns - first) as f64 / 1e6);
        let scheduled = |ran: &Ran| Scheduled {
            task: ran.task,
            submitted_ms: ms(ran.submitted_ns),
            started_ms: ms(ran.started_ns),
            finished_ms: ms(ran.finished_ns),
            cpu_ms: ran.cpu_ns.map(|ns| round(ns as f64 / 1e6)),
        };
        self.ran.iter().map(scheduled).collect()
    }
}
