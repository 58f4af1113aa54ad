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

use serde::{Deserialize, Serialize};

use super::experiment::{BenchPlan, Key};
use super::figures::{self, NamedFigures};
use super::mode::closed::ClosedMode;
use super::mode::requests::{BOUND, CellBound, CellRate, OTHERS, OtherProcesses, RATE};
use super::sweep::SweepCell;
use super::workload::BenchWorkload;
use crate::charts;
use crate::experiment::Records;
use crate::report::Summary;
use crate::report::figures::count;
use crate::report::svg::Chart;
use crate::statistics::{Compared, Estimate, Interval, median_of, tie_band};
use crate::turn::{CONTRACT, Contract, MAX_BEHIND, Rate, Role};

mod intervals;
mod row;
mod standing;
pub(crate) mod table;
mod void;

pub use intervals::Intervals;
pub(super) use intervals::is_sure;
pub(crate) use row::{BUSY, is_server_full};
pub use row::{Latencies, NotRanked, RankingRow, Share, Side, Void};
pub(in crate::bench) use standing::differ;
pub(crate) use void::{MAX_LATENCY, MIN_THROUGHPUT};

use void::Pair;

/// The result of a comparison.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal_us: Option<f64>,
    /// Whether a contestant meets the goal; `None` without a goal, and if the best p99 is too near to the goal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal_met: Option<bool>,
    /// The ranked contestants, the best first; then the baseline against itself, then the limits.
    pub rows: Vec<RankingRow>,
    /// The rules of the contract that foreign contestants keep.
    pub contracts: Vec<Contract>,
    /// The contestants without a row.
    pub failed: Vec<NotRanked>,
    /// The share of the cores' time that other processes used, if it is known.
    pub others: Option<f64>,
    /// Whether the run was ended early.
    pub interrupted: bool,
    /// Whether the run could end after any round.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stops_when_sure: bool,
}

impl Ranking {
    /// The answer, the tables and the charts.
    pub(crate) fn summary(&self) -> Summary {
        let (answer, tables) = (vec![self.answer()], table::tables(self));
        Summary { answer, tables, charts: self.charts(), ..Summary::default() }
    }

    /// The charts: throughput and cost relative to the baseline, and the latencies.
    fn charts(&self) -> Vec<(String, Chart)> {
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
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
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
    pub rounds: Vec<Option<&'a NamedFigures>>,
}

impl RankingEntry<'_> {
    /// Returns the medians of the rounds' own latencies: a round in which another process took the machine counts as one. In
    /// the latencies of all rounds together, the requests of that round alone may determine the p99.
    pub(crate) fn usual_latencies(&self) -> Option<Latencies> {
        let all: Vec<&NamedFigures> = self.rounds.iter().flatten().copied().collect();
        let of_rounds = |figure: Figure| median_of(all.iter().filter_map(|one| figure(one)));
        Some(Latencies {
            p50_us: of_rounds(|one| latency(one, figures::P50_US))?,
            p99_us: of_rounds(p99)?,
            p999_us: of_rounds(|one| latency(one, figures::P999_US))?,
            lateness_p99_us: of_rounds(|one| one.get(figures::LATENESS_P99_US).copied())?,
            overloaded: is_overloaded(&all),
        })
    }
}

/// The contestants of a cell that have a row: those with a sample and without an absence. They have the order of `contestants`.
///
/// # Errors
///
/// Returns an error if a fact of the record does not have its fields.
pub fn entries<'a>(
    records: &'a Records,
    contestants: &[String],
    cell: &SweepCell,
) -> anyhow::Result<Vec<RankingEntry<'a>>> {
    let bounds: Vec<CellBound> = records.facts(BOUND)?;
    let is_here = |key: &Key| key.cell == *cell;
    let rounds = records.samples().filter(|(key, _)| is_here(key)).map(|(key, _)| key.round).max().unwrap_or(0);
    let entry = |name: &String| {
        let key = |round| Key { contestant: name.clone(), cell: cell.clone(), round };
        let samples: Vec<_> = (1..=rounds).map(|round| records.sample(&key(round))).collect();
        let role = samples.iter().flatten().next()?.role;
        let bound = bounds.iter().find(|known| known.contestant == *name && known.cell == *cell);
        let is_ranked = records.absence(&key(1)).is_none();
        is_ranked.then(|| RankingEntry {
            name: name.clone(),
            role,
            bound: bound.map(|known| known.bound.clone()),
            rounds: samples.into_iter().map(|sample| sample.map(|sample| &sample.figures)).collect(),
        })
    };
    Ok(contestants.iter().filter_map(entry).collect())
}

impl Ranking {
    /// Computes the ranking of the records.
    ///
    /// # Errors
    ///
    /// Returns an error if the record is not of the mode `compare`.
    pub fn of(records: &Records) -> anyhow::Result<Self> {
        let plan: BenchPlan = serde_json::from_value(records.header.plan.clone())?;
        let mode: ClosedMode = plan.mode_settings()?;
        let BenchWorkload { connections, close, arrivals, .. } = plan.workload_settings()?;
        // Connections of one request each do not make the memory grow.
        let connections = (!close).then_some(connections);
        let place = |name: &str| plan.contestants.iter().position(|known| known == name);
        let place = |name: &str| place(name).unwrap_or(plan.contestants.len());
        let mut failed: Vec<NotRanked> = records.absences().map(NotRanked::new).collect();
        failed.sort_by_key(|failed| place(&failed.name));
        let seed = records.header.environment.seed;
        let given = mode.rate.map(|requests_per_s| Rate { requests_per_s, half_of: None, arrivals });
        let found = records.facts::<CellRate>(RATE)?.pop().map(|found| found.rate);
        Ok(Self {
            baseline: plan.baseline,
            asked: plan.workload,
            rate: given.or(found).filter(|_| mode.latency),
            contracts: records.facts(CONTRACT)?,
            failed,
            others: records.facts::<OtherProcesses>(OTHERS)?.pop().map(|others| others.share),
            interrupted: records.is_interrupted(),
            stops_when_sure: mode.stops_when_sure,
            ..Self::new(
                &entries(records, &plan.contestants, &SweepCell::new())?,
                connections,
                if mode.stops_when_sure { Intervals::AnyRounds } else { Intervals::FixedRounds { seed } },
                mode.p99.map(|goal| goal.as_secs_f64() * 1e6),
            )
        })
    }

    /// Ranks `entries`. `connections` is the number of connections of each, if they are kept. `goal_us` is the goal for the p99.
    pub(crate) fn new(
        entries: &[RankingEntry<'_>],
        connections: Option<usize>,
        intervals: Intervals,
        goal_us: Option<f64>,
    ) -> Self {
        let mut rows: Vec<RankingRow> = entries.iter().map(|entry| RankingRow::new(entry, connections)).collect();
        let index_of = |role: Role| entries.iter().position(|entry| entry.role == role);
        let ratios_to_limit = |candidate: usize, limit: usize| {
            let estimate = |figure: Figure| intervals.estimate(&ratios(&entries[candidate], &entries[limit], figure));
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
            bands,
            goal_us,
            rows,
            ..Self::default()
        };
        ranking.place(entries, intervals, p99_band);
        ranking
    }
}

type Figure = fn(&NamedFigures) -> Option<f64>;

fn throughput(own: &NamedFigures) -> Option<f64> {
    own.get(figures::REQUESTS_PER_S).copied()
}

/// The requests per CPU second; 0 if CPU time was used without an answer.
fn cost(own: &NamedFigures) -> Option<f64> {
    figures::value(own, figures::CPU_US).map(|cpu_us| 1e6 / cpu_us)
}

/// The p99; infinite without an answer.
pub(crate) fn p99(own: &NamedFigures) -> Option<f64> {
    latency(own, figures::P99_US)
}

/// A quantile of the latencies at the fixed rate; `None` without a rate.
fn latency(own: &NamedFigures, quantile: &str) -> Option<f64> {
    figures::value(own, quantile).filter(|_| own.contains_key(figures::RATE_PER_S))
}

/// Returns the ratios in the rounds that both have.
pub(super) fn ratios(
    own: &RankingEntry<'_>,
    other: &RankingEntry<'_>,
    figure: impl Fn(&NamedFigures) -> Option<f64>,
) -> Vec<f64> {
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

/// The figures of the server's CPU time, its cores' idle time, and the share of the cores' time.
const OF_SERVER: [&str; 3] = [figures::SERVER_CPU_S, figures::SERVER_IDLE_S, figures::SERVER_BUSY];
/// The same figures of the client.
const OF_CLIENT: [&str; 3] = [figures::CLIENT_CPU_S, figures::CLIENT_IDLE_S, figures::CLIENT_BUSY];

/// Returns CPU time as a share of the sum of CPU time and idle time, over all rounds: the clock of idle times is too coarse
/// for one. Without idle times, returns the median of the shares of the cores' time. `names` are the figures of one side.
fn busy(all: &[&NamedFigures], names: [&str; 3]) -> Option<f64> {
    let (mut cpu, mut idle, mut shares) = (0.0, Some(0.0), Vec::new());
    for own in all {
        let [cpu_s, idle_s, share] = names.map(|name| own.get(name).copied());
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
        let all: Vec<&NamedFigures> = rounds.iter().flatten().copied().collect();
        let of_rounds =
            |figure: &dyn Fn(&NamedFigures) -> Option<f64>| median_of(all.iter().filter_map(|one| figure(one)));
        let median = |name: &str| of_rounds(&|one| one.get(name).copied());
        let (server_busy, client_busy) = (busy(&all, OF_SERVER), busy(&all, OF_CLIENT));
        Self {
            name: name.clone(),
            role: *role,
            requests_per_s: of_rounds(&throughput).unwrap_or(0.0),
            requests_per_cpu_s: of_rounds(&cost),
            latency: entry.usual_latencies(),
            bound: bound.clone(),
            switches_per_request: median(figures::SWITCHES),
            under_way: median(figures::UNDER_WAY),
            loaded_bytes: median(figures::LOADED_MEMORY),
            bytes_per_connection: of_rounds(&|one| {
                let (before, loaded) = (one.get(figures::FILLED_MEMORY)?, one.get(figures::LOADED_MEMORY)?);
                Some((loaded - before).max(0.0) / connections? as f64)
            }),
            server_busy,
            client_busy,
            saturated: saturated(server_busy.unwrap_or(0.0), client_busy.unwrap_or(0.0)).to_owned(),
            ..Self::default()
        }
    }

    /// Returns the throughput's ratio to the baseline; 0 if there is none.
    pub(crate) fn ratio(&self) -> f64 {
        self.throughput.map_or(0.0, |compared| compared.estimate.ratio)
    }
}

fn saturated(server: f64, client: f64) -> &'static str {
    match (server >= BUSY, client >= BUSY) {
        (true, true) => "both",
        (true, false) => "server",
        (false, true) => "client",
        (false, false) => "neither",
    }
}

/// Returns true if the rate was too high in most rounds.
fn is_overloaded(all: &[&NamedFigures]) -> bool {
    let behind = || all.iter().filter_map(|one| one.get(figures::BEHIND));
    behind().filter(|behind| **behind > MAX_BEHIND).count() * 2 > behind().count()
}

#[cfg(test)]
mod tests;
