//! The check of a foreign contestant against the contract. A server that does less work is faster, so the ranking names the
//! rules that it breaks.
//!
//! Cost: one process for each contestant before the first round, and at most 15 s.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use polyserve_conformance::address::{self, AddressReport};
use polyserve_conformance::tls::{forget, trust};
use serde::{Deserialize, Serialize};

use super::contestant::{Contestant, Role};
use crate::experiment::{Absence, Notebook};
use crate::launch::process::Process;
use crate::machine::cores::Cores;

/// The `kind` of a [`Contract`]'s line.
pub(crate) const CONTRACT: &str = "contract";

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
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Checks the foreign contestants, each once, on the cores next to it. Records the results.
pub(crate) fn check_contracts<'a>(
    contestants: impl IntoIterator<Item = (&'a Contestant, &'a Cores)>,
    notebook: &mut Notebook<'_>,
) -> anyhow::Result<()> {
    let recorded = notebook.records.facts::<Contract>(CONTRACT)?;
    let mut known: Vec<String> = recorded.into_iter().map(|contract| contract.name).collect();
    for (contestant, cores) in contestants {
        let is_foreign = contestant.checks_contract && contestant.role != Role::Same;
        if !is_foreign || known.contains(&contestant.name) || notebook.is_stopped() {
            continue;
        }
        known.push(contestant.name.clone());
        notebook.progress.begin(format!("contract: {}", contestant.name));
        // A contestant that cannot be started fails in its first round.
        if let Ok(contract) = check(contestant, cores) {
            notebook.fact(CONTRACT, &contract)?;
        }
    }
    Ok(())
}

/// Starts `contestant` on `cores`, checks it, and ends it.
fn check(contestant: &Contestant, cores: &Cores) -> Result<Contract, Absence> {
    let process = Process::start(&contestant.launch, cores)?;
    let addr = process.addr;
    if let Some(tls) = &contestant.tls {
        trust(addr, Arc::clone(tls.config()), tls.server_name().clone());
    }
    let report = address::check(addr, MAX_WAIT);
    forget(addr); // another process may get the port
    // If the process has died, the checks without an answer have failed already.
    let _ = process.end();
    Ok(Contract { name: contestant.name.clone(), keeps_framing: report.keeps_framing(), report })
}
