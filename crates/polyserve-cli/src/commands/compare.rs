//! `polyserve compare`: servers and repos side by side, each pair in a process of its own.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use polyserve::Shutdown;
use polyserve::catalog::Catalog;
use polyserve_lab::Misuse;
use polyserve_lab::compare::ranking::Failed;
use polyserve_lab::compare::{Comparison, Instrument, Ranking, Record, record};
use polyserve_lab::journal::{Header, file_name};
use polyserve_lab::launch::foreign::{self, Foreign, Guest, Sources};
use polyserve_lab::limits;
use polyserve_lab::machine::Environment;
use polyserve_lab::machine::cores::Cores;
use polyserve_lab::output::{is_coloured, print, print_json};
use polyserve_lab::progress::Progress;
use polyserve_load::{Load, Mix};
use serde::Serialize;

use super::cores::CoresArgs;
use super::entrants::{self, ALL, Baseline, Entrants};
use super::stop;
use super::times::{SLICES, within};
use super::workload::{WorkloadArgs, misuse, of_one};
use crate::config_args::ConfigArgs;

/// What `polyserve compare` is told.
#[derive(Debug, clap::Args)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    plan: PlanArgs,
    /// Print all columns: costs with intervals, p99.9, context switches, memory of a connection.
    #[arg(long)]
    wide: bool,
    /// Other people's servers beside ours, with commas between them, or all: frameworks in Rust such as hyper, servers in Go
    /// such as go/nethttp and go/twin-rwmutex, and nginx. They are built first, which takes minutes the first time.
    #[arg(long, value_name = "P,...", value_delimiter = ',')]
    peers: Vec<String>,
    /// The sources of the frameworks in Rust. [default: benches/peers/rust of this command's sources]
    #[arg(long, value_name = "DIR")]
    peers_dir: Option<PathBuf>,
    /// The sources of the servers in Go. [default: benches/peers/go of this command's sources]
    #[arg(long, value_name = "DIR")]
    go_dir: Option<PathBuf>,
    /// A directory to record every turn in, as JSON lines. A comparison that was recorded there in part goes on.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// What the record is called: a directory can hold several comparisons, as NAME.jsonl.
    #[arg(long, value_name = "NAME", default_value = record::NAME, value_parser = file_name, requires = "out")]
    name: String,
}

/// What a comparison is told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PlanArgs {
    /// The servers, with commas between them. [default: all]
    #[arg(long, value_name = "S,...", value_delimiter = ',')]
    servers: Vec<String>,
    /// The repos, with commas between them. [default: all]
    #[arg(long, value_name = "R,...", value_delimiter = ',')]
    repos: Vec<String>,
    /// What the others are compared with: a server over a repo, a reference such as null_epoll, peer/hyper or go/nethttp.
    /// [default: the first server over the first repo]
    #[arg(long, value_name = "S/R")]
    baseline: Option<Baseline>,
    /// At most four servers over two repos, and ten short rounds: about a minute.
    #[arg(long)]
    quick: bool,
    /// Rounds; fewer than 10 decide nothing. [default: 50, quick: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: Option<u32>,
    /// How long a turn is measured, in slices of about 50 ms.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "200ms")]
    slice: Duration,
    /// How long a turn is verified and warmed up before.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "60ms")]
    warm_up: Duration,
    /// Take no latencies; costs do not count then.
    #[arg(long)]
    no_latency: bool,
    /// Enter the baseline once more, made to burn so many per cent more CPU time a request: it must be found slower.
    #[arg(long, value_name = "PERCENT")]
    pub(crate) slowed: Option<f64>,
    #[command(flatten)]
    cores: CoresArgs,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Compares.
pub(crate) fn run(
    catalog: &Catalog,
    args: &CompareArgs,
    json: bool,
    allocator: &'static str,
) -> anyhow::Result<ExitCode> {
    let stop = stop::on_signal()?;
    let available = Cores::available().context("the cores of this machine are not known")?;
    let asked = asked_peers(&args.peers, args.plan.baseline.as_ref())?;
    // What cannot be done is said before anything is built.
    let mut guests: Vec<Guest> = asked.iter().copied().map(Guest::unbuilt).collect();
    let mut comparison = args.plan.comparison(catalog, &guests, &available, &stop)?;
    let Instrument { server_cores, client_cores, .. } = &comparison.instrument;
    let environment = Environment::of(&available, [server_cores, client_cores], comparison.seed, allocator);
    let mut plan = comparison.plan();
    plan["settings"] = args.plan.config.given()?;
    let header = Header::new(record::NAME, plan, environment);
    let mut record = Record::open(args.out.as_deref(), &args.name, &header)?;
    if !asked.is_empty() {
        let sources = Sources { peers: args.peers_dir.as_deref(), go: args.go_dir.as_deref() };
        guests = foreign::build(&asked, sources, allocator, &stop);
        comparison = args.plan.comparison(catalog, &guests, &available, &stop)?;
    }
    let Instrument { server_cores, client_cores, .. } = &comparison.instrument;
    let mut progress = Progress::of(comparison.turns());
    if server_cores.share_one_with(client_cores) {
        progress.say("client and server share a core: what one takes the other has not");
    }
    let result = comparison.run(&mut record, &mut progress);
    progress.finish();
    let ranking = result?;
    if json {
        print_json(&Outcome { environment: &header.environment, ranking: &ranking })
    } else {
        print(&ranking.text(args.wide, is_coloured()))
    }?;
    Ok(exit_code(&ranking, &excused(&args.peers, &guests)))
}

/// The peers that are asked for, the baseline too where it is one, each once.
fn asked_peers(asked: &[String], baseline: Option<&Baseline>) -> Result<Vec<Foreign>, Misuse> {
    let mut peers = Vec::new();
    for asked in asked {
        match Foreign::named(asked) {
            Some(peer) => peers.push(peer),
            None if asked == ALL => peers.extend(Foreign::all()),
            None => return Err(Misuse(entrants::unknown(asked))),
        }
    }
    if let Some(Baseline::Foreign(baseline)) = baseline {
        peers.push(*baseline);
    }
    let mut once: Vec<Foreign> = Vec::new();
    peers.into_iter().for_each(|peer| {
        if !once.contains(&peer) {
            once.push(peer);
        }
    });
    Ok(once)
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Outcome<'a> {
    environment: &'a Environment,
    #[serde(flatten)]
    ranking: &'a Ranking,
}

/// Who may be missing: whoever is not installed or has no use here, and was asked for as one of all only.
fn excused(asked: &[String], guests: &[Guest]) -> Vec<String> {
    let is_named = |guest: &Guest| asked.iter().any(|name| Foreign::named(name) == Some(guest.who));
    let excused = guests.iter().filter(|guest| (guest.is_absent || !guest.who.keeps_entities()) && !is_named(guest));
    excused.map(|guest| guest.who.title()).collect()
}

fn exit_code(ranking: &Ranking, excused: &[String]) -> ExitCode {
    // One that took part and failed is no good, whoever it is.
    let is_excused = |failed: &Failed| !failed.stays_out() && excused.contains(&failed.name);
    let failed = ranking.failed.iter().filter(|failed| !is_excused(failed));
    stop::exit_code(ranking.interrupted, failed.map(Failed::stays_out))
}

/// What is asked where nothing else is said: one entity, as in the published figures, and as the limits are.
const KEYS: u64 = 1;
const MIX: Mix = Mix { get: 1, put: 0 };

impl PlanArgs {
    /// The comparison that is asked for, with these peers.
    pub(crate) fn comparison(
        &self,
        catalog: &Catalog,
        guests: &[Guest],
        available: &Cores,
        stop: &Shutdown,
    ) -> anyhow::Result<Comparison> {
        let settings = self.config.settings(None)?;
        if let Some(percent) = self.slowed
            && !(percent > 0.0 && percent <= 1000.0)
        {
            return Err(Misuse(format!("--slowed {percent} is not above 0 and at most 1000 per cent")).into());
        }
        let entrants = Entrants {
            catalog,
            servers: &self.servers,
            repos: &self.repos,
            guests,
            baseline: self.baseline.as_ref(),
            quick: self.quick,
            slowed: self.slowed,
            settings: &settings,
            flags: self.config.flags(),
            connections: self.workload.connections,
            usage: self.workload.usage(),
            mix: self.workload.asked(KEYS, MIX).1,
        };
        let (contestants, refused) = entrants.enter()?;
        let instrument = self.instrument(available, stop)?;
        self.enough_descriptors()?;
        let (rounds, seed) = (self.rounds(), self.workload.seed);
        Ok(Comparison { contestants, instrument, rounds, latency: !self.no_latency, seed, refused })
    }

    /// Rounds, as asked for or by default.
    pub(crate) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 10 } else { 50 }) as usize
    }

    /// The client's side of each connection is this process's; the server's side has a limit of its own, alike.
    fn enough_descriptors(&self) -> Result<(), Misuse> {
        limits::enough(self.workload.connections, limits::connections(0, 1))
    }

    fn instrument(&self, available: &Cores, stop: &Shutdown) -> anyhow::Result<Instrument> {
        let (slice, warm_up) = (self.slice, self.warm_up);
        within("--slice", slice, SLICES)?;
        within("--warm-up", warm_up, SLICES)?;
        let [server_cores, client_cores] = self.cores.of(available)?;
        let traffic = self.workload.entities(KEYS, MIX).map_err(misuse)?;
        let (keys, mix) = self.workload.asked(KEYS, MIX);
        let load = Load::new(([127, 0, 0, 1], 0).into(), traffic.clone()).with(|load| {
            load.connections = self.workload.connections;
            load.usage = self.workload.usage();
        });
        load.validate().map_err(misuse)?;
        Ok(Instrument {
            server_cores,
            client_cores,
            connections: self.workload.connections,
            usage: self.workload.usage(),
            traffic,
            limit_traffic: of_one(keys, mix).map_err(misuse)?,
            asked: self.workload.in_words(KEYS, MIX),
            warm_up,
            slice,
            latency_slice: slice / 2,
            stop: stop.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a machine without Go or nginx `--peers all` is no failure; to ask for one of them by name is.
    #[test]
    fn only_who_was_named_must_be_there() {
        let guest = |name: &str, is_absent| {
            let mut guest = Guest::unbuilt(Foreign::named(name).unwrap());
            guest.is_absent = is_absent;
            guest
        };
        let guests = [guest("hyper", false), guest("go/nethttp", true), guest("nginx", false)];
        let excused =
            |asked: &[&str]| super::excused(&asked.iter().map(ToString::to_string).collect::<Vec<_>>(), &guests);
        assert_eq!(excused(&["all"]), ["go/nethttp", "nginx"]);
        assert_eq!(excused(&["all", "go/nethttp"]), ["nginx"]);
        assert!(excused(&["hyper", "go/nethttp", "nginx"]).is_empty());
    }
}
