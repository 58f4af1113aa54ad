//! Histories of concurrent operations: recorded from any repo or over HTTP, stored as JSON lines, and checked for
//! linearizability.
//!
//! A history is linearizable if each operation can be given one instant between its call and its return, so that all
//! answers are right in the order of those instants. Each key is a register with three operations:
//!
//! * `put` answers whether it created or replaced.
//! * `get` answers a value, or that there is none.
//! * `remove` answers whether there was a value.
//!
//! A put or a remove may have a condition: that there is no value, that there is one, or that there is this value. If the
//! condition does not hold, it changes nothing and answers that it was refused. A remove that finds no value answers so
//! under every condition.
//!
//! `len` is not part of a history. Every key is absent at the start.
//!
//! Keys are checked separately: a history is linearizable if the history of every key is (Herlihy and Wing,
//! "Linearizability: a correctness condition for concurrent objects", 1990).
//!
//! ```
//! use polyserve_conformance::history::{CheckVerdict, History, check};
//!
//! // The second client reads an old value after the first client's replacement has returned.
//! let text = r#"
//! {"process":0,"op":"put","key":1,"value":10,"call":100,"return":200,"outcome":"created"}
//! {"process":0,"op":"put","key":1,"value":11,"call":300,"return":400,"outcome":"replaced"}
//! {"process":1,"op":"get","key":1,"value":10,"call":500,"return":600,"outcome":"found"}
//! "#;
//! let history = History::read(text.as_bytes())?;
//! let CheckVerdict::NotLinearizable(violation) = check(&history) else { panic!("it passes") };
//! assert!(violation.to_string().contains("client 1's get saw 10"), "{violation}");
//! # Ok::<(), polyserve_conformance::history::ReadError>(())
//! ```
//!
//! # Format
//!
//! A line of JSON for each operation, in any order. Empty lines and further fields are skipped.
//!
//! | field | meaning |
//! |---|---|
//! | `process` | the client: a number from 0 |
//! | `op` | `get`, `put` or `remove` |
//! | `key` | the id |
//! | `value` | the value that was put, or that a `get` found: a number from 0; each `put` of a key has a value of its own |
//! | `condition` | of a `put` or a `remove`, if it has one: `"absent"`, `"present"`, or the value that must be there |
//! | `call` | nanoseconds since any one instant, before the operation was sent |
//! | `return` | the same clock, after its answer had come |
//! | `outcome` | of a `put` `created` or `replaced`; of a `get` `found` or `absent`; of a `remove` `removed` or `absent`; under a condition also `refused` |
//!
//! Any outcome may be `unknown`, and then `return` may be missing: the answer was lost, and the operation took effect
//! at any time after its call, or never. A 5xx status is such an outcome. The check does not use the condition of such an
//! operation.
//!
//! The first line may be a header about the recording: `{"kind":"header","format":1, ...}`.
//!
//! # Layout
//!
//! * `record` and `http` record; `entities` stores a value twice in an entity, so that a torn entity shows; `json` is the format.
//! * `check` is the checker; `plan` prepares operations for it; `search` is the search, with its limits, and explains its cost.
//! * `minimise` finds a few operations that cannot be ordered; `violation` shows them.

mod check;
mod entities;
mod http;
mod json;
mod minimise;
mod plan;
mod record;
mod search;
#[cfg(test)]
mod tests;
mod violation;

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use polyserve_core::{Conditional, Put, Removed};
use serde::{Deserialize, Serialize};

pub(crate) use self::check::outcome_of;
pub use self::check::{CheckVerdict, check, check_within};
pub use self::entities::{EntityForm, entity, value_of};
pub use self::http::{HttpTarget, first_answer, record_http};
pub use self::json::ReadError;
pub(crate) use self::record::{Bursts, MAX_WAIT};
pub use self::record::{
    CallCondition, Recording, RecordingControl, RecordingWorkload, WrongAnswer, mixed, record_in_process,
};
pub use self::search::{LimitExceeded, SearchLimits};
pub use self::violation::Violation;

/// What an operation asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// The entity.
    Get,
    /// That an entity with this value is stored.
    Put(u64),
    /// That the entity is removed.
    Remove,
}

/// The condition of a write, as values instead of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", expecting = "a condition is \"absent\", \"present\" or a value")]
pub enum Precondition {
    /// There is no entity.
    Absent,
    /// There is an entity.
    Present,
    /// There is an entity with this value.
    #[serde(untagged)]
    Value(u64),
}

/// The answer to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallAnswer {
    /// To a get: there was an entity with this value.
    Found(u64),
    /// To a get or a removal: there was no entity.
    Absent,
    /// To a put: there was no entity.
    Created,
    /// To a put: there was an entity.
    Replaced,
    /// To a removal: there was an entity.
    Removed,
    /// To a write: its condition did not hold.
    Refused,
}

impl From<Put> for CallAnswer {
    fn from(put: Put) -> Self {
        match put {
            Put::Created => Self::Created,
            Put::Replaced => Self::Replaced,
        }
    }
}

impl From<Removed> for CallAnswer {
    fn from(removed: Removed) -> Self {
        match removed {
            Removed::Removed => Self::Removed,
            Removed::Absent => Self::Absent,
        }
    }
}

impl<T: Into<Self>> From<Conditional<T>> for CallAnswer {
    fn from(written: Conditional<T>) -> Self {
        written.done().map_or(Self::Refused, Into::into)
    }
}

/// An operation of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The client.
    pub process: u32,
    /// The id that it reads or changes.
    pub key: i64,
    /// What it asks for.
    pub call: Call,
    /// The condition of a write, if it has one.
    pub condition: Option<Precondition>,
    /// Its answer. `None` if the answer was lost.
    pub answer: Option<CallAnswer>,
    /// When it was called, in nanoseconds since an instant that all operations of a history share.
    pub called: u64,
    /// When its answer had come. It has no meaning if the answer was lost.
    pub returned: u64,
}

impl Operation {
    /// Whether its answer was lost.
    pub fn is_unknown(&self) -> bool {
        self.answer.is_none()
    }

    /// The last instant at which it can have taken effect.
    fn end(&self) -> u64 {
        if self.is_unknown() { u64::MAX } else { self.returned }
    }

    /// The value that it puts, also if it was refused.
    fn put_value(&self) -> Option<u64> {
        if let Call::Put(value) = self.call { Some(value) } else { None }
    }

    /// The value that it read, or that its condition names.
    fn named_value(&self) -> Option<u64> {
        match (self.answer, self.condition) {
            (Some(CallAnswer::Found(value)), _) | (_, Some(Precondition::Value(value))) => Some(value),
            _ => None,
        }
    }

    /// The value that the key had right after it, if its answer shows that.
    fn shown_value(&self) -> Option<u64> {
        match (self.call, self.answer?) {
            (Call::Get, CallAnswer::Found(value)) | (Call::Put(value), CallAnswer::Created | CallAnswer::Replaced) => {
                Some(value)
            }
            _ => None,
        }
    }

    /// Returns why there is no such operation, if so.
    fn fault(&self) -> Option<String> {
        let op = self.call.word();
        if self.call == Call::Get && self.condition.is_some() {
            return Some(format!("a {op} has no condition"));
        }
        let answer = self.answer?;
        let fits = match answer {
            CallAnswer::Found(_) => self.call == Call::Get,
            CallAnswer::Absent => self.put_value().is_none(),
            CallAnswer::Created | CallAnswer::Replaced => self.put_value().is_some(),
            CallAnswer::Removed => self.call == Call::Remove,
            CallAnswer::Refused => self.condition.is_some(),
        };
        if !fits {
            return Some(format!("the outcome of a {op} is never {}", answer.word()));
        }
        let Self { called, returned, .. } = self;
        if returned < called {
            return Some(format!("it returned at {returned} ns, before its call at {called} ns"));
        }
        (*returned == u64::MAX)
            .then(|| format!("it returned at {returned} ns, which stands for never, and has an answer"))
    }
}

impl Call {
    fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put(_) => "put",
            Self::Remove => "remove",
        }
    }
}

impl CallAnswer {
    fn word(self) -> &'static str {
        match self {
            Self::Found(_) => "found",
            Self::Absent => "absent",
            Self::Created => "created",
            Self::Replaced => "replaced",
            Self::Removed => "removed",
            Self::Refused => "refused",
        }
    }
}

impl fmt::Display for Precondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("absent"),
            Self::Present => f.write_str("present"),
            Self::Value(value) => write!(f, "{value}"),
        }
    }
}

/// Valid operations of several clients on one clock.
#[derive(Clone, Debug, Default)]
pub struct History {
    operations: Vec<Operation>,
}

/// The maximum number of operations in a history: 1.25 GiB of them.
pub const MAX_OPERATIONS: usize = 1 << 24;

/// Why a list of operations is not a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidHistory {
    /// The place of the invalid operation, from 0.
    pub place: usize,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for InvalidHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {}: {}", self.place, self.why)
    }
}

impl std::error::Error for InvalidHistory {}

impl History {
    /// Makes a history of these operations, in any order.
    ///
    /// # Errors
    ///
    /// Returns an error in five cases: an operation has an answer or a condition that its call cannot have; it returns before
    /// its call; an answered operation returns at `u64::MAX`, which means never; a value is put twice under one key; or there
    /// are more than [`MAX_OPERATIONS`].
    pub fn new(operations: Vec<Operation>) -> Result<Self, InvalidHistory> {
        let mut put = HashSet::new();
        for (place, operation) in operations.iter().enumerate() {
            let invalid = |why| Err(InvalidHistory { place, why });
            if place == MAX_OPERATIONS {
                return invalid(format!("a history has at most {MAX_OPERATIONS} operations"));
            }
            if let Some(fault) = operation.fault() {
                return invalid(fault);
            }
            let key = operation.key;
            if let Some(value) = operation.put_value()
                && !put.insert((key, value))
            {
                let why =
                    format!("the value {value} is put under key {key} for the second time, and must tell puts apart");
                return invalid(why);
            }
        }
        Ok(Self { operations })
    }

    /// The operations.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The number of operations with a lost answer.
    pub fn unknown(&self) -> usize {
        self.operations.iter().filter(|operation| operation.is_unknown()).count()
    }

    /// The number of operations of each key.
    pub fn keys(&self) -> BTreeMap<i64, usize> {
        let mut keys = BTreeMap::new();
        self.operations.iter().for_each(|operation| *keys.entry(operation.key).or_insert(0) += 1);
        keys
    }

    /// The number of overlaps: for each operation, the number of other operations of its key that had begun and not
    /// returned when it was called. Operations without an answer are not counted.
    pub fn overlaps(&self) -> u64 {
        let mut by_key: Vec<&Operation> = self.operations.iter().collect();
        by_key.sort_unstable_by_key(|operation| (operation.key, operation.called));
        let mut overlaps = 0;
        for key in by_key.chunk_by(|one, other| one.key == other.key) {
            let mut open: Vec<u64> = Vec::new();
            for operation in key.iter().filter(|operation| !operation.is_unknown()) {
                open.retain(|returned| *returned >= operation.called);
                overlaps += open.len() as u64;
                open.push(operation.returned);
            }
        }
        overlaps
    }

    /// Returns why this history shows nothing about races, or `None` if it does show something. It shows nothing if it has
    /// no operation, if most operations have no answer, or if several clients took part and no two operations of a key
    /// overlap.
    ///
    /// Such a history is not evidence that a store is linearizable, even if it has an order.
    pub fn shows_nothing(&self) -> Option<String> {
        let (operations, unknown) = (self.operations.len(), self.unknown());
        if operations == 0 {
            return Some(String::from("the history has no operation"));
        }
        if unknown * 2 > operations {
            return Some(format!("{unknown} of {operations} operations were not answered"));
        }
        let mut clients = self.operations.iter().filter(|one| !one.is_unknown()).map(|one| one.process);
        let first = clients.next();
        let are_several = clients.any(|client| Some(client) != first);
        (are_several && self.overlaps() == 0)
            .then(|| String::from("no two operations of a key overlap: the history shows nothing about races"))
    }
}
