//! Admission of requests when a server has more work than it can do: [`OverloadPolicy`], and the policies to choose from.
//!
//! Without a limit, each request waits behind all others. Beyond the capacity every answer is then late, clients give up and send
//! the request again, and the server works for answers that no client awaits. It may stay so after the load has ended (Bronson et al.,
//! "Metastable failures in distributed systems", HotOS 2021). A policy refuses the requests that would be late, which costs a small part
//! of an answer, so the others are in time.
//!
//! A refused request gets 503 with `Retry-After`, and its connection stays open. Writes are refused first, so that reads do not wait
//! behind writes that the server cannot do.
//!
//! [`ServerConfig::overload`](field@crate::ServerConfig::overload) sets the policy of a server. [`RequestAdmission`] applies it in front of the
//! service, so it is the same on every server.
//!
//! Cost: without a policy, none. With a policy, two clock reads, two additions to a shared counter and the policy's own cost for each
//! request, and an allocation for each deferred answer.
//!
//! # Layout
//!
//! * `admission`: what stands in front of the service.
//! * `static_limit`, `codel`, `gradient`: the policies.

mod admission;
mod codel;
mod gradient;
mod static_limit;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use admission::{AdmittedRequest, RequestAdmission};
pub use codel::Codel;
pub use gradient::Gradient;
pub use static_limit::StaticLimit;

/// Decides which requests a server takes.
///
/// # Contract
///
/// * [`admit`](Self::admit) does not block. It may be called more than once for a request, if other requests begin or end meanwhile.
/// * [`answered`](Self::answered) is called once for each admitted request, also if its answer was given up.
/// * The time is passed in. It does not go back by more than the threads of a server differ.
pub trait OverloadPolicy: fmt::Debug + Send + Sync + 'static {
    /// Decides about a request that is to be passed to the service.
    ///
    /// # Errors
    ///
    /// Returns the reason if the request is refused.
    fn admit(&self, arrival: &Arrival) -> Result<(), OverloadReason>;

    /// An admitted request was answered.
    fn answered(&self, served: &AnsweredRequest) {
        let _ = served;
    }
}

/// A request that is to be admitted or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrival {
    /// The time.
    pub now: Instant,
    /// The time since the server could have begun with the request: since its socket was readable, or its connection was accepted.
    /// Zero if the server does not know.
    pub waited: Duration,
    /// The number of requests in work: in the service, or with a deferred answer. Counts this one.
    pub in_work: usize,
    /// The method is not a safe one.
    pub is_write: bool,
}

impl Arrival {
    /// A read that has not waited, and is alone in work.
    pub fn new(now: Instant) -> Self {
        Self { now, waited: Duration::ZERO, in_work: 1, is_write: false }
    }
}

/// A request that was admitted and has its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AnsweredRequest {
    /// The time.
    pub now: Instant,
    /// [`Arrival::waited`] of the request.
    pub waited: Duration,
    /// The time from its admission to its answer.
    pub worked: Duration,
}

impl AnsweredRequest {
    /// A request that has its answer now.
    pub fn new(now: Instant, waited: Duration, worked: Duration) -> Self {
        Self { now, waited, worked }
    }
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverloadReason {
    /// Too many requests are in work.
    InWork,
    /// The request has waited for too long.
    Waited,
}

impl OverloadReason {
    /// All reasons.
    pub const ALL: [Self; 2] = [Self::InWork, Self::Waited];

    /// The name, as metrics show it.
    pub fn name(self) -> &'static str {
        match self {
            Self::InWork => "in_work",
            Self::Waited => "waited",
        }
    }
}

/// The part of a limit that a request may use: reads use the whole limit, writes nine tenths, and at least one.
fn share(limit: usize, is_write: bool) -> usize {
    let reserved = if is_write { limit.div_ceil(10) } else { 0 };
    limit.saturating_sub(reserved).max(1)
}

/// The choice of an [`OverloadPolicy`], for [`ServerConfig::overload`](field@crate::ServerConfig::overload). Each run of a server makes
/// a policy of its own.
///
/// ```
/// use polyserve_core::ServerConfig;
/// use polyserve_core::overload::Overload;
/// let config = ServerConfig::default().overload(Overload::static_limit(64).open_path("/readyz"));
/// assert!(config.validate().is_ok());
/// assert_eq!(config.overload.unwrap().to_string(), "static:64");
/// ```
#[derive(Clone)]
pub struct Overload {
    kind: Kind,
    open_path: Option<Arc<str>>,
    max_retry_after: u32,
}

#[derive(Clone)]
enum Kind {
    Static(usize),
    Codel(Duration),
    Gradient,
    Own(Arc<dyn Fn() -> Arc<dyn OverloadPolicy> + Send + Sync>),
}

/// The largest `Retry-After` that can be configured, in seconds.
const MAX_RETRY_AFTER: u32 = 3600;

impl Overload {
    /// At most this number of requests is in work at a time: [`StaticLimit`].
    pub fn static_limit(requests: usize) -> Self {
        Self::of(Kind::Static(requests))
    }

    /// While a queue stands, no request is taken that has waited for much longer than `target`: [`Codel`].
    pub fn codel(target: Duration) -> Self {
        Self::of(Kind::Codel(target))
    }

    /// A limit that follows from measured times: [`Gradient`].
    pub fn gradient() -> Self {
        Self::of(Kind::Gradient)
    }

    /// A policy of one's own, which `make` makes for each run of a server.
    pub fn own<P: OverloadPolicy>(make: impl Fn() -> P + Send + Sync + 'static) -> Self {
        Self::of(Kind::Own(Arc::new(move || Arc::new(make()))))
    }

    fn of(kind: Kind) -> Self {
        Self { kind, open_path: None, max_retry_after: 3 }
    }

    /// Requests for this path are always admitted. For a health check: a server that refuses work is still ready.
    #[must_use]
    pub fn open_path(mut self, path: impl Into<Arc<str>>) -> Self {
        self.open_path = Some(path.into());
        self
    }

    /// Sets the largest `Retry-After` of refused requests, in seconds. They get the values from 1 to this one in turns, so that clients
    /// do not come back together. Default 3.
    #[must_use]
    pub fn max_retry_after(mut self, seconds: u32) -> Self {
        self.max_retry_after = seconds;
        self
    }

    /// Makes a policy.
    pub fn policy(&self) -> Arc<dyn OverloadPolicy> {
        match &self.kind {
            Kind::Static(requests) => Arc::new(StaticLimit::new(*requests)),
            Kind::Codel(target) => Arc::new(Codel::new(*target)),
            Kind::Gradient => Arc::new(Gradient::new()),
            Kind::Own(make) => make(),
        }
    }

    /// Returns what is wrong, if a value is out of range: what must be.
    pub(crate) fn expected(&self) -> Option<&'static str> {
        let targets = Duration::from_micros(10)..=Duration::from_secs(60);
        match self.kind {
            Kind::Static(0) => Some("static:N with an N of at least 1"),
            Kind::Codel(target) if !targets.contains(&target) => Some("codel:TIME with a TIME from 10us to 60s"),
            _ if !(1..=MAX_RETRY_AFTER).contains(&self.max_retry_after) => {
                Some("with a max Retry-After from 1 to 3600 s")
            }
            _ => None,
        }
    }
}

/// The form of the command line: `static:N`, `codel:TIME`, `gradient`; `own` for a policy of one's own.
impl fmt::Display for Overload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Static(requests) => write!(f, "static:{requests}"),
            Kind::Codel(target) => {
                let nanos = target.as_nanos();
                match [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")]
                    .iter()
                    .find(|(unit, _)| nanos % unit == 0)
                {
                    Some((unit, name)) if nanos > 0 => write!(f, "codel:{}{name}", nanos / unit),
                    _ => write!(f, "codel:{nanos}ns"),
                }
            }
            Kind::Gradient => f.write_str("gradient"),
            Kind::Own(_) => f.write_str("own"),
        }
    }
}

impl fmt::Debug for Overload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { open_path, max_retry_after, .. } = self;
        let mut debug = f.debug_struct("Overload");
        debug.field("policy", &format_args!("{self}"));
        debug.field("open_path", open_path).field("max_retry_after", max_retry_after).finish()
    }
}

/// Two policies of one's own are equal if one is a clone of the other.
impl PartialEq for Overload {
    fn eq(&self, other: &Self) -> bool {
        let is_equal = match (&self.kind, &other.kind) {
            (Kind::Static(left), Kind::Static(right)) => left == right,
            (Kind::Codel(left), Kind::Codel(right)) => left == right,
            (Kind::Gradient, Kind::Gradient) => true,
            (Kind::Own(left), Kind::Own(right)) => Arc::ptr_eq(left, right),
            _ => false,
        };
        is_equal && self.open_path == other.open_path && self.max_retry_after == other.max_retry_after
    }
}

impl Eq for Overload {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_shown_as_it_is_written() {
        for (overload, text) in [
            (Overload::static_limit(8), "static:8"),
            (Overload::codel(Duration::from_millis(5)), "codel:5ms"),
            (Overload::codel(Duration::from_micros(2_500)), "codel:2500us"),
            (Overload::codel(Duration::from_secs(60)), "codel:60s"),
            (Overload::codel(Duration::from_nanos(10_001)), "codel:10001ns"),
            (Overload::gradient(), "gradient"),
            (Overload::own(Gradient::new), "own"),
        ] {
            assert_eq!(overload.to_string(), text);
            assert_eq!((overload.expected(), overload == overload.clone()), (None, true), "{text}");
        }
        assert_ne!(Overload::static_limit(8), Overload::static_limit(9));
        assert_ne!(Overload::gradient(), Overload::gradient().open_path("/readyz"));
        assert_ne!(Overload::own(Gradient::new), Overload::own(Gradient::new));
    }

    #[test]
    fn what_is_out_of_range_is_refused() {
        for overload in [
            Overload::static_limit(0),
            Overload::codel(Duration::ZERO),
            Overload::codel(Duration::from_secs(61)),
            Overload::gradient().max_retry_after(0),
            Overload::gradient().max_retry_after(MAX_RETRY_AFTER + 1),
        ] {
            assert!(overload.expected().is_some(), "{overload:?}");
        }
    }

    #[test]
    fn writes_have_nine_tenths_and_at_least_one() {
        let shares = [1, 2, 9, 10, 11, 100].map(|limit| (share(limit, true), share(limit, false)));
        assert_eq!(shares, [(1, 1), (1, 2), (8, 9), (9, 10), (9, 11), (90, 100)]);
    }
}
