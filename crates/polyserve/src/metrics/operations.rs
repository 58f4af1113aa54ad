//! The operations of stores: their names, how they end, and the number of those that a store has answered at once.
//!
//! An answer that is there at once takes less time than two looks at the clock, so it is counted and not measured.
//!
//! Invariants: a thread adds to counts of its own. The sum over all threads, living and ended, has every operation once. Cost of an
//! operation: a look at what the thread has, and an addition. No lock, and no instruction that other cores wait for. A thread takes a lock
//! and allocates at its first operation.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use polyserve_core::RepoError;
use polyserve_core::sync::lock;

/// An operation of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RepoOperation {
    Get,
    GetMany,
    Len,
    Put,
    Remove,
    Scan,
    Status,
}

impl RepoOperation {
    const ALL: [Self; 7] = [Self::Get, Self::GetMany, Self::Len, Self::Put, Self::Remove, Self::Scan, Self::Status];

    /// The operation as a label.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::GetMany => "get_many",
            Self::Len => "len",
            Self::Put => "put",
            Self::Remove => "remove",
            Self::Scan => "scan",
            Self::Status => "status",
        }
    }
}

/// How an operation has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OperationEnd {
    Done,
    /// The caller has given the answer up: its time is over, or its client is gone.
    Abandoned,
    Closed,
    Overloaded,
    NotDone,
    Full,
    TooLarge,
    Unavailable,
    ReadOnly,
    Malformed,
    Other,
}

impl OperationEnd {
    pub(super) fn of<T>(result: &Result<T, RepoError>) -> Self {
        match result {
            Ok(_) => Self::Done,
            Err(RepoError::Closed) => Self::Closed,
            Err(RepoError::Overloaded) => Self::Overloaded,
            Err(RepoError::NotDone(_)) => Self::NotDone,
            Err(RepoError::Full(_)) => Self::Full,
            Err(RepoError::TooLarge(_)) => Self::TooLarge,
            Err(RepoError::Unavailable(_)) => Self::Unavailable,
            Err(RepoError::ReadOnly(_)) => Self::ReadOnly,
            Err(RepoError::Malformed(_)) => Self::Malformed,
            Err(_) => Self::Other,
        }
    }

    /// The kind of the error as a label. For Prometheus, an empty label is an absent one.
    pub(super) fn error_type(self) -> &'static str {
        match self {
            Self::Done => "",
            Self::Abandoned => "abandoned",
            Self::Closed => "closed",
            Self::Overloaded => "overloaded",
            Self::NotDone => "not_done",
            Self::Full => "full",
            Self::TooLarge => "too_large",
            Self::Unavailable => "unavailable",
            Self::ReadOnly => "read_only",
            Self::Malformed => "malformed",
            Self::Other => "_OTHER",
        }
    }
}

/// The operations that were answered at once, without an error.
#[derive(Debug)]
pub(super) struct OperationCounts {
    /// Tells these counts from others in the same process.
    id: u64,
    threads: Mutex<ThreadCounts>,
}

/// The counts of all threads.
#[derive(Debug, Default)]
struct ThreadCounts {
    living: Vec<Arc<OwnCounts>>,
    ended: [u64; RepoOperation::ALL.len()],
}

/// The counts of one thread, in lines of the cache of their own. Only that thread writes them.
#[derive(Debug, Default)]
#[repr(align(64))]
struct OwnCounts([AtomicU64; RepoOperation::ALL.len()]);

impl OwnCounts {
    #[inline]
    fn add(&self, operation: RepoOperation) {
        if let Some(count) = self.0.get(operation as usize) {
            count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
    }
}

impl OperationCounts {
    pub(super) fn new() -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self { id: NEXT.fetch_add(1, Ordering::Relaxed), threads: Mutex::default() })
    }

    /// Counts an operation.
    #[inline]
    pub(super) fn add(self: &Arc<Self>, operation: RepoOperation) {
        let added = OF_THIS_THREAD.try_with(|all| match all.borrow().iter().find(|own| own.id == self.id) {
            Some(own) => {
                own.counts.add(operation);
                true
            }
            None => false,
        });
        if added != Ok(true) {
            self.begin(operation, added.is_err());
        }
    }

    /// Counts the first operation of a thread, or one of a thread that is ending.
    #[cold]
    fn begin(self: &Arc<Self>, operation: RepoOperation, is_ending: bool) {
        let counts = Arc::<OwnCounts>::default();
        counts.add(operation);
        let mut threads = lock(&self.threads);
        if is_ending {
            return threads.end(&counts);
        }
        threads.living.push(Arc::clone(&counts));
        drop(threads);
        OF_THIS_THREAD.with_borrow_mut(|all| {
            all.retain(|own| own.of.strong_count() > 0);
            all.push(ThreadOperations { id: self.id, counts, of: Arc::downgrade(self) });
        });
    }

    /// Returns the counts so far.
    pub(super) fn all(&self) -> impl Iterator<Item = (RepoOperation, u64)> {
        let threads = lock(&self.threads);
        let mut sum = threads.ended;
        threads.living.iter().for_each(|counts| add_all(&mut sum, counts));
        RepoOperation::ALL.into_iter().zip(sum)
    }
}

impl ThreadCounts {
    /// Keeps the counts of a thread that ends.
    fn end(&mut self, counts: &OwnCounts) {
        add_all(&mut self.ended, counts);
    }
}

fn add_all(sum: &mut [u64; RepoOperation::ALL.len()], counts: &OwnCounts) {
    sum.iter_mut().zip(&counts.0).for_each(|(sum, count)| *sum = sum.wrapping_add(count.load(Ordering::Relaxed)));
}

thread_local! {
    /// The counts of this thread, one for each store's metrics. Usually there is one.
    static OF_THIS_THREAD: RefCell<Vec<ThreadOperations>> = const { RefCell::new(Vec::new()) };
}

/// The counts of a thread for some metrics.
struct ThreadOperations {
    id: u64,
    counts: Arc<OwnCounts>,
    of: Weak<OperationCounts>,
}

impl Drop for ThreadOperations {
    fn drop(&mut self) {
        let Some(of) = self.of.upgrade() else { return };
        let mut threads = lock(&of.threads);
        threads.living.retain(|other| !Arc::ptr_eq(other, &self.counts));
        threads.end(&self.counts);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn each_operation_counts_once_and_threads_that_end_leave_theirs() {
        let [counts, others] = [OperationCounts::new(), OperationCounts::new()];
        for _ in 0..3 {
            let (counts, others) = (Arc::clone(&counts), Arc::clone(&others));
            let work = move || {
                for operation in RepoOperation::ALL {
                    counts.add(operation);
                    others.add(operation);
                    counts.add(operation);
                }
            };
            thread::spawn(work).join().expect("it does not panic");
        }
        counts.add(RepoOperation::Put);
        let expected = RepoOperation::ALL.map(|operation| (operation, 6 + u64::from(operation == RepoOperation::Put)));
        assert_eq!(counts.all().collect::<Vec<_>>(), expected);
        assert!(others.all().all(|(_, count)| count == 3));
        assert_eq!(lock(&counts.threads).living.len(), 1, "only this thread");
    }
}
