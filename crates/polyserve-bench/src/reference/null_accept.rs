//! `null_accept`: one thread that accepts, receives, sends and closes, and blocks in each. The limit of a connection for
//! each request.
//!
//! The bytes of the first `recv` count as one request, whatever they are; the answer has `Connection: close`. There is no
//! check for readiness. `workers` must be 1; `requests_per_connection` must be 1 or `None`, and both mean 1.
//!
//! The timeouts and limits are ignored, so a silent client delays other clients until it sends bytes or closes. A shutdown
//! ends this wait: it closes the reading side of the open connection, so that a request that has arrived is still answered.
//!
//! Cost: one `accept4`, `recvfrom`, `sendto` and `close` for each connection, and a lock that is not contended before the
//! shutdown.
//!
//! *Wins when* its rate is the limit that a comparison needs. *Loses when* a connection is kept.

use std::io::{self, Read as _, Write as _};
use std::net::{self, TcpListener, TcpStream};
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::Instant;

use polyserve::serving::ACCEPT_BACKOFF;
use polyserve::serving::net::{is_connection_error, listen};
use polyserve::sync::{read, write};
use polyserve::{ConfigError, Counters, Drain, ListenOn, Running, Server, ServerConfig, Service, Shape, Shutdown};

use super::answer::{Answers, Clock};
use super::validate;

/// The limit of a connection for each request. It ignores its service.
#[derive(Clone, Debug)]
pub struct NullAccept {
    config: ServerConfig,
}

impl NullAccept {
    /// A server with the network settings of `config`.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] if `config` is invalid or has a queue, if `workers` is not 1, or if `requests_per_connection` is
    /// above 1.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        validate("null_accept", &config)?;
        Ok(Self { config })
    }
}

impl Server for NullAccept {
    fn shape(&self) -> Shape {
        Shape::One
    }

    fn start(&self, on: ListenOn, _service: Arc<dyn Service>) -> io::Result<Running> {
        let sockets = Arc::new(Sockets { listener: listen(on, &self.config)?, connection: RwLock::default() });
        let local_addr = sockets.listener.local_addr()?;
        let shutdown = Shutdown::new();
        let clock = Clock::start(&shutdown)?;
        let (closed, ends) = (Arc::downgrade(&sockets), shutdown.clone());
        shutdown.on_begin(move || closed.upgrade().iter().for_each(|sockets| sockets.close()));
        let (grace, main) = (self.config.drain_grace, move || run(&sockets, clock, &ends));
        let running = Running::start("null_accept", local_addr, grace, shutdown.clone(), Counters::default, main);
        running.inspect_err(|_| shutdown.begin(Instant::now())) // the clock ends with it
    }
}

/// The sockets that the thread may block in. A shutdown wakes the thread by them.
struct Sockets {
    listener: TcpListener,
    connection: RwLock<Option<TcpStream>>,
}

impl Sockets {
    /// Wakes the thread if it blocks in `accept` or in `recv`. From now on, both return at once.
    fn close(&self) {
        let _ = socket2::SockRef::from(&self.listener).shutdown(net::Shutdown::Both);
        if let Some(connection) = &*read(&self.connection) {
            let _ = connection.shutdown(net::Shutdown::Read);
        }
    }
}

fn run(sockets: &Sockets, clock: Clock, shutdown: &Shutdown) -> Drain {
    let mut answers = Answers::new(true, clock);
    let mut input = vec![0; 64 * 1024];
    let mut answered = 0;
    while !shutdown.is_begun() {
        match sockets.listener.accept() {
            Ok((connection, _)) => {
                *write(&sockets.connection) = Some(connection);
                answered += u64::from(serve(sockets, &mut answers, &mut input, shutdown));
                drop(write(&sockets.connection).take());
            }
            Err(error) if is_connection_error(&error) || shutdown.is_begun() => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept");
                thread::park_timeout(ACCEPT_BACKOFF);
            }
        }
    }
    answers.end();
    Drain::new(answered, 0, 0)
}

/// Serves the connection. Returns true if it was answered.
fn serve(sockets: &Sockets, answers: &mut Answers, input: &mut [u8], shutdown: &Shutdown) -> bool {
    let connection = read(&sockets.connection);
    let Some(mut connection) = connection.as_ref() else { return false };
    // A shutdown that began before the connection was stored does not wake this thread.
    if shutdown.is_begun() {
        let _ = connection.shutdown(net::Shutdown::Read);
    }
    let has_received = connection.read(input).is_ok_and(|count| count > 0);
    has_received && connection.write_all(answers.take(1)).is_ok()
}
