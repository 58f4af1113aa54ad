//! `pool_server`: the workers of any [`Executor`] share all connections; an idle connection holds no worker.
//!
//! ```text
//!             +--------- worker (a job) ----------+
//!  listener ->| poll: accept, collect events      |   one thread at a time has the poll role
//!  sockets  ->|   v                               |
//!             | ready list (first in, first out) ------> further jobs, if the list is long
//!             |   v                               |
//!             | run: read, call service, write    |
//!             |   v                               |
//!             | park, requeue, linger or close    |
//!             +-----------------------------------+
//!  supervisor: timeouts, rejections, drain. While no worker makes progress, or the
//!              service is slow, it polls, and submits a job for each connection
//! ```
//!
//! While turns are short on average (`SLOW_TURN`), a worker polls itself, serves what is ready, and polls again (leader and
//! followers). So a request costs no switch of threads. Before a worker waits for a deferred answer, it passes the poll role
//! to the supervisor. While the service is slow, each worker does so. If a service blocks its thread, the supervisor
//! detects within 10 ms that no worker makes progress, and polls. On an executor that is shared with other work, the
//! supervisor always polls.
//!
//! # Layout
//!
//! A connection goes from accept to park in two files: `worker.rs` has the job, and `connection.rs` a turn of a connection.
//! `supervisor.rs` is the server's main thread.
//!
//! Data structures: `ready_list.rs` decides which thread does what, `slots.rs` has the connections, and `slot_state.rs` which
//! thread owns each. `submission.rs` is a job on its way through the executor, `wakeups.rs` how
//! threads wake each other, and `timing.rs` the clock.
//!
//! Invariant: a connection is touched only by the thread that moved its slot's state to `RUNNING`. An event that arrives
//! meanwhile is noted in the state and never lost. A turn ends after a bounded number of requests if another connection
//! waits, and the ready list is first in, first out.
//!
//! Cost: for each request on a kept connection a read, a write and its share of one poll, and two locks.
//!
//! Source: Schmidt and others, *Leader/Followers* (2000), around the thread pool of the published servers.
//!
//! *Wins when* answers need no wait: no server of this project answers more requests over kept connections
//! (`servers-kept`), and none keeps its latencies up to a higher rate (`capacity`). *Loses when* the service defers its
//! answers, because each of them holds a worker: with few workers it answers by far fewer requests than `tokio_tcp`
//! (`page`). Records: `docs/results/2026-11-25`.

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
use std::sync::Arc;

use polyserve_core::{ConfigError, Executor, ListenOn, Running, Server, ServerConfig, Service, Shape};
use polyserve_serving::{Bound, bind};

use super::executor_source::ExecutorSource;
use crate::{CrossbeamPool, MpscPool, StealingPool};
use supervisor::Supervisor;
use worker::PoolServerState;

/// The server that multiplexes connections over an executor.
///
/// ```
/// use polyserve_core::{Reply, Request, ServerConfig, ServerExt};
/// use polyserve_threadpool::PoolServer;
///
/// let server = PoolServer::mpsc(ServerConfig::default().workers(4))?;
/// let running = server.serve("127.0.0.1:0", |_: Request<'_>| Reply::text("hello"))?;
/// assert_eq!(running.shutdown()?.answered, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PoolServer {
    config: ServerConfig,
    executor: ExecutorSource,
}

impl PoolServer {
    /// Creates a server on threads that share the standard library's channel ([`MpscPool`]).
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range.
    pub fn mpsc(config: ServerConfig) -> Result<Self, ConfigError> {
        Self::with_factory(config, |config| MpscPool::new(config.into()))
    }

    /// Creates a server on threads that share a channel of the `crossbeam-channel` crate ([`CrossbeamPool`]).
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range.
    ///
    /// ```
    /// let server = polyserve_threadpool::PoolServer::crossbeam(polyserve_core::ServerConfig::default().workers(4))?;
    /// # Ok::<(), polyserve_core::ConfigError>(())
    /// ```
    pub fn crossbeam(config: ServerConfig) -> Result<Self, ConfigError> {
        Self::with_factory(config, |config| CrossbeamPool::new(config.into()))
    }

    /// Creates a server on threads with a queue each, which take jobs from each other ([`StealingPool`]).
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range.
    ///
    /// ```
    /// let server = polyserve_threadpool::PoolServer::stealing(polyserve_core::ServerConfig::default().workers(4))?;
    /// # Ok::<(), polyserve_core::ConfigError>(())
    /// ```
    pub fn stealing(config: ServerConfig) -> Result<Self, ConfigError> {
        Self::with_factory(config, |config| StealingPool::new(config.into()))
    }

    /// Creates a server on executors of your own. Each run creates an executor with `factory`, and closes it at its
    /// end.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range.
    ///
    /// ```
    /// use polyserve_core::ServerConfig;
    /// use polyserve_threadpool::{MpscPool, PoolConfig, PoolServer};
    ///
    /// let pool = |config: &ServerConfig| MpscPool::new(PoolConfig::from(config).name("mine"));
    /// let server = PoolServer::with_factory(ServerConfig::default(), pool)?;
    /// # Ok::<(), polyserve_core::ConfigError>(())
    /// ```
    pub fn with_factory<E: Executor>(
        config: ServerConfig,
        factory: impl Fn(&ServerConfig) -> io::Result<E> + Send + Sync + 'static,
    ) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { config, executor: ExecutorSource::new(factory) })
    }

    /// Creates a server on one executor for all runs. Pass an `Arc` if the executor has other work too. It is not closed at the
    /// end of a run.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range, if `workers` is set to another number than the executor has, or
    /// if the executor's `execute` may wait.
    ///
    /// ```
    /// use polyserve_core::ServerConfig;
    /// use polyserve_threadpool::{CrossbeamPool, PoolConfig, PoolServer};
    /// use std::sync::Arc;
    ///
    /// let pool = Arc::new(CrossbeamPool::new(PoolConfig::new(4))?);
    /// let server = PoolServer::with_executor(ServerConfig::default(), Arc::clone(&pool))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_executor(config: ServerConfig, executor: impl Executor) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { executor: ExecutorSource::shared(&config, executor.into_shared())?, config })
    }
}

impl Server for PoolServer {
    fn shape(&self) -> Shape {
        Shape::Multiplexed
    }

    fn start(&self, on: ListenOn, service: Arc<dyn Service>) -> io::Result<Running> {
        let Bound { listener, local_addr, server } = bind(on, &self.config, service)?;
        let (executor, is_own) = self.executor.start(&self.config)?;
        let shutdown = server.shutdown.clone();
        let shared = PoolServerState::new(server, listener, executor, !is_own)?;
        let weak = Arc::downgrade(&shared);
        shutdown.on_begin(move || {
            if let Some(shared) = weak.upgrade() {
                shared.wakeups.wake_supervisor();
            }
        });
        let supervisor = Supervisor::new(Arc::clone(&shared), is_own);
        let counters = move || shared.server.counters(shared.slots.open());
        Running::start("pool-server", local_addr, self.config.drain_grace, shutdown, counters, move || supervisor.run())
    }
}
