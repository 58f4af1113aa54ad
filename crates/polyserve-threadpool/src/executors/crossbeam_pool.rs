//! [`CrossbeamPool`]: threads around one crossbeam channel that every worker receives from.
//!
//! Closing the pool sets a flag and wakes the workers (`closable_channel`). Queued jobs are still received. Then each
//! worker finds the channel closed and empty, and ends.
//!
//! Invariants: jobs are taken in the order in which they were sent, each by one worker, and no wake-up is lost. The
//! channel guarantees both.
//!
//! Cost of a job: a send by its submitter and a receive by its worker, one atomic exchange each. There is no lock around
//! the queue, and no system call unless a worker is parked. A bounded queue is one array. An unbounded queue is a list of
//! blocks of 31 jobs, and costs a little more (`executors`). A worker that finds the channel empty spins for a moment
//! before it parks (crossbeam's issue 821), on a core that the submitter could use.
//!
//! Source: the array and list flavours of `crossbeam-channel`, after Vyukov's bounded MPMC queue.
//!
//! *Wins when* jobs are short: on one core, a job of one word takes less time than on any other executor here, and on
//! rayon. *Loses when* nothing that was measured. With tasks of a second all executors are close
//! (`docs/EXPERIMENTS.md`). Many workers that take very short jobs from one queue were not measured. Record:
//! `docs/STRATEGIES.md`, "Executors for CPU work".

use polyserve_core::sync::atomic::{AtomicBool, Ordering};
use polyserve_serving::executor::{Pool, PoolConfig};

use super::closable_channel::{Channel, ClosableChannel, Item};
use crate::sync::channel::{self, Receiver, Sender, TrySendError};

/// A pool with a fixed number of threads, which receive jobs from one crossbeam channel.
///
/// The module's source explains how it works. The [crate](crate#what-every-pool-promises) lists what it promises.
pub type CrossbeamPool = Pool<ClosableChannel<CrossbeamChannel>>;

/// A channel of crossbeam.
pub struct CrossbeamChannel {
    sender: Sender<Item>,
    receiver: Receiver<Item>,
}

impl Channel for CrossbeamChannel {
    const POOL: &'static str = "CrossbeamPool";

    fn new(config: &PoolConfig) -> Self {
        let (sender, receiver) = match config.queue.bound() {
            Some(capacity) => channel::bounded(capacity),
            None => channel::unbounded(),
        };
        Self { sender, receiver }
    }

    #[inline]
    fn try_send(&self, item: Item) -> Result<(), Item> {
        self.sender.try_send(item).map_err(TrySendError::into_inner)
    }

    #[inline]
    fn receive(&self, closed: &AtomicBool) -> Option<Item> {
        if closed.load(Ordering::SeqCst) {
            return self.receiver.try_recv().ok();
        }
        self.receiver.recv().ok()
    }

    fn len(&self) -> u64 {
        self.receiver.len() as u64
    }
}
