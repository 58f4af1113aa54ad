//! One shard: a table of buckets that grows by splitting one bucket at a time, each bucket one published chunk or none.
//!
//! An id belongs to the bucket that [`bucket_of`] names for its hash and the number of buckets in use. Bucket `n` comes
//! into use by taking a part of the entries of the bucket that they would all have been in with `n` buckets. A writer
//! does that under the shard's lock, in three steps:
//!
//! 1. the part that moves is published in bucket `n`, where nobody looks yet;
//! 2. the number of buckets in use is published as `n + 1`: from now on these ids belong there;
//! 3. the old bucket is published again, without them.
//!
//! A reader reads the number, then the bucket. What it finds there was right when it loaded the bucket: between steps 2 and
//! 3 both buckets hold the same entities, for no writer gets in between. Where it finds nothing it reads the number
//! again: had step 3 come before its load, step 2 would have too, and it would be told another bucket, and look there.
//! Where it is told the same bucket, the id was not in it. Each such turn needs a split of the very bucket that was looked
//! at, of which there can be one for each bit of a hash.

use crossbeam_utils::CachePadded;
use polyserve_core::Entity;
use triomphe::{Arc, ThinArc};

use super::sync::{AtomicUsize, Mutex, MutexGuard, OnceLock, Ordering, PoisonError, Published};

/// Entities for each bucket in use, before another is taken into use.
const PER_BUCKET: usize = 2;
/// Bucket 0 is a segment, and then there are as many buckets in a segment as in all before it.
const SEGMENTS: usize = 32;
const MOST_BUCKETS: usize = 1 << (SEGMENTS - 1);

/// Immutable, and never empty.
type Chunk = ThinArc<(), Entry>;

#[derive(Clone)]
struct Entry {
    id: i64,
    entity: Arc<Entity>,
}

pub(crate) struct Shard {
    /// How many entities there are. Whoever changes the shard holds it; readers never touch it, nor its cache line.
    len: CachePadded<Mutex<usize>>,
    /// How many are in use.
    buckets: AtomicUsize,
    /// What was made stays where it is, so that a reader can go by an old number.
    segments: [OnceLock<Box<[Published<Chunk>]>>; SEGMENTS],
}

impl Shard {
    pub(crate) fn new() -> Self {
        Self {
            len: CachePadded::new(Mutex::new(0)),
            buckets: AtomicUsize::new(1),
            segments: [const { OnceLock::new() }; SEGMENTS],
        }
    }

    /// Shows the entity of `id`; whether there is one. Never waits.
    pub(crate) fn get(&self, hash: u64, id: i64, visit: impl FnOnce(&Entity)) -> bool {
        let mut index = bucket_of(hash, self.buckets.load(Ordering::Acquire));
        loop {
            // Nobody has yet stored anything where it is not made: what is in use was made before.
            let (segment, place) = place_of(index);
            let Some(segment) = self.segments[segment].get() else { return false };
            let chunk = segment[place].load();
            if let Some(entry) = entries(&chunk).iter().find(|entry| entry.id == id) {
                visit(&entry.entity);
                return true;
            }
            let now = bucket_of(hash, self.buckets.load(Ordering::Acquire));
            if now == index {
                return false;
            }
            index = now;
        }
    }

    /// Stores `entity`; whether it replaced one. `hash_of` hashes the ids of others, where they have to move.
    pub(crate) fn put(&self, hash: u64, entity: Arc<Entity>, hash_of: impl Fn(i64) -> u64) -> bool {
        self.replace(hash, entity, hash_of).0
    }

    /// As [`put`](Self::put), and the chunks that are outdated by it: with the first dies, unless a reader looks at it, what
    /// was replaced.
    fn replace(&self, hash: u64, entity: Arc<Entity>, hash_of: impl Fn(i64) -> u64) -> (bool, [Option<Chunk>; 2]) {
        let mut len = self.lock();
        let bucket = self.bucket(bucket_of(hash, self.buckets.load(Ordering::Relaxed)));
        let (copy, replaces) = with(entries(&bucket.load()), Entry { id: entity.id, entity });
        let outdated = bucket.swap(Some(copy));
        let mut split = None;
        if !replaces {
            *len += 1;
            split = self.grow(*len, hash_of);
        }
        drop(len);
        (replaces, [outdated, split])
    }

    /// Removes the entity of `id`; whether there was one.
    pub(crate) fn remove(&self, hash: u64, id: i64) -> bool {
        self.take(hash, id).is_some()
    }

    /// Removes the entity of `id`; the chunk that is outdated by it, in which it was.
    fn take(&self, hash: u64, id: i64) -> Option<Chunk> {
        let mut len = self.lock();
        let bucket = self.bucket(bucket_of(hash, self.buckets.load(Ordering::Relaxed)));
        let copy = without(entries(&bucket.load()), id)?;
        let outdated = bucket.swap(copy);
        *len -= 1;
        outdated
    }

    /// How many entities there are.
    pub(crate) fn len(&self) -> usize {
        *self.lock()
    }

    /// Waits for the writer before.
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.len.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one more bucket into use where there are too few for `len` entities, and hands out the chunk that was split
    /// for it. For whoever holds the lock.
    fn grow(&self, len: usize, hash_of: impl Fn(i64) -> u64) -> Option<Chunk> {
        let new = self.buckets.load(Ordering::Relaxed);
        if len <= new * PER_BUCKET || new == MOST_BUCKETS {
            return None;
        }
        let old = self.bucket(bucket_of(new as u64, new));
        let (moves, stays): (Vec<_>, Vec<_>) =
            entries(&old.load()).iter().cloned().partition(|entry| bucket_of(hash_of(entry.id), new + 1) == new);
        let bucket = self.bucket(new); // made before a reader is told of it
        let splits = !moves.is_empty();
        if splits {
            bucket.swap(chunk(moves));
        }
        self.buckets.store(new + 1, Ordering::Release);
        if splits { old.swap(chunk(stays)) } else { None }
    }

    /// The bucket of that index, for whoever holds the lock. Its segment is made when the first of it comes into use.
    fn bucket(&self, index: usize) -> &Published<Chunk> {
        let (segment, place) = place_of(index);
        let make = || (0..(1_usize << segment).div_ceil(2)).map(|_| Published::empty()).collect();
        &self.segments[segment].get_or_init(make)[place]
    }
}

/// The segment of a bucket, and its place there: 0, then 1, then 2 and 3, then 4 to 7, and so on.
fn place_of(index: usize) -> (usize, usize) {
    let segment = (usize::BITS - index.leading_zeros()) as usize;
    (segment, index - (1 << segment >> 1))
}

/// Which of `buckets` in use an id of that hash belongs to: the one that as many low bits say as tell all of them apart, or
/// where that is not yet in use, one bit less.
fn bucket_of(hash: u64, buckets: usize) -> usize {
    let mask = buckets.next_power_of_two() - 1;
    let index = hash as usize & mask;
    if index < buckets { index } else { index & (mask >> 1) }
}

fn entries(chunk: &Option<Chunk>) -> &[Entry] {
    chunk.as_ref().map_or(&[], |chunk| &chunk.slice)
}

/// A copy with `new`, without the entry of its id that was there; and whether one was.
fn with(entries: &[Entry], new: Entry) -> (Chunk, bool) {
    let place = entries.iter().position(|entry| entry.id == new.id);
    let at = place.unwrap_or(entries.len());
    let mut new = Some(new);
    // The new one, and then those before the place and those behind it.
    let other = |n: usize| entries[n - usize::from(n <= at)].clone();
    let copied = (0..entries.len().max(at + 1)).map(|n| new.take().unwrap_or_else(|| other(n)));
    (ThinArc::from_header_and_iter((), copied), place.is_some())
}

/// A copy without the entry of `id`, if there is one.
fn without(entries: &[Entry], id: i64) -> Option<Option<Chunk>> {
    let at = entries.iter().position(|entry| entry.id == id)?;
    let copied = (0..entries.len() - 1).map(|n| entries[n + usize::from(n >= at)].clone());
    Some((copied.len() > 0).then(|| ThinArc::from_header_and_iter((), copied)))
}

fn chunk(entries: Vec<Entry>) -> Option<Chunk> {
    (!entries.is_empty()).then(|| ThinArc::from_header_and_iter((), entries.into_iter()))
}

#[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
mod tests {
    use super::*;

    fn entity(id: i64) -> Arc<Entity> {
        Arc::new(Entity::new(id, "it", 0.0))
    }

    /// Hashes that tell nothing but the id's low bits, to know which bucket is meant.
    fn plain(id: i64) -> u64 {
        id as u64
    }

    fn put(shard: &Shard, id: i64) -> bool {
        shard.put(plain(id), entity(id), plain)
    }

    fn finds(shard: &Shard, id: i64) -> bool {
        shard.get(plain(id), id, |entity| assert_eq!(entity.id, id))
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
        assert!((0..3_000).all(|id| shard.remove(plain(id), id)) && !shard.remove(0, 0));
        assert_eq!(shard.len(), 0);
        assert!(!(0..3_000).any(|id| finds(&shard, id)));
    }

    /// What it guards against: a split published in another order hides for a moment what moves.
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
                    let mut turn = reader;
                    loop {
                        let known = stored.load(Ordering::Acquire);
                        // Half of the looks go to the bucket that is split next, or about to be.
                        turn += 1;
                        let next = shard.buckets.load(Ordering::Relaxed) + turn / 2 % 4;
                        let id = if turn % 2 == 0 { turn.wrapping_mul(7_919) } else { next } % known.max(1);
                        assert!(known == 0 || finds(shard, id as i64), "{id} of {known} is not there");
                        if known == IDS {
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
            assert!(!shard.put(7, entity(id), |_| 7));
        }
        assert!((0..100).all(|id| shard.get(7, id, |_| ())));
        assert!((0..100).all(|id| shard.put(7, entity(id), |_| 7) && shard.remove(7, id)));
        assert_eq!(shard.len(), 0);
    }

    #[test]
    fn what_is_replaced_or_removed_is_dropped_at_once() {
        let shard = Shard::new();
        let (first, second) = (entity(1), entity(1));
        shard.put(1, Arc::clone(&first), plain);
        (2..100).for_each(|id| _ = put(&shard, id)); // splits its bucket, again and again
        assert!(!Arc::is_unique(&first));
        assert!(shard.put(1, Arc::clone(&second), plain));
        assert!(Arc::is_unique(&first));
        assert!(shard.remove(1, 1));
        assert!(Arc::is_unique(&second));
    }

    /// And where no lock is held.
    #[test]
    fn what_is_outdated_is_handed_out_with_what_dies_in_it() {
        let (shard, hash) = (Shard::new(), plain(7));
        let free = || shard.len.try_lock().is_ok();
        let (first, second) = (entity(7), entity(7));
        assert!(!shard.put(hash, Arc::clone(&first), plain));
        let (replaced, outdated) = shard.replace(hash, Arc::clone(&second), plain);
        assert!(replaced && free() && !Arc::is_unique(&first), "it is still in the chunk");
        drop(outdated);
        assert!(Arc::is_unique(&first));
        let outdated = shard.take(hash, 7);
        assert!(outdated.is_some() && free() && !Arc::is_unique(&second));
        drop(outdated);
        assert!(Arc::is_unique(&second));
    }

    #[test]
    fn what_a_reader_looks_at_stays_until_it_leaves() {
        let shard = Shard::new();
        let first = entity(1);
        shard.put(1, Arc::clone(&first), plain);
        let seen = shard.get(1, 1, |seen| {
            std::thread::scope(|scope| _ = scope.spawn(|| assert!(shard.remove(1, 1))));
            assert!(!Arc::is_unique(&first), "the reader has it");
            assert_eq!(seen, &*first);
        });
        assert!(seen && Arc::is_unique(&first));
    }
}
