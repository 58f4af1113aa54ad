//! The outcome of a round.

use serde::{Deserialize, Serialize};

use super::client::{ClientTally, ConnectionMode, Errors};
use super::requests::RequestGroup;
use crate::launch::drain::DrainCounts;

/// The outcome of a round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundOutcome {
    /// The number of concurrent connections.
    pub connections_at_once: u64,
    /// The groups, and the total.
    pub groups: Vec<GroupOutcome>,
    /// The number of connections that were opened.
    pub connections: u64,
    /// Idle connections that the server had closed before the next request, which was sent again.
    pub reconnects: u64,
    /// The final state of the store.
    pub final_state: FinalState,
    /// The number of entities by the store's own count; `None` if the server does not print it.
    pub store_count: Option<u64>,
    /// The server's own counts at its end; `None` if it does not report them.
    pub drain: Option<DrainCounts>,
    /// The number of whole answers that the clients counted. The server's count must be the same.
    pub answers: u64,
    /// The number of errors.
    pub error_count: u64,
    /// The first few errors.
    pub errors: Vec<String>,
}

/// A group of requests of a round. The columns are as published.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupOutcome {
    /// `put-new`, `get`, `put-update` or `total`.
    pub phase: String,
    /// The number of requests.
    pub samples: u64,
    /// The number of requests without a right answer.
    pub errors: u64,
    /// The share of requests without a right answer, in per cent.
    pub error_pct: f64,
    /// The number of requests that were rejected by a 503, if that is a right answer.
    pub refused: u64,
    /// Requests per second, from the start to the group's last answer.
    pub requests_per_s: f64,
    /// Received bytes, in units of 1024 bytes per second.
    #[serde(rename = "received_kB_s")]
    pub received_kb_s: f64,
    /// Sent bytes, in units of 1024 bytes per second.
    #[serde(rename = "sent_kB_s")]
    pub sent_kb_s: f64,
}

/// The final state of the store, seen over HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinalState {
    /// The number of ids that were looked up.
    pub checked: u64,
    /// The number of ids that were present.
    pub present: u64,
    /// The number of ids with a wrong or lost entity.
    pub wrong: u64,
}

impl FinalState {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        self.checked += other.checked;
        self.present += other.present;
        self.wrong += other.wrong;
    }
}

impl RoundOutcome {
    /// The outcome of a round in `mode`. The groups are in the order of [`RequestGroup::ALL`].
    pub fn new(
        mode: ConnectionMode,
        groups: [ClientTally; 3],
        final_state: FinalState,
        store_count: Option<u64>,
        drain: Option<DrainCounts>,
        answers: u64,
        errors: &Errors,
    ) -> Self {
        let mut total = ClientTally::default();
        groups.iter().for_each(|group| total.add(group));
        if matches!(mode, ConnectionMode::Burst(..)) {
            total.took = groups.iter().map(|group| group.took).sum(); // the groups run one after the other
        }
        let named = RequestGroup::ALL.iter().map(|phase| phase.name()).zip(&groups).chain([("total", &total)]);
        let connections_at_once = match mode {
            ConnectionMode::Groups(_, clients) => clients as u64 * 3,
            ConnectionMode::Burst(size, _) => groups.iter().map(|group| group.samples.min(size)).max().unwrap_or(0),
        };
        Self {
            connections_at_once,
            groups: named.map(|(phase, tally)| GroupOutcome::new(phase, tally)).collect(),
            connections: total.connections,
            reconnects: total.reconnects,
            final_state,
            store_count,
            drain,
            answers,
            error_count: errors.count(),
            errors: errors.first(),
        }
    }
}

impl GroupOutcome {
    fn new(phase: &'static str, tally: &ClientTally) -> Self {
        let per_second = |count: u64| if tally.took.is_zero() { 0.0 } else { count as f64 / tally.took.as_secs_f64() };
        Self {
            phase: phase.to_owned(),
            samples: tally.samples,
            errors: tally.errors,
            error_pct: if tally.samples == 0 { 0.0 } else { tally.errors as f64 / tally.samples as f64 * 100.0 },
            refused: tally.refused,
            requests_per_s: per_second(tally.samples),
            received_kb_s: per_second(tally.received) / 1024.0,
            sent_kb_s: per_second(tally.sent) / 1024.0,
        }
    }
}
