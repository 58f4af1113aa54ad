//! `sharded`: a table in shards. Each shard has its own readers-writer lock on its own cache lines.
//!
//! Invariants:
//!
//! * An id is hashed once for an operation. Different bits of that hash choose the shard and the bucket.
//! * An operation holds one lock and takes no other. An entity that is replaced or removed is moved out of the lock and
//!   dropped afterwards.
//! * Under a write lock only the evaluation of a condition and an id's own code can panic, before anything is moved. If
//!   they or a visit panic, the shard's lock is released; these locks do not poison.
//!
//! Cost: every operation is one hash, one shard's lock (two atomic instructions) and an access to one or two buckets (see `table`). An
//! entity lies in its bucket, so a lookup has one cache miss. A map that keeps hash tags (one byte of each hash) and entities in two
//! arrays has two. Operations conflict only if their ids share a shard; there are sixteen shards for each core. `len` takes every shard's
//! lock in turn.
//!
//! Each shard grows separately, so a growth blocks the operations of one shard. A shard that is less than an eighth
//! full after a remove shrinks, down to 2 KiB, so a store that was large frees its tables. Growing and shrinking are
//! O(1) for each operation, amortised.
//!
//! Source: lock striping, as in Java's `ConcurrentHashMap` before version 8; the table is after F14 (see `table`).
//!
//! *Wins when* there are more entities than the caches hold: with a million and with ten million it is ahead of all
//! other stores here, with gets only and with as many puts (`stores-keys`, `stores-ten-million`). It wins when entities
//! come and go (`stores-workers`). *Loses when* all entities fit the caches and several cores read: `papaya` is ahead
//! (`stores-workers`), and by far if one id takes all reads (`stores-skew`), because the lock's word moves between the
//! cores. It loses when ids are mostly new, because tables grow by being rebuilt: `scc` is far ahead. On one thread the
//! shards have no use: `std_rwlock` reads faster (`stores-workers`). Records: `docs/results`, on two cores.

mod table;

use std::fmt;

use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, Identifiable, Lookup, ManyVisit, Put, Removed, RepoAnswer,
    Visit,
};

use self::table::{ShardTable, TableAddress};
use crate::published::IsPublished;
use crate::result::{put_result, remove_result};
use crate::shards::Shards;
use crate::versions::LockedVersions;

/// The number of ids that [`get_many`](EntityRepo::get_many) fetches from memory together: a processor waits for ten to twenty lines at
/// a time.
const AT_A_TIME: usize = 16;

/// Tables of at most this size, 2 MiB, are in a cache that is near, and a fetch gains nothing.
const CACHED: usize = 2 << 20;

/// A table in shards, each behind a readers-writer lock.
///
/// ```
/// use polyserve_core::{Entity, EntityRepo, EntityRepoExt, Put};
/// use polyserve_memory::Sharded;
///
/// let store = Sharded::new();
/// assert_eq!(store.put(Entity::new(1, "first", 0.5)).wait()?, Put::Created);
/// assert_eq!(store.fetch(&1).wait()?, Some(Entity::new(1, "first", 0.5)));
///
/// # #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
/// # struct Account { name: String }
/// # polyserve_core::identifiable!(Account, name: String);
/// assert_eq!(Sharded::of::<Account>().len().wait()?, 0);
/// # Ok::<(), polyserve_core::RepoError>(())
/// ```
pub struct Sharded<E: Identifiable = Entity> {
    entities: Shards<ShardTable<E>>,
    /// The address of the table of each shard.
    addresses: Box<[TableAddress<E>]>,
    versions: LockedVersions,
}

impl<E: Identifiable> Sharded<E> {
    /// Creates an empty repo of the published entities. It allocates a few KiB of locks for each core.
    pub fn new() -> Self
    where
        Entity: IsPublished<E>,
    {
        Self::default()
    }
}

impl Sharded {
    /// Creates an empty repo of entities of another type: `Sharded::of::<Account>()`.
    pub fn of<E: Identifiable>() -> Sharded<E> {
        Sharded::default()
    }
}

impl<E: Identifiable> Default for Sharded<E> {
    fn default() -> Self {
        let entities: Shards<_> = Shards::default();
        let addresses = (0..entities.len()).map(|_| TableAddress::default()).collect();
        let versions = LockedVersions::new(entities.len());
        Self { entities, addresses, versions }
    }
}

impl<E: Identifiable> Sharded<E> {
    /// Stores `entity` and returns the replaced entity, or returns `entity` if it is refused. No lock is held when it
    /// returns.
    #[allow(clippy::inline_always)] // the entity is then not moved in memory
    #[inline(always)]
    fn replace(&self, entity: E, condition: &Condition) -> Result<Option<E>, E> {
        let (hash, shard) = self.entities.of(entity.id());
        let mut table = shard.write();
        if !condition.is_always() && !condition.allows(table.find(hash, entity.id())) {
            return Err(entity);
        }
        self.versions.count(hash);
        let replaced = table.insert(hash, entity, |id| self.entities.hash(id));
        if replaced.is_none() {
            self.addresses[self.entities.number(hash)].update(&mut table);
        }
        Ok(replaced)
    }

    /// Removes the entity of `id` and returns it. No lock is held when it returns.
    fn take(&self, id: &E::Id, condition: &Condition) -> Conditional<Option<E>> {
        let (hash, shard) = self.entities.of(id);
        let mut table = shard.write();
        if !condition.is_always() && table.find(hash, id).is_some_and(|entity| !condition.allows(Some(entity))) {
            return Conditional::Refused;
        }
        self.versions.count(hash);
        let removed = table.remove(hash, id, |id| self.entities.hash(id));
        self.addresses[self.entities.number(hash)].update(&mut table);
        Conditional::Done(removed)
    }
}

impl<E: Identifiable> EntityRepo<E> for Sharded<E> {
    #[allow(clippy::inline_always)] // if the caller knows the type, neither `get` nor the visit is a call
    #[inline(always)]
    fn get(&self, id: &E::Id, visit: Visit<'_, E>) -> RepoAnswer<Lookup<E>> {
        let (hash, shard) = self.entities.of(id);
        let table = shard.read();
        let Some(entity) = table.find(hash, id) else { return Answer::Now(Ok(Lookup::Absent)) };
        Answer::Now(Ok(visit.show(entity)))
    }

    /// The buckets of sixteen ids are on their way from memory while the first of them are shown. A lock is taken once for each id.
    fn get_many(&self, ids: &[E::Id], visit: ManyVisit<'_, E>) -> RepoAnswer<Vec<(usize, E)>> {
        // The shards are about as large as each other.
        let is_large = self.addresses[0].bytes() * self.addresses.len() > CACHED;
        let mut hashes = [0; AT_A_TIME];
        for (group, ids) in ids.chunks(AT_A_TIME).enumerate() {
            for (id, hash) in ids.iter().zip(&mut hashes) {
                *hash = self.entities.hash(id);
                if is_large {
                    self.addresses[self.entities.number(*hash)].fetch(*hash);
                }
            }
            for (place, (id, &hash)) in ids.iter().zip(&hashes).enumerate() {
                if let Some(entity) = self.entities.of_hash(hash).read().find(hash, id) {
                    visit(group * AT_A_TIME + place, entity.into());
                }
            }
        }
        Answer::Now(Ok(Vec::new()))
    }

    fn put_if(&self, entity: E, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        Answer::Now(Ok(put_result(self.replace(entity, condition))))
    }

    #[inline]
    fn put(&self, entity: E) -> RepoAnswer<Put> {
        let Ok(Some(replaced)) = self.replace(entity, &Condition::ALWAYS) else { return Answer::Now(Ok(Put::Created)) };
        replaced.recycle();
        Answer::Now(Ok(Put::Replaced))
    }

    fn remove_if(&self, id: &E::Id, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        Answer::Now(Ok(remove_result(&self.take(id, condition))))
    }

    fn len(&self) -> RepoAnswer<u64> {
        Answer::Now(Ok(self.entities.iter().map(|shard| shard.read().len() as u64).sum()))
    }

    fn version(&self, id: &E::Id) -> Option<u64> {
        Some(self.versions.version(self.entities.hash(id)))
    }
}

impl<E: Identifiable> fmt::Debug for Sharded<E> {
    /// Takes no lock, so printing a repo cannot deadlock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharded").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handed_out_whole;

    /// A replaced or removed entity is dropped when no lock is held.
    #[test]
    fn an_entity_is_dropped_outside_the_locks() {
        let repo = Sharded::new();
        let free = || repo.entities.iter().all(|shard| shard.try_write().is_some());
        handed_out_whole(
            |entity, condition| repo.replace(entity, condition),
            |id, condition| repo.take(&id, condition),
            free,
        );
    }

    /// The header of `shards` states this size.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_shard_is_128_bytes() {
        assert_eq!(Shards::<ShardTable<Entity>>::SHARD_SIZE, 128);
    }
}
