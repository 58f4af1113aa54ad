//! `packed`: the lean store. Entities lie one behind the other in pages of 16 KiB, each shard with its own, and its table
//! holds places of four bytes.
//!
//! Invariants:
//!
//! * An operation holds one shard's lock, and takes no other inside it. Nothing unwinds under a write lock.
//! * The table and the pages agree: each place in the table is a record that is alive, and each live record's place is in
//!   the table.
//! * A page that is full is at least half alive (`pages`): a page that a put or a remove leaves with less is emptied before
//!   the operation ends. So the bytes of removed and replaced records are at most as many as those of live ones.
//!
//! Cost, where it differs from [`sharded`](crate::sharded):
//!
//! * **A put copies the description**, where it has at most [`Packed::LONGEST_COPIED`] bytes, instead of moving the
//!   `String` in, and the `String` is dropped outside the lock. A longer one is moved in and stays what it was.
//! * **A get checks that a copied description is UTF-8**: without unsafe code a `&str` cannot be made of bytes otherwise.
//!   At 15 bytes that is some nanoseconds.
//! * A put of a known id writes over the old record where the new one fits and fills at least half of it; otherwise the new
//!   one is written behind the last, and the old one is dead. A page that this leaves less than half alive is moved, record
//!   by record: 8 KiB at most, and now and then those of a second page; amortised, a byte is moved at most for each byte
//!   that died. Only growth takes longer, and its undoing when much has gone: of the table, which looks at each record of
//!   its shard for its id, a miss of the cache each; and of the slab of pages, which moves some 40 bytes for each of them.
//! * A record is 20 bytes and its description, rounded up to 4; its place in the table takes 6 to 11 with the free ones.
//!   An `Entity` in a map takes 49 bytes times the same share of free ones, and an allocation for its description.
//! * A shard is 256 bytes, four lines: 4 KiB a core. A shard's first record makes a page, so a store with few entities
//!   pays 16 KiB for each shard that has one: 256 KiB a core where all have.
//! * Removed memory is given back: pages to the allocator (a shard keeps two at most, and none when its last record goes),
//!   tables as in `sharded`, and the slab of pages as far as the last one that is left. What the allocator gives back to the
//!   system is its own affair: of pages in the middle of its heap it keeps the room.
//! * A shard has room for about a million pages, 16 GiB of records, or a million descriptions that are moved in. A put
//!   that finds it full is answered with [`RepoError::Other`].
//!
//! *Wins when* there are many small entities and memory decides how many fit, and when half of the load is puts of known ids
//! whose descriptions keep their length, which are written over in place: measured, a quarter to a third ahead in the cache.
//! *Loses when* entities are read that are in no cache, since table, page and record are a miss each: half of `sharded`'s rate
//! among a million. When descriptions change their lengths at every put, since copying and moving is work; and by the
//! check at each get where descriptions are long and not ASCII.

mod pages;

use std::fmt;
use std::mem;

use hashbrown::HashTable;
use polyserve_core::{Answer, Entity, EntityRef, EntityRepo, Lookup, Put, Removed, RepoError};

use self::pages::{Full, Pages, Place};
use crate::shards::{Shards, shrunk};

/// Entities packed in pages, in shards.
#[derive(Default)]
pub struct Packed {
    shards: Shards<Shard>,
}

impl Packed {
    /// The longest description, in bytes, that is copied into a page; a longer one is moved in and shown where it lies.
    pub const LONGEST_COPIED: usize = pages::LONGEST;

    /// An empty repo: a few KiB of locks for each core. The first put to a shard makes its first page.
    pub fn new() -> Self {
        Self::default()
    }
}

impl EntityRepo for Packed {
    #[allow(clippy::inline_always)] // a caller that knows the type then makes no call, nor does the visit
    #[inline(always)]
    fn get(&self, id: i64, visit: &mut dyn FnMut(EntityRef<'_>)) -> Answer<Result<Lookup, RepoError>> {
        let (hash, shard) = self.shards.of(id);
        let shard = shard.read();
        let Some(place) = shard.find(hash, id) else { return Answer::Now(Ok(Lookup::Absent)) };
        visit(shard.pages.show(place));
        Answer::Now(Ok(Lookup::Visited))
    }

    fn put(&self, mut entity: Entity) -> Answer<Result<Put, RepoError>> {
        let (hash, shard) = self.shards.of(entity.id);
        // The guard ends with the statement. What was copied, and what was replaced, is dropped after it.
        let done = shard.write().put(hash, &mut entity, |id| self.shards.hash(id));
        Answer::Now(done.map(|(put, _replaced)| put).map_err(|full| RepoError::Other(Box::new(full))))
    }

    fn remove(&self, id: i64) -> Answer<Result<Removed, RepoError>> {
        let (hash, shard) = self.shards.of(id);
        let (removed, _entity) = shard.write().remove(hash, id, |id| self.shards.hash(id));
        Answer::Now(Ok(removed))
    }

    fn len(&self) -> Answer<Result<u64, RepoError>> {
        Answer::Now(Ok(self.shards.iter().map(|shard| shard.read().places.len() as u64).sum()))
    }
}

impl fmt::Debug for Packed {
    /// Takes no lock, so that it can be printed from anywhere.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packed").finish_non_exhaustive()
    }
}

/// Pages, and where in them each id is.
#[derive(Default)]
struct Shard {
    places: HashTable<Place>,
    pages: Pages,
}

impl Shard {
    #[inline]
    fn find(&self, hash: u64, id: i64) -> Option<Place> {
        self.places.find(hash, |&place| self.pages.id(place) == id).copied()
    }

    /// Puts `entity` in. What is to be dropped is left in `entity` or handed out.
    fn put(
        &mut self,
        hash: u64,
        entity: &mut Entity,
        hash_of: impl Fn(i64) -> u64,
    ) -> Result<(Put, Option<Entity>), Full> {
        let Self { places, pages } = self;
        let id = entity.id;
        let Some(place) = places.find_mut(hash, |&place| pages.id(place) == id) else {
            let place = pages.add(entity)?;
            places.insert_unique(hash, place, |&moved| hash_of(pages.id(moved)));
            self.tidy(hash_of);
            return Ok((Put::Created, None));
        };
        if pages.write_over(*place, entity) {
            return Ok((Put::Replaced, None));
        }
        let old = mem::replace(place, pages.add(entity)?);
        let replaced = pages.end(old);
        self.tidy(hash_of);
        Ok((Put::Replaced, replaced))
    }

    /// Takes `id` out, and hands out what is to be dropped.
    fn remove(&mut self, hash: u64, id: i64, hash_of: impl Fn(i64) -> u64) -> (Removed, Option<Entity>) {
        let Self { places, pages } = self;
        let Ok(found) = places.find_entry(hash, |&place| pages.id(place) == id) else { return (Removed::Absent, None) };
        let (place, _) = found.remove();
        let removed = pages.end(place);
        if let Some(room) = shrunk(places.len(), places.num_buckets()) {
            places.shrink_to(room, |&moved| hash_of(pages.id(moved)));
        }
        self.tidy(hash_of);
        (Removed::Removed, removed)
    }

    /// Moves what is alive out of the full pages that are less than half alive. Ends: what is moved leaves no dead bytes.
    fn tidy(&mut self, hash_of: impl Fn(i64) -> u64) {
        while let Some(emptied) = self.pages.next_to_empty() {
            for (old, id, record) in emptied.alive() {
                let new = self.pages.add_again(record);
                // Other records may stand in this place's page again, but not before this one is empty.
                let place = self.places.find_mut(hash_of(id), |&place| place == old);
                *place.expect("the table has each live record") = new;
            }
            self.pages.recycle(emptied);
        }
    }
}

#[cfg(test)]
mod tests;
