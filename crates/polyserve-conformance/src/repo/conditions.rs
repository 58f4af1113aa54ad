//! Properties of conditional writes.

use polyserve_core::{Condition, Conditional, ETag, Entity, Put, Removed, Tags};

use super::RepoSubject;
use super::race::{RACERS, race, stamp, stamped};
use super::store::Store;
use crate::property::Outcome;

fn tag(entity: &Entity) -> ETag {
    ETag::of_entity(entity).expect("an entity has a JSON form")
}

fn list(tags: &[ETag]) -> Option<Tags> {
    Some(Tags::List(tags.to_vec()))
}

/// A put is done if and only if its condition holds: for an absent id, for the entity that a tag names, and for another one.
pub fn a_condition_decides_a_write(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        let (first, second) = (Entity::new(1, "first", 1.0), Entity::new(1, "second", 2.0));
        let (first_tag, second_tag) = (tag(&first), tag(&second));
        for (condition, if_absent, if_first) in [
            (Condition::ALWAYS, true, true),
            (Condition::absent(), true, false),
            (Condition::present(), false, true),
            (Condition::matches(first_tag), false, true),
            (Condition::matches(second_tag), false, false),
            (Condition::new(list(&[second_tag, first_tag]), None), false, true),
            (Condition::new(list(&[]), None), false, false),
            (Condition::new(None, list(&[first_tag, second_tag])), true, false),
            (Condition::new(None, list(&[second_tag])), true, true),
            (Condition::new(Some(Tags::Any), list(&[first_tag])), false, false),
        ] {
            store.remove(1);
            let put = store.put_if(second.clone(), &condition);
            let expected = if if_absent { Conditional::Done(Put::Created) } else { Conditional::Refused };
            assert_eq!(put, expected, "a put of an absent id under {condition:?}");
            store.expect(1, if_absent.then_some(&second));
            store.put(first.clone());
            let put = store.put_if(second.clone(), &condition);
            let expected = if if_first { Conditional::Done(Put::Replaced) } else { Conditional::Refused };
            assert_eq!(put, expected, "a put over another entity under {condition:?}");
            store.expect(1, Some(if if_first { &second } else { &first }));
        }
    })
}

/// A refused write changes neither the entity nor the count. A remove of an absent id is not refused.
pub fn a_refused_write_changes_nothing(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        let (first, other) = (Entity::new(1, "first", 1.0), Entity::new(1, "other", 2.0));
        store.put(first.clone());
        for condition in
            [Condition::absent(), Condition::matches(tag(&other)), Condition::new(None, list(&[tag(&first)]))]
        {
            assert_eq!(store.put_if(other.clone(), &condition), Conditional::Refused, "{condition:?}");
            assert_eq!(store.remove_if(1, &condition), Conditional::Refused, "{condition:?}");
            store.expect(1, Some(&first));
            assert_eq!(store.len(), 1);
            assert_eq!(store.remove_if(2, &condition), Conditional::Done(Removed::Absent), "{condition:?}");
        }
        assert_eq!(store.put_if(Entity::new(2, "new", 1.0), &Condition::present()), Conditional::Refused);
        store.expect(2, None);
        assert_eq!(store.len(), 1);
        assert_eq!(store.remove_if(1, &Condition::matches(tag(&first))), Conditional::Done(Removed::Removed));
        store.expect(1, None);
    })
}

/// Adds one to the counter of `id` if it is still as it was read. Returns whether it was.
fn incremented(store: &Store, id: i64) -> bool {
    let read = store.get(id).expect("the counter is stored");
    let next = stamped(id, stamp(&read) + 1);
    store.put_if(next, &Condition::matches(tag(&read))) == Conditional::Done(Put::Replaced)
}

/// Threads add to one counter: each reads it, and puts the next number if nothing has changed. The counter ends as the
/// number of puts that were done.
pub fn no_increment_is_lost(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        store.put(stamped(7, 0));
        let done = race(RACERS, |_, race| race.turns(0..500).map(|_| u64::from(incremented(&store, 7))).sum::<u64>());
        let counter = stamp(&store.get(7).expect("the counter is stored"));
        assert_eq!(counter, done.iter().sum::<u64>(), "the counter, after these increments by each thread: {done:?}");
    })
}
