//! What came of it: medians over rounds, ratios within them, and how throughput grows.
//!
//! Invariant: a ratio is taken between two stores at the same place, under the same workload, in the same round. Cost: a
//! bootstrap for each store, place and workload; some seconds for thousands of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::bare::PREFIX;
use super::record::{Cell, Failed, Kept, Lines, NotRun, Short};
use super::workload::Load;
use crate::journal::first_header;
use crate::scale::Axis;
use crate::scale::growth::{Fit, Observation, power};
use crate::statistics::{Estimate, Interval, Verdict, median, tie_band};

/// What the name of the baseline's second entry ends with.
pub const AGAIN: &str = " (again)";

/// What the baseline is called where it is entered again.
pub fn again(baseline: &str) -> String {
    format!("{baseline}{AGAIN}")
}

/// A store at a place of an axis, under a workload: medians over its rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The axis.
    pub axis: Axis,
    /// Where on it.
    pub x: u64,
    /// Under which workload.
    #[serde(flatten)]
    pub load: Load,
    /// The store.
    pub name: String,
    /// Rounds.
    pub rounds: usize,
    /// Operations a second.
    pub per_s: f64,
    /// With many outstanding.
    pub windowed_per_s: Option<f64>,
    /// Processor time for each, in microseconds.
    pub cpu_us: Option<f64>,
    /// Latencies in microseconds: median.
    pub p50_us: Option<f64>,
    /// 99 %.
    pub p99_us: Option<f64>,
    /// 99.9 %.
    pub p999_us: Option<f64>,
    /// The longest of all rounds.
    pub max_us: Option<f64>,
    /// Throughput beside the baseline's.
    pub beside: Option<Estimate>,
    /// What may be said of that.
    pub verdict: Option<Verdict>,
    /// A repo's throughput beside that of the map it is made of, used bare.
    pub beside_bare: Option<Estimate>,
}

/// What entities take: medians over rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryPoint {
    /// The axis.
    pub axis: Axis,
    /// Where on it.
    pub x: u64,
    /// The store.
    pub name: String,
    /// Rounds.
    pub rounds: usize,
    /// Bytes an entity.
    pub filled: Option<f64>,
    /// Bytes that are left of an entity when all are removed.
    pub emptied: Option<f64>,
    /// Bytes an entity when all are stored again.
    pub refilled: Option<f64>,
    /// As a part of what the plain map's take.
    pub of_plain: Option<f64>,
    /// Seconds of storing them, one thread.
    pub fill_s: f64,
}

/// How throughput goes along an axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Growth {
    /// The axis.
    pub axis: Axis,
    /// Under which workload.
    #[serde(flatten)]
    pub load: Load,
    /// The store.
    pub name: String,
    /// As a power of the axis.
    #[serde(flatten)]
    pub fit: Fit,
}

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Beside whom.
    pub baseline: String,
    /// Rounds, at most.
    pub rounds: usize,
    /// What a look at the clock costs, in nanoseconds: it is in the latencies.
    pub clock_ns: Option<f64>,
    /// Points, by axis, workload, place and store.
    pub points: Vec<Point>,
    /// Memory.
    pub memory: Vec<MemoryPoint>,
    /// Curves.
    pub growth: Vec<Growth>,
    /// Who ran out of time.
    pub unfinished: Vec<Short>,
    /// Who was left out.
    pub not_run: Vec<NotRun>,
    /// Who failed.
    pub failed: Vec<Failed>,
    /// Whether it was ended early.
    pub interrupted: bool,
}

/// Everybody's cells at one place, under one workload.
type Field<'a> = BTreeMap<&'a str, BTreeMap<usize, &'a Cell>>;
/// All places under all workloads.
type Fields<'a> = BTreeMap<(Axis, &'a Load, u64), Field<'a>>;

fn fields(lines: &Lines) -> Fields<'_> {
    let mut fields = Fields::new();
    for cell in lines.cells.iter().filter(|cell| !lines.is_out(cell.key.axis, cell.key.x, &cell.key.name)) {
        let field = fields.entry((cell.key.axis, &cell.load, cell.key.x)).or_default();
        field.entry(&cell.key.name).or_default().insert(cell.key.round, cell);
    }
    fields
}

impl Report {
    /// What `lines` make together, beside `baseline`.
    pub fn of(lines: &Lines, baseline: &str, seed: u64, interrupted: bool) -> Self {
        let fields = fields(lines);
        let mut points = Vec::new();
        for ((axis, load, x), field) in &fields {
            points.extend(points_of(*axis, load, *x, field, baseline, seed));
        }
        let mut clocks: Vec<f64> =
            lines.cells.iter().filter_map(|cell| Some(cell.shown.latency?.clock_ns as f64)).collect();
        Self {
            baseline: baseline.to_owned(),
            rounds: lines
                .cells
                .iter()
                .map(|cell| cell.key.round)
                .chain(lines.kept.iter().map(|kept| kept.key.round))
                .max()
                .unwrap_or(0),
            clock_ns: (!clocks.is_empty()).then(|| median(&mut clocks)),
            points,
            memory: memory(lines),
            growth: growth(&fields, seed),
            unfinished: lines.short.clone(),
            not_run: lines.not_run.clone(),
            failed: lines
                .failed
                .iter()
                .filter(|failed| failed.wrong || !lines.is_there(&failed.key))
                .cloned()
                .collect(),
            interrupted,
        }
    }
}

/// The report that these lines make: with their header's baseline and seed.
///
/// # Errors
///
/// Where there is no header, or a line is not what it should be.
pub fn report(lines: &[Value]) -> anyhow::Result<Report> {
    let header = first_header(lines)?;
    let baseline = header.plan["baseline"].as_str().unwrap_or_default().to_owned();
    Ok(Report::of(&Lines::of(lines)?, &baseline, header.environment.seed, false))
}

/// The points of a [`report`] without their ratios, which take most of its time.
///
/// # Errors
///
/// Where a line is not what it should be.
pub fn medians(lines: &[Value]) -> anyhow::Result<Vec<Point>> {
    let lines = Lines::of(lines)?;
    let fields = fields(&lines);
    let points = |((axis, load, x), field): (&(Axis, &Load, u64), &Field<'_>)| {
        let point = |(name, rounds): (&&str, &BTreeMap<usize, &Cell>)| median_of((*axis, *load, *x), name, rounds);
        field.iter().map(point).collect::<Vec<_>>()
    };
    Ok(fields.iter().flat_map(points).collect())
}

/// A point without its ratios.
fn median_of((axis, load, x): (Axis, &Load, u64), name: &str, rounds: &BTreeMap<usize, &Cell>) -> Point {
    let cells: Vec<&Cell> = rounds.values().copied().collect();
    let latency = |of: fn(&super::record::Latency) -> f64| middle(&cells, |cell| cell.shown.latency.as_ref().map(of));
    Point {
        axis,
        x,
        load: load.clone(),
        name: name.to_owned(),
        rounds: cells.len(),
        per_s: middle(&cells, |cell| Some(cell.shown.per_s)).unwrap_or(0.0),
        windowed_per_s: middle(&cells, |cell| cell.shown.windowed_per_s),
        cpu_us: middle(&cells, |cell| cell.shown.cpu_us),
        p50_us: latency(|latency| latency.p50_us),
        p99_us: latency(|latency| latency.p99_us),
        p999_us: latency(|latency| latency.p999_us),
        max_us: cells.iter().filter_map(|cell| Some(cell.shown.latency?.max_us)).max_by(f64::total_cmp),
        beside: None,
        verdict: None,
        beside_bare: None,
    }
}

fn points_of(axis: Axis, load: &Load, x: u64, field: &Field<'_>, baseline: &str, seed: u64) -> Vec<Point> {
    let beside = |name: &str, other: &str| {
        let (own, other) = (field.get(name)?, field.get(other)?);
        let both = own.iter().filter_map(|(round, cell)| Some(cell.shown.per_s / other.get(round)?.shown.per_s));
        Estimate::of(&both.collect::<Vec<_>>(), seed)
    };
    let band: Interval = tie_band(beside(&again(baseline), baseline).as_ref());
    let point = |(name, rounds): (&&str, &BTreeMap<usize, &Cell>)| {
        let ratio = if *name == baseline { None } else { beside(name, baseline) };
        Point {
            verdict: ratio.map(|ratio| ratio.verdict(&band)),
            beside: ratio,
            beside_bare: beside(name, &format!("{PREFIX}{name}")),
            ..median_of((axis, load, x), name, rounds)
        }
    };
    field.iter().map(point).collect()
}

fn middle<T>(all: &[&T], figure: impl Fn(&T) -> Option<f64>) -> Option<f64> {
    let mut values: Vec<f64> = all.iter().filter_map(|one| figure(one)).collect();
    (!values.is_empty()).then(|| median(&mut values))
}

fn memory(lines: &Lines) -> Vec<MemoryPoint> {
    let mut by: BTreeMap<(Axis, u64, &str), Vec<&Kept>> = BTreeMap::new();
    for kept in &lines.kept {
        by.entry((kept.key.axis, kept.key.x, &kept.key.name)).or_default().push(kept);
    }
    let each = |all: &[&Kept], state: usize| middle(all, |kept| kept.memory.per_entity(kept.place.keys)[state]);
    let point = |((axis, x, name), all): (&(Axis, u64, &str), &Vec<&Kept>)| {
        let plain = by.get(&(*axis, *x, super::bare::HASH_MAP)).and_then(|all| each(all, 0));
        let filled = each(all, 0);
        MemoryPoint {
            axis: *axis,
            x: *x,
            name: (*name).to_owned(),
            rounds: all.len(),
            filled,
            emptied: each(all, 1),
            refilled: each(all, 2),
            of_plain: filled.zip(plain).map(|(own, plain)| own / plain),
            fill_s: middle(all, |kept| Some(kept.memory.fill_s)).unwrap_or(0.0),
        }
    };
    by.iter().map(point).collect()
}

fn growth(fields: &Fields<'_>, seed: u64) -> Vec<Growth> {
    let mut samples: BTreeMap<(Axis, &Load, &str), Vec<Observation>> = BTreeMap::new();
    for ((axis, load, x), field) in fields {
        for (name, rounds) in field {
            let own = samples.entry((*axis, load, name)).or_default();
            own.extend(rounds.iter().map(|(round, cell)| Observation { x: *x, round: *round, y: cell.shown.per_s }));
        }
    }
    let places = |samples: &[Observation]| samples.iter().map(|sample| sample.x).collect::<BTreeSet<_>>().len();
    let curve = |((axis, load, name), samples): (&(Axis, &Load, &str), &Vec<Observation>)| {
        let fit = power(samples, seed).filter(|_| places(samples) > 1)?;
        Some(Growth { axis: *axis, load: (*load).clone(), name: (*name).to_owned(), fit })
    };
    samples.iter().filter_map(curve).collect()
}
