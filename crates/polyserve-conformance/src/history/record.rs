//! Recording: clients run a workload at the same time, and record when each operation was called and had returned.
//!
//! Invariant: an operation is stamped before it is sent and after its answer has come, by one monotonic clock. So the
//! stamps never imply an order that did not exist.
//!
//! Cost: two readings of the clock and 80 bytes for each operation.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::iter;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::sync::lock;
use polyserve_core::{Condition, ETag, EntityRef, EntityRepo, Lookup, RepoAnswer, Visit};

use super::entities::{entity, value_of};
use super::{Call, CallAnswer, Operation, Precondition};
use crate::repo::lockstep_within;

/// The condition of an operation to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallCondition {
    /// There is no entity.
    Absent,
    /// There is an entity.
    Present,
    /// The entity is the last one that the client has seen or put under this key, by its tag. A client that knows no entity
    /// uses [`CallCondition::Absent`].
    Seen,
}

impl CallCondition {
    /// The condition for a client that has `seen` this value last.
    pub(super) fn of_seen(self, seen: Option<u64>) -> Precondition {
        match self {
            Self::Absent => Precondition::Absent,
            Self::Present => Precondition::Present,
            Self::Seen => seen.map_or(Precondition::Absent, Precondition::Value),
        }
    }
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
/// With conditions, two in three puts and removes have one.
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
    /// Whether puts and removes have conditions. A server under test then needs entity tags.
    pub conditions: bool,
}

impl RecordingWorkload {
    /// The operation of this number, for any client: its key, its call and its condition. Puts with different numbers have
    /// different values.
    pub fn step(&self, number: u64) -> (i64, Call, Option<CallCondition>) {
        let drawn = mixed(mixed(self.seed) ^ number);
        let key = self.first_key.wrapping_add((drawn % self.keys.max(1)).cast_signed());
        // A tag of an entity that was just seen is the condition that most often decides a race, so it is drawn most often.
        let condition = match (drawn >> 48) % 12 {
            _ if !self.conditions => None,
            0..4 => Some(CallCondition::Seen),
            4..6 => Some(CallCondition::Absent),
            6..8 => Some(CallCondition::Present),
            _ => None,
        };
        match (drawn >> 32) % 10 {
            0..5 => (key, Call::Get, None),
            5..8 => (key, Call::Put(number + 1), condition),
            _ => (key, Call::Remove, condition),
        }
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

/// The number of lost answers in a row after which a client stops. [`MAX_LATE`] is the number of late answers.
const MAX_LOST: u32 = 1000;
const MAX_LATE: u32 = 3;

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
        if self.lost < MAX_LOST && self.late < MAX_LATE {
            return Ok(());
        }
        Err(WrongAnswer(format!("{} answers were lost one after the other; the last: {why}", self.lost)))
    }
}

/// The number of operations between two rendezvous of the clients: about ten microseconds of work, so that a client
/// that starts late still overlaps with the others.
pub(super) const BURST: u64 = 512;

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
    let operations = workload.operations;
    let bursts = Bursts { operations, burst: BURST, max_wait: MAX_WAIT, max_duration: Duration::MAX };
    bursts.record(&**repo, clients, control, |_| *workload).0
}

/// The bursts of a recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bursts {
    /// The number of operations of all clients.
    pub(crate) operations: u64,
    /// The number of operations of a client between two rendezvous.
    pub(crate) burst: u64,
    /// The max wait for an answer.
    pub(crate) max_wait: Duration,
    /// The max time of the recording.
    pub(crate) max_duration: Duration,
}

impl Bursts {
    /// Records clients. `workload` returns the workload of all clients from the operation with this number to the next rendezvous.
    /// Also returns why the first lost answer of a client was lost.
    pub(crate) fn record(
        self,
        repo: &dyn EntityRepo,
        clients: u32,
        control: &RecordingControl,
        workload: impl Fn(u64) -> RecordingWorkload + Sync,
    ) -> (Recording, Option<String>) {
        let Self { operations: count, burst, max_wait, max_duration } = self;
        let (start, clients) = (Instant::now(), clients.max(1));
        let new_client = |_| Mutex::new(RepoClient::new(repo, max_wait, control));
        let repo_clients: Vec<Mutex<RepoClient<'_>>> = (0..clients).map(new_client).collect();
        let of_step = burst * u64::from(clients);
        let steps = count.div_ceil(of_step) as usize;
        let steps = lockstep_within(max_duration, clients as usize, steps, |client, step| {
            if control.is_stopped() {
                return Ok(Vec::new());
            }
            let first_of_step = step as u64 * of_step;
            let first = first_of_step + client as u64 * burst;
            let numbers = first..(first + burst).min(count);
            let done = lock(&repo_clients[client]).burst(&workload(first_of_step), numbers, client as u32, start);
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
        (recording, repo_clients.iter().find_map(|client| lock(client).first_loss.take()))
    }
}

/// Nanoseconds since `start`.
pub(super) fn nanos(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The longest wait for a repo's answer.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(10);

/// A client of a repo.
struct RepoClient<'a> {
    repo: &'a dyn EntityRepo,
    max_wait: Duration,
    control: &'a RecordingControl,
    losses: Losses,
    /// The last value that it has seen or put under each key.
    seen: HashMap<i64, u64>,
    /// Why the first lost answer was lost.
    first_loss: Option<String>,
}

impl<'a> RepoClient<'a> {
    /// Creates a client with no lost answers.
    fn new(repo: &'a dyn EntityRepo, max_wait: Duration, control: &'a RecordingControl) -> Self {
        Self { repo, max_wait, control, losses: Losses::default(), seen: HashMap::new(), first_loss: None }
    }

    /// Runs the operations of these numbers, on a clock that began at `start`. Returns fewer if the recording is
    /// ended.
    fn burst(
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
            let (key, call, condition) = workload.step(number);
            let condition = condition.map(|condition| condition.of_seen(self.seen.get(&key).copied()));
            let called = nanos(start);
            if number % YIELD_EVERY == 0 {
                thread::yield_now();
            }
            let answer = self.ask(key, call, condition)?;
            let operation = Operation { process, key, call, condition, answer, called, returned: nanos(start) };
            if let Some(value) = operation.shown_value() {
                self.seen.insert(key, value);
            } else if answer == Some(CallAnswer::Removed) {
                self.seen.remove(&key);
            }
            operations.push(operation);
        }
        Ok(operations)
    }

    fn ask(
        &mut self,
        key: i64,
        call: Call,
        condition: Option<Precondition>,
    ) -> Result<Option<CallAnswer>, WrongAnswer> {
        let repo = self.repo;
        let condition = condition.map(|condition| match condition {
            Precondition::Absent => Condition::absent(),
            Precondition::Present => Condition::present(),
            Precondition::Value(value) => {
                Condition::matches(ETag::of_entity(&entity(key, value)).expect("it has a JSON form"))
            }
        });
        match (call, condition) {
            (Call::Get, _) => self.get(key),
            (Call::Put(value), None) => self.settled(repo.put(entity(key, value))),
            (Call::Put(value), Some(condition)) => self.settled(repo.put_if(entity(key, value), &condition)),
            (Call::Remove, None) => self.settled(repo.remove(&key)),
            (Call::Remove, Some(condition)) => self.settled(repo.remove_if(&key, &condition)),
        }
    }

    fn get(&mut self, key: i64) -> Result<Option<CallAnswer>, WrongAnswer> {
        let mut visited = None;
        let mut visit = |shown: EntityRef<'_>| visited = Some(value_of(key, shown));
        let answer = self.repo.get(&key, Visit::new(&mut |shown| visit(shown.to_owned().as_ref())));
        let value = match self.settled_as(answer)? {
            None => return Ok(None),
            Some(Lookup::Absent) => return Ok(Some(CallAnswer::Absent)),
            Some(Lookup::Fetched(entity)) => value_of(key, entity.as_ref()),
            Some(Lookup::Visited(_)) => visited.expect("a repo answers Visited only after the visit"),
        };
        Ok(Some(CallAnswer::Found(value?)))
    }

    fn settled(&mut self, answer: RepoAnswer<impl Into<CallAnswer>>) -> Result<Option<CallAnswer>, WrongAnswer> {
        Ok(self.settled_as(answer)?.map(Into::into))
    }

    /// Returns the result of an answer. `None` if the answer does not come or is an error: the operation may have taken
    /// effect or not.
    fn settled_as<T>(&mut self, answer: RepoAnswer<T>) -> Result<Option<T>, WrongAnswer> {
        match answer.wait_until(Instant::now() + self.max_wait) {
            Ok(Ok(result)) => {
                self.losses = Losses::default();
                Ok(Some(result))
            }
            Ok(Err(error)) => self.lost(with_sources(&error), false),
            Err(_) => self.lost(format!("nothing within {:?}", self.max_wait), true),
        }
    }

    fn lost<T>(&mut self, why: String, late: bool) -> Result<Option<T>, WrongAnswer> {
        self.losses.add(&why, late)?;
        self.first_loss.get_or_insert(why);
        Ok(None)
    }
}

/// The text of an error and of its sources.
fn with_sources(error: &dyn Error) -> String {
    let sources = iter::successors(error.source(), |error| Error::source(*error));
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
}
