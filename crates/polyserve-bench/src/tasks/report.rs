//! The result: everything measured, and the verdicts on the published claims.

use std::fmt;

use crate::report::figures::count;
use crate::report::{Claim, shown_claims};
use serde::Serialize;

use super::claims::verdicts;
use super::measured::{Measured, Speed};
use super::record::{Calibration, When};
use super::table::tables;

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Everything that was measured.
    #[serde(flatten)]
    pub measured: Measured,
    /// The steps per second of each contestant.
    pub speeds: Vec<Speed>,
    /// The verdicts on the published claims.
    pub claims: Vec<Claim>,
}

impl Report {
    /// The result of the measurement.
    ///
    /// # Errors
    ///
    /// Returns an error if a published file cannot be read.
    pub fn of(measured: Measured) -> anyhow::Result<Self> {
        let (speeds, claims) = (measured.speeds(), verdicts(&measured)?);
        Ok(Self { measured, speeds, claims })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { measured, claims, .. } = self;
        for Calibration { steps, measured_ms, contestant } in &measured.calibrations {
            writeln!(f, "a task is {} steps: {measured_ms:.1} ms of {contestant}", count(*steps as f64))?;
        }
        if let Some(plan) = &measured.plan {
            writeln!(f, "cores: {}\n", plan.core_count)?;
        }
        for (name, table) in tables(measured).map_err(|_| fmt::Error)? {
            writeln!(f, "{name}\n{table}")?;
        }
        if !measured.cells.is_empty() {
            writeln!(
                f,
                "d1: the duration of a task alone, the median of 5 runs; cost: 1 - t d1 / sum(d); profit: 1 - total / (t d1)"
            )?;
            writeln!(f, "drift: the change of d1 from the start of the run to its end")?;
            writeln!(
                f,
                "working, waiting for a core, overhead: shares of the sum of the durations, by the CPU time of the tasks'"
            )?;
            writeln!(f, "threads, or of the whole process if goroutines change threads\n")?;
            f.write_str(&shown_claims(claims))?;
        }
        let missing = measured.singles.iter().all(|single| single.when != When::After);
        if missing && !measured.cells.is_empty() {
            writeln!(f, "the single runs at the end are missing, so the drift is not known")?;
        }
        Ok(())
    }
}
