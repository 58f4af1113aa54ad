//! The experiment of a page that sometimes waits: every n-th request, counted over the whole server, waits first.
//!
//! A worker that waits does nothing else, so a pool of `w` workers answers at most `w x n / wait` requests a second,
//! however fast it is. A server that holds no thread during a wait has no such bound. Its clients wait as well:
//! `c` connections send at most `c x n / wait` requests a second. The published figures of all four contestants are at
//! this second bound.
//!
//! The run has three parts:
//!
//! * [`PagePart::Published`]: the catalog's servers that represent the four published contestants, loaded as published.
//!   All waits may be scaled. The page is in memory, or in a file that is read for each request.
//! * [`PagePart::Twins`]: the published listings and servers in other languages, loaded in the same way, in rounds.
//! * [`PagePart::Sweep`]: every server of a catalog, with pools of every size.
//!
//! Invariant: a cell has a sample only if every answer was the page, to the byte, and the server's own count of answers
//! agrees. Cost: a process and `requests / bound` seconds for each cell.
//!
//! # Layout
//!
//! * [`published`]: the published figures and set-up. [`experiment`]: the experiment in the framework.
//! * [`page_file`]: the page as a file. [`record`]: the samples. [`report`]: the result.
//! * [`table`], `phase_table`, `chart`, [`claims`]: the tables, charts and verdicts.

mod chart;
pub mod claims;
pub mod experiment;
pub mod page_file;
mod phase_table;
pub mod published;
pub mod record;
pub mod report;
pub mod table;

use std::time::Duration;

use crate::services::Page;
use polyserve::Shutdown;
use polyserve_load::{CpuSource, Exchange, Load, LoadError, Report as Loaded, RunLength, Traffic, Usage, run};

use crate::compare::sample::microseconds;
use crate::experiment::Absence;
use crate::launch::Launch;
use crate::launch::drain::{check_answered, check_count};
use crate::launch::process::{Failure, Process};
use crate::machine::cores::Cores;
use crate::machine::proc;

pub use experiment::WaitingPage;
use hdrhistogram::Histogram;
pub use page_file::PageFile;
use record::{Bounds, Details, Key, PageFigures, PhaseFigures, Phases, Sample};
pub use record::{PagePart, PageSource};

/// The first published listing. The other twins are compared with it.
pub const THREAD_POOL: &str = "twin/thread_pool";

/// The load and the cores of a measurement.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// The servers' cores.
    pub server_cores: Cores,
    /// The client's cores.
    pub client_cores: Cores,
    /// The number of concurrent connections; each is for one request.
    pub connections: usize,
    /// The page waits on one request in this number of requests; not 0.
    pub every: u64,
    /// The length of a wait.
    pub wait: Duration,
    /// Begun when the run must end.
    pub stop: Shutdown,
}

/// A server with a number of workers, in a part of the run.
#[derive(Clone, Debug)]
pub struct PageServer {
    /// The part.
    pub part: PagePart,
    /// Its name in the published figures.
    pub published_as: Option<String>,
    /// Its name.
    pub name: String,
    /// Its number of workers; `None` if it cannot be chosen.
    pub workers: Option<usize>,
    /// The max number of deferred answers that its workers wait for at once; `None` if a wait holds no worker.
    pub waiting: Option<usize>,
    /// The number of requests.
    pub requests: u64,
    /// Where its page is.
    pub page: PageSource,
    /// The number of rounds.
    pub rounds: usize,
    /// Its process.
    pub launch: Launch,
}

/// The max number of requests if the command chooses the number.
const MAX_REQUESTS: u64 = 10_000;

impl PageServer {
    /// Its cell in a round.
    pub fn key(&self, round: usize) -> Key {
        let Self { part, workers, page, .. } = *self;
        Key { part, server: self.name.clone(), workers, page, round }
    }
}

impl Conditions {
    /// The max number of requests a second if at most `waiting` requests wait at once.
    pub fn bound(&self, waiting: usize) -> f64 {
        record::bound(waiting, self.every, self.wait.as_secs_f64())
    }

    /// The lower of the bounds of the workers and of the connections.
    fn least_bound(&self, waiting: Option<usize>) -> f64 {
        self.bound(waiting.unwrap_or(self.connections).min(self.connections))
    }

    /// The number of requests that take about `time`, at most the published 10 000. Each connection has at least one
    /// request, and the number is a multiple of [`every`](Self::every).
    pub fn requests(&self, waiting: Option<usize>, time: Duration) -> u64 {
        let within = (self.least_bound(waiting) * time.as_secs_f64()).min(MAX_REQUESTS as f64) as u64;
        within.max(self.connections as u64).next_multiple_of(self.every)
    }

    /// Loads a server.
    ///
    /// # Errors
    ///
    /// Returns why there is no sample.
    pub fn measure(&self, entrant: &PageServer) -> Result<Sample, Absence> {
        let mut process = Process::start(&entrant.launch, &self.server_cores)?;
        let load = self.load(entrant, &process)?;
        let loaded = run(&load, &mut |_| {}).map_err(Absence::from).and_then(Absence::unless_right);
        let loaded = loaded.map_err(|absence| absence.explained(&mut process))?;
        let peak = proc::resident(process.pid()).ok().map(|resident| resident.peak);
        let last_line = process.end().map_err(|Failure(why)| Absence::wrong(why))?;
        if !self.stop.is_begun() {
            let check = if entrant.part == PagePart::Twins { check_answered } else { check_count };
            check(last_line.as_deref(), entrant.requests)?;
        }
        let mut sample = self.sample(entrant, &loaded);
        sample.details.peak_memory_bytes = peak;
        Ok(sample)
    }

    fn load(&self, entrant: &PageServer, process: &Process) -> Result<Load, LoadError> {
        let page = Exchange::new("GET", "/").with(|page| page.answers = vec![Page::BODY.to_vec()]);
        let traffic = Traffic::expecting(vec![page])?;
        // The time of one request on every connection, one after the other. The timeout includes three such times.
        let round = self.connections as f64 / self.least_bound(entrant.waiting);
        Ok(Load::new(process.addr(), traffic).with(|load| {
            load.connections = self.connections;
            load.threads = self.client_cores.count().min(self.connections);
            load.cores = self.client_cores.numbers().to_vec();
            load.usage = Usage::Close;
            load.must_close = true;
            load.length = RunLength::Requests(entrant.requests);
            load.patience = self.wait + Duration::from_secs_f64((3.0 * round).min(1e6)) + Duration::from_secs(10);
            load.cpu = CpuSource::Process(process.pid());
            load.stop = self.stop.clone();
        }))
    }

    fn sample(&self, entrant: &PageServer, loaded: &Loaded) -> Sample {
        let quantile_ms = |quantile: f64| microseconds(&loaded.latency, quantile) / 1000.0;
        let requests_per_s = loaded.per_second();
        let figures = PageFigures {
            total_s: loaded.elapsed.as_secs_f64(),
            requests_per_s,
            mean_ms: loaded.latency.mean() / 1e6,
            p50_ms: quantile_ms(0.5),
            p66_ms: quantile_ms(0.66),
            p75_ms: quantile_ms(0.75),
            p80_ms: quantile_ms(0.8),
            p90_ms: quantile_ms(0.9),
            p95_ms: quantile_ms(0.95),
            p98_ms: quantile_ms(0.98),
            p99_ms: quantile_ms(0.99),
            max_ms: quantile_ms(1.0),
        };
        let bounds = Bounds {
            bound_per_s: entrant.waiting.map(|waiting| self.bound(waiting)),
            connections_bound_per_s: self.bound(self.connections),
            of_bound: requests_per_s / self.least_bound(entrant.waiting),
            requests: entrant.requests,
            connections: self.connections,
            every: self.every,
            wait_s: self.wait.as_secs_f64(),
            server_busy: loaded.server_busy,
        };
        Sample { figures, published_as: entrant.published_as.clone(), bounds, details: details(loaded) }
    }
}

fn details(loaded: &Loaded) -> Details {
    let phase = |times: &Histogram<u64>| PhaseFigures {
        min_ms: times.min() as f64 / 1e6,
        mean_ms: times.mean() / 1e6,
        sd_ms: times.stdev() / 1e6,
        median_ms: microseconds(times, 0.5) / 1000.0,
        max_ms: microseconds(times, 1.0) / 1000.0,
    };
    let phases = loaded.phases.as_ref().map(|phases| Phases {
        connect: phase(&phases.connect),
        waiting: phase(&phases.waiting),
        processing: phase(&phases.processing),
        total: phase(&loaded.latency),
    });
    Details {
        cpu_us_per_request: loaded.server_cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / loaded.answered as f64),
        peak_memory_bytes: None,
        page_bytes: Some(Page::BODY.len() as u64),
        received_bytes: Some(loaded.bytes_received),
        phases,
    }
}

#[cfg(test)]
mod tests;
