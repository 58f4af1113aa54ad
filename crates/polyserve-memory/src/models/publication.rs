//! Models of `copy_on_write`: a shard publishes its chunks and its growth to readers that take no lock.
//!
//! The hash of an id is the id, so a model can choose its bucket. Two entities fill a bucket, so the third id splits bucket
//! 0 into 0 and 1.
//!
//! Not covered: the publication of a segment. It uses std's `OnceLock`, which loom does not instrument.

use std::sync::Arc;

use polyserve_core::sync::model::{Bounds, check};
use polyserve_core::sync::thread;
use polyserve_core::{Condition, Conditional, Entity};

use crate::copy_on_write::shard::Shard;

fn plain(id: &i64) -> u64 {
    *id as u64
}

fn put(shard: &Shard<Entity>, id: i64, value: f64) -> bool {
    let entity = triomphe::Arc::new(Entity::new(id, "it", value));
    shard.put(plain(&id), entity, &Condition::ALWAYS, plain) == Conditional::Done(true)
}

fn remove(shard: &Shard<Entity>, id: i64) -> bool {
    shard.remove(plain(&id), &id, &Condition::ALWAYS) == Conditional::Done(true)
}

fn value(shard: &Shard<Entity>, id: i64) -> Option<f64> {
    let mut seen = None;
    shard.get(plain(&id), &id, |entity| seen = Some(entity.value));
    seen
}

/// A put that splits a bucket races a reader of an entity that moves, and a reader of an entity that stays.
#[test]
fn a_growth_hides_nothing_from_a_reader() {
    check("copy_on_write: a growth against two readers", Bounds::new(3, 6), || {
        let shard = Arc::new(Shard::new());
        put(&shard, 1, 1.0);
        put(&shard, 2, 2.0);
        let reader = |id| {
            let shard = Arc::clone(&shard);
            thread::spawn(move || value(&shard, id))
        };
        let readers = [reader(1), reader(2)];
        put(&shard, 4, 4.0);
        assert_eq!(readers.map(|reader| reader.join().unwrap()), [Some(1.0), Some(2.0)]);
        assert_eq!([1, 2, 4].map(|id| value(&shard, id)), [Some(1.0), Some(2.0), Some(4.0)]);
    });
}

/// Two growths in a row: bucket 2 is split from 0, then 3 from 1. The entity moves with the second.
#[test]
fn two_growths_hide_nothing_from_a_reader() {
    check("copy_on_write: two growths against a reader", Bounds::new(3, 6), || {
        let shard = Arc::new(Shard::new());
        (0..4).for_each(|id| _ = put(&shard, id, 0.0));
        put(&shard, 3, 3.0);
        let reader_shard = Arc::clone(&shard);
        let reader = thread::spawn(move || [value(&reader_shard, 3), value(&reader_shard, 3)]);
        (4..8).for_each(|id| _ = put(&shard, id, 0.0));
        assert_eq!(reader.join().unwrap(), [Some(3.0), Some(3.0)]);
    });
}

/// A reader that reads twice never sees the older value last. A thread that observes that a put has returned sees the put.
#[test]
fn reads_do_not_go_back() {
    check("copy_on_write: puts against a reader that reads twice", Bounds::new(3, 6), || {
        let shard = Arc::new(Shard::new());
        put(&shard, 1, 0.0);
        let (writer_shard, reader_shard) = (Arc::clone(&shard), Arc::clone(&shard));
        let writer = thread::spawn(move || {
            put(&writer_shard, 1, 1.0);
            put(&writer_shard, 1, 2.0);
            assert_eq!(value(&writer_shard, 1), Some(2.0), "it does not see its own put");
        });
        let reader = thread::spawn(move || [value(&reader_shard, 1), value(&reader_shard, 1)]);
        let seen = reader.join().unwrap();
        assert!(seen[0].is_some() && seen[0] <= seen[1], "{seen:?}");
        writer.join().unwrap();
        assert_eq!(value(&shard, 1), Some(2.0));
    });
}

/// Writers of one bucket exclude each other. If two puts copy the bucket, neither is lost, even if one of them splits
/// the bucket.
#[test]
fn no_put_is_lost_in_anothers_copy() {
    check("copy_on_write: two writers", Bounds::new(3, 6), || {
        let shard = Arc::new(Shard::new());
        put(&shard, 1, 1.0);
        let writer = |id, value| {
            let shard = Arc::clone(&shard);
            thread::spawn(move || put(&shard, id, value))
        };
        let writers = [writer(2, 2.0), writer(3, 3.0)];
        assert!(remove(&shard, 1));
        assert_eq!(writers.map(|writer| writer.join().unwrap()), [false, false]);
        assert_eq!([1, 2, 3].map(|id| value(&shard, id)), [None, Some(2.0), Some(3.0)]);
        assert_eq!(shard.len(), 2);
    });
}

/// A remove races a put and a reader: the reader sees the entity, or that it is absent, and never the entity after its
/// absence.
#[test]
fn a_removed_entity_is_gone_for_good() {
    check("copy_on_write: a remove against a reader", Bounds::new(3, 6), || {
        let shard = Arc::new(Shard::new());
        put(&shard, 1, 1.0);
        let (reader_shard, remover_shard) = (Arc::clone(&shard), Arc::clone(&shard));
        let reader = thread::spawn(move || [value(&reader_shard, 1), value(&reader_shard, 1)]);
        let remover = thread::spawn(move || remove(&remover_shard, 1));
        put(&shard, 2, 2.0);
        assert!(remover.join().unwrap());
        let seen = reader.join().unwrap();
        assert!(seen != [None, Some(1.0)], "it came back");
        assert_eq!([value(&shard, 1), value(&shard, 2)], [None, Some(2.0)]);
    });
}
