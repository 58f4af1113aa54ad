//! The intervals of a ranking: for a fixed number of rounds, or valid after each round.
//!
//! If a comparison ends as soon as it is sure, the baseline of a ratio is the geometric mean of the baseline's two entries. A
//! difference needs an interval without 1, and an interval of the second entry that contains 1. There is no further band,
//! because the ratio contains the noise of both entries. See `docs/decisions/029-stop-when-sure.md`.

use super::{Figure, NamedFigures, RankingEntry, Role, ratios, throughput};
use crate::statistics::{Estimate, Interval, MAX_RATIO, tie_band};

/// How the rounds of a comparison are judged.
#[derive(Clone, Copy, Debug)]
pub enum Intervals {
    /// The number of rounds is fixed; bootstrap intervals with this seed.
    FixedRounds {
        /// The seed of the resamples.
        seed: u64,
    },
    /// The comparison may end after any round.
    AnyRounds,
}

impl Intervals {
    /// The estimate of these ratios.
    pub(super) fn estimate(self, ratios: &[f64]) -> Option<Estimate> {
        match self {
            Self::FixedRounds { seed } => Estimate::of(ratios, seed),
            Self::AnyRounds => Estimate::anytime(ratios),
        }
    }

    /// The ratios to the baseline. `same` is its second entry.
    pub(super) fn of_baseline(
        self,
        own: &RankingEntry<'_>,
        base: &RankingEntry<'_>,
        same: Option<&RankingEntry<'_>>,
        figure: Figure,
    ) -> Vec<f64> {
        let Some(same) = same.filter(|_| matches!(self, Self::AnyRounds)) else {
            return ratios(own, base, figure);
        };
        let of = |round: &Option<&NamedFigures>| figure((*round)?);
        let rounds = own.rounds.iter().zip(base.rounds.iter().zip(&same.rounds));
        rounds.filter_map(|(own, (base, same))| Some(of(own)? / (of(base)? * of(same)?).sqrt())).collect()
    }

    /// The band of ties, if this is the estimate of the baseline's second entry.
    pub(super) fn band(self, same: &Estimate) -> Interval {
        match self {
            Self::FixedRounds { .. } => tie_band(Some(same)),
            Self::AnyRounds if same.interval.contains(1.0) => Interval { low: 1.0, high: 1.0 },
            // The baseline differs from itself, so no ratio is a difference.
            Self::AnyRounds => Interval { low: 0.0, high: MAX_RATIO },
        }
    }
}

/// Returns true if the throughput of each contestant that is ranked differs from the baseline's, after any number of rounds.
pub(in crate::bench) fn is_sure(entries: &[RankingEntry<'_>]) -> bool {
    let entry_of = |role: Role| entries.iter().find(|entry| entry.role == role);
    let Some((base, same)) = entry_of(Role::Baseline).zip(entry_of(Role::Same)) else { return false };
    let intervals = Intervals::AnyRounds;
    let estimate =
        |own: &RankingEntry<'_>| intervals.estimate(&intervals.of_baseline(own, base, Some(same), throughput));
    let Some(band) = estimate(same).map(|same| intervals.band(&same)) else { return false };
    let is_different =
        |own: &RankingEntry<'_>| estimate(own).is_some_and(|estimate| estimate.verdict(&band).is_different());
    let mut ranked = entries.iter().filter(|entry| matches!(entry.role, Role::Ranked | Role::Slowed(_))).peekable();
    ranked.peek().is_some() && ranked.all(is_different)
}
