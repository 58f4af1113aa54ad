//! `polyserve tasks`: concurrent CPU tasks on every executor, on scoped threads, on rayon and in Go; and the process that
//! runs the tasks of one contestant.

use std::io::{self, BufReader};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use polyserve::catalog::Catalog;
use polyserve::{ServerConfig, Shutdown};
use polyserve_bench::Misuse;
use polyserve_bench::contestants::{self, Registry};
use polyserve_bench::experiment::{RecordArgs, distinct};
use polyserve_bench::launch::{AddressFrom, Launch};
use polyserve_bench::machine::Cores;
use polyserve_bench::tasks::experiment::{CpuTasks, TaskEntrant};
use polyserve_bench::tasks::published::{GO, GO_GC_OFF, GO_LISTING, GO_LOCKED, LISTING};
use polyserve_bench::tasks::record::TaskSettings;
use polyserve_bench::tasks::runner::{self, OTHERS, Runner};
use polyserve_bench::tasks::sequence::TermOrder;

use super::entrants::this_program;
use super::seed::SeedArgs;
use super::session::Context;
use super::times::within;

/// The arguments of `polyserve tasks`.
#[derive(Debug, clap::Args)]
pub(crate) struct TasksArgs {
    /// The contestants, separated by commas: executors, scoped_threads/std, scoped_threads/crossbeam, rayon,
    /// go/goroutines, go/goroutines_gc_off (without the garbage collector), go/goroutines_locked (a thread for each goroutine:
    /// the kernel then counts its CPU time), and with --as-published the published listings: twin/crossbeam_scope, go/listing.
    /// [default: all but go/goroutines_locked]
    #[arg(long, value_name = "C,...", value_delimiter = ',')]
    contestants: Vec<String>,
    /// The approximate time of a task. Each language is calibrated. [default: 1s, quick: 25ms]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    task: Option<Duration>,
    /// The number of steps of a task in all languages, instead of a calibration.
    #[arg(long, value_name = "N", conflicts_with = "task", value_parser = clap::value_parser!(u64).range(1..=100_000_000_000))]
    steps: Option<u64>,
    /// Test for convergence in each step within the measured time, in Rust and in Go. The published code does so. It may be
    /// why the published steps per second differ: 367 million in Rust, 44 million in Go. [default: outside the measured time]
    #[arg(long)]
    check_convergence: bool,
    /// The max number of concurrent tasks. [default: each number up to 40; quick: each up to 20, then 24, 32 and 40]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(1..=MAX_TASKS))]
    most: Option<u16>,
    /// The size of batches. Its multiples are measured in batches too. A batch begins when the previous batch has ended. 0 for none.
    #[arg(long, value_name = "K", default_value_t = 8, value_parser = clap::value_parser!(u16).range(0..=MAX_TASKS))]
    series: u16,
    /// Use the recurrence of the published code, A(n-3) + A(n-2) - A(n-1), which differs from its text.
    #[arg(long)]
    as_published: bool,
    #[command(flatten)]
    random: SeedArgs,
    /// Shorter tasks and fewer numbers of tasks: less than 3 minutes.
    #[arg(long)]
    quick: bool,
    /// The contestants' cores: 0, or 0-3,6. [default: all]
    #[arg(long, value_name = "CORES")]
    cores: Option<Cores>,
    /// The number of workers of a contestant that has workers. [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=ServerConfig::MAX_WORKERS as i64))]
    workers: Option<u16>,
    #[command(flatten)]
    record: RecordArgs,
}

/// The program of the tasks in Go.
const GO_TASKS: &str = "go/tasks";
/// The max number of concurrent tasks. Each may have a thread.
const MAX_TASKS: i64 = 1000;
/// The limits of a task's time.
const MIN_TASK_TIME: Duration = Duration::from_millis(1);
const MAX_TASK_TIME: Duration = Duration::from_secs(60);

pub(crate) fn run(context: Context<'_>, args: &TasksArgs) -> anyhow::Result<ExitCode> {
    let session = context.start()?;
    let available = &session.available;
    let cores = args.cores.clone().unwrap_or_else(|| available.clone());
    if let Some(missing) = cores.missing_in(available) {
        return Err(Misuse(format!("--cores {cores}: there is no core {missing}, only {available}")).into());
    }
    let settings = args.plan(session.catalog, &cores)?;
    let environment = session.environment([&cores, &cores], args.random.seed);
    let contestants = contestants(&settings, &args.contestants, context.allocator, &session.stop);
    let mut tasks = CpuTasks::new(settings, contestants, cores, session.stop.clone());
    session.run(&args.record, environment, &mut tasks)
}

impl TasksArgs {
    fn plan(&self, catalog: &Catalog, cores: &Cores) -> anyhow::Result<TaskSettings> {
        let default = if self.quick { Duration::from_millis(25) } else { Duration::from_secs(1) };
        let task = self.task.unwrap_or(default);
        within("--task", task, MIN_TASK_TIME..=MAX_TASK_TIME)?;
        let max_tasks = usize::from(self.most.unwrap_or(40));
        let counts = (1..=max_tasks).filter(|tasks| !self.quick || *tasks <= 20 || tasks % 8 == 0).collect();
        let order = if self.as_published { TermOrder::AsPublished } else { TermOrder::AsDescribed };
        Ok(TaskSettings {
            contestants: self.names(catalog)?,
            task_ms: task.as_secs_f64() * 1000.0,
            steps: self.steps,
            check: self.check_convergence,
            counts,
            series: usize::from(self.series),
            seed: self.random.seed,
            order,
            cores: cores.to_string(),
            core_count: cores.count(),
            workers: self.workers.map_or(cores.count(), usize::from),
        })
    }

    fn names(&self, catalog: &Catalog) -> Result<Vec<String>, Misuse> {
        let executors = catalog.executors().iter().map(|entry| entry.name.clone());
        // An executor of the catalog takes precedence over a built-in contestant of the same name.
        let others = OTHERS.into_iter().chain([GO, GO_GC_OFF]).filter(|name| catalog.executor(name).is_err());
        let listings = [LISTING, GO_LISTING].into_iter().filter(|_| self.as_published);
        let all: Vec<String> = executors.chain(others.chain(listings).map(String::from)).collect();
        if self.contestants.is_empty() {
            return Ok(all);
        }
        if let Some(name) = self.contestants.iter().find(|name| [LISTING, GO_LISTING].contains(&name.as_str()))
            && !self.as_published
        {
            return Err(Misuse(format!("{name} has the recurrence of the published code only: add --as-published")));
        }
        if let Some(name) = self.contestants.iter().find(|name| !all.contains(name) && *name != GO_LOCKED) {
            let all = all.join(", ");
            return Err(Misuse(format!("there is no contestant {name:?}; there are {all}, {GO_LOCKED}")));
        }
        Ok(distinct(self.contestants.iter().cloned()))
    }
}

/// The process of each contestant. The program in Go and the listings are built first if they take part.
fn contestants(plan: &TaskSettings, named: &[String], allocator: &str, stop: &Shutdown) -> Vec<TaskEntrant> {
    let takes_part = |name: &str| plan.contestants.iter().any(|contestant| contestant == name);
    let is_go = |name: &str| [GO, GO_GC_OFF, GO_LOCKED].contains(&name);
    let registry = Registry::repository();
    let build = |wanted: bool, name: &str| {
        let program = registry.named(name).filter(|_| wanted);
        let built = contestants::build(program, allocator, stop).pop();
        built.map_or_else(|| Err(String::from("it was not built")), |built| built.file)
    };
    let program = build(plan.contestants.iter().any(|name| is_go(name)), GO_TASKS);
    let listing = build(takes_part(LISTING), LISTING);
    let go_listing = build(takes_part(GO_LISTING), GO_LISTING);
    let launch = |name: &str| {
        if name == LISTING {
            return Ok(launch(&listing.clone()?, std::iter::empty()));
        }
        if name == GO_LISTING {
            return Ok(launch(&go_listing.clone()?, std::iter::once(format!("-workers={}", plan.workers))));
        }
        if is_go(name) {
            let program = program.clone()?;
            let locked = (name == GO_LOCKED).then(|| String::from("-cpu"));
            let args = [format!("-workers={}", plan.workers)].into_iter().chain(locked);
            let mut launch = launch(&program, args);
            if name == GO_GC_OFF {
                launch.env.push(("GOGC".into(), "off".into()));
            }
            return Ok(launch);
        }
        let max_tasks = plan.counts.iter().max().copied().unwrap_or(1);
        let args = ["task-runner".into(), format!("--contestant={name}"), format!("--workers={}", plan.workers)];
        Ok(launch(&this_program(), args.into_iter().chain([format!("--queue={max_tasks}")])))
    };
    let contestant =
        |name: &String| TaskEntrant { name: name.clone(), launch: launch(name), is_named: named.contains(name) };
    plan.contestants.iter().map(contestant).collect()
}

fn launch(program: &Path, args: impl Iterator<Item = String>) -> Launch {
    // It opens no socket.
    Launch {
        program: program.to_owned(),
        args: args.map(Into::into).collect(),
        env: Vec::new(),
        address: AddressFrom::Json,
        files: Vec::new(),
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
