//! The report: medians over rounds, ratios within rounds, and how throughput grows.
//!
//! Invariant: a ratio is taken between two stores at the same point, under the same workload, in the same round. Cost: a
//! bootstrap for each store, point and workload; some seconds for thousands of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::bare::PREFIX;
use super::record::{Key, Sample, StoreFigures, StoreLatency, StoreMemory, Throughput};
use super::workload::StoreLoad;
use crate::experiment::{Absence, Experiment, Failed, Reason, Records, again};
use crate::scale::Axis;
use crate::scale::growth::{CurveSample, Fit, power};
use crate::statistics::{Estimate, Interval, Verdict, median_of, tie_band};

/// The end of the name of the baseline's second entry; see [`again`].
pub const AGAIN: &str = " (again)";

/// A store at a point of an axis, under a workload: medians over its rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StorePoint {
    /// The axis.
    pub axis: Axis,
    /// The point of the axis.
    pub x: u64,
    /// The workload.
    #[serde(flatten)]
    pub load: StoreLoad,
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
    /// The verdict that the ratio's interval allows.
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
    /// The time to store all entities with one thread, in seconds.
    pub fill_s: f64,
}

/// How throughput grows along an axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThroughputGrowth {
    /// The axis.
    pub axis: Axis,
    /// The workload.
    #[serde(flatten)]
    pub load: StoreLoad,
    /// The store.
    pub name: String,
    /// The curve: a power of the axis.
    #[serde(flatten)]
    pub curve: Fit,
}

/// A store that ran out of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimedOut {
    /// The store run.
    #[serde(flatten)]
    pub key: Key,
    /// The step that did not end within its limit.
    pub why: String,
}

/// A store that is left out at a point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoreNotRun {
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
    /// Points, by axis, workload, point and store.
    pub points: Vec<StorePoint>,
    /// Memory.
    pub memory: Vec<MemoryPoint>,
    /// Curves.
    pub growth: Vec<ThroughputGrowth>,
    /// Stores that ran out of time.
    pub unfinished: Vec<TimedOut>,
    /// Stores that were left out.
    pub not_run: Vec<StoreNotRun>,
    /// Stores that failed; they have no figures at their points.
    pub failed: Vec<Failed<Key>>,
    /// Whether it was ended early.
    pub interrupted: bool,
}

/// A cell of a workload that has operations.
#[derive(Clone, Copy)]
struct StoreCell<'a> {
    key: &'a Key,
    load: &'a StoreLoad,
    throughput: &'a Throughput,
}

/// The cells of all stores at one point, under one workload.
type PointCells<'a> = BTreeMap<&'a str, BTreeMap<usize, StoreCell<'a>>>;
/// All points under all workloads.
type CellsByPoint<'a> = BTreeMap<(Axis, &'a StoreLoad, u64), PointCells<'a>>;

/// The samples and the failures of a record.
struct MeasuredCells<'a> {
    samples: Vec<(&'a Key, &'a Sample)>,
    failed: Vec<Failed<Key>>,
}

impl<'a> MeasuredCells<'a> {
    /// A failure is dropped if a later run has measured the same store run. A store that failed at a point has no samples there.
    fn of<E>(records: &'a Records<E>) -> Self
    where
        E: Experiment<Key = Key, Sample = Sample>,
    {
        let is_same_run = |run: &Key, key: &Key| (run.point(), run.round) == (key.point(), key.round);
        let is_measured = |run: &Key| records.samples().any(|(key, _)| is_same_run(run, key));
        let mut failed = records.failed();
        failed.retain(|failed| failed.wrong || !is_measured(&failed.key));
        let is_out = |key: &Key| failed.iter().any(|failed| failed.key.point() == key.point());
        let samples = records.samples().filter(|(key, _)| !is_out(key)).collect();
        Self { samples, failed }
    }

    fn cells(&self) -> impl Iterator<Item = StoreCell<'a>> {
        self.samples.iter().filter_map(|(key, sample)| match &sample.figures {
            StoreFigures::Operations(throughput) => Some(StoreCell { key, load: key.load.as_ref()?, throughput }),
            StoreFigures::Memory(_) => None,
        })
    }

    fn by_point(&self) -> CellsByPoint<'a> {
        let mut cells_by_point = CellsByPoint::new();
        for cell in self.cells() {
            let point_cells = cells_by_point.entry((cell.key.axis, cell.load, cell.key.x)).or_default();
            point_cells.entry(&cell.key.name).or_default().insert(cell.key.round, cell);
        }
        cells_by_point
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
        let measured = MeasuredCells::of(records);
        let cells_by_point = measured.by_point();
        let mut points = Vec::new();
        for ((axis, load, x), point_cells) in &cells_by_point {
            points.extend(points_of(*axis, load, *x, point_cells, baseline, seed));
        }
        let clocks = measured.cells().filter_map(|cell| Some(cell.throughput.latency?.clock_ns as f64));
        let absent = |reason: Reason| records.absences().filter(move |(_, absence)| absence.reason == reason);
        let timed_out =
            |(key, absence): (&Key, &Absence)| TimedOut { key: key.without_load(), why: absence.why.clone() };
        let not_run = |(key, absence): (&Key, &Absence)| StoreNotRun {
            axis: key.axis,
            x: key.x,
            name: key.name.clone(),
            why: absence.why.clone(),
        };
        Self {
            baseline: baseline.to_owned(),
            rounds: measured.samples.iter().map(|(key, _)| key.round).max().unwrap_or(0),
            clock_ns: median_of(clocks),
            points,
            memory: memory(&measured),
            growth: growth(&cells_by_point, seed),
            unfinished: absent(Reason::TimedOut).map(timed_out).collect(),
            not_run: absent(Reason::NotAvailable).map(not_run).collect(),
            failed: measured.failed,
            interrupted: records.is_interrupted(),
        }
    }
}

/// A point without its ratios.
fn median_point(
    (axis, load, x): (Axis, &StoreLoad, u64),
    name: &str,
    rounds: &BTreeMap<usize, StoreCell<'_>>,
) -> StorePoint {
    let cells: Vec<&Throughput> = rounds.values().map(|cell| cell.throughput).collect();
    let median = |figure: fn(&Throughput) -> Option<f64>| median_of(cells.iter().filter_map(|cell| figure(cell)));
    let latency =
        |of: fn(&StoreLatency) -> f64| median_of(cells.iter().filter_map(|cell| cell.latency.as_ref()).map(of));
    StorePoint {
        axis,
        x,
        load: load.clone(),
        name: name.to_owned(),
        rounds: cells.len(),
        per_s: median(|cell| Some(cell.per_s)).unwrap_or(0.0),
        windowed_per_s: median(|cell| cell.windowed_per_s),
        cpu_us: median(|cell| cell.cpu_us),
        p50_us: latency(|latency| latency.p50_us),
        p99_us: latency(|latency| latency.p99_us),
        p999_us: latency(|latency| latency.p999_us),
        max_us: cells.iter().filter_map(|cell| Some(cell.latency?.max_us)).max_by(f64::total_cmp),
        beside: None,
        verdict: None,
        beside_bare: None,
    }
}

fn points_of(
    axis: Axis,
    load: &StoreLoad,
    x: u64,
    point_cells: &PointCells<'_>,
    baseline: &str,
    seed: u64,
) -> Vec<StorePoint> {
    let ratio_of = |name: &str, base: &str| {
        let (rounds, base) = (point_cells.get(name)?, point_cells.get(base)?);
        let ratios =
            rounds.iter().filter_map(|(round, cell)| Some(cell.throughput.per_s / base.get(round)?.throughput.per_s));
        Estimate::of(&ratios.collect::<Vec<_>>(), seed)
    };
    let band: Interval = tie_band(ratio_of(&again(baseline), baseline).as_ref());
    let point = |(name, rounds): (&&str, &BTreeMap<usize, StoreCell<'_>>)| {
        let ratio = if *name == baseline { None } else { ratio_of(name, baseline) };
        StorePoint {
            verdict: ratio.map(|ratio| ratio.verdict(&band)),
            beside: ratio,
            beside_bare: ratio_of(name, &format!("{PREFIX}{name}")),
            ..median_point((axis, load, x), name, rounds)
        }
    };
    point_cells.iter().map(point).collect()
}

/// The number of entities, and their memory.
type KeysAndMemory = (u64, StoreMemory);

fn memory(measured: &MeasuredCells<'_>) -> Vec<MemoryPoint> {
    let mut memory_by_point: BTreeMap<(Axis, u64, &str), Vec<&KeysAndMemory>> = BTreeMap::new();
    let measured_memory = measured.samples.iter().filter_map(|(key, sample)| match sample.figures {
        StoreFigures::Memory(memory) => Some((*key, (sample.place.keys, memory))),
        StoreFigures::Operations(_) => None,
    });
    let measured_memory: Vec<(&Key, KeysAndMemory)> = measured_memory.collect();
    for (key, memory) in &measured_memory {
        memory_by_point.entry(key.point()).or_default().push(memory);
    }
    let bytes_per_entity = |all: &[&KeysAndMemory], state: usize| {
        median_of(all.iter().filter_map(|(keys, memory)| memory.per_entity(*keys)[state]))
    };
    let point = |(&(axis, x, name), all): (&(Axis, u64, &str), &Vec<&KeysAndMemory>)| {
        let plain = memory_by_point.get(&(axis, x, super::bare::HASH_MAP)).and_then(|all| bytes_per_entity(all, 0));
        let filled = bytes_per_entity(all, 0);
        MemoryPoint {
            axis,
            x,
            name: name.to_owned(),
            rounds: all.len(),
            filled,
            emptied: bytes_per_entity(all, 1),
            refilled: bytes_per_entity(all, 2),
            of_plain: filled.zip(plain).map(|(filled, plain)| filled / plain),
            fill_s: median_of(all.iter().map(|(_, memory)| memory.fill_s)).unwrap_or(0.0),
        }
    };
    memory_by_point.iter().map(point).collect()
}

fn growth(cells_by_point: &CellsByPoint<'_>, seed: u64) -> Vec<ThroughputGrowth> {
    let mut samples: BTreeMap<(Axis, &StoreLoad, &str), Vec<CurveSample>> = BTreeMap::new();
    for ((axis, load, x), point_cells) in cells_by_point {
        for (name, rounds) in point_cells {
            let own = samples.entry((*axis, load, name)).or_default();
            own.extend(rounds.iter().map(|(round, cell)| CurveSample {
                x: *x,
                round: *round,
                y: cell.throughput.per_s,
            }));
        }
    }
    let places = |samples: &[CurveSample]| samples.iter().map(|sample| sample.x).collect::<BTreeSet<_>>().len();
    let curve = |((axis, load, name), samples): (&(Axis, &StoreLoad, &str), &Vec<CurveSample>)| {
        let curve = power(samples, seed).filter(|_| places(samples) > 1)?;
        Some(ThroughputGrowth { axis: *axis, load: (*load).clone(), name: (*name).to_owned(), curve })
    };
    samples.iter().filter_map(curve).collect()
}
