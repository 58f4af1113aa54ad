//! Points and curves of one contestant along one axis.
//!
//! Invariant: a point is the median of its rounds. Cost: two fits a figure.

use super::Axis;
use super::growth::{self, Fit, Sample};
use super::report::{Cell, Growth, Key, Law, Metric, Point, Shown};
use crate::statistics::median;

fn places(cells: &[&Cell]) -> Vec<u64> {
    let mut places: Vec<u64> = cells.iter().map(|cell| cell.key.x).collect();
    places.sort_unstable();
    places.dedup();
    places
}

fn middle(cells: &[&Cell], figure: impl Fn(&Shown) -> Option<f64>) -> Option<f64> {
    let mut values: Vec<f64> = cells.iter().filter_map(|cell| figure(&cell.shown)).collect();
    (!values.is_empty()).then(|| median(&mut values))
}

/// Its points, in the order of the axis.
pub(super) fn points_of(axis: Axis, name: &str, cells: &[&Cell]) -> Vec<Point> {
    let point = |x: u64| {
        let own: Vec<&Cell> = cells.iter().copied().filter(|cell| cell.key.x == x).collect();
        let overloaded = own.iter().filter(|cell| cell.shown.overloaded).count();
        Point {
            axis,
            x,
            name: name.to_owned(),
            rounds: own.len(),
            per_s: middle(&own, |shown| Some(shown.per_s)).unwrap_or(0.0),
            cpu_us: middle(&own, |shown| shown.cpu_us),
            paced_cpu_us: middle(&own, |shown| Metric::PacedCpu.of(shown)),
            p50_us: middle(&own, |shown| shown.p50_us),
            p99_us: middle(&own, |shown| shown.p99_us),
            overloaded: overloaded * 2 > own.len(),
            loaded_bytes: middle(&own, |shown| Metric::Memory.of(shown)),
            server_busy_pct: middle(&own, |shown| shown.server_busy_pct),
            client_busy_pct: middle(&own, |shown| shown.client_busy_pct),
        }
    };
    places(cells).into_iter().map(point).collect()
}

/// Its curves.
pub(super) fn growth_of(axis: Axis, name: &str, cells: &[&Cell], seed: u64) -> Vec<Growth> {
    let mut all = Vec::new();
    for metric in Metric::ALL {
        let sample = |cell: &&Cell| {
            let Key { x, round, .. } = cell.key;
            Some(Sample { x, round, y: metric.of(&cell.shown)? })
        };
        let samples: Vec<Sample> = cells.iter().filter_map(sample).collect();
        let end = |x: u64| {
            let mut values: Vec<f64> = samples.iter().filter(|sample| sample.x == x).map(|sample| sample.y).collect();
            (x, median(&mut values))
        };
        let range = samples.iter().map(|sample| sample.x);
        let (Some(first), Some(last)) = (range.clone().min(), range.max()) else { continue };
        let ends = [end(first), end(last)];
        let mut add = |law: Law, fit: Option<Fit>| {
            all.extend(fit.map(|fit| Growth { axis, name: name.to_owned(), metric, law, fit, ends }));
        };
        add(Law::Power, growth::power(&samples, seed));
        // What a connection or an entity takes is a sum, whatever a power may fit.
        if metric == Metric::Memory && matches!(axis, Axis::Connections | Axis::Keys) {
            add(Law::Line, growth::line(&samples, seed));
        }
    }
    all
}
