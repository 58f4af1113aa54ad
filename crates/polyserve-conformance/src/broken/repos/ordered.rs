//! Repos with answers that are possible one by one, but not in any common order.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread::yield_now;

use polyserve_core::sync::lock;
use polyserve_core::{Answer, Entity, EntityRepo, Lookup, Put, Removed, RepoAnswer, Visit};

use super::{broken, delegate};
use crate::repo::put_over;

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

broken! {
    /// A put during another put passes its entity to that put and answers before the entity is stored. Caught by
    /// `linearizable`.
    EarlyAck { pending: Mutex<Vec<Entity>>, storing: Mutex<()> }, right in: get remove len put_if remove_if;
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        let Some(_guard) = try_lock(&self.storing) else {
            let existed = self.inner.map().contains_key(&entity.id);
            lock(&self.pending).push(entity);
            return Answer::Now(Ok(if existed { Put::Replaced } else { Put::Created }));
        };
        let put = put_over(self.inner.map().insert(entity.id, entity).as_ref());
        yield_now();
        self.store_pending();
        Answer::Now(Ok(put))
    }
}

impl EarlyAck {
    fn store_pending(&self) {
        for entity in mem::take(&mut *lock(&self.pending)) {
            yield_now();
            self.inner.map().insert(entity.id, entity);
        }
    }
}

broken! {
    /// Replaces by a remove and a put, with nothing stored in between. Caught by `linearizable`.
    WithdrawnPut { putting: Mutex<()> }, right in: get remove len put_if remove_if;
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        let _putting = lock(&self.putting);
        let removed = self.inner.map().remove(&entity.id);
        yield_now();
        self.inner.map().insert(entity.id, entity);
        Answer::Now(Ok(put_over(removed.as_ref())))
    }
}

broken! {
    /// Caches the results of gets, and clears the cache on a change. A get that read before the change may cache the old value
    /// after it. Caught by `linearizable`.
    StaleCache { found: Mutex<HashMap<i64, Entity>> }, right in: len put_if remove_if;
    fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        let found = lock(&self.found).get(&id).cloned();
        let entity = found.or_else(|| {
            let entity = self.inner.map().get(&id).cloned()?;
            yield_now();
            lock(&self.found).insert(id, entity.clone());
            Some(entity)
        });
        let Some(entity) = entity else { return Answer::Now(Ok(Lookup::Absent)) };
        Answer::Now(Ok(visit.show(&entity)))
    }
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        let id = entity.id;
        let put = self.inner.put(entity);
        lock(&self.found).remove(&id);
        put
    }
    fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
        let removed = self.inner.remove(&id);
        lock(&self.found).remove(&id);
        removed
    }
}

broken! {
    /// Shows a put to gets before it is stored, and withdraws it for a moment. Caught by `linearizable`.
    DirtyRead { coming: Mutex<HashMap<i64, Entity>> }, right in: remove len put_if remove_if;
    fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        let Some(coming) = lock(&self.coming).get(&id).cloned() else { return self.inner.get(&id, visit) };
        Answer::Now(Ok(visit.show(&coming)))
    }
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        lock(&self.coming).insert(entity.id, entity.clone());
        yield_now();
        lock(&self.coming).remove(&entity.id);
        yield_now();
        self.inner.put(entity)
    }
}

broken! {
    /// Changes the version after a write can be seen. Caught by `a_version_names_what_is_stored`.
    LateVersion { writes: AtomicU64 }, right in: get len put_if remove_if;
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        self.end_write(self.inner.put(entity))
    }
    fn remove(&self, id: &i64) -> RepoAnswer<Removed> {
        self.end_write(self.inner.remove(id))
    }
    fn version(&self, _: &i64) -> Option<u64> {
        Some(self.writes.load(Ordering::SeqCst))
    }
}

impl LateVersion {
    fn end_write<T>(&self, written: T) -> T {
        yield_now();
        self.writes.fetch_add(1, Ordering::SeqCst);
        written
    }
}
