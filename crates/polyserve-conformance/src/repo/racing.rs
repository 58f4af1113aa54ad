//! Properties of racing threads that a history of single operations does not show: versions, many gets, growth and many keys.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use polyserve_core::{Put, Removed};

use super::RepoSubject;
use super::race::{RACERS, race, stamp, stamped};
use super::store::{Answers, Store};
use crate::property::Outcome;

/// As long as an id has the same version, the same entity is stored. A repo that keeps no versions does not take part.
pub fn a_version_names_what_is_stored(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        let version = |id: i64| store.repo.version(&id);
        store.put(stamped(7, 0));
        let first = version(7).ok_or("the repo keeps no versions")?;
        assert_eq!(version(7), Some(first), "the version without a write");
        store.get(7);
        assert_eq!(version(7), Some(first), "the version after a get");
        store.remove(7);
        let removed = version(7);
        assert_ne!(removed, Some(first), "the version after a remove");
        store.put(stamped(7, 0));
        assert!(version(7) != Some(first) && version(7) != removed, "the version after the same entity was put again");
        let latest = AtomicU64::new(0);
        race(RACERS, |racer, race| {
            for turn in race.turns(1..20_001) {
                if racer == 0 {
                    store.put(stamped(7, turn));
                    latest.store(turn, SeqCst);
                } else if let Some(version) = store.repo.version(&7) {
                    let seen = store.get(7).map_or(0, |entity| stamp(&entity));
                    let again = store.get(7).map_or(0, |entity| stamp(&entity));
                    let returned = latest.load(SeqCst);
                    if store.repo.version(&7) == Some(version) {
                        assert_eq!(seen, again, "two gets at version {version}");
                        assert!(returned <= seen, "put {returned} has returned, and the version is that of {seen}");
                    }
                }
            }
            race.end();
        });
        Ok::<(), String>(())
    })
}

/// Many gets show whole entities while other threads put and remove. Each shows a put that has returned before, or a later one, and known
/// ids stay. If an id is there several times, a later place shows no earlier put, as that many gets one after the other would.
pub fn many_gets_race_with_writes(subject: &RepoSubject) -> Outcome {
    const WRITTEN: i64 = -1;
    const KNOWN: Range<i64> = 0..12;
    subject.run(|store| {
        KNOWN.for_each(|id| _ = store.put(stamped(id, 1)));
        store.put(stamped(WRITTEN, 0));
        // The written id is first and last, and twice between others. Those from 100 on come and go.
        let groups = [-1..0, 0..4, -1..0, 4..12, -1..0, 100..104, -1..0];
        let ids: Vec<i64> = groups.into_iter().flatten().collect();
        let latest = AtomicU64::new(0);
        race(RACERS, |racer, race| {
            for turn in race.turns(1..20_001) {
                let changed = turn as i64 / 2;
                match racer {
                    0 => {
                        store.put(stamped(WRITTEN, turn));
                        latest.store(turn, SeqCst);
                    }
                    // The store grows too.
                    1 if turn % 2 == 0 => _ = store.put(stamped(100 + changed, turn)),
                    1 => _ = store.remove(100 + changed % 4),
                    _ => check_many(&store, &ids, KNOWN, WRITTEN, latest.load(SeqCst)),
                }
            }
            race.end();
        });
    })
}

/// Looks up many ids. Those in `known` stay with the stamp 1, and `written` has at least the stamp `bound`.
fn check_many(store: &Store, ids: &[i64], mut known: Range<i64>, written: i64, bound: u64) {
    let seen = store.get_many(ids);
    let stamps: Vec<(i64, u64)> = seen.iter().map(|(_, entity)| (entity.id, stamp(entity))).collect();
    let stamps_of = |id: i64| stamps.iter().filter(move |(of, _)| *of == id).map(|(_, stamp)| *stamp);
    assert!(known.all(|id| stamps_of(id).eq([1])), "many gets do not show each id that stays once: {stamps:?}");
    let written_stamps: Vec<_> = stamps_of(written).collect();
    let places = ids.iter().filter(|id| **id == written).count();
    assert_eq!(written_stamps.len(), places, "many gets miss an id that stays: {written_stamps:?}");
    let is_recent = written_stamps.iter().all(|stamp| *stamp >= bound);
    assert!(is_recent, "put {bound} has returned, and then many gets show {written_stamps:?}");
    // Answers that come later are those of gets that overlap.
    let is_in_order = written_stamps.is_sorted() || store.answers != Answers::Now;
    assert!(is_in_order, "many gets go backwards: {written_stamps:?}");
}

/// Known ids stay while new ids are put.
pub fn a_growing_store_loses_nothing(subject: &RepoSubject) -> Outcome {
    const KNOWN_IDS: i64 = 16;
    subject.run(|store| {
        (0..KNOWN_IDS).for_each(|id| _ = store.put(stamped(id, 1)));
        let added = race(RACERS, |racer, race| {
            let mut added = 0;
            for turn in race.turns(0..5_000).map(|turn| turn as i64) {
                if racer < 2 {
                    store.put(stamped(KNOWN_IDS + turn * 2 + racer as i64, 2));
                    added += 1;
                } else {
                    store.expect(turn % KNOWN_IDS, Some(&stamped(turn % KNOWN_IDS, 1)));
                }
            }
            added
        });
        (0..KNOWN_IDS).for_each(|id| store.expect(id, Some(&stamped(id, 1))));
        assert_eq!(store.len(), KNOWN_IDS as u64 + added.iter().sum::<u64>(), "the length of a store that has grown");
    })
}

/// Many keys that many threads put are all visible on other threads. After half of them are removed, the other half is still
/// visible.
pub fn many_keys(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        let keys = store.keys;
        // An odd factor scatters the ids over all of i64 without collisions.
        let id = |key: usize| (key as i64).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64);
        let keys_of = |racer: usize| (racer..keys).step_by(RACERS);
        race(RACERS, |racer, _| {
            for key in keys_of(racer) {
                assert_eq!(store.put(stamped(id(key), key as u64)), Put::Created, "the first put of {}", id(key));
            }
        });
        assert_eq!(store.len(), keys as u64, "the length with many keys");
        race(RACERS, |racer, _| {
            for key in keys_of((racer + 1) % RACERS) {
                store.expect(id(key), Some(&stamped(id(key), key as u64)));
                if key % 2 == 0 {
                    assert_eq!(store.remove(id(key)), Removed::Removed, "the remove of {}", id(key));
                }
            }
        });
        assert_eq!(store.len(), keys as u64 / 2, "the length once half the keys are removed");
        (0..keys).for_each(|key| {
            let entity = stamped(id(key), key as u64);
            store.expect(id(key), Some(&entity).filter(|_| key % 2 == 1));
        });
    })
}
