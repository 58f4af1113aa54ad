//! Histories of concurrent operations: recorded around any repo or over HTTP, kept as JSON lines, and checked for
//! linearizability.
//!
//! A history is linearizable where every operation can be given one instant between its call and its return, so that all
//! answers are right in the order of those instants. Each key is a register of its own with three operations: `put`, which
//! says whether it created or replaced, `get`, which sees a value or that there is none, and `remove`, which says whether
//! there was something. `len` is not part of it. Every key is absent at the start.
//!
//! Keys are checked apart: a history is linearizable where that of every key is (Herlihy and Wing, "Linearizability: a
//! correctness condition for concurrent objects", 1990).
//!
//! ```
//! use polyserve_conformance::history::{History, CheckVerdict, check};
//!
//! // The second client reads an old value after the first one was told that a new one is there.
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
//! # The form
//!
//! A line of JSON for each operation, in any order; empty lines and further fields are skipped, so any source will do.
//!
//! | field | is |
//! |---|---|
//! | `process` | the client: a number from 0 |
//! | `op` | `get`, `put` or `remove` |
//! | `key` | the id |
//! | `value` | what was put, or what a `get` found: a number from 0; each `put` of a key has a value of its own |
//! | `call` | nanoseconds since any one instant, before the operation was sent |
//! | `return` | the same clock, after its answer had come |
//! | `outcome` | of a `put` `created` or `replaced`; of a `get` `found` or `absent`; of a `remove` `removed` or `absent` |
//!
//! Of any of them the outcome may be `unknown`, and then `return` may be left out: the answer was lost, and the operation
//! took effect at any time after its call, or never. An answer that says that the server failed (5xx) is none.
//!
//! The first line may be a header, which says what was recorded: `{"kind":"header","format":1, ...}`.
//!
//! # Layout
//!
//! `record`, `http`: who records; `json`: the form. `check`: the checker; `plan`: operations as its search takes them;
//! `search`: the search, and why it is quick. `minimise`: which few operations cannot be ordered; `violation`: how that is
//! shown. `value`: how an entity carries a value twice, so that one that was torn shows.

mod check;
mod http;
mod json;
mod minimise;
mod outcome;
mod plan;
mod record;
mod search;
#[cfg(test)]
mod tests;
mod value;
mod violation;

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use polyserve_core::{Put, Removed};

pub use self::check::{CheckVerdict, check, check_within};
pub use self::http::record_http;
pub use self::json::ReadError;
pub(crate) use self::outcome::judge;
pub(crate) use self::record::RepoClient;
pub use self::record::{Call, Recording, Script, Watch, WrongAnswer, mixed, record_in_process};
pub use self::search::{GaveUp, Limits};
pub use self::value::{entity, value_of};
pub use self::violation::Violation;

/// What a get saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadValue {
    /// Nothing was there.
    Absent,
    /// This value was.
    Value(u64),
}

/// What an operation was, and what its answer said; `None` where that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A look.
    Get(Option<ReadValue>),
    /// A put of this value.
    Put(u64, Option<Put>),
    /// A removal.
    Remove(Option<Removed>),
}

/// An operation of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The client.
    pub process: u32,
    /// The id that it was about.
    pub key: i64,
    /// What it was.
    pub action: Action,
    /// When it was called: nanoseconds since an instant that all operations of a history share.
    pub called: u64,
    /// When its answer had come. It means nothing where the answer was lost.
    pub returned: u64,
}

impl Operation {
    /// Whether its answer was lost.
    pub fn is_unknown(&self) -> bool {
        matches!(self.action, Action::Get(None) | Action::Put(_, None) | Action::Remove(None))
    }

    /// The last instant at which it may have taken effect.
    fn end(&self) -> u64 {
        if self.is_unknown() { u64::MAX } else { self.returned }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Get(_) => f.write_str("get"),
            Self::Put(value, _) => write!(f, "put {value}"),
            Self::Remove(_) => f.write_str("remove"),
        }
    }
}

impl Action {
    /// What the answer said.
    fn answer(self) -> String {
        match self {
            Self::Get(Some(ReadValue::Value(value))) => value.to_string(),
            Self::Put(_, Some(Put::Created)) => String::from("created"),
            Self::Put(_, Some(Put::Replaced)) => String::from("replaced"),
            Self::Remove(Some(Removed::Removed)) => String::from("removed"),
            Self::Get(Some(ReadValue::Absent)) | Self::Remove(Some(Removed::Absent)) => String::from("absent"),
            Self::Get(None) | Self::Put(_, None) | Self::Remove(None) => String::from("unknown"),
        }
    }
}

/// Operations of several clients on one clock, checked for sense.
#[derive(Clone, Debug, Default)]
pub struct History {
    operations: Vec<Operation>,
}

/// As many operations as a history may have: about 1 GiB of them.
pub const MAX_OPERATIONS: usize = 1 << 24;

/// What makes a list of operations no history: the place of the operation, from 0, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidHistory {
    /// The operation's place, from 0.
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
    /// The history of these operations, in any order.
    ///
    /// # Errors
    ///
    /// Where one returns before its call, or was answered at the instant that stands for never; where a value is put twice
    /// under one key, or there are more than [`MAX_OPERATIONS`].
    pub fn new(operations: Vec<Operation>) -> Result<Self, InvalidHistory> {
        let mut put = HashSet::new();
        for (place, operation) in operations.iter().enumerate() {
            let &Operation { key, action, called, returned, .. } = operation;
            let invalid = |why| Err(InvalidHistory { place, why });
            if place == MAX_OPERATIONS {
                return invalid(format!("a history has at most {MAX_OPERATIONS} operations"));
            }
            if !operation.is_unknown() && returned < called {
                return invalid(format!("it returned at {returned} ns, before its call at {called} ns"));
            }
            if !operation.is_unknown() && returned == u64::MAX {
                return invalid(format!("it returned at {returned} ns, which stands for never, and has an answer"));
            }
            if let Action::Put(value, _) = action
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

    /// How many of them have lost their answer.
    pub fn unknown(&self) -> usize {
        self.operations.iter().filter(|operation| operation.is_unknown()).count()
    }

    /// How many are about each key.
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

    /// Why this history shows nothing about races, if it does not: it has no operation, most operations have no answer, or
    /// several clients took part and no two operations of a key overlap.
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
