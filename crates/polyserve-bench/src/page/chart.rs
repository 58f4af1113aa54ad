//! The chart: requests per second by the number of workers, the bound of a pool, and the published pools.

use crate::experiment::distinct;
use crate::report::svg::{Chart, DASHES, GREY, LineChart, Marker, Series, Style};

use super::published::{self, CONNECTIONS, REQUESTS_PER_WAIT, SETUPS, WAIT};
use super::record::{PagePart, PageRow, bound};

/// Returns the chart `workers`; empty without a sweep.
///
/// # Errors
///
/// Returns an error if the published figures cannot be read.
pub(super) fn charts(rows: &[PageRow]) -> anyhow::Result<Vec<(String, Chart)>> {
    let is_shown = |row: &&PageRow| {
        row.key.part == PagePart::Sweep && row.key.workers.is_some() && row.sample.figures.requests_per_s > 0.0
    };
    let rows: Vec<&PageRow> = rows.iter().filter(is_shown).collect();
    let points = |rows: &mut dyn Iterator<Item = &PageRow>, figure: &dyn Fn(usize, &PageRow) -> f64| {
        let mut points: Vec<(u64, f64)> =
            rows.filter_map(|row| row.key.workers.map(|size| (size as u64, figure(size, row)))).collect();
        points.sort_by_key(|(size, _)| *size);
        points.dedup_by_key(|(size, _)| *size);
        points
    };
    let line = |(place, name): (usize, &str)| {
        let mut own = rows.iter().copied().filter(|row| row.key.server == name);
        let points = points(&mut own, &|_, row| row.sample.figures.requests_per_s);
        Series { name: name.to_owned(), style: Style::nth(place), points }
    };
    let mut lines: Vec<Series> =
        distinct(rows.iter().map(|row| row.key.server.as_str())).into_iter().enumerate().map(line).collect();
    let count = lines.len();
    let Some(first) = rows.first() else { return Ok(Vec::new()) };
    let bounds = &first.sample.bounds;
    let pool = |size: usize, row: &PageRow| {
        bound(size, bounds.every, bounds.wait_s).min(row.sample.bounds.connections_bound_per_s)
    };
    let style = Style { colour: GREY, dashes: Some(DASHES[0]), mark: Marker::Circle, is_hollow: true };
    let points = points(&mut rows.iter().copied(), &pool);
    lines.insert(0, Series { name: String::from("bound of a pool"), style, points }); // below the other lines
    let as_published = (bounds.every, bounds.wait_s) == (REQUESTS_PER_WAIT, WAIT.as_secs_f64())
        && bounds.connections_bound_per_s == bound(CONNECTIONS, REQUESTS_PER_WAIT, WAIT.as_secs_f64());
    let published = if as_published { published_pools()? } else { Vec::new() };
    for ((name, workers, per_s), mark) in published.into_iter().zip(Marker::ALL) {
        let style = Style { colour: GREY, dashes: None, mark, is_hollow: true };
        lines.push(Series { name: format!("published: {name}"), style, points: vec![(workers as u64, per_s)] });
    }
    let title = format!("Requests per second, every {}th request waits {} s", bounds.every, bounds.wait_s);
    let about = format!(
        "Chart: requests per second of {count} servers by the number of workers, with the bound of a pool{}",
        if as_published { " and the published pools" } else { "" }
    );
    let axis = String::from("workers");
    Ok(vec![(String::from("workers"), Chart::Lines(LineChart { title, about, axis, lines }))])
}

/// The published servers with a chosen number of workers: their names, their workers and their requests per second.
fn published_pools() -> anyhow::Result<Vec<(&'static str, usize, f64)>> {
    let figures = published::figures()?;
    let pool = |setup: &published::Setup| {
        let row = figures.iter().find(|row| row.server == setup.published_as)?;
        Some((setup.published_as, setup.workers?, row.figures.requests_per_s))
    };
    Ok(SETUPS.iter().filter_map(pool).collect())
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;

    #[test]
    fn a_line_for_each_server_one_for_the_bound_and_a_point_for_each_published_pool() {
        assert!(charts(&[row(PagePart::Published, "a", Some(1), 1.0)]).unwrap().is_empty());
        let rows = [2, 1].map(|workers| row(PagePart::Sweep, "a", Some(workers), 4.0));
        let charts = charts(&rows).unwrap();
        let [(name, Chart::Lines(chart))] = &charts[..] else { panic!("{charts:?}") };
        assert_eq!((name.as_str(), chart.lines.len()), ("workers", 4));
        let Series { name, points, .. } = &chart.lines[0];
        let bounds = &rows[0].sample.bounds;
        let of = |size| bound(size, bounds.every, bounds.wait_s).min(bounds.connections_bound_per_s);
        assert_eq!((name.as_str(), points), ("bound of a pool", &vec![(1, of(1)), (2, of(2))]));
        assert_eq!(chart.lines[1].points, [(1, 4.0), (2, 4.0)]);
        assert_eq!(chart.lines[2].name, "published: thread-pool-100");
        assert_eq!(chart.lines[3].points, [(100, 496.0)]);
    }
}
