//! The published claims about the page that sometimes waits, with verdicts on the measured rows.
//!
//! Cost: a pass over the rows for each claim.

use polyserve_lab::experiment::distinct;
use polyserve_report::Claim;
use polyserve_report::figures::counted;

use super::published::{self, PublishedServer, SETUPS, WAIT};
use super::record::{PagePart, PageRow, PageSource, bound, medians};
use super::twin_claims;

const EXPERIMENT: &str = "page";

/// The min share of the connections' bound at which a server takes as long as published. The published shares are 0.97
/// to 0.99.
const MIN_PUBLISHED_SHARE: f64 = 0.95;
/// The min share of a bound at which the bound limits the throughput.
const MIN_SHARE: f64 = 0.8;
/// The factor by which a throughput may exceed its bound, because the client and the server have different clocks.
const CLOCK_TOLERANCE: f64 = 1.01;
/// A server that holds no worker during a wait exceeds the bound of its workers by at least this factor.
const MIN_EXCESS: f64 = 1.25;
/// The size of the pool in the published claim.
const POOL_SIZE: usize = 8;

/// The claims and their verdicts.
///
/// # Errors
///
/// Returns an error if the published figures cannot be read.
pub fn claims(rows: &[PageRow]) -> anyhow::Result<Vec<Claim>> {
    let published = as_published(rows);
    let sweep: Vec<&PageRow> = rows.iter().filter(|row| row.key.part == PagePart::Sweep).collect();
    let own = vec![
        totals_are_alike(&published.iter().collect::<Vec<_>>())?,
        pool_of_8(&sweep),
        in_proportion(&sweep),
        async_does_not_block(&sweep),
    ];
    let twins = twin_claims::claims(rows, own.len())?;
    Ok([own, twins].concat())
}

/// The rows that represent the four published servers, in the order of the published figures.
///
/// The rows are the first group with all four servers: the published listings, the catalog's servers with the page from
/// a file, or the catalog's servers with the page in memory. Each row has the medians of the rounds.
fn as_published(rows: &[PageRow]) -> Vec<PageRow> {
    let group = |part: PagePart, page: PageSource| -> Vec<PageRow> {
        let is_of_group =
            |row: &PageRow| row.key.page == page && (part == PagePart::Published || row.sample.published_as.is_some());
        let mut members: Vec<PageRow> = medians(rows, part).into_iter().filter(is_of_group).collect();
        let place = |row: &PageRow| {
            SETUPS.iter().position(|setup| row.sample.published_as.as_deref() == Some(setup.published_as))
        };
        members.sort_by_key(place);
        members
    };
    let groups = [
        group(PagePart::Twins, PageSource::File),
        group(PagePart::Published, PageSource::File),
        group(PagePart::Published, PageSource::Memory),
    ];
    let complete = groups.iter().find(|rows| has_all(&rows.iter().collect::<Vec<_>>()));
    complete.or_else(|| groups.iter().find(|rows| !rows.is_empty())).cloned().unwrap_or_default()
}

/// Whether each of the published four has a row.
fn has_all(rows: &[&PageRow]) -> bool {
    let is = |row: &PageRow, name: &str| row.sample.published_as.as_deref() == Some(name);
    SETUPS.iter().all(|setup| rows.iter().any(|row| is(row, setup.published_as)))
}

/// Confirmed if all four reach [`MIN_PUBLISHED_SHARE`] of the connections' bound and none exceeds it by more than
/// [`CLOCK_TOLERANCE`]: then only the waits decide. Refuted if one exceeds it: it did not wait. Otherwise refuted at the
/// published waits, and undecided at shorter waits: the time to answer may be a large share of a short wait.
///
/// # Errors
///
/// Returns an error if the published figures cannot be read.
fn totals_are_alike(rows: &[&PageRow]) -> anyhow::Result<Claim> {
    let claim = "four servers, two of them pools of 100, take about the same: 20.2 s";
    let is_complete = has_all(rows);
    let shares = || rows.iter().map(|row| row.sample.bounds.of_bound);
    let has_published_waits = rows.iter().all(|row| row.sample.bounds.wait_s >= WAIT.as_secs_f64());
    let holds = match () {
        () if !is_complete => None,
        () if shares().any(|share| share > CLOCK_TOLERANCE) => Some(false),
        () if shares().all(|share| share >= MIN_PUBLISHED_SHARE) => Some(true),
        () => has_published_waits.then_some(false),
    };
    let each = rows.iter().map(|row| {
        format!(
            "{} {:.2} s, {:.1} a second, {:.1} % of the bound",
            row.key.server,
            row.sample.figures.total_s,
            row.sample.figures.requests_per_s,
            row.sample.bounds.of_bound * 100.0
        )
    });
    let wait = rows.first().map_or_else(String::new, |row| format!("waits of {} s: ", row.sample.bounds.wait_s));
    let all_published = published::figures()?;
    let published = all_published.iter().map(|PublishedServer { server, figures }| {
        format!("{server} {:.2} s, {:.1} a second", figures.total_s, figures.requests_per_s)
    });
    Ok(Claim::new(EXPERIMENT, claim, holds, figure(&wait, &each.collect::<Vec<_>>()))
        .with_published(published.collect::<Vec<_>>().join("; ")))
}

/// Confirmed if every pool of 8 reaches [`MIN_SHARE`] of its bound and none exceeds it; refuted if one exceeds it.
fn pool_of_8(rows: &[&PageRow]) -> Claim {
    let claim = "a pool of 8 is bound to (8 x 10) / 2 = 40 requests a second, however fast it is";
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
    Claim::new(EXPERIMENT, claim, holds, figure(&formula(rows), &all.into_iter().collect::<Vec<_>>()))
        .with_published("40 a second, computed and not measured")
}

/// Confirmed if no pool exceeds its bound and every pool reaches [`MIN_SHARE`] of its bound, at two sizes or more. Refuted if
/// one exceeds it, or reaches less than half of that share at the published waits. Undecided otherwise.
fn in_proportion(rows: &[&PageRow]) -> Claim {
    let claim = "a pool's requests a second grow in proportion to its workers, up to what its connections can ask for";
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
    Claim::new(EXPERIMENT, claim, holds, figure(&formula(rows), &each.collect::<Vec<_>>()))
}

/// Judged on the servers that hold no worker during a wait, at numbers of workers with a bound well below the bound of the
/// connections. Confirmed if every such server exceeds the workers' bound by [`MIN_EXCESS`] and reaches [`MIN_SHARE`] of
/// the bound of the connections. Refuted at the published waits if one does not exceed the workers' bound, or reaches
/// less than half of that share. Undecided otherwise: at shorter waits the client may be the limit.
fn async_does_not_block(rows: &[&PageRow]) -> Claim {
    let claim = "an async server does not block during the waits: few threads reach the bound of the connections";
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
    Claim::new(EXPERIMENT, claim, holds, figure("", &each.collect::<Vec<_>>()))
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
mod tests {
    use super::super::tests::row;
    use super::*;
    use polyserve_report::ClaimVerdict;

    /// The verdicts on the claims that the twins' ratios do not decide.
    fn verdicts(rows: &[PageRow]) -> [ClaimVerdict; 4] {
        let claims = claims(rows).unwrap();
        assert!(claims.iter().all(|claim| claim.experiment == EXPERIMENT && !claim.figure.is_empty()));
        claims.iter().map(|claim| claim.verdict).take(4).collect::<Vec<_>>().try_into().unwrap()
    }

    fn published(per_second: f64) -> Vec<PageRow> {
        let rows = SETUPS.iter().map(|setup| {
            let mut row = row(PagePart::Published, setup.published_as, setup.workers, per_second);
            row.sample.published_as = Some(setup.published_as.to_owned());
            row
        });
        rows.collect()
    }

    fn pool(workers: usize, per_second: f64) -> PageRow {
        let mut row = row(PagePart::Sweep, "pool", Some(workers), per_second);
        row.sample.bounds.bound_per_s = Some(workers as f64 * 5.0);
        row
    }

    #[test]
    fn without_rows_nothing_is_decided() {
        assert_eq!(verdicts(&[]), [ClaimVerdict::Undecided; 4]);
    }

    #[test]
    fn the_four_are_alike_if_the_waits_decide() {
        assert_eq!(verdicts(&published(495.0))[0], ClaimVerdict::Confirmed);
        let mut slow = published(495.0);
        (slow[2].sample.figures.requests_per_s, slow[2].sample.bounds.of_bound) = (400.0, 0.8);
        assert_eq!(verdicts(&slow)[0], ClaimVerdict::Refuted);
        slow.iter_mut().for_each(|row| row.sample.bounds.wait_s = 0.2);
        assert_eq!(verdicts(&slow)[0], ClaimVerdict::Undecided, "short waits");
        assert_eq!(verdicts(&published(495.0)[..3])[0], ClaimVerdict::Undecided, "one is missing");
        let mut fast = published(495.0);
        (fast[1].sample.figures.requests_per_s, fast[1].sample.bounds.of_bound) = (700.0, 1.4);
        assert_eq!(verdicts(&fast)[0], ClaimVerdict::Refuted, "one did not wait");
    }

    /// The listings decide if all four were measured, then the page from a file, then the page in memory.
    #[test]
    fn the_rows_nearest_to_the_published_set_up_decide() {
        let moved = |per_second: f64, part: PagePart, page: PageSource| {
            let mut rows = published(per_second);
            rows.iter_mut().for_each(|row| (row.key.part, row.key.page) = (part, page));
            rows
        };
        let (memory, slow_file) = (published(495.0), moved(400.0, PagePart::Published, PageSource::File));
        let listings = moved(495.0, PagePart::Twins, PageSource::File);
        let both = [memory, slow_file].concat();
        assert_eq!(verdicts(&both)[0], ClaimVerdict::Refuted);
        assert_eq!(verdicts(&[&both[..], &listings[..3]].concat())[0], ClaimVerdict::Refuted, "one listing is missing");
        let turned: Vec<PageRow> = listings.into_iter().rev().collect();
        let figure = claims(&turned).unwrap()[0].figure.clone();
        let names: Vec<usize> = SETUPS.iter().map(|setup| figure.find(setup.published_as).unwrap()).collect();
        assert!(names.is_sorted(), "in the published order: {figure}");
        assert_eq!(verdicts(&[both, turned].concat())[0], ClaimVerdict::Confirmed);
    }

    #[test]
    fn a_pools_bound() {
        let of = |rows: &[PageRow]| [verdicts(rows)[1], verdicts(rows)[2]];
        assert_eq!(of(&[pool(8, 39.0), pool(32, 158.0)]), [ClaimVerdict::Confirmed; 2]);
        assert_eq!(of(&[pool(8, 45.0), pool(32, 158.0)]), [ClaimVerdict::Refuted; 2]);
        assert_eq!(of(&[pool(8, 20.0), pool(32, 158.0)]), [ClaimVerdict::Undecided; 2], "something else was the limit");
        assert_eq!(of(&[pool(8, 39.0)]), [ClaimVerdict::Confirmed, ClaimVerdict::Undecided], "one size is no growth");
        let mut flat = [pool(8, 39.0), pool(32, 60.0)];
        assert_eq!(verdicts(&flat)[2], ClaimVerdict::Refuted, "four times the workers, and hardly more requests");
        flat[1].sample.bounds.wait_s = 0.2;
        assert_eq!(verdicts(&flat)[2], ClaimVerdict::Undecided, "the client may be the limit");
        // Above the bound of the connections there is no growth.
        assert_eq!(of(&[pool(32, 158.0), pool(128, 480.0)]), [ClaimVerdict::Undecided; 2]);
    }

    #[test]
    fn servers_that_hold_no_worker() {
        let free = |workers, per_second| row(PagePart::Sweep, "async", Some(workers), per_second);
        let of = |rows: &[PageRow]| verdicts(rows)[3];
        assert_eq!(of(&[free(8, 490.0), pool(8, 39.0)]), ClaimVerdict::Confirmed);
        assert_eq!(of(&[free(8, 490.0), free(2, 10.0)]), ClaimVerdict::Refuted);
        assert_eq!(of(&[free(2, 20.0)]), ClaimVerdict::Refuted, "twice the workers' bound, and far from the other one");
        assert_eq!(of(&[free(8, 490.0), free(2, 300.0)]), ClaimVerdict::Undecided);
        let mut short = free(2, 10.0);
        short.sample.bounds.wait_s = 0.2;
        assert_eq!(of(&[free(8, 490.0), short]), ClaimVerdict::Undecided, "the client may be the limit");
        assert_eq!(
            of(&[free(128, 490.0), pool(8, 39.0)]),
            ClaimVerdict::Undecided,
            "a pool of this size has no lower bound"
        );
    }
}
