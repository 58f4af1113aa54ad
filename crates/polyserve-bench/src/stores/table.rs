//! The report as text, its tables, and its samples as CSV.

use std::collections::BTreeSet;
use std::fmt;

use crate::report::figures::{count, counted};
use crate::report::{EMPTY_CELL, Table, or_empty};

use super::bare::PREFIX;
use super::record::{Key, Sample, StoreFigures};
use super::report::{AGAIN, MemoryPoint, Report, StorePoint, ThroughputGrowth};
use super::workload::StoreLoad;
use crate::experiment::{Experiment, Records, csv};
use crate::scale::Axis;
use crate::scale::growth::Fit;
use crate::statistics::{Estimate, Interval, MIN_ROUNDS, Verdict};

/// A time in microseconds.
fn time(us: Option<f64>) -> String {
    match us {
        None => EMPTY_CELL.into(),
        Some(us) if us < 10.0 => format!("{:.0} ns", us * 1000.0),
        Some(us) if us < 10_000.0 => format!("{us:.0} us"),
        Some(us) => format!("{:.0} ms", us / 1000.0),
    }
}

/// Operations a second, for a table.
pub fn rate(per_s: f64) -> String {
    match per_s {
        per_s if per_s >= 1e5 => format!("{:.2} M", per_s / 1e6),
        per_s => format!("{:.1} k", per_s / 1e3),
    }
}

fn ratio(estimate: Option<&Estimate>) -> String {
    or_empty(estimate.map(|estimate| format!("{:.3} {}", estimate.ratio, estimate.interval)))
}

fn verdict(verdict: Option<Verdict>) -> String {
    verdict.map_or("the baseline", |verdict| verdict.in_words("faster", "slower")).into()
}

fn points_table(baseline: &str, axis: Axis, points: &[&StorePoint]) -> Table {
    let axis = axis.name();
    let later = points.iter().any(|point| point.windowed_per_s.is_some());
    let bare = points.iter().any(|point| point.beside_bare.is_some());
    let against = format!("of {baseline}");
    let mut header = vec!["store", axis, "operations/s"];
    header.extend(later.then_some("64 outstanding"));
    header.extend([against.as_str(), "verdict"]);
    header.extend(bare.then_some("of its bare map"));
    header.extend(["CPU", "p50", "p99", "p99.9", "max"]);
    let mut table = Table::of_numbers(&header).named_by(2);
    for point in points {
        let mut row = vec![point.name.clone(), count(point.x as f64), rate(point.per_s)];
        if later {
            row.push(or_empty(point.windowed_per_s.map(rate)));
        }
        let verdict_text =
            if point.name != baseline && point.verdict.is_none() { EMPTY_CELL.into() } else { verdict(point.verdict) };
        row.extend([ratio(point.beside.as_ref()), verdict_text]);
        if bare {
            row.push(ratio(point.beside_bare.as_ref()));
        }
        row.push(time(point.cpu_us));
        row.extend([point.p50_us, point.p99_us, point.p999_us, point.max_us].map(time));
        table.row(row);
    }
    table
}

fn memory_table(axis: Axis, points: &[&MemoryPoint]) -> Table {
    let bytes = |bytes: Option<f64>| or_empty(bytes.map(|bytes| format!("{bytes:.1}")));
    Table::of_columns(
        points,
        &[
            ("store", &|point| point.name.clone()),
            (axis.name(), &|point| count(point.x as f64)),
            ("bytes/entity", &|point| bytes(point.filled)),
            ("of bare/hash_map", &|point| or_empty(point.of_plain.map(|part| format!("{part:.3}")))),
            ("after removal", &|point| bytes(point.emptied)),
            ("after refill", &|point| bytes(point.refilled)),
            ("entities stored/s", &|point| or_empty(point.stored_per_s().map(rate))),
        ],
    )
}

impl MemoryPoint {
    /// Entities stored a second. `None` unless the axis is their number.
    fn stored_per_s(&self) -> Option<f64> {
        Some(self.x as f64 / self.fill_s).filter(|rate| self.axis == Axis::Keys && rate.is_finite())
    }
}

fn growth_table(growth: &[&ThroughputGrowth]) -> Table {
    Table::of_columns(
        growth,
        &[
            ("store", &|growth| growth.name.clone()),
            ("workload", &|growth| growth.load.to_string()),
            ("throughput grows as", &|growth| format!("{}^{:.2}", growth.axis, growth.curve.b)),
            ("95 % interval", &|ThroughputGrowth { curve: Fit { interval: Interval { low, high }, .. }, .. }| {
                format!("[{low:.2}, {high:.2}]")
            }),
            ("R²", &|growth| growth.curve.r2_text()),
            ("points", &|growth| growth.curve.points.to_string()),
            ("rounds", &|growth| growth.curve.rounds.to_string()),
        ],
    )
}

/// The fastest repo at each point, by medians, and its throughput relative to the fastest bare map's. If the name changes along
/// a row, the curves of two stores cross.
fn fastest_table(points: &[&StorePoint]) -> Table {
    let places: BTreeSet<u64> = points.iter().map(|point| point.x).collect();
    let loads: BTreeSet<&StoreLoad> = points.iter().map(|point| &point.load).collect();
    let mut header = vec![String::from("workload")];
    header.extend(places.iter().map(|x| count(*x as f64)));
    let mut table = Table::of_texts(&header.iter().map(String::as_str).collect::<Vec<_>>());
    for load in loads {
        let fastest = |x: u64, is_bare: bool| {
            let here =
                points.iter().filter(|point| point.x == x && point.load == *load && !point.name.ends_with(AGAIN));
            let own = here.filter(|point| point.name.starts_with(PREFIX) == is_bare);
            own.max_by(|one, other| one.per_s.total_cmp(&other.per_s))
        };
        let mut row = vec![load.to_string()];
        row.extend(places.iter().map(|x| {
            or_empty(fastest(*x, false).map(|repo| {
                let bare = fastest(*x, true).map(|bare| format!(", {:.2} of {}", repo.per_s / bare.per_s, bare.name));
                format!("{} {}{}", repo.name, rate(repo.per_s), bare.unwrap_or_default())
            }))
        }));
        table.row(row);
    }
    table
}

/// Latencies of single operations at one point, of every store under each workload.
fn tails_table(points: &[&StorePoint], x: u64) -> Table {
    let here = || points.iter().filter(move |point| point.x == x);
    let loads: BTreeSet<&StoreLoad> = here().map(|point| &point.load).collect();
    let names: BTreeSet<&str> = here().map(|point| &*point.name).filter(|name| !name.ends_with(AGAIN)).collect();
    let mut header = vec![String::from("store")];
    header.extend(loads.iter().map(ToString::to_string));
    let mut table = Table::of_numbers(&header.iter().map(String::as_str).collect::<Vec<_>>());
    for name in names {
        let mut row = vec![name.to_owned()];
        row.extend(loads.iter().map(|load| {
            let point = here().find(|point| point.name == name && point.load == **load);
            let tail = point.map(|point| [point.p50_us, point.p99_us, point.p999_us].map(time).join(", "));
            or_empty(tail)
        }));
        table.row(row);
    }
    table
}

/// The stores without figures: name, place, and why.
fn missing(report: &Report) -> Vec<[String; 3]> {
    let row = |name: &str, axis: Axis, x: u64, why: String| [name.to_owned(), format!("{x} {axis}"), why];
    let mut all: Vec<[String; 3]> = Vec::new();
    all.extend(report.unfinished.iter().map(|run| row(&run.key.name, run.key.axis, run.key.x, run.why.clone())));
    all.extend(report.not_run.iter().map(|cell| row(&cell.name, cell.axis, cell.x, format!("not run: {}", cell.why))));
    let failed = report.failed.iter().map(|failed| (&failed.key, format!("no figures: {}", failed.why)));
    all.extend(failed.map(|(key, why)| row(&key.name, key.axis, key.x, why)));
    all
}

/// The memory of each axis, the points of each workload and the fastest stores, by their titles.
fn all_tables(report: &Report) -> Vec<(String, Table)> {
    let mut tables = Vec::new();
    for axis in Axis::ALL {
        let memory: Vec<&MemoryPoint> = report.memory.iter().filter(|point| point.axis == axis).collect();
        if !memory.is_empty() {
            tables.push((format!("{axis}: memory"), memory_table(axis, &memory)));
        }
        let own = || report.points.iter().filter(move |point| point.axis == axis);
        let mut loads: Vec<&StoreLoad> = own().map(|point| &point.load).collect();
        loads.dedup();
        for load in loads {
            let points: Vec<&StorePoint> = own().filter(|point| point.load == *load).collect();
            tables.push((format!("{axis}: {load}"), points_table(&report.baseline, axis, &points)));
        }
        let all: Vec<&StorePoint> = own().collect();
        if !all.is_empty() {
            tables.push((format!("{axis}: the fastest repo"), fastest_table(&all)));
            for x in all.iter().map(|point| point.x).collect::<BTreeSet<_>>() {
                tables.push((format!("{axis}: p50, p99, p99.9 at {x}"), tails_table(&all, x)));
            }
        }
    }
    tables
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (title, table) in all_tables(self) {
            writeln!(f, "{title}; medians of {}\n{table}", counted(self.rounds as u64, "round"))?;
        }
        if let Some(clock_ns) = self.clock_ns {
            writeln!(f, "OPERATIONS/S, P50 to MAX: one operation at a time")?;
            writeln!(f, "P50 to MAX: of one operation in 64, with one reading of the clock: {clock_ns:.0} ns")?;
        }
        for timed_out in &self.unfinished {
            writeln!(f, "{}", timed_out.why)?;
        }
        for [name, at, why] in missing(self).iter().skip(self.unfinished.len()) {
            writeln!(f, "{name}, {at}: {why}")?;
        }
        if self.rounds < MIN_ROUNDS && !self.points.is_empty() {
            writeln!(f, "too few rounds: a verdict needs {MIN_ROUNDS}")?;
        }
        Ok(())
    }
}

/// The tables of a report: the points of each axis and workload, memory, growth, and the stores without figures.
pub(super) fn tables(report: &Report) -> Vec<(String, Table)> {
    let mut tables = all_tables(report);
    for axis in Axis::ALL {
        let growth: Vec<&ThroughputGrowth> = report.growth.iter().filter(|growth| growth.axis == axis).collect();
        if !growth.is_empty() {
            tables.push((format!("{axis}: growth"), growth_table(&growth)));
        }
    }
    let missing = missing(report);
    if !missing.is_empty() {
        let mut table = Table::of_texts(&["store", "point", "reason"]);
        missing.into_iter().for_each(|row| table.row(row.into()));
        tables.push(("without figures".into(), table));
    }
    tables
}

/// Every sample as CSV: first throughput, then memory.
pub(super) fn samples_csv<E>(records: &Records<E>) -> anyhow::Result<String>
where
    E: Experiment<Key = Key, Sample = Sample>,
{
    let mut rows = records.rows();
    rows.sort_by_key(|row| matches!(row.sample.figures, StoreFigures::Memory(_)));
    csv(COLUMNS, rows)
}

const COLUMNS: &str = "\
    axis,x,name,round,keys,threads,payload_bytes,workload,dist,operations,elapsed_s,per_s,windowed_per_s,\
    cpu_us,sampled,clock_ns,p50_us,p99_us,p999_us,max_us,start_bytes,filled_bytes,fill_s,emptied_bytes,\
    refilled_bytes,refill_s";
