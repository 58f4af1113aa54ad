//! The throughput of the null server: the range of a search, and 100 % of the axis `rate_percent`. If requests take time, or are those
//! to a service, it is the throughput of the baseline: the null server has other answers, and would be far above all servers.
//!
//! It is measured once for each workload, before the first round. Cost: the start of a process, and three loads.

use std::time::Duration;

use polyserve_load::RunLength;
use serde::{Deserialize, Serialize};

use super::requests::CellPlan;
use crate::bench::sweep::{SweepAxis, SweepCell, without};
use crate::experiment::{Absence, Notebook};
use crate::launch::process::Process;
use crate::statistics::median;
use crate::turn::{Contestant, Instrument, run};

/// The `kind` of a [`CellLimit`]'s line.
pub const LIMIT: &str = "limit";
/// The median of this number of loads is the throughput of the null server.
const LIMIT_LOADS: usize = 3;
/// The start of a load that does not count.
pub(super) const RAMP: Duration = Duration::from_millis(50);

/// The throughput of the null server with the workload of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellLimit {
    /// The cell without its goal and without its rate.
    pub cell: SweepCell,
    /// The name of the null server.
    pub name: String,
    /// Requests a second, in closed loop.
    pub per_s: f64,
}

/// The null server, and its throughput at the cells.
#[derive(Debug)]
pub struct NullServer {
    contestant: Contestant,
    limits: Vec<CellLimit>,
}

impl NullServer {
    /// A null server that is not measured yet.
    pub fn new(contestant: Contestant) -> Self {
        Self { contestant, limits: Vec::new() }
    }

    /// Measures the throughput with the workloads of these cells that the record does not have.
    pub(super) fn measure<'a>(
        &mut self,
        cells: impl IntoIterator<Item = &'a CellPlan>,
        notebook: &mut Notebook<'_>,
    ) -> anyhow::Result<()> {
        self.limits = notebook.records.facts(LIMIT)?;
        for CellPlan { cell, instrument, .. } in cells {
            let cell = workload_of(cell);
            if notebook.is_stopped() || self.limits.iter().any(|limit| limit.cell == cell) {
                continue;
            }
            let name = self.contestant.name.clone();
            notebook.progress.begin(format!("calibration: {name}"));
            let per_s = per_s(instrument, &self.contestant);
            if notebook.is_stopped() {
                return Ok(());
            }
            let per_s = per_s.map_err(|absence| anyhow::anyhow!("{name}: {}", absence.why))?;
            let limit = CellLimit { cell, name, per_s };
            notebook.fact(LIMIT, &limit)?;
            self.limits.push(limit);
        }
        Ok(())
    }

    /// The throughput with the workload of a cell.
    pub(super) fn at(&self, cell: &SweepCell) -> Result<f64, Absence> {
        let workload = workload_of(cell);
        let limit = self.limits.iter().find(|limit| limit.cell == workload);
        Ok(limit.ok_or_else(|| Absence::failed("the null server was not measured"))?.per_s)
    }
}

/// The part of a cell that the throughput of the null server depends on.
fn workload_of(cell: &SweepCell) -> SweepCell {
    without(cell, &[SweepAxis::GoalUs, SweepAxis::RatePercent])
}

fn per_s(instrument: &Instrument, limit: &Contestant) -> Result<f64, Absence> {
    let process = Process::start(&limit.launch, &instrument.server_cores)?;
    // The mode `rate` has no closed loop.
    let slice = instrument.slice.max(instrument.latency_slice);
    let load = instrument.load(limit, &process).with(|load| {
        (load.warm_up, load.length) = (RAMP, RunLength::Time(slice));
    });
    let measured: Result<Vec<f64>, Absence> = (0..LIMIT_LOADS).map(|_| Ok(run(&load)?.per_second())).collect();
    process.end()?;
    Ok(median(&mut measured?))
}
