//! Every strategy by name: what it is, what it promises, and how to make one.
//!
//! A program that adds its own entry has them measured and checked like the built-in ones:
//!
//! ```
//! use std::sync::Arc;
//! use polyserve::catalog::{Catalog, Entry};
//! # use polyserve::{Answer, Entity, EntityRef, EntityRepo, Lookup, Put, Removed, RepoError};
//! # #[derive(Debug, Default)] struct MyRepo;
//! # impl EntityRepo for MyRepo {
//! #     fn get(&self, _: i64, _: &mut dyn FnMut(EntityRef<'_>)) -> Answer<Result<Lookup, RepoError>> { Answer::Now(Ok(Lookup::Absent)) }
//! #     fn put(&self, _: Entity) -> Answer<Result<Put, RepoError>> { Answer::Now(Ok(Put::Created)) }
//! #     fn remove(&self, _: i64) -> Answer<Result<Removed, RepoError>> { Answer::Now(Ok(Removed::Absent)) }
//! #     fn len(&self) -> Answer<Result<u64, RepoError>> { Answer::Now(Ok(0)) }
//! # }
//!
//! let mine = Entry::repo("my_repo", "a map of mine", &["linearizable"], || Ok(Arc::new(MyRepo::default())));
//! let catalog = Catalog::builtin().with_repo(mine);
//! assert!(catalog.repo("my_repo").is_ok());
//! assert!(catalog.repo("my_rpo").unwrap_err().to_string().contains("did you mean \"my_repo\"?"));
//! ```
//!
//! Invariant: a name is in a list once; an entry that is added under a known name replaces that one. Cost: a look-up
//! walks a list of a few dozen.

mod builtin;
mod name;

use std::fmt;
use std::io;
use std::sync::Arc;

use polyserve_core::{ConfigError, EntityRepo, Executor, Server, ServerConfig, Service};

pub use name::UnknownName;

/// Makes a server of a configuration, or says what of it cannot be honoured.
pub type MakeServer = Arc<dyn Fn(&ServerConfig) -> Result<Box<dyn Server>, ConfigError> + Send + Sync>;

/// Makes a new, empty repo.
pub type MakeRepo = Arc<dyn Fn() -> io::Result<Arc<dyn EntityRepo>> + Send + Sync>;

/// Makes an executor with the configured workers and queue.
pub type MakeExecutor = Arc<dyn Fn(&ServerConfig) -> io::Result<Arc<dyn Executor>> + Send + Sync>;

/// Makes a service; one that stores nothing ignores the repo.
pub type MakeService = Arc<dyn Fn(Arc<dyn EntityRepo>) -> Arc<dyn Service> + Send + Sync>;

/// A strategy: its name, and how to make one.
#[derive(Clone)]
#[non_exhaustive]
pub struct Entry<M> {
    /// Its name, as commands take it and tables print it.
    pub name: String,
    /// What it is, in one line.
    pub summary: String,
    /// What may be relied on, a few words each.
    pub promises: Vec<String>,
    /// Makes one.
    pub make: M,
}

/// A server's entry.
pub type ServerEntry = Entry<MakeServer>;
/// A repo's entry.
pub type RepoEntry = Entry<MakeRepo>;
/// An executor's entry.
pub type ExecutorEntry = Entry<MakeExecutor>;
/// A service's entry.
pub type ServiceEntry = Entry<MakeService>;

impl<M> Entry<M> {
    fn new(name: &str, summary: &str, promises: &[&str], make: M) -> Self {
        let promises = promises.iter().map(ToString::to_string).collect();
        Self { name: name.to_owned(), summary: summary.to_owned(), promises, make }
    }
}

impl Entry<MakeServer> {
    /// A server, or a reference.
    pub fn server(
        name: &str,
        summary: &str,
        promises: &[&str],
        make: impl Fn(&ServerConfig) -> Result<Box<dyn Server>, ConfigError> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, summary, promises, Arc::new(make))
    }
}

impl Entry<MakeServer> {
    /// Makes the server with the settings of `config` that the server has. Resets the others, so that several servers can
    /// share a configuration. Returns the server and the configuration that it was made with.
    ///
    /// # Errors
    ///
    /// Returns the server's error if a value is wrong.
    pub fn fit(&self, config: &ServerConfig) -> Result<(Box<dyn Server>, ServerConfig), ConfigError> {
        let mut config = config.clone();
        loop {
            match (self.make)(&config) {
                Ok(server) => return Ok((server, config)),
                Err(error) if error.unsupported_setting().is_some_and(|name| config.reset(name)) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Entry<MakeRepo> {
    /// A repo.
    pub fn repo(
        name: &str,
        summary: &str,
        promises: &[&str],
        make: impl Fn() -> io::Result<Arc<dyn EntityRepo>> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, summary, promises, Arc::new(make))
    }
}

impl Entry<MakeExecutor> {
    /// An executor.
    pub fn executor(
        name: &str,
        summary: &str,
        promises: &[&str],
        make: impl Fn(&ServerConfig) -> io::Result<Arc<dyn Executor>> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, summary, promises, Arc::new(make))
    }
}

impl Entry<MakeService> {
    /// A service.
    pub fn service(
        name: &str,
        summary: &str,
        promises: &[&str],
        make: impl Fn(Arc<dyn EntityRepo>) -> Arc<dyn Service> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, summary, promises, Arc::new(make))
    }
}

impl<M> fmt::Debug for Entry<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Strategies of every kind, each kind in the order it was added.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    servers: Vec<ServerEntry>,
    repos: Vec<RepoEntry>,
    executors: Vec<ExecutorEntry>,
    services: Vec<ServiceEntry>,
    references: Vec<ServerEntry>,
}

impl Catalog {
    /// One without entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Everything that this crate was built with; what that is, its features say.
    pub fn builtin() -> Self {
        builtin::catalog()
    }

    /// Adds a server.
    #[must_use]
    pub fn with_server(mut self, entry: ServerEntry) -> Self {
        add(&mut self.servers, entry);
        self
    }

    /// Adds a repo.
    #[must_use]
    pub fn with_repo(mut self, entry: RepoEntry) -> Self {
        add(&mut self.repos, entry);
        self
    }

    /// Adds an executor `X`; with the feature `threadpool`, the server `pool_server/X` that runs on it too.
    #[must_use]
    pub fn with_executor(mut self, entry: ExecutorEntry) -> Self {
        #[cfg(feature = "threadpool")]
        add(&mut self.servers, builtin::pool_server(&entry));
        add(&mut self.executors, entry);
        self
    }

    /// Adds a service.
    #[must_use]
    pub fn with_service(mut self, entry: ServiceEntry) -> Self {
        add(&mut self.services, entry);
        self
    }

    /// Adds a reference: a limit to measure servers against, which runs like one but keeps none of their promises.
    #[must_use]
    pub fn with_reference(mut self, entry: ServerEntry) -> Self {
        add(&mut self.references, entry);
        self
    }

    /// The servers. One that runs on an executor has its name in its own: `pool_server/mpsc_pool`.
    pub fn servers(&self) -> &[ServerEntry] {
        &self.servers
    }

    /// The repos.
    pub fn repos(&self) -> &[RepoEntry] {
        &self.repos
    }

    /// The executors.
    pub fn executors(&self) -> &[ExecutorEntry] {
        &self.executors
    }

    /// The services.
    pub fn services(&self) -> &[ServiceEntry] {
        &self.services
    }

    /// The references.
    pub fn references(&self) -> &[ServerEntry] {
        &self.references
    }

    /// The server of this name. `pool_server` alone means `pool_server/mpsc_pool`.
    ///
    /// # Errors
    ///
    /// Where there is none; the error lists those there are.
    pub fn server(&self, name: &str) -> Result<&ServerEntry, UnknownName> {
        let (short, full) = ALIAS;
        let known = find("server", &self.servers, if name == short { full } else { name });
        known.map_err(|error| if self.servers.iter().any(|entry| entry.name == full) { error.or(short) } else { error })
    }

    /// The repo of this name.
    ///
    /// # Errors
    ///
    /// Where there is none; the error lists those there are.
    pub fn repo(&self, name: &str) -> Result<&RepoEntry, UnknownName> {
        find("repo", &self.repos, name)
    }

    /// The executor of this name.
    ///
    /// # Errors
    ///
    /// Where there is none; the error lists those there are.
    pub fn executor(&self, name: &str) -> Result<&ExecutorEntry, UnknownName> {
        find("executor", &self.executors, name)
    }

    /// The service of this name.
    ///
    /// # Errors
    ///
    /// Where there is none; the error lists those there are.
    pub fn service(&self, name: &str) -> Result<&ServiceEntry, UnknownName> {
        find("service", &self.services, name)
    }

    /// The reference of this name.
    ///
    /// # Errors
    ///
    /// Where there is none; the error lists those there are.
    pub fn reference(&self, name: &str) -> Result<&ServerEntry, UnknownName> {
        find("reference", &self.references, name)
    }
}

/// What a server promises in whose workers an answer that comes later is waited for: so many can be at once as there are
/// workers.
pub const HOLDS_A_WORKER: &str = "later answers hold a worker";

/// What a server promises in which an answer that comes later holds no thread.
pub const HOLDS_NO_THREAD: &str = "later answers hold no thread";

/// A short name, and the server it means.
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
