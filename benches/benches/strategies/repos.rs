//! Compares stores without a server: every repo of the catalog, and the same maps used directly, without the seam. The
//! figure is the cost of one operation, with one thread and with several.
//!
//! Keys and operations are prepared before the clock starts. Every answer is checked, by the same code
//! ([`polyserve_bench::stores`]) as in `polyserve scale --in-process`. A get must return the right id, a stored version,
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
use polyserve_bench::stores::bare::{HASH_MAP, NAMES, StoreMaker, maker};
use polyserve_bench::stores::cell::{fill, filling};
use polyserve_bench::stores::erased::ErasedStore;
use polyserve_bench::stores::phase::{Lanes, PhaseResult, PhaseSettings, Until};
use polyserve_bench::stores::workload::OperationPlan;
use polyserve_bench::stores::{StoreLoad, StoreWorkload};
use polyserve_load::Dist;

use crate::suite::{BenchGroup, BenchSettings, Suite, is_test};

/// The number of entities. The map and the entities are much larger than a core's own caches.
const KEYS: u64 = 100_000;
/// The number of entities for a test run without a measurement.
const FEW_KEYS: u64 = 500;
const PAYLOAD_BYTES: usize = 15;
const WORKLOADS: [StoreWorkload; 5] =
    [StoreWorkload::Read, StoreWorkload::MostlyRead, StoreWorkload::Half, StoreWorkload::Insert, StoreWorkload::Churn];
const DISTS: [Dist; 3] = [Dist::Uniform, Dist::Zipf(0.99), Dist::Hot];
/// The workloads of the selection. The ranking uses them.
const SELECTED: [StoreWorkload; 2] = [StoreWorkload::Read, StoreWorkload::Half];
const SELECTED_DIST: [Dist; 1] = [Dist::Uniform];
const SHORT: BenchSettings = BenchSettings::short(600).flat();
const LONG: BenchSettings = BenchSettings::long(10, 200, 700).flat();

/// Benchmarks a store. `make` creates it, and `plan` has the operations.
fn bench(group: &mut BenchGroup<'_>, name: &str, plan: &OperationPlan, make: &StoreMaker) {
    let threads = plan.threads as u64;
    let mut run: Box<dyn FnMut(PhaseSettings) -> anyhow::Result<PhaseResult>> =
        if plan.workload == StoreWorkload::Insert {
            Box::new(|settings| filling(make, plan, settings))
        } else {
            // Created for the first sample, because a filter skips most benchmarks.
            let mut filled: Option<(Box<dyn ErasedStore>, Lanes)> = None;
            Box::new(move |settings| {
                let (store, lanes) = match &mut filled {
                    Some(filled) => filled,
                    none => {
                        let store = make()?;
                        fill(&*store, plan.keys, plan.payload_bytes)?;
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

fn group_name(load: &StoreLoad, threads: usize) -> String {
    format!("{}/{threads}_threads", load.to_string().replace('/', "_"))
}

/// The columns of the ranking: a header, and a group of benchmarks.
pub(crate) fn ranked() -> Vec<(String, String)> {
    let mut columns = Vec::new();
    for load in StoreLoad::all(&SELECTED, &SELECTED_DIST) {
        columns.extend(
            threads().iter().map(|threads| (format!("{} x{threads}", load.workload), group_name(&load, *threads))),
        );
    }
    columns
}

pub(crate) fn benches(suite: &mut Suite) {
    let catalog = Catalog::builtin();
    let repos = catalog.repos().iter().map(|entry| entry.name.clone());
    let stores: Vec<String> = repos.chain(NAMES.map(String::from)).collect();
    let keys = if is_test() { FEW_KEYS } else { KEYS };
    let selected = StoreLoad::all(&SELECTED, &SELECTED_DIST);
    for load in StoreLoad::all(&WORKLOADS, &DISTS) {
        let is_selected = selected.contains(&load);
        for threads in threads() {
            let plan = OperationPlan::new(&load, keys, PAYLOAD_BYTES, threads, 1);
            let [short, long] = [SHORT, LONG].map(|settings| settings.operations(threads as u64));
            let short = is_selected.then_some(short);
            let mut group = suite.group(group_name(&load, threads), short, long);
            for name in stores.iter().filter(|name| threads == 1 || *name != HASH_MAP) {
                let make = maker(&catalog, name).expect("the name is the catalog's own");
                bench(&mut group, name, &plan, &make);
            }
        }
    }
}
