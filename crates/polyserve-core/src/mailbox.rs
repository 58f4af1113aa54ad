//! A bounded mailbox: many threads send, and one receives all waiting messages at once.
//!
//! Invariant: the receiver sleeps only after it has seen, under the lock, that no message waits and that the mailbox is
//! open. It sets `asleep` under the same lock. The next thread that sends or closes clears `asleep` and wakes the
//! receiver. So no message waits for a sleeping receiver, and a sleeping receiver is woken once, however many messages
//! are sent until it runs.
//!
//! Cost: a send is a lock and a move, and a wake if the receiver sleeps. A receive is a lock and the exchange of two
//! rings. Both rings keep their capacity, so nothing is allocated once they have grown.

use std::collections::VecDeque;
use std::mem;
use std::sync::PoisonError;

use crate::sync::{Condvar, Mutex, MutexGuard, lock};

/// A bounded mailbox with one receiver.
pub struct Mailbox<M> {
    state: Mutex<MailboxState<M>>,
    arrival: Condvar,
    capacity: usize,
}

struct MailboxState<M> {
    waiting: VecDeque<M>,
    /// Whether the receiver sleeps and has not been woken.
    asleep: bool,
    closed: bool,
}

/// The reason why a message was not accepted, with the message.
#[derive(Debug, PartialEq)]
pub enum Refused<M> {
    /// The mailbox holds its max number of messages.
    Full(M),
    /// The mailbox is closed.
    Closed(M),
}

impl<M> std::fmt::Debug for Mailbox<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl<M> Mailbox<M> {
    /// Creates a mailbox that holds `capacity` messages.
    pub fn new(capacity: usize) -> Self {
        let state = MailboxState { waiting: VecDeque::new(), asleep: false, closed: false };
        Self { state: Mutex::new(state), arrival: Condvar::new(), capacity }
    }

    /// Sends `message`. The receiver gets it after all messages that were sent before. Never waits for space.
    ///
    /// # Errors
    ///
    /// Returns [`Refused`] if the mailbox is full or closed.
    pub fn send(&self, message: M) -> Result<(), Refused<M>> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(Refused::Closed(message));
        }
        if state.waiting.len() >= self.capacity {
            return Err(Refused::Full(message));
        }
        state.waiting.push_back(message);
        self.wake(state);
        Ok(())
    }

    /// Waits until there is a message, and moves all messages into `batch`, which must be empty. Returns `false` if the
    /// mailbox is closed and no message is left. Only one thread may receive.
    pub fn receive(&self, batch: &mut VecDeque<M>) -> bool {
        let mut state = lock(&self.state);
        while state.waiting.is_empty() {
            if state.closed {
                return false;
            }
            state.asleep = true;
            state = self.arrival.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.asleep = false; // it may have woken spuriously
        mem::swap(&mut state.waiting, batch);
        true
    }

    /// Closes the mailbox. The receiver still gets the waiting messages.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        self.wake(state);
    }

    /// Closes the mailbox and returns the waiting messages. For the receiver only.
    pub fn end(&self) -> VecDeque<M> {
        let mut state = lock(&self.state);
        state.closed = true;
        mem::take(&mut state.waiting)
    }

    /// Releases the lock, then wakes the receiver if it sleeps.
    fn wake(&self, mut state: MutexGuard<'_, MailboxState<M>>) {
        let asleep = mem::take(&mut state.asleep);
        drop(state);
        if asleep {
            self.arrival.notify_one();
        }
    }
}

#[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn a_batch_is_all_that_waits_in_order() {
        let mailbox = Mailbox::new(3);
        (0..3).for_each(|n| mailbox.send(n).unwrap());
        assert_eq!(mailbox.send(3), Err(Refused::Full(3)));
        let mut batch = VecDeque::new();
        assert!(mailbox.receive(&mut batch));
        assert_eq!(batch, [0, 1, 2]);
        mailbox.send(4).unwrap();
    }

    #[test]
    fn what_waits_at_the_close_is_received() {
        let mailbox = Mailbox::new(3);
        mailbox.send(0).unwrap();
        mailbox.close();
        assert_eq!(mailbox.send(1), Err(Refused::Closed(1)));
        let mut batch = VecDeque::new();
        assert!(mailbox.receive(&mut batch));
        assert_eq!(batch.pop_front(), Some(0));
        assert!(!mailbox.receive(&mut batch));
    }

    #[test]
    fn what_waits_at_the_end_is_handed_out() {
        let mailbox = Mailbox::new(3);
        (0..2).for_each(|n| mailbox.send(n).unwrap());
        assert_eq!(mailbox.end(), [0, 1]);
        assert_eq!(mailbox.send(2), Err(Refused::Closed(2)));
        assert!(!mailbox.receive(&mut VecDeque::new()));
        assert!(mailbox.end().is_empty());
    }

    #[test]
    fn a_sleeping_receiver_is_woken_by_every_sender_and_by_the_close() {
        const MESSAGES: usize = 2_000;
        let mailbox = Arc::new(Mailbox::new(usize::MAX));
        let receiver = thread::spawn({
            let mailbox = Arc::clone(&mailbox);
            move || {
                let (mut batch, mut next) = (VecDeque::new(), [0; 3]);
                while mailbox.receive(&mut batch) {
                    for (sender, number) in batch.drain(..) {
                        assert_eq!(number, next[sender], "the messages of sender {sender} come in order");
                        next[sender] += 1;
                    }
                }
                next
            }
        });
        thread::scope(|scope| {
            for sender in 0..3 {
                let mailbox = &mailbox;
                scope.spawn(move || (0..MESSAGES).for_each(|number| mailbox.send((sender, number)).unwrap()));
            }
        });
        mailbox.close();
        assert_eq!(receiver.join().unwrap(), [MESSAGES; 3]);
    }
}
