//! The contestants of the mode `scenario`: servers of the catalog over a repo, and foreign servers with a store of their own.

use std::process::ExitCode;

use polyserve::Shape;
use polyserve::env::Settings;
use polyserve_bench::Misuse;
use polyserve_bench::bench::mode::scenario::{ScenarioConnections, ScenarioServer, ScenarioTurns};
use polyserve_bench::bench::{
    CellEntries, ContestantOrigin, DefinedExperiment, Definition, Key, Pattern, ScenarioMode, SweepCell,
};
use polyserve_bench::contestants::BuiltProgram;
use polyserve_bench::data::Data;
use polyserve_bench::experiment::{Absent, distinct};
use polyserve_bench::limits;
use polyserve_bench::scenario::Subject;
use polyserve_bench::turn::Role;

use super::super::entrants::{Pair, left_out, pairs, serve};
use super::super::room;
use super::super::session::MeasurementSession;
use super::{BenchArgs, is_wanted, plan};

/// Checks the arguments before anything is built.
pub(super) fn check(args: &BenchArgs, definition: &Definition, mode: &ScenarioMode) -> Result<(), Misuse> {
    let other = args.config.flags().into_iter().find(|flag| !flag.starts_with("--workers="));
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

pub(super) fn run(
    session: &MeasurementSession<'_>,
    args: &BenchArgs,
    definition: &Definition,
    mode: &ScenarioMode,
    programs: &[BuiltProgram],
) -> anyhow::Result<ExitCode> {
    let settings = args.config.settings(None)?;
    settings.check(session.catalog.servers())?;
    let selection = Selection { session, args, definition, mode, settings: &settings, programs };
    let (mut servers, mut absent): (Vec<ScenarioServer>, Vec<Absent<Key>>) = (Vec::new(), Vec::new());
    for cell in definition.cells() {
        for pattern in definition.contestants.iter().chain(&definition.baseline) {
            for found in selection.of(pattern, &cell)? {
                let name = match &found {
                    Ok(server) => &server.name,
                    Err(absent) => &absent.key.contestant,
                };
                if servers.iter().any(|one| one.cell == cell && one.name == *name) || !is_wanted(args, name) {
                    continue;
                }
                match found {
                    Ok(server) => servers.push(server),
                    Err(why) if absent.iter().any(|known| known.key == why.key) => {}
                    Err(why) => absent.push(why),
                }
            }
        }
    }
    let first = servers.first().map(|one| &one.name).or(absent.first().map(|absent| &absent.key.contestant));
    let Some(baseline) = first.cloned() else {
        return Err(definition.misuse("contestants", "no contestant has such a name").into());
    };
    let names = distinct(servers.iter().map(|one| one.name.clone()));
    let plan = plan(args, definition, (names, baseline), &absent)?;
    let cells = CellEntries::of(servers.iter().map(|one| (&one.cell, one.name.as_str())));
    let environment = session.environment([&session.available; 2], args.random.seed);
    let turns = ScenarioTurns {
        mode: mode.clone(),
        servers,
        data: Data::new(args.random.seed),
        max_connections: limits::connections(0),
        stop: session.stop.clone(),
    };
    let mut experiment = DefinedExperiment { plan, cells, absent, turns: Box::new(turns) };
    session.run_named(&args.record, environment, &definition.name, &mut experiment)
}

/// A server at a cell, or why it cannot take part.
type Found = Result<ScenarioServer, Absent<Key>>;

/// Finds the servers that patterns stand for.
struct Selection<'a> {
    session: &'a MeasurementSession<'a>,
    args: &'a BenchArgs,
    definition: &'a Definition,
    mode: &'a ScenarioMode,
    settings: &'a Settings,
    programs: &'a [BuiltProgram],
}

impl Selection<'_> {
    fn of(&self, pattern: &Pattern, cell: &SweepCell) -> anyhow::Result<Vec<Found>> {
        if pattern.origin == ContestantOrigin::Catalog {
            let pairs = pairs(self.definition, pattern, self.session.catalog, true)?;
            return pairs.iter().map(|pair| self.of_catalog(pair, pattern, cell)).collect();
        }
        let own = self.programs.iter().filter(|built| pattern.matches(built.program.short_name()));
        Ok(own.map(|built| self.foreign(built, pattern, cell)).collect())
    }

    fn of_catalog(&self, pair: &Pair, pattern: &Pattern, cell: &SweepCell) -> anyhow::Result<Found> {
        let entry = self.session.catalog.server(&pair.server)?;
        let workload = self.definition.workload.at(cell);
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
                return Ok(Err(left_out(key(pair.name(), cell), error.to_string(), true)));
            }
            Err(error) => return Err(error.into()),
        };
        let chosen: &[&str] = if config.workers.is_some() { &["workers"] } else { &[] };
        let flags = room::flags(&config, &self.args.config.flags(), chosen);
        let launch = serve(&pair.server, &pair.repo, &flags, Vec::new());
        let is_single = instance.shape() == Shape::One;
        Ok(Ok(self.server(pair.name(), cell, false, Subject { server: pair.name(), launch, is_single })))
    }

    fn foreign(&self, built: &BuiltProgram, pattern: &Pattern, cell: &SweepCell) -> Found {
        let name = built.program.name().to_owned();
        let workers = pattern.workers.or(self.definition.workload.at(cell).workers).or(self.settings.config.workers);
        match built.launch(workers) {
            Ok(launch) => {
                let subject = Subject { server: name.clone(), launch, is_single: false };
                Ok(self.server(name, cell, built.program.is_without_date(), subject))
            }
            Err(why) => {
                let excused = built.is_absent && self.definition.contestants.len() > 1;
                Err(left_out(key(name, &SweepCell::new()), why, excused)) // at no cell
            }
        }
    }

    fn server(&self, name: String, cell: &SweepCell, without_date: bool, subject: Subject) -> ScenarioServer {
        let connections = self.definition.workload.at(cell).connections;
        ScenarioServer { name, role: Role::Ranked, cell: cell.clone(), connections, without_date, subject }
    }
}

fn key(contestant: String, cell: &SweepCell) -> Key {
    Key { contestant, cell: cell.clone(), round: 0 }
}
