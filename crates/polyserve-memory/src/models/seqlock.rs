//! Models of `seqlock`: readers copy records without a lock while writers store, free and move them.
//!
//! A part of each hash is the id, so a model can choose its bucket. The fourth id splits bucket 0 into 0 and 1.
//!
//! Not covered: the creation of a segment. It uses std's `OnceLock`, which loom does not instrument.

use std::sync::Arc;

use polyserve_core::sync::model::{Bounds, check};
use polyserve_core::sync::thread;
use polyserve_core::{Condition, Entity, Put, Removed};

use crate::pack::{PackBuffer, ToStore};
use crate::seqlock::shard::VersionedShard;

fn plain(id: &i64) -> u64 {
    let id = *id as u64;
    id | id << 16 | id << 24
}

/// From this value on, the record of an entity lies apart from its bucket.
const APART: i32 = 100;

/// Returns the text that belongs to a value.
fn text(value: i32) -> String {
    if value < APART { value.to_string() } else { format!("{value:020}") }
}

/// Returns the one shard of a store.
fn one_shard() -> VersionedShard<Entity> {
    VersionedShard::shards(1).next().expect("there is one")
}

/// Stores an entity with a value and a text that belong together. Returns whether it replaced another.
fn put(shard: &VersionedShard<Entity>, id: i64, value: i32) -> bool {
    let entity = Entity::new(id, text(value), f64::from(value));
    let buffer = PackBuffer::of(&entity);
    let new = ToStore { entity: &mut Some(entity), packed: buffer.packed(512) };
    let put = shard.put(plain(&id), &id, new, &Condition::ALWAYS, plain).expect("there is space");
    put.done().expect("the condition always holds").0 == Put::Replaced
}

fn remove(shard: &VersionedShard<Entity>, id: i64) -> bool {
    let removed = shard.remove(plain(&id), &id, &Condition::ALWAYS);
    removed.done().expect("the condition always holds").0 == Removed::Removed
}

/// Returns the value of an id, and checks that it is not torn.
fn value(shard: &VersionedShard<Entity>, id: i64) -> Option<i32> {
    let entity = shard.get(plain(&id), &id, |shown| shown.to_owned())?;
    let value = entity.value as i32;
    assert_eq!(entity, Entity::new(id, text(value), f64::from(value)), "it is torn");
    Some(value)
}

/// A put overwrites the record that a reader copies, or replaces it. A reader that reads twice never sees the older value last.
#[test]
fn no_copy_is_torn() {
    for [old, new] in [[1, 2], [APART, APART + 1], [1, APART]] {
        check("seqlock: a put of a known id against a reader that reads twice", Bounds::new(1, 2), move || {
            let shard = Arc::new(one_shard());
            // The page of records exists before the reader begins: its creation is not covered.
            put(&shard, 2, APART);
            put(&shard, 1, old);
            let reader_shard = Arc::clone(&shard);
            let reader = thread::spawn(move || [value(&reader_shard, 1), value(&reader_shard, 1)]);
            put(&shard, 1, new);
            let seen = reader.join().unwrap();
            assert!(seen[0].is_some() && seen[0] <= seen[1], "{seen:?}");
            assert_eq!(value(&shard, 1), Some(new));
        });
    }
}

/// A record that a reader copies is freed, and another entity is stored there.
#[test]
fn no_copy_is_of_another_entity() {
    for [first, second] in [[1, 2], [APART, APART + 1]] {
        check("seqlock: a record that another entity takes, against a reader", Bounds::new(1, 2), move || {
            let shard = Arc::new(one_shard());
            put(&shard, 1, first);
            let reader_shard = Arc::clone(&shard);
            let reader = thread::spawn(move || value(&reader_shard, 1));
            assert!(remove(&shard, 1));
            put(&shard, 2, second);
            let seen = reader.join().unwrap();
            assert!(seen.is_none_or(|seen| seen == first), "{seen:?}");
            assert_eq!([value(&shard, 1), value(&shard, 2)], [None, Some(second)]);
        });
    }
}

/// A put that splits a bucket races a reader of an entity that moves, or of one that stays. The version of the one that moves grows.
#[test]
fn a_growth_hides_nothing_from_a_reader() {
    for (id, stored) in [(1, 7), (2, 7), (1, APART)] {
        check("seqlock: a growth against a reader", Bounds::new(1, 2), move || {
            let shard = Arc::new(one_shard());
            (1..4).for_each(|other| _ = put(&shard, other, if other == id { stored } else { 7 }));
            let before = shard.version(plain(&id));
            let reader_shard = Arc::clone(&shard);
            let reader = thread::spawn(move || value(&reader_shard, id));
            put(&shard, 4, 4);
            assert_eq!(reader.join().unwrap(), Some(stored));
            let expected = [1, 2, 3, 4].map(|other| {
                Some(if other == id {
                    stored
                } else if other == 4 {
                    4
                } else {
                    7
                })
            });
            assert_eq!([1, 2, 3, 4].map(|id| value(&shard, id)), expected);
            assert!(shard.version(plain(&id)) > before);
        });
    }
}

/// If two writers store in one bucket, no put is lost.
#[test]
fn no_put_is_lost() {
    check("seqlock: two writers", Bounds::new(1, 2), || {
        let shard = Arc::new(one_shard());
        put(&shard, 1, 1);
        let writer_shard = Arc::clone(&shard);
        let writer = thread::spawn(move || put(&writer_shard, 2, 2));
        assert!(!put(&shard, 3, 3));
        assert!(put(&shard, 1, 4));
        assert!(!writer.join().unwrap());
        assert_eq!([1, 2, 3].map(|id| value(&shard, id)), [4, 2, 3].map(Some));
        assert_eq!(shard.len(), 3);
    });
}
