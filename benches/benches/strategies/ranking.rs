//! The table at the end of a run: servers and stores, the fastest first.

use polyserve::catalog::Catalog;
use polyserve_bench::reference::with_references;
use polyserve_bench::report::{Table, or_empty};
use polyserve_bench::statistics::{Estimate, Interval, MIN_ROUNDS, Verdict, shared_ranks};
use polyserve_bench::stores::bare::NAMES;

use crate::suite::Figures;
use crate::{repos, servers};

/// Returns the tables of servers and stores. The rank is by the geometric mean of the times, each divided by the best
/// time of its column.
pub(crate) fn ranking(measured: &Figures) -> String {
    let catalog = Catalog::builtin();
    let references: Vec<String> = with_references(Catalog::default())
        .references()
        .iter()
        .map(|entry| format!("reference/{}", entry.name))
        .collect();
    let servers: Vec<String> = catalog.servers().iter().map(|entry| entry.name.clone()).collect();
    let repos: Vec<String> = catalog.repos().iter().map(|entry| entry.name.clone()).collect();
    let bare = NAMES.map(String::from);
    let server_columns = servers::RANKED.map(|name| (String::from(name), format!("servers/{name}")));
    let store_columns = repos::ranked();
    let servers = rank("server", &server_columns, measured, &servers, &references);
    let stores = rank("store", &store_columns, measured, &repos, &bare);
    format!(
        "\n{servers}\n{stores}\nx best: the geometric mean of the times, each divided by the best of its column. Times are medians of one run in \
         one\nprocess, where the client shares the cores with the server. Differences under 10 % may be noise, and share a rank: \
         `polyserve compare`\nprints ratios with confidence intervals.\n"
    )
}

/// The noise of one run in one process. The figures have no control of their own.
const NOISE: Interval = Interval { low: 1.0 / 1.1, high: 1.1 };

/// Returns true if a contestant of this geometric mean is slower than one of `best`, beyond the noise.
fn is_slower(best: f64, own: f64) -> bool {
    let ratio = best / own;
    let estimate = Estimate { ratio, interval: Interval { low: ratio, high: ratio }, rounds: MIN_ROUNDS };
    estimate.verdict(&NOISE) == Verdict::Slower
}

/// Returns a table with ranked rows for `names`, then rows without a rank for `others`. A column is a header and a
/// group of benchmarks.
fn rank(axis: &str, columns: &[(String, String)], measured: &Figures, names: &[String], others: &[String]) -> Table {
    let times = |name: &String| -> Vec<Option<f64>> {
        columns.iter().map(|(_, group)| measured.get(&format!("{group}/{name}")).copied()).collect()
    };
    let mut best = vec![f64::INFINITY; columns.len()];
    for name in names {
        for (best, time) in best.iter_mut().zip(times(name)) {
            *best = best.min(time.unwrap_or(f64::INFINITY));
        }
    }
    // Returns `None` if a time is missing.
    let relative = |name: &String| -> Option<f64> {
        let logarithms: Option<Vec<f64>> =
            times(name).iter().zip(&best).map(|(time, best)| Some((time.as_ref()? / best).ln())).collect();
        let logarithms = logarithms?;
        Some((logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp())
    };
    let mut ranked: Vec<(f64, &String)> =
        names.iter().map(|name| (relative(name).unwrap_or(f64::INFINITY), name)).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    let header: Vec<&str> =
        [axis, "rank", "x best"].into_iter().chain(columns.iter().map(|(header, _)| header.as_str())).collect();
    let mut table = Table::of_numbers(&header);
    let mut row = |name: &String, rank: Option<usize>| {
        let figures = times(name).into_iter().map(|time| or_empty(time.map(with_unit)));
        let relative = relative(name).map(|relative| format!("{relative:.2}"));
        let first = [name.clone(), or_empty(rank.map(|rank| rank.to_string())), or_empty(relative)];
        table.row(first.into_iter().chain(figures).collect());
    };
    let ranks = shared_ranks(ranked.len(), None, |first, own| is_slower(ranked[first].0, ranked[own].0));
    for ((relative, name), rank) in ranked.iter().zip(ranks) {
        row(name, relative.is_finite().then_some(rank));
    }
    for name in others {
        row(name, None);
    }
    table
}

fn with_unit(seconds: f64) -> String {
    if seconds < 1e-6 { format!("{:.0} ns", seconds * 1e9) } else { format!("{:.1} us", seconds * 1e6) }
}
