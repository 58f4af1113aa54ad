//! The contestants of the mode `page`: servers of the catalog with the service `page`, and the published listings.

use std::process::ExitCode;

use polyserve::Shape;
use polyserve::catalog::{Promise, ServerEntry};
use polyserve::env::Settings;
use polyserve_bench::bench::mode::page::{PageMode, PageServer, PageSource, PageTurns};
use polyserve_bench::bench::{CellEntries, CellValue, Pattern, SweepAxis, SweepCell};
use polyserve_bench::contestants::BuiltProgram;
use polyserve_bench::experiment::{Absent, with_second_entries};
use polyserve_bench::launch::Launch;
use polyserve_bench::turn::Role;

use super::super::entrants::serve;
use super::super::room::{self, roomy};
use super::Run;
use super::select::{Entrant, Selected};

pub(super) fn run(run: Run<'_>, mode: &PageMode) -> anyhow::Result<ExitCode> {
    let (session, definition) = (run.session, run.definition);
    let programs = run.programs()?;
    let [server_cores, client_cores] = run.cores.of(&session.available)?;
    let settings = run.config.settings(None)?;
    let flags = run.config.flags();
    let entrants = PageSelection { run, mode, settings: &settings, flags: &flags, programs: &programs };
    // The empty cell leaves no server out, so each has its name.
    let baseline = run.baseline(|pattern| entrants.of(pattern, &SweepCell::new()), |_| true)?.name;
    let (mut servers, mut left_out): (Vec<PageServer>, Vec<Absent>) = (Vec::new(), Vec::new());
    for cell in definition.cells() {
        let all = run.entrants(|pattern| entrants.of(pattern, &cell))?;
        let here = run.taking_part(all, Some(&baseline), &cell, &mut left_out);
        let controls = &definition.controls;
        servers.extend(with_second_entries(here, &baseline, controls, |one| (&mut one.name, &mut one.role)));
    }
    let cells = CellEntries::of(servers.iter().map(|one| (&one.cell, one.name.as_str())));
    let environment = session.environment([&server_cores, &client_cores], run.seed);
    let (mode, stop) = (mode.clone(), session.stop.clone());
    let turns = PageTurns { mode, servers, server_cores, client_cores, stop };
    run.measure((cells, baseline), left_out, environment, turns)
}

/// Finds the servers that patterns stand for.
struct PageSelection<'a> {
    run: Run<'a>,
    mode: &'a PageMode,
    settings: &'a Settings,
    /// The given settings.
    flags: &'a [String],
    programs: &'a [BuiltProgram],
}

/// How a server of the page is started. The numbers are those of [`PageServer`].
struct PageLaunch {
    workers: Option<usize>,
    waiting: Option<usize>,
    launch: Launch,
}

impl PageSelection<'_> {
    /// The servers of a pattern that take part at a cell.
    fn of(&self, pattern: &Pattern, cell: &SweepCell) -> anyhow::Result<Vec<Entrant<PageServer>>> {
        let workload = self.run.definition.workload.at(cell);
        let (chosen, connections) = (pattern.workers.or(workload.workers), workload.connections);
        let mut entrants = Vec::new();
        for selected in self.run.select(pattern, self.programs, false)? {
            let is_twin = matches!(selected, Selected::Program(_));
            let (name, launched, is_excused) = match selected {
                Selected::Pair(pair) => {
                    let entry = self.run.session.catalog.server(&pair.server)?;
                    let has_workers = |workers| room::fitted(entry, &self.settings.config, Some(workers)).is_ok();
                    if !self.is_at(cell, |workers| pattern.workers.is_none() && has_workers(workers)) {
                        continue;
                    }
                    let launched = self.of_catalog(entry, pattern, cell, (chosen, connections));
                    (pair.name(), launched.map_err(|error| error.to_string()), pattern.has_star())
                }
                Selected::Program(built) => {
                    let has_workers = |workers| built.program.unbuilt(Some(workers)).is_ok();
                    // A twin reads its page from a file.
                    let is_of_file = cell.get(&SweepAxis::Source).is_none_or(|source| source.word() == "file");
                    if !is_of_file || !self.is_at(cell, has_workers) {
                        continue;
                    }
                    let workers = chosen.filter(|workers| has_workers(*workers)).or(built.program.workers());
                    let waiting = workers.map(|workers| workers.min(connections));
                    let launched = built.launch(workers).map(|mut launch| {
                        self.mode.apply(&mut launch, true);
                        PageLaunch { workers, waiting, launch }
                    });
                    (built.program.name().to_owned(), launched, built.is_absent)
                }
                _ => continue,
            };
            let name = pattern.sized(name);
            let contestant = launched.map(|PageLaunch { workers, waiting, launch }| {
                let (name, role, cell) = (name.clone(), Role::Ranked, cell.clone());
                PageServer { name, role, cell, workers, waiting, connections, is_twin, launch }
            });
            entrants.push(Entrant { name, contestant, is_excused });
        }
        Ok(entrants)
    }

    /// Whether a server takes part at a cell. One that does not let its number of workers be chosen takes part at the first number
    /// only.
    fn is_at(&self, cell: &SweepCell, has_workers: impl Fn(usize) -> bool) -> bool {
        let first = self.run.definition.sweep.get(&SweepAxis::Workers).and_then(|workers| workers.first());
        let workers = cell.get(&SweepAxis::Workers).filter(|workers| Some(*workers) != first);
        workers.is_none_or(|workers| has_workers(workers.number().unwrap_or_default() as usize))
    }

    fn of_catalog(
        &self,
        entry: &ServerEntry,
        pattern: &Pattern,
        cell: &SweepCell,
        (chosen, connections): (Option<usize>, usize),
    ) -> anyhow::Result<PageLaunch> {
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
        flags.push("--service=page".into());
        let mut launch = serve(&entry.name, "", &flags, Vec::new());
        mode.apply(&mut launch, source == Some(PageSource::File));
        Ok(PageLaunch { workers, waiting, launch })
    }
}
