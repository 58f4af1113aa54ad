//! A fixed limit on the requests in work.
//!
//! Invariant: at most the limit is in work, and of those at most nine tenths are writes. The last tenth is kept for reads.
//!
//! Cost: a comparison. Source: the oldest of all forms, as in Apache's `MaxRequestWorkers` and tower's `LoadShed` over `ConcurrencyLimit`.
//!
//! *Wins when* the number of requests that the service does well at once is known and stays the same: connections of a database,
//! memory of a request.
//!
//! *Loses when* requests wait before they are in work, as on a server with fewer workers than the limit: it never refuses there.
//! *Loses* also if the right number changes with the machine or with the mix of requests.

use super::{Arrival, OverloadPolicy, OverloadReason, share};

/// A policy with a fixed limit on the requests in work.
///
/// ```
/// use polyserve_core::overload::{Arrival, OverloadPolicy, StaticLimit};
/// let (limit, mut arrival) = (StaticLimit::new(2), Arrival::new(std::time::Instant::now()));
/// arrival.in_work = 2;
/// assert!(limit.admit(&arrival).is_ok());
/// arrival.is_write = true;
/// assert!(limit.admit(&arrival).is_err());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct StaticLimit {
    requests: usize,
}

impl StaticLimit {
    /// At most this number of requests is in work.
    pub fn new(requests: usize) -> Self {
        Self { requests }
    }
}

impl OverloadPolicy for StaticLimit {
    fn admit(&self, arrival: &Arrival) -> Result<(), OverloadReason> {
        let is_within = arrival.in_work <= share(self.requests, arrival.is_write);
        if is_within { Ok(()) } else { Err(OverloadReason::InWork) }
    }
}
