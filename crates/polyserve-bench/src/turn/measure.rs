//! The contestants of one round, and each of them: a new process, verified, measured in closed loop and at a fixed rate, and ended.
//!
//! The steps are: start; prefill; a verified load that warms up, with probes of context switches and memory; the same load
//! measured, in short slices that alternate with those of other contestants; a load at a fixed rate for the latency; the end.
//! The probes are not in the measured part, because they take the client's time.
//!
//! Invariant: a contestant has no figures if one answer is wrong, or if its process does not end well. Cost: the slices, and
//! about 50 ms.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use polyserve::{Shape, Shutdown};
use polyserve_load::{
    Arrivals, CpuSource, Load, LoadProgress, Pace, Report, Retry, RunLength, Traffic, Usage, prefill_for,
};

use super::contestant::Contestant;
use super::sample::{Sum, behind_share, microseconds};
use crate::bench::figures::{self, NamedFigures};
use crate::experiment::{Absence, interleaved, order};
use crate::launch::AddressFrom;
use crate::launch::drain::check_drain;
use crate::launch::process::Process;
use crate::machine::cores::Cores;
use crate::machine::proc::{self, Spent};

/// The settings of a measurement, the same for all contestants.
#[derive(Clone, Debug)]
pub struct Instrument {
    /// The cores of the servers.
    pub server_cores: Cores,
    /// The cores of the load generator.
    pub client_cores: Cores,
    /// Concurrent connections.
    pub connections: usize,
    /// How the connections are used.
    pub usage: Usage,
    /// The spacing of the requests at the fixed rate.
    pub arrivals: Arrivals,
    /// The requests to contestants that keep entities.
    pub traffic: Traffic,
    /// The requests to the references, which answer all requests alike: requests of the same sizes.
    pub limit_traffic: Traffic,
    /// The workload in words.
    pub asked: String,
    /// The duration of the load that verifies and warms up.
    pub warm_up: Duration,
    /// The duration of the measured part. If it is zero, nothing is measured in closed loop.
    pub slice: Duration,
    /// The duration of the part at a fixed rate.
    pub latency_slice: Duration,
    /// The shutdown that begins when the run must end.
    pub stop: Shutdown,
}

/// The min length of a slice: long enough that its start matters little, short enough that other work of the machine affects
/// all contestants alike.
const MIN_SLICE: Duration = Duration::from_millis(50);

/// The min length of a slice for each concurrent request, so that every connection has several requests in a slice. A slice
/// of [`LONG_SLICE`] is long enough in any case.
const SLICE_PER_REQUEST: Duration = Duration::from_micros(10);
const LONG_SLICE: Duration = Duration::from_secs(1);

/// The min start of a slice that does not count, with the first requests of new connections. Of a longer slice it is a tenth.
const RAMP: Duration = Duration::from_millis(5);

/// The min number of waits in a slice, if every answer waits. The first one and a half waits do not count, so that the slice
/// ends between two answers.
const MIN_WAITS: u32 = 5;
const RAMP_WAITS: f64 = 1.5;

/// The start of a slice that does not count, if every answer takes `wait`.
fn ramp(wait: Duration) -> Duration {
    RAMP.max(wait.mul_f64(RAMP_WAITS))
}

/// The max number of loads that warm up. On a busy machine the probes of a load may come after its end, and the same load runs
/// again.
const PROBED_LOADS: usize = 5;

/// A measurement that is under way: the contestant's process, and the figures so far.
#[derive(Debug)]
pub struct ContestantSession<'a> {
    contestant: &'a Contestant,
    pub(crate) process: Process,
    load: Load,
    /// The part of the request sequence that the next load requests. All contestants of a round request the same parts.
    part: u64,
    counts: LoadCounts,
    resident_bytes: Option<u64>,
    probes: Probes,
    sum: Sum,
    /// The figures at the fixed rate, if it was measured.
    latency: NamedFigures,
}

/// The counts of all loads of a measurement.
#[derive(Clone, Copy, Debug, Default)]
struct LoadCounts {
    /// The number of right answers in all loads. The server has sent at least this number.
    answers: u64,
    retried: u64,
    reconnects: u64,
}

/// The number of low bits in a part's number for the load within the round: a round has fewer than a million slices.
const PART_BITS: u32 = 20;

impl ContestantSession<'_> {
    /// Returns the load with the next part of the request sequence.
    pub(crate) fn next_load(&mut self) -> Load {
        let part = self.part;
        self.part += 1;
        self.load.clone().with(|load| load.traffic = load.traffic.part(part))
    }

    /// Runs a load, and counts its answers.
    pub(crate) fn run(&mut self, load: &Load) -> Result<Report, Absence> {
        let report = run(load).map_err(|absence| self.process.explain(absence))?;
        self.counts.add(&report);
        Ok(report)
    }

    /// The requests per second so far, in closed loop.
    pub(super) fn requests_per_s(&self) -> f64 {
        let Sum { answered, elapsed_s, .. } = self.sum;
        answered as f64 / elapsed_s
    }
}

impl LoadCounts {
    fn add(&mut self, report: &Report) {
        self.answers += report.answered;
        self.retried += report.retried;
        self.reconnects += report.reconnects;
    }
}

impl Instrument {
    /// Returns the number of slices, if every answer takes `wait`.
    pub(crate) fn slices(&self, wait: Duration) -> usize {
        if self.slice.is_zero() {
            return 0;
        }
        (self.slice.as_millis() / self.shortest_slice(wait).as_millis()).clamp(1, 1000) as usize
    }

    /// Returns the min length of a slice, if every answer takes `wait`.
    pub(crate) fn shortest_slice(&self, wait: Duration) -> Duration {
        let concurrent = u32::try_from(self.concurrent_requests()).unwrap_or(u32::MAX);
        SLICE_PER_REQUEST.saturating_mul(concurrent).clamp(MIN_SLICE, LONG_SLICE).max(wait * MIN_WAITS)
    }

    /// The number of concurrent requests.
    fn concurrent_requests(&self) -> usize {
        let pipeline = if let Usage::KeepAlive { pipeline } = self.usage { pipeline } else { 1 };
        self.connections.saturating_mul(pipeline)
    }

    /// Returns every core that is used, once.
    pub(crate) fn cores(&self) -> Vec<usize> {
        let mut cores = [self.server_cores.numbers(), self.client_cores.numbers()].concat();
        cores.sort_unstable();
        cores.dedup();
        cores
    }

    /// Starts a session of round `round`: starts the process, stores its entities, and runs the load that verifies and warms
    /// up. Returns why the contestant has no figures. Errors of this type's functions mean nothing once [`stop`](Self::stop)
    /// has begun.
    pub(crate) fn start<'a>(&self, contestant: &'a Contestant, round: usize) -> Result<ContestantSession<'a>, Absence> {
        self.start_with(contestant, round, None)
    }

    /// Starts a session, as [`start`](Self::start) does, of a server that may refuse requests. With `retry`, a refused request of the
    /// load that verifies is sent again.
    pub(crate) fn start_with<'a>(
        &self,
        contestant: &'a Contestant,
        round: usize,
        retry: Option<Retry>,
    ) -> Result<ContestantSession<'a>, Absence> {
        let process = Process::start(&contestant.launch, &self.server_cores)?;
        let load = self.load(contestant, &process);
        let (resident_bytes, probes) = (None, Probes::default());
        let (sum, latency) = (Sum::default(), NamedFigures::new());
        let counts = LoadCounts::default();
        let part = (round as u64) << PART_BITS;
        let mut session =
            ContestantSession { contestant, process, load, part, counts, resident_bytes, probes, sum, latency };
        let verified = self.verify(&mut session, retry);
        verified.map_err(|absence| session.process.explain(absence))?;
        Ok(session)
    }

    fn verify(&self, session: &mut ContestantSession<'_>, retry: Option<Retry>) -> Result<(), Absence> {
        if session.contestant.keeps_entities {
            session.counts.answers += prefill_for(&session.load)?;
        }
        let pid = session.process.pid();
        session.resident_bytes = proc::resident(pid).ok().map(|resident| resident.now);
        let verifying =
            session.next_load().with(|load| (load.length, load.retry) = (RunLength::Time(self.warm_up), retry));
        for _ in 0..PROBED_LOADS {
            let (verified, probes) = self.run_probed(&verifying, pid)?;
            check_retried(&verified)?;
            session.counts.add(&verified);
            session.probes = probes;
            if probes.loaded_bytes.is_some() || self.stop.is_begun() {
                break;
            }
        }
        Ok(())
    }

    /// Measures one slice.
    pub(crate) fn measure(&self, session: &mut ContestantSession<'_>) -> Result<(), Absence> {
        let load = session.next_load().with(|load| {
            let wait = session.contestant.wait;
            load.warm_up = ramp(wait).max(self.shortest_slice(wait) / 10);
            load.length = RunLength::Time(self.slice / self.slices(wait) as u32);
            load.cpu = CpuSource::Process(session.process.pid());
        });
        let spent = || [&self.server_cores, &self.client_cores].map(|cores| Spent::on(cores.numbers()));
        let before = spent();
        let report = session.run(&load)?;
        session.sum.add(&report);
        let after = spent();
        let idle =
            |side: usize| after[side].zip(before[side]).map_or(f64::NAN, |(after, before)| after.idle_since(&before));
        session.sum.server_idle_s += idle(0);
        session.sum.client_idle_s += idle(1);
        Ok(())
    }

    /// Measures the latency at `rate` requests per second, unless the server serves one connection at a time.
    pub(crate) fn take_latency(&self, session: &mut ContestantSession<'_>, rate: f64) -> Result<(), Absence> {
        if session.contestant.shape == Some(Shape::One) {
            return Ok(());
        }
        let pid = session.process.pid();
        let load = session.next_load().with(|load| load.cpu = CpuSource::Process(pid));
        let latency = self.latency(load, rate, ramp(session.contestant.wait), &mut session.counts);
        session.latency = latency.map_err(|absence| session.process.explain(absence))?;
        Ok(())
    }

    /// Ends a session and its process.
    pub(crate) fn end(&self, session: ContestantSession<'_>) -> Result<NamedFigures, Absence> {
        let ContestantSession { contestant, process, counts, resident_bytes, probes, sum, latency, .. } = session;
        let last_line = process.end()?;
        if contestant.launch.address == AddressFrom::Json && !self.stop.is_begun() {
            check_drain(last_line.as_deref(), counts.answers)?;
        }
        check_kept(contestant, counts.retried)?;
        let number = |count: u64| Some(count as f64);
        let connections = (self.usage == Usage::KeepAlive { pipeline: 1 }).then_some(self.connections);
        let of_process = [
            (figures::FILLED_MEMORY, resident_bytes.and_then(number)),
            (figures::LOADED_MEMORY, probes.loaded_bytes.and_then(number)),
            (figures::SWITCHES, probes.switches_per_request),
            // Requests that were sent again: their kept connection closed before a byte of the answer.
            ("retried", number(counts.retried)),
            // Connections that replaced one that the server closed between requests.
            ("reconnects", number(counts.reconnects)),
        ];
        let closed_loop = sum.figures(self.server_cores.count(), connections);
        Ok(figures::known(of_process).chain(closed_loop).chain(latency).collect())
    }

    pub(crate) fn load(&self, contestant: &Contestant, process: &Process) -> Load {
        let traffic = if contestant.keeps_entities { &self.traffic } else { &self.limit_traffic };
        Load::new(process.addr, traffic.clone()).with(|load| {
            load.connections = self.connections;
            load.threads = self.client_cores.count().min(self.connections);
            load.cores = self.client_cores.numbers().to_vec();
            (load.usage, load.arrivals) = (self.usage, self.arrivals);
            // Servers of the catalog announce a close, and then close. Others should (RFC 9112, section 9.6), and a reference does not:
            // the load generator closes the connection.
            load.must_close = contestant.keeps_entities && contestant.launch.address == AddressFrom::Json;
            load.timeout += contestant.wait;
            load.stop = self.stop.clone();
            load.tls.clone_from(&contestant.tls);
        })
    }

    fn latency(&self, load: Load, rate: f64, ramp: Duration, counts: &mut LoadCounts) -> Result<NamedFigures, Absence> {
        let report = run(&load.with(|l| {
            l.pace = Pace::Rate(rate);
            l.warm_up = ramp;
            l.length = RunLength::Time(self.latency_slice);
        }))?;
        counts.add(&report);
        // Without an answer, no quantile is known: each is the worst.
        let quantile = |quantile: f64| (!report.latency.is_empty()).then(|| microseconds(&report.latency, quantile));
        let cpu_us = report.server_cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / report.answered as f64);
        let lateness_us = report.lateness.as_ref().map_or(0.0, |late| microseconds(late, 0.99));
        let all = [
            (figures::RATE_PER_S, Some(rate)),
            (figures::CPU_US_AT_RATE, cpu_us),
            (figures::P50_US, quantile(0.5)),
            (figures::P99_US, quantile(0.99)),
            (figures::P999_US, quantile(0.999)),
            (figures::LATENESS_P99_US, Some(lateness_us)),
            (figures::BEHIND, Some(self.behind_share(&report))),
        ];
        Ok(figures::known(all).collect())
    }

    /// Returns the number of requests that were due in a slice, and not sent by its end because no connection was free. At most
    /// [`concurrent_requests`](Self::concurrent_requests) of the late answers are of requests that were sent in time.
    fn behind(&self, report: &Report) -> u64 {
        let sent = self.concurrent_requests() as u64;
        report.answered_late.saturating_sub(sent) + report.unsent + report.unfinished
    }

    /// Returns [`behind`](Self::behind) as a share of the requests that were due.
    pub(crate) fn behind_share(&self, report: &Report) -> f64 {
        behind_share(self.behind(report), report.latency.len())
    }

    /// Runs `load`, and probes the process twice meanwhile.
    fn run_probed(&self, load: &Load, pid: u32) -> Result<(Report, Probes), Absence> {
        let (over, ended) = channel::<()>();
        let start = Instant::now();
        let probe = move || {
            let _ = self.client_cores.pin(); // without it the probes may take the server's time
            let wait_until = |share: f64| {
                let left = (start + self.warm_up.mul_f64(share)).saturating_duration_since(Instant::now());
                ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout)
            };
            let count_switches = || Some((Instant::now(), proc::context_switches(pid).ok()?));
            let mut probes = (None, None);
            if let Some((before, first)) = Some(wait_until(0.4)).filter(|on| *on).and_then(|_| count_switches())
                && wait_until(0.9)
                && let Some((after, second)) = count_switches()
            {
                // The sum excludes the switches of ended threads. It can be smaller than before, and then means nothing.
                probes.0 = second.checked_sub(first).map(|count| count as f64 / (after - before).as_secs_f64());
                probes.1 = proc::resident(pid).ok().map(|resident| resident.now);
            }
            probes
        };
        thread::scope(|scope| {
            let probe = thread::Builder::new().name("probe".into()).spawn_scoped(scope, probe);
            let report = run(load);
            drop(over);
            let probes = probe.ok().and_then(|probe| probe.join().ok());
            let (report, (switches_per_s, loaded_bytes)) = (report?, probes.unwrap_or_default());
            let per_request = switches_per_s.map(|switches| switches / report.per_second());
            let switches_per_request = per_request.filter(|switches| switches.is_finite());
            Ok((report, Probes { switches_per_request, loaded_bytes }))
        })
    }
}

/// The figures of the probes.
#[derive(Clone, Copy, Debug, Default)]
struct Probes {
    switches_per_request: Option<f64>,
    loaded_bytes: Option<u64>,
}

/// Runs `load`. Returns an absence if one answer is wrong.
pub(crate) fn run(load: &Load) -> Result<Report, Absence> {
    run_watched(load, &mut |_| {})
}

/// [`run`]; calls `watch` about ten times a second.
pub(crate) fn run_watched(load: &Load, watch: &mut dyn FnMut(&LoadProgress)) -> Result<Report, Absence> {
    let report = Absence::unless_right(polyserve_load::run(load, watch)?)?;
    // A slice without an answer is no failure: the machine may have had no time. The client's timeout, or unfinished requests,
    // detect a server that does not answer.
    if report.unfinished > 0 && !load.stop.is_begun() {
        return Err(Absence::wrong(format!("{} requests were never answered", report.unfinished)));
    }
    Ok(report)
}

/// Returns an absence if clients that retry had no right answer, or no further attempt for a request. Such a load has no failures.
fn check_retried(report: &Report) -> Result<(), Absence> {
    match &report.retry {
        Some(retry) if retry.given_up > 0 => {
            let why = format!("{} requests were refused or not answered at each attempt", retry.given_up);
            Err(Absence::wrong(why))
        }
        Some(_) if report.answered + report.answered_late == 0 => Err(Absence::wrong("no request was answered")),
        _ => Ok(()),
    }
}

/// Returns an absence if a server that can hold all connections closed kept ones without announcing it, so that requests had to
/// be sent again. Such a server has no reason to close one.
fn check_kept(contestant: &Contestant, retried: u64) -> Result<(), Absence> {
    if contestant.shape != Some(Shape::Multiplexed) || retried == 0 {
        return Ok(());
    }
    let multiplexed = "though its shape is multiplexed";
    Err(Absence::wrong(format!(
        "it closed kept connections unannounced, {multiplexed}: {retried} requests were sent again"
    )))
}

/// Measures these contestants in round `number`. `rate` returns the rate of the latencies, in requests per second, from the
/// throughputs of the contestants in this round; without a rate, no latencies are measured. Returns one result for each
/// contestant, in the order of `contestants`. The results mean nothing once the instrument's stop has begun.
pub(crate) fn measure_round(
    instrument: &Instrument,
    contestants: &[&Contestant],
    number: usize,
    rate: impl FnOnce(&[Option<f64>]) -> Option<f64>,
    mut begin: impl FnMut(&Contestant),
) -> Vec<Result<NamedFigures, Absence>> {
    let count = contestants.len();
    let is_stopped = || instrument.stop.is_begun();
    let places: Vec<usize> = (0..count).collect();
    let in_turn = || interleaved(number, &places);
    let mut sessions: Vec<Result<ContestantSession<'_>, Absence>> =
        (0..count).map(|_| Err(Absence::failed("the run was stopped"))).collect();
    for place in in_turn().into_iter().take_while(|_| !is_stopped()) {
        begin(contestants[place]);
        sessions[place] = instrument.start(contestants[place], number);
    }
    // The passes of all rounds are one series: only then each contestant follows each other one equally often.
    let wait = contestants.iter().map(|one| one.wait).max().unwrap_or_default();
    let slices = instrument.slices(wait);
    let first = number.saturating_sub(1) * slices;
    for place in (first..first + slices).flat_map(|pass| order(pass, count)).take_while(|_| !is_stopped()) {
        run_step(&mut sessions[place], |session| instrument.measure(session));
    }
    let throughput = |session: &Result<ContestantSession<'_>, Absence>| Some(session.as_ref().ok()?.requests_per_s());
    let throughputs: Vec<Option<f64>> = sessions.iter().map(throughput).collect();
    if let Some(rate) = rate(&throughputs) {
        for place in in_turn().into_iter().take_while(|_| !is_stopped()) {
            run_step(&mut sessions[place], |session| instrument.take_latency(session, rate));
        }
    }
    sessions.into_iter().map(|session| session.and_then(|session| instrument.end(session))).collect()
}

/// Measures a session that has not failed.
fn run_step<'a>(
    session: &mut Result<ContestantSession<'a>, Absence>,
    step: impl FnOnce(&mut ContestantSession<'a>) -> Result<(), Absence>,
) {
    if let Ok(running) = session
        && let Err(absence) = step(running)
    {
        *session = Err(absence);
    }
}

#[cfg(test)]
mod tests;
