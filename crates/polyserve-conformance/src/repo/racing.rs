//! Properties of racing threads.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use polyserve_core::{Put, Removed};

use super::RepoSubject;
use super::race::{RACERS, lockstep, race, stamp, stamped};
use super::store::{Answers, Store};
use crate::property::Outcome;

/// Of racing first puts of an id, one answers `Created` and the others answer `Replaced`.
pub fn racing_first_puts_create_exactly_one(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        let steps = lockstep(RACERS, 2_000, |racer, step| store.put(stamped(step as i64, racer as u64)));
        for (id, puts) in steps.iter().enumerate() {
            let created = puts.iter().filter(|put| **put == Put::Created).count();
            assert_eq!(created, 1, "how many of {RACERS} racing first puts of {id} said Created: {puts:?}");
            let stored = store.get(id as i64).map(|entity| stamp(&entity));
            assert!(stored.is_some_and(|racer| racer < RACERS as u64), "racing first puts of {id} left {stored:?}");
        }
        assert_eq!(store.len(), steps.len() as u64, "the length after racing first puts");
    })
}

/// After racing puts of one id, every reader sees the same entity, which is one of those that were put.
pub fn racing_puts_leave_one_of_them(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        // Puts and reads alternate: step 2n puts, and step 2n + 1 reads the result.
        let steps = lockstep(RACERS, 2_000, |racer, step| {
            let id = (step / 2 % 3) as i64;
            if step % 2 == 0 {
                store.put(stamped(id, (step * RACERS + racer) as u64));
                return None;
            }
            Some(store.get(id).map(|entity| stamp(&entity)))
        });
        for (step, seen) in steps.iter().enumerate().skip(1).step_by(2) {
            let put = ((step - 1) * RACERS) as u64..(step * RACERS) as u64;
            assert!(seen.iter().all(|stamp| *stamp == seen[0]), "readers disagree after racing puts: {seen:?}");
            let one_of_them = seen[0].flatten().is_some_and(|stamp| put.contains(&stamp));
            assert!(one_of_them, "racing puts of {put:?} left {:?}", seen[0]);
        }
    })
}

/// The entity that a thread put stays until the thread puts again, whatever other threads do to other ids.
pub fn no_lost_update(subject: &RepoSubject) -> Outcome {
    const IDS_PER_RACER: i64 = 4;
    subject.run(|store| {
        let last = race(RACERS, |racer, race| {
            let mine = |n: i64| n * RACERS as i64 + racer as i64; // neighbours belong to different threads
            let mut last = 0;
            for turn in race.turns(1..1_001) {
                for n in 0..IDS_PER_RACER {
                    store.put(stamped(mine(n), turn));
                    store.expect(mine(n), Some(&stamped(mine(n), turn)));
                }
                (0..IDS_PER_RACER).for_each(|n| store.expect(mine(n), Some(&stamped(mine(n), turn))));
                last = turn;
            }
            last
        });
        for (racer, last) in last.into_iter().enumerate() {
            for n in 0..IDS_PER_RACER {
                let id = n * RACERS as i64 + racer as i64;
                store.expect(id, Some(&stamped(id, last)));
            }
        }
        assert_eq!(store.len(), RACERS as u64 * IDS_PER_RACER as u64, "the length after all that");
    })
}

/// Once a put has returned, every reader on every thread sees it or a later one.
pub fn no_stale_read(subject: &RepoSubject) -> Outcome {
    subject.run(|store| follow(&store, Floor::Returned))
}

/// Once a reader has seen a put, no reader on any thread sees an earlier one, also during later puts.
pub fn reads_never_go_backwards(subject: &RepoSubject) -> Outcome {
    subject.run(|store| follow(&store, Floor::Seen))
}

/// The put that no reader may fall behind: the last one that has returned, or the latest one that was seen.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Floor {
    Returned,
    Seen,
}

/// One thread puts increasing stamps, and the others read them.
fn follow(store: &Store, floor: Floor) {
    store.put(stamped(7, 0));
    let latest = AtomicU64::new(0);
    race(RACERS, |racer, race| {
        if racer == 0 {
            for turn in race.turns(1..20_001) {
                store.put(stamped(7, turn));
                if floor == Floor::Returned {
                    latest.store(turn, SeqCst);
                }
            }
            race.end();
        }
        // Every thread reads once more after the end, also the writer, so that this read comes after the last put.
        loop {
            let go_on = race.goes_on();
            let bound = latest.load(SeqCst);
            let seen = store.get(7).map(|entity| stamp(&entity));
            assert!(seen.is_some_and(|seen| seen >= bound), "{floor:?} was {bound}, and then get shows {seen:?}");
            if floor == Floor::Seen {
                latest.fetch_max(seen.unwrap_or_default(), SeqCst);
            }
            if !go_on {
                break;
            }
        }
    });
}

/// As long as an id has the same version, the same entity is stored. A repo that keeps no versions does not take part.
pub fn a_version_names_what_is_stored(subject: &RepoSubject) -> Outcome {
    subject.run_to_outcome(|store| {
        let version = |id: i64| store.repo.version(&id);
        store.put(stamped(7, 0));
        let Some(first) = version(7) else {
            return Outcome::NotRun("the repo keeps no versions".into());
        };
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
        Outcome::Held
    })
}

/// A read shows one entity that was put, never parts of two, while its id is put, removed and put again.
pub fn no_torn_read(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        race(RACERS, |racer, race| {
            for turn in race.turns(0..20_000) {
                match racer {
                    0 if turn % 16 == 15 => _ = store.remove(7),
                    0 | 1 => _ = store.put(stamped(7, turn * 2 + racer as u64)),
                    _ => _ = store.get(7).map(|entity| stamp(&entity)),
                }
            }
        });
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

/// Creations minus removals is the number of entities. Between two steps of racing puts and removes, this is 0 or 1 for each
/// id, and the length in total.
pub fn removes_and_puts_balance(subject: &RepoSubject) -> Outcome {
    const IDS: usize = 3;
    subject.run(|store| {
        let steps = lockstep(RACERS, 3_000, |racer, step| {
            let id = (step % IDS) as i64;
            if (racer + step / IDS).is_multiple_of(2) {
                i64::from(store.put(stamped(id, step as u64)) == Put::Created)
            } else {
                -i64::from(store.remove(id) == Removed::Removed)
            }
        });
        let mut counts = [0; IDS];
        for (step, did) in steps.iter().enumerate() {
            let count = &mut counts[step % IDS];
            *count += did.iter().sum::<i64>();
            assert!((0..=1).contains(count), "{count} of one id after a step that did {did:?}");
        }
        for (id, count) in (0..).zip(counts) {
            assert_eq!(
                i64::from(store.get(id).is_some()),
                count,
                "whether {id} is there, by its creations and removals"
            );
        }
        assert_eq!(store.len(), counts.iter().sum::<i64>() as u64, "the length, by creations and removals");
    })
}

/// A put that races with a remove comes before it or after it. Before: it replaced an entity, and the id is absent.
/// After: it created one, and the id is there.
pub fn put_is_not_lost_to_a_racing_remove(subject: &RepoSubject) -> Outcome {
    #[derive(Debug, PartialEq)]
    enum RacedStep {
        Put(Put),
        Removed(Removed),
        Saw(Option<u64>),
    }
    subject.run(|store| {
        // Each round has three steps: one thread stores an entity; one removes it while the other puts; both read.
        let steps = lockstep(2, 6_000, |racer, step| {
            let id = (step / 3 % 5) as i64;
            match (step % 3, racer) {
                (0, 0) => RacedStep::Put(store.put(stamped(id, 0))),
                (1, 0) => RacedStep::Removed(store.remove(id)),
                (1, 1) => RacedStep::Put(store.put(stamped(id, step as u64))),
                _ => RacedStep::Saw(store.get(id).map(|entity| stamp(&entity))),
            }
        });
        for (round, steps) in steps.chunks_exact(3).enumerate() {
            let step = round as u64 * 3 + 1;
            assert_eq!(
                steps[1][0],
                RacedStep::Removed(Removed::Removed),
                "round {round}: the remove of an id that is there"
            );
            let expected = match steps[1][1] {
                RacedStep::Put(Put::Created) => RacedStep::Saw(Some(step)),
                _ => RacedStep::Saw(None),
            };
            let [first, second] = &steps[2][..] else { unreachable!("two racers") };
            assert!(
                *first == expected && *second == expected,
                "round {round}: {:?} left {first:?} and {second:?}",
                steps[1]
            );
        }
    })
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
