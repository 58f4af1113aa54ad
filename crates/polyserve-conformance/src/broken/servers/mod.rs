//! A plain server that has every property, and the same server with one flaw.
//!
//! [`PlainServer`] runs a thread for each connection, which checks every few milliseconds whether its connection must
//! end. It decodes requests with the servers' codec, and has its own life of a connection. It is the slowest server here and is in no
//! table. The kit is tested with it, and it is a complete example of the contract.
//!
//! A [`Flaw`] breaks it in one way. The kit's own tests show that a named property catches each flaw.
//!
//! # Layout
//!
//! `head` reads requests. `connection` is a thread's loop, `sending` sends its answers. `accept` accepts and
//! drains, and `run_context` holds what threads share. `flaw` lists the flaws.

mod accept;
mod connection;
mod flaw;
mod head;
mod run_context;
mod sending;

use std::io;
use std::sync::Arc;

use polyserve_core::{ConfigError, ListenOn, Running, Server, ServerConfig, Service, Shape, Supports};

pub use flaw::Flaw;

/// A server with one thread for each connection, with one flaw or none.
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
    /// Returns an error if a limit is invalid, or if a worker count is set: this shape has none.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        Supports::new("this server").no_workers("one thread for each connection").check(&config)?;
        Ok(Self { config, flaw: None })
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
        if flaw.has_one_worker() {
            Supports::new("this server").one_worker().check(&config)?;
            return Ok(Self { config, flaw: Some(flaw) });
        }
        let mut server = Self { flaw: Some(flaw), ..Self::new(config)? };
        if flaw.serves_one() {
            server.config.max_connections = 1;
        }
        Ok(server)
    }
}

impl Server for PlainServer {
    fn shape(&self) -> Shape {
        match self.flaw {
            Some(flaw) if flaw.serves_one() => Shape::One,
            Some(flaw) if flaw.has_one_worker() => Shape::Multiplexed,
            _ => Shape::OnePerThread,
        }
    }

    fn start(&self, on: ListenOn, service: Arc<dyn Service>) -> io::Result<Running> {
        accept::serve(on, service, &self.config, self.flaw)
    }
}
