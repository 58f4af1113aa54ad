//! `sharded`: a table in shards, each behind a readers-writer lock of its own on cache lines of its own.
//!
//! Invariants:
//!
//! * An id is hashed once for an operation: other bits of that hash choose its shard and its place there.
//! * An operation holds one lock, and takes no other inside it. What a put replaces or a remove takes out is handed out of
//!   the lock and dropped after it.
//! * Nothing unwinds under a write lock. A visit that panics lets its shard's read lock go while it unwinds; these locks
//!   know no poison.
//!
//! Cost: every operation is one hash, one shard's lock (two atomic instructions) and a look into one bucket or two (`table`). An
//! entity lies in its bucket, so a lookup waits for memory once; in maps whose tags are one array and whose entities are
//! another it waits twice. Operations meet only where their ids share a shard, of which there are sixteen a core. `len`
//! takes every shard's lock, one after the other. Each shard grows by itself, so growth stops one shard's operations, for one
//! shard's share of the time. A shard that is less than an eighth full after a remove shrinks, down to 2 KiB, so that a store
//! that was large gives its tables back; the work is O(1) a remove, amortised, as growth is for puts.
//!
//! *Wins when* there are more entities than the caches hold, and when several cores replace what is there. *Loses when* all
//! fits the caches and is read by several cores, since a lock's word travels between them, and most where one id takes nearly
//! all the load; there a map that reads without a lock has the better of it. And when ids are mostly new: tables grow by being
//! built anew. On one thread it pays for shards that it has no use for.

mod table;

use std::fmt;

use polyserve_core::{Answer, Entity, EntityRef, EntityRepo, Lookup, Put, Removed, RepoError};

use self::table::Table;
use crate::shards::Shards;

/// A table in shards, each behind a readers-writer lock.
#[derive(Default)]
pub struct Sharded {
    entities: Shards<Table>,
}

impl Sharded {
    /// An empty repo: a few KiB of locks for each core.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts `entity` in, and hands out what it replaced, no lock held.
    fn replace(&self, entity: Entity) -> Option<Entity> {
        let (hash, shard) = self.entities.of(entity.id);
        shard.write().insert(hash, entity, |id| self.entities.hash(id))
    }

    /// Takes the entity of `id` out, no lock held any more.
    fn take(&self, id: i64) -> Option<Entity> {
        let (hash, shard) = self.entities.of(id);
        shard.write().remove(hash, id, |id| self.entities.hash(id))
    }
}

impl EntityRepo for Sharded {
    #[allow(clippy::inline_always)] // a caller that knows the type then makes no call, nor does the visit
    #[inline(always)]
    fn get(&self, id: i64, visit: &mut dyn FnMut(EntityRef<'_>)) -> Answer<Result<Lookup, RepoError>> {
        let (hash, shard) = self.entities.of(id);
        let table = shard.read();
        let Some(entity) = table.find(hash, id) else { return Answer::Now(Ok(Lookup::Absent)) };
        visit(entity.as_ref());
        Answer::Now(Ok(Lookup::Visited))
    }

    fn put(&self, entity: Entity) -> Answer<Result<Put, RepoError>> {
        let replaced = self.replace(entity);
        Answer::Now(Ok(if replaced.is_some() { Put::Replaced } else { Put::Created }))
    }

    fn remove(&self, id: i64) -> Answer<Result<Removed, RepoError>> {
        let removed = self.take(id);
        Answer::Now(Ok(if removed.is_some() { Removed::Removed } else { Removed::Absent }))
    }

    fn len(&self) -> Answer<Result<u64, RepoError>> {
        Answer::Now(Ok(self.entities.iter().map(|shard| shard.read().len() as u64).sum()))
    }
}

impl fmt::Debug for Sharded {
    /// Takes no lock, so that it can be printed from anywhere.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharded").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handed_out_whole;

    /// What a put replaces, and what a remove takes out, is still whole when no lock is held any more.
    #[test]
    fn an_entity_is_dropped_outside_the_locks() {
        let repo = Sharded::new();
        let free = || repo.entities.iter().all(|shard| shard.try_write().is_some());
        handed_out_whole(&|entity| repo.replace(entity), &|id| repo.take(id), &free);
    }

    /// What the header of `shards` says.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_shard_is_128_bytes() {
        assert_eq!(Shards::<Table>::EACH, 128);
    }
}
