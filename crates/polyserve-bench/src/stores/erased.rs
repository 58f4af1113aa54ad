//! Stores with an erased type. Only the loops over operations are compiled for each type of store; the rest of a run is
//! compiled once.
//!
//! Invariant: no operation is a dynamic call, unless the store itself makes one. Cost: one dynamic call for each loop.

use std::cell::Cell;
use std::fmt;
use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use clap::ValueEnum;
use polyserve::{Entity, EntityRef, Put, Removed, RepoError};
use serde::{Deserialize, Serialize};

use super::entities::{Check, entity, spread};
use super::phase::{Lanes, PhaseResult, PhaseSettings};
use super::store::MeasuredStore;
use super::window::{OperationWindow, WINDOW, expect};
use super::workload::{OperationCode, OperationKind};

/// Whether a get waits for the previous get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Lookups {
    /// It waits: its id depends on the entity of the previous get. Requests behave like this: each writes its answer first.
    Dependent,
    /// It does not wait: a core begins the next gets while it waits for memory. A loop over known ids behaves like this.
    Independent,
}

impl fmt::Display for Lookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Dependent => "dependent",
            Self::Independent => "independent",
        })
    }
}

/// The purpose of a turn.
#[derive(Clone, Copy, Debug)]
pub enum Gets {
    /// To check all entities, with their descriptions.
    Whole,
    /// To measure.
    Each(Lookups),
}

/// All keys, which one thread puts or removes within a time limit.
#[derive(Clone, Copy, Debug)]
pub struct AllKeys {
    /// The number of keys.
    pub keys: u64,
    /// Bytes of a description.
    pub payload_bytes: usize,
    /// The time limit, in seconds.
    pub limit_s: f64,
}

/// How filling or emptying ended.
#[derive(Clone, Copy, Debug)]
pub enum FillEnd {
    /// All keys are done, after this time.
    Whole(Duration),
    /// The time limit was reached after this number of keys.
    Short(u64),
}

/// Operations between two checks of the limit.
const KEYS_PER_CHECK: u64 = 256;

/// A store with an erased type.
pub trait ErasedStore {
    /// Stores an entity of a new id.
    ///
    /// # Errors
    ///
    /// Returns an error if the store fails, or if the id was there already.
    fn create(&self, entity: Entity) -> anyhow::Result<()>;

    /// Checks the number of entities.
    ///
    /// # Errors
    ///
    /// Returns an error if the store fails or has another number of entities.
    fn expect_len(&self, expected: u64) -> anyhow::Result<()>;

    /// Puts or removes all keys. The flag in the result is true if an answer was deferred.
    ///
    /// # Errors
    ///
    /// Returns an error if the store fails or an answer is wrong.
    fn change(&self, all: &AllKeys, kind: OperationKind) -> anyhow::Result<(FillEnd, bool)>;

    /// Runs a phase.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Lanes::run`].
    fn run(&self, lanes: &mut Lanes, how: PhaseSettings) -> anyhow::Result<PhaseResult>;

    /// Checks the stored entities of these ids.
    ///
    /// # Errors
    ///
    /// Returns an error if the store fails, or if an entity is not one that was put.
    fn check_stored(&self, ids: &mut dyn Iterator<Item = i64>, check: &Check) -> anyhow::Result<()>;

    /// Gets these ids, with a thread for each list. Returns the time from the first thread's start to the last thread's end.
    ///
    /// # Errors
    ///
    /// Returns an error if a get fails, or shows a wrong entity.
    fn turn(&self, ids: &[Arc<[u32]>], check: &Check, gets: Gets) -> anyhow::Result<Duration>;
}

/// A store of a known type.
pub(super) struct Erased<S>(pub(super) S);

/// A thread's part of a turn.
struct LookupLane {
    ids: Arc<[u32]>,
    result: Option<(Result<u64, RepoError>, [Instant; 2])>,
}

impl<S: MeasuredStore> ErasedStore for Erased<S> {
    fn create(&self, entity: Entity) -> anyhow::Result<()> {
        let id = entity.id;
        expect(id, self.0.put(entity)?, Put::Created)
    }

    fn expect_len(&self, expected: u64) -> anyhow::Result<()> {
        match self.0.len()? {
            count if count == expected => Ok(()),
            count => Err(anyhow!("it has {count} entities, expected {expected}")),
        }
    }

    fn change(&self, all: &AllKeys, kind: OperationKind) -> anyhow::Result<(FillEnd, bool)> {
        let (store, entity) = (&self.0, |id| entity(id, 0, all.payload_bytes));
        let Some(repo) = store.repo() else {
            let ended = all.each(|id| match kind {
                OperationKind::Remove => expect(id, store.remove(id)?, Removed::Removed),
                _ => expect(id, store.put(entity(id))?, kind.put()),
            })?;
            return Ok((ended, false));
        };
        let (mut window, check) = (OperationWindow::new(repo, WINDOW), Check::new(0, all.payload_bytes, true));
        let ended = all.each(|id| window.ask(OperationCode::new(kind, id), || entity(id), &check))?;
        window.drain()?;
        Ok((ended, window.has_waited()))
    }

    fn run(&self, lanes: &mut Lanes, how: PhaseSettings) -> anyhow::Result<PhaseResult> {
        lanes.run(&self.0, how)
    }

    fn check_stored(&self, ids: &mut dyn Iterator<Item = i64>, check: &Check) -> anyhow::Result<()> {
        for id in ids {
            let mut right = false;
            self.0.get(id, &mut |found| right = check.is_right(id, found))?;
            if !right {
                bail!("the stored entity {id} was never put (final check)");
            }
        }
        Ok(())
    }

    fn turn(&self, ids: &[Arc<[u32]>], check: &Check, gets: Gets) -> anyhow::Result<Duration> {
        let barrier = Barrier::new(ids.len());
        let lane = |ids: &Arc<[u32]>| LookupLane { ids: Arc::clone(ids), result: None };
        let mut lanes: Vec<LookupLane> = ids.iter().map(lane).collect();
        self.0.each(&mut lanes, |store, lane| {
            barrier.wait();
            let started = Instant::now();
            let (check, ids) = (*check, &lane.ids);
            let right = match gets {
                Gets::Whole => independent(store, ids, move |id, found| check.is_right(id, found)),
                Gets::Each(Lookups::Independent) => independent(store, ids, move |id, found| check.is_like(id, found)),
                Gets::Each(Lookups::Dependent) => dependent(store, ids, move |id, found| check.is_like(id, found)),
            };
            lane.result = Some((right, [started, Instant::now()]));
        })?;
        span(lanes)
    }
}

impl AllKeys {
    /// Calls `operation` for all keys, until the limit.
    fn each(&self, mut operation: impl FnMut(i64) -> anyhow::Result<()>) -> anyhow::Result<FillEnd> {
        let started = Instant::now();
        for place in 0..self.keys {
            if place % KEYS_PER_CHECK == 0 && started.elapsed().as_secs_f64() > self.limit_s {
                return Ok(FillEnd::Short(place));
            }
            operation(spread(place, self.keys))?;
        }
        Ok(FillEnd::Whole(started.elapsed()))
    }
}

/// The time from the first thread's start to the last thread's end, if all gets showed the right entity.
fn span(lanes: Vec<LookupLane>) -> anyhow::Result<Duration> {
    let mut span: Option<[Instant; 2]> = None;
    for lane in lanes {
        let (right, [started, ended]) = lane.result.context("a thread has no result")?;
        let (right, all) = (right?, lane.ids.len() as u64);
        if right != all {
            bail!("{} of {all} gets showed no entity, or an entity that was never put", all - right);
        }
        span = Some(span.map_or([started, ended], |[first, last]| [first.min(started), last.max(ended)]));
    }
    span.map(|[first, last]| last - first).ok_or_else(|| anyhow!("there was no thread"))
}

/// Returns the number of gets that showed the right entity. No get waits for an earlier get: a core begins the next gets while
/// it waits for memory.
#[inline(never)] // so that each store's loop is a function of its own, which a profile can name
fn independent<S: MeasuredStore>(
    store: &S,
    ids: &[u32],
    check: impl Fn(i64, EntityRef<'_>) -> bool,
) -> Result<u64, RepoError> {
    // The callback is made once, outside the measured gets.
    let seen = (Cell::new(0), Cell::new(0));
    let (asked, right) = &seen;
    let mut see = |found: EntityRef<'_>| right.set(right.get() + u64::from(check(asked.get(), found)));
    for id in ids {
        asked.set(i64::from(*id));
        store.get(asked.get(), &mut see)?;
    }
    Ok(seen.1.get())
}

/// [`independent`], but the id of each get depends on the entity of the previous get, so that it cannot begin earlier.
#[inline(never)]
fn dependent<S: MeasuredStore>(
    store: &S,
    ids: &[u32],
    check: impl Fn(i64, EntityRef<'_>) -> bool,
) -> Result<u64, RepoError> {
    let seen = (Cell::new(0), Cell::new(0), Cell::new(0));
    let (asked, right, shown) = &seen;
    let mut see = |found: EntityRef<'_>| {
        shown.set(found.value.to_bits().cast_signed() ^ found.id);
        right.set(right.get() + u64::from(check(asked.get(), found)));
    };
    let nothing = black_box(0); // the compiler does not know its value
    for id in ids {
        asked.set(i64::from(*id) ^ (shown.get() & nothing));
        store.get(asked.get(), &mut see)?;
    }
    Ok(seen.1.get())
}
