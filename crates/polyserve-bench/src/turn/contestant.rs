//! Contestants and their roles.

use std::time::Duration;

use polyserve::{Server, ServerConfig, Shape};
use polyserve_load::ClientTls;
use serde::{Deserialize, Serialize};

use crate::launch::Launch;

/// A server and a store that take part in a measurement.
#[derive(Clone, Debug)]
pub struct Contestant {
    /// Its name in tables: `pool_server/mpsc_pool/two_level`.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Its process.
    pub launch: Launch,
    /// Whether the contestant is checked against the contract first. The ranking names the rules that it breaks.
    pub checks_contract: bool,
    /// Whether the contestant stores entities. A reference stores none.
    pub keeps_entities: bool,
    /// Its shape; `None` if it is not known.
    pub shape: Option<Shape>,
    /// The bound on a connection's wait for other connections, if the shape has a bound. It replaces the latency.
    pub bound: Option<String>,
    /// How it speaks TLS, if it does.
    pub tls: Option<ClientTls>,
    /// The min duration of each of its answers. Slices are long compared with it.
    pub wait: Duration,
}

/// The role of a contestant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The contestant that all others are compared with.
    Baseline,
    /// The baseline once more: the difference of the two is noise.
    Same,
    /// A ranked contestant.
    #[default]
    Ranked,
    /// The baseline with this percentage of additional CPU time per request.
    Slowed(f64),
    /// A null server: the limit of what a server can reach.
    Limit,
}

impl Role {
    /// Whether it is a contestant of its own: neither a limit nor a second entry.
    pub(crate) fn is_ranked(self) -> bool {
        matches!(self, Self::Baseline | Self::Ranked)
    }
}

impl Contestant {
    /// A contestant of an unknown shape. It keeps entities unless it is a limit.
    pub fn new(name: &str, role: Role, launch: Launch) -> Self {
        let keeps_entities = role != Role::Limit;
        Self {
            name: name.to_owned(),
            role,
            launch,
            checks_contract: false,
            keeps_entities,
            shape: None,
            bound: None,
            tls: None,
            wait: Duration::ZERO,
        }
    }

    /// This contestant, changed.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// Returns the longest wait of a new connection behind idle connections: the head timeout for each connection before it.
/// Returns `None` if all connections are served at once.
pub fn bound(server: &dyn Server, config: &ServerConfig, connections: usize) -> Option<String> {
    let timeout = Duration::from_millis(config.head_timeout.as_millis().try_into().unwrap_or(u64::MAX));
    bound_of(server.max_concurrent()?, timeout, connections)
}

/// [`bound`] of a server that serves `max_concurrent` connections at once.
pub fn bound_of(max_concurrent: usize, head_timeout: Duration, connections: usize) -> Option<String> {
    let ahead = connections.checked_sub(max_concurrent).filter(|ahead| *ahead > 0)?;
    Some(format!("{} x {ahead}", humantime::format_duration(head_timeout)))
}

/// A [`bound`] in words: `up to 56 waits of 10s`.
pub(crate) fn bound_in_words(bound: &str) -> String {
    let words = |(timeout, ahead)| format!("up to {ahead} waits of {timeout}");
    bound.split_once(" x ").map_or_else(|| format!("up to {bound}"), words)
}

#[cfg(test)]
mod tests {
    use polyserve::catalog::Catalog;

    use super::*;

    /// The pool's default size counts too.
    #[test]
    fn bounds_of_shapes() {
        let of = |name: &str, connections, change: &dyn Fn(&mut ServerConfig)| {
            let mut config = ServerConfig::default();
            change(&mut config);
            let server = Catalog::builtin().server(name).unwrap().build(&config).unwrap();
            bound(&server, &config, connections)
        };
        assert_eq!(of("tokio_tcp", 20_000, &|_| ()), None);
        assert_eq!(of("sequential", 1, &|_| ()), None);
        assert_eq!(of("sequential", 64, &|_| ()).as_deref(), Some("10s x 63"));
        assert_eq!(bound_in_words("10s x 63"), "up to 63 waits of 10s");
        assert_eq!(of("leader_followers", 10_000, &|_| ()), None);
        assert_eq!(of("leader_followers", 64, &|c| c.max_connections = 60).as_deref(), Some("10s x 4"));
        assert_eq!(of("futures_pool", 100, &|_| ()), None);
        assert_eq!(of("futures_pool", 200, &|_| ()).as_deref(), Some("10s x 100"));
        assert_eq!(of("futures_pool", 64, &|c| c.workers = Some(8)).as_deref(), Some("10s x 56"));
        assert_eq!(of("futures_pool", 64, &|c| c.max_connections = 60).as_deref(), Some("10s x 4"));
    }
}
