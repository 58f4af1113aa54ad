//! The state that connections share: the environment of a server, and the buffers of a thread.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use super::date::Date;
use super::decode::Limits;
use crate::answer_hook::AnswerHook;
use crate::config::ServerConfig;
use crate::service::Service;

/// The environment that all connections of a server share.
pub struct Env {
    /// The service that answers requests.
    pub service: Arc<dyn Service>,
    /// The limits of a request's size.
    pub limits: Limits,
    pub(super) server_header: Option<Box<str>>,
    pub(super) requests_per_connection: u64,
    /// Sees every answer.
    pub on_answer: Option<AnswerHook>,
}

impl Env {
    /// Creates the environment of a server that serves `service` within the limits of `config`.
    pub fn new(service: Arc<dyn Service>, config: &ServerConfig) -> Self {
        Self {
            service,
            limits: Limits::from(config),
            server_header: config.server_header.as_deref().map(Box::from),
            requests_per_connection: config.requests_per_connection.unwrap_or(u64::MAX),
            on_answer: config.on_answer.clone(),
        }
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// A buffer with a larger capacity is freed after use.
const MAX_KEPT_CAPACITY: usize = 256 * 1024;

/// The buffers and the date that the connections of one thread share. One connection at a time uses them.
#[derive(Debug)]
pub struct Scratch {
    pub(super) out: Vec<u8>,
    /// The offset in `out` at which each answer ends.
    pub(super) ends: Vec<usize>,
    pub(super) body: Vec<u8>,
    pub(super) date: Date,
    pub(super) closing: bool,
    pub(super) others_wait: bool,
}

impl Scratch {
    /// Creates empty buffers.
    pub fn new() -> Self {
        Self {
            out: Vec::new(),
            ends: Vec::new(),
            body: Vec::new(),
            date: Date::new(SystemTime::now()),
            closing: false,
            others_wait: false,
        }
    }

    /// Sets the time for the `Date` header and whether the server is draining. To be called before each batch, that is,
    /// before [`Session::receive`](super::Session::receive), [`resume`](super::Session::resume) or
    /// [`time_out`](super::Session::time_out).
    ///
    /// If `closing`, the session closes after the last request of which bytes have arrived: the answer to that request
    /// carries `Connection: close`, and the session's next step is [`Want::Close`](super::Want::Close). An idle session
    /// does not close by itself: closing it is the server's decision.
    pub fn refresh(&mut self, now: SystemTime, closing: bool) {
        self.date.refresh(now);
        self.closing = closing;
        self.others_wait = false;
    }

    /// Sets whether other connections wait for this thread. To be called after [`refresh`](Self::refresh), which resets
    /// it.
    ///
    /// If `others_wait`, the session closes soon, whatever the client sends. The answer to the last request that has
    /// arrived completely carries `Connection: close`; the start of a further request is dropped. After a deferred
    /// answer the session closes at once, and drops all further requests. A client repeats requests that are not
    /// answered before a `Connection: close` (RFC 9112, 9.6).
    pub fn set_others_wait(&mut self, others_wait: bool) {
        self.others_wait = others_wait;
    }

    /// Returns the bytes to write for the connection that was served last.
    pub fn out(&self) -> &[u8] {
        &self.out
    }

    /// Bytes that the buffers can hold without an allocation.
    pub fn capacity(&self) -> usize {
        let ends = self.ends.capacity().saturating_mul(size_of::<usize>());
        self.out.capacity().saturating_add(self.body.capacity()).saturating_add(ends)
    }

    /// Releases the buffers if they hold more than `limit` bytes and no output waits to be written.
    #[inline]
    pub fn trim(&mut self, limit: usize) {
        if self.capacity() > limit && self.out.is_empty() {
            (self.out, self.ends, self.body) = (Vec::new(), Vec::new(), Vec::new());
        }
    }

    pub(super) fn clear(&mut self) {
        self.out.clear();
        self.ends.clear();
        for buffer in [&mut self.out, &mut self.body] {
            if buffer.capacity() > MAX_KEPT_CAPACITY {
                *buffer = Vec::new();
            }
        }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}
