//! A store run, in its own process: all workloads of one store at one point. If memory is measured, the store is first filled,
//! emptied and filled again.
//!
//! The warm-up of a workload checks every entity whole. The workload is then measured for throughput, and again for the
//! latency of one operation in [`BATCH`](super::phase::BATCH). A repo with deferred answers is measured once more with
//! [`WINDOW`](super::window::WINDOW) operations outstanding. Filling and emptying use that window too.
//!
//! After the workloads that read and replace, the stored entities are checked whole. After churn and insertion, the number of
//! entities is checked.
//!
//! Invariant: the reply names a step that took longer than the limit. Cost: the slices, the filling, and a check of at most a
//! million entities.

use std::time::Duration;

use anyhow::Context as _;
use polyserve::catalog::Catalog;
use serde::{Deserialize, Serialize};

use super::bare::{StoreMaker, maker};
use super::entities::{Check, mixed};
use super::erased::{AllKeys, ErasedStore, FillEnd};
use super::phase::{Lanes, PhaseResult, PhaseSettings, Until, clock_cost};
use super::record::{StoreLatency, StoreMemory, StoreSettings, Throughput, Unfinished};
use super::workload::{CHUNK_BYTES, OperationKind, OperationPlan, StoreLoad, StoreWorkload};
use crate::machine::proc;

/// The request to a process, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreRun {
    /// The store: a repo, or a bare map.
    pub store: String,
    /// Threads.
    pub threads: usize,
    /// Entities.
    pub keys: u64,
    /// Bytes of a description.
    pub payload_bytes: usize,
    /// The workloads, in their order.
    pub loads: Vec<StoreLoad>,
    /// The seed of the draws.
    pub seed: u64,
    /// The round, from 1. Each round has its own random ids.
    #[serde(default)]
    pub round: usize,
    /// The time of a workload's warm-up.
    pub warm_up_s: f64,
    /// The time for throughput; latencies are measured for half of it.
    pub time_s: f64,
    /// The time limit of filling, of emptying, and of filling again.
    pub limit_s: f64,
}

/// The reply of the process, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreReply {
    /// Resident memory, if it was measured.
    pub memory: Option<StoreMemory>,
    /// The throughput under each workload.
    pub throughput: Vec<(StoreLoad, Throughput)>,
    /// The step that did not end within the limit. No later step was begun.
    pub unfinished: Option<Unfinished>,
}

/// The maximum number of entities that are checked at the end.
const MAX_CHECKED: u64 = 1_000_000;

impl StoreRun {
    /// Executes the run in this process, and measures the memory of the process.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such store, or if the store fails or has a wrong entity.
    pub fn run(&self, catalog: &Catalog) -> anyhow::Result<StoreReply> {
        let make = maker(catalog, &self.store)?;
        let mut reply = StoreReply::default();
        let start_bytes = resident_bytes();
        let store = make().with_context(|| format!("the store {}", self.store))?;
        let (ended, later) = store.change(&self.all_keys(), OperationKind::Create)?;
        let fill_s = match ended {
            FillEnd::Whole(elapsed) => elapsed.as_secs_f64(),
            FillEnd::Short(done) => {
                reply.unfinished = Some(self.unfinished("filling", done));
                return Ok(reply);
            }
        };
        store.expect_len(self.keys)?;
        if self.loads.iter().any(|load| load.workload == StoreWorkload::Memory) {
            let memory = StoreMemory { start_bytes, fill_s, filled_bytes: resident_bytes(), ..StoreMemory::default() };
            self.measure_memory(&*store, &mut reply, memory)?;
            if reply.unfinished.is_some() {
                return Ok(reply);
            }
        }
        let (clock_ns, mut version) = (clock_cost(), 0);
        let loads =
            |is_selected: fn(StoreWorkload) -> bool| self.loads.iter().filter(move |load| is_selected(load.workload));
        let seed = mixed(self.seed ^ mixed(self.round as u64));
        let plan = |load: &StoreLoad| OperationPlan::new(load, self.keys, self.payload_bytes, self.threads, seed);
        for load in loads(StoreWorkload::draws_ids) {
            let mut lanes = Lanes::new(&plan(load), version);
            let throughput = self.measure(&mut |how| store.run(&mut lanes, how), later, clock_ns)?;
            reply.throughput.push((load.clone(), throughput));
            version = lanes.version();
        }
        let step = usize::try_from(self.keys.div_ceil(MAX_CHECKED).max(1))?;
        let mut checked = (0..self.keys).step_by(step).map(u64::cast_signed);
        store.check_stored(&mut checked, &Check::new(version, self.payload_bytes, true))?;
        store.expect_len(self.keys)?;
        for load in loads(|workload| workload == StoreWorkload::Churn) {
            let mut lanes = Lanes::new(&plan(load), version);
            let throughput = self.measure(&mut |how| store.run(&mut lanes, how), later, clock_ns)?;
            reply.throughput.push((load.clone(), throughput));
            store.expect_len(self.keys.checked_add_signed(lanes.balance()).unwrap_or(0))?;
        }
        drop(store);
        for load in loads(|workload| workload == StoreWorkload::Insert) {
            let plan = plan(load);
            let throughput = self.measure(&mut |how| filling(&make, &plan, how), later, clock_ns)?;
            reply.throughput.push((load.clone(), throughput));
        }
        Ok(reply)
    }

    fn all_keys(&self) -> AllKeys {
        AllKeys { keys: self.keys, payload_bytes: self.payload_bytes, limit_s: self.limit_s }
    }

    /// Empties the store and fills it again, and measures memory after each.
    fn measure_memory(
        &self,
        store: &dyn ErasedStore,
        reply: &mut StoreReply,
        mut memory: StoreMemory,
    ) -> anyhow::Result<()> {
        for kind in [OperationKind::Remove, OperationKind::Create] {
            let (ended, _) = store.change(&self.all_keys(), kind)?;
            let is_removing = kind == OperationKind::Remove;
            let elapsed = match ended {
                FillEnd::Whole(elapsed) => elapsed.as_secs_f64(),
                FillEnd::Short(done) => {
                    let what = if is_removing { "removing" } else { "filling again" };
                    reply.unfinished = Some(self.unfinished(what, done));
                    break;
                }
            };
            store.expect_len(if is_removing { 0 } else { self.keys })?;
            let now = resident_bytes();
            if is_removing {
                (memory.empty_s, memory.emptied_bytes) = (Some(elapsed), now);
            } else {
                (memory.refill_s, memory.refilled_bytes) = (Some(elapsed), now);
            }
        }
        reply.memory = Some(memory);
        Ok(())
    }

    fn unfinished(&self, what: &str, done: u64) -> Unfinished {
        Unfinished { what: what.into(), done, limit_s: self.limit_s }
    }

    /// Warms up and measures one workload. Each phase is one call of `run`. A store with deferred answers (`later`) has one more
    /// phase, with many operations outstanding.
    fn measure(
        &self,
        run: &mut dyn FnMut(PhaseSettings) -> anyhow::Result<PhaseResult>,
        later: bool,
        clock_ns: u64,
    ) -> anyhow::Result<Throughput> {
        let phase = |time_s: f64| {
            let until = Until::Time(Duration::from_secs_f64(time_s));
            PhaseSettings { until, whole: false, latency: false, window: false }
        };
        run(PhaseSettings { whole: true, ..phase(self.warm_up_s) })?;
        let counted = run(phase(self.time_s))?;
        let timed = run(PhaseSettings { latency: true, ..phase(self.time_s * 0.5) })?;
        let windowed = if later { Some(run(PhaseSettings { window: true, ..phase(self.time_s) })?) } else { None };
        Ok(throughput(&counted, &timed, windowed.as_ref(), clock_ns))
    }
}

/// Inserts all keys into empty stores, one store after the other, until the phase is over.
///
/// # Errors
///
/// Returns the errors of [`Lanes::run`], and an error if a store cannot be made or has a wrong number of entities.
pub fn filling(make: &StoreMaker, plan: &OperationPlan, how: PhaseSettings) -> anyhow::Result<PhaseResult> {
    let mut all: Option<PhaseResult> = None;
    loop {
        let store = make().context("a store cannot be made")?;
        let until = match (&all, how.until) {
            (None, until) => until,
            (Some(all), Until::Time(time)) => Until::Time(time.saturating_sub(all.wall)),
            (Some(all), Until::Operations(operations)) => Until::Operations(operations.saturating_sub(all.operations)),
        };
        let mut lanes = Lanes::new(plan, 0);
        let phase = store.run(&mut lanes, PhaseSettings { until, ..how })?;
        store.expect_len(lanes.balance().unsigned_abs())?;
        let sum = match all.take() {
            None => phase,
            Some(before) => before.and(&phase)?,
        };
        let is_over = match how.until {
            Until::Time(time) => sum.wall >= time,
            Until::Operations(operations) => sum.operations >= operations,
        };
        if is_over {
            return Ok(sum);
        }
        all = Some(sum);
    }
}

/// Stores `keys` entities.
///
/// # Errors
///
/// Returns an error if the store fails, or if an entity was there already.
pub fn fill(store: &dyn ErasedStore, keys: u64, payload_bytes: usize) -> anyhow::Result<()> {
    store.change(&AllKeys { keys, payload_bytes, limit_s: f64::INFINITY }, OperationKind::Create)?;
    store.expect_len(keys)
}

fn throughput(counted: &PhaseResult, timed: &PhaseResult, windowed: Option<&PhaseResult>, clock_ns: u64) -> Throughput {
    let per_s = |phase: &PhaseResult| phase.operations as f64 / phase.wall.as_secs_f64();
    let latency = timed.latency.as_ref().filter(|latency| !latency.is_empty());
    let us = |ns: u64| ns as f64 / 1000.0;
    Throughput {
        operations: counted.operations,
        elapsed_s: counted.wall.as_secs_f64(),
        per_s: per_s(counted),
        cpu_us: Some(counted.cpu.as_secs_f64() * 1e6 / counted.operations as f64).filter(|cpu| cpu.is_finite()),
        windowed_per_s: windowed.map(per_s).filter(|per_s| per_s.is_finite()),
        latency: latency.map(|latency| StoreLatency {
            sampled: latency.len(),
            clock_ns,
            p50_us: us(latency.value_at_quantile(0.5)),
            p99_us: us(latency.value_at_quantile(0.99)),
            p999_us: us(latency.value_at_quantile(0.999)),
            max_us: us(latency.max()),
        }),
    }
}

fn resident_bytes() -> Option<u64> {
    proc::resident(std::process::id()).ok().map(|resident| resident.now)
}

/// Returns an upper estimate of a store's memory at this point, in bytes: the entities with descriptions as the allocator
/// rounds them, the table with its old copy while it grows, and the operations that are made ahead.
pub fn memory_estimate(place: &StoreSettings) -> u64 {
    let description = (place.payload_bytes as u64 + 8).next_multiple_of(16).max(32);
    place.keys * (description + TABLE_BYTES_PER_ENTITY) + (place.threads * CHUNK_BYTES * 2) as u64
}

/// The bytes of the table for an entity of 40 bytes. At most half of the table is empty, and the old table lives while the
/// table grows.
const TABLE_BYTES_PER_ENTITY: u64 = 160;
