//! The experiment of one optimisation at a time: `GET /welcome` answers `Welcome!`. Every rung of the ladder is measured
//! against the rung below, and against servers in Go with the same answer.
//!
//! Every rung is a program of its own, which is built before the first round. In a round every contestant has a process, and
//! they take turns in short slices, as in a [comparison](crate::compare). Each subject's lowest rung has a second
//! entry, the control: the ratio of the two entries is the noise of the subject's other ratios.
//!
//! Invariant: a contestant with one wrong answer has no figures. A round is recorded as a whole. Cost: rounds x contestants x
//! about 0.4 s, and the memory of all contestants at once.
//!
//! # Layout
//!
//! * [`rung`]: the rungs. [`variant`], `patch`: how they are built. [`entry`]: the contestants. [`probe`]: one answer of a contestant.
//! * [`experiment`]: the experiment. [`record`]: facts and samples. [`results`]: their ratios. [`report`]: the result.
//! * [`table`]: tables and CSV. `chart`: the chart. [`claims`]: the verdicts on the published claims.

mod chart;
pub mod claims;
pub mod entry;
pub mod experiment;
#[cfg(test)]
mod fixtures;
mod patch;
pub mod probe;
pub mod record;
pub mod report;
pub mod results;
pub mod rung;
pub mod table;
pub mod variant;

use polyserve_load::{Exchange, LoadError, Traffic};

pub use experiment::Ladder;
pub use record::{Key, Sample};
pub use report::Report;
pub use results::Results;

/// The experiment's name.
pub const NAME: &str = "ladder";

/// The request of all contestants, and its answer.
///
/// # Errors
///
/// Returns an error if the request is not valid, which never happens.
pub fn traffic() -> Result<Traffic, LoadError> {
    let welcome = Exchange::new("GET", probe::TARGET).with(|welcome| welcome.answers = vec![probe::BODY.to_vec()]);
    Traffic::expecting(vec![welcome])
}
