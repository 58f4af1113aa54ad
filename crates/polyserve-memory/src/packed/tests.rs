use std::collections::HashMap;
use std::hash::BuildHasher;

use polyserve_core::Identifiable;
use serde::{Deserialize, Serialize};

use super::pages::{KEPT, PAGE};
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
    let (mut buffer, whole) = (Vec::new(), entity.clone().expect("it is there"));
    let packed = whole.pack(&mut buffer).then_some(buffer.as_slice());
    let put = shard.put(hash, &whole.id, ToStore { entity, packed }, &Condition::ALWAYS, hash_of)?;
    Ok(put.done().expect("the condition always holds"))
}

/// A shard, and the content that it should have.
struct Tried {
    shard: PackedShard<Entity>,
    state: IdState,
    expected: HashMap<i64, (String, u64)>,
}

impl Tried {
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
                assert_eq!((shown.id, shown.description, shown.value.to_bits()), (id, description.as_str(), *value));
            });
        }
        let packed = self.expected.values().filter(|(description, _)| description.len() <= LONGEST_COPIED);
        let whole = self.expected.len() - packed.clone().count();
        // At most twice the size of each record, as many dead bytes, and the unused end of each page.
        let needed: usize = packed.map(|(description, _)| 4 + 2 * (16 + description.len().next_multiple_of(4))).sum();
        let pages = self.shard.pages.check();
        assert!(pages <= whole + 1 + needed * 2 / (PAGE - LONGEST_COPIED - 20) + 1, "{pages} pages for {needed} bytes");
    }
}

#[test]
fn a_shard_agrees_with_a_map() {
    // The maximum length, the number of ids, and the number of puts among a hundred operations.
    for (longest, ids, puts) in
        [(30, 3000, 60), (30, 3000, 40), (LONGEST_COPIED as u64, 200, 60), (3 * LONGEST_COPIED as u64, 100, 70)]
    {
        let mut random = Random(longest + puts);
        let mut tried = Tried::new(Pages::default());
        for step in 0..20_000 {
            let id = random.below(ids) as i64 - 50;
            if random.below(100) < puts {
                let length = random.below(longest + 1) as usize;
                tried.put(id, length, step as f64 / 8.0).expect("there is room");
            } else {
                tried.remove(id);
            }
            if step % 997 == 0 {
                tried.check();
            }
        }
        tried.check();
        while let Some(&id) = tried.expected.keys().next() {
            assert!(tried.remove(id));
        }
        tried.check();
        assert!(tried.shard.pages.check() <= 1, "a page at most is left of an empty shard");
        assert!(tried.shard.pages.capacity() <= KEPT, "and no room for those that have gone");
    }
}

/// Long descriptions: each is a page.
#[test]
fn a_slab_that_was_large_shrinks() {
    const IDS: i64 = 2000;
    let mut tried = Tried::new(Pages::default());
    let fill = |tried: &mut Tried| (0..IDS).for_each(|id| assert!(tried.put(id, LONGEST_COPIED + 1, 0.0).is_ok()));
    fill(&mut tried);
    assert!(tried.shard.pages.capacity() >= IDS as usize);
    for left in (10..IDS).rev() {
        tried.remove(left);
        let room = tried.shard.pages.capacity();
        assert!(room <= KEPT.max(8 * left as usize + 8), "room for {room} pages, and {left} are there");
    }
    tried.check();
    // Removed in this order, the last page stays until the end. So the slab of pages can shrink only then.
    fill(&mut tried);
    for id in 0..IDS {
        tried.remove(id);
    }
    tried.check();
    assert!(tried.shard.pages.capacity() <= KEPT);
    fill(&mut tried);
    tried.check();
}

/// The size of a shard, as the header states.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_shard_is_256_bytes() {
    assert_eq!(Shards::<PackedShard<Entity>>::EACH, 256);
}

#[test]
fn a_record_that_fits_is_written_over() {
    let mut tried = Tried::new(Pages::default());
    let address = |tried: &Tried| tried.shard.find(tried.state.hash_one(7_i64), &7).expect("it is there");
    tried.put(7, 20, 1.0).unwrap();
    let first = address(&tried);
    for length in [17, 1, 20] {
        tried.put(7, length, 2.0).unwrap();
        tried.check();
        assert_eq!(address(&tried), first, "{length} bytes have room where 20 were, and fill half of it");
    }
    tried.put(7, 0, 3.0).unwrap();
    tried.check();
    assert_ne!(address(&tried), first, "16 bytes leave more than half of 36 unused");
    tried.put(7, 21, 4.0).unwrap();
    tried.put(7, LONGEST_COPIED + 1, 5.0).unwrap();
    tried.check();
    let whole = address(&tried);
    tried.put(7, 10 * LONGEST_COPIED, 6.0).unwrap();
    tried.check();
    assert_eq!(address(&tried), whole, "a long description takes the address of another");
    tried.put(7, 0, 7.0).unwrap();
    tried.check();
}

/// Records die in the open page, in a full page, and in a page that becomes full when another page is moved.
#[test]
fn what_is_dead_is_at_most_half() {
    let mut tried = Tried::new(Pages::default());
    for id in 0..4000 {
        tried.put(id, 15, 0.0).unwrap();
        // Two of three records are removed while their page still takes new ones.
        if id % 3 != 0 {
            tried.remove(id);
        }
    }
    tried.check();
    for id in (0..4000).step_by(6) {
        tried.remove(id);
    }
    tried.check();
    // The length always changes, so every put leaves a dead record.
    for round in 0..20 {
        for id in (3..4000).step_by(6) {
            tried.put(id, 100 + 200 * (round % 2), f64::from(round as i32)).unwrap();
        }
        tried.check();
    }
}

#[test]
fn a_full_shard_reports_it_and_loses_nothing() {
    const PAGES: usize = 10;
    let mut tried = Tried::new(Pages::with_max_pages(PAGES));
    let full = (0..).find(|&id| tried.put(id, 15, 0.0) == Err(Full)).expect("there is no room for all ids");
    assert!(full as usize > (PAGES - 3) * (PAGE / 36), "{full} entities in {PAGES} pages");
    assert!(Full.to_string().contains("full"));
    tried.check();
    assert_eq!(tried.put(full, LONGEST_COPIED + 1, 0.0), Err(Full));
    assert_eq!(tried.put(1, 16, 1.0), Ok(Put::Replaced), "an entity that fits into its old record needs no new page");
    assert_eq!(tried.put(1, 200, 1.0), Err(Full), "one that does not fit is refused, and the old one stays");
    tried.check();
    for round in 0..50_i64 {
        // Empties a full page with ids that are far apart.
        for id in (round % 5..full).step_by(5) {
            tried.remove(id);
        }
        for id in (round % 5..full).step_by(5) {
            let put = tried.put(id, 12 + (round % 8) as usize, 2.0);
            assert!(put == Ok(Put::Created) || put == Err(Full));
        }
        tried.check();
        assert!(tried.shard.pages.check() <= PAGES);
    }
}

/// A removed entity is dropped when no lock is held. A short description was copied, so there is nothing to drop.
#[test]
fn a_long_description_is_dropped_outside_the_locks() {
    let repo = Packed::new();
    let long = |value| Entity::new(7, "d".repeat(LONGEST_COPIED + 1), value);
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
    type View<'a> = &'a Self;
    fn id(&self) -> &String {
        &self.name
    }
    fn view(&self) -> &Self {
        self
    }
    fn from_view(view: &Self) -> Self {
        view.clone()
    }
}

impl Pack for Sparse {}

/// Regression test: such an entity was read back as another one with the same compact form.
#[test]
fn an_entity_that_its_compact_form_changes_is_held_as_it_is() {
    let odd = Sparse { name: "k".into(), a: None, b: 1, c: "\0\0".into() };
    let store = Packed::of::<Sparse>();
    let _ = store.put(odd.clone()).wait().unwrap();
    let mut seen = None;
    let _ = store.get(&odd.name, &mut |shown: &Sparse| seen = Some(shown.clone())).wait().unwrap();
    assert_eq!(seen, Some(odd));
}
