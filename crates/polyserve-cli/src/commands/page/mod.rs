//! `polyserve page`: the published page that sometimes waits: as published, and against pools of every size.

mod entrants;

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use polyserve::Shutdown;
use polyserve::catalog::Catalog;
use polyserve::config::MAX_WORKERS;
use polyserve_experiments::page::table::{Shown, write_csv};
use polyserve_experiments::page::{Entrant, Experiment, Failed, Measured, Part, Row, claims, published};
use polyserve_lab::Misuse;
use polyserve_lab::journal::{Header, Journal, as_line};
use polyserve_lab::limits;
use polyserve_lab::machine::Environment;
use polyserve_lab::machine::cores::Cores;
use polyserve_lab::output::{print, print_json};
use polyserve_lab::progress::Progress;
use polyserve_report::Claim;
use serde::Serialize;
use serde_json::{Value, json};

use self::entrants::Field;
use super::cores::CoresArgs;
use super::stop;
use super::times::{WAITS, within};
use crate::config_args::ConfigArgs;

/// What `polyserve page` is told. Here `--workers` is a list.
#[derive(Debug, clap::Args)]
#[command(mut_arg("workers", |arg| arg.value_name("N,...").help(WORKERS)))]
pub(crate) struct PageArgs {
    /// The servers, with commas between them. [default: all that multiplex connections, or hold them with a pool]
    #[arg(long, value_name = "S,...", value_delimiter = ',')]
    servers: Vec<String>,
    /// The parts of the run: as published (pools of 100, 100 connections, 10000 requests), and the sweep of pool sizes.
    #[arg(long, value_name = "PART,...", value_delimiter = ',', value_enum, default_values = ["published", "sweep"])]
    parts: Vec<Part>,
    /// Connections at a time in the sweep, each for one request.
    #[arg(long, short, value_name = "C", default_value_t = 100)]
    connections: usize,
    /// Requests to each server of the sweep. [default: as many as 30 s allow, quick: 1 s; 10000 at most]
    #[arg(long, short = 'n', value_name = "R", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    requests: Option<u64>,
    /// Every how many requests the page waits in the sweep.
    #[arg(long, value_name = "N", default_value_t = published::EVERY, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    page_every: u64,
    /// How long the page waits, in both parts. [default: 2s, quick: 200ms]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    page_wait: Option<Duration>,
    /// Fewer pools, a shorter wait and fewer requests: about a minute.
    #[arg(long)]
    quick: bool,
    /// A directory to record in, and to go on from: page.jsonl, and page.csv with the published columns first.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    cores: CoresArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

/// The help of `--workers`.
const WORKERS: &str = "The sweep's numbers of workers, with commas between them. A server that does not let them be chosen takes \
    part once [default: 1,2,4,8,16,32,64,128; quick: 1,8,32,128]";
/// The experiment's name.
const EXPERIMENT: &str = "page";
/// Waits of a full run, and of a quick one.
const QUICK_WAIT: Duration = Duration::from_millis(200);

/// Measures.
pub(crate) fn run(catalog: &Catalog, args: &PageArgs, json: bool, allocator: &'static str) -> anyhow::Result<ExitCode> {
    let stop = stop::on_signal()?;
    let available = Cores::available().context("the cores of this machine are not known")?;
    let mut config = args.config.clone();
    let workers = args.workers(config.take("workers").as_deref())?;
    let settings = config.settings(None)?;
    let sweep = args.experiment(&available, stop.clone())?;
    limits::enough(args.connections.max(published::CONNECTIONS), limits::connections(0, 1))?;
    let flags = config.flags();
    let as_published = Experiment { connections: published::CONNECTIONS, every: published::EVERY, ..sweep.clone() };
    let field = |experiment| Field { catalog, servers: &args.servers, flags: &flags, settings: &settings, experiment };
    let (cells, absent) = args.cells(&field(&as_published), &field(&sweep), &workers)?;
    let Experiment { server_cores, client_cores, .. } = &sweep;
    let environment = Environment::of(&available, [server_cores, client_cores], 0, allocator);
    let plan = args.plan(&sweep, &cells, &config.given()?);
    let header = Header::new(EXPERIMENT, plan, environment);
    let mut journal = Journal::open(args.out.as_deref(), &header)?;
    for failed in &absent {
        journal.once(Failed::KIND, failed)?;
    }
    // Who did wrong is not tried again: who is asked often enough may be lucky.
    let wrong = journal.before::<Failed>(Failed::KIND)?.into_iter().filter(|failed| failed.wrong);
    let mut measured = Measured {
        connections_bound_per_s: sweep.bound(sweep.connections),
        rows: journal.before(Row::KIND)?,
        failed: absent.iter().cloned().chain(wrong).collect(),
        interrupted: false,
    };
    let result = measure(&cells, &stop, &mut journal, &mut measured);
    measured.interrupted = stop.is_begun();
    in_order(&mut measured.rows, &cells);
    if let Some(dir) = &args.out {
        let path = dir.join(EXPERIMENT).with_extension("csv");
        written(&path, &measured.rows).with_context(|| path.display().to_string())?;
    }
    result?;
    let claims = claims::claims(&lines(&header, &measured)?)?;
    if json {
        print_json(&Printed { environment: &header.environment, measured: &measured, claims: &claims })
    } else {
        print(&Shown { measured: &measured, claims: &claims }.to_string())
    }?;
    // Who takes no part is no failure, unless it was asked for by its name.
    let is_excused = |failed: &Failed| args.servers.is_empty() && absent.contains(failed);
    let failed = measured.failed.iter().filter(|failed| !is_excused(failed));
    Ok(stop::exit_code(measured.interrupted, failed.map(|failed| failed.wrong)))
}

/// Loads everybody who has no row yet, but for those who did wrong.
fn measure(cells: &[Cell<'_>], stop: &Shutdown, journal: &mut Journal, measured: &mut Measured) -> anyhow::Result<()> {
    let is_over = |entrant: &Entrant| {
        let is_wrong = |failed: &Failed| failed.wrong && failed.is_of(entrant);
        measured.rows.iter().any(|row| row.is_of(entrant)) || measured.failed.iter().any(is_wrong)
    };
    let missing: Vec<_> = cells.iter().filter(|(_, entrant)| !is_over(entrant)).collect();
    let mut progress = Progress::counting(missing.len(), "servers");
    let result = missing.iter().try_for_each(|(experiment, entrant)| {
        if stop.is_begun() {
            return Ok(());
        }
        let Entrant { part, name, workers, requests, .. } = entrant;
        let with = workers.map_or_else(String::new, |workers| format!(", {workers} workers"));
        progress.begin(format!("{name}{with}: {requests} requests"));
        let row = experiment.row(entrant);
        if stop.is_begun() {
            return Ok(()); // it was cut short
        }
        progress.turn_over();
        match row {
            Ok(row) => {
                journal.line(Row::KIND, &row)?;
                measured.rows.push(row);
            }
            Err(absence) => {
                let (wrong, why) = (absence.is_wrong(), absence.why);
                let failed = Failed { part: *part, server: name.clone(), workers: *workers, why, wrong };
                journal.line(Failed::KIND, &failed)?;
                measured.failed.push(failed);
            }
        }
        Ok(())
    });
    progress.finish();
    result
}

/// The parts in turn; server by server, the smaller number of workers first.
fn in_order(rows: &mut [Row], cells: &[Cell<'_>]) {
    rows.sort_by_cached_key(|row| {
        let server =
            cells.iter().position(|(_, entrant)| entrant.part == row.ours.part && entrant.name == row.figures.server);
        (server, row.ours.workers)
    });
}

/// What is known by now, as a record has it: without a directory there is none.
fn lines(header: &Header, measured: &Measured) -> anyhow::Result<Vec<Value>> {
    let mut lines = vec![as_line(Header::KIND, header)?];
    for row in &measured.rows {
        lines.push(as_line(Row::KIND, row)?);
    }
    for failed in &measured.failed {
        lines.push(as_line(Failed::KIND, failed)?);
    }
    Ok(lines)
}

fn written(path: &Path, rows: &[Row]) -> anyhow::Result<()> {
    Ok(write_csv(rows, File::create(path)?)?)
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Printed<'a> {
    environment: &'a Environment,
    #[serde(flatten)]
    measured: &'a Measured,
    claims: &'a [Claim],
}

/// A server, and the experiment that it is in.
type Cell<'a> = (&'a Experiment, Entrant);

impl PageArgs {
    /// Everybody who is loaded, part by part, and those who cannot be.
    fn cells<'a>(
        &self,
        as_published: &Field<'a>,
        sweep: &Field<'a>,
        workers: &[usize],
    ) -> anyhow::Result<(Vec<Cell<'a>>, Vec<Failed>)> {
        let (mut cells, mut failed) = (Vec::new(), Vec::new());
        if self.parts.contains(&Part::Published) {
            let (entrants, refused) = as_published.published()?;
            cells.extend(entrants.into_iter().map(|entrant| (as_published.experiment, entrant)));
            failed.extend(refused);
        }
        if self.parts.contains(&Part::Sweep) {
            let (entrants, refused) = sweep.sweep(workers, self.requests, self.quick)?;
            cells.extend(entrants.into_iter().map(|entrant| (sweep.experiment, entrant)));
            failed.extend(refused);
        }
        if cells.is_empty() {
            let why = "none of these servers takes part in these parts with these settings";
            return Err(Misuse(String::from(why)).into());
        }
        Ok((cells, failed))
    }

    fn experiment(&self, available: &Cores, stop: Shutdown) -> anyhow::Result<Experiment> {
        let usual = if self.quick { QUICK_WAIT } else { published::WAIT };
        let wait = self.page_wait.unwrap_or(usual);
        within("--page-wait", wait, WAITS)?;
        if self.connections == 0 {
            return Err(Misuse("--connections 0 asks for nothing".into()).into());
        }
        let [server_cores, client_cores] = self.cores.of(available)?;
        let (connections, every) = (self.connections, self.page_every);
        Ok(Experiment { server_cores, client_cores, connections, every, wait, stop })
    }

    /// The numbers of workers, each once: those of the flag, if it was given.
    fn workers(&self, flag: Option<&str>) -> Result<Vec<usize>, Misuse> {
        let Some(list) = flag else {
            return Ok(if self.quick { vec![1, 8, 32, 128] } else { vec![1, 2, 4, 8, 16, 32, 64, 128] });
        };
        let number = |text: &str| text.trim().parse().ok().filter(|workers| (1..=MAX_WORKERS).contains(workers));
        let numbers: Option<Vec<usize>> = list.split(',').map(number).collect();
        let mut numbers = numbers
            .ok_or_else(|| Misuse(format!("--workers {list:?} is no list of numbers from 1 to {MAX_WORKERS}")))?;
        let mut seen = HashSet::new();
        numbers.retain(|number| seen.insert(*number));
        Ok(numbers)
    }

    /// What decides what is measured.
    fn plan(&self, sweep: &Experiment, cells: &[Cell<'_>], settings: &Value) -> Value {
        let who = |part: Part| -> Vec<Value> {
            let those = cells.iter().filter(|(_, entrant)| entrant.part == part);
            those.map(|(_, Entrant { name, workers, requests, .. })| json!([name, workers, requests])).collect()
        };
        json!({
            "quick": self.quick,
            "wait_s": sweep.wait.as_secs_f64(),
            "every": sweep.every,
            "connections": sweep.connections,
            "published": who(Part::Published),
            "sweep": who(Part::Sweep),
            "settings": settings,
        })
    }
}
