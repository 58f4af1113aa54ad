//! How connections become work: the [`Server`] trait, and [`Running`], what it hands back.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::answer::{Answer, promise};
use crate::panics::isolate;
pub use crate::panics::panic_text;
use crate::service::Service;
use crate::shutdown::Shutdown;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Mutex, lock};

/// A way to serve connections.
///
/// # Contract
///
/// * [`serve`](Self::serve) returns when the socket is bound and the workers are ready: a client may connect at once.
/// * One server value may serve several times, at the same time too; the runs share nothing.
/// * What goes over the wire is said by the project's contract, and tested by its conformance kit.
/// * **Drain**: accept until nothing waits, close the listener, serve every accepted connection whose first byte has
///   arrived (answering `Connection: close`), close the idle ones without tearing an answer, cut at the deadline.
///   All threads are joined but those that are stuck in the service's own code; the port is free.
pub trait Server: fmt::Debug + Send + Sync + 'static {
    /// What this server's shape can do.
    fn connections(&self) -> Connections;

    /// How many connections it serves at a time, where its shape bounds them: others wait until one of them leaves.
    /// `None` where none holds another up, and where a server does not say.
    fn max_concurrent(&self) -> Option<usize> {
        (self.connections() == Connections::One).then_some(1)
    }

    /// Binds `addr` and serves `service` on it; port 0 picks a free port.
    ///
    /// # Errors
    ///
    /// Where the address cannot be bound or a thread not be started.
    fn serve(&self, addr: SocketAddr, service: Arc<dyn Service>) -> io::Result<Running>;
}

#[deny(clippy::missing_trait_methods)]
impl<S: Server + ?Sized> Server for Box<S> {
    fn connections(&self) -> Connections {
        (**self).connections()
    }
    fn max_concurrent(&self) -> Option<usize> {
        (**self).max_concurrent()
    }
    fn serve(&self, addr: SocketAddr, service: Arc<dyn Service>) -> io::Result<Running> {
        (**self).serve(addr, service)
    }
}

/// What a server's shape can do with connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Connections {
    /// An idle connection holds no worker.
    Multiplexed,
    /// A connection holds a thread while it is open; an idle one is closed as soon as another waits.
    OnePerThread,
    /// One connection at a time; an idle one is closed as soon as another waits.
    One,
}

/// How a server ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drain {
    /// Requests answered over the server's whole life: answers of any status whose last byte the kernel took.
    pub answered: u64,
    /// Requests that had begun and were cut at the deadline; those of stuck threads are counted there.
    pub cut: u64,
    /// Threads left behind, stuck in the service's own code.
    pub stuck: u64,
}

impl fmt::Display for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "answered {}, cut {}, stuck {}", self.answered, self.cut, self.stuck)
    }
}

/// A server that serves. Dropping it is a shutdown with no grace.
pub struct Running {
    local_addr: SocketAddr,
    grace: Duration,
    shutdown: Shutdown,
    thread: Option<JoinHandle<()>>,
    /// Behind a lock, so that threads may share a running server; taken once.
    ended: Mutex<Option<Answer<Result<Drain, String>>>>,
}

impl Running {
    /// Starts `main`, the server's main thread, under `name`. It is to return soon after `shutdown` has begun, at its
    /// deadline at the latest, with everything it started ended. For authors of servers.
    ///
    /// # Errors
    ///
    /// Where the thread cannot be started.
    pub fn start(
        name: &str,
        local_addr: SocketAddr,
        grace: Duration,
        shutdown: Shutdown,
        main: impl FnOnce() -> Drain + Send + 'static,
    ) -> io::Result<Self> {
        let (completer, ended) = promise(Err(String::from("the server's main thread went away")));
        let thread = thread::Builder::new().name(name.into()).spawn(move || {
            let _ = completer.complete(isolate(main));
        })?;
        Ok(Self { local_addr, grace, shutdown, thread: Some(thread), ended: Mutex::new(Some(ended)) })
    }

    /// The bound address; with the real port where 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Drains with the configured grace, and waits for the end.
    ///
    /// # Errors
    ///
    /// Where the server's own main thread has failed.
    pub fn shutdown(self) -> io::Result<Drain> {
        let grace = self.grace;
        self.shutdown_within(grace)
    }

    /// Drains; what has not ended within `grace` is cut. Waits for the end.
    ///
    /// # Errors
    ///
    /// Where the server's own main thread has failed.
    pub fn shutdown_within(mut self, grace: Duration) -> io::Result<Drain> {
        self.begin(grace);
        let result = self.take_end().wait();
        self.join();
        finish(result)
    }

    /// Drains with the configured grace: the future of the end, for async callers. The drain begins at once. The
    /// server's main thread has done its work when the future is ready, and ends by itself.
    pub fn drained(mut self) -> impl Future<Output = io::Result<Drain>> + Send + 'static {
        self.begin(self.grace);
        let ended = self.take_end();
        drop(self.thread.take());
        async move { finish(ended.await) }
    }

    fn take_end(&mut self) -> Answer<Result<Drain, String>> {
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        ended.expect("what takes the end takes the running server")
    }

    fn begin(&self, grace: Duration) {
        let now = Instant::now();
        self.shutdown.begin(now.checked_add(grace).unwrap_or(now + Duration::from_secs(365 * 24 * 3600)));
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // its panics are caught within
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

fn finish(result: Result<Drain, String>) -> io::Result<Drain> {
    result.map_err(|panic| io::Error::other(format!("the server failed: {panic}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_server_may_be_shared() {
        fn shared<T: Send + Sync>() {}
        shared::<Running>();
    }
}
