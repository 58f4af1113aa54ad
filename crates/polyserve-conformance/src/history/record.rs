//! Recording: clients that run a script at the same time, and note when each operation was called and had returned.
//!
//! Invariant: an operation is stamped before it is sent and after its answer has come, by one monotonic clock, so that a
//! stamp never claims an order that there was not. Cost: two readings of the clock for each operation, and 48 bytes.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use polyserve_core::sync::lock;
use polyserve_core::{Answer, EntityRepo, Lookup, RepoError};

use super::value::{entity, value_of};
use super::{Action, Operation, ReadValue};
use crate::repo::lockstep_within;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A look.
    Get,
    /// A put of this value.
    Put(u64),
    /// A removal.
    Remove,
}

/// An answer that cannot be, whatever the order: it tells of one operation what a history tells of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongAnswer(pub String);

impl fmt::Display for WrongAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongAnswer {}

/// What the clients of a recording do: half are gets, three in ten are puts, two in ten are removes, of evenly drawn keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script {
    /// How many operations in all.
    pub operations: u64,
    /// How many keys, at least 1.
    pub keys: u64,
    /// The first of them; the others follow it.
    pub first_key: i64,
    /// What is drawn from.
    pub seed: u64,
}

impl Script {
    /// The operation of this number, whoever has its turn. Puts of different numbers have different values.
    pub fn step(&self, number: u64) -> (i64, Call) {
        let drawn = mixed(mixed(self.seed) ^ number);
        let key = self.first_key.wrapping_add((drawn % self.keys.max(1)).cast_signed());
        let call = match (drawn >> 32) % 10 {
            0..5 => Call::Get,
            5..8 => Call::Put(number + 1),
            _ => Call::Remove,
        };
        (key, call)
    }
}

/// The first number that SplitMix64 (Steele, Lea and Flood, 2014) draws of a seed: neighbours become unlike, and no two alike.
/// Costs two multiplications.
#[inline]
pub fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// How far a recording is, and whether it is to end early.
#[derive(Debug, Default)]
pub struct Watch {
    done: AtomicU64,
    stop: AtomicBool,
}

impl Watch {
    /// How many operations are over.
    pub fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    /// Ends it: every client ends the operation that it is at.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    pub(super) fn count(&self, operations: u64) {
        self.done.fetch_add(operations, Relaxed);
    }
}

/// What was recorded.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// All operations, also those before the recording ended early.
    pub operations: Vec<Operation>,
    /// The first answers that cannot be, at most one a client; they ended it.
    pub wrong: Vec<WrongAnswer>,
    /// How long it took.
    pub took: Duration,
}

/// Answers that a client loses one after the other before it takes whom it asks for gone; and of those that did not come in
/// time.
const LOST: u32 = 1000;
const LATE: u32 = 3;

/// The answers that a client has lost since the last one that came.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Losses {
    lost: u32,
    late: u32,
}

impl Losses {
    /// One more; too many make no history.
    pub(super) fn add(&mut self, why: &str, late: bool) -> Result<(), WrongAnswer> {
        self.lost += 1;
        self.late += u32::from(late);
        if self.lost < LOST && self.late < LATE {
            return Ok(());
        }
        Err(WrongAnswer(format!("{} answers were lost one after the other; the last: {why}", self.lost)))
    }
}

/// Operations that a client of a repo does between two meetings with the others: some ten microseconds of work, so that who
/// was late meets those who were not.
const BURST: u64 = 512;

/// Records the clients of a repo, a thread each. They meet every few hundred operations, and begin together from there: on
/// few cores they would otherwise do all that they have to one after the other.
///
/// # Panics
///
/// Where the repo does.
pub fn record_in_process(repo: &Arc<dyn EntityRepo>, script: &Script, clients: u32, watch: &Watch) -> Recording {
    record_within(PATIENCE, repo, script, clients, watch)
}

/// The same, where an answer is waited for so long.
pub(super) fn record_within(
    patience: Duration,
    repo: &Arc<dyn EntityRepo>,
    script: &Script,
    clients: u32,
    watch: &Watch,
) -> Recording {
    let start = Instant::now();
    let count = script.operations;
    let losses: Vec<Mutex<Losses>> = (0..clients.max(1)).map(|_| Mutex::default()).collect();
    let steps = count.div_ceil(BURST * u64::from(clients.max(1)));
    let steps = lockstep_within(Duration::MAX, clients.max(1) as usize, steps as usize, |client, step| {
        if watch.is_stopped() {
            return Ok(Vec::new());
        }
        let first = (step as u64 * u64::from(clients) + client as u64) * BURST;
        let numbers = first..(first + BURST).min(count);
        let mut asker = RepoClient { repo: &**repo, patience, watch, losses: *lock(&losses[client]) };
        let done = asker.burst(script, numbers, client as u32, start);
        *lock(&losses[client]) = asker.losses;
        match &done {
            Ok(operations) => watch.count(operations.len() as u64),
            Err(_) => watch.stop(),
        }
        done
    });
    let mut recording = Recording { took: start.elapsed(), ..Recording::default() };
    for done in steps.into_iter().flatten() {
        match done {
            Ok(operations) => recording.operations.extend(operations),
            Err(wrong) => recording.wrong.push(wrong),
        }
    }
    recording
}

/// Nanoseconds since then.
pub(super) fn nanos(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The longest that a repo's answer is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client of a repo.
pub(crate) struct RepoClient<'a> {
    repo: &'a dyn EntityRepo,
    patience: Duration,
    watch: &'a Watch,
    losses: Losses,
}

impl<'a> RepoClient<'a> {
    /// One that has lost nothing.
    pub(crate) fn new(repo: &'a dyn EntityRepo, watch: &'a Watch) -> Self {
        Self { repo, patience: PATIENCE, watch, losses: Losses::default() }
    }

    /// Does the operations of these numbers, on a clock that began at `start`; fewer where the recording is ended.
    pub(crate) fn burst(
        &mut self,
        script: &Script,
        numbers: Range<u64>,
        process: u32,
        start: Instant,
    ) -> Result<Vec<Operation>, WrongAnswer> {
        let mut operations = Vec::with_capacity(numbers.end.saturating_sub(numbers.start) as usize);
        for number in numbers {
            if self.watch.is_stopped() {
                break;
            }
            let (key, call) = script.step(number);
            let called = nanos(start);
            let action = self.ask(key, call)?;
            operations.push(Operation { process, key, action, called, returned: nanos(start) });
        }
        Ok(operations)
    }

    fn ask(&mut self, key: i64, call: Call) -> Result<Action, WrongAnswer> {
        match call {
            Call::Get => {
                let mut visited = None;
                let answer = self.repo.get(key, &mut |shown| visited = Some(value_of(key, shown)));
                let value = match self.settled(answer)? {
                    None => return Ok(Action::Get(None)),
                    Some(Lookup::Absent) => return Ok(Action::Get(Some(ReadValue::Absent))),
                    Some(Lookup::Fetched(entity)) => value_of(key, entity.as_ref()),
                    Some(Lookup::Visited) => match visited {
                        Some(value) => value,
                        None => Err(WrongAnswer(format!("a get of {key} says that it visited, and did not"))),
                    },
                };
                value.map(|value| Action::Get(Some(ReadValue::Value(value))))
            }
            Call::Put(value) => {
                let answer = self.repo.put(entity(key, value));
                Ok(Action::Put(value, self.settled(answer)?))
            }
            Call::Remove => {
                let answer = self.repo.remove(key);
                Ok(Action::Remove(self.settled(answer)?))
            }
        }
    }

    /// What the answer says; `None` where it is an error, which may have come before the effect or after it, or does not come.
    fn settled<T>(&mut self, answer: Answer<Result<T, RepoError>>) -> Result<Option<T>, WrongAnswer> {
        match answer.wait_until(Instant::now() + self.patience) {
            Ok(Ok(said)) => {
                self.losses = Losses::default();
                Ok(Some(said))
            }
            Ok(Err(error)) => self.losses.add(&error.to_string(), false).map(|()| None),
            Err(_) => self.losses.add(&format!("nothing within {:?}", self.patience), true).map(|()| None),
        }
    }
}
