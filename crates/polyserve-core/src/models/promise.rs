//! Models of the promise: two of the operations complete, drop, poll, wait and park run at the same time.

use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::answer::AnswerFuture;
use crate::sync::model::{Bounds, DEADLOCK, PrimitiveFault, check, clock, finds};
use crate::sync::{now, thread};
use crate::test_wakers::CountingWaker;
use crate::{Answer, promise};

const ALL: Bounds = Bounds::up_to_all(3);

fn poll<T>(future: &mut AnswerFuture<T>, count: &Arc<CountingWaker>) -> Poll<T> {
    Pin::new(future).poll(&mut Context::from_waker(&Waker::from(Arc::clone(count))))
}

fn a_wait_ends() {
    let (completer, answer) = promise(0);
    let waiter = thread::spawn(move || answer.wait());
    assert_eq!(completer.complete(7), Ok(()));
    assert_eq!(waiter.join().unwrap(), 7);
}

#[test]
fn a_wait_ends_with_the_value() {
    check("promise: complete against wait", ALL, a_wait_ends);
    finds(PrimitiveFault::Token, DEADLOCK);
}

#[test]
fn a_wait_ends_where_the_completer_is_dropped() {
    fn body() {
        let (completer, answer) = promise(1);
        let waiter = thread::spawn(move || answer.map(|n| n + 1).wait());
        drop(completer);
        assert_eq!(waiter.join().unwrap(), 2);
    }
    check("promise: drop of the completer against wait", ALL, body);
    finds(PrimitiveFault::Token, DEADLOCK);
}

/// Two promises in succession on one thread. The wake for the first may come while the thread waits for the second.
#[test]
fn a_late_wake_is_no_answer() {
    fn body() {
        let ((first_completer, first), (second_completer, second)) = (promise(0), promise(0));
        let waiter = thread::spawn(move || (first.wait(), second.wait()));
        let other = thread::spawn(move || first_completer.complete(1).is_ok());
        assert!(second_completer.complete(2).is_ok());
        assert!(other.join().unwrap());
        assert_eq!(waiter.join().unwrap(), (1, 2));
    }
    check("promise: two on one thread", Bounds::new(2, 4), body);
    finds(PrimitiveFault::Token, DEADLOCK);
}

/// The task that polled last is woken, or gets the value from a poll of its own.
#[test]
fn the_last_waker_is_woken() {
    check("promise: complete against a change of wakers", ALL, || {
        let (completer, answer) = promise(0);
        let mut future = answer.into_future();
        let wakers: [Arc<CountingWaker>; 2] = Default::default();
        let completing = thread::spawn(move || completer.complete(5).is_ok());
        let polled = [poll(&mut future, &wakers[0]), Poll::Pending];
        let polled = if polled[0].is_pending() { [polled[0], poll(&mut future, &wakers[1])] } else { polled };
        assert!(completing.join().unwrap());
        match polled {
            [Poll::Ready(5), _] => assert_eq!([wakers[0].get(), wakers[1].get()], [0, 0]),
            // The value came between the two polls; or the first waker was woken, and the second poll returned the value.
            [Poll::Pending, Poll::Ready(5)] => assert_eq!([wakers[0].get(), wakers[1].get()], [1, 0]),
            [Poll::Pending, Poll::Pending] => {
                assert_eq!([wakers[0].get(), wakers[1].get()], [0, 1]);
                assert_eq!(poll(&mut future, &wakers[1]), Poll::Ready(5));
            }
            other => panic!("{other:?}"),
        }
    });
}

/// The value is returned to the completer, or dropped with the answer. It is not lost, and not answered twice.
#[test]
fn an_abandoned_answer_is_known_to_be() {
    check("promise: complete against drop of the answer", ALL, || {
        let (completer, answer) = promise(Arc::new(0));
        let value = Arc::new(1);
        let sent = Arc::clone(&value);
        let other = thread::spawn(move || drop(answer));
        let was_abandoned = completer.is_abandoned();
        let result = completer.complete(sent);
        assert!(!was_abandoned || result.is_err(), "an answer came back");
        other.join().unwrap();
        drop(result);
        assert_eq!(Arc::strong_count(&value), 1, "no other reference to the value is left");
    });
}

/// A deadline that comes at the same time as the value: the wait ends by one of the two, and a later wait gets the value.
#[test]
fn a_deadline_takes_no_value_with_it() {
    fn body() {
        let (completer, answer) = promise(0);
        let deadline = now() + Duration::from_secs(1);
        let waiter = thread::spawn(move || match answer.wait_until(deadline) {
            Ok(value) => value,
            Err(answer) => {
                assert!(now() >= deadline, "the deadline has not passed");
                answer.wait()
            }
        });
        let time = thread::spawn(|| clock::advance(Duration::from_secs(2)));
        assert_eq!(completer.complete(3), Ok(()));
        time.join().unwrap();
        assert_eq!(waiter.join().unwrap(), 3);
    }
    check("promise: complete against a deadline", Bounds::new(2, 4), body);
    finds(PrimitiveFault::Token, DEADLOCK);
}

/// Nothing completes the promise: the deadline ends the wait.
#[test]
fn a_deadline_ends_a_wait() {
    fn body() {
        let (completer, answer) = promise(0);
        let deadline = now() + Duration::from_secs(1);
        let waiter = thread::spawn(move || answer.wait_until(deadline).is_err());
        clock::run_out();
        assert!(waiter.join().unwrap());
        drop(completer);
    }
    check("promise: a deadline alone", ALL, body);
    finds(PrimitiveFault::Timeout, DEADLOCK);
}

/// `then` calls its function on the waiting thread, whichever thread completes the first answer.
#[test]
fn chained_answers_come_through() {
    check("promise: two that are chained", Bounds::new(2, 4), || {
        let ((first_completer, first), (second_completer, second)) = (promise(0), promise(0));
        let chained = first.then(move |n| second.map(move |m| n + m));
        let other = thread::spawn(move || second_completer.complete(2).is_ok());
        let waiter = thread::spawn(move || chained.wait());
        assert!(first_completer.complete(1).is_ok());
        assert!(other.join().unwrap());
        assert_eq!(waiter.join().unwrap(), 3);
        assert!(Answer::Now(()).is_now());
    });
}
