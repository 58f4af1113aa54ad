//! The server under test, in a process of its own.
//!
//! Invariant: a count that a server does not print at its end, of its store's entities or of its answers, is not known. Cost: the store is filled over HTTP, with an exchange for each id.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::data::EntityVersion;
use crate::launch::Launch;
use crate::launch::process::Process;
use crate::machine::cores::Cores;
use anyhow::Context as _;
use serde::Deserialize;

use super::client::{ClientTally, RoundShared, ask};
use super::connection::StressAnswer;
use super::outcome::DrainCounts;
use super::requests::{RequestGroup, StressRequest};
use super::threads::together;
use super::verify;

/// A server over a store.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The server's name.
    pub server: String,
    /// The process.
    pub launch: Launch,
    /// Whether the server serves one connection at a time.
    pub is_single: bool,
}

/// The last line of a server's output: its counts, and its store's count of entities.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct LastLine {
    #[serde(flatten)]
    pub(super) counts: DrainCounts,
    pub(super) entities: Option<u64>,
}

impl Subject {
    /// Starts the server on all cores.
    pub(super) fn start(&self) -> anyhow::Result<Process> {
        let cores = Cores::available().context("the cores of this machine are not known")?;
        Process::start(&self.launch, &cores).with_context(|| format!("{} cannot be started", self.server))
    }
}

/// Fills the store over HTTP, on this number of connections. Returns the number of answers.
pub(super) fn fill(shared: &RoundShared<'_>, connections: usize) -> anyhow::Result<u64> {
    let next = AtomicU64::new(0);
    let worker = |_start| {
        let (mut tally, mut kept) = (ClientTally::default(), None);
        loop {
            let id = next.fetch_add(1, Ordering::Relaxed);
            if id >= shared.scenario.ids() || shared.errors.is_hopeless() {
                return tally.answers;
            }
            let planned =
                StressRequest { phase: RequestGroup::PutNew, id: id.cast_signed(), version: EntityVersion::New };
            let request = shared.scenario.request(&planned, shared.addr, true);
            let check = |response: &StressAnswer<'_>| verify::answer(shared.scenario, &planned, response);
            if let Err(why) = ask(shared.addr, &mut kept, &request, &mut tally, check) {
                shared.errors.note(|| format!("before the start, PUT of {id}: {why}"));
            }
        }
    };
    Ok(together((0..connections).map(|_| worker))?.iter().sum())
}

/// Ends the server. Returns its last line; `None` if it has no counts.
pub(super) fn end(process: Process, shared: &RoundShared<'_>) -> Option<LastLine> {
    match process.end() {
        Ok(last) => last.and_then(|line| serde_json::from_str(&line).ok()),
        Err(failure) => {
            shared.errors.note(|| failure.to_string());
            None
        }
    }
}
