//! Submitters that wait for space in a full queue ([`OnFull::Wait`](super::OnFull::Wait)).
//!
//! Invariant: no wake-up is lost. A waiter increments the count, then tries once more. A worker makes space, then reads
//! the count. A fence separates the two steps of each. So the waiter sees the space, or the worker sees the waiter. The
//! waiter holds the lock from its try until it sleeps, so the worker's notification cannot fall in between.
//!
//! Cost: nothing unless the executor is configured to wait. Otherwise a fence and a load for each job that is taken.

use std::sync::PoisonError;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use polyserve_core::sync::atomic::{AtomicUsize, Ordering, fence};
use polyserve_core::sync::{Condvar, Mutex, lock, now};
use polyserve_core::{Job, Rejected, RejectedReason};

/// The submitters of one executor that wait for space.
#[derive(Default)]
pub(super) struct SpaceWaiters {
    waiting: CachePadded<AtomicUsize>,
    lock: Mutex<()>,
    freed: Condvar,
}

impl SpaceWaiters {
    /// Offers `job` each time there may be space, until it is accepted, the executor is closed, or `limit` has passed.
    ///
    /// # Errors
    ///
    /// Returns the job if it was not accepted.
    pub(super) fn wait(
        &self,
        limit: Duration,
        mut job: Job,
        offer: &dyn Fn(Job) -> Result<(), Rejected>,
    ) -> Result<(), Rejected> {
        let deadline = now().checked_add(limit);
        let mut guard = lock(&self.lock);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _count_guard = CountGuard(&self.waiting);
        loop {
            fence(Ordering::SeqCst);
            let remaining = deadline.map(|deadline| deadline.saturating_duration_since(now()));
            job = match offer(job) {
                Err(Rejected { job, reason: RejectedReason::Full }) => job,
                settled => return settled,
            };
            // The last try comes after the deadline: a notification at the deadline may have woken this waiter and no
            // other, so this waiter must use the space.
            guard = match remaining {
                Some(Duration::ZERO) => return Err(Rejected { job, reason: RejectedReason::Full }),
                Some(remaining) => self.freed.wait_timeout(guard, remaining).unwrap_or_else(PoisonError::into_inner).0,
                None => self.freed.wait(guard).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Wakes one waiter. To be called after a job has left the queue, but not in an offer: a waiter offers under the lock.
    #[inline]
    pub(super) fn freed(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            drop(lock(&self.lock));
            self.freed.notify_one();
        }
    }

    /// Wakes every waiter, which then tries again. To be called after the executor was closed.
    pub(super) fn wake_all(&self) {
        drop(lock(&self.lock));
        self.freed.notify_all();
    }
}

struct CountGuard<'a>(&'a AtomicUsize);

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
