//! The published figures in the terms of the claims, and the figures that count as equal to them.

use polyserve_lab::statistics::{Interval, median_of};

use super::super::growth::{MeanGrowth, TotalGrowth};
use super::super::published::{PUBLISHED_CORES, Published, STEPS_PER_S, published};

/// The claimed overhead at full load, in per cent of the tasks' time.
pub(super) const CLAIMED_COST_PCT: f64 = 75.0;
/// A cost is equal to the claimed one within this margin on both sides.
pub(super) const COST_MARGIN_PCT: f64 = 10.0;
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

/// The ratios of the steps per second in Rust to those in Go that count as equal to the published ratio.
pub(super) fn speed_ratios() -> Interval {
    let [rust, go] = STEPS_PER_S;
    Interval::equal_to(rust / go)
}

/// The published figures of the claims, as text. The claims without a field have theirs in their own text.
pub(super) struct PublishedFigures {
    /// The median of the totals of [`NEARBY`] to [`TASKS`] tasks as shares of their ideal totals, in Rust and in Go.
    pub(super) totals_to_ideal: [f64; 2],
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
        let [rust, go] = published()?.map(|rows| LanguageFigures::of(&rows));
        let share = profit_share();
        let [rust_steps, go_steps] = STEPS_PER_S;
        let Interval { low, high } = speed_ratios();
        Ok(Self {
            totals_to_ideal: [rust.nearby_to_ideal, go.nearby_to_ideal],
            profit: format!(
                "80 % of the possible {:.1} % on {PUBLISHED_CORES} cores, a share of {share:.3}; equal within {PROFIT_MARGIN}; \
                 its tables: {:.0} % in Rust and {:.0} % in Go",
                80.0 / share,
                rust.profit_pct,
                go.profit_pct
            ),
            total_of_40: format!(
                "total to the ideal of {PUBLISHED_CORES} cores, of {TASKS} tasks: {:.2} in Go and {:.2} in Rust; its medians of \
                 {NEARBY} to {TASKS} tasks: {:.2} and {:.2}; equal within {TOTAL_MARGIN} of these",
                go.to_ideal, rust.to_ideal, go.nearby_to_ideal, rust.nearby_to_ideal
            ),
            cost: format!(
                "{CLAIMED_COST_PCT:.0} %; equal within {COST_MARGIN_PCT:.0}; its tables: at {TASKS} tasks {:.0} % cost in Rust and \
                 {:.0} % in Go",
                rust.cost_pct, go.cost_pct
            ),
            totals: format!("Rust: {}; Go: {}", rust.totals, go.totals),
            rust_means: rust.means,
            go_means: go.means,
            steps_per_second: format!("ratio {:.2}; equal from {low:.2} to {high:.2}", rust_steps / go_steps),
        })
    }
}

/// The published figures of a language. A figure is NaN, and a text empty, if its rows are missing.
struct LanguageFigures {
    /// The total of [`TASKS`] tasks as a share of the ideal total.
    to_ideal: f64,
    /// The median of these shares from [`NEARBY`] to [`TASKS`] tasks.
    nearby_to_ideal: f64,
    /// The cost of [`TASKS`] tasks, in per cent.
    cost_pct: f64,
    /// The median profit from twice as many tasks as cores on, in per cent.
    profit_pct: f64,
    /// The growth of the total.
    totals: String,
    /// The growth of the mean duration.
    means: String,
}

impl LanguageFigures {
    fn of(rows: &[Published]) -> Self {
        let row = |tasks: usize| rows.iter().find(|row| row.tasks == tasks);
        let to_ideal = |tasks: usize| {
            let times = row(tasks)?.total_duration_ms / row(1)?.total_duration_ms;
            Some(times * PUBLISHED_CORES as f64 / tasks as f64)
        };
        let profits = rows.iter().filter(|row| row.tasks >= 2 * PUBLISHED_CORES).map(|row| row.profit_pct);
        let points = |of: fn(&Published) -> f64| rows.iter().map(|row| (row.tasks, of(row))).collect::<Vec<_>>();
        let total = TotalGrowth::of(&points(|row| row.total_duration_ms), PUBLISHED_CORES);
        let mean = MeanGrowth::of(&points(|row| row.mean_duration_ms), PUBLISHED_CORES);
        Self {
            to_ideal: to_ideal(TASKS).unwrap_or(f64::NAN),
            nearby_to_ideal: median_of((NEARBY..=TASKS).filter_map(to_ideal)).unwrap_or(f64::NAN),
            cost_pct: row(TASKS).map_or(f64::NAN, |row| row.cost_pct),
            profit_pct: median_of(profits).unwrap_or(f64::NAN),
            totals: total.map_or_else(String::new, |total| total.to_string()),
            means: mean.map_or_else(String::new, |mean| mean.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published figures of the article, computed from its tables.
    #[test]
    fn the_article_is_read_as_it_was_published() {
        let figures = PublishedFigures::read().unwrap();
        let [rust, go] = figures.totals_to_ideal;
        assert!((rust - 1.54).abs() < 0.005 && (go - 1.05).abs() < 0.005, "{rust} {go}");
        assert!(figures.profit.ends_with("its tables: 81 % in Rust and 87 % in Go"), "{}", figures.profit);
        assert!(
            figures.total_of_40.contains(
                "1.16 in Go and 1.55 in Rust; its medians of 36 to 40 tasks: 1.05 and 1.54; equal within 0.1"
            ),
            "{}",
            figures.total_of_40
        );
        assert!(figures.cost.starts_with("75 %; equal within 10; its tables: at 40 tasks 78 %"), "{}", figures.cost);
        for text in [figures.totals, figures.rust_means, figures.go_means] {
            assert!(text.contains("ms a task") && text.contains("R² of "), "{text}");
        }
    }
}
