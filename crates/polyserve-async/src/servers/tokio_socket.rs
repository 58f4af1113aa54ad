//! tokio's sockets as [`AsyncSocket`]s, and the tokio runtime of a server.
//!
//! tokio's poller is edge-triggered. After a read that did not fill its buffer, the next read waits for the next edge: no
//! read is spent on finding the socket empty.

use std::io::{self, ErrorKind};
use std::task::{Context, Poll, ready};

use polyserve_core::ServerConfig;
use polyserve_core::panics::isolate;
use polyserve_core::serving::SHUTDOWN_SLACK;
use tokio::io::Interest;
use tokio::runtime::{Builder, Handle, Runtime};

use super::async_socket::{AsyncSocket, Direction, Transfer};

pub(crate) use tokio::net::TcpStream as TokioSocket;

impl AsyncSocket for TokioSocket {
    /// tokio panics if the runtime has no I/O, and offers no way to ask before.
    fn register(socket: std::net::TcpStream) -> io::Result<Self> {
        isolate(|| Self::from_std(socket))
            .unwrap_or_else(|text| Err(io::Error::other(format!("the runtime cannot watch a socket: {text}"))))
    }

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
            let mut transferred = None;
            let tried = self.try_io(interest, || {
                let Transfer { count, drained } = attempt()?;
                transferred = Some(count);
                // On this error tokio clears the readiness that the attempt was made with, and no later one.
                if drained { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            match (transferred, tried) {
                (Some(count), _) => return Poll::Ready(Ok(count)),
                (None, Err(error)) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Poll::Ready(Err(error));
                }
                (None, _) => {}
            }
        }
    }
}

/// A runtime that belongs to a server's run.
///
/// Dropping it does not wait. So it may be dropped on a thread of another runtime, on which tokio's own drop panics.
#[derive(Debug)]
pub(crate) struct OwnedRuntime(Option<Runtime>);

impl OwnedRuntime {
    /// Builds the runtime that `builder` describes.
    pub(crate) fn build(builder: &mut Builder) -> io::Result<(Self, Handle)> {
        let runtime = builder.build()?;
        let handle = runtime.handle().clone();
        Ok((Self(Some(runtime)), handle))
    }

    /// Runs `task` on this thread, if this is a current-thread runtime. Ends the runtime.
    pub(crate) fn block_on(mut self, task: impl Future<Output = ()>) {
        if let Some(runtime) = self.0.take() {
            runtime.block_on(task);
        }
    }

    /// Ends the runtime, and waits for its threads for at most [`SHUTDOWN_SLACK`]. A thread that is stuck is left behind.
    pub(crate) fn shut_down(mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_timeout(SHUTDOWN_SLACK);
        }
    }
}

impl Drop for OwnedRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The runtime of one run: `given`, or a new multi-thread runtime with threads called `name`.
pub(crate) fn given_or_owned(
    given: Option<&Handle>,
    name: &str,
    config: &ServerConfig,
) -> io::Result<(Option<OwnedRuntime>, Handle)> {
    if let Some(given) = given {
        return Ok((None, given.clone()));
    }
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(config.workers_or(1)).thread_name(name).enable_io();
    let (owned, handle) = OwnedRuntime::build(&mut builder)?;
    Ok((Some(owned), handle))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that failed after it had built its runtime dropped the runtime on the thread of its caller. Inside
    /// another runtime, tokio panicked, and the error was lost.
    #[test]
    fn an_own_runtime_may_be_dropped_inside_another() {
        let outer = Builder::new_current_thread().build().unwrap();
        outer.block_on(async {
            drop(OwnedRuntime::build(Builder::new_multi_thread().worker_threads(1)).unwrap());
            drop(OwnedRuntime::build(&mut Builder::new_current_thread()).unwrap());
        });
    }
}
