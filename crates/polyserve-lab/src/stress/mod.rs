//! The published stress scenario: GETs, PUTs of new ids and racing updates at once, every answer verified, and then
//! what is left in the store.
//!
//! Server and clients share this process, so that the server's own count of answers can be compared with what the
//! clients saw; its figures are no measure of speed.
//!
//! # Layout
//!
//! * [`scenario`]: what is asked. [`verify`]: whether an answer is right.
//! * [`connection`], [`client`]: who asks. [`round`]: one run against a new server. [`report`]: what came of it.

pub mod client;
pub mod connection;
pub mod report;
pub mod round;
pub mod scenario;
pub mod verify;

pub use client::Use;
pub use report::Report;
pub use round::{Contestant, Mode};
pub use scenario::Scenario;

/// Puts `contestant` under `scenario`, a round for each of `modes`.
///
/// # Errors
///
/// Where a round cannot be run at all; what went wrong in one is in the report.
pub fn run(contestant: &Contestant, scenario: &Scenario, modes: &[Mode]) -> anyhow::Result<Report> {
    let rounds =
        modes.iter().map(|mode| round::run(contestant, scenario, *mode)).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(Report {
        server: contestant.server.name.clone(),
        repo: contestant.repo.name.clone(),
        requests: scenario.total(),
        seed: scenario.data.seed(),
        passed: rounds.iter().all(|round| round.error_count == 0),
        rounds,
    })
}
