//! Our codec on smol's parts: a connection is a task of one async-executor, which some threads run, and its socket is
//! with async-io.
//!
//! Each thread waits for sockets itself, one of them at a time. async-io has a thread of its own, which starts with the
//! first socket of a process, stays, and waits only where none of these does.
//!
//! Invariant: an idle connection holds no thread and no buffer. Cost: for a request a read and a write, a wait that is
//! told to the kernel anew, and the executor's one queue; for a connection an accept, a task, and a registration with
//! the kernel where its first request was not there when it came.
//!
//! Source: smol's own way to more threads, without its macros. The published comparisons used async-std, which is not
//! kept up; smol is the successor that it names.
//!
//! *Wins when* nothing against `tokio_tcp` that could be measured: on one thread both answer as much in a second of
//! processor time (0.98 to 1.03 of it on kept connections, 0.93 to 1.02 on short ones), for what the waits cost the
//! executor saves. *Loses when* there are more threads, which share one queue, and of which one at a time waits for
//! sockets: with two, on kept connections, 0.76 of it (0.59 to 0.96, on a busy machine).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use async_executor::Executor;
use polyserve_core::serving::{Bound, bind};
use polyserve_core::{ConfigError, Connections, Running, Server, ServerConfig, Service};

use super::accept_loop::{self, AcceptLoop};
use super::connection_registry::ConnectionRegistry;
use super::smol_io::SmolIo;
use super::thread_group::ThreadGroup;

/// A server whose connections are tasks of an async-executor.
#[derive(Clone, Debug)]
pub struct Smol {
    config: ServerConfig,
    executor: Option<Arc<Executor<'static>>>,
}

impl Smol {
    /// A server with an executor of its own for each run; `workers` are its threads, the available cores by default.
    ///
    /// # Errors
    ///
    /// Where a limit is none.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { config, executor: None })
    }

    /// A server on an executor of yours, which you run for as long as the runs last: until it is run, nobody is served.
    /// End the runs by awaiting [`Running::drained`]. [`Running::shutdown`] waits, so on a thread that runs the executor
    /// it may only be called where others do so, too.
    ///
    /// # Errors
    ///
    /// Where a limit is none, or a number of workers is asked for: you run the executor.
    pub fn on(executor: Arc<Executor<'static>>, config: ServerConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        if config.workers.is_some() {
            return Err(ConfigError::new("workers cannot be set for smol on an executor that others run"));
        }
        Ok(Self { config, executor: Some(executor) })
    }
}

impl Server for Smol {
    fn connections(&self) -> Connections {
        Connections::Multiplexed
    }

    fn serve(&self, addr: SocketAddr, service: Arc<dyn Service>) -> io::Result<Running> {
        let Bound { listener, local_addr, server } = bind(addr, &self.config, service)?;
        let registry = ConnectionRegistry::new(server, 1);
        let executor = self.executor.clone().unwrap_or_default();
        let mut threads = ThreadGroup::new("smol");
        let workers = if self.executor.is_some() { 0 } else { self.config.workers_or(1) };
        for _ in 0..workers {
            let executor = Arc::clone(&executor);
            // A task that panics is caught by the executor.
            threads.start(move |told| async_io::block_on(executor.run(told.into_future())))?;
        }
        let accept_loop =
            AcceptLoop::new(&registry, &SmolIo(Arc::downgrade(&executor)), listener, 0, accept_loop::spawn_connection)?;
        executor.spawn(accept_loop.run()).detach();
        let (grace, shutdown) = (self.config.drain_grace, registry.server.shutdown.clone());
        Running::start("smol-main", local_addr, grace, shutdown, move || {
            let drain = registry.supervise();
            threads.end(drain.stuck);
            drain
        })
    }
}
