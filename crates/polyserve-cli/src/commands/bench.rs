//! `polyserve bench`: an experiment from a definition.

mod page;
mod run;
mod scenario;
mod select;
pub(crate) mod servers;
mod stores;
pub(crate) mod tasks;

use std::process::ExitCode;

use polyserve_bench::Misuse;
use polyserve_bench::bench::Definition;
use polyserve_bench::bench::mode::{Mode, ModeKind};
use polyserve_bench::experiment::RecordArgs;
use polyserve_bench::output::{print, print_json};
use polyserve_bench::report::Table;
use serde_json::json;

use super::cores::{CLIENT_CORES, CoresArgs};
use super::foreign::ContestantsArgs;
use super::seed::SeedArgs;
use super::session::Context;
use crate::config_args::ConfigArgs;

pub(crate) use run::Run;

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
        scenario::check(&args.config, &definition, mode)?;
    } else if !matches!(definition.mode, Mode::Tasks(_) | Mode::Store(_)) {
        Run::check_connections(&definition)?;
    }
    let registry = args.contestants.registry()?;
    let run = Run {
        session: &context.start()?,
        definition: &definition,
        registry: &registry,
        cores: &args.cores,
        config: &args.config,
        seed: args.random.seed,
        record: &args.record,
        only: args.only.as_deref(),
        quick: args.quick,
    };
    match &definition.mode {
        Mode::Tasks(mode) => tasks::run(run, mode),
        Mode::Scenario(mode) => scenario::run(run, mode),
        Mode::Page(mode) => page::run(run, mode),
        Mode::Store(mode) => stores::run(run, mode),
        _ => servers::run(run),
    }
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
        _ => None,
    };
    match unread {
        Some(flag) => Err(Misuse(format!("{flag}: the mode {mode} does not read it"))),
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
