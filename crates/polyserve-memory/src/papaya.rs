//! `papaya`: the lock-free map of the [`papaya`](https://docs.rs/papaya) crate. Each entity is an allocation, and the
//! table holds pointers that are changed by compare-and-swap.
//!
//! Invariant: no pin leaves an operation. What an operation sees lives until its pin is released. So a slow visit
//! blocks no other operation, but it keeps memory. `Created` and `Replaced` are results of the one compare-and-swap
//! that stores the entity. So of two racing first puts exactly one is `Created`.
//!
//! An id is hashed once, before the table is touched, and its hash is stored with it (8 bytes). So no code of an id runs
//! during a growth: a panic there would park all later puts for ever.
//!
//! Cost: a get is one hash, a pin (a store and an exchange in the thread's own memory), a probe of one byte for each
//! entry and two pointers to follow. It writes nothing that other readers read. A put is an allocation and a
//! compare-and-swap; with a condition, it also copies the entity, once for each attempt. Growing is shared: each put during
//! a growth moves 64 entries, and a get may look into two tables.
//! `len` adds up one counter for each core; it is exact if no other operation runs.
//!
//! Memory: a replaced or removed entity is *retired*. Each thread collects 32 of them, or one for each core if there are
//! more than 32 cores. A batch is freed as soon as no pin is left that is older than the batch, by the thread that releases
//! the last such pin. So up to 31 entities for each thread that ever put or removed wait until that thread retires more, or
//! until the repo is dropped. A pin that stays keeps all entities that are retired meanwhile. The table, 9 bytes for each
//! slot, is halved only by a later put that finds it too empty, so a store that is emptied and not used again keeps it.
//!
//! Source: the `papaya` crate.
//!
//! *Wins when* several cores read and the entities fit the caches (`stores-workers`), and most if one id takes all
//! reads, where stores with locks are far behind (`stores-skew`). *Loses when* one operation in twenty or more is a
//! put, which allocates, and frees much later: `sharded` is ahead, by far if there are as many puts as gets, and some
//! operations then take much longer than the median. It loses on one thread: `std_rwlock` reads faster
//! (`stores-workers`). An entity takes more memory than in a plain map (`stores-memory`). Records:
//! `docs/results`, on two cores.

use std::fmt;
use std::hash::{BuildHasher as _, BuildHasherDefault, Hash, Hasher};

use papaya::{Compute, Equivalent, HashMap, Operation};
use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, Identifiable, Lookup, ManyVisit, Put, Removed, RepoAnswer,
    Visit,
};

use crate::hash::IdState;
use crate::published::IsPublished;
use crate::versions::Versions;

/// The number of ids that [`get_many`](EntityRepo::get_many) looks up under one pin, which delays the freeing of memory.
const AT_A_TIME: usize = 16;

/// A lock-free map.
///
/// ```
/// use polyserve_core::{Entity, EntityRepo, EntityRepoExt, Put};
/// use polyserve_memory::Papaya;
///
/// let store = Papaya::new();
/// assert_eq!(store.put(Entity::new(1, "first", 0.5)).wait()?, Put::Created);
/// assert_eq!(store.fetch(&1).wait()?, Some(Entity::new(1, "first", 0.5)));
///
/// # #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
/// # struct Account { name: String }
/// # polyserve_core::identifiable!(Account, name: String);
/// assert_eq!(Papaya::of::<Account>().len().wait()?, 0);
/// # Ok::<(), polyserve_core::RepoError>(())
/// ```
pub struct Papaya<E: Identifiable = Entity> {
    entities: HashMap<HashedId<E::Id>, E, BuildHasherDefault<StoredHash>>,
    state: IdState,
    versions: Versions,
}

/// An id in the table, with its hash.
struct HashedId<I> {
    hash: u64,
    id: I,
}

impl<I> Hash for HashedId<I> {
    #[inline]
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.hash);
    }
}

impl<I: Eq> PartialEq for HashedId<I> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.id == other.id
    }
}

impl<I: Eq> Eq for HashedId<I> {}

/// An id that is looked up, with its hash.
struct HashedRef<'a, I> {
    hash: u64,
    id: &'a I,
}

impl<I> Hash for HashedRef<'_, I> {
    #[inline]
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.hash);
    }
}

impl<I: Eq> Equivalent<HashedId<I>> for HashedRef<'_, I> {
    #[inline]
    fn equivalent(&self, stored: &HashedId<I>) -> bool {
        self.hash == stored.hash && *self.id == stored.id
    }
}

/// The hasher of the table: it returns the hash that was written.
#[derive(Default)]
struct StoredHash(u64);

impl Hasher for StoredHash {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
    #[inline]
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("the keys of the table write a u64");
    }
}

impl<E: Identifiable> Papaya<E> {
    /// Creates an empty repo of the published entities.
    pub fn new() -> Self
    where
        Entity: IsPublished<E>,
    {
        Self::default()
    }
}

impl Papaya {
    /// Creates an empty repo of entities of another type: `Papaya::of::<Account>()`.
    pub fn of<E: Identifiable>() -> Papaya<E> {
        Papaya::default()
    }
}

impl<E: Identifiable> Default for Papaya<E> {
    fn default() -> Self {
        Self { entities: HashMap::default(), state: IdState::default(), versions: Versions::default() }
    }
}

impl<E: Identifiable> Papaya<E> {
    #[inline]
    fn hashed<'a>(&self, id: &'a E::Id) -> HashedRef<'a, E::Id> {
        HashedRef { hash: self.state.hash_one(id), id }
    }
}

impl<E: Identifiable> EntityRepo<E> for Papaya<E> {
    #[allow(clippy::inline_always)] // if the caller knows the type, neither `get` nor the visit is a call
    #[inline(always)]
    fn get(&self, id: &E::Id, visit: Visit<'_, E>) -> RepoAnswer<Lookup<E>> {
        let entities = self.entities.pin(); // released on return, also if the visit panics
        let Some(entity) = entities.get(&self.hashed(id)) else { return Answer::Now(Ok(Lookup::Absent)) };
        Answer::Now(Ok(visit.show(entity)))
    }

    /// One pin serves `AT_A_TIME` ids. A pin is an exchange, after which a core begins no load before the earlier ones have ended; so
    /// the misses of gets with a pin each do not overlap.
    fn get_many(&self, ids: &[E::Id], visit: ManyVisit<'_, E>) -> RepoAnswer<Vec<(usize, E)>> {
        for (group, ids) in ids.chunks(AT_A_TIME).enumerate() {
            let entities = self.entities.pin();
            for (place, id) in ids.iter().enumerate() {
                if let Some(entity) = entities.get(&self.hashed(id)) {
                    visit(group * AT_A_TIME + place, entity.into());
                }
            }
        }
        Answer::Now(Ok(Vec::new()))
    }

    fn put_if(&self, entity: E, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        let _write = self.versions.write(entity.id());
        let id = HashedId { hash: self.state.hash_one(entity.id()), id: entity.id().clone() };
        let entities = self.entities.pin();
        // The map's collector drops the replaced entity.
        if condition.is_always() {
            let replaced = entities.insert(id, entity).is_some();
            return Answer::Now(Ok(Conditional::Done(if replaced { Put::Replaced } else { Put::Created })));
        }
        // The closure runs again if another write comes between the check and the compare-and-swap.
        let put = entities.compute(id, |stored| match condition.allows(stored.map(|(_, stored)| stored)) {
            true => Operation::Insert(entity.clone()),
            false => Operation::Abort(()),
        });
        Answer::Now(Ok(match put {
            Compute::Inserted(..) => Conditional::Done(Put::Created),
            Compute::Updated { .. } => Conditional::Done(Put::Replaced),
            Compute::Removed(..) | Compute::Aborted(()) => Conditional::Refused,
        }))
    }

    fn remove_if(&self, id: &E::Id, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        let _write = self.versions.write(id);
        let entities = self.entities.pin();
        let removed = entities.remove_if(&self.hashed(id), |_, stored| condition.allows(Some(stored)));
        Answer::Now(Ok(match removed {
            Ok(Some(_)) => Conditional::Done(Removed::Removed),
            Ok(None) => Conditional::Done(Removed::Absent),
            Err(_) => Conditional::Refused,
        }))
    }

    fn len(&self) -> RepoAnswer<u64> {
        Answer::Now(Ok(self.entities.len() as u64))
    }

    fn version(&self, id: &E::Id) -> Option<u64> {
        self.versions.version(id)
    }
}

impl<E: Identifiable> fmt::Debug for Papaya<E> {
    /// Takes no pin, so printing a repo does not delay the freeing of memory.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Papaya").finish_non_exhaustive()
    }
}
