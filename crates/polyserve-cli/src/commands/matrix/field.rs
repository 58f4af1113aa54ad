//! Who takes part in `polyserve matrix`: servers of the catalog over repos, and the servers in Go.

use std::collections::HashSet;

use polyserve::catalog::{Catalog, RepoEntry, ServerEntry, Tag};
use polyserve::env::Settings;
use polyserve::{ConfigError, Shutdown};
use polyserve_experiments::matrix::claims::{CLASSIC, TWIN};
use polyserve_experiments::matrix::{Contestant, Entrant, Failed};
use polyserve_lab::Misuse;
use polyserve_lab::launch::Launch;
use polyserve_lab::launch::go::{self, Module, SERVERS};

use super::MatrixArgs;
use crate::commands::entrants::{chosen, serve, tagged};
use crate::commands::room::{check_flags, fitted, flags, roomy};

/// The servers in Go that take part unless servers are named.
const TWINS: [&str; 2] = [TWIN, "go/twin-syncmap"];
const EXECUTOR_OF_GO: &str = "goroutines";

/// Who takes part, and how.
#[derive(Debug)]
pub(super) struct Field<'a> {
    pub(super) args: &'a MatrixArgs,
    /// The settings that flags have set.
    pub(super) flags: &'a [String],
    pub(super) settings: &'a Settings,
    /// How our servers were built.
    pub(super) profile: &'a str,
    /// The most connections.
    pub(super) most: usize,
}

/// One who is to take part.
#[derive(Debug)]
pub(super) enum Line {
    /// One of ours.
    Ours(Entrant),
    /// One in Go, which is to be built yet, with these sizes of its pool.
    Go(&'static go::Server, Vec<usize>),
    /// One of ours that refuses the settings.
    Refuses(Failed),
}

impl Line {
    /// Its name.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Ours(entrant) => &entrant.contestant.contestant,
            Self::Go(server, _) => server.name,
            Self::Refuses(failed) => &failed.who.contestant,
        }
    }
}

impl Field<'_> {
    /// All who are asked to take part, with these sizes of pools. One that was asked for by its name must not refuse the
    /// settings.
    pub(super) fn lines(&self, catalog: &Catalog, pools: &[usize]) -> anyhow::Result<Vec<Line>> {
        let mut repos = Vec::new();
        for name in &self.args.repos {
            repos.push(catalog.repo(name)?);
        }
        let mut lines: Vec<Line> = Vec::new();
        let servers = self.servers(catalog);
        check_flags(self.settings, catalog, servers.iter().map(String::as_str))?;
        for name in servers {
            if name.starts_with(go::PREFIX) {
                let server = go::Server::named(&name).ok_or_else(|| nobody(&name))?;
                lines.push(Line::Go(server, pools.to_vec()));
                continue;
            }
            let entry = catalog.server(&name)?;
            for repo in &repos {
                lines.push(self.ours(entry, repo, pools)?);
            }
        }
        // Whoever is named twice takes part once.
        let mut names = HashSet::new();
        lines.retain(|line| names.insert(line.name().to_owned()));
        Ok(lines)
    }

    fn servers(&self, catalog: &Catalog) -> Vec<String> {
        if !self.args.servers.is_empty() {
            return self.args.servers.clone();
        }
        let builtin = Catalog::builtin();
        let is_own = |name: &str| builtin.server(name).is_err();
        let quick = tagged(builtin.servers(), Tag::QuickMatrix);
        let later = |name: &str| !quick.contains(&name);
        let most = self.args.quick.then_some(quick.len());
        let ours = chosen(catalog.servers(), most, is_own, later);
        ours.into_iter().chain(TWINS.map(String::from)).collect()
    }

    /// A server with every size of its pool, or once where it refuses to have one chosen.
    fn ours(&self, entry: &ServerEntry, repo: &RepoEntry, pools: &[usize]) -> anyhow::Result<Line> {
        let contestant = self.contestant(&entry.name, &repo.name);
        let room = roomy(self.settings, &self.settings.config, self.most);
        let launch = |workers: Option<usize>| {
            let (_, config) = fitted(entry, &room, workers)?;
            let mut flags = flags(&config, self.flags, &[]);
            flags.extend(workers.map(|workers| format!("--workers={workers}")));
            Ok::<_, ConfigError>((workers, serve(&entry.name, &repo.name, &flags, Vec::new())))
        };
        let sized: Vec<(Option<usize>, Launch)> = pools.iter().filter_map(|size| launch(Some(*size)).ok()).collect();
        if !sized.is_empty() {
            return Ok(Line::Ours(Entrant { contestant, pools: sized }));
        }
        match launch(None) {
            Ok(alone) => Ok(Line::Ours(Entrant { contestant, pools: vec![alone] })),
            Err(error) if !self.args.servers.is_empty() => Err(error.into()),
            Err(error) => Ok(Line::Refuses(left_out(contestant, &error.to_string()))),
        }
    }

    fn contestant(&self, server: &str, repo: &str) -> Contestant {
        let (kind, executor) = server.split_once('/').unwrap_or((server, ""));
        Contestant {
            contestant: format!("{server}/{repo}"),
            lang: "rust".into(),
            server: kind.into(),
            executor: executor.into(),
            repo: repo.into(),
            variant: self.profile.to_owned(),
            control: false,
        }
    }

    /// Builds what is to be built, and enters everybody: the classic pool, or else the first, once more as the control.
    /// And who takes no part.
    pub(super) fn enter(&self, lines: Vec<Line>, stop: &Shutdown) -> (Vec<Entrant>, Vec<Failed>) {
        let program = |line: &Line| if let Line::Go(server, _) = line { Some(server.program) } else { None };
        let programs: Vec<&'static str> = lines.iter().filter_map(program).collect();
        let built = Module::new(self.args.peers_dir.as_deref()).build(&programs, stop);
        let (mut entrants, mut absent) = (Vec::new(), Vec::new());
        for line in lines {
            match line {
                Line::Ours(entrant) => entrants.push(entrant),
                Line::Refuses(failed) => absent.push(failed),
                Line::Go(server, pools) => {
                    let program = built.iter().find(|(name, _)| *name == server.program).map(|(_, built)| built);
                    match program {
                        Some(Ok(program)) => {
                            let start = |size: usize| (Some(size), server.launch(program, Some(size)));
                            let pools = pools.into_iter().map(start).collect();
                            entrants.push(Entrant { contestant: in_go(server), pools });
                        }
                        Some(Err(why)) => absent.push(left_out(in_go(server), why)),
                        None => {}
                    }
                }
            }
        }
        let is_classic = |entrant: &&Entrant| entrant.contestant.contestant.starts_with(CLASSIC);
        if let Some(first) = entrants.iter().find(is_classic).or(entrants.first()) {
            let mut again = first.clone();
            again.contestant.control = true;
            entrants.push(again);
        }
        (entrants, absent)
    }
}

/// Who takes no part.
fn left_out(who: Contestant, why: &str) -> Failed {
    Failed { who, cell: None, why: why.to_owned(), wrong: false }
}

/// The twins have the published store, or Go's own map for many; what the libraries stand on is their own.
fn in_go(server: &go::Server) -> Contestant {
    let kind = server.name.trim_start_matches(go::PREFIX);
    let (kind, variant) = kind.split_once('-').unwrap_or((kind, kind));
    let repo = if variant == "syncmap" { "sync_map" } else { "two_level" };
    Contestant {
        contestant: server.name.into(),
        lang: "go".into(),
        server: kind.into(),
        executor: EXECUTOR_OF_GO.into(),
        repo: repo.into(),
        variant: variant.into(),
        control: false,
    }
}

fn nobody(name: &str) -> Misuse {
    let names: Vec<&str> = SERVERS.iter().map(|server| server.name).collect();
    Misuse(format!("there is no server {name:?} in Go, only {}", names.join(", ")))
}
