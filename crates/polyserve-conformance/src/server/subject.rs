//! The subject of the kit: a constructor of servers, and their declared deviations.

use std::net::SocketAddr;
use std::time::Duration;

use polyserve_core::{ConfigError, Server, ServerConfig, Shape};

use crate::property::Opaque;

/// A constructor of servers of one kind, and their declarations.
#[derive(Debug)]
pub struct ServerSubject {
    make: Opaque<Make>,
    /// The declared differences from the contract. The kit tests them as well.
    pub deviations: Deviations,
    /// Whether a connection holds a thread of a pool with `workers` threads, as configured.
    ///
    /// A connection that comes while all threads are held waits. If one of them is held by an idle connection, that
    /// connection is closed. Otherwise the new connection waits until another one ends or times out.
    pub pooled: bool,
    /// The max wait for an event that must happen. Only a failing property waits so long.
    pub max_wait: Duration,
    /// The servers speak TLS, and so do the clients of the kit.
    #[cfg(feature = "tls")]
    has_tls: bool,
}

type Make = dyn Fn(ServerConfig) -> Result<Box<dyn Server>, ConfigError> + Send + Sync;

impl ServerSubject {
    /// Creates a subject for the servers that `make` constructs. It has no deviations and a max wait of 30 s.
    ///
    /// ```
    /// use polyserve_conformance::broken::servers::PlainServer;
    /// use polyserve_conformance::server::ServerSubject;
    /// let subject = ServerSubject::new(|config| PlainServer::new(config));
    /// ```
    pub fn new<S: Server>(make: impl Fn(ServerConfig) -> Result<S, ConfigError> + Send + Sync + 'static) -> Self {
        Self {
            make: Opaque(Box::new(move |config| make(config).map(|server| Box::new(server) as Box<dyn Server>))),
            deviations: Deviations::default(),
            pooled: false,
            max_wait: Duration::from_secs(30),
            #[cfg(feature = "tls")]
            has_tls: false,
        }
    }

    /// Declares deviations from the contract.
    #[must_use]
    pub fn deviating(mut self, declare: impl FnOnce(&mut Deviations)) -> Self {
        declare(&mut self.deviations);
        self
    }

    /// Declares that each connection holds a thread of a pool.
    #[must_use]
    pub fn pooled(mut self) -> Self {
        self.pooled = true;
        self
    }

    /// The same servers over TLS. Their clients end their handshakes when they connect.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    #[must_use]
    pub fn over_tls(mut self) -> Self {
        self.has_tls = true;
        self
    }

    /// The bytes of an alert if a rejected connection gets one in place of a 503: over TLS, before its handshake.
    pub(super) fn alert_of_a_rejection(&self) -> Option<u64> {
        #[cfg(feature = "tls")]
        return self.has_tls.then_some(7);
        #[cfg(not(feature = "tls"))]
        None
    }

    /// Sets the max time for which a property waits for an event.
    #[must_use]
    pub fn with_max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = max_wait;
        self
    }

    /// Constructs a server.
    ///
    /// # Errors
    ///
    /// Returns an error if the server cannot honour the configuration.
    pub fn make(&self, config: ServerConfig) -> Result<Box<dyn Server>, ConfigError> {
        #[cfg(feature = "tls")]
        let config = if self.has_tls { crate::tls::configured(config) } else { config };
        (self.make.0)(config)
    }

    /// Notes that the server at `addr` is one of these, for the clients that connect to it.
    pub(super) fn note_server(&self, _addr: SocketAddr) {
        #[cfg(feature = "tls")]
        crate::tls::note_server(_addr, self.has_tls);
    }

    /// The shape of these servers.
    ///
    /// # Panics
    ///
    /// Panics if the constructor refuses the default configuration.
    pub fn shape(&self) -> Shape {
        self.make(ServerConfig::default()).expect("the default configuration is honoured").shape()
    }
}

/// The declared differences from the contract. By default there are none.
///
/// The kit expects what is declared: a server that declares a deviation and does not deviate fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deviations {
    /// A URL without a path gets the path `/`. Then OPTIONS does not name the server, which the contract requires.
    pub urls_without_a_path_get_a_slash: bool,
    /// A deferred answer blocks a worker.
    pub later_answers_hold_a_worker: bool,
}
