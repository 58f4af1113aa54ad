//! The report: medians over rounds, ratios within rounds, and how throughput grows.
//!
//! Invariant: a ratio is taken between two stores at the same place, under the same workload, in the same round. Cost: a
//! bootstrap for each store, place and workload; some seconds for thousands of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::bare::PREFIX;
use super::experiment::Stores;
use super::process::Processes;
use super::record::{Figures, Key, Latency, Memory, Sample, Throughput};
use super::workload::Load;
use crate::experiment::{Absence, Experiment, Failed, Reason, Records, again};
use crate::scale::Axis;
use crate::scale::growth::{Fit, Observation, power};
use crate::statistics::{Estimate, Interval, Verdict, median, tie_band};

/// The end of the name of the baseline's second entry; see [`again`].
pub const AGAIN: &str = " (again)";

/// A store at a place of an axis, under a workload: medians over its rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The axis.
    pub axis: Axis,
    /// The point of the axis.
    pub x: u64,
    /// The workload.
    #[serde(flatten)]
    pub load: Load,
    /// The store.
    pub name: String,
    /// Rounds.
    pub rounds: usize,
    /// Operations a second.
    pub per_s: f64,
    /// Operations a second with many outstanding.
    pub windowed_per_s: Option<f64>,
    /// CPU time of each operation, in microseconds.
    pub cpu_us: Option<f64>,
    /// Latencies in microseconds: median.
    pub p50_us: Option<f64>,
    /// 99 %.
    pub p99_us: Option<f64>,
    /// 99.9 %.
    pub p999_us: Option<f64>,
    /// The longest of all rounds.
    pub max_us: Option<f64>,
    /// Throughput divided by the baseline's.
    pub beside: Option<Estimate>,
    /// What the ratio's interval allows to claim.
    pub verdict: Option<Verdict>,
    /// A repo's throughput divided by the throughput of its map, used bare.
    pub beside_bare: Option<Estimate>,
}

/// Memory of entities: medians over rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryPoint {
    /// The axis.
    pub axis: Axis,
    /// The point of the axis.
    pub x: u64,
    /// The store.
    pub name: String,
    /// Rounds.
    pub rounds: usize,
    /// Bytes of an entity.
    pub filled: Option<f64>,
    /// Bytes of an entity after all are removed.
    pub emptied: Option<f64>,
    /// Bytes of an entity after all are stored again.
    pub refilled: Option<f64>,
    /// `filled` divided by the plain map's.
    pub of_plain: Option<f64>,
    /// Seconds of storing them, one thread.
    pub fill_s: f64,
}

/// How throughput grows along an axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Growth {
    /// The axis.
    pub axis: Axis,
    /// The workload.
    #[serde(flatten)]
    pub load: Load,
    /// The store.
    pub name: String,
    /// The curve: a power of the axis.
    #[serde(flatten)]
    pub fit: Fit,
}

/// A store that ran out of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimedOut {
    /// The visit.
    #[serde(flatten)]
    pub key: Key,
    /// The step that did not end within its limit.
    pub why: String,
}

/// A store that is left out at a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotRun {
    /// The axis.
    pub axis: Axis,
    /// The point of the axis.
    pub x: u64,
    /// The store.
    pub name: String,
    /// Why.
    pub why: String,
}

/// The result of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The baseline.
    pub baseline: String,
    /// Rounds, at most.
    pub rounds: usize,
    /// The cost of reading the clock, in nanoseconds; latencies include it.
    pub clock_ns: Option<f64>,
    /// Points, by axis, workload, place and store.
    pub points: Vec<Point>,
    /// Memory.
    pub memory: Vec<MemoryPoint>,
    /// Curves.
    pub growth: Vec<Growth>,
    /// Stores that ran out of time.
    pub unfinished: Vec<TimedOut>,
    /// Stores that were left out.
    pub not_run: Vec<NotRun>,
    /// Stores that failed; they have no figures at their places.
    pub failed: Vec<Failed<Key>>,
    /// Whether it was ended early.
    pub interrupted: bool,
}

/// A cell of a workload that has operations.
#[derive(Clone, Copy)]
struct Cell<'a> {
    key: &'a Key,
    load: &'a Load,
    throughput: &'a Throughput,
}

/// The cells of all stores at one place, under one workload.
type Field<'a> = BTreeMap<&'a str, BTreeMap<usize, Cell<'a>>>;
/// All places under all workloads.
type Fields<'a> = BTreeMap<(Axis, &'a Load, u64), Field<'a>>;

/// The samples and the failures of a record.
struct Measured<'a> {
    samples: Vec<(&'a Key, &'a Sample)>,
    failed: Vec<Failed<Key>>,
}

impl<'a> Measured<'a> {
    /// A failure is dropped if a later run has measured its visit. A store that failed at a place has no samples there.
    fn of<E>(records: &'a Records<E>) -> Self
    where
        E: Experiment<Key = Key, Sample = Sample>,
    {
        let is_visit = |visit: &Key, key: &Key| (visit.point(), visit.round) == (key.point(), key.round);
        let is_measured = |visit: &Key| records.samples().any(|(key, _)| is_visit(visit, key));
        let mut failed = records.failed();
        failed.retain(|failed| failed.wrong || !is_measured(&failed.key));
        let is_out = |key: &Key| failed.iter().any(|failed| failed.key.point() == key.point());
        let samples = records.samples().filter(|(key, _)| !is_out(key)).collect();
        Self { samples, failed }
    }

    fn cells(&self) -> impl Iterator<Item = Cell<'a>> {
        self.samples.iter().filter_map(|(key, sample)| match &sample.figures {
            Figures::Operations(throughput) => Some(Cell { key, load: key.load.as_ref()?, throughput }),
            Figures::Memory(_) => None,
        })
    }

    fn fields(&self) -> Fields<'a> {
        let mut fields = Fields::new();
        for cell in self.cells() {
            let field = fields.entry((cell.key.axis, cell.load, cell.key.x)).or_default();
            field.entry(&cell.key.name).or_default().insert(cell.key.round, cell);
        }
        fields
    }
}

impl Report {
    /// The result of these records.
    pub fn of<E>(records: &Records<E>) -> Self
    where
        E: Experiment<Key = Key, Sample = Sample>,
    {
        let baseline = records.header.plan["baseline"].as_str().unwrap_or_default();
        let seed = records.header.environment.seed;
        let measured = Measured::of(records);
        let fields = measured.fields();
        let mut points = Vec::new();
        for ((axis, load, x), field) in &fields {
            points.extend(points_of(*axis, load, *x, field, baseline, seed));
        }
        let clocks = measured.cells().filter_map(|cell| Some(cell.throughput.latency?.clock_ns as f64));
        let mut clocks: Vec<f64> = clocks.collect();
        let absent = |reason: Reason| records.absences().filter(move |(_, absence)| absence.reason == reason);
        let timed_out = |(key, absence): (&Key, &Absence)| TimedOut { key: key.visit(), why: absence.why.clone() };
        let not_run = |(key, absence): (&Key, &Absence)| NotRun {
            axis: key.axis,
            x: key.x,
            name: key.name.clone(),
            why: absence.why.clone(),
        };
        Self {
            baseline: baseline.to_owned(),
            rounds: measured.samples.iter().map(|(key, _)| key.round).max().unwrap_or(0),
            clock_ns: (!clocks.is_empty()).then(|| median(&mut clocks)),
            points,
            memory: memory(&measured),
            growth: growth(&fields, seed),
            unfinished: absent(Reason::TimedOut).map(timed_out).collect(),
            not_run: absent(Reason::NotAvailable).map(not_run).collect(),
            failed: measured.failed,
            interrupted: records.is_interrupted(),
        }
    }
}

/// The points of a record without their ratios, which take most of a report's time.
///
/// # Errors
///
/// Returns an error if a line does not have the fields of its kind.
pub fn medians(lines: &[Value]) -> anyhow::Result<Vec<Point>> {
    let records = Records::<Stores<Processes>>::of(lines)?;
    let fields = Measured::of(&records).fields();
    let points = |((axis, load, x), field): (&(Axis, &Load, u64), &Field<'_>)| {
        let point = |(name, rounds): (&&str, &BTreeMap<usize, Cell<'_>>)| median_of((*axis, *load, *x), name, rounds);
        field.iter().map(point).collect::<Vec<_>>()
    };
    Ok(fields.iter().flat_map(points).collect())
}

/// A point without its ratios.
fn median_of((axis, load, x): (Axis, &Load, u64), name: &str, rounds: &BTreeMap<usize, Cell<'_>>) -> Point {
    let cells: Vec<&Throughput> = rounds.values().map(|cell| cell.throughput).collect();
    let latency = |of: fn(&Latency) -> f64| middle(&cells, |cell| cell.latency.as_ref().map(of));
    Point {
        axis,
        x,
        load: load.clone(),
        name: name.to_owned(),
        rounds: cells.len(),
        per_s: middle(&cells, |cell| Some(cell.per_s)).unwrap_or(0.0),
        windowed_per_s: middle(&cells, |cell| cell.windowed_per_s),
        cpu_us: middle(&cells, |cell| cell.cpu_us),
        p50_us: latency(|latency| latency.p50_us),
        p99_us: latency(|latency| latency.p99_us),
        p999_us: latency(|latency| latency.p999_us),
        max_us: cells.iter().filter_map(|cell| Some(cell.latency?.max_us)).max_by(f64::total_cmp),
        beside: None,
        verdict: None,
        beside_bare: None,
    }
}

fn points_of(axis: Axis, load: &Load, x: u64, field: &Field<'_>, baseline: &str, seed: u64) -> Vec<Point> {
    let beside = |name: &str, other: &str| {
        let (own, other) = (field.get(name)?, field.get(other)?);
        let both =
            own.iter().filter_map(|(round, cell)| Some(cell.throughput.per_s / other.get(round)?.throughput.per_s));
        Estimate::of(&both.collect::<Vec<_>>(), seed)
    };
    let band: Interval = tie_band(beside(&again(baseline), baseline).as_ref());
    let point = |(name, rounds): (&&str, &BTreeMap<usize, Cell<'_>>)| {
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

/// The number of entities, and their memory.
type Held = (u64, Memory);

fn memory(measured: &Measured<'_>) -> Vec<MemoryPoint> {
    let mut by: BTreeMap<(Axis, u64, &str), Vec<&Held>> = BTreeMap::new();
    let own = measured.samples.iter().filter_map(|(key, sample)| match sample.figures {
        Figures::Memory(memory) => Some((*key, (sample.place.keys, memory))),
        Figures::Operations(_) => None,
    });
    let own: Vec<(&Key, Held)> = own.collect();
    for (key, memory) in &own {
        by.entry(key.point()).or_default().push(memory);
    }
    let each = |all: &[&Held], state: usize| middle(all, |(keys, memory)| memory.per_entity(*keys)[state]);
    let point = |(&(axis, x, name), all): (&(Axis, u64, &str), &Vec<&Held>)| {
        let plain = by.get(&(axis, x, super::bare::HASH_MAP)).and_then(|all| each(all, 0));
        let filled = each(all, 0);
        MemoryPoint {
            axis,
            x,
            name: name.to_owned(),
            rounds: all.len(),
            filled,
            emptied: each(all, 1),
            refilled: each(all, 2),
            of_plain: filled.zip(plain).map(|(own, plain)| own / plain),
            fill_s: middle(all, |(_, memory)| Some(memory.fill_s)).unwrap_or(0.0),
        }
    };
    by.iter().map(point).collect()
}

fn growth(fields: &Fields<'_>, seed: u64) -> Vec<Growth> {
    let mut samples: BTreeMap<(Axis, &Load, &str), Vec<Observation>> = BTreeMap::new();
    for ((axis, load, x), field) in fields {
        for (name, rounds) in field {
            let own = samples.entry((*axis, load, name)).or_default();
            own.extend(rounds.iter().map(|(round, cell)| Observation {
                x: *x,
                round: *round,
                y: cell.throughput.per_s,
            }));
        }
    }
    let places = |samples: &[Observation]| samples.iter().map(|sample| sample.x).collect::<BTreeSet<_>>().len();
    let curve = |((axis, load, name), samples): (&(Axis, &Load, &str), &Vec<Observation>)| {
        let fit = power(samples, seed).filter(|_| places(samples) > 1)?;
        Some(Growth { axis: *axis, load: (*load).clone(), name: (*name).to_owned(), fit })
    };
    samples.iter().filter_map(curve).collect()
}
