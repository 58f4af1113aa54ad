//! `ordered`: an index of ids over another repo, so that it can be scanned in the order of the ids.
//!
//! Invariant: the index has the id of each stored entity. A put of a new id adds it before it stores, and only a write that has seen its
//! entity absent, while no other write of that id was in progress, removes it again. So a scan misses no entity that is stored
//! during the whole scan; for an id that is not stored, it finds nothing and goes on. No lock is held while the repo writes: two
//! writes of an id may overlap, and then the last one to end looks up what they have left.
//!
//! Cost: a get is that of the repo. A write has two locks of a stripe more, and a put one get. A new id and a removed one take the
//! lock of the index, which is one for all: O(log n) under it. A page copies its ids under that lock, some at a time, and gets each.
//!
//! Source: an ordered set next to a hash table, as databases index a table.
//!
//! *Wins when* entities are exported, or listed for people. *Loses when* many ids are new or removed: these writes take turns. Record:
//! `stores-ordered`.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::BuildHasher;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use polyserve_core::figures::StoreFigures;
use polyserve_core::sync::{Mutex, RwLock, lock, read, write};
use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, Identifiable, Lookup, ManyVisit, Put, Removed, RepoAnswer,
    RepoError, ScanPage, ScanVisit, Shown, Visit,
};

use crate::hash::IdState;

/// The number of stripes. Two writes at the same time seldom meet in one.
const STRIPES: usize = 64;

/// The number of ids that a page copies under the lock of the index.
const AT_A_TIME: usize = 64;

/// A repo that can [`scan`](EntityRepo::scan), over one that answers now.
///
/// A write that the repo below answers later is waited for. A store over an engine scans by itself; `Durable` is opened over an
/// `Ordered`, not within one.
///
/// ```
/// use std::ops::ControlFlow;
///
/// use polyserve_core::{Entity, EntityRepo};
/// use polyserve_memory::{Ordered, Sharded};
///
/// let store = Ordered::new(Sharded::new());
/// for id in [3, 1, 2] {
///     store.put(Entity::new(id, "listed", 0.5)).wait()?;
/// }
/// let mut ids = Vec::new();
/// let page = store.scan(Some(&1), 100, &mut |id, _entity| {
///     ids.push(*id);
///     ControlFlow::Continue(())
/// });
/// assert!(!page.wait()?.has_more);
/// assert_eq!(ids, [2, 3]);
/// # Ok::<(), polyserve_core::RepoError>(())
/// ```
pub struct Ordered<R, E: Identifiable = Entity> {
    repo: R,
    ids: RwLock<BTreeSet<E::Id>>,
    stripes: Box<[WriteStripe<E::Id>]>,
    hash: IdState,
}

/// The writes in progress of the ids with some hashes.
type WriteStripe<I> = Mutex<Vec<WritesOfId<I>>>;

/// The writes of an id that are in progress.
struct WritesOfId<I> {
    id: I,
    count: usize,
    /// Whether two of them overlapped, or one ended by a panic: then no result tells what is stored.
    is_uncertain: bool,
}

impl<R: EntityRepo<E>, E: Identifiable> Ordered<R, E> {
    /// Creates the index of an empty repo.
    pub fn new(repo: R) -> Self {
        let stripes = (0..STRIPES).map(|_| Mutex::default()).collect();
        Self { repo, ids: RwLock::default(), stripes, hash: IdState::default() }
    }

    /// Returns the repo below. A write to it is not in the index.
    pub fn repo(&self) -> &R {
        &self.repo
    }

    fn stripe(&self, id: &E::Id) -> &WriteStripe<E::Id> {
        let at = self.hash.hash_one(id) as usize % STRIPES;
        &self.stripes[at]
    }

    /// Begins a write.
    fn begin(&self, id: E::Id, may_add: bool) -> WriteInProgress<'_, R, E> {
        let mut stripe = lock(self.stripe(&id));
        match stripe.iter_mut().find(|writes| writes.id == id) {
            Some(writes) => {
                writes.count += 1;
                writes.is_uncertain = true;
            }
            None => stripe.push(WritesOfId { id: id.clone(), count: 1, is_uncertain: false }),
        }
        drop(stripe);
        let in_progress = WriteInProgress { index: self, id: Some(id.clone()) };
        // The id of a stored entity is in the index, and stays there as long as a write is in progress.
        let is_stored = || !matches!(self.repo.get(&id, Visit::new(&mut |_| ())).wait(), Ok(Lookup::Absent) | Err(_));
        if may_add && !is_stored() {
            write(&self.ids).insert(id);
        }
        in_progress
    }

    /// Ends a write. `left` is what its result tells about the entity.
    fn end(&self, id: &E::Id, left: Left) {
        let mut stripe = lock(self.stripe(id));
        let Some(at) = stripe.iter().position(|writes| writes.id == *id) else { return };
        let writes = &mut stripe[at];
        writes.count -= 1;
        writes.is_uncertain |= matches!(left, Left::Uncertain | Left::Panicked);
        if writes.count > 0 {
            return;
        }
        let is_uncertain = stripe.swap_remove(at).is_uncertain;
        // No write of the id can begin while the stripe is locked. What was found is dropped after it.
        let found = (is_uncertain && left != Left::Panicked).then(|| self.repo.get(id, Visit::new(&mut |_| ())).wait());
        let is_absent = found.as_ref().map_or(left == Left::Absent, |found| matches!(found, Ok(Lookup::Absent)));
        if is_absent {
            write(&self.ids).remove(id);
        }
        drop(stripe);
    }
}

/// What a write has left under its id.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    Stored,
    Absent,
    /// The result does not tell it.
    Uncertain,
    Panicked,
}

/// A write that has begun and not ended. One that is dropped has panicked: the id stays in the index.
struct WriteInProgress<'a, R: EntityRepo<E>, E: Identifiable> {
    index: &'a Ordered<R, E>,
    id: Option<E::Id>,
}

impl<R: EntityRepo<E>, E: Identifiable> WriteInProgress<'_, R, E> {
    /// Ends the write. `left` tells what its result has left.
    fn end<T: Send + 'static>(mut self, answer: RepoAnswer<T>, left: impl FnOnce(&T) -> Left) -> RepoAnswer<T> {
        let result = answer.wait();
        if let Some(id) = self.id.take() {
            self.index.end(&id, result.as_ref().map_or(Left::Uncertain, left));
        }
        Answer::Now(result)
    }
}

impl<R: EntityRepo<E>, E: Identifiable> Drop for WriteInProgress<'_, R, E> {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            self.index.end(id, Left::Panicked);
        }
    }
}

impl<R: EntityRepo<E>, E: Identifiable> EntityRepo<E> for Ordered<R, E> {
    #[inline]
    fn get(&self, id: &E::Id, visit: Visit<'_, E>) -> RepoAnswer<Lookup<E>> {
        self.repo.get(id, visit)
    }

    fn get_many(&self, ids: &[E::Id], visit: ManyVisit<'_, E>) -> RepoAnswer<Vec<(usize, E)>> {
        self.repo.get_many(ids, visit)
    }

    fn put_if(&self, entity: E, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        let write = self.begin(entity.id().clone(), true);
        write.end(self.repo.put_if(entity, condition), |put| match put {
            Conditional::Done(_) => Left::Stored,
            Conditional::Refused => Left::Uncertain,
        })
    }

    fn remove_if(&self, id: &E::Id, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        let write = self.begin(id.clone(), false);
        write.end(self.repo.remove_if(id, condition), |removed| match removed {
            Conditional::Done(_) => Left::Absent,
            Conditional::Refused => Left::Stored,
        })
    }

    fn put(&self, entity: E) -> RepoAnswer<Put> {
        let write = self.begin(entity.id().clone(), true);
        write.end(self.repo.put(entity), |_| Left::Stored)
    }

    fn remove(&self, id: &E::Id) -> RepoAnswer<Removed> {
        let write = self.begin(id.clone(), false);
        write.end(self.repo.remove(id), |_| Left::Absent)
    }

    fn len(&self) -> RepoAnswer<u64> {
        self.repo.len()
    }

    fn version(&self, id: &E::Id) -> Option<u64> {
        self.repo.version(id)
    }

    fn can_scan(&self) -> bool {
        true
    }

    /// The order is that of the ids.
    fn scan(&self, after: Option<&E::Id>, limit: usize, visit: ScanVisit<'_, E>) -> RepoAnswer<ScanPage<E>> {
        Answer::Now(self.page(after, limit, visit).map(|has_more| ScanPage { entities: Vec::new(), has_more }))
    }

    fn status(&self) -> RepoAnswer<()> {
        self.repo.status()
    }

    fn figures(&self) -> Option<Arc<dyn StoreFigures>> {
        self.repo.figures()
    }
}

impl<R: EntityRepo<E>, E: Identifiable> Ordered<R, E> {
    /// Shows a page, and returns whether there may be more.
    fn page(&self, after: Option<&E::Id>, limit: usize, visit: ScanVisit<'_, E>) -> Result<bool, RepoError> {
        let (mut after, mut seen) = (after.cloned(), 0);
        loop {
            let begin = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let ids: Vec<E::Id> =
                read(&self.ids).range::<E::Id, _>((begin, Bound::Unbounded)).take(AT_A_TIME).cloned().collect();
            for id in &ids {
                if seen == limit {
                    return Ok(true);
                }
                let mut flow = ControlFlow::Continue(());
                let found = self.repo.get(id, Visit::new(&mut |entity| flow = visit(id, entity))).wait()?;
                match found {
                    Lookup::Absent => continue,
                    Lookup::Visited(_) => {}
                    Lookup::Fetched(entity) => flow = visit(id, Shown::from(&entity)),
                }
                if flow.is_break() {
                    return Ok(true);
                }
                seen += 1;
            }
            if ids.len() < AT_A_TIME {
                return Ok(false);
            }
            after = ids.into_iter().next_back();
        }
    }
}

impl<R: fmt::Debug, E: Identifiable> fmt::Debug for Ordered<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ordered").field("repo", &self.repo).finish_non_exhaustive()
    }
}
