//! Repos against each other, without a server: what one operation costs, alone and with a second thread at it.
//!
//! Operations are made before the clock starts: keys, and for puts the entities with their descriptions. Every answer
//! is checked: a get must show the value that belongs to its key, a put must find its key. A put's figure includes
//! dropping the entity it replaced; every contestant pays for that alike.
//!
//! With two threads the figure is the time of the slower one, divided by the operations of one: twice the work in the
//! same time shows as the same figure. Both start each chunk together, after having made it.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use polyserve::memory::{Dashmap, StdMutex, StdRwlock, TwoLevel};
use polyserve::{Answer, Entity, EntityRepo, Lookup, Put};

/// Entities in the store: the map and the entities are far beyond a core's own cache, and within what a test machine
/// has.
const KEYS: u64 = 100_000;

/// Operations that are made, and then timed, in one go.
const CHUNK: u64 = 16_384;

type Make = fn() -> Box<dyn EntityRepo>;

const CONTESTANTS: &[(&str, Make)] = &[
    ("std_mutex", || Box::new(StdMutex::new())),
    ("std_rwlock", || Box::new(StdRwlock::new())),
    ("two_level", || Box::new(TwoLevel::new())),
    ("dashmap", || Box::new(Dashmap::new())),
];

/// What is done how often: the name, and puts in a hundred operations.
const MIXES: &[(&str, u64)] = &[("get", 0), ("put", 100), ("get95_put5", 5)];

enum Operation {
    Get(i64),
    Put(Entity),
}

fn value_of(id: i64) -> f64 {
    id as f64 / 8.0
}

fn entity(id: i64) -> Entity {
    Entity::new(id, format!("entity-{id:08}"), value_of(id))
}

/// SplitMix64: one state, every number once.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn operation(&mut self, puts_in_100: u64) -> Operation {
        let id = (self.next() % KEYS) as i64;
        if self.next() % 100 < puts_in_100 { Operation::Put(entity(id)) } else { Operation::Get(id) }
    }
}

/// Does one operation, and checks its answer.
fn perform(repo: &dyn EntityRepo, operation: Operation) {
    match operation {
        Operation::Get(id) => {
            let mut seen = f64::NAN;
            let answer = repo.get(id, &mut |entity| seen = black_box(entity).value);
            assert!(matches!(answer, Answer::Now(Ok(Lookup::Visited))), "get({id}): {answer:?}");
            assert!(seen == value_of(id), "get({id}) shows {seen}");
        }
        Operation::Put(entity) => {
            let answer = repo.put(entity);
            assert!(matches!(answer, Answer::Now(Ok(Put::Replaced))), "put of a known id: {answer:?}");
        }
    }
}

/// The time that `iterations` operations on each of `threads` threads take the slowest of them.
fn measure(repo: &dyn EntityRepo, puts_in_100: u64, threads: usize, iterations: u64) -> Duration {
    let ready = AtomicUsize::new(0);
    let run = |number: usize| {
        let mut random = Random(number as u64 + 1);
        let (mut left, mut chunks, mut spent) = (iterations, 0, Duration::ZERO);
        while left > 0 {
            let count = left.min(CHUNK);
            let operations: Vec<_> = (0..count).map(|_| random.operation(puts_in_100)).collect();
            (left, chunks) = (left - count, chunks + 1);
            ready.fetch_add(1, Ordering::SeqCst);
            while ready.load(Ordering::SeqCst) < chunks * threads {
                thread::yield_now();
            }
            let start = Instant::now();
            operations.into_iter().for_each(|operation| perform(repo, operation));
            spent += start.elapsed();
        }
        spent
    };
    if threads == 1 {
        return run(0);
    }
    thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..threads).map(|number| scope.spawn(move || run(number))).collect();
        let spent = threads.into_iter().map(|thread| thread.join().expect("every answer is right"));
        spent.max().unwrap_or_default()
    })
}

fn filled(make: Make) -> Box<dyn EntityRepo> {
    let repo = make();
    for id in 0..KEYS as i64 {
        assert!(matches!(repo.put(entity(id)), Answer::Now(Ok(Put::Created))), "put of a new id");
    }
    repo
}

fn repos(criterion: &mut Criterion) {
    for &(mix, puts_in_100) in MIXES {
        for threads in [1, 2] {
            let mut group = criterion.benchmark_group(format!("{mix}/{threads}_threads"));
            group.sampling_mode(SamplingMode::Flat).sample_size(20);
            group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
            group.throughput(Throughput::Elements(threads as u64));
            for &(name, make) in CONTESTANTS {
                let repo = filled(make);
                group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
                    bencher.iter_custom(|iterations| measure(&repo, puts_in_100, threads, iterations));
                });
            }
            group.finish();
        }
    }
}

criterion_group!(benches, repos);
criterion_main!(benches);
