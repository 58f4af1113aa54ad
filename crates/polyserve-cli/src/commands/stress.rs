//! `polyserve stress`: the stress scenario against one server over one repo, or against a foreign server.

use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use polyserve::Shape;
use polyserve::catalog::{Catalog, ServerEntry};
use polyserve::env::Settings;
use polyserve_bench::Misuse;
use polyserve_bench::contestants::{Program, Registry, build};
use polyserve_bench::data::Data;
use polyserve_bench::experiment::RecordArgs;
use polyserve_bench::ladder::variant::{Binary, LadderSources};
use polyserve_bench::limits;
use polyserve_bench::matrix::DEBUG;
use polyserve_bench::stress::{ConnectionMode, ConnectionPolicy, Scenario, Stress, Subject};
use serde_json::json;

use super::entrants::{debug_args, serve};
use super::names::ALL;
use super::room;
use super::seed::SeedArgs;
use super::session::{Context, MeasurementSession};
use crate::config_args::ConfigArgs;

/// The arguments of `polyserve stress`.
#[derive(Debug, clap::Args)]
pub(crate) struct StressArgs {
    /// The server: a name of `polyserve list`; `all`, for all of them in turn; or a foreign server, such as go/twin-rwmutex,
    /// or a published listing, such as twin/entity and go/entity-rwmutex, which are built first. With the prefix debug/ a
    /// server of the list is built without optimisation and prints a line for each request, as the published server did;
    /// go/twin-rwmutex-printing prints lines too.
    #[arg(long, value_name = "S", default_value = "pool_server")]
    server: String,
    /// The repo. [default: two_level; a foreign server has its own store]
    #[arg(long, value_name = "R")]
    repo: Option<String>,
    /// The number of requests, as a multiple of the published 40 000. It can be below 1.
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    scale: f64,
    /// The number of connections of each of the three groups.
    #[arg(long, value_name = "C", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// How connections are used.
    #[arg(long, value_enum, default_value_t = Rounds::Both)]
    mode: Rounds,
    /// Run the groups one after the other, as published, each with the connections of all its requests at once, from several
    /// loopback addresses and up to the limit on descriptors. A 503 with a Retry-After is then a right answer.
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

const MAX_SCALE: f64 = 10_000.0;

const DEFAULT_REPO: &str = "two_level";

pub(crate) fn run(context: Context<'_>, args: &StressArgs) -> anyhow::Result<ExitCode> {
    if !(args.scale > 0.0 && args.scale <= MAX_SCALE) {
        return Err(Misuse(format!("--scale {} is not above 0 and at most {MAX_SCALE}", args.scale)).into());
    }
    let settings = args.config.settings(None)?;
    let session = context.start()?;
    let foreign = Registry::repository().named(&args.server);
    let foreign = foreign.filter(|foreign| args.server == foreign.name() && foreign.is_server());
    // Misuse is reported before anything is built.
    let modes = modes(args)?;
    let subjects = match foreign {
        Some(foreign) => vec![foreign_subject(args, foreign, &settings, &session, context.allocator)?],
        None if args.server == ALL => {
            settings.check(session.catalog.servers())?;
            let servers = session.catalog.servers().iter();
            servers.map(|server| subject(session.catalog, server, args, &settings)).collect::<anyhow::Result<_>>()?
        }
        None => {
            let unprefixed = args.server.strip_prefix(DEBUG);
            let server = session.catalog.server(unprefixed.unwrap_or(&args.server))?;
            settings.make(|config| server.build(config).map(drop))?;
            let subject = subject(session.catalog, server, args, &settings)?;
            vec![if unprefixed.is_some() { built_in_debug(subject, &session)? } else { subject }]
        }
    };
    let mut scenario = Scenario::new(((10_000.0 * args.scale).round() as u64).max(1), Data::new(args.random.seed));
    scenario.without_date = foreign.is_some_and(Program::is_without_date);
    let environment = session.environment([&session.available; 2], args.random.seed);
    // The settings of all rounds of a record. The server, the repo and the mode differ.
    let (requests, given) = (scenario.total(), args.config.given()?);
    let mut description = json!({"requests": requests, "connections": args.connections, "settings": given});
    if args.burst {
        description["groups"] = json!("one after the other"); // older records have all groups in one burst
    }
    let mut worst = ExitCode::SUCCESS;
    for subject in subjects {
        let (modes, description) = (modes.clone(), description.clone());
        let mut stress = Stress { subject, scenario, modes, description, stop: session.stop.clone() };
        let code = session.run(&args.record, environment.clone(), &mut stress)?;
        worst = if code == ExitCode::SUCCESS { worst } else { code };
        if session.stop.is_begun() {
            break;
        }
    }
    Ok(worst)
}

/// A server of the catalog.
fn subject(catalog: &Catalog, server: &ServerEntry, args: &StressArgs, settings: &Settings) -> anyhow::Result<Subject> {
    let repo = catalog.repo(args.repo.as_deref().unwrap_or(DEFAULT_REPO))?;
    let groups = usize::from(args.connections) * 3;
    let config = settings.with_pool_size();
    let config = if args.burst { config } else { room::roomy(settings, &config, groups) };
    let (instance, config) = server.build_with_supported(&config)?;
    let flags = room::flags(&config, &args.config.flags(), &[]);
    Ok(Subject {
        server: server.name.clone(),
        repo: repo.name.clone(),
        launch: serve(&server.name, &repo.name, &flags, Vec::new()),
        is_single: instance.shape() == Shape::One,
    })
}

/// Builds the server without optimisation. It prints a line for each request, which is discarded.
fn built_in_debug(subject: Subject, session: &MeasurementSession<'_>) -> anyhow::Result<Subject> {
    let name = format!("{DEBUG}{}", subject.server);
    Catalog::builtin().server(&subject.server)?;
    if subject.repo.contains(':') {
        return Err(Misuse(format!("--repo {}: {name} takes a repo in memory", subject.repo)).into());
    }
    let program = LadderSources::new(None).debug(Binary::with(&subject.server), &session.stop);
    let mut launch = subject.launch;
    launch.program = program.map_err(|why| anyhow!("{name}: {why}"))?;
    launch.args.extend(debug_args(true));
    Ok(Subject { server: name, launch, ..subject })
}

/// Builds a foreign server.
fn foreign_subject(
    args: &StressArgs,
    foreign: &Program,
    settings: &Settings,
    session: &MeasurementSession<'_>,
    allocator: &'static str,
) -> anyhow::Result<Subject> {
    let name = foreign.name().to_owned();
    if !foreign.keeps_entities() {
        return Err(Misuse(format!("--server {name}: it has a fixed answer, and keeps nothing that is put")).into());
    }
    if let Some(repo) = &args.repo {
        return Err(Misuse(format!("--repo {repo}: {name} has a store of its own")).into());
    }
    if let Some(flag) = args.config.flags().iter().find(|flag| !flag.starts_with("--workers=")) {
        return Err(Misuse(format!("{flag}: {name} takes --workers, and no other setting")).into());
    }
    let built = build([foreign], allocator, &session.stop);
    let server = built.first().with_context(|| format!("{name} was not built"))?;
    let launch = server.launch(settings.config.workers).map_err(|why| anyhow!("{name}: {why}"))?;
    Ok(Subject { server: name, repo: "its own store".into(), launch, is_single: false })
}

/// The rounds.
fn modes(args: &StressArgs) -> Result<Vec<ConnectionMode>, Misuse> {
    let max_connections = limits::connections(0);
    let clients = usize::from(args.connections);
    if args.burst {
        if max_connections == 0 {
            return Err(Misuse("the limit on open descriptors allows no connection".into()));
        }
        return Ok(vec![ConnectionMode::Burst(max_connections, clients * 3)]);
    }
    limits::check_connections(clients, max_connections / 3)?;
    Ok(match args.mode {
        Rounds::Both => {
            vec![
                ConnectionMode::Groups(ConnectionPolicy::Close, clients),
                ConnectionMode::Groups(ConnectionPolicy::KeepAlive, clients),
            ]
        }
        Rounds::Close => vec![ConnectionMode::Groups(ConnectionPolicy::Close, clients)],
        Rounds::KeepAlive => vec![ConnectionMode::Groups(ConnectionPolicy::KeepAlive, clients)],
    })
}
