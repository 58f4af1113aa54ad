//! [`MpscPool`]: the classic pool, threads around one std channel with a lock around its receiving end.
//!
//! A worker takes the lock, waits for a job while it holds the lock, releases the lock and runs the job. Closing the pool
//! sets a flag and wakes the worker in the channel (`closable_channel`). Queued jobs are still received. Then each worker
//! finds the channel closed and empty, and ends.
//!
//! Invariants: jobs are taken in the order in which they were sent, each by one worker, because there is one channel and
//! one lock around its end. No wake-up is lost: the channel wakes the one worker that waits in it, and the lock wakes the
//! others. The worker that holds the lock waits only for the channel. Jobs run, and are dropped, without the lock.
//!
//! Cost of a job: a send and a count by its submitter; a lock and a receive by its worker. If more than one worker is
//! idle, a job costs two wake-ups instead of one: the worker in the channel, and the next worker in the lock. A bounded
//! queue is one array. An unbounded queue is a list of blocks.
//!
//! Source: the thread pool of the Rust book's last chapter, and of the published entity servers.
//!
//! *Wins when* only std may be used, or it is to be compared with published thread pools. On one core, a job of one
//! word takes less time than on rayon. With tasks of a second all executors are close (`docs/EXPERIMENTS.md`).
//! *Loses when* jobs are short: a job of one word takes longer than on `CrossbeamPool`. The lock serialises the
//! workers, and a worker that is preempted while it holds the lock stops all of them. Record: `docs/STRATEGIES.md`,
//! "Executors for CPU work".

use crossbeam_utils::CachePadded;
use polyserve_core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use polyserve_core::sync::{Mutex, lock};
use polyserve_serving::executor::{Pool, PoolConfig};

use super::closable_channel::{Channel, ClosableChannel, Item};
use crate::sync::mpsc::{self, Receiver, Sender, SyncSender, TrySendError};

/// A pool with a fixed number of threads, which receive jobs from one std channel.
///
/// The module's source explains how it works. The [crate](crate#what-every-pool-promises) lists what it promises.
pub type MpscPool = Pool<ClosableChannel<MpscChannel>>;

/// The standard library's channel.
pub struct MpscChannel {
    sending: SendHalf,
    /// The number of items sent, including wake-ups. std's channel does not report its length.
    sent: CachePadded<AtomicU64>,
    receiving: CachePadded<ReceiveHalf>,
}

struct ReceiveHalf {
    receiver: Mutex<Receiver<Item>>,
    /// The number of items received. Written only by the thread that holds the lock.
    received: AtomicU64,
}

enum SendHalf {
    Bounded(SyncSender<Item>),
    Unbounded(Sender<Item>),
}

impl Channel for MpscChannel {
    const POOL: &'static str = "MpscPool";

    fn new(config: &PoolConfig) -> Self {
        let (sending, receiver) = match config.queue.bound() {
            Some(capacity) => {
                let (sender, receiver) = mpsc::sync_channel(capacity);
                (SendHalf::Bounded(sender), receiver)
            }
            None => {
                let (sender, receiver) = mpsc::channel();
                (SendHalf::Unbounded(sender), receiver)
            }
        };
        let receiving = ReceiveHalf { receiver: Mutex::new(receiver), received: AtomicU64::new(0) };
        Self { sending, sent: CachePadded::default(), receiving: CachePadded::new(receiving) }
    }

    #[inline]
    fn try_send(&self, item: Item) -> Result<(), Item> {
        match &self.sending {
            SendHalf::Bounded(sender) => sender.try_send(item).map_err(|error| match error {
                TrySendError::Full(item) | TrySendError::Disconnected(item) => item,
            })?,
            SendHalf::Unbounded(sender) => sender.send(item).map_err(|error| error.0)?,
        }
        self.sent.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    #[inline]
    fn receive(&self, closed: &AtomicBool) -> Option<Item> {
        let ReceiveHalf { receiver, received } = &*self.receiving;
        let receiver = lock(receiver);
        // The flag is read under the lock. A worker that gets the lock after a wake-up was received then reads *closed*.
        // It does not wait in the channel while it holds the lock that others need to find the channel empty.
        let item = if closed.load(Ordering::SeqCst) { receiver.try_recv().ok() } else { receiver.recv().ok() };
        received.store(received.load(Ordering::Relaxed) + u64::from(item.is_some()), Ordering::Relaxed);
        item
    }

    fn len(&self) -> u64 {
        let received = self.receiving.received.load(Ordering::Relaxed);
        self.sent.load(Ordering::Relaxed).saturating_sub(received)
    }
}
