//! `seqlock`: readers take no lock and write nothing that other threads read. Entities are packed in words, behind a version for each
//! bucket.
//!
//! Invariants:
//!
//! * A reader copies an entity and uses the copy only if no write has come in between. `shard` argues the memory orderings.
//! * An operation takes one shard's lock at most. Only an id's own code and the evaluation of a condition can panic under the lock, before
//!   anything is changed, or in a growth, after the put is done and before the growth has changed anything.
//!
//! Cost:
//!
//! * **A get** is one hash and a bucket of four cache lines that are fetched together. A short record, of at most 32 bytes (a description
//!   of 16), lies in its bucket if there is room; other records are one more miss. A get loads the version of the bucket before
//!   and after it copies the record, and a copied text is checked to be UTF-8, as in `packed`. It repeats if a write to the bucket has
//!   come in between. After eight repetitions it takes the shard's readers-writer lock, as gets of entities that are not packed do.
//! * **A put packs the entity**, as in `packed`, and takes the shard's lock. A put of a known id overwrites the record, if the new
//!   one has as many words. There are sixteen shards for each core.
//! * An entity of more than 512 packed bytes (a description longer than [`Seqlock::LONGEST_COPIED`]), or that postcard cannot express, is
//!   moved in. Its gets run under the shard's lock.
//! * An entity of another type is built from its bytes for each get, and for most puts and removes, as in `packed`.
//! * The table grows by a bucket for each five new ids with short records, or eight others. That hashes the ids of one bucket. Now and then
//!   a put also waits for the system, which gives memory page by page, and for a large store 2 MiB at a time.
//!
//! Memory: 51 bytes of the table for an entity with a short record, and for one in ten also a record apart. For another entity 32 bytes of
//! the table, and a record: the packed entity, which is 16 bytes and the description if it is a published one, rounded up to 8 bytes. Words
//! do not move, and readers are not counted, so no memory is freed before the store is dropped: that of removed entities serves
//! later ones. An empty store takes less than a KiB for each shard, sixteen shards for each core. The first records of a length take a page
//! of 4 KiB in their shard. The store reserves up to twice the addresses that it uses, and at least 8 MiB: where the system grants no more
//! memory than it has (`vm.overcommit_memory = 2` on Linux), they count.
//!
//! Source: the sequence locks of Linux (`seqlock.h`), with the orderings of Boehm, "Can seqlocks get along with programming language
//! memory models?" (MSPC 2012); a version and a few entries in a cache line as in MICA (Lim et al., NSDI 2014) and in the optimistic
//! locks of Leis et al. ("The ART of practical synchronization", DaMoN 2016); linear hashing (Litwin, VLDB 1980).
//!
//! *Wins when* memory counts and descriptions are short, and several threads read one id or a few: readers write nothing that others read,
//! as in `papaya`. A slow visit delays no writer. *Loses when* descriptions are longer, so that records lie apart: a get of an entity that
//! is in no cache then waits for memory twice, and in `sharded` once. It loses to `papaya` when the record of a busy id lies apart. It
//! loses when a store must give memory back. Figures: `docs/decisions/035-seqlock.md`; records: `stores-typed-cached`,
//! `stores-typed-million`.

mod bucket;
mod records;
mod segments;
pub(crate) mod shard;

use std::fmt;
use std::hash::BuildHasher;

use crossbeam_utils::CachePadded;
use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, Identifiable, Lookup, ManyVisit, Put, Removed, RepoAnswer,
    RepoError, Visit, cores,
};

use self::shard::{MAX_COPIED, VersionedShard};
use crate::hash::IdState;
use crate::pack::{PackBuffer, ToStore};
use crate::published::IsPublished;

/// Number of shards for each core. Two writers of different ids rarely share a shard.
const SHARDS_PER_CORE: usize = 16;
const MAX_SHARDS: usize = 1024;

/// The number of ids that [`get_many`](EntityRepo::get_many) fetches from memory together: a processor waits for ten to twenty lines at
/// a time.
const AT_A_TIME: usize = 16;

/// Tables of at most this size, 2 MiB, are in a cache that is near, and a fetch gains nothing.
const CACHED: usize = 2 << 20;

/// Packed entities behind a version for each bucket.
///
/// ```
/// use polyserve_core::{Entity, EntityRepo, EntityRepoExt, Put};
/// use polyserve_memory::Seqlock;
///
/// let store = Seqlock::new();
/// assert_eq!(store.put(Entity::new(1, "first", 0.5)).wait()?, Put::Created);
/// assert_eq!(store.fetch(&1).wait()?, Some(Entity::new(1, "first", 0.5)));
///
/// # #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
/// # struct Account { name: String }
/// # polyserve_core::identifiable!(Account, name: String);
/// assert_eq!(Seqlock::of::<Account>().len().wait()?, 0);
/// # Ok::<(), polyserve_core::RepoError>(())
/// ```
pub struct Seqlock<E: Identifiable = Entity> {
    hasher: IdState,
    /// The shards; their number is a power of two. The upper bits of a hash choose the shard, and the lower bits the bucket.
    shards: Box<[CachePadded<VersionedShard<E>>]>,
}

impl<E: Identifiable> Seqlock<E> {
    /// Creates an empty repo of the published entities, with shards for all cores. A shard takes less than a KiB.
    pub fn new() -> Self
    where
        Entity: IsPublished<E>,
    {
        Self::default()
    }
}

impl Seqlock {
    /// The maximum length, in bytes, of a published entity's description that is copied into words. An entity with a longer one is moved
    /// in.
    pub const LONGEST_COPIED: usize = MAX_COPIED - 16;

    /// Creates an empty repo of entities of another type: `Seqlock::of::<Account>()`.
    pub fn of<E: Identifiable>() -> Seqlock<E> {
        Seqlock::default()
    }
}

impl<E: Identifiable> Default for Seqlock<E> {
    fn default() -> Self {
        let shards = cores().saturating_mul(SHARDS_PER_CORE).next_power_of_two().min(MAX_SHARDS);
        let shards = VersionedShard::shards(shards).map(CachePadded::new).collect();
        Self { hasher: IdState::default(), shards }
    }
}

impl<E: Identifiable> Seqlock<E> {
    /// Returns the hash of an id, and its shard.
    #[inline]
    fn of_id(&self, id: &E::Id) -> (u64, &VersionedShard<E>) {
        let hash = self.hasher.hash_one(id);
        (hash, self.shard(hash))
    }

    /// Returns the shard of a hash.
    #[inline]
    fn shard(&self, hash: u64) -> &VersionedShard<E> {
        // There are at least two shards, so the shift is less than 64.
        let index = hash >> (u64::BITS - self.shards.len().trailing_zeros());
        &self.shards[index as usize]
    }
}

impl<E: Identifiable> EntityRepo<E> for Seqlock<E> {
    #[allow(clippy::inline_always)] // if the caller knows the type, neither `get` nor the visit is a call
    #[inline(always)]
    fn get(&self, id: &E::Id, visit: Visit<'_, E>) -> RepoAnswer<Lookup<E>> {
        let (hash, shard) = self.of_id(id);
        let found = shard.get(hash, id, |shown| visit.show(shown));
        Answer::Now(Ok(found.unwrap_or(Lookup::Absent)))
    }

    /// The first lines of the buckets of the next ids, and then their records, are on their way from memory before the first of them is
    /// shown. That is two lines for each id, of the four that a get fetches: a core has no more than some twelve under way.
    fn get_many(&self, ids: &[E::Id], visit: ManyVisit<'_, E>) -> RepoAnswer<Vec<(usize, E)>> {
        // The shards are about as large as each other.
        if self.shards[0].table_bytes() * self.shards.len() <= CACHED {
            for (place, id) in ids.iter().enumerate() {
                let (hash, shard) = self.of_id(id);
                shard.get_fetched(hash, id, |shown| visit(place, shown));
            }
            return Answer::Now(Ok(Vec::new()));
        }
        let mut hashes = [0; AT_A_TIME];
        for (group, ids) in ids.chunks(AT_A_TIME).enumerate() {
            let hashes = &mut hashes[..ids.len()];
            for (id, hash) in ids.iter().zip(&mut *hashes) {
                *hash = self.hasher.hash_one(id);
                self.shard(*hash).fetch_slots(*hash);
            }
            hashes.iter().for_each(|hash| self.shard(*hash).fetch_record(*hash));
            for (place, (id, &hash)) in ids.iter().zip(&*hashes).enumerate() {
                self.shard(hash).get_fetched(hash, id, |shown| visit(group * AT_A_TIME + place, shown));
            }
        }
        Answer::Now(Ok(Vec::new()))
    }

    fn put_if(&self, entity: E, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        let buffer = PackBuffer::of(&entity);
        let id = entity.id().clone();
        let mut entity = Some(entity);
        let (hash, shard) = self.of_id(&id);
        let new = ToStore { entity: &mut entity, packed: buffer.packed(MAX_COPIED) };
        // The copied and the replaced entity are dropped here, where no lock is held.
        let done = shard.put(hash, &id, new, condition, |id| self.hasher.hash_one(id));
        Answer::Now(done.map(|done| done.map(|(put, _replaced)| put)).map_err(|full| RepoError::Full(Box::new(full))))
    }

    fn remove_if(&self, id: &E::Id, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        let (hash, shard) = self.of_id(id);
        Answer::Now(Ok(shard.remove(hash, id, condition).map(|(removed, _entity)| removed)))
    }

    fn len(&self) -> RepoAnswer<u64> {
        Answer::Now(Ok(self.shards.iter().map(|shard| shard.len() as u64).sum()))
    }

    fn version(&self, id: &E::Id) -> Option<u64> {
        let (hash, shard) = self.of_id(id);
        shard.version(hash)
    }
}

impl<E: Identifiable> fmt::Debug for Seqlock<E> {
    /// Takes no lock, so printing a repo cannot deadlock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seqlock").finish_non_exhaustive()
    }
}
