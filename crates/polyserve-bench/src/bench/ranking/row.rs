//! A row of a ranking.

use serde::{Deserialize, Serialize};

use crate::bench::experiment::Key;
use crate::experiment::Absence;
use crate::output;
use crate::statistics::{Compared, Estimate, Interval};
use crate::turn::Role;

/// The min share of its time at which a server or client is busy.
pub(crate) const BUSY: f64 = 0.95;

/// Returns true if the server's cores were full and the client's were not: other costs cannot be compared. The arguments are
/// shares of the cores' time, if they are known.
pub(crate) fn is_server_full(server_busy: Option<f64>, client_busy: Option<f64>) -> bool {
    server_busy.is_some_and(|busy| busy >= BUSY) && client_busy.is_some_and(|busy| busy < BUSY)
}

/// The share of a limit that a contestant reaches.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Share {
    /// The limit's name.
    pub of: String,
    /// Of its requests per second.
    pub throughput: Option<Estimate>,
    /// Of its requests per second of the server's CPU time.
    pub cost: Option<Estimate>,
    /// Why the share of the cost does not count, if it does not.
    pub cost_void: Option<Void>,
}

/// Latencies at the fixed rate: medians of the rounds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Latencies {
    /// Median, in microseconds; infinite without an answer.
    #[serde(deserialize_with = "infinite_if_null")]
    pub p50_us: f64,
    /// 99 %, in microseconds.
    #[serde(deserialize_with = "infinite_if_null")]
    pub p99_us: f64,
    /// 99.9 %, in microseconds.
    #[serde(deserialize_with = "infinite_if_null")]
    pub p999_us: f64,
    /// The lateness of the load generator itself, 99 %, in microseconds: the median of the rounds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lateness_p99_us: f64,
    /// Whether the server could not keep the rate in most rounds; in a single round, another process may be the cause. The
    /// latencies of an overloaded server depend on the length of a slice.
    pub overloaded: bool,
}

/// JSON has no infinity: it is written as `null`.
fn infinite_if_null<'de, D: serde::Deserializer<'de>>(figure: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(figure)?.unwrap_or(f64::INFINITY))
}

fn is_zero(figure: &f64) -> bool {
    *figure == 0.0
}

impl Latencies {
    /// Whether the load generator's own lateness is a large part of the p50, or of the p99.
    pub(crate) fn is_client_late(&self) -> bool {
        output::is_client_late(self.lateness_p99_us, self.p50_us)
    }
}

/// A contestant's figures. They are medians over its rounds, unless the description of a field differs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RankingRow {
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Its rank, from 1, if it is ranked. Those with one rank do not differ from the first of them.
    pub rank: Option<usize>,
    /// Requests per second, relative to the first contestant; `None` for the first.
    pub of_first: Option<Compared>,
    /// Requests per second, relative to the baseline.
    pub throughput: Option<Compared>,
    /// Requests per second of the server's CPU time, relative to the baseline.
    pub cost: Option<Compared>,
    /// Why the cost does not count, if it does not.
    pub cost_void: Option<Void>,
    /// Requests per second.
    pub requests_per_s: f64,
    /// Requests per second of the server's CPU time.
    pub requests_per_cpu_s: Option<f64>,
    /// Its share of each limit.
    pub shares: Vec<Share>,
    /// The latency at the fixed rate.
    pub latency: Option<Latencies>,
    /// The p99 at the fixed rate, relative to the baseline.
    pub p99: Option<Estimate>,
    /// The p99 at the fixed rate, relative to the first contestant.
    pub p99_of_first: Option<Compared>,
    /// With a goal: the 95 % interval of the p99 in microseconds; `None` with too few rounds.
    pub p99_interval: Option<Interval>,
    /// Whether the contestant meets the goal; `None` without a goal, and if the p99 is too near to the goal.
    pub meets_goal: Option<bool>,
    /// The bound that replaces the latency, by the shape of the server.
    pub bound: Option<String>,
    /// Context switches per request, of threads that did not end.
    pub switches_per_request: Option<f64>,
    /// The requests under way by Little's law, as a share of the connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under_way: Option<f64>,
    /// Resident memory under load, in bytes.
    pub loaded_bytes: Option<f64>,
    /// The growth of that memory per connection, in bytes, if connections are kept.
    pub bytes_per_connection: Option<f64>,
    /// The server's CPU time as a share of what other processes left of its cores' time.
    pub server_busy: Option<f64>,
    /// The client's CPU time as a share of what other processes left of its cores' time.
    pub client_busy: Option<f64>,
    /// The busy side: `server`, `client`, `both` or `neither`.
    pub saturated: String,
}

/// A contestant without a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotRanked {
    /// The round in which it failed; 0 if it was not started.
    pub round: usize,
    /// Its name.
    pub name: String,
    /// Why.
    pub why: String,
    /// Whether it did wrong.
    pub wrong: bool,
}

impl NotRanked {
    /// A contestant and its absence.
    pub(super) fn new((key, absence): (&Key, &Absence)) -> Self {
        let (round, name) = (key.round, key.contestant.clone());
        Self { round, name, why: absence.why.clone(), wrong: absence.is_wrong() }
    }
}

/// One of the two contestants that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The contestant of the row.
    Own,
    /// The baseline, or the limit.
    Other,
}

/// Why a cost does not count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Void {
    /// A server was not busy, and neither was the client.
    Idle {
        /// The server's side.
        side: Side,
        /// The share of its available time in which it was busy, if it is known.
        busy: Option<f64>,
    },
    /// A server was not busy because the client was: the cost includes the server's wake-ups.
    ClientSaturated {
        /// The server's side.
        side: Side,
        /// The share of its available time in which the server was busy, if it is known.
        busy: Option<f64>,
    },
    /// The cheaper server may have too little throughput.
    Throughput {
        /// The cheaper side.
        side: Side,
        /// The low end of the ratio's interval.
        low: f64,
    },
    /// One of the two has no latency.
    NoLatency,
    /// The server could not keep the rate of the latencies.
    Overloaded {
        /// The server's side.
        side: Side,
    },
    /// The cheaper server's p99 is too high.
    Latency {
        /// The cheaper side.
        side: Side,
        /// The ratio.
        ratio: f64,
    },
    /// It is undecided whether the cheaper server's p99 is too high.
    LatencyUndecided {
        /// The cheaper server.
        side: Side,
        /// The upper end of the interval of its p99, relative to the other server's.
        high: f64,
    },
}
