//! The charts: the CPU time of a request by the pool's size, of the published contestant and its twin in Go.

use polyserve_lab::experiment::distinct;
use polyserve_lab::statistics::middle;
use polyserve_report::svg::{Chart, LineChart, Series, Style};

use super::claims::{TWIN, classic_of};
use super::{Cell, Method};

/// A chart for each method: `cpu get`, `cpu put`.
pub(super) fn charts(cells: &[Cell]) -> Vec<(String, Chart)> {
    [Method::Get, Method::Put].into_iter().filter_map(|method| cpu(cells, method)).collect()
}

/// Medians over rounds, a line for each contestant and number of connections; the lines of the twin have dashes.
fn cpu(cells: &[Cell], method: Method) -> Option<(String, Chart)> {
    let own: Vec<&Cell> = cells.iter().filter(|cell| cell.key.method == method && !cell.key.control).collect();
    let mut connections: Vec<usize> = own.iter().map(|cell| cell.key.connections).collect();
    connections.sort_unstable();
    connections.dedup();
    let mut lines = Vec::new();
    let classic = classic_of(cells);
    for (contestant, is_twin) in [(classic.as_str(), false), (TWIN, true)] {
        for (place, number) in connections.iter().enumerate() {
            let is_its = |cell: &&Cell| cell.key.contestant == contestant && cell.key.connections == *number;
            let its: Vec<&Cell> = own.iter().copied().filter(is_its).collect();
            let mut sizes: Vec<usize> = its.iter().filter_map(|cell| cell.key.pool_size).collect();
            sizes.sort_unstable();
            let point = |size: usize| {
                let rounds = its.iter().filter(|cell| cell.key.pool_size == Some(size));
                let median = middle(rounds.map(|cell| cell.sample.server_cpu_us_per_request))?;
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
        "Chart: the server's CPU time of a {} in microseconds by the pool's size, of {classic} and {TWIN}",
        name.to_uppercase()
    );
    let axis = String::from("workers of the pool");
    let is_drawn = !lines.is_empty();
    is_drawn.then(|| (format!("cpu {name}"), Chart::Lines(LineChart { title, about, axis, lines })))
}

#[cfg(test)]
mod tests {
    use polyserve_lab::experiment::{Experiment as _, Records};
    use serde_json::json;

    use super::*;
    use crate::matrix::claims::{CLASSIC, REPO};
    use crate::matrix::{Matrix, fixtures};

    #[test]
    fn a_line_for_each_contestant_and_none_for_the_control() {
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
        let charts = charts(&Matrix::report(&Records::of(&lines).unwrap()).unwrap().cells);
        let [(name, Chart::Lines(chart))] = &charts[..] else { panic!("{charts:?}") };
        assert_eq!(name, "cpu get");
        let lines: Vec<_> = chart.lines.iter().map(|line| (line.style.is_hollow, line.points.clone())).collect();
        assert_eq!(lines, [(false, vec![(2, 20.0), (8, 10.0)]), (true, vec![(2, 40.0)])]);
    }
}
