//! Stores that take turns at the same gets, in one process: the same ids in the same order, the same entities, the same
//! visible work. A bare map is called as its users call it. A repo is called as a service calls it: with a visit, through
//! `Arc<dyn EntityRepo>` or as its own type. Both show a borrowed entity to the same closure, which reads the id, the value
//! and the length of the description.
//!
//! Invariant: all stores of a set were filled together, entity by entity, so that no store has the better part of the heap;
//! a get that shows a wrong entity ends the run. Cost: the entities of all stores at once; one dynamic call for each turn of
//! a thread.

use std::cell::Cell;
use std::fmt;
use std::hint::black_box;
use std::io;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use clap::ValueEnum;
use polyserve::catalog::Catalog;
use polyserve::repo::{Put, RepoError};
use polyserve::{Entity, EntityRef};
use polyserve_load::{Dist, Picker};
use serde::{Deserialize, Serialize};

use super::bare::{With, with};
use super::entities::{Check, entity, mixed, spread};
use super::store::MeasuredStore;
use super::window::expect;
use crate::experiment::order;

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
#[derive(Clone, Copy)]
enum Gets {
    /// To check all entities, with their descriptions.
    Whole,
    /// To measure.
    Each(Lookups),
}

/// A store with an erased type.
trait ErasedStore {
    fn put(&self, entity: Entity) -> anyhow::Result<()>;
    fn turn(&self, ids: &[Arc<[u32]>], check: &Check, gets: Gets) -> anyhow::Result<Duration>;
}

struct Erased<S>(S);

struct Erase;

impl With for Erase {
    type Out = io::Result<Box<dyn ErasedStore>>;

    fn with<S: MeasuredStore + 'static>(self, make: &dyn Fn() -> io::Result<S>) -> Self::Out {
        Ok(Box::new(Erased(make()?)))
    }
}

/// A thread's part of a turn.
struct LookupLane {
    ids: Arc<[u32]>,
    result: Option<(Result<u64, RepoError>, [Instant; 2])>,
}

impl<S: MeasuredStore> ErasedStore for Erased<S> {
    fn put(&self, entity: Entity) -> anyhow::Result<()> {
        let id = entity.id;
        expect(id, self.0.put(entity)?, Put::Created)
    }

    fn turn(&self, ids: &[Arc<[u32]>], check: &Check, gets: Gets) -> anyhow::Result<Duration> {
        let barrier = Barrier::new(ids.len());
        let mut lanes: Vec<LookupLane> =
            ids.iter().map(|ids| LookupLane { ids: Arc::clone(ids), result: None }).collect();
        self.0.each(&mut lanes, |store, lane| {
            barrier.wait();
            let begun = Instant::now();
            let (check, ids) = (*check, &lane.ids);
            let right = match gets {
                Gets::Whole => independent(store, ids, move |id, found| check.is_right(id, found)),
                Gets::Each(Lookups::Independent) => independent(store, ids, move |id, found| check.is_like(id, found)),
                Gets::Each(Lookups::Dependent) => dependent(store, ids, move |id, found| check.is_like(id, found)),
            };
            lane.result = Some((right, [begun, Instant::now()]));
        })?;
        let mut span: Option<[Instant; 2]> = None;
        for lane in lanes {
            let (right, [begun, ended]) = lane.result.context("a thread has no result")?;
            let (right, all) = (right?, lane.ids.len() as u64);
            if right != all {
                bail!("{} of {all} gets showed no entity, or an entity that was never put", all - right);
            }
            span = Some(span.map_or([begun, ended], |[first, last]| [first.min(begun), last.max(ended)]));
        }
        span.map(|[first, last]| last - first).ok_or_else(|| anyhow!("there was no thread"))
    }
}

/// Returns the number of gets that showed the right entity. No get waits for another: a core begins the next gets while it
/// waits for the memory of the first.
#[inline(never)] // so that each store's loop is a function of its own, which a profile can name
fn independent<S: MeasuredStore>(
    store: &S,
    ids: &[u32],
    check: impl Fn(i64, EntityRef<'_>) -> bool,
) -> Result<u64, RepoError> {
    // Made once, so that no measured get makes it.
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

/// Stores with the same content.
pub struct StoreSet {
    stores: Vec<Box<dyn ErasedStore>>,
    ids: Vec<Arc<[u32]>>,
    check: Check,
}

impl fmt::Debug for StoreSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSet").field("stores", &self.stores.len()).finish_non_exhaustive()
    }
}

/// The settings of a [`StoreSet`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Ground {
    /// Entities.
    pub keys: u64,
    /// Bytes of a description.
    pub payload_bytes: usize,
    /// Threads.
    pub threads: usize,
    /// Gets of each thread in a turn.
    pub gets: u64,
    /// The seed of the ids.
    pub seed: u64,
}

impl StoreSet {
    /// The stores of these names, made and filled together. The order of the stores and the ids of the gets depend on `block`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such store, or if a store fails.
    pub fn new(catalog: &Catalog, names: &[&str], ground: &Ground, block: usize) -> anyhow::Result<Self> {
        let turns = order(block, names.len());
        let mut made = Vec::new();
        for number in &turns {
            let name = names[*number];
            made.push((*number, with(catalog, name, Erase)?.with_context(|| format!("the store {name}"))?));
        }
        made.sort_by_key(|(number, _)| *number);
        let stores: Vec<_> = made.into_iter().map(|(_, store)| store).collect();
        for place in 0..ground.keys {
            let id = spread(place, ground.keys);
            for number in &turns {
                let put = stores[*number].put(entity(id, 0, ground.payload_bytes));
                put.with_context(|| format!("{} cannot be filled", names[*number]))?;
            }
        }
        let picker = Picker::new(u32::try_from(ground.keys)?, Dist::Uniform);
        let ids = (0..ground.threads).map(|thread| {
            let stream = mixed(ground.seed ^ mixed((block * ground.threads + thread) as u64));
            (0..ground.gets).map(|number| picker.pick(mixed(stream.wrapping_add(number)))).collect()
        });
        let check = Check::new(0, ground.payload_bytes, true);
        let set = Self { stores, ids: ids.collect(), check };
        // Read the memory of each store once, and check every entity whole.
        for (store, name) in set.stores.iter().zip(names) {
            store.turn(&set.ids, &check, Gets::Whole).with_context(|| (*name).to_owned())?;
        }
        Ok(set)
    }

    /// One turn of the store with this index. Returns the time from the first thread's start to the last thread's end.
    ///
    /// # Errors
    ///
    /// Returns an error if a get fails, or shows a wrong entity.
    pub fn turn(&self, place: usize, lookups: Lookups) -> anyhow::Result<Duration> {
        self.stores.get(place).context("there is no such store")?.turn(&self.ids, &self.check, Gets::Each(lookups))
    }
}
