//! The cells as tables: one of all cells for the terminal, and the tables of the published article for documents.
//!
//! Invariant: a figure is the median of its rounds, with their interval if there are several.

use std::fmt::Write as _;

use crate::contestants::PRINTING;
use crate::experiment::distinct;
use crate::report::figures::count;
use crate::report::{Table, or_empty};
use crate::statistics::{Estimate, MIN_ROUNDS, median_of};
use anyhow::Context as _;

use super::claims::{CLASSIC, REPO, TWIN, classic};
use super::missing::MissingCell;
use super::published::{self, PublishedCell};
use super::{Cell, CellMethod, DEBUG, Key, Sample};

/// The rounds of a cell, at least one.
struct CellRounds<'a>(Vec<&'a Cell>);

/// The title of a figure, and the figure of a cell.
type MatrixFigure = (&'static str, fn(&Cell) -> f64);

/// The title of a figure, the published figure, and the measured one. A cell that took too little time has no maxima.
type PublishedColumn = (&'static str, fn(&PublishedCell) -> f64, fn(&Cell) -> Option<f64>);

/// The figures of the published tables, and the CPU time of a request, which differs even if the client is full.
const FIGURES: [MatrixFigure; 5] = [
    ("CPU time of a request in us", |cell| cell.sample.server_cpu_us_per_request),
    ("total time in s", |cell| cell.sample.total_s),
    ("CPU in %", |cell| cell.sample.avg_cpu_pct),
    ("resident memory in MiB", |cell| cell.sample.avg_resident_kb / 1024.0),
    ("time of a request in ms", |cell| cell.sample.per_request_ms),
];

impl<'a> CellRounds<'a> {
    /// Groups the cells that differ by their round only: by method, by contestant in the order of the cells, by
    /// connections, by pool size.
    fn of(cells: &'a [Cell]) -> Vec<Self> {
        let names = names(cells);
        let place = |cell: &Cell| names.iter().position(|name| *name == cell.key.name());
        let mut sorted: Vec<&Cell> = cells.iter().collect();
        sorted.sort_by_key(|cell| {
            (cell.key.method, place(cell), cell.key.connections, cell.key.pool_size, cell.key.round)
        });
        let without_round = |cell: &Cell| Key { round: 0, ..cell.key.clone() };
        let same = sorted.chunk_by(|one, next| without_round(one) == without_round(next));
        same.map(|rounds| Self(rounds.to_vec())).collect()
    }

    /// The key of the first round.
    fn key(&self) -> &'a Key {
        &self.0[0].key
    }

    fn median(&self, figure: impl Fn(&Cell) -> f64) -> f64 {
        median_of(self.0.iter().map(|cell| figure(cell))).unwrap_or(0.0)
    }

    /// The median, with its interval if there are several rounds.
    fn text(&self, figure: impl Fn(&Cell) -> f64) -> String {
        let mut text = short(self.median(&figure));
        let values: Vec<f64> = self.0.iter().map(|cell| figure(cell)).collect();
        if values.len() < 2 {
            return text; // an interval of one round says nothing, and resampling costs time
        }
        if values.len() < MIN_ROUNDS {
            return text + " [too few rounds]";
        }
        if let Some(Estimate { interval, .. }) = Estimate::of(&values, 0) {
            let _ = write!(text, " [{}, {}]", short(interval.low), short(interval.high)); // a write to a string does not fail
        }
        text
    }
}

/// The contestants' names, the control last.
fn names(cells: &[Cell]) -> Vec<String> {
    let (own, control): (Vec<&Cell>, Vec<&Cell>) = cells.iter().partition(|cell| !cell.key.control);
    distinct(own.into_iter().chain(control).map(|cell| cell.key.name()))
}

/// Three significant digits or more.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => count(value),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        size if size >= 0.01 || size == 0.0 => format!("{value:.3}"),
        _ => format!("{value:.5}"),
    }
}

fn pool(size: Option<usize>) -> String {
    or_empty(size.map(|size| size.to_string()))
}

/// Every cell, for the terminal.
pub fn cells(cells: &[Cell]) -> Table {
    let max_cpu = |rounds: &CellRounds<'_>| rounds.0.iter().filter_map(|cell| cell.sample.max_cpu_pct).reduce(f64::max);
    let median =
        |rounds: &CellRounds<'_>, figure: fn(&Sample) -> f64| short(rounds.median(|cell| figure(&cell.sample)));
    Table::of_columns(
        CellRounds::of(cells),
        &[
            ("contestant", &|rounds| rounds.key().name()),
            ("method", &|rounds| rounds.key().method.name().to_uppercase()),
            ("connections", &|rounds| rounds.key().connections.to_string()),
            ("pool", &|rounds| pool(rounds.key().pool_size)),
            ("req/s", &|rounds| median(rounds, |sample| sample.requests_per_s)),
            ("total s", &|rounds| rounds.text(|cell| cell.sample.total_s)),
            ("request ms", &|rounds| median(rounds, |sample| sample.per_request_ms)),
            ("CPU us/req", &|rounds| median(rounds, |sample| sample.server_cpu_us_per_request)),
            ("CPU %", &|rounds| median(rounds, |sample| sample.avg_cpu_pct)),
            ("max CPU %", &|rounds| or_empty(max_cpu(rounds).map(short))),
            ("MiB", &|rounds| median(rounds, |sample| sample.avg_resident_kb / 1024.0)),
            ("connect ms", &|rounds| median(rounds, |sample| sample.connect_ms)),
            ("processing ms", &|rounds| median(rounds, |sample| sample.processing_ms)),
            ("client CPU %", &|rounds| median(rounds, |sample| sample.client_busy_pct)),
        ],
    )
    .named_by(4)
}

/// The tables for documents: for each method and figure, the pool sizes of every contestant against connections; the
/// published cells next to the measured ones; and the cells without a sample.
///
/// # Errors
///
/// Returns an error if the published figures cannot be read.
pub fn tables(cells: &[Cell], failed: &[MissingCell]) -> anyhow::Result<Vec<(String, Table)>> {
    let rounds = CellRounds::of(cells);
    let mut tables = Vec::new();
    for method in [CellMethod::Get, CellMethod::Put] {
        let of_method = || rounds.iter().filter(move |rounds| rounds.key().method == method);
        let Some(first) = of_method().next() else { continue };
        let (name, requests) = (method.name().to_uppercase(), first.0[0].sample.requests);
        for (title, figure) in FIGURES {
            let title = format!("{name}, {requests} requests: {title}, by connections");
            tables.push((title, by_connections(&of_method().collect::<Vec<_>>(), figure)));
        }
        let as_published = format!("{DEBUG}{CLASSIC}/{REPO}");
        for (lang, contestant) in
            [("rust", classic()), ("go", TWIN.into()), ("rust", as_published), ("go", PRINTING.into())]
        {
            let title = format!("{name}, {contestant} (each: published with 100000 requests / here with {requests})");
            let ours = of_method().filter(|rounds| rounds.key().name() == contestant);
            if let Some(table) = published_and_measured(method, lang, &ours.collect::<Vec<_>>())? {
                tables.push((title, table));
            }
        }
    }
    if !failed.is_empty() {
        let mut table = Table::of_texts(&["contestant", "why it has no figures"]);
        failed.iter().for_each(|missing| table.row(vec![missing.key.to_string(), missing.why.clone()]));
        tables.push(("Without figures".into(), table));
    }
    Ok(tables)
}

/// A row for each contestant and pool, a column for each number of connections.
fn by_connections(cells: &[&CellRounds<'_>], figure: fn(&Cell) -> f64) -> Table {
    let mut connections: Vec<usize> = cells.iter().map(|rounds| rounds.key().connections).collect();
    connections.sort_unstable();
    connections.dedup();
    let header: Vec<String> = connections.iter().map(ToString::to_string).collect();
    let header: Vec<&str> = ["contestant", "pool"].into_iter().chain(header.iter().map(String::as_str)).collect();
    let mut table = Table::of_numbers(&header);
    let row = |key: &Key| (key.name(), key.pool_size);
    for (name, size) in distinct(cells.iter().map(|rounds| row(rounds.key()))) {
        let at = |connections: &usize| {
            let is_cell = |key: &Key| key.connections == *connections && row(key) == (name.clone(), size);
            let rounds = cells.iter().find(|rounds| is_cell(rounds.key()));
            or_empty(rounds.map(|rounds| rounds.text(figure)))
        };
        let figures: Vec<String> = connections.iter().map(at).collect();
        table.row([vec![name.clone(), pool(size)], figures].concat());
    }
    table
}

/// A table with the published and the measured figure in each cell, and the columns in the published order. `None` if
/// no cell was measured.
fn published_and_measured(method: CellMethod, lang: &str, ours: &[&CellRounds<'_>]) -> anyhow::Result<Option<Table>> {
    let columns: [PublishedColumn; 10] = [
        ("CPU %", |row| row.avg_cpu_pct, |cell| Some(cell.sample.avg_cpu_pct)),
        ("max CPU %", |row| row.max_cpu_pct, |cell| cell.sample.max_cpu_pct),
        ("memory %", |row| row.avg_mem_pct, |cell| Some(cell.sample.avg_mem_pct)),
        ("max memory %", |row| row.max_mem_pct, |cell| cell.sample.max_mem_pct),
        ("total s", |row| row.total_s, |cell| Some(cell.sample.total_s)),
        ("request ms", |row| row.per_request_ms, |cell| Some(cell.sample.per_request_ms)),
        ("received KiB/s", |row| row.received_kb_s, |cell| Some(cell.sample.received_kb_s)),
        ("sent KiB/s", |row| row.sent_kb_s, |cell| Some(cell.sample.sent_kb_s)),
        ("connect ms", |row| row.connect_ms, |cell| Some(cell.sample.connect_ms)),
        ("processing ms", |row| row.processing_ms, |cell| Some(cell.sample.processing_ms)),
    ];
    let header: Vec<&str> = ["connections", "pool"].into_iter().chain(columns.map(|(title, _, _)| title)).collect();
    let (mut table, mut is_any) = (Table::of_numbers(&header), false);
    let published = published::rows().context("the published figures")?;
    for (_, row) in published.iter().filter(|(of, row)| *of == method && row.lang == lang) {
        let is_it = |key: &Key| key.pool_size == Some(row.pool_size) && key.connections == row.connections;
        let Some(rounds) = ours.iter().find(|rounds| is_it(rounds.key())) else { continue };
        let figures = columns.map(|(_, published, measured)| {
            let measured = or_empty(median_of(rounds.0.iter().filter_map(|cell| measured(cell))).map(short));
            format!("{} / {measured}", short(published(row)))
        });
        table.row([vec![row.connections.to_string(), row.pool_size.to_string()], figures.to_vec()].concat());
        is_any = true;
    }
    Ok(is_any.then_some(table))
}

#[cfg(test)]
mod tests {
    use crate::experiment::{Experiment as _, Records};
    use serde_json::{Value, json};

    use super::*;
    use crate::matrix::claims::{CLASSIC, REPO};
    use crate::matrix::report::Report;
    use crate::matrix::{Matrix, fixtures};

    fn line(kind: &str, name: &str, round: u32, total_s: f64) -> Value {
        let (control, lang) = (name.ends_with('+'), if name == TWIN { "go" } else { "rust" });
        let mut line = fixtures::cell(name.trim_end_matches('+'), lang, control, round);
        (line["kind"], line["total_s"]) = (kind.into(), total_s.into());
        line
    }

    fn record() -> Vec<Value> {
        let classic = format!("{CLASSIC}/{REPO}");
        let again = format!("{classic}+");
        let cell = |name: &str, round, total_s| line("cell", name, round, total_s);
        let header = fixtures::header(&json!({"contestants": [classic, TWIN]}), "0");
        let failure = |method: &str, why: &str| {
            let mut line = line("failure", TWIN, 1, 1.0);
            (line["method"], line["reason"], line["why"]) = (method.into(), "failed".into(), why.into());
            line
        };
        let mut absent = serde_json::to_value(Key::of_all("absent")).unwrap();
        absent["kind"] = "failure".into();
        (absent["reason"], absent["why"]) = ("not_available".into(), "any reason".into());
        let mut lines = vec![
            header,
            failure("get", "it was measured later"),
            cell(TWIN, 1, 4.0),
            cell(&again, 1, 8.0),
            cell(&classic, 2, 3.0),
            cell(&classic, 1, 1.0),
            cell(&classic, 3, 2.0),
        ];
        lines.push(failure("put", "first"));
        lines.push(failure("put", "last"));
        lines.push(absent);
        lines
    }

    fn report() -> Report {
        Matrix::report(&Records::of(&record()).unwrap()).unwrap()
    }

    #[test]
    fn rounds_are_one_row_and_the_control_is_told_apart() {
        let output = cells(&report().cells).wide();
        let rows: Vec<&str> = output.lines().skip(1).collect();
        assert_eq!(rows.len(), 3, "{output}");
        assert!(
            rows[0].starts_with("pool_classic/mpsc_pool/two_level ") && rows[0].contains("2.00 [too few rounds]"),
            "{output}"
        );
        assert!(rows[1].starts_with(TWIN) && rows[1].contains("4.00"), "{output}");
        assert!(rows[2].starts_with("pool_classic/mpsc_pool/two_level (again)"), "{output}");
    }

    #[test]
    fn published_and_measured_figures_share_a_table_cell() {
        let report = report();
        let tables = tables(&report.cells, &report.failed).unwrap();
        let table = |start: &str| {
            let found = tables.iter().find(|(title, _)| title.starts_with(start));
            found.unwrap_or_else(|| panic!("{start}")).1.wide()
        };
        assert_eq!(tables.len(), 5 + 2 + 1);
        let total = table("GET, 1000 requests: total time in s");
        assert!(total.contains(TWIN) && total.lines().count() == 4, "{total}");
        // The published cell of 4 workers and 10 connections, with all its columns.
        let ours = table("GET, pool_classic/mpsc_pool/two_level");
        let row: Vec<&str> = ours.lines().nth(1).unwrap().split("  ").filter(|cell| !cell.is_empty()).collect();
        let expected = [
            "10",
            "4",
            "106 / 90.0",
            "108 / -",
            "0.030 / 0.500",
            "0.030 / 0.700",
            "7.47 / 2.00",
            "0.747 / 0.250",
            "1,700 / 1.00",
            "0.000 / 1.00",
            "0.000 / 0.00500",
            "0.000 / 0.200",
        ];
        assert_eq!(row.iter().map(|cell| cell.trim()).collect::<Vec<_>>(), expected, "{ours}");
        assert_eq!(ours.lines().count(), 2, "{ours}");
        assert!(table("GET, go/twin-rwmutex").contains("10.4 / 4.00"));
        let missing = table("Without figures");
        assert!(missing.contains("absent  ") && missing.contains("any reason"), "{missing}");
        assert!(missing.contains("last") && !missing.contains("first") && !missing.contains("later"), "{missing}");
    }
}
