//! The chart: the gain of each rung over the rung below, with its interval.

use polyserve_lab::experiment::distinct;
use polyserve_report::svg::{COLOURS, Chart, Interval, IntervalChart};

use super::table::RungRow;

/// The chart `steps`; none without a rung above another.
pub(super) fn charts(rungs: &[RungRow]) -> Vec<(String, Chart)> {
    let subjects = distinct(rungs.iter().map(|row| row.subject.as_str()));
    let row = |row: &RungRow| {
        let place = subjects.iter().position(|subject| *subject == row.subject)?;
        let (ratio, low, high) = (row.ratio?, row.low?, row.high?);
        let colour = COLOURS[place % COLOURS.len()];
        (low > 0.0).then(|| Interval { name: row.rung.clone(), colour, ratio, low, high })
    };
    let rows: Vec<Interval> = rungs.iter().filter_map(row).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let title = String::from("Requests per second over the rung below");
    let about = format!(
        "Chart: requests per second of {} rungs over the rung below, with 95 % intervals; (again) is the control",
        rows.len()
    );
    let axis = String::from("ratio; (again) is the lowest rung over itself");
    vec![(String::from("steps"), Chart::Intervals(IntervalChart { title, about, axis, rows }))]
}
