//! `polyserve recommend`: a server and a store for a workload, by measurement, and the code that uses them.

mod args;
mod ask;
mod capacity;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use polyserve::ConfigError;
use polyserve::catalog::Catalog;
use polyserve::env::Settings;
use polyserve_bench::Misuse;
use polyserve_bench::compare::ranking::Ranking;
use polyserve_bench::compare::{Comparison, Key};
use polyserve_bench::experiment::{self, Experiment as _, with_second_entries};
use polyserve_bench::journal::{Header, Journal};
use polyserve_bench::limits;
use polyserve_bench::machine::cores::Cores;
use polyserve_bench::output::print_report;
use polyserve_bench::recommend::candidates::DURABLE_DIRECTORY;
use polyserve_bench::recommend::choice::Basis;
use polyserve_bench::recommend::workload::LONGEST_WAIT;
use polyserve_bench::recommend::{Budget, Candidate, CandidateSet, Recommendation, Workload};
use polyserve_bench::turn::{Contestant, Instrument, Rehearsal, Role, bound};
use polyserve_load::{Arrivals, Mix, Traffic};
use serde_json::json;

use super::compare::cores_of;
use super::cores::chosen_cores;
use super::entrants::{left_out, serve};
use super::names::joined;
use super::room::{self, roomy};
use super::service::RequestedService;
use super::session::{Context, MeasurementSession, available_cores, stop_after};
use super::times::within;
use super::workload::{checked, misuse, reference_traffic};
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
    let mut rehearsed = None;
    if let Some(service) = &service {
        let (rehearsal, notes) = args.rehearse(&session, &workload, &set, service)?;
        // A pool then has workers for the requests that wait, and a slice is long enough for them.
        workload.wait_ms = rehearsal.wait.as_secs_f64() * 1000.0;
        set = candidates(&workload)?;
        check_workload(&workload, &available)?;
        rehearsed = Some((rehearsal.traffic, notes));
    }
    let (traffic, notes) = rehearsed.unzip();
    // The capacity is searched if the comparison leaves time for it.
    let rest = args.time.saturating_sub(capacity::time(&workload));
    let comparison = |time| args.comparison(&session, &workload, traffic.as_ref(), &set, time);
    let (mut comparison, has_capacity) = match comparison(rest) {
        Ok(comparison) => (comparison, true),
        Err(_) => (comparison(args.time)?, false),
    };
    comparison.notes = notes.unwrap_or_default();
    let environment = session.environment(cores_of(&comparison), args.random.seed);
    comparison.goal_us = workload.p99_goal_ms.map(|goal| goal * 1000.0);
    comparison.details = vec![
        ("settings", ConfigArgs::default().given()?),
        ("workload", serde_json::to_value(&workload)?),
        ("workers", json!(set.candidates.iter().map(|candidate| candidate.workers).collect::<Vec<_>>())),
    ];
    comparison.details.extend(service.as_ref().map(|service| ("requests", service.described())));
    let header = Header::new(EXPERIMENT, comparison.describe(), environment);
    let mut journal = Journal::open(args.out.as_deref(), &header)?;
    let comparison_header = Header { experiment: Comparison::NAME.to_owned(), ..header.clone() };
    let mut comparison_journal = Journal::named(args.out.as_deref(), COMPARISON, &comparison_header)?;
    let records = experiment::run(&mut comparison, &comparison_header, &mut comparison_journal, &session.stop)?;
    let settings: Vec<(String, Vec<String>)> =
        comparison.contestants.iter().map(|contestant| (contestant.name.clone(), flags_of(contestant))).collect();
    let basis = Basis {
        catalog,
        settings: &settings,
        workload: &workload,
        defaulted: &defaulted,
        candidates: &set.candidates,
        because: &set.because,
        cores: [&comparison.instrument.server_cores, &comparison.instrument.client_cores].map(Cores::clone),
        time_up: time_was_up.load(Ordering::Acquire).then_some(args.time),
    };
    let mut recommendation = Recommendation::of(&basis, &Ranking::of(&records)?);
    let chosen = recommendation.choice.as_ref().map(|choice| choice.candidate.name());
    let chosen = comparison.contestants.iter().find(|one| Some(&one.name) == chosen.as_ref());
    recommendation.no_capacity = capacity::not_searched(&workload, args.time, has_capacity);
    if let Some(chosen) = chosen.filter(|_| recommendation.no_capacity.is_none() && !session.stop.is_begun()) {
        capacity::add(&mut recommendation, &comparison.instrument, chosen, &header, args);
    }
    journal.line(Recommendation::KIND, &recommendation)?;
    print_report(json, &header.environment, &recommendation)?;
    // A run that was ended early fails only after a wrong answer: a rerun measures the other candidates again.
    let is_failure = recommendation.failed.iter().any(|failed| failed.wrong || !recommendation.interrupted);
    Ok(if is_failure { ExitCode::FAILURE } else { ExitCode::SUCCESS })
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
    /// The comparison, with the budget `time`.
    fn comparison(
        &self,
        session: &MeasurementSession<'_>,
        workload: &Workload,
        traffic: Option<&Traffic>,
        set: &CandidateSet,
        time: Duration,
    ) -> anyhow::Result<Comparison> {
        let settings = ConfigArgs::default().settings(None)?;
        let (mut contestants, mut absent) = (Vec::new(), Vec::new());
        for candidate in &set.candidates {
            match contestant(session.catalog, workload, &settings, candidate) {
                Ok(contestant) => contestants.push(contestant),
                Err(error) if error.is::<ConfigError>() && self.servers.is_empty() => {
                    absent.push(left_out(Key::new(0, &candidate.name()), error.to_string(), false));
                }
                Err(error) => return Err(error),
            }
        }
        let Some(baseline) = contestants.first() else {
            return Err(Misuse(String::from("there is no server and repo for this workload")).into());
        };
        let name = baseline.name.clone();
        let contestants = with_second_entries(contestants, &name, &[], |one| (&mut one.name, &mut one.role));
        let budget = Budget::of(time, contestants.len(), workload, self.rounds.map(|rounds| rounds as usize)).map_err(
            |needed| {
                let needed = humantime::format_duration(needed);
                Misuse(format!(
                    "--time {:?} is too little for {} candidates: it takes {needed}",
                    self.time,
                    set.candidates.len()
                ))
            },
        )?;
        let traffic = match traffic {
            Some(traffic) => traffic.clone(),
            None => workload.traffic(self.random.seed).map_err(misuse)?,
        };
        let instrument = self.instrument(session, workload, traffic, &budget)?;
        let mut comparison = Comparison::new(contestants, instrument, budget.rounds);
        comparison.rate = workload.rate_per_s;
        comparison.absent = absent;
        Ok(comparison)
    }

    /// Discovers the right answers of a service on the first candidate that can be started.
    fn rehearse(
        &self,
        session: &MeasurementSession<'_>,
        workload: &Workload,
        set: &CandidateSet,
        service: &RequestedService,
    ) -> anyhow::Result<(Rehearsal, Vec<String>)> {
        let settings = ConfigArgs::default().settings(None)?;
        let made = set.candidates.iter().map(|one| contestant(session.catalog, workload, &settings, one));
        let first = made.reduce(|first, next| if first.is_ok() { first } else { next });
        let first = first.unwrap_or_else(|| Err(Misuse(String::from("there is no server for this service")).into()))?;
        let time = Duration::from_millis(100);
        let budget = Budget { rounds: 1, warm_up: time, slice: time, latency_slice: time };
        let instrument = self.instrument(session, workload, service.traffic(self.random.seed)?, &budget)?;
        service.rehearse(&instrument, &first)
    }

    fn instrument(
        &self,
        session: &MeasurementSession<'_>,
        workload: &Workload,
        traffic: Traffic,
        budget: &Budget,
    ) -> anyhow::Result<Instrument> {
        let available = &session.available;
        let numbers = available.numbers();
        let server_cores = Cores::from(&numbers[..workload.cores]);
        let rest = &numbers[workload.cores..];
        let client_cores = if rest.is_empty() {
            chosen_cores("--cores", None, Some(&server_cores), available)?
        } else {
            Cores::from(rest)
        };
        let mix = Mix { get: workload.reads_pct, put: 100 - workload.reads_pct };
        let (connections, usage) = (workload.connections, workload.usage());
        let traffic = checked(Ok(traffic), connections, usage)?;
        Ok(Instrument {
            server_cores,
            client_cores,
            connections,
            usage,
            arrivals: Arrivals::default(),
            traffic,
            limit_traffic: reference_traffic(workload.keys, mix).map_err(misuse)?,
            asked: workload.to_string(),
            warm_up: budget.warm_up,
            slice: budget.slice,
            latency_slice: budget.latency_slice,
            stop: session.stop.clone(),
        })
    }
}

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

/// Returns a candidate as a contestant, with settings under which no connection is rejected because it waited.
fn contestant(
    catalog: &Catalog,
    workload: &Workload,
    settings: &Settings,
    candidate: &Candidate,
) -> anyhow::Result<Contestant> {
    let Workload { connections, wait_ms, .. } = *workload;
    let room = roomy(settings, &settings.config, connections);
    let (server, config) = room::fitted(catalog.server(&candidate.server)?, &room, candidate.workers)?;
    let mut flags = room::flags(&config, &[], &[]);
    flags.extend(workload.service.iter().map(|(name, _)| format!("--service={name}")));
    flags.extend(candidate.workers.map(|workers| format!("--workers={workers}")));
    if wait_ms > 0.0 && workload.service.is_none() {
        flags.push(format!("--repo-delay={}", humantime::format_duration(workload.wait())));
    }
    if workload.blocking_wait_ms > 0.0 {
        let time = Duration::from_secs_f64(workload.blocking_wait_ms / 1000.0);
        flags.push(format!("--blocking-wait={}", humantime::format_duration(time)));
    }
    if workload.cpu_ms > 0.0 {
        flags.push(format!("--spin={:.0}", workload.cpu_ms * 1e6));
    }
    let launch = serve(&candidate.server, &candidate.repo, &flags, Vec::new());
    Ok(Contestant::new(&candidate.name(), Role::Ranked, launch).with(|one| {
        one.shape = Some(server.shape());
        one.bound = bound(server.as_ref(), &config, connections);
        one.wait = workload.longest_request();
    }))
}
