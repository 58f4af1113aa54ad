//! Points and curves of one contestant along one axis.
//!
//! Invariant: a point is the median of its rounds. Cost: two fits a figure.

use super::Axis;
use super::growth::{self, CurveSample, Fit};
use super::report::{Growth, KeyedSample, Law, Metric, Point, ScaleFigures};
use crate::statistics::middle;

fn places(cells: &[KeyedSample<'_>]) -> Vec<u64> {
    let mut places: Vec<u64> = cells.iter().map(|(key, _)| key.x).collect();
    places.sort_unstable();
    places.dedup();
    places
}

fn median_of(cells: &[KeyedSample<'_>], figure: impl Fn(&ScaleFigures) -> Option<f64>) -> Option<f64> {
    middle(cells.iter().filter_map(|(_, sample)| figure(&sample.figures)))
}

/// Its points, in the order of the axis.
pub(super) fn points_of(axis: Axis, name: &str, cells: &[KeyedSample<'_>]) -> Vec<Point> {
    let point = |x: u64| {
        let own: Vec<KeyedSample<'_>> = cells.iter().copied().filter(|(key, _)| key.x == x).collect();
        let overloaded = own.iter().filter(|(_, sample)| sample.figures.overloaded).count();
        Point {
            axis,
            x,
            name: name.to_owned(),
            rounds: own.len(),
            per_s: median_of(&own, |figures| Some(figures.per_s)).unwrap_or(0.0),
            cpu_us: median_of(&own, |figures| figures.cpu_us),
            paced_cpu_us: median_of(&own, |figures| Metric::PacedCpu.of(figures)),
            p50_us: median_of(&own, |figures| figures.p50_us),
            p99_us: median_of(&own, |figures| figures.p99_us),
            overloaded: overloaded * 2 > own.len(),
            loaded_bytes: median_of(&own, |figures| Metric::Memory.of(figures)),
            server_busy_pct: median_of(&own, |figures| figures.server_busy_pct),
            client_busy_pct: median_of(&own, |figures| figures.client_busy_pct),
        }
    };
    places(cells).into_iter().map(point).collect()
}

/// Its curves.
pub(super) fn growth_of(axis: Axis, name: &str, cells: &[KeyedSample<'_>], seed: u64) -> Vec<Growth> {
    let mut all = Vec::new();
    for metric in Metric::ALL {
        let value = |(key, sample): &KeyedSample<'_>| {
            Some(CurveSample { x: key.x, round: key.round, y: metric.of(&sample.figures)? })
        };
        let samples: Vec<CurveSample> = cells.iter().filter_map(value).collect();
        let end = |x: u64| {
            let values = samples.iter().filter(|sample| sample.x == x).map(|sample| sample.y);
            (x, middle(values).unwrap_or(0.0))
        };
        let range = samples.iter().map(|sample| sample.x);
        let (Some(first), Some(last)) = (range.clone().min(), range.max()) else { continue };
        let ends = [end(first), end(last)];
        let mut add = |law: Law, fit: Option<Fit>| {
            all.extend(fit.map(|fit| Growth { axis, name: name.to_owned(), metric, law, curve: fit, ends }));
        };
        add(Law::Power, growth::power(&samples, seed));
        // The memory of connections or entities is a sum, even if a power fits it too.
        if metric == Metric::Memory && matches!(axis, Axis::Connections | Axis::Keys) {
            add(Law::Line, growth::line(&samples, seed));
        }
    }
    all
}
