//! Repos that are wrong on one thread.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};

use polyserve_core::sync::lock;
use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, Lookup, Put, Removed, RepoAnswer, RepoError, Visit,
};

use super::delegate;
use crate::repo::Reference;

/// Shows an invented entity for an absent id. Caught by `absent_is_absent`.
#[derive(Debug, Default)]
pub struct InventedEntity {
    inner: Reference,
}

impl EntityRepo for InventedEntity {
    fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        let entity = self.inner.map().get(&id).cloned().unwrap_or_else(|| Entity::new(id, "", 0.0));
        Answer::Now(Ok(visit.show(&entity)))
    }
    delegate!(put remove len put_if remove_if);
}

/// Applies a put at the next operation that changes or counts. Caught by `get_after_put_shows_it`.
#[derive(Debug, Default)]
pub struct DelayedPut {
    inner: Reference,
    delayed: Mutex<Option<Entity>>,
}

impl DelayedPut {
    fn apply(&self, next: Option<Entity>) {
        if let Some(entity) = mem::replace(&mut *lock(&self.delayed), next) {
            self.inner.map().insert(entity.id, entity);
        }
    }
}

impl EntityRepo for DelayedPut {
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
    delegate!(get put_if remove_if);
}

/// Answers `Replaced` to every put. Caught by `first_put_is_created`.
#[derive(Debug, Default)]
pub struct AlwaysReplaced {
    inner: Reference,
}

impl EntityRepo for AlwaysReplaced {
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        self.inner.put(entity).map(|put| put.map(|_| Put::Replaced))
    }
    delegate!(get remove len put_if remove_if);
}

/// Answers `Created` to every put. Caught by `second_put_is_replaced`.
#[derive(Debug, Default)]
pub struct ReplacedSaysCreated {
    inner: Reference,
}

impl EntityRepo for ReplacedSaysCreated {
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        self.inner.put(entity).map(|put| put.map(|_| Put::Created))
    }
    delegate!(get remove len put_if remove_if);
}

/// Keeps the entity that was put first. Caught by `replaced_entity_is_the_new_one`.
#[derive(Debug, Default)]
pub struct FirstPutStays {
    inner: Reference,
}

impl EntityRepo for FirstPutStays {
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        let mut map = self.inner.map();
        let existed = map.contains_key(&entity.id);
        map.entry(entity.id).or_insert(entity);
        Answer::Now(Ok(if existed { Put::Replaced } else { Put::Created }))
    }
    delegate!(get remove len put_if remove_if);
}

/// Answers `Removed` to every remove. Caught by `remove_returns_what_it_did`.
#[derive(Debug, Default)]
pub struct AlwaysRemoved {
    inner: Reference,
}

impl EntityRepo for AlwaysRemoved {
    fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
        self.inner.remove(&id).map(|removed| removed.map(|_| Removed::Removed))
    }
    delegate!(get put len put_if remove_if);
}

/// Answers `Removed`, and keeps the entity. Caught by `removed_is_absent`.
#[derive(Debug, Default)]
pub struct RemoveKeepsEntity {
    inner: Reference,
}

impl EntityRepo for RemoveKeepsEntity {
    fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
        Answer::Now(Ok(crate::repo::removed_of(self.inner.map().get(&id))))
    }
    delegate!(get put len put_if remove_if);
}

/// Answers `Replaced` to a put of a removed id. Caught by `put_after_remove_is_created`.
#[derive(Debug, Default)]
pub struct Tombstones {
    inner: Reference,
    known: Mutex<HashSet<i64>>,
}

impl EntityRepo for Tombstones {
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        let new = lock(&self.known).insert(entity.id);
        self.inner.put(entity).map(move |put| put.map(|_| if new { Put::Created } else { Put::Replaced }))
    }
    delegate!(get remove len put_if remove_if);
}

/// Counts every put. Caught by `len_counts`.
#[derive(Debug, Default)]
pub struct MiscountedLen {
    inner: Reference,
    puts: AtomicU64,
}

impl EntityRepo for MiscountedLen {
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
    delegate!(get put_if remove_if);
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

/// Keeps a description up to its first NUL. Caught by `odd_descriptions_are_kept`.
#[derive(Debug, Default)]
pub struct CutAtNul {
    inner: Reference,
}

impl EntityRepo for CutAtNul {
    fn put(&self, mut entity: Entity) -> RepoAnswer<Put> {
        entity.description.truncate(entity.description.find('\0').unwrap_or(entity.description.len()));
        self.inner.put(entity)
    }
    delegate!(get remove len put_if remove_if);
}

/// Keeps a value in 32 bits. Caught by `values_keep_their_bits`.
#[derive(Debug, Default)]
pub struct LossyValue {
    inner: Reference,
}

impl EntityRepo for LossyValue {
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        let value = f64::from(entity.value as f32);
        self.inner.put(Entity { value, ..entity })
    }
    delegate!(get remove len put_if remove_if);
}

/// Keeps a value as text, which loses the payload of a NaN. Caught by `values_keep_their_bits`.
#[derive(Debug, Default)]
pub struct TextValue {
    inner: Reference,
}

impl EntityRepo for TextValue {
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        let value = entity.value.to_string().parse().unwrap_or_default();
        self.inner.put(Entity { value, ..entity })
    }
    delegate!(get remove len put_if remove_if);
}

/// Removes a second id with each id. Caught by `agrees_with_a_map`.
#[derive(Debug, Default)]
pub struct RemovesTwoIds {
    inner: Reference,
}

impl EntityRepo for RemovesTwoIds {
    fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
        self.inner.map().remove(&id.wrapping_add(64));
        self.inner.remove(&id)
    }
    delegate!(get put len put_if remove_if);
}

/// Shows the entity to the visit, and answers that there is none. Caught by `visit_is_called_exactly_once`.
#[derive(Debug, Default)]
pub struct VisitsAndAnswersAbsent {
    inner: Reference,
}

impl EntityRepo for VisitsAndAnswersAbsent {
    fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        let _ = self.inner.get(&id, visit);
        Answer::Now(Ok(Lookup::Absent))
    }
    delegate!(put remove len put_if remove_if);
}

/// Calls a visit of its own, and answers as if it had called the caller's. Caught by `visit_is_called_exactly_once`.
#[derive(Debug, Default)]
pub struct VisitsAnother {
    inner: Reference,
}

impl EntityRepo for VisitsAnother {
    fn get(&self, &id: &i64, _: Visit<'_>) -> RepoAnswer<Lookup> {
        self.inner.get(&id, Visit::new(&mut |_| ()))
    }
    delegate!(put remove len put_if remove_if);
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

/// Ignores every condition. Caught by `a_condition_decides_a_write`.
#[derive(Debug, Default)]
pub struct IgnoresConditions {
    inner: Reference,
}

impl EntityRepo for IgnoresConditions {
    fn put_if(&self, entity: Entity, _condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        self.inner.put_if(entity, &Condition::ALWAYS)
    }
    delegate!(get len remove_if);
}

/// Answers `Refused` to a conditional remove, and removes. Caught by `a_refused_write_changes_nothing`.
#[derive(Debug, Default)]
pub struct RefusesAndRemoves {
    inner: Reference,
}

impl EntityRepo for RefusesAndRemoves {
    fn remove_if(&self, &id: &i64, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        let removed = self.inner.remove_if(&id, condition);
        self.inner.map().remove(&id);
        removed
    }
    delegate!(get len put_if);
}

/// Keeps at most 10 000 entities. A further put removes an entity. Caught by `many_keys`.
#[derive(Debug, Default)]
pub struct Evicting {
    inner: Reference,
}

impl EntityRepo for Evicting {
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
    delegate!(get remove len put_if remove_if);
}
