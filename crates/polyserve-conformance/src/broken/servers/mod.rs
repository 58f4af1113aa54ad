//! A plain server that has every property, and the same server with one flaw.
//!
//! [`PlainServer`] runs a thread for each connection, on the parts that servers share. It is in no table. The kit is tested with it.
//!
//! A [`Flaw`] breaks it in one way. The kit's own tests show that the properties that the flaw names catch it.
//!
//! # Layout
//!
//! `flaw` lists the flaws, and those that are another configuration. `canned` has bytes that a flaw exchanges for others. `service`
//! stands between the server and its service, `socket` between the server and its sockets. `run` accepts and drains.

mod canned;
mod flaw;
mod run;
mod service;
mod socket;

use std::io;
use std::sync::Arc;

use polyserve_core::{ConfigError, ListenOn, Running, Server, ServerConfig, Service, Shape, Supports};

pub use flaw::Flaw;
use service::FlawedService;

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

    /// The server with one flaw, or without.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn flawed(mut config: ServerConfig, flaw: impl Into<Option<Flaw>>) -> Result<Self, ConfigError> {
        let Some(flaw) = flaw.into() else { return Self::new(config) };
        if flaw.has_one_worker() {
            Supports::new("this server").one_worker().check(&config)?;
        } else if flaw != Flaw::TakesAnyConfig {
            Self::new(config.clone())?;
        }
        flaw.configure(&mut config);
        Ok(Self { config, flaw: Some(flaw) })
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
        let service = match self.flaw {
            Some(flaw) => Arc::new(FlawedService::new(service, flaw)),
            None => service,
        };
        run::serve(on, service, &self.config, self.flaw)
    }
}
