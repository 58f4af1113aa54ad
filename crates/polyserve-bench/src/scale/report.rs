//! The points of a record, and the curves through them.
//!
//! Invariant: a point is the median of its rounds; a point with a failed cell has no figures. Cost: two fits for each
//! contestant, axis and figure.

use std::fmt;

use crate::report::svg::Chart;
use serde::{Deserialize, Serialize};

use super::growth::{self, CurveSample, Fit};
use super::{Axis, PointSettings};
use crate::charts;
use crate::experiment::{Absence, Experiment, Failed, Reason, Records, distinct};
use crate::statistics::median_of;

/// The kind of a [`AxisRate`] in a record.
pub const RATE: &str = "rate";
/// The point of a key that means every point of the axis.
pub(super) const EVERY_POINT: u64 = 0;

/// A contestant at a point of an axis, in a round.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The axis.
    pub axis: Axis,
    /// The point of the axis.
    pub x: u64,
    /// The contestant: `tokio_tcp/two_level`, or a store; a baseline's second entry is `NAME (again)`.
    pub name: String,
    /// The round, from 1; 0 for a wrong answer in the calibration.
    pub round: usize,
}

impl Key {
    /// Returns true if `other` is the same contestant at the same point, in any round.
    pub(super) fn is_at(&self, other: &Self) -> bool {
        let is_same_point = self.x == other.x || self.x == EVERY_POINT;
        is_same_point && (self.axis, &self.name) == (other.axis, &other.name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { axis, x, name, round } = self;
        let step = if *round == 0 { String::from("calibration") } else { format!("round {round}") };
        match *x {
            EVERY_POINT => write!(f, "{name}, all {axis}"),
            x => write!(f, "{step}: {name}, {x} {axis}"),
        }
    }
}

/// The measurement of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The settings of the point.
    #[serde(flatten)]
    pub place: PointSettings,
    /// The figures.
    #[serde(flatten)]
    pub figures: ScaleFigures,
}

/// A sample and its key.
pub(super) type KeyedSample<'a> = (&'a Key, &'a Sample);

/// The figures of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScaleFigures {
    /// Right answers in closed loop.
    pub answered: u64,
    /// The time of the closed loop, in seconds.
    pub elapsed_s: f64,
    /// Right answers a second.
    pub per_s: f64,
    /// Requests under way in closed loop, on average, as a share of the connections: by Little's law it is 1. `None` if a
    /// connection has one request.
    pub under_way: Option<f64>,
    /// CPU time of the server for each answer, in microseconds.
    pub cpu_us: Option<f64>,
    /// The server's CPU time as a share of its cores' time.
    pub server_busy_pct: Option<f64>,
    /// The client's CPU time as a share of its threads' time.
    pub client_busy_pct: Option<f64>,
    /// `cpu_us` at the rate of the latencies. It excludes the batching of a saturated server.
    pub paced_cpu_us: Option<f64>,
    /// The fixed rate of the latencies, in requests a second.
    pub rate_per_s: Option<f64>,
    /// Latency at that rate from the intended start, median, in microseconds.
    pub p50_us: Option<f64>,
    /// 99 %.
    pub p99_us: Option<f64>,
    /// The p99 of the load generator's own lateness, in microseconds.
    pub lateness_p99_us: Option<f64>,
    /// Whether the server could not keep the rate: more than 1 % of the requests were not sent. The latencies then depend
    /// on the length of the slice.
    pub overloaded: bool,
    /// Resident memory of the empty server, in bytes.
    pub start_bytes: Option<u64>,
    /// Resident memory with all entities.
    pub filled_bytes: Option<u64>,
    /// Resident memory with all entities and connections, under load; `None` if the load ended before it was read.
    pub loaded_bytes: Option<u64>,
}

/// A contestant that is not measured on an axis, or at one of its points.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PointNotRun {
    /// The axis.
    pub axis: Axis,
    /// The point; `None` means all points.
    pub x: Option<u64>,
    /// The contestant.
    pub name: String,
    /// Why.
    pub why: String,
}

/// The rate of the latencies of an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AxisRate {
    /// The axis.
    pub axis: Axis,
    /// Requests a second. On the axis of rates: the throughput of the null server.
    pub requests_per_s: f64,
    /// The slowest contestant. The rate is half of its throughput. On the axis of rates: the null server.
    pub half_of: String,
    /// The point at which it was the slowest.
    pub x: u64,
}

/// The point of the axis of rates that is the whole throughput of the null server.
pub(super) const FULL_RATE: u64 = 100;

impl AxisRate {
    /// The rate at the point `x`.
    pub(super) fn at(&self, x: u64) -> f64 {
        match self.axis {
            Axis::Rate => self.requests_per_s * x as f64 / FULL_RATE as f64,
            _ => self.requests_per_s,
        }
    }
}

/// A figure that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Requests a second.
    Throughput,
    /// CPU time a request.
    Cpu,
    /// CPU time a request at the axis' rate.
    PacedCpu,
    /// p99 at the axis' rate, without overloaded cells.
    P99,
    /// Resident memory under load.
    Memory,
}

impl Metric {
    /// All metrics.
    pub const ALL: [Self; 5] = [Self::Throughput, Self::Cpu, Self::PacedCpu, Self::P99, Self::Memory];

    /// The value of this metric in a cell; `None` if unknown.
    pub fn of(self, figures: &ScaleFigures) -> Option<f64> {
        match self {
            Self::Throughput => Some(figures.per_s),
            Self::Cpu => figures.cpu_us,
            Self::PacedCpu => figures.paced_cpu_us.filter(|_| !figures.overloaded),
            Self::P99 => figures.p99_us.filter(|_| !figures.overloaded),
            Self::Memory => figures.loaded_bytes.map(|bytes| bytes as f64),
        }
    }
}

/// A contestant at a point of an axis: medians over its rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The axis.
    pub axis: Axis,
    /// The point of the axis.
    pub x: u64,
    /// The contestant.
    pub name: String,
    /// Rounds.
    pub rounds: usize,
    /// Right answers a second.
    pub per_s: f64,
    /// Requests under way as a share of the connections: see [`ScaleFigures::under_way`].
    pub under_way: Option<f64>,
    /// CPU time for each answer, in microseconds.
    pub cpu_us: Option<f64>,
    /// CPU time for each answer at the rate of the latencies, in microseconds.
    pub paced_cpu_us: Option<f64>,
    /// Latency, median, in microseconds.
    pub p50_us: Option<f64>,
    /// 99 %.
    pub p99_us: Option<f64>,
    /// The p99 of the load generator's own lateness, in microseconds.
    pub lateness_p99_us: Option<f64>,
    /// Whether most rounds were overloaded.
    pub overloaded: bool,
    /// Resident memory under load, in bytes.
    pub loaded_bytes: Option<f64>,
    /// The server's CPU time as a share of its cores' time.
    pub server_busy_pct: Option<f64>,
    /// The client's CPU time as a share of its threads' time.
    pub client_busy_pct: Option<f64>,
}

/// The kind of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Law {
    /// `a x^b`.
    Power,
    /// `a + b x`, for memory only, in bytes.
    Line,
}

/// How a figure of a contestant grows along an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// The axis.
    pub axis: Axis,
    /// The contestant.
    pub name: String,
    /// The figure.
    pub metric: Metric,
    /// The kind of the curve.
    pub law: Law,
    /// The curve.
    #[serde(flatten)]
    pub curve: Fit,
    /// The first and the last point, with their medians.
    pub ends: [(u64, f64); 2],
}

/// The result of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Rounds, at most.
    pub rounds: usize,
    /// Points, by axis and contestant.
    pub points: Vec<Point>,
    /// Curves through them.
    pub growth: Vec<Growth>,
    /// The rates of latencies.
    pub rates: Vec<AxisRate>,
    /// Contestants that were left out.
    pub not_run: Vec<PointNotRun>,
    /// Cells that failed; their points have no figures.
    pub failed: Vec<Failed<Key>>,
    /// Whether each request had a connection of its own.
    pub connection_each: bool,
    /// Whether it was ended early.
    pub interrupted: bool,
}

/// The field of the description of a run in which each request has a connection of its own.
pub const CONNECTION_EACH: &str = "connection_each";

impl Report {
    /// The result of these records.
    ///
    /// # Errors
    ///
    /// Returns an error if a rate does not have its fields.
    pub fn of<E>(records: &Records<E>) -> anyhow::Result<Self>
    where
        E: Experiment<Key = Key, Sample = Sample>,
    {
        let failed = records.failed();
        let is_out = |key: &Key| failed.iter().any(|failed| failed.key.is_at(key));
        let cells: Vec<KeyedSample<'_>> = records.samples().filter(|(key, _)| !is_out(key)).collect();
        let seed = records.header.environment.seed;
        let (mut points, mut growth) = (Vec::new(), Vec::new());
        for axis in Axis::ALL {
            for name in distinct(cells.iter().filter(|(key, _)| key.axis == axis).map(|(key, _)| key.name.as_str())) {
                let own: Vec<KeyedSample<'_>> =
                    cells.iter().copied().filter(|(key, _)| key.axis == axis && key.name == name).collect();
                points.extend(points_of(axis, name, &own));
                growth.extend(growth_of(axis, name, &own, seed));
            }
        }
        let not_run = records.absences().filter(|(_, absence)| absence.reason == Reason::NotAvailable).map(not_run);
        Ok(Self {
            rounds: cells.iter().map(|(key, _)| key.round).max().unwrap_or(0),
            points,
            growth,
            rates: records.facts(RATE)?,
            not_run: not_run.fold(Vec::new(), merged),
            failed,
            connection_each: records.header.plan[CONNECTION_EACH] == true,
            interrupted: records.is_interrupted(),
        })
    }
}

type PointFigure = fn(&Point) -> Option<f64>;

impl Report {
    /// A chart of each figure along each axis, `AXIS FIGURE`: medians over rounds.
    pub(super) fn charts(&self) -> Vec<(String, Chart)> {
        let figures: [(&str, PointFigure); 5] = [
            ("requests a second", |point| Some(point.per_s).filter(|_| point.axis != Axis::Rate)),
            ("CPU us a request", |point| point.cpu_us),
            ("CPU us a request at a fixed rate", |point| point.paced_cpu_us),
            ("p99 (us) at a fixed rate", |point| point.p99_us.filter(|_| !point.overloaded)),
            ("bytes of memory", |point| point.loaded_bytes),
        ];
        let chart = |axis: Axis, (title, figure): (&str, PointFigure)| {
            let own = || self.points.iter().filter(move |point| point.axis == axis);
            let line = |name: &str| {
                let points = own().filter(|point| point.name == name);
                let points = points.filter_map(|point| Some((point.x, figure(point)?))).collect();
                (name.to_owned(), points)
            };
            let lines = distinct(own().map(|point| point.name.as_str())).into_iter().map(line);
            let chart = charts::lines(title.to_owned(), axis.name().to_owned(), lines)?;
            Some((format!("{} {title}", axis.name()), chart))
        };
        let all = Axis::ALL.into_iter().flat_map(|axis| figures.map(|figure| (axis, figure)));
        all.filter_map(|(axis, figure)| chart(axis, figure)).collect()
    }
}

fn not_run((Key { axis, x, name, .. }, Absence { why, .. }): (&Key, &Absence)) -> PointNotRun {
    PointNotRun { axis: *axis, x: (*x != EVERY_POINT).then_some(*x), name: name.clone(), why: why.clone() }
}

/// Adds a contestant that is not measured. If it is not measured at several points for one reason, it is listed once.
fn merged(mut not_run: Vec<PointNotRun>, new: PointNotRun) -> Vec<PointNotRun> {
    let is_same = |other: &&mut PointNotRun| (other.axis, &other.name, &other.why) == (new.axis, &new.name, &new.why);
    match not_run.iter_mut().find(is_same) {
        Some(same) => same.x = None,
        None => not_run.push(new),
    }
    not_run
}

fn distinct_points(cells: &[KeyedSample<'_>]) -> Vec<u64> {
    let mut points: Vec<u64> = cells.iter().map(|(key, _)| key.x).collect();
    points.sort_unstable();
    points.dedup();
    points
}

fn median_figure(cells: &[KeyedSample<'_>], figure: impl Fn(&ScaleFigures) -> Option<f64>) -> Option<f64> {
    median_of(cells.iter().filter_map(|(_, sample)| figure(&sample.figures)))
}

/// The points of a contestant, in the order of the axis.
fn points_of(axis: Axis, name: &str, cells: &[KeyedSample<'_>]) -> Vec<Point> {
    let point = |x: u64| {
        let own: Vec<KeyedSample<'_>> = cells.iter().copied().filter(|(key, _)| key.x == x).collect();
        let overloaded = own.iter().filter(|(_, sample)| sample.figures.overloaded).count();
        Point {
            axis,
            x,
            name: name.to_owned(),
            rounds: own.len(),
            per_s: median_figure(&own, |figures| Some(figures.per_s)).unwrap_or(0.0),
            under_way: median_figure(&own, |figures| figures.under_way),
            cpu_us: median_figure(&own, |figures| figures.cpu_us),
            paced_cpu_us: median_figure(&own, |figures| Metric::PacedCpu.of(figures)),
            p50_us: median_figure(&own, |figures| figures.p50_us),
            p99_us: median_figure(&own, |figures| figures.p99_us),
            lateness_p99_us: median_figure(&own, |figures| figures.lateness_p99_us),
            overloaded: overloaded * 2 > own.len(),
            loaded_bytes: median_figure(&own, |figures| Metric::Memory.of(figures)),
            server_busy_pct: median_figure(&own, |figures| figures.server_busy_pct),
            client_busy_pct: median_figure(&own, |figures| figures.client_busy_pct),
        }
    };
    distinct_points(cells).into_iter().map(point).collect()
}

/// The curves of a contestant.
fn growth_of(axis: Axis, name: &str, cells: &[KeyedSample<'_>], seed: u64) -> Vec<Growth> {
    let mut all = Vec::new();
    // On the axis of rates, throughput is the axis itself.
    let is_known = |metric: &Metric| axis == Axis::Rate && !matches!(metric, Metric::PacedCpu | Metric::P99);
    for metric in Metric::ALL.into_iter().filter(|metric| !is_known(metric)) {
        let value = |(key, sample): &KeyedSample<'_>| {
            Some(CurveSample { x: key.x, round: key.round, y: metric.of(&sample.figures)? })
        };
        let samples: Vec<CurveSample> = cells.iter().filter_map(value).collect();
        let end = |x: u64| {
            let values = samples.iter().filter(|sample| sample.x == x).map(|sample| sample.y);
            (x, median_of(values).unwrap_or(0.0))
        };
        let range = samples.iter().map(|sample| sample.x);
        let (Some(first), Some(last)) = (range.clone().min(), range.max()) else { continue };
        let ends = [end(first), end(last)];
        let mut add = |law: Law, fit: Option<Fit>| {
            all.extend(fit.map(|fit| Growth { axis, name: name.to_owned(), metric, law, curve: fit, ends }));
        };
        add(Law::Power, growth::power(&samples, seed));
        // The memory of connections or entities is a sum, even if a power fits it too.
        if metric == Metric::Memory && matches!(axis, Axis::Connections | Axis::Keys) {
            add(Law::Line, growth::line(&samples, seed));
        }
    }
    all
}
