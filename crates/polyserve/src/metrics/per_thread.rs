//! A record of each thread, and the sums of all records.
//!
//! Invariants: a thread writes only into a record of its own. The sums over all threads, living and ended, have every addition once. A
//! thread that ends adds its record to the sums of the ended threads, so that a server with a thread for each connection does not grow.
//!
//! Cost of an addition: a search among the records of the thread, of which a process has one, and a load and a store; for a duration also a
//! search among its few kinds. No lock, and no instruction that other cores wait for. A thread allocates for its record and for each new
//! kind, under a lock.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use polyserve_core::AnswerTimes;
use polyserve_core::figures::{DURATION_BOUNDS, Histogram, HistogramCounts};
use polyserve_core::sync::lock;

use super::durations::Kind;
use super::operations::RepoOperation;

/// The records of all threads of one [`Metrics`](super::Metrics).
#[derive(Debug)]
pub(super) struct ThreadRecords {
    /// Tells these records from others in the same process.
    id: u64,
    threads: Mutex<Threads>,
}

#[derive(Debug, Default)]
struct Threads {
    living: Vec<Arc<ThreadRecord>>,
    ended: Sums,
}

/// What a thread has counted, in lines of the cache of its own. It writes, and others read.
#[derive(Debug, Default)]
#[repr(align(64))]
struct ThreadRecord {
    /// The numbers of the operations that stores have answered at once, without an error.
    operations: [AtomicU64; RepoOperation::ALL.len()],
    durations: Mutex<Vec<KindDurations>>,
}

/// The durations of a kind. Few kinds are usual, so a list is searched faster than a map.
#[derive(Clone, Debug)]
struct KindDurations {
    kind: Kind,
    histogram: Arc<Histogram>,
}

/// The sums of the records of several threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    pub(super) operations: BTreeMap<RepoOperation, u64>,
    pub(super) durations: BTreeMap<Kind, HistogramCounts>,
}

impl ThreadRecords {
    pub(super) fn new() -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self { id: NEXT.fetch_add(1, Ordering::Relaxed), threads: Mutex::default() })
    }

    /// Adds the times of an answer.
    pub(super) fn add_answer(self: &Arc<Self>, times: &AnswerTimes<'_>) {
        self.with_own(|own| own.add_answer(times));
    }

    /// Adds a duration.
    pub(super) fn add_duration(self: &Arc<Self>, kind: Kind, elapsed: Duration) {
        self.with_own(|own| own.add_duration(kind, elapsed));
    }

    /// Counts an operation that a store has answered at once.
    pub(super) fn count(self: &Arc<Self>, operation: RepoOperation) {
        self.with_own(|own| own.count(operation));
    }

    /// Calls `write` with the record of this thread.
    #[inline]
    fn with_own(self: &Arc<Self>, write: impl Fn(&mut OwnRecord)) {
        thread_local!(static OWN: RefCell<Vec<OwnRecord>> = const { RefCell::new(Vec::new()) });
        let written = OWN.try_with(|all| {
            let mut all = all.borrow_mut();
            match all.iter_mut().find(|own| own.id == self.id) {
                Some(own) => write(own),
                None => write(self.add_own(&mut all)),
            }
        });
        if written.is_err() {
            self.with_last(write);
        }
    }

    /// Calls `write` with a record of this thread, which is ending.
    #[cold]
    fn with_last(self: &Arc<Self>, write: impl Fn(&mut OwnRecord)) {
        write(&mut OwnRecord::new(self));
    }

    #[cold]
    fn add_own<'a>(self: &Arc<Self>, all: &'a mut Vec<OwnRecord>) -> &'a mut OwnRecord {
        all.retain(|own| own.of.strong_count() > 0);
        all.insert(0, OwnRecord::new(self));
        &mut all[0]
    }

    /// Returns the sums so far.
    pub(super) fn sums(&self) -> Sums {
        let threads = lock(&self.threads);
        let mut sums = threads.ended.clone();
        threads.living.iter().for_each(|record| sums.add(record));
        sums
    }
}

impl Sums {
    fn add(&mut self, record: &ThreadRecord) {
        for (operation, count) in RepoOperation::ALL.into_iter().zip(&record.operations) {
            match count.load(Ordering::Relaxed) {
                0 => {}
                count => *self.operations.entry(operation).or_default() += count,
            }
        }
        for KindDurations { kind, histogram } in lock(&record.durations).iter() {
            let counts = histogram.read();
            match self.durations.get_mut(kind) {
                Some(sum) => sum.merge(&counts),
                None => drop(self.durations.insert(*kind, counts)),
            }
        }
    }
}

/// The record of this thread.
struct OwnRecord {
    id: u64,
    record: Arc<ThreadRecord>,
    /// Those of the record, without its lock.
    durations: Vec<KindDurations>,
    of: Weak<ThreadRecords>,
}

impl OwnRecord {
    #[cold]
    fn new(of: &Arc<ThreadRecords>) -> Self {
        let record = Arc::<ThreadRecord>::default();
        lock(&of.threads).living.push(Arc::clone(&record));
        Self { id: of.id, record, durations: Vec::new(), of: Arc::downgrade(of) }
    }

    #[inline]
    fn add_answer(&mut self, times: &AnswerTimes<'_>) {
        if let Some(elapsed) = times.elapsed {
            self.add_duration(Kind::of(times), elapsed);
        }
        if let Some(queued) = times.queued {
            self.add_duration(Kind::Queue, queued);
        }
    }

    #[inline]
    fn count(&self, operation: RepoOperation) {
        let count = &self.record.operations[operation as usize];
        count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    #[allow(clippy::inline_always)] // for each answer
    #[inline(always)]
    fn add_duration(&mut self, kind: Kind, elapsed: Duration) {
        let nanos = elapsed.as_secs().saturating_mul(1_000_000_000).saturating_add(elapsed.subsec_nanos().into());
        match self.durations.iter().find(|durations| durations.kind == kind) {
            Some(durations) => durations.histogram.add(nanos),
            None => self.new_histogram(kind).add(nanos),
        }
    }

    #[cold]
    fn new_histogram(&mut self, kind: Kind) -> Arc<Histogram> {
        let histogram = Arc::new(Histogram::new(&DURATION_BOUNDS));
        let durations = KindDurations { kind, histogram: Arc::clone(&histogram) };
        lock(&self.record.durations).push(durations.clone());
        self.durations.push(durations);
        histogram
    }
}

impl Drop for OwnRecord {
    fn drop(&mut self) {
        let Some(of) = self.of.upgrade() else { return };
        let mut threads = lock(&of.threads);
        threads.living.retain(|other| !Arc::ptr_eq(other, &self.record));
        threads.ended.add(&self.record);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use polyserve_core::http::{Method, StatusCode};

    use super::*;

    /// Calls `work` on three threads, which end, and on this one, with the records of two metrics. Returns the sums of both.
    fn sums_of(work: fn(&Arc<ThreadRecords>)) -> [Sums; 2] {
        let all = [ThreadRecords::new(), ThreadRecords::new()];
        let work_on_all = || all.iter().for_each(work);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(work_on_all).join().expect("it does not panic");
            }
        });
        work_on_all();
        all.map(|records| {
            assert_eq!(lock(&records.threads).living.len(), 1, "only this thread");
            records.sums()
        })
    }

    #[test]
    fn threads_that_end_leave_their_answers() {
        let all = sums_of(|records| {
            for (method, status) in [(Method::GET, StatusCode::OK), (Method::PUT, StatusCode::CREATED)] {
                let mut times = AnswerTimes::new(status, Some(&method), None);
                records.add_answer(&times);
                times.elapsed = Some(Duration::from_millis(1));
                records.add_answer(&times);
                times.queued = times.elapsed;
                records.add_answer(&times);
            }
        });
        let kind = |status, method| Kind::of(&AnswerTimes::new(status, Some(method), None));
        let [get, put] = [kind(StatusCode::OK, &Method::GET), kind(StatusCode::CREATED, &Method::PUT)];
        for sums in all {
            let counted: Vec<_> = sums.durations.into_iter().map(|(kind, counts)| (kind, counts.count())).collect();
            assert_eq!(counted, [(get, 8), (put, 8), (Kind::Queue, 8)]);
        }
    }

    #[test]
    fn each_operation_counts_once_and_threads_that_end_leave_theirs() {
        let all = sums_of(|records| {
            for operation in RepoOperation::ALL {
                records.count(operation);
            }
            records.count(RepoOperation::Put);
        });
        let expected =
            RepoOperation::ALL.map(|operation| (operation, if operation == RepoOperation::Put { 8 } else { 4 }));
        for sums in all {
            assert!(sums.operations.into_iter().eq(expected));
        }
    }
}
