//! `scc`: the [`scc`](https://docs.rs/scc) crate's map: one array of buckets of 32 entries, each bucket behind a
//! reader-writer lock of its own.
//!
//! Invariant: no entry or lock of the map leaves an operation. A visit runs under the read lock of its bucket, which is
//! let go while a panic unwinds and knows no poison. A replaced or removed entity is moved out, and is dropped when the
//! bucket is unlocked.
//!
//! Cost: a get is one hash, a pin of the array's epoch, one bucket's lock (two writes to a word that readers of the same
//! 32 entries share) and a search by one byte an entry. The entity lies in the array: no allocation for a put, and no
//! pointer to follow but the description's. Growing is shared out: during a growth each operation, a get too, moves a few
//! buckets first, under their locks. `len` reads the count of every bucket: O(n / 32), and exact when nothing else runs.
//!
//! Memory: the array doubles at 13/16 full and is halved below 1/8, so that an emptied store gives its memory back; an
//! outgrown array is freed once no operation is left that may still look into it. A removed entity costs nothing
//! after its remove.
//!
//! *Wins when* puts and removes are frequent and ids spread: a lock for 32 entries is seldom met, and nothing is
//! allocated. *Loses when* one id takes nearly all the load, since its readers write one word, and on the reads of a
//! growing store, which help it grow.

use std::fmt;

use polyserve_core::{Answer, Entity, EntityRef, EntityRepo, Lookup, Put, Removed, RepoError};
use scc::HashMap;

use crate::hash::IdState;

/// A map with a lock for each bucket.
#[derive(Default)]
pub struct Scc {
    entities: HashMap<i64, Entity, IdState>,
}

impl Scc {
    /// An empty repo. Allocates nothing yet.
    pub fn new() -> Self {
        Self::default()
    }
}

impl EntityRepo for Scc {
    #[allow(clippy::inline_always)] // a caller that knows the type then makes no call, nor does the visit
    #[inline(always)]
    fn get(&self, id: i64, visit: &mut dyn FnMut(EntityRef<'_>)) -> Answer<Result<Lookup, RepoError>> {
        let visited = self.entities.read_sync(&id, |_, entity| visit(entity.as_ref()));
        Answer::Now(Ok(if visited.is_some() { Lookup::Visited } else { Lookup::Absent }))
    }

    fn put(&self, entity: Entity) -> Answer<Result<Put, RepoError>> {
        // The bucket is unlocked when `upsert_sync` returns; the replaced entity is dropped after that.
        let replaced = self.entities.upsert_sync(entity.id, entity);
        Answer::Now(Ok(if replaced.is_some() { Put::Replaced } else { Put::Created }))
    }

    fn remove(&self, id: i64) -> Answer<Result<Removed, RepoError>> {
        let removed = self.entities.remove_sync(&id);
        Answer::Now(Ok(if removed.is_some() { Removed::Removed } else { Removed::Absent }))
    }

    fn len(&self) -> Answer<Result<u64, RepoError>> {
        Answer::Now(Ok(self.entities.len() as u64))
    }
}

impl fmt::Debug for Scc {
    /// Takes no lock, so that it can be printed from anywhere.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scc").finish_non_exhaustive()
    }
}
