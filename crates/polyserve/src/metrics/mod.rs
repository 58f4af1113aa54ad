//! Metrics of running servers, in the text format of OpenMetrics, which Prometheus reads.
//!
//! The names are those of OpenTelemetry's conventions for HTTP servers, as Prometheus spells them:
//! `http_server_request_duration_seconds` by `http_request_method` and `http_response_status_code`. What the conventions do not have
//! begins with `polyserve_`.
//!
//! Invariant: the labels come from a fixed set, so a client cannot make a series. Cost of an answer: that of an
//! [`AnswerHook`], an uncontended lock and three additions. Threads share nothing until the metrics are read.
//!
//! # Layout
//!
//! * `durations`: histograms of each thread, and their sum.

mod durations;

use std::fmt;
use std::sync::{Arc, Mutex};

use polyserve_core::sync::lock;
use polyserve_core::{AnswerHook, CounterSource, Counters, Running, ServerConfig};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use durations::Durations;

/// A handle to the metrics of one or more servers. A clone shares them. It outlives the servers, and keeps their last figures.
///
#[cfg_attr(all(feature = "threadpool", feature = "memory"), doc = "```")]
#[cfg_attr(not(all(feature = "threadpool", feature = "memory")), doc = "```ignore")]
/// use polyserve::metrics::Metrics;
/// use polyserve::prelude::*;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let metrics = Metrics::new();
/// let server = PoolServer::mpsc(metrics.observe(ServerConfig::default()))?;
/// let running = server.serve("127.0.0.1:0", EntityService::new(Sharded::new()))?;
/// metrics.watch("entities", &running);
/// running.shutdown()?;
/// assert!(metrics.text().contains(r#"http_server_open_connections{server="entities"} 0"#));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    durations: Arc<Durations>,
    servers: Arc<Servers>,
}

/// The servers that are watched, with their names.
type Servers = Mutex<Vec<(String, CounterSource)>>;

impl Metrics {
    /// Creates metrics without a server.
    pub fn new() -> Self {
        let (durations, servers) = (Durations::new(), Arc::<Servers>::default());
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Figures { durations: durations.clone(), servers: servers.clone() }));
        Self { registry: Arc::new(registry), durations, servers }
    }

    /// Returns the configuration with a hook that counts every answer and its duration. A hook that the configuration has is called
    /// too.
    #[must_use]
    pub fn observe(&self, mut config: ServerConfig) -> ServerConfig {
        let durations = Arc::clone(&self.durations);
        config.on_answer = Some(AnswerHook::new(move |report| durations.add(report)).then(config.on_answer.take()));
        config
    }

    /// Adds the counters of a running server, under a name. A server of the same name takes the place of the former one.
    pub fn watch(&self, name: impl Into<String>, running: &Running) {
        let (name, source) = (name.into(), running.counter_source());
        let mut servers = lock(&self.servers);
        match servers.iter_mut().find(|(known, _)| *known == name) {
            Some(known) => known.1 = source,
            None => servers.push((name, source)),
        }
    }

    /// Returns all metrics in the text format of OpenMetrics 1.0. Its media type is [`MEDIA_TYPE`].
    ///
    /// # Cost
    ///
    /// A lock for each thread that has served a request.
    pub fn text(&self) -> String {
        let mut text = String::new();
        text::encode(&mut text, &self.registry).expect("a string takes all that is written");
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("servers", &lock(&self.servers)).finish_non_exhaustive()
    }
}

/// The media type of [`Metrics::text`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the metrics are read from.
#[derive(Debug)]
struct Figures {
    durations: Arc<Durations>,
    servers: Arc<Servers>,
}

/// No labels.
type NoLabels = [(&'static str, &'static str); 0];

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let name = "http_server_request_duration";
        let help = "From the first byte of a request to its answer";
        let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for ((method, status), histogram) in self.durations.all() {
            let labels = [("http_request_method", method), ("http_response_status_code", status.as_str())];
            let (sum, count, buckets) = (histogram.sum(), histogram.count(), histogram.buckets());
            family.encode_family(&labels)?.encode_histogram::<NoLabels>(sum, count, &buckets, None)?;
        }
        // The counters of all servers are of one moment, and a lock is not held while they are written.
        let servers: Vec<(String, Counters)> =
            lock(&self.servers).iter().map(|(name, source)| (name.clone(), source.get())).collect();
        let name = "http_server_open_connections";
        let mut family = encoder.encode_descriptor(name, "Open connections", None, MetricType::Gauge)?;
        for (server, counters) in &servers {
            family.encode_family(&[("server", server.as_str())])?.encode_gauge(&counters.open)?;
        }
        for (name, help, value) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (server, counters) in &servers {
                let labels = [("server", server.as_str())];
                family.encode_family(&labels)?.encode_counter::<NoLabels, u64, f64>(&value(counters), None)?;
            }
        }
        Ok(())
    }
}

/// A counter of a server: its name, its meaning, and its value.
type NamedCounter = (&'static str, &'static str, fn(&Counters) -> u64);

const COUNTERS: [NamedCounter; 3] = [
    ("polyserve_answers", "Answers that the kernel has accepted", |counters| counters.answered),
    ("polyserve_rejected_connections", "Connections that were answered 503 because the server was full", |counters| {
        counters.rejected
    }),
    ("polyserve_service_panics", "Panics of the service that were answered 500", |counters| counters.panics),
];
