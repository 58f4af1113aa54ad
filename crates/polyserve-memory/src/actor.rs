//! `actor`: each shard of the map belongs to one thread, its *owner*. Operations are messages to the owner, and are
//! answered later by a promise.
//!
//! Invariants:
//!
//! * Only the owner accesses its entities, so the map needs no lock, and no operation waits for another operation's
//!   lock. A visit cannot run on the owner: a get clones the entity and answers `Fetched`.
//! * A mailbox delivers its messages in the order in which they were sent, and all messages of an id go to one mailbox.
//!   So the operations of an id take effect in the order in which they were sent.
//! * A mailbox is bounded. If it is full, the operation fails with `Overloaded` and has no effect.
//! * Only foreign code can panic in an owner: a waker that the owner wakes, or the drop of that panic's payload. The
//!   panic loses that wake. The answer was given before it, and the messages after it are processed. If the evaluation of
//!   a condition panics, nothing was changed, and the operation is answered with `Closed`.
//! * However an owner ends, its mailbox is then closed and empty: no operation waits for an answer for ever.
//! * Dropping the repo ends the owners after they have answered all messages, and joins them. If an owner drops the
//!   repo (a waker may hold the last reference), no thread is joined: a thread cannot wait for itself, and the others
//!   end by themselves.
//!
//! Cost: two allocations for the promise, a hash, a lock to put a message of 80 bytes into the mailbox, from which the
//! owner takes all messages at once. Then a second hash and a probe, two locks of the promise, and the wake of the
//! waiting thread. A get also copies the description. `len` asks every owner and adds up the counts; it is exact if no
//! other operation runs.
//!
//! An owner without messages sleeps. The first message wakes it: a system call and a switch of threads, shared by all
//! messages that are sent until the owner runs. The owner does not spin before it sleeps, because the sender may need
//! its core.
//!
//! The mailbox is a mutex, a ring and a condition variable. A channel returns one message for each receive, while the
//! mailbox returns all messages for one lock. crossbeam's channel also spins before it parks.
//!
//! Memory: an entity costs as much as in a plain map. A mailbox and its batch each keep the capacity for the max
//! number of messages that they ever held: at most 3 MB for each owner.
//!
//! Source: the actor model (Hewitt, Bishop and Steiger, 1973).
//!
//! *Wins when* an operation must not run on the caller's thread, for instance in a library that is not thread-safe. No
//! record measures that. *Loses when* operations are short, as here, because sending a message costs far more than the
//! operation: every other store here is far ahead. Record: `stores-workers` in `docs/results`.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::ready;
use std::hash::BuildHasher;
use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use polyserve_core::mailbox::{Mailbox, Refused};
use polyserve_core::panics::drop_payload;
use polyserve_core::sync::thread::{self, JoinHandle};
use polyserve_core::{
    Answer, Completer, Condition, Conditional, Entity, EntityRepo, Identifiable, Lookup, ManyVisit, Put, Removed,
    RepoAnswer, RepoError, Visit, cores, get_in_turn, promise, stack,
};

use crate::hash::IdState;
use crate::published::IsPublished;
use crate::versions::Versions;

/// The default capacity of a mailbox. It is larger than the default number of connections of a server.
const DEFAULT_CAPACITY: NonZeroUsize = NonZeroUsize::new(16 * 1024).unwrap();

/// Shards that each belong to one thread.
///
/// ```
/// use polyserve_core::{Entity, EntityRepo, EntityRepoExt, Put};
/// use polyserve_memory::Actor;
///
/// let store = Actor::new();
/// assert_eq!(store.put(Entity::new(1, "first", 0.5)).wait()?, Put::Created);
/// assert_eq!(store.fetch(&1).wait()?, Some(Entity::new(1, "first", 0.5)));
///
/// # #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
/// # struct Account { name: String }
/// # polyserve_core::identifiable!(Account, name: String);
/// assert_eq!(Actor::of::<Account>().len().wait()?, 0);
/// # Ok::<(), polyserve_core::RepoError>(())
/// ```
pub struct Actor<E: Identifiable = Entity> {
    hasher: IdState,
    mailboxes: Box<[Arc<Mailbox<Message<E>>>]>,
    owners: Vec<JoinHandle<()>>,
    versions: Arc<Versions>,
}

impl<E: Identifiable> Actor<E> {
    /// Creates an empty repo of the published entities, as [`Actor::default`] does.
    ///
    /// # Panics
    ///
    /// Panics if a thread cannot be started. [`Actor::start`] returns an error instead.
    pub fn new() -> Self
    where
        Entity: IsPublished<E>,
    {
        Self::default()
    }
}

impl Actor {
    /// Creates the same repo as [`Actor::default`].
    ///
    /// # Errors
    ///
    /// Returns an error if a thread cannot be started.
    ///
    /// ```
    /// assert!(polyserve_memory::Actor::start().is_ok());
    /// ```
    pub fn start() -> io::Result<Self> {
        Self::start_of()
    }

    /// Creates the same repo as [`Actor::of`].
    ///
    /// # Errors
    ///
    /// Returns an error if a thread cannot be started.
    pub fn start_of<E: Identifiable>() -> io::Result<Actor<E>> {
        Actor::with(NonZeroUsize::new(cores()).unwrap_or(NonZeroUsize::MIN), DEFAULT_CAPACITY)
    }

    /// Creates an empty repo of entities of another type: `Actor::of::<Account>()`.
    ///
    /// # Panics
    ///
    /// Panics if a thread cannot be started. [`Actor::start_of`] returns an error instead.
    pub fn of<E: Identifiable>() -> Actor<E> {
        Actor::default()
    }
}

impl<E: Identifiable> Actor<E> {
    /// Creates an empty repo with `owners` owners. The mailbox of each owner holds `capacity` operations, in addition
    /// to those that the owner has taken out.
    ///
    /// # Errors
    ///
    /// Returns an error if a thread cannot be started.
    ///
    /// ```
    /// use polyserve_core::Entity;
    /// use polyserve_memory::Actor;
    /// use std::num::NonZeroUsize;
    ///
    /// let two = NonZeroUsize::new(2).unwrap();
    /// let store = Actor::<Entity>::with(two, NonZeroUsize::new(1_000).unwrap())?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn with(owners: NonZeroUsize, capacity: NonZeroUsize) -> io::Result<Self> {
        let mailboxes = (0..owners.get()).map(|_| Arc::new(Mailbox::new(capacity.get()))).collect();
        let versions = Arc::new(Versions::default());
        let mut repo =
            Self { hasher: IdState::default(), mailboxes, owners: Vec::with_capacity(owners.get()), versions };
        for (number, mailbox) in repo.mailboxes.iter().enumerate() {
            let (mailbox, versions) = (Arc::clone(mailbox), Arc::clone(&repo.versions));
            let owner = thread::Builder::new().name(format!("owner-{number}")).stack_size(stack::FOR_ANY_VALUE);
            repo.owners.push(owner.spawn(move || run_owner(&mailbox, &versions))?); // on an error, dropping `repo` ends the other owners
        }
        Ok(repo)
    }

    /// Returns the mailbox of the owner of `id`.
    fn mailbox(&self, id: &E::Id) -> &Mailbox<Message<E>> {
        mailbox_of(&self.hasher, &self.mailboxes, id)
    }
}

/// Returns the mailbox of the owner of `id`.
fn mailbox_of<'a, E: Identifiable>(
    hasher: &IdState,
    mailboxes: &'a [Arc<Mailbox<Message<E>>>],
    id: &E::Id,
) -> &'a Mailbox<Message<E>> {
    // The owner's table takes its tags from the upper seven bits, so the owner is chosen by the bits below.
    let (hash, owners) = (hasher.hash_one(id) << 7, mailboxes.len());
    &mailboxes[((u128::from(hash) * owners as u128) >> 64) as usize]
}

impl<E: Identifiable> Default for Actor<E> {
    /// Creates an empty repo with an owner for each core. The mailbox of each owner holds 16,384 operations, in
    /// addition to those that the owner has taken out.
    ///
    /// # Panics
    ///
    /// Panics if a thread cannot be started. [`Actor::start_of`] returns an error instead.
    fn default() -> Self {
        Actor::start_of().expect("the owners' threads can be started")
    }
}

impl<E: Identifiable> Drop for Actor<E> {
    fn drop(&mut self) {
        self.mailboxes.iter().for_each(|mailbox| mailbox.close());
        let current = thread::current().id();
        if self.owners.iter().any(|owner| owner.thread().id() == current) {
            return;
        }
        for owner in self.owners.drain(..) {
            let _ = owner.join();
        }
    }
}

/// The completer of an operation's answer.
type ResultCompleter<T> = Completer<Result<T, RepoError>>;

enum Message<E: Identifiable> {
    Get(E::Id, ResultCompleter<Lookup<E>>),
    Put(E, ResultCompleter<Put>),
    Remove(E::Id, ResultCompleter<Removed>),
    /// In a box, so that a message without a condition is not larger.
    PutIf(Box<(E, Condition)>, ResultCompleter<Conditional<Put>>),
    RemoveIf(Box<(E::Id, Condition)>, ResultCompleter<Conditional<Removed>>),
    Len(ResultCompleter<u64>),
}

impl<E: Identifiable> Message<E> {
    /// Executes the operation and completes its answer. If the answer was abandoned, the result is dropped. A replaced
    /// or removed entity is dropped after the answer is complete.
    fn run(self, entities: &mut HashMap<E::Id, E, IdState>, versions: &Versions) {
        match self {
            Self::Get(id, reply) => {
                let found = entities.get(&id).cloned().map_or(Lookup::Absent, Lookup::Fetched);
                let _ = reply.complete(Ok(found));
            }
            Self::Put(entity, reply) => {
                let write = versions.write(entity.id());
                let replaced = entities.insert(entity.id().clone(), entity);
                drop(write);
                let _ = reply.complete(Ok(if replaced.is_some() { Put::Replaced } else { Put::Created }));
            }
            Self::Remove(id, reply) => {
                let write = versions.write(&id);
                let removed = entities.remove(&id);
                drop(write);
                let _ = reply.complete(Ok(if removed.is_some() { Removed::Removed } else { Removed::Absent }));
            }
            Self::PutIf(write, reply) => {
                let (entity, condition) = *write;
                if !condition.allows(entities.get(entity.id())) {
                    let _ = reply.complete(Ok(Conditional::Refused));
                    return;
                }
                let write = versions.write(entity.id());
                let replaced = entities.insert(entity.id().clone(), entity);
                drop(write);
                let put = if replaced.is_some() { Put::Replaced } else { Put::Created };
                let _ = reply.complete(Ok(Conditional::Done(put)));
            }
            Self::RemoveIf(write, reply) => {
                let (id, condition) = *write;
                if entities.get(&id).is_some_and(|entity| !condition.allows(Some(entity))) {
                    let _ = reply.complete(Ok(Conditional::Refused));
                    return;
                }
                let write = versions.write(&id);
                let removed = entities.remove(&id);
                drop(write);
                let result = if removed.is_some() { Removed::Removed } else { Removed::Absent };
                let _ = reply.complete(Ok(Conditional::Done(result)));
            }
            Self::Len(reply) => {
                let _ = reply.complete(Ok(entities.len() as u64));
            }
        }
    }
}

/// The loop of an owner. It ends when the mailbox is closed and empty.
fn run_owner<E: Identifiable>(mailbox: &Mailbox<Message<E>>, versions: &Versions) {
    let mut queue = OwnerQueue { mailbox, batch: VecDeque::new() };
    let mut entities = HashMap::default();
    while queue.mailbox.receive(&mut queue.batch) {
        while !queue.batch.is_empty() {
            // One `catch_unwind` for many operations. An operation that panics has already left the batch.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                while let Some(operation) = queue.batch.pop_front() {
                    operation.run(&mut entities, versions);
                }
            }))
            .map_err(drop_payload);
        }
    }
}

/// The mailbox of an owner, and the batch of operations that the owner has taken out. A drop answers all of them with
/// `Closed`.
struct OwnerQueue<'a, E: Identifiable> {
    mailbox: &'a Mailbox<Message<E>>,
    batch: VecDeque<Message<E>>,
}

impl<E: Identifiable> Drop for OwnerQueue<'_, E> {
    fn drop(&mut self) {
        let waiting = self.mailbox.end();
        for operation in self.batch.drain(..).chain(waiting) {
            // Dropping the completer wakes the waiting thread, and that waker may panic.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(operation))).map_err(drop_payload);
        }
    }
}

/// Sends an operation to the owner of `mailbox`. The answer is always `Later`, also if the operation is refused.
fn ask<E: Identifiable, T: Send + 'static>(
    mailbox: &Mailbox<Message<E>>,
    operation: impl FnOnce(ResultCompleter<T>) -> Message<E>,
) -> RepoAnswer<T> {
    let (reply, answer) = promise(Err(RepoError::Closed));
    match mailbox.send(operation(reply)) {
        Ok(()) => answer,
        Err(Refused::Full(_)) => Answer::later(ready(Err(RepoError::Overloaded))),
        // This drops the operation with its completer. The drop answers `Closed`.
        Err(Refused::Closed(_)) => answer,
    }
}

impl<E: Identifiable> EntityRepo<E> for Actor<E> {
    /// Answers [`Lookup::Fetched`] and never calls `visit`.
    fn get(&self, id: &E::Id, _visit: Visit<'_, E>) -> RepoAnswer<Lookup<E>> {
        ask(self.mailbox(id), |reply| Message::Get(id.clone(), reply))
    }

    /// At most 256 of the gets are in the mailboxes at a time.
    fn get_many(&self, ids: &[E::Id], _visit: ManyVisit<'_, E>) -> RepoAnswer<Vec<(usize, E)>> {
        let (hasher, mailboxes) = (self.hasher.clone(), self.mailboxes.clone());
        get_in_turn(ids, move |id| ask(mailbox_of(&hasher, &mailboxes, id), |reply| Message::Get(id.clone(), reply)))
    }

    fn put_if(&self, entity: E, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        ask(self.mailbox(entity.id()), |reply| Message::PutIf(Box::new((entity, condition.clone())), reply))
    }

    fn remove_if(&self, id: &E::Id, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        ask(self.mailbox(id), |reply| Message::RemoveIf(Box::new((id.clone(), condition.clone())), reply))
    }

    fn put(&self, entity: E) -> RepoAnswer<Put> {
        ask(self.mailbox(entity.id()), |reply| Message::Put(entity, reply))
    }

    fn remove(&self, id: &E::Id) -> RepoAnswer<Removed> {
        ask(self.mailbox(id), |reply| Message::Remove(id.clone(), reply))
    }

    fn version(&self, id: &E::Id) -> Option<u64> {
        self.versions.version(id)
    }

    fn len(&self) -> RepoAnswer<u64> {
        let lengths: Vec<_> = self.mailboxes.iter().map(|mailbox| ask(mailbox, Message::Len)).collect();
        Answer::later(async move {
            let mut sum = 0;
            for length in lengths {
                sum += length.await?;
            }
            Ok(sum)
        })
    }
}

impl<E: Identifiable> fmt::Debug for Actor<E> {
    /// Sends no message, so printing a repo never waits for an owner.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Actor").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
mod tests {
    use std::panic::resume_unwind;
    use std::pin::Pin;
    use std::task::{Context, Poll, Wake, Waker};

    use super::*;

    /// A waker that panics.
    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            resume_unwind(Box::new("the waker's own panic")); // past the hook, which would print it
        }
    }

    #[test]
    fn an_owner_that_panics_answers_all() {
        let mailbox = Mailbox::<Message<Entity>>::new(4);
        let mut panics = ask(&mailbox, |reply| Message::Get(1, reply)).into_future();
        let mut poll = |waker: &Waker| Pin::new(&mut panics).poll(&mut Context::from_waker(waker));
        assert!(poll(&Waker::from(Arc::new(Panics))).is_pending());
        let taken = ask(&mailbox, |reply| Message::Put(Entity::new(1, "one", 1.0), reply));
        let mut queue = OwnerQueue { mailbox: &mailbox, batch: VecDeque::new() };
        assert!(mailbox.receive(&mut queue.batch));
        let waiting = ask(&mailbox, Message::Len);
        let ended = catch_unwind(AssertUnwindSafe(move || {
            let _queue = queue;
            resume_unwind(Box::new("the owner's panic"));
        }));
        assert!(ended.is_err());
        let late = ask(&mailbox, |reply| Message::Remove(1, reply));
        assert!(matches!(poll(Waker::noop()), Poll::Ready(Err(RepoError::Closed))));
        assert!(matches!(taken.wait(), Err(RepoError::Closed)));
        assert!(matches!(waiting.wait(), Err(RepoError::Closed)));
        assert!(matches!(late.wait(), Err(RepoError::Closed)));
    }

    #[test]
    fn a_dropped_repo_has_joined_its_owners() {
        let repo: Actor = Actor::with(NonZeroUsize::new(3).unwrap(), DEFAULT_CAPACITY).unwrap();
        let mailboxes: Vec<_> = repo.mailboxes.iter().map(Arc::downgrade).collect();
        let put = repo.put(Entity::new(7, "seven", 7.0));
        drop(repo);
        assert!(mailboxes.iter().all(|mailbox| mailbox.strong_count() == 0), "an owner still has its mailbox");
        assert!(matches!(put.wait(), Ok(Put::Created)), "what was asked before is answered");
    }
}
