//! `polyserve compare`: servers and stores side by side, each pair in its own process.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use polyserve::catalog::{Catalog, RepoCriteria};
use polyserve_bench::Misuse;
use polyserve_bench::bench::Definition;
use polyserve_bench::bench::mode::ModeKind;
use polyserve_bench::contestants::Registry;
use polyserve_bench::experiment::{RecordArgs, distinct};
use polyserve_bench::output::print;
use polyserve_bench::recommend::workload;
use polyserve_load::Mix;
use toml::{Table, Value};

use super::bench::Run;
use super::bench::servers::Servers;
use super::cores::CoresArgs;
use super::entrants::{Baseline, CompareSelection, NamedContestants};
use super::foreign::{PeerArgs, foreign_servers};
use super::memory::MemoryArgs;
use super::service::{ServiceArgs, goal};
use super::session::{Context, available_cores};
use super::times::{SLICES, time, within};
use super::workload::WorkloadArgs;
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
    /// Print the comparison as a definition for `polyserve bench`, and end.
    #[arg(long)]
    print_definition: bool,
    #[command(flatten)]
    record: RecordArgs,
}

/// The arguments of a comparison.
#[derive(Debug, clap::Args)]
struct PlanArgs {
    /// The servers, separated by commas; also servers from outside the catalog, as in --peers. [default: all]
    #[arg(long, visible_alias = "server", value_name = "S,...", value_delimiter = ',')]
    servers: Vec<String>,
    /// The repos, separated by commas. [default: all]
    #[arg(long, visible_alias = "repo", value_name = "R,...", value_delimiter = ',')]
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
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "200ms")]
    slice: Duration,
    /// The time for verification and warm-up of a contestant.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "60ms")]
    warm_up: Duration,
    /// Requests per second, at which the latencies are measured. [default: half of the slowest contestant's throughput, of those
    /// with at least a quarter of the best]
    #[arg(long, value_name = "R", conflicts_with = "no_latency", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    rate: Option<u32>,
    /// A goal: p99=TIME is the max latency of 99 % of the requests at the rate. Contestants that meet it come first.
    #[arg(long, value_name = "p99=10ms", conflicts_with = "no_latency", value_parser = goal)]
    goal: Option<Duration>,
    /// All contestants speak TLS, with a certificate that is made for the run and that the load generator verifies: TLS 1.3,
    /// TLS_AES_128_GCM_SHA256, X25519. With --no-keepalive, each request has a handshake. Peers that do not speak TLS are left out.
    #[arg(long)]
    tls: bool,
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
    let registry = args.peers.contestants.registry()?;
    let (definition, notes) = args.definition(context.catalog, &registry)?;
    if args.print_definition {
        print(definition.text())?;
        return Ok(ExitCode::SUCCESS);
    }
    Run::check_connections(&definition)?;
    notes.iter().for_each(|note| eprintln!("{note}"));
    let PlanArgs { cores, config, workload, .. } = &args.plan;
    let session = context.start()?;
    let run = Run {
        session: &session,
        definition: &definition,
        registry: &registry,
        cores,
        config,
        seed: workload.random.seed,
        record: &args.record,
        only: None,
        quick: false,
    };
    let (mut experiment, environment) = Servers::new(run)?.plan(None)?.experiment()?;
    experiment.wide = args.wide;
    session.run_named(&args.record, environment, &definition.name, &mut experiment)
}

impl CompareArgs {
    /// The definition of the flags, and the reasons for its repos.
    ///
    /// # Errors
    ///
    /// Returns an error if a flag has an impossible value, or a name is unknown.
    fn definition(&self, catalog: &Catalog, registry: &Registry) -> anyhow::Result<(Definition, Vec<String>)> {
        let plan = &self.plan;
        plan.check()?;
        let is_peer = |name: &&String| catalog.server(name).is_err() && registry.named(name).is_some();
        let (foreign, ours): (Vec<&String>, Vec<&String>) = plan.servers.iter().partition(is_peer);
        let (foreign, ours): (Vec<String>, Vec<String>) =
            (foreign.into_iter().cloned().collect(), ours.into_iter().cloned().collect());
        let only_peers = ours.is_empty() && !foreign.is_empty();
        let (named, is_all) = foreign_servers(&[self.peers.peers.clone(), foreign].concat(), registry)?;
        let own_baseline = plan.baseline.as_ref().map(Baseline::name);
        let own_baseline = own_baseline.and_then(|name| registry.named(&name).filter(|server| server.name() == name));
        let own_baseline = own_baseline.map(|server| Baseline::Foreign(server.clone()));
        let (keys, mix) = plan.keys_and_mix();
        let selection = CompareSelection {
            catalog,
            servers: &ours,
            peers: (&distinct(named), is_all),
            only_peers,
            repos: &plan.repos,
            baseline: own_baseline.as_ref().or(plan.baseline.as_ref()),
            has_service: plan.service.is_given(),
            quick: plan.quick,
            usage: plan.workload.usage(),
            criteria: RepoCriteria {
                reads_pct: mix.reads_pct(),
                keys,
                payload_bytes: workload::PAYLOAD as u64,
                cores: plan.cores.of(&available_cores()?)?[0].count(),
                waits: false,
                memory_limit: plan.memory.store_memory,
            },
        };
        let NamedContestants { contestants, baseline, because } = selection.select()?;
        let contestants: String = contestants.into_iter().map(|name| format!("    {},\n", Value::from(name))).collect();
        let mut text = format!("name = {}\nrounds = {}\n", Value::from(NAME), plan.rounds());
        text.extend(baseline.map(|baseline| format!("baseline = {}\n", Value::from(baseline))));
        text += &format!("contestants = [\n{contestants}]\n");
        for (key, table) in [("workload", plan.workload()), ("mode", plan.mode(self.variant.as_deref()))] {
            text += &format!("\n[{key}]\n{table}");
        }
        Ok((Definition::parse(Path::new("the comparison"), &text, &[])?, because))
    }
}

/// The name of the definition and of its record.
const NAME: &str = "compare";
/// The default number of entities and mix of requests, as published.
const PUBLISHED: (u64, Mix) = (1, Mix { get: 1, put: 0 });
/// The defaults in a quick comparison, as in `polyserve recommend`.
const QUICK: (u64, Mix) = (workload::KEYS, Mix { get: workload::READS_PCT, put: 100 - workload::READS_PCT });

impl PlanArgs {
    /// Rejects impossible values, so that the error names the flag.
    fn check(&self) -> Result<(), Misuse> {
        within("--slice", self.slice, SLICES)?;
        within("--warm-up", self.warm_up, SLICES)?;
        if let Some(percent) = self.slowed
            && !(percent > 0.0 && percent <= 1000.0)
        {
            return Err(Misuse(format!("--slowed {percent} is not above 0 and at most 1000 per cent")));
        }
        if self.memory.store_memory.is_some() && !(self.quick && self.repos.is_empty()) {
            return Err(Misuse("--store-memory is for the choice of repos by --quick without --repos".into()));
        }
        let WorkloadArgs { mix, keys, dist, .. } = &self.workload;
        if self.service.is_given() && (mix.is_some() || keys.is_some() || dist.is_some()) {
            let why = "--keys, --mix and --dist are for entities, and the service has --requests";
            return Err(Misuse(String::from(why)));
        }
        Ok(())
    }

    /// The number of entities, and the mix of requests.
    fn keys_and_mix(&self) -> (u64, Mix) {
        let (keys, mix) = if self.quick { QUICK } else { PUBLISHED };
        self.workload.keys_and_mix(keys, mix)
    }

    /// The number of rounds.
    fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick && !self.stop_when_sure { 10 } else { 50 })
    }

    /// The key `workload` of the definition.
    fn workload(&self) -> Table {
        let mut table = Table::new();
        if self.service.is_given() {
            table.extend(self.service.keys());
        } else {
            let (keys, mix) = self.keys_and_mix();
            table.insert("keys".into(), i64::try_from(keys).unwrap_or(i64::MAX).into());
            table.insert("mix".into(), mix.to_string().into());
            table.insert("dist".into(), self.workload.dist.unwrap_or_default().to_string().into());
        }
        self.workload.write_connections(&mut table);
        if self.tls {
            table.insert("tls".into(), true.into());
        }
        table
    }

    /// The key `mode` of the definition.
    fn mode(&self, variant: Option<&str>) -> Table {
        let time = |time: Duration| Value::from(humantime::format_duration(time).to_string());
        let given = [
            ("kind", Some(ModeKind::Compare.to_string().into())),
            ("slice", Some(time(self.slice))),
            ("warm_up", Some(time(self.warm_up))),
            ("latency", Some((!self.no_latency).into())),
            ("rate", self.rate.map(|rate| f64::from(rate).into())),
            ("p99", self.goal.map(time)),
            ("slowed", self.slowed.map(Value::from)),
            ("stops_when_sure", Some(self.stop_when_sure.into())),
            ("variant", variant.map(Value::from)),
        ];
        given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    }
}
