//! The operations of stores: their names, how they end, and the number of those that a store has answered at once.
//!
//! An answer that is there at once takes less time than two looks at the clock, so it is counted and not measured.
//!
//! Cost of an operation: that of [`per_thread`](super::per_thread), and an addition.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::LocalKey;

use polyserve_core::RepoError;

use super::per_thread::{OwnValue, PerThread, ThreadValue};

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
pub(super) type OperationCounts = PerThread<OperationCount>;

/// The number of operations of a thread, in a line of the cache of its own.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct OperationCount(AtomicU64);

impl ThreadValue for OperationCount {
    type Kind = RepoOperation;
    type Sum = u64;

    fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn merge(sum: &mut u64, other: &u64) {
        *sum = sum.wrapping_add(*other);
    }

    fn of_this_thread() -> &'static LocalKey<RefCell<Vec<OwnValue<Self>>>> {
        thread_local!(static ALL: RefCell<Vec<OwnValue<OperationCount>>> = const { RefCell::new(Vec::new()) });
        &ALL
    }
}

impl OperationCounts {
    /// Counts an operation.
    #[inline]
    pub(super) fn count(self: &Arc<Self>, operation: RepoOperation) {
        self.add(operation, |OperationCount(count)| {
            count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const ALL: [RepoOperation; 7] = {
        use RepoOperation::{Get, GetMany, Len, Put, Remove, Scan, Status};
        [Get, GetMany, Len, Put, Remove, Scan, Status]
    };

    #[test]
    fn each_operation_counts_once_and_threads_that_end_leave_theirs() {
        let [counts, others] = [OperationCounts::new(), OperationCounts::new()];
        for _ in 0..3 {
            let (counts, others) = (Arc::clone(&counts), Arc::clone(&others));
            let work = move || {
                for operation in ALL {
                    counts.count(operation);
                    others.count(operation);
                    counts.count(operation);
                }
            };
            thread::spawn(work).join().expect("it does not panic");
        }
        counts.count(RepoOperation::Put);
        let expected = ALL.map(|operation| (operation, 6 + u64::from(operation == RepoOperation::Put)));
        assert_eq!(counts.all().into_iter().collect::<Vec<_>>(), expected);
        assert!(others.all().values().eq(&[3; ALL.len()]));
        assert_eq!(counts.living(), 1, "only this thread");
    }
}
