//! The storing of entities before a load.

use std::net::SocketAddr;

use crate::error::LoadError;
use crate::load::{Load, RunLength, Usage};
use crate::run::run;
use crate::traffic::Traffic;

/// The max number of connections. A repo that writes in batches stores the entities of all of them in one.
const MAX_CONNECTIONS: usize = 64;

/// Stores the first row of every key by pipelined PUTs, and verifies each answer. Returns the number of
/// stored rows, which is 0 if the traffic has no entities.
///
/// # Errors
///
/// Returns [`LoadError::Server`] if the server fails to store a row.
pub fn prefill(target: SocketAddr, host: &str, traffic: &Traffic) -> Result<u64, LoadError> {
    prefill_for(&Load::new(target, traffic.clone()).with(|load| load.host = host.to_owned()))
}

/// Does [`prefill()`] for a load, with the target, host, TLS, traffic, connections, timeout and stop of the load.
///
/// # Errors
///
/// Returns the errors of [`prefill()`], and [`LoadError::Stopped`] if the load was stopped meanwhile.
pub fn prefill_for(load: &Load) -> Result<u64, LoadError> {
    let Some((filling, keys)) = load.traffic.filling() else { return Ok(0) };
    let stop = &load.stop;
    let load = Load::new(load.target, filling).with(|filling| {
        filling.host.clone_from(&load.host);
        filling.tls.clone_from(&load.tls);
        (filling.timeout, filling.stop) = (load.timeout, load.stop.clone());
        (filling.connections, filling.threads) = (load.connections.min(MAX_CONNECTIONS), 1);
        filling.usage = Usage::KeepAlive { pipeline: 32 };
        filling.length = RunLength::Requests(keys);
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
