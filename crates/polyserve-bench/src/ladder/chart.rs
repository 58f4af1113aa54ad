//! The chart: the gain of each rung over the rung below, with its interval, and the published gain.

use crate::experiment::distinct;
use crate::report::svg::{COLOURS, Chart, IntervalChart, IntervalRow};

use super::results::Results;
use super::table::{RungRow, published_ratio};

/// Returns the chart `steps`; empty if no rung has a ratio.
///
/// # Errors
///
/// Returns an error if the published figures are not CSV.
pub(super) fn charts(rungs: &[RungRow], results: &Results) -> anyhow::Result<Vec<(String, Chart)>> {
    let published = published_ratio()?;
    let is_published_load = results.is_published_load();
    let subjects = distinct(rungs.iter().map(|row| row.subject.as_str()));
    let row = |row: &RungRow| {
        let place = subjects.iter().position(|subject| *subject == row.subject)?;
        let (ratio, low, high) = (row.ratio?, row.low?, row.high?);
        let colour = COLOURS[place % COLOURS.len()];
        let below = row.below.as_deref().filter(|_| is_published_load);
        let published = below.and_then(|below| published(&row.rung, below));
        (low > 0.0).then(|| IntervalRow { name: row.rung.clone(), colour, ratio, low, high, published })
    };
    let rows: Vec<IntervalRow> = rungs.iter().filter_map(row).collect();
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let title = String::from("Requests per second over the rung below");
    let about = format!(
        "Chart: requests per second of {} rungs over the rung below, with 95 % intervals{}; (again) is the control",
        rows.len(),
        if is_published_load { " and the published ratios" } else { "" }
    );
    let diamond = if is_published_load { "diamond: as published; " } else { "" };
    let axis = format!("ratio; {diamond}(again) is the lowest rung over itself");
    Ok(vec![(String::from("steps"), Chart::Intervals(IntervalChart { title, about, axis, band: None, rows }))])
}
