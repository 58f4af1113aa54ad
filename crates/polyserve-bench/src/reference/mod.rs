//! Null servers: the limits that servers are measured against.
//!
//! A null server makes the system calls that a strategy of its kind cannot avoid, and nothing else: it parses nothing,
//! calls no service and no repo, and sends the same answer to every request. So its rate is the limit that the machine and
//! the client set, and a server's rate is printed as a share of this limit.
//!
//! A null server keeps none of a server's promises: it has no timeouts, no limits except on connections, no refusals and no
//! drain. It is therefore a reference, not a server of the catalog; [`with_references`] adds it.
//!
//! # Layout
//!
//! * `NullEpoll`: edge-triggered `epoll`, for kept connections and for one a request; with deferred accept, `null_deferred`.
//! * `NullUring`: `io_uring`, for both too.
//! * [`NullAccept`]: blocking `accept`, `recv`, `send`, `close`, for a connection a request.
//! * `answer`: the one answer, with a current `Date`; `heads`: how requests are counted.
//!
//! Invariant: a request makes only the system calls that its module names, allocates no memory, and reads no clock.
//! `tests/cli/reference/calls.rs` of the command counts the calls. Linux only; elsewhere there is no reference.

mod answer;
mod heads;
mod null_accept;
mod null_epoll;
mod null_uring;

use polyserve::catalog::{Catalog, Entry, Promise, ServerEntry};
use polyserve::{ConfigError, ServerConfig, Supports};

pub use null_accept::NullAccept;
pub(crate) use null_epoll::NullEpoll;
pub(crate) use null_uring::NullUring;

/// The body of every answer: entity 1, as the entity service writes it.
pub const BODY: &str = r#"{"id":1,"description":"a1B2c3D4e5F6g7H","value":60.750847}"#;

/// Adds the references of this crate to `catalog`. An entry of the same name stays as it is.
#[must_use]
pub fn with_references(catalog: Catalog) -> Catalog {
    entries().into_iter().fold(catalog, |catalog, entry| match catalog.reference(&entry.name) {
        Ok(_) => catalog,
        Err(_) => catalog.with_reference(entry),
    })
}

fn entries() -> [ServerEntry; 4] {
    [
        Entry::server(
            "null_epoll",
            "one edge-triggered epoll loop, one recv and one send a readiness, no parsing: the limit of an event loop",
            &[Promise::FixedAnswer],
            |config| Ok(Box::new(NullEpoll::new(config.clone())?)),
        ),
        Entry::server(
            "null_deferred",
            "null_epoll with deferred accept, and a first turn before the registration: the limit of a connection for each request",
            &[Promise::FixedAnswer],
            |config| Ok(Box::new(NullEpoll::deferred(config.clone())?)),
        ),
        Entry::server(
            "null_uring",
            "one io_uring that accepts, receives and sends, no parsing: the limit of an event loop on io_uring (Linux 6.1)",
            &[Promise::FixedAnswer],
            |config| Ok(Box::new(NullUring::new(config.clone())?)),
        ),
        Entry::server(
            "null_accept",
            "blocking accept, recv, send, close: the limit of a connection for each request without an event loop",
            &[Promise::FixedAnswer, Promise::ClosesAfterAnswer],
            |config| Ok(Box::new(NullAccept::new(config.clone())?)),
        ),
    ]
}

/// Rejects the settings that no reference supports: a queue, more than one thread, and a number of requests that it must
/// count.
fn validate(name: &'static str, config: &ServerConfig) -> Result<(), ConfigError> {
    Supports::new(name).one_worker().check(config)?;
    match config.requests_per_connection {
        None | Some(1) => Ok(()),
        Some(many) => Err(ConfigError::new("requests_per_connection", many, format!("1 or unset for {name}"))),
    }
}
