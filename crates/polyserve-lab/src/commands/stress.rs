//! `polyserve stress`: the stress scenario against one server over one repo.

use std::process::ExitCode;

use polyserve::ServerConfig;
use polyserve::catalog::Catalog;
use polyserve::env::Settings;

use crate::Misuse;
use crate::config_args::ConfigArgs;
use crate::data::Data;
use crate::limits;
use crate::output::{print, print_json};
use crate::stress::{self, Contestant, Mode, Scenario, Use};

/// What `polyserve stress` is told.
#[derive(Debug, clap::Args)]
pub(crate) struct StressArgs {
    /// The server. See `polyserve list`.
    #[arg(long, value_name = "S", default_value = "pool_server")]
    server: String,
    /// The repo.
    #[arg(long, value_name = "R", default_value = "two_level")]
    repo: String,
    /// So many times the published 40 000 requests; below 1 too.
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    scale: f64,
    /// Connections of each of the three groups.
    #[arg(long, value_name = "C", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// How connections are used: a round each.
    #[arg(long, value_enum, default_value_t = Rounds::Both)]
    mode: Rounds,
    /// Open as many connections as descriptors allow, all at once; a 503 with a Retry-After is a right answer then.
    #[arg(long, conflicts_with = "mode")]
    burst: bool,
    /// The data's seed.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    config: ConfigArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Rounds {
    /// Every request on a connection of its own, then kept connections.
    Both,
    /// Every request on a connection of its own, as published.
    Close,
    /// Kept connections.
    KeepAlive,
}

const LARGEST_SCALE: f64 = 10_000.0;

/// Runs the scenario.
pub(crate) fn run(catalog: &Catalog, args: &StressArgs, json: bool) -> anyhow::Result<ExitCode> {
    if !(args.scale > 0.0 && args.scale <= LARGEST_SCALE) {
        return Err(Misuse(format!("--scale {} is not above 0 and at most {LARGEST_SCALE}", args.scale)).into());
    }
    let settings = args.config.settings(None)?;
    let (server, repo) = (catalog.server(&args.server)?, catalog.repo(&args.repo)?);
    let modes = modes(args)?;
    let config = settings.make(|config| {
        let config = if args.burst { config.clone() } else { roomy(&settings, config, args.connections) };
        (server.make)(&config).map(|_| config)
    })?;
    let contestant = Contestant { server: server.clone(), repo: repo.clone(), config };
    let report = stress::run(&contestant, &Scenario::new(args.scale, Data::new(args.seed)), &modes)?;
    if json { print_json(&report) } else { print(&report.to_string()) }?;
    Ok(if report.passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A 503 is an error outside a burst, so what was not limited on purpose is made to hold all connections.
fn roomy(settings: &Settings, config: &ServerConfig, connections: u16) -> ServerConfig {
    let all = usize::from(connections) * 3;
    config.clone().with(|config| {
        if !settings.is_given("queue") {
            config.queue = config.queue.max(all);
        }
        if !settings.is_given("max_connections") {
            // One that is closing still counts while its successor opens.
            config.max_connections = config.max_connections.max(all * 2);
        }
    })
}

/// Descriptors for anything but connections.
const SPARE: u64 = 256;

fn modes(args: &StressArgs) -> Result<Vec<Mode>, Misuse> {
    // A connection takes one here and one in the server, which is in this process.
    let room = limits::connections(SPARE, 2);
    let clients = usize::from(args.connections);
    if args.burst {
        let size = room.min(limits::ports());
        if size == 0 {
            return Err(Misuse("the limit on open descriptors allows no connection".into()));
        }
        return Ok(vec![Mode::Burst(size, clients * 3)]);
    }
    limits::enough(clients, room / 3)?;
    Ok(match args.mode {
        Rounds::Both => vec![Mode::Groups(Use::Close, clients), Mode::Groups(Use::KeepAlive, clients)],
        Rounds::Close => vec![Mode::Groups(Use::Close, clients)],
        Rounds::KeepAlive => vec![Mode::Groups(Use::KeepAlive, clients)],
    })
}
