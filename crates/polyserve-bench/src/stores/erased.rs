//! Stores with an erased type. Only the loops over operations are compiled for each type of store; the rest of a run is
//! compiled once.
//!
//! Invariant: no operation is a dynamic call, unless the store itself makes one. Cost: one dynamic call for each loop.

use std::cell::Cell;
use std::hint::black_box;
use std::ops::Range;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use polyserve::{EntityRef, Removed, RepoError};

use super::entities::{Check, entity, spread};
use super::phase::{Lanes, PhaseResult, PhaseSettings};
use super::store::MeasuredStore;
use super::window::{OperationWindow, WINDOW, expect};
use super::workload::{OperationCode, OperationKind};

/// The purpose of a loop of gets.
#[derive(Clone, Copy, Debug)]
pub enum Gets {
    /// To check all entities whole, once.
    Whole,
    /// To measure for this time, each get after the previous one.
    Dependent(Duration),
    /// To measure for this time.
    Independent(Duration),
    /// To measure for this time, with `AT_A_TIME` ids in each call.
    Many(Duration),
}

/// The size of a store's content.
#[derive(Clone, Copy, Debug)]
pub struct StoreContent {
    /// The number of entities.
    pub keys: u64,
    /// Bytes of a description.
    pub payload_bytes: usize,
}

/// The number of ids in one call for many.
const AT_A_TIME: usize = 16;

/// Gets of each thread between two readings of the clock.
const GETS_PER_CHECK: usize = 4096;

/// A store with an erased type.
pub trait ErasedStore {
    /// Checks the number of entities.
    ///
    /// # Errors
    ///
    /// Returns an error if the store fails or has another number of entities.
    fn expect_len(&self, expected: u64) -> anyhow::Result<()>;

    /// Puts or removes the entities at these places of the order of all ids. Returns true if an answer was deferred.
    ///
    /// # Errors
    ///
    /// Returns an error if the store fails or an answer is wrong.
    fn change(&self, content: &StoreContent, places: Range<u64>, kind: OperationKind) -> anyhow::Result<bool>;

    /// Runs a phase.
    ///
    /// # Errors
    ///
    /// Returns the errors of `Lanes::run`.
    fn run(&self, lanes: &mut Lanes, how: PhaseSettings) -> anyhow::Result<PhaseResult>;

    /// Checks the stored entities of these ids.
    ///
    /// # Errors
    ///
    /// Returns an error if the store fails, or if an entity is not one that was put.
    fn check_stored(&self, ids: &mut dyn Iterator<Item = i64>, check: &Check) -> anyhow::Result<()>;

    /// Gets these ids, with a thread for each list, again and again. Returns the number of gets a second, the sum of the threads'.
    ///
    /// # Errors
    ///
    /// Returns an error if a get fails, or shows a wrong entity.
    fn get_all(&self, ids: &[Arc<[u32]>], check: &Check, gets: Gets) -> anyhow::Result<f64>;
}

/// A store of a known type.
pub(super) struct Erased<S>(pub(super) S);

/// A thread's part of a loop of gets.
struct GetLane {
    ids: Arc<[u32]>,
    gets_per_s: anyhow::Result<f64>,
}

impl<S: MeasuredStore> ErasedStore for Erased<S> {
    fn expect_len(&self, expected: u64) -> anyhow::Result<()> {
        match self.0.len()? {
            count if count == expected => Ok(()),
            count => Err(anyhow!("it has {count} entities, expected {expected}")),
        }
    }

    fn change(&self, content: &StoreContent, places: Range<u64>, kind: OperationKind) -> anyhow::Result<bool> {
        let StoreContent { keys, payload_bytes } = *content;
        let (store, entity) = (&self.0, |id| entity(id, 0, payload_bytes));
        let mut ids = places.map(|place| spread(place, keys));
        let Some(repo) = store.repo() else {
            ids.try_for_each(|id| match kind {
                OperationKind::Remove => expect(id, store.remove(id)?, Removed::Removed),
                _ => expect(id, store.put(entity(id))?, kind.put()),
            })?;
            return Ok(false);
        };
        let (mut window, check) = (OperationWindow::new(repo, WINDOW), Check::new(0, payload_bytes, true));
        ids.try_for_each(|id| window.ask(OperationCode::new(kind, id), || entity(id), &check))?;
        window.drain()?;
        Ok(window.has_waited())
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

    fn get_all(&self, ids: &[Arc<[u32]>], check: &Check, gets: Gets) -> anyhow::Result<f64> {
        let barrier = Barrier::new(ids.len());
        let lane =
            |ids: &Arc<[u32]>| GetLane { ids: Arc::clone(ids), gets_per_s: Err(anyhow!("a thread has no result")) };
        let mut lanes: Vec<GetLane> = ids.iter().map(lane).collect();
        let check = *check;
        self.0.each(&mut lanes, |store, lane| {
            barrier.wait();
            lane.gets_per_s = match gets {
                Gets::Whole => {
                    each_once(&lane.ids, |ids| independent(store, ids, |id, found| check.is_right(id, found)))
                }
                Gets::Independent(time) => {
                    repeated(&lane.ids, time, |ids| independent(store, ids, |id, found| check.is_like(id, found)))
                }
                Gets::Many(time) => {
                    repeated(&lane.ids, time, |ids| many(store, ids, |id, found| check.is_like(id, found)))
                }
                Gets::Dependent(time) => {
                    repeated(&lane.ids, time, |ids| dependent(store, ids, |id, found| check.is_like(id, found)))
                }
            };
        })?;
        lanes.into_iter().map(|lane| lane.gets_per_s).sum()
    }
}

/// Runs one loop of gets over all ids.
fn each_once(ids: &[u32], run: impl Fn(&[u32]) -> Result<u64, RepoError>) -> anyhow::Result<f64> {
    let started = Instant::now();
    expect_right(run(ids)?, ids)?;
    Ok(ids.len() as f64 / started.elapsed().as_secs_f64())
}

/// Runs loops of gets over parts of the ids, again and again, for this time.
fn repeated(ids: &[u32], time: Duration, run: impl Fn(&[u32]) -> Result<u64, RepoError>) -> anyhow::Result<f64> {
    let (started, mut gets) = (Instant::now(), 0);
    for ids in ids.chunks(GETS_PER_CHECK).cycle() {
        expect_right(run(ids)?, ids)?;
        gets += ids.len();
        let elapsed = started.elapsed();
        if elapsed >= time {
            return Ok(gets as f64 / elapsed.as_secs_f64());
        }
    }
    bail!("there are no ids")
}

fn expect_right(right: u64, ids: &[u32]) -> anyhow::Result<()> {
    let all = ids.len() as u64;
    if right == all {
        return Ok(());
    }
    bail!("{} of {all} gets showed no entity, or an entity that was never put", all - right)
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

/// [`independent`], but [`AT_A_TIME`] ids are in one call.
#[inline(never)]
fn many<S: MeasuredStore>(
    store: &S,
    ids: &[u32],
    check: impl Fn(i64, EntityRef<'_>) -> bool,
) -> Result<u64, RepoError> {
    let mut right = 0;
    for ids in ids.chunks(AT_A_TIME) {
        let mut asked = [0; AT_A_TIME];
        let asked = &mut asked[..ids.len()];
        asked.iter_mut().zip(ids).for_each(|(asked, id)| *asked = i64::from(*id));
        store.get_many(asked, &mut |place, found| right += u64::from(check(asked[place], found)))?;
    }
    Ok(right)
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
