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
    pub patience: Duration,
    /// The servers speak TLS, and so do the clients of the kit.
    #[cfg(feature = "tls")]
    has_tls: bool,
}

type Make = dyn Fn(ServerConfig) -> Result<Box<dyn Server>, ConfigError> + Send + Sync;

impl ServerSubject {
    /// Creates a subject for the servers that `make` constructs. It has no deviations and a patience of 30 s.
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
            patience: Duration::from_secs(30),
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

    /// Sets the patience.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
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
    /// A line of the head may end with a bare LF.
    pub bare_lf_ends_a_line: bool,
    /// A `Content-Length` together with `Transfer-Encoding: chunked` is ignored. The contract requires 400.
    pub chunked_overrides_length: bool,
    /// A chunk size is not checked in advance. A chunk larger than any body is refused once too many of its bytes have come,
    /// or at the body timeout. The contract requires 400 or 413 at once.
    pub chunk_sizes_are_believed: bool,
    /// Any byte in a chunk extension is skipped, and the end of a chunked body is judged leniently. The contract requires 400.
    /// The connection must close after such a body.
    pub chunk_extensions_hold_anything: bool,
    /// The connection is closed after a request with a chunked body. The contract keeps it open.
    pub chunked_bodies_are_last: bool,
    /// A target is cut off at `#`. The contract requires 400.
    pub fragments_are_dropped: bool,
    /// An unknown transfer coding is answered with 400. The contract requires 501.
    pub unknown_coding_is_400: bool,
    /// An unknown method is answered with 400. The contract requires 501.
    pub unknown_method_is_400: bool,
    /// A later version of HTTP is answered with 400. The contract requires 505.
    pub later_version_is_400: bool,
    /// A URL without a path gets the path `/`. Then OPTIONS does not name the server, which the contract requires.
    pub urls_without_a_path_get_a_slash: bool,
    /// The connection is closed without an answer if a head or a body takes too long. The contract requires 408.
    pub timeouts_close_silently: bool,
    /// Errors before the service is called have no body.
    pub early_errors_are_empty: bool,
    /// A deferred answer blocks a worker.
    pub later_answers_hold_a_worker: bool,
}

impl Deviations {
    /// Whether the deviation of this name, which is one of the wire corpus, is declared.
    pub(super) fn declares(&self, name: &str) -> bool {
        match name {
            "bare_lf_ends_a_line" => self.bare_lf_ends_a_line,
            "chunked_overrides_length" => self.chunked_overrides_length,
            "chunk_sizes_are_believed" => self.chunk_sizes_are_believed,
            "chunk_extensions_hold_anything" => self.chunk_extensions_hold_anything,
            "fragments_are_dropped" => self.fragments_are_dropped,
            "unknown_coding_is_400" => self.unknown_coding_is_400,
            "unknown_method_is_400" => self.unknown_method_is_400,
            "later_version_is_400" => self.later_version_is_400,
            unknown => panic!("the corpus has an unknown deviation: {unknown}"),
        }
    }
}
