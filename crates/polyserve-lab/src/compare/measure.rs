//! One turn of one contestant: a new process, verified, measured in closed loop and at a fixed rate, and ended.
//!
//! A turn is start; prefill; a verified load that warms up and is looked into (context switches, memory); the same load
//! measured, in short slices between which others have theirs; a load at a fixed rate for the latency; the end. The
//! looks are not in the measured part, for they take the client's time.
//!
//! Invariant: one answer that is not right, or a process that does not end well, and there is no figure at all. Cost:
//! the slices, and about 50 ms.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use polyserve::{Connections, Shutdown};
use polyserve_load::{CpuSource, Load, Pace, Progress, Report, RunLength, Traffic, Usage, prefill_for};

use super::contestant::Contestant;
use super::turn::{Latency, Sum, Turn, coarse, microseconds};
use crate::experiment::Absence;
use crate::launch::AddressFrom;
use crate::launch::drain::check_drain;
use crate::launch::process::{Failure, Process};
use crate::machine::cores::Cores;
use crate::machine::proc::{self, Spent};

/// How turns are taken: alike for all.
#[derive(Clone, Debug)]
pub struct Instrument {
    /// The cores of the servers.
    pub server_cores: Cores,
    /// The cores of the load generator.
    pub client_cores: Cores,
    /// Connections at a time.
    pub connections: usize,
    /// How they are used.
    pub usage: Usage,
    /// What is asked of those who keep entities.
    pub traffic: Traffic,
    /// What is asked of the references, which answer anything alike: requests of the same sizes.
    pub limit_traffic: Traffic,
    /// What is asked, in words.
    pub asked: String,
    /// The load that verifies and warms up.
    pub warm_up: Duration,
    /// The measured part.
    pub slice: Duration,
    /// The part at a fixed rate.
    pub latency_slice: Duration,
    /// Begun where the run is to end now.
    pub stop: Shutdown,
}

/// A turn is measured in slices of this length at least: long enough that what a slice begins with does not count much,
/// short enough that whatever else the machine does falls on all contestants alike.
const SHORTEST_SLICE: Duration = Duration::from_millis(50);

/// And of so much for each request that is under way at a time, so that every connection has several turns in a slice; but
/// it need be no longer than this.
const SLICE_PER_REQUEST: Duration = Duration::from_micros(10);
const LONG_SLICE: Duration = Duration::from_secs(1);

/// What a slice begins with and does not count: new connections have their first requests. A tenth of a longer slice.
const RAMP: Duration = Duration::from_millis(5);

/// Where every answer waits, a slice holds so many waits of a connection at least, and begins with one and a half: so its
/// end falls between two answers.
const WAITS: u32 = 5;
const RAMP_WAITS: f64 = 1.5;

/// What a slice begins with and does not count, where every answer waits so long.
fn ramp(wait: Duration) -> Duration {
    RAMP.max(wait.mul_f64(RAMP_WAITS))
}

/// A turn under way: the contestant's process, and what it has shown so far.
#[derive(Debug)]
pub struct Seat<'a> {
    contestant: &'a Contestant,
    process: Process,
    load: Load,
    seen: Seen,
    resident_bytes: Option<u64>,
    look: Look,
    sum: Sum,
    latency: Option<Latency>,
}

/// What the loads of a turn have seen together.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Right answers of all kinds, at least.
    answers: u64,
    retried: u64,
    reconnects: u64,
}

impl Seen {
    fn add(&mut self, report: &Report) {
        self.answers += report.answered;
        self.retried += report.retried;
        self.reconnects += report.reconnects;
    }
}

impl Instrument {
    /// How many slices a turn is measured in, where every answer waits so long.
    pub fn slices(&self, wait: Duration) -> usize {
        (self.slice.as_millis() / self.shortest_slice(wait).as_millis()).clamp(1, 1000) as usize
    }

    /// How long a slice must be with so many requests under way, each of which waits so long.
    pub fn shortest_slice(&self, wait: Duration) -> Duration {
        let under_way = u32::try_from(self.under_way()).unwrap_or(u32::MAX);
        SLICE_PER_REQUEST.saturating_mul(under_way).clamp(SHORTEST_SLICE, LONG_SLICE).max(wait * WAITS)
    }

    /// Requests that are under way at a time.
    fn under_way(&self) -> usize {
        let pipeline = if let Usage::KeepAlive { pipeline } = self.usage { pipeline } else { 1 };
        self.connections.saturating_mul(pipeline)
    }

    /// Every core that is used, once.
    pub fn cores(&self) -> Vec<usize> {
        let mut cores = [self.server_cores.numbers(), self.client_cores.numbers()].concat();
        cores.sort_unstable();
        cores.dedup();
        cores
    }

    /// Starts a turn: the process, what it must store, and the load that verifies it, warms it up and looks into it.
    ///
    /// # Errors
    ///
    /// Why the contestant is out. It means nothing once [`stop`](Self::stop) has begun; so with all others.
    pub fn start<'a>(&self, contestant: &'a Contestant) -> Result<Seat<'a>, Absence> {
        let process = Process::start(&contestant.launch, &self.server_cores)?;
        let load = self.load(contestant, &process);
        let (resident_bytes, look) = (None, Look::default());
        let (sum, latency) = (Sum::default(), None);
        let mut seat = Seat { contestant, process, load, seen: Seen::default(), resident_bytes, look, sum, latency };
        let verified = self.verify(&mut seat);
        verified.map_err(|absence| absence.explained(&mut seat.process))?;
        Ok(seat)
    }

    fn verify(&self, seat: &mut Seat<'_>) -> Result<(), Absence> {
        if seat.contestant.keeps_entities {
            seat.seen.answers += prefill_for(&seat.load)?;
        }
        let pid = seat.process.pid();
        seat.resident_bytes = proc::resident(pid).ok().map(|resident| resident.now);
        let verifying = seat.load.clone().with(|load| load.length = RunLength::Time(self.warm_up));
        let (verified, look) = self.looked_into(&verifying, pid)?;
        seat.look = look;
        seat.seen.add(&verified);
        Ok(())
    }

    /// Measures one of the turn's slices.
    ///
    /// # Errors
    ///
    /// Why the contestant is out.
    pub fn measure(&self, seat: &mut Seat<'_>) -> Result<(), Absence> {
        let load = seat.load.clone().with(|load| {
            let wait = seat.contestant.wait;
            load.warm_up = ramp(wait).max(self.shortest_slice(wait) / 10);
            load.length = RunLength::Time(self.slice / self.slices(wait) as u32);
            load.cpu = CpuSource::Process(seat.process.pid());
        });
        let spent = || [&self.server_cores, &self.client_cores].map(|cores| Spent::on(cores.numbers()));
        let before = spent();
        let report = run(&load).map_err(|absence| absence.explained(&mut seat.process))?;
        seat.seen.add(&report);
        seat.sum.add(&report);
        let after = spent();
        let idle =
            |side: usize| after[side].zip(before[side]).map_or(f64::NAN, |(after, before)| after.idle_since(&before));
        seat.sum.server_idle_s += idle(0);
        seat.sum.client_idle_s += idle(1);
        Ok(())
    }

    /// Takes the latency at `rate` requests a second. Nobody asks for it where one connection is served at a time.
    ///
    /// # Errors
    ///
    /// Why the contestant is out.
    pub fn take_latency(&self, seat: &mut Seat<'_>, rate: f64) -> Result<(), Absence> {
        if seat.contestant.shape == Some(Connections::One) {
            return Ok(());
        }
        let latency = self.latency(&seat.load, rate, ramp(seat.contestant.wait), &mut seat.seen);
        seat.latency = Some(latency.map_err(|absence| absence.explained(&mut seat.process))?);
        Ok(())
    }

    /// Ends a turn, and the process.
    ///
    /// # Errors
    ///
    /// Why the contestant is out.
    pub fn end(&self, seat: Seat<'_>) -> Result<Turn, Absence> {
        let Seat { contestant, process, seen, resident_bytes, look, sum, latency, .. } = seat;
        let said = process.end().map_err(|Failure(why)| Absence::wrong(why))?;
        if contestant.launch.address == AddressFrom::Json && !self.stop.is_begun() {
            check_drain(said.as_deref(), seen.answers)?;
        }
        check_kept(contestant, seen.retried)?;
        let Sum { answered, elapsed_s, server_cpu_s, client_cpu_s, client_busy_s, server_idle_s, client_idle_s } = sum;
        let number = |ratio: f64| Some(ratio).filter(|ratio| ratio.is_finite());
        let positive = |ratio: f64| number(ratio).filter(|ratio| *ratio > 0.0);
        Ok(Turn {
            answered,
            elapsed_s,
            requests_per_s: positive(answered as f64 / elapsed_s).unwrap_or(0.0),
            requests_per_cpu_s: server_cpu_s.and_then(|cpu| positive(answered as f64 / cpu)),
            server_cpu_s,
            client_cpu_s,
            server_busy: server_cpu_s.and_then(|cpu| number(cpu / elapsed_s / self.server_cores.count() as f64)),
            client_busy: number(client_busy_s / elapsed_s).unwrap_or(0.0),
            server_idle_s: number(server_idle_s),
            client_idle_s: number(client_idle_s),
            switches_per_request: look.switches_per_request,
            resident_bytes,
            loaded_bytes: look.loaded_bytes,
            retried: seen.retried,
            reconnects: seen.reconnects,
            latency,
        })
    }

    fn load(&self, contestant: &Contestant, process: &Process) -> Load {
        let traffic = if contestant.keeps_entities { &self.traffic } else { &self.limit_traffic };
        Load::new(process.addr(), traffic.clone()).with(|load| {
            load.connections = self.connections;
            load.threads = self.client_cores.count().min(self.connections);
            load.cores = self.client_cores.numbers().to_vec();
            load.usage = self.usage;
            // A reference knows nothing of closing: the load generator does it then.
            load.must_close = contestant.keeps_entities;
            load.stop = self.stop.clone();
        })
    }

    fn latency(&self, load: &Load, rate: f64, ramp: Duration, seen: &mut Seen) -> Result<Latency, Absence> {
        let report = run(&load.clone().with(|l| {
            l.pace = Pace::Rate(rate);
            l.warm_up = ramp;
            l.length = RunLength::Time(self.latency_slice);
        }))?;
        seen.add(&report);
        Ok(Latency {
            rate,
            behind: self.behind(&report),
            p50_us: microseconds(&report.latency, 0.5),
            p99_us: microseconds(&report.latency, 0.99),
            p999_us: microseconds(&report.latency, 0.999),
            lateness_p99_us: report.lateness.as_ref().map_or(0.0, |late| microseconds(late, 0.99)),
            histogram: coarse(&report.latency),
        })
    }

    /// Requests that were due in a slice and for which no connection was free by its end. One that was sent is not behind:
    /// there are at most as many of those as fit the connections.
    fn behind(&self, report: &Report) -> u64 {
        let sent = self.under_way() as u64;
        report.answered_late.saturating_sub(sent) + report.unsent + report.unfinished
    }

    /// Runs `load`, and looks at the process twice meanwhile.
    fn looked_into(&self, load: &Load, pid: u32) -> Result<(Report, Look), Absence> {
        let (over, ended) = channel::<()>();
        let start = Instant::now();
        let looking = move || {
            let _ = self.client_cores.pin(); // at worst it takes the server's time
            let wait = |share: f64| {
                let left = (start + self.warm_up.mul_f64(share)).saturating_duration_since(Instant::now());
                ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout)
            };
            let at = || Some((Instant::now(), proc::context_switches(pid).ok()?));
            let mut look = (None, None);
            if let Some((before, first)) = Some(wait(0.4)).filter(|on| *on).and_then(|_| at())
                && wait(0.9)
                && let Some((after, second)) = at()
            {
                // A thread that has ended took its switches away: then the sum says nothing.
                look.0 = second.checked_sub(first).map(|count| count as f64 / (after - before).as_secs_f64());
                look.1 = proc::resident(pid).ok().map(|resident| resident.now);
            }
            look
        };
        thread::scope(|scope| {
            let looking = thread::Builder::new().name("look".into()).spawn_scoped(scope, looking);
            let report = run(load);
            drop(over);
            let look = looking.ok().and_then(|looking| looking.join().ok());
            let (report, (switches_per_s, loaded_bytes)) = (report?, look.unwrap_or_default());
            let per_request = switches_per_s.map(|switches| switches / report.per_second());
            let switches_per_request = per_request.filter(|switches| switches.is_finite());
            Ok((report, Look { switches_per_request, loaded_bytes }))
        })
    }
}

/// What was seen while a load ran.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    switches_per_request: Option<f64>,
    loaded_bytes: Option<u64>,
}

/// Runs `load`; a single answer that is not right is a failure.
pub(crate) fn run(load: &Load) -> Result<Report, Absence> {
    run_watched(load, &mut |_| {})
}

/// [`run`], with what is done about ten times a second meanwhile.
pub(crate) fn run_watched(load: &Load, watch: &mut dyn FnMut(&Progress)) -> Result<Report, Absence> {
    let report = polyserve_load::run(load, watch)?;
    // A slice without an answer is clean too: the machine may have had no time for us. A server that keeps silent is
    // told by the client's patience, or by what it left unfinished.
    let (failed, first) = (report.failed.total(), report.first_failure.as_deref().unwrap_or("no reason is known"));
    if failed > 0 {
        return Err(Absence::wrong(format!("{failed} of its answers were not right, the first: {first}")));
    }
    if report.unfinished > 0 && !load.stop.is_begun() {
        return Err(Absence::wrong(format!("{} requests were never answered", report.unfinished)));
    }
    Ok(report)
}

/// A server that can hold all connections has no reason to close one that is kept and says nothing of an end: what it
/// is asked next must be sent again.
fn check_kept(contestant: &Contestant, retried: u64) -> Result<(), Absence> {
    if contestant.shape != Some(Connections::Multiplexed) || retried == 0 {
        return Ok(());
    }
    let multiplexed = "though its shape is multiplexed";
    Err(Absence::wrong(format!(
        "it closed kept connections unannounced, {multiplexed}: {retried} requests were sent again"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::contestant::Role;
    use crate::launch::Launch;

    /// Whoever closes kept connections has its clients ask twice, and is spared the work of many connections.
    #[test]
    fn who_can_hold_all_connections_closes_none() {
        let launch = Launch { program: "any".into(), args: Vec::new(), env: Vec::new(), address: AddressFrom::Json };
        let contestant = |shape| Contestant::new("any", Role::Ranked, launch.clone()).with(|one| one.shape = shape);
        let absence = check_kept(&contestant(Some(Connections::Multiplexed)), 3).unwrap_err();
        assert!(absence.why.contains("3 requests were sent again") && absence.is_wrong(), "{absence:?}");
        check_kept(&contestant(Some(Connections::Multiplexed)), 0).unwrap();
        for shape in [None, Some(Connections::OnePerThread), Some(Connections::One)] {
            check_kept(&contestant(shape), 3).unwrap();
        }
    }
}
