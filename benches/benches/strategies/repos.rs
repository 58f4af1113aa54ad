//! Compares stores without a server: every repo of the catalog, and the same maps used directly, without the seam. The
//! figure is the cost of one operation, with one thread and with several.
//!
//! Keys and operations are prepared before the clock starts. Every answer is checked, by the same code
//! ([`polyserve_bench::stores`]) as in the mode `store` of `polyserve bench`. A get must return the right id, a stored version,
//! and a description of the right length. A put and a remove must find the entity.
//!
//! The figure of a put includes dropping the replaced entity. Deferred answers are awaited one by one.
//!
//! All threads work while the clock runs. The figure is the time divided by the operations of one thread: if two
//! threads do twice the work in the same time, the figure is the same.
//!
//! `POLYSERVE_BENCH_THREADS=1,2,4,8` sets the numbers of threads, instead of 1 and 2. A filter selects benchmarks:
//! `cargo bench -p polyserve-benches -- 'read uniform/2'`.

use polyserve::catalog::Catalog;
use polyserve_bench::stores::StoreOperation;
use polyserve_bench::stores::bare::{HASH_MAP, NAMES, StoreMaker, maker};
use polyserve_bench::stores::erased::{ErasedStore, StoreContent};
use polyserve_bench::stores::phase::{Lanes, PhaseResult, PhaseSettings, Until};
use polyserve_bench::stores::run::filling;
use polyserve_bench::stores::workload::{OperationKind, OperationPlan};
use polyserve_load::Dist;

use crate::suite::{BenchGroup, BenchSettings, Suite, is_test};

/// The number of entities. The map and the entities are much larger than a core's own caches.
const KEYS: u64 = 100_000;
/// The number of entities for a test run without a measurement.
const FEW_KEYS: u64 = 500;
const PAYLOAD_BYTES: usize = 15;
const OPERATIONS: [StoreOperation; 5] = [
    StoreOperation::Read,
    StoreOperation::MostlyRead,
    StoreOperation::Half,
    StoreOperation::Churn,
    StoreOperation::Insert,
];
const DISTS: [Dist; 3] = [Dist::Uniform, Dist::Zipf(0.99), Dist::Hot];
/// The operations of the selection, with uniform ids. The ranking uses them.
const SELECTED: [StoreOperation; 2] = [StoreOperation::Read, StoreOperation::Half];
const SHORT: BenchSettings = BenchSettings::short(600).flat();
const LONG: BenchSettings = BenchSettings::long(10, 200, 700).flat();

/// Benchmarks a store. `make` creates it, and `plan` has the operations.
fn bench(group: &mut BenchGroup<'_>, name: &str, plan: &OperationPlan, make: &StoreMaker) {
    let threads = plan.threads as u64;
    let mut run: Box<dyn FnMut(PhaseSettings) -> anyhow::Result<PhaseResult>> =
        if plan.operation == StoreOperation::Insert {
            Box::new(|settings| filling(make, plan, settings))
        } else {
            // Created for the first sample, because a filter skips most benchmarks.
            let mut filled: Option<(Box<dyn ErasedStore>, Lanes)> = None;
            Box::new(move |settings| {
                let (store, lanes) = match &mut filled {
                    Some(filled) => filled,
                    none => {
                        let store = make()?;
                        let content = StoreContent { keys: plan.keys, payload_bytes: plan.payload_bytes };
                        store.change(&content, 0..plan.keys, OperationKind::Create)?;
                        store.expect_len(plan.keys)?;
                        none.insert((store, Lanes::new(plan, 0)))
                    }
                };
                store.run(lanes, settings)
            })
        };
    group.timed(name, |iterations| {
        let until = Until::Operations(iterations * threads);
        let phase = run(PhaseSettings { until, whole: false, latency: false, window: false });
        phase.expect("every answer is right").time_of(iterations * threads)
    });
}

fn threads() -> Vec<usize> {
    let value = std::env::var("POLYSERVE_BENCH_THREADS").unwrap_or_else(|_| "1,2".into());
    let numbers =
        value.split(',').map(|number| number.trim().parse().ok().filter(|number| (1..=1024).contains(number)));
    numbers.collect::<Option<_>>().expect("POLYSERVE_BENCH_THREADS is numbers with commas between, such as 1,2,4")
}

/// An operation with the distribution of its ids, if it draws them.
type BenchLoad = (StoreOperation, Option<Dist>);

fn loads() -> impl Iterator<Item = BenchLoad> {
    let of = |operation: StoreOperation| {
        let dists = if operation.draws_ids() { DISTS.map(Some).to_vec() } else { vec![None] };
        dists.into_iter().map(move |dist| (operation, dist))
    };
    OPERATIONS.into_iter().flat_map(of)
}

fn group_name((operation, dist): BenchLoad, threads: usize) -> String {
    let load = dist.map_or_else(|| operation.to_string(), |dist| format!("{operation} {dist}"));
    format!("{}/{threads}_threads", load.replace('/', "_"))
}

/// The columns of the ranking: a header, and a group of benchmarks.
pub(crate) fn ranked() -> Vec<(String, String)> {
    let mut columns = Vec::new();
    for operation in SELECTED {
        let group = |threads: usize| group_name((operation, Some(Dist::Uniform)), threads);
        columns.extend(threads().into_iter().map(|threads| (format!("{operation} x{threads}"), group(threads))));
    }
    columns
}

pub(crate) fn benches(suite: &mut Suite) {
    let catalog = Catalog::builtin();
    let repos = catalog.repos().iter().map(|entry| entry.name.clone());
    let stores: Vec<String> = repos.chain(NAMES.map(String::from)).collect();
    let keys = if is_test() { FEW_KEYS } else { KEYS };
    for (operation, dist) in loads() {
        let is_selected = SELECTED.contains(&operation) && dist == Some(Dist::Uniform);
        for threads in threads() {
            let plan = OperationPlan::new(operation, dist.unwrap_or_default(), keys, PAYLOAD_BYTES, threads, 1);
            let [short, long] = [SHORT, LONG].map(|settings| settings.operations(threads as u64));
            let short = is_selected.then_some(short);
            let mut group = suite.group(group_name((operation, dist), threads), short, long);
            for name in stores.iter().filter(|name| threads == 1 || *name != HASH_MAP) {
                let make = maker(&catalog, name).expect("the name is the catalog's own");
                bench(&mut group, name, &plan, &make);
            }
        }
    }
}
