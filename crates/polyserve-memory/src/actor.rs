//! `actor`: each shard of the map belongs to one thread, its *owner*. Operations are messages to it; the answers come
//! later, by promise.
//!
//! Invariants:
//!
//! * Only the owner ever touches its entities, so the map needs no lock, and no operation waits for another's lock. A visit
//!   cannot run there: a get clones the entity and answers `Fetched`.
//! * A mailbox takes its messages in the order in which they were sent, and an id's messages are all in one mailbox: an id's
//!   operations take effect in the order in which they were asked.
//! * A mailbox is bounded. Where it is full the operation is refused with `Overloaded`, and nothing has happened.
//! * A panic in an owner can only be another's code, a waker that it wakes, or what that waker panicked with, as it is
//!   dropped. It costs that waker its wake; the answer had been given, and what is queued behind it is served.
//! * However an owner ends, its mailbox is closed and empty after it: nobody waits for an answer that nobody gives.
//! * Dropping the repo ends the owners when they have answered what was asked, and joins them. Where it is an owner that
//!   drops it (a waker may hold the last reference), nobody is joined: no thread can wait for itself, and the others end by
//!   themselves.
//!
//! Cost: two allocations for the promise, a hash, a lock to put a message of 80 bytes into the mailbox, where the owner
//! takes all that wait there in one go; a second hash and a probe, a lock to keep the promise, one to take what it says;
//! and the wake of whoever waits. An owner that has run out of messages sleeps, and the first message wakes it, a system call and a switch
//! of threads; what is sent until it runs comes with that one. It does not spin before it sleeps: the thread that could
//! send it something may need its core. A get also copies the description. `len` asks every owner, and adds up: exact when
//! nothing else runs.
//!
//! The mailbox is a mutex, a ring and a condition variable, not a channel: a channel hands out one message for each
//! receive, where this hands out all of them for one lock; crossbeam's spins before it parks, and std's bounded one
//! is received from one by one.
//!
//! Memory: an entity costs what it does in a plain map. A mailbox keeps the room of the most messages that it has ever
//! held, twice: 3 MB for each owner at most.
//!
//! *Wins when* a shard's operations are long, or must run where they cannot be shared (a library that is not
//! thread-safe, a file of its own): none ever runs on a caller's thread, and none is ever made to wait for a lock. *Loses
//! when* operations are short, as they are here: handing one over costs many times what it does.

pub(crate) mod mailbox;
mod sync;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::ready;
use std::hash::BuildHasher;
use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use polyserve_core::config::cores;
use polyserve_core::executor::dispose;
use polyserve_core::sync::thread::{self, JoinHandle};
use polyserve_core::{Answer, Completer, Entity, EntityRef, EntityRepo, Lookup, Put, Removed, RepoError, promise};

use self::mailbox::{Mailbox, Refused};
use crate::hash::IdState;

/// How many operations may wait for one owner, unless told otherwise: more than a server has connections by default.
const ROOM: NonZeroUsize = NonZeroUsize::new(16 * 1024).unwrap();

/// Shards that each belong to one thread.
pub struct Actor {
    hasher: IdState,
    mailboxes: Box<[Arc<Mailbox<Operation>>]>,
    owners: Vec<JoinHandle<()>>,
}

impl Actor {
    /// An empty repo with an owner for each core, and room for 16 384 operations to wait for each of them, beside as many that
    /// it has taken and works on.
    ///
    /// # Panics
    ///
    /// Where a thread cannot be started; [`Actor::start`] says so instead.
    pub fn new() -> Self {
        Self::start().expect("the owners' threads can be started")
    }

    /// As [`Actor::new`].
    ///
    /// # Errors
    ///
    /// Where a thread cannot be started.
    pub fn start() -> io::Result<Self> {
        Self::with(NonZeroUsize::new(cores()).unwrap_or(NonZeroUsize::MIN), ROOM)
    }

    /// An empty repo with so many owners, and room for so many operations to wait for each of them, beside as many that it has
    /// taken and works on.
    ///
    /// # Errors
    ///
    /// Where a thread cannot be started.
    pub fn with(owners: NonZeroUsize, room: NonZeroUsize) -> io::Result<Self> {
        let mailboxes = (0..owners.get()).map(|_| Arc::new(Mailbox::new(room.get()))).collect();
        let mut repo = Self { hasher: IdState::default(), mailboxes, owners: Vec::with_capacity(owners.get()) };
        for (number, mailbox) in repo.mailboxes.iter().enumerate() {
            let mailbox = Arc::clone(mailbox);
            let owner = thread::Builder::new().name(format!("owner-{number}"));
            repo.owners.push(owner.spawn(move || own(&mailbox))?); // on an error the drop ends the others
        }
        Ok(repo)
    }

    /// The mailbox of the owner of `id`.
    fn mailbox(&self, id: i64) -> &Mailbox<Operation> {
        // The bits below those seven that the owner's table has its tags of.
        let (hash, owners) = (self.hasher.hash_one(id) << 7, self.mailboxes.len());
        &self.mailboxes[((u128::from(hash) * owners as u128) >> 64) as usize]
    }
}

impl Default for Actor {
    /// As [`Actor::new`].
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.mailboxes.iter().for_each(|mailbox| mailbox.close());
        let this = thread::current().id();
        if self.owners.iter().any(|owner| owner.thread().id() == this) {
            return;
        }
        for owner in self.owners.drain(..) {
            let _ = owner.join();
        }
    }
}

/// A promise of what an operation finds.
type Reply<T> = Completer<Result<T, RepoError>>;

enum Operation {
    Get(i64, Reply<Lookup>),
    Put(Entity, Reply<Put>),
    Remove(i64, Reply<Removed>),
    Len(Reply<u64>),
}

impl Operation {
    /// Takes effect and answers. An answer that nobody waits for any more is dropped, and a replaced or removed entity after
    /// the answer was given.
    fn run(self, entities: &mut HashMap<i64, Entity, IdState>) {
        match self {
            Self::Get(id, reply) => {
                let found = entities.get(&id).cloned().map_or(Lookup::Absent, Lookup::Fetched);
                let _ = reply.complete(Ok(found));
            }
            Self::Put(entity, reply) => {
                let replaced = entities.insert(entity.id, entity);
                let _ = reply.complete(Ok(if replaced.is_some() { Put::Replaced } else { Put::Created }));
            }
            Self::Remove(id, reply) => {
                let removed = entities.remove(&id);
                let _ = reply.complete(Ok(if removed.is_some() { Removed::Removed } else { Removed::Absent }));
            }
            Self::Len(reply) => {
                let _ = reply.complete(Ok(entities.len() as u64));
            }
        }
    }
}

/// What an owner does until its mailbox is closed and empty.
fn own(mailbox: &Mailbox<Operation>) {
    let mut post = Post { mailbox, batch: VecDeque::new() };
    let mut entities = HashMap::default();
    while post.mailbox.receive(&mut post.batch) {
        while !post.batch.is_empty() {
            // One net for many operations; whoever panics has been taken out of the batch.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                while let Some(operation) = post.batch.pop_front() {
                    operation.run(&mut entities);
                }
            }))
            .map_err(dispose);
        }
    }
}

/// An owner's mailbox, and what it has taken out of there. Whoever waits for either when the owner ends is told `Closed`.
struct Post<'a> {
    mailbox: &'a Mailbox<Operation>,
    batch: VecDeque<Operation>,
}

impl Drop for Post<'_> {
    fn drop(&mut self) {
        let waiting = self.mailbox.end();
        for operation in self.batch.drain(..).chain(waiting) {
            // Its completer wakes who waits, and that may panic.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(operation))).map_err(dispose);
        }
    }
}

/// Sends an operation to the owner of `mailbox`. Its answer comes later, even where it is refused.
fn ask<T: Send + 'static>(
    mailbox: &Mailbox<Operation>,
    operation: impl FnOnce(Reply<T>) -> Operation,
) -> Answer<Result<T, RepoError>> {
    let (reply, answer) = promise(Err(RepoError::Closed));
    match mailbox.send(operation(reply)) {
        Ok(()) => answer,
        Err(Refused::Full(_)) => Answer::later(ready(Err(RepoError::Overloaded))),
        // Its completer is dropped here, and says so.
        Err(Refused::Closed(_)) => answer,
    }
}

impl EntityRepo for Actor {
    /// Never calls `visit`.
    fn get(&self, id: i64, _visit: &mut dyn FnMut(EntityRef<'_>)) -> Answer<Result<Lookup, RepoError>> {
        ask(self.mailbox(id), |reply| Operation::Get(id, reply))
    }

    fn put(&self, entity: Entity) -> Answer<Result<Put, RepoError>> {
        ask(self.mailbox(entity.id), |reply| Operation::Put(entity, reply))
    }

    fn remove(&self, id: i64) -> Answer<Result<Removed, RepoError>> {
        ask(self.mailbox(id), |reply| Operation::Remove(id, reply))
    }

    fn len(&self) -> Answer<Result<u64, RepoError>> {
        let parts: Vec<_> = self.mailboxes.iter().map(|mailbox| ask(mailbox, Operation::Len)).collect();
        Answer::later(async move {
            let mut sum = 0;
            for part in parts {
                sum += part.await?;
            }
            Ok(sum)
        })
    }
}

impl fmt::Debug for Actor {
    /// Asks nobody, so that it can be printed from anywhere.
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
    fn an_owner_that_panics_leaves_nobody_waiting() {
        let mailbox = Mailbox::new(4);
        let mut panics = ask(&mailbox, |reply| Operation::Get(1, reply)).into_future();
        let mut poll = |waker: &Waker| Pin::new(&mut panics).poll(&mut Context::from_waker(waker));
        assert!(poll(&Waker::from(Arc::new(Panics))).is_pending());
        let taken = ask(&mailbox, |reply| Operation::Put(Entity::new(1, "one", 1.0), reply));
        let mut post = Post { mailbox: &mailbox, batch: VecDeque::new() };
        assert!(mailbox.receive(&mut post.batch));
        let waiting = ask(&mailbox, Operation::Len);
        let ended = catch_unwind(AssertUnwindSafe(move || {
            let _post = post;
            resume_unwind(Box::new("the owner's panic"));
        }));
        assert!(ended.is_err());
        let late = ask(&mailbox, |reply| Operation::Remove(1, reply));
        assert!(matches!(poll(Waker::noop()), Poll::Ready(Err(RepoError::Closed))));
        assert!(matches!(taken.wait(), Err(RepoError::Closed)));
        assert!(matches!(waiting.wait(), Err(RepoError::Closed)));
        assert!(matches!(late.wait(), Err(RepoError::Closed)));
    }

    #[test]
    fn a_dropped_repo_has_joined_its_owners() {
        let repo = Actor::with(NonZeroUsize::new(3).unwrap(), ROOM).unwrap();
        let mailboxes: Vec<_> = repo.mailboxes.iter().map(Arc::downgrade).collect();
        let put = repo.put(Entity::new(7, "seven", 7.0));
        drop(repo);
        assert!(mailboxes.iter().all(|mailbox| mailbox.strong_count() == 0), "an owner still has its mailbox");
        assert!(matches!(put.wait(), Ok(Put::Created)), "what was asked before is answered");
    }
}
