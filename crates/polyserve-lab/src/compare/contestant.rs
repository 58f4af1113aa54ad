//! Who is compared, and in what order.

use std::time::Duration;

use polyserve::{Connections, Server, ServerConfig};
use serde::{Deserialize, Serialize};

use crate::launch::Launch;

/// Somebody who is compared.
#[derive(Clone, Debug)]
pub struct Contestant {
    /// Its name in tables: `pool_server/mpsc_pool/two_level`.
    pub name: String,
    /// As what it is there.
    pub role: Role,
    /// Its process.
    pub launch: Launch,
    /// Whether somebody else wrote it: then what it keeps of the contract is looked at first, and stands in the ranking.
    pub is_foreign: bool,
    /// Whether it is asked for entities; a reference answers anything alike.
    pub keeps_entities: bool,
    /// What its shape can do with connections; `None` where it does not say.
    pub shape: Option<Connections>,
    /// How long a connection may wait for others by its shape, where that stands in place of a latency.
    pub bound: Option<String>,
    /// How long each of its answers waits by itself, at least: what is measured at a time is long beside it.
    pub wait: Duration,
}

/// As what a contestant is there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// What the others are compared with.
    Baseline,
    /// The baseline once more: what differs between the two is noise.
    Same,
    /// One of those that are ranked.
    Ranked,
    /// The baseline, made to burn so many per cent of its CPU time a request in addition.
    Slowed(f64),
    /// A server that does next to nothing: what can be reached.
    Limit,
}

impl Contestant {
    /// One that keeps entities unless it is a limit, and says nothing of its shape.
    pub fn new(name: &str, role: Role, launch: Launch) -> Self {
        let (keeps_entities, is_foreign) = (role != Role::Limit, false);
        Self {
            name: name.to_owned(),
            role,
            launch,
            is_foreign,
            keeps_entities,
            shape: None,
            bound: None,
            wait: Duration::ZERO,
        }
    }

    /// This one, changed.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// The longest that a new connection waits where idle ones hold others up: the head's timeout for each ahead of it.
/// `None` where an idle connection holds nobody up, or as many are served at a time as there are connections.
pub fn bound(server: &dyn Server, config: &ServerConfig, connections: usize) -> Option<String> {
    let timeout = Duration::from_millis(config.head_timeout.as_millis().try_into().unwrap_or(u64::MAX));
    bound_of(server.max_concurrent()?, timeout, connections)
}

/// The same for a server of which only this is known.
pub fn bound_of(at_once: usize, head_timeout: Duration, connections: usize) -> Option<String> {
    let ahead = connections.checked_sub(at_once).filter(|ahead| *ahead > 0)?;
    Some(format!("{} x {ahead}", humantime::format_duration(head_timeout)))
}

#[cfg(test)]
mod tests {
    use polyserve::catalog::Catalog;

    use super::*;

    /// The pool's default size was not known here: a crowd of 1000 beside it was measured.
    #[test]
    fn bounds_of_shapes() {
        let of = |name: &str, connections, change: &dyn Fn(&mut ServerConfig)| {
            let config = ServerConfig::default().with(change);
            let server = (Catalog::builtin().server(name).unwrap().make)(&config).unwrap();
            bound(&server, &config, connections)
        };
        assert_eq!(of("tokio_tcp", 20_000, &|_| ()), None);
        assert_eq!(of("sequential", 1, &|_| ()), None);
        assert_eq!(of("sequential", 64, &|_| ()).as_deref(), Some("10s x 63"));
        assert_eq!(of("leader_followers", 10_000, &|_| ()), None);
        assert_eq!(of("leader_followers", 64, &|c| c.max_connections = 60).as_deref(), Some("10s x 4"));
        assert_eq!(of("futures_pool", 100, &|_| ()), None);
        assert_eq!(of("futures_pool", 200, &|_| ()).as_deref(), Some("10s x 100"));
        assert_eq!(of("futures_pool", 64, &|c| c.workers = Some(8)).as_deref(), Some("10s x 56"));
        assert_eq!(of("futures_pool", 64, &|c| c.max_connections = 60).as_deref(), Some("10s x 4"));
    }
}
