//! A server's tokio runtime: the caller's, or one that the server starts for a run.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use polyserve_core::ServerConfig;
use polyserve_serving::SHUTDOWN_SLACK;
use tokio::runtime::{Builder, Handle, Runtime};

use super::async_connection::ConnectionRegistry;
use super::async_listener::AsyncListener;
use super::async_socket::TokioSocket;

/// A runtime that belongs to a server's run.
///
/// Dropping it does not wait for its threads. So it may be dropped on a thread of another runtime, on which dropping a
/// [`Runtime`] panics.
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
    builder.worker_threads(config.workers_or(1)).thread_name(name).enable_all();
    let (owned, handle) = OwnedRuntime::build(&mut builder)?;
    Ok((Some(owned), handle))
}

/// Registers a non-blocking listener with `runtime`.
pub(crate) fn listen_on(
    runtime: &Handle,
    registry: &Arc<ConnectionRegistry<TokioSocket>>,
    listener: TcpListener,
) -> io::Result<AsyncListener<TokioSocket>> {
    let _context = runtime.enter();
    AsyncListener::new(registry, listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: a server failed after it had built its runtime, and dropped the runtime on the thread of its
    /// caller. If that thread was in another runtime, tokio panicked, and the error was lost.
    #[test]
    fn an_own_runtime_may_be_dropped_inside_another() {
        let outer = Builder::new_current_thread().build().unwrap();
        outer.block_on(async {
            drop(OwnedRuntime::build(Builder::new_multi_thread().worker_threads(1)).unwrap());
            drop(OwnedRuntime::build(&mut Builder::new_current_thread()).unwrap());
        });
    }
}
