//! `polyserve scale --in-process`: stores without a server.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use polyserve::catalog::Catalog;
use polyserve_bench::Misuse;
use polyserve_bench::experiment::{Absent, RecordArgs, again, distinct};
use polyserve_bench::machine::proc;
use polyserve_bench::output::print_json;
use polyserve_bench::scale::Axis;
use polyserve_bench::stores::bare::{HASH_MAP, NAMES, PREFIX, TYPED, TYPED_PREFIX};
use polyserve_bench::stores::cell::{StoreRun, memory_estimate};
use polyserve_bench::stores::experiment::{StoreJob, StoreProcesses};
use polyserve_bench::stores::process::Processes;
use polyserve_bench::stores::record::{Key, StoreSettings};
use polyserve_bench::stores::{StoreLoad, StoreWorkload, Stores};
use polyserve_load::Dist;
use serde_json::{Value, json};

use super::super::entrants::{left_out, part_of};
use super::super::names::joined;
use super::super::session::Context;
use super::super::times::{WAITS, within};
use super::args::ScaleArgs;

/// The default baseline, if it is measured.
const BASELINE: &str = "bare/dashmap";
const FILE: &str = "scale-in-process";
const QUICK_WORKLOADS: [StoreWorkload; 3] = [StoreWorkload::Read, StoreWorkload::Half, StoreWorkload::Memory];
/// The number of stored entities on the other axes. They do not fit in a core's own caches.
const KEYS: u64 = 100_000;
/// The share of the machine's memory that stores may need, by estimate.
const MEMORY_SHARE: f64 = 0.8;
/// The time limit of a process, on top of its slices and the limits of filling.
const SPARE_TIME: Duration = Duration::from_secs(60);

pub(super) fn run(context: Context<'_>, args: &ScaleArgs) -> anyhow::Result<ExitCode> {
    within("--limit", *args.limit, WAITS)?;
    let session = context.start()?;
    let threads = args.config.settings(None)?.config.workers.unwrap_or(session.available.count());
    let store_targets = StoreTargets { args, catalog: session.catalog, threads, slice: args.slice_or(60, 100)? };
    let stores = store_targets.stores()?;
    let baseline = store_targets.baseline(&stores)?;
    let axes = store_targets.axes()?;
    let loads = store_targets.loads();
    let (jobs, absent) = store_targets.jobs(&stores, &baseline, &axes, &loads)?;
    if jobs.is_empty() {
        let why = absent.first().map_or("no store was named", |absent| &absent.absence.why);
        return Err(Misuse(format!("there is nothing to measure: {why}")).into());
    }
    let rounds = args.rounds.unwrap_or(if args.quick { 3 } else { 10 }) as usize;
    let environment = session.environment([&session.available; 2], args.random.seed);
    let description = store_targets.plan(&stores, &baseline, &axes, &loads, rounds);
    let patience = store_targets.slice * 6 * u32::try_from(loads.len())? + *args.limit * 4 + SPARE_TIME;
    let processes = Processes { stop: session.stop.clone(), patience };
    let instrument = StoreProcesses { processes, launch: |run| part_of("scale", "cell", run) };
    let mut stores = Stores { jobs, absent, rounds, description, instrument };
    let name = args.record.name.clone().unwrap_or(FILE.into());
    let record = RecordArgs { name: Some(name), ..args.record.clone() };
    session.run(&record, environment, &mut stores)
}

/// Measures one cell. The process was started for it.
pub(super) fn one_cell(catalog: &Catalog, cell: &str) -> anyhow::Result<ExitCode> {
    let run: StoreRun = serde_json::from_str(cell)
        .map_err(|error| Misuse(format!("--cell {cell:?} is not a point in JSON: {error}")))?;
    print_json(&run.run(catalog)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the stores of these names, each once; all repos of the catalog and all bare maps if `names` is empty.
pub(in crate::commands) fn store_names(catalog: &Catalog, names: &[String]) -> anyhow::Result<Vec<String>> {
    if names.is_empty() {
        let repos = catalog.repos().iter().map(|entry| entry.name.clone());
        return Ok(repos.chain(NAMES.map(String::from)).collect());
    }
    let full = |name: &String| {
        let known = NAMES.iter().chain(&TYPED).any(|known| known == name);
        if known { Ok(name.clone()) } else { repo(catalog, name) }
    };
    Ok(distinct(names.iter().map(full).collect::<anyhow::Result<Vec<_>>>()?))
}

fn repo(catalog: &Catalog, name: &str) -> anyhow::Result<String> {
    if name.starts_with(PREFIX) {
        return Err(Misuse(format!("there is no bare map {name:?}; there are {}", NAMES.join(", "))).into());
    }
    if name.starts_with(TYPED_PREFIX) {
        return Err(Misuse(format!("there is no {name:?}; there are {}", TYPED.join(", "))).into());
    }
    Ok(catalog.repo(name)?.name.clone())
}

/// Returns the needed and the available memory in GB, if there is not enough. `needs` is an estimate in bytes, the same
/// for all stores.
pub(in crate::commands) fn memory_shortage(needs: f64) -> Option<(f64, f64)> {
    let available = proc::memory().ok()? as f64 * MEMORY_SHARE;
    (needs > available).then_some((needs / 1e9, available / 1e9))
}

/// The stores and their places.
struct StoreTargets<'a> {
    args: &'a ScaleArgs,
    catalog: &'a Catalog,
    /// Threads on the other axes.
    threads: usize,
    slice: Duration,
}

impl StoreTargets<'_> {
    fn stores(&self) -> anyhow::Result<Vec<String>> {
        let stores = store_names(self.catalog, &joined(&self.args.repos))?;
        let baseline = match &self.args.baseline {
            Some(baseline) => store_names(self.catalog, std::slice::from_ref(baseline))?,
            None => Vec::new(),
        };
        Ok(distinct(stores.into_iter().chain(baseline)))
    }

    fn baseline(&self, stores: &[String]) -> anyhow::Result<String> {
        if let Some(baseline) = &self.args.baseline {
            return Ok(store_names(self.catalog, std::slice::from_ref(baseline))?.remove(0));
        }
        let default = stores.iter().find(|name| *name == BASELINE).or(stores.first());
        Ok(default.context("the catalog has no repo")?.clone())
    }

    fn axes(&self) -> Result<Vec<(Axis, Vec<u64>)>, Misuse> {
        let is_of_servers = |axis: &Axis| matches!(axis, Axis::Connections | Axis::Rate);
        if let Some(axis) = self.args.axis.iter().find(|axis| is_of_servers(axis)) {
            return Err(Misuse(format!("--axis {axis}: in process there are no connections")));
        }
        let all: Vec<Axis> = Axis::ALL.into_iter().filter(|axis| !is_of_servers(axis)).collect();
        let quick = self.args.quick;
        self.args.axes(&all, |axis| match axis {
            Axis::Connections | Axis::Rate => vec![],
            Axis::Keys if quick => vec![1000, 100_000],
            Axis::Keys => vec![1000, 10_000, 100_000, 1_000_000],
            Axis::Workers if quick => vec![1, 2],
            Axis::Workers => vec![1, 2, 4, 8],
            Axis::Payload if quick => vec![15, 4096],
            Axis::Payload => vec![15, 256, 4096, 16_384],
        })
    }

    fn loads(&self) -> Vec<StoreLoad> {
        let default = if self.args.quick { &QUICK_WORKLOADS[..] } else { &StoreWorkload::ALL[..] };
        let workloads = if self.args.workload.is_empty() { default } else { &self.args.workload };
        let dists = if self.args.dist.is_empty() { &[Dist::Uniform][..] } else { &self.args.dist };
        StoreLoad::all(workloads, dists)
    }

    fn settings_at(&self, axis: Axis, x: u64) -> StoreSettings {
        let (keys, payload_bytes) = (self.args.keys.unwrap_or(KEYS), self.args.payload as usize);
        let place = StoreSettings { keys, threads: self.threads, payload_bytes };
        let count = usize::try_from(x).unwrap_or(usize::MAX);
        match axis {
            Axis::Connections | Axis::Rate => place,
            Axis::Keys => StoreSettings { keys: x, ..place },
            Axis::Workers => StoreSettings { threads: count, ..place },
            Axis::Payload => StoreSettings { payload_bytes: count, ..place },
        }
    }

    /// Every store at every point, the baseline twice; and the stores that are left out.
    fn jobs(
        &self,
        stores: &[String],
        baseline: &str,
        axes: &[(Axis, Vec<u64>)],
        loads: &[StoreLoad],
    ) -> anyhow::Result<(Vec<StoreJob>, Vec<Absent<Key>>)> {
        let (mut jobs, mut absent) = (Vec::new(), Vec::new());
        for (axis, x) in axes.iter().flat_map(|(axis, points)| points.iter().map(|x| (*axis, *x))) {
            let place = self.settings_at(axis, x);
            // Memory does not depend on threads: their axis would repeat one figure.
            let point_loads: Vec<StoreLoad> = loads
                .iter()
                .filter(|load| axis != Axis::Workers || load.workload != StoreWorkload::Memory)
                .cloned()
                .collect();
            let entries = stores.iter().map(|store| (store.clone(), store.clone()));
            for (name, store) in entries.chain([(again(baseline), baseline.to_owned())]) {
                let mut leave_out =
                    |why| absent.push(left_out(Key { axis, x, name: name.clone(), round: 0, load: None }, why, true));
                if let Some((needed, available)) = memory_shortage(memory_estimate(&place) as f64) {
                    leave_out(format!("it may need {needed:.1} GB, and there are {available:.1} GB for it"));
                    continue;
                }
                let is_alone = store == HASH_MAP && place.threads > 1;
                if is_alone {
                    leave_out(format!("it is for one thread, of {}: its memory alone is measured", place.threads));
                }
                let store_loads: Vec<StoreLoad> = point_loads
                    .iter()
                    .filter(|load| !is_alone || load.workload == StoreWorkload::Memory)
                    .cloned()
                    .collect();
                if !store_loads.is_empty() {
                    let run = self.run(&store, &place, store_loads);
                    jobs.push(StoreJob { axis, x, name, place, run });
                }
            }
        }
        Ok((jobs, absent))
    }

    fn run(&self, store: &str, place: &StoreSettings, loads: Vec<StoreLoad>) -> StoreRun {
        let slice = self.slice.as_secs_f64();
        StoreRun {
            store: store.to_owned(),
            threads: place.threads,
            keys: place.keys,
            payload_bytes: place.payload_bytes,
            loads,
            seed: self.args.random.seed,
            round: 0,
            warm_up_s: slice / 4.0,
            time_s: slice,
            limit_s: self.args.limit.as_secs_f64(),
        }
    }

    /// The description of the run, for the record's header.
    fn plan(
        &self,
        stores: &[String],
        baseline: &str,
        axes: &[(Axis, Vec<u64>)],
        loads: &[StoreLoad],
        rounds: usize,
    ) -> Value {
        let axes = axes.iter().map(|(axis, points)| json!({"axis": axis, "points": points}));
        json!({
            "contestants": stores,
            "baseline": baseline,
            "axes": axes.collect::<Vec<_>>(),
            "base": self.settings_at(Axis::Connections, 0),
            "loads": loads,
            "rounds": rounds,
            "slice_s": self.slice.as_secs_f64(),
            "limit_s": self.args.limit.as_secs_f64(),
        })
    }
}
