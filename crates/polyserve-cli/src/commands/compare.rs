//! `polyserve compare`: servers and stores side by side, each pair in its own process.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use polyserve::catalog::{Catalog, Promise, RepoCriteria, ServerEntry};
use polyserve_bench::Misuse;
use polyserve_bench::compare::{Comparison, Peers};
use polyserve_bench::contestants::{Program, Registry, Serves};
use polyserve_bench::experiment::RecordArgs;
use polyserve_bench::limits;
use polyserve_bench::machine::cores::Cores;
use polyserve_bench::recommend::budget::{LATENCY_WAITS, WARM_UP_WAITS};
use polyserve_bench::recommend::workload;
use polyserve_bench::turn::Instrument;
use polyserve_bench::turn::Rehearsal;
use polyserve_load::Mix;

use super::cores::CoresArgs;
use super::entrants::{Baseline, Entered, Entrants};
use super::foreign::{PeerArgs, foreign_servers, selected, with_sources};
use super::memory::MemoryArgs;
use super::service::{RequestedService, ServiceArgs, goal};
use super::session::{Context, MeasurementSession};
use super::times::{SLICES, within};
use super::workload::{WorkloadArgs, checked, misuse, reference_traffic};
use crate::config_args::ConfigArgs;

/// The arguments of `polyserve compare`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    plan: PlanArgs,
    /// Print all columns: costs with intervals, p99.9, context switches, memory of a connection.
    #[arg(long)]
    wide: bool,
    #[command(flatten)]
    peers: PeerArgs,
    /// Build all programs, our own servers too, as this variant of contestants.toml, in place of the running program's
    /// allocator: best is fat link-time optimisation, one codegen unit and mimalloc.
    #[arg(long, value_name = "V")]
    variant: Option<String>,
    /// The sources of the frameworks in Rust. [default: benches/peers/rust of this command's sources]
    #[arg(long, value_name = "DIR")]
    peers_dir: Option<PathBuf>,
    /// The sources of the servers in Go. [default: benches/peers/go of this command's sources]
    #[arg(long, value_name = "DIR")]
    go_dir: Option<PathBuf>,
    #[command(flatten)]
    record: RecordArgs,
}

/// The arguments of a comparison.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PlanArgs {
    /// The servers, separated by commas; also servers from outside the catalog, as in --peers. [default: all]
    #[arg(long, value_name = "S,...", value_delimiter = ',')]
    servers: Vec<String>,
    /// Whether --servers names servers from outside the catalog only.
    #[arg(skip)]
    only_peers: bool,
    /// The repos, separated by commas. [default: all]
    #[arg(long, value_name = "R,...", value_delimiter = ',')]
    repos: Vec<String>,
    /// The contestant that the others are compared with: a server over a repo, a reference such as null_epoll, peer/hyper or go/nethttp.
    /// [default: the first server over the first repo]
    #[arg(long, value_name = "S/R")]
    baseline: Option<Baseline>,
    /// Four servers over the two repos that suit the workload, and ten short rounds: about a minute.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    memory: MemoryArgs,
    /// The number of rounds; fewer than 10 decide nothing. [default: 50, quick: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: Option<u32>,
    /// End as soon as the throughput of each contestant differs from the baseline's, by intervals that hold after any number of
    /// rounds; --rounds is then the max. Contestants without a difference take all rounds. [max by default: 50, also in a quick run]
    #[arg(long)]
    stop_when_sure: bool,
    /// The time for which a contestant is measured in a round, in slices of about 50 ms.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "200ms")]
    slice: Duration,
    /// The time for verification and warm-up of a contestant.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "60ms")]
    warm_up: Duration,
    /// Requests per second, at which the latencies are measured. [default: half of the slowest contestant's throughput, of those
    /// with at least a quarter of the best]
    #[arg(long, value_name = "R", conflicts_with = "no_latency", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    rate: Option<u32>,
    /// A goal: p99=TIME is the max latency of 99 % of the requests at the rate. Contestants that meet it come first.
    #[arg(long, value_name = "p99=10ms", conflicts_with = "no_latency", value_parser = goal)]
    goal: Option<Duration>,
    /// Measure no latencies. The verdicts then ignore the CPU cost.
    #[arg(long)]
    no_latency: bool,
    /// Measure the baseline once more, made to waste this percentage of its CPU time per request: it must be found slower.
    #[arg(long, value_name = "PERCENT")]
    slowed: Option<f64>,
    #[command(flatten)]
    cores: CoresArgs,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(crate) fn run(context: Context<'_>, args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let session = context.start()?;
    let mut plan = args.plan.clone();
    let peers = args.peers(&mut plan, context.catalog, context.allocator)?;
    let mut comparison = plan.comparison(&session, &peers)?;
    comparison.details.push(("settings", plan.config.given()?));
    if let Some(variant) = &args.variant {
        comparison.details.push(("variant", variant.as_str().into()));
        comparison.notes.push(format!("all programs are built as the variant {variant}, if their entry has it"));
    }
    comparison.peers = Some(peers);
    comparison.wide = args.wide;
    let environment = session.environment(cores_of(&comparison), args.plan.seed());
    session.run(&args.record, environment, &mut comparison)
}

/// The cores of the servers and of the load generator.
pub(crate) fn cores_of(comparison: &Comparison) -> [&Cores; 2] {
    [&comparison.instrument.server_cores, &comparison.instrument.client_cores]
}

/// Discovers the answers of a service. Makes the slices long enough for its requests.
fn rehearse(catalog: &Catalog, comparison: &mut Comparison, service: &RequestedService) -> anyhow::Result<()> {
    // If the threads of the server do not wait, the connections are the first bound.
    let is_free = |entry: &&ServerEntry| entry.promises(Promise::LaterHoldsNoThread);
    let free: Vec<&ServerEntry> = catalog.servers().iter().filter(is_free).collect();
    let is_of =
        |name: &str, entry: &ServerEntry| name.strip_prefix(&entry.name).is_some_and(|rest| !rest.contains(' '));
    let contestants = &comparison.contestants;
    let suited = contestants.iter().find(|one| free.iter().any(|entry| is_of(&one.name, entry)));
    let Some(contestant) = suited.or(contestants.first()) else { return Ok(()) };
    let (Rehearsal { traffic, wait, .. }, notes) = service.rehearse(&comparison.instrument, contestant)?;
    let instrument = &mut comparison.instrument;
    instrument.traffic = traffic;
    instrument.warm_up = instrument.warm_up.max(wait * WARM_UP_WAITS);
    instrument.slice = instrument.slice.max(instrument.shortest_slice(wait));
    instrument.latency_slice = instrument.latency_slice.max(wait * LATENCY_WAITS);
    comparison.contestants.iter_mut().for_each(|one| one.wait = wait);
    comparison.notes.extend(notes);
    comparison.details.push(("requests", service.described()));
    Ok(())
}

impl CompareArgs {
    /// The servers from outside the catalog: those of both flags and the baseline, each once. Removes them from the servers of
    /// `plan`.
    fn peers(&self, plan: &mut PlanArgs, catalog: &Catalog, allocator: &str) -> anyhow::Result<Peers> {
        let registry =
            with_sources(self.peers.contestants.registry()?, self.peers_dir.as_deref(), self.go_dir.as_deref());
        let is_peer = |name: &String| catalog.server(name).is_err() && registry.named(name).is_some();
        let (foreign, ours): (Vec<String>, Vec<String>) = plan.servers.drain(..).partition(is_peer);
        plan.only_peers = ours.is_empty() && !foreign.is_empty();
        plan.servers = ours;
        let (named, is_all) = foreign_servers(&[self.peers.peers.clone(), foreign].concat(), &registry)?;
        let mut selection = named.clone();
        if let Some(baseline) = &plan.baseline
            && let Some(server) = registry.named(&baseline.name()).filter(|server| server.name() == baseline.name())
        {
            selection.push(server.clone());
            plan.baseline = Some(Baseline::Foreign(server.clone()));
        }
        let asked = selected(&selection, is_all, &registry);
        let workers = plan.config.settings(None)?.config.workers;
        let own = self.variant.as_ref().map(|variant| own(variant, &registry, catalog)).transpose()?;
        let variant = self.variant.clone().unwrap_or_else(|| allocator.to_owned());
        Ok(Peers { asked, named, variant, own, workers })
    }
}

/// The program with our own servers, to be built as `variant`.
fn own(variant: &str, registry: &Registry, catalog: &Catalog) -> Result<Program, Misuse> {
    let entries = Catalog::builtin();
    if catalog.servers().iter().any(|entry| entries.server(&entry.name).is_err()) {
        return Err(Misuse(String::from("--variant builds the built-in servers, and this program has others")));
    }
    let own = registry.programs().find(|program| program.serves() == Serves::Catalog);
    let own = own.ok_or_else(|| Misuse(String::from("--variant: no contestant serves the catalog")))?;
    match own.variants().any(|known| known == variant) {
        true => Ok(own.clone()),
        false => {
            let known = own.variants().collect::<Vec<_>>().join(", ");
            Err(Misuse(format!("--variant {variant}: there is no such variant, only {known}")))
        }
    }
}

/// The default number of entities and mix of requests, as published.
const PUBLISHED: (u64, Mix) = (1, Mix { get: 1, put: 0 });
/// The defaults in a quick comparison, as in `polyserve recommend`.
const QUICK: (u64, Mix) = (workload::KEYS, Mix { get: workload::READS_PCT, put: 100 - workload::READS_PCT });

impl PlanArgs {
    /// The comparison, with these foreign servers. They are not built yet.
    pub(crate) fn comparison(&self, session: &MeasurementSession<'_>, peers: &Peers) -> anyhow::Result<Comparison> {
        let settings = self.config.settings(None)?;
        if let Some(percent) = self.slowed
            && !(percent > 0.0 && percent <= 1000.0)
        {
            return Err(Misuse(format!("--slowed {percent} is not above 0 and at most 1000 per cent")).into());
        }
        if self.memory.store_memory.is_some() && !(self.quick && self.repos.is_empty()) {
            return Err(Misuse("--store-memory is for the choice of repos by --quick without --repos".into()).into());
        }
        let service = self.service.read(session.catalog)?;
        self.check_service(service.as_ref(), peers)?;
        let instrument = self.instrument(session, service.as_ref())?;
        let (keys, mix) = self.keys_and_mix();
        let entrants = Entrants {
            catalog: session.catalog,
            servers: &self.servers,
            only_peers: self.only_peers,
            repos: &self.repos,
            peers,
            baseline: self.baseline.as_ref(),
            service: service.as_ref().map(|service| service.name.as_str()),
            quick: self.quick,
            slowed: self.slowed,
            settings: &settings,
            flags: self.config.flags(),
            connections: self.workload.connections,
            usage: self.workload.usage(),
            mix,
            criteria: RepoCriteria {
                reads_pct: mix.reads_pct(),
                keys,
                payload_bytes: workload::PAYLOAD as u64,
                cores: instrument.server_cores.count(),
                waits: false,
                memory_limit: self.memory.store_memory,
            },
        };
        let Entered { contestants, absent, because } = entrants.enter()?;
        // This process has the client's end of each connection; each server has the same limit for its own ends.
        limits::check_connections(self.workload.connections, limits::connections(0))?;
        let mut comparison = Comparison::new(contestants, instrument, self.rounds());
        (comparison.latency, comparison.absent, comparison.notes) = (!self.no_latency, absent, because);
        comparison.stops_when_sure = self.stop_when_sure;
        comparison.rate = self.rate.map(f64::from);
        comparison.goal_us = self.goal.map(|goal| goal.as_secs_f64() * 1e6);
        if let Some(service) = service {
            rehearse(session.catalog, &mut comparison, &service)?;
        }
        Ok(comparison)
    }

    /// Rejects what a service of one's own does not have.
    fn check_service(&self, service: Option<&RequestedService>, peers: &Peers) -> Result<(), Misuse> {
        let Some(RequestedService { name, .. }) = service else { return Ok(()) };
        let WorkloadArgs { mix, keys, dist, .. } = &self.workload;
        if mix.is_some() || keys.is_some() || dist.is_some() {
            return Err(Misuse(format!(
                "--keys, --mix and --dist are for entities, and the service {name} has --requests"
            )));
        }
        if !peers.asked.is_empty() {
            return Err(Misuse(format!("a foreign server does not have the service {name}")));
        }
        Ok(())
    }

    /// The number of entities, and the mix of requests.
    fn keys_and_mix(&self) -> (u64, Mix) {
        let (keys, mix) = if self.quick { QUICK } else { PUBLISHED };
        self.workload.keys_and_mix(keys, mix)
    }

    /// The number of rounds.
    pub(crate) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick && !self.stop_when_sure { 10 } else { 50 }) as usize
    }

    /// The seed of data, draws and resamples.
    pub(crate) fn seed(&self) -> u64 {
        self.workload.random.seed
    }

    fn instrument(
        &self,
        session: &MeasurementSession<'_>,
        service: Option<&RequestedService>,
    ) -> anyhow::Result<Instrument> {
        let (slice, warm_up) = (self.slice, self.warm_up);
        within("--slice", slice, SLICES)?;
        within("--warm-up", warm_up, SLICES)?;
        let [server_cores, client_cores] = self.cores.of(&session.available)?;
        let (connections, usage) = (self.workload.connections, self.workload.usage());
        let (keys, mix) = self.keys_and_mix();
        let traffic = match service {
            Some(service) => checked(Ok(service.traffic(self.workload.random.seed)?), connections, usage)?,
            None => checked(self.workload.entities(keys, mix), connections, usage)?,
        };
        let requests = service.map_or_else(|| self.workload.requests_in_words(keys, mix), RequestedService::in_words);
        Ok(Instrument {
            server_cores,
            client_cores,
            connections,
            usage,
            arrivals: self.workload.arrivals.unwrap_or_default(),
            traffic,
            limit_traffic: reference_traffic(keys, mix).map_err(misuse)?,
            asked: format!("{requests}; {}", self.workload.connections_in_words()),
            warm_up,
            slice,
            latency_slice: slice / 2,
            stop: session.stop.clone(),
        })
    }
}
