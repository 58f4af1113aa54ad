//! Where connections come from: a task that accepts for as long as the server runs, and once more when it drains.
//!
//! Invariant: it neither dies nor spins, whatever `accept` says. Cost: an accept and a spawn for each connection.

use std::future::poll_fn;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use polyserve_core::serving::ACCEPT_BACKOFF;
use polyserve_core::shutdown::Begun;
use polyserve_core::{net, timer};

use super::connection_entry::ConnectionEntry;
use super::connection_registry::{Admission, ConnectionRegistry};
use super::connection_task::ConnectionTask;
use super::server_runtime::{AsyncSocket, Direction, ServerRuntime, Transfer};

/// Accepted in a row before other tasks have their turn.
const BATCH: usize = 64;

/// A loop that accepts from a listener, which does not block. `S` has connections served.
pub(crate) struct AcceptLoop<R: ServerRuntime, S> {
    registry: Arc<ConnectionRegistry<R>>,
    runtime: R,
    shard: usize,
    listener: Arc<R::Socket>,
    begun: Begun,
    serve: S,
    /// The last field: it is dropped when the listener is closed.
    _end: EndGuard<R>,
}

/// Says that a loop has ended, also where a runtime drops it.
struct EndGuard<R: ServerRuntime>(Arc<ConnectionRegistry<R>>);

impl<R: ServerRuntime> Drop for EndGuard<R> {
    fn drop(&mut self) {
        self.0.accept_loop_ended();
    }
}

/// Has the runtime serve a connection of the registry.
pub(crate) trait SpawnConnection<R: ServerRuntime>:
    Fn(&Arc<ConnectionRegistry<R>>, &R, Arc<ConnectionEntry<R>>) + Send + Sync + 'static
{
}

impl<R: ServerRuntime, S: Fn(&Arc<ConnectionRegistry<R>>, &R, Arc<ConnectionEntry<R>>) + Send + Sync + 'static>
    SpawnConnection<R> for S
{
}

/// Has our own codec serve it.
pub(crate) fn spawn_connection<R: ServerRuntime>(
    registry: &Arc<ConnectionRegistry<R>>,
    runtime: &R,
    entry: Arc<ConnectionEntry<R>>,
) {
    runtime.spawn(ConnectionTask::<R>::new(Arc::clone(registry), entry, false));
}

impl<R: ServerRuntime, S: SpawnConnection<R>> AcceptLoop<R, S> {
    /// The loop of one listener; its connections are on this `shard` of the registry. To be called on the runtime.
    pub(crate) fn new(
        registry: &Arc<ConnectionRegistry<R>>,
        runtime: &R,
        listener: TcpListener,
        shard: usize,
        serve: S,
    ) -> io::Result<Self> {
        let listener = Arc::new(R::register(OwnedFd::from(listener).into())?);
        registry.register_listener(&listener);
        Ok(Self {
            registry: Arc::clone(registry),
            runtime: runtime.clone(),
            shard,
            listener,
            begun: registry.server.shutdown.begun(),
            serve,
            _end: EndGuard(Arc::clone(registry)),
        })
    }

    /// Accepts until a shutdown begins, then whoever waits; then closes the listener.
    pub(crate) async fn run(mut self) {
        while !self.registry.server.shutdown.is_begun() {
            let accepted = poll_fn(|cx| self.poll_accept(cx)).await;
            let Some(Err(error)) = accepted else { continue };
            if self.registry.log_throttle.is_due() {
                tracing::warn!(%error, "cannot accept");
            }
            let mut rest = std::future::IntoFuture::into_future(timer::after(ACCEPT_BACKOFF));
            poll_fn(|cx| {
                let rested = Pin::new(&mut rest).poll(cx).is_ready();
                if rested || Pin::new(&mut self.begun).poll(cx).is_ready() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        // Clients that connect again and again cannot draw it out: no more are taken than could wait at once.
        for _ in 0..self.registry.server.config.backlog {
            match net::accept(self.listener.as_ref()) {
                Ok(stream) => self.receive(stream),
                Err(error) if net::is_connection_error(&error) => {}
                Err(_) => break,
            }
        }
    }

    /// Accepts what waits. Ready with an error that is the system's, and with nothing once a shutdown has begun.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<()>>> {
        for _ in 0..BATCH {
            let mut accepted = None;
            let listener = &self.listener;
            let attempt = || {
                accepted = Some(net::accept(listener.as_ref())?);
                Ok(Transfer { count: 1, drained: false })
            };
            match listener.poll_io(cx, Direction::Read, attempt) {
                Poll::Ready(Ok(_)) => {
                    if let Some(stream) = accepted {
                        self.receive(stream);
                    }
                }
                Poll::Ready(Err(error)) if net::is_connection_error(&error) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                Poll::Pending => return Pin::new(&mut self.begun).poll(cx).map(|()| None),
            }
        }
        cx.waker().wake_by_ref();
        Pin::new(&mut self.begun).poll(cx).map(|()| None)
    }

    /// Receives a newcomer. One that is turned away is told so by our own codec.
    fn receive(&self, stream: TcpStream) {
        if net::prepare(&stream).is_err() {
            return; // gone already
        }
        match self.registry.admit(stream, self.shard) {
            Admission::Served(entry) => (self.serve)(&self.registry, &self.runtime, entry),
            Admission::Rejected(entry) => {
                self.runtime.spawn(ConnectionTask::<R>::new(Arc::clone(&self.registry), entry, true));
            }
            Admission::Closed => {}
        }
    }
}
