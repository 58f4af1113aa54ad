//! What was measured.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How far a load is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Whether it does not count yet.
    pub warming: bool,
    /// Since the first request.
    pub elapsed: Duration,
    /// Which part of the whole, warm-up and span, is over: 0 to 1.
    pub share: f64,
    /// Right answers so far, those of the warm-up too.
    pub answered: u64,
    /// Failures so far.
    pub failed: u64,
    /// The clock and the processor time of [`Load::cpu`](crate::Load::cpu), where there is one: what lies between two of them is
    /// what they tell.
    pub server_cpu: Option<(Duration, Duration)>,
}

/// What a load has measured.
#[derive(Clone, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Right answers within the counted span. Of a span of time these are all that came within it; of a span of
    /// requests, those to its requests.
    pub answered: u64,
    /// Right answers to requests of a span of time that came after its end; their latency counts.
    pub answered_late: u64,
    /// What failed, whenever it was.
    pub failed: Failures,
    /// What the first failure was, with at most 200 bytes of the answer.
    pub first_failure: Option<String>,
    /// How long the counted span was, in seconds as JSON.
    #[serde(serialize_with = "seconds")]
    pub elapsed: Duration,
    /// Bytes written in the counted span.
    pub bytes_sent: u64,
    /// Bytes read in the counted span.
    pub bytes_received: u64,
    /// Connections of the whole run.
    pub connections_opened: u64,
    /// Those of them that followed one that the server had closed between requests.
    pub reconnects: u64,
    /// Requests that were sent again: the server had closed a kept connection before a byte of their answer.
    pub retried: u64,
    /// Latencies in nanoseconds of the requests begun in the span: from the send in closed loop, from when the request
    /// was due in open loop; there those without an answer in time are among them, with the time that they have waited.
    #[serde(serialize_with = "quantiles")]
    pub latency: Histogram<u64>,
    /// `closed loop` or `intended start`.
    pub latency_kind: &'static str,
    /// Open loop: how late, in nanoseconds, the client itself sent what was due and had a free connection. A connection
    /// counts as free from when its answer may have been there, not from when the client read it.
    #[serde(serialize_with = "maybe_quantiles")]
    pub lateness: Option<Histogram<u64>>,
    /// Where every request has a connection of its own: the two parts of its time there.
    pub parts: Option<Parts>,
    /// Open loop: due within the span and never sent, not even after its end, for want of a free connection.
    pub unsent: u64,
    /// Begun within the span and not answered when a load that was stopped early gave up. Without a stop they are timeouts.
    pub unfinished: u64,
    /// Processor time of the client's threads.
    #[serde(serialize_with = "seconds")]
    pub client_cpu: Duration,
    /// Processor time of the server, where it is known.
    #[serde(serialize_with = "maybe_seconds")]
    pub server_cpu: Option<Duration>,
    /// What of it the client spent awake with nothing to do, so as not to be late for the next request.
    #[serde(serialize_with = "seconds")]
    pub client_spinning: Duration,
    /// The client's processor time, without what it was only awake, as a share of its threads' time: at 1 it was saturated.
    pub client_busy: f64,
    /// The server's processor time in cores.
    pub server_busy: Option<f64>,
}

/// Where the time goes of a request that has a connection of its own, of right answers begun in the span: with what an
/// answer may wait for in the client, from when it has arrived until it is read. In nanoseconds.
#[derive(Clone, Serialize)]
#[non_exhaustive]
pub struct Parts {
    /// From when connecting began until the connection was established, as far as this end knows: it has taken the request.
    #[serde(serialize_with = "quantiles")]
    pub connect: Histogram<u64>,
    /// From then until the answer's last byte was read.
    #[serde(serialize_with = "quantiles")]
    pub processing: Histogram<u64>,
}

impl Parts {
    pub(crate) fn new() -> Self {
        Self { connect: histogram(), processing: histogram() }
    }
}

impl fmt::Debug for Parts {
    /// How many there are: a histogram's own form is thousands of counts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("count", &self.connect.len()).finish_non_exhaustive()
    }
}

/// Requests without a right answer, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failures {
    /// Answers that are not HTTP, or not the one expected, or bytes that nobody asked for.
    pub wrong: u64,
    /// Answers of another status than expected, by status.
    #[serde(deserialize_with = "statuses")]
    pub status: BTreeMap<u16, u64>,
    /// Answers that took longer than the client's patience.
    pub timeouts: u64,
    /// Connections that could not be opened when a request wanted one.
    pub connect: u64,
    /// Connections that ended before the whole answer.
    pub broken: u64,
}

/// The keys of JSON are texts, which serde reads as numbers only where the map stands alone, not in a line with more fields.
fn statuses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<u16, u64>, D::Error> {
    let texts = BTreeMap::<String, u64>::deserialize(deserializer)?;
    let number = |text: String| text.parse().map_err(serde::de::Error::custom);
    texts.into_iter().map(|(status, count)| Ok((number(status)?, count))).collect()
}

impl Failures {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.wrong + self.status.values().sum::<u64>() + self.timeouts + self.connect + self.broken
    }

    /// Adds what another thread has counted.
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
    /// Right answers a second.
    pub fn per_second(&self) -> f64 {
        ratio(self.answered, self.elapsed)
    }

    /// Right answers for each second of the server's processor time.
    pub fn per_server_cpu_second(&self) -> Option<f64> {
        self.server_cpu.map(|cpu| ratio(self.answered, cpu))
    }

    /// Whether something was answered, and nothing failed.
    pub fn is_clean(&self) -> bool {
        self.answered + self.answered_late > 0 && self.failed.total() == 0
    }
}

impl fmt::Debug for Report {
    /// As its JSON: a histogram's own form is thousands of counts.
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

fn quantiles<S: Serializer>(histogram: &Histogram<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    Quantiles(histogram).serialize(serializer)
}

fn maybe_quantiles<S: Serializer>(histogram: &Option<Histogram<u64>>, serializer: S) -> Result<S::Ok, S::Error> {
    histogram.as_ref().map(Quantiles).serialize(serializer)
}

/// A histogram as JSON.
struct Quantiles<'a>(&'a Histogram<u64>);

impl Serialize for Quantiles<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(of) = self;
        let mut out = serializer.serialize_struct("Quantiles", 8)?;
        out.serialize_field("count", &of.len())?;
        out.serialize_field("mean_ns", &of.mean())?;
        out.serialize_field("min_ns", &of.min())?;
        out.serialize_field("p50_ns", &of.value_at_quantile(0.5))?;
        out.serialize_field("p90_ns", &of.value_at_quantile(0.9))?;
        out.serialize_field("p99_ns", &of.value_at_quantile(0.99))?;
        out.serialize_field("p999_ns", &of.value_at_quantile(0.999))?;
        out.serialize_field("max_ns", &of.max())?;
        out.end()
    }
}

/// A histogram from 1 ns to ten minutes, of three digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("the bounds are valid")
}
