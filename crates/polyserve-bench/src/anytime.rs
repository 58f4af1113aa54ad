//! Intervals of a median that hold after any number of rounds, so that a comparison may end as soon as one decides.
//!
//! A candidate for the median is rejected if too many ratios are above it or below it. Each round is a bet on the side of its
//! ratio: at the true median both sides are equally likely, so the capital of the bets is a martingale that starts at 1. By
//! Ville's inequality it ever reaches 20 with a probability of at most 5 %. The bets are a mixture over all probabilities of a
//! side, with a beta(3, 3) weight, so the capital has a closed form:
//!
//! ```text
//! capital(above, rounds) = 2^rounds B(above + 3, rounds - above + 3) / B(3, 3)
//! ```
//!
//! Invariant: given the rounds before, a round's ratio is above the median with probability 1/2. The size of the noise and its
//! shape are free. Noise that is correlated from round to round violates this: see the tests, and `docs/decisions`. Cost:
//! O(n log n) for n rounds.
//!
//! Source: Howard and Ramdas, "Sequential estimation of quantiles with applications to A/B testing and best-arm identification"
//! (2022); Ramdas, Grünwald, Vovk and Shafer, "Game-theoretic statistics and safe anytime-valid inference" (2023).

use crate::statistics::{Estimate, Interval, MAX_RATIO, median};

/// The capital at which a candidate is rejected: one over 5 %.
const REJECTING_CAPITAL: f64 = 20.0;

impl Estimate {
    /// The median of `ratios`, one for each round, with an interval that may be used after each round: the probability that
    /// it ever misses the median is at most 5 %. It is wider than the interval of [`Estimate::of`], which treats ratios in the
    /// same way. `None` if `ratios` is empty.
    pub(crate) fn anytime(ratios: &[f64]) -> Option<Self> {
        let finite = ratios.iter().filter(|ratio| !ratio.is_nan()).map(|ratio| ratio.clamp(0.0, MAX_RATIO));
        let mut ratios: Vec<f64> = finite.collect();
        let rounds = ratios.len();
        if rounds == 0 {
            return None;
        }
        ratios.sort_unstable_by(f64::total_cmp);
        let interval = match min_on_one_side(rounds) {
            // A candidate below `low` has `min_count` ratios above it.
            Some(min_count) => Interval { low: ratios[rounds - min_count], high: ratios[min_count - 1] },
            None => Interval { low: 0.0, high: MAX_RATIO },
        };
        Some(Self { ratio: median(&mut ratios), interval, rounds })
    }
}

/// Returns the min number of ratios, of `rounds`, on one side of a candidate that rejects the candidate. `None` if all
/// ratios on one side do not reject it.
fn min_on_one_side(rounds: usize) -> Option<usize> {
    let count = rounds as f64;
    // All on one side: B(count + 3, 3) / B(3, 3) = 60 / ((count + 3) (count + 4) (count + 5)).
    let mut log_capital =
        count * std::f64::consts::LN_2 + 60_f64.ln() - ((count + 3.0) * (count + 4.0) * (count + 5.0)).ln();
    let mut min_count = None;
    for side in (rounds.div_ceil(2)..=rounds).rev() {
        if log_capital < REJECTING_CAPITAL.ln() {
            break;
        }
        min_count = Some(side);
        log_capital += ((count - side as f64 + 3.0) / (side as f64 + 2.0)).ln();
    }
    min_count
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

    use super::*;
    use crate::statistics::{MIN_ROUNDS, Verdict};

    /// The rounds of a comparison that is not ended early.
    const FIXED_ROUNDS: usize = 50;

    /// Noise of 20 recorded rounds: the logarithm of a contestant's throughput minus the mean logarithm of the baseline's two
    /// entries, minus the median of these differences. The contestants were as fast as the baseline. Sources: `servers-kept`
    /// (the first three) and `servers-close` of 2026-11-23, on 2 shared cores.
    const RECORDED: [[f64; 20]; 4] = [
        [
            0.111, 0.102, -0.020, -0.020, -0.007, 0.030, -0.025, -0.011, 0.165, -0.079, 0.062, 0.007, -0.205, 0.084,
            -0.341, -0.197, 0.026, 0.277, -0.204, 0.121,
        ],
        [
            0.050, 0.110, 0.060, 0.052, 0.005, 0.080, -0.054, 0.005, 0.153, -0.044, 0.087, -0.005, -0.173, -0.195,
            -0.179, -0.097, -0.245, 0.641, -0.524, -0.140,
        ],
        [
            -0.018, 0.299, 0.040, 0.203, 0.040, 0.084, -0.067, -0.349, -0.170, -0.014, 0.110, 0.058, -0.119, 0.014,
            -0.079, 0.104, 0.097, -0.965, -0.171, -0.194,
        ],
        [
            0.096, -0.036, -0.142, 0.128, 0.012, -0.012, 0.175, -0.124, 0.248, 0.125, -0.006, 0.006, 0.056, -0.010,
            -0.103, -0.146, 0.137, -0.065, -0.069, 0.219,
        ],
    ];

    struct Simulated(ChaCha8Rng);

    impl Simulated {
        fn new(seed: u64) -> Self {
            Self(ChaCha8Rng::seed_from_u64(seed))
        }

        fn uniform(&mut self) -> f64 {
            (f64::from(self.0.next_u32()) + 0.5) / 4_294_967_296.0
        }

        fn normal(&mut self) -> f64 {
            (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
        }

        /// The noise of one contestant's rounds: each value is correlated with the previous value by `correlation`.
        fn autocorrelated(&mut self, spread: f64, correlation: f64) -> Vec<f64> {
            let mut now = spread * self.normal();
            let mut next = || {
                now = correlation * now + spread * (1.0 - correlation * correlation).sqrt() * self.normal();
                now
            };
            (0..FIXED_ROUNDS).map(|_| next()).collect()
        }

        /// Logarithms of the ratios of a contestant to both entries of the baseline; each has noise of its own.
        fn pooled(&mut self, spread: f64, correlation: f64) -> Vec<f64> {
            let [own, base, same] = [(); 3].map(|()| self.autocorrelated(spread, correlation));
            own.iter().zip(base.iter().zip(same)).map(|(own, (base, same))| own - f64::midpoint(*base, same)).collect()
        }

        /// Recorded rounds of one of the contestants, in pieces of four neighbours.
        fn recorded(&mut self) -> Vec<f64> {
            let rounds = RECORDED[(self.uniform() * RECORDED.len() as f64) as usize];
            let mut drawn = Vec::new();
            while drawn.len() < FIXED_ROUNDS {
                let first = (self.uniform() * (rounds.len() - 3) as f64) as usize;
                drawn.extend(&rounds[first..first + 4]);
            }
            drawn.truncate(FIXED_ROUNDS);
            drawn
        }
    }

    /// The verdict of a comparison that is looked at after each round, and the number of its rounds.
    fn ended_early(noise: &[f64], ratio: f64) -> (Verdict, usize) {
        let ratios: Vec<f64> = noise.iter().map(|noise| ratio * noise.exp()).collect();
        let no_difference = Interval { low: 1.0, high: 1.0 };
        for rounds in MIN_ROUNDS..=ratios.len() {
            let verdict = Estimate::anytime(&ratios[..rounds]).unwrap().verdict(&no_difference);
            if verdict.is_different() {
                return (verdict, rounds);
            }
        }
        (Verdict::TooFewRounds, ratios.len())
    }

    /// Returns two figures of 1 000 comparisons: the number of comparisons of a server with itself that find a difference, and
    /// the median number of rounds to find a server that is slower by 10 %. A wrong direction counts as never found.
    fn calibrated(seed: u64, draw: impl Fn(&mut Simulated) -> Vec<f64>) -> (usize, usize) {
        let mut simulated = Simulated::new(seed);
        let is_false = |_: &usize| ended_early(&draw(&mut simulated), 1.0).0.is_different();
        let wrong = (0..1000).filter(is_false).count();
        let mut simulated = Simulated::new(seed + 1);
        let mut rounds: Vec<usize> = (0..1000)
            .map(|_| match ended_early(&draw(&mut simulated), 0.9) {
                (Verdict::Slower, rounds) => rounds,
                _ => usize::MAX,
            })
            .collect();
        rounds.sort_unstable();
        (wrong, rounds[500])
    }

    #[test]
    fn the_number_on_a_side_that_rejects() {
        // The capital after n of n rounds is 2^n 60 / ((n + 3) (n + 4) (n + 5)): 8.95 for n = 8, 14.07 for 9, 22.5 for 10.
        for (rounds, min_count) in [(1, None), (9, None), (10, Some(10)), (11, Some(11)), (50, Some(36))] {
            assert_eq!(min_on_one_side(rounds), min_count, "{rounds}");
        }
    }

    #[test]
    fn an_interval_is_of_the_ratios_themselves() {
        assert_eq!(Estimate::anytime(&[f64::NAN]), None);
        let few = Estimate::anytime(&[2.0; 9]).unwrap();
        assert_eq!(few.interval, Interval { low: 0.0, high: MAX_RATIO });
        let ten: Vec<f64> = (1..=10).map(f64::from).collect();
        let ten = Estimate::anytime(&ten).unwrap();
        assert_eq!((ten.ratio, ten.interval, ten.rounds), (5.5, Interval { low: 1.0, high: 10.0 }, 10));
        let silent = Estimate::anytime(&[0.0; 12]).unwrap();
        assert_eq!(silent.interval, Interval { low: 0.0, high: 0.0 });
    }

    /// The spread of 0.09 for each entry is that of most recorded comparisons: 0.13 for the ratio of two entries.
    #[test]
    fn noise_without_memory_is_seldom_a_difference_and_a_tenth_takes_half_of_the_rounds() {
        let (wrong, rounds) = calibrated(1, |simulated| simulated.pooled(0.09, 0.0));
        assert!(wrong <= 50 && rounds <= FIXED_ROUNDS / 2, "{wrong} of 1000, {rounds} rounds");
    }

    #[test]
    fn recorded_noise_is_seldom_a_difference_and_a_tenth_takes_half_of_the_rounds() {
        let (wrong, rounds) = calibrated(3, Simulated::recorded);
        assert!(wrong <= 50 && rounds <= FIXED_ROUNDS / 2, "{wrong} of 1000, {rounds} rounds");
    }

    #[test]
    fn slightly_autocorrelated_noise_is_seldom_a_difference() {
        let (wrong, rounds) = calibrated(5, |simulated| simulated.pooled(0.09, 0.1));
        assert!(wrong <= 50 && rounds <= FIXED_ROUNDS / 2, "{wrong} of 1000, {rounds} rounds");
    }

    /// The limit of the method: such noise is not in the records, and `polyserve bench trial-same` finds it.
    #[test]
    fn strongly_autocorrelated_noise_is_called_a_difference_too_often() {
        let (wrong, _) = calibrated(7, |simulated| simulated.pooled(0.09, 0.4));
        assert!((51..300).contains(&wrong), "{wrong} of 1000");
    }

    /// The interval holds the truth in all rounds of a comparison, not only in its last one.
    #[test]
    fn the_interval_holds_the_truth_at_all_times() {
        let mut simulated = Simulated::new(9);
        let missed = (0..400).filter(|_| {
            let ratios: Vec<f64> = simulated.pooled(0.12, 0.0).iter().map(|noise| 1.3 * noise.exp()).collect();
            (1..=ratios.len()).any(|rounds| !Estimate::anytime(&ratios[..rounds]).unwrap().interval.contains(1.3))
        });
        let missed = missed.count();
        assert!(missed <= 20, "{missed} of 400");
    }
}
