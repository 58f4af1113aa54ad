//! The contestants of the mode `scenario`: servers of the catalog over a repo, and foreign servers with a store of their own.

use std::process::ExitCode;

use polyserve::Shape;
use polyserve::env::Settings;
use polyserve_bench::Misuse;
use polyserve_bench::bench::mode::scenario::ScenarioMode;
use polyserve_bench::bench::mode::scenario::{ScenarioConnections, ScenarioServer, ScenarioTurns};
use polyserve_bench::bench::{CellEntries, ContestantOrigin, Definition, Pattern, SweepCell};
use polyserve_bench::contestants::BuiltProgram;
use polyserve_bench::data::Data;
use polyserve_bench::experiment::Absent;
use polyserve_bench::launch::Launch;
use polyserve_bench::limits;
use polyserve_bench::turn::Role;

use super::super::entrants::{Pair, serve};
use super::super::room;
use super::Run;
use super::select::{Entrant, Selected};
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
    // A program that cannot be started is named once, at no cell.
    let (programs, unbuilt): (Vec<BuiltProgram>, Vec<BuiltProgram>) =
        programs.into_iter().partition(|built| built.file.is_ok());
    let mut left_out: Vec<Absent> = Vec::new();
    let without_program = unbuilt.into_iter().filter_map(|built| {
        let is_excused = built.is_absent && definition.contestants.len() > 1;
        Some(Entrant { name: built.program.name().to_owned(), contestant: Err(built.file.err()?), is_excused })
    });
    run.taking_part::<ScenarioServer>(without_program.collect(), None, &SweepCell::new(), &mut left_out);
    let selection = Selection { run, mode, settings: &settings, programs: &programs };
    let mut servers: Vec<ScenarioServer> = Vec::new();
    for cell in definition.cells() {
        let all = run.entrants(|pattern| selection.of(pattern, &cell))?;
        servers.extend(run.taking_part(all, None, &cell, &mut left_out));
    }
    let first = servers.first().map(|one| &one.name).or(left_out.first().map(|absent| &absent.key.contestant));
    let Some(baseline) = first.cloned() else {
        return Err(definition.misuse("contestants", "no contestant has such a name").into());
    };
    let cells = CellEntries::of(servers.iter().map(|one| (&one.cell, one.name.as_str())));
    let environment = session.environment([&session.available; 2], run.seed);
    let turns = ScenarioTurns {
        mode: mode.clone(),
        servers,
        data: Data::new(run.seed),
        max_connections: limits::connections(0),
        stop: session.stop.clone(),
    };
    run.measure((cells, baseline), left_out, environment, turns)
}

/// Finds the servers that patterns stand for.
struct Selection<'a> {
    run: Run<'a>,
    mode: &'a ScenarioMode,
    settings: &'a Settings,
    programs: &'a [BuiltProgram],
}

impl Selection<'_> {
    fn of(&self, pattern: &Pattern, cell: &SweepCell) -> anyhow::Result<Vec<Entrant<ScenarioServer>>> {
        let workload = self.run.definition.workload.at(cell);
        let workers = pattern.workers.or(workload.workers);
        let connections = workload.connections;
        let mut entrants = Vec::new();
        for selected in self.run.select(pattern, self.programs, true)? {
            let (name, without_date, launched, is_excused) = match selected {
                Selected::Pair(pair) => {
                    let launched = self.of_catalog(&pair, pattern, cell, (workers, connections))?;
                    (pattern.sized(pair.name()), false, launched, true)
                }
                Selected::Program(built) => {
                    let launch = built.launch(workers.or(self.settings.config.workers));
                    let name = pattern.sized(built.program.name().to_owned());
                    (name, built.program.is_without_date(), launch.map(|launch| (launch, false)), false)
                }
                _ => continue,
            };
            let contestant = launched.map(|(launch, is_single)| {
                let (name, role, cell) = (name.clone(), Role::Ranked, cell.clone());
                ScenarioServer { name, role, cell, connections, without_date, launch, is_single }
            });
            entrants.push(Entrant { name, contestant, is_excused });
        }
        Ok(entrants)
    }

    /// The process of a server of the catalog, and whether it serves one connection at a time; or why a pattern with a star leaves
    /// the server out.
    fn of_catalog(
        &self,
        pair: &Pair,
        pattern: &Pattern,
        cell: &SweepCell,
        (workers, connections): (Option<usize>, usize),
    ) -> anyhow::Result<Result<(Launch, bool), String>> {
        let entry = self.run.session.catalog.server(&pair.server)?;
        if !pattern.has_star() {
            self.settings.make(|config| entry.build(config).map(drop))?;
        }
        let config = self.settings.with_pool_size();
        // A server refuses what a burst has beyond its limits, which is right.
        let config = match self.mode.connection_use(cell) {
            ScenarioConnections::Burst => config,
            ScenarioConnections::Close | ScenarioConnections::KeepAlive => {
                room::roomy(self.settings, &config, connections * 3)
            }
        };
        let (server, config) = match room::fitted(entry, &config, workers) {
            Ok(fitted) => fitted,
            Err(error) if pattern.has_star() => return Ok(Err(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        let chosen: &[&str] = if config.workers.is_some() { &["workers"] } else { &[] };
        let flags = room::flags(&config, &self.run.config.flags(), chosen);
        let launch = serve(&pair.server, &pair.repo, &flags, Vec::new());
        Ok(Ok((launch, server.shape() == Shape::One)))
    }
}
