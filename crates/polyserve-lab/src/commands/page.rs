//! `polyserve page`: the published page that sometimes waits, against pools of every size.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use polyserve::catalog::{Catalog, HOLDS_A_WORKER, ServerEntry};
use polyserve::config::MAX_WORKERS;
use polyserve::env::{SETTINGS, Settings};
use polyserve::{Connections, Shutdown};
use serde::Serialize;

use super::compare::chosen;
use super::entrants::serve;
use super::stop;
use crate::Misuse;
use crate::config_args::ConfigArgs;
use crate::launch::process::Failure;
use crate::limits;
use crate::machine::Environment;
use crate::machine::cores::Cores;
use crate::output::{print, print_json, spinner};
use crate::page::{Entrant, Experiment, Failed, Measured, table::write_csv};

/// What `polyserve page` is told. Here `--workers` is a list.
#[derive(Debug, clap::Args)]
#[command(mut_arg("workers", |arg| arg.value_name("N,...").help(WORKERS)))]
pub(crate) struct PageArgs {
    /// The servers, with commas between them. [default: all that multiplex connections, or hold them with a pool]
    #[arg(long, value_name = "S,...", value_delimiter = ',')]
    servers: Vec<String>,
    /// Connections at a time, each for one request.
    #[arg(long, short, value_name = "C", default_value_t = 100)]
    connections: usize,
    /// Requests to each server. [default: as many as 30 s allow, quick: 1 s; 10000 at most]
    #[arg(long, short = 'n', value_name = "R", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    requests: Option<u64>,
    /// Every how many requests the page waits.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    page_every: u64,
    /// How long the page waits. [default: 2s, quick: 100ms]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    page_wait: Option<Duration>,
    /// Fewer pools, a shorter wait and fewer requests: about a minute.
    #[arg(long)]
    quick: bool,
    /// A file to write the rows to as CSV, the published columns first.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// The servers' cores: 0, or 0-3,6. [default: the first]
    #[arg(long, value_name = "CORES")]
    server_cores: Option<Cores>,
    /// The load generator's cores. [default: the next]
    #[arg(long, value_name = "CORES")]
    client_cores: Option<Cores>,
    #[command(flatten)]
    config: ConfigArgs,
}

/// The help of `--workers`.
const WORKERS: &str = "Numbers of workers, with commas between them. A server that does not let them be chosen takes part \
    once [default: 1,2,4,8,16,32,64,128; quick: 2,8,32]";
/// Descriptors for anything but connections.
const SPARE: u64 = 64;
/// How long a server is loaded where the requests are not given.
const FULL: Duration = Duration::from_secs(30);
const QUICK: Duration = Duration::from_secs(1);
/// Waits that make sense.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(3600);

/// Measures.
pub(crate) fn run(catalog: &Catalog, args: &PageArgs, json: bool, allocator: &'static str) -> anyhow::Result<ExitCode> {
    let stop = stop::on_signal()?;
    let available = Cores::available().context("the cores of this machine are not known")?;
    let mut config = args.config.clone();
    let workers = args.workers(config.take("workers").as_deref())?;
    let settings = config.settings(None)?;
    let experiment = args.experiment(&available, stop)?;
    limits::enough(args.connections, limits::connections(SPARE, 1))?;
    let field = Field { args, flags: config.flags(), settings: &settings, experiment: &experiment };
    let (entrants, mut failed) = field.entrants(catalog, &workers)?;
    let csv = args.csv.as_deref().map(fresh).transpose()?;
    let Experiment { server_cores, client_cores, stop, .. } = &experiment;
    let environment = Environment::of(&available, [server_cores, client_cores], 0, allocator);
    let (mut rows, bar) = (Vec::new(), spinner());
    for entrant in &entrants {
        let workers = entrant.workers.map_or_else(|| "its own".into(), |workers| workers.to_string());
        bar.set_prefix(format!("{}, {workers} workers", entrant.name));
        bar.set_message(format!("{} requests", entrant.requests));
        let row = experiment.row(entrant);
        if stop.is_begun() {
            break;
        }
        match row {
            Ok(row) => rows.push(row),
            Err(Failure(why)) => {
                failed.push(Failed { server: entrant.name.clone(), workers: entrant.workers, why });
            }
        }
    }
    bar.finish_and_clear();
    let connections_bound_per_s = experiment.bound(experiment.connections);
    let measured = Measured { connections_bound_per_s, rows, failed, interrupted: stop.is_begun() };
    if let Some(csv) = csv {
        write_csv(&measured.rows, csv)?;
    }
    if json {
        print_json(&Printed { environment: &environment, measured: &measured })
    } else {
        print(&measured.to_string())
    }?;
    Ok(if measured.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Printed<'a> {
    environment: &'a Environment,
    #[serde(flatten)]
    measured: &'a Measured,
}

/// A file that was not there.
fn fresh(path: &Path) -> anyhow::Result<File> {
    File::create_new(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Misuse(format!("{} is there already; it is not written over", path.display())).into()
        }
        _ => Misuse(format!("{} cannot be made: {error}", path.display())).into(),
    })
}

impl PageArgs {
    fn experiment(&self, available: &Cores, stop: Shutdown) -> anyhow::Result<Experiment> {
        let usual = if self.quick { Duration::from_millis(100) } else { Duration::from_secs(2) };
        let wait = self.page_wait.unwrap_or(usual);
        if !(SHORTEST..=LONGEST).contains(&wait) {
            return Err(Misuse(format!("--page-wait {wait:?} is not from 1 ms to an hour")).into());
        }
        if self.connections == 0 {
            return Err(Misuse("--connections 0 asks for nothing".into()).into());
        }
        let (own, others) = (self.server_cores.as_ref(), self.client_cores.as_ref());
        let server_cores = chosen("--server-cores", own, others, available)?;
        let client_cores = chosen("--client-cores", others, Some(&server_cores), available)?;
        let (connections, every) = (self.connections, self.page_every);
        Ok(Experiment { server_cores, client_cores, connections, every, wait, stop })
    }

    /// The numbers of workers: those of the flag, if it was given.
    fn workers(&self, flag: Option<&str>) -> Result<Vec<usize>, Misuse> {
        let Some(list) = flag else {
            return Ok(if self.quick { vec![2, 8, 32] } else { vec![1, 2, 4, 8, 16, 32, 64, 128] });
        };
        let number = |text: &str| text.trim().parse().ok().filter(|workers| (1..=MAX_WORKERS).contains(workers));
        let numbers: Option<Vec<usize>> = list.split(',').map(number).collect();
        numbers.ok_or_else(|| Misuse(format!("--workers {list:?} is no list of numbers from 1 to {MAX_WORKERS}")))
    }
}

/// Who takes part, and how.
struct Field<'a> {
    args: &'a PageArgs,
    flags: Vec<String>,
    settings: &'a Settings,
    experiment: &'a Experiment,
}

impl Field<'_> {
    /// Every server with every number of workers, and those who refuse the settings. One that was asked for by its name
    /// must not refuse them. One that refuses workers takes part once, as it is.
    fn entrants(&self, catalog: &Catalog, workers: &[usize]) -> anyhow::Result<(Vec<Entrant>, Vec<Failed>)> {
        let repo = &catalog.repos().first().context("the catalog has no repo")?.name;
        let (mut entrants, mut failed) = (Vec::new(), Vec::new());
        for entry in self.servers(catalog)? {
            let alone = self.entrant(entry, repo, None);
            let (shape, alone) = match alone {
                Ok(entered) => entered,
                Err(error) if !self.args.servers.is_empty() => return Err(error),
                Err(error) => {
                    failed.push(Failed { server: entry.name.clone(), workers: None, why: error.to_string() });
                    continue;
                }
            };
            let sized: Vec<Entrant> = (workers.iter())
                .filter_map(|workers| self.entrant(entry, repo, Some(*workers)).ok())
                .map(|(_, entrant)| entrant)
                .collect();
            let is_pool = match shape {
                Connections::Multiplexed => true,
                Connections::OnePerThread => !sized.is_empty(),
                Connections::One => false,
            };
            if self.args.servers.is_empty() && !is_pool {
                continue;
            }
            entrants.extend(if sized.is_empty() { vec![alone] } else { sized });
        }
        Ok((entrants, failed))
    }

    fn servers<'a>(&self, catalog: &'a Catalog) -> anyhow::Result<Vec<&'a ServerEntry>> {
        if self.args.servers.is_empty() {
            return Ok(catalog.servers().iter().collect());
        }
        let mut servers = Vec::new();
        for name in &self.args.servers {
            servers.push(catalog.server(name)?);
        }
        Ok(servers)
    }

    /// A server with so many workers, and settings under which nobody is refused for having waited.
    fn entrant(
        &self,
        entry: &ServerEntry,
        repo: &str,
        workers: Option<usize>,
    ) -> anyhow::Result<(Connections, Entrant)> {
        let Self { args, flags: given, settings, experiment } = self;
        let Experiment { connections, wait, every, .. } = experiment;
        let config = settings.config.clone().with(|config| {
            config.workers = workers.or(config.workers);
            if !settings.is_given("queue") {
                config.queue = config.queue.max(*connections);
            }
            if !settings.is_given("max_connections") {
                // One that is closing still counts while its successor opens.
                config.max_connections = config.max_connections.max(connections * 2);
            }
            if !settings.is_given("answer_timeout") {
                config.answer_timeout = config.answer_timeout.max(*wait * 2);
            }
        });
        let server = (entry.make)(&config)?;
        let shape = server.connections();
        let waiting = match shape {
            _ if !entry.promises.iter().any(|promise| promise == HOLDS_A_WORKER) => None,
            Connections::Multiplexed => config.workers,
            Connections::OnePerThread | Connections::One => {
                Some(server.at_once().map_or(*connections, |at_once| at_once.min(*connections)))
            }
        };
        let mut flags: Vec<String> = SETTINGS
            .iter()
            .filter(|setting| ["queue", "max_connections", "answer_timeout"].contains(&setting.name()))
            .map(|setting| format!("{}={}", setting.flag(), setting.show(&config)))
            .chain(workers.map(|workers| format!("--workers={workers}")))
            .collect();
        let is_ours = |flag: &str| flags.iter().any(|ours| name(ours) == name(flag));
        let others: Vec<String> = given.iter().filter(|flag| !is_ours(flag)).cloned().collect();
        let wait = humantime::format_duration(*wait);
        let page = ["--service=page".into(), format!("--page-every={every}"), format!("--page-wait={wait}")];
        flags.extend(others.into_iter().chain(page));
        let time = if args.quick { QUICK } else { FULL };
        let requests = args.requests.unwrap_or_else(|| experiment.requests(waiting, time));
        let launch = serve(&entry.name, repo, &flags, Vec::new());
        Ok((shape, Entrant { name: entry.name.clone(), workers, waiting, requests, launch }))
    }
}

/// A flag's name, in `--name=value`.
fn name(flag: &str) -> &str {
    flag.split_once('=').map_or(flag, |(name, _)| name)
}
