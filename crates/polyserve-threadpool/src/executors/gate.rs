//! How many jobs were let in: the bound, the close and the count of a queue that has none of its own.
//!
//! Invariant: jobs submitted less jobs taken is never above the bound; and once [`Gate::close`] has returned no further
//! job is let in, so that the queue is drained for good when as many were taken as were let in. The word says both, how
//! many and whether closed, so that no job slips in between a look at the one and a step of the other.
//!
//! Cost: one compare-and-swap a job, on a cache line that submitters write and workers do not. Workers count what they
//! take on lines of their own; a submitter adds those up only when the sum that it remembers leaves no room.

use crossbeam_utils::CachePadded;
use polyserve_core::RejectedReason;
use polyserve_core::sync::atomic::{AtomicU64, Ordering};

pub(super) struct Gate {
    counts: CachePadded<Counts>,
    bound: u64,
}

struct Counts {
    /// Jobs let in, and [`CLOSED`]. Sequentially consistent: the parking protocol stands on it.
    submitted: AtomicU64,
    /// A number of jobs taken as some submitter saw it: never above the true one.
    seen_taken: AtomicU64,
}

const CLOSED: u64 = 1 << 63;

impl Gate {
    pub(super) fn new(bound: Option<usize>) -> Self {
        let counts = Counts { submitted: AtomicU64::new(0), seen_taken: AtomicU64::new(0) };
        Self { counts: CachePadded::new(counts), bound: bound.map_or(u64::MAX, |bound| bound as u64) }
    }

    /// Lets one job in; `taken` adds up how many have left.
    #[inline]
    pub(super) fn enter(&self, taken: impl Fn() -> u64) -> Result<(), RejectedReason> {
        let mut submitted = self.counts.submitted.load(Ordering::Relaxed);
        loop {
            if submitted & CLOSED != 0 {
                return Err(RejectedReason::Closed);
            }
            // Saturating: `submitted` may be old, and fewer than have left since. The exchange will tell.
            if submitted.saturating_sub(self.counts.seen_taken.load(Ordering::Relaxed)) >= self.bound {
                let taken = taken();
                self.counts.seen_taken.store(taken, Ordering::Relaxed);
                if submitted.saturating_sub(taken) >= self.bound {
                    return Err(RejectedReason::Full);
                }
            }
            let entered = self.counts.submitted.compare_exchange_weak(
                submitted,
                submitted + 1,
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
            match entered {
                Ok(_) => return Ok(()),
                Err(now) => submitted = now,
            }
        }
    }

    pub(super) fn close(&self) {
        self.counts.submitted.fetch_or(CLOSED, Ordering::SeqCst);
    }

    /// How many jobs were let in and have not left.
    pub(super) fn waiting(&self, taken: impl Fn() -> u64) -> u64 {
        let taken = taken(); // first: what was taken by now was submitted by then
        (self.counts.submitted.load(Ordering::SeqCst) & !CLOSED).saturating_sub(taken)
    }

    /// Whether it is open and nothing waits.
    pub(super) fn is_quiet(&self, taken: impl Fn() -> u64) -> bool {
        let taken = taken();
        self.counts.submitted.load(Ordering::SeqCst) == taken
    }

    /// Whether it is closed and nothing waits.
    pub(super) fn is_spent(&self, taken: impl Fn() -> u64) -> bool {
        let taken = taken();
        self.counts.submitted.load(Ordering::SeqCst) == taken | CLOSED
    }
}
