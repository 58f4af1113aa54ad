//! The contestants of the mode `page`: servers of the catalog with the service `page`, and the published listings.

use std::process::ExitCode;

use anyhow::Context as _;
use polyserve::Shape;
use polyserve::catalog::{Promise, ServerEntry};
use polyserve::env::Settings;
use polyserve_bench::bench::mode::page::PageMode;
use polyserve_bench::bench::mode::page::{PageFile, PageServer, PageSource, PageTurns};
use polyserve_bench::bench::{
    CellEntries, CellValue, ContestantOrigin, DefinedExperiment, Pattern, SweepAxis, SweepCell,
};
use polyserve_bench::contestants::BuiltProgram;
use polyserve_bench::experiment::{Absent, distinct, with_second_entries};
use polyserve_bench::turn::Role;

use super::super::entrants::serve;
use super::super::room::{self, roomy};
use super::Run;
use super::run::absent;
use super::select::Selected;

pub(super) fn run(run: Run<'_>, mode: &PageMode) -> anyhow::Result<ExitCode> {
    let (session, definition) = (run.session, run.definition);
    let programs = run.programs()?;
    let [server_cores, client_cores] = run.cores.of(&session.available)?;
    let settings = run.config.settings(None)?;
    let flags = run.config.flags();
    let file = PageFile::new().context("the file of the page cannot be written")?;
    let entrants = PageSelection { run, mode, settings: &settings, flags: &flags, programs: &programs, file: &file };
    let baseline = definition.baseline.as_ref().or(definition.contestants.first());
    let baseline =
        baseline.map(|pattern| entrants.names(pattern)).transpose()?.and_then(|names| names.into_iter().next());
    let baseline = baseline.ok_or_else(|| definition.misuse("baseline", "there is no such server"))?;
    let (mut servers, mut left_out): (Vec<PageServer>, Vec<Absent>) = (Vec::new(), Vec::new());
    for cell in definition.cells() {
        let mut here: Vec<PageServer> = Vec::new();
        for pattern in run.patterns() {
            for name in entrants.names(pattern)? {
                let is_known = here.iter().any(|one| one.name == name);
                if is_known || (name != baseline && !run.wants(&name)) || !entrants.is_at(pattern, &name, &cell) {
                    continue;
                }
                match entrants.server(pattern, &name, &cell) {
                    Ok(server) => here.push(server),
                    Err((why, is_excused)) => left_out.push(absent(&name, &cell, why, is_excused)),
                }
            }
        }
        let controls = &definition.controls;
        servers.extend(with_second_entries(here, &baseline, controls, |one| (&mut one.name, &mut one.role)));
    }
    let names = distinct(servers.iter().map(|one| one.name.clone()));
    let plan = run.plan((names, baseline), &left_out)?;
    let cells = CellEntries::of(servers.iter().map(|one| (&one.cell, one.name.as_str())));
    let environment = session.environment([&server_cores, &client_cores], run.seed);
    let (mode, stop) = (mode.clone(), session.stop.clone());
    let turns = PageTurns { mode, servers, server_cores, client_cores, stop, file };
    run.report(environment, &mut DefinedExperiment::new(plan, cells, left_out, Box::new(turns)))
}

/// Finds the servers that patterns stand for.
struct PageSelection<'a> {
    run: Run<'a>,
    mode: &'a PageMode,
    settings: &'a Settings,
    /// The given settings.
    flags: &'a [String],
    programs: &'a [BuiltProgram],
    file: &'a PageFile,
}

impl PageSelection<'_> {
    /// The names that a pattern stands for. A number of workers is a part of a name.
    fn names(&self, pattern: &Pattern) -> anyhow::Result<Vec<String>> {
        let name = |selected: Selected<'_>| match selected {
            Selected::Pair(pair) => Some(pattern.sized(pair.name())),
            Selected::Program(built) => Some(pattern.sized(built.program.name().to_owned())),
            _ => None,
        };
        Ok(self.run.select(pattern, self.programs, false)?.into_iter().filter_map(name).collect())
    }

    /// Whether a server takes part at a cell. A twin reads its page from a file. A server that does not let its number of workers
    /// be chosen takes part at the first number only.
    fn is_at(&self, pattern: &Pattern, name: &str, cell: &SweepCell) -> bool {
        let is_twin = pattern.origin == ContestantOrigin::Peer;
        if is_twin && cell.get(&SweepAxis::Source).is_some_and(|source| source.word() != "file") {
            return false;
        }
        let first = self.run.definition.sweep.get(&SweepAxis::Workers).and_then(|workers| workers.first());
        let Some(workers) = cell.get(&SweepAxis::Workers).filter(|workers| Some(*workers) != first) else {
            return true;
        };
        let workers = workers.number().unwrap_or_default() as usize;
        match (is_twin, self.run.session.catalog.server(name)) {
            (false, Ok(entry)) => room::fitted(entry, &self.settings.config, Some(workers)).is_ok(),
            _ => self.built(name).is_some_and(|built| built.program.unbuilt(Some(workers)).is_ok()),
        }
    }

    fn built(&self, name: &str) -> Option<&BuiltProgram> {
        let name = name.split('@').next().unwrap_or(name);
        self.programs.iter().find(|built| built.program.name() == name)
    }

    /// A server at a cell; or why it cannot take part, and whether the run succeeds without it.
    fn server(&self, pattern: &Pattern, name: &str, cell: &SweepCell) -> Result<PageServer, (String, bool)> {
        let chosen = cell.get(&SweepAxis::Workers).and_then(CellValue::number).map(|workers| workers as usize);
        let chosen = pattern.workers.or(chosen).or(self.run.definition.workload.workers);
        let connections = self.run.definition.workload.at(cell).connections;
        match pattern.origin {
            ContestantOrigin::Peer => {
                let built = self.built(name).ok_or_else(|| (String::from("it was not built"), false))?;
                let chosen = chosen.filter(|workers| built.program.unbuilt(Some(*workers)).is_ok());
                let workers = chosen.or(built.program.workers());
                let mut launch = built.launch(workers).map_err(|why| (why, built.is_absent))?;
                launch.args.extend(self.mode.flags(Some(self.file.path())).into_iter().map(Into::into));
                let waiting = workers.map(|workers| workers.min(connections));
                let (name, cell) = (name.to_owned(), cell.clone());
                Ok(PageServer { name, role: Role::Ranked, cell, workers, waiting, connections, is_twin: true, launch })
            }
            _ => {
                let own = name.split('@').next().unwrap_or(name);
                let failed = |error: anyhow::Error| (error.to_string(), pattern.has_star());
                let entry = self.run.session.catalog.server(own).map_err(|error| failed(error.into()))?;
                self.of_catalog(entry, pattern, (name, cell), chosen, connections).map_err(failed)
            }
        }
    }

    fn of_catalog(
        &self,
        entry: &ServerEntry,
        pattern: &Pattern,
        (name, cell): (&str, &SweepCell),
        chosen: Option<usize>,
        connections: usize,
    ) -> anyhow::Result<PageServer> {
        let Self { settings, mode, .. } = self;
        let mut config = roomy(settings, &settings.config, connections);
        if !settings.is_given("answer_timeout") {
            config.answer_timeout = config.answer_timeout.max(mode.wait * 2);
        }
        let workers = chosen.filter(|workers| room::fitted(entry, &config, Some(*workers)).is_ok());
        let (server, config) = room::fitted(entry, &config, workers)?;
        let is_pool = match server.shape() {
            Shape::Multiplexed => true,
            Shape::OnePerThread => workers.is_some(),
            Shape::One => false,
        };
        let waiting = match server.shape() {
            _ if !entry.promises(Promise::LaterHoldsWorker) => None,
            Shape::Multiplexed => config.workers,
            Shape::OnePerThread | Shape::One => {
                Some(server.max_concurrent().map_or(connections, |max| max.min(connections)))
            }
        };
        if pattern.has_star() && !is_pool && self.run.definition.sweep.contains_key(&SweepAxis::Workers) {
            let bound = mode.bound(waiting.unwrap_or(connections));
            anyhow::bail!(
                "its shape is no pool, and has one bound: {bound:.1} requests a second; it takes part by its name"
            );
        }
        let mut flags = room::flags(&config, self.flags, &["answer_timeout"]);
        flags.extend(workers.map(|workers| format!("--workers={workers}")));
        let source = cell.get(&SweepAxis::Source).and_then(CellValue::word_as);
        let file = Some(self.file.path()).filter(|_| source == Some(PageSource::File));
        flags.push("--service=page".into());
        flags.extend(mode.flags(file));
        let launch = serve(&entry.name, "", &flags, Vec::new());
        let (name, cell) = (name.to_owned(), cell.clone());
        Ok(PageServer { name, role: Role::Ranked, cell, workers, waiting, connections, is_twin: false, launch })
    }
}
