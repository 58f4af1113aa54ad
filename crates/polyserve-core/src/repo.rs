//! How data is shared: the [`EntityRepo`] trait.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::answer::Answer;
use crate::entity::{Entity, EntityRef};

/// A store of entities by id, shared by all threads.
///
/// # Contract
///
/// * **Linearizable**: every operation takes effect at one instant between its call and its answer. Of two racing
///   first puts of an id one is [`Put::Created`] and the other [`Put::Replaced`], and the later one's entity stays.
/// * **Whole**: a visit sees one entity that somebody put, never parts of two.
/// * **No guards**: a repo shows values; it hands out nothing that holds a lock. A visit runs under whatever lock the
///   repo needs, so it must be short and must not call the repo.
/// * **`Now` or `Later`** as [`Answer`] says. A repo that does I/O owns its own threads or runtime.
/// * **Panics**: a visit that panics costs its caller that one answer. No lock stays held, the data stays whole, and
///   the next operation works.
///
/// The trait is object-safe; `Arc<R>` and `Box<R>` of a repo are repos.
#[allow(clippy::len_without_is_empty)] // a count that may cost a walk makes a poor emptiness test
pub trait EntityRepo: fmt::Debug + Send + Sync + 'static {
    /// Looks `id` up. A repo in memory calls `visit` exactly once where the id is present, before it returns
    /// ([`Lookup::Visited`]); one that must fetch answers later with [`Lookup::Fetched`] and never calls it.
    fn get(&self, id: i64, visit: &mut dyn FnMut(EntityRef<'_>)) -> Answer<Result<Lookup, RepoError>>;

    /// Stores `entity` under its id, replacing what was there. The replaced entity is dropped outside any lock.
    fn put(&self, entity: Entity) -> Answer<Result<Put, RepoError>>;

    /// Removes `id`.
    fn remove(&self, id: i64) -> Answer<Result<Removed, RepoError>>;

    /// How many entities there are. Exact when no other operation runs; may walk the whole store.
    fn len(&self) -> Answer<Result<u64, RepoError>>;
}

/// What [`EntityRepo::get`] found.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup {
    /// There is no such id.
    Absent,
    /// The visit saw the entity.
    Visited,
    /// Here it is; the visit was not called.
    Fetched(Entity),
}

/// What [`EntityRepo::put`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Put {
    /// The id is new.
    Created,
    /// The id was there; its entity was replaced.
    Replaced,
}

/// What [`EntityRepo::remove`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Removed {
    /// The id was there and is gone.
    Removed,
    /// There was no such id.
    Absent,
}

/// Why a repo could not answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum RepoError {
    /// The repo is shutting down, or whoever was to answer is gone. Over HTTP: 503.
    Closed,
    /// The repo takes no more work for now. Over HTTP: 503.
    Overloaded,
    /// Anything else; the source says what. Over HTTP: 500.
    Other(Box<dyn Error + Send + Sync>),
}

impl fmt::Display for RepoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the repo is closed"),
            Self::Overloaded => f.write_str("the repo is overloaded"),
            Self::Other(_) => f.write_str("the repo failed"),
        }
    }
}

impl Error for RepoError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Closed | Self::Overloaded => None,
            Self::Other(source) => Some(source.as_ref()),
        }
    }
}

macro_rules! forward {
    ($($pointer:ty),*) => {$(
        #[deny(clippy::missing_trait_methods)]
        impl<R: EntityRepo + ?Sized> EntityRepo for $pointer {
            fn get(&self, id: i64, visit: &mut dyn FnMut(EntityRef<'_>)) -> Answer<Result<Lookup, RepoError>> {
                (**self).get(id, visit)
            }
            fn put(&self, entity: Entity) -> Answer<Result<Put, RepoError>> {
                (**self).put(entity)
            }
            fn remove(&self, id: i64) -> Answer<Result<Removed, RepoError>> {
                (**self).remove(id)
            }
            fn len(&self) -> Answer<Result<u64, RepoError>> {
                (**self).len()
            }
        }
    )*};
}

forward!(Arc<R>, Box<R>);

/// Shortcuts over any [`EntityRepo`], for tests, tools and embedders; they wait where the repo answers later.
pub trait EntityRepoExt: EntityRepo {
    /// A copy of the entity, if it is there.
    ///
    /// # Errors
    ///
    /// As [`EntityRepo::get`].
    fn fetch(&self, id: i64) -> Result<Option<Entity>, RepoError> {
        let mut seen = None;
        match self.get(id, &mut |entity| seen = Some(entity.to_entity())).wait()? {
            Lookup::Absent => Ok(None),
            Lookup::Visited => Ok(seen),
            Lookup::Fetched(entity) => Ok(Some(entity)),
        }
    }
}

impl<R: EntityRepo + ?Sized> EntityRepoExt for R {}
