//! The experiments that a report knows, in the order in which it tells them. A new one is one entry here, and a drawing in
//! `assets/report`.
//!
//! Invariant: a name is there once; every function takes any lines and says what it misses.

use polyserve_experiments::tasks::experiment::Tasks;
use polyserve_experiments::{ladder, matrix, page, stress};
use polyserve_lab::compare::Comparison;
use polyserve_lab::crowd::Crowds;
use polyserve_lab::experiment::{self, Known, known::Recorded};
use polyserve_lab::recommend;
use polyserve_lab::scale::{Scale, bench::Bench};
use polyserve_lab::stores::{Stores, process::Processes, seam::Seam};
use polyserve_lab::trial::Trials;
use polyserve_report::Claim;
use polyserve_report::Table;
use serde_json::Value;

/// Tables by their names.
pub type Tables = Vec<(String, Table)>;

/// What a report knows of an experiment.
#[derive(Debug)]
pub struct Experiment {
    /// The name in its records and of its command.
    pub name: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// Where it was published: the letter and the title of its section in the list of the experiments; `None` for ours.
    pub article: Option<&'static str>,
    /// What it says of the published claims.
    pub claims: fn(&[Value]) -> anyhow::Result<Vec<Claim>>,
    /// Its own tables, by their names.
    pub tables: fn(&[Value]) -> anyhow::Result<Tables>,
    /// What its drawing needs that does not stand in the lines: ratios with intervals, fitted curves.
    pub derived: fn(&[Value]) -> anyhow::Result<Value>,
    /// Why its lines are not all that there was to be, if they are not.
    pub is_short_of: fn(&[Value]) -> Option<String>,
}

/// Sections A to D of the published comparisons.
const A: Option<&str> = Some("A. Entity server: pool size x connections");
const B: Option<&str> = Some("B. CPU tasks: cost and profit of concurrency");
const C: Option<&str> = Some("C. A page that sometimes waits");
const D: Option<&str> = Some("D. Welcome!, one optimisation at a time");

/// One that claims nothing, and whose tables are those of its lines.
const fn plain(name: &'static str, title: &'static str, article: Option<&'static str>) -> Experiment {
    Experiment {
        name,
        title,
        article,
        claims: no_claims,
        tables: no_tables,
        derived: nothing,
        is_short_of: misses_nothing,
    }
}

/// One that is written in the framework.
const fn framework<E: experiment::Experiment>(title: &'static str, article: Option<&'static str>) -> Experiment {
    Experiment {
        name: E::NAME,
        title,
        article,
        claims: |lines| Ok(read::<E>(lines)?.summary.claims),
        tables: |lines| Ok(read::<E>(lines)?.summary.tables),
        derived: |lines| Ok(read::<E>(lines)?.report),
        is_short_of: |lines| read::<E>(lines).ok()?.incomplete,
    }
}

fn read<E: experiment::Experiment>(lines: &[Value]) -> anyhow::Result<Recorded> {
    Known::new::<E>("", None).read(lines)
}

/// All of them.
pub static ALL: &[Experiment] = &[
    framework::<matrix::Matrix>("Pool size x connections", A),
    framework::<stress::Stress>("The stress scenario: 40 000 requests in three groups", A),
    framework::<Tasks>("CPU tasks at once", B),
    framework::<page::WaitingPage>("A page that sometimes waits", C),
    framework::<ladder::Ladder>("Welcome!, one optimisation at a time", D),
    framework::<Scale<Bench>>("How cost grows", None),
    framework::<Stores<Processes>>("Stores without a server", None),
    framework::<Seam>("What the seam costs", None),
    framework::<Comparison>("Strategies side by side", None),
    framework::<Trials>("Whether comparisons can be believed", None),
    framework::<Crowds>("Beside idle and slow crowds", None),
    Experiment { tables: recommend::table::tables, ..plain("recommend", "Recommended for a workload", None) },
];

/// What is known of an experiment that is not known.
static UNKNOWN: Experiment = plain("", "Another experiment", None);

/// The one of this name, or one that knows nothing.
pub fn named(name: &str) -> &'static Experiment {
    ALL.iter().find(|experiment| experiment.name == name).unwrap_or(&UNKNOWN)
}

impl Experiment {
    /// Where it stands among all; those that are not known stand last.
    pub fn place(&self) -> usize {
        ALL.iter().position(|experiment| experiment.name == self.name).unwrap_or(ALL.len())
    }
}

fn no_claims(_: &[Value]) -> anyhow::Result<Vec<Claim>> {
    Ok(Vec::new())
}

fn no_tables(_: &[Value]) -> anyhow::Result<Tables> {
    Ok(Vec::new())
}

fn nothing(_: &[Value]) -> anyhow::Result<Value> {
    Ok(Value::Null)
}

fn misses_nothing(_: &[Value]) -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_there_once_and_another_is_last() {
        for (place, experiment) in ALL.iter().enumerate() {
            assert_eq!(named(experiment.name).place(), place, "{}", experiment.name);
        }
        assert_eq!(named("another").place(), ALL.len());
    }

    /// They are shown for whatever was recorded.
    #[test]
    fn no_lines_are_no_reason_to_panic() {
        for experiment in ALL {
            let _ = (experiment.claims)(&[]);
            let _ = (experiment.tables)(&[]);
            let _ = (experiment.derived)(&[]);
            let _ = (experiment.is_short_of)(&[]);
        }
    }
}
