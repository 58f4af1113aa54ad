//! A pool's channel, which can be closed while other threads send, without a lock on a job's path.
//!
//! The channel never disconnects. To disconnect it, `close` would have to drop the sender, which would then need a lock: two
//! atomic exchanges for each job. Instead there is a flag, which a submitter reads before its send and again after it.
//!
//! # Why no job is lost and no worker waits forever
//!
//! A send is a sequentially consistent exchange on the channel's tail. The store and the loads of the flag are
//! sequentially consistent too. Both channels build their own parking on the same order.
//!
//! Take a submitter that sends and then reads the flag, and a worker that reads the flag and then finds the channel
//! empty. One of them sees the other's step:
//!
//! * The submitter reads *open*. Then no worker has found the channel empty after the close yet. One of them will take
//!   the job.
//! * The submitter reads *closed*. It then checks, under the lock of `working`, whether any worker is left. If one is
//!   left, that worker checks the channel under the same lock before it ends, and finds the job. If none is left, the
//!   submitter drains the channel itself. At that point the channel holds only jobs of such late submitters.
//!
//! A worker waits in the channel only if it has read *open*. The close sends one *wake-up* for each worker. A worker may
//! receive a wake-up that was meant for another worker, so each worker that ends sends one more while others are left.
//! Any other thread that drains the channel does the same. If there is no space for a wake-up, no worker waits: there is
//! something to receive.
//!
//! Invariants: an accepted job runs once, or is dropped once after a deadline. A worker ends only if the channel is closed
//! and empty.
//!
//! Cost of a job: two loads of a word that is not written before the close.

use std::io;
use std::sync::Arc;

use polyserve_core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use polyserve_core::sync::{Mutex, lock};
use polyserve_core::{Job, Rejected, RejectedReason};
use polyserve_serving::executor::{Backend, PoolConfig, PoolInner, PoolShared};

/// An item of a channel. `None` wakes a worker, and is no job.
pub(super) type Item = Option<Job>;

/// Both ends of a channel. A send must be a sequentially consistent exchange.
pub(super) trait Channel: Send + Sync + Sized + 'static {
    /// The name of a pool on this channel.
    const POOL: &'static str;

    /// Creates an empty channel with room for the jobs of `config`.
    fn new(config: &PoolConfig) -> Self;

    /// Sends without waiting. Hands the item back if there is no space.
    fn try_send(&self, item: Item) -> Result<(), Item>;

    /// Receives an item. Waits if the channel is empty and not `closed`.
    fn receive(&self, closed: &AtomicBool) -> Option<Item>;

    /// The number of items in the channel.
    fn len(&self) -> u64;
}

/// A channel and its closed flag.
pub struct ClosableChannel<C> {
    inner: C,
    closed: AtomicBool,
    /// Wake-ups that are in the channel, or about to be sent.
    wake_ups: AtomicUsize,
    workers: usize,
    /// The number of workers that have not ended.
    working: Mutex<usize>,
}

#[allow(private_bounds)] // the channel is no seam
impl<C: Channel> ClosableChannel<C> {
    /// The next job of a worker. On `None` the worker must end.
    #[inline]
    fn next(&self) -> Option<Job> {
        loop {
            match self.inner.receive(&self.closed).or_else(|| self.final_check())? {
                Some(job) => return Some(job),
                None => self.wake_up_received(),
            }
        }
    }

    /// Receives once more, under the lock, after a worker found the channel closed and empty. On `None` the worker counts
    /// as ended.
    #[cold]
    fn final_check(&self) -> Option<Item> {
        let mut working = lock(&self.working);
        let last = self.inner.receive(&self.closed);
        if last.is_none() {
            *working -= 1;
            let others = *working > 0;
            drop(working);
            if others {
                self.send_wake_up();
            }
        }
        last
    }

    /// Handles a job that was sent to a closed channel.
    #[cold]
    fn sent_after_close(&self, shared: &PoolShared) {
        if !self.has_workers() || shared.is_cut() {
            self.discard(shared);
        }
    }

    /// The number of items in the channel that are wake-ups, not jobs.
    fn wake_ups(&self) -> u64 {
        self.wake_ups.load(Ordering::Relaxed) as u64
    }

    fn has_workers(&self) -> bool {
        *lock(&self.working) > 0
    }

    fn send_wake_up(&self) {
        self.wake_ups.fetch_add(1, Ordering::Relaxed);
        if self.inner.try_send(None).is_err() {
            self.wake_up_received();
        }
    }

    #[cold]
    fn wake_up_received(&self) {
        self.wake_ups.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<C: Channel> Backend for ClosableChannel<C> {
    const NAME: &'static str = C::POOL;

    type Own = ();

    fn new(shared: &Arc<PoolShared>) -> io::Result<(Self, Vec<()>)> {
        let (inner, workers) = (C::new(&shared.config), shared.config.workers);
        let (closed, wake_ups) = (AtomicBool::new(false), AtomicUsize::new(0));
        Ok((Self { inner, closed, wake_ups, workers, working: Mutex::new(workers) }, vec![(); workers]))
    }

    /// Sends a job if the channel is open. If the channel closes during the send and all workers have ended, the job runs
    /// on this thread.
    #[inline]
    fn offer(pool: &Arc<PoolInner<Self>>, job: Job) -> Result<(), Rejected> {
        let channel = &pool.backend;
        if channel.closed.load(Ordering::Relaxed) {
            return Err(Rejected { job, reason: RejectedReason::Closed });
        }
        if let Err(Some(job)) = channel.inner.try_send(Some(job)) {
            return Err(Rejected { job, reason: RejectedReason::Full });
        }
        if channel.closed.load(Ordering::SeqCst) {
            channel.sent_after_close(&pool.shared);
        }
        Ok(())
    }

    fn work(&self, shared: &PoolShared, worker: usize, (): ()) {
        while let Some(job) = self.next() {
            shared.run(worker, job);
        }
    }

    fn close(&self, _: &PoolShared) {
        if !self.closed.swap(true, Ordering::SeqCst) {
            // Does not lock `working`: a worker may hold it until another worker has received its wake-up.
            (0..self.workers).for_each(|_| self.send_wake_up());
        }
    }

    /// Takes everything out of the closed channel: after a deadline, or after the last worker's end.
    fn discard(&self, shared: &PoolShared) {
        while let Some(item) = self.inner.receive(&self.closed) {
            match item {
                Some(job) => shared.run_after_close(job),
                None => self.wake_up_received(),
            }
        }
        if self.has_workers() {
            self.send_wake_up();
        }
    }

    fn waiting(&self, _: &PoolShared) -> u64 {
        self.inner.len().saturating_sub(self.wake_ups())
    }
}

#[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
mod tests {
    use std::sync::OnceLock;
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crossbeam_channel::{Receiver, Sender, unbounded};

    /// A channel that runs `meanwhile` before its first send.
    struct HeldUp {
        sender: Sender<Item>,
        receiver: Receiver<Item>,
        meanwhile: OnceLock<Box<dyn Fn() + Send + Sync>>,
        held: AtomicBool,
    }

    impl Channel for HeldUp {
        const POOL: &'static str = "HeldUpPool";

        fn new(_: &PoolConfig) -> Self {
            let (sender, receiver) = unbounded();
            Self { sender, receiver, meanwhile: OnceLock::new(), held: AtomicBool::new(false) }
        }

        fn len(&self) -> u64 {
            self.receiver.len() as u64
        }

        fn try_send(&self, item: Item) -> Result<(), Item> {
            if !self.held.swap(true, Ordering::SeqCst) {
                self.meanwhile.get().expect("it was set")();
            }
            self.sender.try_send(item).map_err(crossbeam_channel::TrySendError::into_inner)
        }

        fn receive(&self, closed: &AtomicBool) -> Option<Item> {
            if closed.load(Ordering::SeqCst) { self.receiver.try_recv().ok() } else { self.receiver.recv().ok() }
        }
    }

    /// How many times a job ran, and how many times it was dropped.
    type Counts = Arc<[AtomicU32; 2]>;

    type HeldUpPool = PoolInner<ClosableChannel<HeldUp>>;

    /// Offers a job to a pool, and runs `meanwhile` between the submitter's read of the flag and its send. The pool has two
    /// workers, and their threads were never started. Returns the pool, and the counts of the job.
    fn offered(meanwhile: impl Fn(&HeldUpPool) + Send + Sync + 'static) -> (Arc<HeldUpPool>, Counts) {
        struct OnDrop(Counts);
        impl Drop for OnDrop {
            fn drop(&mut self) {
                self.0[1].fetch_add(1, Ordering::SeqCst);
            }
        }
        let (pool, _) = HeldUpPool::new(PoolConfig::new(2)).unwrap();
        let weak = Arc::downgrade(&pool);
        let hold = move || meanwhile(&weak.upgrade().unwrap());
        assert!(pool.backend.inner.meanwhile.set(Box::new(hold)).is_ok());
        let counts = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let on_drop = OnDrop(Arc::clone(&counts));
        let job = Job::new(move || {
            on_drop.0[0].fetch_add(1, Ordering::SeqCst);
        });
        assert!(Backend::offer(&pool, job).is_ok());
        (pool, counts)
    }

    fn load(counts: &[AtomicU32; 2]) -> [u32; 2] {
        counts.each_ref().map(|count| count.load(Ordering::SeqCst))
    }

    /// The pool was closed and its last worker ended before the job was in the channel. No worker would have received it.
    #[test]
    fn a_job_that_comes_after_the_last_workers_end_is_run_by_its_submitter() {
        let (pool, counts) = offered(|HeldUpPool { shared, backend }| {
            backend.close(shared);
            assert!(backend.next().is_none() && backend.next().is_none(), "a worker had something to do");
            assert!(!backend.has_workers());
        });
        assert_eq!(load(&counts), [1, 1]);
        assert_eq!((pool.backend.inner.receiver.len(), pool.backend.wake_ups()), (0, 0));
        assert_eq!(pool.stats().executed, 1);
    }

    /// If a worker is left, that worker must run the job, which keeps the order.
    #[test]
    fn a_job_that_comes_after_the_close_is_left_to_a_worker_that_has_not_ended() {
        let (pool, counts) = offered(|HeldUpPool { shared, backend }| {
            backend.close(shared);
            assert!(backend.next().is_none(), "a worker had something to do");
        });
        assert_eq!(load(&counts), [0, 0]);
        let HeldUpPool { shared, backend } = &*pool;
        shared.run(1, backend.next().expect("the job"));
        assert!(backend.next().is_none() && !backend.has_workers());
        assert_eq!((load(&counts), backend.wake_ups()), ([1, 1], 0));
    }

    /// A close with a deadline had already dropped the queued jobs, and the workers are stuck. The job must not stay in
    /// the channel until they end.
    #[test]
    fn a_job_that_comes_after_the_deadline_is_dropped_by_its_submitter() {
        let (pool, counts) = offered(|pool| {
            // The workers' threads were never started, so the close waits for none.
            assert_eq!(pool.close(Some(std::time::Instant::now())), 0);
        });
        let channel = &pool.backend;
        assert_eq!((load(&counts), channel.has_workers()), ([0, 1], true));
        assert_eq!(channel.inner.len(), channel.wake_ups(), "only wake-ups are in the channel");
        assert!(channel.next().is_none() && channel.next().is_none(), "a worker that comes free finds a job");
    }
}
