//! The mode `closed` with a number of requests: each contestant is measured alone, from its first request to its last.
//!
//! The steps are: start; store the entities; warm up; send the requests, and sample the process every 100 ms; read back what was
//! put; end. The figures are those of `ab` and of a monitor of the process, as published: connecting and processing of a
//! request, processor time and memory of the server.
//!
//! Invariant: a wrong answer, or a difference between the counts of client and server, leaves the contestant without a sample.
//! While the requests run, no other thread of this command runs on the server's cores. Cost: the requests; starting, verifying
//! and ending a process.

use std::time::Duration;

use polyserve_load::data::{Data, EntityVersion};
use polyserve_load::{CpuSource, Exchange, Load, Report, RunLength, Traffic, Usage, prefill_for};

use super::Turns;
use super::requests::{self, CellPlan};
use crate::bench::experiment::{Key, Sample};
use crate::bench::figures::{self, NamedFigures};
use crate::bench::workload::BenchWorkload;
use crate::experiment::{Absence, Notebook};
use crate::launch::drain::check_count;
use crate::launch::process::Process;
use crate::launch::{AddressFrom, Launch};
use crate::machine::proc::{self, Resident};
use crate::turn::{Contestant, Instrument, microseconds, run_watched};

/// Servers that get a number of requests.
#[derive(Debug)]
pub struct CountedTurns {
    cells: Vec<CountedCell>,
    requests: u64,
}

/// A cell, and the reading of what was put there.
#[derive(Debug)]
pub struct CountedCell {
    plan: CellPlan,
    /// The requests after the others; `None` if nothing is put.
    last: Option<Readback>,
}

/// Requests in turn, and their number.
#[derive(Debug)]
struct Readback {
    traffic: Traffic,
    requests: u64,
}

/// The min number of samples for a maximum.
const MIN_SAMPLES: usize = 5;
/// The max requests of a warm-up.
const MAX_WARM_UP_REQUESTS: u64 = 5000;
/// The max number of entities that are read after puts.
const MAX_READ_BACK: u64 = 100;
/// The timeout of an answer: with 1000 connections an answer may wait for 999 others.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// The CPU use, as a share of its threads' time, from which the client counts as full.
const CLIENT_FULL: f64 = 0.95;
/// The CPU use of server and client together, as a share of their shared cores' time, from which the client counts as full. The
/// rest is the kernel's work for the network, which counts for neither.
const SHARED_CORES_FULL: f64 = 0.9;

impl CountedTurns {
    /// The turns at these cells.
    pub fn new(cells: Vec<CountedCell>, requests: u64) -> Self {
        Self { cells, requests }
    }
}

impl CountedCell {
    /// A cell with this workload. `data` has the entities, if they are put: they are read at the end.
    ///
    /// # Errors
    ///
    /// Returns [`polyserve_load::LoadError`] if an entity makes no request.
    pub fn new(
        plan: CellPlan,
        workload: &BenchWorkload,
        data: Option<&Data>,
    ) -> Result<Self, polyserve_load::LoadError> {
        let Some(data) = data.filter(|_| workload.mix.put > 0) else { return Ok(Self { plan, last: None }) };
        let read = |id: u64| {
            let row = |version| data.row(id as i64, version).to_json().into_bytes();
            let mut rows: Vec<Vec<u8>> = [EntityVersion::FirstUpdate, EntityVersion::SecondUpdate].map(row).into();
            // Of several entities, one may never have been put.
            rows.extend((workload.keys > 1).then(|| row(EntityVersion::New)));
            Exchange::new("GET", &format!("/{id}")).with(|get| get.answers = rows)
        };
        let exchanges: Vec<Exchange> = (0..workload.keys.min(MAX_READ_BACK)).map(read).collect();
        let requests = exchanges.len() as u64;
        Ok(Self { plan, last: Some(Readback { traffic: Traffic::expecting(exchanges)?, requests }) })
    }
}

impl AsRef<CellPlan> for CountedCell {
    fn as_ref(&self) -> &CellPlan {
        &self.plan
    }
}

impl Turns for CountedTurns {
    fn prepare(&mut self, notebook: &mut Notebook<'_>) -> anyhow::Result<()> {
        requests::check_cells(self.cells.iter().map(|cell| &cell.plan), notebook)
    }

    fn measure_one(&mut self, key: &Key, _: &mut Notebook<'_>) -> Result<Sample, Absence> {
        let (CountedCell { plan, last }, contestant) = requests::planned(&self.cells, key)?;
        let turn = CountedTurn { instrument: &plan.instrument, contestant, requests: self.requests };
        Ok(Sample { role: contestant.role, figures: turn.measure(key.round, last.as_ref())? })
    }
}

/// The turn of a contestant.
struct CountedTurn<'a> {
    instrument: &'a Instrument,
    contestant: &'a Contestant,
    requests: u64,
}

impl CountedTurn<'_> {
    fn measure(&self, round: usize, last: Option<&Readback>) -> Result<NamedFigures, Absence> {
        let Self { instrument, contestant, .. } = self;
        let mut process = Process::start(&contestant.launch, &instrument.server_cores)?;
        let loaded = self.load(&process, round, last).map_err(|absence| process.explain(absence))?;
        let last_line = process.end()?;
        if has_counts(&contestant.launch, last_line.as_deref()) && !instrument.stop.is_begun() {
            check_count(last_line.as_deref(), loaded.answers)?;
        }
        loaded.figures(instrument)
    }

    fn load(&self, process: &Process, round: usize, last: Option<&Readback>) -> Result<CountedLoad, Absence> {
        let Self { instrument, contestant, requests } = self;
        let pid = process.pid();
        let mut load = instrument.load(contestant, process).with(|load| load.timeout = MAX_WAIT);
        load.traffic = load.traffic.part(round as u64);
        let mut answers = if contestant.keeps_entities { prefill_for(&load)? } else { 0 };
        let warm_up = (requests / 20).clamp(1, MAX_WARM_UP_REQUESTS).max(instrument.connections as u64);
        answers += clean(&load.clone().with(|load| load.length = RunLength::Requests(warm_up)))?.answered;
        load.length = RunLength::Requests(*requests);
        load.cpu = CpuSource::Process(pid);
        let mut watched = Observations::default();
        watched.observe(None, pid);
        let report = complete(&load, run_watched(&load, &mut |progress| watched.observe(progress.server_cpu, pid))?)?;
        watched.observe(None, pid);
        answers += report.answered;
        if let Some(Readback { traffic, requests }) = last {
            let reading = load.with(|load| {
                load.traffic = traffic.clone();
                (load.connections, load.threads, load.usage) = (1, 1, Usage::Close);
                (load.length, load.cpu) = (RunLength::Requests(*requests), CpuSource::Unknown);
            });
            answers += clean(&reading)?.answered;
        }
        Ok(CountedLoad { report, observations: watched, answers })
    }
}

/// Whether a program prints its counts at the end. Ours and those with a JSON address do; a program of one's own need not.
fn has_counts(launch: &Launch, last_line: Option<&str>) -> bool {
    launch.address == AddressFrom::Json || last_line.is_some_and(|line| line.contains("\"answered\""))
}

fn clean(load: &Load) -> Result<Report, Absence> {
    complete(load, run_watched(load, &mut |_| {})?)
}

/// The report, if all requests were answered.
fn complete(load: &Load, report: Report) -> Result<Report, Absence> {
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

    /// The mean, and the maximum of at least [`MIN_SAMPLES`] samples during the load.
    fn resident(&self) -> (Option<f64>, Option<f64>) {
        let has_enough_samples = self.resident.len() >= MIN_SAMPLES + 2; // one before the load and one after it
        let max = self.resident.iter().map(|resident| resident.now as f64).reduce(f64::max);
        (mean(self.resident.iter().map(|resident| resident.now)), max.filter(|_| has_enough_samples))
    }

    fn mean_anonymous(&self) -> Option<f64> {
        mean(self.resident.iter().filter_map(|resident| resident.anonymous))
    }
}

fn mean(bytes: impl Iterator<Item = u64>) -> Option<f64> {
    let (sum, count) = bytes.fold((0, 0), |(sum, count), bytes| (sum + bytes, count + 1));
    (count > 0).then(|| sum as f64 / f64::from(count))
}

/// The load generator's report of a turn.
#[derive(Debug)]
struct CountedLoad {
    report: Report,
    observations: Observations,
    /// All answers that the client received.
    answers: u64,
}

impl CountedLoad {
    fn figures(&self, instrument: &Instrument) -> Result<NamedFigures, Absence> {
        let Self { report, observations, answers } = self;
        let machine =
            proc::memory().map_err(|error| Absence::failed(format!("the machine's memory is not known: {error}")))?;
        let share_of_machine = |bytes: f64| bytes / machine as f64 * 100.0;
        let (total_s, requests) = (report.elapsed.as_secs_f64(), report.answered as f64);
        let kib_s = |bytes: u64| Some(bytes as f64 / 1024.0 / total_s);
        let (mean, max) = observations.resident();
        let server_cores = instrument.server_cores.count() as f64;
        let phases = report.phases.as_ref();
        let mut all = vec![
            ("requests", Some(requests)),
            ("answered", Some(*answers as f64)),
            ("total_s", Some(total_s)),
            ("per_request_ms", Some(total_s * 1000.0 * instrument.connections as f64 / requests)),
            ("avg_cpu_pct", report.server_busy.map(|busy| busy * 100.0)),
            ("max_cpu_pct", observations.max_cpu_pct()),
            ("avg_mem_pct", mean.map(share_of_machine)),
            ("max_mem_pct", max.map(share_of_machine)),
            ("received_kB_s", kib_s(report.bytes_received)),
            ("sent_kB_s", kib_s(report.bytes_sent)),
            ("loaded_bytes", mean),
            ("anonymous_bytes", observations.mean_anonymous()),
            ("cores", Some(server_cores)),
            (figures::REQUESTS_PER_S, Some(requests / total_s)),
            (figures::CPU_US, report.server_cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / requests)),
            (figures::SERVER_BUSY, report.server_busy.map(|busy| busy / server_cores)),
            (figures::CLIENT_BUSY, Some(report.client_busy)),
            (figures::CLIENT_FULL, Some(f64::from(u8::from(is_client_full(instrument, report))))),
        ];
        if let Some(phases) = phases {
            let median_ms = |of| Some(microseconds(of, 0.5) / 1000.0);
            all.extend([
                ("connect_ms", Some(phases.connect.mean() / 1e6)),
                ("connect_median_ms", median_ms(&phases.connect)),
                ("processing_ms", Some(phases.processing.mean() / 1e6)),
                ("processing_median_ms", median_ms(&phases.processing)),
                ("processing_p99_ms", Some(microseconds(&phases.processing, 0.99) / 1000.0)),
            ]);
        }
        Ok(figures::known(all).collect())
    }
}

/// Whether the client had no time left. On shared cores it waits for the server, too.
fn is_client_full(instrument: &Instrument, report: &Report) -> bool {
    let Instrument { server_cores, client_cores, connections, .. } = instrument;
    let threads = client_cores.count().min(*connections) as f64;
    let both = report.server_busy.unwrap_or(0.0) + report.client_busy * threads;
    is_full(report.client_busy, (server_cores == client_cores).then(|| both / server_cores.count() as f64))
}

/// `both` is the CPU use of server and client as a share of their cores, if they share all of them.
fn is_full(client_busy: f64, both: Option<f64>) -> bool {
    client_busy >= CLIENT_FULL || both.is_some_and(|both| both >= SHARED_CORES_FULL)
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
    fn memory_is_the_mean_and_the_maximum_of_many_samples() {
        let mut observed = observations(&[]);
        assert_eq!((observed.resident(), observed.mean_anonymous()), ((Some(2000.0), None), Some(1250.0)));
        observed.resident.extend(observations(&[]).resident.repeat(2));
        assert_eq!(observed.resident(), (Some(2000.0), Some(3000.0)));
        let none = Observations::default();
        assert_eq!((none.resident(), none.mean_anonymous()), ((None, None), None));
    }

    /// Regression test: on shared cores the client's threads are never full by themselves, because the server has the rest.
    #[test]
    fn a_client_that_shares_its_cores_is_full_if_both_fill_them() {
        assert!(is_full(0.95, None) && !is_full(0.94, None));
        assert!(is_full(0.2, Some(0.9)) && !is_full(0.2, Some(0.89)));
    }
}
