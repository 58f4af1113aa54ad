//! `polyserve crowd`: what many idle or slow connections cost a server, and how it serves a good client meanwhile.

use std::process::ExitCode;
use std::time::Duration;

use polyserve::ServerConfig;
use polyserve::catalog::Catalog;
use polyserve::env::Settings;
use polyserve_bench::Misuse;
use polyserve_bench::compare::contestant::{Contestant, Role, bound};
use polyserve_bench::crowd::bench::CrowdSpec;
use polyserve_bench::crowd::experiment::CrowdCell;
use polyserve_bench::crowd::report::Key;
use polyserve_bench::crowd::{CrowdBench, CrowdKind, Crowds};
use polyserve_bench::experiment::{Absent, RecordArgs};
use polyserve_bench::limits;
use polyserve_load::Arrivals;
use serde_json::{Value, json};

use super::cores::CoresArgs;
use super::entrants::{left_out, serve};
use super::foreign::{self, BuiltServer, PeerArgs};
use super::names::{full_names, repo_names};
use super::room::{self, roomy};
use super::seed::SeedArgs;
use super::session::{Context, MeasurementSession};
use super::times::{SLICES, WAITS, within};
use crate::config_args::ConfigArgs;

/// The arguments of `polyserve crowd`.
#[derive(Debug, clap::Args)]
pub(crate) struct CrowdArgs {
    /// The servers, separated by commas. [default: all]
    #[arg(long, value_name = "S,...", value_delimiter = ',')]
    servers: Vec<String>,
    /// The repos, separated by commas.
    #[arg(long, value_name = "R,...", value_delimiter = ',', default_value = "sharded")]
    repos: Vec<String>,
    #[command(flatten)]
    peers: PeerArgs,
    /// The behaviours of the crowd, separated by commas. [default: all]
    #[arg(long, value_enum, value_name = "KIND,...", value_delimiter = ',')]
    kind: Vec<CrowdKind>,
    /// The number of connections of the crowd; less if the limit on descriptors is lower. [default: 10000 idle, 500 slow; quick: 1000, 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: Option<u32>,
    /// The good client's connections.
    #[arg(long, value_name = "C", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    good: u16,
    /// The good client's requests a second with a slow crowd.
    #[arg(long, value_name = "R", default_value_t = 1000.0)]
    rate: f64,
    /// The time for which the good client is measured before, during and after a slow crowd. [default: 12s, quick: 2s]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    time: Option<Duration>,
    /// The time between two bytes of a slow connection, or two reads of a slow reader.
    /// [default: a twentieth of the server's timeout for it, from 10ms to 1s]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    interval: Option<Duration>,
    /// Rounds with an idle crowd, and seconds without a request; fewer than 10 decide nothing. [default: 20, quick: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: Option<u32>,
    /// The length of a slice of a round. [default: 200ms, quick: 100ms]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    slice: Option<Duration>,
    /// The time for verification and warm-up of a server.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "200ms")]
    warm_up: Duration,
    /// Smaller crowds and shorter times.
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

/// The length of the description that slow readers request, in bytes, unless the limit of a body is lower.
const DESCRIPTION_BYTES: usize = 64 * 1024;
/// The timeouts of an idle connection, unless they are given: an idle crowd stays connected to the end.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

pub(crate) fn run(context: Context<'_>, args: &CrowdArgs) -> anyhow::Result<ExitCode> {
    let session = context.start()?;
    let catalog = session.catalog;
    let settings = args.config.settings(None)?;
    let bench = args.bench(&session, &settings)?;
    let crowds = args.crowds(&settings)?;
    let servers = args.servers(catalog)?;
    room::check_flags(&settings, catalog, servers.iter().map(|(server, _)| server.as_str()))?;
    let environment = session.environment([&bench.server_cores, &bench.client_cores], args.random.seed);
    let max_crowd = crowds.iter().map(|crowd| crowd.connections).max().unwrap_or_default();
    let connections = Some(max_crowd + usize::from(args.good));
    let foreign = foreign::built(&args.peers, settings.config.workers, connections, context.allocator, &session.stop)?;
    let names = servers.iter().map(|(server, repo)| name(server, repo));
    let names: Vec<String> = names.chain(foreign.iter().map(|server| server.name.clone())).collect();
    let description = args.plan(&bench, &crowds, &names)?;
    let (mut cells, mut absent) = args.cells(catalog, &settings, &crowds, &servers)?;
    for crowd in crowds {
        for BuiltServer { name, launch, is_excused } in &foreign {
            match launch {
                Ok(launch) => {
                    let contestant = Contestant::new(name, Role::Ranked, launch.clone());
                    cells.push(CrowdCell { contestant, crowd, bound: None });
                }
                Err(why) => absent.push(left_out(Key { name: name.clone(), kind: crowd.kind }, why, *is_excused)),
            }
        }
    }
    session.run(&args.record, environment, &mut Crowds { cells, absent, bench, description })
}

fn name(server: &str, repo: &str) -> String {
    format!("{server}/{repo}")
}

impl CrowdArgs {
    /// Returns every server with every crowd, and the cells of servers that reject the settings.
    ///
    /// # Errors
    ///
    /// Returns an error if a server that was asked for by name rejects the settings.
    fn cells(
        &self,
        catalog: &Catalog,
        settings: &Settings,
        crowds: &[CrowdSpec],
        servers: &[(String, String)],
    ) -> anyhow::Result<(Vec<CrowdCell>, Vec<Absent<Key>>)> {
        let (mut cells, mut absent) = (Vec::new(), Vec::new());
        for crowd in crowds.iter().copied() {
            for (server, repo) in servers {
                match self.cell(catalog, settings, server, repo, crowd) {
                    Ok(cell) => cells.push(cell),
                    Err(error) if !self.servers.is_empty() => return Err(error),
                    Err(error) => {
                        let key = Key { name: name(server, repo), kind: crowd.kind };
                        absent.push(left_out(key, error.to_string(), true));
                    }
                }
            }
        }
        Ok((cells, absent))
    }

    /// Returns a server with settings that keep the crowd connected. If its shape has a bound, the bound replaces the
    /// figures.
    fn cell(
        &self,
        catalog: &Catalog,
        settings: &Settings,
        server: &str,
        repo: &str,
        crowd: CrowdSpec,
    ) -> anyhow::Result<CrowdCell> {
        let total_connections = crowd.connections + usize::from(self.good);
        let mut config = roomy(settings, &settings.with_pool_size(), total_connections);
        let kept = [("first_byte_timeout", &mut config.first_byte_timeout), ("idle_timeout", &mut config.idle_timeout)];
        for (name, timeout) in kept {
            if crowd.kind == CrowdKind::Idle && !settings.is_given(name) {
                *timeout = (*timeout).max(IDLE_TIMEOUT);
            }
        }
        let (instance, config) = catalog.server(server)?.build_with_supported(&config)?;
        let flags = room::flags(&config, &self.config.flags(), &["first_byte_timeout", "idle_timeout"]);
        let launch = serve(server, repo, &flags, Vec::new());
        let contestant = Contestant::new(&name(server, repo), Role::Ranked, launch);
        let contestant = contestant.with(|contestant| contestant.shape = Some(instance.shape()));
        Ok(CrowdCell { contestant, crowd, bound: bound(&instance, &config, total_connections) })
    }

    fn bench(&self, session: &MeasurementSession<'_>, settings: &Settings) -> anyhow::Result<CrowdBench> {
        let or_quick = |quick: u64, full: u64| Duration::from_millis(if self.quick { quick } else { full });
        let slice = self.slice.unwrap_or_else(|| or_quick(100, 200));
        let phase = self.time.unwrap_or_else(|| or_quick(2000, 12_000));
        for (flag, time) in [("--slice", slice), ("--warm-up", self.warm_up), ("--time", phase)] {
            within(flag, time, SLICES)?;
        }
        if !(1.0..=1e6).contains(&self.rate) {
            return Err(Misuse(format!("--rate {} is not from 1 to 1000000 requests a second", self.rate)).into());
        }
        let [server_cores, client_cores] = self.cores.of(&session.available)?;
        Ok(CrowdBench {
            server_cores,
            client_cores,
            connections: self.good.into(),
            slice,
            warm_up: self.warm_up,
            rounds: self.rounds.unwrap_or(if self.quick { 10 } else { 20 }) as usize,
            rate: self.rate,
            phase,
            description: DESCRIPTION_BYTES.min(settings.config.max_body / 2),
            seed: self.random.seed,
            ports: usize::try_from(limits::ports()).unwrap_or(usize::MAX),
            stop: session.stop.clone(),
        })
    }

    /// The description of the run, for the record's header.
    fn plan(&self, bench: &CrowdBench, crowds: &[CrowdSpec], servers: &[String]) -> anyhow::Result<Value> {
        let seconds = |time: Duration| time.as_secs_f64();
        let crowd = |crowd: &CrowdSpec| {
            let CrowdSpec { kind, connections, interval, stay } = crowd;
            let (interval_s, stay_s) = (seconds(*interval), stay.map(seconds));
            json!({"kind": kind, "connections": connections, "interval_s": interval_s, "stay_s": stay_s})
        };
        Ok(json!({
            "servers": servers,
            "crowds": crowds.iter().map(crowd).collect::<Vec<_>>(),
            "connections": bench.connections,
            "rate": bench.rate,
            "arrivals": Arrivals::default(),
            "rounds": bench.rounds,
            "warm_up_s": seconds(bench.warm_up),
            "slice_s": seconds(bench.slice),
            "phase_s": seconds(bench.phase),
            "description_bytes": bench.description,
            "settings": self.config.given()?,
        }))
    }

    /// The requested crowds. A crowd that exceeds the limit on descriptors is reduced, with a warning.
    fn crowds(&self, settings: &Settings) -> anyhow::Result<Vec<CrowdSpec>> {
        // The servers' ends are in other processes, each with a limit that it inherits.
        let max_connections = limits::connections(2 * u64::from(self.good));
        let kinds = if self.kind.is_empty() { &CrowdKind::ALL[..] } else { &self.kind };
        let mut crowds = Vec::new();
        for kind in kinds {
            let default = match (kind, self.quick) {
                (CrowdKind::Idle, false) => 10_000,
                (CrowdKind::Idle, true) => 1000,
                (_, false) => 500,
                (_, true) => 100,
            };
            let requested = self.connections.unwrap_or(default);
            let connections = usize::try_from(u64::from(requested).min(max_connections)).unwrap_or(usize::MAX);
            if connections == 0 {
                return Err(Misuse("the limit on open descriptors allows no crowd".into()).into());
            }
            if connections < requested as usize {
                let why = "the limit on open descriptors allows no more";
                tracing::warn!("{}: {connections} connections in place of {requested}: {why}", kind.name());
            }
            let interval = self.interval(*kind, &settings.config)?;
            // A slow reader cannot notice that the server has closed: it opens a new connection after the write timeout.
            let stay = (*kind == CrowdKind::SlowReaders).then(|| settings.config.write_timeout.saturating_mul(11) / 10);
            crowds.push(CrowdSpec { kind: *kind, connections, interval, stay });
        }
        Ok(crowds)
    }

    /// The time between two bytes or reads of a slow connection. It is short enough that only the timeout of a whole
    /// head, body or answer ends a connection.
    fn interval(&self, kind: CrowdKind, config: &ServerConfig) -> Result<Duration, Misuse> {
        if let Some(interval) = self.interval {
            within("--interval", interval, WAITS)?;
            return Ok(interval);
        }
        let timeout = match kind {
            CrowdKind::Idle | CrowdKind::SlowHeads => config.head_timeout,
            // A body below the minimum rate has 5 s.
            CrowdKind::SlowBodies => config.body_timeout.min(Duration::from_secs(5)),
            CrowdKind::SlowReaders => config.write_timeout,
        };
        Ok((timeout / 20).clamp(Duration::from_millis(10), Duration::from_secs(1)))
    }

    /// Servers and repos, by their full names.
    fn servers(&self, catalog: &Catalog) -> anyhow::Result<Vec<(String, String)>> {
        let mut servers = full_names(&self.servers, |name| catalog.server(name))?;
        if servers.is_empty() {
            servers = catalog.servers().iter().map(|entry| entry.name.clone()).collect();
        }
        let repos = repo_names(catalog, &self.repos)?;
        Ok(servers.iter().flat_map(|server| repos.iter().map(|repo| (server.clone(), repo.clone()))).collect())
    }
}
