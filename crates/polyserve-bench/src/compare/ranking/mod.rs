//! The result of a comparison: a row for every contestant, with a verdict on its throughput and, if it counts, one on its cost.
//!
//! A cost (requests per second of the server's CPU time) counts only if it is not low because the server waited: see
//! [`void`](Void). A cost that does not count is kept, with the reason. A row also has the contestant's shares of each limit's
//! throughput and cost.
//!
//! A server is busy if it used all the time that other processes left of its cores: on a shared machine, a server can be
//! busy with half a core.
//!
//! Invariant: a ratio is of two figures of the same round. Cost: a few estimates for each row.

use crate::report::figures::count;
use crate::report::svg::Chart;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::lines::{BOUND, BoundFact, Key, OTHERS, OtherProcesses};
use super::{Comparison, calibration};
use crate::charts;
use crate::experiment::{Failed, Records};
use crate::statistics::{Compared, Estimate, Interval, median_of, tie_band};
use crate::turn::{CONTRACT, Contract, Latency, MAX_BEHIND, Measurement, Rate, Role};

mod intervals;
mod row;
mod standing;
mod void;

pub use intervals::Intervals;
pub(super) use intervals::is_sure;
pub use row::{BUSY, Latencies, RankingRow, Share, Side, Void, is_server_full};
pub(crate) use standing::{inverted, symmetric_band};
use void::Pair;
pub use void::{MAX_LATENCY, MIN_THROUGHPUT};

/// The busy side of a comparison in which costs count.
pub(crate) const SERVER_FULL: &str = "server";
/// The field of the description of a run that may end after any round.
pub(crate) const STOPS_WHEN_SURE: &str = "stops_when_sure";
/// The field of the description with the goal for the p99, in microseconds.
pub(crate) const GOAL: &str = "goal_p99_us";

/// The result of a comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ranking {
    /// The baseline's name.
    pub baseline: String,
    /// The number of rounds with a sample.
    pub rounds: usize,
    /// The workload in words.
    pub asked: String,
    /// The rate of the latencies.
    pub rate: Option<Rate>,
    /// Ratios within are ties.
    pub bands: Bands,
    /// The goal for the p99, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal_us: Option<f64>,
    /// Whether a contestant meets the goal; `None` without a goal, and if the best p99 is too near to the goal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal_met: Option<bool>,
    /// The ranked contestants, the best first; then the baseline against itself, then the limits.
    pub rows: Vec<RankingRow>,
    /// The rules of the contract that foreign contestants keep.
    pub contracts: Vec<Contract>,
    /// The contestants without a row.
    pub failed: Vec<Failed<Key>>,
    /// The share of the cores' time that other processes used, if it is known.
    pub others: Option<f64>,
    /// Whether the run was ended early.
    pub interrupted: bool,
    /// Whether the run could end after any round.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stops_when_sure: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl Ranking {
    /// The charts: throughput and cost relative to the baseline, and the latencies.
    pub(super) fn charts(&self) -> Vec<(String, Chart)> {
        let rows = || self.rows.iter();
        let ratios = |figure: &str, band: Option<Interval>, of: fn(&RankingRow) -> Option<Compared>| {
            let rows = rows().filter_map(|row| Some((row.name.clone(), of(row)?.estimate)));
            let axis = format!("{figure}, {} = 1; grey: no difference", self.baseline);
            charts::ratios(format!("{figure} against the baseline"), axis, band, rows)
        };
        let rate = self.rate.as_ref().map_or(0.0, |rate| rate.requests_per_s);
        let latencies = rows().filter(|row| row.bound.is_none());
        let latencies = latencies.filter_map(|row| Some((row.name.as_str(), row.latency.as_ref()?)));
        charts::drawn([
            ("throughput", ratios("Requests a second", self.bands.throughput, |row| row.throughput)),
            ("cost", ratios("Requests per second of CPU time", self.bands.cost, |row| row.cost)),
            ("latencies", charts::latencies(format!("Latency (us) at {} requests a second", count(rate)), latencies)),
        ])
    }
}

/// The bands of ties; none without the baseline's second entry.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Bands {
    /// Of requests per second.
    pub throughput: Option<Interval>,
    /// Of requests per second of the server's CPU time.
    pub cost: Option<Interval>,
}

/// A contestant with its figures.
#[derive(Clone, Debug)]
pub struct RankingEntry<'a> {
    /// The contestant's name.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// The bound that replaces its latency.
    pub bound: Option<String>,
    /// Its figures by round; `None` for a round without a sample.
    pub rounds: Vec<Option<&'a Measurement>>,
}

impl RankingEntry<'_> {
    /// Returns the medians of the rounds' own latencies: a round in which another process took the machine counts as one. In
    /// the latencies of all rounds together, the requests of that round alone may determine the p99.
    pub fn usual_latencies(&self) -> Option<Latencies> {
        let all: Vec<&Measurement> = self.rounds.iter().flatten().copied().collect();
        let of_rounds =
            |figure: fn(&Latency) -> f64| median_of(all.iter().filter_map(|one| one.latency.as_ref()).map(figure));
        Some(Latencies {
            p50_us: of_rounds(|latency| latency.unless_empty(latency.p50_us))?,
            p99_us: of_rounds(|latency| latency.unless_empty(latency.p99_us))?,
            p999_us: of_rounds(|latency| latency.unless_empty(latency.p999_us))?,
            lateness_p99_us: of_rounds(|latency| latency.lateness_p99_us)?,
            overloaded: is_overloaded(&all),
        })
    }
}

/// The contestants of the description and their roles.
fn planned(records: &Records<Comparison>) -> anyhow::Result<Vec<(String, Role)>> {
    #[derive(Deserialize)]
    struct PlannedContestant {
        name: String,
        role: Role,
    }
    let planned = serde_json::from_value(records.header.plan["contestants"].clone());
    let planned: Vec<PlannedContestant> = planned.context("the description has no contestants")?;
    Ok(planned.into_iter().map(|PlannedContestant { name, role }| (name, role)).collect())
}

/// The contestants that have a row: those with a sample and without an absence.
///
/// # Errors
///
/// Returns an error if the record is not of a comparison.
pub fn entries(records: &Records<Comparison>) -> anyhow::Result<Vec<RankingEntry<'_>>> {
    let bounds: Vec<BoundFact> = records.facts(BOUND)?;
    let rounds = records.samples().map(|(key, _)| key.round).max().unwrap_or(0);
    let entry = |(name, role): (String, Role)| {
        let sample = |round| records.sample(&Key::new(round, &name)).map(|sample| &sample.measurement);
        let rounds: Vec<_> = (1..=rounds).map(sample).collect();
        let bound = bounds.iter().find(|known| known.name == name).map(|known| known.bound.clone());
        RankingEntry { name, role, bound, rounds }
    };
    let is_ranked = |entry: &RankingEntry<'_>| {
        entry.rounds.iter().any(Option::is_some) && records.absence(&Key::new(1, &entry.name)).is_none()
    };
    Ok(planned(records)?.into_iter().map(entry).filter(is_ranked).collect())
}

impl Ranking {
    /// Computes the ranking of the records.
    ///
    /// # Errors
    ///
    /// Returns an error if the record is not of a comparison.
    pub fn of(records: &Records<Comparison>) -> anyhow::Result<Self> {
        let plan = &records.header.plan;
        let contestants = planned(records)?;
        // Connections of one request each do not make the memory grow.
        let connections = plan["connections"].as_u64().filter(|_| !plan["pipeline"].is_null());
        let connections = connections.and_then(|connections| usize::try_from(connections).ok());
        let baseline = contestants.iter().find(|(_, role)| *role == Role::Baseline);
        let place = |name: &str| contestants.iter().position(|(known, _)| known == name).unwrap_or(contestants.len());
        let mut failed: Vec<Failed<Key>> = records.absences().map(Failed::new).collect();
        failed.sort_by_key(|failed| place(&failed.key.name));
        let others = records.facts::<OtherProcesses>(OTHERS)?.pop();
        let seed = records.header.environment.seed;
        let stops_when_sure = plan[STOPS_WHEN_SURE] == true;
        let intervals = if stops_when_sure { Intervals::AnyRounds } else { Intervals::FixedRounds { seed } };
        Ok(Self {
            baseline: baseline.map_or_else(String::new, |(name, _)| name.clone()),
            asked: plan["asked"].as_str().unwrap_or_default().to_owned(),
            rate: calibration::rate(records, &contestants)?,
            contracts: records.facts(CONTRACT)?,
            failed,
            others: others.map(|others| others.share),
            interrupted: records.is_interrupted(),
            stops_when_sure,
            ..Self::new(&entries(records)?, connections, intervals, plan[GOAL].as_f64())
        })
    }

    /// Ranks `entries`. `connections` is the number of connections of each, if they are kept. `goal_us` is the goal for the p99.
    pub fn new(
        entries: &[RankingEntry<'_>],
        connections: Option<usize>,
        intervals: Intervals,
        goal_us: Option<f64>,
    ) -> Self {
        let mut rows: Vec<RankingRow> = entries.iter().map(|entry| RankingRow::new(entry, connections)).collect();
        let index_of = |role: Role| entries.iter().position(|entry| entry.role == role);
        let ratios_to_limit = |candidate: usize, limit: usize| {
            let estimate = |figure| intervals.estimate(&ratios(&entries[candidate], &entries[limit], figure));
            Pair { throughput: estimate(throughput), cost: estimate(cost), p99: estimate(p99) }
        };
        let (baseline, second) = (index_of(Role::Baseline), index_of(Role::Same));
        let with_baseline = |candidate: usize, base: usize| {
            let second = second.map(|second| &entries[second]);
            let ratios = |figure| intervals.of_baseline(&entries[candidate], &entries[base], second, figure);
            let estimate = |figure| intervals.estimate(&ratios(figure));
            Pair { throughput: estimate(throughput), cost: estimate(cost), p99: estimate(p99) }
        };
        let same = baseline.zip(second).map(|(base, same)| with_baseline(same, base));
        let band = |same: Option<Estimate>| same.map(|same| intervals.band(&same));
        let bands = Bands {
            throughput: band(same.as_ref().and_then(|same| same.throughput)),
            cost: band(same.as_ref().and_then(|same| same.cost)),
        };
        let compared = |estimate: Option<Estimate>, band: Option<Interval>| {
            estimate.map(|estimate| Compared::of(estimate, &band.unwrap_or_else(|| tie_band(None))))
        };
        let plain_rows = rows.clone();
        for (candidate, row) in rows.iter_mut().enumerate() {
            if let Some(base) = baseline {
                let pair = with_baseline(candidate, base);
                row.throughput = compared(pair.throughput, bands.throughput);
                row.cost = compared(pair.cost, bands.cost);
                row.p99 = pair.p99;
                row.cost_void = pair.void(&plain_rows[candidate], &plain_rows[base]);
            }
            let limits = entries.iter().enumerate().filter(|(_, entry)| entry.role == Role::Limit);
            for (limit, RankingEntry { name, .. }) in limits.filter(|_| plain_rows[candidate].role != Role::Limit) {
                let pair = ratios_to_limit(candidate, limit);
                let cost_void = pair.void(&plain_rows[candidate], &plain_rows[limit]);
                let Pair { throughput, cost, .. } = pair;
                row.shares.push(Share { of: name.clone(), throughput, cost, cost_void });
            }
        }
        rows.sort_by(|a, b| table_part(a).cmp(&table_part(b)).then(b.ratio().total_cmp(&a.ratio())));
        let p99_band = band(same.as_ref().and_then(|same| same.p99));
        let mut ranking = Self {
            baseline: baseline.map_or_else(String::new, |base| entries[base].name.clone()),
            rounds: entries.iter().map(|entry| entry.rounds.len()).max().unwrap_or(0),
            asked: String::new(),
            rate: None,
            bands,
            goal_us,
            goal_met: None,
            rows,
            contracts: Vec::new(),
            failed: Vec::new(),
            others: None,
            interrupted: false,
            stops_when_sure: false,
        };
        ranking.place(entries, intervals, p99_band);
        ranking
    }
}

type Figure = fn(&Measurement) -> Option<f64>;

fn throughput(figures: &Measurement) -> Option<f64> {
    Some(figures.requests_per_s)
}

/// The requests per CPU second; 0 if CPU time was used without an answer.
fn cost(figures: &Measurement) -> Option<f64> {
    figures.requests_per_cpu_s.or_else(|| (figures.answered == 0 && figures.server_cpu_s.is_some()).then_some(0.0))
}

/// The p99; infinite without an answer.
pub(crate) fn p99(figures: &Measurement) -> Option<f64> {
    figures.latency.as_ref().map(|latency| latency.unless_empty(latency.p99_us))
}

/// Returns the ratios in the rounds that both have.
fn ratios(own: &RankingEntry<'_>, other: &RankingEntry<'_>, figure: Figure) -> Vec<f64> {
    let rounds = own.rounds.iter().zip(&other.rounds);
    rounds.filter_map(|(own, other)| Some(figure((*own)?)? / figure((*other)?)?)).collect()
}

/// Returns the part of the table that a row belongs to.
fn table_part(row: &RankingRow) -> u8 {
    match row.role {
        Role::Baseline | Role::Ranked | Role::Slowed(_) => 0,
        Role::Same => 1,
        Role::Limit => 2,
    }
}

/// Returns CPU time as a share of the sum of CPU time and idle time, over all measurements: the clock of idle times is too coarse
/// for one. Without idle times, returns the median of the shares of the cores' time.
fn busy(
    measurements: &[&Measurement],
    figures: impl Fn(&Measurement) -> (Option<f64>, Option<f64>, Option<f64>),
) -> Option<f64> {
    let (mut cpu, mut idle, mut shares) = (0.0, Some(0.0), Vec::new());
    for measurement in measurements {
        let (cpu_s, idle_s, share) = figures(measurement);
        cpu += cpu_s?;
        idle = idle.zip(idle_s).map(|(sum, idle_s)| sum + idle_s);
        shares.extend(share);
    }
    match idle {
        Some(idle) if cpu > 0.0 => Some(cpu / (cpu + idle)),
        _ => median_of(shares),
    }
}

impl RankingRow {
    fn new(entry: &RankingEntry<'_>, connections: Option<usize>) -> Self {
        let RankingEntry { name, role, bound, rounds } = entry;
        let all: Vec<&Measurement> = rounds.iter().flatten().copied().collect();
        let of_rounds =
            |figure: &dyn Fn(&Measurement) -> Option<f64>| median_of(all.iter().filter_map(|one| figure(one)));
        let server_busy = busy(&all, |one| (one.server_cpu_s, one.server_idle_s, one.server_busy));
        let client_busy = busy(&all, |one| (Some(one.client_cpu_s), one.client_idle_s, Some(one.client_busy)));
        Self {
            name: name.clone(),
            role: *role,
            rank: None,
            of_first: None,
            throughput: None,
            cost: None,
            cost_void: None,
            requests_per_s: of_rounds(&throughput).unwrap_or(0.0),
            requests_per_cpu_s: of_rounds(&cost),
            shares: Vec::new(),
            latency: entry.usual_latencies(),
            p99: None,
            p99_of_first: None,
            p99_interval: None,
            meets_goal: None,
            bound: bound.clone(),
            switches_per_request: of_rounds(&|one| one.switches_per_request),
            under_way: of_rounds(&|one| one.under_way),
            loaded_bytes: of_rounds(&|one| one.loaded_bytes.map(|bytes| bytes as f64)),
            bytes_per_connection: of_rounds(&|one| {
                let (before, loaded) = one.resident_bytes.zip(one.loaded_bytes)?;
                Some(loaded.saturating_sub(before) as f64 / connections? as f64)
            }),
            server_busy,
            client_busy,
            saturated: saturated(server_busy.unwrap_or(0.0), client_busy.unwrap_or(0.0)).to_owned(),
        }
    }

    /// Returns the throughput's ratio to the baseline; 0 if there is none.
    pub fn ratio(&self) -> f64 {
        self.throughput.map_or(0.0, |compared| compared.estimate.ratio)
    }
}

fn saturated(server: f64, client: f64) -> &'static str {
    match (server >= BUSY, client >= BUSY) {
        (true, true) => "both",
        (true, false) => SERVER_FULL,
        (false, true) => "client",
        (false, false) => "neither",
    }
}

/// Returns true if the rate was too high in most rounds.
fn is_overloaded(all: &[&Measurement]) -> bool {
    let latencies = || all.iter().filter_map(|one| one.latency.as_ref());
    let too_high = latencies().filter(|latency| latency.behind_share() > MAX_BEHIND);
    too_high.count() * 2 > latencies().count()
}

#[cfg(test)]
mod tests;
