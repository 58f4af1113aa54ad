use std::collections::HashMap;
use std::hash::BuildHasher;

use polyserve_core::sync::write;
use polyserve_core::{Conditional, Entity, Put, Removed};

use super::*;
use crate::hash::IdState;
use crate::hash::tests::Random;
use crate::pack::{PackBuffer, ToStore};

/// Returns the one shard of a store.
fn one_shard() -> VersionedShard<Entity> {
    VersionedShard::shards(1).next().expect("there is one")
}

fn put(shard: &VersionedShard<Entity>, hash: u64, entity: Entity, hash_of: impl Fn(&i64) -> u64) -> Put {
    let buffer = PackBuffer::of(&entity);
    let id = entity.id;
    let new = ToStore { entity: &mut Some(entity), packed: buffer.packed(MAX_COPIED) };
    let put = shard.put(hash, &id, new, &Condition::ALWAYS, hash_of).expect("there is space");
    put.done().expect("the condition always holds").0
}

fn remove(shard: &VersionedShard<Entity>, hash: u64, id: i64) -> Removed {
    shard.remove(hash, &id, &Condition::ALWAYS).done().expect("the condition always holds").0
}

/// Checks that each entity is stored as it was put, and that no other is.
fn check(shard: &VersionedShard<Entity>, expected: &HashMap<i64, Entity>, ids: i64, hash_of: impl Fn(&i64) -> u64) {
    assert_eq!(shard.len(), expected.len());
    for id in 0..ids {
        let seen = shard.get(hash_of(&id), &id, |shown| shown.to_owned());
        assert_eq!(seen.as_ref(), expected.get(&id), "{id}");
    }
}

/// The hash of an id is random, or such that all ids have the same bucket and the same tag.
#[test]
fn a_shard_agrees_with_a_map() {
    let state = IdState::default();
    let hashes: [&dyn Fn(&i64) -> u64; 2] = [&|id| state.hash_one(id), &|_| 0];
    for (hash_of, ids, steps) in hashes.into_iter().zip([3000, 40]).map(|(hash_of, ids)| (hash_of, ids, 20_000)) {
        let (shard, mut expected, mut random) = (one_shard(), HashMap::new(), Random(7));
        for step in 0..steps {
            let id = random.below(ids) as i64;
            if random.below(3) == 0 {
                let removed = remove(&shard, hash_of(&id), id);
                assert_eq!(removed == Removed::Removed, expected.remove(&id).is_some());
            } else {
                let text = "ä🦀x".repeat(random.below(90) as usize);
                let entity = Entity::new(id, text, step as f64);
                let put = put(&shard, hash_of(&id), entity.clone(), hash_of);
                assert_eq!(put == Put::Replaced, expected.insert(id, entity).is_some());
            }
        }
        check(&shard, &expected, ids as i64, hash_of);
    }
}

/// Freed records are used again for records of another length: if all entities grow, step by step, they take no more pages than at
/// their last length.
#[test]
fn removed_records_serve_entities_of_any_length() {
    let (shard, state) = (one_shard(), IdState::default());
    let hash_of = |id: &i64| state.hash_one(id);
    let pages = |shard: &VersionedShard<Entity>| write(&shard.locked).in_use.counts();
    for length in (0..400).step_by(8) {
        (0..1000).for_each(|id| _ = put(&shard, hash_of(&id), Entity::new(id, "d".repeat(length), 0.5), hash_of));
    }
    let [most, _] = pages(&shard);
    // 408 bytes, ten in a page; half as much again, because old and new records exist at the same time.
    assert!(most < 1000 / 10 * 3 / 2, "{most} pages");
    (0..1000).for_each(|id| assert_eq!(remove(&shard, hash_of(&id), id), Removed::Removed));
    let [all, empty] = pages(&shard);
    assert!(all == most && empty >= all - 1, "{empty} of {all} pages are empty; one may have links");
    (0..1000).for_each(|id| _ = put(&shard, hash_of(&id), Entity::new(id, "d".repeat(392), 0.5), hash_of));
    assert!(pages(&shard)[0] <= most + 1);
}

/// A record that is short lies in its bucket, if there is a slot after a split, whatever it was before.
#[test]
fn records_change_between_short_and_long() {
    let (shard, mut expected) = (one_shard(), HashMap::new());
    // All ids are in one bucket until the table grows.
    for (step, length) in [3, 40, 700, 16, 0, 17, 600, 5].into_iter().enumerate() {
        for id in 0..40 {
            let entity = Entity::new(id, "d".repeat(length), step as f64);
            put(&shard, id as u64, entity.clone(), |id| *id as u64);
            expected.insert(id, entity);
        }
        check(&shard, &expected, 50, |id| *id as u64);
        assert_eq!(remove(&shard, 7, 7), Removed::Removed);
        put(&shard, 7, expected[&7].clone(), |id| *id as u64);
    }
    let short = (0..40).filter(|id| matches!(shard.find(&read(&shard.locked), *id as u64, id), Some(Place::Short(..))));
    assert!(short.count() > 20);
}

/// A version grows with each write to an id, also if a growth moves the id to another bucket.
#[test]
fn the_version_of_an_id_never_repeats() {
    let (shard, state) = (one_shard(), IdState::default());
    let hash_of = |id: &i64| state.hash_one(id);
    let mut last = HashMap::new();
    for round in 0..4 {
        for id in 0..500 {
            put(&shard, hash_of(&id), Entity::new(id, "it", f64::from(round)), hash_of);
            let version = shard.version(hash_of(&id)).expect("no write is in progress");
            assert!(last.insert(id, version).is_none_or(|last| last < version), "{id} in round {round}");
        }
    }
}

/// During a write, a version is none, and a get waits for the lock. After it, both go on.
#[test]
fn a_write_section_is_seen() {
    let (shard, hash) = (one_shard(), 5);
    put(&shard, hash, Entity::new(1, "it", 0.5), |_| hash);
    let before = shard.version(hash);
    let section = shard.bucket(hash).write();
    assert_eq!(shard.version(hash), None);
    assert_eq!(shard.get(hash, &1, |shown| shown.to_owned()), Some(Entity::new(1, "it", 0.5)));
    drop(section);
    assert!(shard.version(hash) > before);
}

/// A replaced or removed entity is dropped when no lock is held.
#[test]
fn an_entity_that_is_not_packed_is_handed_out() {
    let (shard, long) = (one_shard(), "d".repeat(600));
    let entity = |value| Entity::new(1, long.clone(), value);
    assert_eq!(put(&shard, 1, entity(1.0), |_| 1), Put::Created);
    let new = ToStore { entity: &mut Some(entity(2.0)), packed: None };
    let replaced = shard.put(1, &1, new, &Condition::ALWAYS, |_| 1).expect("there is space");
    assert_eq!(replaced, Conditional::Done((Put::Replaced, Some(entity(1.0)))));
    let removed = shard.remove(1, &1, &Condition::ALWAYS);
    assert_eq!(removed, Conditional::Done((Removed::Removed, Some(entity(2.0)))));
}
