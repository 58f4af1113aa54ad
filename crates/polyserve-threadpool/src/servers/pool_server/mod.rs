//! `pool_server`: connections are jobs on any [`Executor`]; an idle one holds no worker.
//!
//! One thread polls; the workers read, call the service and write. A connection lives in a slot of the server, a job
//! only names it, so that a job that finds no room is answered 503. A worker accepts new connections itself while they
//! come fast and are served quickly: then a connection costs an accept, a read, a write and a close, as in a bare accept
//! loop; otherwise the polling thread accepts, and each is a job. Only one that has to wait is registered with the
//! poller, once and edge-triggered, so that a request on a kept connection costs a read, a write and its share of one
//! poll.
//!
//! # Layout
//!
//! `slots`: the connections and who may touch each. `worker`: what a job does. `poller`: readiness, timeouts, the drain.
//! `intake`: who accepts; `seat`: a worker that does; `lending`: when one may.
//!
//! Invariant: a connection is touched only by who moved its slot's state to `RUNNING`; an event that arrives meanwhile
//! is noted in the state and never lost.
//!
//! Cost: a dispatch for each arrival of bytes on a kept connection; two locks for each connection.
//!
//! *Wins when* connections are many and mostly idle, or short, and the service computes: the pool bounds what runs at
//! once. *Loses when* the service is trivial and connections are kept: the dispatch costs as much as the work, and one
//! event loop a core does without it.

mod intake;
mod lending;
mod poller;
mod seat;
mod slots;
mod word;
mod worker;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use polyserve_core::serving::{Bound, bind};
use polyserve_core::{ConfigError, Connections, Executor, Running, Server, ServerConfig, Service};

use poller::Poller;

/// Makes an executor for one run.
type Factory = Box<dyn Fn(&ServerConfig) -> io::Result<Arc<dyn Executor>> + Send + Sync>;

/// The server over an executor.
pub struct PoolServer {
    config: ServerConfig,
    executors: Executors,
}

enum Executors {
    /// One a run, closed at its end.
    Own(Factory),
    /// Somebody else's.
    Shared(Arc<dyn Executor>),
}

const NO_WAITING: &str =
    "on_full must not be to wait where a server submits: it would stand still; it answers 503 itself";

impl PoolServer {
    /// A server within the limits of `config`; each run makes an executor with `factory`, and closes it at its end.
    ///
    /// # Errors
    ///
    /// Where a limit is none.
    pub fn new(
        config: ServerConfig,
        factory: impl Fn(&ServerConfig) -> io::Result<Arc<dyn Executor>> + Send + Sync + 'static,
    ) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { config, executors: Executors::Own(Box::new(factory)) })
    }

    /// A server on an executor that may have other work too; it is not closed at the end.
    ///
    /// # Errors
    ///
    /// Where a limit is none, a number of workers is asked for that is not the executor's, or the executor may wait.
    pub fn on(config: ServerConfig, executor: Arc<dyn Executor>) -> Result<Self, ConfigError> {
        config.validate()?;
        if executor.may_wait() {
            return Err(ConfigError::new(NO_WAITING));
        }
        match (config.workers, executor.workers()) {
            (Some(asked), Some(there)) if asked != there => Err(ConfigError::new(format!(
                "workers must be {there}, as many as the shared executor has, not {asked}"
            ))),
            _ => Ok(Self { config, executors: Executors::Shared(executor) }),
        }
    }
}

impl Server for PoolServer {
    fn connections(&self) -> Connections {
        Connections::Multiplexed
    }

    fn serve(&self, addr: SocketAddr, service: Arc<dyn Service>) -> io::Result<Running> {
        let Bound { listener, local_addr, server } = bind(addr, &self.config, service)?;
        let (executor, owned) = match &self.executors {
            Executors::Own(factory) => {
                let executor = factory(&self.config)?;
                if executor.may_wait() {
                    return Err(ConfigError::new(NO_WAITING).into());
                }
                (executor, true)
            }
            Executors::Shared(executor) => (Arc::clone(executor), false),
        };
        let shutdown = server.shutdown.clone();
        let poller = Poller::new(mio::net::TcpListener::from_std(listener), server, executor, owned)?;
        Running::start("pool-server", local_addr, self.config.drain_grace, shutdown, move || poller.run())
    }
}

impl fmt::Debug for PoolServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PoolServer");
        shown.field("config", &self.config);
        if let Executors::Shared(executor) = &self.executors {
            shown.field("executor", executor);
        }
        shown.finish_non_exhaustive()
    }
}
