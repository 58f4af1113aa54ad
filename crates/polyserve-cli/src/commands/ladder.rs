//! `polyserve ladder`: one optimisation at a time, each measured against the rung below.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use polyserve::catalog::Catalog;
use polyserve_bench::Misuse;
use polyserve_bench::compare::Instrument;
use polyserve_bench::experiment::{RecordArgs, distinct};
use polyserve_bench::ladder::entry::{self, LadderSubject};
use polyserve_bench::ladder::rung::{QUICK, RungStep, STEPS, steps};
use polyserve_bench::ladder::table::{FASTHTTP, NETHTTP};
use polyserve_bench::ladder::variant::Binary;
use polyserve_bench::ladder::{Ladder, traffic};
use polyserve_bench::limits;
use polyserve_load::{Arrivals, Usage};
use serde_json::{Value, json};

use super::cores::CoresArgs;
use super::room;
use super::seed::SeedArgs;
use super::session::{Context, MeasurementSession};
use super::times::{SLICES, within};
use super::workload::checked;
use crate::config_args::ConfigArgs;

/// The servers that are measured by default.
const SERVERS: [&str; 2] = ["pool_server/mpsc_pool", "tokio_per_core"];

/// The arguments of `polyserve ladder`.
#[derive(Debug, clap::Args)]
pub(crate) struct LadderArgs {
    /// The built-in servers, separated by commas, or none. Each has its own ladder.
    #[arg(long, value_name = "S,...", value_delimiter = ',', default_values_t = SERVERS.map(String::from))]
    servers: Vec<String>,
    /// The foreign servers: warp, or none.
    #[arg(long, value_name = "P,...", value_delimiter = ',', default_values = ["warp"])]
    peers: Vec<String>,
    /// The references for all rungs, separated by commas, or none.
    /// [default: go-fasthttp,go-nethttp]
    #[arg(long, value_name = "R,...", value_delimiter = ',')]
    against: Vec<String>,
    /// The rungs above the lowest, separated by commas: thin-lto, lto, mimalloc (aside), jemalloc, pipeline-flush,
    /// waker-array (aside), header-hash (aside), clock-reads (aside), codegen-units, date-each (aside),
    /// date-cache, target-cpu (aside). A rung that cannot change a server is left out. [default: all; quick: lto,jemalloc,pipeline-flush]
    #[arg(long, value_name = "R,...", value_delimiter = ',')]
    rungs: Vec<String>,
    /// Four rungs, 64 connections and ten rounds: about two minutes once everything is built.
    #[arg(long)]
    quick: bool,
    /// The number of concurrent connections. [default: 1000, or the limit on descriptors; quick: 64]
    #[arg(long, short, value_name = "C")]
    connections: Option<usize>,
    /// The number of pipelined requests of a connection. Several numbers, separated by commas, are measured in turn.
    /// The published claims are about 1.
    #[arg(long, value_name = "D,...", value_delimiter = ',', default_value = "1")]
    pipeline: Vec<usize>,
    /// The number of rounds. Fewer than 10 decide nothing. [default: 30, quick: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: Option<u32>,
    /// The measured time of a turn. [default: 200 ms, or longer with many concurrent requests]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    slice: Option<Duration>,
    /// The time of a turn before the measured time, for verification and warm-up.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "60ms")]
    warm_up: Duration,
    #[command(flatten)]
    random: SeedArgs,
    /// The sources of the rungs. They are built into target/ladder of this directory. [default: this command's own]
    #[arg(long, value_name = "DIR")]
    source: Option<PathBuf>,
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    cores: CoresArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

/// The number of connections of the published ladder.
const CONNECTIONS: usize = 1000;
const QUICK_CONNECTIONS: usize = 64;
/// The default time of a turn. A turn has at least two slices.
const SLICE: Duration = Duration::from_millis(200);
/// An empty list.
const NONE: &str = "none";
const WARP: &str = "warp";
/// A server without our codec. Two of the rungs are settings of our codec.
const ON_HYPER: &str = "tokio_hyper";

pub(crate) fn run(context: Context<'_>, args: &LadderArgs) -> anyhow::Result<ExitCode> {
    let session = context.start()?;
    // Misuse is reported before anything is built.
    let (subjects, references, steps) = (args.subjects(session.catalog)?, args.references()?, args.steps()?);
    let instrument = args.instrument(&session)?;
    let settings = args.config.settings(None)?;
    let environment = session.environment([&instrument.server_cores, &instrument.client_cores], args.random.seed);
    let description = args.description(&subjects, &references, &steps, &instrument);
    let mut ladder =
        Ladder::new(subjects, steps, distinct(args.pipeline.clone()), args.rounds(), description, instrument);
    ladder.references = references;
    ladder.named.clone_from(&args.against);
    ladder.source.clone_from(&args.source);
    ladder.workers = settings.config.workers;
    session.run(&args.record, environment, &mut ladder)
}

impl LadderArgs {
    /// The subjects: our servers, then warp.
    fn subjects(&self, catalog: &Catalog) -> anyhow::Result<Vec<LadderSubject>> {
        let mut subjects = Vec::new();
        let settings = self.config.settings(None)?;
        room::check_flags(&settings, catalog, self.servers.iter().map(String::as_str))?;
        for name in self.servers.iter().filter(|name| *name != NONE) {
            let entry = catalog.server(name)?;
            let (server, config) = entry.build_with_supported(&settings.with_pool_size())?;
            if self.source.is_none() && Catalog::builtin().server(&entry.name).is_err() {
                let how = "give a --source with this server in its package benches/ladder";
                return Err(Misuse(format!("--servers: what is built has no server {name:?}: {how}")).into());
            }
            if entry.name == ON_HYPER {
                let why = "sends the answers of hyper together, and no build setting changes that; warp is the server on hyper here";
                return Err(Misuse(format!("--servers: {ON_HYPER} {why}")).into());
            }
            let (name, args) = (entry.name.clone(), room::honoured(&config, &self.config.flags()));
            let is_on_tokio = entry.code.as_ref().is_some_and(|code| code.feature == Some("tokio"));
            let shape = server.shape();
            subjects.push(LadderSubject { name, binary: Binary::Serve, args, shape, is_on_tokio });
        }
        // All subjects use one program.
        if subjects.iter().any(|subject| Binary::with(&subject.name) == Binary::ServeAll) {
            subjects.iter_mut().for_each(|subject| subject.binary = Binary::ServeAll);
        }
        for name in self.peers.iter().filter(|name| *name != NONE) {
            if name != WARP {
                return Err(Misuse(format!("--peers: there is no ladder for {name:?}, only for {WARP}")).into());
            }
            let args = settings.config.workers.map(|workers| format!("--workers={workers}")).into_iter().collect();
            let shape = polyserve::Shape::Multiplexed;
            subjects.push(LadderSubject { name: name.clone(), binary: Binary::Warp, args, shape, is_on_tokio: true });
        }
        let mut seen = std::collections::HashSet::new();
        subjects.retain(|subject| seen.insert(subject.name.clone()));
        if subjects.is_empty() {
            return Err(Misuse(String::from("--servers none --peers none: there is no server to measure")).into());
        }
        Ok(subjects)
    }

    fn references(&self) -> Result<Vec<String>, Misuse> {
        let default = [FASTHTTP, NETHTTP].map(String::from);
        let requested = if self.against.is_empty() { &default[..] } else { &self.against[..] };
        let names: Vec<String> = requested.iter().filter(|name| *name != NONE).cloned().collect();
        match names.iter().find(|name| entry::server(name).is_none()) {
            None => Ok(names),
            Some(unknown) => Err(Misuse(format!("--against: there is no {unknown:?}, only {FASTHTTP} and {NETHTTP}"))),
        }
    }

    fn steps(&self) -> Result<Vec<RungStep>, Misuse> {
        match (self.rungs.as_slice(), self.quick) {
            ([], true) => Ok(QUICK.to_vec()),
            ([], false) => Ok(STEPS.to_vec()),
            (names, _) => steps(names),
        }
    }

    fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 10 } else { 30 }) as usize
    }

    /// The number of connections: as given, or else as published, limited by the descriptors.
    fn connections(&self) -> Result<usize, Misuse> {
        let limit = limits::connections(0);
        match self.connections {
            Some(given) => limits::check_connections(given, limit).map(|()| given),
            None if self.quick => Ok(QUICK_CONNECTIONS),
            None => Ok(CONNECTIONS.min(usize::try_from(limit).unwrap_or(CONNECTIONS)).max(1)),
        }
    }

    fn instrument(&self, session: &MeasurementSession<'_>) -> anyhow::Result<Instrument> {
        let [server_cores, client_cores] = self.cores.of(&session.available)?;
        // The slice is long enough for the largest number of requests at once.
        let pipeline = self.pipeline.iter().copied().max().unwrap_or(1);
        let (connections, usage) = (self.connections()?, Usage::KeepAlive { pipeline });
        if self.pipeline.contains(&0) {
            return Err(Misuse("--pipeline 0 is not 1 or more".into()).into());
        }
        let traffic = checked(traffic(), connections, usage)?;
        let mut instrument = Instrument {
            server_cores,
            client_cores,
            connections,
            usage,
            arrivals: Arrivals::default(),
            limit_traffic: traffic.clone(),
            traffic,
            asked: String::new(),
            warm_up: self.warm_up,
            slice: SLICE,
            latency_slice: SLICE,
            stop: session.stop.clone(),
        };
        instrument.slice = self.slice.unwrap_or_else(|| SLICE.max(instrument.shortest_slice(Duration::ZERO) * 2));
        within("--slice", instrument.slice, SLICES)?;
        within("--warm-up", self.warm_up, SLICES)?;
        Ok(instrument)
    }

    fn description(
        &self,
        subjects: &[LadderSubject],
        references: &[String],
        steps: &[RungStep],
        instrument: &Instrument,
    ) -> Value {
        json!({
            "subjects": subjects.iter().map(|subject| &subject.name).collect::<Vec<_>>(),
            "against": references,
            "rungs": steps.iter().map(|step| step.name()).collect::<Vec<_>>(),
            "connections": instrument.connections,
            "pipelines": self.pipeline,
            "rounds": self.rounds(),
            "slice_ms": instrument.slice.as_millis() as u64,
            "warm_up_ms": self.warm_up.as_millis() as u64,
            "settings": self.config.flags(),
        })
    }
}
