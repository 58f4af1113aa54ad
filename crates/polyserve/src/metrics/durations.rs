//! The durations of requests and of store operations, in histograms of each thread.
//!
//! Invariants: a thread writes only into histograms of its own. The sum over all threads, living and ended, has every
//! answer once. A thread that ends adds its histograms to those of the ended threads, so that a server with a thread for each
//! connection does not grow.
//!
//! Cost of an answer: an uncontended lock, a search among the few kinds of answers of the thread, and three additions. A thread
//! allocates for each new kind of answer.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use polyserve_core::AnswerReport;
use polyserve_core::http::{Method, StatusCode};
use polyserve_core::sync::lock;

/// The upper bounds of the buckets, in microseconds: a request in memory takes a few, one that waits for an engine thousands.
const BOUNDS_US: [u64; 19] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];

/// What a duration is counted under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A request: its method, which is `_OTHER` if it is not known, and the status of the answer.
    Request(&'static str, StatusCode),
    /// An operation of a store: its name, and the kind of its error.
    Store(&'static str, &'static str),
}

impl Kind {
    pub(super) fn of(report: &AnswerReport<'_>) -> Self {
        Self::Request(report.request.map_or(OTHER, |request| known(request.method)), report.status)
    }
}

/// The durations of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    /// The number of answers within each bound, and those beyond the last one.
    counts: [u64; BOUNDS_US.len() + 1],
    /// The sum of all durations.
    sum: Duration,
}

impl Histogram {
    fn add(&mut self, elapsed: Duration) {
        let microseconds = elapsed.as_nanos().div_ceil(1000);
        let bucket = BOUNDS_US.partition_point(|bound| u128::from(*bound) < microseconds);
        self.counts[bucket] += 1;
        self.sum += elapsed;
    }

    fn merge(&mut self, other: &Self) {
        for (count, other) in self.counts.iter_mut().zip(other.counts) {
            *count += other;
        }
        self.sum += other.sum;
    }

    /// The sum of all durations in seconds.
    pub(super) fn sum(&self) -> f64 {
        self.sum.as_secs_f64()
    }

    /// The number of answers.
    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Each bucket's bound in seconds, and its number of answers.
    pub(super) fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds = BOUNDS_US.iter().map(|microseconds| *microseconds as f64 / 1e6);
        bounds.chain([f64::INFINITY]).zip(self.counts).collect()
    }
}

/// The histograms of one thread. Few kinds of answers are usual, so a list is searched faster than a map.
#[derive(Debug, Default)]
struct ThreadHistograms(Vec<(Kind, Histogram)>);

impl ThreadHistograms {
    fn of(&mut self, kind: Kind) -> &mut Histogram {
        let place = match self.0.iter().position(|(known, _)| *known == kind) {
            Some(place) => place,
            None => {
                self.0.push((kind, Histogram::default()));
                self.0.len() - 1
            }
        };
        &mut self.0[place].1
    }

    fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(kind, histogram)| self.of(*kind).merge(histogram));
    }
}

/// The durations of all answers.
#[derive(Debug)]
pub(super) struct Durations {
    /// Tells the durations of one server from those of another in the same process.
    id: u64,
    threads: Mutex<Threads>,
}

#[derive(Debug, Default)]
struct Threads {
    living: Vec<Arc<Mutex<ThreadHistograms>>>,
    ended: ThreadHistograms,
}

impl Durations {
    pub(super) fn new() -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self { id: NEXT.fetch_add(1, Ordering::Relaxed), threads: Mutex::default() })
    }

    /// Adds a duration.
    pub(super) fn add(self: &Arc<Self>, kind: Kind, elapsed: Duration) {
        let added = OF_THIS_THREAD.try_with(|all| {
            let mut all = all.borrow_mut();
            let own = match all.iter().position(|one| one.id == self.id) {
                Some(place) => &all[place],
                None => {
                    all.retain(|one| one.durations.strong_count() > 0);
                    all.push(OfThread::new(self));
                    &all[all.len() - 1]
                }
            };
            lock(&own.histograms).of(kind).add(elapsed);
        });
        if added.is_err() {
            lock(&self.threads).ended.of(kind).add(elapsed); // the thread is ending
        }
    }

    /// Returns all durations so far, in the order of their kinds.
    pub(super) fn all(&self) -> BTreeMap<Kind, Histogram> {
        let threads = lock(&self.threads);
        let mut all = ThreadHistograms::default();
        all.merge(&threads.ended);
        threads.living.iter().for_each(|thread| all.merge(&lock(thread)));
        all.0.into_iter().collect()
    }
}

thread_local! {
    /// The histograms of this thread, for each server that it has served.
    static OF_THIS_THREAD: RefCell<Vec<OfThread>> = const { RefCell::new(Vec::new()) };
}

/// The histograms of a thread for a server.
struct OfThread {
    id: u64,
    histograms: Arc<Mutex<ThreadHistograms>>,
    durations: Weak<Durations>,
}

impl OfThread {
    fn new(durations: &Arc<Durations>) -> Self {
        let histograms = Arc::<Mutex<ThreadHistograms>>::default();
        lock(&durations.threads).living.push(Arc::clone(&histograms));
        Self { id: durations.id, histograms, durations: Arc::downgrade(durations) }
    }
}

impl Drop for OfThread {
    fn drop(&mut self) {
        let Some(durations) = self.durations.upgrade() else { return };
        let mut threads = lock(&durations.threads);
        threads.living.retain(|other| !Arc::ptr_eq(other, &self.histograms));
        threads.ended.merge(&lock(&self.histograms));
    }
}

/// The method of a request that is not known.
const OTHER: &str = "_OTHER";

/// The method as a label. Clients must not be able to make labels.
fn known(method: &Method) -> &'static str {
    const KNOWN: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    KNOWN.into_iter().find(|known| *known == method.as_str()).unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_duration_lies_within_its_bound() {
        let mut histogram = Histogram::default();
        for microseconds in [0, 10, 11, 10_000_000, 10_000_001] {
            histogram.add(Duration::from_micros(microseconds));
        }
        histogram.add(Duration::from_nanos(10_001)); // more than 10 us
        let counts: Vec<u64> = histogram.buckets().into_iter().map(|(_, count)| count).collect();
        assert_eq!((counts[0], counts[1], counts[18], counts[19], histogram.count()), (2, 2, 1, 1, 6));
    }

    #[test]
    fn threads_that_end_leave_their_answers() {
        let durations = Durations::new();
        for _ in 0..3 {
            let durations = Arc::clone(&durations);
            let serve = move || {
                durations.add(Kind::Request("GET", StatusCode::OK), Duration::from_millis(1));
                durations.add(Kind::Request("PUT", StatusCode::CREATED), Duration::from_millis(1));
            };
            thread::spawn(serve).join().expect("it does not panic");
        }
        durations.add(Kind::Request("GET", StatusCode::OK), Duration::from_millis(1));
        let counted: Vec<(Kind, u64)> = durations.all().into_iter().map(|(kind, one)| (kind, one.count())).collect();
        assert_eq!(
            counted,
            [(Kind::Request("GET", StatusCode::OK), 4), (Kind::Request("PUT", StatusCode::CREATED), 3)]
        );
        assert_eq!(lock(&durations.threads).living.len(), 1, "only this thread");
    }

    #[test]
    fn a_method_of_a_client_is_no_label() {
        let method = Method::from_bytes(b"BREW").expect("it is a token");
        assert_eq!((known(&method), known(&Method::PATCH)), (OTHER, "PATCH"));
    }
}
