//! The rate of the latencies: as given, or from the throughputs of the contestants.
//!
//! Cost: a pass over the throughputs.

use polyserve::Shape;
use polyserve_load::Arrivals;
use serde::{Deserialize, Serialize};

use super::contestant::Contestant;

/// The latency is measured at this share of the slowest contestant's throughput.
const RATE_SHARE: f64 = 0.5;
/// A contestant with less than this share of the best throughput does not determine the rate.
const MIN_OF_BEST: f64 = 0.25;
/// The rate of the latencies: as given, or half of a contestant's throughput.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Requests per second.
    pub requests_per_s: f64,
    /// The contestant; `None` for a given rate.
    pub half_of: Option<String>,
    /// The spacing of the requests.
    pub arrivals: Arrivals,
}

impl Rate {
    /// The origin of the rate: `as given`, or `half of null_epoll's throughput`.
    pub(crate) fn origin(&self) -> String {
        self.half_of.as_ref().map_or_else(|| String::from("as given"), |name| format!("half of {name}'s throughput"))
    }
}

/// Returns the rate at which all contestants but the slowest few have time left. `throughputs` are those of `contestants`.
/// `None` if nothing was answered.
pub(crate) fn half_of_slowest(
    contestants: &[&Contestant],
    throughputs: &[Option<f64>],
    arrivals: Arrivals,
) -> Option<Rate> {
    let ranked = contestants.iter().zip(throughputs).filter(|(one, _)| one.role.is_ranked());
    let measured =
        ranked.filter_map(|(one, throughput)| Some((*one, (*throughput)?))).filter(|(_, per_s)| *per_s > 0.0);
    let measured: Vec<(&Contestant, f64)> = measured.collect();
    // The latency of a server that cannot serve all connections at once is not shown.
    let has_latency = |one: &Contestant| one.bound.is_none() && one.shape != Some(Shape::One);
    let only_bounded = !measured.iter().any(|(one, _)| has_latency(one));
    let counted = || measured.iter().filter(|(one, _)| only_bounded || has_latency(one));
    let best = counted().map(|(_, per_s)| *per_s).fold(0.0, f64::max);
    let fast_enough = counted().filter(|(_, per_s)| *per_s >= best * MIN_OF_BEST);
    let (slowest, per_s) = fast_enough.min_by(|(_, a), (_, b)| a.total_cmp(b))?;
    Some(Rate { requests_per_s: per_s * RATE_SHARE, half_of: Some(slowest.name.clone()), arrivals })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use crate::turn::Role;

    /// Regression test: the rate was half of a null server's throughput, at which every server of a slow service was overloaded.
    #[test]
    fn the_rate_is_for_the_slowest_that_is_not_far_behind() {
        let contestant = |name, role| Contestant::new(name, role, fixtures::launch());
        let mut all = vec![
            contestant("base", Role::Baseline),
            contestant("base again", Role::Same),
            contestant("slow", Role::Ranked),
            contestant("far behind", Role::Ranked),
            contestant("broken", Role::Ranked),
            contestant("null", Role::Limit),
        ];
        let throughputs = [Some(1000.0), Some(100.0), Some(260.0), Some(240.0), None, Some(9000.0)];
        let rate = |all: &[Contestant], throughputs: &[Option<f64>]| {
            let all: Vec<&Contestant> = all.iter().collect();
            half_of_slowest(&all, throughputs, Arrivals::Poisson)
                .map(|rate| (rate.half_of.unwrap(), rate.requests_per_s))
        };
        assert_eq!(rate(&all, &throughputs), Some(("slow".into(), 130.0)));
        all[2].bound = Some("10s x 4".into());
        assert_eq!(rate(&all, &throughputs), Some(("base".into(), 500.0)), "a bound replaces its latency");
        all[0].shape = Some(Shape::One);
        assert_eq!(rate(&all, &throughputs), Some(("far behind".into(), 120.0)));
        assert_eq!(rate(&all, &[Some(0.0), None, None, None, None, Some(9000.0)]), None);
    }
}
