//! The durations of requests and of store operations: a histogram for each kind and thread, as [`per_thread`](super::per_thread) keeps
//! them.

use std::cell::RefCell;
use std::sync::Arc;
use std::thread::LocalKey;
use std::time::Duration;

use polyserve_core::AnswerReport;
use polyserve_core::figures::{DURATION_BOUNDS, Histogram, HistogramCounts};
use polyserve_core::http::{Method, StatusCode};

use super::operations::{OperationEnd, RepoOperation};
use super::per_thread::{OwnValue, PerThread, ThreadValue};

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
pub(super) type Durations = PerThread<Histogram>;

impl ThreadValue for Histogram {
    type Kind = Kind;
    type Sum = HistogramCounts;

    fn new() -> Self {
        Self::new(&DURATION_BOUNDS)
    }

    fn read(&self) -> HistogramCounts {
        Self::read(self)
    }

    fn merge(sum: &mut HistogramCounts, other: &HistogramCounts) {
        sum.merge(other);
    }

    fn of_this_thread() -> &'static LocalKey<RefCell<Vec<OwnValue<Self>>>> {
        thread_local!(static ALL: RefCell<Vec<OwnValue<Histogram>>> = const { RefCell::new(Vec::new()) });
        &ALL
    }
}

impl Durations {
    /// Adds a duration.
    #[inline]
    pub(super) fn add_duration(self: &Arc<Self>, kind: Kind, elapsed: Duration) {
        let nanos = elapsed.as_secs().saturating_mul(1_000_000_000).saturating_add(elapsed.subsec_nanos().into());
        self.add(kind, |histogram| histogram.add(nanos));
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
            let serve =
                move || kinds.into_iter().for_each(|kind| durations.add_duration(kind, Duration::from_millis(1)));
            thread::spawn(serve).join().expect("it does not panic");
        }
        durations.add_duration(kinds[0], Duration::from_millis(1));
        let counted: Vec<(Kind, u64)> = durations.all().into_iter().map(|(kind, one)| (kind, one.count())).collect();
        assert_eq!(counted, [(kinds[0], 4), (kinds[1], 3)]);
        assert_eq!(durations.living(), 1, "only this thread");
    }

    #[test]
    fn a_method_of_a_client_is_no_label() {
        let method = Method::from_bytes(b"BREW").expect("it is a token");
        assert_eq!((KnownMethod::of(&method).name(), KnownMethod::of(&Method::PATCH).name()), ("_OTHER", "PATCH"));
        let known = &KnownMethod::NAMES[1..];
        assert!(known.iter().all(|name| KnownMethod::of(&name.parse().expect("a method")).name() == *name));
    }
}
