//! The calibrations: measurements of the baseline before the first round, from which a slowed contestant gets its CPU time.
//!
//! Invariant: once a round of a cell is recorded, its calibrations are not repeated. Cost: at most [`MAX_ATTEMPTS`] measurements
//! of the baseline at each cell with a slowed contestant.

use anyhow::bail;
use serde::{Deserialize, Serialize};

use super::requests::CellPlan;
use crate::bench::experiment::Key;
use crate::bench::figures;
use crate::bench::sweep::SweepCell;
use crate::experiment::{Absence, Notebook, Records};
use crate::statistics::median_of;
use crate::turn::{Contestant, Role, measure_round};

/// The `kind` of a [`CellCalibration`]'s line.
const CALIBRATION: &str = "calibration";
/// The median of this number of calibrations counts.
const CALIBRATIONS: usize = 3;
/// The max number of attempts. A calibration in which the machine had no time for the server does not count.
const MAX_ATTEMPTS: usize = 5;
/// The min throughput of a calibration that counts.
const MIN_REQUESTS_PER_S: f64 = 2.0;
/// The flag of `polyserve serve` that wastes CPU time.
const SPIN_FLAG: &str = "--spin=";

/// A measurement of the baseline at a cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct CellCalibration {
    cell: SweepCell,
    contestant: String,
    requests_per_s: f64,
    requests_per_cpu_s: Option<f64>,
}

/// The calibrations of a cell that count, and the number of all.
fn recorded(records: &Records, cell: &SweepCell) -> anyhow::Result<(Vec<CellCalibration>, usize)> {
    let all: Vec<CellCalibration> = records.facts(CALIBRATION)?;
    let mut own: Vec<CellCalibration> = all.into_iter().filter(|one| one.cell == *cell).collect();
    let count = own.len();
    own.retain(|one| one.requests_per_s >= MIN_REQUESTS_PER_S);
    own.truncate(CALIBRATIONS);
    Ok((own, count))
}

/// Makes the slowed contestants of a cell waste their share of the baseline's CPU time per request.
pub(super) fn calibrate(plan: &mut CellPlan, notebook: &mut Notebook<'_>) -> anyhow::Result<()> {
    let is_slowed = plan.contestants.iter().any(|one| matches!(one.role, Role::Slowed(_)));
    let baseline = plan.contestants.iter().find(|one| one.role == Role::Baseline).cloned();
    let Some(baseline) = baseline.filter(|_| is_slowed) else { return Ok(()) };
    notebook.progress.grow(CALIBRATIONS);
    if notebook.records.samples().any(|(key, _)| key.cell == plan.cell) {
        notebook.progress.skip_steps(CALIBRATIONS);
    } else {
        measure(plan, &baseline, notebook)?;
    }
    if notebook.is_stopped() {
        return Ok(());
    }
    let (counted, _) = recorded(&notebook.records, &plan.cell)?;
    let per_cpu_s = median_of(counted.iter().filter_map(|one| one.requests_per_cpu_s));
    slow(plan, per_cpu_s, notebook)
}

/// Calibrates one contestant.
fn measure(
    CellPlan { cell, instrument, .. }: &CellPlan,
    baseline: &Contestant,
    notebook: &mut Notebook<'_>,
) -> anyhow::Result<()> {
    let name = &baseline.name;
    notebook.progress.skip_steps(recorded(&notebook.records, cell)?.0.len());
    loop {
        let (counted, attempts) = recorded(&notebook.records, cell)?;
        if counted.len() == CALIBRATIONS || attempts >= MAX_ATTEMPTS || notebook.is_stopped() {
            return Ok(());
        }
        if attempts >= CALIBRATIONS {
            notebook.progress.grow(1);
        }
        let begin = |one: &Contestant| notebook.progress.begin(format!("calibration {}: {}", attempts + 1, one.name));
        let result = measure_round(instrument, &[baseline], 0, |_| None, begin).pop();
        if notebook.is_stopped() {
            return Ok(());
        }
        notebook.progress.advance(1);
        match result {
            Some(Ok(found)) => {
                let (cell, contestant) = (cell.clone(), name.clone());
                let requests_per_s = found.get(figures::REQUESTS_PER_S).copied().unwrap_or_default();
                let requests_per_cpu_s = found.get(figures::CPU_US).map(|cpu_us| 1e6 / cpu_us);
                let calibration = CellCalibration { cell, contestant, requests_per_s, requests_per_cpu_s };
                notebook.fact(CALIBRATION, &calibration)?;
            }
            Some(Err(absence)) => {
                let key = Key { contestant: name.clone(), cell: cell.clone(), round: 0 };
                notebook.absence(key, absence.clone())?;
                bail!("the baseline {name} failed, so nothing can be compared with it: {absence}");
            }
            None => return Ok(()),
        }
    }
}

/// Makes the slowed contestants waste their share of the baseline's CPU time per request.
fn slow(plan: &mut CellPlan, per_cpu_s: Option<f64>, notebook: &mut Notebook<'_>) -> anyhow::Result<()> {
    for contestant in &mut plan.contestants {
        let Role::Slowed(percent) = contestant.role else { continue };
        if let Some(per_cpu_s) = per_cpu_s {
            let spin = (1e9 / per_cpu_s * percent / 100.0).round();
            contestant.launch.args.push(format!("{SPIN_FLAG}{spin}").into());
        } else {
            let why = "the CPU time of the baseline's requests is not known, so the slowed server cannot waste a share of this time";
            let key = Key { contestant: contestant.name.clone(), cell: plan.cell.clone(), round: 0 };
            notebook.absence(key, Absence::failed(why))?;
        }
    }
    Ok(())
}
