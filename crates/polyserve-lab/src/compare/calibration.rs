//! The calibrations: measurements of the limit and the baseline before the first round.
//!
//! Invariant: once a round is recorded, its calibrations are not repeated. Cost: at most [`MAX_ATTEMPTS`] measurements of the
//! limit, and of the baseline.

use anyhow::bail;
use polyserve_load::Arrivals;

use super::Comparison;
use super::contestant::{Contestant, Role};
use super::lines::Key;
use super::sample::{Measurement, Rate, Sample};
use crate::experiment::{Absence, Notebook, Records};
use crate::statistics::median_of;

/// The latency is measured at this share of the limit's throughput.
const RATE_SHARE: f64 = 0.5;
/// The median of this number of calibrations counts.
const CALIBRATIONS: usize = 3;
/// The max number of attempts. A calibration in which the machine had no time for the server does not count.
const MAX_ATTEMPTS: usize = 5;
/// The flag of `polyserve serve` that wastes CPU time.
const SPIN_FLAG: &str = "--spin=";

/// Returns the places of the contestants to calibrate. The rate needs the first limit, or the baseline if there is no limit.
/// A slowed contestant needs the baseline.
fn places(roles: &[Role], latency: bool) -> Vec<usize> {
    let first = |is_wanted: fn(Role) -> bool| roles.iter().position(|role| is_wanted(*role));
    let baseline = first(|role| role == Role::Baseline);
    let limit = first(|role| role == Role::Limit).or(baseline).filter(|_| latency);
    let slowed = first(|role| matches!(role, Role::Slowed(_))).and(baseline);
    let mut places: Vec<usize> = limit.into_iter().chain(slowed).collect();
    places.dedup();
    places
}

/// Returns true if a calibration counts.
fn counts(measurement: &Measurement) -> bool {
    measurement.requests_per_s * RATE_SHARE >= 1.0
}

/// The recorded calibrations of a contestant that count.
fn counted<'a>(records: &'a Records<Comparison>, name: &'a str) -> impl Iterator<Item = &'a Measurement> {
    let is_calibration = move |(key, _): &(&Key, &Sample)| key.round == 0 && key.name == name;
    let all = records.samples().filter(is_calibration).map(|(_, sample)| &sample.measurement);
    all.filter(|measurement| counts(measurement)).take(CALIBRATIONS)
}

/// Calibrates, and sets the rate and the slowed contestants accordingly.
///
/// # Errors
///
/// Returns an error if the baseline failed in this run, or did wrong in an earlier run.
pub(super) fn calibrate(comparison: &mut Comparison, notebook: &mut Notebook<'_, Comparison>) -> anyhow::Result<()> {
    let baseline = comparison.state.contestants.iter().find(|one| one.role == Role::Baseline);
    if let Some(Contestant { name, .. }) = baseline
        && let Some(absence) = notebook.records().absence(&Key::new(1, name))
    {
        bail!("the baseline {name} failed, so nothing can be compared with it: {absence}");
    }
    let roles: Vec<Role> = comparison.state.contestants.iter().map(|one| one.role).collect();
    let is_settled = notebook.records().samples().any(|(key, _)| key.round > 0);
    comparison.state.rate = comparison.rate;
    for place in places(&roles, comparison.latency && comparison.rate.is_none()) {
        notebook.progress.grow(CALIBRATIONS);
        let contestant = comparison.state.contestants[place].clone();
        if is_settled {
            notebook.progress.skip_steps(CALIBRATIONS);
        } else {
            measure(comparison, &contestant, notebook)?;
        }
        let throughput = median_of(counted(notebook.records(), &contestant.name).map(|one| one.requests_per_s));
        if comparison.latency && comparison.state.rate.is_none() {
            comparison.state.rate = throughput.map(|limit| limit * RATE_SHARE);
        }
        if contestant.role == Role::Baseline && !notebook.is_stopped() {
            let per_cpu_s =
                median_of(counted(notebook.records(), &contestant.name).filter_map(|one| one.requests_per_cpu_s));
            slow(comparison, per_cpu_s, notebook)?;
        }
    }
    Ok(())
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
        let result = comparison.measure_round(0, &[contestant], None, notebook).pop();
        if notebook.is_stopped() {
            break;
        }
        notebook.progress.advance(1);
        let number = notebook.records().samples().filter(|(key, _)| key.round == 0 && key.name == *name).count() + 1;
        let key = Key::calibration(number, name);
        match result {
            Some(Ok(sample)) => notebook.sample(key, sample)?,
            Some(Err(absence)) if contestant.role == Role::Baseline => {
                notebook.absence(key, absence.clone())?;
                bail!("the baseline {name} failed, so nothing can be compared with it: {absence}");
            }
            Some(Err(absence)) => notebook.absence(key, absence)?,
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

/// The rate of the latencies, from the calibrations. Records of format 2 and earlier have it in the latencies only.
pub(super) fn rate(records: &Records<Comparison>, contestants: &[(String, Role)]) -> Option<Rate> {
    let latencies = records.samples().filter_map(|(_, sample)| sample.measurement.latency.as_ref());
    let rate = latencies.map(|latency| latency.rate).next();
    let roles: Vec<Role> = contestants.iter().map(|(_, role)| *role).collect();
    let given = records.header.plan["rate"].as_f64();
    let half_of = || Some(&contestants.get(*places(&roles, true).first()?)?.0);
    let calibrated = || Some(median_of(counted(records, half_of()?).map(|one| one.requests_per_s))? * RATE_SHARE);
    let has_latency = !records.header.plan["latency_slice_s"].is_null();
    let requests_per_s = given.or(rate).or_else(calibrated).filter(|_| has_latency)?;
    // Records of older builds do not name the arrivals: they were even.
    let arrivals = serde_json::from_value(records.header.plan["arrivals"].clone()).unwrap_or(Arrivals::Even);
    let half_of = if given.is_some() { None } else { Some(half_of()?.clone()) };
    Some(Rate { requests_per_s, half_of, arrivals })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_calibrates() {
        let all = [Role::Ranked, Role::Baseline, Role::Limit, Role::Slowed(5.0)];
        assert_eq!(places(&all, true), [2, 1]);
        assert_eq!(places(&all, false), [1]);
        assert_eq!(places(&all[..2], true), [1], "without a limit the baseline sets the rate");
        assert_eq!(places(&all[..2], false), [] as [usize; 0]);
        assert_eq!(places(&[all[1], all[3]], true), [0], "one calibration does both");
    }
}
