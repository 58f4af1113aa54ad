//! The [`EntityRepo`] trait: how threads share the stored entities.

use std::error::Error;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::answer::Answer;
use crate::condition::{Condition, Conditional};
use crate::entity::{Entity, Identifiable};
use crate::figures::StoreFigures;
use crate::many_gets::get_each;
use crate::shown::Shown;
use crate::stack;
use crate::text::shortened;

/// A store of entities by id, shared by all threads. The entities are [`Entity`]s, or of a user's own type.
///
/// # Contract
///
/// * **Linearizable**: every operation takes effect at one instant between its call and its answer. If two first puts of an
///   id race, one is [`Put::Created`] and the other is [`Put::Replaced`]. The entity of the later put stays.
/// * **Conditions**: a condition is evaluated at that instant too. No other write comes between the check and the write.
/// * **Atomic entities**: a visit sees one entity as it was put, never parts of two.
/// * **No guards**: a repo shows values and never returns anything that holds a lock. A visit may run under a lock of the
///   repo, so it must be short and must not call the repo.
/// * **`Now` or `Later`**, as [`Answer`] defines them. A repo that does I/O owns its threads or its runtime.
/// * **Panics**: if a visit panics, only that call fails. No lock stays held, the data stays valid, and the next operation
///   works.
///
/// The trait is object-safe; `Arc<R>` and `Box<R>` of a repo are repos.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::{Mutex, PoisonError};
///
/// use polyserve_core::{Answer, Condition, Conditional, EntityRepo, Identifiable, Lookup, Put, Removed, RepoAnswer, Visit};
///
/// /// One lock for all entities.
/// #[derive(Debug)]
/// struct Tree<E: Identifiable>(Mutex<BTreeMap<E::Id, E>>);
///
/// impl<E: Identifiable> EntityRepo<E> for Tree<E> {
///     fn get(&self, id: &E::Id, visit: Visit<'_, E>) -> RepoAnswer<Lookup<E>> {
///         let entities = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         Answer::Now(Ok(entities.get(id).map_or(Lookup::Absent, |entity| visit.show(entity))))
///     }
///
///     fn put_if(&self, entity: E, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
///         let mut entities = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         if !condition.allows(entities.get(entity.id())) {
///             drop(entities);
///             return Answer::Now(Ok(Conditional::Refused));
///         }
///         let replaced = entities.insert(entity.id().clone(), entity);
///         drop(entities);
///         Answer::Now(Ok(Conditional::Done(if replaced.is_some() { Put::Replaced } else { Put::Created })))
///     }
///
///     fn remove_if(&self, id: &E::Id, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
///         let mut entities = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         if entities.get(id).is_some_and(|stored| !condition.allows(Some(stored))) {
///             return Answer::Now(Ok(Conditional::Refused));
///         }
///         let removed = entities.remove(id);
///         drop(entities);
///         Answer::Now(Ok(Conditional::Done(if removed.is_some() { Removed::Removed } else { Removed::Absent })))
///     }
///
///     fn len(&self) -> RepoAnswer<u64> {
///         Answer::Now(Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).len() as u64))
///     }
/// }
///
/// use polyserve_core::{Entity, EntityRepoExt};
///
/// let tree = Tree(Mutex::default());
/// assert_eq!(tree.put(Entity::new(1, "first", 0.5)).wait()?, Put::Created);
/// assert_eq!(tree.fetch(&1).wait()?, Some(Entity::new(1, "first", 0.5)));
/// assert_eq!(tree.remove_if(&1, &Condition::absent()).wait()?, Conditional::Refused);
/// assert_eq!(tree.remove(&1).wait()?, Removed::Removed);
/// # Ok::<(), polyserve_core::RepoError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an `EntityRepo<{E}>`",
    note = "a repo of your own type is made by `of`, such as `Sharded::of::<{E}>()`; `new` makes one of the published `Entity`",
    note = "a store of your own implements `EntityRepo`; in an `Arc` it is a repo too"
)]
#[allow(clippy::len_without_is_empty)] // `len` may visit the whole store, so it is no cheap test for emptiness
pub trait EntityRepo<E: Identifiable = Entity>: fmt::Debug + Send + Sync + 'static {
    /// Looks up `id`. If the entity is in memory, the repo shows it to `visit` before it returns, and the answer is what
    /// [`Visit::show`] returns. If the repo has to fetch the entity, it answers later with [`Lookup::Fetched`] and drops
    /// `visit`.
    fn get(&self, id: &E::Id, visit: Visit<'_, E>) -> RepoAnswer<Lookup<E>>;

    /// Looks up each of `ids`, as that many [gets](Self::get) in this order would. An entity in memory is shown to `visit` with its place
    /// in `ids`. The answer has the others, each with its place. An id that is not stored is in neither.
    ///
    /// A repo may do better than the default, which calls [`get`](Self::get): `sharded` waits for memory once for several ids. No lock is
    /// held from one visit to the next. A repo that answers later and has a bounded queue calls [`get_in_turn`](crate::get_in_turn): it
    /// takes more ids than the queue holds.
    fn get_many(&self, ids: &[E::Id], visit: ManyVisit<'_, E>) -> RepoAnswer<Vec<(usize, E)>> {
        get_each(self, ids, visit)
    }

    /// Stores `entity` under its id and replaces the entity that was there, if `condition` [allows](Condition::allows) it.
    /// The replaced entity, or the refused one, is dropped outside any lock.
    fn put_if(&self, entity: E, condition: &Condition) -> RepoAnswer<Conditional<Put>>;

    /// Removes `id`, if `condition` [allows](Condition::allows) it. If no entity is stored, the answer is
    /// [`Removed::Absent`], whatever the condition.
    fn remove_if(&self, id: &E::Id, condition: &Condition) -> RepoAnswer<Conditional<Removed>>;

    /// Stores `entity` under its id and replaces the entity that was there.
    #[inline]
    fn put(&self, entity: E) -> RepoAnswer<Put> {
        unconditional(self.put_if(entity, &Condition::ALWAYS))
    }

    /// Removes `id`.
    #[inline]
    fn remove(&self, id: &E::Id) -> RepoAnswer<Removed> {
        unconditional(self.remove_if(id, &Condition::ALWAYS))
    }

    /// Returns the number of entities. It is exact if no other operation runs. It may visit the whole store.
    fn len(&self) -> RepoAnswer<u64>;

    /// Returns the version of `id`, or `None` if a write to it is in progress, or if the repo keeps no versions. That is the default.
    ///
    /// A version differs from all earlier ones if a write to the id has begun since. So if the version is still the one from before
    /// a [`get`](Self::get), what that get has found is still stored. A service then need not write or hash the JSON of a large
    /// entity again.
    fn version(&self, id: &E::Id) -> Option<u64> {
        let _ = id;
        None
    }

    /// Returns whether the repo can [`scan`](Self::scan). It cannot by default.
    fn can_scan(&self) -> bool {
        false
    }

    /// Reads a page: at most `limit` of the entities with an id after `after`, or of all, in an order of the ids that the repo
    /// keeps. If they are in memory, the repo shows each to `visit`, with its id, until `visit` breaks; else it answers later with
    /// [`ScanPage::entities`], which have at most [`MAX_PAGE_BYTES`] unless there is only one.
    ///
    /// A scan is a sequence of pages, each after the last id of the page before. It is no snapshot: an entity that is stored during the
    /// whole scan is seen exactly once, as it was put. One that is stored or removed meanwhile is seen once, or not at all.
    ///
    /// What is stored and is no entity ends the page before it, and the page that would begin with it is an error, so that it is neither
    /// left out unseen nor in the way of the others.
    ///
    /// Cost: that of `limit` gets, however many entities there are. A store over an engine that keeps no order may have to list more ids, and
    /// says so.
    ///
    /// # Errors
    ///
    /// Returns [`RepoError::Other`] if the repo cannot scan, which is the default. Returns [`RepoError::Malformed`] if what comes first
    /// is no entity; the scan can go on after its id.
    fn scan(&self, after: Option<&E::Id>, limit: usize, visit: ScanVisit<'_, E>) -> RepoAnswer<ScanPage<E>> {
        let _ = (after, limit, visit);
        Answer::Now(Err(RepoError::Other("the repo cannot scan".into())))
    }

    /// Returns whether the repo takes writes now, for a health check: the error is the one that a write would get. It changes
    /// nothing. A repo in memory always takes writes, which is the default.
    fn status(&self) -> RepoAnswer<()> {
        Answer::Now(Ok(()))
    }

    /// Returns what the repo counts itself, for metrics; `None` if that is nothing, which is the default. The figures outlive the
    /// repo, and keep none of its files and connections.
    fn figures(&self) -> Option<Arc<dyn StoreFigures>> {
        None
    }
}

/// The max time that a health check waits for [`EntityRepo::status`]: 0.8 s, because probes often give up after a second. A repo
/// that asks another process gives up sooner, so that the check names the repo's error.
pub const MAX_STATUS_WAIT: Duration = Duration::from_millis(800);

/// Returns the answer to a write under [`Condition::ALWAYS`].
#[inline]
fn unconditional<T: Send + 'static>(written: RepoAnswer<Conditional<T>>) -> RepoAnswer<T> {
    written.map(|written| match written? {
        Conditional::Done(result) => Ok(result),
        Conditional::Refused => Err(RepoError::Other("the repo refused a write without a condition".into())),
    })
}

/// The answer of a repo.
pub type RepoAnswer<T> = Answer<Result<T, RepoError>>;

/// The result of [`EntityRepo::get`].
#[derive(Debug, PartialEq)]
pub enum Lookup<E = Entity> {
    /// There is no entity with this id.
    Absent,
    /// The visit saw the entity. Only [`Visit::show`] makes it. A repo must not return that of a visit of its own.
    Visited(Visited),
    /// The entity. The visit saw nothing.
    Fetched(E),
}

/// The proof that a visit was called. [`Visit::show`] returns it in [`Lookup::Visited`], and there is no other way to make or
/// copy one. It does not prove which visit was called: a repo that answers with the proof of another visit breaks the contract, and
/// the conformance kit finds it.
#[derive(Debug, PartialEq)]
pub struct Visited(());

/// The callback of [`EntityRepo::get`], which sees an entity. A repo can call it once at most.
///
/// ```
/// use polyserve_core::{Entity, Lookup, Visit};
///
/// let mut json = Vec::new();
/// let found = Visit::new(&mut |shown| shown.write_json(&mut json).unwrap()).show(&Entity::new(1, "first", 0.5));
/// assert!(matches!(found, Lookup::Visited(_)));
/// assert_eq!(json, br#"{"id":1,"description":"first","value":0.5}"#);
/// ```
pub struct Visit<'a, E: Identifiable = Entity>(&'a mut dyn FnMut(Shown<'_, E>));

impl<'a, E: Identifiable> Visit<'a, E> {
    /// Creates a visit from a closure.
    #[inline]
    pub fn new(visit: &'a mut dyn FnMut(Shown<'_, E>)) -> Self {
        Self(visit)
    }

    /// Calls the visit with an entity: a reference to it, or a [`Shown`]. Returns [`Lookup::Visited`].
    #[inline]
    pub fn show<'s>(self, entity: impl Into<Shown<'s, E>>) -> Lookup<E> {
        (self.0)(entity.into());
        Lookup::Visited(Visited(()))
    }
}

impl<E: Identifiable> fmt::Debug for Visit<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Visit(..)")
    }
}

/// The callback of [`EntityRepo::get_many`]. It sees the place of an id, and its entity.
pub type ManyVisit<'a, E> = &'a mut dyn FnMut(usize, Shown<'_, E>);

/// The callback of [`EntityRepo::scan`]. It sees an id and its entity, and breaks if the page is full.
pub type ScanVisit<'a, E> = &'a mut dyn FnMut(&<E as Identifiable>::Id, Shown<'_, E>) -> ControlFlow<()>;

/// The max bytes of the entities in a page: 1 MiB. An entity that alone has more is a page by itself.
pub const MAX_PAGE_BYTES: usize = 1 << 20;

/// The result of [`EntityRepo::scan`].
#[derive(Debug)]
pub struct ScanPage<E> {
    /// The entities, if no visit has seen them.
    pub entities: Vec<E>,
    /// Whether there may be more entities after the last one of the page.
    pub has_more: bool,
}

/// The result of [`EntityRepo::put`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Put {
    /// The id is new.
    Created,
    /// The entity of this id was replaced.
    Replaced,
}

/// The result of [`EntityRepo::remove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Removed {
    /// The entity was removed.
    Removed,
    /// There was no entity with this id.
    Absent,
}

/// The reason why a repo could not answer. Over HTTP, clients see its text, without the sources: it tells a write that was not done
/// from one that may have been done.
///
/// ```
/// use polyserve_core::RepoError;
/// use std::error::Error;
///
/// let error = RepoError::Other("the disk is full".into());
/// assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("the disk is full"));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum RepoError {
    /// The repo is shutting down, or the thread that was to answer has ended. A write may have been done. Over HTTP: 503.
    Closed,
    /// The repo accepts no more work for now. The operation was not done. Over HTTP: 503.
    Overloaded,
    /// The operation was certainly not done, and may succeed later: the engine behind the repo rejected it for now, or nothing
    /// was sent to it. Over HTTP: 503.
    NotDone(Box<dyn Error + Send + Sync>),
    /// The write was not done, because there is no room for it. Reads go on, and writes too if there is room again. Over
    /// HTTP: 507.
    Full(Box<dyn Error + Send + Sync>),
    /// The write was not done, and never will be: the entity or its id is larger than the repo can store. Over HTTP: 413.
    TooLarge(Box<dyn Error + Send + Sync>),
    /// The engine behind the repo cannot be reached, or did not answer in time; the source says which. A write may have
    /// been done, or may still be done. Over HTTP: 503.
    Unavailable(Box<dyn Error + Send + Sync>),
    /// The repo takes no more writes, and reads go on. Over HTTP: 500. Clients see the text of the source, so it is the reason
    /// in general words, without names of files or addresses. Clients do not see the sources of the source.
    ReadOnly(Box<dyn Error + Send + Sync>),
    /// What is stored under the id is no entity, or one with another id: another program has written it. The operation was not done. A
    /// removal without a condition removes it. Over HTTP: 500, with the id.
    Malformed(Box<MalformedEntity>),
    /// Any other error; it is the source. Over HTTP: 500.
    Other(Box<dyn Error + Send + Sync>),
}

/// What is stored in place of an entity: see [`RepoError::Malformed`].
#[derive(Debug)]
pub struct MalformedEntity {
    /// The text of the id.
    pub id: String,
    /// What is wrong with it.
    pub why: Box<dyn Error + Send + Sync>,
}

impl fmt::Display for RepoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the repo is closed, and a write may have been done"),
            Self::Overloaded => f.write_str("the repo is overloaded, and the operation was not done"),
            Self::NotDone(_) => f.write_str("the repo is unavailable, and the operation was not done"),
            Self::Full(_) => f.write_str("the repo has no room for the write, which was not done"),
            Self::TooLarge(_) => {
                f.write_str("the entity is larger than the repo can store, and the write was not done")
            }
            Self::Unavailable(_) => f.write_str("the repo is unavailable, and a write may have been done"),
            Self::ReadOnly(_) => f.write_str("the repo takes no more writes"),
            Self::Malformed(what) => {
                write!(f, "what is stored under the id {} is no entity", shortened(&*what.id, 100))
            }
            Self::Other(_) => f.write_str("the repo failed"),
        }
    }
}

impl Error for RepoError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Closed | Self::Overloaded => None,
            Self::NotDone(source)
            | Self::Full(source)
            | Self::TooLarge(source)
            | Self::Unavailable(source)
            | Self::ReadOnly(source)
            | Self::Other(source) => Some(source.as_ref()),
            Self::Malformed(what) => Some(what.why.as_ref()),
        }
    }
}

macro_rules! forward {
    ($($pointer:ty),*) => {$(
        #[deny(clippy::missing_trait_methods)]
        impl<E: Identifiable, R: EntityRepo<E> + ?Sized> EntityRepo<E> for $pointer {
            #[inline]
            fn get(&self, id: &E::Id, visit: Visit<'_, E>) -> RepoAnswer<Lookup<E>> {
                (**self).get(id, visit)
            }
            #[inline]
            fn get_many(
                &self,
                ids: &[E::Id],
                visit: ManyVisit<'_, E>,
            ) -> RepoAnswer<Vec<(usize, E)>> {
                (**self).get_many(ids, visit)
            }
            #[inline]
            fn put_if(&self, entity: E, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
                (**self).put_if(entity, condition)
            }
            #[inline]
            fn remove_if(
                &self,
                id: &E::Id,
                condition: &Condition,
            ) -> RepoAnswer<Conditional<Removed>> {
                (**self).remove_if(id, condition)
            }
            #[inline]
            fn put(&self, entity: E) -> RepoAnswer<Put> {
                (**self).put(entity)
            }
            #[inline]
            fn remove(&self, id: &E::Id) -> RepoAnswer<Removed> {
                (**self).remove(id)
            }
            #[inline]
            fn len(&self) -> RepoAnswer<u64> {
                (**self).len()
            }
            #[inline]
            fn version(&self, id: &E::Id) -> Option<u64> {
                (**self).version(id)
            }
            #[inline]
            fn can_scan(&self) -> bool {
                (**self).can_scan()
            }
            #[inline]
            fn scan(
                &self,
                after: Option<&E::Id>,
                limit: usize,
                visit: ScanVisit<'_, E>,
            ) -> RepoAnswer<ScanPage<E>> {
                (**self).scan(after, limit, visit)
            }
            #[inline]
            fn status(&self) -> RepoAnswer<()> {
                (**self).status()
            }
            #[inline]
            fn figures(&self) -> Option<Arc<dyn StoreFigures>> {
                (**self).figures()
            }
        }
    )*};
}

forward!(Arc<R>, Box<R>);

/// Convenience methods of every [`EntityRepo`], for tests, tools and programs that embed a repo.
pub trait EntityRepoExt<E: Identifiable = Entity>: EntityRepo<E> {
    /// Returns a copy of the entity, if there is one. An async caller awaits the answer; other callers block with
    /// [`wait`](Answer::wait).
    ///
    /// # Errors
    ///
    /// Returns the [`RepoError`] of [`EntityRepo::get`].
    fn fetch(&self, id: &E::Id) -> RepoAnswer<Option<E>> {
        let mut visited = None;
        let found = stack::for_values(|| self.get(id, Visit::new(&mut |shown| visited = Some(shown.to_owned()))));
        found.map(move |found| {
            Ok(match found? {
                Lookup::Absent => None,
                Lookup::Visited(_) => visited,
                Lookup::Fetched(entity) => Some(entity),
            })
        })
    }
}

impl<E: Identifiable, R: EntityRepo<E> + ?Sized> EntityRepoExt<E> for R {}
