//! The hasher of the maps against the standard library's and those that others use, on ids.
//!
//! `hash/apart` hashes ids that are known beforehand: how many a processor finishes, several at a time. `hash/in_turn`
//! hashes an id that is known when the hash before is: how long one takes from its beginning to its end, which is what a
//! lookup waits for. `lookup` is a `HashMap<i64, u64>` with the hasher, read at ids in random order: with a thousand
//! entries it fits a core's own cache and shows the hasher, with a million it does not and shows what is left of it. Every
//! lookup's answer is checked.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use polyserve::memory::hash::IdState;
use polyserve_lab::stores::entities::mixed;

/// Ids of one round.
const ROUND: usize = 1024;

/// Runs `bench` for each contestant, by its name.
macro_rules! each {
    ($group:expr, $bench:ident $(, $argument:expr)*) => {
        $bench::<IdState>(&mut $group, "IdState", Default::default $(, $argument)*);
        $bench::<RandomState>(&mut $group, "std", Default::default $(, $argument)*);
        $bench::<foldhash::quality::RandomState>(&mut $group, "foldhash_quality", Default::default $(, $argument)*);
        $bench::<foldhash::fast::RandomState>(&mut $group, "foldhash_fast", Default::default $(, $argument)*);
        $bench::<ahash::RandomState>(&mut $group, "ahash", Default::default $(, $argument)*);
    };
}

fn apart<S: BuildHasher>(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, state: fn() -> S) {
    let state = state();
    // Random by what no contestant is.
    let ids: Vec<i64> = (0..ROUND as u64).map(|number| mixed(number) as i64).collect();
    group.bench_function(name, |b| {
        b.iter(|| black_box(&ids).iter().fold(0, |all, id| all ^ state.hash_one(id)));
    });
}

fn in_turn<S: BuildHasher>(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, state: fn() -> S) {
    let state = state();
    group.bench_function(name, |b| {
        b.iter(|| (0..ROUND as i64).fold(black_box(1), |last, id| state.hash_one(id ^ last) as i64));
    });
}

fn lookup<S: BuildHasher>(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, state: fn() -> S, entries: u64) {
    let mut map = HashMap::with_hasher(state());
    map.extend((0..entries as i64).map(|id| (id, id as u64 ^ 0xff)));
    let ids: Vec<i64> = (0..entries.max(ROUND as u64)).map(|number| (mixed(number) % entries) as i64).collect();
    let mut rounds = ids.chunks_exact(ROUND).cycle();
    group.bench_function(name, |b| {
        b.iter(|| {
            for id in rounds.next().expect("there is a round") {
                assert_eq!(map.get(id), Some(&(*id as u64 ^ 0xff)));
            }
        });
    });
}

fn hashes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hash/apart");
    group.throughput(Throughput::Elements(ROUND as u64)).measurement_time(Duration::from_secs(2));
    each!(group, apart);
    group.finish();
    let mut group = criterion.benchmark_group("hash/in_turn");
    group.throughput(Throughput::Elements(ROUND as u64)).measurement_time(Duration::from_secs(2));
    each!(group, in_turn);
    group.finish();
}

fn lookups(criterion: &mut Criterion) {
    for entries in [1_000, 1_000_000] {
        let mut group = criterion.benchmark_group(format!("lookup/{entries}"));
        group.throughput(Throughput::Elements(ROUND as u64)).measurement_time(Duration::from_secs(2));
        each!(group, lookup, entries);
        group.finish();
    }
}

criterion_group!(benches, hashes, lookups);
criterion_main!(benches);
