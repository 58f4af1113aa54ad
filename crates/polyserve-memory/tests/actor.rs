//! Tests of `actor` only: an owner is blocked, or drops the repo itself.

use std::any::Any;
use std::future::IntoFuture;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use polyserve_core::{AnswerFuture, Entity, EntityRepo, EntityRepoExt, Lookup, Put, RepoAnswer, RepoError, Visit};
use polyserve_memory::Actor;

/// The timeout of every wait. It passes only if a test fails.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Creates a repo with one owner. Its mailbox holds `capacity` operations.
fn one_owner(capacity: usize) -> Actor {
    Actor::with(NonZeroUsize::MIN, NonZeroUsize::new(capacity).unwrap()).expect("a thread can be started")
}

fn put(repo: &Actor, id: i64) -> RepoAnswer<Put> {
    repo.put(Entity::new(id, "it", 1.0))
}

/// A waker that calls a function on the thread that wakes it, which is the owner's.
struct Calls<F: Fn() + Send + Sync>(F);

impl<F: Fn() + Send + Sync> Wake for Calls<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

type Got = AnswerFuture<Result<Lookup, RepoError>>;

/// Sends a get. The owner calls `call` when it answers. Returns `None` if the answer is there already.
fn call_when_answered(repo: &Actor, call: impl Fn() + Send + Sync + 'static) -> Option<Got> {
    let mut got = repo.get(&0, Visit::new(&mut |_| ())).into_future();
    let waker = Waker::from(Arc::new(Calls(call)));
    Pin::new(&mut got).poll(&mut Context::from_waker(&waker)).is_pending().then_some(got)
}

/// Blocks the owner in a waker until the returned sender is dropped.
fn block_owner(repo: &Actor) -> (Sender<()>, Got) {
    loop {
        let (entered_sender, entered_receiver) = mpsc::channel();
        let (release, released) = mpsc::channel();
        let held = Mutex::new((entered_sender, released));
        let hold = move || {
            let held: &(Sender<()>, Receiver<()>) = &held.lock().unwrap();
            held.0.send(()).unwrap();
            let _ = held.1.recv();
        };
        if let Some(got) = call_when_answered(repo, hold) {
            entered_receiver.recv_timeout(MAX_WAIT).expect("the owner wakes the waiting task");
            return (release, got);
        }
    }
}

#[test]
fn a_full_mailbox_refuses_and_nothing_has_happened() {
    let repo = one_owner(64);
    let (release, _got) = block_owner(&repo);
    let puts: Vec<_> = (0..64).map(|id| put(&repo, id)).collect();
    for refused in [put(&repo, 64), put(&repo, 0)] {
        assert!(matches!(refused.wait(), Err(RepoError::Overloaded)));
    }
    let get = repo.get(&0, Visit::new(&mut |_| ()));
    assert!(matches!(get.wait(), Err(RepoError::Overloaded)));
    drop(release);
    for put in puts {
        assert_eq!(put.wait().expect("there was room for it"), Put::Created);
    }
    assert!(repo.fetch(&63).wait().expect("it answers").is_some());
    assert!(repo.fetch(&64).wait().expect("it answers").is_none(), "the put was refused");
    assert_eq!(repo.len().wait().expect("it answers"), 64);
}

/// A panic payload that panics with another payload when it is dropped.
struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        resume_unwind(Box::new(PanicsInDrop));
    }
}

#[test]
fn a_waker_that_panics_loses_no_answer() {
    panic_loses_no_answer(|| Box::new("the waker's own panic"));
}

#[test]
fn a_payload_that_panics_in_its_drop_loses_no_answer() {
    panic_loses_no_answer(|| Box::new(PanicsInDrop));
}

fn panic_loses_no_answer(payload: fn() -> Box<dyn Any + Send>) {
    let repo = one_owner(64);
    for round in 0..3 {
        let (release, _got) = block_owner(&repo);
        let panic = move || resume_unwind(payload()); // `resume_unwind` skips the panic hook, which would print it
        let panicked = call_when_answered(&repo, panic).expect("the owner is blocked");
        let queued: Vec<_> = (0..8).map(|id| put(&repo, round * 8 + id)).collect();
        drop(release);
        for put in queued {
            let put = put.wait_until(Instant::now() + MAX_WAIT).unwrap_or_else(|_| panic!("the owner has gone"));
            assert_eq!(put.expect("it answers"), Put::Created);
        }
        let mut panicked = panicked;
        let got = Pin::new(&mut panicked).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(got, Poll::Ready(Ok(_))), "it was answered before its waker panicked");
    }
    assert_eq!(repo.len().wait().expect("it answers"), 24);
}

#[test]
fn an_owner_can_drop_the_repo() {
    let repo = Arc::new(one_owner(64));
    let (release, _got) = block_owner(&repo);
    let last = Mutex::new(Some(Arc::clone(&repo)));
    let (dropped_sender, dropped_receiver) = mpsc::channel();
    let drop_it = move || {
        drop(last.lock().unwrap().take());
        dropped_sender.send(()).unwrap();
    };
    let _got = call_when_answered(&repo, drop_it).expect("the owner is blocked");
    let queued = put(&repo, 7);
    drop(repo); // now the waker has the last reference
    drop(release);
    dropped_receiver.recv_timeout(MAX_WAIT).expect("a drop on the owner's thread returns");
    assert_eq!(queued.wait().expect("the put was sent before"), Put::Created);
}

/// Regression test: if there were more ids than a mailbox holds, many gets were refused, each time.
#[test]
fn more_ids_are_got_than_a_mailbox_holds() {
    let repo = one_owner(3);
    (0..10).for_each(|id| _ = put(&repo, id).wait().unwrap());
    let ids: Vec<i64> = (0..100_000).map(|number| number % 20).collect();
    let found = repo.get_many(&ids, &mut |_, _| unreachable!("an owner shows nothing"));
    let found = found.wait_until(Instant::now() + MAX_WAIT).expect("it is answered").expect("nothing else waits");
    let stored = ids.iter().enumerate().filter(|(_, id)| **id < 10);
    assert!(found.iter().map(|(place, entity)| (*place, &entity.id)).eq(stored));
}

/// The owner answers nothing, and its mailbox is full: many gets are refused as each by itself is.
#[test]
fn many_gets_of_a_full_mailbox_are_overloaded() {
    let repo = one_owner(2);
    let (release, got) = block_owner(&repo);
    let waiting = [put(&repo, 1), put(&repo, 2)];
    let found = repo.get_many(&[1, 2, 3], &mut |_, _| unreachable!("an owner shows nothing")).wait();
    assert!(matches!(found, Err(RepoError::Overloaded)), "{found:?}");
    drop(release);
    waiting.into_iter().for_each(|put| _ = put.wait().unwrap());
    drop(got);
    let closed = repo.get_many(&vec![1; 10_000], &mut |_, _| unreachable!("an owner shows nothing"));
    drop(repo);
    assert!(matches!(closed.wait(), Err(RepoError::Closed)));
}
