//! The rows of a report: a contestant at a cell, with its rank and its ratio to the baseline.
//!
//! Cost: one estimate for each pair of neighbours in the order.

use serde::Serialize;

use crate::bench::figures::{self, Better, NamedFigure, NamedFigures};
use crate::bench::mode::search::SearchEnd;
use crate::bench::ranking::{BUSY, RankingEntry, differ, is_server_full, ratios};
use crate::bench::sweep::SweepCell;
use crate::experiment::{again, distinct, first_of};
use crate::output::{NO_ANSWER, latency_text, rate_text};
use crate::report::EMPTY_CELL;
use crate::statistics::{Compared, Estimate, median_of, shared_ranks, tie_band};
use crate::stores::bare::PREFIX;
use crate::turn::{MAX_BEHIND, Role};

/// A contestant at a cell.
#[derive(Clone, Debug, Serialize)]
pub struct BenchRow {
    /// The contestant.
    pub contestant: String,
    /// The values of the sweep.
    pub cell: SweepCell,
    /// The role.
    pub role: Role,
    /// The rank at the cell, from 1. Those with one rank do not differ from the first of them. References have none.
    pub rank: Option<usize>,
    /// The number of rounds.
    pub rounds: usize,
    /// The medians over the rounds.
    pub figures: NamedFigures,
    /// The compared figure, relative to the baseline at the cell.
    pub compared: Option<Compared>,
}

/// The contestants of a cell.
pub(super) struct CellContestants<'a> {
    pub(super) entries: Vec<RankingEntry<'a>>,
    pub(super) cell: &'a SweepCell,
    pub(super) figure: NamedFigure,
    pub(super) baseline: &'a str,
    pub(super) seed: u64,
}

impl CellContestants<'_> {
    /// The ratio of two contestants' figures, round by round.
    fn ratio(&self, own: &RankingEntry<'_>, base: &str) -> Option<Estimate> {
        let base = self.entries.iter().find(|entry| entry.name == base)?;
        Estimate::of(&ratios(own, base, |one| figures::value(one, self.figure.name)), self.seed)
    }

    /// The rows of the cell, the best first; then the baseline's second entry and the references.
    pub(super) fn rows(&self) -> Vec<BenchRow> {
        let control = self.entries.iter().find(|entry| entry.name == again(self.baseline));
        let band = tie_band(control.and_then(|control| self.ratio(control, self.baseline)).as_ref());
        let row = |entry: &RankingEntry<'_>| {
            let rounds: Vec<NamedFigures> = entry.rounds.iter().flatten().map(|one| figures::complete(one)).collect();
            let median = |figure: &String| median_of(rounds.iter().filter_map(|one| one.get(figure).copied()));
            let names = distinct(rounds.iter().flat_map(NamedFigures::keys));
            // A second entry is compared with the first one.
            let base = first_of(&entry.name).unwrap_or(self.baseline);
            let ratio = self.ratio(entry, base).filter(|_| entry.name != self.baseline);
            BenchRow {
                contestant: entry.name.clone(),
                cell: self.cell.clone(),
                role: entry.role,
                rank: None,
                rounds: rounds.len(),
                figures: names.into_iter().filter_map(|name| Some((name.clone(), median(name)?))).collect(),
                compared: ratio.map(|ratio| Compared::of(ratio, &band)),
            }
        };
        let rows = self.entries.iter().map(|entry| (entry, row(entry)));
        let (mut ranked, others): (Vec<_>, Vec<_>) = rows.partition(|(entry, _)| entry.role.is_ranked());
        let value = |row: &BenchRow| row.figures.get(self.figure.name).copied();
        let worst = if self.figure.better == Better::Higher { 0.0 } else { f64::INFINITY };
        ranked.sort_by(|(_, a), (_, b)| {
            let [a, b] = [a, b].map(|row| value(row).unwrap_or(worst));
            if self.figure.better == Better::Higher { b.total_cmp(&a) } else { a.total_cmp(&b) }
        });
        let baseline = ranked.iter().position(|(entry, _)| entry.role == Role::Baseline);
        let ranks = shared_ranks(ranked.len(), baseline, |first, other| {
            let [(first, first_row), (other, other_row)] = [&ranked[first], &ranked[other]];
            let has_answers = |row: &BenchRow| value(row).is_some_and(f64::is_finite);
            if !has_answers(first_row) || !has_answers(other_row) {
                // After any number of rounds, a contestant without an answer comes after one with answers.
                return has_answers(first_row) != has_answers(other_row);
            }
            differ([first_row, other_row].map(|row| (row.role, row.compared)), || {
                Some(Compared::of(self.ratio(other, &first.name)?, &band.symmetric()))
            })
        });
        ranked.iter_mut().zip(ranks).for_each(|((_, row), rank)| row.rank = Some(rank));
        ranked.into_iter().chain(others).map(|(_, row)| row).collect()
    }
}

impl BenchRow {
    /// Whether it is a limit of what a contestant can reach: a null server, or a bare map.
    pub(super) fn is_limit(&self) -> bool {
        self.role == Role::Limit || self.contestant.starts_with(PREFIX)
    }

    pub(super) fn figure(&self, name: &str) -> Option<f64> {
        self.figures.get(name).copied()
    }

    /// Whether the contestant could not keep the fixed rate. Its latencies depend on the length of the slice.
    pub(super) fn is_overloaded(&self) -> bool {
        self.figure(figures::BEHIND).is_some_and(|behind| behind > MAX_BEHIND)
    }

    /// A figure for a table.
    pub(super) fn text(&self, figure: &NamedFigure) -> String {
        let Some(value) = self.figure(figure.name) else {
            return if self.is_overloaded() { String::new() } else { EMPTY_CELL.to_owned() };
        };
        let lateness = self.figure(figures::LATENESS_P99_US).unwrap_or(0.0);
        match figure.name {
            figures::REQUESTS_PER_S => rate_text(value, self.figure("under_way")),
            figures::CAPACITY_PER_S => self.capacity_text(&figure.text(value)),
            figures::P50_US if self.is_overloaded() => String::from("overloaded"),
            figures::P99_US if self.is_overloaded() => String::new(),
            figures::P50_US | figures::P99_US => latency_text(value, lateness),
            _ if value.is_infinite() => NO_ANSWER.to_owned(),
            figures::CPU_US if !self.is_full() => format!("~{}", figure.text(value)),
            _ => figure.text(value),
        }
    }

    /// A capacity with the end of its search.
    fn capacity_text(&self, value: &str) -> String {
        let bound = match SearchEnd::of(self.figure(figures::SEARCH_END).unwrap_or_default()) {
            SearchEnd::Below => "< ",
            SearchEnd::Between => "",
            SearchEnd::Above => ">= ",
        };
        let full = if self.is_client_full() { "~" } else { "" };
        format!("{bound}{full}{value}")
    }

    /// Whether the client had no time left, so that it may be the limit of a capacity.
    pub(super) fn is_client_full(&self) -> bool {
        self.figure(figures::CLIENT_BUSY).is_some_and(|busy| busy >= BUSY)
    }

    /// Whether the cost can be compared: the server's cores were full, and the client's were not.
    pub(super) fn is_full(&self) -> bool {
        is_server_full(self.figure(figures::SERVER_BUSY), self.figure(figures::CLIENT_BUSY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::latencies;
    use crate::statistics::Verdict;

    /// Regression test: a round without an answer was left out, so a server with one answer in twelve rounds had the lowest p99.
    #[test]
    fn rounds_without_an_answer_are_the_worst() {
        let figures_of = |p99_us: Option<f64>| {
            let mut figures = latencies(p99_us.unwrap_or(1.0));
            figures.retain(|name, _| p99_us.is_some() || !name.starts_with('p')); // as it is recorded
            figures
        };
        let (like_base, silent) = (figures_of(Some(100.0)), [figures_of(Some(50.0)), figures_of(None)]);
        let (figure, cell) = (NamedFigure::named(figures::P99_US).unwrap(), SweepCell::new());
        let entry = |name: &str, role, rounds| RankingEntry { name: name.into(), role, bound: None, rounds };
        let rows_of = |silent: Vec<_>| {
            let like_base = vec![Some(&like_base); silent.len()];
            let entries = vec![
                entry("base", Role::Baseline, like_base.clone()),
                entry("base (again)", Role::Same, like_base),
                entry("silent", Role::Ranked, silent),
            ];
            CellContestants { entries, cell: &cell, figure, baseline: "base", seed: 1 }.rows()
        };
        let rows = rows_of((0..12).map(|round| Some(&silent[usize::from(round > 0)])).collect());
        let places: Vec<_> = rows.iter().map(|row| (row.contestant.as_str(), row.rank)).collect();
        assert_eq!(places, [("base", Some(1)), ("silent", Some(2)), ("base (again)", None)]);
        let compared = rows[1].compared.unwrap();
        assert_eq!((compared.estimate.rounds, compared.verdict), (12, Verdict::Faster), "more is worse here");
        assert_eq!(rows[1].text(&figure), "no answer");
        assert_eq!(rows_of(vec![Some(&silent[1])])[1].rank, Some(2), "a single round decides that");
    }

    /// Regression test: the noise of a ratio to the baseline was also taken for its inverse, and for ratios of two others.
    #[test]
    fn ranks_agree_with_the_verdicts_on_the_baseline() {
        for (again, others, expected) in [
            (980.0, &[1010.0][..], &[1, 2][..]),
            (1020.0, &[1010.0], &[1, 1]),
            (980.0, &[990.0], &[1, 1]),
            (1020.0, &[990.0], &[1, 2]),
            (1010.0, &[1005.0, 996.0], &[1, 1, 3]), // the last differs from the baseline, and not from the first
        ] {
            let roles = [Role::Baseline, Role::Same].into_iter().chain(others.iter().map(|_| Role::Ranked));
            let rates = [&[1000.0, again], others].concat();
            let figures_of = |per_s| NamedFigures::from([(String::from(figures::REQUESTS_PER_S), per_s)]);
            let figures: Vec<NamedFigures> = rates.into_iter().map(figures_of).collect();
            let entries = roles.zip(&figures).enumerate().map(|(place, (role, figures))| {
                let name = if role == Role::Same { String::from("0 (again)") } else { place.to_string() };
                RankingEntry { name, role, bound: None, rounds: vec![Some(figures); 12] }
            });
            let (figure, cell) = (NamedFigure::named(figures::REQUESTS_PER_S).unwrap(), SweepCell::new());
            let rows =
                CellContestants { entries: entries.collect(), cell: &cell, figure, baseline: "0", seed: 1 }.rows();
            let ranks: Vec<usize> = rows.iter().filter_map(|row| row.rank).collect();
            assert_eq!(ranks, expected, "{again} {others:?}: {rows:?}");
            let base = rows.iter().find(|row| row.role == Role::Baseline).unwrap().rank;
            let differs = |row: &BenchRow| row.compared.is_some_and(|compared| compared.verdict.is_different());
            assert!(rows.iter().filter(|row| row.rank.is_some()).all(|row| differs(row) == (row.rank != base)));
        }
    }
}
