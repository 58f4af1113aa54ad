//! Repos with one flaw each.
//!
//! A repo that is wrong under a race yields to other threads at the worst moment, so that it loses the race often.

use std::fmt;
use std::future::{pending, poll_fn};
use std::mem;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, TryLockError};
use std::task::Context;
use std::thread::yield_now;
use std::time::Duration;

use polyserve_core::sync::{lock, read, write};
use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, Lookup, ManyVisit, Put, Removed, RepoAnswer, RepoError,
    ScanPage, ScanVisit, Shown, Visit, promise,
};

use super::flaws;
use crate::repo::{
    EntityMap, LaterReference, Reference, RepoSubject, page_of, put_if, put_over, remove_if, removed_of,
};

flaws! {
    /// A mistake of a repo, caught by properties.
    RepoFlaw;

    /// Shows an invented entity for an absent id.
    InventedEntity, caught by absent_is_absent, linearizable;
    /// Applies a put at the next operation that changes or counts.
    DelayedPut, caught by get_after_put_shows_it, linearizable;
    /// Answers `Replaced` to every put.
    AlwaysReplaced, caught by agrees_with_a_map, linearizable;
    /// Answers `Created` to every put.
    ReplacedSaysCreated, caught by agrees_with_a_map, linearizable;
    /// Keeps the entity that was put first.
    FirstPutStays, caught by agrees_with_a_map, linearizable;
    /// Answers `Removed` to every remove.
    AlwaysRemoved, caught by agrees_with_a_map, linearizable;
    /// Answers `Removed`, and keeps the entity.
    RemoveKeepsEntity, caught by agrees_with_a_map, linearizable;
    /// Answers `Replaced` to a put of a removed id.
    Tombstones, caught by agrees_with_a_map, linearizable;
    /// Counts every put.
    MiscountedLen, caught by agrees_with_a_map;
    /// Keeps 32 bits of an id.
    NarrowId, caught by extreme_ids_are_ids;
    /// Keeps a description up to its first NUL.
    CutAtNul, caught by odd_descriptions_are_kept;
    /// Keeps a value in 32 bits.
    LossyValue, caught by values_keep_their_bits;
    /// Keeps a value as text, which loses the payload of a NaN.
    TextValue, caught by values_keep_their_bits;
    /// Removes a second id with each id.
    RemovesTwoIds, caught by agrees_with_a_map;
    /// Shows the entity to the visit, and answers that there is none.
    VisitsAndAnswersAbsent, caught by visit_is_called_exactly_once;
    /// Calls the visit and then answers later, when the visit's result is no longer used.
    VisitsAndAnswersLater, caught by visit_is_called_exactly_once;
    /// Calls a visit of its own, and answers as if it had called the caller's.
    VisitsAnother, caught by visit_is_called_exactly_once;
    /// Fails for ever after a visit has panicked.
    PoisonedLock, caught by a_panicking_visit_costs_one_answer;
    /// Drops the completer of every seventh operation, so that an error comes instead of a value.
    DroppedCompleter, caught by many_answers_at_once;
    /// Never answers every seventh operation.
    NeverAnswers, caught by many_answers_at_once;
    /// Wakes only the first waker that polled an answer.
    FirstWakerOnly, caught by answers_can_be_awaited_from_any_thread;
    /// Starts no operation until the last answer was taken. So a dropped answer blocks the repo for ever.
    BusyUntilAnswered, caught by later_answers_survive_being_dropped;
    /// Never completes its answers once it is dropped.
    AbandonsWaiting, caught by a_dropped_repo_still_answers;
    /// Looks up an id under one lock and inserts it under another: two first puts both answer `Created`.
    LostUpdate, caught by linearizable;
    /// Changes the version after a write can be seen.
    LateVersion, caught by a_version_names_what_is_stored;
    /// Two copies that racing puts may change in different orders. Reads alternate between them.
    DivergedReplicas, caught by linearizable;
    /// Copies the map, changes the copy, and replaces the map with it, also if the map changed meanwhile.
    LostCopy, caught by linearizable;
    /// Ignores every condition.
    IgnoresConditions, caught by a_condition_decides_a_write;
    /// Answers `Refused` to a conditional remove, and removes.
    RefusesAndRemoves, caught by a_refused_write_changes_nothing;
    /// Checks a condition and then writes, without a lock around both.
    ChecksThenWrites, caught by no_increment_is_lost, conditional_writes_are_linearizable;
    /// Answers `Replaced` without an effect if the lock is taken.
    DroppedPut, caught by linearizable;
    /// Reads from a copy that a put does not update while it is being read.
    StaleRead, caught by linearizable;
    /// Two copies that each put changes one after the other. Reads alternate between them.
    LaggingReplica, caught by linearizable;
    /// Keeps descriptions under one lock and values under another.
    TornRead, caught by linearizable;
    /// Looks up an id under one lock and removes it under another: two removes both answer `Removed`.
    DoubleRemove, caught by linearizable;
    /// Removes an entity, and a moment later removes its id again. A put between the two removals is lost.
    LostToRemove, caught by linearizable;
    /// Empties the map when it grows, and restores it a moment later.
    EmptyWhileGrowing, caught by a_growing_store_loses_nothing, linearizable;
    /// Keeps at most 10 000 entities. A further put removes an entity.
    Evicting, caught by many_keys;
    /// A put during another put passes its entity to that put and answers before the entity is stored.
    EarlyAck, caught by linearizable;
    /// Replaces by a remove and a put, with nothing stored in between.
    WithdrawnPut, caught by linearizable;
    /// Caches the results of gets, and clears the cache on a change. A get that read before the change may cache the old value
    /// after it.
    StaleCache, caught by linearizable;
    /// Shows a put to gets before it is stored, and withdraws it for a moment.
    DirtyRead, caught by linearizable;
    /// Looks up an id once, if it is asked for several times.
    GetsOnce, caught by many_gets_show_what_is_stored;
    /// Looks up many ids from the last to the first, and shows what it has found from the first to the last.
    GetsBackwards, caught by many_gets_race_with_writes;
    /// Begins a page with the last entity of the page before.
    RepeatsLast, caught by a_scan_shows_each_entity_once;
    /// Shows a page whole, whatever its visit answers.
    IgnoresBreaks, caught by a_page_is_bounded;
    /// Begins a page at the number of entities that were before it, which removes change.
    CountsToThePage, caught by a_scan_misses_nothing_that_stays;
}

impl RepoFlaw {
    /// Creates an empty repo with this flaw.
    pub fn repo(self) -> FlawedRepo {
        FlawedRepo {
            flaw: self,
            inner: Reference::default(),
            later: LaterReference::default(),
            copy: Reference::default(),
            others: RwLock::default(),
            shared: Mutex::default(),
            pending: Mutex::default(),
            storing: Mutex::new(()),
            count: AtomicU64::new(0),
            flag: Arc::default(),
        }
    }

    /// Repos with this flaw, which declare when they answer.
    pub fn subject(self) -> RepoSubject {
        let subject = RepoSubject::new(move || self.repo());
        match self {
            Self::VisitsAndAnswersLater => subject.answers_now_or_later(),
            Self::DroppedCompleter | Self::BusyUntilAnswered => subject.answers_later(),
            // They never answer.
            Self::NeverAnswers | Self::FirstWakerOnly | Self::AbandonsWaiting => {
                subject.answers_later().max_wait(Duration::from_millis(100))
            }
            _ => subject,
        }
    }

    fn is_late(self) -> bool {
        use RepoFlaw::*;
        matches!(self, DroppedCompleter | NeverAnswers | FirstWakerOnly | BusyUntilAnswered | AbandonsWaiting)
    }
}

/// A repo with one flaw.
pub struct FlawedRepo {
    flaw: RepoFlaw,
    inner: Reference,
    /// Answers later, if the flaw is in late answers.
    later: LaterReference,
    /// A second copy of the entities.
    copy: Reference,
    /// Entities that are shown in place of the stored ones.
    others: RwLock<EntityMap>,
    /// All entities, of a repo that replaces its map.
    shared: Mutex<Arc<EntityMap>>,
    /// Entities that are stored later.
    pending: Mutex<Vec<Entity>>,
    storing: Mutex<()>,
    /// A number of operations.
    count: AtomicU64,
    flag: Arc<AtomicBool>,
}

impl fmt::Debug for FlawedRepo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlawedRepo").field("flaw", &self.flaw).finish_non_exhaustive()
    }
}

impl Drop for FlawedRepo {
    fn drop(&mut self) {
        self.flag.store(true, SeqCst);
    }
}

fn narrow(id: i64) -> i64 {
    i64::from(id as i32)
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

fn now<T>(value: T) -> RepoAnswer<T> {
    Answer::Now(Ok(value))
}

fn shown(entity: Option<Entity>, visit: Visit<'_>) -> RepoAnswer<Lookup> {
    now(entity.map_or(Lookup::Absent, |entity| visit.show(&entity)))
}

fn put_if_known(existed: bool) -> RepoAnswer<Put> {
    now(if existed { Put::Replaced } else { Put::Created })
}

impl FlawedRepo {
    /// Asks the repo that answers later, and spoils its answer.
    fn late<T: Send + 'static>(&self, ask: impl FnOnce(&LaterReference) -> RepoAnswer<T>) -> RepoAnswer<T> {
        let is_seventh = self.count.fetch_add(1, SeqCst) % 7 == 6;
        let flag = Arc::clone(&self.flag);
        match self.flaw {
            RepoFlaw::DroppedCompleter if is_seventh => {
                let (_dropped, answer) = promise(Err(RepoError::Closed));
                answer
            }
            RepoFlaw::NeverAnswers if is_seventh => {
                let _unheard = ask(&self.later);
                Answer::later(pending())
            }
            RepoFlaw::FirstWakerOnly => {
                let (mut future, mut first) = (ask(&self.later).into_future(), None);
                Answer::later(poll_fn(move |cx| {
                    let waker = first.get_or_insert_with(|| cx.waker().clone());
                    Pin::new(&mut future).poll(&mut Context::from_waker(waker))
                }))
            }
            RepoFlaw::BusyUntilAnswered if flag.swap(true, SeqCst) => {
                Answer::later(async { Err(RepoError::Overloaded) })
            }
            RepoFlaw::BusyUntilAnswered => ask(&self.later).map(move |result| {
                flag.store(false, SeqCst);
                result
            }),
            RepoFlaw::AbandonsWaiting => ask(&self.later).then(move |result| {
                if flag.load(SeqCst) { Answer::later(pending()) } else { Answer::later(async { result }) }
            }),
            _ => ask(&self.later),
        }
    }

    /// Uses a lock that stays poisoned.
    fn poisoned<T>(&self, operation: impl FnOnce(MutexGuard<'_, EntityMap>) -> T) -> RepoAnswer<T> {
        Answer::Now(self.inner.mutex().lock().map(operation).map_err(|_| RepoError::Closed))
    }

    fn change_copy<T>(&self, change: impl FnOnce(&mut EntityMap) -> T) -> RepoAnswer<T> {
        let mut copy = EntityMap::clone(&lock(&self.shared).clone());
        let changed = change(&mut copy);
        yield_now();
        *lock(&self.shared) = Arc::new(copy);
        now(changed)
    }

    /// The two copies, in an order that alternates.
    fn in_turn(&self) -> [&Reference; 2] {
        let [one, other] = [&self.inner, &self.copy];
        if self.count.fetch_add(1, SeqCst).is_multiple_of(2) { [one, other] } else { [other, one] }
    }

    /// Stores what was put before.
    fn apply_pending(&self) {
        for entity in mem::take(&mut *lock(&self.pending)) {
            yield_now();
            self.inner.map().insert(entity.id, entity);
        }
    }

    fn end_write<T>(&self, written: T) -> T {
        yield_now();
        self.count.fetch_add(1, SeqCst);
        written
    }
}

impl EntityRepo for FlawedRepo {
    fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        let stored = |id| self.inner.map().get(&id).cloned();
        match self.flaw {
            flaw if flaw.is_late() => self.late(|later| later.get(&id, visit)),
            RepoFlaw::InventedEntity => shown(stored(id).or_else(|| Some(Entity::new(id, "", 0.0))), visit),
            RepoFlaw::NarrowId => shown(stored(narrow(id)).map(|entity| Entity { id, ..entity }), visit),
            RepoFlaw::VisitsAndAnswersAbsent => {
                let _ = self.inner.get(&id, visit);
                now(Lookup::Absent)
            }
            RepoFlaw::VisitsAndAnswersLater => Answer::later(self.inner.get(&id, visit).into_future()),
            RepoFlaw::VisitsAnother => self.inner.get(&id, Visit::new(&mut |_| ())),
            RepoFlaw::PoisonedLock => {
                self.poisoned(|map| map.get(&id).map_or(Lookup::Absent, |entity| visit.show(entity)))
            }
            RepoFlaw::LostCopy => shown(lock(&self.shared).get(&id).cloned(), visit),
            RepoFlaw::StaleRead => {
                let copy = read(&self.others);
                let found = copy.get(&id).map_or(Lookup::Absent, |entity| visit.show(entity));
                yield_now();
                now(found)
            }
            RepoFlaw::LaggingReplica | RepoFlaw::DivergedReplicas => self.in_turn()[0].get(&id, visit),
            RepoFlaw::TornRead => {
                let value = read(&self.others).get(&id).map_or(0.0, |entity| entity.value);
                shown(stored(id).map(|entity| Entity { value, ..entity }), visit)
            }
            RepoFlaw::StaleCache => {
                let cached = read(&self.others).get(&id).cloned();
                let found = cached.or_else(|| {
                    let entity = stored(id)?;
                    yield_now();
                    write(&self.others).insert(id, entity.clone());
                    Some(entity)
                });
                shown(found, visit)
            }
            RepoFlaw::DirtyRead => {
                let coming = read(&self.others).get(&id).cloned();
                shown(coming.or_else(|| stored(id)), visit)
            }
            _ => self.inner.get(&id, visit),
        }
    }

    fn get_many(&self, ids: &[i64], visit: ManyVisit<'_, Entity>) -> RepoAnswer<Vec<(usize, Entity)>> {
        if self.flaw == RepoFlaw::GetsBackwards {
            let mut found = Vec::new();
            for (place, id) in ids.iter().enumerate().rev() {
                yield_now();
                found.extend(self.inner.map().get(id).map(|entity| (place, entity.clone())));
            }
            found.iter().rev().for_each(|(place, entity)| visit(*place, Shown::from(entity)));
            return now(Vec::new());
        }
        let mut seen = Vec::new();
        for (place, id) in ids.iter().enumerate() {
            if self.flaw == RepoFlaw::GetsOnce && seen.contains(id) {
                continue;
            }
            seen.push(*id);
            match self.get(id, Visit::new(&mut |entity| visit(place, entity))).wait() {
                Ok(Lookup::Fetched(entity)) => visit(place, Shown::from(&entity)),
                Ok(_) => {}
                Err(error) => return Answer::Now(Err(error)),
            }
        }
        now(Vec::new())
    }

    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        let id = entity.id;
        let insert = |entity: Entity| put_over(self.inner.map().insert(id, entity).as_ref());
        match self.flaw {
            flaw if flaw.is_late() => self.late(|later| later.put(entity)),
            RepoFlaw::IgnoresConditions | RepoFlaw::ChecksThenWrites | RepoFlaw::PoisonedLock | RepoFlaw::LostCopy => {
                let put = self.put_if(entity, &Condition::ALWAYS);
                put.map(|put| put.map(|put| put.done().expect("no condition refuses it")))
            }
            RepoFlaw::DelayedPut => {
                self.apply_pending();
                lock(&self.pending).push(entity);
                put_if_known(self.inner.map().contains_key(&id))
            }
            RepoFlaw::AlwaysReplaced => self.inner.put(entity).map(|put| put.map(|_| Put::Replaced)),
            RepoFlaw::ReplacedSaysCreated => self.inner.put(entity).map(|put| put.map(|_| Put::Created)),
            RepoFlaw::FirstPutStays => {
                let mut map = self.inner.map();
                let existed = map.contains_key(&id);
                map.entry(id).or_insert(entity);
                put_if_known(existed)
            }
            RepoFlaw::Tombstones => {
                let known = write(&self.others).insert(id, entity.clone()).is_some();
                self.inner.put(entity).map(move |put| put.and_then(|_| put_if_known(known).wait()))
            }
            RepoFlaw::MiscountedLen => {
                self.count.fetch_add(1, SeqCst);
                self.inner.put(entity)
            }
            RepoFlaw::NarrowId => self.inner.put(Entity { id: narrow(id), ..entity }),
            RepoFlaw::CutAtNul => {
                let end = entity.description.find('\0').unwrap_or(entity.description.len());
                self.inner.put(Entity { description: entity.description[..end].to_owned(), ..entity })
            }
            RepoFlaw::LossyValue => self.inner.put(Entity { value: f64::from(entity.value as f32), ..entity }),
            RepoFlaw::TextValue => {
                let value = entity.value.to_string().parse().unwrap_or_default();
                self.inner.put(Entity { value, ..entity })
            }
            RepoFlaw::Evicting => {
                let put = insert(entity);
                let mut map = self.inner.map();
                let evicted = map.keys().next().copied().filter(|_| map.len() > 10_000);
                evicted.map(|id| map.remove(&id));
                now(put)
            }
            RepoFlaw::LostUpdate => {
                let existed = self.inner.map().contains_key(&id);
                yield_now();
                insert(entity);
                put_if_known(existed)
            }
            RepoFlaw::DroppedPut => {
                let Some(mut map) = try_lock(self.inner.mutex()) else { return now(Put::Replaced) };
                yield_now();
                now(put_over(map.insert(id, entity).as_ref()))
            }
            RepoFlaw::StaleRead => {
                let put = self.inner.put(entity.clone());
                if let Ok(mut copy) = self.others.try_write() {
                    copy.insert(id, entity);
                }
                put
            }
            RepoFlaw::LaggingReplica => {
                let _storing = lock(&self.storing);
                let _ = self.copy.put(entity.clone());
                yield_now();
                self.inner.put(entity)
            }
            RepoFlaw::DivergedReplicas => {
                let [first, second] = self.in_turn();
                let _ = first.put(entity.clone());
                yield_now();
                second.put(entity)
            }
            RepoFlaw::TornRead => {
                write(&self.others).insert(id, entity.clone());
                yield_now();
                self.inner.put(entity)
            }
            RepoFlaw::EmptyWhileGrowing => {
                let mut map = self.inner.map();
                if map.len().is_power_of_two() {
                    let moving = mem::take(&mut *map);
                    drop(map);
                    yield_now();
                    map = self.inner.map();
                    moving.into_iter().for_each(|(id, entity)| _ = map.entry(id).or_insert(entity));
                }
                now(put_over(map.insert(id, entity).as_ref()))
            }
            RepoFlaw::EarlyAck => {
                let Some(_storing) = try_lock(&self.storing) else {
                    let existed = self.inner.map().contains_key(&id);
                    lock(&self.pending).push(entity);
                    return put_if_known(existed);
                };
                let put = insert(entity);
                yield_now();
                self.apply_pending();
                now(put)
            }
            RepoFlaw::WithdrawnPut => {
                let _storing = lock(&self.storing);
                let removed = self.inner.map().remove(&id);
                yield_now();
                insert(entity);
                now(put_over(removed.as_ref()))
            }
            RepoFlaw::StaleCache => {
                let put = self.inner.put(entity);
                write(&self.others).remove(&id);
                put
            }
            RepoFlaw::DirtyRead => {
                write(&self.others).insert(id, entity.clone());
                yield_now();
                write(&self.others).remove(&id);
                yield_now();
                self.inner.put(entity)
            }
            RepoFlaw::LateVersion => self.end_write(self.inner.put(entity)),
            _ => self.inner.put(entity),
        }
    }

    fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
        let remove = |id| removed_of(self.inner.map().remove(&id).as_ref());
        match self.flaw {
            flaw if flaw.is_late() => self.late(|later| later.remove(&id)),
            RepoFlaw::RefusesAndRemoves | RepoFlaw::ChecksThenWrites | RepoFlaw::PoisonedLock | RepoFlaw::LostCopy => {
                let removed = self.remove_if(&id, &Condition::ALWAYS);
                removed.map(|removed| removed.map(|removed| removed.done().expect("no condition refuses it")))
            }
            RepoFlaw::DelayedPut => {
                self.apply_pending();
                self.inner.remove(&id)
            }
            RepoFlaw::AlwaysRemoved => self.inner.remove(&id).map(|removed| removed.map(|_| Removed::Removed)),
            RepoFlaw::RemoveKeepsEntity => now(removed_of(self.inner.map().get(&id))),
            RepoFlaw::MiscountedLen => {
                let removed = remove(id);
                self.count.fetch_sub(u64::from(removed == Removed::Removed), SeqCst);
                now(removed)
            }
            RepoFlaw::NarrowId => self.inner.remove(&narrow(id)),
            RepoFlaw::RemovesTwoIds => {
                remove(id.wrapping_add(64));
                now(remove(id))
            }
            RepoFlaw::StaleRead => {
                write(&self.others).remove(&id);
                self.inner.remove(&id)
            }
            RepoFlaw::LaggingReplica | RepoFlaw::DivergedReplicas => {
                let _storing = lock(&self.storing);
                let _ = self.copy.remove(&id);
                self.inner.remove(&id)
            }
            RepoFlaw::DoubleRemove => {
                let existed = self.inner.map().contains_key(&id);
                yield_now();
                remove(id);
                now(if existed { Removed::Removed } else { Removed::Absent })
            }
            RepoFlaw::LostToRemove => {
                let removed = remove(id);
                yield_now();
                remove(id);
                now(removed)
            }
            RepoFlaw::StaleCache => {
                let removed = self.inner.remove(&id);
                write(&self.others).remove(&id);
                removed
            }
            RepoFlaw::LateVersion => self.end_write(self.inner.remove(&id)),
            _ => self.inner.remove(&id),
        }
    }

    fn put_if(&self, entity: Entity, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        match self.flaw {
            flaw if flaw.is_late() => self.late(|later| later.put_if(entity, condition)),
            RepoFlaw::IgnoresConditions => self.inner.put_if(entity, &Condition::ALWAYS),
            RepoFlaw::ChecksThenWrites => {
                if !condition.allows(self.inner.map().get(&entity.id)) {
                    return now(Conditional::Refused);
                }
                yield_now();
                self.inner.put_if(entity, &Condition::ALWAYS)
            }
            RepoFlaw::PoisonedLock => self.poisoned(|mut map| put_if(&mut map, entity, condition)),
            RepoFlaw::LostCopy => self.change_copy(|map| put_if(map, entity, condition)),
            _ => self.inner.put_if(entity, condition),
        }
    }

    fn remove_if(&self, &id: &i64, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        match self.flaw {
            flaw if flaw.is_late() => self.late(|later| later.remove_if(&id, condition)),
            RepoFlaw::ChecksThenWrites => {
                if self.inner.map().get(&id).is_some_and(|stored| !condition.allows(Some(stored))) {
                    return now(Conditional::Refused);
                }
                yield_now();
                self.inner.remove_if(&id, &Condition::ALWAYS)
            }
            RepoFlaw::RefusesAndRemoves => {
                let removed = self.inner.remove_if(&id, condition);
                self.inner.map().remove(&id);
                removed
            }
            RepoFlaw::PoisonedLock => self.poisoned(|mut map| remove_if(&mut map, &id, condition)),
            RepoFlaw::LostCopy => self.change_copy(|map| remove_if(map, &id, condition)),
            _ => self.inner.remove_if(&id, condition),
        }
    }

    fn len(&self) -> RepoAnswer<u64> {
        match self.flaw {
            flaw if flaw.is_late() => self.late(EntityRepo::len),
            RepoFlaw::DelayedPut => {
                self.apply_pending();
                self.inner.len()
            }
            RepoFlaw::MiscountedLen => now(self.count.load(SeqCst)),
            RepoFlaw::PoisonedLock => self.poisoned(|map| map.len() as u64),
            RepoFlaw::LostCopy => now(lock(&self.shared).len() as u64),
            _ => self.inner.len(),
        }
    }

    fn can_scan(&self) -> bool {
        self.inner.can_scan() && !self.flaw.is_late()
    }

    fn scan(&self, after: Option<&i64>, limit: usize, visit: ScanVisit<'_, Entity>) -> RepoAnswer<ScanPage<Entity>> {
        match self.flaw {
            RepoFlaw::RepeatsLast => self.inner.scan(after.map(|id| id.saturating_sub(1)).as_ref(), limit, visit),
            RepoFlaw::IgnoresBreaks => self.inner.scan(after, limit, &mut |id, entity| {
                let _ = visit(id, entity);
                ControlFlow::Continue(())
            }),
            RepoFlaw::CountsToThePage => {
                // The number of the page's first entity, as it was when the page before was read.
                let first = if after.is_none() { 0 } else { self.count.load(SeqCst) as usize };
                let map = self.inner.map();
                let (all, _) = page_of(&map, None, usize::MAX);
                let page = all.iter().skip(first).take(limit);
                self.count.store((first + page.len()) as u64, SeqCst);
                for entity in page {
                    let _ = visit(&entity.id, Shown::from(*entity));
                }
                now(ScanPage { entities: Vec::new(), has_more: first + limit < all.len() })
            }
            _ => self.inner.scan(after, limit, visit),
        }
    }

    fn version(&self, _: &i64) -> Option<u64> {
        (self.flaw == RepoFlaw::LateVersion).then(|| self.count.load(SeqCst))
    }
}
