//! A repo under test, as the properties use it: every wait for an answer is bounded, and errors are failures.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyserve_core::{Condition, Conditional, Entity, EntityRepo, Lookup, Put, Removed, RepoAnswer, RepoError, Visit};

/// When a repo answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answers {
    Now,
    Later,
    Either,
}

pub(super) struct Store {
    pub(super) repo: Arc<dyn EntityRepo>,
    pub(super) answers: Answers,
    pub(super) max_wait: Duration,
    pub(super) keys: usize,
    pub(super) json: bool,
}

impl Store {
    /// The entity of `id`, whether a visit shows it or the answer returns it.
    pub(super) fn get(&self, id: i64) -> Option<Entity> {
        let mut seen = None;
        let answer = self.repo.get(&id, Visit::new(&mut |entity| seen = Some(entity.to_owned())));
        let found = match self.settle("get", answer) {
            Lookup::Absent => None,
            Lookup::Visited(_) => Some(seen.expect("get answers Visited only after the visit")),
            Lookup::Fetched(entity) => Some(entity),
        };
        if let Some(entity) = &found {
            assert_eq!(entity.id, id, "get({id}) showed another id");
        }
        found
    }

    /// The stored entities of `ids`, each with its place there, in the order of the places.
    pub(super) fn get_many(&self, ids: &[i64]) -> Vec<(usize, Entity)> {
        let mut seen = Vec::new();
        let answer = self.repo.get_many(ids, &mut |place, entity| seen.push((place, entity.to_owned())));
        let visited: Vec<usize> = seen.iter().map(|(place, _)| *place).collect();
        assert!(visited.is_sorted(), "the visits of many gets are in the order of the ids: {visited:?}");
        seen.extend(self.settle("get_many", answer));
        seen.sort_by_key(|(place, _)| *place);
        for (place, entity) in &seen {
            assert_eq!(ids.get(*place), Some(&entity.id), "many gets show {} at the place {place}", entity.id);
        }
        seen
    }

    pub(super) fn put(&self, entity: Entity) -> Put {
        self.settle("put", self.repo.put(entity))
    }

    pub(super) fn remove(&self, id: i64) -> Removed {
        self.settle("remove", self.repo.remove(&id))
    }

    pub(super) fn put_if(&self, entity: Entity, condition: &Condition) -> Conditional<Put> {
        self.settle("put_if", self.repo.put_if(entity, condition))
    }

    pub(super) fn remove_if(&self, id: i64, condition: &Condition) -> Conditional<Removed> {
        self.settle("remove_if", self.repo.remove_if(&id, condition))
    }

    /// The entities of a page, and whether there may be more.
    pub(super) fn page(&self, after: Option<i64>, limit: usize) -> (Vec<Entity>, bool) {
        let mut entities = Vec::new();
        let page = self.repo.scan(after.as_ref(), limit, &mut |id, entity| {
            let entity = entity.to_owned();
            assert_eq!(entity.id, *id, "a scan shows an entity under another id");
            entities.push(entity);
            ControlFlow::Continue(())
        });
        let page = self.settle("scan", page);
        assert!(entities.is_empty() || page.entities.is_empty(), "a page was shown and returned");
        entities.extend(page.entities);
        assert!(entities.len() <= limit, "a page of {limit} has {} entities", entities.len());
        (entities, page.has_more)
    }

    /// All entities, read in pages.
    pub(super) fn scan(&self, limit: usize) -> Vec<Entity> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let (page, has_more) = self.page(after, limit);
            let last = page.last().map(|entity| entity.id);
            all.extend(page);
            match last {
                Some(last) if has_more => {
                    assert_ne!(after, Some(last), "a page of {limit} ends with the entity that it begins after");
                    after = Some(last);
                }
                None if has_more => panic!("an empty page says that there is more"),
                _ => return all,
            }
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.settle("len", self.repo.len())
    }

    /// Waits for the result of `answer` within the max wait.
    pub(super) fn settle<T>(&self, what: &str, answer: RepoAnswer<T>) -> T {
        match outcome(self.max_wait, what, answer) {
            Ok(value) => value,
            Err(error) => panic!("{what} failed: {error:?}"),
        }
    }

    /// Asserts that a put is answered with an error.
    pub(super) fn expect_rejected(&self, entity: Entity) {
        let what = format!("a put of the value {}", entity.value);
        let put = outcome(self.max_wait, &what, self.repo.put(entity));
        assert!(put.is_err(), "{what}, which JSON does not have, is answered with {put:?}");
    }

    /// Asserts that the entity of `id` equals `expected` bit for bit, or that there is none.
    pub(super) fn expect(&self, id: i64, expected: Option<&Entity>) {
        let found = self.get(id);
        let found = found.as_ref();
        assert!(same(found, expected), "get({id}) shows {}, not {}", Excerpt(found), Excerpt(expected));
    }
}

/// Waits for the result of `answer`, an error or not, within `max_wait`.
///
/// # Panics
///
/// Panics if the answer does not come in time, or does not wake the waiting thread.
pub(crate) fn outcome<T>(max_wait: Duration, what: &str, answer: RepoAnswer<T>) -> Result<T, RepoError> {
    let (deadline, later) = (Instant::now() + max_wait, !answer.is_now());
    let Ok(result) = answer.wait_until(deadline) else {
        panic!("{what} has not answered within {max_wait:?}");
    };
    // The last poll, at the deadline, also finds an answer that never woke its waker. An executor would not poll again.
    let late = later && Instant::now() >= deadline;
    assert!(!late, "{what} was answered, but the waiting thread was not woken within {max_wait:?}");
    result
}

/// Whether two entities are the same, bit for bit.
fn same(one: Option<&Entity>, other: Option<&Entity>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => {
            one.id == other.id && one.description == other.description && one.value.to_bits() == other.value.to_bits()
        }
        _ => false,
    }
}

/// An entity in a failure message, without a megabyte of description.
struct Excerpt<'a>(Option<&'a Entity>);

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(entity) = self.0 else { return f.write_str("nothing") };
        let start: String = entity.description.chars().take(40).collect();
        let (length, bits) = (entity.description.len(), entity.value.to_bits());
        write!(f, "{{{}, {start:?} of {length} bytes, {} = {bits:#018x}}}", entity.id, entity.value)
    }
}
