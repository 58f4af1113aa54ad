//! The contestants of the mode `tasks`, and the process that runs the tasks of one of ours.

use std::io::{self, BufReader};
use std::process::ExitCode;

use polyserve::ServerConfig;
use polyserve::catalog::Catalog;
use polyserve_bench::bench::mode::tasks::TasksMode;
use polyserve_bench::bench::mode::tasks::{TaskEntrant, TaskTurns};
use polyserve_bench::bench::{CellEntries, CellValue, Pattern, SweepAxis, SweepCell};
use polyserve_bench::contestants::BuiltProgram;
use polyserve_bench::experiment::{Absent, with_second_entries};
use polyserve_bench::launch::{AddressFrom, Launch};
use polyserve_bench::tasks::runner::{self, Runner};
use polyserve_bench::turn::Role;

use super::super::entrants::this_program;
use super::Run;
use super::select::{Entrant, Selected};

pub(super) fn run(run: Run<'_>, mode: &TasksMode) -> anyhow::Result<ExitCode> {
    let (session, definition) = (run.session, run.definition);
    let programs = run.programs()?;
    let cores = run.cores.servers(&session.available)?;
    let counts = definition.sweep.get(&SweepAxis::Tasks).into_iter().flatten();
    let max_tasks = counts.filter_map(CellValue::number).max().unwrap_or(1) as usize;
    let entrants = TaskSelection { run, programs: &programs, cores: cores.count(), max_tasks };
    let baseline = run.baseline(|pattern| entrants.of(pattern), |_| true)?.name;
    let mut left_out: Vec<Absent> = Vec::new();
    let all = run.entrants(|pattern| entrants.of(pattern))?;
    let chosen = run.taking_part(all, Some(&baseline), &SweepCell::new(), &mut left_out);
    let chosen = with_second_entries(chosen, &baseline, &definition.controls, |one| (&mut one.name, &mut one.role));
    let names: Vec<String> = chosen.iter().map(|one| one.name.clone()).collect();
    let cells = definition.cells().into_iter().filter(TasksMode::has);
    let cells = cells.map(|cell| CellEntries { cell, contestants: names.clone() }).collect();
    let environment = session.environment([&cores, &cores], run.seed);
    let turns = TaskTurns::new(mode.clone(), chosen, max_tasks, run.seed, cores, session.stop.clone());
    run.measure((cells, baseline), left_out, environment, turns)
}

/// Finds the contestants that patterns stand for.
struct TaskSelection<'a> {
    run: Run<'a>,
    programs: &'a [BuiltProgram],
    cores: usize,
    max_tasks: usize,
}

impl TaskSelection<'_> {
    fn of(&self, pattern: &Pattern) -> anyhow::Result<Vec<Entrant<TaskEntrant>>> {
        let definition = self.run.definition;
        let workers = pattern.workers.or(definition.workload.workers).unwrap_or(self.cores);
        let entrant = |name: &str, launch: Result<Launch, String>, is_excused| {
            let name = name.to_owned();
            let contestant = launch.map(|launch| TaskEntrant { name: name.clone(), role: Role::Ranked, launch });
            Entrant { name, contestant, is_excused }
        };
        let found = |selected: Selected<'_>| match selected {
            Selected::Executor(name) => Some(entrant(&name, Ok(self.runner(&name, workers)), false)),
            Selected::Program(built) => {
                let is_excused = built.is_absent && definition.contestants.len() > 1;
                Some(entrant(built.program.name(), built.launch(Some(workers)), is_excused))
            }
            _ => None,
        };
        Ok(self.run.select(pattern, self.programs, false)?.into_iter().filter_map(found).collect())
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
