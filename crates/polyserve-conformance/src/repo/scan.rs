//! Properties of scans. A repo that cannot scan does not take part.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use polyserve_core::{Entity, MAX_PAGE_BYTES};

use super::RepoSubject;
use super::race::{RACERS, race, stamp, stamped};
use super::store::{Answers, Store, outcome};
use crate::property::Outcome;

/// Runs `property` if the repo can scan. One that cannot answers a scan with an error.
fn run(subject: &RepoSubject, property: impl FnOnce(Store) + Send + 'static) -> Outcome {
    subject.run(|store| {
        if store.repo.can_scan() {
            property(store);
            return Ok(());
        }
        let page = store.repo.scan(None, 1, &mut |_, _| ControlFlow::Continue(()));
        assert!(outcome(store.max_wait, "scan", page).is_err(), "a repo that cannot scan answers a scan");
        Err(String::from("the repo cannot scan"))
    })
}

/// Pages of any size have each entity once, as it was put, and nothing else. A page begins after an id that is not stored, too.
pub fn a_scan_shows_each_entity_once(subject: &RepoSubject) -> Outcome {
    run(subject, |store| {
        assert_eq!(store.scan(10), [], "a scan of an empty repo");
        let ids = (-30..30).chain([i64::MIN, i64::MIN + 1, i64::MAX]);
        let entities: BTreeMap<i64, Entity> = ids.map(|id| (id, stamped(id, id as u64 % 97))).collect();
        entities.values().for_each(|entity| assert_eq!(store.put(entity.clone()), polyserve_core::Put::Created));
        store.put(stamped(1000, 1));
        store.remove(1000);
        let all = store.scan(1000);
        let by_id: BTreeMap<i64, Entity> = all.iter().map(|entity| (entity.id, entity.clone())).collect();
        assert_eq!(by_id, entities, "the entities of a scan");
        assert_eq!(all.len(), entities.len(), "the number of entities in a scan: one is shown twice");
        for limit in [1, 2, 7, entities.len()] {
            assert_eq!(store.scan(limit), all, "a scan in pages of {limit} is that in one page");
        }
        let middle = all[all.len() / 2].id;
        store.remove(middle);
        let (rest, _) = store.page(Some(middle), 1000);
        assert_eq!(rest, all[all.len() / 2 + 1..], "the page after {middle}, which was removed");
    })
}

/// A page ends at its limit, and a repo that shows entities to a visit stops if the visit breaks. A page that a repo answers later has at
/// most [`MAX_PAGE_BYTES`] of entities, or one entity.
pub fn a_page_is_bounded(subject: &RepoSubject) -> Outcome {
    run(subject, |store| {
        for id in 0..20 {
            store.put(stamped(id, 1));
        }
        for limit in [0, 1, 5, 19] {
            let (page, has_more) = store.page(None, limit);
            assert_eq!((page.len(), has_more), (limit, true), "the first page of {limit} of 20");
        }
        let mut visits = 0;
        let page = store.repo.scan(None, 20, &mut |_, _| {
            visits += 1;
            if visits == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let page = store.settle("scan", page);
        let expected = if page.entities.is_empty() { 3 } else { 0 };
        assert_eq!(visits, expected, "the visits of a page if the third one breaks");
        assert!(page.has_more || visits == 0, "a page that was broken off has more");
        if store.answers == Answers::Later {
            let large: Vec<_> = (100..106).map(|id| Entity::new(id, "x".repeat(MAX_PAGE_BYTES * 2 / 5), 1.0)).collect();
            large.iter().for_each(|entity| _ = store.put(entity.clone()));
            let (mut after, mut seen) = (None, 0);
            loop {
                let (page, has_more) = store.page(after, 1000);
                let bytes: usize = page.iter().map(|entity| entity.description.len()).sum();
                assert!(bytes <= MAX_PAGE_BYTES, "a page of {} entities has {bytes} bytes", page.len());
                seen += page.len();
                let Some(last) = page.last().filter(|_| has_more) else { break };
                after = Some(last.id);
            }
            assert_eq!(seen, 26, "the entities of a scan with large ones");
        }
    })
}

/// While other threads put and remove, a scan sees each entity that stays exactly once, and whole.
pub fn a_scan_misses_nothing_that_stays(subject: &RepoSubject) -> Outcome {
    const STAY: i64 = 40;
    run(subject, |store| {
        // Even ids stay, and odd ones come and go.
        for id in 0..STAY {
            store.put(stamped(2 * id, 0));
        }
        race(RACERS, |racer, race| {
            let mut turn = 0;
            loop {
                let goes_on = race.goes_on();
                if racer == 0 {
                    let mut seen = BTreeMap::new();
                    for entity in store.scan(7) {
                        stamp(&entity);
                        *seen.entry(entity.id).or_insert(0) += 1;
                    }
                    let missed: Vec<_> = (0..STAY).map(|id| 2 * id).filter(|id| !seen.contains_key(id)).collect();
                    assert!(missed.is_empty(), "a scan misses {missed:?}, which stayed all the time");
                    let twice: Vec<_> = seen.iter().filter(|(_, times)| **times > 1).collect();
                    assert!(twice.is_empty(), "a scan shows entities several times: {twice:?}");
                } else {
                    let id = (turn * 7 + racer as i64) % STAY;
                    let odd = 2 * id + 1;
                    store.put(stamped(2 * id, turn as u64));
                    if turn % 2 == 0 {
                        store.put(stamped(odd, turn as u64));
                    } else {
                        store.remove(odd);
                    }
                }
                turn += 1;
                if !goes_on {
                    break;
                }
            }
        });
        let stored = store.scan(1000).len() as u64;
        assert_eq!(stored, store.len(), "the entities of a scan after the race, and the length");
    })
}
