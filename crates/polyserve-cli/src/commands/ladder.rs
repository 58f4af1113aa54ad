//! `polyserve ladder`: one optimisation at a time, each measured against what it was added to.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use polyserve::Shutdown;
use polyserve::catalog::{Catalog, Tag};
use polyserve_experiments::ladder::entry::{self, Subject};
use polyserve_experiments::ladder::record::{Failed, NotRun, Role};
use polyserve_experiments::ladder::rung::{QUICK, STEPS, Step, rungs, steps};
use polyserve_experiments::ladder::table::{FASTHTTP, NETHTTP, Row, Shown, rows, write_csv};
use polyserve_experiments::ladder::variant::{Binary, Sources};
use polyserve_experiments::ladder::{Ladder, Recorded, claims, traffic};
use polyserve_lab::Misuse;
use polyserve_lab::compare::Instrument;
use polyserve_lab::journal::{self, Header, Journal, as_line};
use polyserve_lab::limits;
use polyserve_lab::machine::{Cores, Environment};
use polyserve_lab::output::{print, print_json};
use polyserve_lab::progress::Progress;
use polyserve_load::{Load, Usage};
use polyserve_report::Claim;
use serde::Serialize;
use serde_json::{Value, json};

use super::cores::CoresArgs;
use super::entrants::tagged;
use super::room;
use super::stop;
use super::times::{SLICES, within};
use super::workload::misuse;
use crate::config_args::ConfigArgs;

/// What `polyserve ladder` is told.
#[derive(Debug, clap::Args)]
pub(crate) struct LadderArgs {
    /// Our servers whose ladder is measured, with commas between them, or none.
    #[arg(long, value_name = "S,...", value_delimiter = ',', default_values_t = servers())]
    servers: Vec<String>,
    /// Other people's servers whose ladder is measured: warp, or none.
    #[arg(long, value_name = "P,...", value_delimiter = ',', default_values = ["warp"])]
    peers: Vec<String>,
    /// Whom all rungs are held against too, with commas between them, or none. [default: go-fasthttp,go-nethttp]
    #[arg(long, value_name = "R,...", value_delimiter = ',')]
    against: Vec<String>,
    /// The rungs above the lowest, with commas between them: thin-lto, lto, mimalloc (aside), jemalloc, pipeline-flush,
    /// codegen-units, date-cache, target-cpu (aside). [default: all; quick: lto,jemalloc,pipeline-flush]
    #[arg(long, value_name = "R,...", value_delimiter = ',')]
    rungs: Vec<String>,
    /// Four rungs, 64 connections and ten rounds: about two minutes once everything is built.
    #[arg(long)]
    quick: bool,
    /// Connections at a time. [default: 1000, or as many as may be; quick: 64]
    #[arg(long, short, value_name = "C")]
    connections: Option<usize>,
    /// Requests that are sent at once on a connection.
    #[arg(long, value_name = "D", default_value_t = 16)]
    pipeline: usize,
    /// Rounds; fewer than 10 decide nothing. [default: 30, quick: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: Option<u32>,
    /// How long a turn is measured. [default: 200 ms, or longer with many requests under way]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    slice: Option<Duration>,
    /// How long a turn is verified and warmed up before.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "60ms")]
    warm_up: Duration,
    /// Of the resamples.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// The sources that the rungs are built from, into target/ladder there. [default: this command's own]
    #[arg(long, value_name = "DIR")]
    source: Option<PathBuf>,
    /// A directory to record in, as JSON lines and CSV. A run that was ended early is gone on with.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    cores: CoresArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

/// The published ladder's.
const CONNECTIONS: usize = 1000;
const QUICK_CONNECTIONS: usize = 64;
/// A turn is measured so long, and in two slices at least.
const SLICE: Duration = Duration::from_millis(200);
/// In place of a list.
const NONE: &str = "none";
const WARP: &str = "warp";
/// Two of the rungs are of our codec, which this one does without.
const ON_HYPER: &str = "tokio_hyper";

/// Measures.
pub(crate) fn run(
    catalog: &Catalog,
    args: &LadderArgs,
    json: bool,
    allocator: &'static str,
) -> anyhow::Result<ExitCode> {
    let stop = stop::on_signal()?;
    let available = Cores::available().context("the cores of this machine are not known")?;
    // What cannot be done is said before anything is built.
    let (subjects, references, steps) = (args.subjects(catalog)?, args.references()?, args.steps()?);
    let instrument = args.instrument(&available, &stop)?;
    let settings = args.config.settings(None)?;
    let Instrument { server_cores, client_cores, asked, .. } = &instrument;
    let environment = Environment::of(&available, [server_cores, client_cores], args.seed, allocator);
    let plan = args.plan(&subjects, &references, &steps, &instrument);
    let header = Header::new("ladder", plan, environment);
    let mut journal = Journal::open(args.out.as_deref(), &header)?;
    let mut recorded = before(args.out.as_deref(), &header)?;

    let root = args.source.as_deref();
    let (mut climbers, mut not_run) = entry::climbers(&subjects, &rungs(&steps), &Sources::new(root), &stop);
    let (others, missing) = entry::references(&references, root, settings.config.workers, &stop);
    climbers.extend(others);
    not_run.extend(missing);
    for one in not_run {
        if !stop.is_begun() && !recorded.not_run.contains(&one) {
            journal.line("not_run", &one)?;
        }
        recorded.leave_out(one);
    }
    let asked = asked.clone();
    let ladder = Ladder { climbers, instrument, rounds: args.rounds() };
    let mut progress = Progress::counting(ladder.turns(), "turns");
    if ladder.instrument.server_cores.share_one_with(&ladder.instrument.client_cores) {
        progress.say("client and server share a core: what one takes the other has not");
    }
    let result = ladder.run(&mut recorded, &mut journal, &mut progress);
    progress.finish();
    result?;
    let rows = rows(&recorded);
    for row in &rows {
        journal.line("rung", row)?;
    }
    if let Some(dir) = &args.out {
        let path = dir.join("ladder.csv");
        let file = File::create(&path).with_context(|| path.display().to_string())?;
        write_csv(&rows, file).with_context(|| path.display().to_string())?;
    }
    let claims = claims::claims(&lines(&header, &recorded)?)?;
    let shown = Shown { recorded: &recorded, asked: &asked, claims: &claims, interrupted: stop.is_begun() };
    if json { print_json(&Printed::new(&header.environment, &shown, &rows)?) } else { print(&shown.to_string()) }?;
    Ok(exit_code(&shown, &args.against))
}

/// What was recorded by runs before this one.
fn before(dir: Option<&Path>, header: &Header) -> anyhow::Result<Recorded> {
    let lines = match dir {
        Some(dir) => journal::read(&dir.join(&header.experiment).with_extension(journal::EXTENSION))?,
        None => vec![as_line(Header::KIND, header)?],
    };
    Recorded::of(&lines)
}

/// What is known by now, as a record has it: without a directory there is none.
fn lines(header: &Header, recorded: &Recorded) -> anyhow::Result<Vec<Value>> {
    let mut lines = vec![as_line(Header::KIND, header)?];
    for one in &recorded.contestants {
        lines.push(as_line("contestant", one)?);
        for cell in recorded.cells(&one.name) {
            lines.push(as_line("cell", cell)?);
        }
    }
    for one in &recorded.not_run {
        lines.push(as_line("not_run", one)?);
    }
    for one in &recorded.failed {
        lines.push(as_line("failure", one)?);
    }
    Ok(lines)
}

/// Whoever cannot take part here is named; a rung that cannot be built, a reference that was asked for by its name, or an
/// answer that is not right, is a failure.
fn exit_code(shown: &Shown<'_>, asked: &[String]) -> ExitCode {
    let is_excused = |one: &NotRun| one.role == Role::Reference && !asked.contains(&one.name);
    let wanting = shown.recorded.not_run.iter().filter(|one| !is_excused(one)).map(|_| false);
    stop::exit_code(shown.interrupted, wanting.chain(shown.recorded.failed.iter().map(|failed| failed.wrong)))
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Printed<'a> {
    environment: &'a Environment,
    asked: &'a str,
    rungs: &'a [Row],
    not_run: &'a [NotRun],
    failed: &'a [Failed],
    claims: &'a [Claim],
    interrupted: bool,
}

impl<'a> Printed<'a> {
    fn new(environment: &'a Environment, shown: &Shown<'a>, rungs: &'a [Row]) -> anyhow::Result<Self> {
        let Shown { recorded: Recorded { not_run, failed, .. }, asked, claims, interrupted } = *shown;
        Ok(Self { environment, asked, rungs, not_run, failed, claims, interrupted })
    }
}

/// Returns the names of the servers that are tagged as rungs.
fn servers() -> Vec<String> {
    tagged(Catalog::builtin().servers(), Tag::LadderRung).into_iter().map(String::from).collect()
}

impl LadderArgs {
    /// Whose ladders: our servers, then warp.
    fn subjects(&self, catalog: &Catalog) -> anyhow::Result<Vec<Subject>> {
        let mut subjects = Vec::new();
        let settings = self.config.settings(None)?;
        room::check_flags(&settings, catalog, self.servers.iter().map(String::as_str))?;
        for name in self.servers.iter().filter(|name| *name != NONE) {
            let entry = catalog.server(name)?;
            let (server, config) = entry.make_with_supported(&settings.with_pool_size())?;
            if self.source.is_none() && Catalog::builtin().server(&entry.name).is_err() {
                let how = "give a --source whose package benches/ladder has it";
                return Err(Misuse(format!("--servers: what is built has no server {name:?}: {how}")).into());
            }
            if entry.name == ON_HYPER {
                let why = "gathers what hyper writes, and no build takes that away: warp stands for hyper";
                return Err(Misuse(format!("--servers: {ON_HYPER} {why}")).into());
            }
            let (name, args) = (entry.name.clone(), room::honoured(&config, &self.config.flags()));
            subjects.push(Subject { name, binary: Binary::Serve, args, shape: server.connections() });
        }
        // One program for all.
        if subjects.iter().any(|subject| Binary::with(&subject.name) == Binary::ServeAll) {
            subjects.iter_mut().for_each(|subject| subject.binary = Binary::ServeAll);
        }
        for name in self.peers.iter().filter(|name| *name != NONE) {
            if name != WARP {
                return Err(Misuse(format!("--peers: there is no ladder for {name:?}, only for {WARP}")).into());
            }
            let args = settings.config.workers.map(|workers| format!("--workers={workers}")).into_iter().collect();
            let shape = polyserve::Connections::Multiplexed;
            subjects.push(Subject { name: name.clone(), binary: Binary::Warp, args, shape });
        }
        let mut seen = std::collections::HashSet::new();
        subjects.retain(|subject| seen.insert(subject.name.clone()));
        if subjects.is_empty() {
            return Err(Misuse(String::from("--servers none --peers none: there is nobody to climb")).into());
        }
        Ok(subjects)
    }

    fn references(&self) -> Result<Vec<String>, Misuse> {
        let usual = [FASTHTTP, NETHTTP].map(String::from);
        let asked = if self.against.is_empty() { &usual[..] } else { &self.against[..] };
        let names: Vec<String> = asked.iter().filter(|name| *name != NONE).cloned().collect();
        match names.iter().find(|name| entry::server(name).is_none()) {
            None => Ok(names),
            Some(unknown) => Err(Misuse(format!("--against: there is no {unknown:?}, only {FASTHTTP} and {NETHTTP}"))),
        }
    }

    fn steps(&self) -> Result<Vec<Step>, Misuse> {
        match (self.rungs.as_slice(), self.quick) {
            ([], true) => Ok(QUICK.to_vec()),
            ([], false) => Ok(STEPS.to_vec()),
            (names, _) => steps(names),
        }
    }

    fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 10 } else { 30 }) as usize
    }

    /// As many as were asked for; otherwise as many as were published, or as may be.
    fn connections(&self) -> Result<usize, Misuse> {
        let room = limits::connections(0, 1);
        match self.connections {
            Some(asked) => limits::enough(asked, room).map(|()| asked),
            None if self.quick => Ok(QUICK_CONNECTIONS),
            None => Ok(CONNECTIONS.min(usize::try_from(room).unwrap_or(CONNECTIONS)).max(1)),
        }
    }

    fn instrument(&self, available: &Cores, stop: &Shutdown) -> anyhow::Result<Instrument> {
        let [server_cores, client_cores] = self.cores.of(available)?;
        let (connections, pipeline) = (self.connections()?, self.pipeline);
        let (usage, traffic) = (Usage::KeepAlive { pipeline }, traffic().map_err(misuse)?);
        let load = Load::new(([127, 0, 0, 1], 0).into(), traffic.clone()).with(|load| {
            load.connections = connections;
            load.usage = usage;
        });
        load.validate().map_err(misuse)?;
        let asked = format!("GET /welcome; {connections} connections, kept alive, {pipeline} requests at once");
        let mut instrument = Instrument {
            server_cores,
            client_cores,
            connections,
            usage,
            limit_traffic: traffic.clone(),
            traffic,
            asked,
            warm_up: self.warm_up,
            slice: SLICE,
            latency_slice: SLICE,
            stop: stop.clone(),
        };
        instrument.slice = self.slice.unwrap_or_else(|| SLICE.max(instrument.shortest_slice(Duration::ZERO) * 2));
        within("--slice", instrument.slice, SLICES)?;
        within("--warm-up", self.warm_up, SLICES)?;
        Ok(instrument)
    }

    fn plan(&self, subjects: &[Subject], references: &[String], steps: &[Step], instrument: &Instrument) -> Value {
        json!({
            "subjects": subjects.iter().map(|subject| &subject.name).collect::<Vec<_>>(),
            "against": references,
            "rungs": steps.iter().map(|step| step.name()).collect::<Vec<_>>(),
            "connections": instrument.connections,
            "pipeline": self.pipeline,
            "rounds": self.rounds(),
            "slice_ms": instrument.slice.as_millis() as u64,
            "warm_up_ms": self.warm_up.as_millis() as u64,
            "settings": self.config.flags(),
        })
    }
}
