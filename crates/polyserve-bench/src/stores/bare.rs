//! Bare maps: the maps inside the repos, called directly, without the repo trait. They hash with the repos' own [`IdState`].
//! One map uses std's default instead, to show the hasher's share.
//!
//! Typed repos are called through the seam as a type that the compiler knows, as `EntityService<Dashmap>` calls them. They show
//! the cost of the seam without dynamic calls.
//!
//! `bare/hash_map` is for one thread: the lower limit of all costs. It is in a `RefCell`, because the loops share the store;
//! this costs a comparison and two writes.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{PoisonError, RwLock};

use dashmap::DashMap;
use polyserve::catalog::Catalog;
use polyserve::memory::hash::IdState;
use polyserve::memory::{Dashmap, Packed, Papaya, Scc, Seqlock, Sharded, StdMutex, StdRwlock};
use polyserve::{Entity, EntityRef, Put, Removed, RepoError};

use super::erased::{Erased, ErasedStore};
use super::store::{MeasuredStore, RepoStore, check_form, in_threads};

/// The prefix of a bare map's name.
pub const PREFIX: &str = "bare/";
/// The map for one thread.
pub const HASH_MAP: &str = "bare/hash_map";
/// All of them.
pub const NAMES: [&str; 6] =
    [HASH_MAP, "bare/std_rwlock", "bare/dashmap", "bare/dashmap+siphash", "bare/papaya", "bare/scc"];

/// The prefix of the name of a repo of a known type.
pub const TYPED_PREFIX: &str = "typed/";
/// All of them.
pub const TYPED: [&str; 8] = [
    "typed/std_mutex",
    "typed/std_rwlock",
    "typed/sharded",
    "typed/packed",
    "typed/dashmap",
    "typed/papaya",
    "typed/scc",
    "typed/seqlock",
];

/// Makes a new, empty store at each call.
pub type StoreMaker = Box<dyn Fn() -> io::Result<Box<dyn ErasedStore>>>;

/// Returns the maker of the store of this name: a bare map, a repo of a known type, or one of the catalog.
///
/// # Errors
///
/// Returns an error if there is no such store.
pub fn maker(catalog: &Catalog, name: &str) -> anyhow::Result<StoreMaker> {
    fn of<S: MeasuredStore + 'static>(make: impl Fn() -> io::Result<S> + 'static) -> StoreMaker {
        Box::new(move || Ok(Box::new(Erased(make()?))))
    }
    Ok(match name {
        HASH_MAP => of(|| Ok(SingleThreadMap::default())),
        "bare/std_rwlock" => of(|| Ok(Locked::default())),
        "bare/dashmap" => of(|| Ok(DashMap::<i64, Entity, IdState>::default())),
        "bare/dashmap+siphash" => of(|| Ok(DashMap::<i64, Entity, RandomState>::default())),
        "bare/papaya" => of(|| Ok(papaya::HashMap::<i64, Entity, IdState>::default())),
        "bare/scc" => of(|| Ok(scc::HashMap::<i64, Entity, IdState>::default())),
        "typed/std_mutex" => of(|| Ok(RepoStore(StdMutex::new()))),
        "typed/std_rwlock" => of(|| Ok(RepoStore(StdRwlock::new()))),
        "typed/sharded" => of(|| Ok(RepoStore(Sharded::new()))),
        "typed/packed" => of(|| Ok(RepoStore(Packed::new()))),
        "typed/dashmap" => of(|| Ok(RepoStore(Dashmap::new()))),
        "typed/papaya" => of(|| Ok(RepoStore(Papaya::new()))),
        "typed/scc" => of(|| Ok(RepoStore(Scc::new()))),
        "typed/seqlock" => of(|| Ok(RepoStore(Seqlock::new()))),
        _ => {
            let entry = catalog.repo(name)?.clone();
            let is_checked = Cell::new(false);
            of(move || {
                // A store of its own is checked, so that the measured one is new.
                if !is_checked.get() {
                    check_form(&*entry.build()?)?;
                    is_checked.set(true);
                }
                Ok(RepoStore(entry.build()?))
            })
        }
    })
}

/// One thread's own map.
#[derive(Debug, Default)]
pub(crate) struct SingleThreadMap(RefCell<HashMap<i64, Entity, IdState>>);

/// A map behind one lock.
#[derive(Debug, Default)]
pub(crate) struct Locked(RwLock<HashMap<i64, Entity, IdState>>);

#[allow(clippy::needless_pass_by_value)] // it is dropped here, after every lock
fn put<T>(replaced: Option<T>) -> Result<Put, RepoError> {
    Ok(if replaced.is_some() { Put::Replaced } else { Put::Created })
}

#[allow(clippy::needless_pass_by_value)] // as above
fn removed<T>(removed: Option<T>) -> Result<Removed, RepoError> {
    Ok(if removed.is_some() { Removed::Removed } else { Removed::Absent })
}

impl MeasuredStore for SingleThreadMap {
    #[inline]
    fn get(&self, id: i64, see: &mut impl FnMut(EntityRef<'_>)) -> Result<(), RepoError> {
        if let Some(entity) = self.0.borrow().get(&id) {
            see(entity.as_ref());
        }
        Ok(())
    }

    #[inline]
    fn put(&self, entity: Entity) -> Result<Put, RepoError> {
        let replaced = self.0.borrow_mut().insert(entity.id, entity);
        put(replaced)
    }

    #[inline]
    fn remove(&self, id: i64) -> Result<Removed, RepoError> {
        removed(self.0.borrow_mut().remove(&id))
    }

    fn len(&self) -> Result<u64, RepoError> {
        Ok(self.0.borrow().len() as u64)
    }

    /// Runs one lane; more lanes are an error.
    fn each<L: Send>(&self, lanes: &mut [L], work: impl Fn(&Self, &mut L) + Sync) -> anyhow::Result<()> {
        let [lane] = lanes else { anyhow::bail!("{HASH_MAP} is for one thread") };
        work(self, lane);
        Ok(())
    }
}

impl MeasuredStore for Locked {
    #[inline]
    fn get(&self, id: i64, see: &mut impl FnMut(EntityRef<'_>)) -> Result<(), RepoError> {
        let entities = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(entity) = entities.get(&id) {
            see(entity.as_ref());
        }
        Ok(())
    }

    #[inline]
    fn put(&self, entity: Entity) -> Result<Put, RepoError> {
        // The lock is released before the old entity is dropped.
        let replaced = self.0.write().unwrap_or_else(PoisonError::into_inner).insert(entity.id, entity);
        put(replaced)
    }

    #[inline]
    fn remove(&self, id: i64) -> Result<Removed, RepoError> {
        let entity = self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
        removed(entity)
    }

    fn len(&self) -> Result<u64, RepoError> {
        Ok(self.0.read().unwrap_or_else(PoisonError::into_inner).len() as u64)
    }

    fn each<L: Send>(&self, lanes: &mut [L], work: impl Fn(&Self, &mut L) + Sync) -> anyhow::Result<()> {
        in_threads(self, lanes, work)
    }
}

impl<H: BuildHasher + Clone + Send + Sync> MeasuredStore for DashMap<i64, Entity, H> {
    #[inline]
    fn get(&self, id: i64, see: &mut impl FnMut(EntityRef<'_>)) -> Result<(), RepoError> {
        if let Some(entity) = DashMap::get(self, &id) {
            see(entity.as_ref());
        }
        Ok(())
    }

    #[inline]
    fn put(&self, entity: Entity) -> Result<Put, RepoError> {
        put(self.insert(entity.id, entity))
    }

    #[inline]
    fn remove(&self, id: i64) -> Result<Removed, RepoError> {
        removed(DashMap::remove(self, &id))
    }

    fn len(&self) -> Result<u64, RepoError> {
        Ok(DashMap::len(self) as u64)
    }

    fn each<L: Send>(&self, lanes: &mut [L], work: impl Fn(&Self, &mut L) + Sync) -> anyhow::Result<()> {
        in_threads(self, lanes, work)
    }
}

impl MeasuredStore for papaya::HashMap<i64, Entity, IdState> {
    #[inline]
    fn get(&self, id: i64, see: &mut impl FnMut(EntityRef<'_>)) -> Result<(), RepoError> {
        if let Some(entity) = self.pin().get(&id) {
            see(entity.as_ref());
        }
        Ok(())
    }

    #[inline]
    fn put(&self, entity: Entity) -> Result<Put, RepoError> {
        put(self.pin().insert(entity.id, entity))
    }

    #[inline]
    fn remove(&self, id: i64) -> Result<Removed, RepoError> {
        removed(self.pin().remove(&id))
    }

    fn len(&self) -> Result<u64, RepoError> {
        Ok(papaya::HashMap::len(self) as u64)
    }

    fn each<L: Send>(&self, lanes: &mut [L], work: impl Fn(&Self, &mut L) + Sync) -> anyhow::Result<()> {
        in_threads(self, lanes, work)
    }
}

impl MeasuredStore for scc::HashMap<i64, Entity, IdState> {
    #[inline]
    fn get(&self, id: i64, see: &mut impl FnMut(EntityRef<'_>)) -> Result<(), RepoError> {
        self.read_sync(&id, |_, entity| see(entity.as_ref()));
        Ok(())
    }

    #[inline]
    fn put(&self, entity: Entity) -> Result<Put, RepoError> {
        put(self.upsert_sync(entity.id, entity))
    }

    #[inline]
    fn remove(&self, id: i64) -> Result<Removed, RepoError> {
        removed(self.remove_sync(&id))
    }

    fn len(&self) -> Result<u64, RepoError> {
        Ok(scc::HashMap::len(self) as u64)
    }

    fn each<L: Send>(&self, lanes: &mut [L], work: impl Fn(&Self, &mut L) + Sync) -> anyhow::Result<()> {
        in_threads(self, lanes, work)
    }
}
