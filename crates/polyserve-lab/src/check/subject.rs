//! Who is asked.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use polyserve::EntityRepo;
use polyserve::catalog::RepoEntry;

use crate::launch::Launch;
use crate::launch::process::Process;
use crate::machine::cores::Cores;

/// Who is asked.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A server over a repo, in a process of its own.
    Server {
        /// The server's name.
        server: String,
        /// The repo's name.
        repo: String,
        /// How the process is started.
        launch: Launch,
    },
    /// A repo, in this process.
    Repo(RepoEntry),
    /// Whoever listens there.
    Somebody {
        /// What they are called.
        name: String,
        /// Where.
        addr: SocketAddr,
    },
}

/// One that is there to be asked.
pub(super) enum Stage {
    Process(Process),
    There(Target),
}

/// Who is asked, as clients see it.
#[derive(Clone)]
pub(super) enum Target {
    Addr(SocketAddr),
    Repo(Arc<dyn EntityRepo>),
}

impl Subject {
    /// The server's name, and the repo's, as far as there are such.
    pub fn names(&self) -> (&str, &str) {
        match self {
            Self::Server { server, repo, .. } => (server, repo),
            Self::Repo(repo) => ("in process", &repo.name),
            Self::Somebody { name, .. } => (name, "its own store"),
        }
    }

    /// The first key that is asked for: far from anybody's where the store is not ours.
    pub(super) fn first_key(&self) -> i64 {
        if matches!(self, Self::Somebody { .. }) { -9000 } else { 1 }
    }

    pub(super) fn start(&self) -> anyhow::Result<Stage> {
        match self {
            Self::Server { launch, .. } => {
                let cores = Cores::available().context("the cores of this machine are not known")?;
                Ok(Stage::Process(Process::start(launch, &cores)?))
            }
            Self::Repo(repo) => {
                let repo = (repo.make)().context("the repo cannot be made")?;
                Ok(Stage::There(Target::Repo(repo)))
            }
            Self::Somebody { addr, .. } => Ok(Stage::There(Target::Addr(*addr))),
        }
    }
}

impl Stage {
    pub(super) fn target(&self) -> Target {
        match self {
            Self::Process(process) => Target::Addr(process.addr()),
            Self::There(target) => target.clone(),
        }
    }

    /// Ends what was started, and sees that it ends well.
    pub(super) fn end(self) -> anyhow::Result<()> {
        if let Self::Process(process) = self {
            process.end()?;
        }
        Ok(())
    }
}
