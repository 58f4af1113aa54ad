//! What is tested: a way to make servers, and how they are declared to deviate.

use std::fmt;
use std::time::Duration;

use polyserve_core::{ConfigError, Connections, Server, ServerConfig};

/// A way to make servers of one kind, and what they declare.
pub struct ServerSubject {
    make: Box<Make>,
    /// How these servers are declared to differ from the contract. What is declared is tested, too.
    pub deviations: Deviations,
    /// Connections that hold a thread take it from a pool of a fixed size, which is the configuration's `workers`. Then
    /// who comes while all are held waits: for one that is idle no longer than it takes to close it, for another until
    /// it ends or its timeout.
    pub pooled: bool,
    /// How long anything that must happen may take; it only matters where it does not happen.
    pub patience: Duration,
}

type Make = dyn Fn(ServerConfig) -> Result<Box<dyn Server>, ConfigError> + Send + Sync;

impl ServerSubject {
    /// Servers as `make` makes them, without deviations, with a patience of 30 s.
    ///
    /// ```
    /// use polyserve_conformance::broken::servers::PlainServer;
    /// use polyserve_conformance::server::ServerSubject;
    /// let subject = ServerSubject::new(|config| PlainServer::new(config));
    /// ```
    pub fn new<S: Server>(make: impl Fn(ServerConfig) -> Result<S, ConfigError> + Send + Sync + 'static) -> Self {
        Self {
            make: Box::new(move |config| make(config).map(|server| Box::new(server) as Box<dyn Server>)),
            deviations: Deviations::default(),
            pooled: false,
            patience: Duration::from_secs(30),
        }
    }

    /// These servers, with declared deviations.
    #[must_use]
    pub fn deviating(mut self, declare: impl FnOnce(&mut Deviations)) -> Self {
        declare(&mut self.deviations);
        self
    }

    /// These servers, whose connections hold threads of a pool.
    #[must_use]
    pub fn pooled(mut self) -> Self {
        self.pooled = true;
        self
    }

    /// These servers, with another patience.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Makes one.
    ///
    /// # Errors
    ///
    /// Where the server cannot honour the configuration.
    pub fn make(&self, config: ServerConfig) -> Result<Box<dyn Server>, ConfigError> {
        (self.make)(config)
    }

    /// The shape of these servers.
    ///
    /// # Panics
    ///
    /// Where they refuse the default configuration.
    pub fn shape(&self) -> Connections {
        self.make(ServerConfig::default()).expect("the default configuration is honoured").connections()
    }
}

impl fmt::Debug for ServerSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSubject")
            .field("deviations", &self.deviations)
            .field("pooled", &self.pooled)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

/// How servers are declared to differ from the contract; by default they do not. The kit expects what is declared: a
/// server that declares a deviation and does not deviate fails as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deviations {
    /// A line of the head may end with LF alone.
    pub bare_lf_ends_a_line: bool,
    /// A `Content-Length` beside `Transfer-Encoding: chunked` is ignored, where the contract has 400.
    pub chunked_overrides_length: bool,
    /// A chunk that says it is larger than any body is refused once more of it has come than a body may have, or not come
    /// in time, where the contract has 400 or 413 at once.
    pub chunk_sizes_are_believed: bool,
    /// A control byte in a chunk's extension is skipped with it, where the contract has 400.
    pub chunk_extensions_hold_anything: bool,
    /// A transfer coding that is not known is a 400, where the contract has 501.
    pub unknown_coding_is_400: bool,
    /// A method that is not known is a 400, where the contract has 501.
    pub unknown_method_is_400: bool,
    /// A later version of HTTP/1 or HTTP is a 400, where the contract has 505.
    pub later_version_is_400: bool,
    /// A head or body that takes too long is a closed connection, where the contract has 408.
    pub timeouts_close_silently: bool,
    /// Errors that are found before the service is asked have no body.
    pub early_errors_are_empty: bool,
    /// A worker waits for an answer that comes later, and does nothing else.
    pub later_answers_hold_a_worker: bool,
}
