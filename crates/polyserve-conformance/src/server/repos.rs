//! Two repos of any entity: one answers now, the other later.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use polyserve_core::stack::FOR_ANY_VALUE;
use polyserve_core::sync::lock;
use polyserve_core::{
    Answer, Condition, Conditional, EntityRepo, Identifiable, Lookup, Put, Removed, RepoAnswer, RepoError, Visit,
    promise,
};

use crate::repo::{put_if, remove_if};

/// Entities in a map behind a lock.
#[derive(Debug)]
pub(crate) struct MapRepo<E: Identifiable> {
    entities: Mutex<HashMap<E::Id, E>>,
    /// The number of writes that have begun. All entities have the same version.
    writes: AtomicU64,
}

impl<E: Identifiable> Default for MapRepo<E> {
    fn default() -> Self {
        Self { entities: Mutex::default(), writes: AtomicU64::default() }
    }
}

impl<E: Identifiable> EntityRepo<E> for MapRepo<E> {
    fn get(&self, id: &E::Id, visit: Visit<'_, E>) -> RepoAnswer<Lookup<E>> {
        Answer::Now(Ok(lock(&self.entities).get(id).map_or(Lookup::Absent, |entity| visit.show(entity))))
    }

    fn put_if(&self, entity: E, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        let mut entities = lock(&self.entities);
        self.writes.fetch_add(1, Ordering::SeqCst);
        Answer::Now(Ok(put_if(&mut entities, entity, condition)))
    }

    fn remove_if(&self, id: &E::Id, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        let mut entities = lock(&self.entities);
        self.writes.fetch_add(1, Ordering::SeqCst);
        Answer::Now(Ok(remove_if(&mut entities, id, condition)))
    }

    fn len(&self) -> RepoAnswer<u64> {
        Answer::Now(Ok(lock(&self.entities).len() as u64))
    }

    fn version(&self, _: &E::Id) -> Option<u64> {
        let _entities = lock(&self.entities);
        Some(self.writes.load(Ordering::SeqCst))
    }
}

/// A map on a thread of its own, so that every answer is deferred.
#[derive(Debug)]
pub(crate) struct LaterRepo<E: Identifiable> {
    work: Option<Sender<Work<E>>>,
    thread: Option<JoinHandle<()>>,
}

type Work<E> = Box<dyn FnOnce(&MapRepo<E>) + Send>;

/// A `get` of this id panics on the repo's own thread. The thread goes on.
pub(crate) const PANICS: &str = "-500";

impl<E: Identifiable> LaterRepo<E> {
    pub(crate) fn new() -> Self {
        let (work, inbox) = mpsc::channel::<Work<E>>();
        let builder = thread::Builder::new().stack_size(FOR_ANY_VALUE);
        let thread = builder.spawn(move || {
            let map = MapRepo::default();
            for work in inbox {
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&map)));
            }
        });
        let thread = thread.expect("a thread can be started");
        Self { work: Some(work), thread: Some(thread) }
    }

    fn later<T: Send + 'static>(
        &self,
        work: impl FnOnce(&MapRepo<E>) -> Result<T, RepoError> + Send + 'static,
    ) -> RepoAnswer<T> {
        let (completer, answer) = promise(Err(RepoError::Closed));
        if let Some(thread) = &self.work {
            let _ = thread.send(Box::new(move |map| drop(completer.complete(work(map)))));
        }
        answer
    }
}

impl<E: Identifiable> Drop for LaterRepo<E> {
    fn drop(&mut self) {
        drop(self.work.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl<E: Identifiable> EntityRepo<E> for LaterRepo<E> {
    fn get(&self, id: &E::Id, _: Visit<'_, E>) -> RepoAnswer<Lookup<E>> {
        let id = id.clone();
        self.later(move |map| {
            assert_ne!(id.to_string(), PANICS, "as the test asked");
            Ok(lock(&map.entities).get(&id).cloned().map_or(Lookup::Absent, Lookup::Fetched))
        })
    }

    fn put_if(&self, entity: E, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        let condition = condition.clone();
        self.later(move |map| map.put_if(entity, &condition).wait())
    }

    fn remove_if(&self, id: &E::Id, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        let (id, condition) = (id.clone(), condition.clone());
        self.later(move |map| map.remove_if(&id, &condition).wait())
    }

    fn len(&self) -> RepoAnswer<u64> {
        self.later(|map| map.len().wait())
    }
}
