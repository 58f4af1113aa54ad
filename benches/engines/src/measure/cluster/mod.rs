//! Requests to an async server over engines, compared with the client libraries alone and with the same server over
//! memory.
//!
//! The server, or the program that uses a client library alone, runs on the first core. The engines and the load
//! generator run on the last core. So a request costs the sum of its parts on both cores.
//!
//! Let E be the requests per second by the library alone, and M by the server over memory. The expected rate is
//! 1 / (1/E + 1/M). Every answer is checked.

mod raw;
mod server;
mod size;

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use polyserve_engines::{EngineKind, RunningEngine};
use polyserve_load::data::Data;
use polyserve_load::{Dist, Load, Mix, Pace, Report, RunLength, Traffic, prefill_for, run};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::median;
use crate::{Failure, figures};

/// Every contestant runs once per round, in turn.
const ROUNDS: u64 = 5;
const SLICE: Duration = Duration::from_secs(1);
/// The warm-up before a slice, with the same requests.
const WARM_UP: Duration = Duration::from_millis(200);
const CONNECTIONS: usize = 256;
const KEYS: u64 = 1_000;

/// The cores of the server and of the load.
fn cores() -> Result<(usize, usize), Failure> {
    let set = sched_getaffinity(None)?;
    let mut allowed = (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core));
    let first = allowed.next().ok_or("this process has no core")?;
    Ok((first, allowed.next_back().unwrap_or(first)))
}

fn pin(core: usize) -> Result<(), Failure> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// Runs a part of the measurement if the arguments are those of a child process. Returns `None` otherwise.
pub(crate) fn run_if_child(args: &[String]) -> Option<Result<(), Failure>> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["server", core, repo] => Some(core.parse().map_err(Failure::from).and_then(|core| {
            pin(core)?;
            server::serve(repo)
        })),
        ["raw", core, repo] => Some(core.parse().map_err(Failure::from).and_then(|core| {
            pin(core)?;
            raw::read(repo, KEYS, CONNECTIONS, SLICE)
        })),
        _ => None,
    }
}

/// A child process that runs this program. It ends when this value is dropped.
struct ChildProcess {
    child: Child,
    line: String,
}

impl ChildProcess {
    /// Starts the child process and reads its first line.
    fn start(subcommand: &str, core: usize, repo: &str) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([subcommand, &core.to_string(), repo]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        if line.is_empty() {
            return Err(format!("{subcommand} over {repo} ended with {}", child.wait()?).into());
        }
        Ok(Self { child, line: line.trim().to_owned() })
    }

    fn threads(&self) -> Result<usize, Failure> {
        Ok(std::fs::read_dir(format!("/proc/{}/task", self.child.id()))?.count())
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Returns the user and system time that each process has used so far, in seconds.
fn processor_seconds(ids: &[u32]) -> HashMap<u32, f64> {
    let seconds_of = |id: u32| -> Option<(u32, f64)> {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        let (user, system): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some((id, (user + system) / rustix::param::clock_ticks_per_second() as f64))
    };
    ids.iter().copied().filter_map(seconds_of).collect()
}

/// Returns the processor time since `before`, in microseconds, of the processes that still run.
fn used_us(before: &HashMap<u32, f64>) -> f64 {
    let after = processor_seconds(&before.keys().copied().collect::<Vec<_>>());
    after.iter().map(|(id, seconds)| (seconds - before[id]) * 1e6).sum()
}

/// The results of the slices of one contestant with one kind of request.
#[derive(Default)]
struct Figures {
    rates: Vec<f64>,
    server_us: Vec<f64>,
    engine_us: Vec<f64>,
    p50_ms: Vec<f64>,
    p99_ms: Vec<f64>,
}

/// A server over a repo.
struct Contestant {
    name: &'static str,
    repo: String,
    engine: Option<RunningEngine>,
    server: ChildProcess,
    threads: (usize, usize),
    /// Indexed by [`SliceKind`].
    figures: [Figures; 4],
    /// The rates of GETs by the client library alone, one per round.
    library_rates: Vec<f64>,
}

impl Contestant {
    fn start(name: &'static str, core: usize, scratch: &Path) -> Result<Self, Failure> {
        let kind = EngineKind::ALL.into_iter().find(|kind| kind.name() == name);
        let engine = kind.map(EngineKind::start).transpose().map_err(|missing| missing.to_string())?;
        let location = engine.as_ref().map_or_else(|| scratch.join(name).display().to_string(), RunningEngine::urls);
        let repo = format!("{name}:{location}");
        let server = ChildProcess::start("server", core, &repo)?;
        prefill_for(&load(&server, Mix { get: 1, put: 0 }, 0)?)?;
        let before = server.threads()?;
        Ok(Self {
            name,
            repo,
            engine,
            server,
            threads: (before, before),
            figures: Default::default(),
            library_rates: Vec::new(),
        })
    }

    /// Runs one slice of requests and adds its figures.
    fn slice(&mut self, kind: SliceKind, rate: Option<f64>, round: u64) -> Result<(), Failure> {
        let mix = if matches!(kind, SliceKind::Put) { Mix { get: 0, put: 1 } } else { Mix { get: 1, put: 0 } };
        let mut load = load(&self.server, mix, round)?;
        load.pace = rate.map_or(Pace::Closed, Pace::Rate);
        let ids = self.engine.as_mut().map(RunningEngine::process_ids).unwrap_or_default();
        let server_ids = [self.server.child.id()];
        // The warm-up is a separate run: its requests and its processor time are not counted.
        let warm_up = run(&load.clone().with(|load| load.length = RunLength::Time(WARM_UP)), &mut |_| {})?;
        let before = (processor_seconds(&server_ids), processor_seconds(&ids));
        let report = run(&load, &mut |_| {})?;
        let (server_us, engine_us) = (used_us(&before.0), used_us(&before.1));
        if let Some(report) = [&warm_up, &report].into_iter().find(|report| !report.is_clean()) {
            return Err(format!("{}: {:?}", self.name, report.first_failure).into());
        }
        let figures = &mut self.figures[kind as usize];
        let count = report.answered as f64;
        let quantile = |q| report.latency.value_at_quantile(q) as f64 / 1e6;
        figures.rates.push(Report::per_second(&report));
        figures.server_us.push(server_us / count);
        figures.engine_us.push(engine_us / count);
        figures.p50_ms.push(quantile(0.5));
        figures.p99_ms.push(quantile(0.99));
        self.threads.1 = self.threads.1.max(self.server.threads()?);
        Ok(())
    }

    fn rate(&self, kind: SliceKind) -> f64 {
        median(self.figures[kind as usize].rates.clone())
    }
}

/// The kind of a slice, which is the index of its figures.
#[derive(Clone, Copy)]
enum SliceKind {
    Get,
    Put,
    /// GETs at 50 % of the closed-loop rate.
    HalfRate,
    /// GETs at 80 % of the closed-loop rate.
    FourFifthsRate,
}

/// Returns a load on all connections, for one slice.
fn load(server: &ChildProcess, mix: Mix, round: u64) -> Result<Load, Failure> {
    let traffic = Traffic::entities(&Data::new(7), KEYS, Dist::default(), mix, round)?;
    let core = cores()?.1;
    Ok(Load::new(server.line.parse()?, traffic).with(|load| {
        load.connections = CONNECTIONS;
        load.cores = vec![core];
        load.length = RunLength::Time(SLICE);
    }))
}

/// Measures all contestants. Prints the medians, and writes them to `cluster.csv` in the directory `out`.
pub(crate) fn measure(scratch: &Path, header: &figures::Header, out: Option<&Path>) -> Result<(), Failure> {
    let (server_core, load_core) = cores()?;
    // The engines inherit the affinity.
    pin(load_core)?;
    println!("cluster: {CONNECTIONS} connections, {KEYS} entities, {ROUNDS} rounds of {} ms", SLICE.as_millis());
    let names = ["memory", "durable", "etcd", "redis_cluster", "postgres"];
    let start = Instant::now();
    let mut contestants =
        names.map(|name| Contestant::start(name, server_core, scratch)).into_iter().collect::<Result<Vec<_>, _>>()?;
    for round in 0..ROUNDS {
        eprintln!("round {} of {ROUNDS} (after {} s)", round + 1, start.elapsed().as_secs());
        for contestant in &mut contestants {
            // Restores the entities that the GETs expect.
            prefill_for(&load(&contestant.server, Mix { get: 1, put: 0 }, round)?)?;
            contestant.slice(SliceKind::Get, None, round)?;
            let rate = contestant.rate(SliceKind::Get);
            contestant.slice(SliceKind::HalfRate, Some(rate * 0.5), round)?;
            contestant.slice(SliceKind::FourFifthsRate, Some(rate * 0.8), round)?;
            if contestant.engine.is_some() {
                let library = ChildProcess::start("raw", server_core, &contestant.repo)?;
                contestant.library_rates.push(library.line.parse()?);
            }
            contestant.slice(SliceKind::Put, None, round)?;
        }
    }
    let memory = contestants[0].figures[SliceKind::Get as usize].rates.clone();
    let rows = contestants.iter_mut().map(|contestant| contestant.rows(&memory)).collect::<Result<Vec<_>, _>>()?;
    figures::write(&rows.concat(), header, out)
}

impl Contestant {
    /// Returns the medians of GET and of PUT. `memory` has the GET rates of the server over memory, by round.
    fn rows(&mut self, memory: &[f64]) -> Result<[figures::Row; 2], Failure> {
        let gets = &self.figures[SliceKind::Get as usize].rates;
        let shares = gets.iter().zip(&self.library_rates).zip(memory);
        let shares: Vec<f64> = shares.map(|((http, alone), memory)| http * (1.0 / alone + 1.0 / memory)).collect();
        let bytes = size::bytes_per_entity(&self.server, &self.repo)?;
        let row = |request: &str, kind: SliceKind| {
            let Figures { rates, server_us, engine_us, p50_ms, p99_ms } = &self.figures[kind as usize];
            let of_get = |value: f64| if request == "GET" { value } else { f64::NAN };
            let p99 = |kind: SliceKind| of_get(median_or_nan(&self.figures[kind as usize].p99_ms));
            figures::Row {
                repo: self.name.to_owned(),
                request: request.to_owned(),
                per_s: median_or_nan(rates),
                server_us: median_or_nan(server_us),
                engine_us: median_or_nan(engine_us),
                p50_ms: median_or_nan(p50_ms),
                p99_ms: median_or_nan(p99_ms),
                p99_half_ms: p99(SliceKind::HalfRate),
                p99_four_fifths_ms: p99(SliceKind::FourFifthsRate),
                alone_per_s: of_get(median_or_nan(&self.library_rates)),
                share: of_get(median_or_nan(&shares)),
                threads_before: self.threads.0 as f64,
                threads_during: self.threads.1 as f64,
                bytes_per_entity: bytes,
            }
        };
        Ok([row("GET", SliceKind::Get), row("PUT", SliceKind::Put)])
    }
}

/// Returns the median, or NaN if there are no values.
fn median_or_nan(values: &[f64]) -> f64 {
    if values.is_empty() { f64::NAN } else { median(values.to_vec()) }
}
