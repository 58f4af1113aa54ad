//! Repos that keep their entities at a location: a directory, or the addresses of an engine. `durable:PATH` names one.

use std::fmt;
use std::sync::Arc;

use super::{Promise, RepoEntry};

/// Returns the entry of the repo at a location, over another repo if one is named.
type At = Arc<dyn Fn(&str, Option<&RepoEntry>) -> RepoEntry + Send + Sync>;

/// A kind of repo that needs a location, with a name like the scheme of a URL. [`Catalog::repo`](super::Catalog::repo) makes an entry
/// from `NAME:LOCATION`.
///
/// ```
/// use polyserve::catalog::{Catalog, Entry, RepoScheme, Promise};
/// # use polyserve::catalog::RepoEntry;
/// # fn connect(_url: &str) -> std::io::Result<std::sync::Arc<dyn polyserve::EntityRepo>> { Err(std::io::ErrorKind::Other.into()) }
/// # fn connect_to_empty(_url: &str) -> std::io::Result<std::sync::Arc<dyn polyserve::EntityRepo>> { Err(std::io::ErrorKind::Other.into()) }
///
/// const PROMISES: &[Promise] = &[Promise::Durable];
/// let engine = RepoScheme::new("engine", "a store over my engine", "URL", PROMISES, |url, _over| {
///     let (kept, empty) = (url.to_owned(), url.to_owned());
///     Entry::repo(&format!("engine:{url}"), "a store over my engine", PROMISES, move || connect_to_empty(&empty))
///         .with_open(move || connect(&kept))
/// });
/// let catalog = Catalog::new().with_repo_scheme(engine);
/// assert_eq!(catalog.repo("engine:http://127.0.0.1:9")?.name, "engine:http://127.0.0.1:9");
/// assert!(catalog.repo("engine").unwrap_err().to_string().contains("engine:URL"));
/// # Ok::<(), polyserve::catalog::UnknownName>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct RepoScheme {
    /// The name, before the colon.
    pub name: String,
    /// A description in one line.
    pub summary: String,
    /// What the location is, in capital letters: `PATH`, `URL,...`.
    pub location: String,
    /// The promises.
    pub promises: Vec<Promise>,
    /// Whether it stands on a repo in memory, so that `NAME/REPO:LOCATION` names another one.
    pub over_repos: bool,
    at: At,
}

impl RepoScheme {
    /// Creates a kind of repo. `at` returns the entry for a location. The entry's `make` makes a new, empty repo there, and
    /// its `open` opens the entities that are kept there. The second argument of `at` is the repo of `NAME/REPO:LOCATION`.
    pub fn new(
        name: &str,
        summary: &str,
        location: &str,
        promises: &[Promise],
        at: impl Fn(&str, Option<&RepoEntry>) -> RepoEntry + Send + Sync + 'static,
    ) -> Self {
        let [name, summary, location] = [name, summary, location].map(str::to_owned);
        Self { name, summary, location, promises: promises.to_vec(), over_repos: false, at: Arc::new(at) }
    }

    /// Allows `NAME/REPO:LOCATION`.
    #[must_use]
    pub fn with_repos(self) -> Self {
        Self { over_repos: true, ..self }
    }

    /// Returns the entry for a location.
    pub(super) fn at(&self, location: &str, over: Option<&RepoEntry>) -> RepoEntry {
        (self.at)(location, over)
    }

    /// Returns whether repos of this kind make this promise.
    pub fn promises(&self, promise: Promise) -> bool {
        self.promises.contains(&promise)
    }

    /// Returns how it is named: `durable[/REPO]:PATH`.
    pub fn form(&self) -> String {
        let over = if self.over_repos { "[/REPO]" } else { "" };
        format!("{}{over}:{}", self.name, self.location)
    }
}

impl fmt::Debug for RepoScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RepoScheme").field("name", &self.name).finish_non_exhaustive()
    }
}
