//! The figures of a contestant in one round.
//!
//! Invariant: a figure covers only the measured slices, unless its description names the whole measurement. Cost: a
//! histogram of about 100 KB for each measurement with a latency.

use hdrhistogram::Histogram;
use polyserve_load::Report;
use serde::{Deserialize, Serialize};

/// The figures of a contestant in one round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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
    #[serde(default)]
    pub under_way: Option<f64>,
    /// Requests of the whole measurement that were sent again: their kept connection closed before a byte of the answer.
    pub retried: u64,
    /// Connections of the whole measurement that replaced one that the server closed between requests.
    pub reconnects: u64,
    /// The latency at a fixed rate.
    pub latency: Option<Latency>,
}

/// Latencies from the intended start, at a fixed rate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Latency {
    /// Requests per second that were due.
    pub rate: f64,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<f64>,
    /// All latencies, in nanoseconds, to two digits. The record has the same, so a later run computes the same figures.
    #[serde(with = "counts")]
    pub histogram: Histogram<u64>,
}

impl Latency {
    /// The requests that were not sent in time, as a share of those that were due.
    pub(crate) fn behind_share(&self) -> f64 {
        behind_share(self.behind, &self.histogram)
    }

    /// Returns `figure`, a quantile of these latencies; infinity if no request was answered.
    pub(crate) fn unless_empty(&self, figure: f64) -> f64 {
        if self.histogram.is_empty() { f64::INFINITY } else { figure }
    }
}

/// The max share of requests that were due and not sent in time. Above it, the rate was too high.
pub(crate) const MAX_BEHIND: f64 = 0.01;

/// `behind` requests as a share of those that were due: 1 if none was answered. The latencies are of all requests that were due,
/// also of those that were not sent.
pub(crate) fn behind_share(behind: u64, latencies: &Histogram<u64>) -> f64 {
    if latencies.is_empty() { 1.0 } else { behind as f64 / latencies.len() as f64 }
}

/// A quantile in microseconds.
pub fn microseconds(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile) as f64 / 1000.0
}

/// The longest latency of a histogram, in nanoseconds: ten minutes.
const MAX_LATENCY_NS: u64 = 600_000_000_000;
/// The precision of a histogram, in digits.
const PRECISION_DIGITS: u8 = 2;

/// An empty histogram of latencies, as records have them. The bounds are constants within the library's limits, so this
/// does not panic.
fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_LATENCY_NS, PRECISION_DIGITS).expect("the bounds are constants within the limits")
}

/// `histogram` to two digits: each value within 1 %.
pub(super) fn coarse(histogram: &Histogram<u64>) -> Histogram<u64> {
    let mut coarse = empty();
    for bucket in histogram.iter_recorded() {
        coarse.saturating_record_n(bucket.value_iterated_to(), bucket.count_at_value());
    }
    coarse
}

/// A histogram in a record: a list of `[nanoseconds, count]`.
mod counts {
    use hdrhistogram::Histogram;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(histogram: &Histogram<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        let buckets = histogram.iter_recorded();
        serializer.collect_seq(buckets.map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value())))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Histogram<u64>, D::Error> {
        let mut histogram = super::empty();
        for (value, count) in Vec::<(u64, u64)>::deserialize(deserializer)? {
            histogram.saturating_record_n(value, count);
        }
        Ok(histogram)
    }
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
        let mut histogram = Histogram::new_with_bounds(1, MAX_LATENCY_NS, 3).unwrap();
        histogram.record_n((us * 1000.0) as u64, 1000).unwrap();
        Latency {
            rate: 100.0,
            behind: 0,
            p50_us: us,
            p99_us: us,
            p999_us: us,
            lateness_p99_us: 0.0,
            cpu_us: None,
            histogram,
        }
    }

    /// A record read back must give the ranking of the run that wrote it.
    #[test]
    fn a_latency_is_read_back_as_it_was_recorded() {
        let mut fine = Histogram::new_with_bounds(1, MAX_LATENCY_NS, 3).unwrap();
        (1..5000_u64).for_each(|step| fine.record(step * 1777).unwrap());
        let histogram = coarse(&fine);
        let latency = Latency { behind: 3, histogram, ..latency(1.0) };
        let read: Latency = serde_json::from_str(&serde_json::to_string(&latency).unwrap()).unwrap();
        assert_eq!((&read.histogram, read.behind), (&latency.histogram, 3));
        for quantile in [0.1, 0.5, 0.99, 0.999] {
            let of = |histogram: &Histogram<u64>| microseconds(histogram, quantile);
            assert!((of(&read.histogram) / of(&fine) - 1.0).abs() < 0.01, "{quantile}");
        }
        assert_eq!(read.histogram.len(), fine.len());
    }
}
