//! The turns of the modes that send requests to servers.
//!
//! The first round at a cell determines the rate of the latencies, if it is not given. If a contestant is slowed, the baseline is
//! measured a few times before: see the module `calibration`.

use std::iter;
use std::time::Duration;

use polyserve::Shape;
use serde::{Deserialize, Serialize};

use super::calibration;
use super::limit::NullServer;
use super::{ReadKeys, Turns};
use crate::bench::experiment::{Key, Sample};
use crate::bench::pattern::ContestantOrigin;
use crate::bench::ranking;
use crate::bench::sweep::{CellValue, SweepAxis, SweepCell};
use crate::experiment::{Absence, Notebook, Records};
use crate::machine::proc::Spent;
use crate::turn::{Contestant, Instrument, Rate, check_contracts, half_of_slowest, measure_round};

/// The `kind` of a [`CellRate`]'s line.
pub(crate) const RATE: &str = "rate";
/// The `kind` of a [`CellBound`]'s line.
pub(crate) const BOUND: &str = "bound";
/// The `kind` of the line of [`OtherProcesses`].
pub(crate) const OTHERS: &str = "other_processes";

/// What a mode of requests reads of a definition.
pub(super) const READS: ReadKeys = ReadKeys {
    origins: &[ContestantOrigin::Catalog, ContestantOrigin::Peer, ContestantOrigin::Reference],
    has_sizes: false,
    axes: &[
        SweepAxis::Connections,
        SweepAxis::Keys,
        SweepAxis::Workers,
        SweepAxis::Payload,
        SweepAxis::Pipeline,
        SweepAxis::Rate,
        SweepAxis::RatePercent,
        SweepAxis::ServerCores,
        SweepAxis::Dist,
        SweepAxis::Method,
    ],
    workload: &[
        "service",
        "requests",
        "welcome",
        "mix",
        "keys",
        "dist",
        "payload",
        "connections",
        "pipeline",
        "close",
        "tls",
        "workers",
        "arrivals",
        "wait",
        "blocking_wait",
        "cpu",
        "times_vary",
    ],
};

/// What the settings of a mode mean for the requests of a cell.
#[derive(Clone, Copy, Debug)]
pub struct RequestSettings {
    /// The time for verification and warm-up.
    pub warm_up: Duration,
    /// The time of the closed loop; zero without one.
    pub slice: Duration,
    /// The time at the fixed rate.
    pub latency_slice: Duration,
    /// The fixed rate, if it is given.
    pub rate: Option<f64>,
    /// Whether the fixed rate is measured.
    pub latency: bool,
}

/// Servers at cells.
#[derive(Debug, Default)]
pub struct RequestTurns {
    cells: Vec<CellPlan>,
    /// The fixed rates that are known.
    rates: Vec<CellRate>,
    /// The null server, if the rates are in per cent of its throughput.
    null_server: Option<NullServer>,
    /// Whether the run ends as soon as each contestant differs from the baseline at each cell.
    stops_when_sure: bool,
    /// The times of all cores at the start of the run.
    spent: Option<Spent>,
    /// Whether this run measured a cell.
    has_measured: bool,
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

/// The fixed rate at a cell, if it is not given.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CellRate {
    /// The cell.
    pub cell: SweepCell,
    /// The rate.
    #[serde(flatten)]
    pub rate: Rate,
}

/// The bound that the shape of a contestant sets on the wait of a connection at a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CellBound {
    pub(crate) contestant: String,
    pub(crate) cell: SweepCell,
    pub(crate) bound: String,
}

/// The share of the cores' time that other processes used.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct OtherProcesses {
    pub(crate) share: f64,
}

impl RequestTurns {
    /// The turns at these cells. Rates in per cent need the null server.
    pub fn new(cells: Vec<CellPlan>, null_server: Option<NullServer>) -> Self {
        Self { cells, null_server, ..Self::default() }
    }

    /// The same turns, of a run that ends as soon as each contestant differs from the baseline, if `stops` is true.
    #[must_use]
    pub fn stopping_when_sure(self, stops: bool) -> Self {
        Self { stops_when_sure: stops, ..self }
    }

    /// The times that all processes spent on the cores of the first cell.
    fn spent(&self) -> Option<Spent> {
        Spent::on(&self.cells.first()?.instrument.cores())
    }

    /// Records the bounds of shapes.
    fn record_bounds(&self, notebook: &mut Notebook<'_>) -> anyhow::Result<()> {
        let known: Vec<CellBound> = notebook.records.facts(BOUND)?;
        for CellPlan { cell, contestants, .. } in &self.cells {
            for one in contestants {
                let Some(bound) = one.bound.clone() else { continue };
                let bound = CellBound { contestant: one.name.clone(), cell: cell.clone(), bound };
                if !known.contains(&bound) {
                    notebook.fact(BOUND, &bound)?;
                }
            }
        }
        Ok(())
    }

    /// The rate of a cell; `None` if the closed loop finds it.
    fn given_rate(&self, plan: &CellPlan) -> Result<Option<f64>, Absence> {
        let percent = plan.cell.get(&SweepAxis::RatePercent).and_then(CellValue::number);
        match percent.zip(self.null_server.as_ref()) {
            Some((percent, null_server)) => Ok(Some(null_server.at(&plan.cell)? * percent as f64 / 100.0)),
            None => Ok(plan.rate),
        }
    }
}

impl AsRef<Self> for CellPlan {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// The cell of a key, and its contestant.
pub(super) fn planned<'a, C: AsRef<CellPlan>>(cells: &'a [C], key: &Key) -> Result<(&'a C, &'a Contestant), Absence> {
    let cell = cells.iter().find(|cell| (*cell).as_ref().cell == key.cell);
    let find = |cell: &'a C| Some((cell, cell.as_ref().contestants.iter().find(|one| one.name == key.contestant)?));
    cell.and_then(find).ok_or_else(|| Absence::failed(format!("{key} is not planned")))
}

/// Checks the foreign contestants of all cells against the contract.
pub(super) fn check_cells<'a>(
    cells: impl IntoIterator<Item = &'a CellPlan>,
    notebook: &mut Notebook<'_>,
) -> anyhow::Result<()> {
    let of_cell = |cell: &'a CellPlan| cell.contestants.iter().map(|one| (one, &cell.instrument.server_cores));
    check_contracts(cells.into_iter().flat_map(of_cell), notebook)
}

impl Turns for RequestTurns {
    fn prepare(&mut self, notebook: &mut Notebook<'_>) -> anyhow::Result<()> {
        self.rates = notebook.records.facts(RATE)?;
        self.spent = self.spent();
        self.record_bounds(notebook)?;
        check_cells(&self.cells, notebook)?;
        if let Some(null_server) = &mut self.null_server {
            null_server.measure(&self.cells, notebook)?;
        }
        self.cells.iter_mut().try_for_each(|plan| calibration::calibrate(plan, notebook))
    }

    fn is_decided(&self, records: &Records, contestants: &[String]) -> bool {
        let entries = |plan: &CellPlan| ranking::entries(records, contestants, &plan.cell);
        self.stops_when_sure && self.cells.iter().all(|plan| entries(plan).is_ok_and(|all| ranking::is_sure(&all)))
    }

    fn finish(&mut self, notebook: &mut Notebook<'_>) -> anyhow::Result<()> {
        let spent = self.spent.take().zip(self.spent());
        if let Some((before, after)) = spent.filter(|_| self.has_measured) {
            notebook.fact(OTHERS, &OtherProcesses { share: after.others_since(&before) })?;
        }
        Ok(())
    }

    fn measure(&mut self, keys: &[Key], notebook: &mut Notebook<'_>) -> Vec<Result<Sample, Absence>> {
        let Some(Key { cell, round, .. }) = keys.first() else { return Vec::new() };
        self.has_measured = true;
        let Some(plan) = self.cells.iter().find(|plan| plan.cell == *cell) else {
            return keys.iter().map(|key| Err(Absence::failed(format!("{key} is not planned")))).collect();
        };
        let given = match self.given_rate(plan) {
            Ok(given) => given,
            Err(absence) => return keys.iter().map(|_| Err(absence.clone())).collect(),
        };
        let is_asked = |one: &&Contestant| keys.iter().any(|key| key.contestant == one.name);
        let contestants: Vec<&Contestant> = plan.contestants.iter().filter(is_asked).collect();
        let recorded = self.rates.iter().find(|rate| rate.cell == *cell).map(|known| known.rate.requests_per_s);
        let mut found = None;
        let rate = |throughputs: &[Option<f64>]| match given.or(recorded) {
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
        let results = measure_round(&plan.instrument, &contestants, *round, rate, begin);
        let results = iter::zip(&contestants, results).map(|(one, result)| {
            let figures = result?;
            if one.shape == Some(Shape::One) && plan.instrument.slice.is_zero() {
                let why = "it serves one connection at a time, so the latency at a fixed rate is that of a queue";
                return Err(Absence::not_available(why));
            }
            Ok(Sample { role: one.role, figures })
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
}
