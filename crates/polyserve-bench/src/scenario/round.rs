//! One round: a new server over a new store, the clients, a check of the final state, and the end of the server.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use polyserve::Shutdown;
use polyserve_conformance::client::{Client, Response};
use serde::Deserialize;

use crate::data::EntityVersion;
use crate::launch::Launch;
use crate::launch::drain::DrainCounts;
use crate::launch::process::Process;
use crate::limits;
use crate::machine::Cores;

use super::client::{
    self, ClientTally, ConnectionMode, ConnectionPolicy, Errors, MAX_WAIT, RoundShared, ask, together,
};
use super::outcome::{FinalState, RoundOutcome};
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

/// Runs one round against a server. `is_single`: it serves one connection at a time.
///
/// # Errors
///
/// Returns an error if the round cannot be run at all, or if `stop` begins before its end. The outcome has the errors of
/// the server.
pub fn run(
    (launch, is_single): (&Launch, bool),
    scenario: &Scenario,
    mode: ConnectionMode,
    stop: &Shutdown,
) -> anyhow::Result<RoundOutcome> {
    let cores = Cores::available().context("the cores of this machine are not known")?;
    let process = Process::start(launch, &cores).context("it cannot be started")?;
    let (ledger, errors) = (Ledger::new(scenario), Errors::until(stop.clone()));
    let may_refuse = matches!(mode, ConnectionMode::Burst(..));
    let shared = RoundShared {
        scenario,
        addr: process.addr(),
        ledger: &ledger,
        may_refuse,
        ports: limits::ports(),
        errors: &errors,
    };
    let checkers = if may_refuse || is_single { 1 } else { CHECK_CONNECTIONS };
    let fill_answers = fill(&shared, checkers)?;
    let groups = match mode {
        ConnectionMode::Groups(connections, clients) => grouped(&shared, connections, clients)?,
        ConnectionMode::Burst(size, threads) => bursts(&shared, size, threads)?,
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
    Ok(RoundOutcome::new(mode, groups, final_state, store_count, drain, answers, &errors))
}

/// Fills the store over HTTP, on this number of connections. Returns the number of answers.
fn fill(shared: &RoundShared<'_>, connections: usize) -> anyhow::Result<u64> {
    let next = AtomicU64::new(0);
    let worker = |_start| {
        let (mut tally, mut kept) = (ClientTally::default(), None);
        loop {
            let id = next.fetch_add(1, Ordering::Relaxed);
            if id >= shared.scenario.ids() || shared.errors.is_hopeless() {
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
fn grouped(
    shared: &RoundShared<'_>,
    connections: ConnectionPolicy,
    clients: usize,
) -> anyhow::Result<[ClientTally; 3]> {
    let next = [const { AtomicU64::new(0) }; 3];
    let clients = RequestGroup::ALL.iter().flat_map(|phase| std::iter::repeat_n(*phase, clients));
    let works = clients.map(|phase| {
        let next = &next[phase as usize];
        move |start| (phase, client::run(shared, phase, next, connections, start))
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
    let (next, ids) = (AtomicU64::new(0), shared.scenario.ids() * 2);
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
        final_state.add(&checked);
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
