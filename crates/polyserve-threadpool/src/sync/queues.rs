//! Stand-ins for std's channel, crossbeam's channel and crossbeam's deques, visible to a model checker: each is a queue
//! behind a lock.
//!
//! They keep what the pools rely on. An item is taken once, in order. A send that finds no space hands the item back. A
//! send wakes a thread that waits in the channel. A channel never disconnects: the pools do not disconnect theirs.
//!
//! A theft is two steps, out of the victim's queue and into the thief's, as in crossbeam. Every third theft returns
//! `Retry`, as crossbeam's may.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use polyserve_core::sync::{Condvar, Mutex, lock};

struct ChannelQueue<T> {
    items: Mutex<VecDeque<T>>,
    sent: Condvar,
    capacity: usize,
}

impl<T> ChannelQueue<T> {
    fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self { items: Mutex::new(VecDeque::new()), sent: Condvar::new(), capacity })
    }

    fn try_send(&self, item: T) -> Result<(), T> {
        let mut items = lock(&self.items);
        if items.len() >= self.capacity {
            return Err(item);
        }
        items.push_back(item);
        drop(items);
        self.sent.notify_one();
        Ok(())
    }

    fn recv(&self) -> T {
        let mut items = lock(&self.items);
        loop {
            if let Some(item) = items.pop_front() {
                return item;
            }
            items = self.sent.wait(items).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn try_recv(&self) -> Option<T> {
        lock(&self.items).pop_front()
    }
}

/// Stands in for `crossbeam_channel`.
pub(crate) mod channel {
    use std::sync::Arc;

    use polyserve_core::sync::lock;

    use super::ChannelQueue;

    pub(crate) struct Sender<T>(Arc<ChannelQueue<T>>);
    pub(crate) struct Receiver<T>(Arc<ChannelQueue<T>>);
    pub(crate) struct TrySendError<T>(T);

    /// The channel is empty.
    #[derive(Debug)]
    pub(crate) struct Empty;

    pub(crate) fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
        let queue = ChannelQueue::new(capacity);
        (Sender(Arc::clone(&queue)), Receiver(queue))
    }

    pub(crate) fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
        bounded(usize::MAX)
    }

    impl<T> Sender<T> {
        pub(crate) fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
            self.0.try_send(item).map_err(TrySendError)
        }
    }

    impl<T> Receiver<T> {
        pub(crate) fn recv(&self) -> Result<T, Empty> {
            Ok(self.0.recv())
        }

        pub(crate) fn try_recv(&self) -> Result<T, Empty> {
            self.0.try_recv().ok_or(Empty)
        }

        pub(crate) fn len(&self) -> usize {
            lock(&self.0.items).len()
        }
    }

    impl<T> TrySendError<T> {
        pub(crate) fn into_inner(self) -> T {
            self.0
        }
    }
}

/// Stands in for `std::sync::mpsc`.
pub(crate) mod mpsc {
    pub(crate) use std::sync::mpsc::{SendError, TrySendError};

    use super::channel;
    pub(crate) use super::channel::Receiver;

    pub(crate) struct Sender<T>(channel::Sender<T>);
    pub(crate) struct SyncSender<T>(channel::Sender<T>);

    pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let (sender, receiver) = channel::unbounded();
        (Sender(sender), receiver)
    }

    pub(crate) fn sync_channel<T>(capacity: usize) -> (SyncSender<T>, Receiver<T>) {
        let (sender, receiver) = channel::bounded(capacity);
        (SyncSender(sender), receiver)
    }

    impl<T> Sender<T> {
        pub(crate) fn send(&self, item: T) -> Result<(), SendError<T>> {
            self.0.try_send(item).map_err(|error| SendError(error.into_inner()))
        }
    }

    impl<T> SyncSender<T> {
        pub(crate) fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
            self.0.try_send(item).map_err(|error| TrySendError::Full(error.into_inner()))
        }
    }
}

/// Stands in for `crossbeam_deque`.
pub(crate) mod deque {
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    pub(crate) use crossbeam_deque::Steal;
    use polyserve_core::sync::{Mutex, lock};

    /// The max number of items that one theft moves.
    const MAX_BATCH: usize = 32;

    struct Items<T> {
        queue: Mutex<VecDeque<T>>,
        /// Of std's type, so that the checker does not count it as a step.
        thefts: AtomicUsize,
    }

    impl<T> Items<T> {
        fn new() -> Self {
            Self { queue: Mutex::new(VecDeque::new()), thefts: AtomicUsize::new(0) }
        }

        /// Takes at most `max` items, and at most half of the queue, rounded up.
        fn steal(&self, max: usize) -> Steal<VecDeque<T>> {
            let mut queue = lock(&self.queue);
            if queue.is_empty() {
                return Steal::Empty;
            }
            if self.thefts.fetch_add(1, Ordering::Relaxed) % 3 == 1 {
                return Steal::Retry;
            }
            let count = queue.len().div_ceil(2).min(max);
            Steal::Success(queue.drain(..count).collect())
        }

        fn steal_one(&self) -> Steal<T> {
            match self.steal(1) {
                Steal::Success(mut batch) => batch.pop_front().map_or(Steal::Empty, Steal::Success),
                Steal::Empty => Steal::Empty,
                Steal::Retry => Steal::Retry,
            }
        }

        fn steal_batch(&self, thief: &Worker<T>) -> Steal<()> {
            match self.steal(MAX_BATCH) {
                Steal::Success(batch) => {
                    lock(&thief.0.queue).extend(batch);
                    Steal::Success(())
                }
                Steal::Empty => Steal::Empty,
                Steal::Retry => Steal::Retry,
            }
        }

        fn steal_batch_and_pop(&self, thief: &Worker<T>) -> Steal<T> {
            match self.steal(MAX_BATCH) {
                Steal::Success(mut batch) => {
                    let first = batch.pop_front();
                    if !batch.is_empty() {
                        lock(&thief.0.queue).extend(batch);
                    }
                    first.map_or(Steal::Empty, Steal::Success)
                }
                Steal::Empty => Steal::Empty,
                Steal::Retry => Steal::Retry,
            }
        }
    }

    /// A worker's end of a queue.
    #[allow(missing_debug_implementations)] // only a pool's type names it
    pub struct Worker<T>(Arc<Items<T>>);
    pub(crate) struct Stealer<T>(Arc<Items<T>>);
    pub(crate) struct Injector<T>(Items<T>);

    impl<T> Worker<T> {
        pub(crate) fn new_fifo() -> Self {
            Self(Arc::new(Items::new()))
        }

        pub(crate) fn stealer(&self) -> Stealer<T> {
            Stealer(Arc::clone(&self.0))
        }

        pub(crate) fn push(&self, item: T) {
            lock(&self.0.queue).push_back(item);
        }

        pub(crate) fn pop(&self) -> Option<T> {
            lock(&self.0.queue).pop_front()
        }
    }

    impl<T> Stealer<T> {
        pub(crate) fn steal(&self) -> Steal<T> {
            self.0.steal_one()
        }

        pub(crate) fn steal_batch_and_pop(&self, thief: &Worker<T>) -> Steal<T> {
            self.0.steal_batch_and_pop(thief)
        }
    }

    impl<T> Injector<T> {
        pub(crate) fn new() -> Self {
            Self(Items::new())
        }

        pub(crate) fn push(&self, item: T) {
            lock(&self.0.queue).push_back(item);
        }

        pub(crate) fn steal(&self) -> Steal<T> {
            self.0.steal_one()
        }

        pub(crate) fn steal_batch(&self, thief: &Worker<T>) -> Steal<()> {
            self.0.steal_batch(thief)
        }

        pub(crate) fn steal_batch_and_pop(&self, thief: &Worker<T>) -> Steal<T> {
            self.0.steal_batch_and_pop(thief)
        }
    }
}
