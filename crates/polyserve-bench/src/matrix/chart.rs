//! The charts of the published contestant and its twin in Go, as release builds and as they were run then: the CPU time of a
//! request by the pool's size as lines, and heat maps of pool size and connections next to the published ones.

use crate::experiment::distinct;
use crate::report::svg::{Chart, Grid, HeatMap, LineChart, Series, Style};
use crate::statistics::median_of;

use super::claims::{TWIN, as_run_of, classic};
use super::compared::{CellTable, Lang, Measure};
use super::{Cell, CellMethod};

/// The charts of each method: `cpu get`, `heat cpu get`, `heat time get`, and the same with `put`. The servers as they were
/// run then have `cpu get as run` and so on, if both were measured.
///
/// # Errors
///
/// Returns an error if a published file cannot be read.
pub(super) fn charts(cells: &[Cell]) -> anyhow::Result<Vec<(String, Chart)>> {
    let classic = classic();
    let as_run = as_run_of(cells);
    let as_run = as_run.as_ref().map(|[rust, go]| ([rust.as_str(), go.as_str()], " as run"));
    let published = CellTable::published()?;
    let mut charts = Vec::new();
    for (pair, suffix) in [([classic.as_str(), TWIN], "")].into_iter().chain(as_run) {
        let tables = [&published, &CellTable::measured(cells, pair, 0)];
        for method in [CellMethod::Get, CellMethod::Put] {
            let own = [
                cpu(cells, pair, method),
                heat(tables, pair, method, Measure::CpuPerRequest),
                heat(tables, pair, method, Measure::PerRequest),
            ];
            charts.extend(own.into_iter().flatten().map(|(name, chart)| (name + suffix, chart)));
        }
    }
    Ok(charts)
}

/// The heat map of a measure, with two grids for each measured language: as published, and the medians over our rounds.
/// `tables` has the published table, then the measured table. `pair` are the contestants in Rust and in Go.
fn heat(tables: [&CellTable; 2], pair: [&str; 2], method: CellMethod, measure: Measure) -> Option<(String, Chart)> {
    let [published, measured] = tables;
    let (mut grids, mut names) = (Vec::new(), Vec::new());
    for (lang, lang_name, contestant) in [(Lang::Rust, "Rust", pair[0]), (Lang::Go, "Go", pair[1])] {
        let [published_grid, measured_grid] = [published, measured].map(|table| grid(table, lang, method, measure));
        let (Some(published_grid), Some(measured_grid)) = (published_grid, measured_grid) else { continue };
        grids.push(Grid { name: format!("published: {lang_name}"), ..published_grid });
        grids.push(Grid { name: contestant.to_owned(), ..measured_grid });
        names.push(contestant);
    }
    let (name, what) = match measure {
        Measure::CpuPerRequest => ("cpu", "CPU time of a request (us)"),
        _ => ("time", "Time of a request (ms)"),
    };
    let (shown, method) = (method.name().to_uppercase(), method.name());
    let title = format!("{shown}: {what}");
    let about = format!(
        "Heat maps: {} of a {shown} by pool size and connections, published and here, of {}",
        what.replace(" of a request", ""),
        names.join(" and ")
    );
    let axis = String::from("columns: workers of the pool; rows: connections; each grid has its own shades");
    (!grids.is_empty())
        .then(|| (format!("heat {name} {method}"), Chart::HeatMap(HeatMap { title, about, axis, grids })))
}

/// The grid of a language, without a name.
fn grid(table: &CellTable, lang: Lang, method: CellMethod, measure: Measure) -> Option<Grid> {
    let own: Vec<_> = table.cells.iter().filter(|cell| cell.lang == lang && cell.method == method).collect();
    let sorted = |mut numbers: Vec<usize>| {
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    };
    let pools = sorted(own.iter().map(|cell| cell.pool).collect());
    let median = |connections: usize, pool: usize| {
        let rounds = own.iter().filter(|cell| (cell.connections, cell.pool) == (connections, pool));
        median_of(rounds.map(|cell| cell.figure(measure))).filter(|figure| *figure > 0.0)
    };
    let row = |connections: usize| {
        (connections.to_string(), pools.iter().map(|pool| median(connections, *pool)).collect::<Vec<_>>())
    };
    let rows = sorted(own.iter().map(|cell| cell.connections).collect()).into_iter().map(row).collect();
    let columns = pools.iter().map(ToString::to_string).collect();
    (!own.is_empty()).then(|| Grid { name: String::new(), columns, rows })
}

/// The chart of the CPU time: medians over rounds, with a line for each contestant of the pair and number of connections. The
/// lines of the contestant in Go are dashed.
fn cpu(cells: &[Cell], pair: [&str; 2], method: CellMethod) -> Option<(String, Chart)> {
    let own: Vec<&Cell> = cells.iter().filter(|cell| cell.key.method == method && !cell.key.control).collect();
    let mut connections: Vec<usize> = own.iter().map(|cell| cell.key.connections).collect();
    connections.sort_unstable();
    connections.dedup();
    let mut lines = Vec::new();
    for (contestant, is_twin) in [(pair[0], false), (pair[1], true)] {
        for (place, number) in connections.iter().enumerate() {
            let is_own_cell = |cell: &&Cell| cell.key.contestant == contestant && cell.key.connections == *number;
            let own_cells: Vec<&Cell> = own.iter().copied().filter(is_own_cell).collect();
            let mut sizes: Vec<usize> = own_cells.iter().filter_map(|cell| cell.key.pool_size).collect();
            sizes.sort_unstable();
            let point = |size: usize| {
                let rounds = own_cells.iter().filter(|cell| cell.key.pool_size == Some(size));
                let median = median_of(rounds.map(|cell| cell.sample.server_cpu_us_per_request))?;
                (median > 0.0).then_some((size as u64, median))
            };
            let points: Vec<(u64, f64)> = distinct(sizes).into_iter().filter_map(point).collect();
            if !points.is_empty() {
                let style = if is_twin { Style::nth(place).dashed() } else { Style::nth(place) };
                lines.push(Series { name: format!("{contestant}, {number} connections"), style, points });
            }
        }
    }
    let name = method.name();
    let title = format!("{}: CPU time of a request (us)", name.to_uppercase());
    let about = format!(
        "Chart: the server's CPU time of a {} in microseconds by the pool's size, of {} and {}",
        name.to_uppercase(),
        pair[0],
        pair[1]
    );
    let axis = String::from("workers of the pool");
    let is_drawn = !lines.is_empty();
    is_drawn.then(|| (format!("cpu {name}"), Chart::Lines(LineChart { title, about, axis, lines })))
}

#[cfg(test)]
mod tests {
    use crate::contestants::PRINTING;
    use crate::experiment::{Experiment as _, Records};
    use serde_json::json;

    use super::*;
    use crate::matrix::claims::{CLASSIC, REPO};
    use crate::matrix::{DEBUG, Matrix, fixtures};

    #[test]
    fn the_charts_have_both_contestants_and_not_the_control() {
        let classic = format!("{CLASSIC}/{REPO}");
        let cell = |name: &str, control, round, pool: u64, cpu_us: f64| {
            let mut line = fixtures::cell(name, "any", control, round);
            (line["pool_size"], line["server_cpu_us_per_request"]) = (pool.into(), cpu_us.into());
            line
        };
        let lines = [
            fixtures::header(&json!({"contestants": [classic, TWIN]}), "0"),
            cell(&classic, false, 1, 8, 10.0),
            cell(&classic, false, 1, 2, 10.0),
            cell(&classic, false, 2, 2, 30.0),
            cell(&classic, true, 1, 2, 99.0),
            cell(TWIN, false, 1, 2, 40.0),
            cell("another", false, 1, 2, 99.0),
        ];
        let charts = charts(&Matrix::report(&Records::of(&lines).unwrap()).unwrap().cells).unwrap();
        let names: Vec<&str> = charts.iter().map(|(name, _)| name.as_str()).collect();
        let release = ["cpu get", "heat cpu get", "heat time get"];
        assert_eq!(names, release);
        let as_run = [cell(&format!("{DEBUG}{classic}"), false, 1, 2, 50.0), cell(PRINTING, false, 1, 2, 20.0)];
        let report = Matrix::report(&Records::of(&[&lines[..], &as_run].concat()).unwrap()).unwrap();
        let names: Vec<String> = super::charts(&report.cells).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, [release, ["cpu get as run", "heat cpu get as run", "heat time get as run"]].concat());
        let [(_, Chart::Lines(chart)), (_, Chart::HeatMap(heat)), _] = &charts[..] else { panic!("{charts:?}") };
        let lines: Vec<_> = chart.lines.iter().map(|line| (line.style.is_hollow, line.points.clone())).collect();
        assert_eq!(lines, [(false, vec![(2, 20.0), (8, 10.0)]), (true, vec![(2, 40.0)])]);
        let grids: Vec<&str> = heat.grids.iter().map(|grid| grid.name.as_str()).collect();
        assert_eq!(grids, ["published: Rust", &classic, "published: Go", TWIN]);
        let [published, here, ..] = &heat.grids[..] else { panic!("{heat:?}") };
        assert_eq!((published.columns.len(), published.rows.len()), (6, 3));
        assert_eq!(
            (&here.columns[..], &here.rows[0].1[..]),
            (&["2".into(), "8".into()][..], &[Some(20.0), Some(10.0)][..])
        );
    }
}
