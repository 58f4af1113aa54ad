//! Each metric with its name, its meaning, its labels and its value.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
#[cfg(feature = "tls")]
use std::time::SystemTime;

#[cfg(feature = "tls")]
use polyserve_core::TlsConfig;
use polyserve_core::figures::{FigureValue, HistogramCounts};
use polyserve_core::overload::OverloadReason;
use polyserve_core::sync::lock;
use polyserve_core::{Counters, HandshakeFailure};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

#[cfg(feature = "tls")]
use super::Certificates;
use super::durations::Kind;
use super::operations::OperationEnd;
use super::per_thread::{Sums, ThreadRecords};
use super::{Servers, Stores};
#[cfg(feature = "access")]
use crate::access::Refusals;

/// What the metrics are read from.
#[derive(Debug)]
pub(super) struct Families {
    pub(super) records: Arc<ThreadRecords>,
    pub(super) servers: Arc<Servers>,
    pub(super) stores: Arc<Stores>,
    #[cfg(feature = "tls")]
    pub(super) certificates: Arc<Certificates>,
    #[cfg(feature = "access")]
    pub(super) refusals: Refusals,
}

/// No labels.
type NoLabels = [(&'static str, &'static str); 0];

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let sums = self.records.sums();
        encode_durations(&mut encoder, &sums.durations)?;
        encode_operations(&mut encoder, &sums)?;
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
        for (name, help, reasons) in COUNTERS_BY_REASON {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (server, counters) in &servers {
                for (reason, count) in reasons(counters) {
                    let labels = [("server", server.as_str()), ("reason", reason)];
                    family.encode_family(&labels)?.encode_counter::<NoLabels, u64, f64>(&count, None)?;
                }
            }
        }
        #[cfg(feature = "tls")]
        self.encode_certificates(&mut encoder)?;
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
        self.encode_stores(&mut encoder)
    }
}

impl Families {
    /// Encodes the end of the certificate that ends first.
    #[cfg(feature = "tls")]
    fn encode_certificates(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let ends = lock(&self.certificates).iter().filter_map(TlsConfig::not_after).min();
        let Some(end) = ends.and_then(|end| end.duration_since(SystemTime::UNIX_EPOCH).ok()) else { return Ok(()) };
        let (name, help) =
            ("polyserve_tls_certificate_not_after_timestamp", "The end of the certificate, in Unix time");
        encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?.encode_gauge(&end.as_secs())
    }

    /// Encodes what the stores count themselves. A name that several stores have is one figure.
    fn encode_stores(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let stores = lock(&self.stores).clone();
        let mut figures = BTreeMap::new();
        for figure in stores.iter().flat_map(|store| store.read()) {
            match figures.get_mut(figure.name) {
                None => drop(figures.insert(figure.name, (figure.help, figure.value))),
                Some((_, value)) => FigureValue::merge(value, &figure.value),
            }
        }
        for (name, (help, value)) in figures {
            let (unit, kind) = match value {
                FigureValue::Bytes(_) => (Some(Unit::Bytes), MetricType::Gauge),
                FigureValue::Durations(_) => (Some(Unit::Seconds), MetricType::Histogram),
                FigureValue::Sizes(_) => (None, MetricType::Histogram),
                _ => (None, MetricType::Counter),
            };
            let mut metric = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
            match value {
                FigureValue::Count(count) => metric.encode_counter::<NoLabels, u64, f64>(&count, None)?,
                FigureValue::Bytes(bytes) => metric.encode_gauge(&bytes)?,
                FigureValue::Durations(counts) => encode(metric, &counts, NANOS)?,
                FigureValue::Sizes(counts) => encode(metric, &counts, 1.0)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Encodes the number of all operations of stores: those that were answered at once, and those with a duration.
fn encode_operations(encoder: &mut DescriptorEncoder<'_>, sums: &Sums) -> fmt::Result {
    let at_once = sums.operations.iter();
    let mut all: BTreeMap<_, _> =
        at_once.map(|(operation, count)| ((*operation, OperationEnd::Done), *count)).collect();
    for (kind, counts) in &sums.durations {
        if let Kind::Store(operation, end) = kind {
            *all.entry((*operation, *end)).or_default() += counts.count();
        }
    }
    let help = "Operations of the store, also those that were answered at once";
    let mut family = encoder.encode_descriptor("polyserve_store_operations", help, None, MetricType::Counter)?;
    for ((operation, end), count) in all {
        let labels = [("db_operation_name", operation.name()), ("error_type", end.error_type())];
        family.encode_family(&labels)?.encode_counter::<NoLabels, u64, f64>(&count, None)?;
    }
    Ok(())
}

fn encode_durations(encoder: &mut DescriptorEncoder<'_>, durations: &BTreeMap<Kind, HistogramCounts>) -> fmt::Result {
    let seconds = Some(&Unit::Seconds);
    let name = "http_server_request_duration";
    let help = "From the first byte of a request to its answer";
    let mut family = encoder.encode_descriptor(name, help, seconds, MetricType::Histogram)?;
    for (kind, counts) in durations {
        if let Kind::Request(method, status) = kind {
            let labels = [("http_request_method", method.name()), ("http_response_status_code", status.as_str())];
            encode(family.encode_family(&labels)?, counts, NANOS)?;
        }
    }
    let (name, help) = ("polyserve_queue_wait", "Of connections, for a thread of a server with a queue of its own");
    let metric = encoder.encode_descriptor(name, help, seconds, MetricType::Histogram)?;
    if let Some(counts) = durations.get(&Kind::Queue) {
        encode(metric, counts, NANOS)?;
    }
    let name = "db_client_operation_duration";
    let help = "Of the store's operations that were not answered at once, and of errors";
    let mut family = encoder.encode_descriptor(name, help, seconds, MetricType::Histogram)?;
    for (kind, counts) in durations {
        if let Kind::Store(operation, end) = kind {
            let labels = [("db_operation_name", operation.name()), ("error_type", end.error_type())];
            encode(family.encode_family(&labels)?, counts, NANOS)?;
        }
    }
    Ok(())
}

/// The nanoseconds of a second.
const NANOS: f64 = 1e9;

/// Encodes a histogram, of which the values are divided by `divisor`.
fn encode(mut encoder: MetricEncoder<'_>, counts: &HistogramCounts, divisor: f64) -> fmt::Result {
    let bounds = counts.bounds.iter().map(|bound| *bound as f64 / divisor);
    let buckets: Vec<(f64, u64)> = bounds.chain([f64::INFINITY]).zip(counts.counts.iter().copied()).collect();
    encoder.encode_histogram::<NoLabels>(counts.sum as f64 / divisor, counts.count(), &buckets, None)
}

/// A gauge of a server: its name, its meaning, its unit, and its value.
type NamedGauge = (&'static str, &'static str, Option<Unit>, fn(&Counters) -> u64);

const GAUGES: [NamedGauge; 4] = [
    ("http_server_open_connections", "Open connections", None, |counters| counters.open),
    ("polyserve_queued_connections", "Connections that wait for a thread", None, |counters| counters.queued),
    ("polyserve_memory_reserved", "Bytes of the memory budget that are in use", Some(Unit::Bytes), |counters| {
        counters.reserved_bytes
    }),
    ("polyserve_memory_limit", "The memory budget", Some(Unit::Bytes), |counters| counters.memory_limit),
];

/// A counter of a server: its name, its meaning, and its value.
type NamedCounter = (&'static str, &'static str, fn(&Counters) -> u64);

const COUNTERS: [NamedCounter; 4] = [
    ("polyserve_answers", "Answers that the kernel has accepted", |counters| counters.answered),
    ("polyserve_tls_handshakes", "TLS handshakes that have succeeded", |counters| counters.handshakes),
    ("polyserve_service_panics", "Panics of the service that were answered 500", |counters| counters.panics),
    ("polyserve_memory_refusals", "Requests that were answered 503 because the memory budget was in use", |counters| {
        counters.memory_refused
    }),
];

/// A counter of a server by reason: its name, its meaning, and its values.
type NamedReasons = (&'static str, &'static str, fn(&Counters) -> Vec<(&'static str, u64)>);

const COUNTERS_BY_REASON: [NamedReasons; 3] = [
    ("polyserve_tls_handshake_failures", "TLS handshakes that have failed", |counters| {
        HandshakeFailure::ALL.map(HandshakeFailure::name).into_iter().zip(counters.failed_handshakes).collect()
    }),
    ("polyserve_overload_refusals", "Requests that the overload policy has refused with 503", |counters| {
        OverloadReason::ALL.iter().map(|reason| reason.name()).zip(counters.overload_refused).collect()
    }),
    ("polyserve_rejected_connections", "Connections that were answered 503 when they were opened", |counters| {
        let (peers, queue) = (counters.rejected_peers, counters.rejected_queue);
        let full = counters.rejected.saturating_sub(peers).saturating_sub(queue);
        vec![("server_full", full), ("queue_full", queue), ("peer_limit", peers)]
    }),
];
