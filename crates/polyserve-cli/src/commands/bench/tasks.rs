//! The contestants of the mode `tasks`, and the process that runs the tasks of one of ours.

use std::io::{self, BufReader};
use std::process::ExitCode;

use polyserve::ServerConfig;
use polyserve::catalog::Catalog;
use polyserve_bench::bench::mode::tasks::{TaskEntrant, TaskTurns};
use polyserve_bench::bench::{
    CellEntries, CellValue, ContestantOrigin, DefinedExperiment, Definition, Key, Pattern, SweepAxis, SweepCell,
    TasksMode,
};
use polyserve_bench::contestants::BuiltProgram;
use polyserve_bench::experiment::{Absent, distinct, with_second_entries};
use polyserve_bench::launch::{AddressFrom, Launch};
use polyserve_bench::tasks::runner::{self, OTHERS, Runner};
use polyserve_bench::turn::Role;

use super::super::entrants::{left_out, this_program};
use super::super::session::MeasurementSession;
use super::{BenchArgs, is_wanted, plan};

/// A contestant, or why it is not available, and whether the run succeeds without it.
type FoundTask = (String, Result<Launch, String>, bool);

pub(super) fn run(
    session: &MeasurementSession<'_>,
    args: &BenchArgs,
    definition: &Definition,
    mode: &TasksMode,
    programs: &[BuiltProgram],
) -> anyhow::Result<ExitCode> {
    let cores = args.cores.servers(&session.available)?;
    let counts = definition.sweep.get(&SweepAxis::Tasks).into_iter().flatten();
    let max_tasks = counts.filter_map(CellValue::number).max().unwrap_or(1) as usize;
    let entrants = TaskSelection { session, definition, programs, cores: cores.count(), max_tasks };
    let of = |pattern: &Pattern| entrants.of(pattern);
    let baseline = match &definition.baseline {
        Some(pattern) => of(pattern)?.into_iter().next(),
        None => definition.contestants.iter().map(of).collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().next(),
    };
    let (baseline, ..) = baseline.ok_or_else(|| definition.misuse("baseline", "there is no such contestant"))?;
    let (mut chosen, mut absent): (Vec<TaskEntrant>, Vec<Absent<Key>>) = (Vec::new(), Vec::new());
    for pattern in definition.contestants.iter().chain(&definition.baseline) {
        for (name, launch, is_excused) in of(pattern)? {
            let is_known = chosen.iter().any(|one| one.name == name);
            if is_known || (name != baseline && !is_wanted(args, &name)) {
                continue;
            }
            match launch {
                Ok(launch) => chosen.push(TaskEntrant { name, role: Role::Ranked, launch }),
                Err(why) => {
                    let key = Key { contestant: name, cell: SweepCell::new(), round: 0 };
                    absent.push(left_out(key, why, is_excused));
                }
            }
        }
    }
    let chosen = with_second_entries(chosen, &baseline, &definition.controls, |one| (&mut one.name, &mut one.role));
    let names: Vec<String> = chosen.iter().map(|one| one.name.clone()).collect();
    let plan = plan(args, definition, (names.clone(), baseline), &absent)?;
    let cells = definition.cells().into_iter().filter(TasksMode::has);
    let cells = cells.map(|cell| CellEntries { cell, contestants: names.clone() }).collect();
    let environment = session.environment([&cores, &cores], args.random.seed);
    let turns = TaskTurns::new(mode.clone(), chosen, max_tasks, args.random.seed, cores, session.stop.clone());
    let mut experiment = DefinedExperiment { plan, cells, absent, turns: Box::new(turns) };
    session.run_named(&args.record, environment, &definition.name, &mut experiment)
}

/// Finds the contestants that patterns stand for.
struct TaskSelection<'a> {
    session: &'a MeasurementSession<'a>,
    definition: &'a Definition,
    programs: &'a [BuiltProgram],
    cores: usize,
    max_tasks: usize,
}

impl TaskSelection<'_> {
    fn of(&self, pattern: &Pattern) -> anyhow::Result<Vec<FoundTask>> {
        let workers = pattern.workers.or(self.definition.workload.workers).unwrap_or(self.cores);
        match pattern.origin {
            ContestantOrigin::Executor => {
                let names = self.executors(pattern)?;
                Ok(names.into_iter().map(|name| (name.clone(), Ok(self.runner(&name, workers)), false)).collect())
            }
            _ => {
                let own = self.programs.iter().filter(|built| pattern.matches(built.program.short_name()));
                let entered = |built: &BuiltProgram| {
                    let is_excused = built.is_absent && self.definition.contestants.len() > 1;
                    (built.program.name().to_owned(), built.launch(Some(workers)), is_excused)
                };
                Ok(own.map(entered).collect())
            }
        }
    }

    /// The executors of the catalog and the other ways to run tasks. An executor takes precedence over another of its name.
    fn executors(&self, pattern: &Pattern) -> anyhow::Result<Vec<String>> {
        let catalog = self.session.catalog;
        if !pattern.has_star() && !OTHERS.contains(&pattern.name.as_str()) {
            return Ok(vec![catalog.executor(&pattern.name)?.name.clone()]);
        }
        let executors = catalog.executors().iter().map(|entry| entry.name.clone());
        let all = distinct(executors.chain(OTHERS.map(String::from)));
        let found: Vec<String> = all.into_iter().filter(|name| pattern.matches(name)).collect();
        if found.is_empty() {
            let why = format!("no executor matches executor:{}; see `polyserve list`", pattern.name);
            return Err(self.definition.misuse("contestants", why).into());
        }
        Ok(found)
    }

    /// This program as the runner of one of ours.
    fn runner(&self, name: &str, workers: usize) -> Launch {
        let max_tasks = self.max_tasks;
        let args = ["task-runner".into(), format!("--contestant={name}"), format!("--workers={workers}")];
        Launch {
            program: this_program(),
            args: args.into_iter().chain([format!("--queue={max_tasks}")]).map(Into::into).collect(),
            env: Vec::new(),
            address: AddressFrom::Json, // it opens no socket
            files: Vec::new(),
        }
    }
}

/// The arguments of `polyserve task-runner`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunnerArgs {
    /// The contestant that runs the tasks.
    #[arg(long)]
    contestant: String,
    /// Its number of workers.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=ServerConfig::MAX_WORKERS as i64))]
    workers: u16,
    /// The max number of waiting tasks.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=ServerConfig::MAX_CONNECTIONS as i64))]
    queue: u32,
}

/// Runs the tasks that standard input requests, until it ends.
pub(crate) fn run_tasks(catalog: &Catalog, args: &RunnerArgs) -> anyhow::Result<ExitCode> {
    let runner = Runner::new(catalog, &args.contestant, usize::from(args.workers), args.queue as usize)?;
    runner::serve(&runner, BufReader::new(io::stdin()), io::stdout())?;
    Ok(ExitCode::SUCCESS)
}
