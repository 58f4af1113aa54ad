//! The cells that the claims compare: the classic pool and its twin in Go, measured here or published.
//!
//! Invariant: a ratio compares two cells of the same round that differ in one setting only.

use std::collections::BTreeMap;

use crate::statistics::LinearFit;

use super::ratio_test::{Band, SeriesGrowth};
use super::{Cell, CellMethod, published};

/// The language of a cell's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lang {
    Rust,
    Go,
}

/// A figure of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    CpuPct,
    CpuPerRequest,
    Memory,
    /// Memory that no file backs; the published tables do not have it.
    Anonymous,
    PerRequest,
    Received,
    Connect,
    Processing,
}

/// The part of a cell that the claims use.
#[derive(Clone, Copy, Debug)]
pub(super) struct ComparedCell {
    pub(super) lang: Lang,
    pub(super) method: CellMethod,
    pub(super) pool: usize,
    pub(super) connections: usize,
    pub(super) round: u32,
    figures: [f64; 8],
}

impl ComparedCell {
    pub(super) fn figure(&self, measure: Measure) -> f64 {
        let [cpu_pct, cpu_per_request, memory, anonymous, per_request, received, connect, processing] = self.figures;
        match measure {
            Measure::CpuPct => cpu_pct,
            Measure::CpuPerRequest => cpu_per_request,
            Measure::Memory => memory,
            Measure::Anonymous => anonymous,
            Measure::PerRequest => per_request,
            Measure::Received => received,
            Measure::Connect => connect,
            Measure::Processing => processing,
        }
    }
}

/// All cells of both languages.
#[derive(Clone, Debug)]
pub(super) struct CellTable {
    pub(super) cells: Vec<ComparedCell>,
    /// Pairs of a control's cell and the cell that it repeats; `None` for the published tables.
    control: Option<Vec<[ComparedCell; 2]>>,
    /// Cores that the server may use; `None` if they are not known.
    pub(super) cores: Option<usize>,
}

/// The CPU use, in per cent of its cores' time, from which a server's cores count as full.
const FULL: f64 = 95.0;

impl CellTable {
    /// The measured cells; `rust` and `go` are the contestants' names.
    pub(super) fn measured(cells: &[Cell], [rust, go]: [&str; 2], cores: usize) -> Self {
        let lang = |cell: &Cell| match cell.key.contestant.as_str() {
            name if name == rust => Some(Lang::Rust),
            name if name == go => Some(Lang::Go),
            _ => None,
        };
        let of = |cell: &Cell, lang| {
            let figures = [
                cell.sample.avg_cpu_pct,
                cell.sample.server_cpu_us_per_request,
                cell.sample.avg_mem_pct,
                cell.sample.avg_anonymous_kb.unwrap_or(f64::NAN),
                cell.sample.per_request_ms,
                cell.sample.received_kb_s,
                cell.sample.connect_ms,
                cell.sample.processing_ms,
            ];
            let (method, pool) = (cell.key.method, cell.key.pool_size.unwrap_or(0));
            ComparedCell { lang, method, pool, connections: cell.key.connections, round: cell.key.round, figures }
        };
        let own = cells.iter().filter(|cell| !cell.key.control);
        let compared = own.filter_map(|cell| Some(of(cell, lang(cell)?))).collect();
        let mut control = Vec::new();
        for repeat in cells.iter().filter(|cell| cell.key.control) {
            let mut key = repeat.key.clone();
            key.control = false;
            let original = cells.iter().find(|cell| cell.key == key);
            control.extend(original.map(|original| [of(repeat, Lang::Rust), of(original, Lang::Rust)]));
        }
        Self { cells: compared, control: Some(control), cores: Some(cores) }
    }

    /// The published cells. The number of cores was not published.
    pub(super) fn published() -> anyhow::Result<Self> {
        let of = |(method, row): (CellMethod, published::PublishedCell)| ComparedCell {
            lang: if row.lang == "go" { Lang::Go } else { Lang::Rust },
            method,
            pool: row.pool_size,
            connections: row.connections,
            round: 1,
            figures: [
                row.avg_cpu_pct,
                row.avg_cpu_pct / 100.0 * row.total_s * 1e6 / row.requests as f64,
                row.avg_mem_pct,
                f64::NAN,
                row.per_request_ms,
                row.received_kb_s,
                row.connect_ms,
                row.processing_ms,
            ],
        };
        Ok(Self { cells: published::rows()?.into_iter().map(of).collect(), control: None, cores: None })
    }

    /// The noise of a figure; `None` if the control has too few cells.
    pub(super) fn band(&self, measure: Measure) -> Option<Band> {
        let Some(control) = &self.control else { return Some(Band::NONE) };
        let ratios: Vec<f64> =
            control.iter().map(|[repeat, original]| repeat.figure(measure) / original.figure(measure)).collect();
        Band::of(&ratios)
    }

    /// The share of cells with full server cores; 0 if their number is not known.
    pub(super) fn full(&self) -> f64 {
        let Some(cores) = self.cores else { return 0.0 };
        let full = self.cells.iter().filter(|cell| cell.figure(Measure::CpuPct) >= FULL * cores as f64);
        full.count() as f64 / self.cells.len().max(1) as f64
    }

    /// The ratio of `of` to `to` in each cell that both have.
    pub(super) fn ratios(&self, of: Lang, to: Lang, measure: Measure) -> Vec<(ComparedCell, f64)> {
        let key = |cell: &ComparedCell| (cell.method, cell.connections, cell.pool, cell.round);
        let others: BTreeMap<_, f64> = self.lang(to).map(|cell| (key(cell), cell.figure(measure))).collect();
        self.lang(of).filter_map(|cell| Some((*cell, cell.figure(measure) / others.get(&key(cell))?))).collect()
    }

    /// The ratio of PUT to GET in each cell, for both languages.
    pub(super) fn put_to_get(&self, measure: Measure) -> Vec<(ComparedCell, f64)> {
        let key = |cell: &ComparedCell| (cell.lang, cell.connections, cell.pool, cell.round);
        let with = |method| self.cells.iter().filter(move |cell| cell.method == method);
        let gets: BTreeMap<_, f64> = with(CellMethod::Get).map(|cell| (key(cell), cell.figure(measure))).collect();
        with(CellMethod::Put).filter_map(|cell| Some((*cell, cell.figure(measure) / gets.get(&key(cell))?))).collect()
    }

    /// The growth of the figure from the smallest pool to the largest, for each series of three or more pools: a series has the
    /// same connections, method and round.
    pub(super) fn over_pools(&self, lang: Lang, measure: Measure) -> Vec<SeriesGrowth> {
        growth(self.lang(lang).map(|cell| (pool_series(cell), cell.figure(measure))))
    }

    /// The growth of the ratio of two languages' figures, from the smallest pool to the largest.
    pub(super) fn ratio_over_pools(&self, of: Lang, to: Lang, measure: Measure) -> Vec<SeriesGrowth> {
        growth(self.ratios(of, to, measure).iter().map(|(cell, ratio)| (pool_series(cell), *ratio)))
    }

    /// The growth of the figure from the min connections to the max.
    pub(super) fn over_connections(&self, lang: Lang, measure: Measure) -> Vec<SeriesGrowth> {
        let series = |cell: &ComparedCell| ((cell.method, cell.pool, cell.round), cell.connections);
        growth(self.lang(lang).map(|cell| (series(cell), cell.figure(measure))))
    }

    fn lang(&self, lang: Lang) -> impl Iterator<Item = &ComparedCell> {
        self.cells.iter().filter(move |cell| cell.lang == lang)
    }
}

/// The least number of points of a series.
const MIN_POINTS: usize = 3;

/// The series of a cell over pool sizes, and the cell's place in it.
fn pool_series(cell: &ComparedCell) -> ((CellMethod, usize, u32), usize) {
    ((cell.method, cell.connections, cell.round), cell.pool)
}

/// The growth of each series over its range. The factor is of a straight line through the logarithms.
fn growth<K: Ord>(points: impl Iterator<Item = ((K, usize), f64)>) -> Vec<SeriesGrowth> {
    let mut series: BTreeMap<K, Vec<(f64, f64)>> = BTreeMap::new();
    for ((key, over), figure) in points.filter(|(_, figure)| *figure > 0.0) {
        series.entry(key).or_default().push(((over.max(1) as f64).ln(), figure.ln()));
    }
    let long = series.into_values().filter(|points| points.len() >= MIN_POINTS);
    long.filter_map(|points| Some(SeriesGrowth::new(factor(&points)?, &points))).collect()
}

fn factor(points: &[(f64, f64)]) -> Option<f64> {
    let LinearFit { slope, .. } = LinearFit::through(points)?;
    let (min, max) = points.iter().fold((f64::MAX, f64::MIN), |(min, max), (x, _)| (min.min(*x), max.max(*x)));
    let factor = (slope * (max - min)).exp();
    factor.is_finite().then_some(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_fitted_through_all_points() {
        let points = |figures: &[f64]| {
            let over = [2, 4, 8, 16];
            growth(figures.iter().zip(over).map(|(figure, over)| (("one", over), *figure)))
        };
        let of = |figures: &[f64]| points(figures).first().map(|growth| growth.factor);
        assert!((of(&[1.0, 2.0, 4.0, 8.0]).unwrap() - 8.0).abs() < 1e-9);
        assert!((of(&[3.0, 3.0, 3.0]).unwrap() - 1.0).abs() < 1e-9);
        assert_eq!(of(&[1.0, 2.0]), None);
        assert!(of(&[4.0, 3.0, 2.0, 1.9]).unwrap() < 0.6);
    }

    #[test]
    fn what_was_published_has_every_pair() {
        let table = CellTable::published().unwrap();
        assert_eq!(table.ratios(Lang::Go, Lang::Rust, Measure::Memory).len(), 36);
        assert_eq!(table.put_to_get(Measure::CpuPct).len(), 36);
        assert_eq!(table.over_pools(Lang::Rust, Measure::CpuPct).len(), 6);
        assert_eq!(table.over_connections(Lang::Go, Measure::CpuPct).len(), 12);
        assert_eq!(table.band(Measure::Memory), Some(Band::NONE));
    }
}
