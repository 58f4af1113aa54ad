//! The server or repo under test.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use polyserve::EntityRepo;
use polyserve::catalog::RepoEntry;
use polyserve_conformance::history::{EntityForm, HttpTarget, first_answer};
use polyserve_conformance::tls::trust;
use polyserve_load::ClientTls;

use crate::launch::Launch;
use crate::launch::process::Process;
use crate::machine::cores::Cores;

/// The server or repo under test.
#[derive(Clone, Debug)]
pub enum CheckSubject {
    /// A server over a repo, in a process of its own.
    Server {
        /// The server's name.
        server: String,
        /// The repo's name.
        repo: String,
        /// The launch of the process. The server must send entity tags.
        launch: Launch,
    },
    /// A repo, in this process.
    Repo(RepoEntry),
    /// A server that runs already.
    Address {
        /// Its name in the report.
        name: String,
        /// Its address, and the host that requests name.
        target: HttpTarget,
        /// How it speaks TLS, if it does.
        tls: Option<ClientTls>,
    },
}

/// The time that a server which runs already has for each of its first connection, handshake and answer.
const FIRST_ANSWER: Duration = Duration::from_secs(3);

/// A subject that accepts operations.
pub(super) enum Stage {
    Process(Process),
    There(CheckTarget),
}

/// A subject as clients use it.
#[derive(Clone)]
pub(super) enum CheckTarget {
    Http(HttpTarget),
    Repo(Arc<dyn EntityRepo>),
}

impl CheckSubject {
    /// The names of the server and of the repo.
    pub(crate) fn names(&self) -> (&str, &str) {
        match self {
            Self::Server { server, repo, .. } => (server, repo),
            Self::Repo(repo) => ("in process", &repo.name),
            Self::Address { name, .. } => (name, "its own store"),
        }
    }

    /// The first key. A server that runs already may have entities, so its keys are far from common ids.
    pub(super) fn first_key(&self) -> i64 {
        if matches!(self, Self::Address { .. }) { -9000 } else { 1 }
    }

    /// Whether writes are recorded with conditions. A server that runs already may have no entity tags.
    pub(super) fn takes_conditions(&self) -> bool {
        !matches!(self, Self::Address { .. })
    }

    pub(super) fn start(&self) -> anyhow::Result<Stage> {
        match self {
            Self::Server { launch, .. } => {
                let cores = Cores::available().context("the cores of this machine are not known")?;
                Ok(Stage::Process(Process::start(launch, &cores)?))
            }
            Self::Repo(repo) => {
                let repo = repo.build().context("the repo cannot be made")?;
                Ok(Stage::There(CheckTarget::Repo(repo)))
            }
            Self::Address { target, tls, .. } => {
                if let Some(tls) = tls {
                    trust(target.addr, Arc::clone(tls.config()), tls.server_name().clone());
                }
                let answered = first_answer(target, EntityForm::Published, self.first_key(), FIRST_ANSWER);
                answered.map_err(|why| anyhow!("{} cannot be checked: {why}", target.addr))?;
                Ok(Stage::There(CheckTarget::Http(target.clone())))
            }
        }
    }
}

impl Stage {
    pub(super) fn target(&self) -> CheckTarget {
        match self {
            Self::Process(process) => CheckTarget::Http(process.addr.into()),
            Self::There(target) => target.clone(),
        }
    }

    /// Ends the process, and checks that it ended without an error.
    pub(super) fn end(self) -> anyhow::Result<()> {
        if let Self::Process(process) = self {
            process.end()?;
        }
        Ok(())
    }
}
