//! Why a cost does not count beside another's: nothing is won by waiting.
//!
//! A server that lets requests pile up pays less for each. So both servers' cores must have been busy, and whoever of the
//! two is cheaper must have no less throughput than the other, and no later answers at a fixed rate. Each condition is
//! held against the interval's end that favours the claim least: a throughput must be surely enough, a latency is too
//! much only where it is so surely.
//!
//! Cost: none to speak of; the estimates are made already.

use serde::{Deserialize, Serialize};

use super::{BUSY, Row};
use crate::statistics::{Estimate, Interval};

/// A cost counts only where the interval of the cheaper one's throughput beside the other's begins here or above.
pub const LEAST_THROUGHPUT: f64 = 0.95;
/// A cost does not count where the whole interval of the cheaper one's p99 beside the other's lies above.
pub const MOST_LATENCY: f64 = 1.2;

/// One of the two that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Whose row it is.
    Own,
    /// The baseline, or the limit.
    Other,
}

/// Why a cost does not count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Void {
    /// A server had time to spare, though the client had some too.
    Idle {
        /// Whose.
        side: Side,
        /// It was busy for this share of the time that it could have had, if that is known.
        busy: Option<f64>,
    },
    /// A server had time to spare, for the client had none: the cost includes the server's waking up.
    ClientSaturated {
        /// Whose.
        side: Side,
        /// The server was busy for this share of the time that it could have had, if that is known.
        busy: Option<f64>,
    },
    /// The cheaper one's throughput may be so little of the other's.
    Throughput {
        /// Who is cheaper.
        side: Side,
        /// The lower end of the ratio's interval.
        low: f64,
    },
    /// One of the two has no latency.
    NoLatency,
    /// The latency's rate is more than this one can do.
    Overloaded {
        /// Who.
        side: Side,
    },
    /// The cheaper one's p99 is surely too much of the other's.
    Latency {
        /// Who is cheaper.
        side: Side,
        /// The ratio.
        ratio: f64,
    },
}

/// One beside another: the ratios of the rounds that both have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    /// Of requests a second.
    pub(super) throughput: Option<Estimate>,
    /// Of requests for each second of the server's CPU time.
    pub(super) cost: Option<Estimate>,
    /// Of the p99 at the fixed rate.
    pub(super) p99: Option<Estimate>,
}

impl Pair {
    /// Why the cost of `own` does not count beside that of `other`, if it does not; `None` without a cost too.
    pub(super) fn void(&self, own: &Row, other: &Row) -> Option<Void> {
        let cost = self.cost?;
        let sides = [(Side::Own, own), (Side::Other, other)];
        let idle = sides.iter().find(|(_, row)| row.server_busy.is_none_or(|busy| busy < BUSY));
        if let Some((side, Row { server_busy: busy, client_busy, .. })) = idle {
            let (side, busy) = (*side, *busy);
            let saturated = busy.is_some() && client_busy.is_some_and(|busy| busy >= BUSY);
            return Some(if saturated { Void::ClientSaturated { side, busy } } else { Void::Idle { side, busy } });
        }
        let side = if cost.ratio < 1.0 { Side::Other } else { Side::Own };
        let low = self.throughput.map_or(0.0, |estimate| of_the_cheaper(side, &estimate).1.low);
        if low < LEAST_THROUGHPUT {
            return Some(Void::Throughput { side, low });
        }
        if own.latency.is_none() || other.latency.is_none() {
            return Some(Void::NoLatency);
        }
        let overloaded = |row: &Row| row.latency.is_some_and(|latency| latency.overloaded);
        if let Some((side, _)) = sides.iter().find(|(_, row)| overloaded(row)) {
            return Some(Void::Overloaded { side: *side });
        }
        let Some(p99) = &self.p99 else { return Some(Void::NoLatency) };
        let (ratio, interval) = of_the_cheaper(side, p99);
        (interval.low > MOST_LATENCY).then_some(Void::Latency { side, ratio })
    }
}

/// An estimate, own to other, as the cheaper one's ratio to the dearer one's. All ratios are above 0.
fn of_the_cheaper(side: Side, Estimate { ratio, interval, .. }: &Estimate) -> (f64, Interval) {
    match side {
        Side::Own => (*ratio, *interval),
        Side::Other => (ratio.recip(), Interval { low: interval.high.recip(), high: interval.low.recip() }),
    }
}
