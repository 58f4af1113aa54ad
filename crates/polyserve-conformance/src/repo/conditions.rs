//! Properties of conditional writes.

use polyserve_core::{Condition, Conditional, ETag, Entity, Put, Removed, Tags};

use super::RepoSubject;
use super::race::{RACERS, lockstep, race, stamp, stamped};
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

/// Of racing puts that require an absent id, one is done and the others are refused.
pub fn racing_creations_create_once(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        let absent = Condition::absent();
        let steps = lockstep(RACERS, 500, |racer, step| store.put_if(stamped(step as i64, racer as u64), &absent));
        for (id, puts) in steps.iter().enumerate() {
            let winner = puts.iter().position(|put| *put == Conditional::Done(Put::Created));
            let done = puts.iter().filter(|put| **put != Conditional::Refused).count();
            assert_eq!(done, 1, "how many of {RACERS} racing creations of {id} were done: {puts:?}");
            let stored = store.get(id as i64).map(|entity| stamp(&entity) as usize);
            assert_eq!(stored, winner, "the stored entity of {id}: {puts:?}");
        }
        assert_eq!(store.len(), steps.len() as u64, "the length after racing creations");
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

/// A remove that names a tag never takes out an entity that a racing put has stored meanwhile.
pub fn a_conditional_remove_takes_what_was_seen(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        let (old, new) = (stamped(7, 1), stamped(7, 2));
        let condition = Condition::matches(tag(&old));
        // Three steps: the old entity is stored; a put races with removes of the old entity; what is left is read.
        let steps = lockstep(RACERS, 600, |racer, step| match (step % 3, racer) {
            (0, 0) => {
                store.put(old.clone());
                None
            }
            (1, 0) => {
                store.put(new.clone());
                None
            }
            (1, _) => {
                store.remove_if(7, &condition);
                None
            }
            (2, 0) => Some(store.get(7).map(|entity| stamp(&entity))),
            _ => None,
        });
        for (step, seen) in steps.iter().enumerate().skip(2).step_by(3) {
            assert_eq!(seen[0], Some(Some(2)), "what is stored after step {step}: a remove took the new entity");
        }
    })
}
