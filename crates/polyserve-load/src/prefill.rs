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
    let Some((filling, keys)) = traffic.filling() else { return Ok(0) };
    let load = Load::new(target, filling).with(|load| {
        load.host = host.to_owned();
        load.connections = 1;
        load.usage = Usage::KeepAlive { pipeline: 32 };
        load.span = Span::Requests(keys);
    });
    let report = run(&load, &mut |_| {})?;
    if report.is_clean() && report.answered == keys {
        return Ok(keys);
    }
    let why = report.first_failure.unwrap_or_else(|| "it stopped".to_owned());
    Err(LoadError::Server(format!("only {} of {keys} entities could be stored first: {why}", report.answered)))
}
