//! The figures of a contestant in one round.
//!
//! Invariant: a figure covers only the measured slices, unless its description names the whole measurement. Cost: none.

use hdrhistogram::Histogram;
use polyserve_load::Report;

/// The figures of a contestant in one round.
#[derive(Clone, Debug, Default)]
pub struct Measurement {
    /// Right answers in closed loop.
    pub answered: u64,
    /// The duration of the closed loop, in seconds.
    pub elapsed_s: f64,
    /// Right answers per second.
    pub requests_per_s: f64,
    /// Right answers per second of the server's CPU time.
    pub requests_per_cpu_s: Option<f64>,
    /// The server's CPU time, in seconds.
    pub server_cpu_s: Option<f64>,
    /// The client's CPU time, in seconds.
    pub client_cpu_s: f64,
    /// The server's CPU time as a share of its cores' time.
    pub server_busy: Option<f64>,
    /// The client's CPU time as a share of its threads' time.
    pub client_busy: f64,
    /// The idle time of the server's cores, in seconds.
    pub server_idle_s: Option<f64>,
    /// The idle time of the client's cores, in seconds.
    pub client_idle_s: Option<f64>,
    /// Context switches of the server's threads per request, during the verifying load.
    pub switches_per_request: Option<f64>,
    /// Resident memory before the first connection, in bytes.
    pub resident_bytes: Option<u64>,
    /// Resident memory with all connections open, in bytes.
    pub loaded_bytes: Option<u64>,
    /// The requests under way by Little's law, as a share of the connections: 1 in a closed loop. `None` if requests are
    /// pipelined, or have a connection each.
    pub under_way: Option<f64>,
    /// Requests of the whole measurement that were sent again: their kept connection closed before a byte of the answer.
    pub retried: u64,
    /// Connections of the whole measurement that replaced one that the server closed between requests.
    pub reconnects: u64,
    /// The latency at a fixed rate.
    pub latency: Option<Latency>,
}

/// Latencies from the intended start, at a fixed rate.
#[derive(Clone, Debug)]
pub struct Latency {
    /// Requests per second that were due.
    pub rate: f64,
    /// Requests with an answer.
    pub answered: u64,
    /// Requests that were due in the slice and not sent in it, because no connection was free.
    pub behind: u64,
    /// Median, in microseconds.
    pub p50_us: f64,
    /// 99 %, in microseconds.
    pub p99_us: f64,
    /// 99.9 %, in microseconds.
    pub p999_us: f64,
    /// The delay of the load generator itself, 99 %, in microseconds.
    pub lateness_p99_us: f64,
    /// CPU time of the server for each request at that rate, in microseconds.
    pub cpu_us: Option<f64>,
}

impl Latency {
    /// The requests that were not sent in time, as a share of those that were due.
    pub(crate) fn behind_share(&self) -> f64 {
        behind_share(self.behind, self.answered)
    }
}

/// The max share of requests that were due and not sent in time. Above it, the rate was too high.
pub(crate) const MAX_BEHIND: f64 = 0.01;

/// `behind` requests as a share of those that were due: 1 if none was answered. The latencies are of all requests that were due,
/// also of those that were not sent.
pub(crate) fn behind_share(behind: u64, answered: u64) -> f64 {
    if answered == 0 { 1.0 } else { behind as f64 / answered as f64 }
}

/// A quantile in microseconds.
pub fn microseconds(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile) as f64 / 1000.0
}

/// The sum of the measured slices.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    pub(super) answered: u64,
    pub(super) elapsed_s: f64,
    pub(super) server_cpu_s: Option<f64>,
    pub(super) client_cpu_s: f64,
    pub(super) client_busy_s: f64,
    pub(super) server_idle_s: f64,
    pub(super) client_idle_s: f64,
    /// The sum of all requests' latencies.
    pub(super) latency_s: f64,
}

impl Sum {
    pub(super) fn add(&mut self, report: &Report) {
        let elapsed_s = report.elapsed.as_secs_f64();
        let before = if self.elapsed_s == 0.0 { Some(0.0) } else { self.server_cpu_s };
        self.server_cpu_s = before.zip(report.server_cpu).map(|(sum, cpu)| sum + cpu.as_secs_f64());
        self.answered += report.answered;
        self.elapsed_s += elapsed_s;
        self.client_cpu_s += report.client_cpu.as_secs_f64();
        self.client_busy_s += report.client_busy * elapsed_s;
        self.latency_s += report.under_way() * elapsed_s;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A thousand latencies of this length, in microseconds.
    pub(crate) fn latency(us: f64) -> Latency {
        Latency {
            rate: 100.0,
            answered: 1000,
            behind: 0,
            p50_us: us,
            p99_us: us,
            p999_us: us,
            lateness_p99_us: 0.0,
            cpu_us: None,
        }
    }
}
