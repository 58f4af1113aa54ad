//! The number of admitted jobs. It adds a bound, a close and a count to a queue that has none of these.
//!
//! Invariants: the number of admitted jobs minus the number of taken jobs is at most the bound. After [`Admission::close`]
//! returns, no more jobs are admitted. So the queue is empty for good once as many jobs were taken as were admitted.
//! One word contains both the count and the closed flag, so no job is admitted between a check of one and a change of the
//! other.
//!
//! Cost: one compare-and-swap for each job, on a cache line that submitters write and workers do not. Workers count the
//! jobs that they take on lines of their own. A submitter adds those up only if the remembered sum leaves no space.

use crossbeam_utils::CachePadded;
use polyserve_core::RejectedReason;
use polyserve_core::sync::atomic::{AtomicU64, Ordering};

/// The admission counter of one executor.
pub(super) struct Admission {
    counts: CachePadded<AdmissionCounts>,
    bound: u64,
}

struct AdmissionCounts {
    /// The number of admitted jobs, and [`CLOSED`]. Sequentially consistent: the parking protocol needs it.
    submitted: AtomicU64,
    /// The number of taken jobs when a submitter last added it up. It is never above the true number.
    seen_taken: AtomicU64,
}

const CLOSED: u64 = 1 << 63;

impl Admission {
    /// A counter that admits at most `bound` waiting jobs.
    pub(super) fn new(bound: Option<usize>) -> Self {
        let counts = AdmissionCounts { submitted: AtomicU64::new(0), seen_taken: AtomicU64::new(0) };
        Self { counts: CachePadded::new(counts), bound: bound.map_or(u64::MAX, |bound| bound as u64) }
    }

    /// Admits one job. `count_taken` returns the number of jobs that have left the queue. Returns the number of jobs that
    /// were admitted before.
    ///
    /// # Errors
    ///
    /// Returns [`RejectedReason::Closed`] after the close, and [`RejectedReason::Full`] at the bound.
    #[inline]
    pub(super) fn admit(&self, count_taken: impl Fn() -> u64) -> Result<u64, RejectedReason> {
        let mut submitted = self.counts.submitted.load(Ordering::Relaxed);
        loop {
            if submitted & CLOSED != 0 {
                return Err(RejectedReason::Closed);
            }
            // Saturating: `submitted` may be outdated, and below the number taken since. Then the exchange fails.
            if submitted.saturating_sub(self.counts.seen_taken.load(Ordering::Relaxed)) >= self.bound {
                let taken = count_taken();
                self.counts.seen_taken.store(taken, Ordering::Relaxed);
                if submitted.saturating_sub(taken) >= self.bound {
                    return Err(RejectedReason::Full);
                }
            }
            let result = self.counts.submitted.compare_exchange_weak(
                submitted,
                submitted + 1,
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
            match result {
                Ok(before) => return Ok(before),
                Err(current) => submitted = current,
            }
        }
    }

    /// Admits no more jobs.
    pub(super) fn close(&self) {
        self.counts.submitted.fetch_or(CLOSED, Ordering::SeqCst);
    }

    /// The number of admitted jobs that have not left the queue.
    pub(super) fn waiting(&self, count_taken: impl Fn() -> u64) -> u64 {
        let taken = count_taken(); // read first: every job taken by now is in the count that is read next
        (self.counts.submitted.load(Ordering::SeqCst) & !CLOSED).saturating_sub(taken)
    }

    /// Whether the queue is closed.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.counts.submitted.load(Ordering::SeqCst) & CLOSED != 0
    }

    /// Whether the queue is open and empty.
    pub(super) fn is_open_and_empty(&self, count_taken: impl Fn() -> u64) -> bool {
        let taken = count_taken();
        self.counts.submitted.load(Ordering::SeqCst) == taken
    }

    /// Whether the queue is closed and empty.
    pub(super) fn is_closed_and_empty(&self, count_taken: impl Fn() -> u64) -> bool {
        let taken = count_taken();
        self.counts.submitted.load(Ordering::SeqCst) == taken | CLOSED
    }
}
