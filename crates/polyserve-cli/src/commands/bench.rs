//! `polyserve bench`: an experiment from a definition.

mod page;
mod scenario;
pub(crate) mod tasks;

use std::collections::HashMap;
use std::process::ExitCode;

use polyserve::env::Settings;
use polyserve_bench::Misuse;
use polyserve_bench::bench::mode::Turns;
use polyserve_bench::bench::mode::counted::{CountedCell, CountedTurns};
use polyserve_bench::bench::mode::hold::{HoldCell, HoldTurns};
use polyserve_bench::bench::mode::limit::NullServer;
use polyserve_bench::bench::mode::requests::{CellPlan, RequestSettings, RequestTurns};
use polyserve_bench::bench::mode::search::SearchTurns;
use polyserve_bench::bench::mode::trial::TrialTurns;
use polyserve_bench::bench::mode::{ClosedMode, CompareMode, HoldMode};
use polyserve_bench::bench::pattern::matches;
use polyserve_bench::bench::{
    BenchPlan, BenchWorkload, CellEntries, CellValue, ContestantOrigin, DefinedExperiment, Definition, Key, Mode,
    ModeKind, Pattern, SweepAxis, SweepCell,
};
use polyserve_bench::claim::ClaimDefinition;
use polyserve_bench::contestants::{self, BuiltProgram, Program, Serves};
use polyserve_bench::crowd::CrowdKind;
use polyserve_bench::experiment::{Absent, RecordArgs, distinct, with_second_entries};
use polyserve_bench::limits;
use polyserve_bench::machine::cores::Cores;
use polyserve_bench::output::{print, print_json};
use polyserve_bench::report::Table;
use polyserve_bench::turn::{Contestant, Instrument, Role};
use polyserve_load::Traffic;
use polyserve_load::data::Data;
use serde_json::json;

use super::compare::{ComparisonInputs, cores_of};
use super::cores::{CLIENT_CORES, CoresArgs};
use super::entrants::{ACCEPT_LIMIT, LIMIT, Pair, ServerLaunches, left_out, pairs, reference_contestant};
use super::foreign::ContestantsArgs;
use super::seed::SeedArgs;
use super::service::{RequestedService, ServiceArgs};
use super::session::{Context, MeasurementSession};
use super::workload::{instrument, misuse, traffic};
use crate::config_args::ConfigArgs;

mod stores;

/// The arguments of `polyserve bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// The name of a definition, or a file: NAME.toml.
    #[arg(value_name = "NAME|FILE", required_unless_present_any = ["list", "store_run"])]
    definition: Option<String>,
    /// List the definitions that this command contains.
    #[arg(long)]
    list: bool,
    /// Change a key of the definition: workload.keys=100, sweep.workers=[1,8], rounds=3. Can be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Measure only the contestants with this text in their names, and the baseline. A star stands for any text.
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
    /// Measure the quick part of the definition: it shows that everything runs, and answers nothing.
    #[arg(long)]
    quick: bool,
    /// The measurement of one process, as JSON. A run of the mode `store` starts its processes with this flag.
    #[arg(long, value_name = "JSON", hide = true)]
    store_run: Option<String>,
    #[command(flatten)]
    contestants: ContestantsArgs,
    #[command(flatten)]
    random: SeedArgs,
    #[command(flatten)]
    cores: CoresArgs,
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(crate) fn run(context: Context<'_>, args: &BenchArgs) -> anyhow::Result<ExitCode> {
    if let Some(run) = &args.store_run {
        return stores::one_run(context.catalog, run);
    }
    let Some(name) = args.definition.as_deref().filter(|_| !args.list) else { return list(context.json) };
    let mut definition = Definition::read(name, &args.set)?;
    if args.quick {
        definition = definition.quick();
    }
    check_flags(args, definition.mode.kind())?;
    // Before the builds of contestants, which take minutes.
    if let Mode::Scenario(mode) = &definition.mode {
        scenario::check(args, &definition, mode)?;
    } else if !matches!(definition.mode, Mode::Tasks(_) | Mode::Store(_)) {
        for cell in definition.cells() {
            limits::check_connections(definition.workload.at(&cell).connections, limits::connections(0))?;
        }
    }
    let session = context.start()?;
    if let Mode::Compare(mode) = &definition.mode {
        return run_comparison(context, &session, args, (&definition, mode));
    }
    let programs = programs(&definition, &args.contestants, context.allocator, &session)?;
    match &definition.mode {
        Mode::Tasks(mode) => tasks::run(&session, args, &definition, mode, &programs),
        Mode::Scenario(mode) => scenario::run(&session, args, &definition, mode, &programs),
        Mode::Page(mode) => page::run(&session, args, &definition, mode, &programs),
        Mode::Store(mode) => stores::run(&session, args, &definition, mode),
        Mode::Closed(mode) => run_servers(context, &session, args, (&definition, mode.requests()), &programs),
        Mode::Rate(mode) => run_servers(context, &session, args, (&definition, mode.requests()), &programs),
        Mode::Search(mode) => run_servers(context, &session, args, (&definition, mode.requests()), &programs),
        Mode::Hold(mode) => run_servers(context, &session, args, (&definition, mode.requests()), &programs),
        Mode::Trial(mode) => run_servers(context, &session, args, (&definition, mode.requests()), &programs),
        Mode::Compare(_) => unreachable!("it has no programs of its own"),
    }
}

/// Runs a comparison, as `polyserve compare` does.
fn run_comparison(
    context: Context<'_>,
    session: &MeasurementSession<'_>,
    args: &BenchArgs,
    (definition, mode): (&Definition, &CompareMode),
) -> anyhow::Result<ExitCode> {
    let (registry, seed) = (args.contestants.registry()?, args.random.seed);
    let (cores, config) = (&args.cores, &args.config);
    let inputs = ComparisonInputs { definition, mode, registry: &registry, cores, config, seed };
    let mut comparison = inputs.comparison(session, context.allocator)?;
    let environment = session.environment(cores_of(&comparison), seed);
    session.run_named(&args.record, environment, &definition.name, &mut comparison)
}

/// Returns an error if a flag is given that the mode does not read: stores and tasks have no servers.
fn check_flags(args: &BenchArgs, mode: ModeKind) -> Result<(), Misuse> {
    let settings = args.config.flags();
    let setting = settings.first().and_then(|flag| flag.split('=').next());
    let (mut cores, contestants) = (args.cores.given(), args.contestants.given());
    let unread = match mode {
        ModeKind::Store => setting.or(cores.next()).or(contestants),
        ModeKind::Tasks => setting.or(cores.find(|flag| *flag == CLIENT_CORES)),
        ModeKind::Scenario => cores.next(),
        ModeKind::Compare => args.only.as_ref().map(|_| "--only"),
        _ => None,
    };
    match unread {
        Some(flag) => Err(Misuse(format!("{flag}: the mode {mode} does not read it"))),
        None => Ok(()),
    }
}

/// Runs an experiment that sends requests to servers.
fn run_servers(
    context: Context<'_>,
    session: &MeasurementSession<'_>,
    args: &BenchArgs,
    (definition, requests): (&Definition, RequestSettings),
    programs: &[BuiltProgram],
) -> anyhow::Result<ExitCode> {
    let [server_cores, client_cores] = args.cores.of(&session.available)?;
    let settings = args.config.settings(None)?;
    let service = ServiceArgs::of(definition).read(context.catalog)?;
    let entrants = BenchEntrants {
        args,
        definition,
        session,
        settings: &settings,
        service: service.as_ref(),
        cores: [&server_cores, &client_cores],
        programs,
        requests,
    };
    let (mut cells, absent) = entrants.cells()?;
    if let Mode::Trial(_) = &definition.mode {
        // A comparison makes a second entry of each contestant itself.
        cells.iter_mut().for_each(|cell| cell.contestants.retain(|one| one.role != Role::Same));
    }
    let contestants =
        distinct(cells.iter().flat_map(|cell| &cell.contestants).map(|contestant| contestant.name.clone()));
    let plan = plan(args, definition, (contestants, entrants.baseline()?), &absent)?;
    let environment = session.environment([&server_cores, &client_cores], args.random.seed);
    client_cores.pin()?;
    if let Some(service) = &service {
        rehearse(&mut cells, service)?;
    }
    let entries = |one: &CellPlan| {
        let names = one.contestants.iter().map(|contestant| contestant.name.clone());
        CellEntries { cell: one.cell.clone(), contestants: names.collect() }
    };
    let entries = cells.iter().map(entries).collect();
    let turns: Box<dyn Turns> = match &definition.mode {
        Mode::Search(mode) => Box::new(SearchTurns::new(cells, mode.clone(), limit_contestant(definition))),
        Mode::Hold(mode) => Box::new(HoldTurns::new(entrants.crowds(mode, cells)?, mode)),
        Mode::Trial(mode) => {
            let (mode, environment, stop) = (mode.clone(), environment.clone(), session.stop.clone());
            Box::new(TrialTurns { mode, cells, environment, stop })
        }
        Mode::Closed(ClosedMode { requests: Some(requests), .. }) => {
            Box::new(CountedTurns::new(entrants.counted(cells)?, *requests))
        }
        _ => {
            let has_percents = definition.sweep.contains_key(&SweepAxis::RatePercent);
            Box::new(RequestTurns::new(cells, has_percents.then(|| NullServer::new(limit_contestant(definition)))))
        }
    };
    let mut experiment = DefinedExperiment { plan, cells: entries, absent, turns };
    session.run_named(&args.record, environment, &definition.name, &mut experiment)
}

/// The description of a run of these contestants and this baseline.
fn plan(
    args: &BenchArgs,
    definition: &Definition,
    (contestants, baseline): (Vec<String>, String),
    absent: &[Absent<Key>],
) -> anyhow::Result<BenchPlan> {
    // A scenario lists what could not take part.
    if contestants.is_empty() && definition.mode.kind() != ModeKind::Scenario {
        let why = absent.first().map_or("no contestant has such a name", |absent| absent.absence.why.as_str());
        return Err(definition.misuse("contestants", format!("there is nothing to measure: {why}")).into());
    }
    if args.only.is_none() && !args.quick {
        let is_known =
            |name: &&String| contestants.contains(name) || absent.iter().any(|one| one.key.contestant == **name);
        if let Some(unknown) = definition.controls.iter().find(|name| !is_known(name)) {
            return Err(definition.misuse("controls", format!("there is no contestant {unknown:?}")).into());
        }
        check_claims(definition, contestants.iter().chain(absent.iter().map(|absent| &absent.key.contestant)))?;
    }
    Ok(BenchPlan {
        name: definition.name.clone(),
        about: definition.about.clone(),
        workload: definition.mode.in_words(&definition.workload),
        mode: definition.mode.kind(),
        compared: definition.mode.compared().to_owned(),
        axes: definition.sweep.keys().copied().collect(),
        contestants,
        baseline,
        charts: definition.charts.clone(),
        quick: args.quick,
        rounds: definition.rounds,
        definition: serde_json::to_value(&definition.table)?,
        settings: args.config.given()?,
    })
}

/// The null server that is the limit for the use of connections.
fn limit_contestant(definition: &Definition) -> Contestant {
    reference_contestant(if definition.workload.close { ACCEPT_LIMIT } else { LIMIT })
}

/// Whether `--only` leaves the contestant in.
fn is_wanted(args: &BenchArgs, name: &str) -> bool {
    args.only.as_ref().is_none_or(|only| matches(&format!("*{only}*"), name))
}

/// Returns an error if a claim is about a contestant that the definition does not name.
fn check_claims<'a>(definition: &Definition, known: impl Iterator<Item = &'a String>) -> Result<(), Misuse> {
    let known = distinct(known);
    let unknown = |claim: &ClaimDefinition| claim.contestant_names().find(|name| !known.contains(name)).cloned();
    match definition.claims.iter().find_map(|claim| Some((claim, unknown(claim)?))) {
        Some((claim, name)) => {
            let known = known.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            Err(definition.claim_misuse(claim, format!("there is no contestant {name:?}; there are {known}")))
        }
        None => Ok(()),
    }
}

/// Prints the definitions of the command.
fn list(is_json: bool) -> anyhow::Result<ExitCode> {
    let all = Definition::builtin()?;
    if is_json {
        let definitions = all.iter().map(|one| json!({"name": one.name, "about": one.about, "definition": one.table}));
        print_json(&definitions.collect::<Vec<_>>())?;
    } else {
        let mut table = Table::of_texts(&["definition", "question"]);
        all.into_iter().for_each(|one| table.row(vec![one.name, one.about]));
        print(&table.wide())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds the programs from outside the catalog that the definition names.
fn programs(
    definition: &Definition,
    contestants: &ContestantsArgs,
    allocator: &str,
    session: &MeasurementSession<'_>,
) -> Result<Vec<BuiltProgram>, Misuse> {
    let registry = contestants.registry()?;
    let is_peer = |pattern: &&Pattern| pattern.origin == ContestantOrigin::Peer;
    let patterns: Vec<&Pattern> = definition.contestants.iter().chain(&definition.baseline).filter(is_peer).collect();
    let is_of_mode = |program: &Program| match definition.mode.kind() {
        _ if definition.workload.welcome => program.serves() == Serves::Welcome,
        ModeKind::Tasks => program.serves() == Serves::Tasks,
        ModeKind::Page => program.serves() == Serves::Page,
        ModeKind::Scenario => program.keeps_entities(),
        ModeKind::Closed
        | ModeKind::Rate
        | ModeKind::Search
        | ModeKind::Hold
        | ModeKind::Store
        | ModeKind::Trial
        | ModeKind::Compare => program.is_server(),
    };
    // A star stands for the servers that do not ask to be named.
    let is_asked = |program: &Program, pattern: &Pattern| {
        let is_named = program.short_name() == pattern.name;
        let is_meant = !program.is_server() || registry.servers().any(|server| server == program);
        is_of_mode(program) && (is_named || (is_meant && pattern.matches(program.short_name())))
    };
    let is_one_asked = |program: &&Program| patterns.iter().any(|pattern| is_asked(program, pattern));
    let asked: Vec<&Program> = registry.programs().filter(is_one_asked).collect();
    if let Some(unknown) = patterns.iter().find(|pattern| asked.iter().all(|program| !is_asked(program, pattern))) {
        let names: Vec<&str> =
            registry.programs().filter(|program| is_of_mode(program)).map(Program::short_name).collect();
        let fault = match registry.named(&unknown.name) {
            Some(_) => format!("peer:{} does not serve what this mode measures", unknown.name),
            None => format!("there is no peer:{}", unknown.name),
        };
        let why = format!("{fault}; there are {}", names.join(", "));
        return Err(definition.misuse("contestants", why));
    }
    Ok(contestants::build(asked, allocator, &session.stop))
}

/// Discovers the answers of a service on the first contestant. Makes the slices long enough for its requests.
fn rehearse(cells: &mut [CellPlan], service: &RequestedService) -> anyhow::Result<()> {
    let Some((instrument, contestant)) =
        cells.first().and_then(|cell| Some((&cell.instrument, cell.contestants.first()?)))
    else {
        return Ok(());
    };
    let (rehearsal, notes) = service.rehearse(instrument, contestant)?;
    notes.iter().for_each(|note| eprintln!("{note}"));
    cells.iter_mut().for_each(|cell| rehearsal.apply(&mut cell.instrument, &mut cell.contestants));
    Ok(())
}

/// What the requests to entities depend on in a sweep: their number, the bytes of a description, the distribution and the mix.
type TrafficKey = (u64, usize, String, String);

/// Chooses the contestants of each cell.
struct BenchEntrants<'a> {
    args: &'a BenchArgs,
    definition: &'a Definition,
    session: &'a MeasurementSession<'a>,
    settings: &'a Settings,
    service: Option<&'a RequestedService>,
    /// The cores of the servers and of the load generator.
    cores: [&'a Cores; 2],
    programs: &'a [BuiltProgram],
    requests: RequestSettings,
}

/// A contestant at a cell, or why it cannot take part.
struct CellEntrant {
    name: String,
    contestant: Result<Contestant, String>,
    /// Whether the run succeeds without the contestant.
    is_excused: bool,
}

impl BenchEntrants<'_> {
    /// The cells with their contestants, and the contestants that are left out.
    fn cells(&self) -> anyhow::Result<(Vec<CellPlan>, Vec<Absent<Key>>)> {
        let (mut cells, mut absent, mut traffics) = (Vec::new(), Vec::new(), HashMap::new());
        let baseline = self.baseline()?;
        for cell in self.definition.cells() {
            let workload = self.definition.workload.at(&cell);
            let instrument = self.instrument(&cell, &workload, &mut traffics)?;
            let mut contestants: Vec<Contestant> = Vec::new();
            let room = self.with_crowd(&cell, &workload);
            for CellEntrant { name, contestant, is_excused } in self.entrants(&room)? {
                if name != baseline && !is_wanted(self.args, &name) {
                    continue;
                }
                let possible = instrument.as_ref().map_err(Clone::clone);
                match possible.and(contestant) {
                    Ok(contestant) => contestants.push(contestant),
                    Err(why) => {
                        let key = Key { contestant: name, cell: cell.clone(), round: 0 };
                        absent.push(left_out(key, why, is_excused));
                    }
                }
            }
            if let Ok(instrument) = instrument {
                let controls = &self.definition.controls;
                let contestants =
                    with_second_entries(contestants, &baseline, controls, |one| (&mut one.name, &mut one.role));
                let RequestSettings { rate, latency, .. } = self.requests;
                let rate = cell.get(&SweepAxis::Rate).and_then(CellValue::number).map(|rate| rate as f64).or(rate);
                cells.push(CellPlan { cell, contestants, instrument, rate, latency });
            }
        }
        Ok((cells, absent))
    }

    /// The workload with the connections of a crowd, too. A server needs room for all.
    fn with_crowd(&self, cell: &SweepCell, workload: &BenchWorkload) -> BenchWorkload {
        let held =
            if let Mode::Hold(mode) = &self.definition.mode { mode.held_at(cell, workload.connections) } else { 0 };
        BenchWorkload { connections: workload.connections + held, ..workload.clone() }
    }

    /// The cells with their crowds.
    fn crowds(&self, mode: &HoldMode, cells: Vec<CellPlan>) -> Result<Vec<HoldCell>, Misuse> {
        let cell = |plan: CellPlan| {
            let crowd = mode.crowd(&plan.cell, &self.settings.config, plan.instrument.connections)?;
            let payload = self.definition.workload.at(&plan.cell).payload;
            Ok(HoldCell::new(plan, crowd, &Data::new(self.args.random.seed).with_description(payload)))
        };
        cells.into_iter().map(cell).collect()
    }

    /// The cells with the reading of what was put there.
    fn counted(&self, cells: Vec<CellPlan>) -> anyhow::Result<Vec<CountedCell>> {
        let cell = |plan: CellPlan| {
            let workload = self.definition.workload.at(&plan.cell);
            let data = Data::new(self.args.random.seed).with_description(workload.payload);
            CountedCell::new(plan, &workload, Some(&data).filter(|_| self.service.is_none())).map_err(misuse)
        };
        cells.into_iter().map(cell).collect()
    }

    /// Flags that keep an idle crowd connected to the end, unless the timeouts are given.
    fn idle_flags(&self) -> impl Iterator<Item = String> {
        let is_idle = matches!(&self.definition.mode, Mode::Hold(mode) if mode.behaviour == CrowdKind::Idle);
        let given = |name: &str| self.settings.is_given(name);
        let flags = [("first_byte_timeout", "--first-byte-timeout=1h"), ("idle_timeout", "--idle-timeout=1h")];
        flags.into_iter().filter(move |(name, _)| is_idle && !given(name)).map(|(_, flag)| flag.to_owned())
    }

    /// The name of the baseline: the first contestant by default.
    fn baseline(&self) -> anyhow::Result<String> {
        let definition = self.definition;
        let entrants = match &definition.baseline {
            Some(pattern) => self.entrants_of(pattern, &definition.workload)?,
            None => self.entrants(&definition.workload)?,
        };
        let first = entrants.into_iter().find(|one| one.contestant.as_ref().is_ok_and(|one| one.role != Role::Limit));
        let none = || definition.misuse("baseline", "no server of this name can be the baseline");
        Ok(first.ok_or_else(none)?.name)
    }

    /// The contestants with these settings, each once.
    fn entrants(&self, workload: &BenchWorkload) -> anyhow::Result<Vec<CellEntrant>> {
        let mut all: Vec<CellEntrant> = Vec::new();
        for pattern in self.definition.contestants.iter().chain(&self.definition.baseline) {
            for entrant in self.entrants_of(pattern, workload)? {
                if all.iter().all(|known| known.name != entrant.name) {
                    all.push(entrant);
                }
            }
        }
        Ok(all)
    }

    fn entrants_of(&self, pattern: &Pattern, workload: &BenchWorkload) -> anyhow::Result<Vec<CellEntrant>> {
        match pattern.origin {
            ContestantOrigin::Catalog => {
                let (settings, catalog) = (self.settings, self.session.catalog);
                let mut flags = self.args.config.flags();
                flags.extend(self.idle_flags());
                flags.extend(self.service.map(|service| format!("--service={}", service.name)));
                flags.extend(workload.welcome.then(|| String::from("--service=welcome")));
                let launches = ServerLaunches { catalog, settings, flags: &flags, connection_each: workload.close };
                let workers = workload.workers.or(settings.config.workers);
                let entrant = |pair: &Pair| {
                    let contestant = launches.contestant([&pair.server, &pair.repo], workload.connections, workers)?;
                    // A server that does not have a setting of the sweep is left out at these cells.
                    let is_excused = pattern.has_star() || !self.definition.sweep.is_empty();
                    Ok(CellEntrant { name: pair.name(), contestant, is_excused })
                };
                pairs(self.definition, pattern, catalog, self.service.is_none() && !workload.welcome)?
                    .iter()
                    .map(entrant)
                    .collect()
            }
            ContestantOrigin::Peer => {
                let programs = self.programs.iter().filter(|built| pattern.matches(built.program.short_name()));
                Ok(programs.map(|built| self.peer(pattern, built, workload)).collect())
            }
            ContestantOrigin::Reference => {
                let catalog = self.session.catalog;
                let known = catalog.references().iter().filter(|entry| pattern.matches(&entry.name));
                let entrants: Vec<CellEntrant> = known
                    .map(|entry| {
                        let contestant = Ok(reference_contestant(&entry.name));
                        CellEntrant { name: entry.name.clone(), contestant, is_excused: true }
                    })
                    .collect();
                if entrants.is_empty() && !pattern.has_star() {
                    catalog.reference(&pattern.name)?;
                }
                // A null server has neither the answers of a service nor their sizes.
                Ok(if self.service.is_some() || workload.welcome { Vec::new() } else { entrants })
            }
            // The check of the mode refuses contestants that are no servers.
            _ => Ok(Vec::new()),
        }
    }

    fn peer(&self, pattern: &Pattern, built: &BuiltProgram, workload: &BenchWorkload) -> CellEntrant {
        let server = &built.program;
        let max = server.max_concurrent(workload.workers).filter(|max| *max < workload.connections && !workload.close);
        let launch = match max {
            Some(max) => Err(format!("it serves {max} connections at a time")),
            None if self.service.is_some() => Err(String::from("a foreign server does not have the service")),
            None if !workload.welcome && !server.keeps_entities() => Err(String::from("it stores no entities")),
            None => built.launch(workload.workers),
        };
        let contestant = launch.map(|launch| {
            let contestant = Contestant::new(server.name(), Role::Ranked, launch);
            contestant.with(|one| (one.checks_contract, one.shape) = (!workload.welcome, Some(server.shape())))
        });
        let is_excused = built.is_absent || pattern.has_star() || !self.definition.sweep.is_empty();
        CellEntrant { name: server.name().to_owned(), contestant, is_excused }
    }

    /// How the contestants of a cell are measured; or why they cannot be.
    fn instrument(
        &self,
        cell: &SweepCell,
        workload: &BenchWorkload,
        traffics: &mut HashMap<TrafficKey, Traffic>,
    ) -> anyhow::Result<Result<Instrument, String>> {
        let [servers, clients] = self.cores;
        let count = cell.get(&SweepAxis::ServerCores).and_then(CellValue::number);
        let count = count.map_or(servers.count(), |count| count as usize);
        let Some(chosen) = servers.numbers().get(..count) else {
            let why = format!("the servers may use {} cores: see --server-cores", servers.count());
            return Ok(Err(why));
        };
        let BenchWorkload { keys, payload, mix, ref dist, .. } = *workload;
        let key = (keys, payload, dist.to_string(), mix.to_string());
        let traffic = match traffics.get(&key) {
            Some(traffic) => traffic.clone(),
            None => traffic(workload, self.service, self.args.random.seed)?,
        };
        traffics.insert(key, traffic.clone());
        let cores = [Cores::from(chosen), clients.clone()];
        instrument(workload, traffic, cores, self.requests, &self.session.stop).map(Ok)
    }
}
