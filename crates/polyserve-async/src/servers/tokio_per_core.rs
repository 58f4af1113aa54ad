//! Our codec on a single-threaded tokio runtime for each core, each with a listener of its own: the kernel spreads
//! connections, and no task ever moves to another thread.
//!
//! Invariant: a connection is served by the thread that accepted it. Cost: for a request a read and a write, and a wake-up
//! without a lock; for a connection an accept, a task, and a registration with the kernel where its first request was not
//! there when it came.
//!
//! *Wins when* requests are short and connections many: nothing is shared between cores but the store. *Loses when*
//! connections are few, for the kernel may give most of them to one core; and when a service blocks inside `call`: every
//! connection of its core waits, and those that the kernel gives it. Figures are in docs/STRATEGIES.md.
//!
//! Source: `SO_REUSEPORT` as of `socket(7)`; one runtime a core as actix-web and ntex have it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

use polyserve_core::serving::ServerState;
use polyserve_core::{ConfigError, Connections, Running, Server, ServerConfig, Service, net};
use tokio::runtime::Builder;

use super::accept_loop::{self, AcceptLoop};
use super::connection_registry::ConnectionRegistry;
use super::thread_group::ThreadGroup;
use super::tokio_io::{OwnedRuntime, TokioIo};

/// A server with a tokio runtime for each core.
#[derive(Clone, Debug)]
pub struct TokioPerCore {
    config: ServerConfig,
}

impl TokioPerCore {
    /// A server within the limits of `config`; `workers` are its threads, the available cores by default.
    ///
    /// # Errors
    ///
    /// Where a limit is none.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { config })
    }
}

impl Server for TokioPerCore {
    fn connections(&self) -> Connections {
        Connections::Multiplexed
    }

    fn serve(&self, addr: SocketAddr, service: Arc<dyn Service>) -> io::Result<Running> {
        let listeners = net::listen_together(addr, self.config.workers_or(1), &self.config)?;
        let local_addr = listeners[0].local_addr()?;
        let registry = ConnectionRegistry::new(ServerState::new(service, &self.config), listeners.len());
        let threads = start(&registry, listeners).inspect_err(|_| registry.server.shutdown.begin(Instant::now()))?;
        let (grace, shutdown) = (self.config.drain_grace, registry.server.shutdown.clone());
        Running::start("per-core-main", local_addr, grace, shutdown, move || {
            let drain = registry.supervise();
            threads.end(drain.stuck);
            drain
        })
    }
}

/// A thread for each listener. After an error the shutdown ends those that were started.
fn start(registry: &Arc<ConnectionRegistry<TokioIo>>, listeners: Vec<TcpListener>) -> io::Result<ThreadGroup> {
    let mut threads = ThreadGroup::new("per-core");
    for (shard, listener) in listeners.into_iter().enumerate() {
        listener.set_nonblocking(true)?;
        let runtime = OwnedRuntime::build(Builder::new_current_thread().enable_io())?;
        let accept_loop = {
            let handle = runtime.handle().ok_or_else(|| io::Error::other("there is no runtime"))?;
            let _context = handle.enter();
            AcceptLoop::new(registry, &TokioIo(handle.clone()), listener, shard, accept_loop::spawn_connection)?
        };
        threads.start(move |told| {
            if let Some(runtime) = runtime.take() {
                runtime.block_on(async {
                    accept_loop.run().await;
                    told.await;
                });
            }
        })?;
    }
    Ok(threads)
}
