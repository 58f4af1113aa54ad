//! The verdicts on the published claims: `defs/page.toml`, judged by the measured rows. The functions here judge the claims about
//! bounds of workers.
//!
//! Cost: a pass over the rows for each claim.

use crate::claim::{ClaimOutcome, ClaimRow, ClaimSet};
use crate::experiment::distinct;
use crate::report::Claim;
use crate::report::figures::counted;

use super::published::WAIT;
use super::record::{PagePart, PageRow, bound, cpu_us, peak_mib};

/// The min share of a bound at which the bound limits the throughput.
const MIN_SHARE: f64 = 0.8;
/// The factor by which a throughput may exceed its bound, because the client and the server have different clocks.
const CLOCK_TOLERANCE: f64 = 1.01;
/// A server that holds no worker during a wait exceeds the bound of its workers by at least this factor.
const MIN_EXCESS: f64 = 1.25;
/// The size of the pool in the published claim.
const POOL_SIZE: usize = 8;
/// The seed of the intervals.
const SEED: u64 = 0;

/// The claims and their verdicts.
///
/// # Errors
///
/// Returns an error if the definition has one.
pub fn claims(rows: &[PageRow]) -> anyhow::Result<Vec<Claim>> {
    let set = ClaimSet::parse("defs/page.toml", include_str!("../../defs/page.toml"))?;
    let sweep: Vec<&PageRow> = rows.iter().filter(|row| row.key.part == PagePart::Sweep).collect();
    let generic: Vec<ClaimRow> = rows.iter().map(generic_row).collect();
    Ok(set.verdicts(
        &generic,
        SEED,
        &[
            ("pool_of_8", &|| pool_of_8(&sweep)),
            ("in_proportion", &|| in_proportion(&sweep)),
            ("async_does_not_block", &|| async_does_not_block(&sweep)),
        ],
    ))
}

fn generic_row(row: &PageRow) -> ClaimRow {
    let PageRow { key, sample } = row;
    let part = match key.part {
        PagePart::Published => "published",
        PagePart::Twins => "twins",
        PagePart::Sweep => "sweep",
    };
    let generic = ClaimRow::new(&key.server, key.round)
        .at("part", part)
        .at("wait_s", sample.bounds.wait_s)
        .with("requests_per_s", sample.figures.requests_per_s)
        .with("share_of_bound", sample.bounds.of_bound)
        .with("cpu_us_per_request", cpu_us(row))
        .with("peak_memory_mib", peak_mib(row));
    match key.workers {
        Some(workers) => generic.at("workers", workers as f64),
        None => generic,
    }
}

/// Confirmed if every pool of 8 reaches [`MIN_SHARE`] of its bound and none exceeds it; refuted if one exceeds it.
fn pool_of_8(rows: &[&PageRow]) -> ClaimOutcome {
    let eights: Vec<(&PageRow, f64)> =
        rows_with_bound(rows).filter(|(row, _)| row.key.workers == Some(POOL_SIZE)).collect();
    let passed = eights.iter().any(|(row, bound)| row.sample.figures.requests_per_s > bound * CLOCK_TOLERANCE);
    let reached = eights.iter().all(|(row, bound)| row.sample.figures.requests_per_s >= bound * MIN_SHARE);
    let holds = match () {
        () if eights.is_empty() => None,
        () if passed => Some(false),
        () => reached.then_some(true),
    };
    let all = eights.first().map(|(_, bound)| {
        format!("{}: {} of {bound:.1} a second", counted(eights.len() as u64, "pool"), range(&eights))
    });
    (holds, figure(&formula(rows), &all.into_iter().collect::<Vec<_>>()))
}

/// Confirmed if no pool exceeds its bound and every pool reaches [`MIN_SHARE`] of its bound, at two sizes or more. Refuted if
/// one exceeds it, or reaches less than half of that share at the published waits. Undecided otherwise.
fn in_proportion(rows: &[&PageRow]) -> ClaimOutcome {
    let pools: Vec<(&PageRow, f64)> = rows_with_bound(rows).collect();
    let passed = pools.iter().any(|(row, bound)| row.sample.figures.requests_per_s > bound * CLOCK_TOLERANCE);
    let reached = pools.iter().all(|(row, bound)| row.sample.figures.requests_per_s >= bound * MIN_SHARE);
    let stays_behind = |(row, bound): &(&PageRow, f64)| {
        row.sample.bounds.wait_s >= WAIT.as_secs_f64() && row.sample.figures.requests_per_s < bound * MIN_SHARE / 2.0
    };
    let mut sizes: Vec<usize> = pools.iter().filter_map(|(row, _)| row.key.workers).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let holds = match () {
        () if passed => Some(false),
        () if sizes.len() < 2 => None,
        () if pools.iter().any(stays_behind) => Some(false),
        () => reached.then_some(true),
    };
    let each = sizes.iter().map(|size| {
        let of = pools.iter().filter(|(row, _)| row.key.workers == Some(*size));
        let shares = of.map(|(row, bound)| row.sample.figures.requests_per_s / bound * 100.0);
        let (min, max) = shares.fold((f64::INFINITY, 0.0_f64), |(min, max), share| (min.min(share), max.max(share)));
        let (min, max) = (format!("{min:.0}"), format!("{max:.0}"));
        let shares = if min == max { min } else { format!("{min} to {max}") };
        format!("{}: {shares} % of the bound", counted(*size as u64, "worker"))
    });
    (holds, figure(&formula(rows), &each.collect::<Vec<_>>()))
}

/// Judged on the servers that hold no worker during a wait, at numbers of workers with a bound well below the bound of the
/// connections. Confirmed if every such server exceeds the workers' bound by [`MIN_EXCESS`] and reaches [`MIN_SHARE`] of
/// the bound of the connections. Refuted at the published waits if one does not exceed the workers' bound, or reaches
/// less than half of that share. Undecided otherwise: at shorter waits the client may be the limit.
fn async_does_not_block(rows: &[&PageRow]) -> ClaimOutcome {
    let workers_bound = |row: &PageRow| {
        let bounds = &row.sample.bounds;
        Some(bound(row.key.workers?, bounds.every, bounds.wait_s))
    };
    let free: Vec<(&PageRow, f64)> = (rows.iter().filter(|row| row.sample.bounds.bound_per_s.is_none()))
        .filter_map(|row| Some((*row, workers_bound(row)?)))
        .filter(|(row, bound)| bound * MIN_EXCESS < row.sample.bounds.connections_bound_per_s * MIN_SHARE)
        .collect();
    let exceeds_workers = |(row, bound): &(&PageRow, f64)| row.sample.figures.requests_per_s >= bound * MIN_EXCESS;
    let share =
        |(row, _): &(&PageRow, f64)| row.sample.figures.requests_per_s / row.sample.bounds.connections_bound_per_s;
    let has_published_waits = free.iter().all(|(row, _)| row.sample.bounds.wait_s >= WAIT.as_secs_f64());
    let holds = match () {
        () if free.is_empty() => None,
        () if free.iter().all(|row| exceeds_workers(row) && share(row) >= MIN_SHARE) => Some(true),
        () if free.iter().all(|row| exceeds_workers(row) && share(row) >= MIN_SHARE / 2.0) => None,
        () => has_published_waits.then_some(false),
    };
    let each = distinct(free.iter().filter_map(|(row, _)| row.key.workers)).into_iter().filter_map(|workers| {
        let own: Vec<(&PageRow, f64)> =
            free.iter().filter(|(row, _)| row.key.workers == Some(workers)).copied().collect();
        let (row, bound) = own.first()?;
        let (most, workers) = (row.sample.bounds.connections_bound_per_s, counted(workers as u64, "worker"));
        Some(format!("with {workers} {} of {most:.0} a second, where {bound:.0} is a pool's bound", range(&own)))
    });
    (holds, figure("", &each.collect::<Vec<_>>()))
}

/// The rows of servers that hold a worker during a wait, with the bound of the workers. Rows are omitted if the bound
/// of the connections is lower.
fn rows_with_bound<'a>(rows: &'a [&'a PageRow]) -> impl Iterator<Item = (&'a PageRow, f64)> {
    let chosen = rows.iter().filter(|row| row.key.workers.is_some());
    chosen.filter_map(|row| {
        let bounds = &row.sample.bounds;
        Some((*row, bounds.bound_per_s.filter(|bound| *bound <= bounds.connections_bound_per_s)?))
    })
}

/// The lowest and the highest throughput of these rows, with the names of the servers.
fn range(rows: &[(&PageRow, f64)]) -> String {
    let throughput = |row: &PageRow| row.sample.figures.requests_per_s;
    let mut sorted: Vec<&PageRow> = rows.iter().map(|(row, _)| *row).collect();
    sorted.sort_by(|one, other| throughput(one).total_cmp(&throughput(other)));
    let digits = |row: &PageRow| format!("{:.1}", throughput(row));
    match sorted.as_slice() {
        [] => String::new(),
        [only] => format!("{} ({})", digits(only), only.key.server),
        [least, .., most] if digits(least) == digits(most) => format!("all {}", digits(least)),
        [least, .., most] => {
            format!("{} ({}) to {} ({})", digits(least), least.key.server, digits(most), most.key.server)
        }
    }
}

fn formula(rows: &[&PageRow]) -> String {
    rows.first().map_or_else(String::new, |row| {
        format!("bound = workers x {} / {} s: ", row.sample.bounds.every, row.sample.bounds.wait_s)
    })
}

fn figure(prefix: &str, figures: &[String]) -> String {
    if figures.is_empty() { String::from("not measured") } else { format!("{prefix}{}", figures.join("; ")) }
}

#[cfg(test)]
mod tests;
