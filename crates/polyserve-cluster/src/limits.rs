//! [`StoreLimits`]: the limits that all stores of this crate have.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::error::ConnectError;

/// How long a store waits for its engine, and how many operations it holds.
///
/// ```
/// use polyserve_cluster::StoreLimits;
/// use std::time::Duration;
///
/// let limits = StoreLimits::default().timeout(Duration::from_secs(2));
/// assert_eq!(limits.max_in_flight.get(), 1_024);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreLimits {
    /// The max time from the call of an operation to its answer, waiting included. At most a day. Default: 5 s.
    pub timeout: Duration,
    /// The max time that the constructor waits for the engine. At most a day. Default: 5 s.
    pub connect_timeout: Duration,
    /// The max number of operations that the engine has not answered. Default: 1,024.
    pub max_in_flight: NonZeroUsize,
    /// The max number of operations that wait until fewer are in flight. One more is answered with
    /// [`RepoError::Overloaded`](polyserve_core::RepoError::Overloaded). Default: 16,384.
    pub max_waiting: NonZeroUsize,
    /// The max number of bytes of the operations that wait or are in flight: their keys and the JSON of their entities. An
    /// operation that comes when there are as many is answered with
    /// [`RepoError::Overloaded`](polyserve_core::RepoError::Overloaded). So the bound may be exceeded by one operation.
    ///
    /// Operations of fewer than 4 KiB, such as gets, are bounded only in number.
    ///
    /// What was fetched is bounded too, by itself: by a get until the caller has taken it, and by a write with a condition until it has
    /// ended. One of these that would start when there are as many bytes is answered with `Overloaded`. Those that are in flight then may
    /// each add an entity: with the defaults and entities of 1 MiB, 1 GiB. If entities are so large, allow fewer operations in flight.
    /// The client libraries have up to three copies more of what is in flight. Default: 64 MiB.
    pub max_bytes: NonZeroUsize,
}

/// The max time of an operation: a day. PostgreSQL and the system count some times in milliseconds, of 32 bits with a sign.
const MAX_TIME: Duration = Duration::from_secs(24 * 60 * 60);

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            max_in_flight: const { NonZeroUsize::new(1_024).unwrap() },
            max_waiting: const { NonZeroUsize::new(16 * 1_024).unwrap() },
            max_bytes: const { NonZeroUsize::new(64 * 1_024 * 1_024).unwrap() },
        }
    }
}

impl StoreLimits {
    /// Checks that an operation has time, and that a clock can tell when the time is over.
    pub(crate) fn check(&self) -> Result<(), ConnectError> {
        for (name, time) in [("timeout", self.timeout), ("connect_timeout", self.connect_timeout)] {
            if time.is_zero() {
                return Err(ConnectError::new(format!("the {name} of the store is zero; it has to be longer, as 5 s")));
            }
            if time > MAX_TIME {
                let what = format!("the {name} of the store is {time:?}; it has to be at most {MAX_TIME:?}, as 5 s");
                return Err(ConnectError::new(what));
            }
        }
        Ok(())
    }

    /// The max time to open a connection. It is not shorter than that of an operation which waits for it.
    pub(crate) fn max_opening(&self) -> Duration {
        self.timeout.max(self.connect_timeout)
    }

    /// Sets the max time from the call of an operation to its answer.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets the max time that the constructor waits for the engine.
    #[must_use]
    pub fn connect_timeout(self, connect_timeout: Duration) -> Self {
        Self { connect_timeout, ..self }
    }

    /// Sets the max number of operations that the engine has not answered.
    #[must_use]
    pub fn max_in_flight(self, max_in_flight: NonZeroUsize) -> Self {
        Self { max_in_flight, ..self }
    }

    /// Sets the max number of operations that wait until fewer are in flight.
    #[must_use]
    pub fn max_waiting(self, max_waiting: NonZeroUsize) -> Self {
        Self { max_waiting, ..self }
    }

    /// Sets the max number of bytes of the operations that wait or are in flight.
    #[must_use]
    pub fn max_bytes(self, max_bytes: NonZeroUsize) -> Self {
        Self { max_bytes, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_no_limit_is_named() {
        let limits = StoreLimits::default();
        assert!(limits.check().is_ok());
        let error = |limits: StoreLimits| limits.check().expect_err("a time is no limit").to_string();
        assert!(error(limits.clone().timeout(Duration::ZERO)).contains("the timeout"));
        assert!(error(limits.clone().connect_timeout(Duration::ZERO)).contains("the connect_timeout"));
        // Regression test: it panicked, or PostgreSQL's error was "Invalid argument".
        for time in [Duration::MAX, MAX_TIME + Duration::from_nanos(1)] {
            assert!(error(limits.clone().timeout(time)).contains("at most 86400s"));
            assert!(error(limits.clone().connect_timeout(time)).contains("at most 86400s"));
        }
        assert!(limits.timeout(MAX_TIME).connect_timeout(MAX_TIME).check().is_ok());
    }
}
