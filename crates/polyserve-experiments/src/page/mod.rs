//! The experiment of a page that sometimes waits: every n-th request, counted over the whole server, waits first.
//!
//! A worker that waits does nothing else, so a pool of `w` workers answers at most `w x n / wait` requests a second,
//! however fast it is. A server that holds no thread meanwhile has no such bound; but its clients wait as well, and
//! `c` connections ask for at most `c x n / wait`. The published figures are the latter, for all four contestants.
//!
//! The run has two parts. In [`Part::Published`] the four published contestants are loaded exactly as published, but that
//! all waits may be scaled; in [`Part::Sweep`] every server of a catalog with pools of every size.
//!
//! Invariant: every answer was the page, to the byte, and the server says that it gave as many; otherwise there is no
//! figure. Cost: a process and `requests / bound` seconds each.
//!
//! [`published`]: the figures and the set-up that were published. [`table`], [`claims`]: what came of it.

pub mod claims;
pub mod published;
pub mod table;

use std::time::Duration;

use polyserve::Shutdown;
use polyserve::service::Page;
use polyserve_load::{CpuOf, Exchange, Load, LoadError, Report, Span, Traffic, Usage, run};
use serde::{Deserialize, Serialize};

use polyserve_lab::compare::turn::microseconds;
use polyserve_lab::experiment::Absence;
use polyserve_lab::launch::Launch;
use polyserve_lab::launch::drain::check_count;
use polyserve_lab::launch::process::{Failure, Process};
use polyserve_lab::machine::cores::Cores;
use published::Figures;

/// What is asked of every server.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The servers' cores.
    pub server_cores: Cores,
    /// The client's cores.
    pub client_cores: Cores,
    /// Connections at a time; each is for one request.
    pub connections: usize,
    /// Every how many requests the page waits; not 0.
    pub every: u64,
    /// How long it waits.
    pub wait: Duration,
    /// Begun where the run is to end now.
    pub stop: Shutdown,
}

/// What a server is loaded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The published set-up: pools of 100, 100 connections, 10 000 requests, of which every 10th waits.
    Published,
    /// Pools of every size, beside the servers that hold no thread.
    Sweep,
}

/// A server with so many workers.
#[derive(Clone, Debug)]
pub struct Entrant {
    /// What for.
    pub part: Part,
    /// What it was called where it was published.
    pub published_as: Option<String>,
    /// Its name.
    pub name: String,
    /// Its workers; `None` for one that does not let them be chosen.
    pub workers: Option<usize>,
    /// How many answers that come later its workers can wait for at once; `None` where none is held meanwhile.
    pub waiting: Option<usize>,
    /// Requests.
    pub requests: u64,
    /// Its process.
    pub launch: Launch,
}

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Requests a second that the sweep's connections can ask for at most.
    pub connections_bound_per_s: f64,
    /// A row for each server and number of workers, those of earlier runs that this one went on from included.
    pub rows: Vec<Row>,
    /// Who has none, and why.
    pub failed: Vec<Failed>,
    /// Whether it was ended early.
    pub interrupted: bool,
}

/// A server with so many workers: the published columns, then ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// As they were published.
    #[serde(flatten)]
    pub figures: Figures,
    /// Those that were not.
    #[serde(flatten)]
    pub ours: Ours,
}

/// How a server was loaded, and what bounds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ours {
    /// What it was loaded for.
    pub part: Part,
    /// What it was called where it was published.
    pub published_as: Option<String>,
    /// Its workers, where they were chosen.
    pub workers: Option<usize>,
    /// Requests a second that its workers can do at most, where they wait.
    pub bound_per_s: Option<f64>,
    /// Requests a second that the connections can ask for at most.
    pub connections_bound_per_s: f64,
    /// What it did of that, or of what the connections can ask for where that is less.
    pub of_bound: f64,
    /// Requests.
    pub requests: u64,
    /// Connections at a time.
    pub connections: usize,
    /// Every how many requests the page waited.
    pub every: u64,
    /// How long.
    pub wait_s: f64,
    /// The server's CPU time in cores.
    pub server_busy: Option<f64>,
}

/// A server without a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failed {
    /// What for.
    pub part: Part,
    /// Its name.
    pub server: String,
    /// Its workers, where they were chosen.
    pub workers: Option<usize>,
    /// Why.
    pub why: String,
    /// Whether it did wrong: then a rerun does not try it again.
    #[serde(default)]
    pub wrong: bool,
}

/// More than this is never waited for at once: a bound for what is asked.
const MOST_REQUESTS: u64 = 10_000;

impl Row {
    /// The `kind` of its line in a journal.
    pub const KIND: &str = "cell";

    /// Whether this is what `entrant` was to be loaded for.
    pub fn is_of(&self, entrant: &Entrant) -> bool {
        let Ours { part, workers, .. } = self.ours;
        (part, workers) == (entrant.part, entrant.workers) && self.figures.server == entrant.name
    }
}

impl Failed {
    /// The `kind` of its line in a journal.
    pub const KIND: &str = "failure";

    /// Whether this is what `entrant` was to be loaded for.
    pub fn is_of(&self, entrant: &Entrant) -> bool {
        (self.part, self.workers) == (entrant.part, entrant.workers) && self.server == entrant.name
    }
}

impl Experiment {
    /// Requests a second where `waiting` can wait at once: the formula of a bound.
    pub fn bound(&self, waiting: usize) -> f64 {
        waiting as f64 * self.every as f64 / self.wait.as_secs_f64()
    }

    /// The lower of the bounds of the workers and of the connections.
    fn least_bound(&self, waiting: Option<usize>) -> f64 {
        self.bound(waiting.unwrap_or(self.connections).min(self.connections))
    }

    /// As many requests as can be done in about `time`, the published 10 000 at most; each connection has one, and as many
    /// wait as the average says.
    pub fn requests(&self, waiting: Option<usize>, time: Duration) -> u64 {
        let within = (self.least_bound(waiting) * time.as_secs_f64()).min(MOST_REQUESTS as f64) as u64;
        within.max(self.connections as u64).next_multiple_of(self.every)
    }

    /// Loads a server.
    ///
    /// # Errors
    ///
    /// Why it has no row.
    pub fn row(&self, entrant: &Entrant) -> Result<Row, Absence> {
        let mut process = Process::start(&entrant.launch, &self.server_cores)?;
        let load = self.load(entrant, &process)?;
        let report = run(&load, &mut |_| {}).map_err(|error| Absence::from(error).explained(&mut process))?;
        let failed = report.failed.total();
        if failed > 0 {
            let first = report.first_failure.as_deref().unwrap_or("no reason is known");
            let why = format!("{failed} of its answers were not right, the first: {first}");
            return Err(Absence::wrong(why).explained(&mut process));
        }
        let said = process.end().map_err(|Failure(why)| Absence::wrong(why))?;
        if !self.stop.is_begun() {
            check_count(said.as_deref(), entrant.requests)?;
        }
        Ok(self.shown(entrant, &report))
    }

    fn load(&self, entrant: &Entrant, process: &Process) -> Result<Load, LoadError> {
        let page = Exchange::new("GET", "/").with(|page| page.answers = vec![Page::BODY.to_vec()]);
        let traffic = Traffic::expecting(vec![page])?;
        // As long as all connections' requests take one after the other, three times over.
        let round = self.connections as f64 / self.least_bound(entrant.waiting);
        Ok(Load::new(process.addr(), traffic).with(|load| {
            load.connections = self.connections;
            load.threads = self.client_cores.count().min(self.connections);
            load.cores = self.client_cores.numbers().to_vec();
            load.usage = Usage::Close;
            load.must_close = true;
            load.span = Span::Requests(entrant.requests);
            load.patience = self.wait + Duration::from_secs_f64((3.0 * round).min(1e6)) + Duration::from_secs(10);
            load.cpu = CpuOf::Process(process.pid());
            load.stop = self.stop.clone();
        }))
    }

    fn shown(&self, entrant: &Entrant, report: &Report) -> Row {
        let at = |quantile: f64| microseconds(&report.latency, quantile) / 1000.0;
        let requests_per_s = report.per_second();
        let figures = Figures {
            server: entrant.name.clone(),
            total_s: report.elapsed.as_secs_f64(),
            requests_per_s,
            mean_ms: report.latency.mean() / 1e6,
            p50_ms: at(0.5),
            p66_ms: at(0.66),
            p75_ms: at(0.75),
            p80_ms: at(0.8),
            p90_ms: at(0.9),
            p95_ms: at(0.95),
            p98_ms: at(0.98),
            p99_ms: at(0.99),
            max_ms: at(1.0),
        };
        let ours = Ours {
            part: entrant.part,
            published_as: entrant.published_as.clone(),
            workers: entrant.workers,
            bound_per_s: entrant.waiting.map(|waiting| self.bound(waiting)),
            connections_bound_per_s: self.bound(self.connections),
            of_bound: requests_per_s / self.least_bound(entrant.waiting),
            requests: entrant.requests,
            connections: self.connections,
            every: self.every,
            wait_s: self.wait.as_secs_f64(),
            server_busy: report.server_busy,
        };
        Row { figures, ours }
    }
}

#[cfg(test)]
mod tests;
