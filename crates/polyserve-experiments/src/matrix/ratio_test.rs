//! The verdict on a claim that many ratios, each of two cells, are above 1.
//!
//! Two measurements of the same server differ too. The control shows by how much, in a [`Band`]: 95 % of its ratios lie
//! within one factor, and their median lies within a smaller one. All tests are at 5 %. The sign test is exact, and assumes
//! only that noise is equally likely on both sides.
//!
//! * mostly: the median is judged. Confirmed if more than half of all ratios are above the median's band, by the sign
//!   test. Refuted if more than half are below it, or if the median is not above the band and differs from 1 by less than a
//!   tenth, by the sign test of the ratios on either side of both bounds. Then there is no such difference.
//! * nearly always: each ratio is judged, and counts if it is outside the band of a ratio. Confirmed if the sign test of the
//!   counted ratios decides for above, and four fifths of all ratios are above. Refuted if it decides for below, or a
//!   fifth of all ratios are below.
//! * always: confirmed if the sign test decides for above, four fifths of all ratios are above, and none is below.
//!   Refuted if more ratios are below than the band lets through by chance, and at least two.
//! * nearly always and always are also refuted if four fifths of the ratios are within a band of a tenth.
//! * A trend: the seasonal test of Mann and Kendall over at least six series, and the median growth must be outside the median's
//!   band; see [`trend`].
//!
//! Module `claims` decides whether the client could have shown a difference.
//!
//! The claims of one article share one error budget: a verdict that rests on a test keeps its p-value, and [`holm`]
//! returns the verdicts that remain.
//!
//! Invariant: there is no verdict without a control, or on fewer than six ratios.
//!
//! Sources: Hirsch, Slack and Smith, "Techniques of trend analysis for monthly water quality data", 1982; Holm, "A simple sequentially rejective multiple test procedure", 1979.

use polyserve_lab::statistics::{Interval, median_of};

/// How much two measurements of the same server differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Band {
    /// The factor within which 95 % of the control's ratios lie.
    ratio: f64,
    /// The factor within which the median of the control's ratios lies, with a confidence of 95 %.
    median: f64,
}

/// The share of the ratios for which a claim must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frequency {
    Mostly,
    NearlyAlways,
    Always,
}

/// The number of ratios above the band, within it, and below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Votes {
    pub(super) above: usize,
    pub(super) within: usize,
    pub(super) below: usize,
}

/// The level of significance.
const SIGNIFICANCE: f64 = 0.05;
/// The min number of ratios that can decide. Chance puts six ratios on one side in 3 % of all cases.
pub(super) const MIN_RATIOS: usize = 6;
/// The max factor that counts as no difference.
const MAX_TIE: f64 = 1.1;
const LARGE_SHARE: f64 = 0.8;

impl Band {
    /// The band of published figures: every difference counts, because there is no control.
    pub(super) const NONE: Self = Self { ratio: 1.0, median: 1.0 };

    /// The band of the control's ratios; `None` if there are too few.
    pub(super) fn of(ratios: &[f64]) -> Option<Self> {
        let mut factors: Vec<f64> =
            ratios.iter().copied().filter(is_ratio).map(|ratio| ratio.max(1.0 / ratio)).collect();
        factors.sort_unstable_by(f64::total_cmp);
        let place = (factors.len() as f64 * (1.0 - SIGNIFICANCE)).ceil() as usize;
        let Interval { low, high } = median_interval(ratios)?;
        Some(Self { ratio: *factors.get(place.checked_sub(1)?)?, median: high.max(1.0 / low).max(1.0) })
    }

    /// The factor by which a ratio must differ from 1 to count for a claim of this frequency.
    pub(super) fn factor(self, frequency: Frequency) -> f64 {
        match frequency {
            Frequency::Mostly => self.median,
            Frequency::NearlyAlways | Frequency::Always => self.ratio,
        }
    }
}

/// The 95 % interval of the median, by the sign test; `None` for fewer than [`MIN_RATIOS`] ratios.
pub(super) fn median_interval(ratios: &[f64]) -> Option<Interval> {
    let mut sorted: Vec<f64> = ratios.iter().copied().filter(is_ratio).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let all = sorted.len();
    let outside = (0..all / 2).take_while(|outside| p_value(all - outside, *outside) < SIGNIFICANCE).last()?;
    Some(Interval { low: sorted[outside], high: sorted[all - 1 - outside] })
}

fn is_ratio(ratio: &f64) -> bool {
    ratio.is_finite() && *ratio > 0.0
}

impl Votes {
    /// Counts the ratios that differ from 1 by more than this factor.
    pub(super) fn of(ratios: impl IntoIterator<Item = f64>, factor: f64) -> Self {
        let mut votes = Self::default();
        for ratio in ratios.into_iter().filter(is_ratio) {
            match ratio {
                ratio if ratio > factor => votes.above += 1,
                ratio if ratio < 1.0 / factor => votes.below += 1,
                _ => votes.within += 1,
            }
        }
        votes
    }

    pub(super) fn all(self) -> usize {
        self.above + self.within + self.below
    }

    /// Whether the claim holds of each ratio, up to a fifth or always; `factor` is the band of a ratio.
    fn decide_of_each(self, is_always: bool, factor: f64) -> Decision {
        let Self { above, within, below } = self;
        let share = |count: usize| count as f64 / self.all().max(1) as f64;
        let (side, p) = (sign_test(above, below), p_value(above, below));
        let is_enough = self.all() >= MIN_RATIOS;
        if side != Some(true) && is_enough && share(within) >= LARGE_SHARE && factor <= MAX_TIE {
            return Decision::tie(p_value(within, above + below));
        }
        let too_many_below =
            if is_always { below >= 2 && share(below) > SIGNIFICANCE } else { share(below) >= 1.0 - LARGE_SHARE };
        let is_refuted = side == Some(false) || (is_enough && too_many_below);
        let is_confirmed = side == Some(true) && share(above) >= LARGE_SHARE && !(is_always && below > 0);
        let holds = if is_refuted { Some(false) } else { is_confirmed.then_some(true) };
        // Too many ratios below may refute a claim although most are above: that verdict does not rest on the sign test.
        Decision { holds, p: holds.is_some_and(|holds| side == Some(holds)).then_some(p), is_tie: false }
    }

    /// Whether more than half of the ratios are above, or below.
    fn decide_of_most(self) -> Decision {
        let side = |count: usize, holds: bool| {
            let rest = self.all() - count;
            let decided = Decision { holds: Some(holds), p: Some(p_value(count, rest)), is_tie: false };
            (sign_test(count, rest) == Some(true)).then_some(decided)
        };
        side(self.above, true).or_else(|| side(self.below, false)).unwrap_or(Decision::UNDECIDED)
    }
}

/// Whether the ratios are above 1 as often as claimed; undecided if they do not decide.
pub(super) fn decide(ratios: &[f64], frequency: Frequency, band: Band) -> Decision {
    let factor = band.factor(frequency);
    let votes = Votes::of(ratios.iter().copied(), factor);
    if frequency != Frequency::Mostly {
        return votes.decide_of_each(frequency == Frequency::Always, factor);
    }
    let tie = tie_p_value(ratios);
    match votes.decide_of_most() {
        Decision { holds: None, .. }
            if median_of(ratios.iter().copied()) <= Some(factor) && factor <= MAX_TIE && tie < SIGNIFICANCE =>
        {
            Decision::tie(tie)
        }
        decision => decision,
    }
}

/// The p-value of the test that the median differs from 1 by less than a tenth: the larger one of two sign tests, at both
/// bounds.
fn tie_p_value(ratios: &[f64]) -> f64 {
    let Votes { above, within, below } = Votes::of(ratios.iter().copied(), MAX_TIE);
    let side = |outside: usize| {
        let inside = above + within + below - outside;
        if inside > outside { p_value(inside, outside) } else { 1.0 }
    };
    side(above).max(side(below))
}

/// A verdict, and the p-value of its test if it rests on one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Decision {
    /// Whether the claim holds; `None` if it is undecided.
    pub(super) holds: Option<bool>,
    pub(super) p: Option<f64>,
    /// Whether the claim is refuted because there is no difference, and not because of the opposite difference.
    pub(super) is_tie: bool,
}

impl Decision {
    /// Nothing was decided.
    pub(super) const UNDECIDED: Self = Self { holds: None, p: None, is_tie: false };

    /// Refuted: there is no difference.
    fn tie(p: f64) -> Self {
        Self { holds: Some(false), p: Some(p), is_tie: true }
    }

    /// Combines the two parts of a claim. The claim holds if both parts hold, with the larger p-value. It is refuted if
    /// one part is refuted.
    pub(super) fn and(self, other: Self) -> Self {
        match (self.holds, other.holds) {
            (Some(false), Some(false)) => Self {
                holds: Some(false),
                p: self.p.zip(other.p).map(|(a, b)| a.min(b)),
                is_tie: self.is_tie && other.is_tie,
            },
            (Some(false), _) => self,
            (_, Some(false)) => other,
            (Some(true), Some(true)) => {
                let p = self.p.into_iter().chain(other.p).reduce(f64::max);
                Self { holds: Some(true), p, is_tie: false }
            }
            _ => Self::UNDECIDED,
        }
    }
}

/// Returns for each decision whether it remains if all decisions share an error of 5 %. Decisions without a p-value
/// remain, but count as tests.
pub(super) fn holm(decisions: &[Decision]) -> Vec<bool> {
    let mut by_p: Vec<(usize, f64)> =
        decisions.iter().enumerate().filter_map(|(place, decision)| Some((place, decision.p?))).collect();
    by_p.sort_by(|one, other| one.1.total_cmp(&other.1));
    let mut remain = vec![true; decisions.len()];
    let mut is_over = false;
    for (rank, (place, p)) in by_p.into_iter().enumerate() {
        is_over |= p > SIGNIFICANCE / (decisions.len() - rank) as f64;
        remain[place] = !is_over;
    }
    remain
}

/// The growth of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SeriesGrowth {
    /// The factor from one end of the series to the other.
    pub(super) factor: f64,
    /// Kendall's score: the number of rising pairs minus the number of falling pairs.
    score: f64,
    /// The variance of the score of a series without a trend.
    variance: f64,
}

impl SeriesGrowth {
    /// The growth of a series with these points and this factor.
    pub(super) fn new(factor: f64, points: &[(f64, f64)]) -> Self {
        let mut points = points.to_vec();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let later = |place: usize| points[place + 1..].iter().map(move |point| point.1);
        let sign = |from: f64, to: f64| f64::from(i8::from(to > from) - i8::from(to < from));
        let scores = points.iter().enumerate().flat_map(|(place, point)| later(place).map(|to| sign(point.1, to)));
        let count = points.len() as f64;
        Self { factor, score: scores.sum(), variance: count * (count - 1.0) * (2.0 * count + 5.0) / 18.0 }
    }
}

/// Whether the series rise, or fall if `is_down`. Refuted if they do the opposite, or if the median factor is not beyond the
/// median's band, and the mean differs from 1 by less than a tenth, by Student's test of the logarithms. Undecided if the
/// series do not decide.
pub(super) fn trend(series: &[SeriesGrowth], is_down: bool, Band { median: band, .. }: Band) -> Decision {
    let (score, variance) =
        series.iter().fold((0.0, 0.0), |(score, variance), growth| (score + growth.score, variance + growth.variance));
    let factor = median_of(series.iter().map(|growth| growth.factor)).unwrap_or(1.0);
    let is_up = score > 0.0;
    let is_beyond = if is_up { factor > band } else { factor < 1.0 / band };
    // The score changes in steps of 2: half a step is the correction for continuity.
    let p = 2.0 * normal_tail((score.abs() - 1.0).max(0.0) / variance.sqrt());
    let tie = tie_of_means_p_value(&series.iter().map(|growth| growth.factor.ln()).collect::<Vec<_>>());
    let is_tie = band <= MAX_TIE && if is_down { factor >= 1.0 / band } else { factor <= band };
    match series.len() {
        all if all < MIN_RATIOS => Decision::UNDECIDED,
        _ if is_beyond && p < SIGNIFICANCE => Decision { holds: Some(is_up != is_down), p: Some(p), is_tie: false },
        _ if is_tie && tie < SIGNIFICANCE => Decision::tie(tie),
        _ => Decision::UNDECIDED,
    }
}

/// The p-value of the test that the mean of these logarithms of factors is within a tenth of no growth: Student's, two-sided,
/// at the nearer bound.
fn tie_of_means_p_value(logs: &[f64]) -> f64 {
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count;
    let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
    let error = (squares / (count - 1.0) / count).sqrt();
    let distance = MAX_TIE.ln() - mean.abs();
    if distance > 0.0 { student_tails(distance / error, logs.len() - 1) } else { 1.0 }
}

/// The probability that a variable of Student's distribution differs from 0 by more than `t`, which is not negative.
///
/// Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.3 and 26.7.4.
fn student_tails(t: f64, freedom: usize) -> f64 {
    let angle = (t / (freedom as f64).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    // The terms have the powers 0, 2, 4... of the cosine if the degrees of freedom are even, and 1, 3, 5... if they are odd.
    let is_odd = freedom % 2 == 1;
    let (mut sum, mut term) = (0.0, if is_odd { cosine } else { 1.0 });
    for power in (usize::from(is_odd)..freedom.saturating_sub(1)).step_by(2) {
        sum += term;
        term *= cosine * cosine * (power + 1) as f64 / (power + 2) as f64;
    }
    let inside = if is_odd { (angle + sine * sum) * 2.0 / std::f64::consts::PI } else { sine * sum };
    (1.0 - inside).max(0.0)
}

/// The probability that a normal variable exceeds `z`, which is not negative, to 1e-7.
///
/// Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.2.17.
fn normal_tail(z: f64) -> f64 {
    const COEFFICIENTS: [f64; 5] = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let polynomial = COEFFICIENTS.iter().rev().fold(0.0, |sum, coefficient| (sum + coefficient) * t);
    (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt() * polynomial
}

/// Returns true for above; `None` if chance alone favours a side as clearly in 5 % of all cases or more.
fn sign_test(above: usize, below: usize) -> Option<bool> {
    (above != below && p_value(above, below) < SIGNIFICANCE).then_some(above > below)
}

/// The p-value of the sign test: two-sided, exact.
fn p_value(above: usize, below: usize) -> f64 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trend_is_more_than_chance_and_noise() {
        let series = |figures: &[f64]| {
            let points: Vec<(f64, f64)> = figures.iter().zip(0..).map(|(figure, x)| (f64::from(x), *figure)).collect();
            SeriesGrowth::new(figures[figures.len() - 1] / figures[0], &points)
        };
        let decided = |series: &[SeriesGrowth], median: f64| trend(series, false, Band { ratio: 9.0, median }).holds;
        let (up, down) = (series(&[1.0, 1.1, 1.2, 1.3]), series(&[1.3, 1.2, 1.1, 1.0]));
        assert_eq!(decided(&[up; 6], 1.05), Some(true));
        assert_eq!(decided(&[down; 6], 1.05), Some(false));
        assert_eq!(decided(&[up; 5], 1.05), None, "too few series");
        assert_eq!(decided(&[up; 6], 1.5), None, "within the noise");
        assert_eq!(decided(&[up, down, up, down, up, down], 1.0), None);
        assert_eq!(trend(&[down; 6], true, Band::NONE).holds, Some(true), "a fall, as claimed");
        let flat = [series(&[1.0, 1.02, 0.99, 1.03]), series(&[1.0, 0.98, 1.01, 0.99])];
        let flat: Vec<SeriesGrowth> = flat.into_iter().cycle().take(6).collect();
        let of_flat = [false, true].map(|is_down| trend(&flat, is_down, Band { ratio: 1.3, median: 1.05 }).holds);
        assert_eq!(of_flat, [Some(false); 2], "no growth and no fall");
        assert_eq!(decided(&flat, 1.2), None, "more noise than a tenth");
        let some_rise = [series(&[1.0, 1.09, 0.99, 1.07]), series(&[1.0, 1.08, 1.01, 1.06])];
        let some_rise: Vec<SeriesGrowth> = some_rise.into_iter().cycle().take(6).collect();
        assert_eq!(decided(&some_rise, 1.03), None, "a rise beyond the noise, by too uneven series");
        assert_eq!(decided(&flat[..5], 1.05), None, "too few series");
        // Six series of six points that all rise: the score is 90, its standard deviation 13.04, z 6.83.
        let p = trend(&[series(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]); 6], false, Band::NONE).p.unwrap();
        assert!(p < 1e-7, "{p}");
        for (t, freedom, tails) in [
            (12.7062, 1, 0.05),
            (4.302_65, 2, 0.05),
            (3.182_45, 3, 0.05),
            (2.570_58, 5, 0.05),
            (2.228_14, 10, 0.05),
            (0.0, 5, 1.0),
        ] {
            assert!((student_tails(t, freedom) - tails).abs() < 1e-5, "{t} {freedom}");
        }
        assert!(
            trend(&flat, false, Band { ratio: 1.3, median: 1.05 }).p.unwrap() < 0.001,
            "Holm's procedure lets it pass"
        );
        for (z, tail) in [(0.0, 0.5), (1.0, 0.158_655), (1.959_964, 0.025), (3.0, 0.001_35)] {
            assert!((normal_tail(z) - tail).abs() < 1e-6, "{z}");
        }
    }

    #[test]
    fn chance_is_not_taken_for_a_side() {
        for (above, below, side) in [
            (5, 0, None),
            (6, 0, Some(true)),
            (0, 6, Some(false)),
            (7, 1, None),
            (8, 1, Some(true)),
            (10, 10, None),
            (0, 0, None),
            (15, 5, Some(true)),
            (14, 6, None),
            (36, 0, Some(true)),
        ] {
            assert_eq!(sign_test(above, below), side, "{above} to {below}");
        }
    }

    #[test]
    fn a_band_is_what_the_control_shows() {
        assert_eq!(Band::of(&[1.0; 5]), None);
        assert_eq!(Band::of(&[1.0, 1.02, 1.0 / 1.04, 1.01, 1.0, f64::NAN]), None);
        let band = Band::of(&[1.0, 1.02, 1.0 / 1.04, 1.01, 1.0, 1.0]).unwrap();
        assert!((band.ratio - 1.04).abs() < 1e-9, "{band:?}");
        assert!((band.median - 1.04).abs() < 1e-9, "six ratios bound their median by the outermost: {band:?}");
        let ratios: Vec<f64> = (0..40).map(|at| if at == 7 { 3.0 } else { 1.01 }).collect();
        assert!(Band::of(&ratios).unwrap().ratio < 1.02, "one of forty is chance");
        // The ratios spread from 0.7 to 1.3, their median less: its interval has 15 of the 41.
        let wide: Vec<f64> = (-20..=20).map(|at| 1.0 + 0.015 * f64::from(at)).collect();
        let Band { ratio, median } = Band::of(&wide).unwrap();
        assert!(ratio > 1.3 && median > 1.0 && median < 1.12, "{ratio} {median}");
    }

    /// Regression test: 34 of 36 ratios above 1 decided nothing, because single ratios of the control differed by a third.
    #[test]
    fn the_median_of_many_noisy_ratios_decides() {
        let noise = |at: i32| 1.0 + 0.015 * f64::from(at);
        let band = Band::of(&(-20..=20).map(noise).collect::<Vec<_>>()).unwrap();
        let by =
            |factor: f64| decide(&(-20..=20).map(|at| noise(at) * factor).collect::<Vec<_>>(), Frequency::Mostly, band);
        assert_eq!(by(1.4).holds, Some(true));
        assert_eq!(by(1.0 / 1.4).holds, Some(false));
        assert_eq!(by(1.12).holds, None);
        let quiet = Band { ratio: 1.3, median: 1.03 };
        let near = |by: f64| {
            decide(&(0..12).map(|at| 1.0 + by * f64::from(at % 3 - 1)).collect::<Vec<_>>(), Frequency::Mostly, quiet)
        };
        assert_eq!(near(0.02).holds, Some(false), "there is no such difference");
        let p = near(0.02).p.unwrap();
        assert!((p - 2.0 / 4096.0).abs() < 1e-9, "12 of 12 ratios are within a tenth: {p}");
        let above = [1.01, 1.04, 1.05, 1.05, 1.02, 1.04, 1.05, 0.99];
        assert_eq!(decide(&above, Frequency::Mostly, quiet).holds, None, "the median is above the band");
        assert_eq!(near(0.3).holds, None);
    }

    #[test]
    fn how_often_it_is_so() {
        let band = Band { ratio: 1.05, median: 1.05 };
        let decide = |above, within, below, frequency| {
            let sides = [(above, 1.5), (within, 1.0), (below, 0.6)];
            let ratios: Vec<f64> = sides.into_iter().flat_map(|(count, ratio)| vec![ratio; count]).collect();
            super::decide(&ratios, frequency, band).holds
        };
        assert_eq!(decide(30, 0, 6, Frequency::Mostly), Some(true));
        assert_eq!(decide(30, 0, 6, Frequency::NearlyAlways), Some(true));
        assert_eq!(decide(30, 0, 6, Frequency::Always), Some(false));
        assert_eq!(decide(26, 0, 10, Frequency::NearlyAlways), Some(false));
        assert_eq!(decide(20, 12, 4, Frequency::NearlyAlways), None);
        assert_eq!(decide(35, 0, 1, Frequency::Always), None, "one is chance, and it is not none");
        assert_eq!(decide(33, 3, 0, Frequency::Always), Some(true));
        assert_eq!(decide(3, 33, 0, Frequency::Always), Some(false), "there is no difference");
        assert_eq!(decide(5, 0, 0, Frequency::Mostly), None);
        assert_eq!(decide(1, 0, 9, Frequency::Mostly), Some(false));
        // Regression test: 12 of 36 cells confirmed a claim, while 21 were within the noise.
        assert_eq!(decide(12, 21, 3, Frequency::Mostly), None);
        assert_eq!(decide(19, 17, 0, Frequency::Mostly), None, "chance puts half of 36 there");
        assert_eq!(decide(26, 10, 0, Frequency::Mostly), Some(true));
    }

    #[test]
    fn claims_of_one_article_share_the_errors() {
        let decision = |p: f64| Decision { holds: Some(true), p: Some(p), is_tie: false };
        let holds = Decision { holds: Some(false), p: None, is_tie: false };
        assert_eq!(holm(&[decision(0.04)]), [true]);
        assert_eq!(holm(&[decision(0.04), decision(0.001)]), [true, true], "0.001 x 2, then 0.04 x 1");
        assert_eq!(holm(&[decision(0.04), decision(0.03)]), [false, false]);
        assert_eq!(holm(&[decision(0.01), holds, decision(0.03)]), [true, true, false], "0.01 x 3, then 0.03 x 2");
        // Regression test: six of 35 ratios below refuted "always" with the p-value of the others' being above.
        let too_many_below = Votes { above: 29, within: 0, below: 6 }.decide_of_each(true, 1.05);
        assert_eq!(too_many_below, holds);
        let both = decision(0.04).and(decision(0.001));
        assert_eq!((both.holds, both.p), (Some(true), Some(0.04)));
        assert_eq!(both.and(holds), holds);
        assert_eq!(both.and(Decision::UNDECIDED).holds, None);
    }
}
