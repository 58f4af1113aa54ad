//! The `polyserve` command as a library. A program adds its own strategies to the catalog and calls [`main`]. Every command
//! then has them.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use polyserve::catalog::Catalog;
//!
//! fn main() -> ExitCode {
//!     polyserve_cli::main(Catalog::builtin()) // .with_repo(...), .with_server(...), .with_service(...)
//! }
//! ```
//!
//! # Layout
//!
//! * `commands`: one module a command; each reads its arguments, runs, and prints.
//! * `config_args`: the flags of the server settings; `config_file`: the same in a file.
//! * `report`: a page of recorded runs, and their tables and charts in Markdown.
//!
//! Every command prints text, and JSON with `--json`. The exit code is 0 after success, 1 after a failure, and 2 for
//! invalid arguments. A measurement that a signal has ended prints its report, and exits with 128 plus the signal's number: 130
//! after Ctrl-C. If it had a wrong answer before, it exits with 1; a goal such as `load --p99` then has no verdict. `serve` drains at a signal, and exits with 0.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod commands;
mod config_args;
mod config_file;
mod log_filter;
mod log_output;
mod report;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal as _, Write as _};
use std::panic;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use polyserve::ConfigError;
use polyserve::catalog::{Catalog, Entry, UnknownName};
use polyserve::env::{SettingError, check_variables};
use polyserve_bench::Misuse;
use polyserve_bench::machine::Build;
#[cfg(target_os = "linux")]
use polyserve_bench::reference;
use polyserve_bench::services;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use commands::session::{Context, signal_code};
use commands::{
    bench::BenchArgs, bench::tasks::RunnerArgs, check::CheckArgs, compare::CompareArgs, data::DataArgs,
    durable::DurableArgs, load::LoadArgs, recommend::RecommendArgs, report::ReportArgs, serve::ServeArgs,
    token::TokenArgs,
};
use config_file::ConfigFile;
use log_filter::log_filter;
use log_output::{LogLines, LogOutput};

/// Interchangeable concurrency strategies for one small HTTP entity server: list, serve and test them.
#[derive(Debug, Parser)]
#[command(name = "polyserve", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    /// The level of the log on standard error: off, error, warn, info, debug or trace. [env: POLYSERVE_LOG] [default: warn]
    #[arg(long, global = true, value_name = "LEVEL")]
    log: Option<LevelFilter>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List every server, repo, executor, service and reference, with its promises.
    List,
    /// Run a server until SIGINT, SIGTERM or SIGHUP, then drain it. With TLS or users, SIGHUP reads their files again.
    Serve(ServeArgs),
    /// Make a new random token, and print its line for the file of `serve --tokens`.
    Token(TokenArgs),
    /// Check, repair or back up a durable store.
    Durable(DurableArgs),
    /// Write entity test data as CSV.
    Data(DataArgs),
    /// Send a load to an HTTP/1.1 server, verify every answer, and print throughput, latencies and CPU time.
    ///
    /// Without --keys and --mix, the right answers are discovered first: each request is sent twice before the load, and a third
    /// time, a second later, if both bodies are the same and show the present time. These answers must be 2xx or 304, or have the
    /// status in --file. A request that creates or removes something does so then too. With --keys or --mix, all entities are stored
    /// first.
    Load(LoadArgs),
    /// Record the answers to concurrent clients, and check them for linearizability.
    Check(CheckArgs),
    /// Rank servers and repos on this machine, with an interval for every ratio.
    Compare(CompareArgs),
    /// Measure what a definition asks for: contestants, the settings that vary, a kind of load, and rounds.
    ///
    /// A definition is a TOML file. This command contains some: see --list.
    Bench(BenchArgs),
    /// Ask for a workload, measure it here, and print the server and the repo to use, with the Rust code.
    Recommend(RecommendArgs),
    /// Run the tasks that standard input requests: a contestant of a definition.
    #[command(hide = true)]
    TaskRunner(RunnerArgs),
    /// Write one HTML page of recorded runs, or splice their tables and charts into Markdown pages.
    Report(ReportArgs),
}

/// Runs the command in this process's arguments, with the strategies of `catalog`, the references and services of
/// [`polyserve_bench`]. Starts a log on standard error with a hook that reports panics there, unless the program has a log of `tracing`.
///
/// ```no_run
/// use polyserve::memory::StdMutex;
/// use polyserve::prelude::*;
/// use polyserve::catalog::Entry;
/// use std::sync::Arc;
///
/// fn main() -> std::process::ExitCode {
///     let mine = Entry::repo("mine", "one lock", &[], || Ok(Arc::new(StdMutex::new())));
///     polyserve_cli::main(Catalog::builtin().with_repo(mine))
/// }
/// ```
pub fn main(catalog: Catalog) -> ExitCode {
    main_with_allocator(catalog, "as built")
}

/// [`main`] for a program that names its allocator, such as by a name of [`polyserve_bench::allocator`]. Records contain the
/// name.
#[allow(clippy::needless_pass_by_value)] // it is a program's only act
pub fn main_with_allocator(catalog: Catalog, allocator: &'static str) -> ExitCode {
    BUILD.set();
    let catalog = services::with_services(catalog);
    let read = match arguments(&mut Cli::command()) {
        // The names are found out for the help only: it costs an io_uring.
        Err(error) if error.kind() == ErrorKind::DisplayHelp => arguments(&mut with_names(Cli::command(), &catalog)),
        read => read,
    };
    let (cli, file) = match read {
        Ok(read) => read,
        Err(error) => return printed(&error),
    };
    #[cfg(target_os = "linux")]
    let catalog = reference::with_references(catalog);
    let log = match LogOutput::start(io::stderr()).map_err(commands::serve::explained) {
        Ok(log) => log,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: there is no thread for the log: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = run(&cli, &catalog, allocator, log.lines()).map_err(|error| match &file {
        Some(file) => file.explain(error),
        None => error,
    });
    let signal_code = signal_code();
    match result {
        Ok(code) => signal_code.filter(|_| code == ExitCode::SUCCESS).map_or(code, ExitCode::from),
        Err(error) => {
            log.lines().add(format_args!("error: {error:#}"));
            ExitCode::from(signal_code.unwrap_or(if is_misuse(&error) { 2 } else { 1 }))
        }
    }
}

/// Prints the help or the version that the arguments ask for, or what is wrong with them. Returns the exit code.
fn printed(error: &clap::Error) -> ExitCode {
    match error.print() {
        // A reader that closes its end is no error.
        Err(unwritten) if !error.use_stderr() && unwritten.kind() != io::ErrorKind::BrokenPipe => {
            let _ = writeln!(io::stderr(), "error: {unwritten}");
            ExitCode::FAILURE
        }
        _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)),
    }
}

/// Reads the arguments of this process; those of `serve` also from its configuration file.
fn arguments(command: &mut clap::Command) -> Result<(Cli, Option<ConfigFile>), clap::Error> {
    let of_file = |misuse: Misuse| clap::Error::raw(ErrorKind::ValueValidation, format!("{misuse}\n"));
    let given = command.try_get_matches_from_mut(std::env::args_os())?;
    let file = match given.subcommand().zip(command.find_subcommand("serve")) {
        Some((("serve", given), serve)) => ConfigFile::of(serve, given).map_err(of_file)?,
        _ => None,
    };
    let Some(file) = file else {
        return Cli::from_arg_matches(&given).map(|cli| (cli, None)).map_err(|error| error.format(command));
    };
    let all = command.try_get_matches_from_mut(std::env::args_os().chain(file.arguments()));
    let cli = all.and_then(|all| Cli::from_arg_matches(&all)).map_err(|error| of_file(file.error(&error)))?;
    Ok((cli, Some(file)))
}

/// The commit and the profile, from the build script.
const BUILD: Build = Build {
    rustc: option_env!("POLYSERVE_BUILT_BY"),
    profile: option_env!("POLYSERVE_BUILT_AS"),
    commit: option_env!("POLYSERVE_BUILT_FROM"),
};

/// Adds the names of the catalog to the help of every command that takes such names.
fn with_names(mut command: clap::Command, catalog: &Catalog) -> clap::Command {
    fn names<M>(entries: &[Entry<M>]) -> String {
        entries.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>().join(", ")
    }
    for command in command.get_subcommands_mut() {
        let takes = |flags: [&str; 2]| command.get_arguments().any(|flag| flags.contains(&flag.get_id().as_str()));
        let mut lines = Vec::new();
        if takes(["server", "servers"]) {
            let short = catalog.short_server_names().map(|(short, full)| format!(", {short} ({full})"));
            lines.push(format!("Servers: {}{}", names(catalog.servers()), short.collect::<String>()));
        }
        if takes(["repo", "repos"]) {
            let located = catalog.repo_schemes().iter().map(|repo| format!(", {}", repo.form()));
            lines.push(format!("Repos: {}{}", names(catalog.repos()), located.collect::<String>()));
        }
        if !lines.is_empty() {
            *command = std::mem::take(command).after_help(lines.join("\n\n"));
        }
    }
    command
}

fn run(cli: &Cli, catalog: &Catalog, allocator: &'static str, lines: Arc<LogLines>) -> anyhow::Result<ExitCode> {
    start_log(cli.log, lines)?;
    check_variables(std::env::vars_os(), &[])?;
    let json = cli.json;
    let context = Context { catalog, json, allocator };
    match &cli.command {
        Command::List => commands::list::run(catalog, json),
        Command::Serve(args) => commands::serve::run(catalog, args, json),
        Command::Token(args) => commands::token::run(args, json),
        Command::Durable(args) => commands::durable::run(args, json),
        Command::Data(args) => commands::data::run(args, json),
        Command::Load(args) => commands::load::run(args, json),
        Command::Check(args) => commands::check::run(catalog, args, json),
        Command::Compare(args) => commands::compare::run(context, args),
        Command::Bench(args) => commands::bench::run(context, args),
        Command::Recommend(args) => commands::recommend::run(context, args),
        Command::TaskRunner(args) => commands::bench::tasks::run_tasks(catalog, args),
        Command::Report(args) => commands::report::run(args, json),
    }
}

fn is_misuse(error: &anyhow::Error) -> bool {
    error.is::<Misuse>() || error.is::<SettingError>() || error.is::<UnknownName>() || error.is::<ConfigError>()
}

const LOG_ENV: &str = "POLYSERVE_LOG";

fn start_log(flag: Option<LevelFilter>, lines: Arc<LogLines>) -> Result<(), Misuse> {
    let level = match (flag, std::env::var(LOG_ENV)) {
        (Some(level), _) => level,
        (None, Ok(text)) if !text.is_empty() => {
            let levels = "off, error, warn, info, debug or trace";
            text.parse().map_err(|_| Misuse(format!("the environment variable {LOG_ENV}={text:?} is not {levels}")))?
        }
        (None, _) => LevelFilter::WARN,
    };
    let log = tracing_subscriber::fmt().with_max_level(level).with_ansi(io::stderr().is_terminal());
    // A request is a span, which has a line at its end.
    let log = log.with_span_events(FmtSpan::CLOSE);
    // The report of a line that cannot be written panics: a full disk under the log would end threads.
    let log = log.log_internal_errors(false);
    // A program that has started its own log before it calls `main` keeps that log, and its report of panics.
    if log.with_writer(Arc::clone(&lines)).finish().with(log_filter(level)).try_init().is_ok() {
        panic::set_hook(Box::new(move |panic| report_panic(panic, &lines)));
    }
    Ok(())
}

/// Adds what the hook of the standard library prints. That hook blocks the thread if standard error is not read. If panics end the
/// program, waits until the line is written, or until it is clear that it cannot be.
fn report_panic(panic: &panic::PanicHookInfo<'_>, lines: &LogLines) {
    let thread = thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => lines.add(format_args!("thread '{name}' {panic}\n{backtrace}")),
        _ => lines.add(format_args!("thread '{name}' {panic}")),
    }
    if cfg!(panic = "abort") {
        lines.await_written();
    }
}
