use std::collections::HashMap;
use std::hash::BuildHasher;

use polyserve_core::{EntityRepoExt, Identifiable};
use serde::{Deserialize, Serialize};

use super::pages::{KEPT_CAPACITY, PAGE};
use super::*;
use crate::hash::IdState;
use crate::hash::tests::Random;

/// Stores an entity, packed as [`Packed`] does it.
fn put(
    shard: &mut PackedShard<Entity>,
    hash: u64,
    entity: &mut Option<Entity>,
    hash_of: impl Fn(&i64) -> u64,
) -> Result<(Put, Option<Entity>), Full> {
    let original = entity.clone().expect("it is there");
    let buffer = PackBuffer::of(&original);
    let packed = buffer.packed(MAX_COPIED);
    let put = shard.put(hash, &original.id, ToStore { entity, packed }, &Condition::ALWAYS, hash_of)?;
    Ok(put.done().expect("the condition always holds"))
}

/// A shard, and the content that it should have.
struct Fixture {
    shard: PackedShard<Entity>,
    state: IdState,
    expected: HashMap<i64, (String, u64)>,
}

impl Fixture {
    fn new(pages: Pages<Entity>) -> Self {
        Self {
            shard: PackedShard { pages, ..PackedShard::default() },
            state: IdState::default(),
            expected: HashMap::new(),
        }
    }

    fn put(&mut self, id: i64, length: usize, value: f64) -> Result<Put, Full> {
        let description = "ä🦀x".repeat(length / 7) + &"d".repeat(length % 7);
        let mut entity = Some(Entity::new(id, description.clone(), value));
        let hash_of = |id: &i64| self.state.hash_one(id);
        let (put, _) = put(&mut self.shard, self.state.hash_one(id), &mut entity, hash_of)?;
        let replaced = self.expected.insert(id, (description, value.to_bits()));
        assert_eq!(put, if replaced.is_some() { Put::Replaced } else { Put::Created });
        Ok(put)
    }

    fn remove(&mut self, id: i64) -> bool {
        let removed = self.shard.remove(self.state.hash_one(id), &id, &Condition::ALWAYS, |id| self.state.hash_one(id));
        let (removed, _) = removed.done().expect("the condition always holds");
        assert_eq!(removed == Removed::Removed, self.expected.remove(&id).is_some());
        removed == Removed::Removed
    }

    /// Checks that each entity is stored correctly, and that no more memory is used than the header states.
    fn check(&self) {
        assert_eq!(self.shard.addresses.len(), self.expected.len());
        for (&id, (description, value)) in &self.expected {
            let address = self.shard.find(self.state.hash_one(id), &id).expect("it is there");
            self.shard.pages.show(address, |shown| {
                let shown = shown.fields().expect("it is the published entity");
                assert_eq!((shown.id, shown.description, shown.value.to_bits()), (id, description.as_str(), *value));
            });
        }
        let packed = self.expected.values().filter(|(description, _)| description.len() <= LONGEST_PACKED);
        let large = self.expected.len() - packed.clone().count();
        // At most twice the size of each record, as many dead bytes, and the unused end of each page.
        let needed: usize = packed.map(|(description, _)| 4 + 2 * (16 + description.len().next_multiple_of(4))).sum();
        let pages = self.shard.pages.check();
        assert!(pages <= large + 1 + needed * 2 / (PAGE - LONGEST_PACKED - 20) + 1, "{pages} pages for {needed} bytes");
    }
}

#[test]
fn a_shard_agrees_with_a_map() {
    // The maximum length, the number of ids, and the number of puts among a hundred operations.
    for (max_length, ids, puts) in
        [(30, 3000, 60), (30, 3000, 40), (LONGEST_PACKED as u64, 200, 60), (3 * LONGEST_PACKED as u64, 100, 70)]
    {
        let mut random = Random(max_length + puts);
        let mut tested = Fixture::new(Pages::default());
        for step in 0..20_000 {
            let id = random.below(ids) as i64 - 50;
            if random.below(100) < puts {
                let length = random.below(max_length + 1) as usize;
                tested.put(id, length, step as f64 / 8.0).expect("there is room");
            } else {
                tested.remove(id);
            }
            if step % 997 == 0 {
                tested.check();
            }
        }
        tested.check();
        while let Some(&id) = tested.expected.keys().next() {
            assert!(tested.remove(id));
        }
        tested.check();
        assert!(tested.shard.pages.check() <= 1, "a page at most is left of an empty shard");
        assert!(tested.shard.pages.capacity() <= KEPT_CAPACITY, "and no room for those that have gone");
    }
}

/// Long descriptions: each is a page.
#[test]
fn a_slab_that_was_large_shrinks() {
    const IDS: i64 = 2000;
    let mut tested = Fixture::new(Pages::default());
    let fill = |tested: &mut Fixture| (0..IDS).for_each(|id| assert!(tested.put(id, LONGEST_PACKED + 1, 0.0).is_ok()));
    fill(&mut tested);
    assert!(tested.shard.pages.capacity() >= IDS as usize);
    for id in (10..IDS).rev() {
        tested.remove(id);
        let capacity = tested.shard.pages.capacity();
        assert!(capacity <= KEPT_CAPACITY.max(8 * id as usize + 8), "room for {capacity} pages, and {id} are there");
    }
    tested.check();
    // Removed in this order, the last page stays until the end. So the slab of pages can shrink only then.
    fill(&mut tested);
    for id in 0..IDS {
        tested.remove(id);
    }
    tested.check();
    assert!(tested.shard.pages.capacity() <= KEPT_CAPACITY);
    fill(&mut tested);
    tested.check();
}

/// The size of a shard, as the header states.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_shard_is_256_bytes() {
    assert_eq!(Shards::<PackedShard<Entity>>::SHARD_SIZE, 256);
}

#[test]
fn a_record_that_fits_is_written_over() {
    let mut tested = Fixture::new(Pages::default());
    let address = |tested: &Fixture| tested.shard.find(tested.state.hash_one(7_i64), &7).expect("it is there");
    tested.put(7, 20, 1.0).unwrap();
    let first = address(&tested);
    for length in [17, 1, 20] {
        tested.put(7, length, 2.0).unwrap();
        tested.check();
        assert_eq!(address(&tested), first, "{length} bytes have room where 20 were, and fill half of it");
    }
    tested.put(7, 0, 3.0).unwrap();
    tested.check();
    assert_ne!(address(&tested), first, "16 bytes leave more than half of 36 unused");
    tested.put(7, 21, 4.0).unwrap();
    tested.put(7, LONGEST_PACKED + 1, 5.0).unwrap();
    tested.check();
    let first = address(&tested);
    tested.put(7, 10 * LONGEST_PACKED, 6.0).unwrap();
    tested.check();
    assert_eq!(address(&tested), first, "a long description takes the address of another");
    tested.put(7, 0, 7.0).unwrap();
    tested.check();
}

/// Records die in the open page, in a full page, and in a page that becomes full when another page is moved.
#[test]
fn what_is_dead_is_at_most_half() {
    let mut tested = Fixture::new(Pages::default());
    for id in 0..4000 {
        tested.put(id, 15, 0.0).unwrap();
        // Two of three records are removed while their page still takes new ones.
        if id % 3 != 0 {
            tested.remove(id);
        }
    }
    tested.check();
    for id in (0..4000).step_by(6) {
        tested.remove(id);
    }
    tested.check();
    // The length always changes, so every put leaves a dead record.
    for round in 0..20 {
        for id in (3..4000).step_by(6) {
            tested.put(id, 100 + 200 * (round % 2), f64::from(round as i32)).unwrap();
        }
        tested.check();
    }
}

#[test]
fn a_full_shard_reports_it_and_loses_nothing() {
    const PAGES: usize = 10;
    let mut tested = Fixture::new(Pages::with_max_pages(PAGES));
    let full = (0..).find(|&id| tested.put(id, 15, 0.0) == Err(Full)).expect("there is no room for all ids");
    assert!(full as usize > (PAGES - 3) * (PAGE / 36), "{full} entities in {PAGES} pages");
    assert!(Full.to_string().contains("full"));
    tested.check();
    assert_eq!(tested.put(full, LONGEST_PACKED + 1, 0.0), Err(Full));
    assert_eq!(tested.put(1, 16, 1.0), Ok(Put::Replaced), "an entity that fits into its old record needs no new page");
    assert_eq!(tested.put(1, 200, 1.0), Err(Full), "one that does not fit is refused, and the old one stays");
    tested.check();
    for round in 0..50_i64 {
        // Empties a full page with ids that are far apart.
        for id in (round % 5..full).step_by(5) {
            tested.remove(id);
        }
        for id in (round % 5..full).step_by(5) {
            let put = tested.put(id, 12 + (round % 8) as usize, 2.0);
            assert!(put == Ok(Put::Created) || put == Err(Full));
        }
        tested.check();
        assert!(tested.shard.pages.check() <= PAGES);
    }
}

/// A removed entity is dropped when no lock is held. A short description was copied, so there is nothing to drop.
#[test]
fn a_long_description_is_dropped_outside_the_locks() {
    let repo = Packed::new();
    let long = |value| Entity::new(7, "d".repeat(LONGEST_PACKED + 1), value);
    let stored = |entity: Entity| {
        let (hash, shard) = repo.shards.of(&7_i64);
        let mut entity = Some(entity);
        let done = put(&mut shard.write(), hash, &mut entity, |id| repo.shards.hash(id));
        assert!(repo.shards.iter().all(|shard| shard.try_write().is_some()));
        (done.expect("there is room"), entity)
    };
    assert_eq!(stored(long(1.0)).0, (Put::Created, None));
    assert_eq!(stored(long(2.0)), ((Put::Replaced, None), Some(long(1.0))));
    let short = Entity::new(7, "short", 3.0);
    assert_eq!(stored(short.clone()), ((Put::Replaced, Some(long(2.0))), Some(short.clone())));
    assert_eq!(stored(long(4.0)).0, (Put::Replaced, None));
    let (hash, shard) = repo.shards.of(&7_i64);
    let removed = shard.write().remove(hash, &7, &Condition::ALWAYS, |id| repo.shards.hash(id));
    assert_eq!(removed, Conditional::Done((Removed::Removed, Some(long(4.0)))));
}

/// An entity with a field that is left out if it is empty. The compact form does not show that a field was left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Sparse {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    a: Option<u8>,
    b: u8,
    c: String,
}

impl Identifiable for Sparse {
    type Id = String;
    fn id(&self) -> &String {
        &self.name
    }
}

/// Regression test: such an entity was read back as another one with the same compact form.
#[test]
fn an_entity_that_its_compact_form_changes_is_held_as_it_is() {
    let odd = Sparse { name: "k".into(), a: None, b: 1, c: "\0\0".into() };
    let store = Packed::of::<Sparse>();
    let _ = store.put(odd.clone()).wait().unwrap();
    assert_eq!(store.fetch(&odd.name).wait().unwrap(), Some(odd));
}
