//! Repos for these tests.

use std::fmt;
use std::future::IntoFuture;
use std::sync::atomic::{AtomicUsize, Ordering};

use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, EntityRepoExt, Identifiable, Lookup, Put, Removed, RepoAnswer,
    RepoError, Visit,
};
use polyserve_memory::StdMutex;

/// A store that other clients write to, and that may answer later.
pub(crate) struct Contended<E: Identifiable = Entity> {
    pub(crate) store: StdMutex<E>,
    /// Writes as another client, between a read and a conditional write. Its number is the number of those before.
    before_put: fn(&StdMutex<E>, usize),
    /// The number of conditional writes.
    pub(crate) puts: AtomicUsize,
    /// Entities are fetched, and all answers come later.
    is_later: bool,
}

/// A store that answers later.
pub(crate) fn later() -> Contended {
    Contended::new(true, |_, _| ())
}

impl<E: Identifiable> Contended<E> {
    pub(crate) fn new(is_later: bool, before_put: fn(&StdMutex<E>, usize)) -> Self {
        Self { store: StdMutex::default(), before_put, puts: AtomicUsize::new(0), is_later }
    }

    fn answer<T: Send + 'static>(&self, answer: RepoAnswer<T>) -> RepoAnswer<T> {
        if self.is_later { Answer::later(answer.into_future()) } else { answer }
    }
}

impl<E: Identifiable> fmt::Debug for Contended<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contended").finish_non_exhaustive()
    }
}

impl<E: Identifiable> EntityRepo<E> for Contended<E> {
    fn get(&self, id: &E::Id, visit: Visit<'_, E>) -> RepoAnswer<Lookup<E>> {
        if !self.is_later {
            return self.store.get(id, visit);
        }
        let found = self.store.fetch(id).map(|found| Ok(found?.map_or(Lookup::Absent, Lookup::Fetched)));
        self.answer(found)
    }

    fn put_if(&self, entity: E, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        (self.before_put)(&self.store, self.puts.fetch_add(1, Ordering::SeqCst));
        self.answer(self.store.put_if(entity, condition))
    }

    fn remove_if(&self, id: &E::Id, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        self.answer(self.store.remove_if(id, condition))
    }

    fn len(&self) -> RepoAnswer<u64> {
        self.answer(self.store.len())
    }
}

/// A repo that fails as its function says.
#[derive(Debug)]
pub(crate) struct FailingRepo(pub(crate) fn() -> RepoError);

impl EntityRepo for FailingRepo {
    fn get(&self, _: &i64, _: Visit<'_>) -> RepoAnswer<Lookup> {
        Answer::Now(Err(self.0()))
    }

    fn put_if(&self, _: Entity, _: &Condition) -> RepoAnswer<Conditional<Put>> {
        Answer::Now(Err(self.0()))
    }

    fn remove_if(&self, _: &i64, _: &Condition) -> RepoAnswer<Conditional<Removed>> {
        Answer::Now(Err(self.0()))
    }

    fn len(&self) -> RepoAnswer<u64> {
        Answer::Now(Err(self.0()))
    }
}
