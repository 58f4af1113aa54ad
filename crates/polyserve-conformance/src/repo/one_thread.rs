//! Properties on one thread.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use polyserve_core::{Entity, Put, Removed};

use super::RepoSubject;
use crate::history::mixed;
use crate::property::Outcome;

/// An empty repo shows nothing, removes nothing and counts nothing.
pub fn absent_is_absent(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        for id in [0, 1, -1, i64::MAX, i64::MIN] {
            store.expect(id, None);
            assert_eq!(store.remove(id), Removed::Absent, "remove({id}) of an empty repo");
            store.expect(id, None);
        }
        assert_eq!(store.len(), 0, "the length of an empty repo");
    })
}

/// A get shows exactly the entity that was put.
pub fn get_after_put_shows_it(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        let entities: Vec<_> = (0..16).map(|id| Entity::new(id, format!("number {id}"), id as f64 / 8.0)).collect();
        for entity in &entities {
            store.put(entity.clone());
            store.expect(entity.id, Some(entity));
            store.expect(entity.id, Some(entity)); // looking changes nothing
        }
        entities.iter().for_each(|entity| store.expect(entity.id, Some(entity)));
        store.expect(16, None);
        store.expect(-1, None);
    })
}

/// Many ids are looked up as each by itself: in their order, known or not, and some of them twice.
pub fn many_gets_show_what_is_stored(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        let entity = |id: i64| Entity::new(id, format!("number {id}"), id as f64);
        (0..50).step_by(2).for_each(|id| _ = store.put(entity(id)));
        for ids in [vec![], vec![7], vec![8], (0..50).rev().collect(), vec![4, 4, 5, 4], (-20..20).collect()] {
            let stored = ids.iter().enumerate().filter(|(_, id)| (0..50).contains(*id) && **id % 2 == 0);
            let expected: Vec<_> = stored.map(|(place, &id)| (place, entity(id))).collect();
            assert_eq!(store.get_many(&ids), expected, "get_many({ids:?})");
        }
        // More than a repo holds that answers later.
        let ids: Vec<_> = (0..20_000).map(|place| place % 4).collect();
        let expected: Vec<_> = (0..ids.len()).step_by(2).collect();
        let places: Vec<_> = store.get_many(&ids).into_iter().map(|(place, _)| place).collect();
        assert_eq!(places, expected, "the places of {} ids", ids.len());
    })
}

/// Every i64 is a distinct id, even if two ids are equal in their low 32 bits, equal as f64s, or differ only in sign.
pub fn extreme_ids_are_ids(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        let mut ids = vec![0, i64::MIN, i64::MIN + 1, i64::MAX, i64::MAX - 1];
        for power in 0..63 {
            let id = 1i64 << power;
            ids.extend([id, -id, id ^ 1, !id]);
        }
        ids.sort_unstable();
        ids.dedup();
        let entity = |id: i64| Entity::new(id, format!("it is {id}"), id as f64);
        for &id in &ids {
            assert_eq!(store.put(entity(id)), Put::Created, "the first put of {id}");
        }
        assert_eq!(store.len(), ids.len() as u64, "the length");
        ids.iter().for_each(|&id| store.expect(id, Some(&entity(id))));
        for &id in &ids {
            assert_eq!(store.remove(id), Removed::Removed, "remove({id})");
        }
        assert_eq!(store.len(), 0, "the length once all are removed");
    })
}

/// A description may be any text: empty, quoted, with NULs, in several scripts, a megabyte long.
pub fn odd_descriptions_are_kept(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        let descriptions = [
            String::new(),
            " \t ".into(),
            "\0".into(),
            "before\0after\0".into(),
            r#""quoted", 'quoted', \escaped\, {"json":1}, <tag>&amp; %00 %s ${x}"#.into(),
            "'); DROP TABLE entities; --".into(),
            "line\r\nline\nline\u{2028}line\u{7f}\u{1b}[31m".into(),
            "naïve Ελληνικά 日本語 العربية 🦀🦀 e\u{301} \u{feff}\u{200d}\u{10ffff}".into(),
            "x".repeat(64 * 1024 - 1),
            "é".repeat(1024 * 1024 / 2),
        ];
        let entities: Vec<_> = (0..).zip(descriptions).map(|(id, text)| Entity::new(id, text, 1.0)).collect();
        for entity in &entities {
            store.put(entity.clone());
            store.expect(entity.id, Some(entity));
        }
        entities.iter().for_each(|entity| store.expect(entity.id, Some(entity)));
        for entity in &entities {
            let onto_one = Entity { id: 100, ..entity.clone() };
            store.put(onto_one.clone());
            store.expect(100, Some(&onto_one));
        }
    })
}

/// A value keeps its 64 bits: both zeros, subnormals, infinities, and the payload of a NaN. A repo that stores JSON rejects
/// what JSON does not have, and changes nothing.
pub fn values_keep_their_bits(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        let mut values = vec![0.0, -0.0, 0.1, -0.1, 60.750847, 1e23, 5e-324, f64::MAX, f64::MIN, f64::EPSILON];
        values.extend([f64::MIN_POSITIVE, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -f64::NAN]);
        values.extend([2.0f64.powi(53) - 1.0, 2.0f64.powi(53), 2.0f64.powi(53) + 2.0, 9e15, 1e300, 1.0 / 3.0]);
        values.extend(
            [1u64, 0x000f_ffff_ffff_ffff, 0x8000_0000_0000_0001, 0x7ff8_0000_dead_beef, 0x7ff0_0000_0000_0001]
                .map(f64::from_bits),
        );
        let mut stored = None;
        for value in values {
            let entity = Entity::new(7, "bits", value);
            if store.json && !value.is_finite() {
                store.expect_rejected(entity);
            } else {
                store.put(entity.clone());
                stored = Some(entity);
            }
            store.expect(7, stored.as_ref());
        }
    })
}

/// Any sequence of operations has the answers of a plain map: a put of a new or of a removed id answers `Created`, another one
/// `Replaced`, also if the entity is equal; a remove answers whether the id was there, and the id is absent then; a get shows the
/// whole entity that was put last; the length counts the ids that are there. Other ids do not change.
pub fn agrees_with_a_map(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        const MAX_STEPS: u64 = 4_000;
        let deadline = Instant::now() + Duration::from_secs(1);
        let mut map = HashMap::new();
        for step in 0..MAX_STEPS {
            let random = mixed(step);
            let id = ((random >> 8) % 97).cast_signed() * 64 - 40 * 64;
            match random % 10 {
                0..4 => {
                    // One in four is likely to be equal to the one before, and the others are shorter, longer or empty.
                    let length = (random >> 20) % 4;
                    let entity = Entity::new(id, "text ".repeat(length as usize), length as f64);
                    let existed = map.insert(id, entity.clone()).is_some();
                    let expected = if existed { Put::Replaced } else { Put::Created };
                    assert_eq!(store.put(entity), expected, "put of {id} at step {step}");
                }
                4..6 => {
                    let existed = map.remove(&id).is_some();
                    let expected = if existed { Removed::Removed } else { Removed::Absent };
                    assert_eq!(store.remove(id), expected, "remove({id}) at step {step}");
                }
                6..9 => store.expect(id, map.get(&id)),
                _ => assert_eq!(store.len(), map.len() as u64, "the length at step {step}"),
            }
            if step >= 200 && Instant::now() >= deadline {
                break;
            }
        }
        map.iter().for_each(|(&id, entity)| store.expect(id, Some(entity)));
        assert_eq!(store.len(), map.len() as u64, "the length at the end");
    })
}
