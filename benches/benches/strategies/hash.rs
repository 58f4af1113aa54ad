//! Compares the hasher of the maps with the standard library's and other common hashers, on ids.
//!
//! * `hash/apart` hashes independent ids. It shows the throughput, because a processor computes several hashes at a
//!   time.
//! * `hash/in_turn` hashes ids that depend on the previous hash. It shows the latency, which a lookup waits for.
//! * `lookup` reads a `HashMap<i64, u64>` with the hasher at random ids. A thousand entries fit in a core's own cache,
//!   so the hasher dominates. A million entries do not fit, so cache misses dominate. Every lookup is checked.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;

use polyserve::memory::hash::IdState;
use polyserve_bench::stores::entities::mixed;

use crate::suite::{BenchGroup, BenchSettings, Suite};

/// The number of ids of one round.
const IDS_PER_ROUND: usize = 1024;

/// Runs `bench` for each contestant.
macro_rules! bench_hashers {
    ($group:expr, $bench:ident $(, $argument:expr)*) => {{
        let mut group = $group;
        $bench::<IdState>(&mut group, "IdState", Default::default $(, $argument)*);
        $bench::<RandomState>(&mut group, "std", Default::default $(, $argument)*);
        $bench::<foldhash::quality::RandomState>(&mut group, "foldhash_quality", Default::default $(, $argument)*);
        $bench::<foldhash::fast::RandomState>(&mut group, "foldhash_fast", Default::default $(, $argument)*);
        $bench::<ahash::RandomState>(&mut group, "ahash", Default::default $(, $argument)*);
    }};
}

fn apart<S: BuildHasher>(group: &mut BenchGroup<'_>, name: &str, state: fn() -> S) {
    let state = state();
    // The function that mixes the ids is not one of the contestants.
    let ids: Vec<i64> = (0..IDS_PER_ROUND as u64).map(|number| mixed(number) as i64).collect();
    group.bench(name, |b| {
        b.iter(|| black_box(&ids).iter().fold(0, |combined, id| combined ^ state.hash_one(id)));
    });
}

fn in_turn<S: BuildHasher>(group: &mut BenchGroup<'_>, name: &str, state: fn() -> S) {
    let state = state();
    group.bench(name, |b| {
        b.iter(|| (0..IDS_PER_ROUND as i64).fold(black_box(1), |last, id| state.hash_one(id ^ last) as i64));
    });
}

fn lookup<S: BuildHasher>(group: &mut BenchGroup<'_>, name: &str, state: fn() -> S, entries: u64) {
    let mut filled = None; // created for the first sample
    group.bench(name, |b| {
        let (map, ids, next) = filled.get_or_insert_with(|| {
            let mut map = HashMap::with_hasher(state());
            map.extend((0..entries as i64).map(|id| (id, id as u64 ^ 0xff)));
            let ids: Vec<i64> =
                (0..entries.max(IDS_PER_ROUND as u64)).map(|number| (mixed(number) % entries) as i64).collect();
            (map, ids, 0)
        });
        b.iter(|| {
            *next = if *next + 2 * IDS_PER_ROUND <= ids.len() { *next + IDS_PER_ROUND } else { 0 };
            for id in &ids[*next..*next + IDS_PER_ROUND] {
                assert_eq!(map.get(id), Some(&(*id as u64 ^ 0xff)));
            }
        });
    });
}

pub(crate) fn benches(suite: &mut Suite) {
    let long = BenchSettings::long(100, 1000, 2000).operations(IDS_PER_ROUND as u64);
    bench_hashers!(suite.group("hash/apart", None, long), apart);
    bench_hashers!(suite.group("hash/in_turn", None, long), in_turn);
    for entries in [1_000, 1_000_000] {
        bench_hashers!(suite.group(format!("lookup/{entries}"), None, long), lookup, entries);
    }
}
