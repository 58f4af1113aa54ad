//! The [`EntityRepo`] trait: how threads share the stored entities.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::answer::Answer;
use crate::condition::{Condition, Conditional};
use crate::entity::{Entity, Identifiable};
use crate::stack;

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
/// use polyserve_core::{Answer, Condition, Conditional, EntityRepo, Identifiable, Lookup, Put, Removed, RepoError};
///
/// /// One lock for all entities.
/// #[derive(Debug)]
/// struct Tree<E: Identifiable>(Mutex<BTreeMap<E::Id, E>>);
///
/// impl<E: Identifiable> EntityRepo<E> for Tree<E> {
///     fn get(&self, id: &E::Id, visit: &mut dyn FnMut(E::View<'_>)) -> Answer<Result<Lookup<E>, RepoError>> {
///         let entities = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         let Some(entity) = entities.get(id) else { return Answer::Now(Ok(Lookup::Absent)) };
///         visit(entity.view());
///         Answer::Now(Ok(Lookup::Visited))
///     }
///
///     fn put_if(&self, entity: E, condition: &Condition) -> Answer<Result<Conditional<Put>, RepoError>> {
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
///     fn remove_if(&self, id: &E::Id, condition: &Condition) -> Answer<Result<Conditional<Removed>, RepoError>> {
///         let mut entities = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         if entities.get(id).is_some_and(|stored| !condition.allows(Some(stored))) {
///             return Answer::Now(Ok(Conditional::Refused));
///         }
///         let removed = entities.remove(id);
///         drop(entities);
///         Answer::Now(Ok(Conditional::Done(if removed.is_some() { Removed::Removed } else { Removed::Absent })))
///     }
///
///     fn len(&self) -> Answer<Result<u64, RepoError>> {
///         Answer::Now(Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).len() as u64))
///     }
/// }
///
/// use polyserve_core::Entity;
/// use polyserve_core::repo::EntityRepoExt;
///
/// let tree = Tree(Mutex::default());
/// assert_eq!(tree.put(Entity::new(1, "first", 0.5)).wait()?, Put::Created);
/// assert_eq!(tree.fetch(&1)?, Some(Entity::new(1, "first", 0.5)));
/// assert_eq!(tree.remove_if(&1, &Condition::absent()).wait()?, Conditional::Refused);
/// assert_eq!(tree.remove(&1).wait()?, Removed::Removed);
/// # Ok::<(), RepoError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an `EntityRepo<{E}>`",
    note = "a repo of your own type is made by `of`, such as `Sharded::of::<{E}>()`; `new` makes one of the published `Entity`",
    note = "a store of your own implements `EntityRepo`; in an `Arc` it is a repo too"
)]
#[allow(clippy::len_without_is_empty)] // `len` may visit the whole store, so it is no cheap test for emptiness
pub trait EntityRepo<E: Identifiable = Entity>: fmt::Debug + Send + Sync + 'static {
    /// Looks up `id`. If the entity is in memory, the repo calls `visit` exactly once before it returns, and the answer is
    /// [`Lookup::Visited`]. If the repo has to fetch the entity, it answers later with [`Lookup::Fetched`] and does not call
    /// `visit`.
    fn get(&self, id: &E::Id, visit: &mut dyn FnMut(E::View<'_>)) -> Answer<Result<Lookup<E>, RepoError>>;

    /// Stores `entity` under its id and replaces the entity that was there, if `condition` [allows](Condition::allows) it.
    /// The replaced entity, or the refused one, is dropped outside any lock.
    fn put_if(&self, entity: E, condition: &Condition) -> Answer<Result<Conditional<Put>, RepoError>>;

    /// Removes `id`, if `condition` [allows](Condition::allows) it. If no entity is stored, the answer is
    /// [`Removed::Absent`], whatever the condition.
    fn remove_if(&self, id: &E::Id, condition: &Condition) -> Answer<Result<Conditional<Removed>, RepoError>>;

    /// Stores `entity` under its id and replaces the entity that was there.
    #[inline]
    fn put(&self, entity: E) -> Answer<Result<Put, RepoError>> {
        unconditional(self.put_if(entity, &Condition::ALWAYS))
    }

    /// Removes `id`.
    #[inline]
    fn remove(&self, id: &E::Id) -> Answer<Result<Removed, RepoError>> {
        unconditional(self.remove_if(id, &Condition::ALWAYS))
    }

    /// Returns the number of entities. It is exact if no other operation runs. It may visit the whole store.
    fn len(&self) -> Answer<Result<u64, RepoError>>;

    /// Returns the version of `id`, or `None` if a write to it is in progress, or if the repo keeps no versions. That is the default.
    ///
    /// A version differs from all earlier ones if a write to the id has begun since. So if the version is still the one from before
    /// a [`get`](Self::get), what that get has found is still stored. A service then need not write or hash the JSON of a large
    /// entity again.
    fn version(&self, id: &E::Id) -> Option<u64> {
        let _ = id;
        None
    }

    /// Returns whether the repo takes writes now, for a health check: the error is the one that a write would get. It changes
    /// nothing. A repo in memory always takes writes, which is the default.
    fn status(&self) -> Answer<Result<(), RepoError>> {
        Answer::Now(Ok(()))
    }
}

/// The max time that a health check waits for [`EntityRepo::status`]: 0.8 s, because probes often give up after a second. A repo
/// that asks another process gives up sooner, so that the check names the repo's error.
pub const MAX_STATUS_WAIT: Duration = Duration::from_millis(800);

/// Returns the answer to a write under [`Condition::ALWAYS`].
#[inline]
fn unconditional<T: Send + 'static>(
    written: Answer<Result<Conditional<T>, RepoError>>,
) -> Answer<Result<T, RepoError>> {
    written.map(|written| match written? {
        Conditional::Done(result) => Ok(result),
        Conditional::Refused => Err(RepoError::Other("the repo refused a write without a condition".into())),
    })
}

/// The result of [`EntityRepo::get`].
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup<E = Entity> {
    /// There is no entity with this id.
    Absent,
    /// The visit was called with the entity.
    Visited,
    /// The entity. The visit was not called.
    Fetched(E),
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
    /// The engine behind the repo cannot be reached, or did not answer in time; the source says which. A write may have
    /// been done, or may still be done. Over HTTP: 503.
    Unavailable(Box<dyn Error + Send + Sync>),
    /// The repo takes no more writes, and reads go on. Over HTTP: 500. Clients see the text of the source, so it is the reason
    /// in general words, without names of files or addresses. Clients do not see the sources of the source.
    ReadOnly(Box<dyn Error + Send + Sync>),
    /// Any other error; it is the source. Over HTTP: 500.
    Other(Box<dyn Error + Send + Sync>),
}

impl fmt::Display for RepoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the repo is closed, and a write may have been done"),
            Self::Overloaded => f.write_str("the repo is overloaded, and the operation was not done"),
            Self::NotDone(_) => f.write_str("the repo is unavailable, and the operation was not done"),
            Self::Full(_) => f.write_str("the repo has no room for the write, which was not done"),
            Self::Unavailable(_) => f.write_str("the repo is unavailable, and a write may have been done"),
            Self::ReadOnly(_) => f.write_str("the repo takes no more writes"),
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
            | Self::Unavailable(source)
            | Self::ReadOnly(source)
            | Self::Other(source) => Some(source.as_ref()),
        }
    }
}

macro_rules! forward {
    ($($pointer:ty),*) => {$(
        #[deny(clippy::missing_trait_methods)]
        impl<E: Identifiable, R: EntityRepo<E> + ?Sized> EntityRepo<E> for $pointer {
            #[inline]
            fn get(&self, id: &E::Id, visit: &mut dyn FnMut(E::View<'_>)) -> Answer<Result<Lookup<E>, RepoError>> {
                (**self).get(id, visit)
            }
            #[inline]
            fn put_if(&self, entity: E, condition: &Condition) -> Answer<Result<Conditional<Put>, RepoError>> {
                (**self).put_if(entity, condition)
            }
            #[inline]
            fn remove_if(
                &self,
                id: &E::Id,
                condition: &Condition,
            ) -> Answer<Result<Conditional<Removed>, RepoError>> {
                (**self).remove_if(id, condition)
            }
            #[inline]
            fn put(&self, entity: E) -> Answer<Result<Put, RepoError>> {
                (**self).put(entity)
            }
            #[inline]
            fn remove(&self, id: &E::Id) -> Answer<Result<Removed, RepoError>> {
                (**self).remove(id)
            }
            #[inline]
            fn len(&self) -> Answer<Result<u64, RepoError>> {
                (**self).len()
            }
            #[inline]
            fn version(&self, id: &E::Id) -> Option<u64> {
                (**self).version(id)
            }
            #[inline]
            fn status(&self) -> Answer<Result<(), RepoError>> {
                (**self).status()
            }
        }
    )*};
}

forward!(Arc<R>, Box<R>);

/// Convenience methods of every [`EntityRepo`], for tests, tools and programs that embed a repo. They block until the repo
/// has answered.
pub trait EntityRepoExt<E: Identifiable = Entity>: EntityRepo<E> {
    /// Returns a copy of the entity, if there is one.
    ///
    /// # Errors
    ///
    /// Returns the [`RepoError`] of [`EntityRepo::get`].
    fn fetch(&self, id: &E::Id) -> Result<Option<E>, RepoError> {
        let mut visited = None;
        let found = stack::for_values(|| self.get(id, &mut |entity| visited = Some(E::from_view(entity))));
        match found.wait()? {
            Lookup::Absent => Ok(None),
            Lookup::Visited => Ok(visited),
            Lookup::Fetched(entity) => Ok(Some(entity)),
        }
    }
}

impl<E: Identifiable, R: EntityRepo<E> + ?Sized> EntityRepoExt<E> for R {}
