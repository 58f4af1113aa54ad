//! What the durations of requests and of store operations are counted under. [`per_thread`](super::per_thread) keeps them.

use polyserve_core::AnswerTimes;
use polyserve_core::http::{Method, StatusCode};

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
    pub(super) fn of(times: &AnswerTimes<'_>) -> Self {
        Self::Request(times.method.map_or(KnownMethod::OTHER, KnownMethod::of), times.status)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_of_a_client_is_no_label() {
        let method = Method::from_bytes(b"BREW").expect("it is a token");
        assert_eq!((KnownMethod::of(&method).name(), KnownMethod::of(&Method::PATCH).name()), ("_OTHER", "PATCH"));
        let known = &KnownMethod::NAMES[1..];
        assert!(known.iter().all(|name| KnownMethod::of(&name.parse().expect("a method")).name() == *name));
    }
}
