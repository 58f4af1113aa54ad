//! `polyserve stress`: the stress scenario against one server over one repo, or against a server of others.

use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use polyserve::catalog::Catalog;
use polyserve::env::Settings;
use polyserve_experiments::stress::{Mode, OwnServer, Scenario, Stress, Subject, Use};
use polyserve_lab::Misuse;
use polyserve_lab::data::Data;
use polyserve_lab::experiment::RecordArgs;
use polyserve_lab::launch::foreign::{Foreign, ForeignSources, build};
use polyserve_lab::limits;
use serde_json::json;

use super::room::roomy;
use super::seed::SeedArgs;
use super::session::{Context, Session};
use crate::config_args::ConfigArgs;

/// The arguments of `polyserve stress`.
#[derive(Debug, clap::Args)]
pub(crate) struct StressArgs {
    /// The server: see `polyserve list`; or a server of others, such as go/twin-rwmutex, which is built first.
    #[arg(long, value_name = "S", default_value = "pool_server")]
    server: String,
    /// The repo. [default: two_level; a server of others has a store of its own]
    #[arg(long, value_name = "R")]
    repo: Option<String>,
    /// The number of requests, as a multiple of the published 40 000. It can be below 1.
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    scale: f64,
    /// Connections of each of the three groups.
    #[arg(long, value_name = "C", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// How connections are used.
    #[arg(long, value_enum, default_value_t = Rounds::Both)]
    mode: Rounds,
    /// Open the maximum number of connections that the limit on descriptors allows, all at once. Then a 503 with a
    /// Retry-After is a right answer.
    #[arg(long, conflicts_with = "mode")]
    burst: bool,
    #[command(flatten)]
    random: SeedArgs,
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Rounds {
    /// Two rounds: every request on a connection of its own, then kept connections.
    Both,
    /// Every request on a connection of its own, as published.
    Close,
    /// Kept connections.
    KeepAlive,
}

const LARGEST_SCALE: f64 = 10_000.0;

const REPO: &str = "two_level";

pub(crate) fn run(context: Context<'_>, args: &StressArgs) -> anyhow::Result<ExitCode> {
    if !(args.scale > 0.0 && args.scale <= LARGEST_SCALE) {
        return Err(Misuse(format!("--scale {} is not above 0 and at most {LARGEST_SCALE}", args.scale)).into());
    }
    let settings = args.config.settings(None)?;
    let session = context.start()?;
    let foreign = Foreign::named(&args.server).filter(|foreign| args.server == foreign.title());
    // Misuse is reported before anything is built.
    let modes = modes(args, if foreign.is_some() { 1 } else { 2 })?;
    let subject = match foreign {
        Some(foreign) => self::foreign(args, foreign, &settings, &session, context.allocator)?,
        None => own(session.catalog, args, &settings)?,
    };
    let scenario = Scenario::new(args.scale, Data::new(args.random.seed));
    let environment = session.environment([&session.available; 2], args.random.seed);
    // What all rounds of a record have in common: not the server, the repo and the mode.
    let (requests, given) = (scenario.total(), args.config.given()?);
    let description = json!({"requests": requests, "connections": args.connections, "settings": given});
    let mut stress = Stress { subject, scenario, modes, description, stop: session.stop.clone() };
    session.run(&args.record, environment, &mut stress)
}

/// A server of ours.
fn own(catalog: &Catalog, args: &StressArgs, settings: &Settings) -> anyhow::Result<Subject> {
    let (server, repo) = (catalog.server(&args.server)?, catalog.repo(args.repo.as_deref().unwrap_or(REPO))?);
    let groups = usize::from(args.connections) * 3;
    settings.make(|config| (server.make)(config).map(drop))?;
    let config = settings.with_pool_size();
    let config = if args.burst { config } else { roomy(settings, &config, groups) };
    let (_, config) = server.make_with_supported(&config)?;
    Ok(OwnServer { server: server.clone(), repo: repo.clone(), config }.into())
}

/// A server of others, built.
fn foreign(
    args: &StressArgs,
    foreign: Foreign,
    settings: &Settings,
    session: &Session<'_>,
    allocator: &'static str,
) -> anyhow::Result<Subject> {
    let name = foreign.title();
    if !foreign.keeps_entities() {
        return Err(Misuse(format!("--server {name}: it has a fixed answer, and keeps nothing that is put")).into());
    }
    if let Some(repo) = &args.repo {
        return Err(Misuse(format!("--repo {repo}: {name} has a store of its own")).into());
    }
    if let Some(flag) = args.config.flags().iter().find(|flag| !flag.starts_with("--workers=")) {
        return Err(Misuse(format!("{flag}: {name} takes --workers, and no other setting")).into());
    }
    let built = build(&[foreign], ForeignSources::default(), allocator, &session.stop);
    let server = built.first().with_context(|| format!("{name} was not built"))?;
    let launch = server.launch(settings.config.workers).map_err(|why| anyhow!("{name}: {why}"))?;
    Ok(Subject::Apart { name, launch })
}

/// The number of descriptors that the threads of a server in this process use.
const OF_SERVER: u64 = 192;

/// The rounds. `ends` is the number of descriptors of a connection in this process.
fn modes(args: &StressArgs, ends: u64) -> Result<Vec<Mode>, Misuse> {
    let room = limits::connections(OF_SERVER, ends);
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
