//! tokio, as a [`ServerRuntime`]. It watches sockets edge-triggered: a read that did not fill its buffer is not repeated, for
//! what comes later is a new edge.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::panic::catch_unwind;
use std::task::{Context, Poll, ready};

use polyserve_core::server::panic_text;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};

use super::server_runtime::{AsyncSocket, Direction, ServerRuntime, Transfer};

/// A tokio runtime.
#[derive(Clone, Debug)]
pub(crate) struct TokioIo(pub(crate) Handle);

impl ServerRuntime for TokioIo {
    type Socket = TcpStream;

    /// tokio panics where a runtime has no I/O, and there is no other way to ask one.
    fn register(socket: std::net::TcpStream) -> io::Result<TcpStream> {
        let watched = catch_unwind(|| TcpStream::from_std(socket));
        watched.unwrap_or_else(|panic| {
            Err(io::Error::other(format!("the runtime cannot watch a socket: {}", panic_text(panic.as_ref()))))
        })
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.0.spawn(task));
    }
}

/// A runtime of a server's own. Dropping it waits for nothing, so that it may be dropped on a thread of another runtime,
/// where tokio's own drop panics.
#[derive(Debug)]
pub(crate) struct OwnedRuntime(Option<tokio::runtime::Runtime>);

impl OwnedRuntime {
    /// What `builder` builds.
    pub(crate) fn build(builder: &mut Builder) -> io::Result<Self> {
        builder.build().map(|runtime| Self(Some(runtime)))
    }

    pub(crate) fn handle(&self) -> Option<&Handle> {
        self.0.as_ref().map(tokio::runtime::Runtime::handle)
    }

    /// The runtime, on a thread that may wait for its end.
    pub(crate) fn take(mut self) -> Option<tokio::runtime::Runtime> {
        self.0.take()
    }
}

impl Drop for OwnedRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl AsyncSocket for TcpStream {
    fn poll_io(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        mut attempt: impl FnMut() -> io::Result<Transfer>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let interest = match direction {
                Direction::Read => {
                    ready!(self.poll_read_ready(cx))?;
                    Interest::READABLE
                }
                Direction::Write => {
                    ready!(self.poll_write_ready(cx))?;
                    Interest::WRITABLE
                }
            };
            let mut moved = None;
            let tried = self.try_io(interest, || {
                let Transfer { count, drained } = attempt()?;
                moved = Some(count);
                // It is this error that makes tokio forget the readiness that the attempt was made with, and no later one.
                if drained { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            match (moved, tried) {
                (Some(count), _) => return Poll::Ready(Ok(count)),
                (None, Err(error)) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Poll::Ready(Err(error));
                }
                (None, _) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that failed after it had built its runtime dropped it where it was called: inside another one, tokio
    /// panicked in place of the error.
    #[test]
    fn an_own_runtime_may_be_dropped_inside_another() {
        let outer = Builder::new_current_thread().build().unwrap();
        outer.block_on(async {
            drop(OwnedRuntime::build(Builder::new_multi_thread().worker_threads(1)).unwrap());
            drop(OwnedRuntime::build(&mut Builder::new_current_thread()).unwrap());
        });
    }
}
