//! Measures one cell: starts a process, stores an entity, warms up, sends the requests, verifies the store, ends the process.
//!
//! Invariant: a wrong answer, or a difference between the counts of client and server, leaves the cell without a sample.
//! While the requests run, no other thread of this command runs on the server's cores. Cost: starting, verifying and
//! ending the process; a sample of the process every 100 ms.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use crate::compare::sample::microseconds;
use crate::experiment::Absence;
use crate::launch::Launch;
use crate::launch::drain::check_count;
use crate::launch::process::{Failure, Process};
use crate::machine::cores::Cores;
use crate::machine::proc::{self, Resident};
use polyserve::Shutdown;
use polyserve::sync::lock;
use polyserve_load::data::{Data, EntityVersion};
use polyserve_load::{CpuSource, Exchange, Load, LoadProgress, Report, RunLength, Traffic, Usage, run};

use super::{CellMethod, Key, Origin, Sample};

/// Measures cells.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The servers' cores.
    pub server_cores: Cores,
    /// The client's cores.
    pub client_cores: Cores,
    /// The number of requests of a cell.
    pub requests: u64,
    /// Begun by the first signal.
    pub stop: Shutdown,
}

/// The id of all requests.
const ID: i64 = 1;
/// The seed of the entity's values.
const SEED: u64 = 0;
/// The min number of samples for a maximum.
const MIN_SAMPLES: usize = 5;
/// The max requests of a warm-up.
const MAX_WARM_UP_REQUESTS: u64 = 5000;
/// The timeout of an answer: with 1000 connections an answer may wait for 999 others.
const PATIENCE: Duration = Duration::from_secs(30);

impl Bench {
    /// Measures a cell.
    ///
    /// # Errors
    ///
    /// Returns why the cell has no sample. The reason has no meaning once [`stop`](Self::stop) has begun.
    pub fn measure(&self, key: &Key, origin: &Origin, launch: &Launch) -> Result<Sample, Absence> {
        let mut process = Process::start(launch, &self.server_cores)?;
        let server = (process.addr(), process.pid());
        let run = self.on_client_cores(|| self.requests_of(server, key))?;
        let run = run.map_err(|absence| absence.explained(&mut process))?;
        let output = process.end().map_err(|Failure(why)| Absence::wrong(why))?;
        if !self.stop.is_begun() {
            check_count(output.as_deref(), run.answers)?;
        }
        Ok(run.sample(origin, key.connections)?)
    }

    /// Runs `act` on a thread that is pinned to the client's cores, so that the server's cores are free for the server.
    fn on_client_cores<T: Send>(&self, act: impl FnOnce() -> T + Send) -> Result<T, Failure> {
        let pinned = || -> Result<T, Failure> {
            self.client_cores.pin().map_err(|error| Failure(format!("the client cannot be pinned: {error}")))?;
            Ok(act())
        };
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("cell".into()).spawn_scoped(scope, pinned);
            let thread = thread.map_err(|error| Failure(format!("no thread for the client: {error}")))?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn requests_of(&self, server: (SocketAddr, u32), key: &Key) -> Result<LoadRun, Absence> {
        let data = Data::new(SEED);
        let [first, update] =
            [EntityVersion::New, EntityVersion::FirstUpdate].map(|version| data.row(ID, version).to_json());
        let once = |exchange| clean(&self.load(server, exchange, 1, 1)?);
        once(put(&first, 201))?;
        let exchange = match key.method {
            CellMethod::Get => get(&first),
            CellMethod::Put => put(&update, 200),
        };
        let warm_up = (self.requests / 20).clamp(1, MAX_WARM_UP_REQUESTS).max(key.connections as u64);
        let warmed = clean(&self.load(server, exchange.clone(), key.connections, warm_up)?)?;
        let load = self.load(server, exchange, key.connections, self.requests)?;
        let (_, pid) = server;
        let observations = Mutex::new(Observations::default());
        lock(&observations).observe(None, pid);
        let report = clean_watched(&load, &mut |progress| lock(&observations).observe(progress.server_cpu, pid))?;
        lock(&observations).observe(None, pid);
        let mut answers = 1 + warmed.answered + report.answered;
        if key.method == CellMethod::Put {
            once(get(&update))?; // the store has the new value
            answers += 1;
        }
        let observations = observations.into_inner().unwrap_or_default();
        Ok(LoadRun { report, observations, answers })
    }

    fn load(
        &self,
        (addr, pid): (SocketAddr, u32),
        exchange: Exchange,
        connections: usize,
        requests: u64,
    ) -> Result<Load, Absence> {
        let traffic = Traffic::expecting(vec![exchange])?;
        Ok(Load::new(addr, traffic).with(|load| {
            load.connections = connections;
            load.threads = self.client_cores.count().min(connections);
            load.cores = self.client_cores.numbers().to_vec();
            load.usage = Usage::Close;
            load.must_close = true;
            load.length = RunLength::Requests(requests);
            load.patience = PATIENCE;
            load.cpu = CpuSource::Process(pid);
            load.stop = self.stop.clone();
        }))
    }
}

fn get(row: &str) -> Exchange {
    Exchange::new("GET", &format!("/{ID}")).with(|get| get.answers = vec![row.into()])
}

fn put(row: &str, status: u16) -> Exchange {
    Exchange::new("PUT", "/").with(|put| {
        put.headers.push(("Content-Type".into(), "application/json".into()));
        (put.body, put.statuses) = (Some(row.into()), vec![status]);
    })
}

fn clean(load: &Load) -> Result<Report, Absence> {
    clean_watched(load, &mut |_| {})
}

/// Runs `load`. A single wrong answer is an absence.
fn clean_watched(load: &Load, on_progress: &mut dyn FnMut(&LoadProgress)) -> Result<Report, Absence> {
    let report = Absence::unless_right(run(load, on_progress)?)?;
    match load.length {
        _ if load.stop.is_begun() => Ok(report),
        RunLength::Requests(all) if report.answered != all => {
            Err(Absence::wrong(format!("only {} of {all} requests were answered", report.answered)))
        }
        _ => Ok(report),
    }
}

/// The observations of a process under load.
#[derive(Debug, Default)]
struct Observations {
    /// The load's elapsed time, and the process's CPU time at that moment.
    cpu: Vec<(Duration, Duration)>,
    /// The resident memory.
    resident: Vec<Resident>,
}

impl Observations {
    fn observe(&mut self, cpu: Option<(Duration, Duration)>, pid: u32) {
        self.cpu.extend(cpu);
        self.resident.extend(proc::resident(pid).ok());
    }

    /// The maximum CPU use between two samples, in per cent of a core.
    fn max_cpu_pct(&self) -> Option<f64> {
        let between = self.cpu.windows(2).filter_map(|pair| {
            let [(start, cpu_before), (end, cpu_after)] = pair else { return None };
            let share = cpu_after.saturating_sub(*cpu_before).as_secs_f64() / end.saturating_sub(*start).as_secs_f64();
            share.is_finite().then_some(share * 100.0)
        });
        let shares: Vec<f64> = between.collect();
        (shares.len() >= MIN_SAMPLES).then(|| shares.into_iter().fold(0.0, f64::max))
    }

    fn mean_resident(&self) -> f64 {
        mean(self.resident.iter().map(|resident| resident.now)).unwrap_or(0.0)
    }

    fn max_resident(&self) -> u64 {
        self.resident.iter().map(|resident| resident.now).max().unwrap_or(0)
    }

    fn mean_anonymous(&self) -> Option<f64> {
        mean(self.resident.iter().filter_map(|resident| resident.anonymous))
    }
}

fn mean(bytes: impl Iterator<Item = u64>) -> Option<f64> {
    let (sum, count) = bytes.fold((0, 0), |(sum, count), bytes| (sum + bytes, count + 1));
    (count > 0).then(|| sum as f64 / f64::from(count))
}

/// The load generator's report of a cell.
#[derive(Debug)]
struct LoadRun {
    report: Report,
    observations: Observations,
    /// All answers that the client received.
    answers: u64,
}

impl LoadRun {
    /// The figures.
    fn sample(&self, origin: &Origin, connections: usize) -> Result<Sample, Failure> {
        let Self { report, observations, answers } = self;
        let unknown = |what: &str| Failure(format!("{what} is not known"));
        let parts = report.phases.as_ref().ok_or_else(|| unknown("how long connecting took"))?;
        let busy = report.server_busy.ok_or_else(|| unknown("the CPU time of the server"))?;
        let cpu = report.server_cpu.ok_or_else(|| unknown("the CPU time of the server"))?;
        let machine_memory = proc::memory().map_err(|error| unknown(&format!("the machine's memory: {error}")))? as f64;
        let (total_s, requests) = (report.elapsed.as_secs_f64(), report.answered as f64);
        let kib_s = |bytes: u64| bytes as f64 / 1024.0 / total_s;
        let has_enough_samples = observations.resident.len() >= MIN_SAMPLES + 2; // one before the load and one after it
        let (mean, max) = (observations.mean_resident(), observations.max_resident() as f64);
        let p50_ms = |of| microseconds(of, 0.5) / 1000.0;
        Ok(Sample {
            origin: origin.clone(),
            requests: report.answered,
            avg_cpu_pct: busy * 100.0,
            max_cpu_pct: observations.max_cpu_pct(),
            avg_mem_pct: mean / machine_memory * 100.0,
            max_mem_pct: has_enough_samples.then_some(max / machine_memory * 100.0),
            total_s,
            per_request_ms: total_s * 1000.0 * connections as f64 / requests,
            received_kb_s: kib_s(report.bytes_received),
            sent_kb_s: kib_s(report.bytes_sent),
            connect_ms: parts.connect.mean() / 1e6,
            processing_ms: parts.processing.mean() / 1e6,
            requests_per_s: requests / total_s,
            connect_p50_ms: p50_ms(&parts.connect),
            processing_p50_ms: p50_ms(&parts.processing),
            processing_p99_ms: microseconds(&parts.processing, 0.99) / 1000.0,
            server_cpu_us_per_request: cpu.as_secs_f64() * 1e6 / requests,
            client_busy_pct: report.client_busy * 100.0,
            avg_resident_kb: mean / 1024.0,
            max_resident_kb: max / 1024.0,
            avg_anonymous_kb: observations.mean_anonymous().map(|bytes| bytes / 1024.0),
            samples: observations.resident.len(),
            server_answered: *answers,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observations(cpu_ms: &[u64]) -> Observations {
        let at = |(place, cpu): (usize, &u64)| (Duration::from_millis(place as u64 * 100), Duration::from_millis(*cpu));
        let resident = |now: u64| Resident { now, peak: 9000, anonymous: (now > 1000).then_some(now / 2) };
        Observations {
            cpu: cpu_ms.iter().enumerate().map(at).collect(),
            resident: [1000, 3000, 2000].map(resident).into(),
        }
    }

    #[test]
    fn a_maximum_needs_five_samples() {
        assert_eq!(observations(&[0, 50, 150, 170, 190]).max_cpu_pct(), None);
        let max = observations(&[0, 50, 170, 170, 190, 200]).max_cpu_pct().unwrap();
        assert!((max - 120.0).abs() < 1e-9, "{max}");
        assert_eq!(Observations::default().max_cpu_pct(), None);
    }

    #[test]
    fn memory_is_the_mean_and_the_most_of_what_was_seen() {
        let seen = observations(&[]);
        assert_eq!((seen.mean_resident(), seen.max_resident(), seen.mean_anonymous()), (2000.0, 3000, Some(1250.0)));
        let none = Observations::default();
        assert_eq!((none.mean_resident(), none.max_resident(), none.mean_anonymous()), (0.0, 0, None));
    }
}
