//! What came of it: figures.
//!
//! Invariant: a ratio is taken within a round. Cost: an estimate or four a row.

use polyserve_load::{Failures, Report as Loaded};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Kind;
use super::gathering::Counts;
use crate::compare::ranking::Compared;
use crate::compare::turn::microseconds;
use crate::journal::of_kind;
use crate::statistics::{Estimate, median, tie_band};

/// Everything that was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The good client's requests a second beside a slow crowd.
    pub rate: f64,
    /// The good client's connections.
    pub connections: usize,
    /// A row for each server and kind of crowd.
    pub rows: Vec<Row>,
    /// Whether it was ended early.
    pub interrupted: bool,
}

/// A server and a kind of crowd.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The server's name.
    pub name: String,
    /// What the crowd does.
    pub kind: Kind,
    /// Members that the crowd was to have.
    pub crowd_of: usize,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The experiment's name, and its file's where no other was given.
pub const NAME: &str = "crowd";
/// The kind of a [`RowLine`].
pub const ROW: &str = "row";
/// The kind of a [`SliceLine`].
pub const SLICE: &str = "slice";

/// A row in a record: in a field of its own, for both have a kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RowLine {
    /// The row.
    pub row: Row,
}

/// A slice in a record; it comes before the row that rests on it. Of two of one server, round and place the later one
/// counts: the run had ended before the row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SliceLine {
    /// The server's name.
    pub name: String,
    /// The slice.
    #[serde(flatten)]
    pub slice: Slice,
}

/// The rows of a record, the last one of each server and kind of crowd: one that failed is measured again by a rerun.
///
/// # Errors
///
/// Where a line is no row.
pub fn rows_of(lines: &[Value]) -> anyhow::Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for RowLine { row } in of_kind(lines, ROW)? {
        match rows.iter_mut().find(|other| other.name == row.name && other.kind == row.kind) {
            Some(other) => *other = row,
            None => rows.push(row),
        }
    }
    Ok(rows)
}

/// What came of a server beside a crowd.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// Beside one that is idle.
    Idle(Box<Idle>),
    /// Beside one that is slow.
    Slow(Box<Slow>),
    /// It was not measured: by its shape, a new connection may wait so long.
    Bound {
        /// A time, and how many times that.
        bound: String,
    },
    /// There are no figures.
    Failed {
        /// Why.
        why: String,
    },
}

impl Outcome {
    /// Whether there are no figures, or a good client was not served beside a crowd that only rests.
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Failed { .. } => true,
            Self::Idle(idle) => idle.unserved.is_some(),
            Self::Slow(_) | Self::Bound { .. } => false,
        }
    }
}

/// A server beside an idle crowd.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Idle {
    /// What its process takes.
    pub memory: Memory,
    /// How the crowd fared, to its end.
    pub crowd: Counts,
    /// How it had fared when all had come.
    pub arrived: Counts,
    /// Why the good client was not served beside it, where it was not; then there are no ratios, or of fewer rounds.
    pub unserved: Option<String>,
    /// What the good client noticed.
    pub beside: Beside,
    /// Every slice.
    #[serde(skip)]
    pub slices: Vec<Slice>,
}

/// The resident memory of a process, in bytes; the kernel's own memory for sockets is not in it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Memory {
    /// Verified and warmed up.
    pub before_bytes: u64,
    /// With the whole crowd.
    pub with_bytes: u64,
    /// The difference for each connection that was held.
    pub bytes_per_connection: Option<f64>,
    /// The same of what is not of a file.
    pub anonymous_bytes_per_connection: Option<f64>,
}

/// Which of three processes of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The one that holds the crowd.
    With,
    /// One without.
    Without,
    /// Another one without: what differs between the two is noise.
    Again,
}

impl Place {
    /// All three.
    pub const ALL: [Self; 3] = [Self::With, Self::Without, Self::Again];
}

/// A slice of the good client's.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Slice {
    /// The round, from 1.
    pub round: usize,
    /// Whose.
    pub place: Place,
    /// Right answers a second.
    pub requests_per_s: f64,
    /// Right answers for each second of the server's CPU time.
    pub requests_per_cpu_s: Option<f64>,
    /// The server's CPU time in cores.
    pub server_busy: Option<f64>,
}

impl Slice {
    pub(super) fn new(round: usize, place: Place, report: &Loaded) -> Self {
        Self {
            round,
            place,
            requests_per_s: report.per_second(),
            requests_per_cpu_s: report.per_server_cpu_second(),
            server_busy: report.server_busy,
        }
    }
}

/// What the good client noticed of an idle crowd: medians, and ratios of with to without.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Beside {
    /// Requests a second without.
    pub without_requests_per_s: f64,
    /// Requests a second with.
    pub with_requests_per_s: f64,
    /// The server's CPU time in cores, without.
    pub without_server_busy: f64,
    /// The server's CPU time in cores, with.
    pub with_server_busy: f64,
    /// Of requests a second.
    pub throughput: Option<Compared>,
    /// Of requests for each second of the server's CPU time.
    pub cost: Option<Compared>,
    /// The ratio of the two processes without.
    pub same_throughput: Option<Estimate>,
    /// The ratio of the two processes without.
    pub same_cost: Option<Estimate>,
}

type Figure = fn(&Slice) -> Option<f64>;

impl Beside {
    pub(super) fn of(slices: &[Slice], seed: u64) -> Self {
        let of = |place: Place| slices.iter().filter(move |slice| slice.place == place);
        let middle = |place: Place, figure: Figure| median(&mut of(place).filter_map(figure).collect::<Vec<_>>());
        let estimate = |place: Place, figure: Figure| {
            let ratio = |slice: &Slice| {
                let base = of(Place::Without).find(|base| base.round == slice.round)?;
                Some(figure(slice)? / figure(base)?)
            };
            Estimate::of(&of(place).filter_map(ratio).collect::<Vec<_>>(), seed)
        };
        let compared = |figure: Figure| {
            let same = estimate(Place::Again, figure);
            let estimate = estimate(Place::With, figure)?;
            Some(Compared { estimate, verdict: estimate.verdict(&tie_band(same.as_ref())) })
        };
        let (speed, cost): (Figure, Figure) = (|slice| Some(slice.requests_per_s), |slice| slice.requests_per_cpu_s);
        let busy: Figure = |slice| slice.server_busy;
        Self {
            without_requests_per_s: middle(Place::Without, speed),
            with_requests_per_s: middle(Place::With, speed),
            without_server_busy: middle(Place::Without, busy),
            with_server_busy: middle(Place::With, busy),
            throughput: compared(speed),
            cost: compared(cost),
            same_throughput: estimate(Place::Again, speed),
            same_cost: estimate(Place::Again, cost),
        }
    }
}

/// A server beside a slow crowd.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Slow {
    /// The good client before the crowd came.
    pub before: Phase,
    /// Beside it.
    pub with: Phase,
    /// When it had gone.
    pub after: Phase,
    /// How the crowd fared, to its end.
    pub crowd: Counts,
    /// How it had fared when all had come.
    pub arrived: Counts,
}

/// What the good client saw at a fixed rate; latencies in microseconds, from when a request was due.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Phase {
    /// Right answers.
    pub answered: u64,
    /// What failed.
    pub failed: Failures,
    /// Requests that were due and never sent, for want of a free connection, or never answered.
    pub unserved: u64,
    /// Both together: requests without a right answer.
    pub errors: u64,
    /// What the first failure was.
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
    /// The server's open descriptors at the end: what it holds of a crowd that cannot tell whether it was cut off.
    pub descriptors: Option<u64>,
    /// Whether a good client can live with it: no errors, and a p99 below 10 ms.
    pub is_bearable: bool,
}

/// A p99 that a good client can live with, in microseconds.
const BEARABLE_US: f64 = 10_000.0;

impl Phase {
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
