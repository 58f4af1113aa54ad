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

use super::connection::Connection;
use super::place::Place;
use super::roll::{Admission, Roll};
use super::runtime::{Direction, Moved, Runtime, Watched};

/// Accepted in a row before other tasks have their turn.
const BATCH: usize = 64;

/// A loop that accepts from a listener, which does not block. `S` has connections served.
pub(crate) struct Accepting<R: Runtime, S> {
    roll: Arc<Roll<R>>,
    runtime: R,
    shard: usize,
    listener: Arc<R::Watched>,
    begun: Begun,
    serve: S,
    /// The last field: it is dropped when the listener is closed.
    _end: End<R>,
}

/// Says that a loop has ended, also where a runtime drops it.
struct End<R: Runtime>(Arc<Roll<R>>);

impl<R: Runtime> Drop for End<R> {
    fn drop(&mut self) {
        self.0.end_accepting();
    }
}

/// Has the runtime serve a connection of the roll.
pub(crate) trait Serve<R: Runtime>: Fn(&Arc<Roll<R>>, &R, Arc<Place<R>>) + Send + Sync + 'static {}

impl<R: Runtime, S: Fn(&Arc<Roll<R>>, &R, Arc<Place<R>>) + Send + Sync + 'static> Serve<R> for S {}

/// Has our own codec serve it.
pub(crate) fn codec<R: Runtime>(roll: &Arc<Roll<R>>, runtime: &R, place: Arc<Place<R>>) {
    runtime.spawn(Connection::<R>::new(Arc::clone(roll), place, false));
}

impl<R: Runtime, S: Serve<R>> Accepting<R, S> {
    /// The loop of one listener; its connections are on this `shard` of the roll. To be called on the runtime.
    pub(crate) fn new(
        roll: &Arc<Roll<R>>,
        runtime: &R,
        listener: TcpListener,
        shard: usize,
        serve: S,
    ) -> io::Result<Self> {
        let listener = Arc::new(R::watch(OwnedFd::from(listener).into())?);
        roll.note_listener(&listener);
        Ok(Self {
            roll: Arc::clone(roll),
            runtime: runtime.clone(),
            shard,
            listener,
            begun: roll.server.shutdown.begun(),
            serve,
            _end: End(Arc::clone(roll)),
        })
    }

    /// Accepts until a shutdown begins, then whoever waits; then closes the listener.
    pub(crate) async fn run(mut self) {
        while !self.roll.server.shutdown.is_begun() {
            let accepted = poll_fn(|cx| self.poll_accept(cx)).await;
            let Some(Err(error)) = accepted else { continue };
            if self.roll.log_throttle.is_due() {
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
        for _ in 0..self.roll.server.config.backlog {
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
                Ok(Moved { count: 1, drained: false })
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
        match self.roll.admit(stream, self.shard) {
            Admission::Served(place) => (self.serve)(&self.roll, &self.runtime, place),
            Admission::Rejected(place) => {
                self.runtime.spawn(Connection::<R>::new(Arc::clone(&self.roll), place, true));
            }
            Admission::Closed => {}
        }
    }
}
