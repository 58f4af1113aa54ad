//! A repo with delayed answers: it wraps another repo, and behaves as if each answer came from a remote database.
//!
//! A look-up, an update and a removal take effect at once, and their answer is deferred until the delay is over. A new
//! entity is stored without a delay, so that a store is filled with a million entities without a million waits.
//!
//! Invariant: no delayed answer arrives early, and the delay does not change an answer. Cost: a copy of the entity that is
//! read, and a wait in the shared timer ([`polyserve::timer`]).

use std::sync::Arc;
use std::time::Duration;

use polyserve::figures::StoreFigures;
use polyserve::{Answer, Condition, Conditional, Entity, EntityRepo, Lookup, Put, Removed, RepoAnswer, Visit, timer};

/// A wrapped repo, with delayed answers.
#[derive(Debug)]
pub struct Delayed {
    repo: Arc<dyn EntityRepo>,
    delay: Duration,
}

impl Delayed {
    /// `repo`, with answers after `delay`.
    pub fn new(repo: Arc<dyn EntityRepo>, delay: Duration) -> Self {
        Self { repo, delay }
    }

    fn later<T: Send + 'static>(&self, answer: Answer<T>) -> Answer<T> {
        let delay = self.delay;
        answer.then(move |answer| timer::after(delay).map(move |()| answer))
    }
}

impl EntityRepo for Delayed {
    fn get(&self, &id: &i64, _visit: Visit<'_>) -> RepoAnswer<Lookup> {
        let mut seen = None;
        let found = self.repo.get(&id, Visit::new(&mut |entity| seen = Some(entity.to_owned())));
        // A deferred answer cannot visit the entity, so it returns a copy.
        let found = found.map(move |found| match (found, seen) {
            (Ok(Lookup::Visited(_)), Some(entity)) => Ok(Lookup::Fetched(entity)),
            (found, _) => found,
        });
        self.later(found)
    }

    fn put_if(&self, entity: Entity, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        let delay = self.delay;
        self.repo.put_if(entity, condition).then(move |put| match put {
            Ok(Conditional::Done(Put::Created)) => Answer::Now(put),
            put => timer::after(delay).map(move |()| put),
        })
    }

    fn remove_if(&self, &id: &i64, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        self.later(self.repo.remove_if(&id, condition))
    }

    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        let delay = self.delay;
        self.repo.put(entity).then(move |put| match put {
            Ok(Put::Created) => Answer::Now(put),
            put => timer::after(delay).map(move |()| put),
        })
    }

    fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
        self.later(self.repo.remove(&id))
    }

    fn len(&self) -> RepoAnswer<u64> {
        self.later(self.repo.len())
    }

    fn status(&self) -> RepoAnswer<()> {
        self.later(self.repo.status())
    }

    fn figures(&self) -> Option<Arc<dyn StoreFigures>> {
        self.repo.figures()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use polyserve::EntityRepoExt as _;
    use polyserve::memory::TwoLevel;
    use polyserve_conformance::repo::RepoSubject;
    use polyserve_conformance::repo_conformance;

    use super::*;

    #[test]
    fn what_is_asked_waits_and_what_is_new_does_not() {
        const DELAY: Duration = Duration::from_millis(20);
        let repo = Delayed::new(Arc::new(TwoLevel::new()), DELAY);
        let entity = |value| Entity { id: 7, description: "seven".into(), value };
        let created = repo.put(entity(1.0));
        assert!(created.is_now());
        assert_eq!(created.wait().unwrap(), Put::Created);
        let assert_delayed = |what: &str, act: &dyn Fn()| {
            let start = Instant::now();
            act();
            assert!(start.elapsed() >= DELAY, "{what}");
        };
        assert_delayed("an update", &|| assert_eq!(repo.put(entity(2.0)).wait().unwrap(), Put::Replaced));
        assert_delayed("a look-up", &|| assert_eq!(repo.fetch(&7).wait().unwrap(), Some(entity(2.0))));
        assert_delayed("a look-up of nothing", &|| assert_eq!(repo.fetch(&8).wait().unwrap(), None));
        assert_delayed("a count", &|| assert_eq!(repo.len().wait().unwrap(), 1));
        assert_delayed("a status", &|| repo.status().wait().unwrap());
        assert_delayed("a removal", &|| assert_eq!(repo.remove(&7).wait().unwrap(), Removed::Removed));
        // The operation takes effect although its answer is dropped.
        drop(repo.put(entity(3.0)));
        drop(repo.put(entity(4.0)));
        assert_eq!(repo.fetch(&7).wait().unwrap(), Some(entity(4.0)));
    }

    repo_conformance!(
        kit,
        RepoSubject::new(|| Delayed::new(Arc::new(TwoLevel::new()), Duration::from_micros(100))).answers_now_or_later()
    );
}
