//! The catalog of strategies: name, summary, promises, tags, constructor, and the Rust code that builds it. It is the only
//! list of the strategies of this project: commands and tests read their lists from it.
//!
//! The commands measure and check the entries that a program adds, as they do the built-in ones:
//!
//! ```
//! use std::sync::{Arc, OnceLock};
//! use polyserve::catalog::{Catalog, Entry, Promise};
//! # use polyserve::{Answer, Condition, Conditional, Entity, EntityRepo, Lookup, Put, Removed, RepoAnswer, RepoError, Visit};
//! # #[derive(Debug, Default)] struct MyRepo;
//! # impl EntityRepo for MyRepo {
//! #     fn get(&self, _: &i64, _: Visit<'_>) -> RepoAnswer<Lookup> { Answer::Now(Ok(Lookup::Absent)) }
//! #     fn put_if(&self, _: Entity, _: &Condition) -> RepoAnswer<Conditional<Put>> { Answer::Now(Ok(Conditional::Refused)) }
//! #     fn remove_if(&self, _: &i64, _: &Condition) -> RepoAnswer<Conditional<Removed>> { Answer::Now(Ok(Conditional::Refused)) }
//! #     fn len(&self) -> RepoAnswer<u64> { Answer::Now(Ok(0)) }
//! # }
//!
//! let mine = Entry::repo("my_repo", "my own map", &[Promise::Linearizable], || Ok(Arc::new(MyRepo::default())));
//! let catalog = Catalog::builtin().with_repo(mine);
//! assert!(catalog.repo("my_repo").is_ok());
//! assert!(catalog.repo("my_rpo").unwrap_err().to_string().contains("did you mean \"my_repo\"?"));
//! ```
//!
//! Invariant: a name is in a list once. An entry that is added under a known name replaces the old entry. Cost: a look-up is
//! a linear search through a few dozen names.

mod build_code;
mod build_error;
mod builtin;
mod entry;
mod name;
mod promise;
mod repo_rule;
mod repo_scheme;
mod tag;

use std::sync::{Arc, OnceLock};

use polyserve_core::{EntityRepo, Identifiable, Server, ServerConfig};

pub use build_code::BuildCode;
pub use build_error::BuildError;
pub use entry::{
    CatalogEntityService, Entry, ExecutorEntry, MakeExecutor, MakeRepo, MakeServer, MakeService, RepoEntry,
    ServerEntry, ServiceEntry,
};
pub use name::{UnknownName, nearest};
pub use promise::Promise;
pub use repo_rule::{RepoChoice, RepoCriteria, RepoRule};
pub use repo_scheme::RepoScheme;
pub use tag::Tag;

/// The overload policies of [`ServerConfig::overload`](polyserve_core::ServerConfig), as the command line names them, with what each does.
pub const OVERLOAD_POLICIES: [(&str, &str); 4] = [
    ("none", "takes every request"),
    ("static:N", "refuses requests while N are in work"),
    ("codel:TIME", "refuses requests that have waited for long, while a queue stands that is longer than TIME"),
    ("gradient", "refuses requests beyond a number that follows from measured times"),
];

/// Strategies of every kind, in the order in which they were added.
///
/// ```
/// use polyserve::catalog::Catalog;
///
/// let catalog = Catalog::builtin();
/// for entry in catalog.repos() {
///     println!("{}: {}", entry.name, entry.summary);
/// }
/// assert!(Catalog::new().servers().is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// The servers, also those that the system may not allow.
    servers: Vec<ServerEntry>,
    /// The servers that the system allows, once they are asked for: it costs a ring to find out.
    allowed_servers: OnceLock<Vec<ServerEntry>>,
    repos: Vec<RepoEntry>,
    repo_schemes: Vec<RepoScheme>,
    executors: Vec<ExecutorEntry>,
    services: Vec<ServiceEntry>,
    references: Vec<ServerEntry>,
}

impl Catalog {
    /// Creates an empty catalog.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the catalog of all strategies that the features of this crate enable.
    pub fn builtin() -> Self {
        builtin::catalog()
    }

    /// Adds a server. One with the same name is replaced.
    #[must_use]
    pub fn with_server(mut self, entry: ServerEntry) -> Self {
        self.add_server(entry);
        self
    }

    fn add_server(&mut self, entry: ServerEntry) {
        add(&mut self.servers, entry);
        self.allowed_servers = OnceLock::new();
    }

    /// Adds a repo. One with the same name is replaced, also a built-in one.
    #[must_use]
    pub fn with_repo(mut self, entry: RepoEntry) -> Self {
        add(&mut self.repos, entry);
        self
    }

    /// Adds a kind of repo that needs a location. One with the same name is replaced.
    #[must_use]
    pub fn with_repo_scheme(mut self, scheme: RepoScheme) -> Self {
        self.repo_schemes.retain(|known| known.name != scheme.name);
        self.repo_schemes.push(scheme);
        self
    }

    /// Adds an executor `X`; with the feature `threadpool`, the servers `pool_server/X` and `pool_classic/X` that
    /// run on it too.
    #[must_use]
    pub fn with_executor(mut self, entry: ExecutorEntry) -> Self {
        #[cfg(feature = "threadpool")]
        for server in [builtin::pool_server(&entry), builtin::pool_classic(&entry)] {
            self.add_server(server);
        }
        add(&mut self.executors, entry);
        self
    }

    /// Adds a service. One with the same name is replaced: so a program sets options of the built-in [`Entry::entity`].
    #[must_use]
    pub fn with_service(mut self, entry: ServiceEntry) -> Self {
        add(&mut self.services, entry);
        self
    }

    /// Adds a reference: a null server as a limit for measurements. It runs like a server, but makes no promise of the
    /// contract.
    #[must_use]
    pub fn with_reference(mut self, entry: ServerEntry) -> Self {
        add(&mut self.references, entry);
        self
    }

    /// Returns the servers that the system allows. The name of a server over an executor contains the executor's name:
    /// `pool_server/mpsc_pool`.
    ///
    /// # Cost
    ///
    /// The first call of the process finds out whether it may use `io_uring`, which makes a ring. [`server`](Self::server) does so for
    /// `io_uring`, `per_core` and an unknown name only.
    pub fn servers(&self) -> &[ServerEntry] {
        let is_allowed = |entry: &&ServerEntry| refusal(&entry.name).is_none();
        self.allowed_servers.get_or_init(|| self.servers.iter().filter(is_allowed).cloned().collect())
    }

    /// Returns the servers that the system does not allow, each with the reason, such as `io_uring` in most containers.
    /// [`server`](Self::server) refuses them for the same reason.
    ///
    /// # Cost
    ///
    /// That of [`servers`](Self::servers).
    ///
    /// ```
    /// use polyserve::catalog::Catalog;
    ///
    /// let catalog = Catalog::builtin();
    /// for (entry, reason) in catalog.servers_not_allowed() {
    ///     assert!(catalog.server(&entry.name).unwrap_err().to_string().contains(&reason));
    ///     assert!(catalog.servers().iter().all(|allowed| allowed.name != entry.name));
    /// }
    /// ```
    pub fn servers_not_allowed(&self) -> impl Iterator<Item = (&ServerEntry, String)> {
        self.servers.iter().filter_map(|entry| Some((entry, refusal(&entry.name)?)))
    }

    /// Returns the short names that [`server`](Self::server) also takes, each with the server that it stands for.
    ///
    /// ```
    /// # #[cfg(feature = "threadpool")] {
    /// use polyserve::catalog::Catalog;
    ///
    /// let short_names: Vec<_> = Catalog::builtin().short_server_names().collect();
    /// assert_eq!(short_names[0], ("pool_server", "pool_server/mpsc_pool"));
    /// # }
    /// ```
    pub fn short_server_names(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let has = |name: &str| self.servers.iter().any(|entry| entry.name == name);
        let pool = has(ALIAS.1).then_some(ALIAS);
        let per_core = has("epoll").then_some((PER_CORE, "io_uring if the system allows it, else epoll"));
        pool.into_iter().chain(per_core)
    }

    /// Returns the repos. Those that need a location are not among them.
    pub fn repos(&self) -> &[RepoEntry] {
        &self.repos
    }

    /// Returns the kinds of repos that need a location.
    pub fn repo_schemes(&self) -> &[RepoScheme] {
        &self.repo_schemes
    }

    /// Returns the names of the kinds of repos that this build lacks, each with the feature of this crate that adds it.
    ///
    /// ```
    /// use polyserve::catalog::Catalog;
    ///
    /// for (name, feature) in Catalog::builtin().repos_not_built() {
    ///     let error = Catalog::builtin().repo(name).unwrap_err().to_string();
    ///     assert!(error.contains(&format!("needs the feature `{feature}`")));
    /// }
    /// ```
    pub fn repos_not_built(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let is_known = |name: &str| self.repo_schemes.iter().any(|scheme| scheme.name == name);
        let lacking = builtin::schemes::FEATURES.into_iter().filter(move |(name, _, is_on)| !is_on && !is_known(name));
        lacking.map(|(name, feature, _)| (name, feature))
    }

    /// Returns the executors.
    pub fn executors(&self) -> &[ExecutorEntry] {
        &self.executors
    }

    /// Returns the services.
    pub fn services(&self) -> &[ServiceEntry] {
        &self.services
    }

    /// Returns the references.
    pub fn references(&self) -> &[ServerEntry] {
        &self.references
    }

    /// Returns the server with this name. `pool_server` is short for `pool_server/mpsc_pool`. `per_core` is `io_uring` if the system
    /// allows it, and else `epoll`; then it logs why.
    ///
    /// # Errors
    ///
    /// Returns [`UnknownName`] with the known names if the name is unknown, or with what is missing if the system does not allow
    /// `io_uring`.
    pub fn server(&self, name: &str) -> Result<&ServerEntry, UnknownName> {
        #[cfg(all(feature = "percore", target_os = "linux"))]
        let name = if name == PER_CORE { polyserve_percore::available() } else { name };
        if let Some(reason) = refusal(name) {
            return Err(UnknownName::without("server", name, format!("what the system does not allow: {reason}")));
        }
        let (short, full) = ALIAS;
        let name = if name == short { full } else { name };
        if let Some(entry) = self.servers.iter().find(|entry| entry.name == name) {
            return Ok(entry);
        }
        let known = find("server", self.servers(), name);
        known.map_err(|error| self.short_server_names().fold(error, |error, (short, _)| error.or(short)))
    }

    /// Returns the repo with this name. `ordered/REPO` is one that can be scanned, over another one. `NAME:LOCATION` names a repo at a
    /// location, and `NAME/REPO:LOCATION` one that stands on another repo in memory than its usual one.
    ///
    /// # Errors
    ///
    /// Returns [`UnknownName`] with the known names if the name is unknown, or if the location is missing.
    ///
    /// ```
    /// # #[cfg(feature = "durable")] {
    /// use polyserve::catalog::Catalog;
    ///
    /// let catalog = Catalog::builtin();
    /// assert_eq!(catalog.repo("durable/packed:data")?.name, "durable/packed:data");
    /// assert_eq!(catalog.repo("durable/ordered/packed:data")?.name, "durable/ordered/packed:data");
    /// assert!(catalog.repo("durable").unwrap_err().to_string().contains("durable:PATH"));
    /// # }
    /// # Ok::<(), polyserve::catalog::UnknownName>(())
    /// ```
    pub fn repo(&self, name: &str) -> Result<RepoEntry, UnknownName> {
        let (head, location) = name.split_once(':').unwrap_or((name, ""));
        let (kind, over) = head.split_once('/').map_or((head, None), |(kind, over)| (kind, Some(over)));
        let scheme = self.repo_schemes.iter().find(|scheme| scheme.name == kind);
        match scheme {
            Some(scheme) if over.is_none() || scheme.over_repos => {
                if location.is_empty() {
                    return Err(UnknownName::without("repo", head, format!("a location: {head}:{}", scheme.location)));
                }
                let over = over.map(|over| self.repo_in_memory(over)).transpose()?;
                Ok(scheme.at(location, over.as_ref()))
            }
            _ => {
                if let Some((_, feature)) = self.repos_not_built().find(|(name, _)| *name == kind) {
                    let missing = format!("the feature `{feature}`, which this program is built without");
                    return Err(UnknownName::without("repo", head, missing));
                }
                if let Ok(entry) = self.repo_in_memory(name) {
                    return Ok(entry);
                }
                if self.repos.iter().any(|entry| entry.name == head) {
                    let durable = self.repo_schemes.iter().find(|scheme| scheme.over_repos);
                    let form = durable.map_or_else(String::new, |scheme| format!(": {}/{head}:PATH", scheme.name));
                    let missing = format!("no location, or a store that keeps its entities{form}");
                    return Err(UnknownName::without("repo", head, missing));
                }
                let forms = self.repo_schemes.iter().map(RepoScheme::form);
                // A location may have a password, so the error does not show it.
                self.repo_in_memory(head).map_err(|error| forms.fold(error, |error, form| error.or(&form)))
            }
        }
    }

    /// Returns the repo with this name, which has no location: `REPO`, or `ordered/REPO`.
    fn repo_in_memory(&self, name: &str) -> Result<RepoEntry, UnknownName> {
        #[cfg(feature = "memory")]
        if let Some(over) = name.strip_prefix("ordered/") {
            let over = find("repo", &self.repos, over)?;
            if !over.promises(Promise::AnswersNow) {
                return Err(UnknownName::without(
                    "repo",
                    name,
                    "a repo that answers now, such as ordered/sharded".to_owned(),
                ));
            }
            return Ok(builtin::ordered(name, over));
        }
        find("repo", &self.repos, name).cloned()
    }

    /// Builds the server with this name.
    ///
    /// # Errors
    ///
    /// Returns [`BuildError`] if the name is unknown, or if the server cannot honour a setting.
    ///
    /// ```
    /// # #[cfg(feature = "threadpool")] {
    /// use polyserve::ServerConfig;
    /// use polyserve::catalog::Catalog;
    ///
    /// let catalog = Catalog::builtin();
    /// assert!(catalog.build_server("pool_server", &ServerConfig::default()).is_ok());
    /// let error = catalog.build_server("sequential", &ServerConfig::default().workers(4)).unwrap_err();
    /// assert!(error.to_string().contains("workers"));
    /// # }
    /// ```
    pub fn build_server(&self, name: &str, config: &ServerConfig) -> Result<Box<dyn Server>, BuildError> {
        Ok(self.server(name)?.build(config)?)
    }

    /// Opens the repo with this name: the entities at its location. A repo without a location is new and empty.
    ///
    /// # Errors
    ///
    /// Returns [`BuildError`] if the name is unknown, or if the repo cannot be opened.
    pub fn open_repo(&self, name: &str) -> Result<Arc<dyn EntityRepo>, BuildError> {
        Ok(self.repo(name)?.open()?)
    }

    /// Returns the executor with this name.
    ///
    /// # Errors
    ///
    /// Returns [`UnknownName`] with the known names if the name is unknown.
    pub fn executor(&self, name: &str) -> Result<&ExecutorEntry, UnknownName> {
        find("executor", &self.executors, name)
    }

    /// Returns the service with this name.
    ///
    /// # Errors
    ///
    /// Returns [`UnknownName`] with the known names if the name is unknown.
    pub fn service(&self, name: &str) -> Result<&ServiceEntry, UnknownName> {
        find("service", &self.services, name)
    }

    /// Returns the reference with this name.
    ///
    /// # Errors
    ///
    /// Returns [`UnknownName`] with the known names if the name is unknown.
    pub fn reference(&self, name: &str) -> Result<&ServerEntry, UnknownName> {
        find("reference", &self.references, name)
    }
}

/// Builds a new, empty repo in memory of this project for entities of any type.
///
/// # Errors
///
/// Returns [`BuildError::Unknown`] with the known names if the name is unknown, and [`BuildError::Io`] if the system refuses a thread
/// that the repo needs.
///
/// ```
/// # #[cfg(feature = "memory")] {
/// use polyserve::catalog::repo_of;
/// use polyserve::{EntityRepo, identifiable};
///
/// #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
/// struct Account { name: String }
/// identifiable!(Account, name: String);
///
/// let accounts = repo_of::<Account>("sharded").unwrap();
/// assert_eq!(accounts.len().wait().unwrap(), 0);
/// # }
/// ```
pub fn repo_of<E: Identifiable>(name: &str) -> Result<Arc<dyn EntityRepo<E>>, BuildError> {
    Ok(builtin::repo_of(name)?.ok_or_else(|| {
        let catalog = Catalog::builtin();
        let name = name.split(':').next().unwrap_or_default(); // a location may have a password
        UnknownName::new("repo", name, catalog.repos.iter().map(|entry| entry.name.clone()).collect())
    })?)
}

/// Returns the reason if the system does not allow the server with this name.
#[cfg(all(feature = "percore", target_os = "linux"))]
fn refusal(server: &str) -> Option<String> {
    let checked = if server == "io_uring" { polyserve_percore::IoUring::check() } else { Ok(()) };
    checked.err().map(|error| error.to_string())
}

/// Without the servers with a loop for each core, the system allows all.
#[cfg(not(all(feature = "percore", target_os = "linux")))]
fn refusal(_server: &str) -> Option<String> {
    None
}

/// The short name of the server with a loop for each core that runs here.
const PER_CORE: &str = "per_core";

/// A short name, and the full name of the server.
const ALIAS: (&str, &str) = ("pool_server", "pool_server/mpsc_pool");

fn add<M>(entries: &mut Vec<Entry<M>>, entry: Entry<M>) {
    match entries.iter_mut().find(|known| known.name == entry.name) {
        Some(known) => *known = entry,
        None => entries.push(entry),
    }
}

fn find<'a, M>(kind: &'static str, entries: &'a [Entry<M>], name: &str) -> Result<&'a Entry<M>, UnknownName> {
    entries
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| UnknownName::new(kind, name, entries.iter().map(|entry| entry.name.clone()).collect()))
}

#[cfg(test)]
mod tests;
