//! The experiments of a report, in its order. A new experiment is one entry here.
//!
//! Invariant: every name is in the list once.

use polyserve_bench::bench::NAME;
use polyserve_bench::experiment::{KnownExperiment, Recorded, recorded};
use polyserve_bench::recommend;
use polyserve_bench::report::Summary;
use serde_json::Value;

use super::benches;

/// All known experiments.
pub(crate) static ALL: &[KnownExperiment] = &[
    KnownExperiment { name: NAME, title: "Experiments from definitions", read: recorded },
    KnownExperiment { name: "benches", title: "Benchmarks in one process", read: benches::recorded },
    KnownExperiment { name: "executors", title: "Jobs on executors, in one process", read: benches::dispatched },
    KnownExperiment { name: "recommend", title: "Recommended for a workload", read: recommendation },
];

/// An experiment that this program does not know.
static UNKNOWN: KnownExperiment = KnownExperiment { name: "", title: "Another experiment", read: nothing };

/// Returns the experiment of this name, or else the unknown experiment, which has neither tables nor claims.
pub(crate) fn named(name: &str) -> &'static KnownExperiment {
    ALL.iter().find(|experiment| experiment.name == name).unwrap_or(&UNKNOWN)
}

/// The position of the experiment of this name in a report. Unknown experiments are last.
pub(crate) fn position(name: &str) -> usize {
    ALL.iter().position(|experiment| experiment.name == name).unwrap_or(ALL.len())
}

fn recommendation(lines: &[Value]) -> anyhow::Result<Recorded> {
    let Some(last) = recommend::table::last(lines)? else { return nothing(lines) };
    Ok(Recorded { summary: recommend::table::summary(&last), incomplete: None })
}

fn nothing(_: &[Value]) -> anyhow::Result<Recorded> {
    Ok(Recorded { summary: Summary::default(), incomplete: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_there_once_and_another_is_last() {
        for (place, experiment) in ALL.iter().enumerate() {
            assert_eq!(position(named(experiment.name).name), place, "{}", experiment.name);
        }
        assert_eq!(position("another"), ALL.len());
        assert_eq!(named("another").name, "");
    }

    /// A report shows whatever was recorded.
    #[test]
    fn no_lines_are_no_reason_to_panic() {
        for experiment in ALL {
            let _ = (experiment.read)(&[]);
        }
    }
}
