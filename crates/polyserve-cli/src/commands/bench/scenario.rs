//! The contestants of the mode `scenario`: servers of the catalog over a repo, and foreign servers with a store of their own.

use std::process::ExitCode;

use polyserve::Shape;
use polyserve::env::Settings;
use polyserve_bench::Misuse;
use polyserve_bench::bench::mode::scenario::ScenarioMode;
use polyserve_bench::bench::mode::scenario::{ScenarioConnections, ScenarioServer, ScenarioTurns};
use polyserve_bench::bench::{CellEntries, ContestantOrigin, DefinedExperiment, Definition, Pattern, SweepCell};
use polyserve_bench::contestants::BuiltProgram;
use polyserve_bench::data::Data;
use polyserve_bench::experiment::{Absent, distinct};
use polyserve_bench::launch::Launch;
use polyserve_bench::limits;
use polyserve_bench::turn::Role;

use super::super::entrants::{Pair, serve};
use super::super::room;
use super::Run;
use super::run::absent;
use super::select::Selected;
use crate::config_args::ConfigArgs;

/// Checks the arguments before anything is built.
pub(super) fn check(config: &ConfigArgs, definition: &Definition, mode: &ScenarioMode) -> Result<(), Misuse> {
    let other = config.flags().into_iter().find(|flag| !flag.starts_with("--workers="));
    if let Some(flag) = other.filter(|_| definition.contestants.iter().all(|one| one.origin == ContestantOrigin::Peer))
    {
        return Err(Misuse(format!("{flag}: a server from outside the catalog takes --workers, and no other setting")));
    }
    let max = limits::connections(0);
    for cell in definition.cells() {
        let connections = definition.workload.at(&cell).connections;
        match mode.connection_use(&cell) {
            ScenarioConnections::Burst if max == 0 => {
                return Err(Misuse("the limit on open descriptors allows no connection".into()));
            }
            ScenarioConnections::Burst => {}
            ScenarioConnections::Close | ScenarioConnections::KeepAlive => {
                limits::check_connections(connections, max / 3)?;
            }
        }
    }
    Ok(())
}

pub(super) fn run(run: Run<'_>, mode: &ScenarioMode) -> anyhow::Result<ExitCode> {
    let (session, definition) = (run.session, run.definition);
    let settings = run.config.settings(None)?;
    settings.check(session.catalog.servers())?;
    let programs = run.programs()?;
    let selection = Selection { run, mode, settings: &settings, programs: &programs };
    let (mut servers, mut left_out): (Vec<ScenarioServer>, Vec<Absent>) = (Vec::new(), Vec::new());
    for cell in definition.cells() {
        for pattern in run.patterns() {
            for found in selection.of(pattern, &cell)? {
                let name = match &found {
                    Ok(server) => &server.name,
                    Err(absent) => &absent.key.contestant,
                };
                if servers.iter().any(|one| one.cell == cell && one.name == *name) || !run.wants(name) {
                    continue;
                }
                match found {
                    Ok(server) => servers.push(server),
                    Err(why) if left_out.iter().any(|known| known.key == why.key) => {}
                    Err(why) => left_out.push(why),
                }
            }
        }
    }
    let first = servers.first().map(|one| &one.name).or(left_out.first().map(|absent| &absent.key.contestant));
    let Some(baseline) = first.cloned() else {
        return Err(definition.misuse("contestants", "no contestant has such a name").into());
    };
    let names = distinct(servers.iter().map(|one| one.name.clone()));
    let plan = run.plan((names, baseline), &left_out)?;
    let cells = CellEntries::of(servers.iter().map(|one| (&one.cell, one.name.as_str())));
    let environment = session.environment([&session.available; 2], run.seed);
    let turns = ScenarioTurns {
        mode: mode.clone(),
        servers,
        data: Data::new(run.seed),
        max_connections: limits::connections(0),
        stop: session.stop.clone(),
    };
    run.report(environment, &mut DefinedExperiment::new(plan, cells, left_out, Box::new(turns)))
}

/// A server at a cell, or why it cannot take part.
type Found = Result<ScenarioServer, Absent>;

/// Finds the servers that patterns stand for.
struct Selection<'a> {
    run: Run<'a>,
    mode: &'a ScenarioMode,
    settings: &'a Settings,
    programs: &'a [BuiltProgram],
}

impl Selection<'_> {
    fn of(&self, pattern: &Pattern, cell: &SweepCell) -> anyhow::Result<Vec<Found>> {
        let mut all = Vec::new();
        for selected in self.run.select(pattern, self.programs, true)? {
            match selected {
                Selected::Pair(pair) => all.push(self.of_catalog(&pair, pattern, cell)?),
                Selected::Program(built) => all.push(self.foreign(built, pattern, cell)),
                _ => {}
            }
        }
        Ok(all)
    }

    fn of_catalog(&self, pair: &Pair, pattern: &Pattern, cell: &SweepCell) -> anyhow::Result<Found> {
        let entry = self.run.session.catalog.server(&pair.server)?;
        let workload = self.run.definition.workload.at(cell);
        if !pattern.has_star() {
            self.settings.make(|config| entry.build(config).map(drop))?;
        }
        let config = self.settings.with_pool_size();
        // A server refuses what a burst has beyond its limits, which is right.
        let config = match self.mode.connection_use(cell) {
            ScenarioConnections::Burst => config,
            ScenarioConnections::Close | ScenarioConnections::KeepAlive => {
                room::roomy(self.settings, &config, workload.connections * 3)
            }
        };
        let (instance, config) = match room::fitted(entry, &config, pattern.workers.or(workload.workers)) {
            Ok(fitted) => fitted,
            Err(error) if pattern.has_star() => {
                return Ok(Err(absent(&pair.name(), cell, error.to_string(), true)));
            }
            Err(error) => return Err(error.into()),
        };
        let chosen: &[&str] = if config.workers.is_some() { &["workers"] } else { &[] };
        let flags = room::flags(&config, &self.run.config.flags(), chosen);
        let launch = serve(&pair.server, &pair.repo, &flags, Vec::new());
        let is_single = instance.shape() == Shape::One;
        Ok(Ok(self.server(pair.name(), cell, false, (launch, is_single))))
    }

    fn foreign(&self, built: &BuiltProgram, pattern: &Pattern, cell: &SweepCell) -> Found {
        let name = built.program.name().to_owned();
        let workers =
            pattern.workers.or(self.run.definition.workload.at(cell).workers).or(self.settings.config.workers);
        match built.launch(workers) {
            Ok(launch) => Ok(self.server(name, cell, built.program.is_without_date(), (launch, false))),
            Err(why) => {
                let excused = built.is_absent && self.run.definition.contestants.len() > 1;
                Err(absent(&name, &SweepCell::new(), why, excused)) // at no cell
            }
        }
    }

    fn server(
        &self,
        name: String,
        cell: &SweepCell,
        without_date: bool,
        (launch, is_single): (Launch, bool),
    ) -> ScenarioServer {
        let connections = self.run.definition.workload.at(cell).connections;
        ScenarioServer { name, role: Role::Ranked, cell: cell.clone(), connections, without_date, launch, is_single }
    }
}
