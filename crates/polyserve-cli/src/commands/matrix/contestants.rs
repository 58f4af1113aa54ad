//! The contestants of `polyserve matrix`: servers of the catalog over repos, and the servers in Go.

use std::collections::HashSet;

use polyserve::ConfigError;
use polyserve::catalog::{Catalog, RepoEntry, ServerEntry};
use polyserve::env::Settings;
use polyserve_bench::Misuse;
use polyserve_bench::contestants::{GO, PRINTING, Program, Registry};
use polyserve_bench::ladder::variant::Binary;
use polyserve_bench::launch::Launch;
use polyserve_bench::matrix::claims::{CLASSIC, TWIN};
use polyserve_bench::matrix::{
    DEBUG, DEBUG_VARIANT, Entrant, MatrixCandidate, Origin, UNOPTIMISED, UNOPTIMISED_VARIANT,
};

use super::args::MatrixArgs;
use crate::commands::entrants::{debug_args, serve};
use crate::commands::names::{default_names, repo_names};
use crate::commands::room::{check_flags, fitted, flags, roomy};

/// The servers of the catalog that a quick run measures.
const QUICK_SERVERS: [&str; 3] = ["pool_server/mpsc_pool", "pool_server/stealing_pool", "tokio_tcp"];
/// The servers in Go that are contestants by default.
const TWINS: [&str; 2] = [TWIN, "go/twin-syncmap"];

#[derive(Debug)]
pub(super) struct MatrixContestants<'a> {
    pub(super) args: &'a MatrixArgs,
    /// The flags of the given settings.
    pub(super) flags: &'a [String],
    pub(super) settings: &'a Settings,
    /// The build profile of the servers in Rust.
    pub(super) profile: &'a str,
    /// The max number of concurrent connections.
    pub(super) max_connections: usize,
}

impl MatrixContestants<'_> {
    /// All contestants, with these pool sizes.
    pub(super) fn candidates(&self, catalog: &Catalog, pools: &[usize]) -> anyhow::Result<Vec<MatrixCandidate>> {
        let repos = repo_names(catalog, &self.args.repos)?;
        let repos = repos.iter().map(|name| catalog.repo(name)).collect::<Result<Vec<_>, _>>()?;
        let mut candidates: Vec<MatrixCandidate> = Vec::new();
        let servers = self.servers(catalog);
        let registry = Registry::repository().clone().with_sources(GO, self.args.peers_dir.as_deref());
        let in_catalog = servers.iter().filter(|name| registry.named(name).is_none());
        let strategies = in_catalog.map(|name| strategy(name).0);
        check_flags(self.settings, catalog, strategies)?;
        for name in servers {
            let program = registry.named(&name).filter(|program| program.name() == name && program.keeps_entities());
            match program {
                Some(program) => {
                    candidates.push(MatrixCandidate::Program(program.clone()));
                    continue;
                }
                None if name.starts_with(GO) => return Err(unknown(&name).into()),
                None => {}
            }
            let (strategy, unoptimised) = strategy(&name);
            let entry = catalog.server(strategy)?;
            for repo in &repos {
                let candidate = self.candidate(entry, repo, pools)?;
                candidates.push(match unoptimised {
                    Some(prefix) => without_optimisation(candidate, strategy, prefix),
                    None => candidate,
                });
            }
        }
        // A name that is given twice is one contestant.
        let mut names = HashSet::new();
        candidates.retain(|candidate| names.insert(candidate.name().to_owned()));
        Ok(candidates)
    }

    fn servers(&self, catalog: &Catalog) -> Vec<String> {
        if !self.args.servers.is_empty() {
            return self.args.servers.clone();
        }
        let quick = self.args.quick.then_some(QUICK_SERVERS.as_slice());
        let catalog_servers = default_names(catalog.servers(), Catalog::builtin().servers(), quick);
        let mut names: Vec<String> = catalog_servers.into_iter().chain(TWINS.map(String::from)).collect();
        if !self.args.quick {
            names.extend([format!("{DEBUG}{CLASSIC}"), PRINTING.to_owned()]);
        }
        names
    }

    /// A server with every pool size, or a single entry if the size cannot be chosen.
    fn candidate(&self, entry: &ServerEntry, repo: &RepoEntry, pools: &[usize]) -> anyhow::Result<MatrixCandidate> {
        let name = format!("{}/{}", entry.name, repo.name);
        let entrant =
            |pools| Entrant { name: name.clone(), control: false, origin: self.origin(&entry.name, &repo.name), pools };
        let roomy_config = roomy(self.settings, &self.settings.config, self.max_connections);
        let launch = |workers: Option<usize>| {
            let (_, config) = fitted(entry, &roomy_config, workers)?;
            let mut flags = flags(&config, self.flags, &[]);
            flags.extend(workers.map(|workers| format!("--workers={workers}")));
            Ok::<_, ConfigError>((workers, serve(&entry.name, &repo.name, &flags, Vec::new())))
        };
        let sized: Vec<(Option<usize>, Launch)> = pools.iter().filter_map(|size| launch(Some(*size)).ok()).collect();
        if !sized.is_empty() {
            return Ok(MatrixCandidate::Ready(entrant(sized)));
        }
        match launch(None) {
            Ok(alone) => Ok(MatrixCandidate::Ready(entrant(vec![alone]))),
            Err(error) if !self.args.servers.is_empty() => Err(error.into()),
            Err(error) => Ok(MatrixCandidate::Rejected(name, error.to_string())),
        }
    }

    fn origin(&self, server: &str, repo: &str) -> Origin {
        let (kind, executor) = server.split_once('/').unwrap_or((server, ""));
        Origin {
            lang: "rust".into(),
            server: kind.into(),
            executor: executor.into(),
            repo: repo.into(),
            variant: self.profile.to_owned(),
        }
    }
}

/// The strategy of a name, and the prefix of the name if it is a build without optimisation.
fn strategy(name: &str) -> (&str, Option<&'static str>) {
    let stripped = |prefix: &'static str| Some((name.strip_prefix(prefix)?, Some(prefix)));
    stripped(DEBUG).or_else(|| stripped(UNOPTIMISED)).unwrap_or((name, None))
}

/// The server, built without optimisation. With the prefix [`DEBUG`] it prints a line for each request, which is discarded.
fn without_optimisation(candidate: MatrixCandidate, strategy: &str, prefix: &str) -> MatrixCandidate {
    let prints = prefix == DEBUG;
    match candidate {
        MatrixCandidate::Ready(mut entrant) => {
            entrant.name = format!("{prefix}{}", entrant.name);
            entrant.origin.variant = if prints { DEBUG_VARIANT } else { UNOPTIMISED_VARIANT }.into();
            for (_, launch) in &mut entrant.pools {
                launch.args.extend(debug_args(prints));
            }
            MatrixCandidate::Debug(entrant, Binary::with(strategy))
        }
        other => other,
    }
}

fn unknown(name: &str) -> Misuse {
    let in_go = |server: &&Program| server.is_server() && server.name().starts_with(GO);
    let names: Vec<&str> = Registry::repository().programs().filter(in_go).map(Program::name).collect();
    Misuse(format!("there is no server {name:?} in Go, only {}", names.join(", ")))
}
