//! The calibrations: measurements of the baseline before the first round, from which a slowed contestant gets its CPU time.
//!
//! Invariant: once a round is recorded, its calibrations are not repeated, and its rate is that of all rounds. Cost: at most
//! [`MAX_ATTEMPTS`] measurements of the baseline.

use anyhow::bail;
use polyserve_load::Arrivals;

use super::Comparison;
use super::lines::{Key, RATE, Sample};
use crate::experiment::{Absence, Notebook, Records};
use crate::statistics::median_of;
use crate::turn::{Contestant, Measurement, Rate, Role};

/// The median of this number of calibrations counts.
const CALIBRATIONS: usize = 3;
/// The max number of attempts. A calibration in which the machine had no time for the server does not count.
const MAX_ATTEMPTS: usize = 5;
/// The flag of `polyserve serve` that wastes CPU time.
const SPIN_FLAG: &str = "--spin=";

/// Returns true if a calibration counts.
fn counts(measurement: &Measurement) -> bool {
    measurement.requests_per_s >= 2.0
}

/// The recorded calibrations of a contestant that count.
fn counted<'a>(records: &'a Records<Comparison>, name: &'a str) -> impl Iterator<Item = &'a Measurement> {
    let is_calibration = move |(key, _): &(&Key, &Sample)| key.round == 0 && key.name == name;
    let all = records.samples().filter(is_calibration).map(|(_, sample)| &sample.measurement);
    all.filter(|measurement| counts(measurement)).take(CALIBRATIONS)
}

/// Sets the rate as it is given or recorded. Calibrates the slowed contestants.
///
/// # Errors
///
/// Returns an error if the baseline failed in this run, or did wrong in an earlier run.
pub(super) fn calibrate(comparison: &mut Comparison, notebook: &mut Notebook<'_, Comparison>) -> anyhow::Result<()> {
    let recorded = notebook.records().facts::<Rate>(RATE)?.pop();
    comparison.state.rate = comparison.rate.or(recorded.map(|rate| rate.requests_per_s));
    let Some(baseline) = comparison.state.contestants.iter().find(|one| one.role == Role::Baseline).cloned() else {
        return Ok(());
    };
    let name = &baseline.name;
    if let Some(absence) = notebook.records().absence(&Key::new(1, name)) {
        bail!("the baseline {name} failed, so nothing can be compared with it: {absence}");
    }
    if !comparison.state.contestants.iter().any(|one| matches!(one.role, Role::Slowed(_))) {
        return Ok(());
    }
    notebook.progress.grow(CALIBRATIONS);
    if notebook.records().samples().any(|(key, _)| key.round > 0) {
        notebook.progress.skip_steps(CALIBRATIONS);
    } else {
        measure(comparison, &baseline, notebook)?;
    }
    if notebook.is_stopped() {
        return Ok(());
    }
    let per_cpu_s = median_of(counted(notebook.records(), name).filter_map(|one| one.requests_per_cpu_s));
    slow(comparison, per_cpu_s, notebook)
}

/// Calibrates one contestant.
fn measure(
    comparison: &mut Comparison,
    contestant: &Contestant,
    notebook: &mut Notebook<'_, Comparison>,
) -> anyhow::Result<()> {
    let name = &contestant.name;
    let before = counted(notebook.records(), name).count();
    notebook.progress.skip_steps(before);
    for attempt in before..MAX_ATTEMPTS {
        let is_failed = notebook.records().absence(&Key::new(0, name)).is_some();
        let is_done = counted(notebook.records(), name).count() == CALIBRATIONS;
        if is_done || is_failed || notebook.is_stopped() {
            break;
        }
        if attempt >= CALIBRATIONS {
            notebook.progress.grow(1);
        }
        let result = comparison.measure_round(0, &[contestant], notebook).pop();
        if notebook.is_stopped() {
            break;
        }
        notebook.progress.advance(1);
        let number = notebook.records().samples().filter(|(key, _)| key.round == 0 && key.name == *name).count() + 1;
        let key = Key::calibration(number, name);
        match result {
            Some(Ok(sample)) => notebook.sample(key, sample)?,
            Some(Err(absence)) => {
                notebook.absence(key, absence.clone())?;
                bail!("the baseline {name} failed, so nothing can be compared with it: {absence}");
            }
            None => break,
        }
    }
    Ok(())
}

/// Makes the slowed contestants waste their share of the baseline's CPU time per request.
fn slow(
    comparison: &mut Comparison,
    per_cpu_s: Option<f64>,
    notebook: &mut Notebook<'_, Comparison>,
) -> anyhow::Result<()> {
    for contestant in &mut comparison.state.contestants {
        let Role::Slowed(percent) = contestant.role else { continue };
        if let Some(per_cpu_s) = per_cpu_s {
            let spin = (1e9 / per_cpu_s * percent / 100.0).round();
            contestant.launch.args.push(format!("{SPIN_FLAG}{spin}").into());
        } else {
            let why = "the CPU time of the baseline's requests is not known, so the slowed server cannot waste a share of this time";
            notebook.absence(Key::new(0, &contestant.name), Absence::failed(why))?;
        }
    }
    Ok(())
}

/// The rate of the latencies. Records of older builds do not name it: it was half of the first limit's throughput.
pub(super) fn rate(records: &Records<Comparison>, contestants: &[(String, Role)]) -> anyhow::Result<Option<Rate>> {
    let (plan, recorded) = (&records.header.plan, records.facts::<Rate>(RATE)?.pop());
    let measured = records.samples().find_map(|(_, sample)| Some(sample.measurement.latency.as_ref()?.rate));
    let arrivals = serde_json::from_value(plan["arrivals"].clone()).unwrap_or(Arrivals::Even);
    let of_limit = |requests_per_s| {
        let limit = contestants.iter().find(|(_, role)| *role == Role::Limit).map(|(name, _)| name.clone());
        Rate { requests_per_s, half_of: limit, arrivals }
    };
    let given = plan["rate"].as_f64().map(|requests_per_s| Rate { requests_per_s, half_of: None, arrivals });
    let has_latency = !plan["latency_slice_s"].is_null();
    Ok(given.or(recorded).or_else(|| measured.map(of_limit)).filter(|_| has_latency))
}
