//! The reasons why a cost does not count compared with another cost.
//!
//! A server that lets requests pile up needs less CPU time for each. So both servers must have been busy, and the cheaper
//! server must not have less throughput, nor later answers at a fixed rate. The whole interval of its relative throughput must
//! be high enough, and the whole interval of its relative p99 low enough. If only a part of the p99's interval is too high, it
//! is undecided whether the cost counts.
//!
//! Cost: a few comparisons; the estimates are already there.

use super::row::{BUSY, RankingRow, Side, Void};
use crate::statistics::{Estimate, Interval};

/// The min start of the interval of the cheaper server's relative throughput. Below it, a cost does not count.
pub(crate) const MIN_THROUGHPUT: f64 = 0.95;
/// The max end of the interval of the cheaper server's relative p99. Above it, a cost does not count.
pub(crate) const MAX_LATENCY: f64 = 1.2;

/// The ratios of two contestants, over the rounds that both have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    /// Of requests per second.
    pub(super) throughput: Option<Estimate>,
    /// Of requests per second of the server's CPU time.
    pub(super) cost: Option<Estimate>,
    /// Of the p99 at the fixed rate.
    pub(super) p99: Option<Estimate>,
}

impl Pair {
    /// Returns why the cost of `own` does not count compared with the cost of `other`; `None` if it counts or is unknown.
    pub(super) fn void(&self, own: &RankingRow, other: &RankingRow) -> Option<Void> {
        let cost = self.cost?;
        let sides = [(Side::Own, own), (Side::Other, other)];
        let idle = sides.iter().find(|(_, row)| row.server_busy.is_none_or(|busy| busy < BUSY));
        if let Some((side, RankingRow { server_busy: busy, client_busy, .. })) = idle {
            let (side, busy) = (*side, *busy);
            let saturated = busy.is_some() && client_busy.is_some_and(|busy| busy >= BUSY);
            return Some(if saturated { Void::ClientSaturated { side, busy } } else { Void::Idle { side, busy } });
        }
        let side = if cost.ratio < 1.0 { Side::Other } else { Side::Own };
        let low = self.throughput.map_or(0.0, |estimate| of_the_cheaper(side, &estimate).1.low);
        if low < MIN_THROUGHPUT {
            return Some(Void::Throughput { side, low });
        }
        if own.latency.is_none() || other.latency.is_none() {
            return Some(Void::NoLatency);
        }
        let overloaded = |row: &RankingRow| row.latency.is_some_and(|latency| latency.overloaded);
        if let Some((side, _)) = sides.iter().find(|(_, row)| overloaded(row)) {
            return Some(Void::Overloaded { side: *side });
        }
        let Some(p99) = &self.p99 else { return Some(Void::NoLatency) };
        let (ratio, interval) = of_the_cheaper(side, p99);
        match interval {
            Interval { low, .. } if low > MAX_LATENCY => Some(Void::Latency { side, ratio }),
            Interval { high, .. } if high > MAX_LATENCY => Some(Void::LatencyUndecided { side, high }),
            _ => None,
        }
    }
}

/// Converts the ratio of own to other into the ratio of the cheaper to the dearer server.
fn of_the_cheaper(side: Side, Estimate { ratio, interval, .. }: &Estimate) -> (f64, Interval) {
    match side {
        Side::Own => (*ratio, *interval),
        Side::Other => (ratio.recip(), Interval { low: interval.high.recip(), high: interval.low.recip() }),
    }
}
