//! The sum of a contestant's slices in one round, and the shares and quantiles of loads. Cost: none.

use hdrhistogram::Histogram;
use polyserve_load::Report;

use crate::bench::figures::{self, NamedFigures};

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

    /// The figures of the closed loop, with this number of cores of the server; none without a slice. `connections` is their number
    /// if each has one request under way, as Little's law has it: then the share under way is 1.
    pub(super) fn figures(&self, server_cores: usize, connections: Option<usize>) -> NamedFigures {
        let Self { answered, elapsed_s, server_cpu_s, client_cpu_s, client_busy_s, .. } = *self;
        if elapsed_s == 0.0 {
            return NamedFigures::new();
        }
        let cpu_us = server_cpu_s.map(|cpu| cpu * 1e6 / answered as f64);
        figures::known([
            (figures::REQUESTS_PER_S, Some(answered as f64 / elapsed_s)),
            (figures::CPU_US, cpu_us.filter(|cpu_us| *cpu_us > 0.0)),
            (figures::SERVER_BUSY, server_cpu_s.map(|cpu| cpu / elapsed_s / server_cores as f64)),
            (figures::CLIENT_BUSY, Some(client_busy_s / elapsed_s)),
            (figures::UNDER_WAY, connections.map(|connections| self.latency_s / elapsed_s / connections as f64)),
            (figures::ANSWERED, Some(answered as f64)),
            ("elapsed_s", Some(elapsed_s)),
            (figures::SERVER_CPU_S, server_cpu_s),
            (figures::CLIENT_CPU_S, Some(client_cpu_s)),
            (figures::SERVER_IDLE_S, Some(self.server_idle_s)),
            (figures::CLIENT_IDLE_S, Some(self.client_idle_s)),
        ])
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figures::NamedFigure;

    #[test]
    fn each_figure_of_a_closed_loop_is_registered() {
        let sum =
            Sum { answered: 4, elapsed_s: 2.0, server_cpu_s: Some(0.5), client_idle_s: f64::NAN, ..Sum::default() };
        let figures = sum.figures(1, Some(1));
        assert_eq!((figures[figures::REQUESTS_PER_S], figures[figures::CPU_US], figures.len()), (2.0, 125_000.0, 10));
        assert!(figures.keys().all(|name| NamedFigure::named(name).is_some()), "{figures:?}");
        assert!(Sum::default().figures(1, None).is_empty(), "without a closed loop");
    }
}
