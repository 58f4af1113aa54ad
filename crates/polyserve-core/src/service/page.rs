//! `page`: a small HTML page that is delayed for some requests, as in the published comparison of thread pools and async
//! servers.
//!
//! The delay is an [`Answer::Later`]. It blocks a worker of a thread pool, but not an async server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::welcome::refuse;
use super::{Body, Head, Reply, Request, Service, Status};
use crate::answer::Answer;
use crate::timer;

/// The service that answers `GET /` with a page of 174 bytes. Every n-th request of the service is delayed.
///
/// ```
/// use polyserve_core::service::Page;
/// use polyserve_core::{Running, Server, ServerExt};
/// use std::time::Duration;
/// fn serve(server: &dyn Server) -> std::io::Result<Running> {
///     server.serve("127.0.0.1:0", Page::new(10, Duration::from_secs(2)))
/// }
/// ```
#[derive(Debug)]
pub struct Page {
    every: u64,
    wait: Duration,
    served: AtomicU64,
}

impl Page {
    /// The bytes of the page.
    pub const BODY: &'static [u8; 174] = PAGE;

    /// Creates a service that delays every `every`-th request by `wait`. If `every` is 0, it delays none.
    pub fn new(every: u64, wait: Duration) -> Self {
        Self { every, wait, served: AtomicU64::new(0) }
    }
}

impl Default for Page {
    /// Delays every 10th request by 2 s, as published.
    fn default() -> Self {
        Self::new(10, Duration::from_secs(2))
    }
}

const PAGE: &[u8; 174] =
    b"<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>A page.</title></head>\n\
<body>\n<h1>A small page</h1>\n<p>Every tenth one waits a while.</p>\n</body>\n</html>\n";

impl Service for Page {
    fn call(&self, request: Request<'_>, _body: &mut Vec<u8>) -> Answer<Reply> {
        if let Some(refusal) = refuse(&request.head, "/") {
            return Answer::Now(refusal);
        }
        let nth = self.served.fetch_add(1, Ordering::Relaxed) + 1;
        let page = || Reply::new(Status::OK, "text/html; charset=utf-8", Body::Static(PAGE));
        if self.every > 0 && nth.is_multiple_of(self.every) {
            timer::after(self.wait).map(move |()| page())
        } else {
            Answer::Now(page())
        }
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        refuse(head, "/")
    }
}
