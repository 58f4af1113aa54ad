//! Published claims as data, and their verdicts.
//!
//! An experiment offers its samples as rows. A [definition](ClaimDefinition) names a figure, the contestants of the left and
//! the right side, the cells that count, and a [`Rule`]. A pair of contestants gives a ratio for each round and cell that both have; its
//! interval and the noise are those of [`statistics`](crate::statistics). A claim without a right side is judged by the figures.
//!
//! A claim is confirmed, refuted or undecided. It is undecided in these cases:
//!
//! * A contestant has no figures in these cells.
//! * A ratio has fewer than ten rounds, or the noise is not known. A ratio is of the rounds at one cell, so that a claim holds
//!   only if it holds at each cell.
//! * Something other than the server was the bottleneck, so a difference may be hidden. A difference that is already too
//!   large still refutes the claim.
//! * The interval allows both answers. The figure then has the smallest difference that could have been found.
//! * Its error is too large for the number of claims: the claims of one article share an error of 5 % (`sharing`). The printed
//!   intervals are those of 5 % for each.
//!
//! Invariant: the verdicts depend on the rows, the definitions and the seed only. Cost: a pass over the pairs of rows, and 10 000
//! resamples for each ratio.

mod budget;
mod cells;
mod definition;
mod rule;
#[cfg(test)]
mod tests;

use crate::report::Claim;
use crate::report::figures::counted;

pub(crate) use self::budget::sharing;
pub use self::cells::{CellShare, FullClient};
pub(crate) use self::definition::{AxisValue, ClaimRow, ClaimSet};
pub use self::definition::{CellConditions, ClaimDefinition, Names};
use self::rule::Found;
pub use self::rule::Rule;
use crate::bench::figures::{CLIENT_BUSY, SERVER_BUSY};
use crate::bench::ranking::BUSY;
use crate::experiment::{again, distinct, first_of};
use crate::statistics::{Compared, ERROR_PROBABILITY, Estimate, Interval, MIN_ROUNDS, Resampled, median_of, tie_band};

/// Whether a claim holds (`None` is undecided), and the figures that decide it.
pub(crate) type ClaimOutcome = (Option<bool>, String);

impl ClaimSet {
    /// The claims with their verdicts.
    pub(crate) fn verdicts(&self, rows: &[ClaimRow], seed: u64) -> Vec<Claim> {
        let claim = |definition: &ClaimDefinition, (holds, figure): ClaimOutcome| Claim {
            published: definition.published.as_ref().map(|published| format!("{published}; {}", definition.rule)),
            ..Claim::new(&self.name, &definition.text, holds, figure)
        };
        let is_tested = |definition: &ClaimDefinition| definition.right.is_some() || definition.rule.is_of_cells();
        let tested =
            self.claims.iter().filter(|one| is_tested(one)).map(|definition| -> Box<dyn Fn(f64) -> Claim + '_> {
                if definition.rule.is_of_cells() {
                    let judgement = self.over_cells(definition, rows);
                    return Box::new(move |error| claim(definition, judgement.at(error)));
                }
                let ratios = self.ratios(definition, rows, seed);
                Box::new(move |error| claim(definition, definition.judged_by_ratios(rows, &ratios, error)))
            });
        let tested: Vec<_> = tested.collect();
        let mut tested = sharing(&tested, self.claims.len() - tested.len()).into_iter();
        let judged = self.claims.iter().filter_map(|definition| match is_tested(definition) {
            true => tested.next(),
            false => Some(claim(definition, definition.judged_by_figures(rows))),
        });
        judged.collect()
    }

    /// The ratios of a claim with a right side: of each contestant, at each cell.
    fn ratios(&self, definition: &ClaimDefinition, rows: &[ClaimRow], seed: u64) -> Vec<NamedRatio> {
        let of = |left: &String| self.ratios_of(definition, left, rows, seed);
        definition.contestants(rows).iter().flat_map(of).collect()
    }

    /// The ratios of a contestant, at each cell that both sides have.
    fn ratios_of(&self, definition: &ClaimDefinition, left: &str, rows: &[ClaimRow], seed: u64) -> Vec<NamedRatio> {
        let right = definition.right.as_deref().unwrap_or_default();
        let missing = |why: String| {
            let (name, contestant) = (left.to_owned(), left.to_owned());
            vec![NamedRatio { name, contestant, resampled: Err(why), noise: None }]
        };
        let left_rows = definition.side(rows, left, &definition.left_where);
        let right_rows = definition.side(rows, right, &definition.right_where);
        if let Some((name, _)) =
            [(left, &left_rows), (right, &right_rows)].into_iter().find(|(_, rows)| rows.is_empty())
        {
            return missing(definition.why_missing(rows, name));
        }
        let mut cells = distinct(left_rows.iter().map(|row| definition.cell_of(row)));
        cells.retain(|cell| right_rows.iter().any(|row| definition.cell_of(row) == *cell));
        if cells.is_empty() {
            return missing(format!("{left} and {right} share no cell"));
        }
        let of_right = |name: &str| definition.side(rows, name, &definition.right_where);
        let control = self.control(right, rows).map(|control| (of_right(&again(control)), of_right(control)));
        let ratio = |cell: &ClaimCell<'_>| {
            let resampled = |left: &[&ClaimRow], right: &[&ClaimRow]| {
                let is_here = |row: &&&ClaimRow| definition.cell_of(row) == *cell;
                let own: Vec<&ClaimRow> = left.iter().filter(is_here).copied().collect();
                Resampled::of(&values(definition.quotients(&own, right)), seed)
            };
            let shown: &[_] = if cells.len() > 1 { cell } else { &[] };
            NamedRatio {
                name: definition.name_at(left, shown),
                contestant: left.to_owned(),
                resampled: resampled(&left_rows, &right_rows)
                    .ok_or_else(|| format!("{left} and {right} share no round")),
                noise: control.as_ref().map(|(second, first)| resampled(second, first)),
            }
        };
        cells.iter().map(ratio).collect()
    }

    /// The contestant with a second entry that shows the noise of a ratio to `right`: `right` itself, or else the baseline. `None`
    /// for claims without noise.
    fn control<'a>(&'a self, right: &'a str, rows: &[ClaimRow]) -> Option<&'a str> {
        let baseline = self.baseline.as_deref()?;
        let has_second = rows.iter().any(|row| first_of(&row.contestant) == Some(right));
        Some(if has_second { right } else { baseline })
    }
}

/// The ratios without their rows.
fn values(quotients: Vec<(&ClaimRow, f64)>) -> Vec<f64> {
    quotients.into_iter().map(|(_, ratio)| ratio).collect()
}

/// The values of the axes that tell ratios apart.
type ClaimCell<'a> = Vec<(&'a str, &'a AxisValue)>;

/// The resamples of a ratio, or why there are none.
struct NamedRatio {
    name: String,
    contestant: String,
    resampled: Result<Resampled, String>,
    /// The resamples of the noise. The outer `None` stands for claims without noise, the inner one for unknown noise.
    noise: Option<Option<Resampled>>,
}

impl NamedRatio {
    /// The ratio at an error.
    fn found(&self, error: f64) -> Result<Found, String> {
        let estimate = self.resampled.as_ref().map_err(Clone::clone)?.estimate(error);
        let noise = match &self.noise {
            Some(noise) => tie_band(noise.as_ref().map(|noise| noise.estimate(error)).as_ref()),
            None => Interval { low: 1.0, high: 1.0 },
        };
        Ok(Found { estimate, noise })
    }
}

impl ClaimDefinition {
    /// The left contestants: each name, or the contestants of the rows that a pattern stands for.
    fn contestants(&self, rows: &[ClaimRow]) -> Vec<String> {
        let exact = self.left.all().iter().filter(|name| !name.contains('*'));
        let matching = rows.iter().map(|row| &row.contestant).filter(|name| self.left.match_name(name));
        distinct(exact.chain(matching).cloned())
    }

    /// The rows of a contestant that count and have the figure, by round.
    fn side<'a>(&self, rows: &'a [ClaimRow], contestant: &str, conditions: &CellConditions) -> Vec<&'a ClaimRow> {
        let counts = |row: &&ClaimRow| {
            row.contestant == contestant
                && self.conditions.hold(row)
                && conditions.hold(row)
                && row.figures.contains_key(&self.figure)
        };
        let mut side: Vec<&ClaimRow> = rows.iter().filter(counts).collect();
        side.sort_by_key(|row| row.round);
        side
    }

    /// The rows of the left side, with their ratios to rows of the same round and cell. The axes that a side has its own
    /// conditions on may differ.
    fn quotients<'a>(&self, left: &[&'a ClaimRow], right: &[&ClaimRow]) -> Vec<(&'a ClaimRow, f64)> {
        let is_own = |axis: &str| self.left_where.name(axis) || self.right_where.name(axis);
        let cell = |row: &ClaimRow| {
            row.cell.iter().filter(|(axis, _)| !is_own(axis)).map(|(_, value)| value.clone()).collect::<Vec<_>>()
        };
        let partner =
            |row: &&ClaimRow| right.iter().find(|other| other.round == row.round && cell(other) == cell(row)).copied();
        let quotient =
            |row: &&'a ClaimRow| Some((*row, row.figures[&self.figure] / partner(row)?.figures[&self.figure]));
        left.iter().filter_map(quotient).collect()
    }

    /// The cell of a row, without the axes that a side has its own conditions on, and without those along which values are rounds.
    fn cell_of<'a>(&self, row: &'a ClaimRow) -> ClaimCell<'a> {
        let is_apart = |axis: &str| {
            !self.left_where.name(axis) && !self.right_where.name(axis) && self.over.iter().all(|over| over != axis)
        };
        row.cell.iter().map(|(axis, value)| (axis.as_str(), value)).filter(|(axis, _)| is_apart(axis)).collect()
    }

    /// The name of a ratio: `base, workers 200`.
    fn name_at(&self, left: &str, cell: &[(&str, &AxisValue)]) -> String {
        let own = Some(self.left_where.to_string()).filter(|own| !own.is_empty());
        let cell = cell.iter().map(|(axis, value)| format!("{axis} {value}"));
        [left.to_owned()].into_iter().chain(own).chain(cell).collect::<Vec<_>>().join(", ")
    }

    /// Why a contestant has no figures in the cells that count.
    fn why_missing(&self, rows: &[ClaimRow], contestant: &str) -> String {
        let own = || rows.iter().filter(|row| row.contestant == contestant);
        let counts = |row: &&ClaimRow| row.cell.is_empty() || self.conditions.hold(row);
        let why = own().filter(counts).find_map(|row| row.why.as_ref());
        match why {
            Some(why) => format!("{contestant}: {why}"),
            None if own().any(|row| !self.conditions.hold(row)) => {
                format!("{contestant} was not measured with {}", self.conditions)
            }
            None => format!("{contestant} was not measured"),
        }
    }

    /// The judgement by the figures, without a right side: each is as claimed, or one is not.
    fn judged_by_figures(&self, rows: &[ClaimRow]) -> ClaimOutcome {
        let contestants = self.contestants(rows);
        let own: Vec<(&str, Vec<&ClaimRow>)> =
            contestants.iter().map(|name| (name.as_str(), self.side(rows, name, &self.left_where))).collect();
        let is_excluded =
            |row: &&ClaimRow| self.left.match_name(&row.contestant) && self.conditions.hold(row) && row.why.is_some();
        let excluded: Vec<&ClaimRow> = rows.iter().filter(is_excluded).collect();
        let excluded = excluded.first().map_or_else(String::new, |first| {
            let why = first.why.as_deref().unwrap_or("no figure");
            format!("; {} without it: {why}", counted(excluded.len() as u64, "round"))
        });
        let exact_and_missing =
            own.iter().find(|(name, side)| side.is_empty() && self.left.all().iter().any(|left| left == name));
        let figures: Vec<(&str, f64)> =
            own.iter().flat_map(|(name, side)| side.iter().map(|row| (*name, row.figures[&self.figure]))).collect();
        if let Some((name, _)) = exact_and_missing {
            return (None, self.why_missing(rows, name) + &excluded);
        }
        if figures.is_empty() {
            return (None, format!("no such round was measured{excluded}"));
        }
        if let Rule::Median { .. } = self.rule {
            return self.judged_by_medians(&own, &excluded);
        }
        let least = self.least.unwrap_or(1);
        if own.iter().any(|(_, side)| (1..least).contains(&side.len())) {
            return (None, format!("fewer than {least} rounds of a contestant{excluded}"));
        }
        let (name, rounds) = (self.figure.replace('_', " "), counted(figures.len() as u64, "round"));
        let wrong: Vec<&(&str, f64)> = figures.iter().filter(|(_, figure)| !self.rule.allows(*figure)).collect();
        let figure = match wrong.first() {
            Some((contestant, figure)) => {
                format!("{name}: {} of {rounds} not as claimed: {contestant} {}", wrong.len(), self.short(*figure))
            }
            None => {
                let ends = |(low, high): (f64, f64), (_, figure): &(&str, f64)| (low.min(*figure), high.max(*figure));
                let (low, high) = figures.iter().fold((f64::INFINITY, f64::NEG_INFINITY), ends);
                let [low, high] = [low, high].map(|figure| self.short(figure));
                let range = if low == high { low } else { format!("{low} to {high}") };
                format!("{name}: {range} in {rounds}")
            }
        };
        (Some(wrong.is_empty()), figure + &excluded)
    }

    /// The judgement by the median of each contestant's figures.
    fn judged_by_medians(&self, own: &[(&str, Vec<&ClaimRow>)], excluded: &str) -> ClaimOutcome {
        let medians = own.iter().filter_map(|(name, side)| {
            let median = median_of(side.iter().map(|row| row.figures[&self.figure]))?;
            Some((*name, median, side.len()))
        });
        let medians: Vec<(&str, f64, usize)> = medians.collect();
        let text = |(name, median, count): &(&str, f64, usize)| match count {
            1 => format!("{name} {}", self.short(*median)),
            _ => format!("{name} {} (median of {count})", self.short(*median)),
        };
        let texts = medians.iter().map(text).collect::<Vec<_>>().join(", ");
        let figure = format!("{}: {texts}{excluded}", self.figure.replace('_', " "));
        let least = self.least.unwrap_or(1);
        if medians.iter().any(|(.., count)| *count < least) {
            return (None, format!("{figure}; at least {least} are needed"));
        }
        let verdicts: Vec<Option<bool>> =
            medians.iter().map(|(_, median, _)| self.rule.allows_median(*median)).collect();
        match verdicts.contains(&Some(false)) {
            true => (Some(false), figure),
            false => (verdicts.iter().all(Option::is_some).then_some(true), figure),
        }
    }

    /// The judgement by ratios, at an error.
    fn judged_by_ratios(&self, rows: &[ClaimRow], ratios: &[NamedRatio], error: f64) -> ClaimOutcome {
        let at = |error: f64| ratios.iter().map(|ratio| ratio.found(error)).collect::<Result<Vec<Found>, String>>();
        // All ratios must hold, and any of them can refute: that shares the error.
        let shared = error / ratios.len().max(1) as f64;
        let (found, at_error, at_shared) = match (at(ERROR_PROBABILITY), at(error), at(shared)) {
            (Ok(found), Ok(at_error), Ok(at_shared)) if !found.is_empty() => (found, at_error, at_shared),
            (Err(why), ..) | (_, Err(why), _) | (.., Err(why)) => return (None, why),
            _ => return (None, String::from("not measured")),
        };
        let mut shown: Vec<(f64, String)> =
            ratios.iter().zip(&found).map(|(ratio, found)| self.shown(&ratio.name, found)).collect();
        shown.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        // The ratio that decides comes first.
        if matches!(self.rule, Rule::EveryBelow(_)) {
            shown.reverse();
        }
        let figure = shown.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("; ");
        let fewest = found.iter().map(|found| found.estimate.rounds).min().unwrap_or(0);
        if fewest < MIN_ROUNDS {
            return (None, format!("{figure}; only {}", counted(fewest as u64, "round")));
        }
        if found.iter().any(|found| found.noise.high.is_infinite()) {
            return (None, format!("{figure}; without the control the noise is not known"));
        }
        if let Some(why) = self.other_limit(rows, ratios) {
            let refuted = self.rule.is_exceeded(&at_shared).then_some(false);
            return (refuted, format!("{figure} ({why}, so a difference may be hidden)"));
        }
        let holds = match self.rule.holds(&at_error) {
            Some(false) => self.rule.holds(&at_shared).filter(|holds| !holds),
            holds => holds,
        };
        let min_difference = found.iter().find_map(|found| Compared::of(found.estimate, &found.noise).min_difference);
        let resolution = min_difference.filter(|_| holds.is_none()).map_or_else(String::new, |difference| {
            format!("; too few rounds: a difference of {:.1} % could have been found", difference * 100.0)
        });
        (holds, figure + &resolution)
    }

    /// A ratio, and its text: `twin/tokio 0.9989 [0.9988, 0.9990]`.
    fn shown(&self, name: &str, found: &Found) -> (f64, String) {
        let Estimate { ratio, interval: Interval { low, high }, .. } = found.estimate;
        let decimals = self.decimals;
        (ratio, format!("{name} {ratio:.decimals$} [{low:.decimals$}, {high:.decimals$}]"))
    }

    /// A figure with the decimals of the claim, or without any if it is whole.
    fn short(&self, figure: f64) -> String {
        let decimals = if figure.fract() == 0.0 { 0 } else { self.decimals };
        format!("{figure:.decimals$}")
    }

    /// Why something other than the server may limit a throughput of the claim; `None` if the claim does not depend on it.
    fn other_limit(&self, rows: &[ClaimRow], ratios: &[NamedRatio]) -> Option<String> {
        let right = self.right.iter().map(|name| (name, &self.right_where));
        let sides = ratios.iter().map(|ratio| (&ratio.contestant, &self.left_where)).chain(right);
        sides.filter(|_| self.server_bound).find_map(|(name, conditions)| {
            let side = self.side(rows, name, conditions);
            let busy = |figure: &str| median_of(side.iter().filter_map(|row| row.figures.get(figure).copied()));
            match (busy(CLIENT_BUSY), busy(SERVER_BUSY)) {
                (Some(client), _) if client >= BUSY => {
                    Some(format!("the client's cores were busy for {:.1} % of {name}'s time", client * 100.0))
                }
                (_, Some(server)) if server < BUSY => {
                    Some(format!("the cores of {name} were busy for {:.1} % only", server * 100.0))
                }
                (_, None) => Some(format!("how busy the cores of {name} were is not known")),
                _ => None,
            }
        })
    }
}
