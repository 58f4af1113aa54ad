//! The measurement of one operation on stores that are filled and measured in this process.
//!
//! A store alone has the whole process. Stores in one process are filled together, entity by entity, so that none has a better
//! part of the heap, and take turns. Two processes of the same map differ by more than the repo trait costs.
//!
//! Keys and operations are made outside the measured time. The warm-up checks every entity that it reads whole. The measurement
//! checks every answer, and of an entity the id, the version and the length: this reads only memory that the lookup has already
//! touched. At the end the stored entities are checked whole, and counted.
//!
//! An operation is measured for throughput, and again for the latency of one operation in `BATCH`. A repo
//! with deferred answers is measured once more with `WINDOW` operations outstanding. A loop of gets has its throughput only.
//!
//! Invariant: a store has figures, or the reason why it has none. Cost: filling, the warm-up, two and a half slices, and a
//! check of at most a million entities.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use polyserve::catalog::Catalog;
use polyserve_load::{Dist, Picker};
use serde::{Deserialize, Serialize};

use super::bare::{StoreMaker, maker};
use super::entities::{Check, mixed};
use super::erased::{ErasedStore, Gets, StoreContent};
use super::phase::{Lanes, PhaseResult, PhaseSettings, Until, clock_cost};
use super::window::WINDOW;
use super::workload::{CHUNK_BYTES, OperationKind, OperationPlan, StoreOperation};
use crate::bench::figures::{
    self, CPU_US_PER_OPERATION, NamedFigures, OPERATIONS_PER_S, P50_US, P99_US, P999_US, WINDOWED_PER_S,
};
use crate::experiment::{Absence, order};
use crate::machine::proc;

/// What a process measures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreRun {
    /// The stores: repos, and bare maps.
    pub stores: Vec<String>,
    /// The operation.
    pub operation: StoreOperation,
    /// The distribution of its ids, a [`Dist`] as text.
    pub dist: String,
    /// Threads.
    pub workers: usize,
    /// Entities.
    pub keys: u64,
    /// Bytes of a description.
    pub payload_bytes: usize,
    /// The round, from 1. Each round has its own random ids, and its own order of the stores.
    pub round: usize,
    /// The seed of the draws.
    pub seed: u64,
    /// The time of the warm-up.
    pub warm_up: Duration,
    /// The time for throughput; latencies are measured for half of that time.
    pub slice: Duration,
    /// The time limit of filling a store, of emptying it, and of filling it again.
    pub limit: Duration,
}

/// The figures of a store, or why it has none.
pub(crate) type StoreResult = Result<NamedFigures, Absence>;

/// The maximum number of entities that are checked at the end.
const MAX_CHECKED: u64 = 1_000_000;
/// The min number of entities for a figure per entity: the kernel counts resident memory in steps of some hundred KiB per
/// core.
pub(crate) const MIN_KEYS: u64 = 50_000;
/// Entities of a store alone between two readings of the clock.
const KEYS_PER_CHECK: u64 = 4096;
/// The bytes of the table for an entity of 40 bytes. At most half of the table is empty, and the old table lives while the
/// table grows.
const TABLE_BYTES_PER_ENTITY: u64 = 160;

/// A store of the process.
struct FilledStore {
    name: String,
    make: StoreMaker,
    store: Box<dyn ErasedStore>,
    /// Whether it has deferred an answer.
    is_deferred: bool,
    /// The time of the filling or emptying under way.
    elapsed: Duration,
}

impl StoreRun {
    /// Measures the stores, in an order that changes from round to round. Returns a result for each of them.
    ///
    /// # Errors
    ///
    /// Returns an error if the distribution is not one.
    pub fn run(&self, catalog: &Catalog) -> anyhow::Result<Vec<StoreResult>> {
        let dist: Dist = self.dist.parse().map_err(anyhow::Error::msg)?;
        let start_bytes = resident_bytes();
        let made = self.stores.iter().map(|name| FilledStore::new(catalog, name).map_err(wrong));
        let mut stores: Vec<Result<FilledStore, Absence>> = made.collect();
        // Insertion has its own stores. A few keys show whether the store defers its answers.
        let keys = if self.operation == StoreOperation::Insert { self.keys.min(WINDOW as u64) } else { self.keys };
        self.change(&mut stores, keys, OperationKind::Create);
        let ids = if self.operation.is_loop_of_gets() { self.ids(dist)? } else { Vec::new() };
        let mut results: Vec<(usize, StoreResult)> = Vec::new();
        for place in order(self.round.saturating_sub(1), stores.len()) {
            let result = match &stores[place] {
                Err(absence) => Err(absence.clone()),
                Ok(_) if self.operation == StoreOperation::Memory => {
                    self.memory(&mut stores[place..=place], start_bytes)
                }
                Ok(filled) if self.operation.is_loop_of_gets() => self.gets(filled, &ids).map_err(wrong),
                Ok(filled) => self.operations(filled, dist).map_err(wrong),
            };
            results.push((place, result));
        }
        results.sort_by_key(|(place, _)| *place);
        Ok(results.into_iter().map(|(_, result)| result).collect())
    }

    fn content(&self) -> StoreContent {
        StoreContent { keys: self.keys, payload_bytes: self.payload_bytes }
    }

    fn seed(&self) -> u64 {
        mixed(self.seed ^ mixed(self.round as u64))
    }

    /// Puts or removes the first `keys` entities of the stores. A store that fails or exceeds the limit becomes an absence.
    fn change(&self, stores: &mut [Result<FilledStore, Absence>], keys: u64, kind: OperationKind) {
        let turns = order(self.round.saturating_sub(1), stores.len());
        let block = if stores.len() == 1 { KEYS_PER_CHECK } else { 1 };
        stores.iter_mut().flatten().for_each(|filled| filled.elapsed = Duration::ZERO);
        let mut first = 0;
        while first < keys {
            let last = keys.min(first + block);
            for place in &turns {
                let Ok(filled) = &mut stores[*place] else { continue };
                let started = Instant::now();
                let changed = filled.store.change(&self.content(), first..last, kind);
                filled.elapsed += started.elapsed();
                match changed {
                    Ok(is_deferred) => filled.is_deferred |= is_deferred,
                    Err(error) => stores[*place] = Err(wrong(error)),
                }
                if let Ok(filled) = &stores[*place]
                    && filled.elapsed > self.limit
                    && last < keys
                {
                    stores[*place] = Err(self.timed_out(&filled.name, kind, last));
                }
            }
            first = last;
        }
        let expected = if kind == OperationKind::Remove { self.keys - keys } else { keys };
        for place in turns {
            if let Ok(Err(error)) = stores[place].as_ref().map(|filled| filled.store.expect_len(expected)) {
                stores[place] = Err(wrong(error));
            }
        }
    }

    /// `two_level did not finish filling 10000000 keys in 60s: it got to 1234567`.
    fn timed_out(&self, name: &str, kind: OperationKind, done: u64) -> Absence {
        let what = if kind == OperationKind::Remove { "removing" } else { "filling" };
        let (keys, limit) = (self.keys, humantime::format_duration(self.limit));
        Absence::timed_out(format!("{name} did not finish {what} {keys} keys in {limit}: it got to {done}"))
    }

    /// The ids of each thread's gets: the same for all stores.
    fn ids(&self, dist: Dist) -> anyhow::Result<Vec<Arc<[u32]>>> {
        let picker = Picker::new(u32::try_from(self.keys)?, dist);
        let stream = |worker: usize| mixed(self.seed() ^ mixed(worker as u64 + 1));
        let of = |stream: u64| (0..self.keys).map(|number| picker.pick(mixed(stream.wrapping_add(number)))).collect();
        Ok((0..self.workers).map(stream).map(of).collect())
    }

    /// A loop of gets. Before it, the memory of the store is read once, and each entity is checked whole.
    fn gets(&self, filled: &FilledStore, ids: &[Arc<[u32]>]) -> anyhow::Result<NamedFigures> {
        let check = Check::new(0, self.payload_bytes, true);
        filled.store.get_all(ids, &check, Gets::Whole)?;
        let gets = match self.operation {
            StoreOperation::DependentGets => Gets::Dependent(self.slice),
            StoreOperation::ManyGets => Gets::Many(self.slice),
            _ => Gets::Independent(self.slice),
        };
        Ok(NamedFigures::from([(OPERATIONS_PER_S.to_owned(), filled.store.get_all(ids, &check, gets)?)]))
    }

    /// Warms up and measures an operation, and checks the store.
    fn operations(&self, filled: &FilledStore, dist: Dist) -> anyhow::Result<NamedFigures> {
        let (store, is_insertion) = (&*filled.store, self.operation == StoreOperation::Insert);
        let plan = OperationPlan::new(self.operation, dist, self.keys, self.payload_bytes, self.workers, self.seed());
        let mut lanes = Lanes::new(&plan, 0);
        let mut run = |settings: PhaseSettings| match is_insertion {
            true => filling(&filled.make, &plan, settings),
            false => store.run(&mut lanes, settings),
        };
        let phase =
            |time: Duration| PhaseSettings { until: Until::Time(time), whole: false, latency: false, window: false };
        run(PhaseSettings { whole: true, ..phase(self.warm_up) })?;
        let counted = run(phase(self.slice))?;
        let timed = run(PhaseSettings { latency: true, ..phase(self.slice / 2) })?;
        let windowed = match filled.is_deferred {
            true => Some(run(PhaseSettings { window: true, ..phase(self.slice) })?),
            false => None,
        };
        if self.operation.draws_ids() {
            let step = usize::try_from(self.keys.div_ceil(MAX_CHECKED).max(1))?;
            let mut checked = (0..self.keys).step_by(step).map(u64::cast_signed);
            store.check_stored(&mut checked, &Check::new(lanes.version(), self.payload_bytes, true))?;
        }
        if !is_insertion {
            store.expect_len(self.keys.checked_add_signed(lanes.balance()).unwrap_or(0))?;
        }
        Ok(figures(&counted, &timed, windowed.as_ref()))
    }

    /// Empties the one store and fills it again, and measures the memory of the process after each. A step that exceeds the
    /// limit, and those after it, have no figures.
    fn memory(&self, stores: &mut [Result<FilledStore, Absence>], start_bytes: Option<u64>) -> StoreResult {
        let mut figures = NamedFigures::new();
        for (step, kind) in
            [("filled", OperationKind::Create), ("emptied", OperationKind::Remove), ("refilled", OperationKind::Create)]
        {
            if step != "filled" {
                self.change(stores, self.keys, kind);
            }
            let filled = match &stores[0] {
                Ok(filled) => filled,
                Err(absence) if absence.is_wrong() => return Err(absence.clone()),
                Err(_) => break,
            };
            figures.insert(format!("{step}_s"), filled.elapsed.as_secs_f64());
            if let Some((now, start)) = resident_bytes().zip(start_bytes).filter(|_| self.keys >= MIN_KEYS) {
                figures.insert(format!("{step}_bytes_per_entity"), (now as f64 - start as f64) / self.keys as f64);
            }
        }
        Ok(figures)
    }

    /// Returns an upper estimate of the memory of the process, in bytes: the entities with descriptions as the allocator rounds
    /// them, the tables with their old copies while they grow, and the operations that are made ahead.
    pub fn memory_estimate(&self) -> u64 {
        let description = (self.payload_bytes as u64 + 8).next_multiple_of(16).max(32);
        let workers = self.workers as u64;
        let made = if self.operation.is_loop_of_gets() { self.keys * 4 } else { CHUNK_BYTES as u64 * 2 };
        self.stores.len() as u64 * self.keys * (description + TABLE_BYTES_PER_ENTITY) + workers * made
    }

    /// The time limit of the process: far longer than any store needs.
    pub(crate) fn time_limit(&self) -> Duration {
        let stores = u32::try_from(self.stores.len()).unwrap_or(u32::MAX);
        let checks = Duration::from_micros(self.keys.saturating_mul(20));
        Duration::from_secs(60) + (self.limit * 3 + self.warm_up + self.slice * 4 + checks).saturating_mul(stores)
    }
}

impl FilledStore {
    /// A new store, still empty.
    fn new(catalog: &Catalog, name: &str) -> anyhow::Result<Self> {
        let make = maker(catalog, name)?;
        let store = make().with_context(|| format!("the store {name}"))?;
        Ok(Self { name: name.to_owned(), make, store, is_deferred: false, elapsed: Duration::ZERO })
    }
}

#[allow(clippy::needless_pass_by_value)] // for `map_err`
fn wrong(error: anyhow::Error) -> Absence {
    Absence::wrong(format!("{error:#}"))
}

/// Inserts all keys into empty stores, one store after the other, until the phase is over.
///
/// # Errors
///
/// Returns the errors of `Lanes::run`, and an error if a store cannot be made or has a wrong number of entities.
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

/// The figures of an operation. Latencies include one reading of the clock.
fn figures(counted: &PhaseResult, timed: &PhaseResult, windowed: Option<&PhaseResult>) -> NamedFigures {
    let per_s = |phase: &PhaseResult| phase.operations as f64 / phase.wall.as_secs_f64();
    let mut all = vec![
        (OPERATIONS_PER_S, per_s(counted)),
        (CPU_US_PER_OPERATION, counted.cpu.as_secs_f64() * 1e6 / counted.operations as f64),
    ];
    all.extend(windowed.map(|windowed| (WINDOWED_PER_S, per_s(windowed))));
    if let Some(latency) = timed.latency.as_ref().filter(|latency| !latency.is_empty()) {
        let us = |quantile: f64| latency.value_at_quantile(quantile) as f64 / 1000.0;
        let max_us = latency.max() as f64 / 1000.0;
        all.extend([(P50_US, us(0.5)), (P99_US, us(0.99)), (P999_US, us(0.999)), ("max_us", max_us)]);
        all.push(("clock_us", clock_cost() as f64 / 1000.0));
    }
    figures::known(all.into_iter().map(|(name, value)| (name, Some(value)))).collect()
}

fn resident_bytes() -> Option<u64> {
    proc::resident(std::process::id()).ok().map(|resident| resident.now)
}
