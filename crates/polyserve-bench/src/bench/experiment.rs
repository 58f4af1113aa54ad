//! The experiment: all contestants at every cell, round by round.
//!
//! Invariant: the samples of a cell and a round were measured together. Cost: the measurements of the cells.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::bail;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::definition::ChartDefinition;
use super::figures::NamedFigures;
use super::mode::{ModeKind, Turns, scenario};
use super::ranking::Ranking;
use super::report::Report;
use super::sweep::{SweepAxis, SweepCell};
use super::workload::BenchWorkload;
use crate::experiment::{Absent, Notebook, Records, interleaved};
use crate::output::{INDENT, is_coloured};
use crate::report::{Summary, wrapped};
use crate::tasks;
use crate::turn::Role;

/// An experiment.
#[derive(Debug)]
pub struct DefinedExperiment {
    /// The description of the run.
    pub plan: BenchPlan,
    /// The cells.
    pub cells: Vec<CellEntries>,
    /// The contestants that cannot take part at a cell.
    pub absent: Vec<Absent>,
    /// Measures the contestants of a cell.
    pub turns: Box<dyn Turns>,
    /// Whether a ranking is printed with all columns.
    pub wide: bool,
}

impl DefinedExperiment {
    /// The experiment of a plan at these cells.
    pub fn new(plan: BenchPlan, cells: Vec<CellEntries>, absent: Vec<Absent>, turns: Box<dyn Turns>) -> Self {
        Self { plan, cells, absent, turns, wide: false }
    }
}

/// The result of an experiment.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum BenchResult {
    /// In the mode `compare`.
    Ranking(Box<Ranking>),
    /// In the other modes.
    Report(Box<Report>),
}

/// A cell and the names of its contestants.
#[derive(Clone, Debug)]
pub struct CellEntries {
    /// The values of the sweep.
    pub cell: SweepCell,
    /// The contestants, the baseline first.
    pub contestants: Vec<String>,
}

impl CellEntries {
    /// The cells of contestants, each with the names at it, in the order of `entries`.
    pub fn of<'a>(entries: impl IntoIterator<Item = (&'a SweepCell, &'a str)>) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for (cell, name) in entries {
            match all.iter_mut().find(|one| one.cell == *cell) {
                Some(one) => one.contestants.push(name.to_owned()),
                None => all.push(Self { cell: cell.clone(), contestants: vec![name.to_owned()] }),
            }
        }
        all
    }
}

/// The description of a run, in its record's header.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BenchPlan {
    /// The definition's name.
    pub name: String,
    /// The question.
    pub about: String,
    /// The requests in words.
    pub workload: String,
    /// The kind of the load.
    pub mode: ModeKind,
    /// The name of the figure that is compared.
    pub compared: String,
    /// The axes of the sweep.
    pub axes: Vec<SweepAxis>,
    /// The contestants.
    pub contestants: Vec<String>,
    /// The contestant that the others are compared with.
    pub baseline: String,
    /// The charts.
    pub charts: Vec<ChartDefinition>,
    /// Whether only the quick part is measured.
    pub quick: bool,
    /// The number of rounds.
    pub rounds: usize,
    /// The keys of the definition, with all changes.
    pub definition: Value,
    /// The given settings of servers.
    pub settings: Value,
    /// The servers that a star stands for and that the system does not allow, each with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_allowed: BTreeMap<String, String>,
    /// How the contestants from outside the catalog are started.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, Value>,
    /// The requests to a service; null without one.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub requests: Value,
}

impl BenchPlan {
    /// The settings of the mode in the definition.
    pub(crate) fn mode_settings<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        let mut settings = self.definition["mode"].as_object().cloned().unwrap_or_default();
        settings.remove("kind");
        Ok(serde_json::from_value(Value::Object(settings))?)
    }

    /// The workload of the definition.
    pub(crate) fn workload_settings(&self) -> anyhow::Result<BenchWorkload> {
        let settings = self.definition["workload"].as_object().cloned().unwrap_or_default();
        Ok(serde_json::from_value(Value::Object(settings))?)
    }

    /// Whether the result is a ranking.
    fn is_comparison(&self) -> bool {
        self.mode == ModeKind::Compare
    }
}

impl fmt::Display for BenchResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ranking(ranking) => ranking.fmt(f),
            Self::Report(report) => report.fmt(f),
        }
    }
}

/// A contestant at a cell, in a round.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The contestant: `tokio_tcp/sharded`. The second entry of the baseline is `NAME (again)`.
    pub contestant: String,
    /// The values of the sweep.
    pub cell: SweepCell,
    /// The round, from 1; 0 for a contestant that was not started.
    pub round: usize,
}

/// The sample of a contestant at a cell, in a round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The contestant's role.
    pub role: Role,
    /// The figures, by their names.
    pub figures: NamedFigures,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.round > 0 {
            write!(f, "round {}: ", self.round)?;
        }
        f.write_str(&self.contestant)?;
        self.cell.iter().try_for_each(|(axis, x)| write!(f, ", {axis} {x}"))
    }
}

impl DefinedExperiment {
    /// The description of the run, for the record's header. A record is resumed only under an equal description.
    pub fn describe(&self) -> Value {
        serde_json::to_value(&self.plan).unwrap_or_default()
    }

    /// Prepares the turns. Returns an error if the baseline of a comparison did wrong in an earlier run.
    pub(crate) fn prepare(&mut self, notebook: &mut Notebook<'_>) -> anyhow::Result<()> {
        let baseline = &self.plan.baseline;
        for CellEntries { cell, .. } in self.cells.iter().filter(|_| self.plan.is_comparison()) {
            let key = Key { contestant: baseline.clone(), cell: cell.clone(), round: 1 };
            if let Some(absence) = notebook.records.absence(&key) {
                bail!("the baseline {baseline} failed, so nothing can be compared with it: {absence}");
            }
        }
        self.turns.prepare(notebook)
    }

    /// Whether nothing can be compared without this cell: its absence ends the run with an error.
    pub(crate) fn is_essential(&self, key: &Key) -> bool {
        self.plan.is_comparison() && key.contestant == self.plan.baseline
    }

    /// The cells in the order in which they are measured. Those of a batch are comparable only with each other: they are recorded
    /// once all are measured, and measured again as a whole if one of them is missing.
    pub(crate) fn batches(&self) -> Vec<Vec<Key>> {
        let keys = |entries: &CellEntries, round: usize| -> Vec<Key> {
            let key = |name: &String| Key { contestant: name.clone(), cell: entries.cell.clone(), round };
            entries.contestants.iter().map(key).collect()
        };
        let places: Vec<usize> = (0..self.cells.len()).collect();
        let batches = (1..=self.plan.rounds).flat_map(|round| {
            let cells = interleaved(round - 1, &places).into_iter().filter_map(|place| self.cells.get(place));
            let of_cell = |entries: &CellEntries| match self.plan.mode.is_of_single_turns() {
                true => interleaved(round - 1, &keys(entries, round)).into_iter().map(|key| vec![key]).collect(),
                false => vec![keys(entries, round)],
            };
            cells.flat_map(of_cell).collect::<Vec<_>>()
        });
        batches.collect()
    }

    /// Computes the result of the records.
    ///
    /// # Errors
    ///
    /// Returns an error if the record is not of an experiment from a definition.
    pub fn report(records: &Records) -> anyhow::Result<BenchResult> {
        let plan: BenchPlan = serde_json::from_value(records.header.plan.clone())?;
        Ok(match plan.is_comparison() {
            true => BenchResult::Ranking(Box::new(Ranking::of(records)?)),
            false => BenchResult::Report(Box::new(Report::of(records)?)),
        })
    }

    /// The result as the command prints it, with the flags that change only that.
    pub(crate) fn text(&self, result: &BenchResult) -> String {
        match result {
            BenchResult::Ranking(ranking) => ranking.text(self.wide, is_coloured()),
            BenchResult::Report(report) => wrapped(&report.to_string(), INDENT),
        }
    }
}

impl BenchResult {
    /// The tables, claims, charts and CSV files of the result of these records.
    pub(crate) fn summarize(&self, records: &Records) -> anyhow::Result<Summary> {
        let report = match self {
            Self::Report(report) => report,
            Self::Ranking(ranking) => return Ok(ranking.summary()),
        };
        let mut csv = vec![(String::new(), report.csv(records)?)];
        if report.plan.mode == ModeKind::Tasks {
            csv.push((String::from("_schedule"), tasks::table::schedules_csv(records)?));
        }
        if report.plan.mode == ModeKind::Scenario {
            csv.push((String::from("_groups"), scenario::groups_csv(records)?));
        }
        let answer = vec![report.answer.clone()];
        Ok(Summary { answer, tables: report.tables(), charts: report.charts(), claims: report.claims.clone(), csv })
    }

    /// Returns false if the result itself makes the command fail. It can be of an interrupted run.
    pub fn is_passed(&self) -> bool {
        !matches!(self, Self::Report(report) if report.passed == Some(false))
    }
}
