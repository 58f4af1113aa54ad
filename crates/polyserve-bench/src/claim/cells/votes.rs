//! The verdict on a claim about many cells: the ratio of most, nearly every or every cell is above 1, or figures rise or fall.
//!
//! A cell has one ratio, the median of its rounds. Two measurements of the same server differ too: the [`Band`] of the baseline's
//! second entry has the factor within which 95 % of its ratios lie, and a smaller one for their median. All tests are at 5 %. The
//! sign test is exact, and assumes only that noise is equally likely on both sides.
//!
//! * most cells: the median is judged. Confirmed if more than half of all ratios are above the median's band, by the sign
//!   test. Refuted if more than half are below it, or if the median is not above the band and differs from 1 by less than a
//!   tenth, by the sign test of the ratios on either side of both bounds. Then there is no such difference.
//! * nearly every cell: each ratio is judged, and counts if it is outside the band of a ratio. Confirmed if the sign test of the
//!   counted ratios decides for above, and four fifths of all ratios are above. Refuted if it decides for below, or a
//!   fifth of all ratios are below.
//! * every cell: confirmed if each ratio is above the band of a ratio. Refuted if a ratio is so far below 1 that Student's test of
//!   its logarithm excludes noise, with an error that all cells share (Holm).
//! * nearly every cell and every cell are also refuted if most cells are below 1, and if four fifths of the ratios are within a band
//!   of a tenth.
//! * A trend: the seasonal test of Mann and Kendall over at least six series, and the median growth must be outside the median's
//!   band; see [`trend`].
//!
//! Invariant: there is no verdict without a band, or on fewer than six ratios.
//!
//! Sources: Hirsch, Slack and Smith, "Techniques of trend analysis for monthly water quality data", 1982; Holm, "A simple
//! sequentially rejective multiple test procedure", 1979.

use crate::statistics::{Interval, median_of, sign_interval, sign_p_value};

/// How much two measurements of the same server differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Band {
    /// The factor within which 95 % of the control's ratios lie.
    ratio: f64,
    /// The factor within which the median of the control's ratios lies, with a confidence of 95 %.
    median: f64,
    /// The root of the mean square of the logarithms of the control's ratios.
    spread: f64,
    /// The number of the control's ratios.
    count: usize,
}

/// The share of the cells for which a claim must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellShare {
    /// More than half of them.
    Most,
    /// Four fifths of them.
    NearlyEvery,
    /// All of them.
    Every,
}

impl CellShare {
    /// The cells in words, as in a rule.
    pub(in crate::claim) fn words(self) -> &'static str {
        match self {
            Self::Most => "most cells",
            Self::NearlyEvery => "nearly every cell",
            Self::Every => "every cell",
        }
    }
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
    pub(super) const NONE: Self = Self { ratio: 1.0, median: 1.0, spread: 0.0, count: 1 };

    /// The band of the control's ratios; `None` if there are too few.
    pub(super) fn of(ratios: &[f64]) -> Option<Self> {
        let mut factors: Vec<f64> =
            ratios.iter().copied().filter(is_ratio).map(|ratio| ratio.max(1.0 / ratio)).collect();
        factors.sort_unstable_by(f64::total_cmp);
        let place = (factors.len() as f64 * (1.0 - SIGNIFICANCE)).ceil() as usize;
        let Interval { low, high } = median_interval(ratios)?;
        let (ratio, median, count) =
            (*factors.get(place.checked_sub(1)?)?, high.max(1.0 / low).max(1.0), factors.len());
        let spread = (factors.iter().map(|factor| factor.ln().powi(2)).sum::<f64>() / count as f64).sqrt();
        Some(Self { ratio, median, spread, count })
    }

    /// The factor by which a ratio must differ from 1 to count for a claim about this share.
    pub(super) fn factor(self, share: CellShare) -> f64 {
        match share {
            CellShare::Most => self.median,
            CellShare::NearlyEvery | CellShare::Every => self.ratio,
        }
    }
}

/// The 95 % interval of the median, by the sign test; `None` for fewer than [`MIN_RATIOS`] ratios.
pub(super) fn median_interval(ratios: &[f64]) -> Option<Interval> {
    let mut sorted: Vec<f64> = ratios.iter().copied().filter(is_ratio).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sign_interval(&sorted, SIGNIFICANCE)
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

    /// Whether the claim holds for four fifths of the ratios.
    fn decide_of_nearly_every(self) -> Decision {
        let Self { above, below, .. } = self;
        let share = |count: usize| count as f64 / self.all().max(1) as f64;
        let (side, p) = (sign_test(above, below), sign_p_value(above, below));
        let is_refuted = side == Some(false) || (self.all() >= MIN_RATIOS && share(below) >= 1.0 - LARGE_SHARE);
        let is_confirmed = side == Some(true) && share(above) >= LARGE_SHARE;
        let holds = if is_refuted { Some(false) } else { is_confirmed.then_some(true) };
        // Too many ratios below may refute a claim although most are above: that verdict does not rest on the sign test.
        Decision { holds, p: holds.is_some_and(|holds| side == Some(holds)).then_some(p), is_tie: false }
    }

    /// Whether the claim holds for each ratio. `contradiction` is the p-value of the lowest ratio.
    fn decide_of_every(self, contradiction: f64) -> Decision {
        let decided = |holds, p| Decision { holds: Some(holds), p: Some(p), is_tie: false };
        match self.all() {
            all if all < MIN_RATIOS => Decision::UNDECIDED,
            _ if contradiction < SIGNIFICANCE => decided(false, contradiction),
            all if all == self.above => decided(true, sign_p_value(all, 0)),
            _ => Decision::UNDECIDED,
        }
    }

    /// Whether four fifths of the ratios are within a band of at most a tenth; the p-value.
    fn tie(self, factor: f64) -> Option<f64> {
        let Self { above, within, below } = self;
        let is_most = within as f64 / self.all().max(1) as f64 >= LARGE_SHARE;
        let is_tie = sign_test(above, below) != Some(true) && self.all() >= MIN_RATIOS && is_most && factor <= MAX_TIE;
        is_tie.then(|| sign_p_value(within, above + below))
    }

    /// Whether more than half of the ratios are above, or below.
    fn decide_of_most(self) -> Decision {
        let side = |count: usize, holds: bool| {
            let rest = self.all() - count;
            let decided = Decision { holds: Some(holds), p: Some(sign_p_value(count, rest)), is_tie: false };
            (sign_test(count, rest) == Some(true)).then_some(decided)
        };
        side(self.above, true).or_else(|| side(self.below, false)).unwrap_or(Decision::UNDECIDED)
    }
}

/// Whether the ratios are above 1 as often as claimed; undecided if they do not decide.
pub(super) fn decide(ratios: &[f64], share: CellShare, band: Band) -> Decision {
    let factor = band.factor(share);
    let votes = Votes::of(ratios.iter().copied(), factor);
    let tie_of_each = || votes.tie(factor).map(Decision::tie);
    let of_most = Votes::of(ratios.iter().copied(), band.median).decide_of_most();
    match share {
        CellShare::Most => {}
        // What most cells contradict does not hold for nearly every one, and for every one.
        _ if of_most.holds == Some(false) => return of_most,
        CellShare::NearlyEvery => return tie_of_each().unwrap_or_else(|| votes.decide_of_nearly_every()),
        CellShare::Every => {
            let decision = votes.decide_of_every(contradiction(ratios, band));
            return if decision.holds.is_some() { decision } else { tie_of_each().unwrap_or(decision) };
        }
    }
    let tie = tie_p_value(ratios);
    match of_most {
        Decision { holds: None, .. }
            if median_of(ratios.iter().copied()) <= Some(factor) && factor <= MAX_TIE && tie < SIGNIFICANCE =>
        {
            Decision::tie(tie)
        }
        decision => decision,
    }
}

/// The p-value of the lowest ratio, if that is below 1: Student's test of its logarithm, with an error that all ratios share.
fn contradiction(ratios: &[f64], Band { spread, count, .. }: Band) -> f64 {
    let lowest = ratios.iter().copied().filter(is_ratio).fold(1.0, f64::min);
    if lowest < 1.0 { (student_tails(-lowest.ln() / spread, count) * ratios.len() as f64).min(1.0) } else { 1.0 }
}

/// The p-value of the test that the median differs from 1 by less than a tenth: the larger one of two sign tests, at both
/// bounds.
fn tie_p_value(ratios: &[f64]) -> f64 {
    let Votes { above, within, below } = Votes::of(ratios.iter().copied(), MAX_TIE);
    let side = |outside: usize| {
        let inside = above + within + below - outside;
        if inside > outside { sign_p_value(inside, outside) } else { 1.0 }
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

    /// The decision at an error: one with a larger p-value is none.
    pub(super) fn at(self, error: f64) -> Option<bool> {
        self.holds.filter(|_| self.p.is_none_or(|p| p <= error))
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
    (above != below && sign_p_value(above, below) < SIGNIFICANCE).then_some(above > below)
}

#[cfg(test)]
mod tests;
