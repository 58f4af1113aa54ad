//! The shutdown: threads and tasks that wait for it to begin are woken.

use std::pin::Pin;
use std::sync::Arc;

use crate::answer::park_until;
use crate::sync::model::{Bounds, DEADLOCK, PrimitiveFault, check, finds};
use crate::sync::{now, thread};
use crate::test_wakers::CountingWaker;
use crate::{Shutdown, promise};

const ALL: Bounds = Bounds::up_to_all(3);

#[test]
fn the_begin_wakes_a_waiting_future() {
    fn body() {
        let shutdown = Shutdown::new();
        let mut begun = shutdown.begun();
        let waiter = thread::spawn(move || park_until(None, |cx| Pin::new(&mut begun).poll(cx)));
        shutdown.begin(now());
        assert_eq!(waiter.join().unwrap(), Some(()));
        assert!(shutdown.deadline().is_some(), "it has begun without a deadline");
    }
    check("shutdown: begin against a wait for it", ALL, body);
    finds(PrimitiveFault::Token, DEADLOCK);
}

/// A thread registers, checks for the shutdown, and parks. The shutdown begins at any point in between.
#[test]
fn its_begin_unparks_a_registered_thread() {
    fn body() {
        let shutdown = Shutdown::new();
        let other = shutdown.clone();
        let waiter = thread::spawn(move || {
            let registration = other.register_thread();
            while !other.is_begun() {
                thread::park();
            }
            drop(registration);
        });
        shutdown.begin(now());
        waiter.join().unwrap();
    }
    check("shutdown: begin against a registered thread", ALL, body);
    finds(PrimitiveFault::Token, DEADLOCK);
}

/// A hook that is added while the shutdown begins is called once or twice: by `begin`, by `on_begin`, or by both.
#[test]
fn the_begin_calls_a_hook() {
    check("shutdown: begin against a new hook", ALL, || {
        let shutdown = Shutdown::new();
        let (count, other) = (Arc::new(CountingWaker::default()), shutdown.clone());
        let counted = Arc::clone(&count);
        let hooking = thread::spawn(move || {
            other.on_begin(move || std::task::Wake::wake(Arc::clone(&counted)));
        });
        shutdown.begin(now());
        hooking.join().unwrap();
        assert!((1..=2).contains(&count.get()), "called {} times", count.get());
    });
}

/// A future that is dropped while the shutdown begins removes its own waker and no other.
#[test]
fn a_dropped_future_leaves_the_others() {
    check("shutdown: begin against two waiting futures, one of them dropped", Bounds::new(2, 4), || {
        let shutdown = Shutdown::new();
        let (mut stays, mut leaves) = (shutdown.begun(), shutdown.begun());
        let (done, ended) = promise(false);
        let staying = thread::spawn(move || {
            park_until(None, |cx| Pin::new(&mut stays).poll(cx));
            let _ = done.complete(true);
        });
        let leaving = thread::spawn(move || {
            let _ = park_until(Some(now()), |cx| Pin::new(&mut leaves).poll(cx));
        });
        shutdown.begin(now());
        assert!(ended.wait());
        staying.join().unwrap();
        leaving.join().unwrap();
    });
}
