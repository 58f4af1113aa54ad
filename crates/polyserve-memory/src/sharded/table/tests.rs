use std::collections::HashMap;
use std::hash::BuildHasher as _;

use polyserve_core::Entity;

use super::*;
use crate::hash::tests::{Random, shapes};
use crate::shards::MIN_SLOTS;

fn hash(id: &i64) -> u64 {
    Random(id.cast_unsigned()).next()
}

impl ShardTable<Entity> {
    /// Checks the invariants of a table with these hashes. Does not check counts that have reached their maximum.
    fn check(&self, hash_of: impl Fn(&i64) -> u64) {
        let mut sent_on = vec![0; self.buckets.len()];
        let mut len = 0;
        for (number, bucket) in self.buckets.iter().enumerate() {
            for (slot, entity) in bucket.slots.iter().enumerate() {
                let found = bucket.word >> (8 * slot) & MAX_COUNT;
                if found == 0 {
                    assert_eq!(*entity, None);
                    continue;
                }
                len += 1;
                let hash = hash_of(&entity.as_ref().expect("a slot in use has an entity").id);
                assert_eq!(found, tag(hash));
                let passed = (0..self.buckets.len()).map(|step| self.number(hash, step)).take_while(|at| *at != number);
                passed.for_each(|at| sent_on[at] += 1);
            }
        }
        assert_eq!(len, self.len);
        assert!(self.len <= Self::capacity(self.buckets.len()));
        for (bucket, sent_on) in self.buckets.iter().zip(sent_on) {
            assert!(bucket.sent_on() == sent_on || bucket.sent_on() == MAX_COUNT, "{} of {sent_on}", bucket.sent_on());
        }
    }
}

/// A bucket is two cache lines, as the header states.
#[test]
fn a_bucket_is_128_bytes() {
    assert_eq!((size_of::<Bucket<Entity>>(), align_of::<Bucket<Entity>>()), (128, 128));
}

#[test]
fn it_is_a_map() {
    let (mut table, mut model) = (ShardTable::default(), HashMap::new());
    let mut random = Random(1);
    for ids in [3, 40, 1000, 40, 5000, 2] {
        for step in 0..20_000 {
            let id = random.below(ids).cast_signed() - 1;
            match random.below(4) {
                0 => assert_eq!(table.remove(hash(&id), &id, hash), model.remove(&id)),
                1 => {
                    let entity = Entity::new(id, format!("{step}"), step as f64);
                    assert_eq!(table.insert(hash(&id), entity.clone(), hash), model.insert(id, entity));
                }
                _ => assert_eq!(table.find(hash(&id), &id), model.get(&id)),
            }
        }
        assert_eq!(table.len(), model.len());
        table.check(hash);
    }
}

/// Ids that all have the same hash, and so the same bucket and the same tag. They are more than a bucket's overflow count
/// can hold. They overflow into the next buckets, and are all found and removed.
#[test]
fn ids_of_one_hash_are_kept_apart() {
    let (mut table, ids) = (ShardTable::default(), 0..1000);
    let same_hash = |_: &i64| 0;
    for id in ids.clone() {
        assert_eq!(table.insert(0, Entity::new(id, "", 0.0), same_hash), None);
    }
    table.check(same_hash);
    assert!(table.find(0, &1000).is_none());
    for id in ids.clone().step_by(3) {
        assert_eq!(table.remove(0, &id, same_hash), Some(Entity::new(id, "", 0.0)));
    }
    table.check(same_hash);
    assert!(ids.clone().all(|id| table.find(0, &id).is_some() == (id % 3 != 0)));
    assert!(ids.filter(|id| table.remove(0, id, same_hash).is_some()).count() == 666);
    assert_eq!(table.len(), 0);
}

/// Checks the module header's figures for common id patterns: the buckets that a lookup in a full table reads.
#[test]
fn a_full_table_is_not_searched_for_long() {
    let mut random = Random(3);
    for (shape, ids) in shapes() {
        let state = random.state();
        let (mut table, capacity) = (ShardTable::default(), ShardTable::<Entity>::capacity(4096));
        let hash = |id: &i64| state.hash_one(id);
        for id in &ids[..capacity] {
            table.insert(hash(id), Entity::new(*id, "", 0.0), hash);
        }
        assert_eq!((table.len(), table.buckets.len()), (capacity, 4096), "{shape}");
        let buckets_read = |id: i64| {
            let last = table.position(hash(&id), &id).map(|position| position.bucket);
            let ends = |index: &usize| Some(*index) == last || (last.is_none() && table.buckets[*index].sent_on() == 0);
            let mut numbers = (0..table.buckets.len()).map(|step| table.number(hash(&id), step));
            numbers.position(|index| ends(&index)).unwrap() + 1
        };
        let mean = |ids: &[i64]| ids.iter().map(|id| buckets_read(*id)).sum::<usize>() as f64 / ids.len() as f64;
        let (found, absent) = (mean(&ids[..capacity]), mean(&ids[capacity..]));
        assert!(found < 2.0 && absent < 4.0, "{shape}: {found} buckets to find, {absent} to find nothing");
    }
}

/// A removed entity leaves no count behind, so a table does not get slower with time.
#[test]
fn removed_entities_leave_no_count() {
    let mut table = ShardTable::default();
    for id in 0..1000 {
        table.insert(hash(&id), Entity::new(id, "", 0.0), hash);
    }
    for round in 1..100 {
        for id in 0..1000 {
            let (old, new) = (id + round * 1000 - 1000, id + round * 1000);
            assert!(table.remove(hash(&old), &old, hash).is_some());
            table.insert(hash(&new), Entity::new(new, "", 0.0), hash);
        }
    }
    table.check(hash);
    assert!(table.buckets.iter().all(|bucket| bucket.sent_on() < MAX_COUNT));
}

#[test]
fn what_was_large_shrinks() {
    const IDS: i64 = 100_000;
    let mut table = ShardTable::default();
    for id in 0..IDS {
        table.insert(hash(&id), Entity::new(id, "", 0.0), hash);
    }
    for id in (0..IDS).rev() {
        assert!(table.remove(hash(&id), &id, hash).is_some());
        assert!(table.slots() <= MIN_SLOTS.max(8 * (table.len() + 1)), "{} slots for {}", table.slots(), table.len());
    }
    assert_eq!(table.len(), 0);
}
