//! A point, in its own process: the store is filled, emptied and filled again where its memory is asked for, and then
//! meets one workload after the other.
//!
//! A workload is warmed up with every entity checked whole, measured, measured again with one latency in
//! [`BATCH`](super::phase::BATCH) taken, and, on a repo that answers later, once more with [`WINDOW`] operations
//! outstanding. Filling and emptying use that window too. After the workloads that read and replace, what is stored is checked
//! whole; after churn, and new ids, how many there are.
//!
//! Invariant: what took longer than the limit is told as such. Cost: the slices; the filling; a look at up to a million
//! entities.

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use polyserve::catalog::Catalog;
use serde::{Deserialize, Serialize};

use super::bare::{With, with};
use super::entities::{Check, entity, spread};
use super::phase::{How, Lanes, Passed, Until, clock_cost};
use super::record::{Latency, Memory, Place, Shown, Unfinished};
use super::store::Store;
use super::window::{WINDOW, Window, expect};
use super::workload::{BUDGET, Code, Kind, Load, Plan, Workload};
use crate::machine::proc;

/// What a process of its own is told, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Visit {
    /// The store: a repo, or a bare map.
    pub store: String,
    /// Threads.
    pub threads: usize,
    /// Entities.
    pub keys: u64,
    /// Bytes of a description.
    pub payload_bytes: usize,
    /// What it meets, in this order.
    pub loads: Vec<Load>,
    /// Of the draws.
    pub seed: u64,
    /// How long a workload runs before it counts.
    pub warm_up_s: f64,
    /// How long it counts; latencies are taken for half as long.
    pub time_s: f64,
    /// How long filling may take, and emptying, and filling again.
    pub limit_s: f64,
}

/// What the process tells, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// What entities take.
    pub memory: Option<Memory>,
    /// What it has shown under each workload.
    pub shown: Vec<(Load, Shown)>,
    /// What it has not come to the end of.
    pub unfinished: Vec<Unfinished>,
}

/// Entities that are looked at in the end, at most.
const LOOKED_AT: u64 = 1_000_000;
/// Operations between two looks at the limit.
const STEP: u64 = 256;

/// How filling or emptying ended.
enum Ended {
    Whole(Duration),
    Short(u64),
}

impl Visit {
    /// Runs it, here. The memory is this process's.
    ///
    /// # Errors
    ///
    /// Where there is no such store, or it fails or shows what nobody has put there.
    pub fn run(&self, catalog: &Catalog) -> anyhow::Result<Told> {
        with(catalog, &self.store, self)?
    }

    fn check(&self, last: u64) -> Check {
        Check::new(last, self.payload_bytes, true)
    }

    /// All keys, one after the other, until the limit.
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

    /// Puts or removes all keys; whether any answer came later.
    fn change<S: Store>(&self, store: &S, kind: Kind) -> anyhow::Result<(Ended, bool)> {
        let entity = |id| entity(id, 0, self.payload_bytes);
        let Some(repo) = store.repo() else {
            let ended = self.all(|id| match kind {
                Kind::Remove => expect(id, store.remove(id)?, polyserve::repo::Removed::Removed),
                _ => expect(id, store.put(entity(id))?, kind.put()),
            })?;
            return Ok((ended, false));
        };
        let (mut window, check) = (Window::new(repo, WINDOW), self.check(0));
        let ended = self.all(|id| window.ask(Code::new(kind, id), || entity(id), &check))?;
        window.drain()?;
        Ok((ended, window.has_waited()))
    }

    /// Empties it and fills it again; what is resident after each.
    fn memory<S: Store>(&self, store: &S, told: &mut Told, mut memory: Memory) -> anyhow::Result<()> {
        for kind in [Kind::Remove, Kind::Create] {
            let (ended, _) = self.change(store, kind)?;
            let is_removing = kind == Kind::Remove;
            let took = match ended {
                Ended::Whole(took) => took.as_secs_f64(),
                Ended::Short(done) => {
                    told.unfinished.push(self.unfinished(if is_removing { "removing" } else { "filling again" }, done));
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
        told.memory = Some(memory);
        Ok(())
    }

    fn unfinished(&self, what: &str, done: u64) -> Unfinished {
        Unfinished { what: what.into(), done, limit_s: self.limit_s }
    }

    fn how(&self, share: f64) -> How {
        let until = Until::Time(Duration::from_secs_f64(self.time_s * share));
        How { until, whole: false, latency: false, window: false }
    }

    /// One workload on a filled store.
    fn meet<S: Store>(&self, store: &S, lanes: &mut Lanes, later: bool, clock_ns: u64) -> anyhow::Result<Shown> {
        let warm_up = Until::Time(Duration::from_secs_f64(self.warm_up_s));
        lanes.run(store, How { until: warm_up, whole: true, ..self.how(1.0) })?;
        let counted = lanes.run(store, self.how(1.0))?;
        let timed = lanes.run(store, How { latency: true, ..self.how(0.5) })?;
        let windowed = if later { Some(lanes.run(store, How { window: true, ..self.how(1.0) })?) } else { None };
        Ok(shown(&counted, &timed, windowed.as_ref(), clock_ns))
    }

    /// Insertion, on an empty store each time.
    fn insert<S: Store>(
        &self,
        make: &dyn Fn() -> io::Result<S>,
        load: &Load,
        later: bool,
        clock_ns: u64,
    ) -> anyhow::Result<Shown> {
        let plan = Plan::new(load, self.keys, self.payload_bytes, self.threads, self.seed);
        let warm_up = Until::Time(Duration::from_secs_f64(self.warm_up_s));
        filling(make, &plan, How { until: warm_up, whole: true, ..self.how(1.0) })?;
        let counted = filling(make, &plan, self.how(1.0))?;
        let timed = filling(make, &plan, How { latency: true, ..self.how(0.5) })?;
        let windowed = if later { Some(filling(make, &plan, How { window: true, ..self.how(1.0) })?) } else { None };
        Ok(shown(&counted, &timed, windowed.as_ref(), clock_ns))
    }

    /// Looks at what is stored, up to a million entities.
    fn look<S: Store>(&self, store: &S, last: u64) -> anyhow::Result<()> {
        let (check, step) = (self.check(last), self.keys.div_ceil(LOOKED_AT).max(1));
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

/// Inserts from empty to all keys, on one store after the other, until the phase is over.
///
/// # Errors
///
/// As [`Lanes::run`]; and where a store cannot be made, or counts wrong.
pub fn filling<S: Store>(make: &dyn Fn() -> io::Result<S>, plan: &Plan, how: How) -> anyhow::Result<Passed> {
    let mut all: Option<Passed> = None;
    loop {
        let store = make().context("a store cannot be made")?;
        let until = match (&all, how.until) {
            (None, until) => until,
            (Some(all), Until::Time(time)) => Until::Time(time.saturating_sub(all.wall)),
            (Some(all), Until::Operations(operations)) => Until::Operations(operations.saturating_sub(all.operations)),
        };
        let mut lanes = Lanes::new(plan, 0);
        let passed = lanes.run(&store, How { until, ..how })?;
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

/// Stores `keys` entities, for those who measure what comes after.
///
/// # Errors
///
/// Where the store fails, or says that one was there.
pub fn fill<S: Store>(store: &S, keys: u64, payload_bytes: usize) -> anyhow::Result<()> {
    let visit = Visit {
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
    visit.change(store, Kind::Create)?;
    expect_len(store, keys)
}

impl With for &Visit {
    type Out = anyhow::Result<Told>;

    fn with<S: Store + 'static>(self, make: &dyn Fn() -> io::Result<S>) -> anyhow::Result<Told> {
        let mut told = Told::default();
        let start_bytes = resident();
        let store = make().with_context(|| format!("the store {}", self.store))?;
        let (ended, later) = self.change(&store, Kind::Create)?;
        let fill_s = match ended {
            Ended::Whole(took) => took.as_secs_f64(),
            Ended::Short(done) => {
                told.unfinished.push(self.unfinished("filling", done));
                return Ok(told);
            }
        };
        expect_len(&store, self.keys)?;
        if self.loads.iter().any(|load| load.workload == Workload::Memory) {
            let memory = Memory { start_bytes, fill_s, filled_bytes: resident(), ..Memory::default() };
            self.memory(&store, &mut told, memory)?;
            if !told.unfinished.is_empty() {
                return Ok(told);
            }
        }
        let (clock_ns, mut version) = (clock_cost(), 0);
        let of = |wanted: fn(Workload) -> bool| self.loads.iter().filter(move |load| wanted(load.workload));
        let plan = |load: &Load| Plan::new(load, self.keys, self.payload_bytes, self.threads, self.seed);
        for load in of(Workload::draws) {
            let mut lanes = Lanes::new(&plan(load), version);
            told.shown.push((load.clone(), self.meet(&store, &mut lanes, later, clock_ns)?));
            version = lanes.version();
        }
        self.look(&store, version)?;
        for load in of(|workload| workload == Workload::Churn) {
            let mut lanes = Lanes::new(&plan(load), version);
            told.shown.push((load.clone(), self.meet(&store, &mut lanes, later, clock_ns)?));
            expect_len(&store, self.keys.checked_add_signed(lanes.balance()).unwrap_or(0))?;
        }
        drop(store);
        for load in of(|workload| workload == Workload::Insert) {
            told.shown.push((load.clone(), self.insert(make, load, later, clock_ns)?));
        }
        Ok(told)
    }
}

fn shown(counted: &Passed, timed: &Passed, windowed: Option<&Passed>, clock_ns: u64) -> Shown {
    let per_s = |passed: &Passed| passed.operations as f64 / passed.wall.as_secs_f64();
    let latency = timed.latency.as_ref().filter(|latency| !latency.is_empty());
    let us = |ns: u64| ns as f64 / 1000.0;
    Shown {
        operations: counted.operations,
        elapsed_s: counted.wall.as_secs_f64(),
        per_s: per_s(counted),
        cpu_us: Some(counted.cpu.as_secs_f64() * 1e6 / counted.operations as f64).filter(|cpu| cpu.is_finite()),
        windowed_per_s: windowed.map(per_s).filter(|per_s| per_s.is_finite()),
        latency: latency.map(|latency| Latency {
            sampled: latency.len(),
            clock_ns,
            p50_us: us(latency.value_at_quantile(0.5)),
            p99_us: us(latency.value_at_quantile(0.99)),
            p999_us: us(latency.value_at_quantile(0.999)),
            max_us: us(latency.max()),
        }),
    }
}

fn expect_len<S: Store>(store: &S, wanted: u64) -> anyhow::Result<()> {
    match store.len()? {
        count if count == wanted => Ok(()),
        count => Err(anyhow!("it counts {count} entities of {wanted}")),
    }
}

fn resident() -> Option<u64> {
    proc::resident(std::process::id()).ok().map(|resident| resident.now)
}

/// What a store at this place may need, in bytes, by an estimate that is no store's own: an entity and its description, as
/// the allocator rounds it; what a table takes, twice while it grows; and what is made ahead.
pub fn needs(place: &Place) -> u64 {
    let description = (place.payload_bytes as u64 + 8).next_multiple_of(16).max(32);
    place.keys * (description + TABLE) + (place.threads * BUDGET * 2) as u64
}

/// An entity of 40 bytes and what leads to it, at most half of the table empty, the old one beside it while it grows.
const TABLE: u64 = 160;
