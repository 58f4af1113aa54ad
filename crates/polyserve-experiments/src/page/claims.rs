//! What was published of the page that sometimes waits, held against what was measured.
//!
//! Cost: a pass over the rows a claim.

use polyserve_report::Claim;
use serde_json::Value;

use super::published::{Figures, SETUPS, WAIT};
use super::{Part, Row, table};

const EXPERIMENT: &str = "page";

/// Whoever answers this share of what its connections can ask for takes as long as published: there it was 0.97 to 0.99.
const AS_LONG: f64 = 0.95;
/// Whoever answers this share of a bound is bound by it, and not by something else.
const BOUND_BY: f64 = 0.8;
/// No bound is passed by more than this: the clock of the client is not the server's.
const PASSED: f64 = 1.01;
/// A server that need not sit through waits does at least so many times what its workers could if they did.
const NOT_BOUND: f64 = 1.25;
/// The pool that is spoken of.
const EIGHT: usize = 8;

/// The claims, and what is to be said of each.
///
/// # Errors
///
/// Where a line is not what this version records.
pub fn claims(lines: &[Value]) -> anyhow::Result<Vec<Claim>> {
    let rows = table::rows(lines)?;
    let of = |part: Part| rows.iter().filter(move |row| row.ours.part == part).collect::<Vec<_>>();
    let (published, sweep) = (of(Part::Published), of(Part::Sweep));
    Ok(vec![alike(&published), eight(&sweep), in_proportion(&sweep), need_not(&sweep)])
}

/// Holds where all four do [`AS_LONG`] of what their connections can ask for: then the waits decide, and nothing else.
/// Where one does less, it is refuted with the published waits; with shorter ones, answering may take too much beside them.
fn alike(rows: &[&Row]) -> Claim {
    let claim = "four servers, two of them pools of 100, take about the same: what the waits take, 20.2 s for 10 000 requests of 2 s";
    let all =
        SETUPS.iter().all(|setup| rows.iter().any(|row| row.ours.published_as.as_deref() == Some(setup.published_as)));
    let least = rows.iter().map(|row| row.ours.of_bound).fold(f64::INFINITY, f64::min);
    let in_full = rows.iter().all(|row| row.ours.wait_s >= WAIT.as_secs_f64());
    let holds = match () {
        () if !all => None,
        () if least >= AS_LONG => Some(true),
        () => in_full.then_some(false),
    };
    let each = rows.iter().map(|row| {
        format!(
            "{} {:.2} s, {:.1} a second, {:.1} % of the bound",
            row.figures.server,
            row.figures.total_s,
            row.figures.requests_per_s,
            row.ours.of_bound * 100.0
        )
    });
    let wait = rows.first().map_or_else(String::new, |row| format!("waits of {} s: ", row.ours.wait_s));
    Claim::new(EXPERIMENT, claim, holds, figure(&wait, &each.collect::<Vec<_>>()))
}

/// Holds where every pool of 8 does [`BOUND_BY`] of its bound and none passes it; refuted where one passes it.
fn eight(rows: &[&Row]) -> Claim {
    let claim = "a pool of 8 is bound to (8 x 10) / 2 = 40 requests a second, however fast it is";
    let eights: Vec<(&Row, f64)> = bound(rows).filter(|(row, _)| row.ours.workers == Some(EIGHT)).collect();
    let passed = eights.iter().any(|(row, bound)| row.figures.requests_per_s > bound * PASSED);
    let reached = eights.iter().all(|(row, bound)| row.figures.requests_per_s >= bound * BOUND_BY);
    let holds = match () {
        () if eights.is_empty() => None,
        () if passed => Some(false),
        () => reached.then_some(true),
    };
    let each = eights
        .iter()
        .map(|(row, bound)| format!("{} {:.1} of {bound:.1} a second", row.figures.server, row.figures.requests_per_s));
    Claim::new(EXPERIMENT, claim, holds, figure(&formula(rows), &each.collect::<Vec<_>>()))
}

/// Holds where no pool passes its bound and every one
/// does [`BOUND_BY`] of it at two sizes or more; refuted where one passes it.
fn in_proportion(rows: &[&Row]) -> Claim {
    let claim = "a pool's requests a second grow in proportion to its workers, up to what its connections can ask for";
    let below: Vec<(&Row, f64)> = bound(rows).collect();
    let passed = below.iter().any(|(row, bound)| row.figures.requests_per_s > bound * PASSED);
    let reached = below.iter().all(|(row, bound)| row.figures.requests_per_s >= bound * BOUND_BY);
    let mut sizes: Vec<usize> = below.iter().filter_map(|(row, _)| row.ours.workers).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let holds = match () {
        () if passed => Some(false),
        () if sizes.len() < 2 => None,
        () => reached.then_some(true),
    };
    let each = sizes.iter().map(|size| {
        let of = below.iter().filter(|(row, _)| row.ours.workers == Some(*size));
        let shares = of.map(|(row, bound)| row.figures.requests_per_s / bound * 100.0);
        let (least, most) =
            shares.fold((f64::INFINITY, 0.0_f64), |(least, most), share| (least.min(share), most.max(share)));
        format!("{size} workers: {least:.0} to {most:.0} % of the bound")
    });
    Claim::new(EXPERIMENT, claim, holds, figure(&formula(rows), &each.collect::<Vec<_>>()))
}

/// Judged where so many workers that wait would be bound well below the connections: holds where every server that holds
/// no worker does [`NOT_BOUND`] of that bound; refuted where one does not with the published waits. With shorter ones a
/// client may not get that far.
fn need_not(rows: &[&Row]) -> Claim {
    let claim = "an async server need not sit through the waits: few threads do what the connections ask for";
    let theirs = |row: &&&Row| Some(row.ours.workers? as f64 * row.ours.every as f64 / row.ours.wait_s);
    let free: Vec<(&Row, f64)> = (rows.iter().filter(|row| row.ours.bound_per_s.is_none()))
        .filter_map(|row| Some((*row, theirs(&row)?)))
        .filter(|(row, bound)| bound * NOT_BOUND < row.ours.connections_bound_per_s * BOUND_BY)
        .collect();
    let in_full = free.iter().all(|(row, _)| row.ours.wait_s >= WAIT.as_secs_f64());
    let holds = match () {
        () if free.is_empty() => None,
        () if free.iter().all(|(row, bound)| row.figures.requests_per_s >= bound * NOT_BOUND) => Some(true),
        () => in_full.then_some(false),
    };
    let each = free.iter().map(|(row, bound)| {
        let Figures { server, requests_per_s, .. } = &row.figures;
        let (most, workers) = (row.ours.connections_bound_per_s, row.ours.workers.unwrap_or(0));
        format!(
            "{server} with {workers} {requests_per_s:.0} of {most:.0} a second, where {bound:.0} were a pool's bound"
        )
    });
    Claim::new(EXPERIMENT, claim, holds, figure("", &each.collect::<Vec<_>>()))
}

/// The rows of servers whose workers wait, and what so many can do at most; those where the connections do not bind first.
fn bound<'a>(rows: &'a [&'a Row]) -> impl Iterator<Item = (&'a Row, f64)> {
    let chosen = rows.iter().filter(|row| row.ours.workers.is_some());
    chosen.filter_map(|row| {
        Some((*row, row.ours.bound_per_s.filter(|bound| *bound <= row.ours.connections_bound_per_s)?))
    })
}

fn formula(rows: &[&Row]) -> String {
    rows.first()
        .map_or_else(String::new, |row| format!("bound = workers x {} / {} s: ", row.ours.every, row.ours.wait_s))
}

fn figure(before: &str, each: &[String]) -> String {
    if each.is_empty() { String::from("not measured") } else { format!("{before}{}", each.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;
    use polyserve_lab::journal::as_line;
    use polyserve_report::Verdict;

    fn said(rows: &[Row]) -> [Verdict; 4] {
        let line = |row: &Row| as_line(Row::KIND, row).unwrap();
        let claims = claims(&rows.iter().map(line).collect::<Vec<_>>()).unwrap();
        assert!(claims.iter().all(|claim| claim.experiment == EXPERIMENT && !claim.figure.is_empty()));
        claims.iter().map(|claim| claim.verdict).collect::<Vec<_>>().try_into().unwrap()
    }

    fn published(per_second: f64) -> Vec<Row> {
        let rows = SETUPS.iter().map(|setup| {
            let mut row = row(Part::Published, setup.published_as, setup.workers, per_second);
            row.ours.published_as = Some(setup.published_as.to_owned());
            row
        });
        rows.collect()
    }

    fn pool(workers: usize, per_second: f64) -> Row {
        let mut row = row(Part::Sweep, "pool", Some(workers), per_second);
        row.ours.bound_per_s = Some(workers as f64 * 5.0);
        row
    }

    #[test]
    fn without_rows_nothing_is_decided() {
        assert_eq!(said(&[]), [Verdict::Undecided; 4]);
    }

    #[test]
    fn the_four_are_alike_where_the_waits_decide() {
        assert_eq!(said(&published(495.0))[0], Verdict::Confirmed);
        let mut slow = published(495.0);
        (slow[2].figures.requests_per_s, slow[2].ours.of_bound) = (400.0, 0.8);
        assert_eq!(said(&slow)[0], Verdict::Refuted);
        slow.iter_mut().for_each(|row| row.ours.wait_s = 0.2);
        assert_eq!(said(&slow)[0], Verdict::Undecided, "short waits");
        assert_eq!(said(&published(495.0)[..3])[0], Verdict::Undecided, "one is missing");
    }

    #[test]
    fn a_pools_bound() {
        let of = |rows: &[Row]| [said(rows)[1], said(rows)[2]];
        assert_eq!(of(&[pool(8, 39.0), pool(32, 158.0)]), [Verdict::Confirmed; 2]);
        assert_eq!(of(&[pool(8, 45.0), pool(32, 158.0)]), [Verdict::Refuted; 2]);
        assert_eq!(of(&[pool(8, 20.0), pool(32, 158.0)]), [Verdict::Undecided; 2], "something else bound it");
        assert_eq!(of(&[pool(8, 39.0)]), [Verdict::Confirmed, Verdict::Undecided], "one size is no growth");
        // Past the connections' bound there is no growth to speak of.
        assert_eq!(of(&[pool(32, 158.0), pool(128, 480.0)]), [Verdict::Undecided; 2]);
    }

    #[test]
    fn who_holds_no_worker() {
        let free = |workers, per_second| row(Part::Sweep, "async", Some(workers), per_second);
        let of = |rows: &[Row]| said(rows)[3];
        assert_eq!(of(&[free(8, 490.0), pool(8, 39.0)]), Verdict::Confirmed);
        assert_eq!(of(&[free(8, 490.0), free(2, 10.0)]), Verdict::Refuted);
        let mut short = free(2, 10.0);
        short.ours.wait_s = 0.2;
        assert_eq!(of(&[free(8, 490.0), short]), Verdict::Undecided, "its client may not have got that far");
        assert_eq!(of(&[free(128, 490.0), pool(8, 39.0)]), Verdict::Undecided, "so many would do it anyway");
    }
}
