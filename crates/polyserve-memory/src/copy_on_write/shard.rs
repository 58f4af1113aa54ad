//! A shard: a table of buckets that grows by splitting one bucket at a time. Each bucket holds one published chunk, or
//! none.
//!
//! The bucket of an id is [`bucket_of`] its hash and the number of buckets in use. When bucket `n` comes into use, it
//! gets a part of the entries of one other bucket: the bucket that held all of them while there were `n` buckets. A
//! writer does that under the shard's lock, in three steps:
//!
//! 1. It publishes the part that moves in bucket `n`, which no reader reads yet.
//! 2. It publishes `n + 1` as the number of buckets in use. From now on the ids of that part belong to bucket `n`.
//! 3. It publishes the old bucket again without that part.
//!
//! A reader reads the number of buckets, then the bucket. An entry that it finds was current when it loaded the bucket:
//! between steps 2 and 3 both buckets hold the same entities, because no other writer runs. If it finds no entry, it
//! reads the number again. If step 3 came before its load of the bucket, so did step 2, and the new number sends it to
//! another bucket, which it then reads. If the number sends it to the same bucket, the id was not in that bucket. Each
//! repetition needs a split of the very bucket that was read, and there is at most one such split for each bit of a
//! hash.

use crossbeam_utils::CachePadded;
use polyserve_core::{Condition, Conditional, Identifiable};
use triomphe::{Arc, ThinArc};

use super::sync::{AtomicUsize, Mutex, MutexGuard, OnceLock, Ordering, PoisonError, Published};

/// Number of entities for each bucket in use at which another bucket comes into use.
const PER_BUCKET: usize = 2;
/// Number of segments. Bucket 0 is the first segment; each later segment has as many buckets as all before it.
const SEGMENTS: usize = 32;
const MAX_BUCKETS: usize = 1 << (SEGMENTS - 1);

/// The entries of a bucket. A chunk is immutable and never empty.
type Chunk<E> = ThinArc<(), ShardEntry<E>>;

/// The buckets of a segment.
type Segment<E> = Box<[Published<Chunk<E>>]>;

struct ShardEntry<E: Identifiable> {
    id: E::Id,
    entity: Arc<E>,
}

impl<E: Identifiable> Clone for ShardEntry<E> {
    fn clone(&self) -> Self {
        Self { id: self.id.clone(), entity: Arc::clone(&self.entity) }
    }
}

pub(crate) struct Shard<E: Identifiable> {
    /// The number of entities. Every writer of the shard holds this lock. Readers access neither the lock nor its cache
    /// line.
    len: CachePadded<Mutex<usize>>,
    /// The number of buckets in use.
    buckets: AtomicUsize,
    /// The buckets. A segment is never moved or freed, so a reader may use an old number of buckets.
    segments: [OnceLock<Segment<E>>; SEGMENTS],
}

impl<E: Identifiable> Shard<E> {
    pub(crate) fn new() -> Self {
        Self {
            len: CachePadded::new(Mutex::new(0)),
            buckets: AtomicUsize::new(1),
            segments: [const { OnceLock::new() }; SEGMENTS],
        }
    }

    /// Calls `visit` with the entity of `id`, and returns what it returned; `None` if there is no entity. Never waits.
    pub(crate) fn get<T>(&self, hash: u64, id: &E::Id, visit: impl FnOnce(&E) -> T) -> Option<T> {
        let mut index = bucket_of(hash, self.buckets.load(Ordering::Acquire));
        loop {
            // A bucket in use is in a segment that exists. If the segment does not exist, nothing is stored there.
            let (segment, index_in_segment) = segment_of(index);
            let segment = self.segments[segment].get()?;
            let chunk = segment[index_in_segment].load();
            if let Some(entry) = entries(&chunk).iter().find(|entry| entry.id == *id) {
                return Some(visit(&entry.entity));
            }
            let now = bucket_of(hash, self.buckets.load(Ordering::Acquire));
            if now == index {
                return None;
            }
            index = now;
        }
    }

    /// Stores `entity`. Returns whether it replaced another. `hash_of` hashes the ids of the entities that a growth
    /// moves.
    pub(crate) fn put(
        &self,
        hash: u64,
        entity: Arc<E>,
        condition: &Condition,
        hash_of: impl Fn(&E::Id) -> u64,
    ) -> Conditional<bool> {
        self.replace(hash, entity, condition, hash_of).map(|(replaced, _outdated)| replaced)
    }

    /// Does the work of [`put`](Self::put), and also returns the chunks that it made outdated. Dropping the first one
    /// drops the replaced entity, unless a reader still uses it.
    fn replace(
        &self,
        hash: u64,
        entity: Arc<E>,
        condition: &Condition,
        hash_of: impl Fn(&E::Id) -> u64,
    ) -> Conditional<(bool, [Option<Chunk<E>>; 2])> {
        let mut len = self.lock();
        let bucket = self.bucket(bucket_of(hash, self.buckets.load(Ordering::Relaxed)));
        if !condition.is_always() && !condition.allows(find(entries(&bucket.load()), entity.id())) {
            drop(len);
            return Conditional::Refused;
        }
        let (copy, replaces) = with(entries(&bucket.load()), ShardEntry { id: entity.id().clone(), entity });
        let outdated = bucket.swap(Some(copy));
        let mut split = None;
        if !replaces {
            *len += 1;
            split = self.grow(*len, hash_of);
        }
        drop(len);
        Conditional::Done((replaces, [outdated, split]))
    }

    /// Removes the entity of `id`. Returns whether there was one.
    pub(crate) fn remove(&self, hash: u64, id: &E::Id, condition: &Condition) -> Conditional<bool> {
        self.take(hash, id, condition).map(|outdated| outdated.is_some())
    }

    /// Removes the entity of `id`. Returns the outdated chunk, which contains the entity.
    fn take(&self, hash: u64, id: &E::Id, condition: &Condition) -> Conditional<Option<Chunk<E>>> {
        let mut len = self.lock();
        let bucket = self.bucket(bucket_of(hash, self.buckets.load(Ordering::Relaxed)));
        let stored = bucket.load();
        let Some(entity) = find(entries(&stored), id) else { return Conditional::Done(None) };
        if !condition.allows(Some(entity)) {
            return Conditional::Refused;
        }
        let outdated = bucket.swap(without(entries(&stored), id));
        *len -= 1;
        Conditional::Done(outdated)
    }

    /// Returns the number of entities.
    pub(crate) fn len(&self) -> usize {
        *self.lock()
    }

    /// Takes the writers' lock.
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.len.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one more bucket into use if there are too few for `len` entities. Returns the chunk that was split. The
    /// caller holds the lock.
    fn grow(&self, len: usize, hash_of: impl Fn(&E::Id) -> u64) -> Option<Chunk<E>> {
        let new = self.buckets.load(Ordering::Relaxed);
        if len <= new * PER_BUCKET || new == MAX_BUCKETS {
            return None;
        }
        let old = self.bucket(bucket_of(new as u64, new));
        let (moves, stays): (Vec<_>, Vec<_>) =
            entries(&old.load()).iter().cloned().partition(|entry| bucket_of(hash_of(&entry.id), new + 1) == new);
        let bucket = self.bucket(new); // its segment exists before a reader can learn of the bucket
        let splits = !moves.is_empty();
        if splits {
            bucket.swap(chunk(moves));
        }
        self.buckets.store(new + 1, Ordering::Release);
        if splits { old.swap(chunk(stays)) } else { None }
    }

    /// Returns the bucket with this index, and creates its segment if needed. The caller holds the lock.
    fn bucket(&self, index: usize) -> &Published<Chunk<E>> {
        let (segment, index_in_segment) = segment_of(index);
        let make = || (0..(1_usize << segment).div_ceil(2)).map(|_| Published::empty()).collect();
        &self.segments[segment].get_or_init(make)[index_in_segment]
    }
}

/// Returns the segment of a bucket and the index in it. The segments hold bucket 0, then 1, then 2 and 3, then 4 to 7,
/// and so on.
fn segment_of(index: usize) -> (usize, usize) {
    let segment = (usize::BITS - index.leading_zeros()) as usize;
    (segment, index - (1 << segment >> 1))
}

/// Returns the bucket of a hash if `buckets` are in use. The lowest bits of the hash choose the bucket. If the chosen bucket
/// is not in use yet, the highest of these bits is left out.
fn bucket_of(hash: u64, buckets: usize) -> usize {
    let mask = buckets.next_power_of_two() - 1;
    let index = hash as usize & mask;
    if index < buckets { index } else { index & (mask >> 1) }
}

fn entries<E: Identifiable>(chunk: &Option<Chunk<E>>) -> &[ShardEntry<E>] {
    chunk.as_ref().map_or(&[], |chunk| &chunk.slice)
}

/// Returns a copy of a chunk with `new` in place of the entry with the same id, and whether there was such an entry.
fn with<E: Identifiable>(entries: &[ShardEntry<E>], new: ShardEntry<E>) -> (Chunk<E>, bool) {
    let found = entries.iter().position(|entry| entry.id == new.id);
    let position = found.unwrap_or(entries.len());
    let mut new = Some(new);
    // The new entry, then those before its position, then those after it.
    let other = |n: usize| entries[n - usize::from(n <= position)].clone();
    let copied = (0..entries.len().max(position + 1)).map(|n| new.take().unwrap_or_else(|| other(n)));
    (ThinArc::from_header_and_iter((), copied), found.is_some())
}

/// Returns the entity of `id`.
fn find<'a, E: Identifiable>(entries: &'a [ShardEntry<E>], id: &E::Id) -> Option<&'a E> {
    entries.iter().find(|entry| entry.id == *id).map(|entry| &*entry.entity)
}

/// Returns a copy of a chunk without the entry of `id`, which must be there. `None` is the chunk without entries.
fn without<E: Identifiable>(entries: &[ShardEntry<E>], id: &E::Id) -> Option<Chunk<E>> {
    let at = entries.iter().position(|entry| entry.id == *id)?;
    let copied = (0..entries.len() - 1).map(|n| entries[n + usize::from(n >= at)].clone());
    (copied.len() > 0).then(|| ThinArc::from_header_and_iter((), copied))
}

fn chunk<E: Identifiable>(entries: Vec<ShardEntry<E>>) -> Option<Chunk<E>> {
    (!entries.is_empty()).then(|| ThinArc::from_header_and_iter((), entries.into_iter()))
}

#[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
mod tests {
    use polyserve_core::Entity;

    use super::*;

    fn entity(id: i64) -> Arc<Entity> {
        Arc::new(Entity::new(id, "it", 0.0))
    }

    /// The hash of an id is the id, so that a test can choose its bucket.
    fn plain(id: &i64) -> u64 {
        *id as u64
    }

    fn put_as(shard: &Shard<Entity>, hash: u64, entity: Arc<Entity>, hash_of: fn(&i64) -> u64) -> bool {
        shard.put(hash, entity, &Condition::ALWAYS, hash_of).done().expect("the condition always holds")
    }

    fn put(shard: &Shard<Entity>, id: i64) -> bool {
        put_as(shard, plain(&id), entity(id), plain)
    }

    fn remove(shard: &Shard<Entity>, hash: u64, id: i64) -> bool {
        shard.remove(hash, &id, &Condition::ALWAYS).done().expect("the condition always holds")
    }

    fn finds(shard: &Shard<Entity>, id: i64) -> bool {
        shard.get(plain(&id), &id, |entity| assert_eq!(entity.id, id)).is_some()
    }

    #[test]
    fn an_id_belongs_to_one_bucket_and_moves_only_into_the_new_one() {
        for buckets in 1..200 {
            for hash in 0..1_000_u64 {
                let (before, after) = (bucket_of(hash, buckets), bucket_of(hash, buckets + 1));
                assert!(before < buckets);
                if after != before {
                    assert_eq!(after, buckets, "hash {hash} moves into the new bucket");
                    assert_eq!(
                        before,
                        bucket_of(buckets as u64, buckets),
                        "hash {hash} leaves the bucket that is split"
                    );
                }
            }
        }
    }

    #[test]
    fn a_get_of_an_empty_shard_makes_nothing() {
        let shard = Shard::new();
        assert!(!finds(&shard, 1) && shard.segments.iter().all(|segment| segment.get().is_none()));
    }

    #[test]
    fn buckets_come_into_use_one_by_one_and_nothing_is_lost() {
        let shard = Shard::new();
        for id in 0..3_000 {
            let before = shard.buckets.load(Ordering::Relaxed);
            assert!(!finds(&shard, id) && !put(&shard, id) && put(&shard, id));
            let after = shard.buckets.load(Ordering::Relaxed);
            assert!(after == before || after == before + 1, "{before} buckets, then {after}");
            assert!(after * PER_BUCKET >= shard.len(), "{after} buckets for {}", shard.len());
        }
        assert_eq!(shard.len(), 3_000);
        assert!((0..3_000).all(|id| finds(&shard, id)) && !finds(&shard, -1));
        assert!((0..3_000).all(|id| remove(&shard, plain(&id), id)) && !remove(&shard, 0, 0));
        assert_eq!(shard.len(), 0);
        assert!(!(0..3_000).any(|id| finds(&shard, id)));
    }

    /// If a split were published in another order, the entries that move would be hidden for a moment.
    #[test]
    fn no_reader_misses_what_moves() {
        const IDS: usize = 20_000;
        let (shard, stored) = (Shard::new(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for id in 0..IDS {
                    put(&shard, id as i64);
                    stored.store(id + 1, Ordering::Release);
                }
            });
            for reader in 0..2 {
                let (shard, stored) = (&shard, &stored);
                scope.spawn(move || {
                    let mut step = reader;
                    loop {
                        let count = stored.load(Ordering::Acquire);
                        // Half of the lookups go to the buckets that are split next.
                        step += 1;
                        let next = shard.buckets.load(Ordering::Relaxed) + step / 2 % 4;
                        let id = if step % 2 == 0 { step.wrapping_mul(7_919) } else { next } % count.max(1);
                        assert!(count == 0 || finds(shard, id as i64), "{id} of {count} is not there");
                        if count == IDS {
                            break;
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn ids_of_one_hash_share_a_bucket() {
        let shard = Shard::new();
        for id in 0..100 {
            assert!(!put_as(&shard, 7, entity(id), |_| 7));
        }
        assert!((0..100).all(|id| shard.get(7, &id, |_| ()).is_some()));
        assert!((0..100).all(|id| put_as(&shard, 7, entity(id), |_| 7) && remove(&shard, 7, id)));
        assert_eq!(shard.len(), 0);
    }

    #[test]
    fn what_is_replaced_or_removed_is_dropped_at_once() {
        let shard = Shard::new();
        let (first, second) = (entity(1), entity(1));
        put_as(&shard, 1, Arc::clone(&first), plain);
        (2..100).for_each(|id| _ = put(&shard, id)); // splits its bucket, again and again
        assert!(!Arc::is_unique(&first));
        assert!(put_as(&shard, 1, Arc::clone(&second), plain));
        assert!(Arc::is_unique(&first));
        assert!(remove(&shard, 1, 1));
        assert!(Arc::is_unique(&second));
    }

    /// The outdated chunk is returned when no lock is held.
    #[test]
    fn an_outdated_chunk_is_returned_with_its_entity() {
        let (shard, hash) = (Shard::new(), plain(&7));
        let free = || shard.len.try_lock().is_ok();
        let (first, second) = (entity(7), entity(7));
        assert!(!put_as(&shard, hash, Arc::clone(&first), plain));
        let replaced = shard.replace(hash, Arc::clone(&second), &Condition::ALWAYS, plain);
        let (replaced, outdated) = replaced.done().expect("the condition always holds");
        assert!(replaced && free() && !Arc::is_unique(&first), "it is still in the chunk");
        drop(outdated);
        assert!(Arc::is_unique(&first));
        let outdated = shard.take(hash, &7, &Condition::ALWAYS).done().flatten();
        assert!(outdated.is_some() && free() && !Arc::is_unique(&second));
        drop(outdated);
        assert!(Arc::is_unique(&second));
    }

    #[test]
    fn what_a_reader_looks_at_stays_until_it_leaves() {
        let shard = Shard::new();
        let first = entity(1);
        put_as(&shard, 1, Arc::clone(&first), plain);
        let seen = shard.get(1, &1, |seen| {
            std::thread::scope(|scope| _ = scope.spawn(|| assert!(remove(&shard, 1, 1))));
            assert!(!Arc::is_unique(&first), "the reader has it");
            assert_eq!(seen, &*first);
        });
        assert!(seen.is_some() && Arc::is_unique(&first));
    }
}
