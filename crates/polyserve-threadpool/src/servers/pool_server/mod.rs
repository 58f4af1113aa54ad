//! `pool_server`: the workers of any [`Executor`] share all connections; an idle connection holds no worker.
//!
//! ```text
//!             +--------- worker (a job) ---------+
//!  listener ->| poll: accept, collect events     |   poll role: one thread at a time
//!  sockets  ->|   v                              |
//!             | ready list (FIFO) --------------------> helper jobs, if the list is long
//!             |   v                              |
//!             | run: read, call service, write   |
//!             |   v                              |
//!             | park / requeue / close / linger  |
//!             +----------------------------------+
//!  supervisor: timeouts, 503, drain; polls and submits a job for each
//!              connection while no worker makes progress, or the service is slow
//! ```
//!
//! While turns take at most 200 us on average, a worker polls itself, serves what is ready, and polls again (leader and
//! followers). So a request costs no switch of threads. Before it waits for a deferred answer it hands the poll role to
//! the supervisor, and so does each worker while the service is slow. If a service blocks without notice, the supervisor
//! sees within 10 ms that nothing moves, and polls. On an executor that is shared with other work the supervisor always
//! polls.
//!
//! # Layout
//!
//! `worker`: a connection's way from accept to park. `connection`: one turn of a connection. `supervisor`: the server's own
//! thread. `ready_list`: which thread does what. `acceptor`: the listener. `slots`: the connections. `slot_state`: which
//! thread owns a connection.
//!
//! Invariant: a connection is touched only by the thread that moved its slot's state to `RUNNING`. An event that arrives
//! meanwhile is noted in the state and never lost. A turn ends after a bounded number of requests if another connection
//! waits, and the ready list is first in, first out.
//!
//! Cost: for each request on a kept connection a read, a write and its share of one poll, and two locks.
//!
//! Source: Schmidt and others, *Leader/Followers* (2000), around the thread pool of the published servers.
//!
//! *Wins when* connections are short, or many and mostly idle: 1.0 to 1.3 of `tokio_tcp` in requests per CPU second with `ab -c 100`
//! (`ci/cost.sh ab`), and no processor time for 5 000 idle connections (`ci/cost.sh idle`). *Loses when* the service is slow
//! or defers its answers: each request then costs a switch of threads, and each deferred answer holds a worker.

mod acceptor;
mod connection;
mod ready_list;
mod slot_state;
mod slots;
mod submission;
mod supervisor;
mod timing;
mod wakeups;
mod worker;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use polyserve_core::serving::{Bound, bind};
use polyserve_core::{ConfigError, Connections, Executor, Running, Server, ServerConfig, Service};

use super::executor_source::ExecutorSource;
use supervisor::Supervisor;
use worker::PoolServerState;

/// The server that multiplexes connections over an executor.
#[derive(Debug)]
pub struct PoolServer {
    config: ServerConfig,
    executor: ExecutorSource,
}

impl PoolServer {
    /// Creates a server within the limits of `config`. Each run creates an executor with `factory`, and closes it at its
    /// end.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range.
    pub fn new(
        config: ServerConfig,
        factory: impl Fn(&ServerConfig) -> io::Result<Arc<dyn Executor>> + Send + Sync + 'static,
    ) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { config, executor: ExecutorSource::new(factory) })
    }

    /// Creates a server on an executor that may have other work too. The executor is not closed at the end.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range, if `workers` is set to another number than the executor has, or
    /// if the executor's `execute` may wait.
    pub fn on(config: ServerConfig, executor: Arc<dyn Executor>) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { executor: ExecutorSource::shared(&config, executor)?, config })
    }
}

impl Server for PoolServer {
    fn connections(&self) -> Connections {
        Connections::Multiplexed
    }

    fn serve(&self, addr: SocketAddr, service: Arc<dyn Service>) -> io::Result<Running> {
        let Bound { listener, local_addr, server } = bind(addr, &self.config, service)?;
        let (executor, is_own) = self.executor.start(&self.config)?;
        let shutdown = server.shutdown.clone();
        let shared = PoolServerState::new(server, mio::net::TcpListener::from_std(listener), executor, !is_own)?;
        let weak = Arc::downgrade(&shared);
        shutdown.on_begin(move || {
            if let Some(shared) = weak.upgrade() {
                shared.wakeups.wake_supervisor();
            }
        });
        let supervisor = Supervisor::new(shared, is_own);
        Running::start("pool-server", local_addr, self.config.drain_grace, shutdown, move || supervisor.run())
    }
}
