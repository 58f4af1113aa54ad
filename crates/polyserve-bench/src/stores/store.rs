//! The interface of a measured store: a repo behind the seam, or a bare map.
//!
//! Loops are compiled for each type of store. So a bare map is called as its users call it, and a repo as a service calls it,
//! with a visit. A repo of the catalog is an `Arc<dyn EntityRepo>`; a typed repo has its own type.
//!
//! Cost: none in addition to the store's. The wait for a deferred answer parks the thread.

use std::fmt;
use std::io;
use std::thread;

use anyhow::anyhow;
use polyserve::panics::isolate;
use polyserve::{Answer, Entity, EntityRef, EntityRepo, Lookup, Put, Removed, RepoAnswer, RepoError, Shown, Visit};

use crate::machine::Cores;

/// The operations of a store that the loops use.
#[allow(clippy::len_without_is_empty)] // as the seam's
pub(crate) trait MeasuredStore {
    /// Shows the entity of `id` to `see`, if there is one.
    fn get(&self, id: i64, see: &mut impl FnMut(EntityRef<'_>)) -> Result<(), RepoError>;

    /// Shows the entities of `ids` to `see`, each with its place there. A bare map has its gets.
    #[inline]
    fn get_many(&self, ids: &[i64], see: &mut impl FnMut(usize, EntityRef<'_>)) -> Result<(), RepoError> {
        ids.iter().enumerate().try_for_each(|(place, id)| self.get(*id, &mut |found| see(place, found)))
    }

    /// Stores `entity`.
    fn put(&self, entity: Entity) -> Result<Put, RepoError>;

    /// Removes `id`.
    fn remove(&self, id: i64) -> Result<Removed, RepoError>;

    /// Returns the number of entities.
    fn len(&self) -> Result<u64, RepoError>;

    /// The repo; `None` for a bare map. A repo may defer answers, and then many operations can be outstanding.
    fn repo(&self) -> Option<&dyn EntityRepo> {
        None
    }

    /// Runs `work` concurrently, with a thread for each lane.
    fn each<L: Send>(&self, lanes: &mut [L], work: impl Fn(&Self, &mut L) + Sync) -> anyhow::Result<()>;
}

/// [`MeasuredStore::each`] for a store that threads may share. Each thread is pinned to its own core, if there are enough.
pub(super) fn in_threads<S: Sync, L: Send>(
    store: &S,
    lanes: &mut [L],
    work: impl Fn(&S, &mut L) + Sync,
) -> anyhow::Result<()> {
    let work = &work;
    let works = lanes.iter_mut().map(|lane| -> ThreadWork<'_> { Box::new(move || work(store, lane)) });
    run_pinned(works.collect())
}

/// The work of one thread.
type ThreadWork<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Starts and joins the threads. It is compiled once for all types of stores.
fn run_pinned<'a>(works: Vec<ThreadWork<'a>>) -> anyhow::Result<()> {
    let cores = Cores::available()?;
    thread::scope(|scope| {
        let start = |(number, work): (usize, ThreadWork<'a>)| {
            let core = cores.numbers()[number % cores.count()];
            scope.spawn(move || {
                let _ = Cores::from(core).pin(); // a machine that refuses is noisier, not wrong
                work();
            })
        };
        let threads: Vec<_> = works.into_iter().enumerate().map(start).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked")))
    })
}

/// A repo behind the seam.
pub(crate) struct RepoStore<R>(pub R);

impl<R: EntityRepo> fmt::Debug for RepoStore<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns the fields of an entity that a repo shows.
///
/// # Panics
///
/// Panics if the repo's own form of the entity does not show them. [`check_form`] finds such a repo first.
#[inline]
pub(super) fn fields<'a>(shown: &Shown<'a>) -> EntityRef<'a> {
    shown.fields().expect("the repo was checked when it was made")
}

/// Checks that a new repo shows the fields of an entity: otherwise a copy would be measured too. Other faults of the repo are found
/// while it is measured.
pub(super) fn check_form(repo: &dyn EntityRepo) -> io::Result<()> {
    let mut has_fields = true;
    let _ = isolate(|| {
        let _ = repo.put(Entity::new(0, "", 0.0)).wait();
        let _ = repo.get(&0, Visit::new(&mut |shown| has_fields = shown.fields().is_some())).wait();
    });
    if has_fields {
        return Ok(());
    }
    Err(io::Error::other(
        "its form of an entity does not show the fields, so it cannot be measured: implement StoredForm::fields",
    ))
}

/// Shows the entity of an answer that is not [`Lookup::Visited`].
#[cold]
fn fetched(answer: RepoAnswer<Lookup>, see: &mut impl FnMut(EntityRef<'_>)) -> Result<(), RepoError> {
    match answer.wait()? {
        Lookup::Visited(_) | Lookup::Absent => {}
        Lookup::Fetched(entity) => see(entity.as_ref()),
    }
    Ok(())
}

impl<R: EntityRepo> MeasuredStore for RepoStore<R> {
    #[inline]
    fn get(&self, id: i64, see: &mut impl FnMut(EntityRef<'_>)) -> Result<(), RepoError> {
        // Match the answer in place, like a service. A move of the whole answer would read more bytes than were just written.
        // Before such a read, a core waits for all earlier loads, so that no two cache misses overlap. The proof is moved out, as a
        // service does it: otherwise the compiler calls the destructor of the whole answer, some twenty instructions.
        match self.0.get(&id, Visit::new(&mut |shown| see(fields(&shown)))) {
            Answer::Now(Ok(Lookup::Visited(_visited))) => Ok(()),
            later => fetched(later, see),
        }
    }

    #[inline]
    fn get_many(&self, ids: &[i64], see: &mut impl FnMut(usize, EntityRef<'_>)) -> Result<(), RepoError> {
        let answer = self.0.get_many(ids, &mut |place, shown| see(place, fields(&shown)));
        for (place, entity) in answer.wait()? {
            see(place, entity.as_ref());
        }
        Ok(())
    }

    #[inline]
    fn put(&self, entity: Entity) -> Result<Put, RepoError> {
        self.0.put(entity).wait()
    }

    #[inline]
    fn remove(&self, id: i64) -> Result<Removed, RepoError> {
        self.0.remove(&id).wait()
    }

    fn len(&self) -> Result<u64, RepoError> {
        self.0.len().wait()
    }

    fn repo(&self) -> Option<&dyn EntityRepo> {
        Some(&self.0)
    }

    fn each<L: Send>(&self, lanes: &mut [L], work: impl Fn(&Self, &mut L) + Sync) -> anyhow::Result<()> {
        in_threads(self, lanes, work)
    }
}
