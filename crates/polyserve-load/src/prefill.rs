//! What must be stored before entities can be asked for.

use std::net::SocketAddr;

use crate::error::LoadError;
use crate::load::{Load, Span, Usage};
use crate::run::run;
use crate::traffic::Traffic;

/// Puts every key's first row, pipelined over one connection, each answer verified. Nothing is to be done for other
/// traffic. Answers how many were put.
///
/// # Errors
///
/// [`LoadError::Server`] where the server does not take one of them.
pub fn prefill(target: SocketAddr, host: &str, traffic: &Traffic) -> Result<u64, LoadError> {
    prefill_for(&Load::new(target, traffic.clone()).with(|load| load.host = host.to_owned()))
}

/// [`prefill()`] for a load: with its target, host and traffic, its patience, and until it is stopped.
///
/// # Errors
///
/// As those of [`prefill()`]; [`LoadError::Stopped`] where the load was stopped meanwhile.
pub fn prefill_for(load: &Load) -> Result<u64, LoadError> {
    let Some((filling, keys)) = load.traffic.filling() else { return Ok(0) };
    let stop = &load.stop;
    let load = Load::new(load.target, filling).with(|filling| {
        filling.host.clone_from(&load.host);
        (filling.patience, filling.stop) = (load.patience, load.stop.clone());
        filling.connections = 1;
        filling.usage = Usage::KeepAlive { pipeline: 32 };
        filling.span = Span::Requests(keys);
    });
    let report = run(&load, &mut |_| {})?;
    if report.is_clean() && report.answered == keys {
        return Ok(keys);
    }
    if stop.is_begun() && report.failed.total() == 0 {
        return Err(LoadError::Stopped);
    }
    let why = report.first_failure.unwrap_or_else(|| "it stopped".to_owned());
    Err(LoadError::Server(format!("only {} of {keys} entities could be stored first: {why}", report.answered)))
}
