//! A strategy of the catalog, and how it is made.

use std::fmt;
use std::io;
use std::sync::Arc;

use polyserve_core::entity::NamedEntity;
use polyserve_core::service::EntityService;
use polyserve_core::{ConfigError, EntityRepo, Executor, Server, ServerConfig, Service};

use super::{BuildCode, Promise, Suits, Tag};

/// Makes a server with a configuration. Returns an error if the server cannot honour a setting.
pub type MakeServer = Arc<dyn Fn(&ServerConfig) -> Result<Box<dyn Server>, ConfigError> + Send + Sync>;

/// Makes a new, empty repo.
pub type MakeRepo = Arc<dyn Fn() -> io::Result<Arc<dyn EntityRepo>> + Send + Sync>;

/// Makes a new, empty repo of [`NamedEntity`]s.
pub type MakeNamedRepo = Arc<dyn Fn() -> io::Result<Arc<dyn EntityRepo<NamedEntity>>> + Send + Sync>;

/// Makes an executor with the configured workers and queue.
pub type MakeExecutor = Arc<dyn Fn(&ServerConfig) -> io::Result<Arc<dyn Executor>> + Send + Sync>;

/// Makes a service. A service without stored data ignores the repo.
pub type MakeService = Arc<dyn Fn(Arc<dyn EntityRepo>) -> Arc<dyn Service> + Send + Sync>;

/// A strategy of the catalog.
///
/// ```
/// use polyserve::catalog::{BuildCode, Entry, Promise, Tag};
/// use polyserve::service::Echo;
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
    /// The constructor.
    pub make: M,
    /// Of a repo that keeps its entities at a location: opens them. `make` makes a new, empty repo at that location, and
    /// removes it when it is dropped.
    pub open: Option<MakeRepo>,
    /// Of a repo that takes any entity: the constructor for [`NamedEntity`]s. The kit's tests use it.
    pub named: Option<MakeNamedRepo>,
    /// Of a repo: the workloads for which it is a candidate. See [`Catalog::repos_for`](super::Catalog::repos_for).
    pub suits: Option<Suits>,
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
        Self { name, summary, promises, tags: Vec::new(), code: None, make, open: None, named: None, suits: None }
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
    /// Creates the entry of a server or a reference.
    ///
    /// ```
    /// # #[cfg(feature = "threadpool")] {
    /// use polyserve::catalog::{Catalog, Entry, Promise};
    /// use polyserve::threadpool::Sequential;
    ///
    /// let mine = Entry::server("mine", "one connection at a time", &[Promise::Drains], |config| {
    ///     Ok(Box::new(Sequential::new(config.clone())?))
    /// });
    /// assert!(Catalog::builtin().with_server(mine).server("mine").is_ok());
    /// # }
    /// ```
    pub fn server(
        name: &str,
        summary: &str,
        promises: &[Promise],
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
    ///
    /// ```
    /// use polyserve::catalog::{Catalog, UnknownName};
    /// use polyserve::ServerConfig;
    ///
    /// # #[cfg(feature = "threadpool")] {
    /// let sequential = Catalog::builtin().server("sequential")?.clone();
    /// let (_server, config) = sequential.make_with_supported(&ServerConfig::default().workers(4)).unwrap();
    /// assert_eq!(config.workers, None); // `sequential` has one thread
    /// # }
    /// # Ok::<(), UnknownName>(())
    /// ```
    pub fn make_with_supported(&self, config: &ServerConfig) -> Result<(Box<dyn Server>, ServerConfig), ConfigError> {
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
    /// Creates the entry of a repo.
    pub fn repo(
        name: &str,
        summary: &str,
        promises: &[Promise],
        make: impl Fn() -> io::Result<Arc<dyn EntityRepo>> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, summary, promises, Arc::new(make))
    }

    /// Sets the workloads for which the repo is a candidate. A new entry has none.
    #[must_use]
    pub fn with_suits(mut self, suits: Suits) -> Self {
        self.suits = Some(suits);
        self
    }

    /// Sets the constructor that opens the entities that are kept at the repo's location. A new entry has none.
    #[must_use]
    pub fn with_open(mut self, open: impl Fn() -> io::Result<Arc<dyn EntityRepo>> + Send + Sync + 'static) -> Self {
        self.open = Some(Arc::new(open));
        self
    }

    /// Sets the constructor for [`NamedEntity`]s. A new entry has none.
    ///
    /// ```
    /// # #[cfg(feature = "memory")] {
    /// use polyserve::catalog::Entry;
    /// use polyserve::memory::Sharded;
    /// use std::sync::Arc;
    ///
    /// let mine = Entry::repo("mine", "shards", &[], || Ok(Arc::new(Sharded::new())));
    /// let mine = mine.with_named(|| Ok(Arc::new(Sharded::of())));
    /// assert!(mine.named.is_some());
    /// # }
    /// ```
    #[must_use]
    pub fn with_named(
        mut self,
        make: impl Fn() -> io::Result<Arc<dyn EntityRepo<NamedEntity>>> + Send + Sync + 'static,
    ) -> Self {
        self.named = Some(Arc::new(make));
        self
    }
}

impl Entry<MakeExecutor> {
    /// Creates the entry of an executor.
    ///
    /// ```
    /// # #[cfg(feature = "threadpool")] {
    /// use polyserve::catalog::{Catalog, Entry};
    /// use polyserve::threadpool::{MpscPool, PoolConfig};
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
