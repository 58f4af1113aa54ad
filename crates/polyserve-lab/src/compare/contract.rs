//! What a contestant that is not ours keeps of the contract. A server that does less is faster for it, so what it leaves out
//! stands beside its figure.
//!
//! Cost: a process of its own for each, before the first turn, and at most 15 s.

use std::fmt;
use std::time::Duration;

use polyserve_conformance::address::{self, AddressReport};
use serde::{Deserialize, Serialize};

use super::contestant::Contestant;
use crate::launch::process::{Failure, Process};
use crate::machine::cores::Cores;

/// What was found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Contract {
    /// The contestant's name.
    pub name: String,
    /// Whether it keeps what the RFC demands of framing.
    pub keeps_framing: bool,
    /// All that was looked at.
    #[serde(flatten)]
    pub report: AddressReport,
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.report)
    }
}

/// What is waited for at most.
const PATIENCE: Duration = Duration::from_secs(1);

/// Starts `contestant` on `cores`, looks, and ends it.
///
/// # Errors
///
/// Where it cannot be started, which its first turn will show too.
pub fn look(contestant: &Contestant, cores: &Cores) -> Result<Contract, Failure> {
    let process = Process::start(&contestant.launch, cores)?;
    let report = address::check(process.addr(), PATIENCE);
    // One that did not outlive it has failed by name what it did not answer.
    let _ = process.end();
    Ok(Contract { name: contestant.name.clone(), keeps_framing: report.keeps_framing(), report })
}
