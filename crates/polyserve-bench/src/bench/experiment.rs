//! The experiment: all contestants at every cell, round by round.
//!
//! Invariant: the samples of a cell and a round were measured together. Cost: the measurements of the cells.

use std::fmt;
use std::iter;

use crate::report::Summary;
use polyserve::Shape;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::NAME;
use super::definition::{ChartDefinition, ModeKind, SweepAxis, SweepCell};
use super::figures::{self, NamedFigures};
use super::report::Report;
use crate::compare::contract::{self, Contract};
use crate::compare::sample::Rate;
use crate::compare::{CONTRACT, Contestant, Instrument, Role, half_of_slowest, round};
use crate::experiment::{Absence, Absent, Batch, Experiment, Notebook, Records, interleaved};

/// The `kind` of a [`CellRate`]'s line.
pub(super) const RATE: &str = "rate";

/// An experiment.
#[derive(Debug)]
pub struct DefinedExperiment {
    /// The description of the run.
    pub plan: BenchPlan,
    /// The cells with their contestants.
    pub cells: Vec<CellPlan>,
    /// The contestants that cannot take part at a cell.
    pub absent: Vec<Absent<Key>>,
    /// The number of rounds.
    pub rounds: usize,
    /// The fixed rates that are known.
    rates: Vec<CellRate>,
}

/// A cell, and what is measured there.
#[derive(Debug)]
pub struct CellPlan {
    /// The values of the sweep.
    pub cell: SweepCell,
    /// The contestants, the baseline first.
    pub contestants: Vec<Contestant>,
    /// How they are measured.
    pub instrument: Instrument,
    /// The fixed rate. Without one, a closed loop takes half of the slowest contestant's throughput.
    pub rate: Option<f64>,
    /// Whether the fixed rate is measured.
    pub latency: bool,
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

/// The fixed rate at a cell, if it is not given.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CellRate {
    /// The cell.
    pub cell: SweepCell,
    /// The rate.
    #[serde(flatten)]
    pub rate: Rate,
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
    /// An experiment of these cells.
    pub fn new(plan: BenchPlan, cells: Vec<CellPlan>, absent: Vec<Absent<Key>>) -> Self {
        Self { rounds: plan.rounds, plan, cells, absent, rates: Vec::new() }
    }

    /// Checks the foreign contestants against the contract, each once.
    fn check_contracts(&self, notebook: &mut Notebook<'_, Self>) -> anyhow::Result<()> {
        let mut known: Vec<String> =
            notebook.records().facts::<Contract>(CONTRACT)?.into_iter().map(|contract| contract.name).collect();
        for CellPlan { contestants, instrument, .. } in &self.cells {
            for contestant in contestants.iter().filter(|one| one.checks_contract && one.role != Role::Same) {
                if known.contains(&contestant.name) || notebook.is_stopped() {
                    continue;
                }
                known.push(contestant.name.clone());
                notebook.progress.begin(format!("contract: {}", contestant.name));
                // A contestant that cannot be started fails in its first round.
                if let Ok(contract) = contract::check(contestant, &instrument.server_cores) {
                    notebook.fact(CONTRACT, &contract)?;
                }
            }
        }
        Ok(())
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
        self.rates = notebook.records().facts(RATE)?;
        self.check_contracts(notebook)
    }

    fn plan(&self) -> crate::experiment::Plan<Key> {
        let keys = |plan: &CellPlan, round: usize| -> Vec<Key> {
            let key = |one: &Contestant| Key { contestant: one.name.clone(), cell: plan.cell.clone(), round };
            plan.contestants.iter().map(key).collect()
        };
        let places: Vec<usize> = (0..self.cells.len()).collect();
        let batches = (1..=self.rounds).flat_map(|round| {
            let cells = interleaved(round - 1, &places).into_iter().filter_map(|place| self.cells.get(place));
            cells.map(|plan| Batch::together(keys(plan, round))).collect::<Vec<_>>()
        });
        let absent = self.absent.clone();
        crate::experiment::Plan { absent, ..crate::experiment::Plan::new(batches.collect()) }
    }

    fn measure_together(&mut self, keys: &[Key], notebook: &mut Notebook<'_, Self>) -> Vec<Result<Sample, Absence>> {
        let Some(Key { cell, round, .. }) = keys.first() else { return Vec::new() };
        let Some(plan) = self.cells.iter().find(|plan| plan.cell == *cell) else {
            return keys.iter().map(|key| Err(Absence::failed(format!("{key} is not planned")))).collect();
        };
        let is_asked = |one: &&Contestant| keys.iter().any(|key| key.contestant == one.name);
        let contestants: Vec<&Contestant> = plan.contestants.iter().filter(is_asked).collect();
        let recorded = self.rates.iter().find(|rate| rate.cell == *cell).map(|known| known.rate.requests_per_s);
        let mut found = None;
        let rate = |throughputs: &[Option<f64>]| match plan.rate.or(recorded) {
            _ if !plan.latency => None,
            Some(rate) => Some(rate),
            None => {
                found = half_of_slowest(&contestants, throughputs, plan.instrument.arrivals);
                Some(found.as_ref()?.requests_per_s)
            }
        };
        let begin = |one: &Contestant| {
            let key = Key { contestant: one.name.clone(), cell: cell.clone(), round: *round };
            notebook.progress.begin(key.to_string());
        };
        let results = round::measure(&plan.instrument, &contestants, *round, rate, begin);
        let results = iter::zip(&contestants, results).map(|(one, result)| {
            let measurement = result?;
            if one.shape == Some(Shape::One) && plan.instrument.slice.is_zero() {
                let why = "it serves one connection at a time, so the latency at a fixed rate is that of a queue";
                return Err(Absence::not_available(why));
            }
            Ok(Sample { role: one.role, figures: figures::of(&measurement) })
        });
        let mut results: Vec<Result<Sample, Absence>> = results.collect();
        if let Some(rate) = found.filter(|_| !notebook.is_stopped()) {
            let rate = CellRate { cell: cell.clone(), rate };
            if let Err(error) = notebook.fact(RATE, &rate) {
                let failed = Absence::failed(format!("the rate of the latencies cannot be recorded: {error:#}"));
                results.iter_mut().for_each(|result| *result = Err(failed.clone()));
            }
            self.rates.push(rate);
        }
        results
    }

    /// A wrong answer excludes a contestant from all cells, any other failure from its cell.
    fn excludes(absence: &Absence, of: &Key, key: &Key) -> bool {
        of.contestant == key.contestant && (absence.is_wrong() || of.cell == key.cell)
    }

    fn report(records: &Records<Self>) -> anyhow::Result<Report> {
        Report::of(records)
    }

    fn summarize(records: &Records<Self>, report: &Report) -> anyhow::Result<Summary> {
        let csv = vec![(String::new(), report.csv(records)?)];
        let answer = vec![report.answer.clone()];
        Ok(Summary { answer, tables: report.tables(), charts: report.charts(), claims: report.claims.clone(), csv })
    }
}
