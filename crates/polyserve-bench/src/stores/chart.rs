//! The charts of a run: operations a second along an axis under a workload, medians over rounds, a line for each store.
//!
//! A repo has the same colour in all charts of a record. Its bare map has that colour too, with dashes and empty marks.

use std::collections::{BTreeMap, BTreeSet};

use crate::report::figures::counted;
use crate::report::svg::{Chart, DASHES, GREY, LineChart, Series, Style, tick_label};

use super::bare::PREFIX;
use super::report::{AGAIN, StorePoint};
use super::table::rate;
use crate::experiment::distinct;
use crate::scale::Axis;

/// The charts by their names: `AXIS WORKLOAD`, or `AXIS WORKLOAD DIST` if ids are drawn.
pub(super) fn charts(points: &[StorePoint]) -> Vec<(String, Chart)> {
    // A throughput of zero has no logarithm.
    let is_shown = |point: &&StorePoint| !point.name.ends_with(AGAIN) && point.per_s > 0.0 && point.per_s.is_finite();
    let all: Vec<&StorePoint> = points.iter().filter(is_shown).collect();
    let styles = styles(&all);
    let name_of = |point: &StorePoint| format!("{} {}", point.axis, point.load);
    let chart = |name: String| {
        let own: Vec<&StorePoint> = all.iter().copied().filter(|point| name_of(point) == name).collect();
        let first = own[0];
        let title = format!("{}: operations a second, medians of {}", first.load, rounds(&own));
        let (about, axis) = (about(&own, first), unit(first.axis).to_owned());
        (name, Chart::Lines(LineChart { title, about, axis, lines: lines(&own, &styles) }))
    };
    distinct(all.iter().map(|point| name_of(point))).into_iter().map(chart).collect()
}

fn rounds(points: &[&StorePoint]) -> String {
    counted(points.iter().map(|point| point.rounds).max().unwrap_or(0) as u64, "round")
}

/// The unit of an axis, for a store without a server.
fn unit(axis: Axis) -> &'static str {
    match axis {
        Axis::Connections => "connections",
        Axis::Rate => "rate",
        Axis::Keys => "stored entities",
        Axis::Workers => "threads",
        Axis::Payload => "bytes of a description",
    }
}

/// The description of a chart: its lines, and the fastest and the slowest store at the last point.
fn about(points: &[&StorePoint], first: &StorePoint) -> String {
    let names: BTreeSet<&str> = points.iter().map(|point| point.name.as_str()).collect();
    let last = points.iter().map(|point| point.x).max().unwrap_or(first.x);
    let from = points.iter().map(|point| point.x).min().unwrap_or(first.x);
    let there = || points.iter().filter(|point| point.x == last);
    let fastest = there().max_by(|one, other| one.per_s.total_cmp(&other.per_s)).unwrap_or(&points[0]);
    let slowest = there().min_by(|one, other| one.per_s.total_cmp(&other.per_s)).unwrap_or(&points[0]);
    let label = |point: &StorePoint| format!("{} ({})", point.name, rate(point.per_s));
    let (stores, load, unit, rounds) = (names.len(), &first.load, unit(first.axis), rounds(points));
    let (from, to, fastest, slowest) = (tick_label(from), tick_label(last), label(fastest), label(slowest));
    format!(
        "Chart: operations a second of {stores} stores, {load}, at {from} to {to} {unit}, medians of {rounds}; \
         at {to} the fastest is {fastest}, the slowest {slowest}"
    )
}

/// A line for each store, by names.
fn lines(points: &[&StorePoint], styles: &BTreeMap<&str, Style>) -> Vec<Series> {
    let mut points_by_store: BTreeMap<&str, Vec<(u64, f64)>> = BTreeMap::new();
    for point in points {
        points_by_store.entry(&point.name).or_default().push((point.x, point.per_s));
    }
    let line = |(name, mut points): (&str, Vec<(u64, f64)>)| {
        points.sort_by_key(|(x, _)| *x);
        Series { name: name.to_owned(), style: styles[name], points }
    };
    points_by_store.into_iter().map(line).collect()
}

/// How each store looks.
fn styles<'a>(points: &[&'a StorePoint]) -> BTreeMap<&'a str, Style> {
    let names: BTreeSet<&str> = points.iter().map(|point| point.name.as_str()).collect();
    let repos: Vec<&str> = names.iter().copied().filter(|name| !name.starts_with(PREFIX)).collect();
    let style = |name: &str| {
        let bare = name.strip_prefix(PREFIX);
        let repo_name = bare.map_or(name, |bare| bare.split('+').next().unwrap_or(bare));
        let place = repos.iter().position(|repo| *repo == repo_name);
        let style = Style::nth(place.unwrap_or(0));
        Style {
            colour: place.map_or(GREY, |_| style.colour),
            dashes: bare.map(|bare| DASHES[usize::from(bare != repo_name)]),
            is_hollow: bare.is_some(),
            ..style
        }
    };
    names.iter().map(|name| (*name, style(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::svg::COLOURS;
    use crate::stores::Stores;
    use crate::stores::experiment::StoreProcesses;
    use crate::stores::report::Report;
    use serde_json::{Value, json};

    fn cell(x: u64, name: &str, dist: Option<&str>, per_s: f64) -> Value {
        let workload = if dist.is_some() { "read" } else { "churn" };
        json!({
            "kind": "cell", "axis": "workers", "x": x, "name": name, "round": 1, "keys": 10, "threads": x,
            "payload_bytes": 15, "workload": workload, "dist": dist, "operations": 1, "elapsed_s": 1.0, "per_s": per_s
        })
    }

    fn points() -> Vec<StorePoint> {
        let uniform = Some("uniform");
        let cells = [
            cell(1, "a", uniform, 1e6),
            cell(2, "a", uniform, 2e6),
            cell(1, "a (again)", uniform, 1e6),
            cell(1, "b<c>", uniform, 3e6),
            cell(2, "b<c>", uniform, 5e6),
            cell(1, "bare/a", uniform, 4e6),
            cell(2, "bare/a", uniform, 3e6),
            cell(1, "bare/a+x", uniform, 4e6),
            cell(1, "bare/map", uniform, 9e6),
            cell(2, "a", None, 9e6),
        ];
        let header = crate::fixtures::header("stores", json!({"baseline": "a"}));
        Report::of(&crate::fixtures::records::<Stores<StoreProcesses>>(&header, &cells).unwrap()).points
    }

    #[test]
    fn a_line_for_each_store_and_none_for_the_second_entry() {
        let charts = charts(&points());
        let names: Vec<&str> = charts.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["workers read uniform", "workers churn"]);
        let svg = charts[0].1.to_svg();
        assert_eq!(svg.matches("<polyline ").count(), 5, "{svg}");
        for name in [">a</text>", ">b&lt;c&gt;</text>", ">bare/a</text>", ">bare/a+x (at 1)</text>", ">threads</text>"]
        {
            assert!(svg.contains(name), "{name}: {svg}");
        }
        assert!(!svg.contains("again"), "{svg}");
        let expected = "Chart: operations a second of 5 stores, read uniform, at 1 to 2 threads, medians of 1 round; \
                        at 2 the fastest is b<c> (5.00 M), the slowest a (2.00 M)";
        assert_eq!(charts[0].1.about(), expected);
        assert!(charts[1].1.to_svg().contains(">a</text>"));
    }

    #[test]
    fn a_bare_map_looks_like_its_repo_with_dashes() {
        let points = points();
        let styles = styles(&points.iter().collect::<Vec<_>>());
        let looks = |name: &str| (styles[name].colour, styles[name].dashes);
        assert_eq!(looks("a"), (COLOURS[0], None));
        assert_eq!(looks("bare/a"), (COLOURS[0], Some(DASHES[0])));
        assert_eq!(looks("bare/a+x"), (COLOURS[0], Some(DASHES[1])));
        assert_eq!(looks("bare/map"), (GREY, Some(DASHES[0])));
        assert!(styles["bare/a"].is_hollow && !styles["a"].is_hollow);
    }

    #[test]
    fn a_store_without_operations_is_not_drawn() {
        let header = crate::fixtures::header("stores", json!({"baseline": "a"}));
        let cells = [cell(1, "a", None, 0.0)];
        let records = crate::fixtures::records::<Stores<StoreProcesses>>(&header, &cells).unwrap();
        assert!(charts(&Report::of(&records).points).is_empty());
    }
}
