//! The rows that claims are judged by: the samples of any experiment in one form.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

/// The figures of a contestant in a cell and a round.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClaimRow {
    /// The contestant.
    pub contestant: String,
    /// The round, from 1.
    pub round: usize,
    /// The values of the axes.
    pub cell: BTreeMap<String, AxisValue>,
    /// The figures by name.
    pub figures: BTreeMap<String, f64>,
    /// The reason of missing figures.
    pub why: Option<String>,
}

/// A value of an axis.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum AxisValue {
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
}

impl ClaimRow {
    /// A row without figures.
    pub(crate) fn new(contestant: impl Into<String>, round: usize) -> Self {
        Self { contestant: contestant.into(), round, ..Self::default() }
    }

    /// A contestant without figures, and the reason.
    pub(crate) fn absent(contestant: impl Into<String>, why: impl Into<String>) -> Self {
        Self { why: Some(why.into()), ..Self::new(contestant, 0) }
    }

    /// The row at this value of an axis.
    #[must_use]
    pub(crate) fn at(mut self, axis: &str, value: impl Into<AxisValue>) -> Self {
        self.cell.insert(axis.to_owned(), value.into());
        self
    }

    /// The row with this figure; the same row if there is none.
    #[must_use]
    pub(crate) fn with(mut self, figure: &str, value: impl Into<Option<f64>>) -> Self {
        self.figures.extend(value.into().map(|value| (figure.to_owned(), value)));
        self
    }
}

impl From<&str> for AxisValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<f64> for AxisValue {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl fmt::Display for AxisValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}
