//! `polyserve page`: the published page that sometimes waits, as published and on pools of every size.

mod entrants;
mod twins;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use polyserve::ServerConfig;
use polyserve_bench::contestants;
use polyserve_bench::experiment::{RecordArgs, distinct};
use polyserve_bench::page::{Conditions, PageFile, PagePart, PageSource, WaitingPage, published};
use polyserve_bench::statistics::MIN_ROUNDS;
use polyserve_bench::{Misuse, limits};

use self::entrants::Selection;
use super::cores::CoresArgs;
use super::session::{Context, MeasurementSession};
use super::times::{WAITS, within};
use crate::config_args::ConfigArgs;

/// The arguments of `polyserve page`. Here `--workers` is a list.
#[derive(Debug, clap::Args)]
#[command(mut_arg("workers", |arg| arg.value_name("N,...").help(WORKERS)))]
pub(crate) struct PageArgs {
    /// The servers, separated by commas, with twins such as twin/tokio. [default: all twins, and all servers that multiplex
    /// connections or have a pool]
    #[arg(long, value_name = "S,...", value_delimiter = ',')]
    servers: Vec<String>,
    /// The parts of the run: as published (pools of 100, 100 connections, 10000 requests), the published listings and twins in
    /// other languages, and the sweep of pool sizes. [default: all, quick: published,sweep]
    #[arg(long, value_name = "PART,...", value_delimiter = ',', value_enum)]
    parts: Vec<PagePart>,
    /// The source of the page in the published part: memory, or a file that is read for each request.
    #[arg(long, value_name = "PAGE,...", value_delimiter = ',', value_enum, default_values = ["memory", "file"])]
    pages: Vec<PageSource>,
    /// The number of rounds of the twins. A claim about ratios needs 10. [default: 10, quick: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: Option<u64>,
    /// The number of concurrent connections in the sweep. Each serves one request.
    #[arg(long, short, value_name = "C", default_value_t = 100)]
    connections: usize,
    /// The number of requests to each server of the sweep. [default: what 30 s allow, quick: 1 s; at most 10000]
    #[arg(long, short = 'n', value_name = "R", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    requests: Option<u64>,
    /// In the sweep, one request in this number of requests waits.
    #[arg(long, value_name = "N", default_value_t = published::REQUESTS_PER_WAIT, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    page_every: u64,
    /// The length of a wait, in all parts. [default: 2s, quick: 200ms]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    page_wait: Option<Duration>,
    /// Fewer pools, a shorter wait and fewer requests: about a minute.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    cores: CoresArgs,
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

/// The help of `--workers`.
const WORKERS: &str = "The sweep's numbers of workers, separated by commas. A server without this setting takes part \
    once [default: 1,2,4,8,16,32,64,128; quick: 1,8,32,128]";
/// The wait of a quick run.
const QUICK_WAIT: Duration = Duration::from_millis(200);

pub(crate) fn run(context: Context<'_>, args: &PageArgs) -> anyhow::Result<ExitCode> {
    let session = context.start()?;
    let mut config = args.config.clone();
    let workers = args.workers(config.take("workers").as_deref())?;
    let settings = config.settings(None)?;
    let sweep = args.conditions(&session)?;
    limits::check_connections(args.connections.max(published::CONNECTIONS), limits::connections(0))?;
    let flags = config.flags();
    let published =
        Conditions { connections: published::CONNECTIONS, every: published::REQUESTS_PER_WAIT, ..sweep.clone() };
    let (twins, servers) = twins::split(&args.servers);
    let file = PageFile::new().context("the file of the page cannot be written")?;
    let selection = |conditions| Selection {
        catalog: context.catalog,
        servers: &servers,
        flags: &flags,
        settings: &settings,
        conditions,
        file: file.path(),
    };
    let parts = args.parts();
    let has = |part: PagePart| parts.contains(&part);
    // If only twins were asked for, the catalog's servers have no part.
    let has_catalog = args.servers.is_empty() || !servers.is_empty();
    let mut entered = Vec::new();
    if has(PagePart::Published) && has_catalog {
        entered.push(selection(&published).published(&distinct(args.pages.iter().copied()))?);
    }
    if has(PagePart::Twins) {
        let page = twins::TwinPage { file: file.path().to_owned(), every: published.every, wait: published.wait };
        let built = contestants::build(&twins, context.allocator, &session.stop);
        entered.push(twins::entrants(&built, &published, &page, args.rounds(), args.servers.is_empty()));
    }
    if has(PagePart::Sweep) && has_catalog {
        entered.push(selection(&sweep).sweep(&workers, args.requests, args.quick)?);
    }
    let (entrants, absent): (Vec<_>, Vec<_>) = entered.into_iter().unzip();
    let (entrants, absent) = (entrants.concat(), absent.concat());
    if entrants.is_empty() && absent.is_empty() {
        let why = "none of these servers takes part in these parts with these settings";
        return Err(Misuse(String::from(why)).into());
    }
    let environment = session.environment([&sweep.server_cores, &sweep.client_cores], 0);
    let (quick, settings) = (args.quick, config.given()?);
    let mut experiment = WaitingPage { published, sweep, entrants, absent, quick, settings };
    session.run(&args.record, environment, &mut experiment)
}

impl PageArgs {
    /// The parts of the run.
    fn parts(&self) -> Vec<PagePart> {
        match (self.parts.is_empty(), self.quick) {
            (false, _) => self.parts.clone(),
            (true, true) => vec![PagePart::Published, PagePart::Sweep],
            (true, false) => vec![PagePart::Published, PagePart::Twins, PagePart::Sweep],
        }
    }

    /// The number of rounds of the twins.
    fn rounds(&self) -> usize {
        let default = if self.quick { 1 } else { MIN_ROUNDS };
        self.rounds.map_or(default, |rounds| rounds as usize)
    }

    fn conditions(&self, session: &MeasurementSession<'_>) -> anyhow::Result<Conditions> {
        let default = if self.quick { QUICK_WAIT } else { published::WAIT };
        let wait = self.page_wait.unwrap_or(default);
        within("--page-wait", wait, WAITS)?;
        if self.connections == 0 {
            return Err(Misuse("--connections must be at least 1".into()).into());
        }
        let [server_cores, client_cores] = self.cores.of(&session.available)?;
        let (connections, every, stop) = (self.connections, self.page_every, session.stop.clone());
        Ok(Conditions { server_cores, client_cores, connections, every, wait, stop })
    }

    /// The numbers of workers, each once: the flag's numbers if it was given.
    fn workers(&self, flag: Option<&str>) -> Result<Vec<usize>, Misuse> {
        let Some(list) = flag else {
            return Ok(if self.quick { vec![1, 8, 32, 128] } else { vec![1, 2, 4, 8, 16, 32, 64, 128] });
        };
        let number =
            |text: &str| text.trim().parse().ok().filter(|workers| (1..=ServerConfig::MAX_WORKERS).contains(workers));
        let numbers: Option<Vec<usize>> = list.split(',').map(number).collect();
        let numbers = numbers.ok_or_else(|| {
            Misuse(format!("--workers {list:?} is no list of numbers from 1 to {}", ServerConfig::MAX_WORKERS))
        })?;
        Ok(distinct(numbers))
    }
}
