//! Every server makes a span for each request, in the trace of its client.

mod support;

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polyserve::sync::lock;
use polyserve::trace::Traced;
use polyserve::{
    Answer, AnswerHook, Entity, EntityService, ListenOn, Reply, Request, ServerConfig, ServerExt as _, Service,
    TraceId, timer,
};
use polyserve_conformance::client::Client;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const MAX_WAIT: Duration = Duration::from_secs(60);
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// The fields of a span.
#[derive(Clone, Debug, Default)]
struct Fields(HashMap<&'static str, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

/// A subscriber that keeps the fields of the spans that were closed.
#[derive(Clone, Default)]
struct Spans(Arc<SpanTable>);

#[derive(Default)]
struct SpanTable {
    next: AtomicU64,
    open: Mutex<HashMap<u64, Fields>>,
    closed: Mutex<Vec<Fields>>,
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target() == "polyserve::trace"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = 1 + self.0.next.fetch_add(1, Ordering::Relaxed);
        let mut fields = Fields::default();
        span.record(&mut fields);
        lock(&self.0.open).insert(id, fields);
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        values.record(lock(&self.0.open).get_mut(&span.into_u64()).expect("it is open"));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn try_close(&self, id: Id) -> bool {
        let fields = lock(&self.0.open).remove(&id.into_u64()).expect("it is closed once");
        lock(&self.0.closed).push(fields);
        true
    }
}

/// A service that answers later.
struct Deferred(Arc<dyn Service>);

impl Service for Deferred {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        let status = match self.0.call(request, body) {
            Answer::Now(reply) => reply.status(),
            Answer::Later(_) => unreachable!("the store answers at once"),
        };
        let wait = timer::after(Duration::from_millis(1));
        Answer::later(async move {
            wait.await;
            Reply::empty(status)
        })
    }
}

/// A request, and the fields that its span must have.
type Case = (&'static str, String, [(&'static str, Option<&'static str>); 4]);

fn cases() -> Vec<Case> {
    let valid = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n");
    let parent = ("parent_id", Some(PARENT));
    let none = ("parent_id", None);
    let method = |name| ("http.request.method", Some(name));
    let route = |name| ("http.route", name);
    let status = |code| ("http.response.status_code", Some(code));
    vec![
        ("GET /1", valid.clone(), [method("GET"), route(Some("/{id}")), status("404"), parent]),
        (
            "DELETE /7?a",
            valid.to_uppercase().replace("TRACEPARENT: 00", "TraceParent: 00"),
            [method("DELETE"), route(Some("/{id}")), status("404"), none],
        ),
        ("GET /1/2", valid.replace("00-", "ff-"), [method("GET"), route(None), status("404"), none]),
        ("OPTIONS /", format!("{valid}{valid}"), [method("OPTIONS"), route(Some("/")), status("204"), none]),
        ("GET /1", String::new(), [method("GET"), route(Some("/{id}")), status("404"), none]),
    ]
}

#[test]
fn every_server_makes_a_span_in_the_trace_of_the_client() {
    let spans = Spans::default();
    tracing::subscriber::set_global_default(spans.clone()).expect("there is no other");
    for entry in support::servers("every_server_makes_a_span_in_the_trace_of_the_client") {
        for is_deferred in [false, true] {
            let name = format!("{} deferred {is_deferred}", entry.name);
            let reported = Arc::new(Mutex::new(Vec::<Option<TraceId>>::new()));
            let hook = Arc::clone(&reported);
            let mut config = ServerConfig::default();
            config.on_answer = Some(AnswerHook::new(move |report| lock(&hook).push(report.trace)));
            let server = entry.build(&config).unwrap_or_else(|error| panic!("{name}: {error}"));
            let mut service: Arc<dyn Service> =
                Arc::new(EntityService::<_>::new(polyserve::memory::StdMutex::<Entity>::new()));
            if is_deferred {
                service = Arc::new(Deferred(service));
            }
            let service = Arc::new(Traced::new(service, ["/", "/{id}"]));
            let running = server.serve(ListenOn::Addr(([127, 0, 0, 1], 0).into()), service).expect("it listens");
            let mut client = Client::connect(running.local_addr(), MAX_WAIT).expect("it listens");
            for (line, fields, _) in cases() {
                client.send(format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes()).expect("it reads");
                client.receive().unwrap_or_else(|error| panic!("{name}: {line}: {error}"));
            }
            drop(client);
            running.shutdown().expect("it ends");
            let closed = std::mem::take(&mut *lock(&spans.0.closed));
            assert_eq!(closed.len(), cases().len(), "{name}: {closed:?}");
            let reported = lock(&reported);
            for (((line, fields, expected), span), reported) in cases().into_iter().zip(&closed).zip(&*reported) {
                for (field, value) in expected {
                    assert_eq!(span.0.get(field).map(String::as_str), value, "{name}: {line} {fields}: {field}");
                }
                let trace = span.0["trace_id"].as_str();
                let has_parent = expected[3].1.is_some();
                assert_eq!(trace == TRACE, has_parent, "{name}: {line} {fields}: {trace}");
                assert_eq!(reported.map(|trace| trace.to_string()).as_deref(), Some(trace), "{name}: {line}");
            }
        }
    }
}
