//! `packed`: the store with the least memory. Entities lie one after the other in pages of 16 KiB. Each shard has its
//! own pages, and its table holds addresses of four bytes.
//!
//! Invariants:
//!
//! * An operation holds one shard's lock and takes no other. Only an id's own code can panic under a
//!   write lock.
//! * The table and the pages agree: each address in the table is that of a live record, and the address of each live
//!   record is in the table.
//! * A full page is at least half live (see `pages`). If a put or a remove leaves a page with less, the page is emptied
//!   before the operation ends. So removed and replaced records have at most as many bytes as live ones.
//!
//! Cost, compared with `sharded`:
//!
//! * **A put packs the entity** into a buffer of its thread, and copies the bytes. The entity is dropped outside
//!   the lock. A published entity with a description longer than [`Packed::LONGEST_COPIED`] bytes is moved in, and any
//!   other entity of more than 528 packed bytes.
//! * An entity of another type is packed by [postcard](https://docs.rs/postcard), and built from its bytes for each get, and
//!   for most puts and removes. An entity that postcard cannot express, as with `#[serde(flatten)]`, is moved in.
//! * **A get checks that a copied description is UTF-8**, because safe code cannot make a `&str` of bytes otherwise.
//!   The check reads each byte once.
//! * A put of a known id overwrites the old record if the new one fits and fills at least half of it. Otherwise the new
//!   record is added at the end, and the old one is dead. A page that is then less than half live is moved, record by
//!   record: at most 8 KiB, and sometimes as much of a second page. Amortised, at most one byte is moved for each byte
//!   that died.
//! * Growing takes longer, and so does shrinking after many removes. The table hashes the id of each record of its
//!   shard, which is a cache miss each. The slab of pages moves some 40 bytes for each page.
//! * A record is 20 bytes and its description, rounded up to 4; its address in the table takes 6 to 11 bytes, with the
//!   unused ones. An `Entity` in a map takes 49 bytes times the same share of unused ones, and an allocation for its
//!   description.
//! * A shard is 256 bytes, four lines: 4 KiB for each core. The first record of a shard allocates a page. So a store
//!   with few entities takes 16 KiB for each shard that has one: 256 KiB for each core if all have.
//! * Removed memory is freed: pages (a shard keeps at most two, and none after its last record is gone), tables as in
//!   `sharded`, and the slab of pages down to the last page that is left. The allocator may keep freed pages in the
//!   middle of its heap.
//! * A shard holds at most about a million pages, 16 GiB of records, or a million descriptions that are moved in. A put
//!   into a full shard is answered with [`RepoError::Full`].
//!
//! Source: the slotted pages of databases, without slots, because the table has the address of each record.
//!
//! *Wins when* there are many small entities: an entity takes less memory than in any other store here
//! (`stores-memory`). It wins when gets and puts of known ids are equally frequent, and descriptions keep their length:
//! with descriptions of some hundred bytes it is far ahead of all others (`stores-payload`), and with short ones it
//! ties with `sharded` (`stores-workers`). *Loses when* entities are read that are in no cache, because table, page and
//! record are a miss each: `sharded` is ahead with a million (`stores-keys`). It loses when copied descriptions are
//! long, because each get checks them (`stores-payload`); and when ids are new, where `scc` is ahead
//! (`stores-workers`). Records: `docs/results`, on two cores.

mod pages;

use std::fmt;
use std::mem;

use hashbrown::HashTable;
use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, Identifiable, Lookup, Put, Removed, RepoAnswer, RepoError,
    Visit,
};

use self::pages::{Address, Full, MAX_COPIED, Pages};
use crate::pack::{LONGEST_PACKED, PackBuffer, ToStore, packed_id};
use crate::published::IsPublished;
use crate::shards::{Shards, shrunk};
use crate::versions::Versions;

/// Entities packed in pages, in shards.
///
/// ```
/// use polyserve_core::{Entity, EntityRepo, EntityRepoExt, Put};
/// use polyserve_memory::Packed;
///
/// let store = Packed::new();
/// assert_eq!(store.put(Entity::new(1, "first", 0.5)).wait()?, Put::Created);
/// assert_eq!(store.fetch(&1).wait()?, Some(Entity::new(1, "first", 0.5)));
///
/// # #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
/// # struct Account { name: String }
/// # polyserve_core::identifiable!(Account, name: String);
/// assert_eq!(Packed::of::<Account>().len().wait()?, 0);
/// # Ok::<(), polyserve_core::RepoError>(())
/// ```
pub struct Packed<E: Identifiable = Entity> {
    shards: Shards<PackedShard<E>>,
    versions: Versions,
}

impl<E: Identifiable> Packed<E> {
    /// Creates an empty repo of the published entities. It allocates a few KiB of locks for each core. The first put to a
    /// shard allocates its first page.
    pub fn new() -> Self
    where
        Entity: IsPublished<E>,
    {
        Self::default()
    }
}

impl Packed {
    /// The maximum length, in bytes, of a published entity's description that is copied into a page. An entity with a longer
    /// one is moved in.
    pub const LONGEST_COPIED: usize = LONGEST_PACKED;

    /// Creates an empty repo of entities of another type: `Packed::of::<Account>()`.
    pub fn of<E: Identifiable>() -> Packed<E> {
        Packed::default()
    }
}

impl<E: Identifiable> Default for Packed<E> {
    fn default() -> Self {
        Self { shards: Shards::default(), versions: Versions::default() }
    }
}

impl<E: Identifiable> EntityRepo<E> for Packed<E> {
    #[allow(clippy::inline_always)] // if the caller knows the type, neither `get` nor the visit is a call
    #[inline(always)]
    fn get(&self, id: &E::Id, visit: Visit<'_, E>) -> RepoAnswer<Lookup<E>> {
        let (hash, shard) = self.shards.of(id);
        let shard = shard.read();
        let Some(address) = shard.find(hash, id) else { return Answer::Now(Ok(Lookup::Absent)) };
        Answer::Now(Ok(shard.pages.show(address, |shown| visit.show(shown))))
    }

    fn put_if(&self, entity: E, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        let _write = self.versions.write(entity.id());
        let buffer = PackBuffer::of(&entity);
        let id = entity.id().clone();
        let mut entity = Some(entity);
        let (hash, shard) = self.shards.of(&id);
        let new = ToStore { entity: &mut entity, packed: buffer.packed(MAX_COPIED) };
        // The guard is dropped at the end of the statement; the copied and the replaced entity are dropped later.
        let done = shard.write().put(hash, &id, new, condition, |id| self.shards.hash(id));
        Answer::Now(done.map(|done| done.map(|(put, _replaced)| put)).map_err(|full| RepoError::Full(Box::new(full))))
    }

    fn remove_if(&self, id: &E::Id, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        let _write = self.versions.write(id);
        let (hash, shard) = self.shards.of(id);
        let removed = shard.write().remove(hash, id, condition, |id| self.shards.hash(id));
        Answer::Now(Ok(removed.map(|(removed, _entity)| removed)))
    }

    fn len(&self) -> RepoAnswer<u64> {
        Answer::Now(Ok(self.shards.iter().map(|shard| shard.read().addresses.len() as u64).sum()))
    }

    fn version(&self, id: &E::Id) -> Option<u64> {
        self.versions.version(id)
    }
}

impl<E: Identifiable> fmt::Debug for Packed<E> {
    /// Takes no lock, so printing a repo cannot deadlock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packed").finish_non_exhaustive()
    }
}

/// A shard: its pages, and the address of each id's record.
struct PackedShard<E> {
    addresses: HashTable<Address>,
    pages: Pages<E>,
}

impl<E: Identifiable> Default for PackedShard<E> {
    fn default() -> Self {
        Self { addresses: HashTable::new(), pages: Pages::default() }
    }
}

impl<E: Identifiable> PackedShard<E> {
    #[inline]
    fn find(&self, hash: u64, id: &E::Id) -> Option<Address> {
        self.addresses.find(hash, |&address| self.pages.has_id(address, id)).copied()
    }

    /// Whether `condition` allows to write `id`. It changes nothing, also if it panics.
    fn allows(&self, hash: u64, id: &E::Id, condition: &Condition) -> bool {
        let Some(address) = self.find(hash, id) else { return condition.allows_shown::<E>(None) };
        self.pages.show(address, |shown| condition.allows_shown(Some(shown)))
    }

    /// Stores an entity. The entity to drop is left in `new`, or returned.
    fn put(
        &mut self,
        hash: u64,
        id: &E::Id,
        mut new: ToStore<'_, E>,
        condition: &Condition,
        hash_of: impl Fn(&E::Id) -> u64,
    ) -> Result<Conditional<(Put, Option<E>)>, Full> {
        if !condition.is_always() && !self.allows(hash, id, condition) {
            return Ok(Conditional::Refused);
        }
        let Self { addresses, pages } = self;
        let Some(address) = addresses.find_mut(hash, |&address| pages.has_id(address, id)) else {
            let address = pages.add(&mut new)?;
            addresses.insert_unique(hash, address, |&moved| pages.with_id(moved, &hash_of));
            self.compact(hash_of);
            return Ok(Conditional::Done((Put::Created, None)));
        };
        if pages.write_over(*address, &mut new) {
            return Ok(Conditional::Done((Put::Replaced, None)));
        }
        let old = mem::replace(address, pages.add(&mut new)?);
        let replaced = pages.end(old);
        self.compact(hash_of);
        Ok(Conditional::Done((Put::Replaced, replaced)))
    }

    /// Removes `id`. Returns the entity to drop, if it was not copied.
    fn remove(
        &mut self,
        hash: u64,
        id: &E::Id,
        condition: &Condition,
        hash_of: impl Fn(&E::Id) -> u64,
    ) -> Conditional<(Removed, Option<E>)> {
        if !condition.is_always() && self.find(hash, id).is_some() && !self.allows(hash, id, condition) {
            return Conditional::Refused;
        }
        let Self { addresses, pages } = self;
        let Ok(found) = addresses.find_entry(hash, |&address| pages.has_id(address, id)) else {
            return Conditional::Done((Removed::Absent, None));
        };
        let (address, _) = found.remove();
        let removed = pages.end(address);
        if let Some(capacity) = shrunk(addresses.len(), addresses.num_buckets()) {
            addresses.shrink_to(capacity, |&moved| pages.with_id(moved, &hash_of));
        }
        self.compact(hash_of);
        Conditional::Done((Removed::Removed, removed))
    }

    /// Moves the live records out of full pages that are less than half live. The loop ends, because a move makes no
    /// dead bytes in other pages.
    fn compact(&mut self, hash_of: impl Fn(&E::Id) -> u64) {
        while let Some(emptied) = self.pages.next_to_empty() {
            for (old, packed) in emptied.live() {
                let new = self.pages.add_again(packed);
                // The number of the emptied page is not reused before the page is recycled, so the old address is unique.
                let address = self.addresses.find_mut(hash_of(&packed_id::<E>(packed)), |&address| address == old);
                *address.expect("the table has the address of each live record") = new;
            }
            self.pages.recycle(emptied);
        }
    }
}

#[cfg(test)]
mod tests;
