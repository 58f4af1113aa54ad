//! What connections share: the server's environment, and a thread's buffers.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use super::date::Date;
use super::decode::Limits;
use crate::config::ServerConfig;
use crate::service::Service;

/// What all connections of a server share.
pub struct Env {
    /// Who answers.
    pub service: Arc<dyn Service>,
    /// How large a request may be.
    pub limits: Limits,
    pub(super) server_header: Option<Box<str>>,
    pub(super) requests_per_connection: u64,
}

impl Env {
    /// Serves `service` within the limits of `config`.
    pub fn new(service: Arc<dyn Service>, config: &ServerConfig) -> Self {
        Self {
            service,
            limits: Limits::from(config),
            server_header: config.server_header.as_deref().map(Box::from),
            requests_per_connection: match config.requests_per_connection {
                0 => u64::MAX,
                most => most,
            },
        }
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// A larger buffer is given back after use.
const KEPT_CAPACITY: usize = 256 * 1024;

/// What the connections of one thread share while one of them is being served: buffers and the date.
#[derive(Debug)]
pub struct Scratch {
    pub(super) out: Vec<u8>,
    /// Where each answer in `out` ends.
    pub(super) ends: Vec<usize>,
    pub(super) body: Vec<u8>,
    pub(super) date: Date,
    pub(super) draining: bool,
}

impl Scratch {
    /// Empty buffers.
    pub fn new() -> Self {
        Self {
            out: Vec::new(),
            ends: Vec::new(),
            body: Vec::new(),
            date: Date::new(SystemTime::now()),
            draining: false,
        }
    }

    /// Tells the time, and whether the server is draining: then answers say `Connection: close`. To be called before a
    /// connection is served; the date is at most as old as this call.
    pub fn refresh(&mut self, now: SystemTime, draining: bool) {
        self.date.refresh(now);
        self.draining = draining;
    }

    /// The bytes to write for the connection that was served last.
    pub fn out(&self) -> &[u8] {
        &self.out
    }

    pub(super) fn clear(&mut self) {
        self.out.clear();
        self.ends.clear();
        for buffer in [&mut self.out, &mut self.body] {
            if buffer.capacity() > KEPT_CAPACITY {
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
