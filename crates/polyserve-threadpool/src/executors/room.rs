//! Submitters that wait for room in a full queue ([`OnFull::Wait`](super::OnFull::Wait)).
//!
//! Invariant: no wake-up is lost. A waiter counts itself, then tries once more; a worker makes room, then looks at the
//! count; a fence stands between the two steps of each. So the waiter sees the room or the worker sees the waiter, and
//! since the waiter holds the lock from its try until it sleeps, the worker's notice cannot fall in between.
//!
//! Cost: nothing where the pool is configured otherwise; else a fence and a load for each job that is taken.

use std::sync::PoisonError;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use polyserve_core::RejectedReason;
use polyserve_core::sync::atomic::{AtomicUsize, Ordering, fence};
use polyserve_core::sync::{Condvar, Mutex, lock, now};

use super::base::Refused;
use super::stats::Queued;

#[derive(Default)]
pub(super) struct Room {
    waiting: CachePadded<AtomicUsize>,
    lock: Mutex<()>,
    freed: Condvar,
}

impl Room {
    /// Offers `queued` whenever there may be room, until it is taken, the pool is closed, or `limit` has passed.
    pub(super) fn wait(
        &self,
        limit: Duration,
        queued: Queued,
        offer: &dyn Fn(Queued) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let deadline = now().checked_add(limit);
        let mut guard = lock(&self.lock);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _counted = Counted(&self.waiting);
        let mut queued = queued;
        loop {
            fence(Ordering::SeqCst);
            let left = deadline.map(|deadline| deadline.saturating_duration_since(now()));
            queued = match offer(queued) {
                Err(Refused { queued, reason: RejectedReason::Full }) => queued,
                settled => return settled,
            };
            // The last try comes after the deadline: a notice that came with it is not lost on this waiter.
            guard = match left {
                Some(Duration::ZERO) => return Err(Refused { queued, reason: RejectedReason::Full }),
                Some(left) => self.freed.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.freed.wait(guard).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Says that a job has left the queue.
    #[inline]
    pub(super) fn freed(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            drop(lock(&self.lock));
            self.freed.notify_one();
        }
    }

    /// Has every waiter try again: the pool was closed.
    pub(super) fn wake_all(&self) {
        drop(lock(&self.lock));
        self.freed.notify_all();
    }
}

struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
