//! Custom services: a closure, and a type that keeps state and refuses requests by their heads. `Routes` combines them.
//!
//! ```sh
//! cargo run --release --example custom_service
//! ```
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use polyserve::env::Settings;
use polyserve::http::header::ALLOW;
use polyserve::http::{HeaderValue, Method};
use polyserve::prelude::*;
use polyserve::{Head, Request};

/// A number: GET shows it, POST adds the number in the body.
#[derive(Debug, Default)]
struct Counter {
    count: AtomicU64,
}

impl Service for Counter {
    fn call(&self, request: Request<'_>, _body: &mut Vec<u8>) -> Answer<Reply> {
        if let Some(refusal) = self.head(&request.head) {
            return Answer::Now(refusal);
        }
        let added = match *request.head.method {
            Method::POST => std::str::from_utf8(request.body).ok().and_then(|text| text.trim().parse().ok()),
            _ => Some(0),
        };
        Answer::Now(match added {
            Some(added) => {
                let count = self.count.fetch_add(added, Ordering::Relaxed).wrapping_add(added);
                Reply::text(format!("{count}\n"))
            }
            None => Reply::problem(StatusCode::UNPROCESSABLE_ENTITY, "The body is not a whole number."),
        })
    }

    // With this method, a server can refuse a request before it reads the body.
    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        if matches!(*head.method, Method::GET | Method::HEAD | Method::POST) {
            return None;
        }
        let refusal = Reply::problem(StatusCode::METHOD_NOT_ALLOWED, "The counter takes GET, HEAD and POST.");
        Some(refusal.with_field(ALLOW, HeaderValue::from_static("GET, HEAD, POST")))
    }
}

fn main() -> anyhow::Result<()> {
    let signals = Signals::register()?;
    let service = Routes::new().at("/count", Counter::default())?.at("/hello", |request: Request<'_>| {
        let name = request.head.query().unwrap_or("you");
        let place = request.peer.map_or_else(|| String::from("an unknown place"), |peer| peer.ip().to_string());
        Reply::text(format!("Hello, {name} at {place}!\n"))
    })?;
    let settings = Settings::from_env()?;
    let server = PoolServer::mpsc(settings.with_pool_size())?;
    let running = server.serve(settings.listen, service)?;
    println!("listening on http://{}", running.local_addr());
    println!("{}", signals.drain(running)?);
    Ok(())
}

// $ curl -i http://127.0.0.1:8001/hello?world
// HTTP/1.1 200 OK
// Content-Type: text/plain; charset=utf-8
// Content-Length: 27
// Date: Mon, 23 Nov 2026 16:29:38 GMT
//
// Hello, world at 127.0.0.1!
//
// $ curl -i http://127.0.0.1:8001/count -d 41
// HTTP/1.1 200 OK
// Content-Type: text/plain; charset=utf-8
// Content-Length: 3
// Date: Mon, 23 Nov 2026 16:29:38 GMT
//
// 41
//
// $ curl -i -X DELETE http://127.0.0.1:8001/count
// HTTP/1.1 405 Method Not Allowed
// Content-Type: application/problem+json
// Content-Length: 113
// Allow: GET, HEAD, POST
// Date: Mon, 23 Nov 2026 16:29:38 GMT
//
// {"type":"about:blank","title":"Method Not Allowed","status":405,"detail":"The counter takes GET, HEAD and POST."}
