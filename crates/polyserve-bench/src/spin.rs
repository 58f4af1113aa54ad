//! Services that take time before they answer: [`Spin`] takes CPU time, and [`BlockingWait`] blocks its thread.
//!
//! Both simulate the work of an application. `Spin` is also the positive control of a comparison: a comparison that does not
//! find this slowdown cannot be trusted.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyserve::{Answer, Head, Reply, Request, Service};
use rustix::time::{ClockId, clock_gettime};

/// A wrapped service that takes CPU time before each answer. Cost: that time, and at most one more reading of the clock.
pub struct Spin {
    service: Arc<dyn Service>,
    time: Duration,
}

/// The min time that is measured by the thread's CPU clock. Reading this clock is a system call, so shorter times are
/// measured by the monotonic clock: a thread that is interrupted then takes less CPU time.
const MIN_CPU_CLOCK_TIME: Duration = Duration::from_micros(20);

impl Spin {
    /// `service`, slowed by `time` a request.
    pub fn new(service: Arc<dyn Service>, time: Duration) -> Self {
        Self { service, time }
    }

    fn spin(&self) {
        if self.time < MIN_CPU_CLOCK_TIME {
            let start = Instant::now();
            while start.elapsed() < self.time {
                std::hint::spin_loop();
            }
            return;
        }
        let start = thread_cpu_time();
        while thread_cpu_time().saturating_sub(start) < self.time {
            std::hint::spin_loop();
        }
    }
}

fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

impl fmt::Debug for Spin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spin").field("time", &self.time).finish_non_exhaustive()
    }
}

impl Service for Spin {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        self.spin();
        self.service.call(request, body)
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        self.service.head(head)
    }
}

/// A wrapped service that blocks its thread before each answer, like a client library without deferred answers. A service
/// should not block: on an asynchronous server, all connections of the thread wait. Cost: the time, and a sleep.
pub struct BlockingWait {
    service: Arc<dyn Service>,
    time: Duration,
}

impl BlockingWait {
    /// `service`, with a thread that is blocked for `time` in each request.
    pub fn new(service: Arc<dyn Service>, time: Duration) -> Self {
        Self { service, time }
    }
}

impl fmt::Debug for BlockingWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingWait").field("time", &self.time).finish_non_exhaustive()
    }
}

impl Service for BlockingWait {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        std::thread::sleep(self.time);
        self.service.call(request, body)
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        self.service.head(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyserve::Echo;

    /// Regression test: four threads on one core each took a quarter of the CPU time.
    #[test]
    fn threads_that_share_a_core_take_the_whole_time_each() {
        let spin = Arc::new(Spin::new(Arc::new(Echo), Duration::from_millis(2)));
        let spun = || {
            let spin = Arc::clone(&spin);
            std::thread::spawn(move || {
                let start = thread_cpu_time();
                spin.spin();
                thread_cpu_time() - start
            })
        };
        let threads: Vec<_> = (0..8).map(|_| spun()).collect();
        for thread in threads {
            assert!(thread.join().unwrap() >= Duration::from_millis(2));
        }
    }
}
