//! The contestants of the modes that send requests to servers: servers of the catalog, programs from outside it, and null servers.
//!
//! Each takes part with settings under which it has room for all connections. In the mode `compare` a server that serves fewer
//! connections at a time takes part, and the bound on the wait of the others stands in the place of its latencies. In the other
//! modes it is left out.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use polyserve::catalog::{Promise, ServerEntry};
use polyserve::env::Settings;
use polyserve::{ConfigError, ServerConfig};
use polyserve_bench::Misuse;
use polyserve_bench::bench::mode::closed::ClosedMode;
use polyserve_bench::bench::mode::counted::{CountedCell, CountedTurns};
use polyserve_bench::bench::mode::hold::{HoldCell, HoldMode, HoldTurns};
use polyserve_bench::bench::mode::limit::NullServer;
use polyserve_bench::bench::mode::overload::{NO_POLICY, OverloadTurns};
use polyserve_bench::bench::mode::requests::{CellPlan, RequestSettings, RequestTurns};
use polyserve_bench::bench::mode::search::SearchTurns;
use polyserve_bench::bench::mode::trial::TrialTurns;
use polyserve_bench::bench::mode::{Mode, Turns};
use polyserve_bench::bench::{
    BenchPlan, BenchWorkload, CellEntries, CellValue, ContestantOrigin, DefinedExperiment, Pattern, SweepAxis,
    SweepCell,
};
use polyserve_bench::contestants::{self, BuiltProgram, Program};
use polyserve_bench::crowd::CrowdKind;
use polyserve_bench::experiment::{Absent, distinct, with_second_entries};
use polyserve_bench::machine::Environment;
use polyserve_bench::machine::cores::Cores;
use polyserve_bench::turn::{Contestant, Instrument, Rehearsal, Role, RunTls, bound, bound_of};
use polyserve_load::Traffic;
use polyserve_load::data::Data;

use super::super::entrants::{ACCEPT_LIMIT, LIMIT, Pair, reference_contestant, serve, this_program};
use super::super::room;
use super::super::service::{RequestedService, ServiceArgs};
use super::super::workload::{instrument, misuse, traffic};
use super::Run;
use super::run::own_program;
use super::select::{Entrant, Selected};

/// Runs an experiment that sends requests to servers.
pub(super) fn run(run: Run<'_>) -> anyhow::Result<ExitCode> {
    let (mut experiment, environment) = Servers::new(run)?.plan(None)?.experiment()?;
    run.report(environment, &mut experiment)
}

/// A server at a cell.
type CellEntrant = Entrant<Contestant>;

/// What the requests to entities depend on in a sweep: their number, the bytes of a description, the distribution and the mix.
type TrafficKey = (u64, usize, String, String);

/// Chooses the contestants of each cell.
pub(crate) struct Servers<'a> {
    run: Run<'a>,
    settings: Settings,
    service: Option<RequestedService>,
    /// The cores of the servers and of the load generator.
    cores: [Cores; 2],
    programs: Vec<BuiltProgram>,
    /// The program with our own servers, if it was built as a variant.
    own: Option<PathBuf>,
    requests: RequestSettings,
    /// The certificate of the run, if the workload is over TLS.
    tls: Option<RunTls>,
}

/// The contestants and the description of a run.
pub(crate) struct ServerPlan<'a> {
    servers: Servers<'a>,
    description: BenchPlan,
    /// The cells with their contestants.
    pub(crate) cells: Vec<CellPlan>,
    absent: Vec<Absent>,
}

impl<'a> Servers<'a> {
    /// Builds the programs from outside the catalog.
    ///
    /// # Errors
    ///
    /// Returns an error if the mode sends no requests, or if a setting, a core or the name of a program is wrong.
    pub(crate) fn new(run: Run<'a>) -> anyhow::Result<Self> {
        let requests = run.definition.mode.requests();
        let requests = requests.ok_or_else(|| run.definition.misuse("mode", "it sends no requests to servers"))?;
        let cores = run.cores.of(&run.session.available)?;
        let settings = run.config.settings(None)?;
        if let Some(name) = &run.definition.workload.service {
            run.session.catalog.service(name).map_err(|why| run.definition.misuse("service", why))?;
        }
        let service = ServiceArgs::of(run.definition)?.read(run.session.catalog)?;
        let tls = run.definition.workload.tls.then(RunTls::new).transpose()?;
        let mut servers = Self { run, settings, service, cores, programs: Vec::new(), own: None, requests, tls };
        servers.check_flags()?;
        servers.programs = run.programs()?;
        if let Some(variant) = run.closed_mode().and_then(|mode| mode.variant.as_ref()) {
            let own = own_program(variant, run.registry, run.session.catalog)?;
            for built in contestants::build([&own], variant, &run.session.stop) {
                servers.own = Some(built.file.map_err(|why| anyhow!("our servers as {variant}: {why}"))?);
            }
            eprintln!("all programs are built as the variant {variant}, if their entry has it");
        }
        Ok(servers)
    }

    /// Rejects a flag for a setting that none of the servers of the catalog has.
    fn check_flags(&self) -> anyhow::Result<()> {
        let mut names: Vec<String> = Vec::new();
        for pattern in self.run.patterns().filter(|pattern| pattern.origin == ContestantOrigin::Catalog) {
            for selected in self.select(pattern)? {
                names.extend(if let Selected::Pair(pair) = selected { Some(pair.server) } else { None });
            }
        }
        if !names.is_empty() {
            room::check_flags(&self.settings, self.run.session.catalog, names.iter().map(String::as_str))?;
        }
        Ok(())
    }

    fn select(&self, pattern: &Pattern) -> anyhow::Result<Vec<Selected<'_>>> {
        let has_repos = self.service.is_none() && !self.run.definition.workload.welcome;
        self.run.select(pattern, &self.programs, has_repos)
    }

    fn is_comparison(&self) -> bool {
        matches!(self.run.definition.mode, Mode::Compare(_))
    }

    /// Chooses the contestants. The right answers of a service are discovered, unless they are `rehearsed` already.
    ///
    /// # Errors
    ///
    /// Returns an error if a name is unknown, or if nothing can be measured.
    pub(crate) fn plan(self, rehearsed: Option<&Rehearsal>) -> anyhow::Result<ServerPlan<'a>> {
        let (mut cells, absent) = self.cells()?;
        if let Mode::Trial(_) | Mode::Overload(_) = &self.run.definition.mode {
            // A comparison makes a second entry of each contestant itself, and an overload compares each with itself without load.
            cells.iter_mut().for_each(|cell| cell.contestants.retain(|one| one.role != Role::Same));
        }
        let names = cells.iter().flat_map(|cell| &cell.contestants).map(|contestant| contestant.name.clone());
        let mut description = self.run.plan((distinct(names), self.baseline()?), &absent)?;
        let [server_cores, client_cores] = &self.cores;
        if server_cores.share_one_with(client_cores) {
            eprintln!("client and server share a core, and compete for its time");
        }
        if let Some(service) = &self.service {
            match rehearsed {
                Some(rehearsal) => apply(rehearsal, &mut cells),
                None => {
                    self.rehearse(service, &mut cells)?;
                }
            }
            description.requests = service.described();
        }
        Ok(ServerPlan { servers: self, description, cells, absent })
    }

    /// Discovers the answers of the service on one contestant. Makes the slices long enough for its requests.
    ///
    /// # Errors
    ///
    /// Returns an error if the contestant cannot be started, or if an answer has a wrong status.
    fn rehearse(&self, service: &RequestedService, cells: &mut [CellPlan]) -> anyhow::Result<Option<Rehearsal>> {
        let Some(CellPlan { instrument, contestants, .. }) = cells.first() else { return Ok(None) };
        // If the threads of the server do not wait, the connections are the first bound.
        let is_free = |entry: &&ServerEntry| entry.promises(Promise::LaterHoldsNoThread);
        let free: Vec<&ServerEntry> = self.run.session.catalog.servers().iter().filter(is_free).collect();
        let is_of = |one: &Contestant, entry: &ServerEntry| {
            one.name.strip_prefix(&entry.name).is_some_and(|rest| !rest.contains(' '))
        };
        let suited = contestants.iter().find(|one| free.iter().any(|entry| is_of(one, entry)));
        let Some(contestant) = suited.or(contestants.first()) else { return Ok(None) };
        let (rehearsal, notes) = service.rehearse(instrument, contestant)?;
        notes.iter().for_each(|note| eprintln!("{note}"));
        apply(&rehearsal, cells);
        Ok(Some(rehearsal))
    }

    /// The answers of the service and the time of its requests, from the first contestant that suits; `None` without a service.
    ///
    /// # Errors
    ///
    /// Returns an error if a name is unknown, or if the answers cannot be discovered.
    pub(crate) fn rehearsal(&self) -> anyhow::Result<Option<Rehearsal>> {
        let Some(service) = &self.service else { return Ok(None) };
        self.rehearse(service, &mut self.cells()?.0)
    }

    /// The cells with their contestants, and the contestants that are left out.
    fn cells(&self) -> anyhow::Result<(Vec<CellPlan>, Vec<Absent>)> {
        let (mut cells, mut left_out, mut traffics) = (Vec::new(), Vec::new(), HashMap::new());
        let (baseline, definition) = (self.baseline()?, self.run.definition);
        for cell in definition.cells() {
            let workload = definition.workload.at(&cell);
            let instrument = self.instrument(&cell, &workload, &mut traffics)?;
            let entrants = self.entrants(&self.with_crowd(&cell, &workload))?.into_iter().map(|entrant| {
                let possible = instrument.as_ref().map_err(Clone::clone).and(entrant.contestant);
                Entrant { contestant: possible.map(|one| with_policy(one, &cell)), ..entrant }
            });
            let contestants = self.run.taking_part(entrants.collect(), Some(&baseline), &cell, &mut left_out);
            if let Ok(instrument) = instrument {
                let contestants = self.entered(contestants, &baseline);
                let RequestSettings { rate, latency, .. } = self.requests;
                let rate = cell.get(&SweepAxis::Rate).and_then(CellValue::number).map(|rate| rate as f64).or(rate);
                cells.push(CellPlan { cell, contestants, instrument, rate, latency });
            }
        }
        Ok((cells, left_out))
    }

    /// The contestants of a cell with the second entries, a slowed copy of the baseline if there is to be one, and the program of
    /// the variant.
    fn entered(&self, contestants: Vec<Contestant>, baseline: &str) -> Vec<Contestant> {
        let controls = &self.run.definition.controls;
        let mut all = with_second_entries(contestants, baseline, controls, |one| (&mut one.name, &mut one.role));
        if let Some(percent) = self.run.closed_mode().and_then(|mode| mode.slowed)
            && let Some(own) = all.iter().find(|one| one.role == Role::Baseline)
        {
            let name = format!("{baseline} (slowed {percent} %)");
            all.push(Contestant { name, role: Role::Slowed(percent), ..own.clone() });
        }
        if let Some(file) = &self.own {
            let ours = all.iter_mut().filter(|one| one.launch.program == this_program());
            ours.for_each(|one| one.launch.program.clone_from(file));
        }
        all
    }

    /// The workload with the connections of a crowd, too. A server needs room for all.
    fn with_crowd(&self, cell: &SweepCell, workload: &BenchWorkload) -> BenchWorkload {
        let mode = &self.run.definition.mode;
        let held = if let Mode::Hold(mode) = mode { mode.held_at(cell, workload.connections) } else { 0 };
        BenchWorkload { connections: workload.connections + held, ..workload.clone() }
    }

    /// Flags that keep an idle crowd connected to the end, unless the timeouts are given.
    fn idle_flags(&self) -> impl Iterator<Item = String> {
        let is_idle = matches!(&self.run.definition.mode, Mode::Hold(mode) if mode.behaviour == CrowdKind::Idle);
        let given = |name: &str| self.settings.is_given(name);
        let flags = [("first_byte_timeout", "--first-byte-timeout=1h"), ("idle_timeout", "--idle-timeout=1h")];
        flags.into_iter().filter(move |(name, _)| is_idle && !given(name)).map(|(_, flag)| flag.to_owned())
    }

    /// The name of the baseline: by default the first contestant that is no null server.
    fn baseline(&self) -> anyhow::Result<String> {
        let workload = &self.run.definition.workload;
        let is_server = |one: &CellEntrant| one.contestant.as_ref().is_ok_and(|one| one.role != Role::Limit);
        let Entrant { name, contestant, .. } =
            self.run.baseline(|pattern| self.entrants_of(pattern, workload), is_server)?;
        match contestant {
            Ok(_) => Ok(name),
            Err(why) => bail!("the baseline {name}: {why}"),
        }
    }

    /// The contestants with these settings, each once.
    fn entrants(&self, workload: &BenchWorkload) -> anyhow::Result<Vec<CellEntrant>> {
        self.run.entrants(|pattern| self.entrants_of(pattern, workload))
    }

    fn entrants_of(&self, pattern: &Pattern, workload: &BenchWorkload) -> anyhow::Result<Vec<CellEntrant>> {
        let mut entrants = Vec::new();
        for selected in self.select(pattern)? {
            entrants.push(match selected {
                Selected::Pair(pair) => self.of_catalog(pattern, &pair, workload)?,
                Selected::Program(built) => self.foreign(pattern, built, workload)?,
                // A null server has neither the answers of a service nor their sizes, and does not wait.
                Selected::Reference(_) if self.service.is_some() || workload.welcome || workload.takes_time() => {
                    continue;
                }
                Selected::Reference(name) if self.tls.is_some() => {
                    let contestant = Err(String::from("a reference does not speak TLS"));
                    Entrant { name, contestant, is_excused: true }
                }
                Selected::Reference(name) => {
                    // It may need what the system does not allow.
                    let made = self.run.session.catalog.reference(&name)?.build(&ServerConfig::default());
                    let contestant = made.map(|_| reference_contestant(&name)).map_err(|error| error.to_string());
                    Entrant { name, contestant, is_excused: true }
                }
                // The check of the mode refuses contestants that are no servers.
                Selected::Executor(_) | Selected::Store(_) => continue,
            });
        }
        Ok(entrants)
    }

    fn of_catalog(&self, pattern: &Pattern, pair: &Pair, workload: &BenchWorkload) -> anyhow::Result<CellEntrant> {
        let Self { settings, run, .. } = self;
        let connections = workload.connections;
        let entry = run.session.catalog.server(&pair.server)?;
        let workers = pattern.workers.or(workload.workers).or(settings.config.workers);
        let roomy_config = room::roomy(settings, &settings.with_pool_size(), connections);
        // A number of workers from a flag applies only to servers with that setting.
        let chosen = workers.filter(|_| workers != settings.config.workers);
        let name = pattern.sized(pair.name());
        // A server that does not have a setting of the sweep is left out at these cells.
        let is_excused = !self.is_comparison() && (pattern.has_star() || !run.definition.sweep.is_empty());
        let left_out = |why| Ok(Entrant { name: name.clone(), contestant: Err(why), is_excused });
        // The defaults of the server depend on the number of its cores.
        let fitted = self.cores[0].run(|| {
            let (server, config) = room::fitted(entry, &roomy_config, chosen)?;
            Ok::<_, ConfigError>((server.shape(), bound(&*server, &config, connections), config))
        })?;
        let (shape, bound, config) = match fitted {
            Ok(fitted) => fitted,
            Err(error) if self.is_comparison() && !pattern.has_star() => return Err(error.into()),
            Err(error) => return left_out(error.to_string()),
        };
        if let Some(bound) = bound.as_ref().filter(|_| !workload.close && !self.is_comparison()) {
            return left_out(fewer_at_a_time(bound));
        }
        let mut flags = run.config.flags();
        flags.extend(self.idle_flags());
        flags.extend(self.service.iter().map(|service| format!("--service={}", service.name)));
        flags.extend(workload.welcome.then(|| String::from("--service=welcome")));
        flags.extend(workload.time_flags());
        flags.extend(self.tls.iter().flat_map(|_| RunTls::flags()));
        let also: &[&str] = if workers.is_some() { &["workers"] } else { &[] };
        let flags = room::flags(&config, &flags, also);
        let launch = serve(&pair.server, &pair.repo, &flags, Vec::new());
        let contestant = Contestant::new(&name, Role::Ranked, launch).with(|one| {
            (one.shape, one.bound) = (Some(shape), bound);
            one.wait = workload.longest_request(self.cores[0].count());
            self.tls.iter().for_each(|tls| tls.apply(one));
        });
        Ok(Entrant { name, contestant: Ok(contestant), is_excused })
    }

    fn foreign(
        &self,
        pattern: &Pattern,
        built: &BuiltProgram,
        workload: &BenchWorkload,
    ) -> anyhow::Result<CellEntrant> {
        let (server, run, connections) = (&built.program, &self.run, workload.connections);
        let is_fixed = !workload.welcome && self.service.is_none() && !server.keeps_entities();
        if is_fixed && run.definition.baseline.as_ref() == Some(pattern) {
            let why = format!("{} has a fixed answer, and a baseline runs twice and keeps what is put", server.name());
            return Err(run.definition.misuse("baseline", why).into());
        }
        // In the other modes, the flag is for servers of the catalog.
        let given = self.settings.config.workers.filter(|_| self.is_comparison());
        let workers = pattern.workers.or(workload.workers).or(given);
        let max = server.max_concurrent(workers, self.cores[0].count()).filter(|max| *max < connections);
        let bound = max.zip(server.head_timeout()).and_then(|(max, time)| bound_of(max, time, connections));
        let refused = match (max, &bound) {
            _ if self.tls.is_some() && !server.speaks_tls() => Some(String::from(
                "its entry in contestants.toml has no key tls_args or tls_files, so it does not speak TLS",
            )),
            _ if workload.takes_time() => Some(String::from("a foreign server does not take the time of a request")),
            _ if is_fixed && workload.mix.put > 0 => {
                Some(format!("{} has a fixed answer, and keeps nothing that is put", server.name()))
            }
            _ if is_fixed && !self.is_comparison() && workload.keys > 1 => {
                Some(format!("it has a fixed answer, and {} entities are read", workload.keys))
            }
            (Some(max), None) if !workload.close => {
                Some(format!("it serves {max} of {connections} kept connections, and the others never"))
            }
            (Some(_), Some(bound)) if !workload.close && !self.is_comparison() => Some(fewer_at_a_time(bound)),
            _ => None,
        };
        let launch = refused.map_or_else(|| built.launch(workers), Err);
        let launch = launch.map(|launch| if self.tls.is_some() { server.over_tls(launch) } else { launch });
        let name = pattern.sized(server.name().to_owned());
        let contestant = launch.map(|launch| {
            Contestant::new(&name, Role::Ranked, launch).with(|one| {
                one.keeps_entities = !is_fixed;
                // The contract of a server with a fixed answer is not checked.
                one.checks_contract = !workload.welcome && server.keeps_entities();
                (one.shape, one.bound) = (Some(server.shape()), bound);
                self.tls.iter().for_each(|tls| tls.apply(one));
            })
        });
        let is_excused = match self.is_comparison() {
            true => is_excused(server, built.is_absent, &run.definition.contestants),
            false => built.is_absent || pattern.has_star() || !run.definition.sweep.is_empty(),
        };
        Ok(Entrant { name, contestant, is_excused })
    }

    /// How the contestants of a cell are measured; or why they cannot be.
    fn instrument(
        &self,
        cell: &SweepCell,
        workload: &BenchWorkload,
        traffics: &mut HashMap<TrafficKey, Traffic>,
    ) -> anyhow::Result<Result<Instrument, String>> {
        let [servers, clients] = &self.cores;
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
            None => traffic(workload, self.service.as_ref(), self.run.seed)?,
        };
        traffics.insert(key, traffic.clone());
        let cores = [Cores::from(chosen), clients.clone()];
        instrument(workload, traffic, cores, self.requests, &self.run.session.stop).map(Ok)
    }

    /// The cells with their crowds.
    fn crowds(&self, mode: &HoldMode, cells: Vec<CellPlan>) -> Result<Vec<HoldCell>, Misuse> {
        let cell = |plan: CellPlan| {
            let crowd = mode.crowd(&plan.cell, &self.settings.config, plan.instrument.connections)?;
            let payload = self.run.definition.workload.at(&plan.cell).payload;
            Ok(HoldCell::new(plan, crowd, &Data::new(self.run.seed).with_description(payload)))
        };
        cells.into_iter().map(cell).collect()
    }

    /// The cells with the reading of what was put there.
    fn counted(&self, cells: Vec<CellPlan>) -> anyhow::Result<Vec<CountedCell>> {
        let cell = |plan: CellPlan| {
            let workload = self.run.definition.workload.at(&plan.cell);
            let data = Data::new(self.run.seed).with_description(workload.payload);
            CountedCell::new(plan, &workload, Some(&data).filter(|_| self.service.is_none())).map_err(misuse)
        };
        cells.into_iter().map(cell).collect()
    }
}

/// The contestant with the overload policy of a cell.
fn with_policy(contestant: Contestant, cell: &SweepCell) -> Contestant {
    let policy = cell.get(&SweepAxis::Overload).map(CellValue::word).filter(|policy| *policy != NO_POLICY);
    contestant.with(|one| one.launch.args.extend(policy.map(|policy| format!("--overload={policy}").into())))
}

impl ServerPlan<'_> {
    /// The cores of the servers and of the load generator.
    pub(crate) fn cores(&self) -> [&Cores; 2] {
        let [servers, clients] = &self.servers.cores;
        [servers, clients]
    }

    /// The experiment and its environment. The calling thread is pinned to the cores of the load generator.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be pinned, or if a crowd has an impossible setting.
    pub(crate) fn experiment(self) -> anyhow::Result<(DefinedExperiment, Environment)> {
        let environment = self.servers.run.session.environment(self.cores(), self.servers.run.seed);
        let Self { servers, description, cells, absent } = self;
        let Run { definition, session, .. } = servers.run;
        servers.cores[1].pin()?;
        let entries = |one: &CellPlan| {
            let names = one.contestants.iter().map(|contestant| contestant.name.clone());
            CellEntries { cell: one.cell.clone(), contestants: names.collect() }
        };
        let entries = cells.iter().map(entries).collect();
        let workload = &definition.workload;
        // A null server has no such answers and takes no time, so the baseline's own throughput is 100 %.
        let takes_time = workload.service.is_some() || workload.takes_time();
        let own = cells.first().and_then(|cell| cell.contestants.first()).filter(|_| takes_time).cloned();
        let null_server = || reference_contestant(if workload.close { ACCEPT_LIMIT } else { LIMIT });
        let limit = || own.clone().unwrap_or_else(null_server);
        let turns: Box<dyn Turns> = match &definition.mode {
            Mode::Search(mode) => Box::new(SearchTurns::new(cells, mode.clone(), limit())),
            Mode::Overload(mode) => Box::new(OverloadTurns::new(cells, *mode)),
            Mode::Hold(mode) => Box::new(HoldTurns::new(servers.crowds(mode, cells)?, mode)),
            Mode::Trial(mode) => {
                let (mode, environment, stop) = (mode.clone(), environment.clone(), session.stop.clone());
                Box::new(TrialTurns { mode, cells, environment, stop })
            }
            Mode::Closed(ClosedMode { requests: Some(requests), .. }) => {
                Box::new(CountedTurns::new(servers.counted(cells)?, *requests))
            }
            _ => {
                let has_percents = definition.sweep.contains_key(&SweepAxis::RatePercent);
                let turns = RequestTurns::new(cells, has_percents.then(|| NullServer::new(limit())));
                let stops = servers.run.closed_mode().is_some_and(|mode| mode.stops_when_sure);
                Box::new(turns.stopping_when_sure(stops))
            }
        };
        Ok((DefinedExperiment::new(description, entries, absent, turns), environment))
    }
}

/// Gives all contestants the right answers of the service, and slices that are long enough for its requests.
fn apply(rehearsal: &Rehearsal, cells: &mut [CellPlan]) {
    cells.iter_mut().for_each(|cell| rehearsal.apply(&mut cell.instrument, &mut cell.contestants));
}

fn fewer_at_a_time(bound: &str) -> String {
    format!("it serves fewer connections at a time; another connection may wait {bound}")
}

/// Returns true if a comparison succeeds without this server: no pattern of `contestants` is its name, and it is not installed or
/// has one answer only.
fn is_excused(server: &Program, is_absent: bool, contestants: &[Pattern]) -> bool {
    let is_named = |pattern: &Pattern| pattern.origin == ContestantOrigin::Peer && pattern.name == server.short_name();
    (is_absent || !server.keeps_entities()) && !contestants.iter().any(is_named)
}

#[cfg(test)]
mod tests {
    use polyserve_bench::contestants::Registry;

    use super::*;

    /// Without Go or nginx on a machine, `--peers all` does not fail. `--peers nginx` does.
    #[test]
    fn only_a_named_server_must_be_there() {
        let server = |name: &str| Registry::repository().named(name).unwrap().clone();
        let servers = [(server("hyper"), false), (server("go/nethttp"), true), (server("nginx"), false)];
        let excused = |named: &[&str]| {
            let patterns: Vec<Pattern> =
                named.iter().chain(&["*"]).map(|name| format!("peer:{name}").parse().unwrap()).collect();
            let excused = servers.iter().filter(|(server, is_absent)| is_excused(server, *is_absent, &patterns));
            excused.map(|(server, _)| server.name().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(excused(&[]), ["go/nethttp", "nginx"]);
        assert_eq!(excused(&["go/nethttp"]), ["nginx"]);
        assert!(excused(&["hyper", "go/nethttp", "nginx"]).is_empty());
    }
}
