//! How long jobs wait in the queue of an executor, for [`PoolStats::waits`](super::PoolStats::waits). It is sampled.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

pub use hdrhistogram::Histogram;
use polyserve_core::Job;
use polyserve_core::sync::{Mutex, lock, now, thread_local};

use super::PoolShared;

/// Of this number of jobs that a thread submits, one is sampled.
const INTERVAL: u32 = 61;

/// How long the sampled jobs of an executor have waited.
pub(super) struct SampledWaits(Mutex<Histogram<u64>>);

impl Default for SampledWaits {
    fn default() -> Self {
        Self(Mutex::new(Histogram::new(2).expect("two significant digits are allowed")))
    }
}

impl SampledWaits {
    pub(super) fn get(&self) -> Histogram<u64> {
        lock(&self.0).clone()
    }

    fn record(&self, waited: Duration) {
        let nanos = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        let _ = lock(&self.0).record(nanos); // it resizes, so no value is out of range
    }
}

/// Returns `job`. If it is sampled, it first records how long it has waited, unless its submitter runs it.
#[inline]
pub(super) fn sampled(shared: &Arc<PoolShared>, job: Job) -> Job {
    thread_local! {
        static COUNTDOWN: Cell<u32> = const { Cell::new(0) };
    }
    let count = COUNTDOWN.with(Cell::get);
    COUNTDOWN.with(|countdown| countdown.set(count.checked_sub(1).unwrap_or(INTERVAL - 1)));
    if count > 0 {
        return job;
    }
    let (shared, submitted) = (Arc::clone(shared), now());
    Job::new(move || {
        if shared.threads.is_own() {
            shared.waits.record(now().saturating_duration_since(submitted));
        }
        job.run();
    })
}
