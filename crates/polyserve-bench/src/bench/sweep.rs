//! The settings that vary in an experiment. A cell has a value for each of them.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::claim::AxisValue;
use crate::report::figures::count;

/// A setting that can vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SweepAxis {
    /// Concurrent connections.
    Connections,
    /// Stored entities.
    Keys,
    /// Workers of the servers, or threads at a store.
    Workers,
    /// Bytes of an entity's description.
    Payload,
    /// Pipelined requests of a connection.
    Pipeline,
    /// Requests a second at the fixed rate.
    Rate,
    /// The fixed rate in per cent of the null server's throughput.
    RatePercent,
    /// The number of the servers' cores, of those that the command may use for them.
    ServerCores,
    /// The method of all requests, in place of the mix: `get` or `put`.
    Method,
    /// The distribution of the ids, a word.
    Dist,
    /// Stores: the operation, a word.
    Operation,
    /// Tasks at once, in the mode `tasks`.
    Tasks,
    /// Tasks of a batch, in the mode `tasks`; 0 if all are in one. Numbers of tasks that are no larger multiple have no batches.
    Series,
    /// The source of the page, in the mode `page`: `memory` or `file`.
    Source,
    /// The goal of a search: the max p99, in microseconds.
    GoalUs,
    /// The behaviour of a crowd, a word.
    Behaviour,
    /// The connections of a crowd.
    Held,
    /// The use of connections, in the mode `scenario`: `burst`, `close` or `keep-alive`.
    ConnectionUse,
    /// The offered load in per cent of the server's capacity, in the mode `overload`.
    LoadPercent,
    /// The overload policy, in the mode `overload`: `none`, or a word of `serve --overload`.
    Overload,
}

/// A value of an axis.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged, expecting = "a number or a word")]
pub enum CellValue {
    /// A number.
    Number(u64),
    /// A word.
    Word(String),
}

/// A combination of the sweep's values. It is empty without a sweep.
pub type SweepCell = BTreeMap<SweepAxis, CellValue>;

/// A cell without these axes.
pub(super) fn without(cell: &SweepCell, axes: &[SweepAxis]) -> SweepCell {
    cell.iter().filter(|(axis, _)| !axes.contains(axis)).map(|(axis, value)| (*axis, value.clone())).collect()
}

/// The axes that vary, and their values.
pub(crate) type Sweep = BTreeMap<SweepAxis, Vec<CellValue>>;

/// The values of an axis in words: `1, 64 or 1,000`. `fixed` is the value of an axis that does not vary.
pub(super) fn in_words(sweep: &Sweep, axis: SweepAxis, fixed: impl Into<CellValue>) -> String {
    let fixed = [fixed.into()];
    let values = sweep.get(&axis).map_or(&fixed[..], Vec::as_slice);
    let mut words = values.iter().map(|value| match value {
        CellValue::Number(number) => count(*number as f64),
        CellValue::Word(word) => word.clone(),
    });
    let last = words.next_back().unwrap_or_default();
    let before = words.collect::<Vec<_>>().join(", ");
    if before.is_empty() { last } else { format!("{before} or {last}") }
}

/// As in a definition.
impl fmt::Display for SweepAxis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl SweepAxis {
    /// The axis of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        serde_json::from_value(name.into()).ok()
    }

    /// The least number of the axis.
    pub(crate) fn least(self) -> u64 {
        u64::from(self != Self::Series)
    }

    /// Whether its values are words.
    pub(crate) fn has_words(self) -> bool {
        matches!(
            self,
            Self::Method
                | Self::Dist
                | Self::Operation
                | Self::Source
                | Self::Behaviour
                | Self::ConnectionUse
                | Self::Overload
        )
    }
}

impl CellValue {
    /// The number; `None` for a word.
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Word(_) => None,
        }
    }

    /// The word; an empty text for a number.
    pub fn word(&self) -> &str {
        match self {
            Self::Number(_) => "",
            Self::Word(word) => word,
        }
    }

    /// The value that the word stands for; `None` if it stands for none.
    pub fn word_as<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_value(self.word().into()).ok()
    }
}

impl From<u64> for CellValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for CellValue {
    fn from(word: &str) -> Self {
        Self::Word(word.to_owned())
    }
}

impl From<&CellValue> for AxisValue {
    fn from(value: &CellValue) -> Self {
        match value {
            CellValue::Number(number) => Self::Number(*number as f64),
            CellValue::Word(word) => Self::Text(word.clone()),
        }
    }
}

impl fmt::Display for CellValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Word(word) => f.write_str(word),
        }
    }
}
