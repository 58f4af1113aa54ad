//! Stores that take turns at the same gets, in one process: the same ids in the same order, of the same entities, with the
//! same visible work. A bare map is asked as its users ask it, a repo as a service asks it: with a visit, through
//! `Arc<dyn EntityRepo>` or as its own type. Both show a borrowed entity to one and the same closure, which reads id, value
//! and the description's length.
//!
//! Invariant: all stores of a field were filled together, entity by entity, so that none has the better part of the heap; a
//! get that shows anything else than it should ends the run. Cost: the entities of all stores at once; one call through a
//! table for each turn of a thread.

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
use super::store::Store;
use super::window::expect;
use crate::experiment::order;

/// Whether a get waits for the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Lookups {
    /// It does: its id is made with what the last one showed. So a request asks, which has an answer to write before it ends.
    Dependent,
    /// It does not: a core begins the next ones while it waits for the memory of the first. So a loop over known ids asks.
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

/// What a turn is for.
#[derive(Clone, Copy)]
enum Gets {
    /// To see that everything is right, descriptions too.
    Whole,
    /// To be measured.
    Each(Lookups),
}

/// A store whose type is known to itself alone.
trait Contestant {
    fn put(&self, entity: Entity) -> anyhow::Result<()>;
    fn turn(&self, draws: &[Arc<[u32]>], check: &Check, gets: Gets) -> anyhow::Result<Duration>;
}

struct Held<S>(S);

struct Hold;

impl With for Hold {
    type Out = io::Result<Box<dyn Contestant>>;

    fn with<S: Store + 'static>(self, make: &dyn Fn() -> io::Result<S>) -> Self::Out {
        Ok(Box::new(Held(make()?)))
    }
}

/// A thread's part of a turn.
struct Lane {
    draws: Arc<[u32]>,
    said: Option<(Result<u64, RepoError>, [Instant; 2])>,
}

impl<S: Store> Contestant for Held<S> {
    fn put(&self, entity: Entity) -> anyhow::Result<()> {
        let id = entity.id;
        expect(id, self.0.put(entity)?, Put::Created)
    }

    fn turn(&self, draws: &[Arc<[u32]>], check: &Check, gets: Gets) -> anyhow::Result<Duration> {
        let barrier = Barrier::new(draws.len());
        let mut lanes: Vec<Lane> = draws.iter().map(|draws| Lane { draws: Arc::clone(draws), said: None }).collect();
        self.0.each(&mut lanes, |store, lane| {
            barrier.wait();
            let begun = Instant::now();
            let (check, draws) = (*check, &lane.draws);
            let right = match gets {
                Gets::Whole => independent(store, draws, move |id, found| check.is_right(id, found)),
                Gets::Each(Lookups::Independent) => {
                    independent(store, draws, move |id, found| check.is_like(id, found))
                }
                Gets::Each(Lookups::Dependent) => dependent(store, draws, move |id, found| check.is_like(id, found)),
            };
            lane.said = Some((right, [begun, Instant::now()]));
        })?;
        let mut span: Option<[Instant; 2]> = None;
        for lane in lanes {
            let (right, [begun, ended]) = lane.said.context("a thread said nothing")?;
            let (right, all) = (right?, lane.draws.len() as u64);
            if right != all {
                bail!("{} of {all} gets showed nothing, or what nobody has put there", all - right);
            }
            span = Some(span.map_or([begun, ended], |[first, last]| [first.min(begun), last.max(ended)]));
        }
        span.map(|[first, last]| last - first).ok_or_else(|| anyhow!("there was no thread"))
    }
}

/// How many of these gets showed what they should. No get waits for another: a core begins the next ones while it waits for
/// the memory of the first.
#[inline(never)] // so that each store's loop is a function of its own, which a profile can name
fn independent<S: Store>(
    store: &S,
    draws: &[u32],
    check: impl Fn(i64, EntityRef<'_>) -> bool,
) -> Result<u64, RepoError> {
    // Made once, so that the work of making it is in no get.
    let seen = (Cell::new(0), Cell::new(0));
    let (asked, right) = &seen;
    let mut see = |found: EntityRef<'_>| right.set(right.get() + u64::from(check(asked.get(), found)));
    for draw in draws {
        asked.set(i64::from(*draw));
        store.get(asked.get(), &mut see)?;
    }
    Ok(seen.1.get())
}

/// The same, but each get's id is made with what the one before showed, so that it cannot begin sooner.
#[inline(never)]
fn dependent<S: Store>(store: &S, draws: &[u32], check: impl Fn(i64, EntityRef<'_>) -> bool) -> Result<u64, RepoError> {
    let seen = (Cell::new(0), Cell::new(0), Cell::new(0));
    let (asked, right, shown) = &seen;
    let mut see = |found: EntityRef<'_>| {
        shown.set(found.value.to_bits().cast_signed() ^ found.id);
        right.set(right.get() + u64::from(check(asked.get(), found)));
    };
    let nothing = black_box(0); // what every bit of it is, no compiler knows
    for draw in draws {
        asked.set(i64::from(*draw) ^ (shown.get() & nothing));
        store.get(asked.get(), &mut see)?;
    }
    Ok(seen.1.get())
}

/// Stores with the same content.
pub struct Field {
    stores: Vec<Box<dyn Contestant>>,
    draws: Vec<Arc<[u32]>>,
    check: Check,
}

impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Field").field("stores", &self.stores.len()).finish_non_exhaustive()
    }
}

/// What a field is made of.
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
    /// Of the draws.
    pub seed: u64,
}

impl Field {
    /// The stores of these names, made and filled together; who comes first changes with `block`, and so do the draws.
    ///
    /// # Errors
    ///
    /// Where there is no such store, or it fails.
    pub fn new(catalog: &Catalog, names: &[&str], ground: &Ground, block: usize) -> anyhow::Result<Self> {
        let turns = order(block, names.len());
        let mut made = Vec::new();
        for number in &turns {
            let name = names[*number];
            made.push((*number, with(catalog, name, Hold)?.with_context(|| format!("the store {name}"))?));
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
        let draws = (0..ground.threads).map(|thread| {
            let stream = mixed(ground.seed ^ mixed((block * ground.threads + thread) as u64));
            (0..ground.gets).map(|number| picker.pick(mixed(stream.wrapping_add(number)))).collect()
        });
        let check = Check::new(0, ground.payload_bytes, true);
        let field = Self { stores, draws: draws.collect(), check };
        // Everybody's memory is touched once, and every entity that is read is checked whole.
        for (store, name) in field.stores.iter().zip(names) {
            store.turn(&field.draws, &check, Gets::Whole).with_context(|| (*name).to_owned())?;
        }
        Ok(field)
    }

    /// One turn of the store in this place: the time from the first thread's start to the last one's end.
    ///
    /// # Errors
    ///
    /// Where a get fails, or shows anything else than it should.
    pub fn turn(&self, place: usize, lookups: Lookups) -> anyhow::Result<Duration> {
        self.stores.get(place).context("there is no such store")?.turn(&self.draws, &self.check, Gets::Each(lookups))
    }
}
