//! Recording: clients run a workload at the same time, and record when each operation was called and had returned.
//!
//! Invariant: an operation is stamped before it is sent and after its answer has come, by one monotonic clock. So the
//! stamps never imply an order that did not exist.
//!
//! Cost: two readings of the clock and 48 bytes for each operation.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::sync::lock;
use polyserve_core::{Answer, EntityRepo, Lookup, RepoError};

use super::value::{entity, value_of};
use super::{Action, Operation, ReadValue};
use crate::repo::lockstep_within;

/// An operation to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A get.
    Get,
    /// A put of this value.
    Put(u64),
    /// A removal.
    Remove,
}

/// An answer that is wrong by itself, without the history of other operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongAnswer(pub String);

impl fmt::Display for WrongAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongAnswer {}

/// The operations of a recording: half are gets, three in ten are puts, two in ten are removes, of keys drawn evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordingWorkload {
    /// The number of operations of all clients together.
    pub operations: u64,
    /// The number of keys, at least 1.
    pub keys: u64,
    /// The first key. The others follow it.
    pub first_key: i64,
    /// The seed of the random draws.
    pub seed: u64,
}

impl RecordingWorkload {
    /// The operation of this number, for any client. Puts with different numbers have different values.
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

/// The first number that SplitMix64 (Steele, Lea and Flood, 2014) draws from a seed. Different seeds give different
/// numbers, and near seeds give unrelated ones. Costs two multiplications.
#[inline]
pub fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The progress of a recording, and a request to end it early.
#[derive(Debug, Default)]
pub struct RecordingControl {
    done: AtomicU64,
    stop: AtomicBool,
}

impl RecordingControl {
    /// The number of operations that are complete.
    pub fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    /// Ends the recording: every client completes its current operation.
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

/// The result of a recording.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// All operations, also if the recording ended early.
    pub operations: Vec<Operation>,
    /// The first wrong answers, at most one for each client. They ended the recording.
    pub wrong: Vec<WrongAnswer>,
    /// The duration of the recording.
    pub took: Duration,
}

/// The number of lost answers in a row after which a client stops. [`LATE`] is the number of late answers.
const LOST: u32 = 1000;
const LATE: u32 = 3;

/// The answers that a client has lost since the last answer that came.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Losses {
    lost: u32,
    late: u32,
}

impl Losses {
    /// Counts one more. Returns an error if there are too many for a history.
    pub(super) fn add(&mut self, why: &str, late: bool) -> Result<(), WrongAnswer> {
        self.lost += 1;
        self.late += u32::from(late);
        if self.lost < LOST && self.late < LATE {
            return Ok(());
        }
        Err(WrongAnswer(format!("{} answers were lost one after the other; the last: {why}", self.lost)))
    }
}

/// The number of operations between two rendezvous of the clients: about ten microseconds of work, so that a client
/// that starts late still overlaps with the others.
const BURST: u64 = 512;

/// An operation with a number that is divisible by this yields the processor between its stamp and its call. So operations of
/// a fast store also overlap if the clients share a processor.
const YIELD_EVERY: u64 = 64;

/// Records the clients of a repo, on a thread each.
///
/// The clients wait for each other every few hundred operations. Otherwise clients on few cores would run one after the
/// other.
///
/// # Panics
///
/// Panics if the repo does.
pub fn record_in_process(
    repo: &Arc<dyn EntityRepo>,
    workload: &RecordingWorkload,
    clients: u32,
    control: &RecordingControl,
) -> Recording {
    record_within(PATIENCE, repo, workload, clients, control)
}

/// Records the clients of a repo, with a max wait for an answer.
pub(super) fn record_within(
    patience: Duration,
    repo: &Arc<dyn EntityRepo>,
    workload: &RecordingWorkload,
    clients: u32,
    control: &RecordingControl,
) -> Recording {
    let start = Instant::now();
    let count = workload.operations;
    let losses: Vec<Mutex<Losses>> = (0..clients.max(1)).map(|_| Mutex::default()).collect();
    let steps = count.div_ceil(BURST * u64::from(clients.max(1)));
    let steps = lockstep_within(Duration::MAX, clients.max(1) as usize, steps as usize, |client, step| {
        if control.is_stopped() {
            return Ok(Vec::new());
        }
        let first = (step as u64 * u64::from(clients) + client as u64) * BURST;
        let numbers = first..(first + BURST).min(count);
        let mut asker = RepoClient { repo: &**repo, patience, control, losses: *lock(&losses[client]) };
        let done = asker.burst(workload, numbers, client as u32, start);
        *lock(&losses[client]) = asker.losses;
        match &done {
            Ok(operations) => control.count(operations.len() as u64),
            Err(_) => control.stop(),
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

/// Nanoseconds since `start`.
pub(super) fn nanos(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The longest wait for a repo's answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client of a repo.
pub(crate) struct RepoClient<'a> {
    repo: &'a dyn EntityRepo,
    patience: Duration,
    control: &'a RecordingControl,
    losses: Losses,
}

impl<'a> RepoClient<'a> {
    /// Creates a client with no lost answers.
    pub(crate) fn new(repo: &'a dyn EntityRepo, control: &'a RecordingControl) -> Self {
        Self { repo, patience: PATIENCE, control, losses: Losses::default() }
    }

    /// Runs the operations of these numbers, on a clock that began at `start`. Returns fewer if the recording is
    /// ended.
    pub(crate) fn burst(
        &mut self,
        workload: &RecordingWorkload,
        numbers: Range<u64>,
        process: u32,
        start: Instant,
    ) -> Result<Vec<Operation>, WrongAnswer> {
        let mut operations = Vec::with_capacity(numbers.end.saturating_sub(numbers.start) as usize);
        for number in numbers {
            if self.control.is_stopped() {
                break;
            }
            let (key, call) = workload.step(number);
            let called = nanos(start);
            if number % YIELD_EVERY == 0 {
                thread::yield_now();
            }
            let action = self.ask(key, call)?;
            operations.push(Operation { process, key, action, called, returned: nanos(start) });
        }
        Ok(operations)
    }

    fn ask(&mut self, key: i64, call: Call) -> Result<Action, WrongAnswer> {
        match call {
            Call::Get => {
                let mut visited = None;
                let answer = self.repo.get(&key, &mut |shown| visited = Some(value_of(key, shown)));
                let value = match self.settled(answer)? {
                    None => return Ok(Action::Get(None)),
                    Some(Lookup::Absent) => return Ok(Action::Get(Some(ReadValue::Absent))),
                    Some(Lookup::Fetched(entity)) => value_of(key, entity.as_ref()),
                    Some(Lookup::Visited) => match visited {
                        Some(value) => value,
                        None => Err(WrongAnswer(format!("a get of {key} answers Visited without a visit"))),
                    },
                };
                value.map(|value| Action::Get(Some(ReadValue::Value(value))))
            }
            Call::Put(value) => {
                let answer = self.repo.put(entity(key, value));
                Ok(Action::Put(value, self.settled(answer)?))
            }
            Call::Remove => {
                let answer = self.repo.remove(&key);
                Ok(Action::Remove(self.settled(answer)?))
            }
        }
    }

    /// Returns the result of an answer. `None` if the answer does not come or is an error: the operation may have taken
    /// effect or not.
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
