//! A server's tokio runtime: the caller's, or one that the server starts for a run.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use polyserve_core::{ListenOn, Running, ServerConfig, Service};
use polyserve_serving::{Bound, ConnectionTable, SHUTDOWN_SLACK, bind, join_until};
use tokio::runtime::{Builder, Handle, Runtime};

use super::async_connection::{AsyncConnection, start_main};
use super::async_listener::AsyncListener;
use super::async_socket::TokioSocket;
use crate::runtime_threads::multi_thread;

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

    /// Ends the runtime, and waits for its threads for at most twice [`SHUTDOWN_SLACK`]. A thread that is stuck is left behind.
    pub(crate) fn shut_down(mut self) {
        // tokio joins the threads that have ended without a limit. A thread-local of the service may have a long destructor.
        let ending = thread::Builder::new().name("tokio-end".into()).spawn(move || {
            if let Some(runtime) = self.0.take() {
                runtime.shutdown_timeout(SHUTDOWN_SLACK);
            }
        });
        join_until(ending.into_iter().collect(), Instant::now() + 2 * SHUTDOWN_SLACK);
    }
}

impl Drop for OwnedRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Starts a run called `name` on the runtime `given`, or on a multi-thread runtime of its own. `accept_loop` becomes a task of the
/// runtime.
pub(crate) fn start_on<F: Future<Output = ()> + Send + 'static>(
    given: Option<&Handle>,
    name: &str,
    on: ListenOn,
    config: &ServerConfig,
    service: Arc<dyn Service>,
    accept_loop: impl FnOnce(AsyncListener<TokioSocket>, Arc<ConnectionTable<AsyncConnection<TokioSocket>>>, Handle) -> F,
) -> io::Result<Running> {
    let Bound { listener, local_addr, server } = bind(on, config, service)?;
    let table = ConnectionTable::multiplexed(Arc::new(server), 1);
    let (owned, handle) = match given {
        Some(given) => (None, given.clone()),
        None => {
            let (owned, handle) = OwnedRuntime::build(multi_thread(config.workers_or(1))?.thread_name(name))?;
            (Some(owned), handle)
        }
    };
    let listener = listen_on(&handle, &table, listener)?;
    drop(handle.spawn(accept_loop(listener, Arc::clone(&table), handle.clone())));
    start_main(&format!("{name}-main"), local_addr, table, |_| owned.map_or((), OwnedRuntime::shut_down))
}

/// Registers a non-blocking listener with `runtime`.
pub(crate) fn listen_on(
    runtime: &Handle,
    table: &Arc<ConnectionTable<AsyncConnection<TokioSocket>>>,
    listener: TcpListener,
) -> io::Result<AsyncListener<TokioSocket>> {
    let _context = runtime.enter();
    AsyncListener::new(table, listener)
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
