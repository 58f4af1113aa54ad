//! A running server for one property. It always ends.
//!
//! Invariant: nothing here waits longer than the subject's max wait. A server that never starts or never ends fails
//! the property and does not hang the kit.

use std::io;
use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::mpsc;
use std::sync::{Arc, Weak};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use polyserve_core::{
    BoxFuture, Counters, Drain, Echo, ListenOn, Running, Server, ServerConfig, ServerFailed, Service, Shape, park_until,
};

use super::services::let_pass;
use super::subject::ServerSubject;
use super::wire::request;
use crate::client::{Client, Response};
use crate::property::{needs, within};

/// A running server.
pub(super) struct Live {
    running: Option<Running>,
    /// Upgrades until every thread of the server has ended.
    service: Weak<Arc<dyn Service>>,
    pub(super) addr: SocketAddr,
    max_wait: Duration,
}

impl ServerSubject {
    /// Starts a server.
    #[track_caller]
    pub(super) fn live(&self, service: impl Service, config: ServerConfig) -> Live {
        match self.make(config) {
            Ok(server) => self.serve(&Arc::from(server), service),
            Err(error) => panic!("the server refuses a configuration that it is to honour: {error}"),
        }
    }

    /// Starts a server. Its drains may take longer than the max wait.
    #[track_caller]
    pub(super) fn long_drain(&self, service: impl Service, config: ServerConfig) -> Live {
        self.live(service, config.drain_grace(self.max_wait * 10))
    }

    /// A server value with the default configuration, for several runs.
    pub(super) fn default_server(&self) -> Arc<dyn Server> {
        Arc::from(self.make(defaults()).expect("the default is honoured"))
    }

    /// Starts a run of `server` on a free port.
    #[track_caller]
    pub(super) fn serve(&self, server: &Arc<dyn Server>, service: impl Service) -> Live {
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        self.try_serve(server, any_port, service).expect("a free port can be served on")
    }

    pub(super) fn try_serve(
        &self,
        server: &Arc<dyn Server>,
        listen_on: impl Into<ListenOn>,
        service: impl Service,
    ) -> io::Result<Live> {
        let (server, listen_on) = (Arc::clone(server), listen_on.into());
        let held = Arc::new(service.into_shared());
        let service = Arc::downgrade(&held);
        let running = within(self.max_wait, "serve", move || server.start(listen_on, held))?;
        let addr = running.local_addr();
        self.note_server(addr);
        Ok(Live { running: Some(running), service, addr, max_wait: self.max_wait })
    }

    /// Starts a run of `server` with an echo, at an address at which it has served before. A client of another test may have
    /// the port for a moment.
    #[track_caller]
    pub(super) fn serve_again(&self, server: &Arc<dyn Server>, addr: SocketAddr) -> Live {
        let mut live = None;
        eventually(self.max_wait, || {
            live = Some(self.try_serve(server, addr, Echo));
            matches!(live, Some(Ok(_)))
        });
        live.expect("it was tried").expect("the port is free")
    }

    /// Returns `workers` if connections hold no worker, and the server has such a number of workers.
    pub(super) fn workers(&self, workers: usize) -> Option<usize> {
        let is_multiplexed = self.shape() == Shape::Multiplexed;
        (is_multiplexed && self.make(defaults().workers(workers)).is_ok()).then_some(workers)
    }

    /// Returns `workers` if the shape has a worker count, even if each connection holds a worker.
    pub(super) fn workers_or_pool(&self, workers: usize) -> Option<usize> {
        self.workers(workers).or(self.pooled.then_some(workers))
    }

    /// The default configuration, with this number of workers if the shape has one.
    pub(super) fn with_workers(&self, workers: usize) -> ServerConfig {
        defaults().workers(self.workers_or_pool(workers))
    }

    /// The configuration of a server that serves at most `count` connections at a time: by its workers if they hold connections, or else
    /// by its limit.
    pub(super) fn with_room_for(&self, count: usize) -> ServerConfig {
        let config = self.with_workers(count);
        if self.pooled || self.shape() == Shape::One { config } else { config.max_connections(count) }
    }

    /// Returns `count` if these servers serve several connections at a time, or else one.
    pub(super) fn at_a_time(&self, count: usize) -> usize {
        if self.shape() == Shape::One { 1 } else { count }
    }

    /// Returns `why` a property does not apply to servers of one connection, as an error, if these are.
    pub(super) fn needs_several(&self, why: &str) -> Result<(), String> {
        needs(self.shape() != Shape::One, why)
    }
}

/// The default configuration.
pub(super) fn defaults() -> ServerConfig {
    ServerConfig::default()
}

/// The configuration in which each wait for a client has this timeout, except that for its end.
pub(super) fn with_client_timeouts(timeout: Duration) -> ServerConfig {
    defaults().first_byte_timeout(timeout).head_timeout(timeout).body_timeout(timeout).idle_timeout(timeout)
}

impl Live {
    /// A new connection.
    #[track_caller]
    pub(super) fn client(&self) -> Client {
        Client::connect(self.addr, self.max_wait).expect("the server accepts connections")
    }

    /// New connections.
    #[track_caller]
    pub(super) fn clients(&self, count: usize) -> Vec<Client> {
        (0..count).map(|_| self.client()).collect()
    }

    /// A new connection on which `bytes` have been sent. The kernel takes them even if the server does not.
    #[track_caller]
    pub(super) fn sending(&self, bytes: &[u8]) -> Client {
        let mut client = self.client();
        client.send(bytes).expect("the server takes the request");
        client
    }

    /// A new connection on which `bytes` were sent, if the server has not refused it before. What counts is what the client reads.
    #[track_caller]
    pub(super) fn trying(&self, bytes: &[u8]) -> Client {
        let mut client = self.client();
        let _ = client.send(bytes);
        client
    }

    /// New connections, on each of which `bytes` have been sent.
    #[track_caller]
    pub(super) fn senders(&self, count: usize, bytes: &[u8]) -> Vec<Client> {
        let mut clients = self.clients(count);
        clients.iter_mut().for_each(|client| client.send(bytes).expect("the server takes the request"));
        clients
    }

    /// New connections, each with a request that has begun and lacks its body: see [`finish`].
    #[track_caller]
    pub(super) fn in_mid_request(&self, count: usize) -> Vec<Client> {
        let mut clients = self.clients(count);
        for client in &mut clients {
            client.ask(&request("POST", "/", BODY_AWAITED), 100);
        }
        clients
    }

    /// Sends `request` on a new connection and drops the connection after the answer.
    #[track_caller]
    pub(super) fn ask(&self, request: &[u8], status: u16) -> Response {
        self.client().ask(request, status)
    }

    /// Sends `request` on new connections until one is not refused, and returns the answer.
    #[track_caller]
    pub(super) fn ask_until_served(&self, request: &[u8]) -> Response {
        self.connect_until_served(request).1
    }

    /// Sends `request` on new connections until one is not refused, and returns the connection and the answer. The server
    /// may be full for a moment, or may not know yet that an answered client is idle.
    #[track_caller]
    pub(super) fn connect_until_served(&self, request: &[u8]) -> (Client, Response) {
        let (client, response) = self.connect_until_answered(request);
        assert!(response.status < 300, "{}\n{}", response.status, client.show());
        (client, response)
    }

    /// As [`connect_until_served`](Self::connect_until_served), but the service may answer with any status other than 503.
    #[track_caller]
    pub(super) fn connect_until_answered(&self, request: &[u8]) -> (Client, Response) {
        let deadline = Instant::now() + self.max_wait;
        loop {
            let mut client = self.client();
            match client.exchange(request) {
                Ok(response) if response.status != 503 => return (client, response),
                Err(failure) if !failure.is_clean() => panic!("{failure}"),
                Ok(_) | Err(_) => {}
            }
            assert!(Instant::now() < deadline, "no room within the max wait\n{}", client.show());
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the counters, as soon as they are as `expected`, or when the max wait ends.
    pub(super) fn counters_when(&self, expected: impl Fn(Counters) -> bool) -> Counters {
        let counters = || self.running.as_ref().map(Running::counters).unwrap_or_default();
        eventually(self.max_wait, || expected(counters()));
        counters()
    }

    /// Drains, and waits for the end.
    #[track_caller]
    pub(super) fn shutdown_within(mut self, grace: Duration) -> Drain {
        let running = self.running.take().expect("it is running");
        let drain = within(self.max_wait, "shutdown_within", move || running.shutdown_within(grace));
        drain.expect("the server ends well")
    }

    /// Drains with a grace that ends before the work of the clients. A thread that ends within the max wait is not counted as
    /// stuck: on a busy machine it may end a little after the server has stopped waiting for it.
    #[track_caller]
    pub(super) fn cut_within(self, grace: Duration) -> Drain {
        let (service, max_wait) = (Weak::clone(&self.service), self.max_wait);
        let mut drain = self.shutdown_within(grace);
        if drain.stuck > 0 && eventually(max_wait, || service.strong_count() == 0) {
            drain.stuck = 0;
        }
        drain
    }

    /// Drains with a grace longer than the max wait: a server that waits for its deadline fails.
    #[track_caller]
    pub(super) fn shutdown(self) -> Drain {
        let grace = self.max_wait.saturating_mul(10);
        self.shutdown_within(grace)
    }

    /// Begins to drain with the configured grace. The drain has begun when this returns.
    pub(super) fn begin_drain(mut self) -> Draining {
        let running = self.running.take().expect("it is running");
        Draining { end: Box::pin(running.drained()), max_wait: self.max_wait }
    }

    /// Drops the running server.
    #[track_caller]
    pub(super) fn drop_it(mut self) {
        let running = self.running.take().expect("it is running");
        within(self.max_wait, "dropping a running server", move || drop(running));
    }
}

impl Drop for Live {
    /// Ends the server with no grace, so that no thread is left behind.
    fn drop(&mut self) {
        let Some(running) = self.running.take() else { return };
        let max_wait = if thread::panicking() { self.max_wait.min(Duration::from_secs(2)) } else { self.max_wait };
        let (ended, wait) = mpsc::channel();
        let _ = thread::Builder::new().spawn(move || ended.send(running.shutdown_within(Duration::ZERO)));
        let ended = wait.recv_timeout(max_wait);
        if !thread::panicking() {
            let drain = ended.expect("the server ends within the max wait").expect("the server ends well");
            // On a busy machine a thread may end a little after the server has stopped waiting for it.
            let ended = || self.service.strong_count() == 0;
            assert!(drain.stuck == 0 || eventually(self.max_wait, ended), "{} threads are left behind", drain.stuck);
        }
    }
}

/// The fields of a request with a body of five bytes that the server has to wait for.
pub(super) const BODY_AWAITED: &str = "Expect: 100-continue\r\nContent-Length: 5\r\n";

/// Longer than any property takes.
pub(super) const NEVER: Duration = Duration::from_secs(3600);

/// A configuration in which bodies may take an hour, so that no client that occupies a place by [`BODY_AWAITED`] loses it.
pub(super) fn without_body_timeout() -> ServerConfig {
    defaults().body_timeout(NEVER).min_body_rate(0)
}

/// Sends the bodies of requests to an echo that have begun, checks the answers, and closes the connections.
#[track_caller]
pub(super) fn finish(clients: Vec<Client>) {
    for mut client in clients {
        assert_eq!(client.ask(b"hello", 200).text(), "hello");
    }
}

/// Returns the result of a thread, or panics as it did.
pub(super) fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// A server that drains.
pub(super) struct Draining {
    end: BoxFuture<Result<Drain, ServerFailed>>,
    max_wait: Duration,
}

impl Live {
    /// Begins to drain, waits for a moment in which a faulty server can do something wrong, and runs `then`. Checks that the drain
    /// cuts nothing, and that the server has answered `answered` requests in all.
    #[track_caller]
    pub(super) fn drain(self, answered: u64, then: impl FnOnce()) {
        let draining = self.begin_drain();
        let_pass(FAULT_PAUSE);
        then();
        check_counts(draining.wait(), answered, 0);
    }
}

/// A pause in which a faulty server can do something wrong during a drain. A correct server does not need it.
pub(super) const FAULT_PAUSE: Duration = Duration::from_millis(60);

#[track_caller]
pub(super) fn check_counts(drain: Drain, answered: u64, cut: u64) {
    assert_eq!((drain.answered, drain.cut, drain.stuck), (answered, cut, 0), "answered, cut, stuck");
}

impl Draining {
    /// Waits for the end.
    #[track_caller]
    pub(super) fn wait(mut self) -> Drain {
        let deadline = Instant::now() + self.max_wait;
        let end = park_until(Some(deadline), |cx| Pin::new(&mut self.end).poll(cx));
        end.expect("the drain ends within the max wait").expect("the server ends well")
    }
}

/// Polls until `reached` returns true or `max_wait` has passed. Returns whether it was reached.
///
/// It is for events that no latch reports: a socket that the kernel has not closed yet, a thread that is still in its
/// list.
pub(super) fn eventually(max_wait: Duration, mut reached: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + max_wait;
    loop {
        if reached() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
}
