//! `polyserve recommend`: a server and a store for a workload, by measurement, and the code that uses them.
//!
//! The rules of the catalog choose the candidates. Two definitions measure them: a comparison, and a search of the capacity of the
//! choice.

mod args;
mod ask;
mod capacity;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use polyserve::Shutdown;
use polyserve_bench::Misuse;
use polyserve_bench::bench::mode::ModeKind;
use polyserve_bench::bench::ranking::Ranking;
use polyserve_bench::bench::{self, DefinedExperiment, Definition};
use polyserve_bench::contestants::Registry;
use polyserve_bench::experiment::{self, RecordArgs, Records};
use polyserve_bench::journal::{Header, Journal};
use polyserve_bench::limits;
use polyserve_bench::machine::cores::Cores;
use polyserve_bench::output::print_report;
use polyserve_bench::recommend::workload::{LONGEST_WAIT, Workload};
use polyserve_bench::recommend::{
    Basis, Budget, CandidateSet, CapacityFigure, Choice, DURABLE_DIRECTORY, Recommendation,
};
use polyserve_bench::turn::{Contestant, Rehearsal};
use serde_json::json;
use toml::{Table, Value};

use super::bench::Run;
use super::bench::servers::Servers;
use super::cores::{CoresArgs, chosen_cores};
use super::names::joined;
use super::session::{Context, MeasurementSession, available_cores, stop_after};
use super::times::within;
use crate::config_args::ConfigArgs;

pub(crate) use args::RecommendArgs;

const EXPERIMENT: &str = "recommend";
/// The name of its comparison's record.
const COMPARISON: &str = "recommend-compare";
const MIN_TIME: Duration = Duration::from_secs(1);
const MAX_TIME: Duration = Duration::from_secs(24 * 3600);

pub(crate) fn run(context: Context<'_>, args: &RecommendArgs) -> anyhow::Result<ExitCode> {
    let (available, Context { catalog, json, .. }) = (available_cores()?, context);
    within("--time", args.time, MIN_TIME..=MAX_TIME)?;
    let service = args.service.read(catalog)?;
    let (mut workload, defaulted) = ask::workload(args, service.as_ref(), &available, json)?;
    check_workload(&workload, &available)?;
    let candidates = |workload: &Workload| CandidateSet::of(catalog, workload, &args.servers, &joined(&args.repos));
    let mut set = candidates(&workload)?;
    let _directory = DurableDirectory::for_run(&set);
    // During the questions, Ctrl-C belongs to the prompt.
    let session = context.start()?;
    let time_was_up = stop_after(args.time, &session.stop)?;
    let inputs = Inputs::new(&session, &workload, args.random.seed)?;
    let mut rehearsal = None;
    if service.is_some() {
        let definition = args.definition(&workload, &set, &REHEARSAL)?;
        rehearsal = inputs.servers(&definition)?.rehearsal()?;
        // A pool then has workers for the requests that wait, and a slice is long enough for them.
        workload.wait_ms = rehearsal.as_ref().map_or(0.0, |rehearsal| rehearsal.wait.as_secs_f64() * 1000.0);
        set = candidates(&workload)?;
        check_workload(&workload, &available)?;
    }
    let (budget, has_capacity) = args.budget(&workload, &set)?;
    let definition = args.definition(&workload, &set, &budget)?;
    let plan = inputs.servers(&definition)?.plan(rehearsal.as_ref())?;
    let settings: Vec<(String, Vec<String>)> =
        plan.cells.iter().flat_map(|cell| &cell.contestants).map(|one| (one.name.clone(), flags_of(one))).collect();
    let cores = plan.cores().map(Cores::clone);
    let (mut comparison, environment) = plan.experiment()?;
    let described = json!({"workload": workload, "comparison": comparison.describe()});
    let header = Header::new(EXPERIMENT, described, environment);
    let mut journal = Journal::open(args.out.as_deref(), &header)?;
    let records = run_part(&mut comparison, &definition.name, &header, args, &session.stop)?;
    let basis = Basis {
        catalog,
        settings: &settings,
        workload: &workload,
        defaulted: &defaulted,
        candidates: &set.candidates,
        because: &set.because,
        cores,
        time_up: time_was_up.load(Ordering::Acquire).then_some(args.time),
    };
    let mut recommendation = Recommendation::of(&basis, Ranking::of(&records)?);
    recommendation.no_capacity = capacity::not_searched(&workload, args.time, has_capacity);
    let is_searched = recommendation.no_capacity.is_none() && !session.stop.is_begun();
    if let Some(Choice { candidate, .. }) = recommendation.choice.clone().filter(|_| is_searched) {
        let definition = capacity::definition(&workload, &args.workload_table(&workload), &candidate)?;
        match capacity_of(&inputs, &definition, rehearsal.as_ref(), &header, args) {
            Ok(figures) => recommendation.capacity = figures,
            Err(error) => tracing::warn!("the capacity is not known: {error:#}"),
        }
    }
    journal.line(Recommendation::KIND, &recommendation)?;
    print_report(json, &header.environment, &recommendation)?;
    // A run that was ended early fails only after a wrong answer: a rerun measures the other candidates again.
    let Ranking { failed, interrupted, .. } = &recommendation.ranking;
    let is_failure = failed.iter().any(|failed| failed.wrong || !interrupted);
    Ok(if is_failure { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs an experiment of the recommendation. Its record has the experiment's name.
fn run_part(
    experiment: &mut DefinedExperiment,
    name: &str,
    header: &Header,
    args: &RecommendArgs,
    stop: &Shutdown,
) -> anyhow::Result<Records> {
    let header = Header { experiment: bench::NAME.to_owned(), plan: experiment.describe(), ..header.clone() };
    let mut journal = Journal::named(args.out.as_deref(), name, &header)?;
    experiment::run(experiment, &header, &mut journal, stop)
}

/// Searches the capacity of the choice.
fn capacity_of(
    inputs: &Inputs<'_>,
    definition: &Definition,
    rehearsal: Option<&Rehearsal>,
    header: &Header,
    args: &RecommendArgs,
) -> anyhow::Result<Vec<CapacityFigure>> {
    let (mut search, _) = inputs.servers(definition)?.plan(rehearsal)?.experiment()?;
    let records = run_part(&mut search, &definition.name, header, args, &inputs.session.stop)?;
    Ok(CapacityFigure::of(records.samples()))
}

/// What the experiments of a recommendation are made from, besides their definitions.
struct Inputs<'a> {
    session: &'a MeasurementSession<'a>,
    cores: CoresArgs,
    config: ConfigArgs,
    seed: u64,
    record: RecordArgs,
}

impl<'a> Inputs<'a> {
    fn new(session: &'a MeasurementSession<'a>, workload: &Workload, seed: u64) -> anyhow::Result<Self> {
        let (servers, rest) = session.available.numbers().split_at(workload.cores);
        let servers = Cores::from(servers);
        let clients = match rest {
            [] => chosen_cores("--cores", None, Some(&servers), &session.available)?,
            rest => Cores::from(rest),
        };
        let (config, record) = (ConfigArgs::default(), RecordArgs::default());
        Ok(Self { session, cores: CoresArgs::chosen(servers, clients), config, seed, record })
    }

    fn servers<'b>(&'b self, definition: &'b Definition) -> anyhow::Result<Servers<'b>> {
        let run = Run {
            session: self.session,
            definition,
            registry: Registry::repository(),
            cores: &self.cores,
            config: &self.config,
            seed: self.seed,
            record: &self.record,
            only: None,
            quick: false,
        };
        Servers::new(run)
    }
}

/// The directory below which durable stores are measured. It is removed at the end, unless it was there before.
struct DurableDirectory;

impl DurableDirectory {
    /// Returns the directory if a candidate needs it and it does not exist.
    fn for_run(set: &CandidateSet) -> Option<Self> {
        let is_needed = set.candidates.iter().any(|candidate| candidate.repo.ends_with(DURABLE_DIRECTORY));
        (is_needed && !Path::new(DURABLE_DIRECTORY).exists()).then_some(Self)
    }
}

impl Drop for DurableDirectory {
    fn drop(&mut self) {
        // Each server has removed its store. If not, the directory stays.
        let _ = fs::remove_dir(DURABLE_DIRECTORY);
    }
}

/// Rejects workloads that no server can serve, or that this machine cannot measure.
fn check_workload(workload: &Workload, available: &Cores) -> anyhow::Result<()> {
    let Workload { connections, cores, p99_goal_ms, .. } = *workload;
    let (wait, core_count) = (workload.wait(), available.count());
    let misuse = |why: String| Err(Misuse(why).into());
    if connections == 0 {
        return misuse("--connections must be at least 1".into());
    }
    if workload.keys == 0 {
        return misuse("--keys 0: there must be at least one entity".into());
    }
    limits::check_connections(connections, limits::connections(0))?;
    if cores == 0 || cores > core_count {
        let there = if core_count == 1 { "is 1".to_owned() } else { format!("are {core_count}") };
        return misuse(format!(
            "--cores {cores}: there {there} here; measure on a machine like the one that will serve"
        ));
    }
    let milliseconds = |time: f64| Duration::from_secs_f64(time / 1000.0);
    for (flag, time) in [
        ("--wait", wait),
        ("--blocking-wait", milliseconds(workload.blocking_wait_ms)),
        ("--cpu-per-request", milliseconds(workload.cpu_ms)),
    ] {
        if time > LONGEST_WAIT {
            return misuse(format!("{flag} {time:?} is more than {LONGEST_WAIT:?}"));
        }
    }
    let min_latency_ms = workload.wait_ms + workload.blocking_wait_ms + workload.cpu_ms;
    match p99_goal_ms {
        Some(goal) if goal <= 0.0 => misuse("--p99 must be above 0".into()),
        Some(goal) if goal <= min_latency_ms && min_latency_ms > 0.0 => {
            misuse(format!("--p99 {goal}ms: no server can, for every request takes {min_latency_ms} ms by itself"))
        }
        _ => Ok(()),
    }
}

impl RecommendArgs {
    /// Divides the time, and returns whether there is time for the search of the capacity, too.
    fn budget(&self, workload: &Workload, set: &CandidateSet) -> Result<(Budget, bool), Misuse> {
        // The first candidate takes part twice.
        let (count, rounds) = (set.candidates.len(), self.rounds.map(|rounds| rounds as usize));
        let of = |time: Duration| Budget::of(time, count + 1, workload, rounds);
        if let Ok(budget) = of(self.time.saturating_sub(capacity::time(workload))) {
            return Ok((budget, true));
        }
        let too_little = |needed: Duration| {
            let needed = humantime::format_duration(needed);
            Misuse(format!("--time {:?} is too little for {count} candidates: it takes {needed}", self.time))
        };
        Ok((of(self.time).map_err(too_little)?, false))
    }

    /// The key `workload` of the definitions.
    fn workload_table(&self, workload: &Workload) -> Table {
        let mut table = workload.table();
        table.extend(self.service.keys());
        table
    }

    /// The comparison of the candidates.
    fn definition(&self, workload: &Workload, set: &CandidateSet, budget: &Budget) -> Result<Definition, Misuse> {
        let time = |time: Duration| Value::from(humantime::format_duration(time).to_string());
        let goal = workload.p99_goal_ms.map(|goal| time(Duration::from_secs_f64(goal / 1000.0)));
        let mode = [
            ("kind", Some(ModeKind::Compare.to_string().into())),
            ("warm_up", Some(time(budget.warm_up))),
            ("slice", Some(time(budget.slice))),
            ("latency_slice", Some(time(budget.latency_slice))),
            ("rate", workload.rate_per_s.map(Value::from)),
            ("p99", goal),
        ];
        let mode: Table = mode.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
        let contestants: Vec<Value> = set.candidates.iter().map(|one| one.pattern().into()).collect();
        let table = Table::from_iter([
            ("name".to_owned(), COMPARISON.into()),
            ("rounds".to_owned(), i64::try_from(budget.rounds).unwrap_or(i64::MAX).into()),
            ("contestants".to_owned(), contestants.into()),
            ("workload".to_owned(), self.workload_table(workload).into()),
            ("mode".to_owned(), mode.into()),
        ]);
        Definition::parse(Path::new("the comparison of the candidates"), &table.to_string(), &[])
    }
}

/// The times of a rehearsal, which measures nothing.
const REHEARSAL: Budget = Budget {
    rounds: 1,
    warm_up: Duration::from_millis(100),
    slice: Duration::from_millis(100),
    latency_slice: Duration::from_millis(100),
};

/// The flags with which a contestant is started, other than its server and repo.
fn flags_of(contestant: &Contestant) -> Vec<String> {
    let args = contestant.launch.args.iter().map(|arg| arg.to_string_lossy().into_owned());
    let is_setting = |arg: &String| {
        let fixed =
            ["--server=", "--repo=", "--service=", "--listen=", "--json", "--until-stdin-ends", "--temporary-repo"];
        arg.starts_with("--") && !fixed.iter().any(|fixed| arg.starts_with(fixed))
    };
    args.filter(is_setting).collect()
}
