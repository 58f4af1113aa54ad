//! A strategy of the catalog, and how it is made.

use std::fmt;
use std::io;
use std::sync::Arc;

use polyserve_core::{ConfigError, EntityRepo, EntityService, Executor, Server, ServerConfig, Service};

use super::{BuildCode, Promise, RepoRule, Tag};

/// Makes a server with a configuration. Returns an error if the server cannot honour a setting.
pub type MakeServer = Arc<dyn Fn(&ServerConfig) -> Result<Box<dyn Server>, ConfigError> + Send + Sync>;

/// The constructors of a repo, and the rule that tells for which workloads it is a candidate.
#[derive(Clone)]
pub struct MakeRepo {
    /// Makes a new, empty repo. Of a repo that keeps its entities at a location: it is there, and removed when it is dropped.
    empty: RepoConstructor,
    /// Opens the entities that are kept at the repo's location.
    open: Option<RepoConstructor>,
    rule: Option<RepoRule>,
}

impl fmt::Debug for MakeRepo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MakeRepo").finish_non_exhaustive()
    }
}

type RepoConstructor = Arc<dyn Fn() -> io::Result<Arc<dyn EntityRepo>> + Send + Sync>;

/// Makes an executor with the configured workers and queue.
pub type MakeExecutor = Arc<dyn Fn(&ServerConfig) -> io::Result<Arc<dyn Executor>> + Send + Sync>;

/// Makes a service. A service without stored data ignores the repo.
pub type MakeService = Arc<dyn Fn(Arc<dyn EntityRepo>) -> Arc<dyn Service> + Send + Sync>;

/// A strategy of the catalog.
///
/// ```
/// use polyserve::Echo;
/// use polyserve::catalog::{BuildCode, Entry, Promise, Tag};
/// use std::sync::Arc;
///
/// let entry = Entry::service("echo", "answers with the body", &[Promise::Drains], |_repo| Arc::new(Echo))
///     .with_tags(&[Tag::Quick])
///     .with_code(BuildCode::new(None, "Echo"));
/// assert!(entry.promises(Promise::Drains) && entry.has(Tag::Quick));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Entry<M> {
    /// The name for commands and tables.
    pub name: String,
    /// A description in one line.
    pub summary: String,
    /// The promises.
    pub promises: Vec<Promise>,
    /// The commands and experiments that take it by default.
    pub tags: Vec<Tag>,
    /// The Rust code that builds it. A strategy without code is built by its name from the program's catalog.
    pub code: Option<BuildCode>,
    pub(super) make: M,
}

/// The entry of a server.
pub type ServerEntry = Entry<MakeServer>;
/// The entry of a repo.
pub type RepoEntry = Entry<MakeRepo>;
/// The entry of an executor.
pub type ExecutorEntry = Entry<MakeExecutor>;
/// The entry of a service.
pub type ServiceEntry = Entry<MakeService>;

impl<M> Entry<M> {
    fn new(name: &str, summary: &str, promises: &[Promise], make: M) -> Self {
        let (name, summary, promises) = (name.to_owned(), summary.to_owned(), promises.to_vec());
        Self { name, summary, promises, tags: Vec::new(), code: None, make }
    }

    /// Adds tags. A new entry has none.
    #[must_use]
    pub fn with_tags(mut self, tags: &[Tag]) -> Self {
        self.tags.extend_from_slice(tags);
        self
    }

    /// Sets the Rust code that builds the strategy. A new entry has none.
    #[must_use]
    pub fn with_code(mut self, code: BuildCode) -> Self {
        self.code = Some(code);
        self
    }

    /// Returns whether the strategy makes this promise.
    pub fn promises(&self, promise: Promise) -> bool {
        self.promises.contains(&promise)
    }

    /// Returns whether the entry has this tag.
    pub fn has(&self, tag: Tag) -> bool {
        self.tags.contains(&tag)
    }
}

impl Entry<MakeServer> {
    /// Creates the entry of a server or a reference. Its first promise is the [shape](Server::shape) of the server that `make` returns
    /// for the default configuration. If `make` fails, the entry promises no shape.
    ///
    /// ```
    /// # #[cfg(feature = "threadpool")] {
    /// use polyserve::catalog::{Catalog, Entry, Promise};
    /// use polyserve::threadpool::Sequential;
    ///
    /// let mine = Entry::server("mine", "one connection at a time", &[Promise::Drains], |config| {
    ///     Ok(Box::new(Sequential::new(config.clone())?))
    /// });
    /// assert!(mine.promises(Promise::Shape(polyserve::Shape::One)));
    /// assert!(Catalog::builtin().with_server(mine).server("mine").is_ok());
    /// # }
    /// ```
    pub fn server(
        name: &str,
        summary: &str,
        promises: &[Promise],
        make: impl Fn(&ServerConfig) -> Result<Box<dyn Server>, ConfigError> + Send + Sync + 'static,
    ) -> Self {
        let shape = make(&ServerConfig::default()).map(|server| Promise::Shape(server.shape()));
        let promises: Vec<_> = shape.into_iter().chain(promises.iter().copied()).collect();
        Self::new(name, summary, &promises, Arc::new(make))
    }

    /// Builds the server.
    ///
    /// # Errors
    ///
    /// Returns an error if a value is wrong, or if the server cannot honour a setting.
    pub fn build(&self, config: &ServerConfig) -> Result<Box<dyn Server>, ConfigError> {
        (self.make)(config)
    }

    /// Builds the server with the settings of `config` that the server has. Resets the others, so that several servers can
    /// share a configuration. Returns the server and the configuration that it was made with.
    ///
    /// # Errors
    ///
    /// Returns the server's error if a value is wrong.
    ///
    /// ```
    /// use polyserve::catalog::{Catalog, UnknownName};
    /// use polyserve::ServerConfig;
    ///
    /// # #[cfg(feature = "threadpool")] {
    /// let sequential = Catalog::builtin().server("sequential")?.clone();
    /// let (_server, config) = sequential.build_with_supported(&ServerConfig::default().workers(4)).unwrap();
    /// assert_eq!(config.workers, None); // `sequential` has one thread
    /// # }
    /// # Ok::<(), UnknownName>(())
    /// ```
    pub fn build_with_supported(&self, config: &ServerConfig) -> Result<(Box<dyn Server>, ServerConfig), ConfigError> {
        let mut config = config.clone();
        loop {
            match self.build(&config) {
                Ok(server) => return Ok((server, config)),
                Err(error) if error.unsupported_setting().is_some_and(|name| config.reset(name)) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Entry<MakeRepo> {
    /// Creates the entry of a repo.
    pub fn repo(
        name: &str,
        summary: &str,
        promises: &[Promise],
        make: impl Fn() -> io::Result<Arc<dyn EntityRepo>> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, summary, promises, MakeRepo { empty: Arc::new(make), open: None, rule: None })
    }

    /// Sets the rule that tells for which workloads the repo is a candidate. A new entry has none, and is no candidate.
    #[must_use]
    pub fn with_rule(mut self, rule: RepoRule) -> Self {
        self.make.rule = Some(rule);
        self
    }

    /// Sets the constructor that opens the entities that are kept at the repo's location. A new entry has none.
    #[must_use]
    pub fn with_open(mut self, open: impl Fn() -> io::Result<Arc<dyn EntityRepo>> + Send + Sync + 'static) -> Self {
        self.make.open = Some(Arc::new(open));
        self
    }

    /// Builds a new, empty repo. If the repo keeps its entities at a location, the new one is removed when it is dropped.
    ///
    /// # Errors
    ///
    /// Returns an error if a thread, a directory or an engine that the repo needs is not available.
    pub fn build(&self) -> io::Result<Arc<dyn EntityRepo>> {
        (self.make.empty)()
    }

    /// Opens the entities that are kept at the repo's location. A repo without a location is built new and empty.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`build`](Self::build), and an error if the entities cannot be read.
    pub fn open(&self) -> io::Result<Arc<dyn EntityRepo>> {
        self.make.open.as_ref().unwrap_or(&self.make.empty)()
    }

    /// Returns whether the repo keeps its entities at a location.
    pub fn has_location(&self) -> bool {
        self.make.open.is_some()
    }

    /// Returns the rule that tells for which workloads the repo is a candidate. See [`Catalog::repos_for`](super::Catalog::repos_for).
    pub fn rule(&self) -> Option<RepoRule> {
        self.make.rule
    }
}

impl Entry<MakeExecutor> {
    /// Creates the entry of an executor.
    ///
    /// ```
    /// # #[cfg(feature = "threadpool")] {
    /// use polyserve::catalog::{Catalog, Entry};
    /// use polyserve::serving::executor::PoolConfig;
    /// use polyserve::threadpool::MpscPool;
    /// use std::sync::Arc;
    ///
    /// let mine = Entry::executor("mine", "a pool of one", &[], |_config| Ok(Arc::new(MpscPool::new(PoolConfig::new(1))?)));
    /// assert!(Catalog::builtin().with_executor(mine).server("pool_server/mine").is_ok());
    /// # }
    /// ```
    pub fn executor(
        name: &str,
        summary: &str,
        promises: &[Promise],
        make: impl Fn(&ServerConfig) -> io::Result<Arc<dyn Executor>> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, summary, promises, Arc::new(make))
    }

    /// Builds the executor with the workers and the queue of `config`.
    ///
    /// # Errors
    ///
    /// Returns an error if a value is wrong, or if a thread cannot be started.
    pub fn build(&self, config: &ServerConfig) -> io::Result<Arc<dyn Executor>> {
        (self.make)(config)
    }
}

impl Entry<MakeService> {
    /// Creates the entry of a service.
    pub fn service(
        name: &str,
        summary: &str,
        promises: &[Promise],
        make: impl Fn(Arc<dyn EntityRepo>) -> Arc<dyn Service> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, summary, promises, Arc::new(make))
    }

    /// Builds the service over `repo`. A service without stored data ignores the repo.
    pub fn build(&self, repo: Arc<dyn EntityRepo>) -> Arc<dyn Service> {
        (self.make)(repo)
    }

    /// The entry of the entity store, `entity`, with options. It takes the place of the built-in one.
    ///
    /// ```
    /// use polyserve::catalog::{Catalog, Entry};
    ///
    /// let catalog = Catalog::builtin().with_service(Entry::entity(|service| service.etags(true)));
    /// assert_eq!(catalog.service("entity")?.name, "entity");
    /// # Ok::<(), polyserve::catalog::UnknownName>(())
    /// ```
    pub fn entity(options: impl Fn(CatalogEntityService) -> CatalogEntityService + Send + Sync + 'static) -> Self {
        let make = move |repo| shared(options(EntityService::new(repo)));
        Self::service("entity", "the entity store", &[Promise::AnswersAsRepo], make)
    }
}

/// The entity store over any repo of a catalog.
pub type CatalogEntityService = EntityService<Arc<dyn EntityRepo>>;

/// Compiles the service's request path in this crate. Otherwise each crate that sets an option would compile a copy, with its
/// own optimisation level.
fn shared(service: CatalogEntityService) -> Arc<dyn Service> {
    Arc::new(service)
}

impl<M> fmt::Debug for Entry<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).finish_non_exhaustive()
    }
}
