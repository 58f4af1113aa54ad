//! Repos that are wrong on one thread.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};

use polyserve_core::sync::lock;
use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, Lookup, Put, Removed, RepoAnswer, RepoError, Visit,
};

use super::{broken, delegate};
use crate::repo::Reference;

broken! {
    /// Shows an invented entity for an absent id. Caught by `absent_is_absent`.
    InventedEntity, right in: put remove len put_if remove_if;
    fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        let entity = self.inner.map().get(&id).cloned().unwrap_or_else(|| Entity::new(id, "", 0.0));
        Answer::Now(Ok(visit.show(&entity)))
    }
}

broken! {
    /// Applies a put at the next operation that changes or counts. Caught by `get_after_put_shows_it`.
    DelayedPut { delayed: Mutex<Option<Entity>> }, right in: get put_if remove_if;
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        let id = entity.id;
        self.apply(Some(entity));
        Answer::Now(Ok(if self.inner.map().contains_key(&id) { Put::Replaced } else { Put::Created }))
    }
    fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
        self.apply(None);
        self.inner.remove(&id)
    }
    fn len(&self) -> RepoAnswer<u64> {
        self.apply(None);
        self.inner.len()
    }
}

impl DelayedPut {
    fn apply(&self, next: Option<Entity>) {
        if let Some(entity) = mem::replace(&mut *lock(&self.delayed), next) {
            self.inner.map().insert(entity.id, entity);
        }
    }
}

broken! {
    /// Answers `Replaced` to every put. Caught by `first_put_is_created`.
    AlwaysReplaced, right in: get remove len put_if remove_if;
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        self.inner.put(entity).map(|put| put.map(|_| Put::Replaced))
    }
}

broken! {
    /// Answers `Created` to every put. Caught by `second_put_is_replaced`.
    ReplacedSaysCreated, right in: get remove len put_if remove_if;
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        self.inner.put(entity).map(|put| put.map(|_| Put::Created))
    }
}

broken! {
    /// Keeps the entity that was put first. Caught by `replaced_entity_is_the_new_one`.
    FirstPutStays, right in: get remove len put_if remove_if;
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        let mut map = self.inner.map();
        let existed = map.contains_key(&entity.id);
        map.entry(entity.id).or_insert(entity);
        Answer::Now(Ok(if existed { Put::Replaced } else { Put::Created }))
    }
}

broken! {
    /// Answers `Removed` to every remove. Caught by `remove_returns_what_it_did`.
    AlwaysRemoved, right in: get put len put_if remove_if;
    fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
        self.inner.remove(&id).map(|removed| removed.map(|_| Removed::Removed))
    }
}

broken! {
    /// Answers `Removed`, and keeps the entity. Caught by `removed_is_absent`.
    RemoveKeepsEntity, right in: get put len put_if remove_if;
    fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
        Answer::Now(Ok(crate::repo::removed_of(self.inner.map().get(&id))))
    }
}

broken! {
    /// Answers `Replaced` to a put of a removed id. Caught by `put_after_remove_is_created`.
    Tombstones { known: Mutex<HashSet<i64>> }, right in: get remove len put_if remove_if;
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        let new = lock(&self.known).insert(entity.id);
        self.inner.put(entity).map(move |put| put.map(|_| if new { Put::Created } else { Put::Replaced }))
    }
}

broken! {
    /// Counts every put. Caught by `len_counts`.
    MiscountedLen { puts: AtomicU64 }, right in: get put_if remove_if;
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        self.puts.fetch_add(1, SeqCst);
        self.inner.put(entity)
    }
    fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
        let removed = self.inner.map().remove(&id);
        self.puts.fetch_sub(u64::from(removed.is_some()), SeqCst);
        Answer::Now(Ok(crate::repo::removed_of(removed.as_ref())))
    }
    fn len(&self) -> RepoAnswer<u64> {
        Answer::Now(Ok(self.puts.load(SeqCst)))
    }
}

/// Keeps 32 bits of an id. Caught by `extreme_ids_are_ids`.
#[derive(Debug, Default)]
pub struct NarrowId {
    inner: Reference,
}

fn narrow(id: i64) -> i64 {
    i64::from(id as i32)
}

impl EntityRepo for NarrowId {
    fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        let found = self.inner.map().get(&narrow(id)).cloned();
        Answer::Now(Ok(found.map_or(Lookup::Absent, |entity| visit.show(&Entity { id, ..entity }))))
    }
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        self.inner.put(Entity { id: narrow(entity.id), ..entity })
    }
    fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
        self.inner.remove(&narrow(id))
    }
    delegate!(len put_if remove_if);
}

broken! {
    /// Keeps a description up to its first NUL. Caught by `odd_descriptions_are_kept`.
    CutAtNul, right in: get remove len put_if remove_if;
    fn put(&self, mut entity: Entity) -> RepoAnswer<Put> {
        entity.description.truncate(entity.description.find('\0').unwrap_or(entity.description.len()));
        self.inner.put(entity)
    }
}

broken! {
    /// Keeps a value in 32 bits. Caught by `values_keep_their_bits`.
    LossyValue, right in: get remove len put_if remove_if;
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        let value = f64::from(entity.value as f32);
        self.inner.put(Entity { value, ..entity })
    }
}

broken! {
    /// Keeps a value as text, which loses the payload of a NaN. Caught by `values_keep_their_bits`.
    TextValue, right in: get remove len put_if remove_if;
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        let value = entity.value.to_string().parse().unwrap_or_default();
        self.inner.put(Entity { value, ..entity })
    }
}

broken! {
    /// Removes a second id with each id. Caught by `agrees_with_a_map`.
    RemovesTwoIds, right in: get put len put_if remove_if;
    fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
        self.inner.map().remove(&id.wrapping_add(64));
        self.inner.remove(&id)
    }
}

broken! {
    /// Shows the entity to the visit, and answers that there is none. Caught by `visit_is_called_exactly_once`.
    VisitsAndAnswersAbsent, right in: put remove len put_if remove_if;
    fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        let _ = self.inner.get(&id, visit);
        Answer::Now(Ok(Lookup::Absent))
    }
}

broken! {
    /// Calls a visit of its own, and answers as if it had called the caller's. Caught by `visit_is_called_exactly_once`.
    VisitsAnother, right in: put remove len put_if remove_if;
    fn get(&self, &id: &i64, _: Visit<'_>) -> RepoAnswer<Lookup> {
        self.inner.get(&id, Visit::new(&mut |_| ()))
    }
}

/// Fails for ever after a visit has panicked. Caught by `a_panicking_visit_costs_one_answer`.
#[derive(Debug, Default)]
pub struct PoisonedLock {
    map: Mutex<HashMap<i64, Entity>>,
}

impl PoisonedLock {
    fn with<T>(&self, operation: impl FnOnce(MutexGuard<'_, HashMap<i64, Entity>>) -> T) -> RepoAnswer<T> {
        Answer::Now(self.map.lock().map(operation).map_err(|_| RepoError::Closed))
    }
}

impl EntityRepo for PoisonedLock {
    fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        self.with(|map| map.get(&id).map_or(Lookup::Absent, |entity| visit.show(entity)))
    }
    fn put_if(&self, entity: Entity, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        self.with(|mut map| crate::repo::put_if(&mut map, entity, condition))
    }
    fn remove_if(&self, &id: &i64, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        self.with(|mut map| crate::repo::remove_if(&mut map, &id, condition))
    }
    fn len(&self) -> RepoAnswer<u64> {
        self.with(|map| map.len() as u64)
    }
}

broken! {
    /// Ignores every condition. Caught by `a_condition_decides_a_write`.
    IgnoresConditions, right in: get len remove_if;
    fn put_if(&self, entity: Entity, _condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        self.inner.put_if(entity, &Condition::ALWAYS)
    }
}

broken! {
    /// Answers `Refused` to a conditional remove, and removes. Caught by `a_refused_write_changes_nothing`.
    RefusesAndRemoves, right in: get len put_if;
    fn remove_if(&self, &id: &i64, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        let removed = self.inner.remove_if(&id, condition);
        self.inner.map().remove(&id);
        removed
    }
}

broken! {
    /// Keeps at most 10 000 entities. A further put removes an entity. Caught by `many_keys`.
    Evicting, right in: get remove len put_if remove_if;
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        let mut map = self.inner.map();
        let replaced = map.insert(entity.id, entity);
        if map.len() > 10_000
            && let Some(id) = map.keys().next().copied()
        {
            map.remove(&id);
        }
        Answer::Now(Ok(crate::repo::put_over(replaced.as_ref())))
    }
}
