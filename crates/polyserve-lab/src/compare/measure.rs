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

use hdrhistogram::Histogram;
use polyserve::{Connections, Shutdown};
use polyserve_load::{CpuOf, Load, LoadError, Pace, Report, Span, Traffic, Usage, prefill};
use serde::{Deserialize, Serialize};

use super::contestant::Contestant;
use super::cores::Cores;
use super::launch::AddressFrom;
use super::proc::{self, Spent};
use super::process::{Failure, Process};

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
    /// What is asked of the limits.
    pub limit_traffic: Traffic,
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

/// What a slice begins with and does not count: new connections have their first requests.
const RAMP: Duration = Duration::from_millis(5);

/// What a turn has shown.
#[derive(Clone, Debug, Serialize)]
pub struct Turn {
    /// Right answers in closed loop.
    pub answered: u64,
    /// How long that took, in seconds.
    pub elapsed_s: f64,
    /// Right answers a second.
    pub requests_per_s: f64,
    /// Right answers for each second of the server's CPU time.
    pub requests_per_cpu_s: Option<f64>,
    /// The server's CPU time, in seconds.
    pub server_cpu_s: Option<f64>,
    /// The client's CPU time, in seconds.
    pub client_cpu_s: f64,
    /// The server's CPU time as a share of its cores' time.
    pub server_busy: Option<f64>,
    /// The client's CPU time as a share of its threads' time.
    pub client_busy: f64,
    /// For how many seconds nobody wanted the server's cores.
    pub server_idle_s: Option<f64>,
    /// For how many seconds nobody wanted the client's cores.
    pub client_idle_s: Option<f64>,
    /// Context switches of the server's threads for each request, during the verifying load.
    pub switches_per_request: Option<f64>,
    /// Resident memory before the first connection, in bytes.
    pub resident_bytes: Option<u64>,
    /// Resident memory with all connections open, in bytes.
    pub loaded_bytes: Option<u64>,
    /// The latency at a fixed rate.
    pub latency: Option<Latency>,
}

/// Latencies from the intended start, at a fixed rate.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// Requests a second that were due.
    pub rate: f64,
    /// Requests that were due and not sent, or not answered, in the slice.
    pub behind: u64,
    /// Median, in microseconds.
    pub p50_us: f64,
    /// 99 %, in microseconds.
    pub p99_us: f64,
    /// 99.9 %, in microseconds.
    pub p999_us: f64,
    /// How late the load generator itself was, 99 %, in microseconds.
    pub lateness_p99_us: f64,
    /// All of them, in nanoseconds.
    #[serde(skip)]
    pub histogram: Histogram<u64>,
}

/// A quantile in microseconds.
pub fn microseconds(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile) as f64 / 1000.0
}

/// A turn under way: the contestant's process, and what it has shown so far.
#[derive(Debug)]
pub struct Seat<'a> {
    contestant: &'a Contestant,
    process: Process,
    load: Load,
    /// Right answers of all kinds, at least.
    answers: u64,
    resident_bytes: Option<u64>,
    look: Look,
    sum: Sum,
    latency: Option<Latency>,
}

/// The measured slices together.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    answered: u64,
    elapsed_s: f64,
    server_cpu_s: Option<f64>,
    client_cpu_s: f64,
    client_busy_s: f64,
    server_idle_s: f64,
    client_idle_s: f64,
}

impl Sum {
    fn add(&mut self, report: &Report) {
        let elapsed_s = report.elapsed.as_secs_f64();
        let before = if self.elapsed_s == 0.0 { Some(0.0) } else { self.server_cpu_s };
        self.server_cpu_s = before.zip(report.server_cpu).map(|(sum, cpu)| sum + cpu.as_secs_f64());
        self.answered += report.answered;
        self.elapsed_s += elapsed_s;
        self.client_cpu_s += report.client_cpu.as_secs_f64();
        self.client_busy_s += report.client_busy * elapsed_s;
    }
}

impl Instrument {
    /// How many slices a turn is measured in.
    pub fn slices(&self) -> usize {
        (self.slice.as_millis() / SHORTEST_SLICE.as_millis()).clamp(1, 1000) as usize
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
    pub fn start<'a>(&self, contestant: &'a Contestant) -> Result<Seat<'a>, Failure> {
        let process = Process::start(&contestant.launch, &self.server_cores)?;
        let load = self.load(contestant, &process);
        let (resident_bytes, look) = (None, Look::default());
        let (sum, latency) = (Sum::default(), None);
        let mut seat = Seat { contestant, process, load, answers: 0, resident_bytes, look, sum, latency };
        let verified = self.verify(&mut seat);
        verified.map_err(|failure| seat.process.explain(failure))?;
        Ok(seat)
    }

    fn verify(&self, seat: &mut Seat<'_>) -> Result<(), Failure> {
        let Load { target, host, traffic, .. } = &seat.load;
        if seat.contestant.role.keeps_entities() {
            seat.answers += prefill(*target, host, traffic).map_err(|error| unfit(&error))?;
        }
        let pid = seat.process.pid();
        seat.resident_bytes = proc::resident(pid).ok().map(|resident| resident.now);
        let verifying = seat.load.clone().with(|load| load.span = Span::Time(self.warm_up));
        let (verified, look) = self.looked_into(&verifying, pid)?;
        seat.look = look;
        seat.answers += verified.answered;
        Ok(())
    }

    /// Measures one of the turn's slices.
    ///
    /// # Errors
    ///
    /// Why the contestant is out.
    pub fn measure(&self, seat: &mut Seat<'_>) -> Result<(), Failure> {
        let load = seat.load.clone().with(|load| {
            load.warm_up = RAMP;
            load.span = Span::Time(self.slice / self.slices() as u32);
            load.cpu = CpuOf::Process(seat.process.pid());
        });
        let spent = || [&self.server_cores, &self.client_cores].map(|cores| Spent::on(cores.numbers()));
        let before = spent();
        let report = run(&load).map_err(|failure| seat.process.explain(failure))?;
        seat.answers += report.answered;
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
    pub fn take_latency(&self, seat: &mut Seat<'_>, rate: f64) -> Result<(), Failure> {
        if seat.contestant.shape == Some(Connections::One) {
            return Ok(());
        }
        let latency = self.latency(&seat.load, rate, &mut seat.answers);
        seat.latency = Some(latency.map_err(|failure| seat.process.explain(failure))?);
        Ok(())
    }

    /// Ends a turn, and the process.
    ///
    /// # Errors
    ///
    /// Why the contestant is out.
    pub fn end(&self, seat: Seat<'_>) -> Result<Turn, Failure> {
        let Seat { contestant, process, answers, resident_bytes, look, sum, latency, .. } = seat;
        let said = process.end()?;
        if contestant.launch.address == AddressFrom::Json && !self.stop.is_begun() {
            check_drain(said.as_deref(), answers)?;
        }
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
            latency,
        })
    }

    fn load(&self, contestant: &Contestant, process: &Process) -> Load {
        let traffic = if contestant.role.keeps_entities() { &self.traffic } else { &self.limit_traffic };
        Load::new(process.addr(), traffic.clone()).with(|load| {
            load.connections = self.connections;
            load.threads = self.client_cores.count().min(self.connections);
            load.cores = self.client_cores.numbers().to_vec();
            load.usage = self.usage;
            load.stop = self.stop.clone();
        })
    }

    fn latency(&self, load: &Load, rate: f64, answers: &mut u64) -> Result<Latency, Failure> {
        let report = run(&load.clone().with(|l| {
            l.pace = Pace::Rate(rate);
            l.warm_up = RAMP;
            l.span = Span::Time(self.latency_slice);
        }))?;
        *answers += report.answered;
        Ok(Latency {
            rate,
            behind: report.unsent + report.unfinished,
            p50_us: microseconds(&report.latency, 0.5),
            p99_us: microseconds(&report.latency, 0.99),
            p999_us: microseconds(&report.latency, 0.999),
            lateness_p99_us: report.lateness.as_ref().map_or(0.0, |late| microseconds(late, 0.99)),
            histogram: report.latency,
        })
    }

    /// Runs `load`, and looks at the process twice meanwhile.
    fn looked_into(&self, load: &Load, pid: u32) -> Result<(Report, Look), Failure> {
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
fn run(load: &Load) -> Result<Report, Failure> {
    let report = polyserve_load::run(load, &mut |_| {}).map_err(|error| unfit(&error))?;
    // A slice without an answer is clean too: the machine may have had no time for us. A server that keeps silent is
    // told by the client's patience.
    if report.failed.total() == 0 {
        return Ok(report);
    }
    let (failed, first) = (report.failed.total(), report.first_failure.as_deref().unwrap_or("no reason is known"));
    Err(Failure(format!("{failed} of its answers were not right, the first: {first}")))
}

fn unfit(error: &LoadError) -> Failure {
    Failure(error.to_string())
}

/// How a server of ours ended.
#[derive(Deserialize)]
struct Drained {
    answered: u64,
    cut: u64,
    stuck: u64,
}

/// Nobody asked for anything any more, so nothing was to be cut; and every answer that was seen has been given.
fn check_drain(said: Option<&str>, answers: u64) -> Result<(), Failure> {
    match said.map(serde_json::from_str) {
        Some(Ok(Drained { answered, cut: 0, stuck: 0 })) if answered >= answers => Ok(()),
        Some(Ok(Drained { answered, cut, stuck })) => {
            let ended = format!("answered {answered}, cut {cut}, stuck {stuck}");
            Err(Failure(format!("it ended with {ended} where the client has {answers} answers or more")))
        }
        Some(Err(_)) | None => Err(Failure(format!("it did not say how it ended, but {said:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_good_where_nothing_was_cut_and_all_is_counted() {
        check_drain(Some(r#"{"answered":10,"cut":0,"stuck":0}"#), 9).unwrap();
        for (said, why) in [
            (Some(r#"{"answered":8,"cut":0,"stuck":0}"#), "9 answers or more"),
            (Some(r#"{"answered":10,"cut":1,"stuck":0}"#), "cut 1"),
            (Some(r#"{"answered":10,"cut":0,"stuck":1}"#), "stuck 1"),
            (Some("bye"), "bye"),
            (None, "did not say"),
        ] {
            let Failure(text) = check_drain(said, 9).unwrap_err();
            assert!(text.contains(why), "{text}");
        }
    }
}
