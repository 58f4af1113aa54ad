//! Invented rows that confirm, refute or leave undecided each claim.

use crate::experiment::again;
use crate::report::ClaimVerdict::{self, Confirmed, Refuted, Undecided};

use super::super::THREAD_POOL;
use super::super::published;
use super::super::tests::row;
use super::*;

const WORKERS: Option<usize> = Some(100);
const FUTURES: &str = "twin/futures";
const SMOL: &str = "twin/smol";
const TOKIO: &str = "twin/tokio";

/// The verdicts on the claims about bounds.
fn verdicts(rows: &[PageRow]) -> [ClaimVerdict; 4] {
    let claims = claims(rows).unwrap();
    assert!(claims.iter().all(|claim| claim.experiment == "page" && !claim.figure.is_empty()));
    claims.iter().map(|claim| claim.verdict).take(4).collect::<Vec<_>>().try_into().unwrap()
}

/// The four listings with this throughput.
fn published(per_second: f64) -> Vec<PageRow> {
    let servers = [(THREAD_POOL, WORKERS), (SMOL, None), (FUTURES, WORKERS), (TOKIO, None)];
    servers.map(|(server, workers)| row(PagePart::Twins, server, workers, per_second)).into()
}

fn pool(workers: usize, per_second: f64) -> PageRow {
    let mut row = row(PagePart::Sweep, "pool", Some(workers), per_second);
    row.sample.bounds.bound_per_s = Some(workers as f64 * 5.0);
    row
}

#[test]
fn without_rows_nothing_is_decided() {
    assert_eq!(verdicts(&[]), [Undecided; 4]);
}

#[test]
fn the_four_are_alike_if_the_waits_decide() {
    assert_eq!(verdicts(&published(495.0))[0], Confirmed);
    let mut slow = published(495.0);
    slow[2].sample.bounds.of_bound = 0.8;
    assert_eq!(verdicts(&slow)[0], Refuted);
    slow.iter_mut().for_each(|row| row.sample.bounds.wait_s = 0.2);
    assert_eq!(verdicts(&slow)[0], Undecided, "short waits");
    assert_eq!(verdicts(&published(495.0)[..3])[0], Undecided, "one is missing");
    let mut fast = published(495.0);
    fast[1].sample.bounds.of_bound = 1.4;
    assert_eq!(verdicts(&fast)[0], Refuted, "one did not wait");
    let mut ours = published(495.0);
    ours.iter_mut().for_each(|row| row.key.part = PagePart::Published);
    assert_eq!(verdicts(&ours)[0], Undecided, "only the listings are judged");
}

#[test]
fn a_pools_bound() {
    let of = |rows: &[PageRow]| [verdicts(rows)[1], verdicts(rows)[2]];
    assert_eq!(of(&[pool(8, 39.0), pool(32, 158.0)]), [Confirmed; 2]);
    assert_eq!(of(&[pool(8, 45.0), pool(32, 158.0)]), [Refuted; 2]);
    assert_eq!(of(&[pool(8, 20.0), pool(32, 158.0)]), [Undecided; 2], "something else was the limit");
    assert_eq!(of(&[pool(8, 39.0)]), [Confirmed, Undecided], "one size is no growth");
    let mut flat = [pool(8, 39.0), pool(32, 60.0)];
    assert_eq!(verdicts(&flat)[2], Refuted, "four times the workers, and hardly more requests");
    flat[1].sample.bounds.wait_s = 0.2;
    assert_eq!(verdicts(&flat)[2], Undecided, "the client may be the limit");
    // Above the bound of the connections there is no growth.
    assert_eq!(of(&[pool(32, 158.0), pool(128, 480.0)]), [Undecided; 2]);
}

#[test]
fn servers_that_hold_no_worker() {
    let free = |workers, per_second| row(PagePart::Sweep, "async", Some(workers), per_second);
    let of = |rows: &[PageRow]| verdicts(rows)[3];
    assert_eq!(of(&[free(8, 490.0), pool(8, 39.0)]), Confirmed);
    assert_eq!(of(&[free(8, 490.0), free(2, 10.0)]), Refuted);
    assert_eq!(of(&[free(2, 20.0)]), Refuted, "twice the workers' bound, and far from the other one");
    assert_eq!(of(&[free(8, 490.0), free(2, 300.0)]), Undecided);
    let mut short = free(2, 10.0);
    short.sample.bounds.wait_s = 0.2;
    assert_eq!(of(&[free(8, 490.0), short]), Undecided, "the client may be the limit");
    assert_eq!(of(&[free(128, 490.0), pool(8, 39.0)]), Undecided, "a pool of this size has no lower bound");
}

/// The factors of a twin against the thread pool: requests a second, CPU time, memory.
type Factors = [f64; 3];

const SAME: Factors = [1.0, 1.0, 1.0];

/// Rounds of all twins, with a noise of `spread` to either side.
fn rounds(count: usize, [futures, tokio, smol, more]: [Factors; 4], spread: f64) -> Vec<PageRow> {
    let mut rows = Vec::new();
    for round in 1..=count {
        let twins = [
            (THREAD_POOL.to_owned(), WORKERS, SAME),
            (again(THREAD_POOL), WORKERS, SAME),
            (THREAD_POOL.to_owned(), Some(200), more),
            (FUTURES.to_owned(), WORKERS, futures),
            (TOKIO.to_owned(), None, tokio),
            (SMOL.to_owned(), None, smol),
        ];
        for (phase, (server, workers, [speed, cpu, memory])) in twins.into_iter().enumerate() {
            // A multiplicative hash scatters the noise: it differs between twins.
            let hash = ((round * 31 + phase) as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let noise = 1.0 + spread * (hash as f64 / (1 << 23) as f64 - 1.0);
            let mut row = row(PagePart::Twins, &server, workers, 495.0 * speed * noise);
            row.key.round = round;
            row.sample.details.cpu_us_per_request = Some(100.0 * cpu * noise);
            row.sample.details.peak_memory_bytes = Some((1e7 * memory * noise) as u64);
            rows.push(row);
        }
    }
    rows
}

/// The verdicts on the claims about ratios.
fn of_ratios(rows: &[PageRow]) -> [ClaimVerdict; 5] {
    let claims = claims(rows).unwrap();
    assert!(claims.iter().all(|claim| !claim.figure.is_empty()), "{claims:?}");
    claims.iter().map(|claim| claim.verdict).skip(4).collect::<Vec<_>>().try_into().unwrap()
}

#[test]
fn what_is_measured_as_published_is_confirmed() {
    let async_twin = [0.981, 0.5, 0.6];
    let rows = rounds(12, [[1.0006, 1.0, 1.0], async_twin, async_twin, SAME], 0.000_05);
    assert_eq!(of_ratios(&rows), [Confirmed; 5], "{:?}", claims(&rows));
}

#[test]
fn what_is_measured_otherwise_is_refuted() {
    let async_twin = [1.0, 1.5, 1.4];
    let rows = rounds(12, [[0.98, 1.0, 1.0], async_twin, SAME, [1.05, 1.0, 1.0]], 0.000_05);
    assert_eq!(of_ratios(&rows), [Refuted; 5], "{:?}", claims(&rows));
    // A larger difference than published is no slight one.
    let rows = rounds(12, [[1.02, 1.0, 1.0], [0.9, 1.0, 1.0], SAME, [0.9, 1.0, 1.0]], 0.000_05);
    assert_eq!(of_ratios(&rows)[..3], [Refuted; 3], "{:?}", claims(&rows));
}

#[test]
fn what_the_data_cannot_tell_is_undecided() {
    let async_twin = [0.981, 0.5, 0.6];
    let all = [[1.0006, 1.0, 1.0], async_twin, async_twin, SAME];
    assert_eq!(of_ratios(&[]), [Undecided; 5]);
    let few = rounds(9, all, 0.000_05);
    assert_eq!(of_ratios(&few), [Undecided; 5]);
    assert!(claims(&few).unwrap()[4].figure.ends_with("only 9 rounds"));
    let noisy = rounds(12, [[1.0006, 1.0, 1.0], [0.981, 1.0, 1.0], SAME, SAME], 0.3);
    assert_eq!(of_ratios(&noisy), [Undecided; 5], "{:?}", claims(&noisy));
    let mut short = rounds(12, all, 0.000_05);
    short.iter_mut().for_each(|row| row.sample.bounds.wait_s = 0.2);
    assert_eq!(of_ratios(&short), [Undecided; 5]);
    let mut alone = rounds(12, all, 0.000_05);
    alone.retain(|row| row.key.server != again(THREAD_POOL));
    assert_eq!(of_ratios(&alone), [Undecided; 5], "without the control");
    // One async twin uses less, the other one as much.
    let rows = rounds(12, [SAME, async_twin, SAME, SAME], 0.01);
    assert_eq!(of_ratios(&rows)[3..], [Undecided; 2], "{:?}", claims(&rows));
}

/// The published figures in the definition are those of the published file.
#[test]
fn the_claims_have_the_published_figures() {
    let figures = published::figures().unwrap();
    let totals = figures.iter().map(|row| format!("{} {:.2} s", row.server, row.figures.total_s));
    let text = claims(&[]).unwrap()[0].published.clone().unwrap();
    assert_eq!(text, format!("{}; equal within 0.95 to 1.01", totals.collect::<Vec<_>>().join("; ")));
    let of = |name: &str| figures.iter().find(|row| row.server == name).unwrap().figures.requests_per_s;
    let claims = claims(&[]).unwrap();
    for (place, server) in [(4, "futures-thread-pool-100"), (5, "tokio")] {
        let ratio = of(server) / of("thread-pool-100");
        let text = claims[place].published.as_deref().unwrap();
        let interval = crate::statistics::Interval::equal_to(ratio);
        let expected = format!("{ratio:.4}; equal from {:.4} to {:.4}", interval.low, interval.high);
        assert_eq!(text, expected);
    }
}
