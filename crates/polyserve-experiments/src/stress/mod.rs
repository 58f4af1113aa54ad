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
//! * [`record`]: what is kept of it; [`table`]: for docs, and CSV; [`claims`]: what was published, judged.

pub mod claims;
pub mod client;
pub mod connection;
pub mod record;
pub mod report;
pub mod round;
pub mod scenario;
pub mod subject;
pub mod table;
pub mod verify;

use polyserve::Shutdown;

pub use client::Use;
pub use record::{Record, RoundLine};
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
    run_recorded(subject, scenario, modes, &mut Record::none(), &Shutdown::new())
}

/// [`run`], but a round that `record` holds, and in which nothing was wrong, is not run again; and no further round once
/// `stop` has begun.
///
/// # Errors
///
/// As there; or where the record cannot be written.
pub fn run_recorded(
    subject: &Subject,
    scenario: &Scenario,
    modes: &[Mode],
    record: &mut Record,
    stop: &Shutdown,
) -> anyhow::Result<Report> {
    let (server, repo) = subject.names();
    let mut rounds = Vec::new();
    for mode in modes {
        let recorded = record.round(server, repo, mode.name()).cloned();
        let is_good = recorded.as_ref().is_some_and(|round| round.error_count == 0);
        let new = if is_good || stop.is_begun() { None } else { round::run(subject, scenario, *mode, stop)? };
        if let Some(round) = &new {
            record.add(RoundLine::new(server, repo, scenario.total(), round.clone()))?;
        }
        rounds.extend(new.or(recorded));
    }
    Ok(Report {
        server: server.to_owned(),
        repo: repo.to_owned(),
        requests: scenario.total(),
        seed: scenario.data.seed(),
        passed: rounds.iter().all(|round| round.error_count == 0),
        interrupted: rounds.len() < modes.len(),
        rounds,
    })
}
