//! The service of an admin address: health, readiness and metrics, apart from the requests of clients.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz` | 200 while the process answers. It never asks the store: a full disk is no reason to restart a process |
//! | `/readyz` | 200 if the server takes requests and its store takes writes, else 503 with the reason |
//! | `/metrics` | the [`Metrics`], as OpenMetrics if the client asks for it, as Prometheus does, else in the older text format |
//! | `/openapi.json` | the document of [`Admin::openapi`], else 404 |
//!
//! The admin address needs a server of its own, for example a `PoolServer` with two workers, that ends after the server that it is
//! about. It has no authentication, so it belongs on loopback or on a network of the operator. Cost of `/readyz`: at most one
//! question to the store at a time.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use polyserve_core::http::header::{ACCEPT, CACHE_CONTROL, VARY};
use polyserve_core::http::{HeaderValue, StatusCode};
use polyserve_core::{Answer, EntityRepo, Head, Identifiable, Reply, Request, Routes, Service, get_only};

use crate::metrics::Metrics;

const HEALTH: &str = "/healthz";
const READY: &str = "/readyz";
const METRICS: &str = "/metrics";
const OPENAPI: &str = "/openapi.json";

/// What the service of entities with the default path answers, as a document of OpenAPI 3.1.
pub const ENTITY_OPENAPI: &str = include_str!("openapi.json");

/// The service of an admin address.
///
#[cfg_attr(all(feature = "threadpool", feature = "memory"), doc = "```")]
#[cfg_attr(not(all(feature = "threadpool", feature = "memory")), doc = "```ignore")]
/// use polyserve::admin::{Admin, Readiness};
/// use polyserve::metrics::Metrics;
/// use polyserve::prelude::*;
/// use std::sync::Arc;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (metrics, store) = (Metrics::new(), Arc::new(Sharded::new()));
/// let readiness = Readiness::default();
/// let admin = Admin::new(metrics.clone(), &readiness, Arc::clone(&store));
/// let admin = PoolServer::mpsc(ServerConfig::default())?.serve("127.0.0.1:0", admin)?;
/// let server = PoolServer::mpsc(metrics.observe(ServerConfig::default()))?;
/// let running = server.serve("127.0.0.1:0", EntityService::new(store))?;
/// metrics.watch("entities", &running);
/// // ... and at the end:
/// readiness.end(); // a load balancer sees that, and sends no further requests
/// running.shutdown()?;
/// admin.shutdown()?;
/// # Ok(())
/// # }
/// ```
pub struct Admin {
    ready: Arc<dyn Service>,
    metrics: Metrics,
    openapi: Option<&'static str>,
}

/// Whether the server takes requests, as a health check tells it. A clone shares it.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// From now on, the answer to the health check is 503.
    pub fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns `service`, with 503 as the answer to GET and HEAD of `path` once the readiness has ended.
    pub fn over(&self, path: impl Into<String>, service: impl Service) -> Arc<dyn Service> {
        Arc::new(UntilEnded { path: path.into(), ended: Arc::clone(&self.0), service: service.into_shared() })
    }
}

/// The service of [`Readiness::over`].
struct UntilEnded {
    path: String,
    ended: Arc<AtomicBool>,
    service: Arc<dyn Service>,
}

impl Service for UntilEnded {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        if self.ended.load(Ordering::Relaxed) && get_only(&request.head, &self.path).is_none() {
            let reply = Reply::problem(StatusCode::SERVICE_UNAVAILABLE, "The server is shutting down.");
            return Answer::Now(reply.with_field(CACHE_CONTROL, HeaderValue::from_static("no-store")));
        }
        self.service.call(request, body)
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        self.service.head(head)
    }
}

impl Admin {
    /// Creates the service. `/readyz` asks the store until the readiness ends.
    pub fn new<E: Identifiable>(metrics: Metrics, readiness: &Readiness, store: impl EntityRepo<E>) -> Self {
        let store = Routes::new().ready(READY, store).expect("the path is well-formed, and it is the only one");
        Self { ready: readiness.over(READY, store), metrics, openapi: None }
    }

    /// Shows a document of OpenAPI at `/openapi.json`, for example [`ENTITY_OPENAPI`].
    #[must_use]
    pub fn openapi(self, document: &'static str) -> Self {
        Self { openapi: Some(document), ..self }
    }
}

impl Service for Admin {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        if let Some(refusal) = self.head(&request.head) {
            return Answer::Now(refusal);
        }
        Answer::Now(match request.head.path() {
            HEALTH => Reply::text("healthy"),
            METRICS => {
                let (media_type, text) = self.metrics.negotiated(&accepted(&request.head));
                Reply::new(StatusCode::OK, media_type, text).with_field(VARY, HeaderValue::from_static("Accept"))
            }
            OPENAPI if self.openapi.is_some() => {
                Reply::new(StatusCode::OK, "application/json", self.openapi.unwrap_or_default())
            }
            _ => return self.ready.call(request, body),
        })
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        match head.path() {
            path @ (HEALTH | METRICS) => get_only(head, path),
            OPENAPI if self.openapi.is_some() => get_only(head, OPENAPI),
            _ => self.ready.head(head),
        }
    }
}

/// The fields `Accept` of a request, as one.
fn accepted(head: &Head<'_>) -> String {
    let values: Vec<_> = head.headers.all(ACCEPT.as_str()).map(String::from_utf8_lossy).collect();
    values.join(",")
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").field("metrics", &self.metrics).finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "threadpool", feature = "memory"))]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};

    use crate::memory::StdMutex;
    use crate::prelude::*;

    use super::*;

    fn get(addr: SocketAddr, method: &str, path: &str) -> String {
        get_with(addr, method, path, "")
    }

    /// Sends a request with more fields.
    fn get_with(addr: SocketAddr, method: &str, path: &str, fields: &str) -> String {
        let mut stream = TcpStream::connect(addr).expect("it listens");
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n").expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        text
    }

    #[test]
    fn an_admin_address_shows_health_readiness_and_metrics() {
        let (metrics, store) = (Metrics::new(), Arc::new(StdMutex::new()));
        let readiness = Readiness::default();
        let admin = Admin::new(metrics.clone(), &readiness, Arc::clone(&store));
        let config = ServerConfig::default();
        let admin = PoolServer::mpsc(config.clone()).unwrap().serve("127.0.0.1:0", admin).unwrap();
        let server = PoolServer::mpsc(metrics.observe(config)).unwrap();
        let running = server.serve("127.0.0.1:0", EntityService::new(store)).unwrap();
        metrics.watch("entities", &running);
        assert!(get(running.local_addr(), "GET", "/1").starts_with("HTTP/1.1 404"));
        assert!(get(running.local_addr(), "GET", "/2").starts_with("HTTP/1.1 404"));
        assert!(get(running.local_addr(), "BREW", "/2").starts_with("HTTP/1.1 501"));
        let addr = admin.local_addr();
        for path in ["/healthz", "/readyz"] {
            assert!(get(addr, "GET", path).starts_with("HTTP/1.1 200"), "{path}");
            assert!(get(addr, "PUT", path).starts_with("HTTP/1.1 405"), "{path}");
        }
        for path in ["/1", "/openapi.json"] {
            assert!(get(addr, "GET", path).starts_with("HTTP/1.1 404"), "{path}");
        }
        let text = get(addr, "GET", "/metrics").to_lowercase();
        assert!(text.contains("\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{text}");
        let text =
            get_with(addr, "GET", "/metrics", "Accept: text/plain;q=0.5\r\nAccept: application/openmetrics-text\r\n");
        for line in [
            "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8",
            "vary: Accept",
            r#"http_server_request_duration_seconds_count{http_request_method="GET",http_response_status_code="404"} 2"#,
            r#"http_server_request_duration_seconds_count{http_request_method="_OTHER",http_response_status_code="501"} 1"#,
            r#"http_server_request_duration_seconds_bucket{le="+Inf",http_request_method="GET",http_response_status_code="404"} 2"#,
            r#"polyserve_service_panics_total{server="entities"} 0"#,
            "# EOF",
        ] {
            assert!(text.lines().any(|one| one.eq_ignore_ascii_case(line)), "no line {line} in {text}");
        }
        readiness.end();
        assert!(get(addr, "GET", "/readyz").starts_with("HTTP/1.1 503"));
        assert!(get(addr, "GET", "/healthz").starts_with("HTTP/1.1 200"));
        assert_eq!(running.shutdown().unwrap().answered, 3);
        assert!(get(addr, "GET", "/metrics").contains(r#"polyserve_answers_total{server="entities"} 3"#));
        admin.shutdown().unwrap();
    }

    #[test]
    fn a_document_of_openapi_is_shown() {
        let store = Arc::new(StdMutex::<Entity>::new());
        let admin = Admin::new(Metrics::new(), &Readiness::default(), store).openapi(ENTITY_OPENAPI);
        let admin = PoolServer::mpsc(ServerConfig::default()).unwrap().serve("127.0.0.1:0", admin).unwrap();
        let answer = get(admin.local_addr(), "GET", "/openapi.json");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.ends_with(ENTITY_OPENAPI), "{answer}");
        assert!(get(admin.local_addr(), "PUT", "/openapi.json").starts_with("HTTP/1.1 405"));
        admin.shutdown().unwrap();
    }
}
