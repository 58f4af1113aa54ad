//! Repos with deferred answers that are wrong or never complete.

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::task::Context;

use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, Lookup, Put, Removed, RepoAnswer, RepoError, Visit, promise,
};

use super::{broken, delegate};
use crate::repo::LaterReference;

/// Implements the operations: each one calls `inner` and passes the answer through `faulty_answer`.
macro_rules! implement_by_faulty_answer {
    ($repo:ty) => {
        impl EntityRepo for $repo {
            fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
                self.faulty_answer(|inner| inner.get(&id, visit))
            }
            fn put(&self, entity: Entity) -> RepoAnswer<Put> {
                self.faulty_answer(|inner| inner.put(entity))
            }
            fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
                self.faulty_answer(|inner| inner.remove(&id))
            }
            fn put_if(&self, entity: Entity, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
                self.faulty_answer(|inner| inner.put_if(entity, condition))
            }
            fn remove_if(&self, &id: &i64, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
                self.faulty_answer(|inner| inner.remove_if(&id, condition))
            }
            fn len(&self) -> RepoAnswer<u64> {
                self.faulty_answer(EntityRepo::len)
            }
        }
    };
}

broken! {
    /// Calls the visit and then answers later, when the visit's result is no longer used. Caught by
    /// `visit_is_called_exactly_once`.
    VisitsAndAnswersLater, right in: put remove len put_if remove_if;
    fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        Answer::later(self.inner.get(&id, visit).into_future())
    }
}

/// Drops the completer of every seventh operation, so that an error comes instead of a value. Caught by
/// `many_answers_at_once`.
#[derive(Debug, Default)]
pub struct DroppedCompleter {
    inner: LaterReference,
    asked: AtomicU64,
}

impl DroppedCompleter {
    fn faulty_answer<T: Send + 'static>(&self, ask: impl FnOnce(&LaterReference) -> RepoAnswer<T>) -> RepoAnswer<T> {
        if self.asked.fetch_add(1, SeqCst) % 7 != 6 {
            return ask(&self.inner);
        }
        let (_dropped, answer) = promise(Err(RepoError::Closed));
        answer
    }
}

implement_by_faulty_answer!(DroppedCompleter);

/// Never answers every seventh operation. Caught by `many_answers_at_once`, within the patience.
#[derive(Debug, Default)]
pub struct NeverAnswers {
    inner: LaterReference,
    asked: AtomicU64,
}

impl NeverAnswers {
    fn faulty_answer<T: Send + 'static>(&self, ask: impl FnOnce(&LaterReference) -> RepoAnswer<T>) -> RepoAnswer<T> {
        let answer = ask(&self.inner);
        if self.asked.fetch_add(1, SeqCst) % 7 == 6 { Answer::later(pending()) } else { answer }
    }
}

implement_by_faulty_answer!(NeverAnswers);

/// Wakes only the first waker that polled an answer. Caught by `answers_can_be_awaited_from_any_thread`.
#[derive(Debug, Default)]
pub struct FirstWakerOnly {
    inner: LaterReference,
}

impl FirstWakerOnly {
    fn faulty_answer<T: Send + 'static>(&self, ask: impl FnOnce(&LaterReference) -> RepoAnswer<T>) -> RepoAnswer<T> {
        let (mut future, mut first) = (ask(&self.inner).into_future(), None);
        Answer::later(poll_fn(move |cx| {
            let waker = first.get_or_insert_with(|| cx.waker().clone());
            Pin::new(&mut future).poll(&mut Context::from_waker(waker))
        }))
    }
}

implement_by_faulty_answer!(FirstWakerOnly);

/// Starts no operation until the last answer was taken. So a dropped answer blocks the repo for ever. Caught by
/// `later_answers_survive_being_dropped`.
#[derive(Debug, Default)]
pub struct BusyUntilAnswered {
    inner: LaterReference,
    busy: Arc<AtomicBool>,
}

impl BusyUntilAnswered {
    fn faulty_answer<T: Send + 'static>(&self, ask: impl FnOnce(&LaterReference) -> RepoAnswer<T>) -> RepoAnswer<T> {
        if self.busy.swap(true, SeqCst) {
            return Answer::later(async { Err(RepoError::Overloaded) });
        }
        let (answer, busy) = (ask(&self.inner), Arc::clone(&self.busy));
        answer.map(move |result| {
            busy.store(false, SeqCst);
            result
        })
    }
}

implement_by_faulty_answer!(BusyUntilAnswered);

/// Never completes its answers once it is dropped. Caught by `a_dropped_repo_still_answers`.
#[derive(Debug, Default)]
pub struct AbandonsWaiting {
    inner: LaterReference,
    gone: Arc<AtomicBool>,
}

impl AbandonsWaiting {
    fn faulty_answer<T: Send + 'static>(&self, ask: impl FnOnce(&LaterReference) -> RepoAnswer<T>) -> RepoAnswer<T> {
        let (answer, gone) = (ask(&self.inner), Arc::clone(&self.gone));
        answer.then(
            move |result| {
                if gone.load(SeqCst) { Answer::later(pending()) } else { Answer::later(async { result }) }
            },
        )
    }
}

impl Drop for AbandonsWaiting {
    fn drop(&mut self) {
        self.gone.store(true, SeqCst);
    }
}

implement_by_faulty_answer!(AbandonsWaiting);
