//! The hasher of the maps compared with the standard library's hasher and other common hashers, on ids.
//!
//! `hash/apart` hashes independent ids: it shows the throughput, because a processor computes several hashes at a time.
//! `hash/in_turn` hashes ids that depend on the previous hash: it shows the latency, which a lookup waits for. `lookup`
//! reads a `HashMap<i64, u64>` with the hasher at random ids. A thousand entries fit a core's own cache, so the hasher
//! dominates. A million entries do not fit, so cache misses dominate. Every lookup is checked.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;

use polyserve::memory::hash::IdState;
use polyserve_lab::stores::entities::mixed;

use crate::suite::{BenchGroup, BenchSettings, Suite};

/// The number of ids of one round.
const ROUND: usize = 1024;

/// Runs `bench` for each contestant.
macro_rules! each {
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
    // Mixed by a function that is no contestant.
    let ids: Vec<i64> = (0..ROUND as u64).map(|number| mixed(number) as i64).collect();
    group.bench(name, |b| {
        b.iter(|| black_box(&ids).iter().fold(0, |all, id| all ^ state.hash_one(id)));
    });
}

fn in_turn<S: BuildHasher>(group: &mut BenchGroup<'_>, name: &str, state: fn() -> S) {
    let state = state();
    group.bench(name, |b| {
        b.iter(|| (0..ROUND as i64).fold(black_box(1), |last, id| state.hash_one(id ^ last) as i64));
    });
}

fn lookup<S: BuildHasher>(group: &mut BenchGroup<'_>, name: &str, state: fn() -> S, entries: u64) {
    let mut filled = None; // made for the first sample
    group.bench(name, |b| {
        let (map, ids, next) = filled.get_or_insert_with(|| {
            let mut map = HashMap::with_hasher(state());
            map.extend((0..entries as i64).map(|id| (id, id as u64 ^ 0xff)));
            let ids: Vec<i64> = (0..entries.max(ROUND as u64)).map(|number| (mixed(number) % entries) as i64).collect();
            (map, ids, 0)
        });
        b.iter(|| {
            *next = if *next + 2 * ROUND <= ids.len() { *next + ROUND } else { 0 };
            for id in &ids[*next..*next + ROUND] {
                assert_eq!(map.get(id), Some(&(*id as u64 ^ 0xff)));
            }
        });
    });
}

pub(crate) fn benches(suite: &mut Suite) {
    let long = BenchSettings::long(100, 1000, 2000).operations(ROUND as u64);
    each!(suite.group("hash/apart", None, long), apart);
    each!(suite.group("hash/in_turn", None, long), in_turn);
    for entries in [1_000, 1_000_000] {
        each!(suite.group(format!("lookup/{entries}"), None, long), lookup, entries);
    }
}
