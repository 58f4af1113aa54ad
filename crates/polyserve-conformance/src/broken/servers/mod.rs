//! A server that is plain and right, and the same one wrong in one way at a time.
//!
//! [`PlainServer`] gives each connection a thread that looks up from its socket every few milliseconds, to see whether it
//! is wanted elsewhere. It shares no code with the servers' codec, so that the kit is not only as right as that codec. It
//! is the slowest server here and is in no table: it is what the kit itself is tested with, and a complete example of what
//! the contract asks for.
//!
//! A [`Flaw`] switches one of its virtues off; the kit's own tests show that a named property catches each.
//!
//! # Layout
//!
//! `head` and `body` read requests, `connection` is a thread's loop, `sending` its answers, `server` accepts and drains;
//! `flaw` lists the flaws.

mod accept;
mod body;
mod connection;
mod flaw;
mod head;
mod sending;
mod server_state;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use polyserve_core::{ConfigError, Connections, Running, Server, ServerConfig, Service};

pub use flaw::Flaw;

/// The server of one thread for each connection, right or with one flaw.
#[derive(Debug)]
pub struct PlainServer {
    config: ServerConfig,
    flaw: Option<Flaw>,
}

impl PlainServer {
    /// The server without a flaw.
    ///
    /// # Errors
    ///
    /// Where a limit is none, or a worker count is asked for: this shape has no choice.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        match config.workers {
            None => Ok(Self { config, flaw: None }),
            Some(workers) => {
                Err(ConfigError::new(format!("workers cannot be {workers}: each connection has a thread")))
            }
        }
    }

    /// The server with one flaw.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn flawed(config: ServerConfig, flaw: Flaw) -> Result<Self, ConfigError> {
        if flaw == Flaw::TakesAnyConfig {
            return Ok(Self { config, flaw: Some(flaw) });
        }
        Ok(Self { flaw: Some(flaw), ..Self::new(config)? })
    }
}

impl Server for PlainServer {
    fn connections(&self) -> Connections {
        Connections::OnePerThread
    }

    fn serve(&self, addr: SocketAddr, service: Arc<dyn Service>) -> io::Result<Running> {
        accept::serve(addr, service, &self.config, self.flaw)
    }
}
