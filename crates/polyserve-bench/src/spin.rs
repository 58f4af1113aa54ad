//! Services that take time before they answer: [`Spin`] takes CPU time, and [`BlockingWait`] blocks its thread.
//!
//! Both simulate the work of an application. `Spin` is also the positive control of a comparison: a comparison that does not
//! find this slowdown cannot be trusted. All requests take the same time, or [`ServiceTimes`] that vary: a queue then stands now
//! and then also below the capacity, as in an application.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use polyserve::{Answer, Head, Reply, Request, Service};

use crate::machine::proc::thread_cpu_time;

/// The times that the requests of a service take. Cost of a time that varies: an addition to a shared counter, and a logarithm.
#[derive(Debug)]
pub struct ServiceTimes {
    mean: Duration,
    /// The number of requests so far, if the times vary.
    requests: Option<AtomicU64>,
}

impl ServiceTimes {
    /// Times with an exponential distribution. The time of the n-th request is the same in each run.
    pub fn exponential(mean: Duration) -> Self {
        Self { mean, requests: Some(AtomicU64::new(0)) }
    }

    /// The time of the next request.
    fn next(&self) -> Duration {
        let Some(requests) = &self.requests else { return self.mean };
        let share = unit(requests.fetch_add(1, Ordering::Relaxed));
        self.mean.mul_f64(-(1.0 - share).ln())
    }
}

impl From<Duration> for ServiceTimes {
    /// The same time for all requests.
    fn from(time: Duration) -> Self {
        Self { mean: time, requests: None }
    }
}

/// The numbers of a block are spread over as many equal parts, one in each.
const BLOCK: u64 = 64;

/// A number from 0 to 1, without 1, that looks random. The sums of the times of some hundred requests in a row so differ little, and two
/// loads of a second can be compared.
fn unit(number: u64) -> f64 {
    let (block, place) = (number / BLOCK, number % BLOCK);
    let part = shuffled(place, random_bits(!block));
    (part as f64 + (random_bits(number) >> 11) as f64 / (1_u64 << 53) as f64) / BLOCK as f64
}

/// The part of a place in its block: a permutation, because each step is one.
fn shuffled(place: u64, bits: u64) -> u64 {
    [bits, bits >> 16, bits >> 32].iter().fold(place, |place, bits| {
        let place = (place ^ bits).wrapping_mul(0x9E37_79B9_7F4A_7C15) % BLOCK;
        place ^ (place >> 3)
    })
}

/// Source: the finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
fn random_bits(number: u64) -> u64 {
    let mut bits = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// A wrapped service that takes CPU time before each answer. Cost: that time, and at most one more reading of the clock.
pub struct Spin {
    service: Arc<dyn Service>,
    times: ServiceTimes,
}

/// The min time that is measured by the thread's CPU clock. Reading this clock is a system call, so shorter times are
/// measured by the monotonic clock: a thread that is interrupted then takes less CPU time.
const MIN_CPU_CLOCK_TIME: Duration = Duration::from_micros(20);

impl Spin {
    /// `service`, slowed by these times.
    pub fn new(service: Arc<dyn Service>, times: impl Into<ServiceTimes>) -> Self {
        Self { service, times: times.into() }
    }

    fn spin(&self) {
        let time = self.times.next();
        if time < MIN_CPU_CLOCK_TIME {
            let start = Instant::now();
            while start.elapsed() < time {
                std::hint::spin_loop();
            }
            return;
        }
        let start = thread_cpu_time();
        while thread_cpu_time().saturating_sub(start) < time {
            std::hint::spin_loop();
        }
    }
}

impl fmt::Debug for Spin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spin").field("times", &self.times).finish_non_exhaustive()
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
    times: ServiceTimes,
}

impl BlockingWait {
    /// `service`, with a thread that is blocked for these times.
    pub fn new(service: Arc<dyn Service>, times: impl Into<ServiceTimes>) -> Self {
        Self { service, times: times.into() }
    }
}

impl fmt::Debug for BlockingWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingWait").field("times", &self.times).finish_non_exhaustive()
    }
}

impl Service for BlockingWait {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        std::thread::sleep(self.times.next());
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

    #[test]
    fn times_that_vary_have_their_mean_and_repeat() {
        let mean = Duration::from_millis(1);
        let drawn = || {
            let times = ServiceTimes::exponential(mean);
            (0..100_000).map(|_| times.next()).collect::<Vec<_>>()
        };
        let mut all = drawn();
        assert_eq!(all, drawn());
        let ratio = |time: Duration| time.as_secs_f64() / mean.as_secs_f64();
        let sum: Duration = all.iter().sum();
        all.sort_unstable();
        let (median, p99) = (ratio(all[50_000]), ratio(all[99_000]));
        assert!((ratio(sum / 100_000) - 1.0).abs() < 0.02, "{sum:?}");
        assert!((median - 2.0_f64.ln()).abs() < 0.02 && (p99 - 100.0_f64.ln()).abs() < 0.1, "{median}, {p99}");
        assert_eq!(ServiceTimes::from(mean).next(), mean);
    }

    /// Regression test: the requests of a second took up to 8 % longer or shorter than those of another one, by chance.
    #[test]
    fn requests_in_a_row_take_their_mean() {
        let times = ServiceTimes::exponential(Duration::from_millis(1));
        for row in 0..100 {
            let sum: Duration = (0..1000).map(|_| times.next()).sum();
            let mean_ms = sum.as_secs_f64();
            assert!((mean_ms - 1.0).abs() < 0.03, "{mean_ms} ms in row {row}");
        }
        let mut parts: Vec<u64> = (0..BLOCK).map(|place| shuffled(place, 0x0123_4567_89AB_CDEF)).collect();
        parts.sort_unstable();
        assert_eq!(parts, (0..BLOCK).collect::<Vec<_>>());
    }

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
