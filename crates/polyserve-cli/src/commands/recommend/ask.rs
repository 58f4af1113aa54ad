//! What the workload is: from flags; for the rest from whoever sits at the terminal, or the defaults.

use std::io::{IsTerminal as _, stderr, stdin};
use std::time::Duration;

use anyhow::Context as _;
use dialoguer::{Confirm, Input};
use polyserve_lab::Misuse;
use polyserve_lab::machine::cores::Cores;
use polyserve_lab::recommend::Workload;
use polyserve_lab::recommend::workload::{CONNECTIONS, KEEP_ALIVE, KEYS, LARGEST_PAYLOAD, PAYLOAD, READS_PCT};

use super::RecommendArgs;

/// Where answers come from.
enum Asking {
    /// Somebody who sits there.
    Terminal,
    /// Nobody: what is not said is by default.
    Nobody,
}

/// The workload, and what of it was not said, in words.
///
/// # Errors
///
/// Where an answer is not possible, or the terminal is gone.
pub(super) fn workload(args: &RecommendArgs, available: &Cores, json: bool) -> anyhow::Result<(Workload, Vec<String>)> {
    let sits_there = stdin().is_terminal() && stderr().is_terminal() && !json && !args.defaults;
    let asking = if sits_there { Asking::Terminal } else { Asking::Nobody };
    let mut defaulted = Vec::new();
    let own = available.count().saturating_sub(1).max(1);
    let mut number = |given: Option<u64>, usual: u64, name: &str, question: &str| -> anyhow::Result<u64> {
        match (given, &asking) {
            (Some(given), _) => Ok(given),
            (None, Asking::Terminal) => Input::new()
                .with_prompt(question)
                .default(usual)
                .interact_text()
                .with_context(|| format!("{name} was not answered")),
            (None, Asking::Nobody) => {
                defaulted.push(format!("{name} {usual}"));
                Ok(usual)
            }
        }
    };
    let size = |count: Option<usize>| count.map(|count| count as u64);
    let reads = number(args.reads.map(u64::from), READS_PCT.into(), "--reads", "Reads, of a hundred requests")?;
    let connections = number(size(args.connections), CONNECTIONS as u64, "--connections", "Connections at a time")?;
    let payload = number(size(args.payload), PAYLOAD as u64, "--payload", "Characters of a description")?;
    let keys = number(args.keys, KEYS, "--keys", "Entities")?;
    let cores = number(size(args.cores), own as u64, "--cores", "Cores of the server")?;
    let keep_alive = match (args.keep_alive, &asking) {
        (Some(given), _) => given,
        (None, Asking::Terminal) => {
            let question = Confirm::new().with_prompt("Are connections kept for many requests?").default(KEEP_ALIVE);
            question.interact().context("--keep-alive was not answered")?
        }
        (None, Asking::Nobody) => {
            defaulted.push(format!("--keep-alive {KEEP_ALIVE}"));
            KEEP_ALIVE
        }
    };
    let wait = time(args.wait, &asking, "How long does a request wait for something else? (0s, 5ms)", "0s")?;
    let p99 = time(args.p99, &asking, "What should 99 % of the requests take at most? (none, 10ms)", "none")?;
    if matches!(asking, Asking::Nobody) {
        defaulted.extend(args.wait.is_none().then(|| String::from("--wait 0s")));
        defaulted.extend(args.p99.is_none().then(|| String::from("no --p99")));
    }
    if payload > LARGEST_PAYLOAD as u64 {
        return Err(Misuse(format!("--payload {payload} is more than {LARGEST_PAYLOAD}")).into());
    }
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    let small =
        |number: u64, flag: &str| usize::try_from(number).map_err(|_| Misuse(format!("{flag} {number} is too many")));
    let workload = Workload {
        reads_pct: u32::try_from(reads)
            .ok()
            .filter(|reads| *reads <= 100)
            .ok_or_else(|| Misuse(format!("--reads {reads} is not from 0 to 100")))?,
        connections: small(connections, "--connections")?,
        keep_alive,
        wait_ms: milliseconds(wait.unwrap_or(Duration::ZERO)),
        payload_bytes: small(payload, "--payload")?,
        keys,
        cores: small(cores, "--cores")?,
        p99_goal_ms: p99.map(milliseconds),
    };
    Ok((workload, defaulted))
}

/// A time that was given, or is asked for; none where it is neither, or answered so.
fn time(given: Option<Duration>, asking: &Asking, question: &str, usual: &str) -> anyhow::Result<Option<Duration>> {
    const NONE: &str = "none";
    let (None, Asking::Terminal) = (given, asking) else { return Ok(given) };
    let parsed = |text: &str| if text == NONE { Ok(None) } else { humantime::parse_duration(text).map(Some) };
    let answer: String = Input::new()
        .with_prompt(question)
        .default(usual.to_owned())
        .validate_with(|text: &String| parsed(text).map(drop).map_err(|error| error.to_string()))
        .interact_text()
        .with_context(|| format!("{question} was not answered"))?;
    Ok(parsed(&answer)?)
}
