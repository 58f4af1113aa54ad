//! Claims as they stand in a TOML file, and the rows that they are judged by: the samples of any experiment in one form.
//!
//! Invariant: an unknown key, rule or kind of value is an error, which names the file, the line and the key.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use super::cells::{FullClient, MIN_CELL_ROUNDS};
use super::rule::Rule;
use crate::bench::pattern::matches;
use crate::experiment::first_of;
use crate::statistics::MIN_ROUNDS;

/// The claims of one article. They share one error of 5 %.
#[derive(Clone, Debug)]
pub(crate) struct ClaimSet {
    /// The experiment.
    pub name: String,
    /// The contestant with a second entry: what differs between its two entries is noise. A right side with a second entry of its
    /// own has its own noise.
    pub baseline: Option<String>,
    /// The claims, in their order.
    pub claims: Vec<ClaimDefinition>,
}

/// A claim.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimDefinition {
    /// The claim, in one sentence.
    pub text: String,
    /// The name of the figure that decides it.
    #[serde(default)]
    pub figure: String,
    /// The contestants that the claim is about.
    #[serde(default)]
    pub left: Names,
    /// The contestant that they are compared with. Without it, the figures themselves are judged; with
    /// [`right_where`](Self::right_where), those of the same contestant at two cells.
    pub right: Option<String>,
    /// The cells that count.
    #[serde(default, rename = "where")]
    pub conditions: CellConditions,
    /// The cells of the left side, in addition to [`conditions`](Self::conditions).
    #[serde(default)]
    pub left_where: CellConditions,
    /// The cells of the right side, in addition to [`conditions`](Self::conditions).
    #[serde(default)]
    pub right_where: CellConditions,
    /// The rule that judges the figures.
    pub rule: Rule,
    /// The axes along which each value counts as a round. A ratio is otherwise of the rounds at one cell, and a claim is about
    /// each cell.
    #[serde(default)]
    pub over: Vec<String>,
    /// Whether a difference counts only if the server was the bottleneck, not the client.
    #[serde(default)]
    pub server_bound: bool,
    /// The min number of figures of a contestant without a right side, 1 by default; or of rounds of each cell, by default
    /// five.
    #[serde(default)]
    pub least: Option<usize>,
    /// About cells: the figure that decides instead, if the server's cores were full in a fifth of the cells.
    pub if_full: Option<String>,
    /// About cells: the effect of a full client.
    #[serde(default)]
    pub full_client: FullClient,
    /// The decimals of a ratio.
    #[serde(default = "three")]
    pub decimals: usize,
    /// The published figures, as text.
    pub published: Option<String>,
}

fn three() -> usize {
    3
}

/// Names of contestants: a text, or a list of texts. In a name, `*` stands for any text, but not for a second entry.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(untagged, expecting = "the name of a contestant, or a list of names")]
pub enum Names {
    /// No name.
    #[default]
    None,
    /// One name.
    One(String),
    /// Several names.
    Several(Vec<String>),
}

impl Names {
    /// The names.
    pub(crate) fn all(&self) -> &[String] {
        match self {
            Self::None => &[],
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }

    /// Whether one of the names stands for `contestant`.
    pub(crate) fn match_name(&self, contestant: &str) -> bool {
        self.all().iter().any(|name| match name.contains('*') {
            true => matches(name, contestant) && first_of(contestant).is_none(),
            false => name == contestant,
        })
    }
}

/// What the axes of a cell must be, by their names. A figure can stand for an axis.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct CellConditions(BTreeMap<String, AxisCondition>);

/// The values of an axis that count: one value, a list of values, or `>=4`, `<=4` and `>4` for numbers from 4 on, up to 4 and
/// above 4.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a value of an axis, a list of values, or a bound such as \">=4\"")]
enum AxisCondition {
    Value(AxisValue),
    AnyOf(Vec<AxisValue>),
}

impl CellConditions {
    /// Whether a cell of this row counts.
    pub(crate) fn hold(&self, row: &ClaimRow) -> bool {
        self.0.keys().all(|axis| self.hold_at(axis, row))
    }

    /// Whether the row has a value of `axis` that counts, or the axis has no condition.
    pub(crate) fn hold_at(&self, axis: &str, row: &ClaimRow) -> bool {
        let figure = || row.figures.get(axis).copied().map(AxisValue::Number);
        let value = row.cell.get(axis).cloned().or_else(figure);
        let condition = self.0.get(axis);
        condition.is_none_or(|condition| value.is_some_and(|value| condition.holds(&value)))
    }

    /// The axes with a condition.
    pub(crate) fn axes(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Whether there is a condition on `axis`.
    pub(crate) fn name(&self, axis: &str) -> bool {
        self.0.contains_key(axis)
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl AxisCondition {
    fn holds(&self, value: &AxisValue) -> bool {
        match self {
            Self::AnyOf(values) => values.contains(value),
            Self::Value(AxisValue::Text(text)) => {
                let bound = |sign| text.strip_prefix(sign).and_then(|bound| bound.parse::<f64>().ok());
                let AxisValue::Number(number) = value else { return AxisValue::Text(text.clone()) == *value };
                match (bound(">="), bound("<="), bound(">")) {
                    (Some(least), ..) => *number >= least,
                    (_, Some(most), _) => *number <= most,
                    (.., Some(bound)) => *number > bound,
                    _ => AxisValue::Text(text.clone()) == *value,
                }
            }
            Self::Value(expected) => expected == value,
        }
    }
}

impl fmt::Display for CellConditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (axis, condition)) in self.0.iter().enumerate() {
            let values = match condition {
                AxisCondition::Value(value) => value.to_string(),
                AxisCondition::AnyOf(values) => values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or "),
            };
            write!(f, "{}{axis} {values}", if place == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl ClaimDefinition {
    /// The names of single contestants, without patterns.
    pub fn contestant_names(&self) -> impl Iterator<Item = &String> {
        self.left.all().iter().chain(&self.right).filter(|name| !name.contains('*'))
    }

    /// The contestant of the right side, for this one of the left side; `None` without a right side.
    pub(super) fn right_of<'a>(&'a self, left: &'a str) -> Option<&'a str> {
        self.right.as_deref().or((!self.right_where.is_empty()).then_some(left))
    }

    /// The min number of rounds: of each cell, or of a ratio.
    pub(crate) fn min_rounds(&self) -> usize {
        let default = if self.rule.is_of_cells() { MIN_CELL_ROUNDS } else { MIN_ROUNDS };
        self.least.filter(|_| self.rule.is_of_cells()).unwrap_or(default)
    }

    /// Why the keys do not fit the rule; `None` if they do.
    pub(crate) fn misuse(&self) -> Option<&'static str> {
        let (has_figure, has_left) = (!self.figure.is_empty(), !self.left.all().is_empty());
        match &self.rule {
            _ if self.right.as_ref().is_some_and(|name| name.contains('*')) => {
                Some("`right` is one contestant, without a star")
            }
            Rule::Cells { .. } if self.right.is_none() && self.right_where.is_empty() => {
                Some("a rule about cells needs `right` or `right_where`")
            }
            rule if rule.is_of_cells() && !self.over.is_empty() => Some("a rule about cells has no `over`"),
            Rule::Median { .. } if self.right.is_some() => Some("a median has no `right`"),
            _ if has_figure && has_left => None,
            _ => Some("the rule needs `figure` and `left`"),
        }
    }
}

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
