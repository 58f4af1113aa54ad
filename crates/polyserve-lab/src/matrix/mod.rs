//! The first experiment: an entity server under a connection for every request, its pool's size against the connections.
//!
//! A cell is one server with one pool under one number of connections, asked to GET one id or to PUT it. All contestants
//! take a cell in turn before the next one begins, so that a machine that drifts does so for all. The first of them is
//! entered twice: what differs between the two is noise, and the claims are judged by it.
//!
//! Invariant: every answer of a cell was verified, and the server says in the end that it gave exactly as many; otherwise
//! there is no figure. Cost: a process each, a warm-up, the requests, and a look at the process every 100 ms, taken on the
//! client's cores.

pub mod claims;
mod csv;
mod judge;
pub mod plan;
mod published;
mod seen;
pub mod table;

use std::net::SocketAddr;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use polyserve::Shutdown;
use polyserve::sync::lock;
use polyserve_load::data::{Data, Draw};
use polyserve_load::{CpuOf, Exchange, Load, LoadError, Progress, Report, Span, Traffic, Usage, run};
use serde::{Deserialize, Serialize};

use crate::compare::measure::check_drain;
use crate::compare::turn::microseconds;
use crate::launch::Launch;
use crate::launch::process::{Failure, Process};
use crate::machine::cores::Cores;
use crate::machine::proc::{self, Resident};

pub use self::csv::write as write_csv;

/// The experiment's name: of its file, and of its claims.
pub const NAME: &str = "matrix";

/// What is asked of every server.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The servers' cores.
    pub server_cores: Cores,
    /// The client's cores.
    pub client_cores: Cores,
    /// Requests of a cell.
    pub requests: u64,
    /// Begun where the run is to end now.
    pub stop: Shutdown,
}

/// Who takes part: the columns that say so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contestant {
    /// Its name: `pool_server/mpsc_pool/two_level`, `go/twin-rwmutex`.
    pub contestant: String,
    /// What it is written in: `rust` or `go`.
    pub lang: String,
    /// How its connections become work.
    pub server: String,
    /// On what; empty where the server is of one piece.
    pub executor: String,
    /// How its data is shared.
    pub repo: String,
    /// How it was built, or which of its kind it is.
    pub variant: String,
    /// Whether it is the first one once more.
    pub control: bool,
}

/// Who takes part, and how it is started with each size of its pool.
#[derive(Clone, Debug)]
pub struct Entrant {
    /// Who.
    pub contestant: Contestant,
    /// Each size, and the process; one without a size where it cannot be chosen.
    pub pools: Vec<(Option<usize>, Launch)>,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// `GET /1`.
    Get,
    /// `PUT /`, of a new value for the id 1.
    Put,
}

impl Method {
    /// Its name, as in file names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
        }
    }
}

/// What tells a cell from all others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The contestant's name.
    pub contestant: String,
    /// Whether it is the first one once more.
    pub control: bool,
    /// What was asked.
    pub method: Method,
    /// Connections at a time.
    pub connections: usize,
    /// The size of the pool.
    pub pool_size: Option<usize>,
    /// Which repetition; the first is 1.
    pub round: u32,
}

/// A measured cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Who.
    #[serde(flatten)]
    pub who: Contestant,
    /// What was asked.
    pub method: Method,
    /// The size of its pool, where it can be chosen.
    pub pool_size: Option<usize>,
    /// Requests, each on a connection of its own.
    pub requests: u64,
    /// Connections at a time.
    pub connections: usize,
    /// Which repetition; the first is 1.
    pub round: u32,
    /// The server's processor time, user and system, in per cent of the run's time: 100 is one core.
    pub avg_cpu_pct: f64,
    /// The most of it within 100 ms; none where there were fewer than 5 samples.
    pub max_cpu_pct: Option<f64>,
    /// The server's resident memory, in per cent of the machine's: the mean of what was seen.
    pub avg_mem_pct: f64,
    /// The most of what was seen; none where there were fewer than 5 samples.
    pub max_mem_pct: Option<f64>,
    /// From the first connect to the last answer.
    pub total_s: f64,
    /// `total_s` x connections / requests: the mean time of a request, as it was published.
    pub per_request_ms: f64,
    /// Bytes of HTTP that the client read, in 1024 a second.
    #[serde(rename = "received_kB_s")]
    pub received_kb_s: f64,
    /// Bytes of HTTP that it wrote. The published figure is of requests with a body alone: 0 for a GET.
    #[serde(rename = "sent_kB_s")]
    pub sent_kb_s: f64,
    /// Mean time from when a connect began until the connection was established.
    pub connect_ms: f64,
    /// Mean time from then until the answer's last byte was read.
    pub processing_ms: f64,
    /// Right answers a second.
    pub requests_per_s: f64,
    /// The median of what `connect_ms` is the mean of.
    pub connect_p50_ms: f64,
    /// The median of what `processing_ms` is the mean of.
    pub processing_p50_ms: f64,
    /// And 99 % of it.
    pub processing_p99_ms: f64,
    /// The server's processor time for each request.
    pub server_cpu_us_per_request: f64,
    /// The client's processor time as a share of its threads' time: at 100 it was the bottleneck.
    pub client_busy_pct: f64,
    /// The server's resident memory: the mean of what was seen, in 1024 bytes.
    #[serde(rename = "avg_resident_kB")]
    pub avg_resident_kb: f64,
    /// The most of it.
    #[serde(rename = "max_resident_kB")]
    pub max_resident_kb: f64,
    /// What of `avg_resident_kB` is of no file, heaps and stacks, where the system tells it apart: all of our servers are one
    /// large program, whose pages count as theirs.
    #[serde(rename = "avg_anonymous_kB")]
    pub avg_anonymous_kb: Option<f64>,
    /// How often the process was looked at.
    pub samples: usize,
    /// Answers that the server says it gave, those of the warm-up too. The client had as many.
    pub server_answered: u64,
}

impl Cell {
    /// The `kind` of its line.
    pub const KIND: &str = "cell";

    /// Which one it is.
    pub fn key(&self) -> Key {
        Key {
            contestant: self.who.contestant.clone(),
            control: self.who.control,
            method: self.method,
            connections: self.connections,
            pool_size: self.pool_size,
            round: self.round,
        }
    }
}

/// A cell without figures, or a contestant without cells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Who.
    #[serde(flatten)]
    pub who: Contestant,
    /// Which cell; none where it takes no part at all.
    pub cell: Option<FailedCell>,
    /// Why.
    pub why: String,
}

/// Which cell has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedCell {
    /// What was asked.
    pub method: Method,
    /// Connections at a time.
    pub connections: usize,
    /// The size of the pool, where it can be chosen.
    pub pool_size: Option<usize>,
    /// Which repetition.
    pub round: u32,
}

impl Failed {
    /// The `kind` of its line.
    pub const KIND: &str = "failure";
}

/// What is asked in one cell.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// What.
    pub method: Method,
    /// Connections at a time.
    pub connections: usize,
    /// Which repetition.
    pub round: u32,
}

/// The one id that is asked for.
const ID: i64 = 1;
/// The seed of its rows.
const SEED: u64 = 0;
/// A maximum of fewer samples says nothing.
const LEAST_SAMPLES: usize = 5;
/// The most requests of a warm-up.
const LONGEST_WARM_UP: u64 = 5000;
/// How long an answer may take: a thousand may be waited for.
const PATIENCE: Duration = Duration::from_secs(30);

impl Experiment {
    /// Measures a cell.
    ///
    /// # Errors
    ///
    /// Why it has no figures. It means nothing once [`stop`](Self::stop) has begun.
    pub fn cell(
        &self,
        who: &Contestant,
        (pool_size, launch): (Option<usize>, &Launch),
        point: Point,
    ) -> Result<Cell, Failure> {
        let mut process = Process::start(launch, &self.server_cores)?;
        let server = (process.addr(), process.pid());
        let taken = self.on_client_cores(|| self.take(server, point)).map_err(|failure| process.explain(failure))?;
        let said = process.end()?;
        let mut answers = taken.answers;
        if !self.stop.is_begun() {
            let server = check_drain(said.as_deref(), answers)?;
            if server != answers {
                return Err(Failure(format!(
                    "it says that it gave {server} answers, and the client has had {answers}"
                )));
            }
            answers = server;
        }
        taken.cell(who, pool_size, point, answers)
    }

    /// Does it on a thread on the client's cores: the server has its own to itself.
    fn on_client_cores<T: Send>(&self, act: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
        let pinned = || {
            self.client_cores.pin().map_err(|error| Failure(format!("the client cannot be pinned: {error}")))?;
            act()
        };
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("cell".into()).spawn_scoped(scope, pinned);
            let thread = thread.map_err(|error| Failure(format!("no thread for the client: {error}")))?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn take(&self, server: (SocketAddr, u32), point: Point) -> Result<Taken, Failure> {
        let data = Data::new(SEED);
        let [first, update] = [Draw::New, Draw::FirstUpdate].map(|draw| data.row(ID, draw).to_json());
        let once = |exchange| clean(&self.load(server, exchange, 1, 1)?);
        once(put(&first, 201))?;
        let exchange = match point.method {
            Method::Get => get(&first),
            Method::Put => put(&update, 200),
        };
        let warm_up = (self.requests / 20).clamp(1, LONGEST_WARM_UP).max(point.connections as u64);
        let warmed = clean(&self.load(server, exchange.clone(), point.connections, warm_up)?)?;
        let load = self.load(server, exchange, point.connections, self.requests)?;
        let (_, pid) = server;
        let samples = Mutex::new(Samples::default());
        lock(&samples).look(None, pid);
        let report = clean_watched(&load, &mut |progress| lock(&samples).look(progress.server_cpu, pid))?;
        lock(&samples).look(None, pid);
        let mut answers = 1 + warmed.answered + report.answered;
        if point.method == Method::Put {
            once(get(&update))?; // the store has what was put, not what it began with
            answers += 1;
        }
        let samples = samples.into_inner().unwrap_or_default();
        Ok(Taken { report, samples, answers })
    }

    fn load(
        &self,
        (addr, pid): (SocketAddr, u32),
        exchange: Exchange,
        connections: usize,
        requests: u64,
    ) -> Result<Load, Failure> {
        let traffic = Traffic::expecting(vec![exchange]).map_err(failure)?;
        Ok(Load::new(addr, traffic).with(|load| {
            load.connections = connections;
            load.threads = self.client_cores.count().min(connections);
            load.cores = self.client_cores.numbers().to_vec();
            load.usage = Usage::Close;
            load.must_close = true;
            load.span = Span::Requests(requests);
            load.patience = PATIENCE;
            load.cpu = CpuOf::Process(pid);
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

#[allow(clippy::needless_pass_by_value)] // as what it is mapped over has it
fn failure(error: LoadError) -> Failure {
    Failure(error.to_string())
}

fn clean(load: &Load) -> Result<Report, Failure> {
    clean_watched(load, &mut |_| {})
}

/// Runs `load`; a single answer that is not right is a failure.
fn clean_watched(load: &Load, on_progress: &mut dyn FnMut(&Progress)) -> Result<Report, Failure> {
    let report = run(load, on_progress).map_err(failure)?;
    let failed = report.failed.total();
    if failed > 0 {
        let first = report.first_failure.as_deref().unwrap_or("no reason is known");
        return Err(Failure(format!("{failed} of its answers were not right, the first: {first}")));
    }
    match load.span {
        _ if load.stop.is_begun() => Ok(report),
        Span::Requests(all) if report.answered != all => {
            Err(Failure(format!("only {} of {all} requests were answered", report.answered)))
        }
        _ => Ok(report),
    }
}

/// What was seen of a process while it was under load.
#[derive(Debug, Default)]
struct Samples {
    /// Its processor time, when the load generator's clock was at the first.
    cpu: Vec<(Duration, Duration)>,
    /// Its resident memory.
    resident: Vec<Resident>,
}

impl Samples {
    fn look(&mut self, cpu: Option<(Duration, Duration)>, pid: u32) {
        self.cpu.extend(cpu);
        self.resident.extend(proc::resident(pid).ok());
    }

    /// The most that it took between two looks, in per cent of a core.
    fn max_cpu_pct(&self) -> Option<f64> {
        let between = self.cpu.windows(2).filter_map(|pair| {
            let [(at, cpu), (later, more)] = pair else { return None };
            let share = more.saturating_sub(*cpu).as_secs_f64() / later.saturating_sub(*at).as_secs_f64();
            share.is_finite().then_some(share * 100.0)
        });
        let shares: Vec<f64> = between.collect();
        (shares.len() >= LEAST_SAMPLES).then(|| shares.into_iter().fold(0.0, f64::max))
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

/// A cell as it comes from the load generator.
#[derive(Debug)]
struct Taken {
    report: Report,
    samples: Samples,
    /// All that the client has had.
    answers: u64,
}

impl Taken {
    fn cell(
        &self,
        who: &Contestant,
        pool_size: Option<usize>,
        point: Point,
        server_answered: u64,
    ) -> Result<Cell, Failure> {
        let Self { report, samples, .. } = self;
        let unknown = |what: &str| Failure(format!("{what} is not known"));
        let parts = report.parts.as_ref().ok_or_else(|| unknown("how long connecting took"))?;
        let busy = report.server_busy.ok_or_else(|| unknown("the processor time of the server"))?;
        let cpu = report.server_cpu.ok_or_else(|| unknown("the processor time of the server"))?;
        let machine = proc::memory().map_err(|error| unknown(&format!("the machine's memory: {error}")))? as f64;
        let (total_s, requests) = (report.elapsed.as_secs_f64(), report.answered as f64);
        let kib_s = |bytes: u64| bytes as f64 / 1024.0 / total_s;
        let is_enough = samples.resident.len() >= LEAST_SAMPLES + 2; // one before the load and one after it
        let (mean, max) = (samples.mean_resident(), samples.max_resident() as f64);
        let p50_ms = |of| microseconds(of, 0.5) / 1000.0;
        Ok(Cell {
            who: who.clone(),
            method: point.method,
            pool_size,
            requests: report.answered,
            connections: point.connections,
            round: point.round,
            avg_cpu_pct: busy * 100.0,
            max_cpu_pct: samples.max_cpu_pct(),
            avg_mem_pct: mean / machine * 100.0,
            max_mem_pct: is_enough.then_some(max / machine * 100.0),
            total_s,
            per_request_ms: total_s * 1000.0 * point.connections as f64 / requests,
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
            avg_anonymous_kb: samples.mean_anonymous().map(|bytes| bytes / 1024.0),
            samples: samples.resident.len(),
            server_answered,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(cpu_ms: &[u64]) -> Samples {
        let at = |(place, cpu): (usize, &u64)| (Duration::from_millis(place as u64 * 100), Duration::from_millis(*cpu));
        let resident = |now: u64| Resident { now, peak: 9000, anonymous: (now > 1000).then_some(now / 2) };
        Samples { cpu: cpu_ms.iter().enumerate().map(at).collect(), resident: [1000, 3000, 2000].map(resident).into() }
    }

    #[test]
    fn a_maximum_needs_five_samples() {
        assert_eq!(samples(&[0, 50, 150, 170, 190]).max_cpu_pct(), None);
        let most = samples(&[0, 50, 170, 170, 190, 200]).max_cpu_pct().unwrap();
        assert!((most - 120.0).abs() < 1e-9, "{most}");
        assert_eq!(Samples::default().max_cpu_pct(), None);
    }

    #[test]
    fn memory_is_the_mean_and_the_most_of_what_was_seen() {
        let seen = samples(&[]);
        assert_eq!((seen.mean_resident(), seen.max_resident(), seen.mean_anonymous()), (2000.0, 3000, Some(1250.0)));
        let none = Samples::default();
        assert_eq!((none.mean_resident(), none.max_resident(), none.mean_anonymous()), (0.0, 0, None));
    }
}
