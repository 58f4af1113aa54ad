//! The chart: requests per second by the number of workers, and the bound of a pool.

use polyserve_lab::experiment::distinct;
use polyserve_report::svg::{Chart, DASHES, GREY, LineChart, Marker, Series, Style};

use super::record::{Part, Row, bound};

/// The chart `workers`; none without a sweep.
pub(super) fn charts(rows: &[Row]) -> Vec<(String, Chart)> {
    let is_shown = |row: &&Row| {
        row.key.part == Part::Sweep && row.key.workers.is_some() && row.sample.figures.requests_per_s > 0.0
    };
    let rows: Vec<&Row> = rows.iter().filter(is_shown).collect();
    let points = |rows: &mut dyn Iterator<Item = &Row>, figure: &dyn Fn(usize, &Row) -> f64| {
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
    let Some(first) = rows.first() else { return Vec::new() };
    let bounds = &first.sample.bounds;
    let pool = |size: usize, row: &Row| {
        bound(size, bounds.every, bounds.wait_s).min(row.sample.bounds.connections_bound_per_s)
    };
    let style = Style { colour: GREY, dashes: Some(DASHES[0]), mark: Marker::Circle, is_hollow: true };
    let points = points(&mut rows.iter().copied(), &pool);
    lines.insert(0, Series { name: String::from("bound of a pool"), style, points }); // below the other lines
    let title = format!("Requests per second, every {}th request waits {} s", bounds.every, bounds.wait_s);
    let about = format!(
        "Chart: requests per second of {} servers by the number of workers, with the bound of a pool",
        lines.len() - 1
    );
    vec![(String::from("workers"), Chart::Lines(LineChart { title, about, axis: String::from("workers"), lines }))]
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;

    #[test]
    fn a_line_for_each_server_and_one_for_the_bound() {
        assert!(charts(&[row(Part::Published, "a", Some(1), 1.0)]).is_empty());
        let rows = [2, 1].map(|workers| row(Part::Sweep, "a", Some(workers), 4.0));
        let charts = charts(&rows);
        let [(name, Chart::Lines(chart))] = &charts[..] else { panic!("{charts:?}") };
        assert_eq!((name.as_str(), chart.lines.len()), ("workers", 2));
        let Series { name, points, .. } = &chart.lines[0];
        let bounds = &rows[0].sample.bounds;
        let of = |size| bound(size, bounds.every, bounds.wait_s).min(bounds.connections_bound_per_s);
        assert_eq!((name.as_str(), points), ("bound of a pool", &vec![(1, of(1)), (2, of(2))]));
        assert_eq!(chart.lines[1].points, [(1, 4.0), (2, 4.0)]);
    }
}
