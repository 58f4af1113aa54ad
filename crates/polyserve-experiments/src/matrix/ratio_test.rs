//! The verdict on a claim that many ratios, each of two cells, are above 1.
//!
//! A ratio counts only if it is outside the band: the factor within which 95 % of the control's ratios lie. Two
//! measurements of the same server differ by that factor. The exact sign test judges the counted ratios, at 5 %. It
//! assumes only that noise is equally likely on both sides. Fewer than six counted ratios never decide.
//!
//! * mostly: confirmed if the test decides for above, and more than half of all ratios are above. Refuted if it decides
//!   for below.
//! * nearly always: confirmed if the test decides for above, and four fifths of all ratios are above. Refuted if it
//!   decides for below, or a fifth of all ratios are below.
//! * always: confirmed if the test decides for above, four fifths of all ratios are above, and none is below. Refuted
//!   if more ratios are below than the band lets through by chance, and at least two.
//! * A trend: the seasonal test of Mann and Kendall over at least six series, at 5 %, and the median growth must be outside the
//!   band; see [`trend`].
//! * Each of these claims is refuted if four fifths of six or more ratios are within a band of a tenth. Then there is
//!   no such difference. Module `claims` decides whether the client could have shown a difference.
//!
//! The claims of one article share one error budget: a verdict that rests on the sign test keeps its p-value, and [`holm`]
//! returns the verdicts that remain.
//!
//! Invariant: there is no verdict without a control, or on fewer than six ratios.
//!
//! Sources: Hirsch, Slack and Smith, "Techniques of trend analysis for monthly water quality data", 1982; Holm, "A simple sequentially rejective multiple test procedure", 1979.

use polyserve_lab::statistics::median_of;

/// The factor by which two measurements of the same cell may differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Band(f64);

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
/// The max width of the band for the verdict that there is no difference.
const MAX_TIE_BAND: f64 = 1.1;
const LARGE_SHARE: f64 = 0.8;

impl Band {
    /// The band of published figures: every difference counts, because there is no control.
    pub(super) const NONE: Self = Self(1.0);

    /// A band of this factor, 1 or more.
    pub(super) fn factor(factor: f64) -> Self {
        Self(factor.max(1.0))
    }

    /// The band of the control's ratios; `None` if there are too few.
    pub(super) fn of(ratios: &[f64]) -> Option<Self> {
        let mut factors: Vec<f64> =
            ratios.iter().copied().filter(is_ratio).map(|ratio| ratio.max(1.0 / ratio)).collect();
        factors.sort_unstable_by(f64::total_cmp);
        let place = (factors.len() as f64 * (1.0 - SIGNIFICANCE)).ceil() as usize;
        (factors.len() >= MIN_RATIOS).then(|| factors.get(place.saturating_sub(1)).copied().map(Self::factor))?
    }

    /// The half width, in per cent.
    pub(super) fn pct(self) -> f64 {
        (self.0 - 1.0) * 100.0
    }
}

fn is_ratio(ratio: &f64) -> bool {
    ratio.is_finite() && *ratio > 0.0
}

impl Votes {
    pub(super) fn of(ratios: impl IntoIterator<Item = f64>, Band(factor): Band) -> Self {
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

    /// Whether the claim holds; `None` if the ratios do not decide.
    pub(super) fn decide(self, frequency: Frequency, band: Band) -> Decision {
        let Self { above, within, below } = self;
        let share = |count: usize| count as f64 / self.all().max(1) as f64;
        let (side, p) = (sign_test(above, below), p_value(above, below));
        if side != Some(true) && self.all() >= MIN_RATIOS && share(within) >= LARGE_SHARE && band.0 <= MAX_TIE_BAND {
            return Decision { holds: Some(false), p: None };
        }
        let is_refuted = match frequency {
            Frequency::Mostly => side == Some(false),
            Frequency::NearlyAlways => {
                side == Some(false) || (self.all() >= MIN_RATIOS && share(below) >= 1.0 - LARGE_SHARE)
            }
            Frequency::Always => {
                side == Some(false) || (self.all() >= MIN_RATIOS && below >= 2 && share(below) > SIGNIFICANCE)
            }
        };
        let is_confirmed = side == Some(true)
            && match frequency {
                Frequency::Mostly => share(above) > 0.5,
                Frequency::NearlyAlways => share(above) >= LARGE_SHARE,
                Frequency::Always => share(above) >= LARGE_SHARE && below == 0,
            };
        let holds = if is_refuted { Some(false) } else { is_confirmed.then_some(true) };
        Decision { holds, p: side.is_some().then_some(p) }
    }
}

/// A verdict, and the p-value of the sign test if it rests on one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Decision {
    /// Whether the claim holds; `None` if it is undecided.
    pub(super) holds: Option<bool>,
    pub(super) p: Option<f64>,
}

impl Decision {
    /// Nothing was decided.
    pub(super) const UNDECIDED: Self = Self { holds: None, p: None };

    /// Combines the two parts of a claim. The claim holds if both parts hold, with the larger p-value. It is refuted if
    /// one part is refuted.
    pub(super) fn and(self, other: Self) -> Self {
        match (self.holds, other.holds) {
            (Some(false), Some(false)) => Self { holds: Some(false), p: self.p.zip(other.p).map(|(a, b)| a.min(b)) },
            (Some(false), _) => self,
            (_, Some(false)) => other,
            (Some(true), Some(true)) => {
                let p = self.p.into_iter().chain(other.p).reduce(f64::max);
                Self { holds: Some(true), p }
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

/// Whether a trend goes up, by its series; undecided if the series do not decide, or if the median factor is within the band.
pub(super) fn trend(series: &[SeriesGrowth], Band(band): Band) -> Decision {
    let (score, variance) =
        series.iter().fold((0.0, 0.0), |(score, variance), growth| (score + growth.score, variance + growth.variance));
    let factor = median_of(series.iter().map(|growth| growth.factor)).unwrap_or(1.0);
    let is_up = score > 0.0;
    let is_beyond = if is_up { factor > band } else { factor < 1.0 / band };
    // The score changes in steps of 2: half a step is the correction for continuity.
    let p = 2.0 * normal_tail((score.abs() - 1.0).max(0.0) / variance.sqrt());
    if series.len() < MIN_RATIOS || !is_beyond || p >= SIGNIFICANCE {
        return Decision::UNDECIDED;
    }
    Decision { holds: Some(is_up), p: Some(p) }
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
        let decided = |series: &[SeriesGrowth], band: f64| trend(series, Band::factor(band)).holds;
        let (up, down) = (series(&[1.0, 1.1, 1.2, 1.3]), series(&[1.3, 1.2, 1.1, 1.0]));
        assert_eq!(decided(&[up; 6], 1.05), Some(true));
        assert_eq!(decided(&[down; 6], 1.05), Some(false));
        assert_eq!(decided(&[up; 5], 1.05), None, "too few series");
        assert_eq!(decided(&[up; 6], 1.5), None, "within the noise");
        assert_eq!(decided(&[up, down, up, down, up, down], 1.0), None);
        // Six series of six points that all rise: the score is 90, its standard deviation 13.04, z 6.83.
        let p = trend(&[series(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]); 6], Band::NONE).p.unwrap();
        assert!(p < 1e-7, "{p}");
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
        assert!((band.pct() - 4.0).abs() < 1e-9, "{band:?}");
        let ratios: Vec<f64> = (0..40).map(|at| if at == 7 { 3.0 } else { 1.01 }).collect();
        assert!(Band::of(&ratios).unwrap().pct() < 2.0, "one of forty is chance");
    }

    #[test]
    fn how_often_it_is_so() {
        let band = Band::factor(1.05);
        let decide = |above, within, below, frequency| Votes { above, within, below }.decide(frequency, band).holds;
        assert_eq!(decide(30, 0, 6, Frequency::Mostly), Some(true));
        assert_eq!(decide(30, 0, 6, Frequency::NearlyAlways), Some(true));
        assert_eq!(decide(30, 0, 6, Frequency::Always), Some(false));
        assert_eq!(decide(26, 0, 10, Frequency::NearlyAlways), Some(false));
        assert_eq!(decide(20, 12, 4, Frequency::NearlyAlways), None);
        assert_eq!(decide(35, 0, 1, Frequency::Always), None, "one is chance, and it is not none");
        assert_eq!(decide(33, 3, 0, Frequency::Always), Some(true));
        assert_eq!(decide(3, 33, 0, Frequency::Always), Some(false), "there is no difference");
        assert_eq!(Votes { above: 3, within: 33, below: 0 }.decide(Frequency::Mostly, Band::factor(1.5)).holds, None);
        assert_eq!(decide(5, 0, 0, Frequency::Mostly), None);
        assert_eq!(decide(1, 0, 9, Frequency::Mostly), Some(false));
        // Regression test: 12 of 36 cells confirmed a claim, while 21 were within the noise.
        assert_eq!(decide(12, 21, 3, Frequency::Mostly), None);
        assert_eq!(decide(19, 17, 0, Frequency::Mostly), Some(true));
    }

    #[test]
    fn claims_of_one_article_share_the_errors() {
        let decision = |p: f64| Decision { holds: Some(true), p: Some(p) };
        let holds = Decision { holds: Some(false), p: None };
        assert_eq!(holm(&[decision(0.04)]), [true]);
        assert_eq!(holm(&[decision(0.04), decision(0.001)]), [true, true], "0.001 x 2, then 0.04 x 1");
        assert_eq!(holm(&[decision(0.04), decision(0.03)]), [false, false]);
        assert_eq!(holm(&[decision(0.01), holds, decision(0.03)]), [true, true, false], "0.01 x 3, then 0.03 x 2");
        let both = decision(0.04).and(decision(0.001));
        assert_eq!((both.holds, both.p), (Some(true), Some(0.04)));
        assert_eq!(both.and(holds), holds);
        assert_eq!(both.and(Decision::UNDECIDED).holds, None);
    }
}
