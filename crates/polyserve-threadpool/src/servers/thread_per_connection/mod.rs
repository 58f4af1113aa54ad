//! `thread_per_connection`: each connection has a thread, which blocks in the kernel whenever it waits.
//!
//! The accepting thread starts them, `max_connections` at the most. Past that, the connection that has been idle for
//! longest is closed for the new one; where none is idle, the new one is answered 503.
//!
//! A thread that waits for a request is woken, for a shutdown or to make room, by closing the reading side of its
//! socket: bytes that have arrived are still read, so that no request that had come is lost.
//!
//! Cost: a thread's start and end for each connection, a read and a write for each request, 128 KiB of address space
//! for each stack.
//!
//! # Layout
//!
//! `guests`: who has a thread; `visit`: what the thread does.
//!
//! *Wins when* connections are few and live long: the kernel wakes the right thread at once, nothing is in between.
//! *Loses when* connections are short (a thread's life costs more than a request) or many (memory, switches).

mod crew;
mod member;
mod seat;
mod supervisor;
mod visit;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crew::Crew;
use polyserve_core::{ConfigError, Connections, Running, Server, ServerConfig, Service};
use supervisor::Supervisor;

use super::waiting::Opening;

/// The server of a thread for each connection.
#[derive(Clone, Debug)]
pub struct ThreadPerConnection {
    config: ServerConfig,
}

impl ThreadPerConnection {
    /// A server within the limits of `config`.
    ///
    /// # Errors
    ///
    /// Where a limit is none, or a number of workers is asked for: there are as many as connections.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        match config.workers {
            None => Ok(Self { config }),
            Some(_) => Err(ConfigError::new(
                "workers cannot be set for thread_per_connection, which has one for each connection: set max_connections",
            )),
        }
    }
}

impl Server for ThreadPerConnection {
    fn connections(&self) -> Connections {
        Connections::OnePerThread
    }

    fn serve(&self, addr: SocketAddr, service: Arc<dyn Service>) -> io::Result<Running> {
        let opening = Opening::new(addr, &self.config, service)?;
        visit::set_first_timeouts(&opening.listener, &self.config)?;
        let (local_addr, shutdown) = (opening.local_addr, opening.house.shutdown.clone());
        let supervisor = Supervisor::new(Arc::new(Crew::new(opening)));
        Running::start("thread-per-conn", local_addr, self.config.drain_grace, shutdown, move || supervisor.run())
    }
}
