//! The mode `page`: a number of requests to a page that sometimes waits, each on a connection of its own.
//!
//! Every n-th request, counted over the whole server, waits first. A worker that waits does nothing else, so a pool of `w`
//! workers answers at most `w x n / wait` requests a second, however fast it is. A server that holds no thread during a wait has
//! no such bound. Its clients wait as well: `c` connections send at most `c x n / wait` requests a second.
//!
//! Invariant: a cell has a sample only if every answer was the page, to the byte, and the server's own count of answers
//! agrees. Cost: a process and `requests / bound` seconds for each cell.

use std::ffi::OsString;
use std::time::Duration;

use hdrhistogram::Histogram;
use polyserve::Shutdown;
use polyserve_load::{CpuSource, Exchange, Load, LoadError, Report as Loaded, RunLength, Traffic, Usage, run};
use serde::Deserialize;

use super::{ReadKeys, Turns, check_times};
use crate::Misuse;
use crate::bench::definition::{Definition, time};
use crate::bench::experiment::{Key, Sample};
use crate::bench::figures::{self, NamedFigures};
use crate::bench::pattern::ContestantOrigin;
use crate::bench::sweep::{Sweep, SweepAxis, SweepCell, in_words};
use crate::bench::workload::BenchWorkload;
use crate::experiment::{Absence, Notebook};
use crate::launch::Launch;
use crate::launch::drain::{check_answered, check_count};
use crate::launch::process::Process;
use crate::machine::cores::Cores;
use crate::machine::proc;
use crate::report::figures::count;
use crate::services::Page;
use crate::turn::{Role, microseconds};

/// A number of requests to a page that sometimes waits.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PageMode {
    /// The number of requests at a cell.
    pub requests: u64,
    /// The max time of a cell: a slow pool gets fewer requests.
    #[serde(deserialize_with = "time")]
    pub max_time: Duration,
    /// One request in this number waits.
    pub every: u64,
    /// The length of a wait.
    #[serde(deserialize_with = "time")]
    pub wait: Duration,
}

impl Default for PageMode {
    /// As published: 10 000 requests, of which every 10th waits 2 s.
    fn default() -> Self {
        Self { requests: 10_000, max_time: Duration::from_secs(30), every: 10, wait: Duration::from_secs(2) }
    }
}

/// What the mode reads of a definition. Its requests are those of the page.
pub(super) const READS: ReadKeys = ReadKeys {
    origins: &[ContestantOrigin::Catalog, ContestantOrigin::Peer],
    has_sizes: true,
    axes: &[SweepAxis::Connections, SweepAxis::Workers, SweepAxis::Source],
    workload: &["connections", "workers"],
};

/// The source of the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PageSource {
    /// In the server's memory.
    #[default]
    Memory,
    /// In a file that is read for each request, as published.
    File,
}

impl PageMode {
    pub(super) fn check(&self, definition: &Definition) -> Result<(), Misuse> {
        if self.requests == 0 || self.every == 0 {
            let key = if self.every == 0 { "every" } else { "requests" };
            return Err(definition.misuse(key, "it must be at least 1"));
        }
        if !self.wait.subsec_nanos().is_multiple_of(1_000_000) || self.wait.is_zero() {
            return Err(definition.misuse("wait", "it must be at least 1ms, in whole milliseconds"));
        }
        check_times(definition, [("max_time", self.max_time)])
    }

    /// The load in words.
    pub(super) fn load(&self, workload: &BenchWorkload, sweep: &Sweep) -> String {
        let (requests, wait) = (count(self.requests as f64), humantime::format_duration(self.wait));
        let connections = in_words(sweep, SweepAxis::Connections, workload.connections as u64);
        format!("{requests} requests over {connections} connections at a time, one in {} waits {wait}", self.every)
    }

    /// The max number of requests a second if at most `waiting` requests wait at once.
    pub fn bound(&self, waiting: usize) -> f64 {
        waiting as f64 * self.every as f64 / self.wait.as_secs_f64()
    }

    /// The lower of the bounds of the workers and of the connections.
    fn least_bound(&self, waiting: Option<usize>, connections: usize) -> f64 {
        self.bound(waiting.unwrap_or(connections).min(connections))
    }

    /// The number of requests at a cell, within the max time. Each connection has at least one, and the number is a multiple of
    /// [`every`](Self::every).
    pub(crate) fn requests(&self, waiting: Option<usize>, connections: usize) -> u64 {
        let in_time = self.least_bound(waiting, connections) * self.max_time.as_secs_f64();
        let within = in_time.min(self.requests as f64) as u64;
        within.max((connections as u64).min(self.requests)).next_multiple_of(self.every)
    }

    /// Gives a server the flags of the page. If `has_file`, it reads a file of its own for each request.
    pub fn apply(&self, launch: &mut Launch, has_file: bool) {
        const FILE: &str = "hello.html";
        let wait = format!("--page-wait={}ms", self.wait.as_millis());
        let file = has_file.then(|| format!("--page-file={{dir}}/{FILE}"));
        launch.args.extend([format!("--page-every={}", self.every), wait].into_iter().chain(file).map(OsString::from));
        launch.files.extend(has_file.then(|| (FILE.to_owned(), String::from_utf8_lossy(Page::BODY).into_owned())));
    }
}

/// A server of the page at a cell.
#[derive(Clone, Debug)]
pub struct PageServer {
    /// The name.
    pub name: String,
    /// The role.
    pub role: Role,
    /// The cell.
    pub cell: SweepCell,
    /// Its number of workers; `None` if it was not chosen.
    pub workers: Option<usize>,
    /// The max number of waits that its workers sit through at once; `None` if a wait holds no worker.
    pub waiting: Option<usize>,
    /// The number of concurrent connections; each is for one request.
    pub connections: usize,
    /// Whether it is a program that prints the number of its answers, and not a server of the catalog.
    pub is_twin: bool,
    /// Its process.
    pub launch: Launch,
}

/// Servers of the page.
#[derive(Debug)]
pub struct PageTurns {
    /// The settings.
    pub mode: PageMode,
    /// The servers at all cells.
    pub servers: Vec<PageServer>,
    /// The servers' cores.
    pub server_cores: Cores,
    /// The client's cores.
    pub client_cores: Cores,
    /// Begun when the run must end.
    pub stop: Shutdown,
}

impl Turns for PageTurns {
    fn measure_one(&mut self, key: &Key, _: &mut Notebook<'_>) -> Result<Sample, Absence> {
        let server = self.servers.iter().find(|one| one.name == key.contestant && one.cell == key.cell);
        self.load(server.ok_or_else(|| Absence::failed(format!("{key} is not planned")))?)
    }
}

impl PageTurns {
    fn load(&self, server: &PageServer) -> Result<Sample, Absence> {
        let requests = self.mode.requests(server.waiting, server.connections);
        let mut process = Process::start(&server.launch, &self.server_cores)?;
        let load = self.load_of(server, requests, &process)?;
        let loaded = run(&load, &mut |_| {}).map_err(Absence::from).and_then(Absence::unless_right);
        let loaded = loaded.map_err(|absence| process.explain(absence))?;
        let peak = proc::resident(process.pid()).ok().map(|resident| resident.peak);
        let last_line = process.end()?;
        if !self.stop.is_begun() {
            let check = if server.is_twin { check_answered } else { check_count };
            check(last_line.as_deref(), requests)?;
        }
        let of_process = (peak, self.server_cores.count());
        let figures = self.mode.figures(server, requests, &loaded, of_process);
        Ok(Sample { role: server.role, figures })
    }

    fn load_of(&self, server: &PageServer, requests: u64, process: &Process) -> Result<Load, LoadError> {
        let page = Exchange::new("GET", "/").with(|page| page.answers = vec![Page::BODY.to_vec()]);
        let traffic = Traffic::expecting(vec![page])?;
        // The time of one request on every connection, one after the other. The timeout includes three such times.
        let round = server.connections as f64 / self.mode.least_bound(server.waiting, server.connections);
        Ok(Load::new(process.addr, traffic).with(|load| {
            load.connections = server.connections;
            load.threads = self.client_cores.count().min(server.connections);
            load.cores = self.client_cores.numbers().to_vec();
            load.usage = Usage::Close;
            load.must_close = true;
            load.length = RunLength::Requests(requests);
            load.timeout = self.mode.wait + Duration::from_secs_f64((3.0 * round).min(1e6)) + Duration::from_secs(10);
            load.cpu = CpuSource::Process(process.pid());
            load.stop = self.stop.clone();
        }))
    }
}

/// By how much a bound of the workers must be exceeded to tell a server that holds none from a pool.
const MIN_EXCESS: f64 = 1.25;
/// The min share of a bound at which the bound limits the throughput.
const MIN_SHARE: f64 = 0.8;

impl PageMode {
    /// The bounds of a server with these workers, of which a number may wait at once, and a throughput as shares of them.
    fn of_bounds(
        &self,
        (workers, waiting): (Option<usize>, Option<usize>),
        connections: usize,
        per_s: f64,
    ) -> [(&'static str, Option<f64>); 5] {
        let of_connections = self.bound(connections);
        let of_workers = waiting.map(|waiting| self.bound(waiting));
        // With so few workers that a pool would be far below what the connections ask for.
        let would_be_bound = |workers: usize| self.bound(workers) * MIN_EXCESS < of_connections * MIN_SHARE;
        let is_free = waiting.is_none() && workers.is_some_and(would_be_bound);
        [
            ("bound_per_s", of_workers.map(|bound| bound.min(of_connections))),
            ("connections_bound_per_s", Some(of_connections)),
            ("share_of_bound", Some(per_s / self.least_bound(waiting, connections))),
            ("share_of_workers_bound", of_workers.filter(|bound| *bound <= of_connections).map(|bound| per_s / bound)),
            ("share_without_a_bound", is_free.then(|| per_s / of_connections)),
        ]
    }

    /// The figures of a load, by their names.
    fn figures(
        &self,
        server: &PageServer,
        requests: u64,
        loaded: &Loaded,
        (peak, cores): (Option<u64>, usize),
    ) -> NamedFigures {
        let busy = loaded.server_busy.map(|busy| busy / cores as f64);
        let per_s = loaded.per_second();
        let quantile = |quantile: f64| Some(microseconds(&loaded.latency, quantile) / 1000.0);
        let total_s = loaded.elapsed.as_secs_f64();
        let all = vec![
            ("total_s", Some(total_s)),
            ("requests_per_s", Some(per_s)),
            ("mean_ms", Some(loaded.latency.mean() / 1e6)),
            ("p50_ms", quantile(0.5)),
            ("p66_ms", quantile(0.66)),
            ("p75_ms", quantile(0.75)),
            ("p80_ms", quantile(0.8)),
            ("p90_ms", quantile(0.9)),
            ("p95_ms", quantile(0.95)),
            ("p98_ms", quantile(0.98)),
            ("p99_ms", quantile(0.99)),
            ("max_ms", quantile(1.0)),
            ("requests", Some(requests as f64)),
            ("connections", Some(server.connections as f64)),
            ("every", Some(self.every as f64)),
            ("wait_s", Some(self.wait.as_secs_f64())),
            ("server_busy", busy),
            ("cpu_us_per_request", loaded.server_cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / loaded.answered as f64)),
            ("peak_memory_mib", peak.map(|bytes| bytes as f64 / f64::from(1 << 20))),
            ("document_bytes", Some(Page::BODY.len() as f64)),
            ("total_bytes", Some(loaded.bytes_received as f64)),
            ("html_bytes", Some(Page::BODY.len() as f64 * requests as f64)),
            ("received_kB_s", Some(loaded.bytes_received as f64 / 1024.0 / total_s)),
        ];
        let of_bounds = self.of_bounds((server.workers, server.waiting), server.connections, per_s);
        let mut figures: NamedFigures = figures::known(all.into_iter().chain(of_bounds)).collect();
        if let Some(phases) = &loaded.phases {
            figures.extend(phase("connect", &phases.connect));
            figures.extend(phase("waiting", &phases.waiting));
            figures.extend(phase("processing", &phases.processing));
            figures.extend(phase("total", &loaded.latency));
        }
        figures
    }
}

/// The published figures of a phase of the requests.
fn phase(name: &str, times: &Histogram<u64>) -> [(String, f64); 5] {
    let ms = [
        ("min", times.min() as f64 / 1e6),
        ("mean", times.mean() / 1e6),
        ("sd", times.stdev() / 1e6),
        ("median", microseconds(times, 0.5) / 1000.0),
        ("max", microseconds(times, 1.0) / 1000.0),
    ];
    ms.map(|(figure, ms)| (format!("{name}_{figure}_ms"), ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published bound: a pool of 8 answers (8 x 10) / 2 = 40 requests a second.
    #[test]
    fn a_pool_has_fewer_requests_than_its_time_allows() {
        let mode = PageMode::default();
        assert_eq!((mode.bound(8), mode.bound(100)), (40.0, 500.0));
        assert_eq!(
            (mode.requests(Some(8), 100), mode.requests(Some(100), 100), mode.requests(None, 100)),
            (1200, 10_000, 10_000)
        );
        assert_eq!(mode.requests(Some(1), 100), 150);
        let short = PageMode { requests: 40, every: 5, ..mode };
        assert_eq!((short.requests(Some(1), 7), short.requests(None, 5)), (40, 40));
        let mut launch = crate::fixtures::launch();
        short.apply(&mut launch, false);
        assert!(launch.args.ends_with(&["--page-every=5", "--page-wait=2000ms"].map(Into::into)), "{launch:?}");
    }

    #[test]
    fn a_throughput_is_a_share_of_its_own_bounds() {
        let of = |workers, waiting, per_s| {
            PageMode::default().of_bounds((workers, waiting), 100, per_s).map(|(_, figure)| figure)
        };
        let pool = |workers, per_s| of(Some(workers), Some(workers), per_s);
        assert_eq!(pool(8, 39.0), [Some(40.0), Some(500.0), Some(0.975), Some(0.975), None]);
        assert_eq!(pool(100, 490.0), [Some(500.0), Some(500.0), Some(0.98), Some(0.98), None]);
        // More workers than connections: the workers are no bound.
        assert_eq!(pool(128, 490.0), [Some(500.0), Some(500.0), Some(0.98), None, None]);
        // A wait holds no worker: a pool with as few would have a lower bound.
        assert_eq!(of(Some(8), None, 490.0), [None, Some(500.0), Some(0.98), None, Some(0.98)]);
        for workers in [Some(64), Some(128), None] {
            assert_eq!(of(workers, None, 490.0), [None, Some(500.0), Some(0.98), None, None], "{workers:?}");
        }
    }

    #[test]
    fn the_file_of_a_server_has_the_bytes_of_the_page() {
        let mut launch = crate::fixtures::launch();
        PageMode::default().apply(&mut launch, true);
        let (started, _resources) = launch.prepared().unwrap();
        let file = started.args.last().unwrap().to_str().unwrap().strip_prefix("--page-file=").unwrap();
        assert_eq!(std::fs::read(file).unwrap(), Page::BODY);
    }
}
