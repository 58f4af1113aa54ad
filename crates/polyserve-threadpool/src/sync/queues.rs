//! Stand-ins for std's channel, crossbeam's channel and crossbeam's deques, visible to a model checker: each is a queue
//! behind a lock. One type stands for both ends of a queue.
//!
//! They keep what the pools rely on. An item is taken once, in order. A send that finds no space hands the item back. A
//! send wakes a thread that waits in the channel. A channel never disconnects: the pools do not disconnect theirs.
//!
//! A theft is two steps, out of the victim's queue and into the thief's, as in crossbeam. Every third theft returns
//! `Retry`, as crossbeam's may.

/// Stands in for `crossbeam_channel`.
pub(crate) mod channel {
    use std::collections::VecDeque;
    use std::sync::{Arc, PoisonError};

    pub(crate) use crossbeam_channel::TrySendError;
    use crossbeam_channel::{RecvError, SendError, TryRecvError};
    use polyserve_core::sync::{Condvar, Mutex, lock};

    pub(crate) struct Channel<T>(Arc<ChannelQueue<T>>);
    pub(crate) use Channel as Sender;
    pub(crate) use Channel as Receiver;

    struct ChannelQueue<T> {
        items: Mutex<VecDeque<T>>,
        sent: Condvar,
        capacity: usize,
    }

    pub(crate) fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
        let queue = Arc::new(ChannelQueue { items: Mutex::new(VecDeque::new()), sent: Condvar::new(), capacity });
        (Channel(Arc::clone(&queue)), Channel(queue))
    }

    pub(crate) fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
        bounded(usize::MAX)
    }

    impl<T> Channel<T> {
        pub(crate) fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
            let mut items = lock(&self.0.items);
            if items.len() >= self.0.capacity {
                return Err(TrySendError::Full(item));
            }
            items.push_back(item);
            drop(items);
            self.0.sent.notify_one();
            Ok(())
        }

        pub(crate) fn send(&self, item: T) -> Result<(), SendError<T>> {
            self.try_send(item).map_err(|error| SendError(error.into_inner()))
        }

        pub(crate) fn recv(&self) -> Result<T, RecvError> {
            let mut items = lock(&self.0.items);
            loop {
                if let Some(item) = items.pop_front() {
                    return Ok(item);
                }
                items = self.0.sent.wait(items).unwrap_or_else(PoisonError::into_inner);
            }
        }

        pub(crate) fn try_recv(&self) -> Result<T, TryRecvError> {
            lock(&self.0.items).pop_front().ok_or(TryRecvError::Empty)
        }

        pub(crate) fn len(&self) -> usize {
            lock(&self.0.items).len()
        }
    }
}

/// Stands in for `std::sync::mpsc`.
pub(crate) mod mpsc {
    pub(crate) use super::channel::{
        Receiver, Sender, Sender as SyncSender, TrySendError, bounded as sync_channel, unbounded as channel,
    };
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

    #[allow(missing_debug_implementations)] // only a pool's type names it
    pub struct Deque<T>(Arc<Items<T>>);
    pub(crate) use Deque as Injector;
    pub(crate) use Deque as Stealer;
    pub(crate) use Deque as Worker;

    struct Items<T> {
        queue: Mutex<VecDeque<T>>,
        /// Of std's type, so that the checker does not count it as a step.
        thefts: AtomicUsize,
    }

    impl<T> Deque<T> {
        pub(crate) fn new() -> Self {
            Self(Arc::new(Items { queue: Mutex::new(VecDeque::new()), thefts: AtomicUsize::new(0) }))
        }

        pub(crate) fn new_fifo() -> Self {
            Self::new()
        }

        pub(crate) fn stealer(&self) -> Self {
            Self(Arc::clone(&self.0))
        }

        pub(crate) fn push(&self, item: T) {
            lock(&self.0.queue).push_back(item);
        }

        pub(crate) fn pop(&self) -> Option<T> {
            lock(&self.0.queue).pop_front()
        }

        pub(crate) fn steal(&self) -> Steal<T> {
            match self.steal_up_to(1) {
                Steal::Success(mut batch) => batch.pop_front().map_or(Steal::Empty, Steal::Success),
                Steal::Empty => Steal::Empty,
                Steal::Retry => Steal::Retry,
            }
        }

        pub(crate) fn steal_batch(&self, thief: &Self) -> Steal<()> {
            match self.steal_up_to(MAX_BATCH) {
                Steal::Success(batch) => {
                    lock(&thief.0.queue).extend(batch);
                    Steal::Success(())
                }
                Steal::Empty => Steal::Empty,
                Steal::Retry => Steal::Retry,
            }
        }

        pub(crate) fn steal_batch_and_pop(&self, thief: &Self) -> Steal<T> {
            match self.steal_up_to(MAX_BATCH) {
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

        /// Takes at most `max` items, and at most half of the queue, rounded up.
        fn steal_up_to(&self, max: usize) -> Steal<VecDeque<T>> {
            let mut queue = lock(&self.0.queue);
            if queue.is_empty() {
                return Steal::Empty;
            }
            if self.0.thefts.fetch_add(1, Ordering::Relaxed) % 3 == 1 {
                return Steal::Retry;
            }
            let count = queue.len().div_ceil(2).min(max);
            Steal::Success(queue.drain(..count).collect())
        }
    }
}
