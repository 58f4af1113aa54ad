//! Repos that are right on one thread and wrong in a race.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, RwLock, TryLockError};
use std::thread::yield_now;

use polyserve_core::sync::{lock, read, write};
use polyserve_core::{Answer, Condition, Conditional, Entity, EntityRepo, Lookup, Put, Removed, RepoAnswer, Visit};

use super::{broken, delegate};
use crate::repo::Reference;

type SharedEntities = HashMap<i64, Entity>;

broken! {
    /// Looks up an id under one lock and inserts it under another: two first puts both answer `Created`. Caught by
    /// `racing_first_puts_create_exactly_one`.
    LostUpdate, right in: get remove len put_if remove_if;
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        let existed = self.inner.map().contains_key(&entity.id);
        yield_now();
        self.inner.map().insert(entity.id, entity);
        Answer::Now(Ok(if existed { Put::Replaced } else { Put::Created }))
    }
}

/// Copies the map, changes the copy, and replaces the map with it, also if the map changed meanwhile. Caught by
/// `no_lost_update`.
#[derive(Debug, Default)]
pub struct LostCopy {
    map: Mutex<Arc<SharedEntities>>,
}

impl LostCopy {
    fn change<T>(&self, change: impl FnOnce(&mut SharedEntities) -> T) -> T {
        let mut copy = SharedEntities::clone(&lock(&self.map).clone());
        let changed = change(&mut copy);
        yield_now();
        *lock(&self.map) = Arc::new(copy);
        changed
    }
}

impl EntityRepo for LostCopy {
    fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        let map = lock(&self.map).clone();
        let Some(entity) = map.get(&id) else { return Answer::Now(Ok(Lookup::Absent)) };
        Answer::Now(Ok(visit.show(entity)))
    }
    fn put_if(&self, entity: Entity, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        Answer::Now(Ok(self.change(|map| crate::repo::put_if(map, entity, condition))))
    }
    fn remove_if(&self, &id: &i64, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        Answer::Now(Ok(self.change(|map| crate::repo::remove_if(map, &id, condition))))
    }
    fn len(&self) -> RepoAnswer<u64> {
        Answer::Now(Ok(lock(&self.map).len() as u64))
    }
}

broken! {
    /// Checks a condition and then writes, without a lock around both. Caught by `no_increment_is_lost`, and by
    /// `conditional_writes_are_linearizable`.
    ChecksThenWrites, right in: get len;
    fn put_if(&self, entity: Entity, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        if !condition.allows(self.inner.map().get(&entity.id)) {
            return Answer::Now(Ok(Conditional::Refused));
        }
        yield_now();
        self.inner.put_if(entity, &Condition::ALWAYS)
    }
    fn remove_if(&self, &id: &i64, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        if self.inner.map().get(&id).is_some_and(|stored| !condition.allows(Some(stored))) {
            return Answer::Now(Ok(Conditional::Refused));
        }
        yield_now();
        self.inner.remove_if(&id, &Condition::ALWAYS)
    }
}

broken! {
    /// Answers `Replaced` without an effect if the lock is taken. Caught by `no_lost_update`.
    DroppedPut, right in: get remove len put_if remove_if;
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        let mut map = match self.inner.mutex().try_lock() {
            Ok(map) => map,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Answer::Now(Ok(Put::Replaced)),
        };
        yield_now();
        Answer::Now(Ok(crate::repo::put_over(map.insert(entity.id, entity).as_ref())))
    }
}

broken! {
    /// Reads from a copy that a put does not update while it is being read. Caught by `no_stale_read`.
    StaleRead { copy: RwLock<SharedEntities> }, right in: len put_if remove_if;
    fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        let copy = read(&self.copy);
        let Some(entity) = copy.get(&id) else { return Answer::Now(Ok(Lookup::Absent)) };
        let found = visit.show(entity);
        yield_now();
        Answer::Now(Ok(found))
    }
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        let put = self.inner.put(entity.clone());
        if let Ok(mut copy) = self.copy.try_write() {
            copy.insert(entity.id, entity);
        }
        put
    }
    fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
        write(&self.copy).remove(&id);
        self.inner.remove(&id)
    }
}

broken! {
    /// Two copies that each put changes one after the other. Reads alternate between them. Caught by
    /// `reads_never_go_backwards`.
    LaggingReplica { copy: Reference, changing: Mutex<()>, turn: AtomicUsize }, right in: len put_if remove_if;
    fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        let copies = [&self.inner, &self.copy];
        copies[self.turn.fetch_add(1, SeqCst) % 2].get(&id, visit)
    }
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        let _changing = lock(&self.changing);
        let _ = self.copy.put(entity.clone());
        yield_now();
        self.inner.put(entity)
    }
    fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
        let _changing = lock(&self.changing);
        let _ = self.copy.remove(&id);
        self.inner.remove(&id)
    }
}

broken! {
    /// Two copies that racing puts may change in different orders. Reads alternate between them. Caught by
    /// `racing_puts_leave_one_of_them`.
    DivergedReplicas { copy: Reference, turn: AtomicUsize }, right in: len put_if remove_if;
    fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        self.in_turn()[0].get(&id, visit)
    }
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        let [first, second] = self.in_turn();
        let _ = first.put(entity.clone());
        yield_now();
        second.put(entity)
    }
    fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
        let _ = self.copy.remove(&id);
        self.inner.remove(&id)
    }
}

impl DivergedReplicas {
    fn in_turn(&self) -> [&Reference; 2] {
        let copies = [&self.inner, &self.copy];
        if self.turn.fetch_add(1, SeqCst).is_multiple_of(2) { copies } else { [copies[1], copies[0]] }
    }
}

broken! {
    /// Keeps descriptions under one lock and values under another. Caught by `no_torn_read`.
    TornRead { values: RwLock<HashMap<i64, f64>> }, right in: remove len put_if remove_if;
    fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        let value = read(&self.values).get(&id).copied().unwrap_or_default();
        let entity = self.inner.map().get(&id).cloned();
        Answer::Now(Ok(entity.map_or(Lookup::Absent, |entity| visit.show(&Entity { value, ..entity }))))
    }
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        write(&self.values).insert(entity.id, entity.value);
        yield_now();
        self.inner.put(entity)
    }
}

broken! {
    /// Looks up an id under one lock and removes it under another: two removes both answer `Removed`. Caught by
    /// `removes_and_puts_balance`.
    DoubleRemove, right in: get put len put_if remove_if;
    fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
        let existed = self.inner.map().contains_key(&id);
        yield_now();
        self.inner.map().remove(&id);
        Answer::Now(Ok(if existed { Removed::Removed } else { Removed::Absent }))
    }
}

broken! {
    /// Removes an entity, and a moment later removes its id again. A put between the two removals is lost. Caught by
    /// `put_is_not_lost_to_a_racing_remove`.
    LostToRemove, right in: get put len put_if remove_if;
    fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
        let removed = self.inner.remove(&id);
        yield_now();
        let _swept = self.inner.remove(&id);
        removed
    }
}

broken! {
    /// Empties the map when it grows, and restores it a moment later. Caught by `a_growing_store_loses_nothing`.
    EmptyWhileGrowing, right in: get remove len put_if remove_if;
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        let mut map = self.inner.map();
        if map.len().is_power_of_two() {
            let moving = mem::take(&mut *map);
            drop(map);
            yield_now();
            map = self.inner.map();
            for (id, entity) in moving {
                map.entry(id).or_insert(entity);
            }
        }
        Answer::Now(Ok(crate::repo::put_over(map.insert(entity.id, entity).as_ref())))
    }
}
