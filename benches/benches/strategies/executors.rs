//! Compares executors by the cost of a job that captures one word and increments a counter.
//!
//! One submitter, two workers, batches of 10 000 jobs. A batch ends when all its jobs have run. If the queue is full,
//! the submitter yields its core and submits the job again.
//!
//! The figure is the time of one job, from its allocation to the end of the batch. Three threads share two cores. Every
//! executor spends most of the time in the allocator and in cache misses.
//!
//! There are two tables. In criterion's table the contestants run one after another, and it shows the spread of each.
//!
//! The second table follows if no filter is given, or the filter `dispatch`. Its contestants run in turn in each round,
//! and it shows their ratios to rayon within a round, so drift and other load affect both sides. rayon takes part
//! twice: its ratio to itself is the noise.
//!
//! The operating system places the threads of a batch in one of two ways. If the submitter and the workers share a
//! core, they run one after another. If they run on different cores, the memory of every job moves between caches,
//! which costs three times as much.
//!
//! A round may compare the two placements; wide quartiles are a sign of this. `taskset -c 0` forces the first
//! placement.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, TrySendError};
use polyserve::async_::{FuturesTasks, SmolTasks, TokioBlocking, TokioTasks};
use polyserve::serving::executor::{PoolConfig, Queue};
use polyserve::threadpool::{CrossbeamPool, MpscPool, StealingPool};
use polyserve::{Executor, Job};
use serde_json::json;

use crate::record::record;
use crate::suite::{BenchSettings, Suite};

/// The name of the benchmark group, which is also the filter for the second table.
pub(crate) const GROUP: &str = "dispatch";

const WORKERS: usize = 2;
const JOBS: usize = 10_000;
const ROUNDS: usize = 60;

/// A counter on its own cache lines. It is never freed, so a job captures one word and no reference count.
#[repr(align(128))]
struct AlignedCounter(AtomicUsize);

/// Runs a batch.
type TaskBatch = Box<dyn Fn(&'static AlignedCounter)>;

/// A name and a constructor.
type BenchContestant = (&'static str, fn() -> TaskBatch);

const CONTESTANTS: &[BenchContestant] = &[
    ("mpsc_pool", || executor_batch(MpscPool::new(bounded()).unwrap())),
    ("mpsc_pool/unbounded", || executor_batch(MpscPool::new(unbounded()).unwrap())),
    ("crossbeam_pool", || executor_batch(CrossbeamPool::new(bounded()).unwrap())),
    ("crossbeam_pool/unbounded", || executor_batch(CrossbeamPool::new(unbounded()).unwrap())),
    ("stealing_pool", || executor_batch(StealingPool::new(bounded()).unwrap())),
    ("stealing_pool/unbounded", || executor_batch(StealingPool::new(unbounded()).unwrap())),
    ("tokio_tasks", || executor_batch(TokioTasks::new(bounded()).unwrap())),
    ("tokio_blocking", || executor_batch(TokioBlocking::new(bounded()).unwrap())),
    ("smol_tasks", || executor_batch(SmolTasks::new(bounded()).unwrap())),
    ("futures_tasks", || executor_batch(FuturesTasks::new(bounded()).unwrap())),
    ("tokio/spawn", || tokio(false)),
    ("tokio/spawn_blocking", || tokio(true)),
    ("rayon", rayon),
    ("threadpool", threadpool),
    ("crossbeam_channel", || channel(crossbeam_channel::bounded(1024))),
    ("crossbeam_channel/unbounded", || channel(crossbeam_channel::unbounded())),
];

fn bounded() -> PoolConfig {
    PoolConfig::new(WORKERS)
}

fn unbounded() -> PoolConfig {
    PoolConfig::new(WORKERS).queue(Queue::Unbounded)
}

fn executor_batch(executor: impl Executor) -> TaskBatch {
    batch(move |counter| {
        let mut job = Job::new(move || counter.increment());
        while let Err(rejected) = executor.execute(job) {
            job = rejected.job;
            thread::yield_now();
        }
    })
}

/// The runtime alone, without a queue limit. The difference to `tokio_tasks` and `tokio_blocking` is the cost of what
/// an executor guarantees.
fn tokio(blocking: bool) -> TaskBatch {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(WORKERS).max_blocking_threads(WORKERS).enable_all().build().unwrap();
    batch(move |counter| {
        if blocking {
            drop(runtime.spawn_blocking(move || counter.increment()));
        } else {
            drop(runtime.spawn(async move { counter.increment() }));
        }
    })
}

fn rayon() -> TaskBatch {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(WORKERS).build().unwrap();
    batch(move |counter| pool.spawn(move || counter.increment()))
}

fn threadpool() -> TaskBatch {
    let pool = threadpool::ThreadPool::new(WORKERS);
    batch(move |counter| pool.execute(move || counter.increment()))
}

type BoxedJob = Box<dyn FnOnce() + Send>;

/// A minimal executor over this channel: it catches no panics, counts nothing, and closes only when it is dropped.
fn channel((sender, receiver): (Sender<BoxedJob>, Receiver<BoxedJob>)) -> TaskBatch {
    for _ in 0..WORKERS {
        let receiver = receiver.clone();
        thread::spawn(move || receiver.iter().for_each(|job| job()));
    }
    batch(move |counter| {
        let mut job: BoxedJob = Box::new(move || counter.increment());
        while let Err(error) = sender.try_send(job) {
            let (TrySendError::Full(rejected) | TrySendError::Disconnected(rejected)) = error;
            job = rejected;
            thread::yield_now();
        }
    })
}

impl AlignedCounter {
    fn increment(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

fn batch(submit: impl Fn(&'static AlignedCounter) + 'static) -> TaskBatch {
    Box::new(move |counter| {
        counter.0.store(0, Ordering::Relaxed);
        (0..JOBS).for_each(|_| submit(counter));
        while counter.0.load(Ordering::Acquire) < JOBS {
            thread::yield_now();
        }
        assert_eq!(counter.0.load(Ordering::Acquire), JOBS, "jobs that ran");
    })
}

fn new_counter() -> &'static AlignedCounter {
    Box::leak(Box::new(AlignedCounter(AtomicUsize::new(0))))
}

pub(crate) fn benches(suite: &mut Suite) {
    let counter = new_counter();
    let short = BenchSettings::short(700).operations(JOBS as u64).flat();
    let long = BenchSettings::long(20, 300, 2000).operations(JOBS as u64).flat();
    let mut group = suite.group(GROUP, Some(short), long);
    for (name, make) in CONTESTANTS {
        let mut batch = None; // created for the first sample
        group.bench(*name, |bencher| {
            let batch = batch.get_or_insert_with(make);
            bencher.iter(|| batch(counter));
        });
    }
}

/// Prints the second table: every contestant runs in every round.
pub(crate) fn print_ratios(is_recorded: bool) {
    let rayon_again: BenchContestant = ("rayon again", rayon);
    let contestants: Vec<BenchContestant> = CONTESTANTS.iter().copied().chain([rayon_again]).collect();
    let baseline = contestants.iter().position(|(name, _)| *name == "rayon").expect("rayon is entered");
    let counter = new_counter();
    let nanoseconds = |make: fn() -> TaskBatch| {
        // Each round has a new executor, because the threads of an old one would keep their placement.
        let batch = make();
        batch(counter); // warm-up
        let start = Instant::now();
        batch(counter);
        start.elapsed().as_nanos() as f64 / JOBS as f64
    };
    let mut rounds = vec![vec![0.0; contestants.len()]; ROUNDS];
    for (number, round) in rounds.iter_mut().enumerate() {
        // Each round starts with a different contestant, because the preceding contestant has a measurable effect.
        for index in (0..contestants.len()).map(|turn| (turn + number) % contestants.len()) {
            round[index] = nanoseconds(contestants[index].1);
        }
    }
    let mut lines = Vec::new();
    println!("in turn, {ROUNDS} rounds: median ns a job, and the ratio to rayon within a round (quartiles)");
    for (index, (name, _)) in contestants.iter().enumerate() {
        let time = sorted(rounds.iter().map(|round| round[index]));
        let ratio = sorted(rounds.iter().map(|round| round[index] / round[baseline]));
        let quartile = |values: &[f64], number: usize| values[values.len() * number / 4];
        let (low, median, high) = (quartile(&ratio, 1), quartile(&ratio, 2), quartile(&ratio, 3));
        println!("{name:28} {:7.1} ns   {median:.2} ({low:.2} to {high:.2})", quartile(&time, 2));
        let rounded = |figure: f64| (figure * 100.0).round() / 100.0;
        lines.push(json!({
            "executor": name,
            "ns_a_job": rounded(quartile(&time, 2)),
            "of_rayon": rounded(median),
            "quartiles": format!("{low:.2} to {high:.2}"),
        }));
    }
    if !is_recorded {
        return;
    }
    let plan = json!({ "workers": WORKERS, "jobs": JOBS, "rounds": ROUNDS });
    record("executors", plan, &[("executor", lines)]).expect("the record can be written");
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}
