//! The mode `search`: the capacity, which is the max rate of arrivals at which the p99 meets a goal.
//!
//! Each round starts every server anew. A bisection over the logarithm of the rate finds the capacity. A rate is met if the
//! p99 from the intended start is at most the goal, and the requests that are due are sent. A rate is missed only if two loads
//! miss it. After the search the lowest missed rate is tried again, and the search goes on above it if it is met now. So a
//! stall of the machine does not decide, even if it lasts for some loads.
//!
//! The search is between `MIN_RATE_SHARE` and the whole throughput of the null server, which is measured once for each
//! workload.
//!
//! Invariant: every answer is checked. Cost: for each contestant, cell and round `STEPS` and three more rates, each with one
//! load or two; after a stall up to `MAX_RATES` and the two ends of the range.

use std::time::Duration;

use polyserve_load::{CpuSource, Pace, Report as LoadReport, RunLength};
use serde::{Deserialize, Serialize};

use super::limit::{NullServer, RAMP};
use super::requests::{self, CellPlan, RequestSettings};
use super::{ReadKeys, Turns, check_goal, check_times};
use crate::Misuse;
use crate::bench::definition::{Definition, optional_time, time};
use crate::bench::experiment::{Key, Sample};
use crate::bench::figures::{self, NamedFigures};
use crate::bench::sweep::{CellValue, SweepAxis, SweepCell};
use crate::experiment::{Absence, Notebook};
use crate::output::is_client_late;
use crate::turn::{Contestant, Instrument, MAX_BEHIND, microseconds};

/// The steps of a bisection: each halves the interval, which ends at 4 % of a rate.
pub(crate) const STEPS: u32 = 7;
/// The max number of rates of a search between its ends, if stalls of the machine lead it astray.
pub(crate) const MAX_RATES: u32 = 3 * STEPS;
/// The lowest rate of a search, as a share of the null server's throughput.
pub(crate) const MIN_RATE_SHARE: f64 = 0.01;
/// The min number of requests of a load: the p99 of fewer is nearly their maximum.
const MIN_REQUESTS: f64 = 1000.0;
/// The max time to which a load is extended for these requests, in seconds: at fewer than a hundred a second it has fewer.
const MAX_EXTENSION: f64 = 10.0;
/// The max number of times that a missed load is repeated because the client was late.
const LATE_LOADS: usize = 2;

/// A search finds the rate itself.
pub(super) const READS: ReadKeys = ReadKeys {
    has_sizes: true,
    axes: &[
        SweepAxis::Connections,
        SweepAxis::Keys,
        SweepAxis::Workers,
        SweepAxis::Payload,
        SweepAxis::Pipeline,
        SweepAxis::ServerCores,
        SweepAxis::Dist,
        SweepAxis::GoalUs,
    ],
    ..requests::READS
};

/// The max rate of arrivals at which the p99 meets a goal.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SearchMode {
    /// The time of a load. It is extended if a thousand requests take longer, up to 10 s.
    #[serde(deserialize_with = "time")]
    pub slice: Duration,
    /// The goal: the max p99, unless the sweep has it.
    #[serde(deserialize_with = "optional_time")]
    pub p99: Option<Duration>,
}

impl Default for SearchMode {
    fn default() -> Self {
        Self { slice: Duration::from_millis(200), p99: None }
    }
}

impl SearchMode {
    /// The time of a load.
    pub(crate) fn requests(&self) -> RequestSettings {
        RequestSettings {
            warm_up: self.slice,
            slice: self.slice,
            latency_slice: self.slice,
            rate: None,
            latency: false,
        }
    }

    pub(super) fn check(&self, definition: &Definition) -> Result<(), Misuse> {
        if self.p99.is_none() && !definition.sweep.contains_key(&SweepAxis::GoalUs) {
            return Err(
                definition.misuse("kind", "a search needs the goal `p99` in the mode or `goal_us` in the sweep")
            );
        }
        check_goal(definition, self.p99)?;
        check_times(definition, [("slice", self.slice)])
    }
}

/// How a search ended. Its number is the figure `figures::SEARCH_END`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchEnd {
    /// The lowest rate was not met: the capacity is below it.
    Below = -1,
    /// Between two rates: the capacity is the lower one.
    Between = 0,
    /// The throughput of the null server was met: the capacity is at least that.
    Above = 1,
}

impl SearchEnd {
    /// The end of most searches, from the median of [`figures::SEARCH_END`].
    pub(crate) fn of(median: f64) -> Self {
        match median {
            below if below <= -1.0 => Self::Below,
            above if above >= 1.0 => Self::Above,
            _ => Self::Between,
        }
    }
}

/// The figures at a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Probe {
    /// The rate, in requests a second.
    per_s: f64,
    end: SearchEnd,
    p99_us: f64,
    /// The CPU time of the server for each request, in microseconds.
    cpu_us: Option<f64>,
    client_busy: f64,
    lateness_p99_us: f64,
}

/// The searches at all cells.
#[derive(Debug)]
pub struct SearchTurns {
    cells: Vec<CellPlan>,
    mode: SearchMode,
    null_server: NullServer,
}

impl SearchTurns {
    /// Searches at these cells. `limit` is the null server.
    pub fn new(cells: Vec<CellPlan>, mode: SearchMode, limit: Contestant) -> Self {
        Self { cells, mode, null_server: NullServer::new(limit) }
    }

    /// The goal at a cell, in microseconds.
    fn goal_us(&self, cell: &SweepCell) -> f64 {
        let of_cell = cell.get(&SweepAxis::GoalUs).and_then(CellValue::number).map(|goal| goal as f64);
        of_cell.or(self.mode.p99.map(|p99| p99.as_secs_f64() * 1e6)).unwrap_or_default()
    }
}

impl Turns for SearchTurns {
    fn prepare(&mut self, notebook: &mut Notebook<'_>) -> anyhow::Result<()> {
        requests::check_cells(&self.cells, notebook)?;
        self.null_server.measure(&self.cells, notebook)
    }

    fn measure_one(&mut self, key: &Key, _: &mut Notebook<'_>) -> Result<Sample, Absence> {
        let Key { cell, round, .. } = key;
        let (CellPlan { instrument, .. }, contestant) = requests::planned(&self.cells, key)?;
        let limit_per_s = self.null_server.at(cell)?;
        let found = search(instrument, contestant, self.goal_us(cell), *round, limit_per_s)?;
        Ok(Sample { role: contestant.role, figures: found.figures(limit_per_s) })
    }
}

impl Probe {
    fn figures(&self, limit_per_s: f64) -> NamedFigures {
        let all = [
            (figures::CAPACITY_PER_S, Some(self.per_s)),
            (figures::LIMIT_SHARE, Some(self.per_s / limit_per_s)),
            (figures::SEARCH_END, Some(f64::from(self.end as i8))),
            (figures::P99_US, Some(self.p99_us)),
            (figures::CPU_US_AT_RATE, self.cpu_us),
            (figures::CLIENT_BUSY, Some(self.client_busy)),
            (figures::LATENESS_P99_US, Some(self.lateness_p99_us)),
        ];
        figures::known(all).collect()
    }
}

/// Starts a contestant, and searches its capacity for a goal. The load that verifies it warms it up.
fn search(
    instrument: &Instrument,
    contestant: &Contestant,
    goal_us: f64,
    round: usize,
    limit_per_s: f64,
) -> Result<Probe, Absence> {
    let mut session = instrument.start(contestant, round)?;
    let pid = session.process.pid();
    let mut probe_once = |rate: f64| -> Result<(bool, Probe), Absence> {
        let paced = session.next_load().with(|load| {
            (load.pace, load.warm_up, load.cpu) = (Pace::Rate(rate), RAMP, CpuSource::Process(pid));
            load.length = RunLength::Time(
                instrument.slice.max(Duration::from_secs_f64((MIN_REQUESTS / rate).min(MAX_EXTENSION))),
            );
        });
        let report = session.run(&paced)?;
        Ok(meets_goal(&report, rate, goal_us, instrument.behind_share(&report)))
    };
    // A load that was missed by a late client is repeated: the client was the reason, at least in part.
    let probe = |rate: f64| {
        let mut probed = probe_once(rate)?;
        for _ in 0..LATE_LOADS {
            let (is_met, Probe { lateness_p99_us, .. }) = probed;
            if is_met || !is_client_late(lateness_p99_us, goal_us) {
                break;
            }
            probed = probe_once(rate)?;
        }
        Ok(probed)
    };
    let found = bisect([limit_per_s * MIN_RATE_SHARE, limit_per_s], probe)?;
    instrument.end(session)?;
    Ok(found)
}

/// Whether a load at `rate` met the goal, and its figures. `behind_share` of the requests were due and not sent in time.
fn meets_goal(report: &LoadReport, rate: f64, goal_us: f64, behind_share: f64) -> (bool, Probe) {
    let p99_us = microseconds(&report.latency, 0.99);
    let cpu_us = report.server_cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / report.answered as f64);
    let probe = Probe {
        per_s: rate,
        end: SearchEnd::Between,
        p99_us,
        cpu_us,
        client_busy: report.client_busy,
        lateness_p99_us: report.lateness.as_ref().map_or(0.0, |late| microseconds(late, 0.99)),
    };
    (behind_share <= MAX_BEHIND && p99_us <= goal_us, probe)
}

/// Bisects between `lowest` and `highest`. `probe` returns a rate's figures, and whether the rate was met. A rate that was not
/// met is probed once more, and again when the search has come down to it.
fn bisect(
    [lowest, highest]: [f64; 2],
    mut probe: impl FnMut(f64) -> Result<(bool, Probe), Absence>,
) -> Result<Probe, Absence> {
    let mut probe = |rate: f64| match probe(rate)? {
        (false, _) => probe(rate),
        met => Ok(met),
    };
    let (is_met, mut best) = match probe(lowest)? {
        (false, _) => probe(lowest)?,
        met => met,
    };
    if !is_met {
        return Ok(Probe { end: SearchEnd::Below, ..best });
    }
    let (is_met, top) = probe(highest)?;
    if is_met {
        return Ok(Probe { end: SearchEnd::Above, ..top });
    }
    // Half a step more than the last of an undisturbed search, so that rounding does not count.
    let resolution = (highest / lowest).powf(1.5 / f64::from(1_u32 << STEPS));
    let (mut low, mut missed) = (lowest, vec![highest]);
    for _ in 0..MAX_RATES {
        let Some(high) = missed.last().copied() else {
            return Ok(Probe { end: SearchEnd::Above, ..best });
        };
        let is_found = high / low <= resolution;
        let rate = if is_found { high } else { (low * high).sqrt() };
        match probe(rate)? {
            (true, sample) => {
                (low, best) = (rate, sample);
                if is_found {
                    missed.pop();
                }
            }
            (false, _) if is_found => break,
            (false, _) => missed.push(rate),
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(per_s: f64) -> Probe {
        let end = SearchEnd::Between;
        Probe { per_s, end, p99_us: 900.0, cpu_us: Some(6.0), client_busy: 0.5, lateness_p99_us: 10.0 }
    }

    #[test]
    fn a_bisection_finds_the_highest_rate_that_is_met() {
        for capacity in [150.0, 1234.5, 9999.0] {
            let (mut met, mut missed) = (0, 0);
            let found = bisect([100.0, 10_000.0], |rate| {
                *if rate <= capacity { &mut met } else { &mut missed } += 1;
                Ok((rate <= capacity, probe(rate)))
            });
            let found = found.unwrap();
            assert!(found.per_s <= capacity && found.per_s > capacity * 0.96, "{capacity}: {found:?}");
            assert_eq!((found.end, met + missed / 2), (SearchEnd::Between, STEPS + 3));
            assert_eq!(missed % 2, 0, "each miss is confirmed");
        }
        let bounded = |capacity: f64| bisect([100.0, 10_000.0], |rate| Ok((rate <= capacity, probe(rate)))).unwrap();
        assert_eq!((bounded(50.0).end, bounded(50.0).per_s), (SearchEnd::Below, 100.0));
        assert_eq!((bounded(20_000.0).end, bounded(20_000.0).per_s), (SearchEnd::Above, 10_000.0));
        let failed = bisect([1.0, 2.0], |_| Err(Absence::failed("why"))).unwrap_err();
        assert_eq!(failed.why, "why");
    }

    #[test]
    fn a_stall_of_the_machine_decides_nothing() {
        let found = |stalled: std::ops::Range<u32>| {
            let mut probes = 0;
            let found = bisect([100.0, 10_000.0], |rate| {
                probes += 1;
                Ok((rate <= 1234.5 && !stalled.contains(&probes), probe(rate)))
            });
            assert!(probes <= 2 * MAX_RATES + 6, "{probes}");
            found.unwrap()
        };
        let undisturbed = found(0..0);
        for stalled in 1..=STEPS + 2 {
            assert_eq!(found(stalled..stalled + 1), undisturbed, "the load {stalled} stalls");
        }
        // A stall of two or three loads misses a rate that the server keeps. The search returns to it.
        for (stalled, loads) in (1..=2 * STEPS).flat_map(|stalled| [(stalled, 2), (stalled, 3)]) {
            let Probe { per_s, end, .. } = found(stalled..stalled + loads);
            assert!(end == SearchEnd::Between && (per_s / undisturbed.per_s - 1.0).abs() < 0.04, "{stalled}: {per_s}");
        }
        assert_eq!(found(1..9).end, SearchEnd::Below, "the search ends");
    }
}
