//! The candidates of a recommendation: a few servers over one to three repos, chosen by the workload, with the reasons.
//!
//! Cost: one or two servers are constructed to read their shape.

use polyserve::catalog::{Catalog, Promise, RepoChoice, RepoEntry, ServerEntry, Tag};
use polyserve::{ServerConfig, Shape};
use serde::{Deserialize, Serialize};

use super::left_out;
use super::workload::Workload;
use crate::Misuse;
use crate::bench::pattern::ContestantOrigin;

/// A server over a repo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The server's name.
    pub server: String,
    /// The repo's name; empty if the service needs none.
    pub repo: String,
    /// The server's number of workers, if the workload needs another number than the default.
    pub workers: Option<usize>,
}

/// The candidates, and why these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CandidateSet {
    /// The candidates. The others are compared with the first.
    pub candidates: Vec<Candidate>,
    /// Why these and not others.
    pub because: Vec<String>,
}

/// The max number of connections for a server with one thread for each.
const MAX_THREADS: usize = 1000;
/// The max number of workers of a pool, if the workers wait.
const MAX_WAITING_WORKERS: usize = 512;
/// The default number of a pool's threads for each core.
const POOL_PER_CORE: usize = 4;

/// The directory below which durable stores are measured.
pub const DURABLE_DIRECTORY: &str = "polyserve-data";

/// The advice for a workload that one machine is too small for.
fn engine_needed(catalog: &Catalog) -> String {
    let shared = catalog.repo_schemes().iter().filter(|kind| kind.promises(Promise::Shared));
    let forms: Vec<String> = shared.map(|kind| format!("--repos {}", kind.form())).collect();
    let names = if forms.is_empty() { String::from("this program has none") } else { forms.join(" or ") };
    format!(
        "--machines several: a store over an engine is needed, so name yours: {names}. docs/SCALING.md compares them"
    )
}

impl Candidate {
    /// Its name in tables.
    pub(crate) fn name(&self) -> String {
        if self.repo.is_empty() { self.server.clone() } else { format!("{}/{}", self.server, self.repo) }
    }

    /// Its name as a contestant: with the number of workers, if the workload needs another number than the default.
    pub(crate) fn contestant(&self) -> String {
        self.workers.map_or_else(|| self.name(), |workers| format!("{}@{workers}", self.name()))
    }

    /// The pattern of a definition that stands for it.
    pub fn pattern(&self) -> String {
        format!("{}{}", ContestantOrigin::Catalog, self.contestant())
    }
}

impl CandidateSet {
    /// Returns the candidates for `workload`. Named servers and repos replace the choice. Without names, the program's own
    /// servers and repos are always among the candidates.
    ///
    /// # Errors
    ///
    /// Returns an error if a name is not known, or a server rejects the settings.
    pub fn of(catalog: &Catalog, workload: &Workload, servers: &[String], repos: &[String]) -> anyhow::Result<Self> {
        let mut set = Self::default();
        let servers = set.servers(catalog, workload, servers)?;
        let repos = match workload.service {
            Some(_) => vec![String::new()],
            None => set.repos(catalog, workload, repos)?,
        };
        for server in servers {
            let workers = set.workers(server, workload)?;
            for repo in &repos {
                let candidate = Candidate { server: server.name.clone(), repo: repo.clone(), workers };
                if !set.candidates.contains(&candidate) {
                    set.candidates.push(candidate);
                }
            }
        }
        Ok(set)
    }

    fn servers<'a>(
        &mut self,
        catalog: &'a Catalog,
        workload: &Workload,
        named: &[String],
    ) -> anyhow::Result<Vec<&'a ServerEntry>> {
        if !named.is_empty() {
            return named.iter().map(|name| Ok(catalog.server(name)?)).collect();
        }
        let builtin = Catalog::builtin();
        let is_builtin = |entry: &&ServerEntry| builtin.server(&entry.name).is_ok();
        let tagged = catalog.servers().iter().filter(is_builtin).filter(|entry| entry.has(Tag::Recommended));
        let mut servers: Vec<&ServerEntry> = tagged.collect();
        // The first server is the baseline. A server with threads that do not wait comes first.
        let thread_each = |entry: &ServerEntry| entry.promises(Promise::Shape(Shape::OnePerThread));
        servers.sort_by_key(|entry| (!entry.promises(Promise::LaterHoldsNoThread), thread_each(entry)));
        if workload.connections > MAX_THREADS {
            for entry in servers.extract_if(.., |entry| thread_each(entry)) {
                self.because.push(format!(
                    "{} is left out: {} connections are too many for a thread each",
                    entry.name, workload.connections
                ));
            }
        }
        for (entry, reason) in catalog.servers_not_allowed().filter(|(entry, _)| entry.has(Tag::Recommended)) {
            self.because.push(format!("{} is left out: the system does not allow it: {reason}", entry.name));
        }
        servers.extend(catalog.servers().iter().filter(|entry| builtin.server(&entry.name).is_err()));
        self.because.push(String::from("servers: one of each kind; --servers names others"));
        Ok(servers)
    }

    fn repos(&mut self, catalog: &Catalog, workload: &Workload, named: &[String]) -> anyhow::Result<Vec<String>> {
        if !named.is_empty() {
            let named = named.iter().map(|name| catalog.repo(name)).collect::<Result<Vec<_>, _>>()?;
            self.keep_entities(&named, workload)?;
            return Ok(named.into_iter().map(|entry| entry.name).collect());
        }
        if workload.several_machines {
            return Err(Misuse(engine_needed(catalog)).into());
        }
        let builtin = Catalog::builtin();
        let is_own = |entry: &&RepoEntry| builtin.repo(&entry.name).is_err();
        let criteria = workload.criteria();
        let RepoChoice { repos: suited, left_out } = catalog.repos_for(&criteria);
        let left_out = left_out::reasons(&left_out, &criteria);
        let mut repos: Vec<&RepoEntry> =
            suited.iter().map(|(entry, _)| *entry).filter(|entry| !is_own(entry)).collect();
        repos.extend(catalog.repos().iter().filter(is_own));
        if repos.is_empty() && !left_out.is_empty() {
            return Err(Misuse(left_out.join("; ")).into());
        }
        if repos.is_empty() {
            repos.extend(catalog.repos().first());
        }
        self.because.extend(suited.into_iter().map(|(_, why)| why).chain(left_out));
        self.because.push(String::from("repos: those that suit the workload; --repos names others"));
        let names = repos.into_iter().map(|entry| entry.name.clone());
        if !workload.durable {
            return Ok(names.collect());
        }
        let kind = catalog.repo_schemes().iter().find(|kind| kind.over_repos && kind.promises(Promise::Durable));
        let Some(kind) = kind else {
            return Err(Misuse(String::from("--durable true: the catalog has no durable store over a repo")).into());
        };
        self.because.push(format!(
            "{} over each of them, because writes survive a crash: {}; measured below {DURABLE_DIRECTORY}",
            kind.name, kind.summary
        ));
        Ok(names.map(|name| format!("{}/{name}:{DURABLE_DIRECTORY}", kind.name)).collect())
    }

    /// Checks that the named repos keep their entities as long as the workload needs them.
    fn keep_entities(&mut self, named: &[RepoEntry], workload: &Workload) -> Result<(), Misuse> {
        for entry in named {
            let name = &entry.name;
            if workload.several_machines && !entry.promises(Promise::Shared) {
                return Err(Misuse(format!("--machines several: the entities of {name} belong to one process")));
            }
            if workload.durable && entry.promises(Promise::Volatile) {
                return Err(Misuse(format!("--durable true: {name} loses its entities when the process ends")));
            }
            if workload.durable && !entry.promises(Promise::Durable) {
                self.because.push(format!("{name} does not promise that each answered write survives"));
            }
        }
        Ok(())
    }

    /// Returns the number of workers if workers wait: one for each concurrent request. Otherwise `None`. A request that blocks
    /// holds a worker of any server.
    fn workers(&mut self, entry: &ServerEntry, workload: &Workload) -> anyhow::Result<Option<usize>> {
        let holds = workload.wait_ms > 0.0 && entry.promises(Promise::LaterHoldsWorker);
        let blocks = workload.blocking_wait_ms > 0.0 && entry.build(&ServerConfig::default().workers(1)).is_ok();
        if !holds && !blocks {
            return Ok(None);
        }
        if entry.build(&ServerConfig::default())?.shape() != Shape::Multiplexed {
            return Ok(None); // each connection has a thread, or there is one thread
        }
        let default_workers = POOL_PER_CORE * workload.cores;
        let workers = workload.connections.clamp(default_workers.min(MAX_WAITING_WORKERS), MAX_WAITING_WORKERS);
        let what = if workers < workload.connections { "not more" } else { "one for each connection" };
        self.because.push(format!("{} has {workers} workers, {what}: each waits with its request", entry.name));
        Ok(Some(workers))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use polyserve::catalog::{Entry, RepoScheme};
    use polyserve::memory::Sharded;

    use super::super::workload::tests::workload;
    use super::*;

    fn of(workload: &Workload) -> CandidateSet {
        CandidateSet::of(&Catalog::builtin(), workload, &[], &[]).unwrap()
    }

    /// Whether the system allows io_uring.
    fn has_ring() -> bool {
        Catalog::builtin().server("io_uring").is_ok()
    }

    /// The number of servers among the candidates.
    fn servers() -> usize {
        if has_ring() { 6 } else { 5 }
    }

    /// A candidate that is missing has a reason.
    #[test]
    fn a_server_that_the_system_does_not_allow_is_left_out_by_name() {
        let set = of(&workload());
        let takes_part = set.candidates.iter().any(|one| one.server == "io_uring");
        let is_left_out = set.because.iter().any(|why| why.starts_with("io_uring is left out: the system does not"));
        assert_eq!((takes_part, is_left_out), (has_ring(), !has_ring()), "{set:?}");
    }

    #[test]
    fn the_workload_decides() {
        let names = |set: &CandidateSet| set.candidates.iter().map(Candidate::name).collect::<Vec<_>>();
        let one_core = of(&workload());
        assert_eq!((one_core.candidates.len(), names(&one_core)[0].as_str()), (2 * servers(), "tokio_tcp/sharded"));
        assert!(one_core.candidates.iter().all(|one| one.workers.is_none()));
        assert_eq!(names(&of(&Workload { cores: 2, ..workload() }))[..2], ["tokio_tcp/sharded", "tokio_tcp/scc"]);
        let small = of(&Workload { memory_limit_bytes: Some(1 << 20), ..workload() });
        assert!(names(&small).iter().all(|name| name.ends_with("/packed")), "{small:?}");
        let too_small = Workload { memory_limit_bytes: Some(1), ..workload() };
        let error = CandidateSet::of(&Catalog::builtin(), &too_small, &[], &[]).unwrap_err();
        assert!(error.to_string().contains("packed is left out: 10,000 entities need about 440 KiB"), "{error}");
        let is_named = |line: &str| line.contains("is left out: 10,000 entities need about");
        assert!(error.to_string().split("; ").all(is_named), "{error}");
        let many = of(&Workload { connections: 2000, ..workload() });
        assert!(!names(&many).iter().any(|name| name.starts_with("leader_followers")));
        assert!(many.because[0].contains("2000 connections"), "{:?}", many.because);
    }

    #[test]
    fn a_pool_that_waits_has_a_worker_for_each_connection() {
        let waiting = of(&Workload { wait_ms: 5.0, ..workload() });
        let workers: Vec<_> = waiting.candidates.iter().map(|one| (one.server.as_str(), one.workers)).collect();
        let pool = ("pool_server/mpsc_pool", Some(64));
        let [tcp, per_core, epoll, uring] =
            ["tokio_tcp", "tokio_per_core", "epoll", "io_uring"].map(|name| (name, None));
        let all = [tcp, per_core, epoll, uring, pool, ("leader_followers", None)];
        assert_eq!(workers, all.into_iter().filter(|one| *one != uring || has_ring()).collect::<Vec<_>>());
        let few = |connections| {
            let pool = [String::from("pool_server")];
            let workload = Workload { wait_ms: 5.0, connections, ..workload() };
            CandidateSet::of(&Catalog::builtin(), &workload, &pool, &[]).unwrap().candidates[0].workers
        };
        assert_eq!((few(1), few(100_000)), (Some(4), Some(512)));
    }

    /// A request that blocks holds a thread of an asynchronous server too.
    #[test]
    fn a_server_that_blocks_has_a_worker_for_each_connection() {
        let blocking = of(&Workload { blocking_wait_ms: 5.0, ..workload() });
        let workers = |server: &str| {
            let candidate = blocking.candidates.iter().find(|candidate| candidate.server == server).unwrap();
            candidate.workers
        };
        assert_eq!((workers("tokio_tcp"), workers("pool_server/mpsc_pool")), (Some(64), Some(64)));
        assert_eq!(workers("leader_followers"), None, "it has a thread for each connection");
    }

    /// A catalog with a durable kind and a shared one. Neither is constructed here.
    fn located() -> Catalog {
        let kind = |name: &'static str, location: &str, promises: &'static [Promise]| {
            RepoScheme::new(name, "a test", location, promises, move |location, over| {
                let over = over.map(|over| format!("/{}", over.name)).unwrap_or_default();
                Entry::repo(&format!("{name}{over}:{location}"), "a test", promises, || Ok(Arc::new(Sharded::new())))
            })
        };
        let log = kind("log", "PATH", &[Promise::Durable]).with_repos();
        let engine = kind("engine", "URL", &[Promise::Shared]);
        Catalog::builtin().with_repo_scheme(log).with_repo_scheme(engine)
    }

    #[test]
    fn writes_that_survive_need_a_durable_store() {
        let durable = Workload { durable: true, ..workload() };
        let named = |repo: &str| CandidateSet::of(&located(), &durable, &["tokio_tcp".into()], &[repo.into()]);
        let set = named("log:here").unwrap();
        assert_eq!(set.candidates[0].repo, "log:here");
        assert!(named("sharded").unwrap_err().to_string().contains("sharded loses its entities"));
        assert!(
            named("engine:there").unwrap().because.iter().any(|why| why.starts_with("engine:there does not promise"))
        );
        let mut catalog = Catalog::builtin();
        for scheme in located().repo_schemes().iter().filter(|kind| kind.name == "log") {
            catalog = catalog.with_repo_scheme(scheme.clone());
        }
        let chosen = CandidateSet::of(&catalog, &durable, &["tokio_tcp".into()], &[]).unwrap();
        assert!(chosen.candidates.iter().all(|one| one.repo.ends_with(":polyserve-data")), "{:?}", chosen.candidates);
    }

    #[test]
    fn several_machines_need_an_engine() {
        let several = Workload { several_machines: true, ..workload() };
        let of = |repos: &[String]| CandidateSet::of(&located(), &several, &["tokio_tcp".into()], repos);
        assert!(of(&[]).unwrap_err().to_string().contains("--repos engine:URL"));
        assert!(of(&["log:here".into()]).unwrap_err().to_string().contains("belong to one process"));
        assert_eq!(of(&["engine:there".into()]).unwrap().candidates[0].repo, "engine:there");
    }

    #[test]
    fn a_programs_own_take_part_and_unknown_names_do_not() {
        let mine = Entry::repo("mine", "", &[], || Ok(Arc::new(Sharded::new())));
        let set = CandidateSet::of(&Catalog::builtin().with_repo(mine), &workload(), &[], &[]).unwrap();
        assert_eq!(set.candidates.iter().filter(|one| one.repo == "mine").count(), servers());
        let error = CandidateSet::of(&Catalog::builtin(), &workload(), &["unknown".into()], &[]).unwrap_err();
        assert!(error.to_string().contains("no server \"unknown\""), "{error}");
    }
}
