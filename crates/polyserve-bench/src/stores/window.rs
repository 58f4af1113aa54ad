//! A window of outstanding operations on a repo with deferred answers. If the window is full, it waits for the oldest answer.
//!
//! Invariant: every answer is checked when it arrives. Cost: an entry in a queue for each deferred answer.

use std::collections::VecDeque;

use polyserve::{Answer, BoxFuture, Entity, EntityRepo, Lookup, Put, Removed, RepoError, Visit};

use super::entities::Check;
use super::store::fields;
use super::workload::{OperationCode, OperationKind};

/// The max number of outstanding operations.
pub(crate) const WINDOW: usize = 64;

/// The operations without an answer yet.
pub(crate) struct OperationWindow<'a> {
    repo: &'a dyn EntityRepo,
    capacity: usize,
    outstanding: VecDeque<Outstanding>,
    has_deferred: bool,
}

enum Outstanding {
    Lookup(i64, Check, BoxFuture<Result<Lookup, RepoError>>),
    Put(i64, Put, BoxFuture<Result<Put, RepoError>>),
    Removed(i64, BoxFuture<Result<Removed, RepoError>>),
}

impl std::fmt::Debug for OperationWindow<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Window").field("outstanding", &self.outstanding.len()).finish_non_exhaustive()
    }
}

impl<'a> OperationWindow<'a> {
    /// A window of at most `capacity` operations on `repo`.
    pub(crate) fn new(repo: &'a dyn EntityRepo, capacity: usize) -> Self {
        Self { repo, capacity: capacity.max(1), outstanding: VecDeque::new(), has_deferred: false }
    }

    /// Returns true if any answer was deferred.
    pub(crate) fn has_waited(&self) -> bool {
        self.has_deferred
    }

    /// Starts one operation, and waits for the oldest answer if the window is full.
    pub(crate) fn ask(
        &mut self,
        code: OperationCode,
        entity: impl FnOnce() -> Entity,
        check: &Check,
    ) -> anyhow::Result<()> {
        let id = code.id();
        match code.kind() {
            OperationKind::Get => {
                let mut right = false;
                match self.repo.get(&id, Visit::new(&mut |found| right = check.is_right(id, fields(&found)))) {
                    Answer::Now(found) => check_lookup(id, &found?, right, check)?,
                    Answer::Later(future) => self.push(Outstanding::Lookup(id, *check, future))?,
                }
            }
            OperationKind::Replace | OperationKind::Create => {
                let expected = code.kind().put();
                match self.repo.put(entity()) {
                    Answer::Now(put) => expect(id, put?, expected)?,
                    Answer::Later(future) => self.push(Outstanding::Put(id, expected, future))?,
                }
            }
            OperationKind::Remove => match self.repo.remove(&id) {
                Answer::Now(removed) => expect(id, removed?, Removed::Removed)?,
                Answer::Later(future) => self.push(Outstanding::Removed(id, future))?,
            },
        }
        Ok(())
    }

    fn push(&mut self, operation: Outstanding) -> anyhow::Result<()> {
        self.has_deferred = true;
        self.outstanding.push_back(operation);
        if self.outstanding.len() >= self.capacity { self.wait_for_oldest() } else { Ok(()) }
    }

    fn wait_for_oldest(&mut self) -> anyhow::Result<()> {
        match self.outstanding.pop_front() {
            None => Ok(()),
            Some(Outstanding::Lookup(id, check, future)) => {
                check_lookup(id, &Answer::Later(future).wait()?, false, &check)
            }
            Some(Outstanding::Put(id, expected, future)) => expect(id, Answer::Later(future).wait()?, expected),
            Some(Outstanding::Removed(id, future)) => expect(id, Answer::Later(future).wait()?, Removed::Removed),
        }
    }

    /// Waits for all outstanding answers.
    pub(crate) fn drain(&mut self) -> anyhow::Result<()> {
        while !self.outstanding.is_empty() {
            self.wait_for_oldest()?;
        }
        Ok(())
    }
}

fn check_lookup(id: i64, found: &Lookup, seen: bool, check: &Check) -> anyhow::Result<()> {
    let right = match found {
        Lookup::Visited(_) => seen,
        Lookup::Fetched(entity) => check.is_right(id, entity.as_ref()),
        Lookup::Absent => anyhow::bail!("{id} is gone"),
    };
    if right { Ok(()) } else { Err(wrong(id)) }
}

/// The error of a get that showed a wrong entity.
#[cold]
pub(super) fn wrong(id: i64) -> anyhow::Error {
    anyhow::anyhow!("the get of {id} returned an entity that was never put")
}

/// Checks that an answer is the right one.
#[inline]
pub(super) fn expect<T: Copy + PartialEq + std::fmt::Debug>(id: i64, answer: T, expected: T) -> anyhow::Result<()> {
    if answer == expected { Ok(()) } else { Err(unexpected(id, &format!("{answer:?}"), &format!("{expected:?}"))) }
}

#[cold]
fn unexpected(id: i64, answer: &str, expected: &str) -> anyhow::Error {
    anyhow::anyhow!("the answer for {id} is {answer}, expected {expected}")
}
