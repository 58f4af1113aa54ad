//! The programs from outside the catalog that a command line names: `--peers hyper,go/nethttp` or `--peers all`.

use std::path::PathBuf;

use polyserve_bench::Misuse;
use polyserve_bench::contestants::{ALL, Program, Registry};

/// The arguments of a command with programs from outside the catalog.
#[derive(Debug, clap::Args)]
pub(crate) struct PeerArgs {
    /// Servers from outside the catalog, separated by commas, or all: frameworks in Rust such as hyper, servers in Go such as
    /// go/nethttp, nginx, and those of --contestants. They are built first, which takes minutes the first time.
    #[arg(long, value_name = "P,...", value_delimiter = ',')]
    pub(crate) peers: Vec<String>,
    #[command(flatten)]
    pub(crate) contestants: ContestantsArgs,
}

/// The argument with servers of a user's own.
#[derive(Debug, clap::Args)]
pub(crate) struct ContestantsArgs {
    /// A file with more servers: how each is built, started, and when it is ready. docs/METHODOLOGY.md explains it.
    #[arg(long, value_name = "FILE")]
    contestants: Option<PathBuf>,
}

impl ContestantsArgs {
    /// The name of the flag, if it is given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        self.contestants.as_ref().map(|_| "--contestants")
    }

    /// The programs that may take part.
    pub(crate) fn registry(&self) -> Result<Registry, Misuse> {
        Registry::load(self.contestants.as_deref())
    }
}

/// The error for a name that no program has.
pub(crate) fn unknown(name: &str, registry: &Registry) -> String {
    let names: Vec<_> = registry.servers().map(Program::short_name).collect();
    format!("there is no peer {name:?}: they are {}, or {ALL}", names.join(", "))
}

/// Returns the servers of a flag, and whether it names [`ALL`] of them.
pub(crate) fn foreign_servers(names: &[String], registry: &Registry) -> Result<(Vec<Program>, bool), Misuse> {
    let (mut named, mut is_all) = (Vec::new(), false);
    for name in names {
        match registry.named(name).filter(|program| program.can_be_compared()) {
            Some(server) => named.push(server.clone()),
            None if name == ALL => is_all = true,
            None => return Err(Misuse(unknown(name, registry))),
        }
    }
    Ok((named, is_all))
}
