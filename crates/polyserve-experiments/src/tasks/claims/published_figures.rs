//! The published figures in the terms of the claims, and the figures that count as equal to them.

use polyserve_lab::statistics::{Interval, middle};

use super::super::growth::{MeanGrowth, TotalGrowth};
use super::super::published::{PUBLISHED_CORES, Published, STEPS_PER_S, published};

/// The max difference of a profit that counts as equal to the published profit, as a share of the possible gain of the
/// cores.
pub(super) const PROFIT_MARGIN: f64 = 0.05;
/// The max difference of a total that counts as equal to the published total, as a share of the ideal total.
pub(super) const TOTAL_MARGIN: f64 = 0.1;
/// The max published number of tasks at once.
pub(super) const TASKS: usize = 40;
/// The first of the numbers of tasks near [`TASKS`], over which the medians are taken.
pub(super) const NEARBY: usize = 36;

/// The published profit as a share of what the cores of that machine can gain.
pub(super) fn profit_share() -> f64 {
    0.8 / (1.0 - 1.0 / PUBLISHED_CORES as f64)
}

/// The published total of [`TASKS`] tasks as a share of the ideal total, in Rust and in Go.
///
/// # Errors
///
/// Returns an error if a published file cannot be read.
pub(super) fn totals_to_ideal() -> anyhow::Result<[f64; 2]> {
    Ok(published()?.map(|rows| total_to_ideal(&rows, TASKS).unwrap_or(f64::NAN)))
}

/// The published total of this number of tasks as a share of the ideal total.
fn total_to_ideal(rows: &[Published], tasks: usize) -> Option<f64> {
    let total = |tasks: usize| row(rows, tasks).map(|row| row.total_duration_ms);
    Some(total(tasks)? / total(1)? * PUBLISHED_CORES as f64 / tasks as f64)
}

/// The ratios of the steps per second in Rust to those in Go that count as equal to the published ratio.
pub(super) fn speed_ratios() -> Interval {
    let [rust, go] = STEPS_PER_S;
    Interval::equal_to(rust / go)
}

/// The published figures of the claims, as text. The claims without a field have theirs in their own text.
pub(super) struct PublishedFigures {
    pub(super) profit: String,
    pub(super) total_of_40: String,
    pub(super) cost: String,
    pub(super) totals: String,
    pub(super) rust_means: String,
    pub(super) go_means: String,
    pub(super) steps_per_second: String,
}

impl PublishedFigures {
    /// Reads the published figures.
    ///
    /// # Errors
    ///
    /// Returns an error if a published file cannot be read.
    pub(super) fn read() -> anyhow::Result<Self> {
        let share = profit_share();
        let [rust, go] = totals_to_ideal()?;
        let [rust_steps, go_steps] = STEPS_PER_S;
        let Interval { low, high } = speed_ratios();
        let rows = published()?;
        let points = |rows: &[Published], of: fn(&Published) -> f64| -> Vec<(usize, f64)> {
            rows.iter().map(|row| (row.tasks, of(row))).collect()
        };
        let [rust_total, go_total] = rows.each_ref().map(|rows| {
            let total = TotalGrowth::of(&points(rows, |row| row.total_duration_ms), PUBLISHED_CORES);
            total.map_or_else(String::new, |total| total.to_string())
        });
        let [rust_means, go_means] = rows.each_ref().map(|rows| {
            let mean = MeanGrowth::of(&points(rows, |row| row.mean_duration_ms), PUBLISHED_CORES);
            mean.map_or_else(String::new, |mean| mean.to_string())
        });
        let [rust_profit, go_profit] = rows.each_ref().map(|rows| {
            let profits = rows.iter().filter(|row| row.tasks >= 2 * PUBLISHED_CORES).map(|row| row.profit_pct);
            middle(profits).unwrap_or(f64::NAN)
        });
        let [rust_nearby, go_nearby] = rows.each_ref().map(|rows| {
            let ratios = (NEARBY..=TASKS).filter_map(|tasks| total_to_ideal(rows, tasks));
            middle(ratios).unwrap_or(f64::NAN)
        });
        let [rust_cost, go_cost] = rows.each_ref().map(|rows| row(rows, TASKS).map_or(f64::NAN, |row| row.cost_pct));
        Ok(Self {
            profit: format!(
                "80 % of the possible {:.1} % on {PUBLISHED_CORES} cores, a share of {share:.3}; equal within {PROFIT_MARGIN}; \
                 its tables: {rust_profit:.0} % in Rust and {go_profit:.0} % in Go",
                80.0 / share
            ),
            total_of_40: format!(
                "total to the ideal of {PUBLISHED_CORES} cores: {go:.2} in Go and {rust:.2} in Rust; equal within \
                 {TOTAL_MARGIN}; its medians of {NEARBY} to {TASKS} tasks: {go_nearby:.2} and {rust_nearby:.2}"
            ),
            cost: format!("at {TASKS} tasks {rust_cost:.0} % cost in Rust and {go_cost:.0} % in Go"),
            totals: format!("Rust: {rust_total}; Go: {go_total}"),
            rust_means,
            go_means,
            steps_per_second: format!("ratio {:.2}; equal from {low:.2} to {high:.2}", rust_steps / go_steps),
        })
    }
}

/// The row of this number of tasks.
fn row(rows: &[Published], tasks: usize) -> Option<&Published> {
    rows.iter().find(|row| row.tasks == tasks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published figures of the article, computed from its tables.
    #[test]
    fn the_article_is_read_as_it_was_published() {
        let [rust, go] = totals_to_ideal().unwrap();
        assert!((rust - 1.55).abs() < 0.005 && (go - 1.16).abs() < 0.005, "{rust} {go}");
        let figures = PublishedFigures::read().unwrap();
        assert!(figures.profit.ends_with("its tables: 81 % in Rust and 87 % in Go"), "{}", figures.profit);
        assert!(
            figures.total_of_40.ends_with("its medians of 36 to 40 tasks: 1.05 and 1.54"),
            "{}",
            figures.total_of_40
        );
        assert!(figures.cost.starts_with("at 40 tasks 78 % cost in Rust"), "{}", figures.cost);
        for text in [figures.totals, figures.rust_means, figures.go_means] {
            assert!(text.contains("ms a task") && text.contains("R² of "), "{text}");
        }
    }
}
