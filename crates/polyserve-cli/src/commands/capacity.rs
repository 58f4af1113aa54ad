//! `polyserve capacity`: the max rate at which servers keep a goal for the latency.

use std::process::ExitCode;
use std::time::Duration;

use polyserve::catalog::{Catalog, Tag};
use polyserve_bench::Misuse;
use polyserve_bench::capacity::{Capacity, CapacityBench, Key, NamedLaunch};
use polyserve_bench::experiment::{Absent, RecordArgs, distinct};
use polyserve_bench::limits;
use polyserve_load::data::Data;
use polyserve_load::{Dist, Mix, Traffic};
use serde_json::json;

use super::cores::CoresArgs;
use super::entrants::{LIMIT, ServerLaunches, left_out, limit_launch};
use super::names::{default_names, full_names, repo_names, tagged, tagged_or_own};
use super::room;
use super::seed::SeedArgs;
use super::session::Context;
use super::times::{SLICES, WAITS, within};
use super::workload::{misuse, reference_traffic};
use crate::config_args::ConfigArgs;

/// The server that is measured over every repo, and the baseline unless servers are given.
const SERVER: &str = "pool_server/mpsc_pool";

/// The arguments of `polyserve capacity`.
#[derive(Debug, clap::Args)]
pub(crate) struct CapacityArgs {
    /// The goals, separated by commas: each is a max latency of 99 % of the requests.
    #[arg(long, value_name = "TIME,...", value_delimiter = ',', value_parser = humantime::parse_duration, default_value = "1ms,10ms")]
    p99: Vec<Duration>,
    /// The servers, separated by commas. [default: all of the catalog; quick: the recommended ones]
    #[arg(long, value_name = "S,...", value_delimiter = ',')]
    servers: Vec<String>,
    /// The repos, separated by commas. [default: sharded, and all of the catalog under pool_server; quick: sharded]
    #[arg(long, value_name = "R,...", value_delimiter = ',')]
    repos: Vec<String>,
    /// Concurrent connections.
    #[arg(long, short, value_name = "C", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Stored entities.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    keys: u64,
    /// Weights of reading and writing.
    #[arg(long, value_name = "get=95,put=5", default_value = "get=95,put=5")]
    mix: Mix,
    /// Rounds; fewer than 10 decide nothing. [default: 10, quick: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,
    /// The duration of a load; a search has about nine. [default: 300ms, quick: 100ms]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    slice: Option<Duration>,
    /// Fewer contestants and rounds, and shorter loads: about one minute.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    random: SeedArgs,
    #[command(flatten)]
    cores: CoresArgs,
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(crate) fn run(context: Context<'_>, args: &CapacityArgs) -> anyhow::Result<ExitCode> {
    let session = context.start()?;
    let slice = args.slice.unwrap_or(Duration::from_millis(if args.quick { 100 } else { 300 }));
    within("--slice", slice, SLICES)?;
    args.p99.iter().try_for_each(|goal| within("--p99", *goal, WAITS))?;
    let connections = args.connections as usize;
    limits::check_connections(connections, limits::connections(0))?;
    let (targets, absent) = args.targets(session.catalog)?;
    let [server_cores, client_cores] = args.cores.of(&session.available)?;
    let environment = session.environment([&server_cores, &client_cores], args.random.seed);
    let description = json!({
        "connections": connections,
        "keys": args.keys,
        "mix": args.mix.to_string(),
        "slice_s": slice.as_secs_f64(),
        "settings": args.config.given()?,
    });
    client_cores.pin()?;
    let data = Data::new(args.random.seed);
    let instrument = CapacityBench {
        server_cores,
        client_cores,
        connections,
        traffic: Traffic::entities(&data, args.keys, Dist::Uniform, args.mix, args.random.seed).map_err(misuse)?,
        limit: NamedLaunch { name: LIMIT.into(), launch: limit_launch() },
        limit_traffic: reference_traffic(args.keys, args.mix).map_err(misuse)?,
        slice,
        stop: session.stop.clone(),
    };
    let goals_us = distinct(args.p99.iter().map(|goal| goal.as_micros() as u64));
    let rounds = args.rounds.unwrap_or(if args.quick { 3 } else { 10 }) as usize;
    let mut capacity = Capacity { targets, absent, goals_us, rounds, description, instrument };
    session.run(&args.record, environment, &mut capacity)
}

impl CapacityArgs {
    /// The servers over their repos, and those that are left out.
    fn targets(&self, catalog: &Catalog) -> anyhow::Result<(Vec<NamedLaunch>, Vec<Absent<Key>>)> {
        let settings = self.config.settings(None)?;
        let flags = self.config.flags();
        let launches = ServerLaunches { catalog, settings: &settings, flags: &flags, connection_each: false };
        let pairs = self.pairs(catalog)?;
        room::check_flags(&settings, catalog, pairs.iter().map(|(server, _)| server.as_str()))?;
        let (mut targets, mut absent) = (Vec::new(), Vec::new());
        for (server, repo) in pairs {
            let name = format!("{server}/{repo}");
            match launches.launch([&server, &repo], self.connections as usize, settings.config.workers)? {
                Ok(launch) => targets.push(NamedLaunch { name, launch }),
                Err(why) => {
                    let key = Key { name, goal_us: 0, round: 0 };
                    absent.push(left_out(key, why, self.servers.is_empty()));
                }
            }
        }
        if targets.is_empty() {
            let why = absent.first().map_or("the catalog has no server", |absent| absent.absence.why.as_str());
            return Err(Misuse(format!("there is nothing to measure: {why}")).into());
        }
        Ok((targets, absent))
    }

    fn pairs(&self, catalog: &Catalog) -> anyhow::Result<Vec<(String, String)>> {
        let builtin = Catalog::builtin();
        let quick = self.quick.then(|| tagged(builtin.servers(), Tag::Recommended));
        let servers = match self.servers.is_empty() {
            true => default_names(catalog.servers(), builtin.servers(), quick.as_deref()),
            false => full_names(&self.servers, |name| catalog.server(name))?,
        };
        let repos = match self.repos.is_empty() {
            true => tagged_or_own(catalog.repos(), builtin.repos(), Tag::Scale),
            false => repo_names(catalog, &self.repos)?,
        };
        let pair = |server: &String, repo: &String| (server.clone(), repo.clone());
        let mut pairs: Vec<_> =
            servers.iter().flat_map(|server| repos.iter().map(move |repo| pair(server, repo))).collect();
        let is_default = self.servers.is_empty() && self.repos.is_empty() && !self.quick;
        if is_default && let Ok(server) = catalog.server(SERVER) {
            pairs.extend(catalog.repos().iter().map(|repo| pair(&server.name, &repo.name)));
        }
        if self.servers.is_empty()
            && let Some(baseline) = pairs.iter().position(|(server, _)| server == SERVER)
        {
            pairs[..=baseline].rotate_right(1);
        }
        Ok(distinct(pairs))
    }
}
