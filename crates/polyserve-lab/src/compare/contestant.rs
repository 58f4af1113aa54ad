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

/// The order of contestants in a pass: a Williams design, every other row backwards. Over `2 * count` passes everybody
/// comes after everybody else equally often, for what a slice leaves behind (a scheduler's debts, warm caches) falls on
/// the next one; and over any two passes everybody's mean place is the same, so that a steady drift favours nobody.
pub fn order(pass: usize, count: usize) -> Vec<usize> {
    let first = if count == 0 { 0 } else { pass / 2 % count };
    // 0, 1, -1, 2, -2 ...: all steps between neighbours differ.
    let zigzag = (0..count).map(|place| if place % 2 == 1 { place / 2 + 1 } else { count - place / 2 });
    let turned = zigzag.map(|step| (first + step) % count);
    if pass.is_multiple_of(2) { turned.collect() } else { turned.rev().collect() }
}

#[cfg(test)]
mod tests {
    use polyserve::catalog::Catalog;

    use super::*;

    #[test]
    fn passes_go_back_and_forth_from_every_place() {
        assert_eq!(order(0, 4), [0, 1, 3, 2]);
        assert_eq!(order(1, 4), [2, 3, 1, 0]);
        assert_eq!(order(2, 4), [1, 2, 0, 3]);
        assert_eq!(order(8, 4), order(0, 4));
        assert_eq!((order(5, 0), order(9, 1)), (vec![], vec![0]));
    }

    #[test]
    fn everybody_follows_everybody_equally_often() {
        for count in 2..9 {
            let mut follows = vec![vec![0; count]; count];
            for pass in 0..2 * count {
                order(pass, count).windows(2).for_each(|pair| follows[pair[0]][pair[1]] += 1);
            }
            for (a, row) in follows.iter().enumerate() {
                let others = row.iter().enumerate().filter(|(b, _)| *b != a);
                assert!(others.clone().all(|(_, times)| *times == 2) && row[a] == 0, "{count}: {follows:?}");
            }
        }
    }

    /// Where the machine slows down steadily, the mean place of everybody is the same over any two passes.
    #[test]
    fn a_steady_drift_favours_nobody() {
        for count in 1..8 {
            for pair in 0..10 {
                let passes = [order(pair * 2, count), order(pair * 2 + 1, count)];
                for who in 0..count {
                    let places = passes.iter().map(|pass| pass.iter().position(|turn| *turn == who).unwrap());
                    assert_eq!(places.sum::<usize>(), count - 1);
                }
            }
        }
    }

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
