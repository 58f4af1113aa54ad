//! The published stress scenario: GETs, PUTs of new ids and racing updates at once, every answer verified, and then
//! what is left in the store.
//!
//! A server of ours shares this process with the clients, so that the store's and the server's own counts can be compared
//! with what the clients saw; somebody else's is a process, and says only what it says. The figures are no measure of speed.
//!
//! # Layout
//!
//! * [`scenario`]: what is asked. [`verify`]: whether an answer is right. [`subject`]: what is tested.
//! * [`connection`], [`client`]: who asks. [`round`]: one run against a new server. [`report`]: what came of it.

pub mod client;
pub mod connection;
pub mod report;
pub mod round;
pub mod scenario;
pub mod subject;
pub mod verify;

pub use client::Use;
pub use report::Report;
pub use round::Mode;
pub use scenario::Scenario;
pub use subject::{Contestant, Subject};

/// Puts `subject` under `scenario`, a round for each of `modes`.
///
/// # Errors
///
/// Where a round cannot be run at all; what went wrong in one is in the report.
pub fn run(subject: &Subject, scenario: &Scenario, modes: &[Mode]) -> anyhow::Result<Report> {
    let rounds = modes.iter().map(|mode| round::run(subject, scenario, *mode)).collect::<anyhow::Result<Vec<_>>>()?;
    let (server, repo) = subject.names();
    Ok(Report {
        server: server.to_owned(),
        repo: repo.to_owned(),
        requests: scenario.total(),
        seed: scenario.data.seed(),
        passed: rounds.iter().all(|round| round.error_count == 0),
        rounds,
    })
}
