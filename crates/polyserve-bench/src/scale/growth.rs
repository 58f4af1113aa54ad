//! How a figure grows along an axis: as a power of the axis, and for memory also by a constant number of bytes for each unit.
//!
//! `y = a x^b` is the line of least squares through the logarithms of the points; a point is the median of its rounds, so
//! that a round in which another process used the machine counts for one vote. The 95 % interval of `b` is the percentile
//! bootstrap over rounds: whole rounds are drawn with replacement, so an effect on all points of a round
//! widens the interval. R² shows whether the figure is a power at all.
//!
//! Invariant: the same figures and the same seed give the same growth. Cost: 2 000 fits, a few ms.

use std::collections::{BTreeMap, BTreeSet};

use crate::report::EMPTY_CELL;
use serde::{Deserialize, Serialize};

use crate::statistics::{Draws, Interval, LinearFit, median};

/// A figure at a point of an axis, in a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurveSample {
    /// The point of the axis.
    pub x: u64,
    /// The round.
    pub round: usize,
    /// The figure.
    pub y: f64,
}

/// A curve through samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// The factor of a power, or the value of a line at 0.
    pub a: f64,
    /// The exponent of a power, or the slope of a line.
    pub b: f64,
    /// The 95 % interval of `b`. It has no width for a single round.
    pub interval: Interval,
    /// R²: the share of the points' variance that the curve explains, at most 1.
    pub r2: f64,
    /// The number of points.
    pub points: usize,
    /// The number of rounds.
    pub rounds: usize,
}

impl Fit {
    /// R² for a table. A curve always fits two points.
    pub fn r2_text(&self) -> String {
        if self.points < 3 { EMPTY_CELL.to_owned() } else { format!("{:.2}", self.r2) }
    }
}

/// The scale of both axes on which a line is fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AxisScale {
    Logarithms,
    AsIs,
}

const RESAMPLES: usize = 2_000;

/// The power through `samples`; `None` for fewer than two points. Values that are not positive numbers are left out.
pub fn power(samples: &[CurveSample], seed: u64) -> Option<Fit> {
    let fit = fit_curve(samples, AxisScale::Logarithms, seed)?;
    Some(Fit { a: fit.a.exp(), ..fit })
}

/// The straight line through `samples`, as [`power`].
pub fn line(samples: &[CurveSample], seed: u64) -> Option<Fit> {
    fit_curve(samples, AxisScale::AsIs, seed)
}

fn fit_curve(samples: &[CurveSample], scale: AxisScale, seed: u64) -> Option<Fit> {
    let scaled = |value: f64| if scale == AxisScale::Logarithms { value.ln() } else { value };
    let mut by_round: BTreeMap<usize, Vec<(u64, f64)>> = BTreeMap::new();
    for CurveSample { x, round, y } in
        samples.iter().filter(|sample| sample.y.is_finite() && sample.y > 0.0 && sample.x > 0)
    {
        by_round.entry(*round).or_default().push((*x, scaled(*y)));
    }
    let rounds: Vec<&[(u64, f64)]> = by_round.values().map(Vec::as_slice).collect();
    let fit_line = |drawn: &[&[(u64, f64)]]| {
        let mut by_x: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        drawn.iter().copied().flatten().for_each(|(x, y)| by_x.entry(*x).or_default().push(*y));
        let points: Vec<(f64, f64)> = by_x.iter_mut().map(|(x, ys)| (scaled(*x as f64), median(ys))).collect();
        LinearFit::through(&points)
    };
    let LinearFit { at_zero: a, slope: b, explained: r2, .. } = fit_line(&rounds)?;
    let mut draws = Draws::new(seed);
    let mut slopes: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| {
            let drawn: Vec<_> = (0..rounds.len()).map(|_| rounds[draws.below(rounds.len())]).collect();
            fit_line(&drawn).map(|line| line.slope) // a draw with fewer than two points has no line
        })
        .collect();
    slopes.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| slopes[((slopes.len() - 1) as f64 * share).round() as usize];
    let interval =
        if slopes.is_empty() { Interval { low: b, high: b } } else { Interval { low: at(0.025), high: at(0.975) } };
    let points = rounds.iter().copied().flatten().map(|(x, _)| x).collect::<BTreeSet<_>>().len();
    Some(Fit { a, b, interval, r2, points, rounds: rounds.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(rounds: usize, y: impl Fn(u64, usize) -> f64) -> Vec<CurveSample> {
        let at = |x| (1..=rounds).map(move |round| (x, round));
        [10, 100, 1000, 10_000]
            .into_iter()
            .flat_map(at)
            .map(|(x, round)| CurveSample { x, round, y: y(x, round) })
            .collect()
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9 * b.abs().max(1.0)
    }

    #[test]
    fn a_power_is_found() {
        let fit = power(&samples(5, |x, _| 3.0 * (x as f64).powf(0.25)), 1).unwrap();
        assert!(near(fit.a, 3.0) && near(fit.b, 0.25) && near(fit.r2, 1.0), "{fit:?}");
        assert!(near(fit.interval.low, 0.25) && near(fit.interval.high, 0.25));
        assert_eq!((fit.points, fit.rounds), (4, 5));
    }

    #[test]
    fn a_line_is_found() {
        let fit = line(&samples(3, |x, _| 5_000_000.0 + 1024.0 * x as f64), 1).unwrap();
        assert!(near(fit.a, 5_000_000.0) && near(fit.b, 1024.0), "{fit:?}");
    }

    /// Different rounds widen the interval. A round that is far off moves the median little.
    #[test]
    fn the_interval_is_that_of_the_rounds() {
        let tilt = |round: usize| 0.1 + [0.0, 0.02, -0.02, 0.01, -0.01, 0.0, 3.0][round - 1];
        let fit = power(&samples(7, |x, round| (x as f64).powf(tilt(round))), 1).unwrap();
        assert!((fit.b - 0.1).abs() < 0.011, "{fit:?}");
        assert!(fit.interval.low < 0.1 && fit.interval.high > 0.1 && fit.interval.high < 1.0, "{fit:?}");
        assert_eq!(
            power(&samples(7, |x, round| (x as f64).powf(tilt(round))), 1),
            Some(fit),
            "a seed gives one interval"
        );
    }

    #[test]
    fn what_is_no_power_has_a_low_r2() {
        let fit = power(&samples(3, |x, _| if x == 100 || x == 1000 { 9.0 } else { 1.0 }), 1).unwrap();
        assert!(near(fit.b, 0.0) && fit.r2 < 0.01, "{fit:?}");
        assert!(near(power(&samples(3, |_, _| 7.0), 1).unwrap().r2, 1.0), "a level is explained");
    }

    #[test]
    fn through_less_than_two_points_there_is_no_curve() {
        assert_eq!(power(&[], 1), None);
        let point = |y| CurveSample { x: 10, round: 1, y };
        assert_eq!(power(&[point(1.0), point(2.0)], 1), None);
        let wrong = [point(1.0), CurveSample { x: 20, round: 1, y: 0.0 }, CurveSample { x: 30, round: 1, y: f64::NAN }];
        assert_eq!(power(&wrong, 1), None);
    }
}
