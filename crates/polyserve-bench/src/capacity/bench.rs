//! Searches for the capacities of servers in processes of their own, over HTTP.

use std::time::Duration;

use polyserve::Shutdown;
use polyserve_load::{CpuSource, Load, Pace, Report as LoadReport, RunLength, Traffic, prefill_for};

use super::{CapacityInstrument, Limit, MIN_RATE_SHARE, NamedLaunch, Sample, SearchEnd, bisect};
use crate::compare::measure::run;
use crate::compare::sample::microseconds;
use crate::experiment::Absence;
use crate::launch::drain::check_drain;
use crate::launch::process::{Failure, Process};
use crate::machine::cores::Cores;
use crate::output::is_client_late;
use crate::statistics::median;

/// The max share of due requests that are not sent. Above it, the rate is not met.
const MAX_BEHIND: f64 = 0.01;
/// The median of this number of loads is the throughput of the null server.
const LIMIT_LOADS: usize = 3;
/// The min number of requests of a load: the p99 of fewer is nearly their maximum.
const MIN_REQUESTS: f64 = 1000.0;
/// The max number of times that a missed load is repeated because the client was late.
const LATE_LOADS: usize = 2;
/// The start of a load that does not count.
const RAMP: Duration = Duration::from_millis(50);

/// The settings of a search over HTTP, the same for all servers.
#[derive(Debug)]
pub struct CapacityBench {
    /// The servers' cores.
    pub server_cores: Cores,
    /// The client's cores.
    pub client_cores: Cores,
    /// Concurrent connections.
    pub connections: usize,
    /// The requests.
    pub traffic: Traffic,
    /// The null server.
    pub limit: NamedLaunch,
    /// The requests to the null server.
    pub limit_traffic: Traffic,
    /// The time of a load. It is extended if a thousand requests take longer.
    pub slice: Duration,
    /// The shutdown that begins when the run must end.
    pub stop: Shutdown,
}

impl CapacityBench {
    fn load(&self, process: &Process, traffic: &Traffic) -> Load {
        Load::new(process.addr(), traffic.clone()).with(|load| {
            load.connections = self.connections;
            load.threads = self.client_cores.count().min(self.connections);
            load.cores = self.client_cores.numbers().to_vec();
            load.cpu = CpuSource::Process(process.pid());
            (load.warm_up, load.length) = (RAMP, RunLength::Time(self.slice));
            load.stop = self.stop.clone();
        })
    }

    /// Searches for all goals. Returns the samples and the number of right answers.
    fn search_all(
        &self,
        process: &Process,
        goals_us: &[u64],
        round: usize,
        limit: f64,
    ) -> Result<(Vec<Sample>, u64), Absence> {
        let load = self.load(process, &self.traffic);
        let mut answers = prefill_for(&load)?;
        // A load of the same requests warms the server up.
        answers += run(&load)?.answered;
        let mut samples = Vec::new();
        let mut part = (round as u64) << 16;
        for goal_us in goals_us {
            let mut probe_once = |rate: f64| -> Result<(bool, Sample), Absence> {
                part += 1;
                let paced = load.clone().with(|load| {
                    load.pace = Pace::Rate(rate);
                    load.length = RunLength::Time(self.slice.max(Duration::from_secs_f64(MIN_REQUESTS / rate)));
                    load.traffic = load.traffic.part(part);
                });
                let report = run(&paced)?;
                answers += report.answered;
                Ok(meets_goal(&report, rate, *goal_us, self.connections))
            };
            // A load that was missed by a late client is repeated: the client was the reason, at least in part.
            let probe = |rate: f64| {
                let mut probed = probe_once(rate)?;
                for _ in 0..LATE_LOADS {
                    let (is_met, Sample { lateness_p99_us, .. }) = probed;
                    if is_met || !is_client_late(lateness_p99_us, *goal_us as f64) {
                        break;
                    }
                    probed = probe_once(rate)?;
                }
                Ok(probed)
            };
            samples.push(bisect([limit * MIN_RATE_SHARE, limit], probe)?);
        }
        Ok((samples, answers))
    }
}

/// Whether a load at `rate` met the goal, and its figures.
fn meets_goal(report: &LoadReport, rate: f64, goal_us: u64, connections: usize) -> (bool, Sample) {
    let behind = report.answered_late.saturating_sub(connections as u64) + report.unsent + report.unfinished;
    let due = report.latency.len() + report.unsent;
    let is_overloaded = behind as f64 > MAX_BEHIND * due as f64;
    let p99_us = microseconds(&report.latency, 0.99);
    let cpu_us = report.server_cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / report.answered as f64);
    let sample = Sample {
        per_s: rate,
        end: SearchEnd::Between,
        p99_us,
        cpu_us: cpu_us.filter(|cpu_us| cpu_us.is_finite()),
        client_busy: report.client_busy,
        lateness_p99_us: report.lateness.as_ref().map_or(0.0, |late| microseconds(late, 0.99)),
    };
    (!is_overloaded && !report.latency.is_empty() && p99_us <= goal_us as f64, sample)
}

impl CapacityInstrument for CapacityBench {
    fn limit(&mut self) -> Result<Limit, Absence> {
        let process = Process::start(&self.limit.launch, &self.server_cores)?;
        let load = self.load(&process, &self.limit_traffic);
        let measured: Result<Vec<f64>, Absence> = (0..LIMIT_LOADS).map(|_| Ok(run(&load)?.per_second())).collect();
        process.end().map_err(|Failure(why)| Absence::wrong(why))?;
        Ok(Limit { name: self.limit.name.clone(), per_s: median(&mut measured?) })
    }

    fn search(
        &mut self,
        target: &NamedLaunch,
        goals_us: &[u64],
        round: usize,
        limit: f64,
    ) -> Result<Vec<Sample>, Absence> {
        let mut process = Process::start(&target.launch, &self.server_cores)?;
        let searched = self.search_all(&process, goals_us, round, limit);
        let (samples, answers) = searched.map_err(|absence| absence.explained(&mut process))?;
        let last_line = process.end().map_err(|Failure(why)| Absence::wrong(why))?;
        if !self.stop.is_begun() {
            check_drain(last_line.as_deref(), answers)?;
        }
        Ok(samples)
    }
}
