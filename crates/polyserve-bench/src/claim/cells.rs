//! Claims about many cells: most, nearly every or every cell, and trends along an axis.
//!
//! A cell counts once, with the median of its rounds, and needs [`MIN_CELL_ROUNDS`] of them. [`votes`] decides the verdict; this
//! module finds the ratios and the series. The noise is that of all cells of the baseline's second entry.
//!
//! A figure without a bottleneck can replace the claimed one: if the server's cores were full in a fifth of the cells, CPU use
//! cannot differ, and [`ClaimDefinition::if_full`] decides. If the client was full in a fifth of the cells,
//! [`ClaimDefinition::full_client`] limits the verdict.
//!
//! Cost: a pass over the pairs of rows.

mod votes;

use std::collections::BTreeMap;

use serde::Deserialize;

use self::votes::{Band, Decision, MIN_RATIOS, SeriesGrowth, Votes, decide, median_interval, trend};
use super::{AxisValue, ClaimDefinition, ClaimRow, ClaimSet, Rule};
use crate::bench::figures::{CLIENT_FULL, NamedFigure, SERVER_BUSY};
use crate::bench::ranking::BUSY;
use crate::experiment::{again, distinct};
use crate::report::figures::counted;
use crate::statistics::{LinearFit, median_of};

pub use self::votes::CellShare;

/// The min number of rounds of a cell, unless a claim has another one.
pub(crate) const MIN_CELL_ROUNDS: usize = 5;
/// The share of cells with full cores, of the server or of the client, from which the other cells are too few for a verdict.
const MIN_FULL_SHARE: f64 = 0.2;
/// The min number of points of a series.
const MIN_POINTS: usize = 3;

/// The effect of a full client on a claim: a full client makes all servers look alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FullClient {
    /// No effect: the figure depends only on the server.
    #[default]
    NoEffect,
    /// It hides differences, so the lack of one does not refute the claim.
    Hides,
    /// The client's own time differs between the two sides, so there is no verdict.
    Differs,
}

/// The judgement of a claim about many cells.
#[derive(Debug)]
pub(super) struct CellJudgement {
    decision: Decision,
    figure: String,
}

/// A cell, with the median of its rounds.
#[derive(Debug)]
struct CellMedian {
    cell: BTreeMap<String, AxisValue>,
    value: f64,
    rounds: usize,
}

impl CellJudgement {
    /// Whether the claim holds at this error, and the figures.
    pub(super) fn at(&self, error: f64) -> super::ClaimOutcome {
        (self.decision.at(error), self.figure.clone())
    }

    fn undecided(figure: impl Into<String>) -> Self {
        Self { decision: Decision::UNDECIDED, figure: figure.into() }
    }

    /// The judgement on a claim of two parts. The part that decides comes first: one that is refuted, or else undecided.
    fn and(self, other: Self) -> Self {
        let decision = self.decision.and(other.decision);
        let other_decides = other.decision.holds == decision.holds && self.decision.holds != decision.holds;
        let [first, second] = if other_decides { [other, self] } else { [self, other] };
        Self { decision, figure: format!("{}; {}", first.figure, second.figure) }
    }
}

impl ClaimSet {
    /// The judgement of a claim about many cells.
    pub(super) fn over_cells(&self, claim: &ClaimDefinition, rows: &[ClaimRow]) -> CellJudgement {
        if let Some(missing) = claim.missing_side(rows) {
            return CellJudgement::undecided(missing);
        }
        let (claim, name) = claim.deciding(rows);
        let cells: Vec<(String, Vec<CellMedian>)> =
            claim.contestants(rows).into_iter().map(|name| (name.clone(), claim.cells_of(rows, &name))).collect();
        let fewest = cells.iter().flat_map(|(_, cells)| cells).map(|cell| cell.rounds).min().unwrap_or(0);
        if fewest < claim.min_rounds() {
            let needed = claim.min_rounds();
            return CellJudgement::undecided(format!(
                "{}; at least {needed} are needed",
                counted(fewest as u64, "round")
            ));
        }
        let Some(band) = self.band(&claim, rows) else {
            let why = format!("without {MIN_RATIOS} cells of the control the noise is not known");
            return CellJudgement::undecided(why);
        };
        let judgement = match &claim.rule {
            Rule::Trend { axis, is_down } => {
                let ratio = claim.right.as_ref().map(|_| "the ratio");
                let of = |(name, cells): &(String, Vec<CellMedian>)| {
                    trend_of(ratio.unwrap_or(name), &series(cells, axis), *is_down, band)
                };
                cells.iter().map(of).reduce(CellJudgement::and)
            }
            Rule::Cells { share, bound } => {
                let all: Vec<&CellMedian> = cells.iter().flat_map(|(_, cells)| cells).collect();
                Some(votes_of(&all, *share, *bound, band))
            }
            _ => None,
        };
        let judgement = judgement.unwrap_or_else(|| CellJudgement::undecided("the rule is not about cells"));
        let judgement = CellJudgement { figure: format!("{name}{}", judgement.figure), ..judgement };
        claim.with_full_client(judgement, rows)
    }

    /// The noise of the claim's figure; `None` if the control has too few cells.
    fn band(&self, claim: &ClaimDefinition, rows: &[ClaimRow]) -> Option<Band> {
        let Some(baseline) = &self.baseline else { return Some(Band::NONE) };
        let control = ClaimDefinition {
            right: Some(baseline.clone()),
            conditions: Default::default(),
            left_where: Default::default(),
            right_where: Default::default(),
            ..claim.clone()
        };
        let ratios: Vec<f64> = control.cells_of(rows, &again(baseline)).iter().map(|cell| cell.value).collect();
        Band::of(&ratios)
    }
}

impl ClaimDefinition {
    /// The claim with the figure that decides, and the start of its text.
    fn deciding(&self, rows: &[ClaimRow]) -> (Self, String) {
        let full = self.share_of_rows(rows, |row| row.figures.get(SERVER_BUSY).is_some_and(|busy| *busy >= BUSY));
        let of = |figure: &str| {
            let column = NamedFigure::named(figure).and_then(|figure| figure.column);
            column.map_or_else(|| figure.replace('_', " "), str::to_owned)
        };
        let sides = match (&self.right, self.left.all()) {
            (Some(right), [left]) => format!(", {left} to {right}: "),
            (None, _) if !self.right_where.is_empty() => format!(", {} to {}: ", self.left_where, self.right_where),
            _ => String::from(": "),
        };
        match &self.if_full {
            Some(figure) if full >= MIN_FULL_SHARE => {
                let why = format!("the cores were full in {:.0} % of the cells", full * 100.0);
                (Self { figure: figure.clone(), ..self.clone() }, format!("{} ({why}){sides}", of(figure)))
            }
            _ => (self.clone(), of(&self.figure) + &sides),
        }
    }

    /// The share of the rows of both sides for which `is_so`.
    fn share_of_rows(&self, rows: &[ClaimRow], is_so: impl Fn(&ClaimRow) -> bool) -> f64 {
        let sides = self.contestants(rows).into_iter().flat_map(|left| {
            let right = self.right_of(&left).map(|right| self.side(rows, right, &self.right_where));
            self.side(rows, &left, &self.left_where).into_iter().chain(right.into_iter().flatten())
        });
        let all: Vec<&ClaimRow> = sides.collect();
        all.iter().filter(|row| is_so(row)).count() as f64 / all.len().max(1) as f64
    }

    /// Why a side has no figures; `None` if both have.
    fn missing_side(&self, rows: &[ClaimRow]) -> Option<String> {
        let lefts = self.contestants(rows);
        if lefts.is_empty() {
            return Some(String::from("not measured"));
        }
        lefts.iter().find_map(|left| {
            let sides = [(left.as_str(), &self.left_where)].into_iter();
            let mut sides = sides.chain(self.right_of(left).map(|right| (right, &self.right_where)));
            sides.find_map(|(name, own)| self.side(rows, name, own).is_empty().then(|| self.why_missing(rows, name)))
        })
    }

    /// The cells of a contestant: its figure, or its ratio to the right side.
    fn cells_of(&self, rows: &[ClaimRow], left: &str) -> Vec<CellMedian> {
        let left_rows = self.side(rows, left, &self.left_where);
        let values: Vec<(&ClaimRow, f64)> = match self.right_of(left) {
            Some(right) => self.quotients(&left_rows, &self.side(rows, right, &self.right_where)),
            None => left_rows.iter().map(|row| (*row, row.figures[&self.figure])).collect(),
        };
        let values: Vec<(&ClaimRow, f64)> =
            values.into_iter().filter(|(_, value)| value.is_finite() && *value > 0.0).collect();
        let of_cell = |cell: &BTreeMap<String, AxisValue>| {
            let own = values.iter().filter(|(row, _)| row.cell == *cell).map(|(_, value)| *value);
            Some(CellMedian { cell: cell.clone(), rounds: own.clone().count(), value: median_of(own)? })
        };
        let mut cells: Vec<&BTreeMap<String, AxisValue>> = Vec::new();
        for (row, _) in &values {
            if !cells.contains(&&row.cell) {
                cells.push(&row.cell);
            }
        }
        cells.into_iter().filter_map(of_cell).collect()
    }

    /// The judgement with the effect of a full client.
    fn with_full_client(&self, CellJudgement { decision, figure }: CellJudgement, rows: &[ClaimRow]) -> CellJudgement {
        let decision_if_full = match self.full_client {
            FullClient::NoEffect => return CellJudgement { decision, figure },
            FullClient::Hides if !decision.is_tie => decision,
            FullClient::Hides | FullClient::Differs => Decision::UNDECIDED,
        };
        let share = self.share_of_rows(rows, |row| row.figures.get(CLIENT_FULL).is_some_and(|full| *full > 0.0));
        if share < MIN_FULL_SHARE {
            return CellJudgement { decision, figure };
        }
        let why = "of the cells, which may hide differences between servers";
        let figure = format!("{figure}; the client was full in {:.0} % {why}", share * 100.0);
        CellJudgement { decision: decision_if_full, figure }
    }
}

/// Judges ratios that are claimed to be above `bound`.
fn votes_of(cells: &[&CellMedian], share: CellShare, bound: f64, band: Band) -> CellJudgement {
    let ratios: Vec<f64> = cells.iter().map(|cell| cell.value).collect();
    if ratios.len() < MIN_RATIOS {
        return CellJudgement::undecided(format!(
            "{} have both sides, and {MIN_RATIOS} are needed",
            counted(ratios.len() as u64, "cell")
        ));
    }
    let scaled: Vec<f64> = ratios.iter().map(|ratio| ratio / bound).collect();
    let factor = band.factor(share);
    let interval = median_interval(&ratios).filter(|_| share == CellShare::Most);
    let interval = interval.map_or_else(String::new, |interval| format!(" {interval}"));
    let median = format!("median {:.3}{interval}", median_of(ratios).unwrap_or(0.0));
    let Votes { above, below, .. } = Votes::of(scaled.iter().copied(), factor);
    let [above, below] = [format!("above {bound} in {above} of {} cells", scaled.len()), format!("below in {below}")];
    // A claim about most cells is decided by the median, the others by the number of cells.
    let (mut figure, of) = match share {
        CellShare::Most => (format!("{median}; {above}, {below}"), "the median"),
        CellShare::NearlyEvery => (format!("{above}; {below}, {median}"), "a cell"),
        CellShare::Every => (format!("{above}, {below}; {median}"), "a cell"),
    };
    if band != Band::NONE {
        figure.push_str(&format!(", noise of {of} {:.1} %", (factor - 1.0) * 100.0));
    }
    CellJudgement { decision: decide(&scaled, share, band), figure }
}

/// The growth of each series along an axis, from its least to its largest value. A series has the same values of all other axes.
fn series(cells: &[CellMedian], axis: &str) -> Vec<SeriesGrowth> {
    let others = |cell: &CellMedian| -> String {
        cell.cell.iter().filter(|(name, _)| *name != axis).map(|(name, value)| format!("{name} {value}, ")).collect()
    };
    let point = |cell: &CellMedian| match cell.cell.get(axis) {
        Some(AxisValue::Number(place)) => Some((place.max(1.0).ln(), cell.value.ln())),
        _ => None,
    };
    let of_series = |key: &String| -> Option<SeriesGrowth> {
        let points: Vec<(f64, f64)> = cells.iter().filter(|cell| others(cell) == *key).filter_map(point).collect();
        (points.len() >= MIN_POINTS).then_some(())?;
        Some(SeriesGrowth::new(factor(&points)?, &points))
    };
    distinct(cells.iter().map(others)).iter().filter_map(of_series).collect()
}

/// The growth of a straight line through the logarithms, from the least to the largest place.
fn factor(points: &[(f64, f64)]) -> Option<f64> {
    let LinearFit { slope, .. } = LinearFit::through(points)?;
    let (min, max) = points.iter().fold((f64::MAX, f64::MIN), |(min, max), (x, _)| (min.min(*x), max.max(*x)));
    let factor = (slope * (max - min)).exp();
    factor.is_finite().then_some(factor)
}

/// Judges whether a contestant's series rise, or fall if `is_down`.
fn trend_of(name: &str, series: &[SeriesGrowth], is_down: bool, band: Band) -> CellJudgement {
    let factors: Vec<f64> = series.iter().map(|own| own.factor).collect();
    let votes = Votes::of(factors.iter().copied(), 1.0);
    let (count, verb) = if is_down { (votes.below, "falls") } else { (votes.above, "rises") };
    let figure = match votes.all() {
        0 => format!("{name} has no series of {MIN_POINTS}"),
        all => {
            let median = median_of(factors).unwrap_or(0.0);
            format!("{name} {verb} in {count} of {all} series, median factor {median:.3}")
        }
    };
    CellJudgement { decision: trend(series, is_down, band), figure }
}

#[cfg(test)]
mod tests;
