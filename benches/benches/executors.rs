//! Executors against each other: what it costs to dispatch a job that captures one word and counts one up.
//!
//! One submitter, two workers, batches of 10 000 jobs. A batch is over when all its jobs were counted as run; a job
//! that is rejected for want of room is submitted again, after the submitter has yielded its core. The figure is for
//! one job, from its allocation to the end of the batch: on two cores it is three threads' work, and most of it is the
//! allocator's and the caches', as it would be with any executor.
//!
//! Two tables. Criterion's runs the contestants one after the other, and shows each one's spread. The other one
//! follows, where nothing was asked for by name: contestants in turn, round by round, as ratios to rayon within each
//! round, so that a machine that drifts or is shared moves both sides; rayon is entered twice, and its ratio to itself
//! is the noise.
//!
//! Mind that a batch runs in one of two ways, as the system happens to place the threads: submitter and workers on one
//! core, one after the other, or on different cores, where every job's memory moves between caches and costs three
//! times as much. A round may compare the one with the other: wide quartiles say that it did. `taskset -c 0` leaves the
//! first.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, SamplingMode, Throughput, criterion_group};
use crossbeam_channel::{Receiver, Sender, TrySendError};
use polyserve::runtimes::executors::{FuturesTasks, SmolTasks, TasksConfig, TokioBlocking, TokioTasks};
use polyserve::threadpool::{CrossbeamPool, MpscPool, PoolConfig, Queue, StealingPool};
use polyserve::{Executor, Job};

const WORKERS: usize = 2;
const JOBS: usize = 10_000;
const ROUNDS: usize = 60;

/// On cache lines of its own, and for ever: what a job captures is one word, and no reference count.
#[repr(align(128))]
struct Count(AtomicUsize);

/// Runs a batch.
type Batch = Box<dyn Fn(&'static Count)>;

/// A name, and how it is made.
type Contestant = (&'static str, fn() -> Batch);

const CONTESTANTS: &[Contestant] = &[
    ("mpsc_pool", || of(MpscPool::new(bounded()).unwrap())),
    ("mpsc_pool/unbounded", || of(MpscPool::new(unbounded()).unwrap())),
    ("crossbeam_pool", || of(CrossbeamPool::new(bounded()).unwrap())),
    ("crossbeam_pool/unbounded", || of(CrossbeamPool::new(unbounded()).unwrap())),
    ("stealing_pool", || of(StealingPool::new(bounded()).unwrap())),
    ("stealing_pool/unbounded", || of(StealingPool::new(unbounded()).unwrap())),
    ("tokio_tasks", || of(TokioTasks::new(tasks()).unwrap())),
    ("tokio_blocking", || of(TokioBlocking::new(tasks()).unwrap())),
    ("smol_tasks", || of(SmolTasks::new(tasks()).unwrap())),
    ("futures_tasks", || of(FuturesTasks::new(tasks()).unwrap())),
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
    PoolConfig::new(WORKERS).with(|c| c.queue = Queue::Unbounded)
}

fn tasks() -> TasksConfig {
    TasksConfig::new(WORKERS)
}

fn of(executor: impl Executor) -> Batch {
    batch(move |count| {
        let mut job = Job::new(move || count.up());
        while let Err(rejected) = executor.execute(job) {
            job = rejected.job;
            thread::yield_now();
        }
    })
}

/// The runtime alone, without a bound: the difference to `tokio_tasks` and `tokio_blocking` is what an executor's
/// promises cost.
fn tokio(blocking: bool) -> Batch {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(WORKERS).max_blocking_threads(WORKERS).build().unwrap();
    batch(move |count| {
        if blocking {
            drop(runtime.spawn_blocking(move || count.up()));
        } else {
            drop(runtime.spawn(async move { count.up() }));
        }
    })
}

fn rayon() -> Batch {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(WORKERS).build().unwrap();
    batch(move |count| pool.spawn(move || count.up()))
}

fn threadpool() -> Batch {
    let pool = threadpool::ThreadPool::new(WORKERS);
    batch(move |count| pool.execute(move || count.up()))
}

type Boxed = Box<dyn FnOnce() + Send>;

/// The least that an executor over this channel can be: no panic is caught, nothing is counted, nothing can be closed
/// but by dropping it.
fn channel((sender, receiver): (Sender<Boxed>, Receiver<Boxed>)) -> Batch {
    for _ in 0..WORKERS {
        let receiver = receiver.clone();
        thread::spawn(move || receiver.iter().for_each(|job| job()));
    }
    batch(move |count| {
        let mut job: Boxed = Box::new(move || count.up());
        while let Err(error) = sender.try_send(job) {
            let (TrySendError::Full(back) | TrySendError::Disconnected(back)) = error;
            job = back;
            thread::yield_now();
        }
    })
}

impl Count {
    fn up(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

fn batch(submit: impl Fn(&'static Count) + 'static) -> Batch {
    Box::new(move |count| {
        count.0.store(0, Ordering::Relaxed);
        (0..JOBS).for_each(|_| submit(count));
        while count.0.load(Ordering::Acquire) < JOBS {
            thread::yield_now();
        }
        assert_eq!(count.0.load(Ordering::Acquire), JOBS, "jobs that ran");
    })
}

fn count() -> &'static Count {
    Box::leak(Box::new(Count(AtomicUsize::new(0))))
}

fn dispatch(criterion: &mut Criterion) {
    let count = count();
    let mut group = criterion.benchmark_group("dispatch");
    group.sampling_mode(SamplingMode::Flat).sample_size(20);
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
    group.throughput(Throughput::Elements(JOBS as u64));
    for (name, make) in CONTESTANTS {
        let batch = make();
        group.bench_function(*name, |bencher| bencher.iter(|| batch(count)));
    }
    group.finish();
}

/// The second table: every contestant in every round.
fn in_turn() {
    let again: Contestant = ("rayon again", rayon);
    let contestants: Vec<Contestant> = CONTESTANTS.iter().copied().chain([again]).collect();
    let baseline = contestants.iter().position(|(name, _)| *name == "rayon").expect("rayon is entered");
    let count = count();
    let nanoseconds = |make: fn() -> Batch| {
        // A new one each time: where its threads were placed, it would stay.
        let batch = make();
        batch(count); // to warm up
        let start = Instant::now();
        batch(count);
        start.elapsed().as_nanos() as f64 / JOBS as f64
    };
    let mut rounds = vec![vec![0.0; contestants.len()]; ROUNDS];
    for (number, round) in rounds.iter_mut().enumerate() {
        // A different one begins each round: whom one runs after is seen to matter.
        for index in (0..contestants.len()).map(|turn| (turn + number) % contestants.len()) {
            round[index] = nanoseconds(contestants[index].1);
        }
    }
    println!("in turn, {ROUNDS} rounds: median ns a job, and the ratio to rayon within a round (quartiles)");
    for (index, (name, _)) in contestants.iter().enumerate() {
        let time = sorted(rounds.iter().map(|round| round[index]));
        let ratio = sorted(rounds.iter().map(|round| round[index] / round[baseline]));
        let at = |values: &[f64], part: usize| values[values.len() * part / 4];
        let (low, middle, high) = (at(&ratio, 1), at(&ratio, 2), at(&ratio, 3));
        println!("{name:28} {:7.1} ns   {middle:.2} ({low:.2} to {high:.2})", at(&time, 2));
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

criterion_group!(benches, dispatch);

fn main() {
    benches();
    Criterion::default().configure_from_args().final_summary();
    if std::env::args().skip(1).all(|argument| argument == "--bench") {
        in_turn();
    }
}
