//! `polyserve matrix`: the published matrix of pool sizes and connections, all contestants cell by cell.

use std::collections::HashSet;
use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use polyserve::catalog::Catalog;
use polyserve::config::MAX_WORKERS;
use polyserve::env::Settings;
use polyserve_experiments::matrix::plan::{Grid, Step, steps};
use polyserve_experiments::matrix::{
    Cell, Entrant, Experiment, Failed, FailedCell, Key, Method, NAME, claims, table, write_csv,
};
use polyserve_lab::Misuse;
use polyserve_lab::journal::{Header, Journal, as_line};
use polyserve_lab::limits;
use polyserve_lab::machine::Environment;
use polyserve_lab::machine::cores::Cores;
use polyserve_lab::output::{print, print_json};
use polyserve_lab::progress::Progress;
use polyserve_report::Claim;
use polyserve_report::shown_claims;
use serde::Serialize;
use serde_json::{Value, json};

use super::cores::CoresArgs;
use super::stop;
use crate::config_args::ConfigArgs;

mod field;

use field::{Field, Line};

/// What `polyserve matrix` is told. The pools' sizes are the servers' workers.
#[derive(Debug, clap::Args)]
#[command(mut_arg("workers", |arg| arg.hide(true)))]
pub(crate) struct MatrixArgs {
    /// The servers, with commas between them; go/twin-rwmutex, go/twin-syncmap, go/nethttp and go/fasthttp too.
    /// [default: all of the catalog and both twins; quick: five]
    #[arg(long, value_name = "S,...", value_delimiter = ',')]
    servers: Vec<String>,
    /// The repos of our servers, with commas between them.
    #[arg(long, value_name = "R,...", value_delimiter = ',', default_value = "two_level")]
    repos: Vec<String>,
    /// Sizes of pools, with commas between them. A server that does not let its workers be chosen takes part once for
    /// each number of connections. [default: 2,4,8,16,32,64; quick: 2,8,32]
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    pools: Vec<usize>,
    /// Connections at a time, each for one request, with commas between them. [default: 10,100,1000]
    #[arg(long, short, value_name = "C,...", value_delimiter = ',')]
    connections: Vec<usize>,
    /// Requests of each cell. [default: 100000, quick: 20000]
    #[arg(long, short = 'n', value_name = "R", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    requests: Option<u64>,
    /// What is asked, with commas between them.
    #[arg(long, value_enum, value_name = "M,...", value_delimiter = ',', default_value = "get,put")]
    methods: Vec<Method>,
    /// Repetitions of the whole matrix.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Fewer contestants, pools and requests: about a minute, and never three.
    #[arg(long)]
    quick: bool,
    /// The sources of the programs in Go. [default: benches/peers/go of this command's sources]
    #[arg(long, value_name = "DIR")]
    peers_dir: Option<PathBuf>,
    /// A directory to record every cell in, and the CSV files; what is there already is not measured again.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    cores: CoresArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

/// The published sizes, and those of a quick run.
const POOLS: [usize; 6] = [2, 4, 8, 16, 32, 64];
const QUICK_POOLS: [usize; 3] = [2, 8, 32];
const CONNECTIONS: [usize; 3] = [10, 100, 1000];
const REQUESTS: u64 = 100_000;
const QUICK_REQUESTS: u64 = 20_000;
/// A quick run begins no cell after this, however slow the machine is; unless it was told how many requests.
const QUICK_TIME: Duration = Duration::from_secs(150);

/// Measures.
pub(crate) fn run(
    catalog: &Catalog,
    args: &MatrixArgs,
    json: bool,
    allocator: &'static str,
) -> anyhow::Result<ExitCode> {
    let stop = stop::on_signal()?;
    let available = Cores::available().context("the cores of this machine are not known")?;
    let (grid, settings) = (args.grid()?, args.settings()?);
    let [server_cores, client_cores] = args.cores.of(&available)?;
    let requests = args.requests.unwrap_or(if args.quick { QUICK_REQUESTS } else { REQUESTS });
    let environment = Environment::of(&available, [&server_cores, &client_cores], 0, allocator);
    let profile = environment.profile.clone();
    let most = grid.connections.iter().copied().max().unwrap_or(0);
    let flags = args.config.flags();
    let field = Field { args, flags: &flags, settings: &settings, profile: &profile, most };
    let lines = field.lines(catalog, &grid.pools)?;
    let plan = json!({
        "contestants": lines.iter().map(Line::name).collect::<Vec<_>>(),
        "pools": grid.pools, "connections": grid.connections, "requests": requests,
        "methods": grid.methods, "rounds": grid.rounds, "quick": args.quick, "settings": flags,
    });
    let header = Header::new(NAME, plan, environment);
    let journal = Journal::open(args.out.as_deref(), &header)?;
    let (entrants, absent) = field.enter(lines, &stop);
    let experiment = Experiment { server_cores, client_cores, requests, stop };
    let cells = journal.before(Cell::KIND)?;
    // Who did wrong is not tried again: who is asked often enough may be lucky.
    let failed = journal.before::<Failed>(Failed::KIND)?.into_iter().filter(|failed| failed.wrong).collect();
    let mut run = Run { experiment, entrants, grid, failed, cells, journal, left: 0 };
    run.note(absent)?;
    run.measure(args.quick && args.requests.is_none())?;
    let measured = run.measured(header)?;
    if let Some(dir) = &args.out {
        for method in &run.grid.methods {
            let path = dir.join(format!("{NAME}_{}.csv", method.name()));
            let within = || path.display().to_string();
            write_csv(&measured.cells, *method, File::create(&path).with_context(within)?).with_context(within)?;
        }
    }
    if json { print_json(&measured) } else { print(&measured.shown()?) }?;
    // Who cannot be had here is no failure, unless it was asked for by its name.
    let is_excused = |failed: &Failed| failed.cell.is_none() && !args.servers.contains(&failed.who.contestant);
    let failed = measured.failed.iter().filter(|failed| !is_excused(failed));
    Ok(stop::exit_code(measured.interrupted, failed.map(|failed| failed.wrong)))
}

impl MatrixArgs {
    fn grid(&self) -> anyhow::Result<Grid> {
        let usual: &[usize] = if self.quick { &QUICK_POOLS } else { &POOLS };
        let or = |given: &[usize], usual: &[usize]| once(if given.is_empty() { usual } else { given });
        let (pools, connections) = (or(&self.pools, usual), or(&self.connections, &CONNECTIONS));
        if let Some(size) = pools.iter().find(|size| !(1..=MAX_WORKERS).contains(*size)) {
            return Err(Misuse(format!("--pools {size} is not from 1 to {MAX_WORKERS}")).into());
        }
        if connections.contains(&0) {
            return Err(Misuse("--connections 0 asks for nothing".into()).into());
        }
        let most = connections.iter().copied().max().unwrap_or(0);
        limits::enough(most, limits::connections(0, 1))?;
        Ok(Grid { pools, connections, methods: once(&self.methods), rounds: self.rounds })
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        if self.config.clone().take("workers").is_some() {
            return Err(Misuse("--workers are the pools' sizes here: --pools 2,4,8".into()).into());
        }
        Ok(self.config.settings(None)?)
    }
}

/// `all`, each once.
fn once<T: Copy + Eq>(all: &[T]) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(one) {
            once.push(*one);
        }
    }
    once
}

/// A run under way.
#[derive(Debug)]
struct Run {
    experiment: Experiment,
    entrants: Vec<Entrant>,
    grid: Grid,
    journal: Journal,
    cells: Vec<Cell>,
    failed: Vec<Failed>,
    /// Cells that are to be measured yet.
    left: usize,
}

impl Run {
    /// Notes who takes no part, unless that is because the run is to end.
    fn note(&mut self, absent: Vec<Failed>) -> anyhow::Result<()> {
        for failed in absent.into_iter().filter(|_| !self.experiment.stop.is_begun()) {
            self.journal.once(Failed::KIND, &failed)?;
            self.failed.push(failed);
        }
        Ok(())
    }

    /// Measures what was not recorded before, until all is, the run is to end, or one that is quick has no more time. A
    /// cell in which somebody did wrong is recorded.
    fn measure(&mut self, is_quick: bool) -> anyhow::Result<()> {
        let wrong = self.failed.iter().filter(|failed| failed.wrong).filter_map(Failed::key);
        let before: HashSet<Key> = self.cells.iter().map(Cell::key).chain(wrong).collect();
        let all = steps(&self.grid, &self.entrants);
        let is_new = |step: &Step| step.key(&self.entrants).is_some_and(|key| !before.contains(&key));
        let left: Vec<Step> = all.into_iter().filter(is_new).collect();
        let (mut progress, start) = (Progress::counting(left.len(), "cells"), Instant::now());
        self.left = left.len();
        for step in left {
            if self.experiment.stop.is_begun() || (is_quick && start.elapsed() >= QUICK_TIME) {
                break;
            }
            self.step(step, &mut progress)?;
        }
        progress.finish();
        Ok(())
    }

    fn step(&mut self, Step { entrant, pool, point }: Step, progress: &mut Progress) -> anyhow::Result<()> {
        let Some(Entrant { contestant, pools }) = self.entrants.get(entrant) else { return Ok(()) };
        let Some((size, launch)) = pools.get(pool) else { return Ok(()) };
        let with = size.map_or_else(String::new, |size| format!(", {size} workers"));
        let method = point.method.name().to_uppercase();
        progress.begin(format!("{method}, {} connections{with}: {}", point.connections, contestant.contestant));
        let cell = self.experiment.cell(contestant, (*size, launch), point);
        if self.experiment.stop.is_begun() {
            return Ok(()); // whatever it is, it is not the whole cell
        }
        match cell {
            Ok(cell) => {
                self.journal.line(Cell::KIND, &cell)?;
                self.cells.push(cell);
            }
            Err(absence) => {
                let (wrong, why) = (absence.is_wrong(), absence.why);
                let cell = FailedCell {
                    method: point.method,
                    connections: point.connections,
                    pool_size: *size,
                    round: point.round,
                };
                let failed = Failed { who: contestant.clone(), cell: Some(cell), why, wrong };
                self.journal.line(Failed::KIND, &failed)?;
                self.failed.push(failed);
            }
        }
        self.left -= 1;
        progress.turn_over();
        Ok(())
    }

    /// Everything that was measured, now and before.
    fn measured(&mut self, header: Header) -> anyhow::Result<Measured> {
        let (cells, failed) = (std::mem::take(&mut self.cells), std::mem::take(&mut self.failed));
        let mut lines = vec![as_line(Header::KIND, &header)?];
        for cell in &cells {
            lines.push(as_line(Cell::KIND, cell)?);
        }
        for failed in &failed {
            lines.push(as_line(Failed::KIND, failed)?);
        }
        let (claims, cells) = (claims::claims(&lines)?, table::in_order(&lines)?);
        let (interrupted, left) = (self.experiment.stop.is_begun(), self.left);
        Ok(Measured { header, cells, failed, claims, interrupted, left, lines })
    }
}

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Measured {
    #[serde(flatten)]
    header: Header,
    cells: Vec<Cell>,
    failed: Vec<Failed>,
    claims: Vec<Claim>,
    interrupted: bool,
    /// Cells that were not measured, for want of time or because it was interrupted.
    left: usize,
    #[serde(skip)]
    lines: Vec<Value>,
}

impl Measured {
    /// For people.
    fn shown(&self) -> anyhow::Result<String> {
        let mut text = table::cells(&self.lines)?.to_string();
        for failed in &self.failed {
            text.push_str(&format!("no figures: {}\n", table::failed(failed)));
        }
        text.push('\n');
        text.push_str(&shown_claims(&self.claims));
        if self.left > 0 {
            text.push_str(&format!(
                "ended early: {} cells are left; with --out a rerun goes on with them\n",
                self.left
            ));
        }
        Ok(text)
    }
}
