//! The points of a record, and the curves through them.
//!
//! Invariant: a point with a failed cell has no figures. Cost: a fit for each contestant, axis and figure.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::curves::{growth_of, points_of};
use super::growth::Fit;
use super::{Axis, Place};
use crate::experiment::{Absence, Experiment, Failed, Reason, Records};

/// The kind of a [`Rate`] in a record.
pub const RATE: &str = "rate";
/// In a key: every point of the axis.
pub(super) const EVERY_POINT: u64 = 0;

/// A contestant at a place of an axis, in a round.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The axis.
    pub axis: Axis,
    /// Where on it.
    pub x: u64,
    /// The contestant: `tokio_tcp/two_level`, or a store; a baseline's second entry is `NAME (again)`.
    pub name: String,
    /// The round, from 1; 0 where a wrong answer was given to what calibrates.
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

/// What was measured in a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Where on all axes.
    #[serde(flatten)]
    pub place: Place,
    /// The figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// A sample and its key.
pub(super) type Cell<'a> = (&'a Key, &'a Sample);

/// The figures of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Right answers in closed loop.
    pub answered: u64,
    /// In so many seconds.
    pub elapsed_s: f64,
    /// A second.
    pub per_s: f64,
    /// CPU time of the server for each, in microseconds.
    pub cpu_us: Option<f64>,
    /// The server's CPU time as a share of its cores' time.
    pub server_busy_pct: Option<f64>,
    /// The client's CPU time as a share of its threads' time.
    pub client_busy_pct: Option<f64>,
    /// The same at the rate of the latencies: without the batches that a saturated server takes.
    pub paced_cpu_us: Option<f64>,
    /// Requests a second that were due where the latencies were taken.
    pub rate_per_s: Option<f64>,
    /// Latency at that rate from the intended start, median, in microseconds.
    pub p50_us: Option<f64>,
    /// 99 %.
    pub p99_us: Option<f64>,
    /// How late the load generator itself was, 99 %.
    pub lateness_p99_us: Option<f64>,
    /// Whether the rate was more than it could do: more than 1 % of what was due was not sent. Then the latencies say
    /// how long the slice was.
    pub overloaded: bool,
    /// Resident memory before anything was stored, in bytes.
    pub start_bytes: Option<u64>,
    /// With all entities.
    pub filled_bytes: Option<u64>,
    /// With all connections too, under load; none where the load was over before the machine let anybody look.
    pub loaded_bytes: Option<u64>,
}

/// A contestant that is not measured on an axis, or at a point of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotRun {
    /// The axis.
    pub axis: Axis,
    /// The point; `None` stands for all points.
    pub x: Option<u64>,
    /// The contestant.
    pub name: String,
    /// Why.
    pub why: String,
}

/// At what rate the latencies of an axis are taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// The axis.
    pub axis: Axis,
    /// Requests a second.
    pub requests_per_s: f64,
    /// Whose half it is.
    pub half_of: String,
    /// Where on the axis.
    pub x: u64,
}

/// A figure that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Requests a second.
    Throughput,
    /// CPU time a request.
    Cpu,
    /// The same at the axis' rate.
    PacedCpu,
    /// p99 at the axis' rate; one of an overloaded cell is left out.
    P99,
    /// Resident memory under load.
    Memory,
}

impl Metric {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Throughput, Self::Cpu, Self::PacedCpu, Self::P99, Self::Memory];

    /// This figure of a cell, if it has it.
    pub fn of(self, figures: &Figures) -> Option<f64> {
        match self {
            Self::Throughput => Some(figures.per_s),
            Self::Cpu => figures.cpu_us,
            Self::PacedCpu => figures.paced_cpu_us.filter(|_| !figures.overloaded),
            Self::P99 => figures.p99_us.filter(|_| !figures.overloaded),
            Self::Memory => figures.loaded_bytes.map(|bytes| bytes as f64),
        }
    }
}

/// A contestant at a place of an axis: medians over its rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The axis.
    pub axis: Axis,
    /// Where on it.
    pub x: u64,
    /// The contestant.
    pub name: String,
    /// Rounds.
    pub rounds: usize,
    /// Right answers a second.
    pub per_s: f64,
    /// CPU time for each, in microseconds.
    pub cpu_us: Option<f64>,
    /// The same at the axis' rate.
    pub paced_cpu_us: Option<f64>,
    /// Latency, median, in microseconds.
    pub p50_us: Option<f64>,
    /// 99 %.
    pub p99_us: Option<f64>,
    /// Whether most rounds were overloaded.
    pub overloaded: bool,
    /// Resident memory under load, in bytes.
    pub loaded_bytes: Option<f64>,
    /// The server's CPU time as a share of its cores' time.
    pub server_busy_pct: Option<f64>,
    /// The client's CPU time as a share of its threads' time.
    pub client_busy_pct: Option<f64>,
}

/// What curve a growth is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Law {
    /// `a x^b`.
    Power,
    /// `a + b x`; of memory alone, in bytes.
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
    /// What curve.
    pub law: Law,
    /// The curve.
    #[serde(flatten)]
    pub fit: Fit,
    /// The first and the last point: where, and the median there.
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
    pub rates: Vec<Rate>,
    /// Contestants that were left out.
    pub not_run: Vec<NotRun>,
    /// Cells that failed; their points have no figures.
    pub failed: Vec<Failed<Key>>,
    /// Whether it was ended early.
    pub interrupted: bool,
}

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
        let cells: Vec<Cell<'_>> = records.samples().filter(|(key, _)| !is_out(key)).collect();
        let seed = records.header.environment.seed;
        let (mut points, mut growth) = (Vec::new(), Vec::new());
        for axis in Axis::ALL {
            let mut names: Vec<&str> = Vec::new();
            for (key, _) in cells.iter().filter(|(key, _)| key.axis == axis) {
                if !names.contains(&key.name.as_str()) {
                    names.push(&key.name);
                }
            }
            for name in names {
                let own: Vec<Cell<'_>> =
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
            not_run: not_run.fold(Vec::new(), gathered),
            failed,
            interrupted: records.is_interrupted(),
        })
    }
}

fn not_run((Key { axis, x, name, .. }, Absence { why, .. }): (&Key, &Absence)) -> NotRun {
    NotRun { axis: *axis, x: (*x != EVERY_POINT).then_some(*x), name: name.clone(), why: why.clone() }
}

/// Adds a contestant that is left out. One that is left out at several points for one reason is named once.
fn gathered(mut all: Vec<NotRun>, one: NotRun) -> Vec<NotRun> {
    let is_same = |other: &&mut NotRun| (other.axis, &other.name, &other.why) == (one.axis, &one.name, &one.why);
    match all.iter_mut().find(is_same) {
        Some(same) => same.x = None,
        None => all.push(one),
    }
    all
}
