//! Ratios of a contestant to the baseline, one for each round; their intervals; and the verdicts that they allow.
//!
//! A round's ratio is taken between turns that were neighbours in time, so a machine that drifts moves both. The
//! estimate is the median of the ratios: a round in which another process used the machine counts for one vote. Its 95 %
//! interval is the percentile bootstrap over rounds: rounds are drawn with replacement as often as there are rounds,
//! 10 000 times over. Requests are never resampled, because the requests of one turn are not
//! independent.
//!
//! A pair has one of three [verdicts](Verdict), and the rule is [`Estimate::verdict`]. Different: the interval does not overlap the
//! noise, which is the interval of the baseline against itself (`tie_band`). Tie: the interval contains 1, and lies
//! within 5 % of 1. Else there are too few rounds, and [`Compared`] has the smallest difference that they could have shown.
//!
//! Invariant: the interval depends on the ratios and the seed only, not on the machine. A verdict needs ten rounds. Cost:
//! O(rounds) for each resample.
//!
//! `LinearFit` is the straight line of least squares. A power is a line through logarithms.
//!
//! Source: Efron and Tibshirani, "An Introduction to the Bootstrap", chapter 13.

use std::fmt;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};

/// The min number of rounds for a verdict.
pub const MIN_ROUNDS: usize = 10;

/// The ratio to a baseline without an answer. It is finite, because JSON has no infinite numbers.
pub(crate) const MAX_RATIO: f64 = 1e9;

/// The probability that an interval misses: 5 %, unless another one is asked for.
pub(crate) const ERROR_PROBABILITY: f64 = 0.05;

/// The max difference of a tie to 1.
pub(crate) const MAX_TIE: f64 = 0.05;

/// Resamples of an estimate.
pub const RESAMPLES: usize = 10_000;

/// From `low` to `high`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// The ratios that count as equal to a published `ratio`: their difference to 1 is 0.5 to 1.5 times the published one.
    pub(crate) fn equal_to(ratio: f64) -> Self {
        let [half, more] = [0.5, 1.5].map(|share| 1.0 + (ratio - 1.0) * share);
        Self { low: half.min(more), high: half.max(more) }
    }

    /// Whether `value` is within.
    pub(crate) fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:.3}, {:.3}]", self.low, self.high)
    }
}

/// A ratio to the baseline over some rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The median of the rounds' ratios.
    pub ratio: f64,
    /// The 95 % confidence interval of the ratio.
    pub interval: Interval,
    /// The number of rounds.
    pub rounds: usize,
}

/// The verdict on a contestant, relative to the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// More than the baseline, and not by chance.
    Faster,
    /// Less than the baseline, and not by chance.
    Slower,
    /// Equal within `MAX_TIE`, and the interval contains 1.
    Tie,
    /// Neither is shown: there are fewer than [`MIN_ROUNDS`], or the interval is too wide.
    TooFewRounds,
}

impl Verdict {
    /// Whether a difference was found.
    pub(crate) fn is_different(self) -> bool {
        matches!(self, Self::Faster | Self::Slower)
    }

    /// The verdict in words, with these words for more and for less.
    pub(crate) fn in_words<'a>(self, more: &'a str, less: &'a str) -> &'a str {
        match self {
            Self::Faster => more,
            Self::Slower => less,
            Self::Tie => "tie",
            Self::TooFewRounds => "too few rounds",
        }
    }
}

impl Estimate {
    /// The estimate of `ratios`, one for each round; `None` if there are none. A contestant without an answer in a round has
    /// the ratio 0. A baseline without an answer makes the ratio [`MAX_RATIO`]. A round without any answer (NaN) does not count.
    pub(crate) fn of(ratios: &[f64], seed: u64) -> Option<Self> {
        Self::resampled(ratios, seed, RESAMPLES)
    }

    fn resampled(ratios: &[f64], seed: u64, resamples: usize) -> Option<Self> {
        Resampled::of_count(ratios, seed, resamples).map(|resampled| resampled.estimate(ERROR_PROBABILITY))
    }

    /// The verdict. `band` is the band of ties: see `tie_band`.
    pub fn verdict(&self, band: &Interval) -> Verdict {
        if self.rounds < MIN_ROUNDS {
            Verdict::TooFewRounds
        } else if self.interval.low > band.high {
            Verdict::Faster
        } else if self.interval.high < band.low {
            Verdict::Slower
        } else if self.interval.contains(1.0)
            && self.interval.low >= 1.0 - MAX_TIE
            && self.interval.high <= 1.0 + MAX_TIE
        {
            Verdict::Tie
        } else {
            Verdict::TooFewRounds
        }
    }
}

/// A ratio with its verdict.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The ratio.
    #[serde(flatten)]
    pub estimate: Estimate,
    /// The verdict.
    pub verdict: Verdict,
    /// With too few rounds: the smallest difference that an interval of this width could have shown, 0.1 for 10 %. `None` if
    /// no difference could have been shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_difference: Option<f64>,
}

impl Compared {
    /// The verdict on `estimate`. `band` is the band of ties: see [`tie_band`].
    pub(crate) fn of(estimate: Estimate, band: &Interval) -> Self {
        let verdict = estimate.verdict(band);
        let Estimate { ratio, interval, rounds } = estimate;
        let found_from = (band.high * ratio / interval.low - 1.0).max(1.0 - band.low * ratio / interval.high);
        let is_wide = verdict == Verdict::TooFewRounds && rounds >= MIN_ROUNDS && found_from < 1.0;
        Self { estimate, verdict, min_difference: is_wide.then_some(found_from) }
    }

    /// The verdict in words, with these words for more and for less. Too few rounds have the difference that they could have
    /// shown: `too few rounds (>12 %)`.
    pub(crate) fn in_words(&self, more: &str, less: &str) -> String {
        let words = self.verdict.in_words(more, less);
        let with = |difference: f64| format!("{words} (>{:.0} %)", (difference * 100.0).ceil());
        self.min_difference.map_or_else(|| words.to_owned(), with)
    }
}

/// The ranks of `count` contestants that are in order, the best first. A contestant shares the rank before it unless
/// `is_different` of itself and the first contestant with that rank, or the one at `baseline`. All are places from 0.
pub fn shared_ranks(count: usize, baseline: Option<usize>, is_different: impl Fn(usize, usize) -> bool) -> Vec<usize> {
    let mut ranks: Vec<usize> = Vec::with_capacity(count);
    for place in 0..count {
        let shares = |rank: &usize| {
            let is_compared = |other: &usize| {
                *other == rank - 1 || baseline.is_some_and(|baseline| [*other, place].contains(&baseline))
            };
            !(rank - 1..place).filter(is_compared).any(|other| is_different(other, place))
        };
        ranks.push(ranks.last().copied().filter(shares).unwrap_or(place + 1));
    }
    ranks
}

/// The resamples of an estimate, for intervals at several errors.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resampled {
    ratio: f64,
    /// The ratios, the smallest first.
    ratios: Vec<f64>,
    /// The medians of the resamples, the smallest first.
    medians: Vec<f64>,
}

impl Resampled {
    /// The resamples of `ratios`, as [`Estimate::of`] has them; `None` without any.
    pub(crate) fn of(ratios: &[f64], seed: u64) -> Option<Self> {
        Self::of_count(ratios, seed, RESAMPLES)
    }

    fn of_count(ratios: &[f64], seed: u64, resamples: usize) -> Option<Self> {
        let mut ratios: Vec<f64> =
            ratios.iter().filter(|ratio| !ratio.is_nan()).map(|ratio| ratio.clamp(0.0, MAX_RATIO)).collect();
        if ratios.is_empty() {
            return None;
        }
        let medians = bootstrap(&ratios, seed, resamples);
        let ratio = median(&mut ratios);
        ratios.sort_unstable_by(f64::total_cmp);
        Some(Self { ratios, ratio, medians })
    }

    /// The estimate with an interval that misses with the probability `error`. Resamples cannot leave the range of the ratios, so at
    /// an error below 5 % the interval also contains that of the sign test. With too few rounds for that, it contains every ratio.
    pub(crate) fn estimate(&self, error: f64) -> Estimate {
        let at = |share: f64| self.medians[((self.medians.len() - 1) as f64 * share).round() as usize];
        let mut interval = Interval { low: at(error / 2.0), high: at(1.0 - error / 2.0) };
        if error < ERROR_PROBABILITY {
            let Interval { low, high } =
                sign_interval(&self.ratios, error).unwrap_or(Interval { low: 0.0, high: MAX_RATIO });
            interval = Interval { low: interval.low.min(low), high: interval.high.max(high) };
        }
        Estimate { ratio: self.ratio, interval, rounds: self.ratios.len() }
    }
}

/// The interval of the median of `sorted`, by the sign test: it misses with a probability of at most `error`. `None` if there are too
/// few values.
pub(crate) fn sign_interval(sorted: &[f64], error: f64) -> Option<Interval> {
    let all = sorted.len();
    let outside = (0..all / 2).take_while(|outside| sign_p_value(all - outside, *outside) <= error).last()?;
    Some(Interval { low: sorted[outside], high: sorted[all - 1 - outside] })
}

/// The p-value of the sign test: two-sided, exact.
pub(crate) fn sign_p_value(above: usize, below: usize) -> f64 {
    let (count, larger) = (above + below, above.max(below));
    // The probability of at least `larger` heads in `count` throws. Each binomial coefficient follows from the
    // previous one.
    let (mut term, mut tail) = (0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX)), 0.0);
    for heads in (0..=count).rev() {
        if heads < larger {
            break;
        }
        tail += term;
        term *= heads as f64 / (count - heads + 1) as f64;
    }
    (2.0 * tail).min(1.0)
}

/// The band of ties: the interval of the baseline against itself, widened to contain 1. Without that estimate, every ratio
/// is a tie.
pub(crate) fn tie_band(same: Option<&Estimate>) -> Interval {
    match same {
        Some(Estimate { interval, .. }) => Interval { low: interval.low.min(1.0), high: interval.high.max(1.0) },
        None => Interval { low: 0.0, high: f64::INFINITY },
    }
}

impl Interval {
    /// The band of ties for the ratio of any two contestants: it also contains the inverse ratios.
    pub(crate) fn symmetric(&self) -> Self {
        Self { low: self.low.min(self.high.recip()), high: self.high.max(self.low.recip()) }
    }
}

/// The median; 0 if `values` is empty. It changes the order of `values`.
pub fn median(values: &mut [f64]) -> f64 {
    let (count, middle) = (values.len(), values.len() / 2);
    if count == 0 {
        return 0.0;
    }
    let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    if count % 2 == 1 {
        return *upper;
    }
    let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    f64::midpoint(lower, *upper)
}

/// The median of some values; `None` without any.
pub fn median_of(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    (!values.is_empty()).then(|| median(&mut values))
}

/// A straight line through points, by least squares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LinearFit {
    /// Its value at 0.
    pub at_zero: f64,
    /// Its slope.
    pub slope: f64,
    /// The sum of the squared residuals.
    pub missed: f64,
    /// R²: the share of the points' variance that the line explains, 0 to 1.
    pub explained: f64,
}

impl LinearFit {
    /// The line through `points`; `None` if there are fewer than two, or if all have the same x.
    pub(crate) fn through(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        if points.len() < 2 || spread <= 0.0 {
            return None;
        }
        let slope = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / spread;
        let at_zero = y - slope * x;
        let missed: f64 = points.iter().map(|point| (point.1 - at_zero - slope * point.0).powi(2)).sum();
        let scatter: f64 = points.iter().map(|point| (point.1 - y).powi(2)).sum();
        // If all values are equal, there is no variance to explain.
        let explained = if scatter > 0.0 { (1.0 - missed / scatter).clamp(0.0, 1.0) } else { 1.0 };
        Some(Self { at_zero, slope, missed, explained })
    }
}

/// The medians of resamples, the smallest first. `values` is not empty.
///
/// A resample is the number of times that each value was drawn, in the order of the values: its median needs no sorting.
fn bootstrap(values: &[f64], seed: u64, resamples: usize) -> Vec<f64> {
    let count = values.len();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_unstable_by(|one, other| values[*one].total_cmp(&values[*other]));
    let mut ranks = vec![0; count];
    for (rank, place) in order.iter().enumerate() {
        ranks[*place] = rank;
    }
    let mut draws = Draws::new(seed);
    let mut times = vec![0; count];
    let mut medians: Vec<f64> = (0..resamples)
        .map(|_| {
            times.fill(0);
            for _ in 0..count {
                times[ranks[draws.below(count)]] += 1;
            }
            let upper = order[rank_at(&times, count / 2)];
            let lower = if count % 2 == 1 { upper } else { order[rank_at(&times, count / 2 - 1)] };
            f64::midpoint(values[lower], values[upper])
        })
        .collect();
    medians.sort_unstable_by(f64::total_cmp);
    medians
}

/// The rank of the value at this place of a sorted resample. `times` says how often the value of each rank was drawn.
fn rank_at(times: &[usize], place: usize) -> usize {
    let mut passed = 0;
    let is_there = |times: &usize| {
        passed += times;
        passed > place
    };
    times.iter().position(is_there).unwrap_or(times.len() - 1)
}

/// The random numbers of resamples.
#[derive(Debug)]
pub(crate) struct Draws(ChaCha8Rng);

impl Draws {
    /// The random numbers of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(stream(seed))
    }

    /// Draws a number below `count`, which must not be 0.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        // The high half of a 32 by 32 bit product: uneven by less than 1 in 2^24 for any number of rounds.
        ((u64::from(self.0.next_u32()) * count as u64) >> 32) as usize
    }
}

/// The ChaCha8 keystream of a seed. A library's own conversion of a number to a key may change with its version.
fn stream(seed: u64) -> ChaCha8Rng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    ChaCha8Rng::from_seed(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Resamples that a simulation of hundreds of runs can afford.
    const TEST_RESAMPLES: usize = 300;

    /// Draws from a normal distribution (Box and Muller).
    struct Noise(ChaCha8Rng);

    impl Noise {
        fn new(seed: u64) -> Self {
            Self(stream(seed))
        }

        fn uniform(&mut self) -> f64 {
            (self.0.next_u32() as f64 + 0.5) / 4_294_967_296.0
        }

        fn normal(&mut self) -> f64 {
            let radius = (-2.0 * self.uniform().ln()).sqrt();
            radius * (std::f64::consts::TAU * self.uniform()).cos()
        }

        /// The result of a turn of a contestant with this speed.
        fn turn(&mut self, speed: f64, spread: f64) -> f64 {
            speed * (spread * self.normal()).exp()
        }
    }

    /// The verdict of a run on a contestant with this `speed`, and a baseline of speed 1 that is entered twice.
    fn verdict(noise: &mut Noise, speed: f64, spread: f64, rounds: usize) -> Verdict {
        let (mut own, mut same) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let base = noise.turn(1.0, spread);
            own.push(noise.turn(speed, spread) / base);
            same.push(noise.turn(1.0, spread) / base);
        }
        let band = tie_band(Estimate::resampled(&same, 1, TEST_RESAMPLES).as_ref());
        Estimate::resampled(&own, 1, TEST_RESAMPLES).unwrap().verdict(&band)
    }

    fn count(times: usize, is_expected: impl Fn(Verdict) -> bool, mut run: impl FnMut() -> Verdict) -> usize {
        (0..times).filter(|_| is_expected(run())).count()
    }

    #[test]
    fn medians() {
        for (mut values, expected) in [
            (vec![], 0.0),
            (vec![2.0], 2.0),
            (vec![3.0, 1.0], 2.0),
            (vec![9.0, 1.0, 2.0], 2.0),
            (vec![4.0, 1.0, 3.0, 2.0], 2.5),
        ] {
            assert_eq!(median(&mut values), expected, "{values:?}");
            assert_eq!(super::median_of(values.clone()), (!values.is_empty()).then_some(expected), "{values:?}");
        }
    }

    #[test]
    fn lines_of_least_squares() {
        let line = LinearFit::through(&[(1.0, 3.0), (2.0, 5.0), (3.0, 7.0)]).unwrap();
        assert!((line.slope - 2.0).abs() < 1e-12 && (line.at_zero - 1.0).abs() < 1e-12, "{line:?}");
        assert!(line.missed < 1e-20 && line.explained > 0.999, "{line:?}");
        let steps = LinearFit::through(&[(1.0, 1.0), (2.0, 1.0), (3.0, 2.0), (4.0, 2.0)]).unwrap();
        assert!(steps.explained < 0.9 && (steps.missed - 0.2).abs() < 1e-12, "{steps:?}");
        let level = LinearFit::through(&[(1.0, 7.0), (2.0, 7.0)]).unwrap();
        assert_eq!((level.slope, level.explained), (0.0, 1.0));
        assert!(LinearFit::through(&[(1.0, 1.0), (2.0, 9.0), (3.0, 1.0)]).unwrap().explained.abs() < 1e-12);
        for points in [&[][..], &[(1.0, 1.0)], &[(1.0, 1.0), (1.0, 2.0)]] {
            assert_eq!(LinearFit::through(points), None);
        }
    }

    #[test]
    fn an_estimate_of_nothing_is_none_and_what_is_no_ratio_is_left_out() {
        assert_eq!(Estimate::of(&[], 0), None);
        assert_eq!(Estimate::of(&[f64::NAN, f64::NAN], 0), None);
        let extremes = Estimate::of(&[f64::NAN, 0.0, f64::INFINITY, 0.0], 0).unwrap();
        assert_eq!((extremes.ratio, extremes.interval.high, extremes.rounds), (0.0, MAX_RATIO, 3));
        let only = Estimate::of(&[f64::NAN, 1.5], 0).unwrap();
        assert_eq!(only, Estimate { ratio: 1.5, interval: Interval { low: 1.5, high: 1.5 }, rounds: 1 });
    }

    #[test]
    fn a_seed_gives_one_interval() {
        let mut noise = Noise::new(7);
        let ratios: Vec<f64> = (0..40).map(|_| noise.turn(1.0, 0.1)).collect();
        assert_eq!(Estimate::of(&ratios, 3), Estimate::of(&ratios, 3));
        let few = |seed| Estimate::resampled(&ratios, seed, 20).unwrap().interval;
        assert!((4..10).any(|seed| few(seed) != few(3)), "the seed is used");
    }

    /// An interval of 95 % contains the true ratio in about 95 % of the runs. The percentile interval of a median is a little
    /// too narrow with few rounds and a little too wide with many, so the bounds are wide.
    #[test]
    fn the_interval_holds_the_truth_as_often_as_it_says() {
        for (rounds, seed) in [(10, 1), (20, 2), (41, 3)] {
            let mut noise = Noise::new(seed);
            let held = (0..400).filter(|_| {
                let ratios: Vec<f64> = (0..rounds).map(|_| noise.turn(1.1, 0.08)).collect();
                Estimate::resampled(&ratios, 5, TEST_RESAMPLES).unwrap().interval.contains(1.1)
            });
            let held = held.count();
            assert!((364..=396).contains(&held), "{rounds} rounds: {held} of 400");
        }
    }

    #[test]
    fn a_contestant_that_equals_the_baseline_is_seldom_called_different() {
        for (rounds, seed) in [(10, 11), (40, 12)] {
            let mut noise = Noise::new(seed);
            let different = count(300, Verdict::is_different, || verdict(&mut noise, 1.0, 0.05, rounds));
            assert!(different <= 15, "{rounds} rounds: {different} of 300 were different");
        }
    }

    #[test]
    fn a_twentieth_is_found_in_forty_rounds_and_has_the_right_sign() {
        let mut noise = Noise::new(21);
        let slower = count(200, |found| found == Verdict::Slower, || verdict(&mut noise, 0.95, 0.03, 40));
        assert!(slower >= 170, "{slower} of 200");
        let faster = count(200, |found| found == Verdict::Faster, || verdict(&mut noise, 1.06, 0.03, 40));
        assert!(faster >= 170, "{faster} of 200");
    }

    /// An interval at a smaller error is wider. At 5 % it equals the interval of an estimate.
    #[test]
    fn one_resampling_has_intervals_at_all_errors() {
        let mut noise = Noise::new(8);
        let ratios: Vec<f64> = (0..20).map(|_| noise.turn(1.0, 0.1)).collect();
        let resampled = Resampled::of(&ratios, 3).unwrap();
        assert_eq!(Some(resampled.estimate(ERROR_PROBABILITY)), Estimate::of(&ratios, 3));
        let [wide, narrow] = [0.005, 0.1].map(|error| resampled.estimate(error).interval);
        assert!(wide.low < narrow.low && wide.high > narrow.high, "{wide}, {narrow}");
        assert_eq!(Resampled::of(&[], 3), None);
    }

    /// Regression test: no resample of ten rounds could leave the range of its ratios, however small the error was.
    #[test]
    fn a_small_error_needs_rounds() {
        let of = |rounds: u32, error: f64| {
            let ratios: Vec<f64> = (1..=rounds).map(|round| 1.0 + f64::from(round) / 100.0).collect();
            let Interval { low, high } = Resampled::of(&ratios, 3).unwrap().estimate(error).interval;
            (low, high)
        };
        // The median of five is within their range with the probability 1 - 2^-4.
        assert_eq!((of(5, 0.001), of(5, 0.049)), ((0.0, MAX_RATIO), (0.0, MAX_RATIO)));
        assert_eq!((of(10, 0.0019), of(10, 0.002)), ((0.0, MAX_RATIO), (1.01, 1.10)));
        // It is between the second and the ninth of ten with the probability 1 - 22 x 2^-10.
        assert_eq!((of(10, 0.021), of(10, 0.022)), ((1.01, 1.10), (1.02, 1.09)));
        assert_eq!(of(20, 0.0001), (1.02, 1.19));
    }

    /// A fifth of the rounds have half the speed, as if another process used the machine.
    #[test]
    fn a_few_bad_rounds_decide_nothing() {
        let mut noise = Noise::new(31);
        let ratios: Vec<f64> = (0..40).map(|round| noise.turn(if round % 5 == 0 { 0.5 } else { 1.0 }, 0.02)).collect();
        let estimate = Estimate::of(&ratios, 0).unwrap();
        assert!((0.97..1.01).contains(&estimate.ratio), "{estimate:?}");
    }

    #[test]
    fn nine_rounds_decide_nothing_and_ten_do() {
        let band = Interval { low: 0.9, high: 1.1 };
        for (rounds, expected) in [(9, Verdict::TooFewRounds), (10, Verdict::Faster)] {
            assert_eq!(Estimate::of(&vec![2.0; rounds], 0).unwrap().verdict(&band), expected);
        }
        assert_eq!(Estimate::of(&[0.5; 10], 0).unwrap().verdict(&band), Verdict::Slower);
    }

    #[test]
    fn the_band_of_ties_holds_one_whatever_the_baseline_shows() {
        let estimate = |low, high| Estimate { ratio: low, interval: Interval { low, high }, rounds: 10 };
        for (low, high, band) in [(1.1, 1.2, (1.0, 1.2)), (0.8, 0.9, (0.8, 1.0)), (0.9, 1.2, (0.9, 1.2))] {
            let Interval { low, high } = tie_band(Some(&estimate(low, high)));
            assert_eq!((low, high), band);
        }
        let sure = estimate(1.0, 1000.0);
        assert!(!sure.verdict(&tie_band(None)).is_different());
        // An interval that touches the band is no difference.
        assert!(!estimate(1.2, 1.3).verdict(&Interval { low: 0.9, high: 1.2 }).is_different());
    }

    /// Regression test: every interval that met the noise was called a tie, such as 0.98 [0.96, 0.99] and 1.1 [0.7, 1.6].
    #[test]
    fn a_pair_has_three_verdicts() {
        let noise = Interval { low: 0.97, high: 1.01 };
        let compared = |ratio, low, high, rounds| {
            Compared::of(Estimate { ratio, interval: Interval { low, high }, rounds }, &noise)
        };
        let words = |compared: Compared| compared.in_words("faster", "slower");
        assert_eq!(words(compared(0.98, 0.96, 0.965, 10)), "slower");
        assert_eq!(words(compared(0.98, 0.95, 1.05, 10)), "tie");
        assert_eq!(words(compared(0.98, 0.96, 0.99, 10)), "too few rounds (>4 %)");
        // Faster needs a low end above 1.01: 1.01 x 1.1 / 0.7. Slower needs a high end below 0.97: 0.97 x 1.1 / 1.6.
        let wide = compared(1.1, 0.7, 1.6, 10);
        assert_eq!((words(wide), wide.verdict), ("too few rounds (>59 %)".into(), Verdict::TooFewRounds));
        assert!((wide.min_difference.unwrap() - (1.01 * 1.1 / 0.7 - 1.0)).abs() < 1e-9, "{wide:?}");
        assert_eq!(words(compared(1.5, 1.4, 1.6, 9)), "too few rounds");
        let without_noise = Compared::of(compared(1.1, 0.7, 1.6, 10).estimate, &tie_band(None));
        assert_eq!((without_noise.verdict, without_noise.min_difference), (Verdict::TooFewRounds, None));
    }

    #[test]
    fn a_rank_is_shared_with_its_first_contestant() {
        let speeds = [10.0, 9.6, 9.1, 8.9, 5.0_f64];
        let ranks = shared_ranks(5, None, |first, own| speeds[own] < speeds[first] * 0.95);
        assert_eq!(ranks, [1, 1, 3, 3, 5]);
        assert_eq!(shared_ranks(0, None, |_, _| true), [] as [usize; 0]);
        // Only the second and the third differ.
        for (baseline, expected) in [(None, 1), (Some(0), 1), (Some(1), 3), (Some(2), 3)] {
            assert_eq!(
                shared_ranks(3, baseline, |one, other| (one, other) == (1, 2)),
                [1, 1, expected],
                "{baseline:?}"
            );
        }
    }
}
