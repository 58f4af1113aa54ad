//! The contestant's side of the experiment: a process that runs the requested tasks, at once or in batches. It reports when
//! each task was submitted, began and ended, and its CPU time.
//!
//! Every contestant has a process of its own. So its threads can be counted, a crash affects one contestant only, and
//! our contestants run like the contestant in Go. The runner is created once, before the first request.
//!
//! Invariant: between the first task's start and the last task's end this process does nothing else. The answer is
//! written when all tasks have ended. Cost: the clock is read five times a task.

use std::io::{BufRead, Write};
use std::ops::Range;
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, anyhow, bail};
use crossbeam_utils::thread as crossbeam;
use polyserve::catalog::Catalog;
use polyserve::{Executor, Job, ServerConfig};
use rustix::time::{ClockId, clock_gettime};

use super::protocol::{AnswerLine, Done, RanTask, RunError, RunRequest};
use super::sequence;

/// A thread for each task, in a scope: the published contestant.
pub(crate) const STD_THREADS: &str = "scoped_threads/std";
/// The same with the crate that had scoped threads before std did.
pub(crate) const CROSSBEAM_THREADS: &str = "scoped_threads/crossbeam";
/// Tasks spawned into a scope of rayon's.
pub(crate) const RAYON: &str = "rayon";
/// The contestants that are no executors of a catalog.
pub const OTHERS: [&str; 3] = [STD_THREADS, CROSSBEAM_THREADS, RAYON];

/// The contestant that runs the tasks.
#[derive(Debug)]
pub enum Runner {
    /// An executor of the catalog.
    Executor(Arc<dyn Executor>),
    /// `STD_THREADS`.
    StdThreads,
    /// `CROSSBEAM_THREADS`.
    CrossbeamThreads,
    /// `RAYON`.
    Rayon(rayon::ThreadPool),
}

/// The shared state of the tasks of a request.
struct Work {
    request: RunRequest,
    base: Instant,
    ran: Vec<OnceLock<RanTask>>,
}

impl Runner {
    /// The runner of this name. `workers` is the number of its workers and `queue` the length of its queue, if it has
    /// them.
    ///
    /// # Errors
    ///
    /// Returns an error if no runner has this name, or if it cannot be made.
    pub fn new(catalog: &Catalog, name: &str, workers: usize, queue: usize) -> anyhow::Result<Self> {
        Ok(match (catalog.executor(name), name) {
            (Ok(entry), _) => {
                let config = ServerConfig::default().workers(workers).queue(queue.max(ServerConfig::DEFAULT_QUEUE));
                Self::Executor(entry.build(&config)?)
            }
            (_, STD_THREADS) => Self::StdThreads,
            (_, CROSSBEAM_THREADS) => Self::CrossbeamThreads,
            (_, RAYON) => Self::Rayon(rayon::ThreadPoolBuilder::new().num_threads(workers).build()?),
            (Err(unknown), _) => return Err(unknown.into()),
        })
    }

    /// Runs the tasks of `request`. Returns them in the order of their numbers.
    pub(crate) fn run(&self, request: RunRequest) -> anyhow::Result<Vec<RanTask>> {
        let count = request.starts.len();
        let ran = (0..count).map(|_| OnceLock::new()).collect();
        let batch = if request.batch == 0 { count } else { request.batch };
        let work = Arc::new(Work { request, base: Instant::now(), ran });
        for first in (0..count).step_by(batch.max(1)) {
            self.batch(&work, first..count.min(first + batch))?;
        }
        let ran = work.ran.iter().zip(1..);
        ran.map(|(ran, task)| ran.get().copied().with_context(|| format!("task {task} was not run"))).collect()
    }

    /// Runs the tasks in this range, and waits until all have ended.
    fn batch(&self, work: &Arc<Work>, tasks: Range<usize>) -> anyhow::Result<()> {
        match self {
            Self::Executor(executor) => execute(executor.as_ref(), work, tasks),
            Self::StdThreads => thread::scope(|scope| {
                for task in tasks {
                    let submitted = work.now();
                    thread::Builder::new().spawn_scoped(scope, move || work.run(task, submitted))?;
                }
                Ok(())
            }),
            Self::CrossbeamThreads => crossbeam::scope(|scope| {
                for task in tasks {
                    let submitted = work.now();
                    scope.builder().spawn(move |_| work.run(task, submitted))?;
                }
                Ok(())
            })
            .unwrap_or_else(|_| Err(anyhow!("a task panicked"))),
            Self::Rayon(pool) => {
                pool.in_place_scope(|scope| {
                    for task in tasks {
                        let submitted = work.now();
                        scope.spawn(move |_| work.run(task, submitted));
                    }
                });
                Ok(())
            }
        }
    }
}

fn execute(executor: &dyn Executor, work: &Arc<Work>, tasks: Range<usize>) -> anyhow::Result<()> {
    // The channel disconnects when every job has ended, also after a panic.
    let (running, ended) = channel::<()>();
    for task in tasks {
        let (work, running) = (Arc::clone(work), running.clone());
        let submitted = work.now();
        let job = Job::new(move || {
            let _running = running;
            work.run(task, submitted);
        });
        if let Err(rejected) = executor.execute(job) {
            bail!("task {} was not taken: {rejected}", task + 1);
        }
    }
    drop(running);
    let _ = ended.recv();
    Ok(())
}

impl Work {
    fn now(&self) -> i64 {
        i64::try_from(self.base.elapsed().as_nanos()).unwrap_or(i64::MAX)
    }

    fn run(&self, task: usize, submitted_ns: i64) {
        let (started_ns, cpu_before) = (self.now(), spent(ClockId::ThreadCPUTime));
        let RunRequest { starts, steps, order, check, .. } = &self.request;
        let last = sequence::last(*order, starts[task], *steps, *check);
        let (cpu_ns, finished_ns) = (Some(spent(ClockId::ThreadCPUTime) - cpu_before), self.now());
        let ran = RanTask { task: task + 1, submitted_ns, started_ns, finished_ns, cpu_ns, bits: last.to_bits() };
        let _ = self.ran[task].set(ran); // each is run once
    }
}

/// Returns the CPU time of a clock, in nanoseconds.
fn spent(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

/// Answers requests, one a line, until the input ends.
///
/// # Errors
///
/// Returns an error if a line is no request, or if reading or writing fails. Tasks that cannot be run are no error: the
/// answer has the reason.
pub fn serve(runner: &Runner, requests: impl BufRead, mut answers: impl Write) -> anyhow::Result<()> {
    for line in requests.lines() {
        let request = serde_json::from_str(&line?).context("the line is no request to run tasks")?;
        let spent_before = spent(ClockId::ProcessCPUTime);
        let ran = runner.run(request);
        let process_cpu_ns = spent(ClockId::ProcessCPUTime) - spent_before;
        let lines: Vec<AnswerLine> = match ran {
            Ok(ran) => {
                ran.into_iter().map(AnswerLine::Ran).chain([AnswerLine::Done(Done { process_cpu_ns })]).collect()
            }
            Err(error) => vec![AnswerLine::Failed(RunError { error: format!("{error:#}") })],
        };
        let mut text = String::new();
        for line in lines {
            text += &serde_json::to_string(&line)?;
            text.push('\n');
        }
        answers.write_all(text.as_bytes())?;
        answers.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::sequence::{TermOrder, Terms, starts};

    const STEPS: u64 = 20_000;

    fn request(starts: &[Terms], steps: u64, order: TermOrder, batch: usize) -> RunRequest {
        RunRequest { starts: starts.to_vec(), steps, order, batch, check: false }
    }

    fn all_runners() -> (Catalog, Vec<String>) {
        let catalog = Catalog::builtin();
        let executors = catalog.executors().iter().map(|entry| entry.name.clone());
        let names = executors.chain(OTHERS.map(String::from)).collect();
        (catalog, names)
    }

    #[test]
    fn every_runner_runs_every_task_once_and_records_its_times() {
        let (catalog, names) = all_runners();
        let starts = starts(1, 7);
        for name in names {
            let runner = Runner::new(&catalog, &name, 2, 7).unwrap();
            let ran = runner.run(request(&starts, STEPS, TermOrder::AsDescribed, 0)).unwrap();
            assert_eq!(ran.iter().map(|ran| ran.task).collect::<Vec<_>>(), (1..=7).collect::<Vec<_>>(), "{name}");
            for (ran, start) in ran.iter().zip(&starts) {
                assert_eq!(
                    ran.bits,
                    sequence::last(TermOrder::AsDescribed, *start, STEPS, false).to_bits(),
                    "{name}: {ran:?}"
                );
                assert!(ran.submitted_ns <= ran.started_ns && ran.started_ns < ran.finished_ns, "{name}: {ran:?}");
                assert!(ran.cpu_ns.is_some_and(|spent| spent > 0), "{name}: {ran:?}");
            }
        }
    }

    #[test]
    fn a_batch_starts_when_the_last_one_has_ended() {
        let (catalog, names) = all_runners();
        for name in names {
            let runner = Runner::new(&catalog, &name, 2, 7).unwrap();
            let ran = runner.run(request(&starts(1, 7), STEPS, TermOrder::AsPublished, 3)).unwrap();
            for (first, second) in [(&ran[..3], &ran[3..6]), (&ran[3..6], &ran[6..])] {
                let over = first.iter().map(|ran| ran.finished_ns).max().unwrap();
                assert!(second.iter().all(|ran| ran.submitted_ns >= over), "{name}: {ran:?}");
            }
        }
    }

    #[test]
    fn requests_are_answered_until_they_end() {
        let request = serde_json::to_string(&request(&starts(1, 2), 10, TermOrder::AsDescribed, 0)).unwrap();
        let mut answers = Vec::new();
        serve(&Runner::StdThreads, format!("{request}\n{request}\n").as_bytes(), &mut answers).unwrap();
        let text = String::from_utf8(answers).unwrap();
        let lines: Vec<AnswerLine> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 6);
        assert!(matches!(
            lines[..3],
            [AnswerLine::Ran(RanTask { task: 1, .. }), AnswerLine::Ran(RanTask { task: 2, .. }), AnswerLine::Done(_)]
        ));
        let error = serve(&Runner::StdThreads, &b"what\n"[..], Vec::new()).unwrap_err();
        assert!(error.to_string().contains("no request"), "{error}");
    }

    /// An executor that rejects every job.
    #[derive(Debug)]
    struct Full;

    impl Executor for Full {
        fn execute(&self, job: Job) -> Result<(), polyserve::Rejected> {
            Err(polyserve::Rejected { job, reason: polyserve::RejectedReason::Full })
        }
        fn workers(&self) -> Option<usize> {
            None
        }
        fn close(&self, _: Option<Instant>) -> usize {
            0
        }
        fn panicked(&self) -> u64 {
            0
        }
    }

    #[test]
    fn what_is_not_taken_is_said() {
        let request = serde_json::to_string(&request(&starts(1, 2), 10, TermOrder::AsDescribed, 0)).unwrap();
        let mut answers = Vec::new();
        serve(&Runner::Executor(Arc::new(Full)), request.as_bytes(), &mut answers).unwrap();
        let AnswerLine::Failed(RunError { error }) = serde_json::from_slice(&answers).unwrap() else { panic!() };
        assert!(error.contains("task 1 was not taken") && error.contains("full"), "{error}");
        assert!(Runner::new(&Catalog::builtin(), "missing", 1, 1).unwrap_err().to_string().contains("missing"));
    }
}
