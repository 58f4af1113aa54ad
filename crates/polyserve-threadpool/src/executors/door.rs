//! A pool's channel, and how it ends: closed while others send, with no lock on a job's way.
//!
//! The channel never disconnects: a sender that `close` could drop would need a lock around it, two atomic exchanges a
//! job. In its place there is a flag, which a submitter reads before its send and again after it.
//!
//! # Why no job is lost, and no worker left waiting
//!
//! A send is a sequentially consistent exchange on the channel's tail, and so are the flag's store and loads; both
//! channels build their own parking on the same. So of a submitter that sends and then reads the flag, and a worker
//! that reads the flag and then finds the channel empty, one sees the other:
//!
//! * The submitter reads *open*. No worker has found the channel empty after the close yet; one will take the job.
//! * It reads *closed*. It looks under the lock of `working` whether there still is a worker. If so, that worker looks
//!   into the channel under the same lock before it ends, and finds the job. If not, the submitter empties the channel
//!   itself. What is in there then are jobs of such late submitters only.
//!
//! A worker waits in the channel only if it has read *open*. The close sends *wake-ups*, and each worker that ends
//! sends one more while others are left, for it may have taken what was meant for another; so does whoever else
//! empties the channel. Where there is no room for a wake-up, nobody waits: there is something to take.
//!
//! Invariants: a job that was taken is run once, or dropped once after a deadline. A worker ends only where the channel
//! is closed and empty.
//!
//! Cost of a job: two loads of a word that nobody writes before the close.

use polyserve_core::RejectedReason;
use polyserve_core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use polyserve_core::sync::{Mutex, lock};

use super::base::{Base, Refused};
use super::stats::Queued;

/// Both ends of a channel. Its sends are sequentially consistent exchanges.
pub(super) trait Channel {
    /// Sends, without waiting; hands back what finds no room.
    fn try_send(&self, queued: Queued) -> Result<(), Queued>;

    /// Receives; waits where the channel is empty, unless it is `closed`.
    fn receive(&self, closed: &AtomicBool) -> Option<Queued>;
}

pub(super) struct Door<C> {
    pub(super) channel: C,
    closed: AtomicBool,
    /// Wake-ups that are in the channel, or about to be.
    wake_ups: AtomicUsize,
    workers: usize,
    /// How many of them have not ended.
    working: Mutex<usize>,
}

impl<C: Channel> Door<C> {
    pub(super) fn new(channel: C, workers: usize) -> Self {
        let (closed, wake_ups) = (AtomicBool::new(false), AtomicUsize::new(0));
        Self { channel, closed, wake_ups, workers, working: Mutex::new(workers) }
    }

    /// Sends, while the door is open. A job that comes as it closes is run here if the workers have ended meanwhile.
    #[inline]
    pub(super) fn offer(&self, base: &Base, queued: Queued) -> Result<(), Refused> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Refused { queued, reason: RejectedReason::Closed });
        }
        self.channel.try_send(queued).map_err(|queued| Refused { queued, reason: RejectedReason::Full })?;
        if self.closed.load(Ordering::SeqCst) {
            self.came_late(base);
        }
        Ok(())
    }

    /// A worker's next job; `None` ends it.
    #[inline]
    pub(super) fn next(&self) -> Option<Queued> {
        loop {
            match self.channel.receive(&self.closed) {
                Some(queued) if queued.is_wake_up() => self.woken(),
                Some(queued) => return Some(queued),
                None => match self.last_look() {
                    Some(queued) if queued.is_wake_up() => self.woken(),
                    last => return last,
                },
            }
        }
    }

    /// What has come since a worker found the channel closed and empty. `None`: it counts as ended.
    #[cold]
    fn last_look(&self) -> Option<Queued> {
        let mut working = lock(&self.working);
        let queued = self.channel.receive(&self.closed);
        if queued.is_none() {
            *working -= 1;
            let others = *working > 0;
            drop(working);
            if others {
                self.wake_one();
            }
        }
        queued
    }

    /// Sees to a job that was sent to a closed channel.
    #[cold]
    fn came_late(&self, base: &Base) {
        if !self.has_workers() || base.is_cut() {
            self.empty(base);
        }
    }

    /// Takes no more jobs. What was sent is still received.
    pub(super) fn close(&self) {
        if !self.closed.swap(true, Ordering::SeqCst) {
            // Without a look at `working`: a worker may hold that lock until another has got its wake-up.
            (0..self.workers).for_each(|_| self.wake_one());
        }
    }

    /// Takes all that is in the channel, which is closed: after a deadline or after the last worker's end.
    pub(super) fn empty(&self, base: &Base) {
        while let Some(queued) = self.channel.receive(&self.closed) {
            if queued.is_wake_up() {
                self.woken();
            } else {
                base.run_late(queued);
            }
        }
        if self.has_workers() {
            self.wake_one();
        }
    }

    /// How many of what is in the channel are no jobs.
    pub(super) fn wake_ups(&self) -> u64 {
        self.wake_ups.load(Ordering::Relaxed) as u64
    }

    pub(super) fn has_workers(&self) -> bool {
        *lock(&self.working) > 0
    }

    fn wake_one(&self) {
        self.wake_ups.fetch_add(1, Ordering::Relaxed);
        if self.channel.try_send(Queued::wake_up()).is_err() {
            self.woken();
        }
    }

    #[cold]
    fn woken(&self) {
        self.wake_ups.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::sync::{Arc, OnceLock};

    use crossbeam_channel::{Receiver, Sender, unbounded};
    use polyserve_core::Job;

    use super::*;
    use crate::executors::pool_config::PoolConfig;

    /// A channel whose first sender is held up just before its send, for as long as `meanwhile` takes.
    struct HeldUp {
        sender: Sender<Queued>,
        receiver: Receiver<Queued>,
        meanwhile: OnceLock<Box<dyn Fn() + Send + Sync>>,
        held: AtomicBool,
    }

    impl Channel for HeldUp {
        fn try_send(&self, queued: Queued) -> Result<(), Queued> {
            if !self.held.swap(true, Ordering::SeqCst) {
                self.meanwhile.get().expect("it was set")();
            }
            self.sender.try_send(queued).map_err(crossbeam_channel::TrySendError::into_inner)
        }

        fn receive(&self, closed: &AtomicBool) -> Option<Queued> {
            if closed.load(Ordering::SeqCst) { self.receiver.try_recv().ok() } else { self.receiver.recv().ok() }
        }
    }

    /// How often a job ran, and how often it was dropped.
    type Counts = Arc<[AtomicU32; 2]>;

    /// Offers a job whose submitter is held up between its look at the flag and its send while `meanwhile` happens to
    /// the door of two workers. Answers the door, the base, and the counts of the job.
    fn offered(
        meanwhile: impl Fn(&Door<HeldUp>, &Base) + Send + Sync + 'static,
    ) -> (Arc<(Door<HeldUp>, Base)>, Counts) {
        struct OnDrop(Counts);
        impl Drop for OnDrop {
            fn drop(&mut self) {
                self.0[1].fetch_add(1, Ordering::SeqCst);
            }
        }
        let (sender, receiver) = unbounded();
        let channel = HeldUp { sender, receiver, meanwhile: OnceLock::new(), held: AtomicBool::new(false) };
        let both = Arc::new((Door::new(channel, 2), Base::new(PoolConfig::new(2)).unwrap()));
        let weak = Arc::downgrade(&both);
        let hold = move || {
            let both = weak.upgrade().unwrap();
            meanwhile(&both.0, &both.1);
        };
        assert!(both.0.channel.meanwhile.set(Box::new(hold)).is_ok());
        let counts = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let on_drop = OnDrop(Arc::clone(&counts));
        let job = Job::new(move || {
            on_drop.0[0].fetch_add(1, Ordering::SeqCst);
        });
        let queued = both.1.tallies.queued(job);
        assert!(both.0.offer(&both.1, queued).is_ok());
        (both, counts)
    }

    fn seen(counts: &[AtomicU32; 2]) -> [u32; 2] {
        counts.each_ref().map(|count| count.load(Ordering::SeqCst))
    }

    /// The pool was closed and its last worker ended before the job was in the channel: nobody would ever have looked
    /// there again.
    #[test]
    fn a_job_that_comes_after_the_last_workers_end_is_run_by_its_submitter() {
        let (both, counts) = offered(|door, _| {
            door.close();
            assert!(door.next().is_none() && door.next().is_none(), "a worker had something to do");
            assert!(!door.has_workers());
        });
        assert_eq!(seen(&counts), [1, 1]);
        assert_eq!((both.0.channel.receiver.len(), both.0.wake_ups()), (0, 0));
        assert_eq!(both.1.tallies.stats(0).executed, 1);
    }

    /// While a worker is left the job is that worker's: it may be the one that keeps the order.
    #[test]
    fn a_job_that_comes_after_the_close_is_left_to_a_worker_that_has_not_ended() {
        let (both, counts) = offered(|door, _| {
            door.close();
            assert!(door.next().is_none(), "a worker had something to do");
        });
        assert_eq!(seen(&counts), [0, 0]);
        both.1.run(1, both.0.next().expect("the job"));
        assert!(both.0.next().is_none() && !both.0.has_workers());
        assert_eq!((seen(&counts), both.0.wake_ups()), ([1, 1], 0));
    }

    /// A deadline's close had already dropped what was queued, and the workers are stuck in jobs: the job must not stay
    /// in the channel for as long as they are.
    #[test]
    fn a_job_that_comes_after_the_deadline_is_dropped_by_its_submitter() {
        let (both, counts) = offered(|door, base| {
            door.close();
            // The workers' threads were never started, so that none of them is waited for.
            assert_eq!(base.close(Some(std::time::Instant::now()), || door.empty(base)), 0);
        });
        assert_eq!((seen(&counts), both.0.has_workers()), ([0, 1], true));
        let left = both.0.channel.receiver.len() as u64 - both.0.wake_ups();
        assert_eq!(left, 0, "jobs in the channel");
        assert!(both.0.next().is_none() && both.0.next().is_none(), "a worker that comes free finds a job");
    }
}
