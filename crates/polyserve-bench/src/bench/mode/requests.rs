//! The turns of the modes that send requests to servers.

use std::iter;
use std::time::Duration;

use polyserve::Shape;
use serde::{Deserialize, Serialize};

use super::limit::NullServer;
use super::{ReadKeys, Turns};
use crate::bench::experiment::{DefinedExperiment, Key, Sample};
use crate::bench::figures;
use crate::bench::pattern::ContestantOrigin;
use crate::bench::sweep::{CellValue, SweepAxis, SweepCell};
use crate::experiment::{Absence, Notebook};
use crate::turn::{Contestant, Instrument, Rate, check_contracts, half_of_slowest, measure_round};

/// The `kind` of a [`CellRate`]'s line.
pub const RATE: &str = "rate";

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
        "workers",
        "arrivals",
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

impl RequestTurns {
    /// The turns at these cells. Rates in per cent need the null server.
    pub fn new(cells: Vec<CellPlan>, null_server: Option<NullServer>) -> Self {
        Self { cells, rates: Vec::new(), null_server }
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
    notebook: &mut Notebook<'_, DefinedExperiment>,
) -> anyhow::Result<()> {
    let of_cell = |cell: &'a CellPlan| cell.contestants.iter().map(|one| (one, &cell.instrument.server_cores));
    check_contracts(cells.into_iter().flat_map(of_cell), notebook)
}

impl Turns for RequestTurns {
    fn prepare(&mut self, notebook: &mut Notebook<'_, DefinedExperiment>) -> anyhow::Result<()> {
        self.rates = notebook.records().facts(RATE)?;
        check_cells(&self.cells, notebook)?;
        self.null_server.as_mut().map_or(Ok(()), |null_server| null_server.measure(&self.cells, notebook))
    }

    fn measure(
        &mut self,
        keys: &[Key],
        notebook: &mut Notebook<'_, DefinedExperiment>,
    ) -> Vec<Result<Sample, Absence>> {
        let Some(Key { cell, round, .. }) = keys.first() else { return Vec::new() };
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
}
