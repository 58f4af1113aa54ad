//! Heat maps of a report: a grid for each contestant, next to one of the published figures.
//!
//! Cost: a pass over the rows for each cell.

use std::collections::BTreeSet;

use super::definition::ChartDefinition;
use super::figures::{NamedFigure, NamedFigures};
use super::published::PublishedFigures;
use super::report::BenchRow;
use super::sweep::{CellValue, SweepAxis, SweepCell};
use crate::report::svg::{Chart, Grid, Marks};

/// The chart of an entry; none without figures. The published grids stand before that of the contestant.
pub(super) fn charts(
    rows: &[&BenchRow],
    chart: &ChartDefinition,
    published: &[PublishedFigures],
) -> anyhow::Result<Vec<(String, Chart)>> {
    let (Some(y), Some(x), Some(by)) = (chart.y, chart.x, chart.rows) else { return Ok(Vec::new()) };
    let mut grids = Vec::new();
    for name in &chart.contestants {
        let own: Vec<(&SweepCell, &NamedFigures)> =
            rows.iter().filter(|row| row.contestant == *name).map(|row| (&row.cell, &row.figures)).collect();
        let Some(grid) = grid(name.clone(), &own, [x, by], y) else { continue };
        for one in published.iter().filter(|one| one.contestants.contains(name)) {
            let lines = one.rows()?;
            let at = |cell: &SweepCell| chart.at.iter().all(|(axis, value)| cell.get(axis) == Some(value));
            let lines: Vec<_> =
                lines.iter().filter(|line| at(&line.cell)).map(|line| (&line.cell, &line.figures)).collect();
            grids.extend(self::grid(format!("published: {}", one.name), &lines, [x, by], y));
        }
        grids.push(grid);
    }
    if grids.is_empty() {
        return Ok(Vec::new());
    }
    let place: String = chart.at.iter().map(|(axis, value)| format!(", {axis} {value}")).collect();
    let title = format!("{}{place}", y.column.unwrap_or(y.name));
    let about =
        format!("Heat maps: {title}, by {x} and {by}, published and here, of {}", chart.contestants.join(" and "));
    let axis = format!("columns: {x}; rows: {by}; each grid has its own shades");
    Ok(vec![(format!("heat {title}"), Chart { title, about, axis, marks: Marks::Grids(grids) })])
}

/// The grid of a contestant; `None` without figures above 0.
fn grid(name: String, rows: &[(&SweepCell, &NamedFigures)], [x, by]: [SweepAxis; 2], y: NamedFigure) -> Option<Grid> {
    let values =
        |axis: SweepAxis| -> BTreeSet<&CellValue> { rows.iter().filter_map(|(cell, _)| cell.get(&axis)).collect() };
    let (columns, lines) = (values(x), values(by));
    let figure = |column: &CellValue, line: &CellValue| {
        let (_, figures) = rows.iter().find(|(cell, _)| cell.get(&x) == Some(column) && cell.get(&by) == Some(line))?;
        figures.get(y.name).copied().filter(|figure| *figure > 0.0 && figure.is_finite())
    };
    let row =
        |line: &&CellValue| (line.to_string(), columns.iter().map(|column| figure(column, line)).collect::<Vec<_>>());
    let rows: Vec<(String, Vec<Option<f64>>)> = lines.iter().map(row).collect();
    let is_any = rows.iter().any(|(_, figures)| figures.iter().any(Option::is_some));
    is_any.then(|| Grid { name, columns: columns.iter().map(ToString::to_string).collect(), rows })
}
