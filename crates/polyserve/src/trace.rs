//! A span of the `tracing` crate for each request, in the trace that the client names.
//!
//! [`Traced`] stands before a service, so it works on every server. Its span has the target `polyserve::trace`, the level DEBUG and
//! these fields, which are named as OpenTelemetry names them:
//!
//! | field | value |
//! |---|---|
//! | `http.request.method` | the method |
//! | `http.route` | the template of the path, such as `/{id}`; absent if none matches |
//! | `http.response.status_code` | the status, from when the service has answered |
//! | `trace_id` | the trace of the client's `traceparent`, else a new one |
//! | `parent_id` | the span of the client, if it names one |
//!
//! A `traceparent` (W3C Trace Context) that is malformed or stands twice is ignored. The trace is also [noted](Request::note_trace) for
//! the access log. The span ends with the answer of the service, and what the service reports meanwhile is in it. What a server
//! refuses itself, such as a 400 for a malformed head, has no span; the access log has it.
//!
//! Cost: without a subscriber that takes the span, and without a hook of answers, one relaxed load and a virtual call. With a
//! hook, a search among the header fields, and 60 bytes of arithmetic. With a subscriber, its own costs.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use polyserve_core::{Answer, BoxFuture, Head, Headers, Reply, Request, Service, TraceId};
use tracing::field::Empty;
use tracing::{Level, Span};

/// The field of a request that names its trace.
const TRACEPARENT: &str = "traceparent";

/// A service with a span for each request.
///
/// ```
/// use polyserve::trace::Traced;
/// use polyserve::{Echo, ServerExt as _};
/// let service = Traced::new(Echo, ["/", "/{id}"]);
/// # let _ = service;
/// ```
pub struct Traced {
    service: Arc<dyn Service>,
    templates: Vec<String>,
}

impl Traced {
    /// Creates the service. The first of `templates` that a path matches is the route of its span. A segment in braces, such as `{id}`,
    /// matches each segment that is not empty.
    pub fn new<T: Into<String>>(service: impl Service, templates: impl IntoIterator<Item = T>) -> Self {
        Self { service: service.into_shared(), templates: templates.into_iter().map(Into::into).collect() }
    }

    /// Creates the span of a request; a disabled one if no subscriber takes it.
    fn span(&self, head: &Head<'_>, trace: TraceId, parent: Option<ParentSpan>) -> Span {
        let path = head.path();
        let route = self.templates.iter().find(|template| matches(template, path)).map(String::as_str);
        tracing::debug_span!(
            target: "polyserve::trace",
            "request",
            http.request.method = head.method.as_str(),
            http.route = route,
            http.response.status_code = Empty,
            trace_id = %trace,
            parent_id = parent.map(|parent| display(parent.span)),
        )
    }
}

impl Service for Traced {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        let is_enabled = tracing::span_enabled!(target: "polyserve::trace", Level::DEBUG);
        if !is_enabled && !request.is_reported() {
            return self.service.call(request, body);
        }
        let parent = ParentSpan::of(&request.head.headers);
        let trace = parent.map_or_else(new_trace, |parent| parent.trace);
        request.note_trace(trace);
        if !is_enabled {
            return self.service.call(request, body);
        }
        let span = self.span(&request.head, trace, parent);
        let answer = span.in_scope(|| self.service.call(request, body));
        match answer {
            Answer::Now(reply) => {
                record(&span, &reply);
                Answer::Now(reply)
            }
            Answer::Later(future) => Answer::later(InSpan { future, span }),
        }
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        self.service.head(head)
    }
}

impl fmt::Debug for Traced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traced").field("templates", &self.templates).finish_non_exhaustive()
    }
}

fn record(span: &Span, reply: &Reply) {
    span.record("http.response.status_code", reply.status().as_u16());
}

/// A deferred answer, which is polled in the span of its request.
struct InSpan {
    future: BoxFuture<Reply>,
    span: Span,
}

impl Future for InSpan {
    type Output = Reply;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        let Self { future, span } = self.get_mut();
        let polled = span.in_scope(|| future.as_mut().poll(cx));
        if let Poll::Ready(reply) = &polled {
            record(span, reply);
        }
        polled
    }
}

/// Whether a path has the form of a template.
fn matches(template: &str, path: &str) -> bool {
    let mut segments = path.split('/');
    let is_form = template.split('/').all(|expected| {
        segments.next().is_some_and(|segment| {
            if expected.starts_with('{') && expected.ends_with('}') { !segment.is_empty() } else { segment == expected }
        })
    });
    is_form && segments.next().is_none()
}

/// The span of the client that sent a request, and its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ParentSpan {
    trace: TraceId,
    span: SpanId,
}

/// The number of a span in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SpanId(u64);

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl ParentSpan {
    fn of(headers: &Headers<'_>) -> Option<Self> {
        if headers.name_lengths() & 1 << TRACEPARENT.len() == 0 {
            return None;
        }
        let mut fields = headers.all(TRACEPARENT);
        let value = fields.next()?;
        if fields.next().is_some() {
            return None;
        }
        Self::parse(value.trim_ascii())
    }

    /// Reads `VERSION-TRACE-SPAN-FLAGS` (W3C Trace Context, 3.2). A later version may have more behind a further dash.
    fn parse(value: &[u8]) -> Option<Self> {
        let (known, more) = value.split_at_checked(55)?;
        let [version, trace, span, flags] =
            [&known[..2], &known[3..35], &known[36..52], &known[53..55]].map(hexadecimal);
        let (version, trace, span, _flags) = (version?, trace?, span?, flags?);
        let has_dashes = [known[2], known[35], known[52]] == *b"---";
        let has_length = more.is_empty() || (version > 0 && more[0] == b'-');
        let is_valid = has_dashes && has_length && version != 0xff && trace != 0 && span != 0;
        is_valid.then_some(Self { trace: TraceId(trace), span: SpanId(span as u64) })
    }
}

/// Reads at most 32 hexadecimal digits in lower case.
fn hexadecimal(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

/// Returns the number of a new trace. Threads begin at random numbers, so no two processes have the same trace.
fn new_trace() -> TraceId {
    thread_local! {
        static STATE: Cell<[u64; 2]> = Cell::new([(); 2].map(|()| RandomState::new().build_hasher().finish()));
    }
    let mut numbers = STATE.get();
    numbers[0] = numbers[0].wrapping_add(0x9e37_79b9_7f4a_7c15);
    numbers[1] = numbers[1].wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(numbers);
    let [high, low] = numbers.map(mixed);
    TraceId((u128::from(high) << 64 | u128::from(low)).max(1))
}

/// The output function of SplitMix64 (Steele, Lea and Flood, 2014).
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn parse(value: &str) -> Option<(String, String)> {
        let parent = ParentSpan::parse(value.as_bytes());
        parent.map(|parent| (parent.trace.to_string(), parent.span.to_string()))
    }

    #[test]
    fn a_valid_parent_is_read() {
        let expected = Some((VALID[3..35].to_owned(), VALID[36..52].to_owned()));
        for value in
            [VALID, &VALID.replace("-01", "-ff"), &VALID.replace("00-", "cc-"), &format!("cc{}-more", &VALID[2..])]
        {
            assert_eq!(parse(value), expected, "{value}");
        }
    }

    #[test]
    fn an_invalid_parent_is_none() {
        for value in [
            "",
            "00",
            &VALID[..54],
            &format!("{VALID}-more"),
            &format!("{VALID}0"),
            &format!("cc{}0", &VALID[2..]),
            &VALID.replace("00-", "ff-"),
            &VALID.to_uppercase(),
            &VALID.replace('-', "_"),
            &VALID.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &VALID.replace("b7ad6b7169203331", &"0".repeat(16)),
            &VALID.replace("-01", "-0g"),
            &VALID.replace("0af", "\u{e9}f"),
        ] {
            assert_eq!(parse(value), None, "{value}");
        }
    }

    #[test]
    fn a_path_matches_the_template_of_its_form() {
        for (template, path, is_match) in [
            ("/", "/", true),
            ("/", "/1", false),
            ("/{id}", "/1", true),
            ("/{id}", "/", false),
            ("/{id}", "/1/2", false),
            ("/a/{id}/b", "/a/1/b", true),
            ("/a/{id}/b", "/a/1/c", false),
            ("*", "*", true),
        ] {
            assert_eq!(matches(template, path), is_match, "{template} {path}");
        }
    }

    #[test]
    fn new_traces_differ() {
        let traces: std::collections::HashSet<_> = (0..1000).map(|_| new_trace()).collect();
        assert_eq!(traces.len(), 1000);
    }
}
