//! The results of a load.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::retry::RetryReport;
use crate::traffic::AnswerCheck;

/// The progress of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadProgress {
    /// Whether the load is in its warm-up.
    pub warming: bool,
    /// The time since the first request.
    pub elapsed: Duration,
    /// The finished share of the warm-up and the measured period: 0 to 1.
    pub share: f64,
    /// Right answers so far, including the warm-up.
    pub answered: u64,
    /// Failures so far.
    pub failed: u64,
    /// The monotonic time and the processor time of [`Load::cpu`](crate::Load::cpu), if known. Only the difference of two
    /// readings has a meaning.
    pub server_cpu: Option<(Duration, Duration)>,
}

/// The measurements of a load.
#[derive(Clone, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The number of right answers. If the run length is a time: all that arrived within the measured period. If it is a
    /// number of requests: the right answers to these requests.
    pub answered: u64,
    /// If the run length is a time: the number of right answers to requests begun in the measured period that arrived after
    /// its end. Their latency counts.
    pub answered_late: u64,
    /// The failures of the whole run.
    pub failed: Failures,
    /// A description of the first failure, with at most 200 bytes of the answer.
    pub first_failure: Option<String>,
    /// The length of the measured period. JSON: in seconds.
    #[serde(serialize_with = "seconds")]
    pub elapsed: Duration,
    /// Bytes written in the measured period.
    pub bytes_sent: u64,
    /// Bytes read in the measured period.
    pub bytes_received: u64,
    /// Connections opened in the whole run.
    pub connections_opened: u64,
    /// Connections that were opened because the server had closed the previous one between requests.
    pub reconnects: u64,
    /// Requests that were sent again, because the server had closed a kept connection before the first byte of the answer.
    pub retried: u64,
    /// Latencies of the requests begun in the measured period, in nanoseconds. A closed loop counts from the send, an
    /// open loop from the due time. An open loop includes requests without an answer in time, with the time that they
    /// have waited.
    #[serde(serialize_with = "quantiles")]
    pub latency: Histogram<u64>,
    /// `closed loop` or `intended start`.
    pub latency_kind: &'static str,
    /// What clients that retry have measured; `None` if they do not.
    pub retry: Option<RetryReport>,
    /// Open loop: the delay of due requests that the client itself caused, in nanoseconds, if a connection was free. A
    /// connection counts as free once its answer may have arrived, even if the client has not read it yet.
    #[serde(serialize_with = "maybe_quantiles")]
    pub lateness: Option<Histogram<u64>>,
    /// If every request has its own connection: the phases of the request. JSON: `parts`.
    #[serde(rename = "parts")]
    pub phases: Option<RequestPhases>,
    /// Open loop: requests due in the measured period that were never sent, because no connection was free until the
    /// end of the wait.
    pub unsent: u64,
    /// Requests begun in the measured period without an answer when a stopped load ended. Without a stop they count as
    /// timeouts.
    pub unfinished: u64,
    /// Processor time of the client's threads.
    #[serde(serialize_with = "seconds")]
    pub client_cpu: Duration,
    /// Processor time of the server, if known.
    #[serde(serialize_with = "maybe_seconds")]
    pub server_cpu: Option<Duration>,
    /// The part of `client_cpu` that the client stayed awake without work, so as to send the next request in time.
    #[serde(serialize_with = "seconds")]
    pub client_spinning: Duration,
    /// `client_cpu` without `client_spinning`, as a share of the time of the client's threads. At 1 the client is saturated.
    pub client_busy: f64,
    /// The server's processor time in cores.
    pub server_busy: Option<f64>,
    /// The requests with a discovered answer that has another body each time.
    pub changing: Vec<ChangingAnswer>,
}

/// A request with another body in each answer, so that the body is not compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ChangingAnswer {
    /// The method and the target.
    pub request: String,
    /// What is compared.
    pub judged: AnswerCheck,
}

/// The durations of the phases of a request with its own connection, in nanoseconds. Includes right answers to requests
/// begun in the measured period. The time that an answer waits in the socket until the client reads it counts.
#[derive(Clone, Serialize)]
#[non_exhaustive]
pub struct RequestPhases {
    /// From the start of the connect until the connection is established. The client takes it as established once the
    /// socket has taken the request.
    #[serde(serialize_with = "quantiles")]
    pub connect: Histogram<u64>,
    /// From then until the first byte of the answer is read. A part of `processing`.
    #[serde(serialize_with = "quantiles")]
    pub waiting: Histogram<u64>,
    /// From the end of the connect until the last byte of the answer is read.
    #[serde(serialize_with = "quantiles")]
    pub processing: Histogram<u64>,
}

impl RequestPhases {
    pub(crate) fn new() -> Self {
        Self { connect: histogram(), waiting: histogram(), processing: histogram() }
    }
}

impl fmt::Debug for RequestPhases {
    /// Shows the number of samples, because the derived form would contain thousands of counts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestPhases").field("count", &self.connect.len()).finish_non_exhaustive()
    }
}

/// Requests without a right answer, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failures {
    /// Answers that are not HTTP or not the expected one, and bytes that answer no request.
    pub wrong: u64,
    /// Answers with an unexpected status, by status. A 503 before a request is one of them: a full server refuses a connection.
    #[serde(deserialize_with = "statuses")]
    pub status: BTreeMap<u16, u64>,
    /// Requests without an answer within the client's timeout.
    pub timeouts: u64,
    /// Requests for which no connection could be opened.
    pub connect: u64,
    /// Requests on a connection that ended before the complete answer.
    pub broken: u64,
}

/// Parses the keys, which JSON has as strings: serde reads them as numbers only if the map is the whole document.
fn statuses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<u16, u64>, D::Error> {
    let texts = BTreeMap::<String, u64>::deserialize(deserializer)?;
    let number = |text: String| text.parse().map_err(serde::de::Error::custom);
    texts.into_iter().map(|(status, count)| Ok((number(status)?, count))).collect()
}

impl Failures {
    /// Returns the number of all failures.
    pub fn total(&self) -> u64 {
        self.wrong + self.status.values().sum::<u64>() + self.timeouts + self.connect + self.broken
    }

    /// Adds the counts of another thread.
    pub fn add(&mut self, other: &Self) {
        self.wrong += other.wrong;
        self.timeouts += other.timeouts;
        self.connect += other.connect;
        self.broken += other.broken;
        for (status, count) in &other.status {
            *self.status.entry(*status).or_default() += count;
        }
    }
}

impl Report {
    /// Returns the right answers per second.
    pub fn per_second(&self) -> f64 {
        ratio(self.answered, self.elapsed)
    }

    /// Returns the right answers per second of the server's processor time.
    pub fn per_server_cpu_second(&self) -> Option<f64> {
        self.server_cpu.map(|cpu| ratio(self.answered, cpu))
    }

    /// Returns the mean number of requests under way in the measured period: the rate of the requests multiplied by their mean
    /// latency (Little's law). In a closed loop without pipelining over kept connections it is the number of connections. If it
    /// is not, the throughput and the latencies are not of the same requests.
    ///
    /// Source: Little, "A proof for the queuing formula L = lambda W", 1961.
    pub fn under_way(&self) -> f64 {
        let seconds = self.latency.mean() * self.latency.len() as f64 / 1e9;
        if self.elapsed.is_zero() { 0.0 } else { seconds / self.elapsed.as_secs_f64() }
    }

    /// Whether at least one request was answered and none failed.
    pub fn is_clean(&self) -> bool {
        self.answered + self.answered_late > 0 && self.failed.total() == 0
    }
}

impl fmt::Debug for Report {
    /// Writes the report as JSON. The derived form would contain thousands of counts for each histogram.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

fn ratio(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

fn maybe_seconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

pub(crate) fn quantiles<S: Serializer>(histogram: &Histogram<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    Quantiles(histogram).serialize(serializer)
}

fn maybe_quantiles<S: Serializer>(histogram: &Option<Histogram<u64>>, serializer: S) -> Result<S::Ok, S::Error> {
    histogram.as_ref().map(Quantiles).serialize(serializer)
}

/// A histogram as JSON.
struct Quantiles<'a>(&'a Histogram<u64>);

impl Serialize for Quantiles<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(histogram) = self;
        let mut out = serializer.serialize_struct("Quantiles", 8)?;
        out.serialize_field("count", &histogram.len())?;
        out.serialize_field("mean_ns", &histogram.mean())?;
        out.serialize_field("min_ns", &histogram.min())?;
        out.serialize_field("p50_ns", &histogram.value_at_quantile(0.5))?;
        out.serialize_field("p90_ns", &histogram.value_at_quantile(0.9))?;
        out.serialize_field("p99_ns", &histogram.value_at_quantile(0.99))?;
        out.serialize_field("p999_ns", &histogram.value_at_quantile(0.999))?;
        out.serialize_field("max_ns", &histogram.max())?;
        out.end()
    }
}

/// Creates a histogram from 1 ns to ten minutes with three digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("the bounds are valid")
}
