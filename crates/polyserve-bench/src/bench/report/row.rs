//! The rows of a report: a contestant at a cell, with its rank and its ratio to the baseline.
//!
//! Cost: one estimate for each pair of neighbours in the order.

use serde::Serialize;

use crate::bench::experiment::{Key, Sample};
use crate::bench::figures::{self, Better, NamedFigure, NamedFigures};
use crate::bench::mode::search::SearchEnd;
use crate::bench::ranking::{BUSY, is_server_full};
use crate::bench::sweep::SweepCell;
use crate::experiment::{again, distinct, first_of};
use crate::output::{is_client_late, rate_text};
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
    /// The rank at the cell, from 1. Contestants without a difference share a rank. References have none.
    pub rank: Option<usize>,
    /// The number of rounds.
    pub rounds: usize,
    /// The medians over the rounds.
    pub figures: NamedFigures,
    /// The compared figure, relative to the baseline at the cell.
    pub compared: Option<Compared>,
}

/// A sample with its round.
type RoundSample<'a> = (usize, &'a Sample);

/// The samples of a cell.
pub(super) struct CellSamples<'a> {
    pub(super) all: Vec<(&'a Key, &'a Sample)>,
    pub(super) figure: NamedFigure,
    pub(super) baseline: &'a str,
    pub(super) seed: u64,
}

impl CellSamples<'_> {
    fn of(&self, name: &str) -> Vec<RoundSample<'_>> {
        self.all.iter().filter(|(key, _)| key.contestant == name).map(|(key, sample)| (key.round, *sample)).collect()
    }

    /// The ratio of two contestants' figures, round by round.
    fn ratio(&self, name: &str, base: &str) -> Option<Estimate> {
        let base = self.of(base);
        let ratios = self.of(name).into_iter().filter_map(|(round, sample)| {
            let (_, base) = base.iter().find(|(base_round, _)| *base_round == round)?;
            Some(sample.figures.get(self.figure.name)? / base.figures.get(self.figure.name)?)
        });
        Estimate::of(&ratios.collect::<Vec<_>>(), self.seed)
    }

    /// The rows of the cell, the best first; then the baseline's second entry and the references.
    pub(super) fn rows(&self) -> Vec<BenchRow> {
        let control = again(self.baseline);
        let band = tie_band(self.ratio(&control, self.baseline).as_ref());
        let row = |name: &str| {
            let own = self.of(name);
            let (_, first) = own.first()?;
            let names = distinct(own.iter().flat_map(|(_, sample)| sample.figures.keys()));
            let median =
                |figure: &str| median_of(own.iter().filter_map(|(_, sample)| sample.figures.get(figure).copied()));
            let figures = names.into_iter().filter_map(|figure| Some((figure.clone(), median(figure)?))).collect();
            // A second entry is compared with the first one.
            let base = first_of(name).unwrap_or(self.baseline);
            let ratio = self.ratio(name, base).filter(|_| name != self.baseline);
            let (key, _) = self.all.first()?;
            Some(BenchRow {
                contestant: name.to_owned(),
                cell: key.cell.clone(),
                role: first.role,
                rank: None,
                rounds: own.len(),
                figures,
                compared: ratio.map(|ratio| Compared::of(ratio, &band)),
            })
        };
        let names = distinct(self.all.iter().map(|(key, _)| key.contestant.as_str()));
        let rows = names.into_iter().filter_map(row);
        let (mut ranked, others): (Vec<BenchRow>, Vec<BenchRow>) = rows.partition(BenchRow::is_ranked);
        let value = |row: &BenchRow| row.figures.get(self.figure.name).copied();
        let worst = if self.figure.better == Better::Higher { 0.0 } else { f64::INFINITY };
        ranked.sort_by(|a, b| {
            let [a, b] = [a, b].map(|row| value(row).unwrap_or(worst));
            if self.figure.better == Better::Higher { b.total_cmp(&a) } else { a.total_cmp(&b) }
        });
        let ranks = shared_ranks(ranked.len(), |first, other| {
            let ratio = self.ratio(&ranked[other].contestant, &ranked[first].contestant);
            let [first, other] = [first, other].map(|place| value(&ranked[place]));
            ratio.map_or(first != other, |ratio| ratio.verdict(&band).is_different())
        });
        ranked.iter_mut().zip(ranks).for_each(|(row, rank)| row.rank = Some(rank));
        ranked.into_iter().chain(others).collect()
    }
}

impl BenchRow {
    /// Whether it is a contestant of its own: neither a limit nor a second entry.
    pub(crate) fn is_ranked(&self) -> bool {
        matches!(self.role, Role::Baseline | Role::Ranked)
    }

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
        let is_latency = [figures::P50_US, figures::P99_US].contains(&figure.name);
        let lateness = self.figure(figures::LATENESS_P99_US).unwrap_or(0.0);
        match figure.name {
            figures::REQUESTS_PER_S => rate_text(value, self.figure("under_way")),
            figures::CAPACITY_PER_S => self.capacity_text(&figure.text(value)),
            figures::P50_US if self.is_overloaded() => String::from("overloaded"),
            figures::P99_US if self.is_overloaded() => String::new(),
            figures::CPU_US if !self.is_full() => format!("~{}", figure.text(value)),
            _ if is_latency && is_client_late(lateness, value) => format!("~{}", figure.text(value)),
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
