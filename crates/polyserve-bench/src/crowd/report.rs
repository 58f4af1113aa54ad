//! The samples of a record, and the result.
//!
//! Invariant: a ratio is taken within a round. Cost: at most four estimates for each row.

use std::fmt;

use crate::report::svg::Chart;
use polyserve_load::{Failures, Report as Loaded};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::CrowdKind;
use super::connection_opener::CrowdCounts;
use crate::charts;
use crate::compare::ranking::BUSY;
use crate::compare::sample::microseconds;
use crate::experiment::{Experiment, Records, distinct};
use crate::machine::cores::Cores;
use crate::statistics::{Compared, Estimate, median_of, tie_band};

/// The name of the experiment.
pub const NAME: &str = "crowd";

/// A server and a kind of crowd.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The server's name.
    pub name: String,
    /// The kind of the crowd. Its field is not `kind`: every line of a record has a `kind`.
    #[serde(rename = "crowd_kind")]
    pub kind: CrowdKind,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.name, self.kind.name())
    }
}

/// The measurement of a server with a crowd.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The number of connections that the crowd was to have.
    pub crowd_of: usize,
    /// The figures.
    #[serde(flatten)]
    pub outcome: CrowdOutcome,
    /// Every slice with an idle crowd.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<Slice>,
}

/// The figures of a server with a crowd.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum CrowdOutcome {
    /// With an idle crowd.
    Idle(Box<Idle>),
    /// With a slow crowd.
    Slow(Box<Slow>),
    /// Not measured: the shape of the server bounds the time that a new connection waits.
    Bound {
        /// A time and a factor.
        bound: String,
    },
}

/// The result of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The good client's requests a second with a slow crowd.
    pub rate: f64,
    /// The good client's connections.
    pub connections: usize,
    /// The number of the server's cores.
    pub server_cores: usize,
    /// A row for each server and kind of crowd.
    pub rows: Vec<CrowdRow>,
    /// Whether it was ended early.
    pub interrupted: bool,
}

/// A server and a kind of crowd.
#[derive(Clone, Debug, Serialize)]
pub struct CrowdRow {
    /// The server's name.
    pub name: String,
    /// The kind of the crowd.
    pub kind: CrowdKind,
    /// The number of connections that the crowd was to have.
    pub crowd_of: usize,
    /// The figures, or why there are none.
    #[serde(flatten)]
    pub content: RowContent,
}

/// The figures of a row, or why there are none.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum RowContent {
    /// The figures.
    Sample(CrowdOutcome),
    /// No figures.
    Absence(NoFigures),
}

/// Why a row has no figures.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "outcome", rename = "failed")]
pub struct NoFigures {
    /// One sentence.
    pub why: String,
}

impl CrowdRow {
    /// Why the good client was not served with an idle crowd; `None` if it was.
    pub fn unserved(&self) -> Option<&str> {
        match &self.content {
            RowContent::Sample(CrowdOutcome::Idle(idle)) => idle.unserved.as_deref(),
            RowContent::Sample(CrowdOutcome::Slow(_) | CrowdOutcome::Bound { .. }) | RowContent::Absence(_) => None,
        }
    }

    /// The figures, if there are any.
    pub fn outcome(&self) -> Option<&CrowdOutcome> {
        match &self.content {
            RowContent::Sample(outcome) => Some(outcome),
            RowContent::Absence(_) => None,
        }
    }
}

impl Report {
    /// The result of these records: the rows in the order of the plan.
    pub fn of<E>(records: &Records<E>) -> Self
    where
        E: Experiment<Key = Key, Sample = Sample>,
    {
        let plan = &records.header.plan;
        let row = |key: &Key, crowd_of: usize, content: RowContent| {
            let Key { name, kind } = key.clone();
            CrowdRow { name, kind, crowd_of, content }
        };
        let samples = records.samples().map(|(key, sample)| {
            let content = RowContent::Sample(sample.outcome.clone());
            row(key, sample.crowd_of, content)
        });
        let absences = records.absences().filter(|(key, _)| records.sample(key).is_none()).map(|(key, absence)| {
            let crowd = list(&plan["crowds"]).iter().find(|crowd| crowd["kind"] == key.kind.name());
            let crowd_of = crowd.and_then(|crowd| crowd["connections"].as_u64()).unwrap_or_default();
            row(key, crowd_of as usize, RowContent::Absence(NoFigures { why: absence.why.clone() }))
        });
        let mut rows: Vec<CrowdRow> = samples.chain(absences).collect();
        rows.sort_by_cached_key(|row| {
            let crowd = list(&plan["crowds"]).iter().position(|crowd| crowd["kind"] == row.kind.name());
            let server = list(&plan["servers"]).iter().position(|server| *server == row.name.as_str());
            (crowd.unwrap_or(usize::MAX), server.unwrap_or(usize::MAX))
        });
        Self {
            rate: plan["rate"].as_f64().unwrap_or_default(),
            connections: plan["connections"].as_u64().unwrap_or_default() as usize,
            server_cores: records.header.environment.server_cores.parse::<Cores>().map_or(1, |cores| cores.count()),
            rows,
            interrupted: records.is_interrupted(),
        }
    }
}

impl Report {
    /// The charts: the good client with an idle crowd relative to without, and its latencies with each slow crowd.
    pub(super) fn charts(&self) -> Vec<(String, Chart)> {
        let idle = self.rows.iter().filter_map(|row| match row.outcome()? {
            CrowdOutcome::Idle(idle) => Some((row.name.clone(), idle.beside.throughput?.estimate)),
            CrowdOutcome::Slow(_) | CrowdOutcome::Bound { .. } => None,
        });
        let axis = "requests a second with the crowd, without = 1".into();
        let idle = charts::ratios("A good client with an idle crowd".into(), axis, None, idle);
        let mut charts = charts::drawn([("idle", idle)]);
        for kind in distinct(self.rows.iter().map(|row| row.kind)) {
            let own = self.rows.iter().filter(|row| row.kind == kind);
            let lines = own.filter_map(|row| match row.outcome()? {
                CrowdOutcome::Slow(slow) => Some((row.name.clone(), slow.with.points())),
                CrowdOutcome::Idle(_) | CrowdOutcome::Bound { .. } => None,
            });
            let title = format!("Latency (us) of a good client with a crowd: {}", kind.name());
            let chart = charts::lines(title, charts::PERCENTILES.into(), lines);
            charts.extend(charts::drawn([(kind.name(), chart)]));
        }
        charts
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A server with an idle crowd.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Idle {
    /// The memory of its process.
    pub memory: CrowdMemory,
    /// The CPU time that it takes with the crowd and without a request, in milliseconds a second: the median of the windows.
    pub idle_cpu_ms_per_s: Option<f64>,
    /// The CPU time of each window.
    pub idle_cpu_windows: Vec<f64>,
    /// The state of the crowd at its end.
    pub crowd: CrowdCounts,
    /// The state of the crowd after all connections were opened.
    pub arrived: CrowdCounts,
    /// Why the good client was not served, if it was not; then there are no ratios, or ratios of fewer rounds.
    pub unserved: Option<String>,
    /// The good client's figures.
    pub beside: CrowdEffect,
}

/// The resident memory of a process, in bytes, without the kernel's memory for sockets.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CrowdMemory {
    /// After verification and warm-up.
    pub before_bytes: u64,
    /// With the whole crowd.
    pub with_bytes: u64,
    /// The difference for each held connection.
    pub bytes_per_connection: Option<f64>,
    /// The difference of the anonymous memory for each held connection.
    pub anonymous_bytes_per_connection: Option<f64>,
}

/// The three processes of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CrowdProcess {
    /// The process with the crowd.
    With,
    /// A process without a crowd.
    Without,
    /// Another process without a crowd: the difference between the two is noise.
    Again,
}

impl CrowdProcess {
    /// All three processes.
    pub const ALL: [Self; 3] = [Self::With, Self::Without, Self::Again];
}

/// A slice of the good client.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Slice {
    /// The round, from 1.
    pub round: usize,
    /// The process.
    pub place: CrowdProcess,
    /// Right answers a second.
    pub requests_per_s: f64,
    /// Right answers for each second of the server's CPU time.
    pub requests_per_cpu_s: Option<f64>,
    /// The server's CPU time in cores.
    pub server_busy: Option<f64>,
    /// Requests under way, on average, as a share of the connections: by Little's law it is 1.
    pub under_way: Option<f64>,
}

impl Slice {
    pub(super) fn new(round: usize, place: CrowdProcess, report: &Loaded, connections: usize) -> Self {
        Self {
            round,
            place,
            requests_per_s: report.per_second(),
            requests_per_cpu_s: report.per_server_cpu_second(),
            server_busy: report.server_busy,
            under_way: Some(report.under_way() / connections as f64),
        }
    }
}

/// The good client's figures: medians, and ratios of with to without the crowd.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CrowdEffect {
    /// Requests a second without.
    pub without_requests_per_s: f64,
    /// Requests a second with.
    pub with_requests_per_s: f64,
    /// The server's CPU time in cores, without.
    pub without_server_busy: f64,
    /// The server's CPU time in cores, with.
    pub with_server_busy: f64,
    /// Requests under way with the crowd, as a share of the connections.
    pub with_under_way: Option<f64>,
    /// The ratio of requests a second.
    pub throughput: Option<Compared>,
    /// The ratio of requests for each second of the server's CPU time.
    pub cost: Option<Compared>,
    /// The ratio of requests a second of the two processes without a crowd.
    pub same_throughput: Option<Estimate>,
    /// The ratio of requests for each second of CPU time of the two processes without a crowd.
    pub same_cost: Option<Estimate>,
}

type SliceFigure = fn(&Slice) -> Option<f64>;

impl CrowdEffect {
    /// Whether the server's cores were full, with the crowd and without: only such costs can be compared.
    pub(super) fn is_full(&self, server_cores: usize) -> bool {
        self.without_server_busy.min(self.with_server_busy) >= BUSY * server_cores as f64
    }

    pub(super) fn of(slices: &[Slice], seed: u64) -> Self {
        let slices_of = |place: CrowdProcess| slices.iter().filter(move |slice| slice.place == place);
        let median_figure =
            |place: CrowdProcess, figure: SliceFigure| median_of(slices_of(place).filter_map(figure)).unwrap_or(0.0);
        let estimate = |place: CrowdProcess, figure: SliceFigure| {
            let ratio = |slice: &Slice| {
                let base = slices_of(CrowdProcess::Without).find(|base| base.round == slice.round)?;
                Some(figure(slice)? / figure(base)?)
            };
            Estimate::of(&slices_of(place).filter_map(ratio).collect::<Vec<_>>(), seed)
        };
        let compared = |figure: SliceFigure| {
            let same = estimate(CrowdProcess::Again, figure);
            let estimate = estimate(CrowdProcess::With, figure)?;
            Some(Compared::of(estimate, &tie_band(same.as_ref())))
        };
        let (speed, cost): (SliceFigure, SliceFigure) =
            (|slice| Some(slice.requests_per_s), |slice| slice.requests_per_cpu_s);
        let busy: SliceFigure = |slice| slice.server_busy;
        Self {
            without_requests_per_s: median_figure(CrowdProcess::Without, speed),
            with_requests_per_s: median_figure(CrowdProcess::With, speed),
            without_server_busy: median_figure(CrowdProcess::Without, busy),
            with_server_busy: median_figure(CrowdProcess::With, busy),
            with_under_way: median_of(slices_of(CrowdProcess::With).filter_map(|slice| slice.under_way)),
            throughput: compared(speed),
            cost: compared(cost),
            same_throughput: estimate(CrowdProcess::Again, speed),
            same_cost: estimate(CrowdProcess::Again, cost),
        }
    }
}

/// A server with a slow crowd.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Slow {
    /// The good client before the crowd.
    pub before: PacedFigures,
    /// The good client during the crowd.
    pub with: PacedFigures,
    /// The good client after the crowd.
    pub after: PacedFigures,
    /// The state of the crowd at its end.
    pub crowd: CrowdCounts,
    /// The state of the crowd after all connections were opened.
    pub arrived: CrowdCounts,
}

/// The good client's figures at a fixed rate; latencies in microseconds from the intended start of a request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PacedFigures {
    /// Right answers.
    pub answered: u64,
    /// Failed requests.
    pub failed: Failures,
    /// Requests that were due and never sent, because no connection was free, or never answered.
    pub unserved: u64,
    /// All requests without a right answer.
    pub errors: u64,
    /// The first failure.
    pub first_failure: Option<String>,
    /// Median.
    pub p50_us: f64,
    /// 99 %.
    pub p99_us: f64,
    /// 99.9 %.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
    /// How late the good client itself was, 99 %.
    pub lateness_p99_us: f64,
    /// The server's CPU time in cores.
    pub server_busy: Option<f64>,
    /// The server's resident memory at the end, in bytes.
    pub resident_bytes: Option<u64>,
    /// The server's open descriptors at the end. They count connections that the server holds while the crowd cannot notice a
    /// close.
    pub descriptors: Option<u64>,
    /// Whether there are no errors and the p99 is below 10 ms.
    pub is_bearable: bool,
}

/// The limit of a bearable p99, in microseconds.
const BEARABLE_US: f64 = 10_000.0;

impl PacedFigures {
    /// The p50, p99 and p99.9, for a chart.
    fn points(&self) -> Vec<(u64, f64)> {
        charts::percentiles([self.p50_us, self.p99_us, self.p999_us])
    }

    pub(super) fn of(report: &Loaded, resident_bytes: Option<u64>, descriptors: Option<u64>) -> Self {
        let unserved = report.unsent + report.unfinished;
        let errors = report.failed.total() + unserved;
        let p99_us = microseconds(&report.latency, 0.99);
        Self {
            answered: report.answered + report.answered_late,
            failed: report.failed.clone(),
            unserved,
            errors,
            first_failure: report.first_failure.clone(),
            p50_us: microseconds(&report.latency, 0.5),
            p99_us,
            p999_us: microseconds(&report.latency, 0.999),
            max_us: microseconds(&report.latency, 1.0),
            lateness_p99_us: report.lateness.as_ref().map_or(0.0, |late| microseconds(late, 0.99)),
            server_busy: report.server_busy,
            resident_bytes,
            descriptors,
            is_bearable: errors == 0 && p99_us < BEARABLE_US,
        }
    }
}
