//! The charts of a definition.

use std::collections::BTreeSet;

use super::definition_key;
use super::row::BenchRow;
use crate::bench::definition::{ChartDefinition, ChartKind};
use crate::bench::experiment::BenchPlan;
use crate::bench::figures::{NamedFigure, NamedFigures};
use crate::bench::published::PublishedFigures;
use crate::bench::sweep::{CellValue, SweepAxis, SweepCell};
use crate::charts;
use crate::experiment::{Records, again, distinct};
use crate::report::svg::{Chart, DASHES, GREY, Grid, Marker, Marks, Series, Style};
use crate::statistics::tie_band;
use crate::tasks;
use crate::turn::Role;

/// The charts of the definition.
pub(super) fn charts_of_all(
    plan: &BenchPlan,
    rows: &[BenchRow],
    records: &Records,
) -> anyhow::Result<Vec<(String, Chart)>> {
    let published: Vec<PublishedFigures> = definition_key(plan, "published")?;
    let mut charts = Vec::new();
    for chart in &plan.charts {
        let at = |row: &&BenchRow| chart.at.iter().all(|(axis, value)| row.cell.get(axis) == Some(value));
        let rows: Vec<&BenchRow> = rows.iter().filter(at).collect();
        match chart.kind {
            ChartKind::Schedule => charts.extend(tasks::table::schedule_chart(records, chart)?),
            ChartKind::Heat => charts.extend(heat_maps(&rows, chart, &published)?),
            ChartKind::Lines | ChartKind::Ratios => charts.extend(charts_of(plan, &rows, chart, &published)?),
        }
    }
    Ok(charts)
}

/// The charts of one entry: one for each combination of the other axes.
fn charts_of(
    plan: &BenchPlan,
    rows: &[&BenchRow],
    chart: &ChartDefinition,
    published: &[PublishedFigures],
) -> anyhow::Result<Vec<(String, Chart)>> {
    let Some(y) = chart.y else { return Ok(Vec::new()) };
    let x = chart.x.filter(|_| chart.kind == ChartKind::Lines);
    if let (Some(x), Some(axis)) = (x, chart.lines) {
        return Ok(lines_of_axis(rows, x, axis, y));
    }
    let rest = |cell: &SweepCell| -> SweepCell {
        cell.iter().filter(|(axis, _)| Some(**axis) != x).map(|(axis, value)| (*axis, value.clone())).collect()
    };
    let mut charts = Vec::new();
    for part in distinct(rows.iter().map(|row| rest(&row.cell))) {
        let own: Vec<&BenchRow> = rows.iter().copied().filter(|row| rest(&row.cell) == part).collect();
        let place: String = part.iter().map(|(axis, value)| format!(", {axis} {value}")).collect();
        let title = format!("{}{place}", y.column.unwrap_or(y.name));
        let drawn = match x {
            Some(axis) => {
                let grey = published_lines(published, axis, y, &part)?;
                line_chart(&title, axis, y, &own).map(|lines| with_grey_lines(lines, chart.bound, axis, &own, grey))
            }
            None => {
                let ratio = |row: &&BenchRow| Some((row.contestant.clone(), row.compared?.estimate));
                let control = again(&plan.baseline);
                let same = own.iter().find(|row| row.contestant == control).and_then(|row| row.compared);
                let band = same.map(|same| tie_band(Some(&same.estimate)));
                let axis = format!("relative to {}", plan.baseline);
                charts::ratios(
                    title.clone(),
                    axis,
                    band,
                    own.iter().filter(|row| row.role.is_ranked()).filter_map(ratio),
                )
            }
        };
        charts.extend(drawn.map(|chart| (title, chart)));
    }
    Ok(charts)
}

/// The figure of a row along an axis.
fn point(row: &BenchRow, axis: SweepAxis, figure: NamedFigure) -> Option<(u64, f64)> {
    Some((row.cell.get(&axis)?.number()?, row.figure(figure.name)?))
}

/// A chart for each contestant, with a line for each value of `axis`.
fn lines_of_axis(rows: &[&BenchRow], x: SweepAxis, axis: SweepAxis, y: NamedFigure) -> Vec<(String, Chart)> {
    let chart = |name: &str| {
        let own = || rows.iter().filter(|row| row.contestant == name);
        let line = |value: &CellValue| {
            let points = own().filter(|row| row.cell.get(&axis) == Some(value));
            let mut points: Vec<(u64, f64)> = points.filter_map(|row| point(row, x, y)).collect();
            points.sort_by_key(|(x, _)| *x);
            (value.to_string(), points)
        };
        let values = distinct(own().filter_map(|row| row.cell.get(&axis)));
        let title = format!("{}, {name}", y.column.unwrap_or(y.name));
        Some((title.clone(), charts::lines(title, x.to_string(), values.into_iter().map(line))?))
    };
    let names = distinct(rows.iter().filter(|row| row.role != Role::Same).map(|row| row.contestant.as_str()));
    names.into_iter().filter_map(chart).collect()
}

/// A line for each contestant.
fn line_chart(title: &str, axis: SweepAxis, y: NamedFigure, own: &[&BenchRow]) -> Option<Chart> {
    let line = |name: &str| {
        let points = own.iter().filter(|row| row.contestant == name && !row.is_overloaded());
        (name.to_owned(), points.filter_map(|row| point(row, axis, y)).collect())
    };
    let names = distinct(own.iter().filter(|row| row.role != Role::Same).map(|row| row.contestant.as_str()));
    charts::lines(title.to_owned(), axis.to_string(), names.into_iter().map(line))
}

/// The chart with the published lines above the others, and the bound below them.
fn with_grey_lines(
    mut chart: Chart,
    bound: Option<NamedFigure>,
    axis: SweepAxis,
    own: &[&BenchRow],
    published: Vec<Series>,
) -> Chart {
    let Marks::Lines(lines) = &mut chart.marks else { return chart };
    if let Some(bound) = bound {
        let mut points: Vec<(u64, f64)> = own.iter().filter_map(|row| point(row, axis, bound)).collect();
        points.sort_by_key(|(x, _)| *x);
        points.dedup_by_key(|(x, _)| *x);
        let style = Style { colour: GREY, dashes: Some(DASHES[0]), mark: Marker::Circle, is_hollow: true };
        let name = String::from("bound of a pool");
        lines.splice(0..0, (!points.is_empty()).then_some(Series { name, style, points }));
    }
    lines.extend(published);
    chart
}

/// The published figures at these values of the other axes, as grey lines.
fn published_lines(
    all: &[PublishedFigures],
    axis: SweepAxis,
    y: NamedFigure,
    rest: &SweepCell,
) -> anyhow::Result<Vec<Series>> {
    let mut lines = Vec::new();
    for (one, mark) in all.iter().zip(Marker::ALL.into_iter().cycle()) {
        let rows = one.rows()?;
        let is_here = |cell: &SweepCell| cell.iter().all(|(axis, x)| rest.get(axis).is_none_or(|own| own == x));
        let here = rows.iter().filter(|row| is_here(&row.cell));
        let points = here.filter_map(|row| Some((row.cell.get(&axis)?.number()?, *row.figures.get(y.name)?)));
        let points: Vec<(u64, f64)> = points.filter(|(_, figure)| *figure > 0.0).collect();
        let style = Style { colour: GREY, dashes: None, mark, is_hollow: true };
        lines.extend((!points.is_empty()).then(|| Series { name: format!("published: {}", one.name), style, points }));
    }
    Ok(lines)
}

/// The heat map of an entry, a grid for each contestant; none without figures. The published grids stand before that of the contestant.
fn heat_maps(
    rows: &[&BenchRow],
    chart: &ChartDefinition,
    published: &[PublishedFigures],
) -> anyhow::Result<Vec<(String, Chart)>> {
    let (Some(y), Some(x), Some(by)) = (chart.y, chart.x, chart.rows) else { return Ok(Vec::new()) };
    let mut grids = Vec::new();
    for name in &chart.contestants {
        let own: Vec<(&SweepCell, &NamedFigures)> =
            rows.iter().filter(|row| row.contestant == *name).map(|row| (&row.cell, &row.figures)).collect();
        let Some(grid) = grid_of(name.clone(), &own, [x, by], y) else { continue };
        for one in published.iter().filter(|one| one.contestants.contains(name)) {
            let lines = one.rows()?;
            let at = |cell: &SweepCell| chart.at.iter().all(|(axis, value)| cell.get(axis) == Some(value));
            let lines: Vec<_> =
                lines.iter().filter(|line| at(&line.cell)).map(|line| (&line.cell, &line.figures)).collect();
            grids.extend(grid_of(format!("published: {}", one.name), &lines, [x, by], y));
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
fn grid_of(
    name: String,
    rows: &[(&SweepCell, &NamedFigures)],
    [x, by]: [SweepAxis; 2],
    y: NamedFigure,
) -> Option<Grid> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The second entry of the baseline was a line. The bound lies below the lines, and what was published above them.
    #[test]
    fn a_line_for_each_contestant_one_for_the_bound_and_one_for_what_was_published() {
        let row = |contestant: &str, role, workers: u64, per_s: f64| BenchRow {
            contestant: contestant.into(),
            cell: [(SweepAxis::Workers, workers.into())].into(),
            role,
            rank: None,
            rounds: 1,
            figures: [("requests_per_s".into(), per_s), ("bound_per_s".into(), workers as f64 * 5.0)].into(),
            compared: None,
        };
        let all = [
            row("a", Role::Baseline, 1, 2.0),
            row("a", Role::Baseline, 2, 4.0),
            row("a (again)", Role::Same, 1, 2.5),
            row("b", Role::Ranked, 1, 3.0),
            row("b", Role::Ranked, 2, 3.5),
        ];
        let chart = "x = \"workers\"\ny = \"requests_per_s\"\nbound = \"bound_per_s\"";
        let published = "name = \"thread-pool-100\"\nfiles = [\"page_delay.csv\"]\ncontestants = [\"a\"]\n\
                         only = { server = \"thread-pool-100\" }\nat = { workers = 100 }";
        let plan = BenchPlan { baseline: "a".into(), ..BenchPlan::default() };
        let (chart, published) = (toml::from_str(chart).unwrap(), [toml::from_str(published).unwrap()]);
        let charts = charts_of(&plan, &all.iter().collect::<Vec<_>>(), &chart, &published).unwrap();
        let [(_, Chart { marks: Marks::Lines(lines), .. })] = &charts[..] else { panic!("{charts:?}") };
        let drawn: Vec<_> = lines.iter().map(|line| (line.name.as_str(), line.points.clone())).collect();
        let expected = [
            ("bound of a pool", vec![(1, 5.0), (2, 10.0)]),
            ("a", vec![(1, 2.0), (2, 4.0)]),
            ("b", vec![(1, 3.0), (2, 3.5)]),
            ("published: thread-pool-100", vec![(100, 495.72)]),
        ];
        assert_eq!(drawn, expected);
    }
}
