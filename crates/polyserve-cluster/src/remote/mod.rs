//! What all stores over an engine share: [`Remote`], a repo over an [`Engine`].
//!
//! The engine's connections belong to one I/O thread with a tokio runtime of its own. A caller encodes an entity, sends
//! the operation to the I/O thread, and returns an answer at once. The I/O thread completes the answer's promise. The
//! thread that polls the answer decodes the entity, so that decoding is not the work of one thread.
//!
//! Invariants:
//!
//! * No caller waits: the queue to the I/O thread is bounded, in operations and in bytes, and an operation that does not fit is
//!   [`RepoError::Overloaded`]. So are the bytes of fetched entities, which are held until a caller has taken the answer, or until a
//!   write with a condition has ended.
//! * Each operation is answered by its deadline, whatever the engine does. A dropped store answers
//!   [`RepoError::Closed`].
//! * A write is sent at most once, unless the engine has certainly not done it. See [`attempt`].
//! * Code of the entity's type never ends the I/O thread: a panic there fails one operation.
//!
//! Cost of an operation, in addition to the client library's own: a promise, a job and a task, which are three
//! allocations, and the wake of a thread on the way there and back. Operations that arrive while the I/O thread is awake
//! share its wake, and their requests share a write to the socket.

mod attempt;
mod counts;
mod engine;
mod io_thread;
mod race;
mod renewed;

use std::error::Error as StdError;
use std::hash::{BuildHasher as _, RandomState};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use polyserve_core::figures::StoreFigures;
use polyserve_core::panics::isolate;
use polyserve_core::{
    Answer, Condition, Conditional, Identifiable, Lookup, MalformedEntity, Put, Removed, RepoAnswer, RepoError,
    ScanPage, get_in_turn,
};

use self::attempt::Attempts;
pub(crate) use self::engine::{Engine, Stored, StoredEntry, StoredPage};
use self::io_thread::{Fetched, IoQueue, IoThread};
#[cfg(any(feature = "etcd", feature = "postgres"))]
pub(crate) use self::race::first_open;
#[cfg(feature = "redis")]
pub(crate) use self::race::in_order;
pub(crate) use self::renewed::{Held, Renewed};
use crate::error::{ConnectError, EngineFailure, Source, without_data};
use crate::limits::StoreLimits;

/// The max number of times that a write with a condition reads the entity again, because another write came in between.
const MAX_CONFLICTS: u32 = 100;

/// After keys that are none of a store, this number is read at a time, or the limit of the page if that is more.
pub(crate) const MAX_KEYS_PASSED: usize = 1_000;

/// A status has this part of the timeout, and at most [`MAX_STATUS_TIME`]: what asks for it waits for less than a second, and
/// asks again soon.
const STATUS_PART: u32 = 5;
const MAX_STATUS_TIME: Duration = Duration::from_millis(500);

/// The max time to remove the entities of a temporary repo.
const CLEAR_TIMEOUT: Duration = Duration::from_secs(30);

/// A repo over an engine.
pub(crate) struct Remote<E, N: Engine> {
    io: IoThread<N>,
    limits: StoreLimits,
    /// The engine's keys are this text and the id.
    prefix: String,
    /// Whether dropping it removes its entities.
    is_temporary: bool,
    entity: PhantomData<fn() -> E>,
}

impl<E: Identifiable, N: Engine> Remote<E, N> {
    /// Starts the I/O thread. `open` makes the engine there. Waits until the engine has answered a read.
    ///
    /// # Errors
    ///
    /// Returns an error if the engine does not answer within the connect timeout, if it rejects the read, if a limit is zero,
    /// or if the thread cannot be started.
    pub(crate) fn connect(
        limits: StoreLimits,
        prefix: String,
        open: impl FnOnce() -> N + Send + 'static,
    ) -> Result<Self, ConnectError> {
        limits.check()?;
        let attempts = Attempts::new(limits.connect_timeout);
        let probe = prefix.clone();
        let io = IoThread::start(N::NAME, &limits, open)?;
        let first = io.queue().submit(0, async move |engine: Rc<N>| {
            let answered = attempts.read(&engine, async |connection| engine.get(connection, &probe).await).await;
            Ok(answered.map(drop))
        });
        let unreachable = |source| ConnectError::caused(format!("cannot connect to {}", N::NAME), source);
        match first.wait() {
            Ok(Ok(())) => Ok(Self { io, limits, prefix, is_temporary: false, entity: PhantomData }),
            Ok(Err(failure)) => Err(unreachable(failure.into_source())),
            Err(error) => Err(unreachable(error.into())),
        }
    }

    /// Removes the entities when the repo is dropped.
    pub(crate) fn make_temporary(&mut self) {
        self.is_temporary = true;
    }

    fn key(&self, id: &E::Id) -> String {
        format!("{}{id}", self.prefix)
    }

    /// Runs an operation on the I/O thread. Its time begins now.
    fn run<T: Send + 'static>(
        &self,
        timeout: Duration,
        bytes: usize,
        operation: impl AsyncFnOnce(&Rc<N>, &Attempts) -> Result<T, EngineFailure> + Send + 'static,
    ) -> RepoAnswer<T> {
        let attempts = Attempts::new(timeout);
        self.io.queue().submit(bytes, async move |engine: Rc<N>| {
            operation(&engine, &attempts).await.map_err(|failure| failure.into_repo_error(N::NAME))
        })
    }

    /// Does the same for an operation that fetches entities, which it holds by its last argument.
    fn run_read<T: Send + 'static>(
        &self,
        bytes: usize,
        operation: impl AsyncFnOnce(&Rc<N>, &Attempts, &Fetched) -> Result<T, EngineFailure> + Send + 'static,
    ) -> RepoAnswer<T> {
        let attempts = Attempts::new(self.limits.timeout);
        self.io.queue().submit_read(bytes, async move |engine: Rc<N>, fetched: &Fetched| {
            operation(&engine, &attempts, fetched).await.map_err(|failure| failure.into_repo_error(N::NAME))
        })
    }

    pub(crate) fn get(&self, id: &E::Id) -> RepoAnswer<Lookup<E>> {
        fetch(self.io.queue(), self.limits.timeout, &self.prefix, id)
    }

    /// The time of each get begins when it is sent.
    pub(crate) fn get_many(&self, ids: &[E::Id]) -> RepoAnswer<Vec<(usize, E)>> {
        let (queue, timeout, prefix) = (self.io.queue().clone(), self.limits.timeout, self.prefix.clone());
        get_in_turn(ids, move |id| fetch(&queue, timeout, &prefix, id))
    }

    pub(crate) fn scan(&self, after: Option<&E::Id>, limit: usize) -> RepoAnswer<ScanPage<E>> {
        let (prefix, mut after) = (self.prefix.clone(), after.map(|id| self.key(id)));
        let key_bytes = prefix.len() + after.as_ref().map_or(0, String::len);
        let prefix_length = prefix.len();
        let read = async move |engine: &Rc<N>, attempts: &Attempts, fetched: &Fetched| {
            // An empty page tells whether there are entities.
            let mut max_keys = limit.max(1);
            let mut page = loop {
                let read = async |connection: &_| engine.page(connection, &prefix, after.as_deref(), max_keys).await;
                let mut page = attempts.read(engine, read).await?;
                let last = page.entries.last().map(|entry| entry.key.clone());
                retain_own::<E>(&mut page, prefix.len())?;
                if !page.entries.is_empty() || !page.has_more || last.is_none() {
                    break page;
                }
                after = last;
                max_keys = max_keys.max(MAX_KEYS_PASSED);
            };
            if page.entries.len() > limit.max(1) {
                page.entries.truncate(limit.max(1));
                page.has_more = true;
            }
            if limit == 0 {
                page = StoredPage { has_more: !page.entries.is_empty(), entries: Vec::new() };
            }
            let lengths = page.entries.iter().map(|entry| entry.value.as_ref().map_or(0, Vec::capacity));
            Ok((fetched.hold(lengths.sum()), page))
        };
        self.run_read(key_bytes, read).map(move |found| {
            let (_held, StoredPage { entries, mut has_more }) = found?;
            let mut entities = Vec::with_capacity(entries.len());
            for StoredEntry { key, value } in entries {
                let id = key.get(prefix_length..).unwrap_or_default();
                match value.map_err(|why| malformed(id, &*why)).and_then(|value| decoded(id, &value)) {
                    Ok(entity) => entities.push(entity),
                    Err(error) if entities.is_empty() => return Err(error),
                    Err(_) => {
                        // The next page begins with it.
                        has_more = true;
                        break;
                    }
                }
            }
            Ok(ScanPage { entities, has_more })
        })
    }

    pub(crate) fn put(&self, entity: &E) -> RepoAnswer<Put> {
        let value = match encoded(entity) {
            Ok(value) => value,
            Err(error) => return Answer::Later(Box::pin(std::future::ready(Err(error)))),
        };
        let (key, id) = (self.key(entity.id()), entity.id().to_string());
        let bytes = key.len() + value.capacity();
        let put = self.run(self.limits.timeout, bytes, async move |engine: &Rc<N>, attempts: &Attempts| match attempts
            .write(engine, &key, async |connection| engine.put(connection, &key, &value).await)
            .await
        {
            Err(EngineFailure::NoValue(why)) => Ok(Err(malformed(&id, &*why))),
            put => put.map(Ok),
        });
        put.map(|put| put?)
    }

    pub(crate) fn remove(&self, id: &E::Id) -> RepoAnswer<Removed> {
        let key = self.key(id);
        self.run(self.limits.timeout, key.len(), async move |engine: &Rc<N>, attempts: &Attempts| {
            attempts.write(engine, &key, async |connection| engine.remove(connection, &key).await).await
        })
    }

    pub(crate) fn put_if(&self, entity: &E, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        if condition.is_always() {
            return self.put(entity).map(|put| put.map(Conditional::Done));
        }
        let value = match encoded(entity) {
            Ok(value) => value,
            Err(error) => return Answer::Later(Box::pin(std::future::ready(Err(error)))),
        };
        let (key, id, condition) = (self.key(entity.id()), entity.id().to_string(), condition.clone());
        let put = self.run_read(
            key.len() + value.capacity(),
            async move |engine: &Rc<N>, attempts: &Attempts, fetched: &Fetched| {
                let put_over = async |stored: Option<&Stored<N::Version>>| {
                    let replace = async |connection: &_| engine.put_over(connection, &key, stored, &value).await;
                    let put = if stored.is_some() { Put::Replaced } else { Put::Created };
                    Ok(attempts.write(engine, &key, replace).await?.then_some(put))
                };
                let may_write = |stored: Option<&E>| condition.allows(stored);
                write_if(engine, (attempts, fetched), (&key, &id), may_write, put_over).await
            },
        );
        put.map(|put| put?)
    }

    pub(crate) fn remove_if(&self, id: &E::Id, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        if condition.is_always() {
            return self.remove(id).map(|removed| removed.map(Conditional::Done));
        }
        let (key, id, condition) = (self.key(id), id.to_string(), condition.clone());
        let removed = self.run_read(key.len(), async move |engine: &Rc<N>, attempts: &Attempts, fetched: &Fetched| {
            let remove_seen = async |stored: Option<&Stored<N::Version>>| {
                let Some(stored) = stored else { return Ok(Some(Removed::Absent)) };
                let remove = async |connection: &_| engine.remove_seen(connection, &key, stored).await;
                Ok(attempts.write(engine, &key, remove).await?.then_some(Removed::Removed))
            };
            // What is absent is absent, whatever the condition.
            let may_write = |stored: Option<&E>| stored.is_none() || condition.allows(stored);
            write_if(engine, (attempts, fetched), (&key, &id), may_write, remove_seen).await
        });
        removed.map(|removed| removed?)
    }

    /// Asks for a write that changes nothing. A refusal that lasts is the answer, and is not repeated.
    pub(crate) fn status(&self) -> RepoAnswer<()> {
        let prefix = self.prefix.clone();
        let timeout = (self.limits.timeout / STATUS_PART).min(MAX_STATUS_TIME);
        self.run(timeout, prefix.len(), async move |engine: &Rc<N>, attempts: &Attempts| {
            let try_write = async |connection: &_| match engine.try_write(connection, &prefix).await {
                Err(EngineFailure::NotDone(why)) if N::lasts(&why) => Ok(Err(EngineFailure::NotDone(why))),
                tried => tried.map(Ok),
            };
            attempts.read(engine, try_write).await?
        })
    }

    pub(crate) fn figures(&self) -> Arc<dyn StoreFigures> {
        Arc::clone(self.io.counts()) as _
    }

    pub(crate) fn len(&self) -> RepoAnswer<u64> {
        let prefix = self.prefix.clone();
        self.run(self.limits.timeout, prefix.len(), async move |engine: &Rc<N>, attempts: &Attempts| {
            attempts.read(engine, async |connection| engine.len(connection, &prefix).await).await
        })
    }
}

impl<E, N: Engine> Drop for Remote<E, N> {
    /// Removes the entities of a temporary repo.
    fn drop(&mut self) {
        if !self.is_temporary {
            return;
        }
        // The last reference may be dropped by a waker on the I/O thread, which cannot wait for itself.
        if self.io.is_current() {
            tracing::warn!(
                engine = N::NAME,
                prefix = self.prefix,
                "a temporary store was dropped on its I/O thread, and its entities are left"
            );
            return;
        }
        let (attempts, timeout) = (Attempts::new(CLEAR_TIMEOUT), self.limits.timeout);
        let prefix = std::mem::take(&mut self.prefix);
        let cleared = self.io.queue().submit(0, async move |engine: Rc<N>| {
            let clear = async |connection: &_| engine.clear(connection, &prefix).await;
            let Err(failure) = attempts.idempotent_write(&engine, clear).await else { return Ok(()) };
            let count = async |connection: &_| engine.len(connection, &prefix).await;
            // The engine may be gone. Then the number is unknown.
            let left = Attempts::new(timeout).read(&engine, count).await.ok();
            let error = failure.into_repo_error(N::NAME);
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                left,
                prefix,
                "the entities of a temporary store cannot be removed"
            );
            Ok(())
        });
        if let Err(error) = cleared.wait() {
            tracing::warn!(error = &error as &dyn std::error::Error, "a temporary store cannot be removed");
        }
    }
}

/// Reads the entity of an id.
fn fetch<E: Identifiable, N: Engine>(
    queue: &IoQueue<N>,
    timeout: Duration,
    prefix: &str,
    id: &E::Id,
) -> RepoAnswer<Lookup<E>> {
    let (attempts, id) = (Attempts::new(timeout), id.to_string());
    let key = format!("{prefix}{id}");
    let key_bytes = key.len();
    let read = async move |engine: Rc<N>, fetched: &Fetched| {
        let stored = attempts.read(&engine, async |connection| engine.get(connection, &key).await).await;
        match stored {
            Ok(stored) => Ok(Ok(stored.map(|stored| (fetched.hold(stored.value.capacity()), stored.value)))),
            Err(EngineFailure::NoValue(why)) => Ok(Err(why)),
            Err(failure) => Err(failure.into_repo_error(N::NAME)),
        }
    };
    queue.submit_read(key_bytes, read).map(move |found| match found?.map_err(|why| malformed(&id, &*why))? {
        None => Ok(Lookup::Absent),
        Some((_held, value)) => decoded(&id, &value).map(Lookup::Fetched),
    })
}

/// Returns a text that begins the keys of one temporary store. It has letters, digits and `_`.
#[cfg(any(feature = "etcd", feature = "redis", feature = "postgres"))]
pub(crate) fn unique_name() -> String {
    let random = RandomState::new().hash_one(std::process::id());
    format!("temporary_{random:016x}_")
}

/// Writes over what is stored under a key, if `may_write` allows it. `write` returns `None` if another write came in between: then
/// this reads again.
///
/// # Errors
///
/// Returns [`RepoError::Malformed`] within `Ok` if what is stored is no entity.
async fn write_if<E: Identifiable, N: Engine, T>(
    engine: &Rc<N>,
    (attempts, fetched): (&Attempts, &Fetched),
    (key, id): (&str, &str),
    may_write: impl Fn(Option<&E>) -> bool,
    write: impl AsyncFn(Option<&Stored<N::Version>>) -> Result<Option<T>, EngineFailure>,
) -> Result<Result<Conditional<T>, RepoError>, EngineFailure> {
    for _ in 0..MAX_CONFLICTS {
        let stored = match attempts.read(engine, async |connection| engine.get(connection, key).await).await {
            Err(EngineFailure::NoValue(why)) => return Ok(Err(malformed(id, &*why))),
            stored => stored?,
        };
        let _held = fetched.hold(stored.as_ref().map_or(0, |stored| stored.value.capacity()));
        match allows::<E, N>(&may_write, id, stored.as_ref())? {
            Ok(true) => {}
            Ok(false) => return Ok(Ok(Conditional::Refused)),
            Err(malformed) => return Ok(Err(malformed)),
        }
        match write(stored.as_ref()).await {
            Ok(Some(done)) => return Ok(Ok(Conditional::Done(done))),
            Ok(None) => {}
            // Another program has stored it since the read.
            Err(EngineFailure::NoValue(why)) => return Ok(Err(malformed(id, &*why))),
            Err(failure) => return Err(failure),
        }
    }
    Err(EngineFailure::NotDone(format!("other writes changed the entity at each of {MAX_CONFLICTS} tries").into()))
}

/// The JSON of an entity.
///
/// # Errors
///
/// Returns an error if the JSON does not read as an entity with the same id. So nothing is stored that no get can show,
/// for instance a NaN.
fn encoded<E: Identifiable>(entity: &E) -> Result<Vec<u8>, RepoError> {
    let mut value = Vec::with_capacity(128);
    entity.write_json(&mut value).map_err(RepoError::Other)?;
    let read = E::read_json(&value).map_err(|invalid| RepoError::Other(Box::new(invalid)))?;
    if read.id() == entity.id() {
        return Ok(value);
    }
    Err(RepoError::Other(format!("the JSON of the entity {} has the id {}", entity.id(), read.id()).into()))
}

/// Reads what is stored under an id.
fn decoded<E: Identifiable>(id: &str, value: &[u8]) -> Result<E, RepoError> {
    let entity = E::read_json(value).map_err(|invalid| malformed(id, &invalid))?;
    if entity.id().to_string() == id {
        return Ok(entity);
    }
    Err(malformed(id, &*Source::from("its id is another one")))
}

fn malformed(id: &str, why: &(dyn StdError + 'static)) -> RepoError {
    let why = without_data(why).into();
    RepoError::Malformed(Box::new(MalformedEntity { id: id.to_owned(), why }))
}

/// Removes the entries with a key that has no id of this type after the prefix, as [`Identifiable::parse_id`] reads one: no entity of
/// this store is ever stored there. This runs code of the entity's type, which may panic.
fn retain_own<E: Identifiable>(page: &mut StoredPage, prefix_length: usize) -> Result<(), EngineFailure> {
    let is_own = |entry: &StoredEntry| {
        let id = entry.key.get(prefix_length..).unwrap_or_default();
        E::parse_id(id).is_some_and(|parsed| parsed.to_string() == id)
    };
    isolate(|| page.entries.retain(is_own)).map_err(|panic| panicked(&panic))
}

fn panicked(panic: &str) -> EngineFailure {
    EngineFailure::Rejected(format!("the entity's own code panicked: {panic}").into())
}

/// Whether `may_write` allows a write over what is stored under an id. This runs code of the entity's type, which may panic.
///
/// # Errors
///
/// Returns [`RepoError::Malformed`] within `Ok` if it is no entity.
fn allows<E: Identifiable, N: Engine>(
    may_write: impl Fn(Option<&E>) -> bool,
    id: &str,
    stored: Option<&Stored<N::Version>>,
) -> Result<Result<bool, RepoError>, EngineFailure> {
    isolate(|| {
        let stored: Option<E> = stored.map(|stored| decoded(id, &stored.value)).transpose()?;
        Ok(may_write(stored.as_ref()))
    })
    .map_err(|panic| panicked(&panic))
}

/// Implements `EntityRepo` and `Debug` for a store with a field `remote`.
macro_rules! repo {
    ($store:ident) => {
        impl<E: ::polyserve_core::Identifiable> ::polyserve_core::EntityRepo<E> for $store<E> {
            /// Answers [`Lookup::Fetched`](::polyserve_core::Lookup::Fetched) and never calls `visit`.
            fn get(
                &self,
                id: &E::Id,
                _visit: ::polyserve_core::Visit<'_, E>,
            ) -> ::polyserve_core::RepoAnswer<::polyserve_core::Lookup<E>> {
                self.remote.get(id)
            }

            /// Answers with all entities and never calls `visit`. At most 256 of the gets are in flight at a time.
            fn get_many(
                &self,
                ids: &[E::Id],
                _visit: ::polyserve_core::ManyVisit<'_, E>,
            ) -> ::polyserve_core::RepoAnswer<Vec<(usize, E)>> {
                self.remote.get_many(ids)
            }

            fn put_if(
                &self,
                entity: E,
                condition: &::polyserve_core::Condition,
            ) -> ::polyserve_core::RepoAnswer<::polyserve_core::Conditional<::polyserve_core::Put>> {
                self.remote.put_if(&entity, condition)
            }

            fn remove_if(
                &self,
                id: &E::Id,
                condition: &::polyserve_core::Condition,
            ) -> ::polyserve_core::RepoAnswer<::polyserve_core::Conditional<::polyserve_core::Removed>> {
                self.remote.remove_if(id, condition)
            }

            fn put(&self, entity: E) -> ::polyserve_core::RepoAnswer<::polyserve_core::Put> {
                self.remote.put(&entity)
            }

            fn remove(&self, id: &E::Id) -> ::polyserve_core::RepoAnswer<::polyserve_core::Removed> {
                self.remote.remove(id)
            }

            fn len(&self) -> ::polyserve_core::RepoAnswer<u64> {
                self.remote.len()
            }

            fn can_scan(&self) -> bool {
                true
            }

            /// The order is that of the engine. Answers [`ScanPage::entities`](::polyserve_core::ScanPage::entities).
            fn scan(
                &self,
                after: Option<&E::Id>,
                limit: usize,
                _visit: ::polyserve_core::ScanVisit<'_, E>,
            ) -> ::polyserve_core::RepoAnswer<::polyserve_core::ScanPage<E>> {
                self.remote.scan(after, limit)
            }

            /// Asks the engine for a write that changes nothing. It is answered within a fifth of the timeout, and
            /// within half a second.
            fn status(&self) -> ::polyserve_core::RepoAnswer<()> {
                self.remote.status()
            }

            fn figures(&self) -> ::std::option::Option<::std::sync::Arc<dyn ::polyserve_core::figures::StoreFigures>> {
                Some(self.remote.figures())
            }
        }

        impl<E: ::polyserve_core::Identifiable> ::std::fmt::Debug for $store<E> {
            /// Asks the engine nothing.
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($store)).finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use repo;

#[cfg(test)]
mod tests;
