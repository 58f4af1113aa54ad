//! What came of it: cells as they are recorded, and what they make together.
//!
//! Invariant: of two lines about one cell the later one counts, and a point with a failed cell has no figures. Cost: a fit
//! for each contestant, axis and figure.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::curves::{growth_of, points_of};
use super::growth::Fit;
use super::{Axis, Place};
use crate::journal::of_kind;

/// The kind of a [`Cell`] in a record.
pub const CELL: &str = "cell";
/// Of a [`Failed`].
pub const FAILURE: &str = "failure";
/// Of a [`NotRun`].
pub const NOT_RUN: &str = "not_run";
/// Of a [`Rate`].
pub const RATE: &str = "rate";

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

/// A measured cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Whose.
    #[serde(flatten)]
    pub key: Key,
    /// Where on all axes.
    #[serde(flatten)]
    pub place: Place,
    /// What it has shown.
    #[serde(flatten)]
    pub shown: Shown,
}

/// What a cell has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shown {
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

/// A cell that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failed {
    /// Whose.
    #[serde(flatten)]
    pub key: Key,
    /// Why.
    pub why: String,
    /// Whether it did wrong: then a rerun does not try that point again.
    #[serde(default)]
    pub wrong: bool,
}

/// Somebody who is not measured on an axis, or at a place of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotRun {
    /// The axis.
    pub axis: Axis,
    /// Where on it; nowhere without.
    pub x: Option<u64>,
    /// Who.
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
    pub fn of(self, shown: &Shown) -> Option<f64> {
        match self {
            Self::Throughput => Some(shown.per_s),
            Self::Cpu => shown.cpu_us,
            Self::PacedCpu => shown.paced_cpu_us.filter(|_| !shown.overloaded),
            Self::P99 => shown.p99_us.filter(|_| !shown.overloaded),
            Self::Memory => shown.loaded_bytes.map(|bytes| bytes as f64),
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

/// Cells and what else was recorded.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// In the order in which they came first.
    pub cells: Vec<(Key, Result<Cell, Failed>)>,
    /// By axis.
    pub rates: Vec<Rate>,
    /// Who was left out.
    pub not_run: Vec<NotRun>,
}

impl Lines {
    /// What is recorded in these.
    ///
    /// # Errors
    ///
    /// Where one is of a kind of ours and not what that should be.
    pub fn of(lines: &[Value]) -> anyhow::Result<Self> {
        let mut all = Self::default();
        for line in lines {
            let line = std::slice::from_ref(line); // their order counts
            of_kind::<Cell>(line, CELL)?.into_iter().for_each(|cell| all.add(Ok(cell)));
            of_kind::<Failed>(line, FAILURE)?.into_iter().for_each(|failed| all.add(Err(failed)));
        }
        (all.rates, all.not_run) = (of_kind(lines, RATE)?, of_kind(lines, NOT_RUN)?);
        Ok(all)
    }

    /// Adds a cell; it takes the place of an earlier one of the same key, unless somebody did wrong in that.
    pub fn add(&mut self, cell: Result<Cell, Failed>) {
        let key = cell.as_ref().map_or_else(|failed| failed.key.clone(), |cell| cell.key.clone());
        match self.cells.iter_mut().find(|(other, _)| *other == key) {
            Some((_, Err(Failed { wrong: true, .. }))) => {}
            Some((_, old)) => *old = cell,
            None => self.cells.push((key, cell)),
        }
    }

    /// Whether `name` did wrong at this place of `axis`, in whatever round.
    pub fn did_wrong(&self, axis: Axis, x: u64, name: &str) -> bool {
        let is_wrong = |failed: &Failed| {
            let Key { axis: its_axis, x: its_x, name: its_name, .. } = &failed.key;
            failed.wrong && (*its_axis, *its_x, its_name.as_str()) == (axis, x, name)
        };
        self.cells.iter().any(|(_, cell)| cell.as_ref().err().is_some_and(is_wrong))
    }

    /// The cell of this key, if it was measured.
    pub fn cell(&self, key: &Key) -> Option<&Cell> {
        self.cells.iter().find(|(other, _)| other == key).and_then(|(_, cell)| cell.as_ref().ok())
    }
}

/// Everything that was measured.
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
    /// Who was left out.
    pub not_run: Vec<NotRun>,
    /// Cells that failed; their points have no figures.
    pub failed: Vec<Failed>,
    /// Whether it was ended early.
    pub interrupted: bool,
}

impl Report {
    /// What `lines` make together.
    pub fn of(lines: &Lines, seed: u64, interrupted: bool) -> Self {
        let is_out = |key: &Key| {
            let same = |other: &Key| (other.axis, other.x, &other.name) == (key.axis, key.x, &key.name);
            lines.cells.iter().any(|(other, cell)| cell.is_err() && same(other))
        };
        let cells: Vec<&Cell> =
            lines.cells.iter().filter(|(key, _)| !is_out(key)).filter_map(|(_, cell)| cell.as_ref().ok()).collect();
        let failed = lines.cells.iter().filter_map(|(_, cell)| cell.as_ref().err().cloned());
        let (mut points, mut growth) = (Vec::new(), Vec::new());
        for axis in Axis::ALL {
            let mut names: Vec<&str> = Vec::new();
            for cell in cells.iter().filter(|cell| cell.key.axis == axis) {
                if !names.contains(&cell.key.name.as_str()) {
                    names.push(&cell.key.name);
                }
            }
            for name in names {
                let own: Vec<&Cell> =
                    cells.iter().copied().filter(|cell| cell.key.axis == axis && cell.key.name == name).collect();
                let own_points = points_of(axis, name, &own);
                growth.extend(growth_of(axis, name, &own, seed));
                points.extend(own_points);
            }
        }
        Self {
            rounds: cells.iter().map(|cell| cell.key.round).max().unwrap_or(0),
            points,
            growth,
            rates: lines.rates.clone(),
            not_run: lines.not_run.clone(),
            failed: failed.collect(),
            interrupted,
        }
    }
}
