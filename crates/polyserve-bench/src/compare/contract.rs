//! The check of a foreign contestant against the contract. A server that does less work is faster, so the ranking names the
//! rules that it breaks.
//!
//! Cost: one process for each contestant before the first round, and at most 15 s.

use std::fmt;
use std::time::Duration;

use polyserve_conformance::address::{self, AddressReport};
use serde::{Deserialize, Serialize};

use super::contestant::Contestant;
use crate::launch::process::{Failure, Process};
use crate::machine::cores::Cores;

/// The result of a check.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Contract {
    /// The contestant's name.
    pub name: String,
    /// Whether the contestant keeps the framing rules of the RFC.
    pub keeps_framing: bool,
    /// All rules.
    #[serde(flatten)]
    pub report: AddressReport,
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.report)
    }
}

/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Starts `contestant` on `cores`, checks it, and ends it.
///
/// # Errors
///
/// Returns an error if the contestant cannot be started.
pub fn check(contestant: &Contestant, cores: &Cores) -> Result<Contract, Failure> {
    let process = Process::start(&contestant.launch, cores)?;
    let report = address::check(process.addr(), PATIENCE);
    // If the process has died, the checks without an answer have failed already.
    let _ = process.end();
    Ok(Contract { name: contestant.name.clone(), keeps_framing: report.keeps_framing(), report })
}
