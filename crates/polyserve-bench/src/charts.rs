//! The charts that several experiments share: ratios to a baseline, and latencies by percentile.
//!
//! Invariant: a figure without a logarithm is left out, and a chart without figures is `None`. Cost: a pass over the rows.

use crate::report::figures::counted;
use crate::report::svg::{COLOURS, Chart, IntervalRow, Marks, Series, Style};

use crate::bench::ranking::Latencies;
use crate::statistics::{Estimate, Interval};

/// Those of the charts that have figures, with their names.
pub(crate) fn drawn<const N: usize>(charts: [(&str, Option<Chart>); N]) -> Vec<(String, Chart)> {
    charts.into_iter().filter_map(|(name, chart)| Some((name.to_owned(), chart?))).collect()
}

/// The ratios of contestants with their intervals. `band` is the baseline against itself: an interval that overlaps it is no
/// difference.
pub(crate) fn ratios(
    title: String,
    axis: String,
    band: Option<Interval>,
    rows: impl IntoIterator<Item = (String, Estimate)>,
) -> Option<Chart> {
    let row = |(name, Estimate { ratio, interval: Interval { low, high }, .. }): (String, Estimate)| {
        let is_drawn = low > 0.0 && high.is_finite();
        is_drawn.then_some(IntervalRow { name, colour: COLOURS[2], ratio, low, high })
    };
    let rows: Vec<IntervalRow> = rows.into_iter().filter_map(row).collect();
    let about = format!("Chart: {title}, {}", counted(rows.len() as u64, "contestant"));
    let band = band.map(|Interval { low, high }| (low, high)).filter(|(low, _)| *low > 0.0);
    (!rows.is_empty()).then_some(Chart { title, about, axis, marks: Marks::Intervals { band, rows } })
}

/// The p50, p99 and p99.9 of contestants, without those that could not keep the rate.
pub(crate) fn latencies<'a>(title: String, rows: impl IntoIterator<Item = (&'a str, &'a Latencies)>) -> Option<Chart> {
    let kept = rows.into_iter().filter(|(_, latency)| !latency.overloaded);
    let points = |latency: &Latencies| percentiles([latency.p50_us, latency.p99_us, latency.p999_us]);
    lines(title, PERCENTILES.into(), kept.map(|(name, latency)| (name.to_owned(), points(latency))))
}

/// The axis of [`percentiles`].
pub(crate) const PERCENTILES: &str = "one request in N takes longer: p50, p99, p99.9";

/// The p50, p99 and p99.9 as points of a line along [`PERCENTILES`].
pub(crate) fn percentiles([p50, p99, p999]: [f64; 3]) -> Vec<(u64, f64)> {
    vec![(2, p50), (100, p99), (1000, p999)]
}

/// A line for each contestant.
pub(crate) fn lines(
    title: String,
    axis: String,
    lines: impl IntoIterator<Item = (String, Vec<(u64, f64)>)>,
) -> Option<Chart> {
    let is_drawn = |(_, figure): &(u64, f64)| *figure > 0.0 && figure.is_finite();
    let drawn = lines.into_iter().map(|(name, points)| (name, points.into_iter().filter(is_drawn).collect::<Vec<_>>()));
    let lines: Vec<Series> = drawn
        .filter(|(_, points)| !points.is_empty())
        .enumerate()
        .map(|(place, (name, points))| Series { name, style: Style::nth(place), points })
        .collect();
    let about = format!("Chart: {title} by {axis}, {}", counted(lines.len() as u64, "contestant"));
    (!lines.is_empty()).then_some(Chart { title, about, axis, marks: Marks::Lines(lines) })
}
