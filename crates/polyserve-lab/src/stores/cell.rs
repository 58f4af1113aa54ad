//! A store run, in its own process: all workloads of one store at one point. If memory is measured, the store is first filled,
//! emptied and filled again.
//!
//! The warm-up of a workload checks every entity whole. The workload is then measured for throughput, and again for the
//! latency of one operation in [`BATCH`](super::phase::BATCH). A repo with deferred answers is measured once more with
//! [`WINDOW`] operations outstanding. Filling and emptying use that window too. After the workloads that read and replace,
//! the stored entities are checked whole; after churn and insertion, their number.
//!
//! Invariant: a step that took longer than the limit is in the reply. Cost: the slices; the filling; a check of up to a
//! million entities.

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use polyserve::catalog::Catalog;
use serde::{Deserialize, Serialize};

use super::bare::{With, with};
use super::entities::{Check, entity, spread};
use super::phase::{Lanes, Passed, PhaseSettings, Until, clock_cost};
use super::record::{StoreLatency, StoreMemory, StoreSettings, Throughput, Unfinished};
use super::store::MeasuredStore;
use super::window::{OperationWindow, WINDOW, expect};
use super::workload::{BUDGET, OperationCode, OperationKind, OperationPlan, StoreLoad, StoreWorkload};
use crate::machine::proc;

/// The order to a process, as JSON.
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
const CHECKED: u64 = 1_000_000;
/// Operations between two checks of the limit.
const STEP: u64 = 256;

/// How filling or emptying ended.
enum Ended {
    Whole(Duration),
    Short(u64),
}

impl StoreRun {
    /// Executes the run in this process, and measures the memory of the process.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such store, or if the store fails or has a wrong entity.
    pub fn run(&self, catalog: &Catalog) -> anyhow::Result<StoreReply> {
        with(catalog, &self.store, self)?
    }

    fn check(&self, last: u64) -> Check {
        Check::new(last, self.payload_bytes, true)
    }

    /// Calls `one` for all keys, until the limit.
    fn all(&self, mut one: impl FnMut(i64) -> anyhow::Result<()>) -> anyhow::Result<Ended> {
        let begun = Instant::now();
        for place in 0..self.keys {
            if place % STEP == 0 && begun.elapsed().as_secs_f64() > self.limit_s {
                return Ok(Ended::Short(place));
            }
            one(spread(place, self.keys))?;
        }
        Ok(Ended::Whole(begun.elapsed()))
    }

    /// Puts or removes all keys. Returns true if an answer was deferred.
    fn change<S: MeasuredStore>(&self, store: &S, kind: OperationKind) -> anyhow::Result<(Ended, bool)> {
        let entity = |id| entity(id, 0, self.payload_bytes);
        let Some(repo) = store.repo() else {
            let ended = self.all(|id| match kind {
                OperationKind::Remove => expect(id, store.remove(id)?, polyserve::repo::Removed::Removed),
                _ => expect(id, store.put(entity(id))?, kind.put()),
            })?;
            return Ok((ended, false));
        };
        let (mut window, check) = (OperationWindow::new(repo, WINDOW), self.check(0));
        let ended = self.all(|id| window.ask(OperationCode::new(kind, id), || entity(id), &check))?;
        window.drain()?;
        Ok((ended, window.has_waited()))
    }

    /// Empties the store and fills it again, and measures memory after each.
    fn memory<S: MeasuredStore>(
        &self,
        store: &S,
        reply: &mut StoreReply,
        mut memory: StoreMemory,
    ) -> anyhow::Result<()> {
        for kind in [OperationKind::Remove, OperationKind::Create] {
            let (ended, _) = self.change(store, kind)?;
            let is_removing = kind == OperationKind::Remove;
            let took = match ended {
                Ended::Whole(took) => took.as_secs_f64(),
                Ended::Short(done) => {
                    let what = if is_removing { "removing" } else { "filling again" };
                    reply.unfinished = Some(self.unfinished(what, done));
                    break;
                }
            };
            let wanted = if is_removing { 0 } else { self.keys };
            expect_len(store, wanted)?;
            let now = resident();
            if is_removing {
                (memory.empty_s, memory.emptied_bytes) = (Some(took), now);
            } else {
                (memory.refill_s, memory.refilled_bytes) = (Some(took), now);
            }
        }
        reply.memory = Some(memory);
        Ok(())
    }

    fn unfinished(&self, what: &str, done: u64) -> Unfinished {
        Unfinished { what: what.into(), done, limit_s: self.limit_s }
    }

    fn how(&self, share: f64) -> PhaseSettings {
        let until = Until::Time(Duration::from_secs_f64(self.time_s * share));
        PhaseSettings { until, whole: false, latency: false, window: false }
    }

    /// Measures one workload on a filled store.
    fn meet<S: MeasuredStore>(
        &self,
        store: &S,
        lanes: &mut Lanes,
        later: bool,
        clock_ns: u64,
    ) -> anyhow::Result<Throughput> {
        let warm_up = Until::Time(Duration::from_secs_f64(self.warm_up_s));
        lanes.run(store, PhaseSettings { until: warm_up, whole: true, ..self.how(1.0) })?;
        let counted = lanes.run(store, self.how(1.0))?;
        let timed = lanes.run(store, PhaseSettings { latency: true, ..self.how(0.5) })?;
        let windowed =
            if later { Some(lanes.run(store, PhaseSettings { window: true, ..self.how(1.0) })?) } else { None };
        Ok(throughput(&counted, &timed, windowed.as_ref(), clock_ns))
    }

    /// Measures insertion, on an empty store each time.
    fn insert<S: MeasuredStore>(
        &self,
        make: &dyn Fn() -> io::Result<S>,
        load: &StoreLoad,
        later: bool,
        clock_ns: u64,
    ) -> anyhow::Result<Throughput> {
        let plan = OperationPlan::new(load, self.keys, self.payload_bytes, self.threads, self.seed);
        let warm_up = Until::Time(Duration::from_secs_f64(self.warm_up_s));
        filling(make, &plan, PhaseSettings { until: warm_up, whole: true, ..self.how(1.0) })?;
        let counted = filling(make, &plan, self.how(1.0))?;
        let timed = filling(make, &plan, PhaseSettings { latency: true, ..self.how(0.5) })?;
        let windowed =
            if later { Some(filling(make, &plan, PhaseSettings { window: true, ..self.how(1.0) })?) } else { None };
        Ok(throughput(&counted, &timed, windowed.as_ref(), clock_ns))
    }

    /// Checks the stored entities, at most [`CHECKED`].
    fn check_stored<S: MeasuredStore>(&self, store: &S, last: u64) -> anyhow::Result<()> {
        let (check, step) = (self.check(last), self.keys.div_ceil(CHECKED).max(1));
        for id in (0..self.keys).step_by(usize::try_from(step)?).map(u64::cast_signed) {
            let mut right = false;
            store.get(id, &mut |found| right = check.is_right(id, found))?;
            if !right {
                bail!("in the end what is stored of {id} is nothing that was put there");
            }
        }
        expect_len(store, self.keys)
    }
}

/// Inserts all keys into empty stores, one store after the other, until the phase is over.
///
/// # Errors
///
/// Returns the errors of [`Lanes::run`], and an error if a store cannot be made or has a wrong number of entities.
pub fn filling<S: MeasuredStore>(
    make: &dyn Fn() -> io::Result<S>,
    plan: &OperationPlan,
    how: PhaseSettings,
) -> anyhow::Result<Passed> {
    let mut all: Option<Passed> = None;
    loop {
        let store = make().context("a store cannot be made")?;
        let until = match (&all, how.until) {
            (None, until) => until,
            (Some(all), Until::Time(time)) => Until::Time(time.saturating_sub(all.wall)),
            (Some(all), Until::Operations(operations)) => Until::Operations(operations.saturating_sub(all.operations)),
        };
        let mut lanes = Lanes::new(plan, 0);
        let passed = lanes.run(&store, PhaseSettings { until, ..how })?;
        expect_len(&store, lanes.balance().unsigned_abs())?;
        let sum = match all.take() {
            None => passed,
            Some(before) => before.and(&passed)?,
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
pub fn fill<S: MeasuredStore>(store: &S, keys: u64, payload_bytes: usize) -> anyhow::Result<()> {
    let run = StoreRun {
        store: String::new(),
        threads: 1,
        keys,
        payload_bytes,
        loads: Vec::new(),
        seed: 0,
        warm_up_s: 0.0,
        time_s: 0.0,
        limit_s: f64::INFINITY,
    };
    run.change(store, OperationKind::Create)?;
    expect_len(store, keys)
}

impl With for &StoreRun {
    type Out = anyhow::Result<StoreReply>;

    fn with<S: MeasuredStore + 'static>(self, make: &dyn Fn() -> io::Result<S>) -> anyhow::Result<StoreReply> {
        let mut reply = StoreReply::default();
        let start_bytes = resident();
        let store = make().with_context(|| format!("the store {}", self.store))?;
        let (ended, later) = self.change(&store, OperationKind::Create)?;
        let fill_s = match ended {
            Ended::Whole(took) => took.as_secs_f64(),
            Ended::Short(done) => {
                reply.unfinished = Some(self.unfinished("filling", done));
                return Ok(reply);
            }
        };
        expect_len(&store, self.keys)?;
        if self.loads.iter().any(|load| load.workload == StoreWorkload::Memory) {
            let memory = StoreMemory { start_bytes, fill_s, filled_bytes: resident(), ..StoreMemory::default() };
            self.memory(&store, &mut reply, memory)?;
            if reply.unfinished.is_some() {
                return Ok(reply);
            }
        }
        let (clock_ns, mut version) = (clock_cost(), 0);
        let of = |wanted: fn(StoreWorkload) -> bool| self.loads.iter().filter(move |load| wanted(load.workload));
        let plan = |load: &StoreLoad| OperationPlan::new(load, self.keys, self.payload_bytes, self.threads, self.seed);
        for load in of(StoreWorkload::draws_ids) {
            let mut lanes = Lanes::new(&plan(load), version);
            reply.throughput.push((load.clone(), self.meet(&store, &mut lanes, later, clock_ns)?));
            version = lanes.version();
        }
        self.check_stored(&store, version)?;
        for load in of(|workload| workload == StoreWorkload::Churn) {
            let mut lanes = Lanes::new(&plan(load), version);
            reply.throughput.push((load.clone(), self.meet(&store, &mut lanes, later, clock_ns)?));
            expect_len(&store, self.keys.checked_add_signed(lanes.balance()).unwrap_or(0))?;
        }
        drop(store);
        for load in of(|workload| workload == StoreWorkload::Insert) {
            reply.throughput.push((load.clone(), self.insert(make, load, later, clock_ns)?));
        }
        Ok(reply)
    }
}

fn throughput(counted: &Passed, timed: &Passed, windowed: Option<&Passed>, clock_ns: u64) -> Throughput {
    let per_s = |passed: &Passed| passed.operations as f64 / passed.wall.as_secs_f64();
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

fn expect_len<S: MeasuredStore>(store: &S, wanted: u64) -> anyhow::Result<()> {
    match store.len()? {
        count if count == wanted => Ok(()),
        count => Err(anyhow!("it counts {count} entities of {wanted}")),
    }
}

fn resident() -> Option<u64> {
    proc::resident(std::process::id()).ok().map(|resident| resident.now)
}

/// Returns an estimate of the memory that any store needs at this point, in bytes: each entity and its description, as the
/// allocator rounds it; a table, twice while it grows; and the operations that are made ahead.
pub fn needs(place: &StoreSettings) -> u64 {
    let description = (place.payload_bytes as u64 + 8).next_multiple_of(16).max(32);
    place.keys * (description + TABLE) + (place.threads * BUDGET * 2) as u64
}

/// An entity of 40 bytes and its table entry. At most half of the table is empty, and the old table lives while it grows.
const TABLE: u64 = 160;
