//! The requests of an experiment, or the entities of its stores.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use polyserve_load::{Arrivals, Dist, Exchange, LoadError, Mix, Traffic, Usage};
use serde::Deserialize;

use super::definition::{from_text, time};
use super::sweep::{Sweep, SweepAxis, SweepCell, in_words};

/// The requests of an experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BenchWorkload {
    /// A service of the catalog, in place of the entities.
    pub service: Option<String>,
    /// The file of the requests to the service, relative to the definition.
    pub requests: Option<PathBuf>,
    /// Whether the request is `GET /`, with the answer `Welcome!`, in place of the entities.
    pub welcome: bool,
    /// Entities: the weights of reading and writing.
    #[serde(deserialize_with = "from_text")]
    pub mix: Mix,
    /// Entities: their number.
    pub keys: u64,
    /// Entities: their distribution in the requests.
    #[serde(deserialize_with = "from_text")]
    pub dist: Dist,
    /// Entities: bytes of a description.
    pub payload: usize,
    /// Concurrent connections.
    pub connections: usize,
    /// Pipelined requests of a connection.
    pub pipeline: usize,
    /// Whether each request has a connection of its own.
    pub close: bool,
    /// Whether the servers speak TLS, with a certificate that is made for the run. References do not take part.
    pub tls: bool,
    /// Workers of the servers, `None` for their default; threads at a store, `None` for all cores.
    pub workers: Option<usize>,
    /// The spacing of the requests at a fixed rate.
    pub arrivals: Arrivals,
    /// Entities: how long a request waits, without a thread of the server.
    #[serde(deserialize_with = "time")]
    pub wait: Duration,
    /// Entities: the time for which a request blocks its thread.
    #[serde(deserialize_with = "time")]
    pub blocking_wait: Duration,
    /// Entities: the CPU time that a request takes in addition to the server's.
    #[serde(deserialize_with = "time")]
    pub cpu: Duration,
    /// Entities: whether `blocking_wait` and `cpu` vary, with an exponential distribution. They are then the means.
    pub times_vary: bool,
}

impl Default for BenchWorkload {
    fn default() -> Self {
        Self {
            service: None,
            requests: None,
            welcome: false,
            mix: Mix { get: 95, put: 5 },
            keys: 10_000,
            dist: Dist::Uniform,
            payload: 15,
            connections: 64,
            pipeline: 1,
            close: false,
            tls: false,
            workers: None,
            arrivals: Arrivals::default(),
            wait: Duration::ZERO,
            blocking_wait: Duration::ZERO,
            cpu: Duration::ZERO,
            times_vary: false,
        }
    }
}

impl BenchWorkload {
    /// This workload at a cell.
    #[must_use]
    pub fn at(&self, cell: &SweepCell) -> Self {
        let mut workload = self.clone();
        for (axis, value) in cell {
            let number = value.number().unwrap_or_default();
            let count = usize::try_from(number).unwrap_or(usize::MAX);
            match axis {
                SweepAxis::Connections => workload.connections = count,
                SweepAxis::Keys => workload.keys = number,
                SweepAxis::Workers => workload.workers = Some(count),
                SweepAxis::Payload => workload.payload = count,
                SweepAxis::Pipeline => workload.pipeline = count,
                // Words are checked when they are read.
                SweepAxis::Method => workload.mix = mix_of(value.word()).unwrap_or(workload.mix),
                SweepAxis::Dist => workload.dist = value.word().parse().unwrap_or_default(),
                SweepAxis::Rate
                | SweepAxis::RatePercent
                | SweepAxis::ServerCores
                | SweepAxis::Operation
                | SweepAxis::Tasks
                | SweepAxis::Series
                | SweepAxis::Source
                | SweepAxis::GoalUs
                | SweepAxis::Behaviour
                | SweepAxis::Held
                | SweepAxis::ConnectionUse
                | SweepAxis::LoadPercent
                | SweepAxis::Overload => {}
            }
        }
        workload
    }

    /// In words, with all values of the settings that vary: `95 GET to 5 PUT of 10,000 entities, uniform; 1 or 64 connections, kept
    /// alive`.
    pub(crate) fn in_words(&self, sweep: &Sweep) -> String {
        let values = |axis, fixed: u64| in_words(sweep, axis, fixed);
        let varies = |axis| sweep.contains_key(&axis);
        let requests = match (&self.service, &self.requests) {
            _ if self.welcome => String::from("GET / for Welcome!"),
            (Some(service), Some(file)) => format!("the requests of {} to the service {service}", file.display()),
            _ => {
                let mix = if varies(SweepAxis::Method) {
                    in_words(sweep, SweepAxis::Method, "").to_uppercase().replace(" OR ", " or ")
                } else {
                    mix_in_words(self.mix)
                };
                format!("{mix} of {}", self.entities(sweep))
            }
        };
        let mut text = format!("{requests}; {} connections, ", values(SweepAxis::Connections, self.connections as u64));
        text.push_str(&match self.usage() {
            Usage::Close => String::from("a connection for each request"),
            Usage::KeepAlive { pipeline: 1 } if !varies(SweepAxis::Pipeline) => String::from("kept alive"),
            Usage::KeepAlive { pipeline } => {
                format!("kept alive, {} requests at once", values(SweepAxis::Pipeline, pipeline as u64))
            }
        });
        text.push_str(if self.tls { ", over TLS" } else { "" });
        for (what, time) in
            [("waits", self.wait), ("blocks its thread for", self.blocking_wait), ("takes CPU time of", self.cpu)]
        {
            if !time.is_zero() {
                text.push_str(&format!("; each request {what} {}", humantime::format_duration(time)));
            }
        }
        text.push_str(if self.times_vary { " in the mean, with an exponential distribution" } else { "" });
        text
    }

    /// The entities in words.
    fn entities(&self, sweep: &Sweep) -> String {
        match in_words(sweep, SweepAxis::Keys, self.keys).as_str() {
            "1" => String::from("one entity"),
            keys => format!("{keys} entities, {}", in_words(sweep, SweepAxis::Dist, self.dist.to_string().as_str())),
        }
    }

    /// Whether a request takes time besides that of the server.
    pub fn takes_time(&self) -> bool {
        self.wait + self.blocking_wait + self.cpu > Duration::ZERO
    }

    /// The flags of `polyserve serve` for the time that a request takes.
    pub fn time_flags(&self) -> impl Iterator<Item = String> {
        let time = |time: Duration| humantime::format_duration(time).to_string().replace(' ', "");
        let flags = [
            (self.wait, format!("--repo-delay={}", time(self.wait))),
            (self.blocking_wait, format!("--blocking-wait={}", time(self.blocking_wait))),
            (self.cpu, format!("--spin={}", self.cpu.as_nanos())),
        ];
        let varying = self.times_vary.then(|| String::from("--times-vary"));
        flags.into_iter().filter(|(time, _)| !time.is_zero()).map(|(_, flag)| flag).chain(varying)
    }

    /// The longest time of a request on a server with this number of cores: its waits, and the CPU time of the requests before it. A
    /// server has a worker for each request that blocks.
    pub fn longest_request(&self, cores: usize) -> Duration {
        let before = (self.connections as f64 / cores.max(1) as f64).max(1.0);
        self.wait + self.blocking_wait + self.cpu.mul_f64(before)
    }

    /// How the connections are used.
    pub fn usage(&self) -> Usage {
        if self.close { Usage::Close } else { Usage::KeepAlive { pipeline: self.pipeline } }
    }
}

/// A mix in words: `95 GET to 5 PUT`.
fn mix_in_words(mix: Mix) -> String {
    match mix {
        Mix { put: 0, .. } => String::from("GET"),
        Mix { get: 0, .. } => String::from("PUT"),
        Mix { get, put } => format!("{get} GET to {put} PUT"),
    }
}

/// The request of a workload with `welcome`, and its answer.
///
/// # Errors
///
/// Returns an error if the request is not valid, which never happens.
pub fn welcome() -> Result<Traffic, LoadError> {
    let exchange = Exchange::new("GET", "/").with(|welcome| welcome.answers = vec![b"Welcome!".to_vec()]);
    Traffic::expecting(vec![exchange])
}

/// The mix of requests with this method alone.
pub(super) fn mix_of(method: &str) -> Option<Mix> {
    format!("{method}=1").parse().ok()
}

impl fmt::Display for BenchWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.in_words(&Sweep::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sweep::CellValue;

    /// Regression test: the heading of a sweep over connections had the default of one number.
    #[test]
    fn the_workload_has_all_values_that_vary() {
        let workload = BenchWorkload::default();
        assert_eq!(workload.to_string(), "95 GET to 5 PUT of 10,000 entities, uniform; 64 connections, kept alive");
        let numbers = |values: &[u64]| values.iter().copied().map(CellValue::from).collect::<Vec<_>>();
        let words = |values: &[&str]| values.iter().copied().map(CellValue::from).collect::<Vec<_>>();
        let sweep = Sweep::from([
            (SweepAxis::Connections, numbers(&[1, 64, 1000])),
            (SweepAxis::Keys, numbers(&[1, 10_000])),
            (SweepAxis::Pipeline, numbers(&[1, 16])),
            (SweepAxis::Method, words(&["get", "put"])),
            (SweepAxis::Dist, words(&["uniform", "zipf"])),
        ]);
        assert_eq!(
            workload.in_words(&sweep),
            "GET or PUT of 1 or 10,000 entities, uniform or zipf; 1, 64 or 1,000 connections, kept alive, 1 or 16 requests at once"
        );
    }
}
