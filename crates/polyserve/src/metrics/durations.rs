//! The durations of requests and of store operations, in histograms of each thread.
//!
//! Invariants: a thread writes only into histograms of its own. The sum over all threads, living and ended, has every
//! answer once. A thread that ends adds its histograms to those of the ended threads, so that a server with a thread for each
//! connection does not grow.
//!
//! Cost of a duration: a search among the few kinds of the thread, and an addition to a [`Histogram`]. No lock, and no instruction
//! that other cores wait for. A thread allocates for each new kind, under a lock.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use polyserve_core::AnswerReport;
use polyserve_core::figures::{DURATION_BOUNDS, Histogram, HistogramCounts};
use polyserve_core::http::{Method, StatusCode};
use polyserve_core::sync::lock;

use super::operations::{OperationEnd, RepoOperation};

/// What a duration is counted under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A request: its method, and the status of the answer.
    Request(KnownMethod, StatusCode),
    /// A wait for a thread.
    Queue,
    /// An operation of a store.
    Store(RepoOperation, OperationEnd),
}

impl Kind {
    #[inline]
    pub(super) fn of(report: &AnswerReport<'_>) -> Self {
        Self::Request(
            report.request.map_or(KnownMethod::OTHER, |request| KnownMethod::of(request.method)),
            report.status,
        )
    }
}

/// A method as a label: the place of its name. Clients must not be able to make labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KnownMethod(u8);

impl KnownMethod {
    /// A method that is not known, or that the server could not read.
    const OTHER: Self = Self(0);

    const NAMES: [&'static str; 10] =
        ["_OTHER", "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

    #[inline]
    fn of(method: &Method) -> Self {
        Self(match *method {
            Method::GET => 1,
            Method::HEAD => 2,
            Method::POST => 3,
            Method::PUT => 4,
            Method::DELETE => 5,
            Method::CONNECT => 6,
            Method::OPTIONS => 7,
            Method::TRACE => 8,
            Method::PATCH => 9,
            _ => return Self::OTHER,
        })
    }

    pub(super) fn name(self) -> &'static str {
        Self::NAMES.get(usize::from(self.0)).copied().unwrap_or(Self::NAMES[0])
    }
}

/// The durations of all answers.
#[derive(Debug)]
pub(super) struct Durations {
    /// Tells the durations of one server from those of another in the same process.
    id: u64,
    threads: Mutex<Threads>,
}

/// The histograms of all threads.
#[derive(Debug, Default)]
struct Threads {
    /// A thread that lives has one histogram of each of its kinds.
    living: Vec<(Kind, Arc<Histogram>)>,
    ended: BTreeMap<Kind, HistogramCounts>,
}

impl Durations {
    pub(super) fn new() -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self { id: NEXT.fetch_add(1, Ordering::Relaxed), threads: Mutex::default() })
    }

    /// Adds a duration.
    #[inline]
    pub(super) fn add(self: &Arc<Self>, kind: Kind, elapsed: Duration) {
        let nanos = elapsed.as_secs().saturating_mul(1_000_000_000).saturating_add(elapsed.subsec_nanos().into());
        let added = OF_THIS_THREAD.try_with(|all| {
            let mut all = all.borrow_mut();
            match all.iter().find(|own| own.kind == kind && own.id == self.id) {
                Some(own) => own.histogram.add(nanos),
                None => {
                    all.retain(|own| own.durations.strong_count() > 0);
                    all.push(OfThread::new(self, kind, nanos));
                }
            }
        });
        if added.is_err() {
            let alone = Histogram::new(&DURATION_BOUNDS);
            alone.add(nanos);
            lock(&self.threads).end(kind, &alone); // the thread is ending
        }
    }

    /// Returns all durations so far, in the order of their kinds.
    pub(super) fn all(&self) -> BTreeMap<Kind, HistogramCounts> {
        let threads = lock(&self.threads);
        let mut all = threads.ended.clone();
        threads.living.iter().for_each(|(kind, histogram)| merge(&mut all, *kind, histogram));
        all
    }
}

impl Threads {
    /// Keeps the durations of a thread that ends.
    fn end(&mut self, kind: Kind, histogram: &Histogram) {
        merge(&mut self.ended, kind, histogram);
    }
}

fn merge(sum: &mut BTreeMap<Kind, HistogramCounts>, kind: Kind, histogram: &Histogram) {
    let counts = histogram.read();
    match sum.get_mut(&kind) {
        Some(sum) => sum.merge(&counts),
        None => drop(sum.insert(kind, counts)),
    }
}

thread_local! {
    /// The histograms of this thread. Few kinds of answers are usual, so a list is searched faster than a map.
    static OF_THIS_THREAD: RefCell<Vec<OfThread>> = const { RefCell::new(Vec::new()) };
}

/// The histogram of a thread for a kind of answers of a server.
struct OfThread {
    kind: Kind,
    id: u64,
    histogram: Arc<Histogram>,
    durations: Weak<Durations>,
}

impl OfThread {
    /// The histogram with its first value.
    #[cold]
    fn new(durations: &Arc<Durations>, kind: Kind, nanos: u64) -> Self {
        let histogram = Arc::new(Histogram::new(&DURATION_BOUNDS));
        histogram.add(nanos);
        lock(&durations.threads).living.push((kind, Arc::clone(&histogram)));
        Self { kind, id: durations.id, histogram, durations: Arc::downgrade(durations) }
    }
}

impl Drop for OfThread {
    fn drop(&mut self) {
        let Some(durations) = self.durations.upgrade() else { return };
        let mut threads = lock(&durations.threads);
        threads.living.retain(|(_, other)| !Arc::ptr_eq(other, &self.histogram));
        threads.end(self.kind, &self.histogram);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn threads_that_end_leave_their_answers() {
        let durations = Durations::new();
        let kinds = [(Method::GET, StatusCode::OK), (Method::PUT, StatusCode::CREATED)]
            .map(|(method, status)| Kind::Request(KnownMethod::of(&method), status));
        for _ in 0..3 {
            let durations = Arc::clone(&durations);
            let serve = move || kinds.into_iter().for_each(|kind| durations.add(kind, Duration::from_millis(1)));
            thread::spawn(serve).join().expect("it does not panic");
        }
        durations.add(kinds[0], Duration::from_millis(1));
        let counted: Vec<(Kind, u64)> = durations.all().into_iter().map(|(kind, one)| (kind, one.count())).collect();
        assert_eq!(counted, [(kinds[0], 4), (kinds[1], 3)]);
        assert_eq!(lock(&durations.threads).living.len(), 1, "only this thread");
    }

    #[test]
    fn a_method_of_a_client_is_no_label() {
        let method = Method::from_bytes(b"BREW").expect("it is a token");
        assert_eq!((KnownMethod::of(&method).name(), KnownMethod::of(&Method::PATCH).name()), ("_OTHER", "PATCH"));
        let known = &KnownMethod::NAMES[1..];
        assert!(known.iter().all(|name| KnownMethod::of(&name.parse().expect("a method")).name() == *name));
    }
}
