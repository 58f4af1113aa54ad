//! The experiment: all contestants at every cell, round by round.
//!
//! Invariant: the samples of a cell and a round were measured together. Cost: the measurements of the cells.

use std::fmt;

use crate::report::Summary;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::NAME;
use super::definition::ChartDefinition;
use super::figures::NamedFigures;
use super::mode::{ModeKind, Turns, scenario};
use super::report::Report;
use super::sweep::{SweepAxis, SweepCell};
use crate::experiment::{Absence, Absent, Batch, Experiment, Notebook, Plan, Records, interleaved};
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
    pub absent: Vec<Absent<Key>>,
    /// Measures the contestants of a cell.
    pub turns: Box<dyn Turns>,
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
#[derive(Clone, Debug, Serialize, Deserialize)]
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

impl Experiment for DefinedExperiment {
    const NAME: &'static str = NAME;
    const SAMPLE: &'static str = "row";
    const UNITS: &'static str = "measurements";
    type Key = Key;
    type Sample = Sample;
    type Report = Report;

    fn describe(&self) -> Value {
        serde_json::to_value(&self.plan).unwrap_or_default()
    }

    fn prepare(&mut self, notebook: &mut Notebook<'_, Self>) -> anyhow::Result<()> {
        self.turns.prepare(notebook)
    }

    fn finish(&mut self, notebook: &mut Notebook<'_, Self>) -> anyhow::Result<()> {
        self.turns.finish(notebook)
    }

    fn weight(&self, key: &Key) -> usize {
        self.turns.weight(key)
    }

    fn plan(&self) -> Plan<Key> {
        let keys = |entries: &CellEntries, round: usize| -> Vec<Key> {
            let key = |name: &String| Key { contestant: name.clone(), cell: entries.cell.clone(), round };
            entries.contestants.iter().map(key).collect()
        };
        let places: Vec<usize> = (0..self.cells.len()).collect();
        let batches = (1..=self.plan.rounds).flat_map(|round| {
            let cells = interleaved(round - 1, &places).into_iter().filter_map(|place| self.cells.get(place));
            let batch = |entries: &CellEntries| match self.plan.mode.is_of_single_turns() {
                true => Batch::series(interleaved(round - 1, &keys(entries, round))),
                false => Batch::together(keys(entries, round)),
            };
            cells.map(batch).collect::<Vec<_>>()
        });
        Plan { absent: self.absent.clone(), ..Plan::new(batches.collect()) }
    }

    fn measure_together(&mut self, keys: &[Key], notebook: &mut Notebook<'_, Self>) -> Vec<Result<Sample, Absence>> {
        self.turns.measure(keys, notebook)
    }

    /// A wrong answer excludes a contestant from all cells, and so does a failure at no cell. Any other failure excludes it
    /// from its cell.
    fn excludes(absence: &Absence, of: &Key, key: &Key) -> bool {
        of.contestant == key.contestant && (absence.is_wrong() || of.cell == key.cell || of.cell.is_empty())
    }

    fn report(records: &Records<Self>) -> anyhow::Result<Report> {
        Report::of(records)
    }

    fn summarize(records: &Records<Self>, report: &Report) -> anyhow::Result<Summary> {
        let mut csv = vec![(String::new(), report.csv(records)?)];
        if report.plan.mode == ModeKind::Tasks {
            csv.push((String::from("_schedule"), tasks::table::schedules_csv(records)?));
        }
        if report.plan.mode == ModeKind::Scenario {
            csv.push((String::from("_groups"), scenario::table::groups_csv(records)?));
        }
        let answer = vec![report.answer.clone()];
        Ok(Summary { answer, tables: report.tables(), charts: report.charts(), claims: report.claims.clone(), csv })
    }

    fn is_passed(report: &Report) -> bool {
        report.passed != Some(false)
    }
}
