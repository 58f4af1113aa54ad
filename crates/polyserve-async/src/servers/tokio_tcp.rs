//! Our codec on tokio's multi-thread runtime: a connection is a task that any worker may run.
//!
//! Invariant: an idle connection holds no thread and no buffer. Cost: for a request a read and a write, and what tokio
//! takes to wake a task; for a connection an accept, a task, and a registration with the kernel where its first request
//! was not there when it came.
//!
//! *Wins when* answers wait for something else, connections are many, and cores are more than one and unevenly busy: a
//! task goes where a worker is free. *Loses when* a service blocks inside `call` without saying so: a worker's newest task
//! waits in a slot that others cannot take it from, so a connection may wait while another holds that worker; there
//! `pool_server` is the better choice. Figures are in docs/STRATEGIES.md.
//!
//! Source: tokio's own guide to a server, without its buffers for each connection.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use polyserve_core::serving::{Bound, SHUTDOWN_SLACK, bind};
use polyserve_core::{ConfigError, Connections, Drain, Running, Server, ServerConfig, Service};
use tokio::runtime::{Builder, Handle};

use super::accept_loop::{self, AcceptLoop};
use super::connection_registry::ConnectionRegistry;
use super::tokio_io::{OwnedRuntime, TokioIo};

/// A server whose connections are tasks of a tokio runtime.
#[derive(Clone, Debug)]
pub struct TokioTcp {
    config: ServerConfig,
    runtime: Option<Handle>,
}

impl TokioTcp {
    /// A server with a runtime of its own for each run; `workers` are its threads, the available cores by default.
    ///
    /// # Errors
    ///
    /// Where a limit is none.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { config, runtime: None })
    }

    /// A server on a runtime of yours, which must have its I/O enabled (else `serve` fails) and outlive the runs; end them
    /// by awaiting [`Running::drained`]. [`Running::shutdown`] waits, so on that runtime's own threads it may only be called where
    /// others are left to do the work.
    ///
    /// # Errors
    ///
    /// Where a limit is none, or a number of workers is asked for: the runtime has its own.
    pub fn on(runtime: Handle, config: ServerConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        if config.workers.is_some() {
            return Err(ConfigError::new("workers cannot be set for tokio_tcp on a runtime that has its own"));
        }
        Ok(Self { config, runtime: Some(runtime) })
    }
}

impl Server for TokioTcp {
    fn connections(&self) -> Connections {
        Connections::Multiplexed
    }

    fn serve(&self, addr: SocketAddr, service: Arc<dyn Service>) -> io::Result<Running> {
        let Bound { listener, local_addr, server } = bind(addr, &self.config, service)?;
        let registry = ConnectionRegistry::new(server, 1);
        let (own, handle) = runtime(self.runtime.as_ref(), "tokio-tcp", &self.config)?;
        start(&handle, &registry, listener)?;
        let (grace, shutdown) = (self.config.drain_grace, registry.server.shutdown.clone());
        Running::start("tokio-tcp-main", local_addr, grace, shutdown, move || end(&registry, own))
    }
}

/// The runtime of one run: the one that was `given`, or else one of its own, whose threads are called `name`.
pub(super) fn runtime(
    given: Option<&Handle>,
    name: &str,
    config: &ServerConfig,
) -> io::Result<(Option<OwnedRuntime>, Handle)> {
    if let Some(given) = given {
        return Ok((None, given.clone()));
    }
    let mut builder = Builder::new_multi_thread();
    let own = OwnedRuntime::build(builder.worker_threads(config.workers_or(1)).thread_name(name).enable_io())?;
    let handle = own.handle().cloned().ok_or_else(|| io::Error::other("there is no runtime"))?;
    Ok((Some(own), handle))
}

fn start(handle: &Handle, registry: &Arc<ConnectionRegistry<TokioIo>>, listener: TcpListener) -> io::Result<()> {
    let _context = handle.enter();
    let accept_loop = AcceptLoop::new(registry, &TokioIo(handle.clone()), listener, 0, accept_loop::spawn_connection)?;
    drop(handle.spawn(accept_loop.run()));
    Ok(())
}

/// Supervises to the end; the runtime ends with the run, where it is its own.
pub(super) fn end(registry: &ConnectionRegistry<TokioIo>, own: Option<OwnedRuntime>) -> Drain {
    let drain = registry.supervise();
    if let Some(own) = own.and_then(OwnedRuntime::take) {
        own.shutdown_timeout(SHUTDOWN_SLACK); // a thread that is stuck is left behind
    }
    drain
}
