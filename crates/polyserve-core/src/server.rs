//! Servers: the [`Server`] trait, and [`Running`], a server that was started.

use std::error::Error;
use std::fmt;
use std::future::IntoFuture as _;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::answer::{Answer, promise};
use crate::handshake_failure::HandshakeFailure;
use crate::listen_on::{IntoListenOn, ListenOn};
use crate::panics::isolate;
use crate::service::Service;
use crate::shutdown::Shutdown;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Mutex, lock};

/// A strategy that serves connections.
///
/// # Contract
///
/// * [`start`](Self::start) returns when the socket is bound and the workers are ready: a client may connect at once.
/// * One server value may serve several times, also at the same time. The runs share nothing.
/// * The bytes on the wire are those of RFC 9110 and RFC 9112. Where these leave a choice, the properties of the conformance kit
///   are the contract.
/// * **Drain**: the server accepts until no connection waits, and closes the listener. It serves every accepted connection
///   that has sent a byte, and answers `Connection: close`. It closes idle connections without cutting an answer,
///   and cuts the rest at the deadline. All threads are joined except those that are stuck in the service's code. The port
///   is free.
///
/// ```
/// use polyserve_core::{Shape, ListenOn, Running, Server, Service};
/// use std::sync::Arc;
///
/// /// Prints the address of another server.
/// #[derive(Debug)]
/// struct Announced<S>(S);
///
/// impl<S: Server> Server for Announced<S> {
///     fn shape(&self) -> Shape {
///         self.0.shape()
///     }
///     fn max_concurrent(&self) -> Option<usize> {
///         self.0.max_concurrent()
///     }
///     fn start(&self, on: ListenOn, service: Arc<dyn Service>) -> std::io::Result<Running> {
///         let running = self.0.start(on, service)?;
///         println!("listening on http://{}", running.local_addr());
///         Ok(running)
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `Server`",
    note = "a server is made from a `ServerConfig`, and its constructor returns a `Result`: \
            `PoolServer::mpsc(ServerConfig::default())?`"
)]
pub trait Server: fmt::Debug + Send + Sync + 'static {
    /// Returns the shape of the server.
    fn shape(&self) -> Shape;

    /// Returns the number of connections that are served at a time, if the shape bounds it: others wait until one leaves.
    /// `None` if no connection delays another, or if the number is not known.
    fn max_concurrent(&self) -> Option<usize> {
        (self.shape() == Shape::One).then_some(1)
    }

    /// Listens and serves `service`. [`ServerExt::serve`] takes more types.
    ///
    /// # Errors
    ///
    /// Returns an error if the address cannot be bound, or a thread cannot be started.
    fn start(&self, on: ListenOn, service: Arc<dyn Service>) -> io::Result<Running>;
}

/// What every [`Server`] can do in addition.
///
/// ```
/// use polyserve_core::{Reply, Request, Running, Server, ServerExt};
/// use std::net::TcpListener;
///
/// fn hello(server: &dyn Server) -> std::io::Result<Running> {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     server.serve(listener, |_: Request<'_>| Reply::text("hello"))
/// }
/// ```
pub trait ServerExt: Server {
    /// Serves `service` on an address, or on a bound listener.
    ///
    /// `on` is a `SocketAddr`, a host and a port (`"127.0.0.1:8001"`, `([127, 0, 0, 1], 8001)`), or a `TcpListener`. Port 0
    /// picks a free port, which [`Running::local_addr`] returns. A service in an `Arc` is not wrapped again.
    ///
    /// # Errors
    ///
    /// Returns an error if `on` does not resolve or cannot be bound, or if a thread cannot be started.
    fn serve(&self, on: impl IntoListenOn, service: impl Service) -> io::Result<Running> {
        self.start(on.into_listen_on()?, service.into_shared())
    }
}

impl<S: Server + ?Sized> ServerExt for S {}

#[deny(clippy::missing_trait_methods)]
impl<S: Server + ?Sized> Server for Box<S> {
    fn shape(&self) -> Shape {
        (**self).shape()
    }
    fn max_concurrent(&self) -> Option<usize> {
        (**self).max_concurrent()
    }
    fn start(&self, on: ListenOn, service: Arc<dyn Service>) -> io::Result<Running> {
        (**self).start(on, service)
    }
}

/// The shape of a server: how connections use its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// An idle connection holds no worker. The server may have one worker: see
    /// [`Supports::one_worker`](crate::config::Supports::one_worker).
    Multiplexed,
    /// A connection holds a thread while it is open. An idle one is closed if another waits for a thread.
    OnePerThread,
    /// One connection is served at a time. An idle connection is closed if another one waits.
    One,
}

/// The result of a drain.
///
/// ```
/// let drain = polyserve_core::Drain::new(7, 0, 0);
/// assert_eq!(drain.to_string(), "answered 7, cut 0, stuck 0");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drain {
    /// The number of answers of any status since the server was started. An answer counts when the kernel has accepted
    /// its last byte.
    pub answered: u64,
    /// Requests that had begun and were cut at the deadline. Requests of stuck threads are not among them.
    pub cut: u64,
    /// Threads that are stuck in the service's code, and were left behind.
    pub stuck: u64,
}

impl Drain {
    /// Creates the result of a drain, for the author of a server.
    pub const fn new(answered: u64, cut: u64, stuck: u64) -> Self {
        Self { answered, cut, stuck }
    }
}

impl fmt::Display for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "answered {}, cut {}, stuck {}", self.answered, self.cut, self.stuck)
    }
}

/// The counters of a running server, at one moment.
///
/// ```
/// let counters = polyserve_core::Counters::default();
/// assert_eq!(counters.to_string(), "open 0, answered 0, rejected 0, panics 0");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// The number of open connections: those that count towards `max_connections`. Rejected connections, and connections that
    /// linger after their last answer, are not among them.
    pub open: u64,
    /// The number of answers of any status since the start, as in [`Drain::answered`].
    pub answered: u64,
    /// The number of connections since the start that were answered 503 because the server was full, or their client had too many.
    pub rejected: u64,
    /// The part of `rejected` in which the client had `max_connections_per_peer` open.
    pub rejected_peers: u64,
    /// The part of `rejected` in which the queue of the server was full.
    pub rejected_queue: u64,
    /// The number of connections that wait for a thread now. 0 for a server without a queue of its own.
    pub queued: u64,
    /// The number of panics of the service since the start, each caught by the server.
    pub panics: u64,
    /// The bytes of the memory budget that connections use now: received bytes of unfinished bodies, and unsent answers.
    pub reserved_bytes: u64,
    /// The memory budget.
    pub memory_limit: u64,
    /// The number of requests since the start that were refused because the memory budget was used up.
    pub memory_refused: u64,
    /// The number of TLS handshakes since the start that have succeeded.
    pub handshakes: u64,
    /// The number of TLS handshakes since the start that have failed, by [`HandshakeFailure`].
    pub failed_handshakes: [u64; HandshakeFailure::ALL.len()],
    /// The number of requests since the start that the overload policy has refused, by [`OverloadReason`](crate::overload::OverloadReason).
    pub overload_refused: [u64; 2],
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { open, answered, rejected, panics, .. } = self;
        write!(f, "open {open}, answered {answered}, rejected {rejected}, panics {panics}")
    }
}

/// A handle to the counters of a server, also of one that has ended. A clone shares them.
///
/// After the end it has the counters of the end, and keeps nothing else of the server.
#[derive(Clone)]
pub struct CounterSource(Arc<Mutex<CounterState>>);

enum CounterState {
    Running(Box<dyn Fn() -> Counters + Send + Sync>),
    Ended(Counters),
}

impl CounterSource {
    /// Returns the counters of this moment, as [`Running::counters`] does.
    pub fn get(&self) -> Counters {
        match &*lock(&self.0) {
            CounterState::Running(counters) => counters(),
            CounterState::Ended(counters) => *counters,
        }
    }

    /// Keeps the counters of this moment, and drops what the server shares with them.
    fn end(&self) {
        let ended = CounterState::Ended(self.get());
        let running = std::mem::replace(&mut *lock(&self.0), ended);
        drop(running); // it may hold the service, and dropping that may take long
    }
}

impl fmt::Debug for CounterSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CounterSource").field(&self.get()).finish()
    }
}

/// A server that was started. Dropping it is a shutdown without grace.
///
/// ```
/// use polyserve_core::{Drain, Running, ServerFailed};
/// use std::time::Duration;
///
/// fn stop(running: Running) -> Result<Drain, ServerFailed> {
///     println!("stopping {}: {}", running.local_addr(), running.counters());
///     running.shutdown_within(Duration::from_secs(5)) // or `shutdown()`, or `drained().await`
/// }
/// ```
pub struct Running {
    local_addr: SocketAddr,
    grace: Duration,
    shutdown: Shutdown,
    counters: CounterSource,
    thread: Option<JoinHandle<()>>,
    /// In a mutex, so that threads may share a running server. Taken once.
    ended: Mutex<Option<Answer<Result<Drain, ServerFailed>>>>,
}

impl Running {
    /// Starts `main` as the server's main thread, with this thread name. For authors of servers.
    ///
    /// `counters` returns the present counters; `polyserve_serving::ServerState::counters` has most of them.
    ///
    /// `main` is to return soon after `shutdown` has begun, at the shutdown's deadline at the latest. Everything that it has
    /// started is to have ended by then.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started. Then `shutdown` has begun, so that the server's other threads end.
    ///
    /// ```
    /// use polyserve_core::{Answer, Counters, Drain, Running, Shutdown};
    /// use std::time::Duration;
    ///
    /// let shutdown = Shutdown::new();
    /// let begun = shutdown.begun();
    /// let main = move || {
    ///     Answer::later(begun).wait(); // a server accepts and serves until then
    ///     Drain::default()
    /// };
    /// let (addr, grace) = (([127, 0, 0, 1], 8001).into(), Duration::from_secs(1));
    /// let running = Running::start("idle", addr, grace, shutdown, Counters::default, main)?;
    /// assert_eq!(running.shutdown()?, Drain::default());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn start(
        name: &str,
        local_addr: SocketAddr,
        grace: Duration,
        shutdown: Shutdown,
        counters: impl Fn() -> Counters + Send + Sync + 'static,
        main: impl FnOnce() -> Drain + Send + 'static,
    ) -> io::Result<Self> {
        let (completer, ended) = promise(Err(ServerFailed::new("its main thread went away")));
        let counters = CounterSource(Arc::new(Mutex::new(CounterState::Running(Box::new(counters)))));
        let at_the_end = counters.clone();
        let thread = thread::Builder::new().name(name.into()).spawn(move || {
            let drained = isolate(main).map_err(ServerFailed::new);
            let _ = isolate(|| at_the_end.end());
            let _ = completer.complete(drained);
        });
        let thread = thread.inspect_err(|_| shutdown.begin(Instant::now()))?;
        Ok(Self { local_addr, grace, shutdown, counters, thread: Some(thread), ended: Mutex::new(Some(ended)) })
    }

    /// Returns the bound address, with the real port if port 0 was requested.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Returns the counters of this moment. They are read one after the other while the server works, so they may differ by the
    /// requests of that time.
    ///
    /// # Cost
    ///
    /// A lock and a few loads. Some servers also take the lock under which they count open connections.
    pub fn counters(&self) -> Counters {
        self.counters.get()
    }

    /// Returns a handle to the counters, which lives on after [`shutdown`](Self::shutdown).
    ///
    /// ```
    /// use polyserve_core::Running;
    ///
    /// fn stop(running: Running) -> std::io::Result<()> {
    ///     let counters = running.counter_source();
    ///     let drain = running.shutdown()?;
    ///     assert_eq!(counters.get().answered, drain.answered);
    ///     Ok(())
    /// }
    /// ```
    pub fn counter_source(&self) -> CounterSource {
        self.counters.clone()
    }

    /// Drains with the configured grace, and waits for the end.
    ///
    /// # Errors
    ///
    /// Returns [`ServerFailed`] if the server's main thread has panicked.
    pub fn shutdown(self) -> Result<Drain, ServerFailed> {
        let grace = self.grace;
        self.shutdown_within(grace)
    }

    /// Drains, cuts what has not ended within `grace`, and waits for the end.
    ///
    /// # Errors
    ///
    /// Returns [`ServerFailed`] if the server's main thread has panicked.
    pub fn shutdown_within(mut self, grace: Duration) -> Result<Drain, ServerFailed> {
        self.begin(grace);
        let result = self.take_end().wait();
        self.join();
        result
    }

    /// Drains with the configured grace, and returns a future of the end, for async callers. The drain begins at once. When
    /// the future is ready, the server's main thread has done its work, and ends by itself.
    ///
    /// ```
    /// use polyserve_core::{Drain, Running, ServerFailed};
    /// async fn end(running: Running) -> Result<Drain, ServerFailed> {
    ///     running.drained().await
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`ServerFailed`] if the server's main thread has panicked.
    pub fn drained(mut self) -> impl Future<Output = Result<Drain, ServerFailed>> + Send + 'static {
        self.begin(self.grace);
        let ended = self.take_end();
        drop(self.thread.take());
        ended.into_future()
    }

    fn take_end(&mut self) -> Answer<Result<Drain, ServerFailed>> {
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        ended.expect("each method that takes the end consumes the running server")
    }

    fn begin(&self, grace: Duration) {
        let now = Instant::now();
        self.shutdown.begin(now.checked_add(grace).unwrap_or(now + Duration::from_secs(365 * 24 * 3600)));
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // its panics are caught in the thread
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if lock(&self.ended).is_some() {
            self.begin(Duration::ZERO);
            self.join();
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("local_addr", &self.local_addr).finish_non_exhaustive()
    }
}

/// The main thread of a server has panicked, so there is no result of its drain.
///
/// ```
/// fn stop(running: polyserve_core::Running) -> std::io::Result<()> {
///     println!("{}", running.shutdown()?); // it is an `io::Error` too
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFailed {
    panic: String,
}

impl ServerFailed {
    fn new(panic: impl Into<String>) -> Self {
        Self { panic: panic.into() }
    }

    /// Returns the text of the panic.
    pub fn panic(&self) -> &str {
        &self.panic
    }
}

impl fmt::Display for ServerFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server failed: {}", self.panic)
    }
}

impl Error for ServerFailed {}

impl From<ServerFailed> for io::Error {
    fn from(failed: ServerFailed) -> Self {
        Self::other(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Echo;

    /// Keeps the service that it was started with.
    #[derive(Default)]
    struct Keep(Mutex<Option<Arc<dyn Service>>>);

    impl fmt::Debug for Keep {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Keep")
        }
    }

    impl Server for Keep {
        fn shape(&self) -> Shape {
            Shape::One
        }
        fn start(&self, _: ListenOn, service: Arc<dyn Service>) -> io::Result<Running> {
            *lock(&self.0) = Some(service);
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    /// Serves `service`. Returns the address of the service that the server was started with.
    fn address_in_server(service: impl Service) -> *const () {
        let keep = Keep::default();
        assert!(keep.serve(([127, 0, 0, 1], 0), service).is_err());
        let service = lock(&keep.0).take().unwrap();
        Arc::as_ptr(&service).cast()
    }

    /// A service that is wrapped twice costs a second virtual call for each request.
    #[test]
    fn a_shared_service_is_not_wrapped_again() {
        let concrete = Arc::new(Echo);
        let shared: Arc<dyn Service> = Arc::new(Echo);
        let boxed: Arc<dyn Service> = Arc::from(Box::new(Echo) as Box<dyn Service>);
        assert_eq!(address_in_server(Arc::clone(&concrete)), Arc::as_ptr(&concrete).cast());
        assert_eq!(address_in_server(Arc::clone(&shared)), Arc::as_ptr(&shared).cast());
        assert_eq!(address_in_server(Arc::clone(&boxed)), Arc::as_ptr(&boxed).cast());
    }

    /// The handle to the counters keeps neither the service nor anything else that the server had.
    #[test]
    fn the_counters_outlive_the_server_and_nothing_else() {
        let shutdown = Shutdown::new();
        let (begun, owned) = (shutdown.begun(), Arc::new(()));
        let (shared, kept) = (Arc::downgrade(&owned), Arc::clone(&owned));
        let counters = move || Counters { answered: Arc::strong_count(&owned) as u64, ..Counters::default() };
        let main = move || {
            Answer::later(begun).wait();
            drop(kept);
            Drain::new(1, 0, 0)
        };
        let (addr, grace) = (([127, 0, 0, 1], 1).into(), Duration::ZERO);
        let running = Running::start("counted", addr, grace, shutdown, counters, main).unwrap();
        let source = running.counter_source();
        assert_eq!((source.get().answered, running.counters().answered), (2, 2));
        assert_eq!(running.shutdown().unwrap(), Drain::new(1, 0, 0));
        assert_eq!((source.get().answered, source.clone().get().answered, shared.strong_count()), (1, 1, 0));
    }

    #[test]
    fn a_running_server_may_be_shared() {
        fn shared<T: Send + Sync>() {}
        shared::<Running>();
    }
}
