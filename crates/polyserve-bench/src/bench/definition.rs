//! The file that defines an experiment.
//!
//! ```toml
//! name = "connections"
//! about = "How throughput and cost change with the number of connections"
//! workload = { mix = "get=95,put=5", keys = 10_000, pipeline = 1 }
//! contestants = ["catalog:*/sharded", "peer:hyper", "reference:null_epoll"]
//! baseline = "catalog:pool_server/sharded"
//! sweep = { connections = [1, 64, 1000] }
//! mode = { kind = "closed", slice = "200ms" }
//! rounds = 10
//! chart = [{ kind = "lines", x = "connections", y = "requests_per_s" }]
//!
//! [[claim]]
//! text = "hyper serves more requests than the pool"
//! figure = "requests_per_s"
//! left = "peer/hyper"
//! right = "pool_server/mpsc_pool/sharded"
//! rule = "every above 1"
//!
//! [variant.connections-close] # `polyserve bench connections-close`
//! workload = { close = true }
//! ```
//!
//! Invariant: an error names the file, the line and the key; an unknown key is an error. Cost: one parse of the file.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use polyserve::files::read_settings_text;
use polyserve_load::Dist;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::derived;
use super::figures::{self, NamedFigure};
use super::mode::Mode;
use super::mode::overload;
use super::mode::page::PageSource;
use super::mode::scenario::ScenarioConnections;
use super::pattern::Pattern;
use super::published::PublishedFigures;
use super::sweep::{CellValue, Sweep, SweepAxis, SweepCell};
use super::workload::{BenchWorkload, mix_of};
use crate::Misuse;
use crate::claim::{CellConditions, ClaimDefinition, Rule};
use crate::crowd::CrowdKind;
use crate::journal::file_name;

/// The files with these names in `defs`, and their texts.
macro_rules! builtin {
    ($($name:literal)*) => { &[$((concat!($name, ".toml"), include_str!(concat!("../../defs/", $name, ".toml")))),*] };
}

/// The definitions that the command contains.
const BUILTIN: &[(&str, &str)] = builtin!(
    "capacity" "compare-get" "cost" "crowd" "crowd-slow" "connections" "keys"
    "ladder" "matrix" "overload" "page" "page-workers" "payload"
    "percore" "rates" "seam" "servers-kept" "stores" "stores-many"
    "stores-memory" "stores-typed" "stress" "tasks" "tls" "trial-same"
    "trial-slowed" "workers"
);

/// The ending of a file with a definition.
const EXTENSION: &str = ".toml";

/// An experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// The name of the experiment, and of its record.
    pub name: String,
    /// The question, in one sentence.
    #[serde(default)]
    pub about: String,
    /// The requests.
    #[serde(default)]
    pub workload: BenchWorkload,
    /// The contestants.
    pub contestants: Vec<Pattern>,
    /// The contestant that the others are compared with; the first one by default.
    pub baseline: Option<Pattern>,
    /// The contestants with a second entry besides the baseline's, by their names in the table: each shows its own noise, by which
    /// claims about a ratio to it are judged.
    #[serde(default)]
    pub controls: Vec<String>,
    /// The settings that vary, with their values. Each combination is a cell.
    #[serde(default)]
    pub sweep: Sweep,
    /// What is measured in a turn.
    #[serde(default)]
    pub mode: Mode,
    /// The number of rounds; fewer than 10 decide nothing.
    #[serde(default = "default_rounds")]
    pub rounds: usize,
    /// The charts.
    #[serde(default, rename = "chart")]
    pub charts: Vec<ChartDefinition>,
    /// The first columns of the CSV file; the others follow.
    #[serde(default)]
    pub columns: Vec<String>,
    /// The published figures that stand next to those of the experiment.
    #[serde(default)]
    pub published: Vec<PublishedFigures>,
    /// What the experiment is to confirm or refute. The contestants have the names of the table.
    #[serde(default, rename = "claim")]
    pub claims: Vec<ClaimDefinition>,
    /// The part that `--quick` measures.
    #[serde(default)]
    pub quick: Quick,
    /// Other forms of the experiment, by their names: the keys that differ. The keys of `workload` and `mode` are changed one by one,
    /// others are replaced.
    #[serde(default, rename = "variant")]
    variants: BTreeMap<String, toml::Table>,
    /// The keys as they were given.
    #[serde(skip)]
    pub table: toml::Table,
    #[serde(skip)]
    source: Source,
}

/// A chart of a report.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChartDefinition {
    /// The kind of the chart.
    #[serde(default)]
    pub kind: ChartKind,
    /// The axis of lines.
    pub x: Option<SweepAxis>,
    /// The figure; a schedule has none.
    pub y: Option<NamedFigure>,
    /// A figure that bounds `y`. It is a line of its own.
    pub bound: Option<NamedFigure>,
    /// An axis: each of its values is a line, in a chart for each contestant. Without it, the contestants are the lines.
    pub lines: Option<SweepAxis>,
    /// The cells: those with these values. All if it is empty.
    #[serde(default)]
    pub at: SweepCell,
    /// The axis of the rows of a heat map.
    pub rows: Option<SweepAxis>,
    /// The contestants of a schedule or of a heat map.
    #[serde(default)]
    pub contestants: Vec<String>,
}

/// The kind of a chart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChartKind {
    /// A line for each contestant.
    #[default]
    Lines,
    /// The ratios to the baseline, with their intervals: one chart for each cell.
    Ratios,
    /// A grid of shaded cells for each contestant, by the axes `x` and `rows`, and next to it one of the published figures.
    Heat,
    /// A bar for each task, from its start to its end, in the mode `tasks`.
    Schedule,
}

/// The part of an experiment that `--quick` measures. It answers nothing: it shows that the definition works.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quick {
    /// The number of rounds.
    pub rounds: usize,
    /// The contestants; all of the definition if it is empty.
    pub contestants: Vec<Pattern>,
    /// The values of these settings in place of the first and the last ones.
    pub sweep: Sweep,
}

/// The text of a definition.
#[derive(Clone, Debug, Default)]
struct Source {
    file: PathBuf,
    text: String,
}

impl Default for Quick {
    fn default() -> Self {
        Self { rounds: 3, contestants: Vec::new(), sweep: BTreeMap::new() }
    }
}

fn default_rounds() -> usize {
    10
}

impl Definition {
    /// All definitions that the command contains, each followed by its variants.
    ///
    /// # Errors
    ///
    /// Returns an error if one of them is wrong.
    pub fn builtin() -> Result<Vec<Self>, Misuse> {
        let with_variants = |(file, text): &(&str, &str)| -> Result<Vec<Self>, Misuse> {
            let definition = Self::parse(Path::new(file), text, &[])?;
            let variant = |name: &String| Self::parse_variant(Path::new(file), text, Some(name), &[]);
            let variants = definition.variants.keys().map(variant).collect::<Result<Vec<_>, _>>()?;
            Ok([vec![definition], variants].concat())
        };
        Ok(BUILTIN.iter().map(with_variants).collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// Reads the definition or the variant of this name, or a file: `NAME.toml`, or `NAME.toml:VARIANT`. `changes` are `KEY=VALUE`,
    /// as in `workload.keys=100`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such definition, or if a key, a value or a change is wrong.
    pub fn read(name: &str, changes: &[String]) -> Result<Self, Misuse> {
        let (file, variant) = match name.rsplit_once(':') {
            Some((file, variant)) if file.ends_with(EXTENSION) => (file, Some(variant)),
            _ => (name, None),
        };
        if file.ends_with(EXTENSION) {
            let text = read_settings_text(file).map_err(|error| Misuse(format!("{file}: {error}")))?;
            return Self::parse_variant(Path::new(file), &text, variant, changes);
        }
        if let Some((file, text)) = BUILTIN.iter().find(|(file, _)| file.strip_suffix(EXTENSION) == Some(name)) {
            return Self::parse(Path::new(file), text, changes);
        }
        let has_variant = |text: &str| {
            let table: Option<toml::Table> = toml::from_str(text).ok();
            table.is_some_and(|table| table.get("variant").is_some_and(|variants| variants.get(name).is_some()))
        };
        if let Some((file, text)) = BUILTIN.iter().find(|(_, text)| has_variant(text)) {
            return Self::parse_variant(Path::new(file), text, Some(name), changes);
        }
        let names = Self::builtin()?.into_iter().map(|one| one.name).collect::<Vec<_>>().join(", ");
        Err(Misuse(format!("there is no definition {name:?}; there are {names}, or a file NAME{EXTENSION}")))
    }

    /// Parses the `text` of a `file`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`read`](Self::read).
    pub fn parse(file: &Path, text: &str, changes: &[String]) -> Result<Self, Misuse> {
        Self::parse_variant(file, text, None, changes)
    }

    fn parse_variant(file: &Path, text: &str, variant: Option<&str>, changes: &[String]) -> Result<Self, Misuse> {
        let source = Source { file: file.to_owned(), text: text.to_owned() };
        let mut definition: Self = toml::from_str(text).map_err(|error| source.error(&error))?;
        let mut table: toml::Table = toml::from_str(text).map_err(|error| source.error(&error))?;
        table.remove("variant");
        let (name, variants) = (definition.name.clone(), std::mem::take(&mut definition.variants));
        if let Some(variant) = variant {
            let known = || variants.keys().cloned().collect::<Vec<_>>().join(", ");
            let none = || Misuse(format!("{}: {name} has no variant {variant:?}, only {}", file.display(), known()));
            apply(&mut table, variant, variants.get(variant).ok_or_else(none)?);
            let changed = table.clone().try_into();
            definition = changed
                .map_err(|error: toml::de::Error| source.misuse(variant, in_plain_words(error.message(), None)))?;
        }
        definition.variants = variants;
        for change in changes {
            let misuse = |why: &str| Misuse(format!("--set {change}: {}", in_plain_words(why, None)));
            set(&mut table, change).map_err(misuse)?;
            definition = table.clone().try_into().map_err(|error: toml::de::Error| misuse(error.message()))?;
        }
        definition.table = table;
        definition.source = source;
        definition.check()?;
        if changes.is_empty() && variant.is_none() {
            definition.check_axes()?;
        }
        Ok(definition)
    }

    /// The text as it was read, without changes.
    pub fn text(&self) -> &str {
        &self.source.text
    }

    /// An error about a key.
    pub fn misuse(&self, key: &str, why: impl fmt::Display) -> Misuse {
        self.source.misuse(key, why)
    }

    /// The path of a file that the definition names.
    pub fn path(&self, file: &Path) -> PathBuf {
        self.source.file.parent().map_or_else(|| file.to_owned(), |directory| directory.join(file))
    }

    /// The part of a quick run: few rounds, and the ends of each axis unless the definition has another part.
    #[must_use]
    pub fn quick(mut self) -> Self {
        let Quick { rounds, contestants, sweep } = self.quick.clone();
        self.rounds = rounds.min(self.rounds);
        if !contestants.is_empty() {
            self.contestants = contestants;
        }
        for (axis, values) in &mut self.sweep {
            match sweep.get(axis) {
                Some(quick) => values.clone_from(quick),
                None if values.len() > 2 => {
                    values.drain(1..values.len() - 1);
                }
                None => {}
            }
        }
        self
    }

    /// The cells: all combinations of the sweep's values. One empty cell without a sweep.
    pub fn cells(&self) -> Vec<SweepCell> {
        let mut cells = vec![SweepCell::new()];
        for (axis, values) in &self.sweep {
            let with = |cell: &SweepCell| -> Vec<SweepCell> {
                values.iter().map(|x| cell.clone().into_iter().chain([(*axis, x.clone())]).collect()).collect()
            };
            cells = cells.iter().flat_map(with).collect();
        }
        cells
    }

    /// Checks what the types of the keys do not.
    fn check(&self) -> Result<(), Misuse> {
        file_name(&self.name).map_err(|why| self.misuse("name", why))?;
        let BenchWorkload { service, requests, welcome, connections, pipeline, keys, .. } = &self.workload;
        let positive =
            [("rounds", self.rounds), ("connections", *connections), ("pipeline", *pipeline), ("keys", *keys as usize)];
        if let Some((key, _)) = positive.iter().find(|(_, number)| *number == 0) {
            return Err(self.misuse(key, "it must be at least 1"));
        }
        for (axis, values) in self.sweep.iter().chain(&self.quick.sweep) {
            let is_right = |value: &CellValue| match (axis, value) {
                (_, CellValue::Number(number)) => !axis.has_words() && *number >= axis.least(),
                (SweepAxis::Method, value) => mix_of(value.word()).is_some(),
                (SweepAxis::Dist, value) => value.word().parse::<Dist>().is_ok(),
                (SweepAxis::Source, value) => value.word_as::<PageSource>().is_some(),
                (SweepAxis::Behaviour, value) => value.word_as::<CrowdKind>().is_some(),
                (SweepAxis::Overload, value) => overload::is_policy(value.word()),
                (SweepAxis::ConnectionUse, value) => value.word_as::<ScenarioConnections>().is_some(),
                (_, CellValue::Word(_)) => axis.has_words(),
            };
            if values.is_empty() || !values.iter().all(is_right) {
                let needed = if axis.has_words() { "words that it knows" } else { "values of at least 1" };
                return Err(self.misuse(&axis.to_string(), format!("it needs {needed}")));
            }
        }
        if self.contestants.is_empty() {
            return Err(self.misuse("contestants", "it names none"));
        }
        if service.is_some() != requests.is_some() {
            return Err(self.misuse("service", "a service and its requests belong together"));
        }
        if *welcome && service.is_some() {
            return Err(self.misuse("welcome", "it is a service, and there is another one"));
        }
        let of_entities = ["mix", "keys", "dist", "payload", "wait", "blocking_wait", "cpu", "times_vary"];
        let given = |key: &&str| self.table.get("workload").is_some_and(|workload| workload.get(*key).is_some());
        if let Some(key) = of_entities.iter().find(|key| (service.is_some() || *welcome) && given(key)) {
            let why = if *welcome {
                "it is about entities, and the service has none"
            } else {
                "the requests to the service are in their file"
            };
            return Err(self.misuse(key, why));
        }
        self.mode.check(self)?;
        if self.charts.iter().any(|chart| chart.kind == ChartKind::Lines && chart.x.is_none()) {
            return Err(self.misuse("chart", "lines need an axis `x`"));
        }
        if self.charts.iter().any(|chart| chart.kind == ChartKind::Heat && (chart.x.is_none() || chart.rows.is_none()))
        {
            return Err(self.misuse("chart", "a heat map needs an axis `x`, and `rows`"));
        }
        if self.charts.iter().any(|chart| chart.kind != ChartKind::Schedule && chart.y.is_none()) {
            return Err(self.misuse("chart", "it needs a figure `y`"));
        }
        self.published.iter().try_for_each(|figures| figures.check().map_err(|why| self.misuse("published", why)))?;
        match self.claims.iter().find_map(|claim| Some((claim, self.why_wrong(claim)?))) {
            Some((claim, why)) => Err(self.claim_misuse(claim, why)),
            None => Ok(()),
        }
    }

    /// Checks that the axes of charts and of the quick part vary. A change of the sweep may leave them out.
    fn check_axes(&self) -> Result<(), Misuse> {
        let of_charts = self.charts.iter().flat_map(|chart| chart.at.keys().chain(&chart.x).chain(&chart.lines));
        let of_quick = self.quick.sweep.keys();
        let mut axes = of_quick.map(|axis| ("quick", axis)).chain(of_charts.map(|axis| ("chart", axis)));
        match axes.find(|(_, axis)| !self.sweep.contains_key(axis)) {
            Some((key, axis)) => Err(self.misuse(key, format!("{axis} is no axis of the sweep"))),
            None => Ok(()),
        }
    }

    /// Why a claim cannot be judged by the figures of the experiment; `None` if it can.
    fn why_wrong(&self, claim: &ClaimDefinition) -> Option<String> {
        let ClaimDefinition { figure, conditions, left_where, right_where, over, rule, .. } = claim;
        let is_axis = |axis: &str| self.sweep.keys().any(|known| known.to_string() == axis);
        let known = |axis: &str| derived::AXES.contains(&axis) || is_axis(axis) || NamedFigure::named(axis).is_some();
        let axes = [conditions, left_where, right_where].into_iter().flat_map(CellConditions::axes);
        let axes = axes.chain(over.iter().map(String::as_str));
        let unknown_axis = axes.into_iter().find(|axis| !known(axis));
        let mut named = [figure].into_iter().chain(&claim.if_full);
        let unknown_figure = || {
            let unknown = named.find(|figure| NamedFigure::named(figure).is_none());
            unknown.map(|figure| figures::unknown(figure))
        };
        let not_swept = || unknown_axis.map(|axis| format!("where: {axis} is no axis of the sweep"));
        let no_trend = || match rule {
            Rule::Trend { axis, .. } if !is_axis(axis) => Some(format!("rule: {axis} is no axis of the sweep")),
            _ => None,
        };
        claim.misuse().map(str::to_owned).or_else(unknown_figure).or_else(not_swept).or_else(no_trend)
    }

    /// An error about a claim, with the line of its text.
    pub fn claim_misuse(&self, claim: &ClaimDefinition, why: impl fmt::Display) -> Misuse {
        let Source { file, text } = &self.source;
        let line = text.lines().position(|line| line.contains(&claim.text));
        let line = line.map_or_else(String::new, |line| format!(":{}", line + 1));
        Misuse(format!("{}{line}: claim {:?}: {why}", file.display(), claim.text))
    }
}

impl Source {
    /// An error of the parser.
    fn error(&self, error: &toml::de::Error) -> Misuse {
        let Self { file, text } = self;
        let (file, message) = (file.display(), error.message());
        let Some(span) = error.span() else { return Misuse(format!("{file}: {}", in_plain_words(message, None))) };
        let (before, value) = (text.get(..span.start).unwrap_or_default(), text.get(span).unwrap_or_default());
        let line = before.matches('\n').count();
        let shown = text.lines().nth(line).map_or("", str::trim);
        if value == shown || value.contains('\n') {
            // A table over several lines. The message may begin with the key that is wrong.
            let mut inside = text.lines().skip(line + 1).take_while(|line| !line.starts_with('['));
            let own = message.split_once(": ").and_then(|(key, _)| inside.position(|line| sets_key(line, key)));
            let line = own.map_or(line, |own| line + 1 + own);
            return Misuse(format!("{file}:{}: {}", line + 1, in_plain_words(message, None)));
        }
        let separator = if shown.is_empty() { "" } else { ": " };
        let key = before.trim_end().strip_suffix('=').map(str::trim_end);
        let key = key.and_then(|before| before.rsplit(|c: char| !(c.is_alphanumeric() || "_-".contains(c))).next());
        let message = in_plain_words(message, key.map(|key| (key, value)));
        Misuse(format!("{file}:{}: {shown}{separator}{message}", line + 1))
    }

    /// An error about a key, with its first line.
    fn misuse(&self, key: &str, why: impl fmt::Display) -> Misuse {
        let Self { file, text } = self;
        let line =
            text.lines().position(|line| sets_key(line, key)).map_or_else(String::new, |line| format!(":{}", line + 1));
        Misuse(format!("{}{line}: {key}: {why}", file.display()))
    }
}

/// Whether a line of a definition sets this key, or begins its table.
fn sets_key(line: &str, key: &str) -> bool {
    line.match_indices(key).any(|(place, _)| {
        let (before, after) = (&line[..place], &line[place + key.len()..]);
        let is_part = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        !is_part && (after.trim_start().starts_with('=') || (line.starts_with('[') && after.starts_with(']')))
    })
}

/// What the parser expects, and what a definition has for it.
const EXPECTED: [(&str, &str); 7] = [
    ("a sequence", "a list in brackets"),
    ("usize", "a whole number"),
    ("u32", "a whole number"),
    ("u64", "a whole number"),
    ("f64", "a number"),
    ("a string", "a text in quotes"),
    ("a boolean", "true or false"),
];

/// The message of the parser without the types of Rust. `setting` is the key and its value as they were written.
fn in_plain_words(message: &str, setting: Option<(&str, &str)>) -> String {
    let known = |(found, expected): (&str, &str)| {
        let (rust, plain) = EXPECTED.iter().find(|(rust, _)| expected.starts_with(rust))?;
        let example = setting.filter(|_| *rust == "a sequence");
        let example = example.map_or_else(String::new, |(key, value)| format!(", as in {key} = [{value}]"));
        Some(format!("{found}, expected {plain}{}{example}", &expected[rust.len()..]))
    };
    message.rsplit_once(", expected ").and_then(known).unwrap_or_else(|| message.to_owned())
}

/// Makes a definition one of its variants.
fn apply(table: &mut toml::Table, name: &str, changes: &toml::Table) {
    table.insert(String::from("name"), name.into());
    for (key, value) in changes {
        match (key.as_str(), table.get_mut(key), value) {
            ("workload" | "mode", Some(toml::Value::Table(own)), toml::Value::Table(new)) => own.extend(new.clone()),
            _ => drop(table.insert(key.clone(), value.clone())),
        }
    }
}

/// Changes a key of `table`: `workload.keys=100`. A value that is not TOML is a text.
fn set(table: &mut toml::Table, change: &str) -> Result<(), &'static str> {
    let (path, text) = change.split_once('=').ok_or("it must be KEY=VALUE")?;
    let parsed = toml::from_str::<toml::Table>(&format!("value = {text}")).ok();
    let value = parsed.and_then(|mut table| table.remove("value"));
    let value = value.unwrap_or_else(|| toml::Value::String(text.to_owned()));
    let (parents, key) = path.rsplit_once('.').map_or((None, path), |(parents, key)| (Some(parents), key));
    let mut place = table;
    for parent in parents.into_iter().flat_map(|parents| parents.split('.')) {
        let inner = place.entry(parent).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        place = inner.as_table_mut().ok_or("a key before the last one has no keys")?;
    }
    place.insert(key.to_owned(), value);
    Ok(())
}

/// Reads a value that is given as text.
pub(super) fn from_text<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(
    deserializer: D,
) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// Reads a time such as `200ms`.
pub(super) fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer);
    let text =
        text.map_err(|error| D::Error::custom(format!("{}, such as \"200ms\"", error.to_string().trim_end())))?;
    humantime::parse_duration(&text).map_err(D::Error::custom)
}

/// [`time`], if there is one.
pub(crate) fn optional_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    time(deserializer).map(Some)
}

#[cfg(test)]
mod tests;
