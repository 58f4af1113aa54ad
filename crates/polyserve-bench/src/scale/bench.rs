//! The measurement of a point of a server: its own process, under load in closed loop, then at a fixed rate. A point of the axis
//! of rates has the fixed rate alone.
//!
//! Invariant: a process has no figures if it sent a wrong answer, or if its own count of answers contradicts the client's. Cost:
//! the times below, the time to open each connection, and the time to store the entities.

use std::collections::HashMap;
use std::time::Duration;

use polyserve::Shutdown;
use polyserve_load::data::Data;
use polyserve_load::{CpuSource, Dist, Load, Mix, Pace, Report, RunLength, Traffic, Usage, prefill_for};

use super::experiment::{ScaleInstrument, Target};
use super::report::ScaleFigures;
use super::{Axis, PointSettings};
use crate::compare::measure::{run, run_watched};
use crate::compare::sample::{MAX_BEHIND, behind_share, microseconds};
use crate::experiment::Absence;
use crate::launch::drain::check_drain;
use crate::launch::process::{Failure, Process};
use crate::launch::{AddressFrom, Launch};
use crate::machine::cores::Cores;
use crate::machine::proc;
use crate::statistics::median;

/// The settings of the measurement, the same for all servers.
#[derive(Debug)]
pub struct ScaleBench {
    /// The servers' cores.
    pub server_cores: Cores,
    /// The client's cores.
    pub client_cores: Cores,
    /// The load before the measured time.
    pub warm_up: Duration,
    /// The time of the closed loop.
    pub slice: Duration,
    /// The time at a fixed rate.
    pub latency_slice: Duration,
    /// The mix of reads and writes.
    pub mix: Mix,
    /// How connections are used: kept by default.
    pub usage: Usage,
    /// The seed of the data.
    pub seed: u64,
    /// The null server. Its throughput is 100 % on the axis of rates.
    pub limit: ScaleLimit,
    /// The shutdown that begins when the run must end.
    pub stop: Shutdown,
    traffics: HashMap<(u64, usize), Traffic>,
}

/// The null server, and the requests that it can answer.
#[derive(Debug)]
pub struct ScaleLimit {
    /// Its name.
    pub name: &'static str,
    /// The process.
    pub launch: Launch,
    /// The requests.
    pub traffic: Traffic,
}

/// The median of this number of loads is the throughput of the null server.
const LIMIT_LOADS: usize = 3;
/// The additional time of the warm-up and of the closed loop for each connection. With 10 000 connections an answer in closed
/// loop takes half a second, and each connection needs several answers.
const PER_CONNECTION: Duration = Duration::from_micros(50);
/// The start of the time at a fixed rate, which does not count.
const RAMP: Duration = Duration::from_millis(50);

impl ScaleBench {
    /// The settings with these cores, the servers' first, and these times: warm-up, closed loop, fixed rate.
    pub fn new(
        [server_cores, client_cores]: [Cores; 2],
        [warm_up, slice, latency_slice]: [Duration; 3],
        mix: Mix,
        seed: u64,
        limit: ScaleLimit,
        stop: Shutdown,
    ) -> Self {
        let (usage, traffics) = (Usage::KeepAlive { pipeline: 1 }, HashMap::new());
        Self { server_cores, client_cores, warm_up, slice, latency_slice, mix, usage, seed, limit, stop, traffics }
    }

    /// The traffic for this number of entities and this payload. It is cached: a million rows take a second to make.
    fn traffic(&mut self, place: &PointSettings) -> Result<Traffic, Absence> {
        let PointSettings { keys, payload_bytes, .. } = *place;
        if let Some(traffic) = self.traffics.get(&(keys, payload_bytes)) {
            return Ok(traffic.clone());
        }
        let data = Data::new(self.seed).with_description(payload_bytes);
        let traffic = Traffic::entities(&data, keys, Dist::Uniform, self.mix, self.seed)?;
        self.traffics.insert((keys, payload_bytes), traffic.clone());
        Ok(traffic)
    }

    fn load(&self, place: &PointSettings, process: &Process, traffic: Traffic) -> Load {
        Load::new(process.addr(), traffic).with(|load| {
            load.connections = place.connections;
            load.threads = self.client_cores.count().min(place.connections);
            load.cores = self.client_cores.numbers().to_vec();
            load.cpu = CpuSource::Process(process.pid());
            (load.usage, load.must_close) = (self.usage, self.usage == Usage::Close);
            load.stop = self.stop.clone();
        })
    }

    fn measure_process(
        &self,
        process: &Process,
        load: &Load,
        Target { axis, place, .. }: &Target,
        round: usize,
        rate: Option<f64>,
    ) -> Result<(ScaleFigures, u64), Absence> {
        // A round has two loads. All targets of a round request the same parts.
        let part = |number: u64| load.traffic.part(2 * round as u64 + number);
        let resident = || proc::resident(process.pid()).ok().map(|resident| resident.now);
        let start_bytes = resident();
        let mut answers = prefill_for(load)?;
        let filled_bytes = resident();
        if let Some((rate, Axis::Rate)) = rate.map(|rate| (rate, *axis)) {
            let paced = load.clone().with(|load| {
                (load.warm_up, load.length) = (self.warm_up, RunLength::Time(self.slice + self.latency_slice));
                (load.pace, load.traffic) = (Pace::Rate(rate), part(1));
            });
            let mut loaded_bytes = None;
            let report = run_watched(&paced, &mut |_| loaded_bytes = resident().or(loaded_bytes))?;
            let mut figures = self.figures(&report);
            (figures.start_bytes, figures.filled_bytes, figures.loaded_bytes) =
                (start_bytes, filled_bytes, loaded_bytes);
            figures.cpu_us = None; // it is no cost at saturation
            figures.take_latency(&report, rate, place.connections);
            return Ok((figures, answers + report.answered));
        }
        let extra = PER_CONNECTION * u32::try_from(place.connections).unwrap_or(u32::MAX);
        let closed = load.clone().with(|load| {
            (load.warm_up, load.length) = (self.warm_up + extra, RunLength::Time(self.slice + extra));
            load.traffic = part(0);
        });
        let mut loaded_bytes = None;
        // The last measured value counts. A busy machine may leave no time for another one.
        let report = run_watched(&closed, &mut |_| loaded_bytes = resident().or(loaded_bytes))?;
        answers += report.answered;
        let mut figures = self.figures(&report);
        let is_kept = self.usage == Usage::KeepAlive { pipeline: 1 };
        figures.under_way = is_kept.then(|| report.under_way() / place.connections as f64);
        (figures.start_bytes, figures.filled_bytes, figures.loaded_bytes) = (start_bytes, filled_bytes, loaded_bytes);
        if let Some(rate) = rate.filter(|_| !self.stop.is_begun()) {
            let paced = load.clone().with(|load| {
                (load.warm_up, load.length) = (RAMP, RunLength::Time(self.latency_slice));
                load.pace = Pace::Rate(rate);
                load.traffic = part(1);
            });
            let report = run(&paced)?;
            answers += report.answered;
            figures.take_latency(&report, rate, place.connections);
        }
        Ok((figures, answers))
    }
}

impl ScaleBench {
    /// The figures of a load, without memory and latencies.
    fn figures(&self, report: &Report) -> ScaleFigures {
        let cores = self.server_cores.count() as f64;
        ScaleFigures {
            answered: report.answered,
            elapsed_s: report.elapsed.as_secs_f64(),
            per_s: report.per_second(),
            cpu_us: cpu_us(report),
            server_busy_pct: report.server_busy.map(|busy| busy / cores * 100.0),
            client_busy_pct: Some(report.client_busy * 100.0),
            ..ScaleFigures::default()
        }
    }
}

impl ScaleFigures {
    fn take_latency(&mut self, report: &Report, rate: f64, connections: usize) {
        let behind = report.answered_late.saturating_sub(connections as u64) + report.unsent + report.unfinished;
        self.paced_cpu_us = cpu_us(report);
        self.rate_per_s = Some(rate);
        // Without an answer there is no latency: the server did not keep the rate.
        self.overloaded = behind_share(behind, &report.latency) > MAX_BEHIND;
        let quantile = |quantile| (!report.latency.is_empty()).then(|| microseconds(&report.latency, quantile));
        (self.p50_us, self.p99_us) = (quantile(0.5), quantile(0.99));
        self.lateness_p99_us = report.lateness.as_ref().map(|late| microseconds(late, 0.99));
    }
}

impl ScaleInstrument for ScaleBench {
    fn limit_name(&self) -> &str {
        self.limit.name
    }

    fn limit(&mut self, connections: usize) -> Result<f64, Absence> {
        let ScaleLimit { launch, traffic, .. } = &self.limit;
        let process = Process::start(launch, &self.server_cores)?;
        let place = PointSettings { connections, keys: 1, workers: None, payload_bytes: 0 };
        let load = self.load(&place, &process, traffic.clone()).with(|load| {
            (load.warm_up, load.length) = (self.warm_up, RunLength::Time(self.slice));
            load.must_close = false; // a reference does not read the header
        });
        let measured: Result<Vec<f64>, Absence> = (0..LIMIT_LOADS).map(|_| Ok(run(&load)?.per_second())).collect();
        process.end().map_err(|Failure(why)| Absence::wrong(why))?;
        Ok(median(&mut measured?))
    }

    fn measure(&mut self, target: &Target, round: usize, rate: Option<f64>) -> Result<ScaleFigures, Absence> {
        let traffic = self.traffic(&target.place)?;
        let mut process = Process::start(&target.launch, &self.server_cores)?;
        let load = self.load(&target.place, &process, traffic);
        let measured = self.measure_process(&process, &load, target, round, rate);
        let (figures, answers) = measured.map_err(|absence| absence.explained(&mut process))?;
        let last_line = process.end().map_err(|Failure(why)| Absence::wrong(why))?;
        // A foreign server does not count its answers.
        if target.launch.address == AddressFrom::Json && !self.stop.is_begun() {
            check_drain(last_line.as_deref(), answers)?;
        }
        Ok(figures)
    }
}

/// The server's CPU time for each right answer, in microseconds.
fn cpu_us(report: &Report) -> Option<f64> {
    let cpu_us = report.server_cpu?.as_secs_f64() * 1e6 / report.answered as f64;
    Some(cpu_us).filter(|cpu_us| cpu_us.is_finite())
}
