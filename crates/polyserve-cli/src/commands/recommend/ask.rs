//! The workload: from flags, then from questions at a terminal or from defaults.

use std::io::{IsTerminal as _, stderr, stdin};
use std::time::Duration;

use anyhow::Context as _;
use dialoguer::{Confirm, Input};
use polyserve_bench::Misuse;
use polyserve_bench::machine::cores::Cores;
use polyserve_bench::recommend::workload::{
    CONNECTIONS, KEEP_ALIVE, KEYS, LARGEST_PAYLOAD, PAYLOAD, READS_PCT, Workload,
};

use super::args::RecommendArgs;
use crate::commands::memory::bytes;
use crate::commands::service::RequestedService;
use crate::commands::times::time;

/// The source of values that no flag gives.
enum Source {
    /// Questions at the terminal.
    Terminal,
    /// The defaults.
    Defaults,
}

/// Rejects a flag that is for entities, because there is a service of the program's own.
fn check_service(args: &RecommendArgs, name: &str) -> Result<(), Misuse> {
    let for_entities = [
        ("--reads", args.reads.is_some()),
        ("--payload", args.payload.is_some()),
        ("--keys", args.keys.is_some()),
        ("--wait", args.wait.is_some()),
        ("--blocking-wait", args.blocking_wait.is_some()),
        ("--cpu-per-request", args.cpu_per_request.is_some()),
        ("--store-memory", args.memory.store_memory.is_some()),
        ("--durable", args.durable.is_some()),
        ("--machines", args.machines.is_some()),
        ("--repos", !args.repos.is_empty()),
    ];
    match for_entities.into_iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => Err(Misuse(format!("{flag} is for entities, and the service {name} has --requests"))),
        None => Ok(()),
    }
}

/// Returns the workload, and a list of its defaults in words. The workload of a service has no entities.
pub(super) fn workload(
    args: &RecommendArgs,
    service: Option<&RequestedService>,
    available: &Cores,
    json: bool,
) -> anyhow::Result<(Workload, Vec<String>)> {
    if let Some(service) = service {
        check_service(args, &service.name)?;
    }
    let is_asked = |flag: &str| service.is_none() || ["--connections", "--cores", "--keep-alive"].contains(&flag);
    let is_interactive = stdin().is_terminal() && stderr().is_terminal() && !json && !args.defaults;
    let source = if is_interactive { Source::Terminal } else { Source::Defaults };
    let mut defaulted = Vec::new();
    // The client needs about as much CPU time for a request as a fast server.
    let default_cores = (available.count() / 2).max(1);
    let mut number = |given: Option<u64>, default: u64, name: &str, question: &str| -> anyhow::Result<u64> {
        match (given, &source) {
            (Some(given), _) => Ok(given),
            (None, _) if !is_asked(name) => Ok(default),
            (None, Source::Terminal) => Input::new()
                .with_prompt(question)
                .default(default)
                .interact_text()
                .with_context(|| format!("{name} was not answered")),
            (None, Source::Defaults) => {
                defaulted.push(format!("{name} {default}"));
                Ok(default)
            }
        }
    };
    let to_u64 = |count: Option<usize>| count.map(|count| count as u64);
    let reads = number(args.reads.map(u64::from), READS_PCT.into(), "--reads", "Percentage of reads")?;
    let connections = number(to_u64(args.connections), CONNECTIONS as u64, "--connections", "Concurrent connections")?;
    let payload = number(to_u64(args.payload), PAYLOAD as u64, "--payload", "Characters of a description")?;
    let keys = number(args.keys, KEYS, "--keys", "Entities")?;
    let cores = number(to_u64(args.cores), default_cores as u64, "--cores", "Cores of the server")?;
    let mut choice = |given: Option<bool>, default: bool, [flag, question]: [&str; 2]| match (given, &source) {
        (Some(given), _) => Ok(given),
        (None, _) if !is_asked(flag) => Ok(default),
        (None, Source::Terminal) => {
            let answer = Confirm::new().with_prompt(question).default(default).interact();
            answer.with_context(|| format!("{flag} was not answered"))
        }
        (None, Source::Defaults) => {
            defaulted.push(format!("{flag} {default}"));
            Ok(default)
        }
    };
    let keep_alive = choice(args.keep_alive, KEEP_ALIVE, ["--keep-alive", "Are connections kept for many requests?"])?;
    let durable = choice(args.durable, false, ["--durable", "Must answered writes survive the end of the process?"])?;
    let several_machines = match (args.machines, &source) {
        (Some(several), _) => several,
        (None, _) if service.is_some() => false,
        (None, Source::Terminal) => {
            let question = Confirm::new().with_prompt("Is one machine enough?").default(true);
            !question.interact().context("--machines was not answered")?
        }
        (None, Source::Defaults) => {
            defaulted.push(String::from("--machines one"));
            false
        }
    };
    let entities = if service.is_some() { &Source::Defaults } else { &source };
    let wait = ["--wait", "How long does a request wait for another service? (0s, 5ms)", "0s"];
    let wait = limit(args.wait, entities, wait, time)?;
    let p99 = ["--p99", "Max latency of 99 % of the requests? (none, 10ms)", NONE];
    let p99 = limit(args.p99.or(args.goal), &source, p99, time)?;
    let memory = ["--store-memory", "Max memory for the entities? (none, 64MiB)", NONE];
    let memory = limit(args.memory.store_memory, entities, memory, bytes)?;
    if matches!(source, Source::Defaults) {
        defaulted.extend((service.is_none() && args.wait.is_none()).then(|| String::from("--wait 0s")));
        defaulted.extend(p99.is_none().then(|| String::from("no --p99")));
        let no_memory = service.is_none() && args.memory.store_memory.is_none();
        defaulted.extend(no_memory.then(|| String::from("no --store-memory")));
    }
    if payload > LARGEST_PAYLOAD as u64 {
        return Err(Misuse(format!("--payload {payload} is more than {LARGEST_PAYLOAD}")).into());
    }
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    let to_usize =
        |number: u64, flag: &str| usize::try_from(number).map_err(|_| Misuse(format!("{flag} {number} is too many")));
    let workload = Workload {
        service: service.map(|service| (service.name.clone(), service.to_string())),
        reads_pct: u32::try_from(reads)
            .ok()
            .filter(|reads| *reads <= 100)
            .ok_or_else(|| Misuse(format!("--reads {reads} is not from 0 to 100")))?,
        connections: to_usize(connections, "--connections")?,
        keep_alive,
        wait_ms: milliseconds(wait.unwrap_or(Duration::ZERO)),
        blocking_wait_ms: milliseconds(args.blocking_wait.unwrap_or(Duration::ZERO)),
        cpu_ms: milliseconds(args.cpu_per_request.unwrap_or(Duration::ZERO)),
        rate_per_s: args.rate.map(f64::from),
        payload_bytes: to_usize(payload, "--payload")?,
        keys,
        cores: to_usize(cores, "--cores")?,
        p99_goal_ms: p99.map(milliseconds),
        memory_limit_bytes: memory,
        durable,
        several_machines,
    };
    Ok((workload, defaulted))
}

/// The answer that sets no limit.
const NONE: &str = "none";

/// Returns what was given or answered; `None` without a limit. `flag` is named if there is no answer.
fn limit<T>(
    given: Option<T>,
    source: &Source,
    [flag, question, default]: [&str; 3],
    parse: fn(&str) -> Result<T, &'static str>,
) -> anyhow::Result<Option<T>> {
    let (None, Source::Terminal) = (&given, source) else { return Ok(given) };
    let parse = |text: &str| if text == NONE { Ok(None) } else { parse(text).map(Some) };
    let answer: String = Input::new()
        .with_prompt(question)
        .default(default.to_owned())
        .validate_with(|text: &String| parse(text).map(drop))
        .interact_text()
        .with_context(|| format!("{flag} was not answered"))?;
    parse(&answer).map_err(|expected| Misuse(format!("{flag} {answer}: {expected}")).into())
}
