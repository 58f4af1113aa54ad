//! The operations of stores: their names, and how they end.

use polyserve_core::RepoError;

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
    /// All operations, in the order of their numbers.
    pub(super) const ALL: [Self; 7] =
        [Self::Get, Self::GetMany, Self::Len, Self::Put, Self::Remove, Self::Scan, Self::Status];

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
