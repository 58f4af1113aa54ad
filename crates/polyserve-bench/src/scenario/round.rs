//! One round and its outcome: a new server over a new store, the clients, a check of the final state, and the end of the server.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use polyserve::Shutdown;
use polyserve_conformance::client::{Client, Response};
use serde::{Deserialize, Serialize};

use crate::data::EntityVersion;
use crate::launch::Launch;
use crate::launch::drain::DrainCounts;
use crate::launch::process::Process;
use crate::limits;
use crate::machine::Cores;

use super::client::{self, ClientTally, Errors, MAX_WAIT, RoundShared, ask, together};
use super::requests::{RequestGroup, Scenario, StressRequest};
use super::verify::{self, Ledger};

/// The number of connections that check the final state, or fill a store.
const CHECK_CONNECTIONS: usize = 8;

/// The last line of a server's output: its counts, and its store's count of entities. A count that a server does not print is not
/// known.
#[derive(Clone, Copy, Debug, Deserialize)]
struct LastLine {
    #[serde(flatten)]
    counts: DrainCounts,
    entities: Option<u64>,
}

/// The outcome of a round.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoundOutcome {
    /// The number of concurrent connections.
    pub connections_at_once: u64,
    /// The groups, in the order of [`RequestGroup::ALL`], and the total.
    pub groups: Vec<GroupOutcome>,
    /// The number of connections that were opened.
    pub connections: u64,
    /// Idle connections that the server had closed before the next request, which was sent again.
    pub reconnects: u64,
    /// The final state of the store.
    pub final_state: FinalState,
    /// The number of entities by the store's own count; `None` if the server does not print it.
    pub store_count: Option<u64>,
    /// The server's own counts at its end; `None` if it does not report them.
    pub drain: Option<DrainCounts>,
    /// The number of whole answers that the clients counted. The server's count must be the same.
    pub answers: u64,
    /// The number of errors.
    pub error_count: u64,
    /// The first few errors.
    pub errors: Vec<String>,
}

/// A group of requests of a round. The columns are as published.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupOutcome {
    /// `put-new`, `get`, `put-update` or `total`.
    pub phase: String,
    /// The number of requests.
    pub samples: u64,
    /// The number of requests without a right answer.
    pub errors: u64,
    /// The share of requests without a right answer, in per cent.
    pub error_pct: f64,
    /// The number of requests that were rejected by a 503, if that is a right answer.
    pub refused: u64,
    /// Requests per second, from the start to the group's last answer.
    pub requests_per_s: f64,
    /// Received bytes, in units of 1024 bytes per second.
    #[serde(rename = "received_kB_s")]
    pub received_kb_s: f64,
    /// Sent bytes, in units of 1024 bytes per second.
    #[serde(rename = "sent_kB_s")]
    pub sent_kb_s: f64,
}

/// The final state of the store, seen over HTTP.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FinalState {
    /// The number of ids that were looked up.
    pub checked: u64,
    /// The number of ids that were present.
    pub present: u64,
    /// The number of ids with a wrong or lost entity.
    pub wrong: u64,
}

impl GroupOutcome {
    fn new(phase: &'static str, tally: &ClientTally) -> Self {
        let per_second = |count: u64| if tally.took.is_zero() { 0.0 } else { count as f64 / tally.took.as_secs_f64() };
        Self {
            phase: phase.to_owned(),
            samples: tally.samples,
            errors: tally.errors,
            error_pct: if tally.samples == 0 { 0.0 } else { tally.errors as f64 / tally.samples as f64 * 100.0 },
            refused: tally.refused,
            requests_per_s: per_second(tally.samples),
            received_kb_s: per_second(tally.received) / 1024.0,
            sent_kb_s: per_second(tally.sent) / 1024.0,
        }
    }
}

/// How a round uses connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScenarioConnections {
    /// One group after the other, each with the connections of all its requests at once, up to the limit on descriptors. A 503
    /// with a `Retry-After` is then a right answer.
    #[default]
    Burst,
    /// All groups at once, and a connection for every request.
    Close,
    /// All groups at once, on kept connections.
    KeepAlive,
}

/// Runs one round against a server, with this number of connections for each group. A burst has at most `max_burst`, of three
/// times as many clients. `is_single`: it serves one connection at a time. Returns an error if the round cannot be run at all,
/// or if `stop` begins before its end. The outcome has the errors of the server.
pub(crate) fn run(
    (launch, is_single): (&Launch, bool),
    scenario: &Scenario,
    (connection_use, connections, max_burst): (ScenarioConnections, usize, u64),
    stop: &Shutdown,
) -> anyhow::Result<RoundOutcome> {
    let cores = Cores::available().context("the cores of this machine are not known")?;
    let process = Process::start(launch, &cores).context("it cannot be started")?;
    let (ledger, errors) = (Ledger::new(scenario), Errors::until(stop.clone()));
    let may_refuse = connection_use == ScenarioConnections::Burst;
    let shared = RoundShared {
        scenario,
        addr: process.addr,
        ledger: &ledger,
        may_refuse,
        ports: limits::ports(),
        errors: &errors,
    };
    let checkers = if may_refuse || is_single { 1 } else { CHECK_CONNECTIONS };
    let fill_answers = fill(&shared, checkers)?;
    let (groups, connections_at_once) = match connection_use {
        ScenarioConnections::Burst => {
            let groups = bursts(&shared, max_burst, connections * 3)?;
            (groups, groups.iter().map(|group| group.samples.min(max_burst)).max().unwrap_or(0))
        }
        _ => {
            let keeps_alive = connection_use == ScenarioConnections::KeepAlive;
            (grouped(&shared, keeps_alive, connections)?, connections as u64 * 3)
        }
    };
    let (final_state, check_tally) =
        if errors.is_hopeless() { Default::default() } else { check_final_state(&shared, checkers)? };
    let last_line: Option<LastLine> = match process.end() {
        Ok(last) => last.and_then(|line| serde_json::from_str(&line).ok()),
        Err(failure) => {
            errors.note(|| failure.to_string());
            None
        }
    };
    if stop.is_begun() {
        bail!("the round was interrupted"); // and the server's counts can be incomplete
    }
    let store_count = last_line.and_then(|line| line.entities);
    if let Some(len) = store_count.filter(|len| *len != final_state.present && final_state.wrong == 0) {
        errors.note(|| format!("the store reports {len} entities, and {} were found", final_state.present));
    }
    let drain = last_line.map(|line| line.counts);
    let answers = groups.iter().map(|group| group.answers).sum::<u64>() + check_tally.answers + fill_answers;
    if let Some(DrainCounts { answered, cut, stuck }) = drain {
        if answered != answers {
            errors.note(|| format!("the server counted {answered} answers, the clients {answers}"));
        }
        if (cut, stuck) != (0, 0) {
            errors.note(|| format!("the idle server did not drain cleanly: cut {cut}, stuck {stuck}"));
        }
    }
    let mut total = ClientTally::default();
    groups.iter().for_each(|group| total.add(group));
    if may_refuse {
        total.took = groups.iter().map(|group| group.took).sum(); // the groups run one after the other
    }
    let named = RequestGroup::ALL.iter().map(|phase| phase.name()).zip(&groups).chain([("total", &total)]);
    Ok(RoundOutcome {
        connections_at_once,
        groups: named.map(|(phase, tally)| GroupOutcome::new(phase, tally)).collect(),
        connections: total.connections,
        reconnects: total.reconnects,
        final_state,
        store_count,
        drain,
        answers,
        error_count: errors.count(),
        errors: errors.first(),
    })
}

/// Fills the store over HTTP, on this number of connections. Returns the number of answers.
fn fill(shared: &RoundShared<'_>, connections: usize) -> anyhow::Result<u64> {
    let next = AtomicU64::new(0);
    let worker = |_start| {
        let (mut tally, mut kept) = (ClientTally::default(), None);
        loop {
            let id = next.fetch_add(1, Ordering::Relaxed);
            if id >= shared.scenario.ids || shared.errors.is_hopeless() {
                return tally.answers;
            }
            let planned =
                StressRequest { phase: RequestGroup::PutNew, id: id.cast_signed(), version: EntityVersion::New };
            let request = shared.scenario.request(&planned, shared.addr, true);
            let check = |response: &Response| verify::answer(shared.scenario, &planned, response);
            if let Err(why) = ask(shared.addr, &mut kept, &request, &mut tally, check) {
                shared.errors.note(|| format!("before the start, PUT of {id}: {why}"));
            }
        }
    };
    Ok(together((0..connections).map(|_| worker))?.iter().sum())
}

/// Runs the three groups at the same time.
fn grouped(shared: &RoundShared<'_>, keeps_alive: bool, clients: usize) -> anyhow::Result<[ClientTally; 3]> {
    let next = [const { AtomicU64::new(0) }; 3];
    let clients = RequestGroup::ALL.iter().flat_map(|phase| std::iter::repeat_n(*phase, clients));
    let works = clients.map(|phase| {
        let next = &next[phase as usize];
        move |start| (phase, client::run(shared, phase, next, keeps_alive, start))
    });
    let mut tallies = [ClientTally::default(); 3];
    for (phase, tally) in together(works)? {
        tallies[phase as usize].add(&tally);
    }
    Ok(tallies)
}

/// Runs the three groups one after the other. Each sends its requests in bursts of up to `size` connections.
fn bursts(shared: &RoundShared<'_>, size: u64, clients: usize) -> anyhow::Result<[ClientTally; 3]> {
    let mut tallies = [ClientTally::default(); 3];
    for phase in RequestGroup::ALL {
        let (samples, sum) = (shared.scenario.samples(phase), &mut tallies[phase as usize]);
        let mut sent = 0;
        while sent < samples && !shared.errors.is_hopeless() {
            let count = size.min(samples - sent);
            let clients = (clients as u64).min(count);
            let works = (0..clients).map(|i| {
                let requests = sent + count * i / clients..sent + count * (i + 1) / clients;
                move |start| client::burst(shared, phase, requests, start)
            });
            let mut burst = ClientTally::default();
            for tally in together(works)? {
                burst.add(&tally.context("no thread for the requests of a client")?);
            }
            let elapsed = sum.took + burst.took; // bursts run one after the other
            sum.add(&burst);
            sum.took = elapsed;
            sent += count;
        }
    }
    Ok(tallies)
}

/// Gets every id, and checks its final state.
fn check_final_state(shared: &RoundShared<'_>, checkers: usize) -> anyhow::Result<(FinalState, ClientTally)> {
    let (next, ids) = (AtomicU64::new(0), shared.scenario.ids * 2);
    let worker = |_start| {
        let (mut tally, mut final_state, mut connection) = (ClientTally::default(), FinalState::default(), None);
        loop {
            let id = next.fetch_add(1, Ordering::Relaxed);
            if id >= ids || shared.errors.is_hopeless() {
                return (final_state, tally);
            }
            let id = id.cast_signed();
            final_state.checked += 1;
            match check_id(shared, id, &mut connection, &mut tally) {
                Ok(present) => final_state.present += u64::from(present),
                Err(why) => {
                    final_state.wrong += 1;
                    shared.errors.note(|| format!("in the end, {id}: {why}"));
                }
            }
        }
    };
    let (mut final_state, mut tally) = (FinalState::default(), ClientTally::default());
    for (checked, counted) in together((0..checkers).map(|_| worker))? {
        final_state.checked += checked.checked;
        final_state.present += checked.present;
        final_state.wrong += checked.wrong;
        tally.add(&counted);
    }
    Ok((final_state, tally))
}

/// Gets `id`. Returns true if it is present and right. Retries while the server rejects requests after a burst.
fn check_id(
    shared: &RoundShared<'_>,
    id: i64,
    connection: &mut Option<Client>,
    tally: &mut ClientTally,
) -> Result<bool, String> {
    const RETRY_DELAY: Duration = Duration::from_millis(50);
    let deadline = Instant::now() + MAX_WAIT;
    let request = format!("GET /{id} HTTP/1.1\r\nHost: {}\r\n\r\n", shared.addr);
    loop {
        let full = Cell::new(false);
        let check = |response: &Response| {
            full.set(response.status == 503);
            shared.ledger.check(shared.scenario, id, response)
        };
        let result = ask(shared.addr, connection, request.as_bytes(), tally, check);
        if !(full.get() && shared.may_refuse && Instant::now() < deadline) {
            return result;
        }
        thread::sleep(RETRY_DELAY);
    }
}
