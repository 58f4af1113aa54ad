//! The contestants that the flags of `compare` name, and how servers of the catalog are started.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use polyserve::catalog::{Catalog, Entry, RepoChoice, RepoCriteria, RepoEntry, Tag};
use polyserve::env::SETTINGS;
use polyserve_bench::Misuse;
use polyserve_bench::bench::ContestantOrigin;
use polyserve_bench::contestants::{GO, PEER, Program, Registry};
use polyserve_bench::experiment::distinct;
use polyserve_bench::launch::{AddressFrom, Launch};
use polyserve_bench::recommend::left_out;
use polyserve_bench::turn::{Contestant, Role};
use polyserve_load::Usage;
use serde::Serialize;

use super::foreign::unknown;
use super::names::{default_names, full_names, repo_names, tagged};

/// A server and a repo: `pool_server/mpsc_pool/two_level`. A service that needs no repo has the server only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    /// The server's name, which may have a slash.
    pub(crate) server: String,
    /// The repo's name; empty for the default, which the service does not use.
    pub(crate) repo: String,
}

/// With the stores of the built-in catalog.
impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text, &Catalog::builtin())
    }
}

impl Pair {
    /// Parses a name. `catalog` has the kinds of stores that stand over another store.
    pub(crate) fn parse(text: &str, catalog: &Catalog) -> Result<Self, String> {
        // The location of a repo may have slashes, and a repo over another one has a slash before its location.
        let name = text.split(':').next().unwrap_or(text);
        let stands_on_repos = |kind: &str| {
            name.len() < text.len() && catalog.repo_schemes().iter().any(|known| known.over_repos && known.name == kind)
        };
        let server = name.rsplit_once('/').map(|(before, _)| match before.rsplit_once('/') {
            Some((server, kind)) if stands_on_repos(kind) => server,
            _ => before,
        });
        match server.map(|server| (server, &text[server.len() + 1..])) {
            Some((server, repo)) => Ok(Self { server: server.to_owned(), repo: repo.to_owned() }),
            None => Err(format!("{text:?} is not SERVER/REPO such as leader_followers/two_level")),
        }
    }
}

/// The contestant that the others are compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Baseline {
    /// A server and a repo.
    Pair(Pair),
    /// A server from outside the catalog: `peer/hyper`, `go/nethttp`.
    Foreign(Program),
    /// A reference, by its name, which has no slash.
    Reference(String),
}

impl FromStr for Baseline {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let registry = Registry::repository();
        if let Some(foreign) = registry.named(text).filter(|foreign| text == foreign.name() && foreign.is_server()) {
            return Ok(Self::Foreign(foreign.clone()));
        }
        if text.starts_with(PEER) || text.starts_with(GO) {
            return Err(unknown(text, registry));
        }
        Ok(text.parse().map_or_else(|_: String| Self::Reference(text.to_owned()), Self::Pair))
    }
}

impl Baseline {
    /// Its name as it was given.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Pair(pair) => pair.name(),
            Self::Foreign(server) => server.name().to_owned(),
            Self::Reference(name) => name.clone(),
        }
    }
}

impl Pair {
    pub(crate) fn name(&self) -> String {
        if self.repo.is_empty() { self.server.clone() } else { format!("{}/{}", self.server, self.repo) }
    }
}

/// The repo of a reference, which does not use it.
const UNUSED_REPO: &str = "two_level";

/// The number of repos in a quick comparison.
const QUICK_REPOS: usize = 2;

/// The limit of kept connections. A reference that the catalog lacks is left out.
pub(crate) const LIMIT: &str = "null_epoll";
/// The limit of connections for one request each.
pub(crate) const ACCEPT_LIMIT: &str = "null_accept";

/// The flags of `compare` that select its contestants.
#[derive(Debug)]
pub(crate) struct CompareSelection<'a> {
    pub(crate) catalog: &'a Catalog,
    /// The servers of the catalog.
    pub(crate) servers: &'a [String],
    /// The servers from outside the catalog, and whether all of them take part.
    pub(crate) peers: (&'a [Program], bool),
    /// Whether only servers from outside the catalog take part.
    pub(crate) only_peers: bool,
    pub(crate) repos: &'a [String],
    pub(crate) baseline: Option<&'a Baseline>,
    /// Whether the service is another one than the entities.
    pub(crate) has_service: bool,
    pub(crate) quick: bool,
    pub(crate) usage: Usage,
    /// The criteria for the repos of a quick comparison.
    pub(crate) criteria: RepoCriteria,
}

/// The contestants of a definition.
pub(crate) struct NamedContestants {
    /// Their names, with the origin.
    pub(crate) contestants: Vec<String>,
    /// The contestant that the others are compared with; by default the first one.
    pub(crate) baseline: Option<String>,
    /// Why a quick comparison has these repos. Empty if the repos were named.
    pub(crate) because: Vec<String>,
}

impl CompareSelection<'_> {
    /// The contestants of the flags.
    ///
    /// # Errors
    ///
    /// Returns an error if a name is unknown, or if no repo suits a quick comparison.
    pub(crate) fn select(&self) -> anyhow::Result<NamedContestants> {
        let (mut contestants, because) = self.pairs()?;
        let (peers, is_all) = self.peers;
        contestants.extend(peers.iter().map(named_peer));
        contestants.extend(is_all.then(|| format!("{}*", ContestantOrigin::Peer)));
        // A null server has neither the answers of a service nor their sizes.
        let limits: &[&str] = match self.usage {
            _ if self.has_service => &[],
            Usage::KeepAlive { .. } => &[LIMIT],
            Usage::Close => &[LIMIT, ACCEPT_LIMIT],
        };
        let limits = limits.iter().filter_map(|name| self.catalog.reference(name).ok());
        contestants.extend(limits.map(|Entry { name, .. }| format!("{}{name}", ContestantOrigin::Reference)));
        let baseline = self.baseline.map(|baseline| self.baseline_name(baseline)).transpose()?;
        Ok(NamedContestants { contestants, baseline, because })
    }

    fn baseline_name(&self, baseline: &Baseline) -> anyhow::Result<String> {
        let catalog = self.catalog;
        let of_catalog = |name: String| format!("{}{name}", ContestantOrigin::Catalog);
        Ok(match baseline {
            Baseline::Foreign(server) if self.has_service => named_peer(server),
            baseline if self.has_service && self.repos.is_empty() => {
                of_catalog(catalog.server(&baseline.name())?.name.clone())
            }
            Baseline::Pair(Pair { server, repo }) => {
                let (server, repo) = (catalog.server(server)?.name.clone(), catalog.repo(repo)?.name.clone());
                of_catalog(Pair { server, repo }.name())
            }
            Baseline::Foreign(server) if !server.keeps_entities() => {
                let why = "has a fixed answer, and a baseline runs twice and keeps what is put";
                return Err(Misuse(format!("--baseline {}: it {why}", server.name())).into());
            }
            Baseline::Foreign(server) => named_peer(server),
            Baseline::Reference(name) => match catalog.reference(name) {
                Ok(Entry { name, .. }) => format!("{}{name}", ContestantOrigin::Reference),
                Err(_) => {
                    let what = "is neither SERVER/REPO such as leader_followers/two_level nor a reference such as";
                    return Err(Misuse(format!("--baseline {name:?} {what} {LIMIT}")).into());
                }
            },
        })
    }

    /// Returns the pairs server by server, and the reasons for the repos of a quick comparison. A star stands for all servers.
    fn pairs(&self) -> anyhow::Result<(Vec<String>, Vec<String>)> {
        let (catalog, builtin) = (self.catalog, Catalog::builtin());
        let mut servers = full_names(self.servers, |name| catalog.server(name))?;
        let (mut repos, mut because) = (repo_names(catalog, self.repos)?, Vec::new());
        if servers.is_empty() && self.quick && !self.only_peers {
            let quick = tagged(builtin.servers(), Tag::Quick);
            servers = default_names(catalog.servers(), builtin.servers(), Some(&quick));
        } else if servers.is_empty() && !self.only_peers {
            servers.push(String::from("*"));
        }
        if repos.is_empty() && self.has_service {
            repos.push(String::new());
        } else if repos.is_empty() && self.quick {
            (repos, because) = self.quick_repos(&builtin)?;
        } else if repos.is_empty() {
            repos = default_names(catalog.repos(), builtin.repos(), None);
        }
        let pair = |server: &String, repo: &String| Pair { server: server.clone(), repo: repo.clone() };
        let pairs = servers.iter().flat_map(|server| repos.iter().map(move |repo| pair(server, repo).name()));
        Ok((distinct(pairs.map(|name| format!("{}{name}", ContestantOrigin::Catalog))), because))
    }

    /// Returns two repos for a quick comparison, and the reasons. The program's own repos come first, the last added
    /// before the others. Then come the repos that suit the workload. Repos that need more memory than the limit are
    /// left out.
    fn quick_repos(&self, builtin: &Catalog) -> Result<(Vec<String>, Vec<String>), Misuse> {
        let own = self.catalog.repos().iter().rev().filter(|entry| builtin.repo(&entry.name).is_err());
        let RepoChoice { repos: suited, left_out } = self.catalog.repos_for(&self.criteria);
        // Without a memory limit, the first repos of the catalog fill the remaining places.
        let rest = self.catalog.repos().iter().filter(|_| self.criteria.memory_limit.is_none());
        let mut names =
            distinct(own.chain(suited.iter().map(|(entry, _)| *entry)).chain(rest).map(|entry| entry.name.clone()));
        names.truncate(QUICK_REPOS);
        let reasons = left_out::reasons(&left_out, &self.criteria);
        if names.is_empty() {
            return Err(Misuse(reasons.join("; ")));
        }
        let is_chosen = |(entry, _): &(&RepoEntry, String)| names.contains(&entry.name);
        let because = suited.into_iter().filter(is_chosen).map(|(_, why)| why).chain(reasons).collect();
        Ok((names, because))
    }
}

/// The name of a program in a definition.
fn named_peer(program: &Program) -> String {
    format!("{}{}", ContestantOrigin::Peer, program.short_name())
}

/// A reference. It takes no settings, neither as flags nor from the environment.
pub(crate) fn reference_contestant(name: &str) -> Contestant {
    Contestant::new(name, Role::Limit, reference_launch(name))
}

fn reference_launch(name: &str) -> Launch {
    let cleared = SETTINGS.iter().map(|setting| (setting.variable().into(), OsString::new())).collect();
    serve(name, UNUSED_REPO, &[], cleared)
}

/// Returns the path of the running program. A later build is not measured.
pub(crate) fn this_program() -> PathBuf {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() { running } else { std::env::current_exe().unwrap_or(running) }
}

/// Returns this program with one argument: `polyserve COMMAND --FLAG=VALUE`, with the value as JSON.
pub(crate) fn part_of(command: &str, flag: &str, value: &impl Serialize) -> serde_json::Result<Launch> {
    let argument = format!("--{flag}={}", serde_json::to_string(value)?);
    let args = [command.into(), argument].map(OsString::from).into();
    Ok(Launch { program: this_program(), args, env: Vec::new(), address: AddressFrom::Json, files: Vec::new() })
}

/// Returns this program as a server: `polyserve serve`, with these flags. An empty `repo` is the default one.
pub(crate) fn serve(server: &str, repo: &str, flags: &[String], env: Vec<(OsString, OsString)>) -> Launch {
    let fixed = ["serve", "--json", "--until-stdin-ends", "--listen=127.0.0.1:0"];
    let repo_flag = if repo.is_empty() { None } else { Some(format!("--repo={repo}")) };
    let chosen = [format!("--server={server}")].into_iter().chain(repo_flag);
    // A measurement begins with an empty store, and leaves nothing at the location.
    let temporary = repo.contains(':').then_some("--temporary-repo").map(OsString::from);
    let args = fixed
        .iter()
        .map(OsString::from)
        .chain(chosen.chain(flags.iter().cloned()).map(OsString::from))
        .chain(temporary);
    Launch { program: this_program(), args: args.collect(), env, address: AddressFrom::Json, files: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_names() {
        let pair: Pair = "pool_server/mpsc_pool/two_level".parse().unwrap();
        assert_eq!((pair.server.as_str(), pair.repo.as_str()), ("pool_server/mpsc_pool", "two_level"));
        for (server, repo) in [
            ("tokio_tcp", "durable:a/b"),
            ("tokio_tcp", "durable/packed:a/b"),
            ("pool_server/mpsc_pool", "durable/packed:/tmp/a"),
            ("pool_server/mpsc_pool", "etcd:http://a:1,http://b:1"),
        ] {
            let pair: Pair = format!("{server}/{repo}").parse().unwrap();
            assert_eq!((pair.server.as_str(), pair.repo.as_str()), (server, repo));
        }
        assert!("two_level".parse::<Pair>().unwrap_err().contains("SERVER/REPO"));
        assert_eq!("peer/hyper".parse(), Ok(Baseline::Foreign(Registry::repository().named("hyper").unwrap().clone())));
        assert_eq!("nginx".parse(), Ok(Baseline::Foreign(Registry::repository().named("nginx").unwrap().clone())));
        assert!("go/none".parse::<Baseline>().unwrap_err().contains("go/nethttp"));
        assert_eq!("null_epoll".parse(), Ok(Baseline::Reference("null_epoll".into())));
        assert_eq!("pool_server/mpsc_pool/two_level".parse(), Ok(Baseline::Pair(pair)));
    }
}
