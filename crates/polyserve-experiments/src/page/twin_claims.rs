//! The claims about the published listings, judged by the ratios of the twins to the listing of the thread pool: one ratio for
//! each round.
//!
//! * A claim of a size is two-sided. Its equivalence interval reaches from 0.5 times to 1.5 times the published
//!   difference. It is confirmed if the twin differs by more than noise, and the interval of the ratio is wholly in the
//!   equivalence interval. It is refuted if the interval of the ratio, with the noise, is wholly outside.
//! * "Nothing" is at most [`MAX_CHANGE`] to either side.
//! * "Fewer" is confirmed if both async twins use less beyond noise, and refuted if one of them uses more beyond noise.
//!
//! The claims share one error of 5 % with the article's other claims, by the procedure of Holm. The printed intervals are those
//! of 5 % for each.
//!
//! The noise is the interval of the thread pool's second entry. Any other claim is undecided. So is every claim with
//! fewer than ten rounds, without the second entry, or at shorter waits than the published ones: the time to answer may
//! be a large share of a short wait.

use polyserve_lab::experiment::again;
use polyserve_lab::launch::page_twins::{FUTURES, SMOL, THREAD_POOL, TOKIO};
use polyserve_lab::statistics::{ERROR_PROBABILITY, Estimate, Interval, MIN_ROUNDS, Resampled, Verdict, tie_band};
use polyserve_report::Claim;
use polyserve_report::figures::counted;

use super::published::{self, WAIT};
use super::record::{PagePart, PageRow, cpu_us, peak_mib};
use crate::error_budget::sharing;

/// More workers change nothing if the throughput changes by at most this share.
const MAX_CHANGE: f64 = 0.01;
/// The published number of workers.
const WORKERS: Option<usize> = Some(100);
/// The seed of the intervals.
const SEED: u64 = 0;

/// A figure of a row.
type FigureOf = fn(&PageRow) -> Option<f64>;

/// The claims and their verdicts. `others` is the number of the article's claims that no ratio decides.
///
/// # Errors
///
/// Returns an error if the published figures cannot be read.
pub(super) fn claims(rows: &[PageRow], others: usize) -> anyhow::Result<Vec<Claim>> {
    let twins = Twins(rows.iter().filter(|row| row.key.part == PagePart::Twins).collect());
    let published = |name: &str| -> anyhow::Result<f64> {
        let rows = published::figures()?;
        let of = |name: &str| rows.iter().find(|row| row.server == name).map(|row| row.figures.requests_per_s);
        Ok(of(name).zip(of("thread-pool-100")).map_or(f64::NAN, |(own, pool)| own / pool))
    };
    let futures = twins.about(
        "the futures crate's pool is slightly faster than the thread pool",
        FUTURES,
        published("futures-thread-pool-100")?,
    );
    let tokio = twins.about("tokio is slightly slower than the thread pool", TOKIO, published("tokio")?);
    let cpu = twins.fewer("async uses fewer resources: less CPU time for each request than the thread pool", cpu_us);
    let memory = twins.fewer("async uses fewer resources: less memory than the thread pool", peak_mib);
    Ok(sharing(&[futures, tokio, twins.more_workers(), cpu, memory], others))
}

/// The rows of the twins.
struct Twins<'a>(Vec<&'a PageRow>);

/// A claim, judged at an error.
type JudgedClaim<'a> = Box<dyn Fn(f64) -> Claim + 'a>;

/// The resamples of a ratio to the thread pool, and of the noise.
struct ResampledRatio {
    ratio: Resampled,
    noise: Option<Resampled>,
}

impl ResampledRatio {
    fn at(&self, error: f64) -> TwinRatio {
        let estimate = self.ratio.estimate(error);
        let band = tie_band(self.noise.as_ref().map(|noise| noise.estimate(error)).as_ref());
        TwinRatio { verdict: estimate.verdict(&band), estimate, band }
    }
}

/// A ratio to the thread pool, and the noise.
struct TwinRatio {
    estimate: Estimate,
    band: Interval,
    verdict: Verdict,
}

impl Twins<'_> {
    /// The claim that the throughput of `server` is about `ratio` times the throughput of the thread pool.
    fn about(&self, claim: &'static str, server: &'static str, ratio: f64) -> JudgedClaim<'_> {
        let equivalent = Interval::equal_to(ratio);
        let verdict_of = move |found: &TwinRatio| {
            let differs = found.verdict == if ratio > 1.0 { Verdict::Faster } else { Verdict::Slower };
            within(found, equivalent).filter(|holds| differs || !holds)
        };
        let found = self.ratio([server, THREAD_POOL], None, requests_per_s);
        let published = format!("{ratio:.4}; equal from {:.4} to {:.4}", equivalent.low, equivalent.high);
        self.claim(claim, vec![(server.to_owned(), found)], move |found| verdict_of(&found[0]), published)
    }

    /// The claim that more than 100 workers do not change the throughput of the thread pool.
    fn more_workers(&self) -> JudgedClaim<'_> {
        let claim = "more than 100 workers change nothing for 100 connections";
        let equivalent = Interval { low: 1.0 - MAX_CHANGE, high: 1.0 + MAX_CHANGE };
        let more = |workers: usize| Some(workers) > WORKERS;
        let workers = self.0.iter().filter(|row| row.key.server == THREAD_POOL).filter_map(|row| row.key.workers);
        let Some(workers) = workers.filter(|workers| more(*workers)).max() else {
            return Box::new(|_| Claim::new("page", claim, None, String::from("not measured")));
        };
        let found = self.ratio([THREAD_POOL, THREAD_POOL], Some(workers), requests_per_s);
        let name = format!("{workers} workers");
        let published = format!("no change; equal from {:.2} to {:.2}", equivalent.low, equivalent.high);
        self.claim(claim, vec![(name, found)], move |found| within(&found[0], equivalent), published)
    }

    /// The claim that both async twins have less of `figure` than the thread pool.
    fn fewer(&self, claim: &'static str, figure: FigureOf) -> JudgedClaim<'_> {
        let found = [SMOL, TOKIO].map(|server| (server.to_owned(), self.ratio([server, THREAD_POOL], None, figure)));
        let verdict_of = |found: &[TwinRatio]| {
            let all_less = found.iter().all(|ratio| ratio.verdict == Verdict::Slower);
            let one_more = found.iter().any(|ratio| ratio.verdict == Verdict::Faster);
            if all_less { Some(true) } else { one_more.then_some(false) }
        };
        self.claim(claim, found.into(), verdict_of, String::from("less: below 1"))
    }

    /// The claim with the verdict of `verdict_of`, unless a ratio is missing, rests on too few rounds, or was found at shorter waits.
    fn claim<'a>(
        &'a self,
        claim: &'static str,
        found: Vec<(String, Option<ResampledRatio>)>,
        verdict_of: impl Fn(&[TwinRatio]) -> Option<bool> + 'a,
        published: String,
    ) -> JudgedClaim<'a> {
        Box::new(move |error| {
            let ratios: Option<Vec<TwinRatio>> =
                found.iter().map(|(_, ratio)| ratio.as_ref().map(|ratio| ratio.at(error))).collect();
            let judged = match ratios {
                Some(ratios) => self.judged(claim, &found, &ratios, verdict_of(&ratios)),
                None => Claim::new("page", claim, None, String::from("not measured")),
            };
            judged.with_published(published.clone())
        })
    }

    /// The claim, if its ratios `found` allow a verdict.
    fn judged(
        &self,
        claim: &str,
        found: &[(String, Option<ResampledRatio>)],
        ratios: &[TwinRatio],
        mut holds: Option<bool>,
    ) -> Claim {
        let ratio_texts = found.iter().filter_map(|(name, ratio)| {
            let TwinRatio { estimate, .. } = ratio.as_ref()?.at(ERROR_PROBABILITY);
            Some((estimate.ratio, format!("{name} {:.4} {}", estimate.ratio, four_digits(&estimate.interval))))
        });
        // Of two twins the larger ratio decides whether both have less.
        let mut ratio_texts: Vec<(f64, String)> = ratio_texts.collect();
        ratio_texts.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let ratio_texts: Vec<String> = ratio_texts.into_iter().map(|(_, text)| text).collect();
        let mut figure = format!("to the thread pool's: {}", ratio_texts.join("; "));
        let rounds = ratios.iter().map(|ratio| ratio.estimate.rounds).min().unwrap_or(0);
        let shortest = self.0.iter().map(|row| row.sample.bounds.wait_s).fold(f64::INFINITY, f64::min);
        let has_control = ratios.iter().all(|ratio| ratio.band.high.is_finite());
        for (is_undecided, why) in [
            (rounds < MIN_ROUNDS, format!("only {}", counted(rounds as u64, "round"))),
            (shortest < WAIT.as_secs_f64(), format!("waits of {shortest} s only")),
            (!has_control, String::from("without the control the noise is not known")),
        ] {
            if is_undecided {
                holds = None;
                figure = format!("{figure}; {why}");
            }
        }
        Claim::new("page", claim, holds, figure)
    }

    /// The ratio of the first server's `figure` to the second server's. `workers` is the first server's number of workers,
    /// if it is not the published number.
    fn ratio(&self, [twin, baseline]: [&str; 2], workers: Option<usize>, figure: FigureOf) -> Option<ResampledRatio> {
        let ratio = Resampled::of(&self.ratios(twin, workers, baseline, figure), SEED)?;
        let noise = Resampled::of(&self.ratios(&again(baseline), None, baseline, figure), SEED);
        Some(ResampledRatio { ratio, noise })
    }

    /// The ratios of the rounds that have both figures.
    fn ratios(&self, twin: &str, workers: Option<usize>, baseline: &str, figure: FigureOf) -> Vec<f64> {
        let of = |server: &str, workers: Option<usize>, round: usize| {
            let is_wanted = |row: &&&PageRow| {
                let row_workers = row.key.workers;
                row.key.server == server
                    && row.key.round == round
                    && (row_workers == workers || (workers.is_none() && row_workers == WORKERS))
            };
            self.0.iter().find(is_wanted).and_then(|row| figure(row))
        };
        let rounds = self.0.iter().map(|row| row.key.round).max().unwrap_or(0);
        (1..=rounds).filter_map(|round| Some(of(twin, workers, round)? / of(baseline, None, round)?)).collect()
    }
}

#[allow(clippy::unnecessary_wraps, reason = "it is a figure like those that may be missing")]
fn requests_per_s(row: &PageRow) -> Option<f64> {
    Some(row.sample.figures.requests_per_s)
}

/// Whether a ratio is in the equivalence interval; `None` if it is partly in it.
fn within(TwinRatio { estimate, band, .. }: &TwinRatio, equivalent: Interval) -> Option<bool> {
    let interval = &estimate.interval;
    if interval.low >= equivalent.low && interval.high <= equivalent.high {
        return Some(true);
    }
    // A value beyond noise is outside if its interval is. Otherwise the noise must be outside too.
    let (mut low, mut high) = (interval.low, interval.high);
    if low <= band.high && high >= band.low {
        (low, high) = (low.min(band.low), high.max(band.high));
    }
    (low > equivalent.high || high < equivalent.low).then_some(false)
}

fn four_digits(interval: &Interval) -> String {
    format!("[{:.4}, {:.4}]", interval.low, interval.high)
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;
    use polyserve_report::ClaimVerdict::{self, Confirmed, Refuted, Undecided};

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

    fn verdicts(rows: &[PageRow]) -> [ClaimVerdict; 5] {
        let claims = claims(rows, 0).unwrap();
        assert!(claims.iter().all(|claim| !claim.figure.is_empty()), "{claims:?}");
        claims.iter().map(|claim| claim.verdict).collect::<Vec<_>>().try_into().unwrap()
    }

    #[test]
    fn what_is_measured_as_published_is_confirmed() {
        let async_twin = [0.981, 0.5, 0.6];
        let rows = rounds(12, [[1.0006, 1.0, 1.0], async_twin, async_twin, SAME], 0.000_05);
        assert_eq!(verdicts(&rows), [Confirmed; 5], "{:?}", claims(&rows, 0));
    }

    #[test]
    fn what_is_measured_otherwise_is_refuted() {
        let async_twin = [1.0, 1.5, 1.4];
        let rows = rounds(12, [[0.98, 1.0, 1.0], async_twin, SAME, [1.05, 1.0, 1.0]], 0.000_05);
        assert_eq!(verdicts(&rows), [Refuted; 5], "{:?}", claims(&rows, 0));
        // A larger difference than published is no slight one.
        let rows = rounds(12, [[1.02, 1.0, 1.0], [0.9, 1.0, 1.0], SAME, [0.9, 1.0, 1.0]], 0.000_05);
        assert_eq!(verdicts(&rows)[..3], [Refuted; 3], "{:?}", claims(&rows, 0));
    }

    #[test]
    fn what_the_data_cannot_tell_is_undecided() {
        let async_twin = [0.981, 0.5, 0.6];
        let all = [[1.0006, 1.0, 1.0], async_twin, async_twin, SAME];
        assert_eq!(verdicts(&[]), [Undecided; 5]);
        let few = rounds(9, all, 0.000_05);
        assert_eq!(verdicts(&few), [Undecided; 5]);
        assert!(claims(&few, 0).unwrap()[0].figure.ends_with("only 9 rounds"));
        let noisy = rounds(12, [[1.0006, 1.0, 1.0], [0.981, 1.0, 1.0], SAME, SAME], 0.3);
        assert_eq!(verdicts(&noisy), [Undecided; 5], "{:?}", claims(&noisy, 0));
        let mut short = rounds(12, all, 0.000_05);
        short.iter_mut().for_each(|row| row.sample.bounds.wait_s = 0.2);
        assert_eq!(verdicts(&short), [Undecided; 5]);
        let mut alone = rounds(12, all, 0.000_05);
        alone.retain(|row| row.key.server != again(THREAD_POOL));
        assert_eq!(verdicts(&alone), [Undecided; 5], "without the control");
        // One async twin uses less, the other one as much.
        let rows = rounds(12, [SAME, async_twin, SAME, SAME], 0.01);
        assert_eq!(verdicts(&rows)[3..], [Undecided; 2], "{:?}", claims(&rows, 0));
    }
}
