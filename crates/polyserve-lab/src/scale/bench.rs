//! A point of a server: a process of its own, loaded in closed loop, then at a fixed rate.
//!
//! Invariant: no figure of a process that gave one wrong answer, or that did not say in the end that it gave as many as
//! were read. Cost: the times below, 50 us more for each connection, and what it takes to store the entities.

use std::collections::HashMap;
use std::time::Duration;

use polyserve::Shutdown;
use polyserve_load::data::Data;
use polyserve_load::{CpuSource, Dist, Load, Mix, Pace, Report, RunLength, Traffic, prefill_for};

use super::Place;
use super::experiment::{Instrument, Target};
use super::report::Figures;
use crate::compare::measure::{run, run_watched};
use crate::compare::sample::microseconds;
use crate::experiment::Absence;
use crate::launch::drain::check_drain;
use crate::launch::process::{Failure, Process};
use crate::machine::cores::Cores;
use crate::machine::proc;

/// How servers are measured: alike for all.
#[derive(Debug)]
pub struct Bench {
    /// The servers' cores.
    pub server_cores: Cores,
    /// The client's cores.
    pub client_cores: Cores,
    /// How long a server is loaded before it counts.
    pub warm_up: Duration,
    /// The closed loop.
    pub slice: Duration,
    /// The part at a fixed rate.
    pub latency_slice: Duration,
    /// Reading and writing.
    pub mix: Mix,
    /// Of the data.
    pub seed: u64,
    /// Begun where the run is to end now.
    pub stop: Shutdown,
    traffics: HashMap<(u64, usize), Traffic>,
}

/// By how much more a load is warmed up and measured for each connection: with 10 000 of them an answer in closed loop
/// takes half a second, and each should have had a few.
const PER_CONNECTION: Duration = Duration::from_micros(50);
/// What the part at a fixed rate begins with and does not count.
const RAMP: Duration = Duration::from_millis(50);
/// More requests than this share that were due and not sent: the rate was too much.
const MOST_BEHIND: f64 = 0.01;

impl Bench {
    /// One of these cores, the servers' first, and of these times: warm-up, closed loop, and at a fixed rate.
    pub fn new(
        [server_cores, client_cores]: [Cores; 2],
        [warm_up, slice, latency_slice]: [Duration; 3],
        mix: Mix,
        seed: u64,
        stop: Shutdown,
    ) -> Self {
        let traffics = HashMap::new();
        Self { server_cores, client_cores, warm_up, slice, latency_slice, mix, seed, stop, traffics }
    }

    /// What is asked where so many entities of so many bytes are stored. It is kept: a million rows take a second to make.
    fn traffic(&mut self, place: &Place) -> Result<Traffic, Absence> {
        let Place { keys, payload_bytes, .. } = *place;
        if let Some(traffic) = self.traffics.get(&(keys, payload_bytes)) {
            return Ok(traffic.clone());
        }
        let data = Data::new(self.seed).with_description(payload_bytes);
        let traffic = Traffic::entities(&data, keys, Dist::Uniform, self.mix, self.seed)?;
        self.traffics.insert((keys, payload_bytes), traffic.clone());
        Ok(traffic)
    }

    fn load(&self, place: &Place, process: &Process, traffic: Traffic) -> Load {
        Load::new(process.addr(), traffic).with(|load| {
            load.connections = place.connections;
            load.threads = self.client_cores.count().min(place.connections);
            load.cores = self.client_cores.numbers().to_vec();
            load.cpu = CpuSource::Process(process.pid());
            load.stop = self.stop.clone();
        })
    }

    fn look(
        &self,
        process: &Process,
        load: &Load,
        place: &Place,
        rate: Option<f64>,
    ) -> Result<(Figures, u64), Absence> {
        let resident = || proc::resident(process.pid()).ok().map(|resident| resident.now);
        let start_bytes = resident();
        let mut answers = prefill_for(load)?;
        let filled_bytes = resident();
        let more = PER_CONNECTION * u32::try_from(place.connections).unwrap_or(u32::MAX);
        let closed = load
            .clone()
            .with(|load| (load.warm_up, load.length) = (self.warm_up + more, RunLength::Time(self.slice + more)));
        let mut loaded_bytes = None;
        // The last look counts; an earlier one where a busy machine leaves no time for it.
        let report = run_watched(&closed, &mut |_| loaded_bytes = resident().or(loaded_bytes))?;
        answers += report.answered;
        let cores = self.server_cores.count() as f64;
        let mut figures = Figures {
            answered: report.answered,
            elapsed_s: report.elapsed.as_secs_f64(),
            per_s: report.per_second(),
            cpu_us: cpu_us(&report),
            server_busy_pct: report.server_busy.map(|busy| busy / cores * 100.0),
            client_busy_pct: Some(report.client_busy * 100.0),
            start_bytes,
            filled_bytes,
            loaded_bytes,
            ..Figures::default()
        };
        if let Some(rate) = rate.filter(|_| !self.stop.is_begun()) {
            let paced = load.clone().with(|load| {
                (load.warm_up, load.length) = (RAMP, RunLength::Time(self.latency_slice));
                load.pace = Pace::Rate(rate);
            });
            let report = run(&paced)?;
            answers += report.answered;
            figures.take_latency(&report, rate, place.connections);
        }
        Ok((figures, answers))
    }
}

impl Figures {
    fn take_latency(&mut self, report: &Report, rate: f64, connections: usize) {
        let behind = report.answered_late.saturating_sub(connections as u64) + report.unsent + report.unfinished;
        let due = report.latency.len() + report.unsent;
        self.paced_cpu_us = cpu_us(report);
        self.rate_per_s = Some(rate);
        self.overloaded = behind as f64 > MOST_BEHIND * due as f64;
        self.p50_us = Some(microseconds(&report.latency, 0.5));
        self.p99_us = Some(microseconds(&report.latency, 0.99));
        self.lateness_p99_us = report.lateness.as_ref().map(|late| microseconds(late, 0.99));
    }
}

impl Instrument for Bench {
    fn measure(&mut self, target: &Target, rate: Option<f64>) -> Result<Figures, Absence> {
        let traffic = self.traffic(&target.place)?;
        let mut process = Process::start(&target.launch, &self.server_cores)?;
        let load = self.load(&target.place, &process, traffic);
        let looked = self.look(&process, &load, &target.place, rate);
        let (figures, answers) = looked.map_err(|absence| absence.explained(&mut process))?;
        let said = process.end().map_err(|Failure(why)| Absence::wrong(why))?;
        if !self.stop.is_begun() {
            check_drain(said.as_deref(), answers)?;
        }
        Ok(figures)
    }
}

/// The server's CPU time for each right answer, in microseconds.
fn cpu_us(report: &Report) -> Option<f64> {
    let cpu_us = report.server_cpu?.as_secs_f64() * 1e6 / report.answered as f64;
    Some(cpu_us).filter(|cpu_us| cpu_us.is_finite())
}
