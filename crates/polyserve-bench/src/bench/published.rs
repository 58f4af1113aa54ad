//! Published figures, next to those of an experiment.
//!
//! A line of a published CSV file has the cell of an experiment in the columns with the name of an axis, and figures in the
//! columns with the name of a figure. Other columns do not count.
//!
//! Invariant: no published figure is changed. Cost: a parse of the files.

use std::collections::BTreeMap;

use anyhow::{Context as _, anyhow};
use serde::{Deserialize, Serialize};

use super::derived;
use super::figures::{NamedFigure, NamedFigures};
use super::report::BenchRow;
use super::sweep::{CellValue, SweepAxis, SweepCell};
use crate::claim::ClaimRow;
use crate::published;
use crate::report::{EMPTY_CELL, Table, or_empty};

/// Published figures of one contestant.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedFigures {
    /// The published name.
    pub name: String,
    /// The files, by their names in the directory `published`.
    pub files: Vec<String>,
    /// The lines of the files: those with these texts in these columns.
    #[serde(default)]
    pub only: BTreeMap<String, String>,
    /// The column that begins the names of the line's figures: with `row = "connect"`, `mean_ms` is `connect_mean_ms`.
    pub prefix: Option<String>,
    /// The columns that are axes under other names: `pool_size = "workers"`.
    #[serde(default)]
    pub axes: BTreeMap<String, SweepAxis>,
    /// The contestants that stand for the published one, the listing first.
    pub contestants: Vec<String>,
    /// The cell of the figures, if the files have none.
    #[serde(default)]
    pub at: SweepCell,
}

/// The published figures at one cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PublishedLine {
    /// The cell.
    pub cell: SweepCell,
    /// The figures.
    pub figures: NamedFigures,
}

impl PublishedFigures {
    /// Why the files do not have such figures.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.rows() {
            Ok(rows) if rows.iter().any(|row| !row.figures.is_empty()) => Ok(()),
            Ok(_) => Err(format!("{:?} has no figures in its files", self.name)),
            Err(error) => Err(format!("{:?}: {error:#}", self.name)),
        }
    }

    /// The figures, by cell.
    pub(crate) fn rows(&self) -> anyhow::Result<Vec<PublishedLine>> {
        let mut rows: Vec<PublishedLine> = Vec::new();
        for file in &self.files {
            let text = published::file(file).ok_or_else(|| anyhow!("there is no published file {file:?}"))?;
            let lines: Vec<BTreeMap<String, String>> = published::rows(text).context(file.clone())?;
            for line in
                lines.iter().filter(|line| self.only.iter().all(|(column, text)| line.get(column) == Some(text)))
            {
                let PublishedLine { cell, figures } = self.row(line);
                match rows.iter_mut().find(|row| row.cell == cell) {
                    Some(row) => row.figures.extend(figures),
                    None => rows.push(PublishedLine { cell, figures }),
                }
            }
        }
        Ok(rows)
    }

    /// The rows of the contestants that stand for the published one, for claims: one round, without noise.
    pub(crate) fn claim_rows(&self) -> anyhow::Result<Vec<ClaimRow>> {
        let lines = self.rows()?;
        let row = |contestant: &String, PublishedLine { cell, figures }: &PublishedLine| {
            let row = ClaimRow { figures: figures.clone(), ..ClaimRow::new(contestant, 1) };
            derived::of_pool(cell.iter().fold(row, |row, (axis, value)| row.at(&axis.to_string(), value)))
        };
        Ok(self.contestants.iter().flat_map(|name| lines.iter().map(|line| row(name, line))).collect())
    }

    fn row(&self, line: &BTreeMap<String, String>) -> PublishedLine {
        let mut row = PublishedLine { cell: self.at.clone(), ..PublishedLine::default() };
        let start = self.prefix.as_ref().and_then(|column| line.get(column));
        for (column, text) in line {
            let name = start.map_or_else(|| column.clone(), |start| format!("{start}_{column}"));
            if let Some(axis) = self.axes.get(column).copied().or_else(|| SweepAxis::named(column)) {
                row.cell.insert(axis, text.parse().map_or_else(|_| CellValue::Word(text.clone()), CellValue::Number));
            } else if let (Some(figure), Ok(value)) = (NamedFigure::named(&name), text.parse()) {
                row.figures.insert(figure.name.to_owned(), value);
            }
        }
        row
    }
}

/// The published figures with the measured figures below them; `None` if no contestant stands for a published one.
pub(super) fn table(all: &[PublishedFigures], rows: &[BenchRow], axes: &[SweepAxis]) -> anyhow::Result<Option<Table>> {
    let mut lines: Vec<(String, SweepCell, NamedFigures)> = Vec::new();
    let mut published_figures: Vec<String> = Vec::new();
    for published in all {
        for PublishedLine { cell, figures } in published.rows()? {
            let is_here = |row: &&BenchRow| {
                published.contestants.contains(&row.contestant)
                    && cell.iter().all(|(axis, value)| row.cell.get(axis).is_none_or(|own| own == value))
            };
            let here: Vec<&BenchRow> = rows.iter().filter(is_here).collect();
            if here.is_empty() {
                continue;
            }
            published_figures.extend(figures.keys().cloned());
            lines.push((format!("{} (published)", published.name), cell, figures));
            lines.extend(
                here.iter().map(|row| (format!("{} (here)", row.contestant), row.cell.clone(), row.figures.clone())),
            );
        }
    }
    let figures: Vec<NamedFigure> = super::figures::ALL
        .iter()
        .filter(|figure| published_figures.iter().any(|name| name == figure.name))
        .copied()
        .collect();
    let axes_names = axes.iter().map(ToString::to_string);
    let header: Vec<String> = axes_names
        .chain([String::from("contestant")])
        .chain(figures.iter().map(|figure| figure.name.to_owned()))
        .collect();
    let mut table = Table::of_numbers(&header).named_by(axes.len() + 1).with_texts_in(axes.len());
    for (name, cell, values) in &lines {
        let place = axes.iter().map(|axis| or_empty(cell.get(axis).map(CellValue::to_string)));
        let values = figures.iter().map(|figure| values.get(figure.name).map_or_else(|| EMPTY_CELL.to_owned(), short));
        table.row(place.chain([name.clone()]).chain(values).collect());
    }
    Ok(table.if_any())
}

/// A figure with at most two decimals.
fn short(value: &f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(text: &str) -> PublishedFigures {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn columns_are_axes_and_figures() {
        let tasks =
            published("name = \"Rust\"\nfiles = [\"conctest_rust.csv\"]\ncontestants = [\"a\"]\nat = { series = 0 }\n");
        let rows = tasks.rows().unwrap();
        assert_eq!(rows.len(), 40);
        assert_eq!(rows[39].cell, SweepCell::from([(SweepAxis::Tasks, 40.into()), (SweepAxis::Series, 0.into())]));
        let figure = |name: &str| rows[39].figures[name];
        assert_eq!((figure("mean_duration_ms"), figure("total_duration_ms")), (3718.0, 6479.0));
        assert_eq!((figure("cost_pct"), figure("profit_pct")), (78.0, 81.0));
    }

    /// Each row and each byte count of a published server stands in one line.
    #[test]
    fn several_files_make_one_line() {
        let text = "name = \"tokio\"\nfiles = [\"page_delay.csv\", \"page_rows.csv\", \"page_bytes.csv\"]\nprefix = \"row\"\n\
                    only = { server = \"tokio\" }\ncontestants = [\"a\"]\n";
        let rows = published(text).rows().unwrap();
        assert_eq!(rows.len(), 1);
        let figure = |name: &str| rows[0].figures.get(name).copied();
        assert_eq!(
            (figure("total_s"), figure("max_ms"), figure("connect_sd_ms")),
            (Some(20.569), Some(2029.0), Some(2.4))
        );
        assert_eq!((figure("document_bytes"), figure("received_kB_s")), (Some(176.0), Some(143.86)));
        let names = ["connect", "processing", "waiting", "total"];
        let columns = ["min_ms", "mean_ms", "sd_ms", "median_ms", "max_ms"];
        let phases = names.iter().flat_map(|name| columns.map(|column| format!("{name}_{column}")));
        assert!(phases.into_iter().all(|name| figure(&name).is_some()), "{rows:?}");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let none = published("name = \"a\"\nfiles = [\"none.csv\"]\ncontestants = [\"a\"]\n");
        assert_eq!(none.check().unwrap_err(), "\"a\": there is no published file \"none.csv\"");
        let other =
            published("name = \"a\"\nfiles = [\"stress.csv\"]\ncontestants = [\"a\"]\nonly = { lang = \"no\" }\n");
        assert!(other.check().unwrap_err().contains("no figures"));
    }
}
