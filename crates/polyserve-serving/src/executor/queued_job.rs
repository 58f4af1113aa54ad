//! A job in an executor's queue, and the error of a queue that did not accept one.

use std::cell::Cell;
use std::num::NonZeroU64;

use polyserve_core::sync::thread_local;
use polyserve_core::{Job, RejectedReason};

/// A job in a queue. The stamp takes 8 bytes; an `Instant` would make it larger.
pub struct QueuedJob {
    pub(super) job: Job,
    /// When the job was submitted, in nanoseconds since the executor's start, if the job is sampled.
    pub(super) stamp: Option<NonZeroU64>,
}

/// A job that a queue did not accept, and why.
pub struct OfferError {
    /// The job.
    pub queued: QueuedJob,
    /// The reason.
    pub reason: RejectedReason,
}

/// The stamp of a wake-up.
const WAKE_UP: NonZeroU64 = NonZeroU64::MAX;

/// Of this number of jobs that a thread submits, one is stamped.
const SAMPLE_INTERVAL: u32 = 61;

impl QueuedJob {
    /// `job`, stamped with `now` if it is sampled.
    #[inline]
    pub(super) fn new(job: Job, now: impl FnOnce() -> u64) -> Self {
        let stamp = if cfg!(feature = "queue-waits") && is_sampled() {
            NonZeroU64::new(now().clamp(1, WAKE_UP.get() - 1))
        } else {
            None
        };
        Self { job, stamp }
    }

    /// An item that wakes a worker and is no job. A reserved stamp marks it, so jobs need no extra field.
    pub fn wake_up() -> Self {
        Self { job: Job::new(|| {}), stamp: Some(WAKE_UP) }
    }

    /// Whether this item is a wake-up.
    #[inline]
    pub fn is_wake_up(&self) -> bool {
        self.stamp == Some(WAKE_UP)
    }
}

#[inline]
fn is_sampled() -> bool {
    thread_local! {
        static COUNTDOWN: Cell<u32> = const { Cell::new(0) };
    }
    COUNTDOWN.with(|countdown| {
        let count = countdown.get();
        countdown.set(count.checked_sub(1).unwrap_or(SAMPLE_INTERVAL - 1));
        count == 0
    })
}
