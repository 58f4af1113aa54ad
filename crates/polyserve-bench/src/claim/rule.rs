//! The rules that judge ratios and figures.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use super::cells::CellShare;
use crate::statistics::{Estimate, Interval, Verdict};

/// A rule. Its text in a definition is the text that it shows.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub enum Rule {
    /// `every above 1`: each is above this value. One that is below it refutes the claim.
    EveryAbove(f64),
    /// `at least 0.95`: each is at least this value. Below 1, a ratio that cannot be told from 1 is large enough if the noise is
    /// smaller than the margin.
    AtLeast(f64),
    /// `every below 1`: each is below this value. One that is above it refutes the claim.
    EveryBelow(f64),
    /// `equal within 0.99 to 1.01`: each is in this interval.
    EqualWithin(Interval),
    /// `about 1.05`: each is in the interval of `Interval::equal_to`.
    About(f64),
    /// `no gain of 1.018`: a ratio as large as this is excluded. A ratio above 1 refutes the claim.
    NoGain(f64),
    /// `median within 0.9 to 1.1, margin 0.02`: the median of each contestant's figures is in this interval. Within the margin
    /// on both sides of a bound nothing is decided. `median above 0.9` and `median below 1.1` have one bound.
    Median {
        /// The interval; infinite on a side without a bound.
        range: Interval,
        /// The margin.
        margin: f64,
    },
    /// `most cells above 1`, `nearly every cell above 1`, `every cell above 1`: the ratios of cells are above this value, each
    /// with the median of its rounds.
    Cells {
        /// The share of the cells.
        share: CellShare,
        /// The value.
        bound: f64,
    },
    /// `rises along workers`, `falls along workers`: the figures of each contestant, or its ratios, change in this way along an
    /// axis.
    Trend {
        /// The name of the axis.
        axis: String,
        /// Whether they fall.
        is_down: bool,
    },
}

/// A ratio, and the noise that it is judged by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) estimate: Estimate,
    pub(super) noise: Interval,
}

impl Rule {
    /// Whether a claim about ratios holds; `None` if it is undecided. There is at least one ratio.
    pub(super) fn holds(&self, found: &[Found]) -> Option<bool> {
        let verdicts: Vec<Option<bool>> = found.iter().map(|found| self.holds_for(found)).collect();
        match verdicts.contains(&Some(false)) {
            true => Some(false),
            false => verdicts.iter().all(Option::is_some).then_some(true),
        }
    }

    fn holds_for(&self, found: &Found) -> Option<bool> {
        let Found { estimate: Estimate { interval, .. }, noise } = found;
        let verdict = found.estimate.verdict(noise);
        match self {
            Self::EveryAbove(bound) => beyond(interval, noise, *bound),
            Self::AtLeast(bound) if interval.low.min(noise.low) >= *bound => Some(true),
            Self::AtLeast(bound) => beyond(interval, noise, *bound),
            Self::EveryBelow(bound) => beyond(interval, noise, *bound).map(|is_above| !is_above),
            Self::EqualWithin(range) => found.is_within(range),
            Self::About(ratio) => {
                let differs = verdict == if *ratio > 1.0 { Verdict::Faster } else { Verdict::Slower };
                found.is_within(&Interval::equal_to(*ratio)).filter(|holds| differs || !holds)
            }
            Self::NoGain(_) if verdict == Verdict::Faster => Some(false),
            Self::NoGain(gain) => (interval.high.max(noise.high) < *gain).then_some(true),
            Self::Median { .. } | Self::Cells { .. } | Self::Trend { .. } => None,
        }
    }

    /// Whether the rule is about many cells.
    pub(crate) fn is_of_cells(&self) -> bool {
        matches!(self, Self::Cells { .. } | Self::Trend { .. })
    }

    /// Whether the median of a contestant's figures is as claimed; `None` if it is near a bound.
    pub(super) fn allows_median(&self, median: f64) -> Option<bool> {
        let Self::Median { range: Interval { low, high }, margin } = self else { return None };
        match median {
            within if (low + margin..=high - margin).contains(&within) => Some(true),
            outside if outside < low - margin || outside > high + margin => Some(false),
            _ => None,
        }
    }

    /// Whether a ratio refutes the claim even if something hides a part of the difference: the difference is too large
    /// already.
    pub(super) fn is_exceeded(&self, found: &[Found]) -> bool {
        found.iter().any(|Found { estimate, noise }| {
            let (verdict, interval) = (estimate.verdict(noise), &estimate.interval);
            let exceeds = |range: &Interval| match verdict {
                Verdict::Faster => range.high >= 1.0 && interval.low > range.high,
                Verdict::Slower => range.low <= 1.0 && interval.high < range.low,
                _ => false,
            };
            match self {
                Self::EqualWithin(range) => exceeds(range),
                Self::About(ratio) => exceeds(&Interval::equal_to(*ratio)),
                Self::NoGain(_) => verdict == Verdict::Faster,
                _ => self.holds_for(&Found { estimate: *estimate, noise: *noise }) == Some(false),
            }
        })
    }

    /// Whether a figure without noise is as claimed.
    pub(super) fn allows(&self, figure: f64) -> bool {
        match self {
            Self::EveryAbove(bound) => figure > *bound,
            Self::AtLeast(bound) => figure >= *bound,
            Self::EveryBelow(bound) | Self::NoGain(bound) => figure < *bound,
            Self::EqualWithin(range) => range.contains(figure),
            Self::About(value) => Interval::equal_to(*value).contains(figure),
            Self::Median { .. } => self.allows_median(figure) == Some(true),
            Self::Cells { .. } | Self::Trend { .. } => false,
        }
    }
}

/// Whether an interval is above `bound` (true) or below it (false), by more than the noise; `None` if it is neither.
fn beyond(interval: &Interval, noise: &Interval, bound: f64) -> Option<bool> {
    let (is_above, is_below) = (interval.low > bound * noise.high, interval.high < bound * noise.low);
    (is_above || is_below).then_some(is_above)
}

impl Found {
    /// Whether the ratio is in `range`; `None` if it is partly in it.
    fn is_within(&self, range: &Interval) -> Option<bool> {
        let Self { estimate: Estimate { interval, .. }, noise } = self;
        if interval.low >= range.low && interval.high <= range.high {
            return Some(true);
        }
        // A value beyond noise is outside if its interval is. Otherwise the noise must be outside too.
        let (mut low, mut high) = (interval.low, interval.high);
        if low <= noise.high && high >= noise.low {
            (low, high) = (low.min(noise.low), high.max(noise.high));
        }
        (low > range.high || high < range.low).then_some(false)
    }
}

impl TryFrom<String> for Rule {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |start: &str| text.strip_prefix(start).and_then(|rest| rest.parse().ok());
        let range = || {
            let (low, high) = text.strip_prefix("equal within ")?.split_once(" to ")?;
            Some(Interval { low: low.parse().ok()?, high: high.parse().ok()? })
        };
        let median = || {
            let rest = text.strip_prefix("median ")?;
            let (rest, margin) = rest.split_once(", margin ").unwrap_or((rest, "0"));
            let (low, high) = match rest.split_once(' ')? {
                ("above", low) => (low.parse().ok()?, f64::INFINITY),
                ("below", high) => (f64::NEG_INFINITY, high.parse().ok()?),
                ("within", both) => {
                    both.split_once(" to ").and_then(|(low, high)| low.parse().ok().zip(high.parse().ok()))?
                }
                _ => return None,
            };
            Some(Self::Median { range: Interval { low, high }, margin: margin.parse().ok()? })
        };
        let cells = || {
            let shares = [CellShare::Most, CellShare::NearlyEvery, CellShare::Every];
            shares
                .into_iter()
                .find_map(|share| Some(Self::Cells { share, bound: number(&format!("{} above ", share.words()))? }))
        };
        let trend = || {
            let (way, axis) = text.split_once(" along ")?;
            let is_down = ["rises", "falls"].iter().position(|known| *known == way)? == 1;
            Some(Self::Trend { axis: axis.to_owned(), is_down })
        };
        number("every above ")
            .map(Self::EveryAbove)
            .or_else(|| number("at least ").map(Self::AtLeast))
            .or_else(|| number("every below ").map(Self::EveryBelow))
            .or_else(|| number("about ").map(Self::About))
            .or_else(|| number("no gain of ").map(Self::NoGain))
            .or_else(|| range().map(Self::EqualWithin))
            .or_else(median)
            .or_else(cells)
            .or_else(trend)
            .ok_or_else(|| {
                format!(
                    "{text:?} is no rule; the rules are \"every above 1\", \"every below 1\", \"at least 0.95\", \"equal within 0.9 to 1.1\", \
                     \"about 1.05\", \"no gain of 1.02\", \"median within 0.9 to 1.1, margin 0.02\", \"most cells above 1\", \"nearly every cell above 1\", \
                     \"every cell above 1\", \"rises along workers\" and \"falls along workers\""
                )
            })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EveryAbove(bound) => write!(f, "every above {bound}"),
            Self::EveryBelow(bound) => write!(f, "every below {bound}"),
            Self::AtLeast(bound) => write!(f, "at least {bound}"),
            Self::EqualWithin(Interval { low, high }) => write!(f, "equal within {low} to {high}"),
            Self::About(ratio) => {
                let Interval { low, high } = Interval::equal_to(*ratio);
                write!(f, "equal from {low:.4} to {high:.4}")
            }
            Self::NoGain(gain) => write!(f, "confirmed below {gain}, refuted if more beyond noise"),
            Self::Median { range: Interval { low, high }, margin } => {
                match (low.is_finite(), high.is_finite()) {
                    (true, true) => write!(f, "median within {low} to {high}")?,
                    (true, false) => write!(f, "median above {low}")?,
                    _ => write!(f, "median below {high}")?,
                }
                if *margin > 0.0 { write!(f, ", margin {margin}") } else { Ok(()) }
            }
            Self::Cells { share, bound } => write!(f, "{} above {bound}", share.words()),
            Self::Trend { axis, is_down } => write!(f, "{} along {axis}", if *is_down { "falls" } else { "rises" }),
        }
    }
}
