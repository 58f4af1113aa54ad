//! The server and the store: a server of ours in this process, or a server of others in a process of its own.
//!
//! Invariant: the report names what a process cannot be asked from outside: its store's count of entities, and the server's
//! own counts if it does not print them. Cost: the store of a process is filled over HTTP, with an exchange for each id.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use polyserve::catalog::{RepoEntry, ServerEntry};
use polyserve::service::EntityService;
use polyserve::{Connections, EntityRepo, Running, ServerConfig, ServerExt as _};
use polyserve_lab::data::EntityVersion;
use polyserve_lab::launch::Launch;
use polyserve_lab::launch::process::Process;
use polyserve_lab::machine::cores::Cores;

use super::client::{Shared, Tally, ask};
use super::connection::Response;
use super::outcome::Counts;
use super::scenario::{Phase, Scenario, Task};
use super::threads::{LOOKERS, together};
use super::verify;

/// The server and the store.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A server of ours, in this process.
    Own(Box<OwnServer>),
    /// A server of others in a process, with a store of its own.
    Apart {
        /// The server's name.
        name: String,
        /// The process.
        launch: Launch,
    },
}

/// A server of ours over a store.
#[derive(Clone, Debug)]
pub struct OwnServer {
    /// The server.
    pub server: ServerEntry,
    /// The store.
    pub repo: RepoEntry,
    /// The server's settings.
    pub config: ServerConfig,
}

impl From<OwnServer> for Subject {
    fn from(contestant: OwnServer) -> Self {
        Self::Own(Box::new(contestant))
    }
}

/// A subject that runs.
pub(super) enum Stage {
    Own { running: Running, repo: Arc<dyn EntityRepo>, connections: Connections },
    Apart(Process),
}

impl Subject {
    /// The names of the server and of the store.
    pub fn names(&self) -> (&str, &str) {
        match self {
            Self::Own(contestant) => (&contestant.server.name, &contestant.repo.name),
            Self::Apart { name, .. } => (name, "its own store"),
        }
    }

    /// Starts the server. A store of ours is filled before.
    pub(super) fn start(&self, scenario: &Scenario) -> anyhow::Result<Stage> {
        match self {
            Self::Own(contestant) => {
                let server = (contestant.server.make)(&contestant.config)?;
                let repo = (contestant.repo.make)().context("the repo cannot be made")?;
                fill(&*repo, scenario).context("the repo cannot be filled")?;
                let service = EntityService::new(Arc::clone(&repo));
                let running = server.serve(([127, 0, 0, 1], 0), service).context("the server cannot be started")?;
                Ok(Stage::Own { running, repo, connections: server.connections() })
            }
            Self::Apart { name, launch } => {
                let cores = Cores::available().context("the cores of this machine are not known")?;
                Ok(Stage::Apart(Process::start(launch, &cores).with_context(|| format!("{name} cannot be started"))?))
            }
        }
    }
}

fn fill(repo: &dyn EntityRepo, scenario: &Scenario) -> anyhow::Result<()> {
    for id in 0..scenario.ids().cast_signed() {
        let _ = repo.put(scenario.data.row(id, EntityVersion::New).entity).wait()?;
    }
    Ok(())
}

impl Stage {
    /// The server's address.
    pub(super) fn addr(&self) -> SocketAddr {
        match self {
            Self::Own { running, .. } => running.local_addr(),
            Self::Apart(process) => process.addr(),
        }
    }

    /// Returns true if the server serves one connection at a time.
    pub(super) fn is_single(&self) -> bool {
        matches!(self, Self::Own { connections: Connections::One, .. })
    }

    /// Fills the store of a process over HTTP. Returns the number of answers.
    pub(super) fn fill(&self, shared: &Shared<'_>) -> anyhow::Result<u64> {
        if matches!(self, Self::Own { .. }) {
            return Ok(0);
        }
        let next = AtomicU64::new(0);
        let one = |_start| {
            let (mut tally, mut kept) = (Tally::default(), None);
            loop {
                let id = next.fetch_add(1, Ordering::Relaxed);
                if id >= shared.scenario.ids() || shared.errors.is_hopeless() {
                    return tally.answers;
                }
                let task = Task { phase: Phase::PutNew, id: id.cast_signed(), draw: EntityVersion::New };
                let request = shared.scenario.request(&task, shared.addr, true);
                let check = |response: &Response<'_>| verify::answer(shared.scenario, &task, response);
                if let Err(why) = ask(shared.addr, &mut kept, &request, &mut tally, check) {
                    shared.errors.note(|| format!("before the start, PUT of {id}: {why}"));
                }
            }
        };
        Ok(together((0..LOOKERS).map(|_| one))?.iter().sum())
    }

    /// The store's count of entities; `None` if the store is in another process.
    pub(super) fn count(&self, shared: &Shared<'_>) -> Option<u64> {
        let Self::Own { repo, .. } = self else { return None };
        match repo.len().wait() {
            Ok(len) => Some(len),
            Err(error) => {
                shared.errors.note(|| format!("the repo cannot count its entities: {error}"));
                None
            }
        }
    }

    /// Ends the server. Returns the server's own counts; `None` if it does not report them.
    pub(super) fn end(self, shared: &Shared<'_>) -> anyhow::Result<Option<Counts>> {
        match self {
            Self::Own { running, .. } => Ok(Some(running.shutdown().context("the server failed")?.into())),
            Self::Apart(process) => match process.end() {
                Ok(said) => Ok(said.and_then(|line| serde_json::from_str(&line).ok())),
                Err(failure) => {
                    shared.errors.note(|| failure.to_string());
                    Ok(None)
                }
            },
        }
    }
}
