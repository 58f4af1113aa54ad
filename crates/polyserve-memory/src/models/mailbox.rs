//! Models of `actor`: its mailbox, and the whole store with one owner.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Arc;

use polyserve_core::mailbox::{Mailbox, Refused};
use polyserve_core::sync::model::{DEADLOCK, PrimitiveFault, check, finds};
use polyserve_core::sync::thread::{self, JoinHandle};
use polyserve_core::{Entity, EntityRepo, Lookup, Put, Removed, RepoError, Visit};

use super::bounds;
use crate::Actor;

/// Starts the receiver of a mailbox with this capacity. It returns all messages that it receives until the close.
fn receiver(mailbox: &Arc<Mailbox<(usize, usize)>>, capacity: usize) -> JoinHandle<Vec<(usize, usize)>> {
    let mailbox = Arc::clone(mailbox);
    thread::spawn(move || {
        let (mut received, mut batch) = (Vec::new(), VecDeque::new());
        while mailbox.receive(&mut batch) {
            assert!((1..=capacity).contains(&batch.len()), "it received {} at once", batch.len());
            received.extend(batch.drain(..));
        }
        received
    })
}

/// Two senders, and a close after both have sent: the messages of each arrive once and in order.
#[test]
fn what_was_sent_is_received_in_its_senders_order() {
    fn body() {
        let mailbox = Arc::new(Mailbox::new(8));
        let receiver = receiver(&mailbox, 8);
        let sender_mailbox = Arc::clone(&mailbox);
        let sender = thread::spawn(move || (0..2).for_each(|n| sender_mailbox.send((1, n)).unwrap()));
        (0..2).for_each(|n| mailbox.send((0, n)).unwrap());
        sender.join().unwrap();
        mailbox.close();
        let received = receiver.join().unwrap();
        assert_eq!(received.len(), 4);
        for sender in 0..2 {
            let numbers = received.iter().filter(|(from, _)| *from == sender).map(|(_, number)| *number);
            assert!(numbers.eq(0..2), "{received:?}");
        }
    }
    check("mailbox: two senders", bounds([2, 3], [200, 20_000]), body);
    finds(PrimitiveFault::Notice, DEADLOCK);
}

/// A close races a send: the message is received, or refused.
#[test]
fn a_send_as_it_closes_is_received_or_refused() {
    fn body() {
        let mailbox = Arc::new(Mailbox::new(8));
        let receiver = receiver(&mailbox, 8);
        let sender_mailbox = Arc::clone(&mailbox);
        let sender = thread::spawn(move || match sender_mailbox.send((0, 0)) {
            Ok(()) => 1,
            Err(Refused::Closed(message)) => {
                assert_eq!(message, (0, 0));
                0
            }
            Err(Refused::Full(_)) => panic!("there is room"),
        });
        mailbox.close();
        assert_eq!(receiver.join().unwrap().len(), sender.join().unwrap());
    }
    check("mailbox: a close against a send", bounds([4, 8], [200, 20_000]), body);
    finds(PrimitiveFault::Notice, DEADLOCK);
}

/// Two senders and a capacity of one: at most one message waits.
#[test]
fn a_full_mailbox_refuses() {
    fn body() {
        let mailbox = Arc::new(Mailbox::new(1));
        let receiver = receiver(&mailbox, 1);
        let sender_mailbox = Arc::clone(&mailbox);
        let send = |mailbox: &Mailbox<(usize, usize)>, from| match mailbox.send((from, 0)) {
            Ok(()) => 1,
            Err(Refused::Full(_)) => 0,
            Err(Refused::Closed(_)) => panic!("it is open"),
        };
        let sender = thread::spawn(move || send(&sender_mailbox, 1));
        let taken = send(&mailbox, 0) + sender.join().unwrap();
        mailbox.close();
        assert!(taken >= 1, "the first finds room");
        assert_eq!(receiver.join().unwrap().len(), taken);
    }
    check("mailbox: room for one", bounds([3, 6], [200, 20_000]), body);
    finds(PrimitiveFault::Notice, DEADLOCK);
}

/// The whole store with one owner and two threads that use it: the operations of an id take effect in the order in
/// which each thread sent them, and the store ends.
#[test]
fn the_store_answers_all_and_ends() {
    fn body() {
        let repo = Arc::new(Actor::with(NonZeroUsize::MIN, NonZeroUsize::new(8).unwrap()).unwrap());
        let other_repo = Arc::clone(&repo);
        let removing = thread::spawn(move || other_repo.remove(&1).wait());
        let put = repo.put(Entity::new(1, "one", 1.0));
        let got = repo.get(&1, Visit::new(&mut |_| {}));
        assert!(matches!(put.wait(), Ok(Put::Created)));
        let removed = removing.join().unwrap();
        match (got.wait(), removed) {
            (Ok(Lookup::Fetched(entity)), Ok(_)) => assert_eq!(entity.id, 1),
            (Ok(Lookup::Absent), Ok(Removed::Removed)) => {}
            other => panic!("{other:?}"),
        }
    }
    check("actor: an owner and two callers", bounds([1, 2], [200, 20_000]), body);
    finds(PrimitiveFault::Notice, DEADLOCK);
}

/// A capacity of one: an operation that finds no space is refused and has no effect.
#[test]
fn a_refused_operation_has_not_happened() {
    fn body() {
        let repo = Actor::with(NonZeroUsize::MIN, NonZeroUsize::MIN).unwrap();
        let answers = [repo.put(Entity::new(1, "one", 1.0)), repo.put(Entity::new(1, "one", 2.0))];
        let [first, second] = answers.map(polyserve_core::Answer::wait);
        assert!(matches!(first, Ok(Put::Created)));
        match (second, repo.get(&1, Visit::new(&mut |_| {})).wait()) {
            (Ok(Put::Replaced), Ok(Lookup::Fetched(entity))) => assert_eq!(entity.value, 2.0),
            (Err(RepoError::Overloaded), Ok(Lookup::Fetched(entity))) => assert_eq!(entity.value, 1.0),
            other => panic!("{other:?}"),
        }
    }
    check("actor: room for one", bounds([2, 3], [200, 20_000]), body);
    finds(PrimitiveFault::Notice, DEADLOCK);
}
