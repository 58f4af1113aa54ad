//! A service that wastes CPU time: the positive control of a comparison. A comparison that does not find this slowdown finds
//! nothing.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyserve::{Answer, Head, Reply, Request, Service};

/// Another service, and so much time of the CPU burnt before each of its answers. Cost: that time, and at most one
/// reading of the clock more; nothing is taken from a thread that is not running, so on a full core it is about CPU time.
pub struct Spin {
    service: Arc<dyn Service>,
    time: Duration,
}

impl Spin {
    /// `service`, slowed by `time` a request.
    pub fn new(service: Arc<dyn Service>, time: Duration) -> Self {
        Self { service, time }
    }
}

impl fmt::Debug for Spin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spin").field("time", &self.time).finish_non_exhaustive()
    }
}

impl Service for Spin {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        let start = Instant::now();
        while start.elapsed() < self.time {
            std::hint::spin_loop();
        }
        self.service.call(request, body)
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        self.service.head(head)
    }
}
