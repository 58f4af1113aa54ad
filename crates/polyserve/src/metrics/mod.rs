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
//! * `store`: a repo with the durations of its operations.

mod durations;
mod store;

use std::fmt;
use std::sync::{Arc, Mutex};

use polyserve_core::overload::OverloadReason;
use polyserve_core::sync::lock;
use polyserve_core::{AnswerHook, AnswerReport, CounterSource, Counters, Running, ServerConfig};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use durations::{Durations, Histogram, Kind};
pub use store::ObservedStore;

#[cfg(feature = "access")]
use crate::access::Refusals;

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
    #[cfg(feature = "access")]
    refusals: Refusals,
}

/// The servers that are watched, with their names.
type Servers = Mutex<Vec<(String, CounterSource)>>;

impl Metrics {
    /// Creates metrics without a server.
    pub fn new() -> Self {
        let (durations, servers) = (Durations::new(), Arc::<Servers>::default());
        let mut registry = Registry::default();
        #[cfg(feature = "access")]
        let refusals = Refusals::default();
        registry.register_collector(Box::new(Figures {
            durations: durations.clone(),
            servers: servers.clone(),
            #[cfg(feature = "access")]
            refusals: refusals.clone(),
        }));
        Self {
            registry: Arc::new(registry),
            durations,
            servers,
            #[cfg(feature = "access")]
            refusals,
        }
    }

    /// Returns the configuration with a hook that counts every answer and its duration. A hook that the configuration has is called
    /// too.
    #[must_use]
    pub fn observe(&self, mut config: ServerConfig) -> ServerConfig {
        let durations = Arc::clone(&self.durations);
        let observe = move |report: &AnswerReport<'_>| {
            if let Some(elapsed) = report.elapsed {
                durations.add(Kind::of(report), elapsed);
            }
        };
        config.on_answer = Some(AnswerHook::new(observe).then(config.on_answer.take()));
        config
    }

    /// Returns the repo with the durations of its operations: of those that it answers later, such as an engine behind the network and
    /// a log on a disk, and of errors. An answer that is there at once is not measured. Cost: a comparison; and for a later answer two looks at the
    /// clock, an allocation, and the addition.
    pub fn observe_store<R>(&self, repo: R) -> ObservedStore<R> {
        ObservedStore::new(repo, Arc::clone(&self.durations))
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

    /// The counts of refused requests, for [`Authenticated`] and [`AllowedHosts`].
    ///
    /// [`Authenticated`]: crate::access::Authenticated
    /// [`AllowedHosts`]: crate::access::AllowedHosts
    #[cfg(feature = "access")]
    pub fn refusals(&self) -> Refusals {
        self.refusals.clone()
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
    #[cfg(feature = "access")]
    refusals: Refusals,
}

/// No labels.
type NoLabels = [(&'static str, &'static str); 0];

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let durations = self.durations.all();
        let name = "http_server_request_duration";
        let help = "From the first byte of a request to its answer";
        let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (kind, histogram) in &durations {
            if let Kind::Request(method, status) = kind {
                let labels = [("http_request_method", *method), ("http_response_status_code", status.as_str())];
                encode(family.encode_family(&labels)?, histogram)?;
            }
        }
        let name = "db_client_operation_duration";
        let help = "Of the store's operations that were not answered at once, and of errors";
        let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (kind, histogram) in &durations {
            if let Kind::Store(operation, error_type) = kind {
                let labels = [("db_operation_name", *operation), ("error_type", *error_type)];
                encode(family.encode_family(&labels)?, histogram)?;
            }
        }
        // The counters of all servers are of one moment, and a lock is not held while they are written.
        let servers: Vec<(String, Counters)> =
            lock(&self.servers).iter().map(|(name, source)| (name.clone(), source.get())).collect();
        for (name, help, unit, value) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
            for (server, counters) in &servers {
                family.encode_family(&[("server", server.as_str())])?.encode_gauge(&value(counters))?;
            }
        }
        for (name, help, value) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (server, counters) in &servers {
                let labels = [("server", server.as_str())];
                family.encode_family(&labels)?.encode_counter::<NoLabels, u64, f64>(&value(counters), None)?;
            }
        }
        let (name, help) = ("polyserve_overload_refusals", "Requests that the overload policy has refused with 503");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (server, counters) in &servers {
            for (reason, count) in OverloadReason::ALL.iter().zip(counters.overload_refused) {
                let labels = [("server", server.as_str()), ("reason", reason.name())];
                family.encode_family(&labels)?.encode_counter::<NoLabels, u64, f64>(&count, None)?;
            }
        }
        let (name, help) =
            ("polyserve_rejected_connections", "Connections that were answered 503 when they were opened");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (server, counters) in &servers {
            let peers = counters.rejected_peers;
            for (reason, count) in [("server_full", counters.rejected.saturating_sub(peers)), ("peer_limit", peers)] {
                let labels = [("server", server.as_str()), ("reason", reason)];
                family.encode_family(&labels)?.encode_counter::<NoLabels, u64, f64>(&count, None)?;
            }
        }
        #[cfg(feature = "access")]
        {
            let (name, help) =
                ("polyserve_refused_requests", "Requests without a user, the scope or the host that they need");
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (reason, count) in self.refusals.all() {
                let labels = [("reason", reason.name())];
                family.encode_family(&labels)?.encode_counter::<NoLabels, u64, f64>(&count, None)?;
            }
        }
        Ok(())
    }
}

fn encode(mut encoder: MetricEncoder<'_>, histogram: &Histogram) -> fmt::Result {
    let (sum, count, buckets) = (histogram.sum(), histogram.count(), histogram.buckets());
    encoder.encode_histogram::<NoLabels>(sum, count, &buckets, None)
}

/// A gauge of a server: its name, its meaning, its unit, and its value.
type NamedGauge = (&'static str, &'static str, Option<Unit>, fn(&Counters) -> u64);

const GAUGES: [NamedGauge; 2] = [
    ("http_server_open_connections", "Open connections", None, |counters| counters.open),
    ("polyserve_memory_reserved", "Bytes of the memory budget that are in use", Some(Unit::Bytes), |counters| {
        counters.reserved_bytes
    }),
];

/// A counter of a server: its name, its meaning, and its value.
type NamedCounter = (&'static str, &'static str, fn(&Counters) -> u64);

const COUNTERS: [NamedCounter; 3] = [
    ("polyserve_answers", "Answers that the kernel has accepted", |counters| counters.answered),
    ("polyserve_tls_handshakes", "TLS handshakes that have succeeded", |counters| counters.handshakes),
    ("polyserve_service_panics", "Panics of the service that were answered 500", |counters| counters.panics),
];
