//! Metrics of running servers, in the text format of OpenMetrics, which Prometheus reads.
//!
//! The names are those of OpenTelemetry's conventions for HTTP servers, as Prometheus spells them:
//! `http_server_request_duration_seconds` by `http_request_method` and `http_response_status_code`. What the conventions do not have
//! begins with `polyserve_`.
//!
//! Invariant: the labels come from a fixed set, so a client cannot make a series. Cost of an answer: that of an
//! [`AnswerHook`] of times, and an addition to a histogram of the thread. Threads share nothing until the metrics are read.
//! `docs/decisions/037-cost-of-metrics.md` has figures.
//!
//! # Layout
//!
//! * `per_thread`: a record of each thread, and the sums of all records.
//! * `durations`: what durations are counted under.
//! * `operations`: the operations of stores, and how they end.
//! * `store`: a repo of which the operations are observed.
//! * `families`: each metric with its name, its meaning, its labels and its value.
//! * `format`: the two formats, and which of them a client asks for.

mod durations;
mod families;
mod format;
mod operations;
mod per_thread;
mod store;

use std::fmt;
use std::sync::{Arc, Mutex};

#[cfg(feature = "tls")]
use polyserve_core::TlsConfig;
use polyserve_core::figures::StoreFigures;
use polyserve_core::sync::lock;
use polyserve_core::{AnswerHook, CounterSource, EntityRepo, Identifiable, Running, ServerConfig};
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use families::Families;
pub use format::{MEDIA_TYPE, TEXT_MEDIA_TYPE};
use per_thread::ThreadRecords;
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
    records: Arc<ThreadRecords>,
    servers: Arc<Servers>,
    stores: Arc<Stores>,
    #[cfg(feature = "tls")]
    certificates: Arc<Certificates>,
    #[cfg(feature = "access")]
    refusals: Refusals,
}

/// The servers that are watched, with their names.
type Servers = Mutex<Vec<(String, CounterSource)>>;

/// What the observed stores count themselves.
type Stores = Mutex<Vec<Arc<dyn StoreFigures>>>;

/// The TLS of the observed configurations.
#[cfg(feature = "tls")]
type Certificates = Mutex<Vec<TlsConfig>>;

impl Metrics {
    /// Creates metrics without a server.
    pub fn new() -> Self {
        let records = ThreadRecords::new();
        let (servers, stores) = (Arc::<Servers>::default(), Arc::<Stores>::default());
        let mut registry = Registry::default();
        #[cfg(feature = "tls")]
        let certificates = Arc::<Certificates>::default();
        #[cfg(feature = "access")]
        let refusals = Refusals::default();
        registry.register_collector(Box::new(Families {
            records: records.clone(),
            servers: servers.clone(),
            stores: stores.clone(),
            #[cfg(feature = "tls")]
            certificates: certificates.clone(),
            #[cfg(feature = "access")]
            refusals: refusals.clone(),
        }));
        Self {
            registry: Arc::new(registry),
            records,
            servers,
            stores,
            #[cfg(feature = "tls")]
            certificates,
            #[cfg(feature = "access")]
            refusals,
        }
    }

    /// Returns the configuration with a hook that counts every answer and its duration. A hook that the configuration has is called
    /// too. The end of its certificate is shown.
    #[must_use]
    pub fn observe(&self, mut config: ServerConfig) -> ServerConfig {
        #[cfg(feature = "tls")]
        lock(&self.certificates).extend(config.tls.clone());
        let records = Arc::clone(&self.records);
        let hook = AnswerHook::of_times(move |times| records.add_answer(times));
        config.on_answer = Some(hook.then(config.on_answer.take()));
        config
    }

    /// Returns the repo with its operations counted, by name and kind of error. Those that it answers later are measured too, as an
    /// engine behind the network and a log on a disk do; an answer that is there at once takes less time than two looks at the clock.
    /// Cost: an addition to a number of the thread; and for a later answer two looks at the clock, an allocation, and the addition to a
    /// histogram.
    ///
    /// What the repo [counts itself](EntityRepo::figures) is shown too, also after the repo has ended. Figures of several stores that have
    /// the same name are added.
    pub fn observe_store<E: Identifiable, R: EntityRepo<E>>(&self, repo: R) -> ObservedStore<R> {
        lock(&self.stores).extend(repo.figures());
        ObservedStore::new(repo, Arc::clone(&self.records))
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

    /// Returns the media type and the text that a scraper gets with this field `Accept`: OpenMetrics 1.0 if it is preferred, as
    /// Prometheus does, else the older text format of Prometheus. Cost: that of [`text`](Self::text).
    ///
    /// ```
    /// use polyserve::metrics::{MEDIA_TYPE, Metrics, TEXT_MEDIA_TYPE};
    /// let metrics = Metrics::new();
    /// assert_eq!(metrics.negotiated("application/openmetrics-text;version=1.0.0,text/plain;q=0.3").0, MEDIA_TYPE);
    /// assert_eq!(metrics.negotiated("*/*").0, TEXT_MEDIA_TYPE);
    /// ```
    pub fn negotiated(&self, accept: &str) -> (&'static str, String) {
        if format::prefers_openmetrics(accept) {
            (MEDIA_TYPE, self.text())
        } else {
            (TEXT_MEDIA_TYPE, format::to_text(&self.text()))
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

#[cfg(all(test, feature = "threadpool", feature = "memory"))]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    use polyserve_core::{Request, Server};

    use crate::prelude::*;
    use crate::threadpool::PoolClassic;

    use super::*;

    /// A connection that finds all threads at work is in the queue, and its wait is counted once.
    #[test]
    fn a_connection_in_the_queue_is_seen() {
        type Make = fn(ServerConfig) -> Box<dyn Server>;
        let servers: [Make; 2] = [
            |config| Box::new(PoolServer::mpsc(config).expect("it is valid")),
            |config| Box::new(PoolClassic::mpsc(config).expect("it is valid")),
        ];
        for make in servers {
            let (metrics, barrier) = (Metrics::new(), Arc::new(Barrier::new(2)));
            let (called, calls) = channel();
            let (called, held) = (Mutex::new(called), Arc::clone(&barrier));
            let service = move |_: Request<'_>| {
                lock(&called).send(()).expect("the test receives it");
                held.wait();
                Reply::text("done")
            };
            let server = make(metrics.observe(ServerConfig::default().workers(1)));
            let running = server.serve("127.0.0.1:0", service).expect("it serves");
            metrics.watch("queue", &running);
            let ask = || {
                let mut client = TcpStream::connect(running.local_addr()).expect("it listens");
                client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it reads");
                client
            };
            let mut clients = vec![ask()];
            calls.recv().expect("the first request is called");
            clients.push(ask());
            let source = running.counter_source();
            while source.get().queued != 1 {
                std::thread::yield_now();
            }
            assert!(metrics.text().contains("polyserve_queued_connections{server=\"queue\"} 1\n"));
            barrier.wait();
            calls.recv().expect("the second request is called");
            barrier.wait();
            for client in &mut clients {
                let mut answer = String::new();
                client.read_to_string(&mut answer).expect("it answers");
                assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            }
            running.shutdown().expect("it ends");
            let text = metrics.text();
            assert!(text.contains("polyserve_queue_wait_seconds_count 2\n"), "{text}");
            assert!(text.contains("polyserve_queued_connections{server=\"queue\"} 0\n"), "{text}");
        }
    }
}
