//! What is measured in a turn: the `mode` of a definition.
//!
//! A kind is a file with the struct of its settings, their check, and the part of the turn that it measures: a [`Turns`]. A new
//! kind is such a file and a line in [`Mode`] and its functions.

mod calibration;
pub mod closed;
pub mod counted;
pub mod hold;
pub mod limit;
pub mod overload;
pub mod page;
pub mod requests;
pub mod scenario;
pub mod search;
pub mod store;
pub mod tasks;
#[cfg(test)]
mod tests;
pub mod trial;

use std::fmt;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::definition::Definition;
use super::experiment::{Key, Sample};
use super::figures;
use super::pattern::ContestantOrigin;
use super::sweep::{Sweep, SweepAxis};
use super::workload::BenchWorkload;
use crate::Misuse;
use crate::experiment::{Absence, Notebook, Records, order};
use crate::report::figures::count;
use crate::statistics::MIN_ROUNDS;

use closed::{ClosedMode, RateMode};
use hold::HoldMode;
use overload::OverloadMode;
use page::PageMode;
use requests::RequestSettings;
use scenario::ScenarioMode;
use search::SearchMode;
use store::StoreMode;
use tasks::TasksMode;
use trial::TrialMode;

/// The settings of a turn, by its kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(remote = "Self", tag = "kind", rename_all = "snake_case")]
pub enum Mode {
    /// Each connection sends its next request after an answer. The latencies at a fixed rate follow.
    Closed(ClosedMode),
    /// Requests are due at a fixed rate.
    Rate(RateMode),
    /// Threads use a store in their process.
    Store(StoreMode),
    /// CPU tasks run at once.
    Tasks(TasksMode),
    /// A number of requests to a page that sometimes waits.
    Page(PageMode),
    /// The max rate at which the p99 meets a goal is searched.
    Search(SearchMode),
    /// Many idle or slow connections stand next to a good client.
    Hold(HoldMode),
    /// Groups of requests; the answers and the final state are verified.
    Scenario(ScenarioMode),
    /// A contestant is compared with itself, again and again.
    Trial(TrialMode),
    /// More requests than a server can answer, from clients that retry.
    Overload(OverloadMode),
    /// Contestants are ranked at one cell.
    Compare(ClosedMode),
}

/// The kind of a mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModeKind {
    /// [`Mode::Closed`].
    #[default]
    Closed,
    /// [`Mode::Rate`].
    Rate,
    /// [`Mode::Store`].
    Store,
    /// [`Mode::Tasks`].
    Tasks,
    /// [`Mode::Page`].
    Page,
    /// [`Mode::Search`].
    Search,
    /// [`Mode::Hold`].
    Hold,
    /// [`Mode::Scenario`].
    Scenario,
    /// [`Mode::Trial`].
    Trial,
    /// [`Mode::Overload`].
    Overload,
    /// [`Mode::Compare`].
    Compare,
}

/// As in a definition.
impl fmt::Display for ModeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl ModeKind {
    /// The min number of rounds for a verdict. Claims about tasks are judged over the numbers of tasks, those about a scenario
    /// by its errors; a round of a trial is a whole comparison.
    pub(crate) fn min_rounds(self) -> usize {
        if matches!(self, Self::Tasks | Self::Scenario | Self::Trial) { 1 } else { MIN_ROUNDS }
    }

    /// Whether the contestants of a cell are measured one by one, and recorded so. They are not compared with each other.
    pub(crate) fn is_of_single_turns(self) -> bool {
        matches!(self, Self::Scenario | Self::Trial | Self::Overload)
    }
}

/// What a mode reads of a definition. Anything else in it is an error.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadKeys {
    /// The origins of its contestants.
    origins: &'static [ContestantOrigin],
    /// Whether `@N` behind a name sets the number of workers.
    has_sizes: bool,
    /// The axes of the sweep.
    axes: &'static [SweepAxis],
    /// The keys of the workload.
    workload: &'static [&'static str],
}

impl ReadKeys {
    /// Returns an error if the definition has a contestant, an axis or a key of the workload that the mode does not read.
    fn check(&self, definition: &Definition) -> Result<(), Misuse> {
        let kind = definition.mode.kind();
        let patterns = || definition.contestants.iter().chain(&definition.quick.contestants);
        let all = || patterns().chain(&definition.baseline);
        if all().any(|pattern| !self.origins.contains(&pattern.origin)) {
            let known: Vec<String> = self.origins.iter().map(ContestantOrigin::to_string).collect();
            let why = format!("the contestants of this mode are {}", known.join(" and "));
            return Err(definition.misuse("contestants", why));
        }
        if let Some(sized) = all().find(|pattern| pattern.workers.is_some()).filter(|_| !self.has_sizes) {
            let why = format!("the mode {kind} does not read a number of workers in a name: {}", sized.name);
            return Err(definition.misuse("contestants", why));
        }
        let axes = || definition.sweep.keys().chain(definition.quick.sweep.keys());
        if let Some(axis) = axes().find(|axis| !self.axes.contains(axis)) {
            let known: Vec<String> = self.axes.iter().map(SweepAxis::to_string).collect();
            let why = format!("the mode {kind} does not sweep it, only {}", known.join(", "));
            return Err(definition.misuse(&axis.to_string(), why));
        }
        let given = definition.table.get("workload").and_then(toml::Value::as_table);
        match given.into_iter().flat_map(toml::Table::keys).find(|key| !self.workload.contains(&key.as_str())) {
            Some(key) => {
                let why = format!("the mode {kind} does not read it, only {}", self.workload.join(", "));
                Err(definition.misuse(key, why))
            }
            None => Ok(()),
        }
    }
}

/// The part of a turn that depends on the mode.
pub trait Turns: fmt::Debug {
    /// Runs before the first round. By default, does nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if the experiment cannot be done at all.
    fn prepare(&mut self, notebook: &mut Notebook<'_>) -> anyhow::Result<()> {
        let _ = notebook;
        Ok(())
    }

    /// Measures one contestant at a cell in a round. A mode implements this or [`measure`](Self::measure).
    ///
    /// # Errors
    ///
    /// Returns why the contestant has no sample.
    fn measure_one(&mut self, key: &Key, notebook: &mut Notebook<'_>) -> Result<Sample, Absence> {
        let _ = notebook;
        Err(Absence::failed(format!("{key} was not measured")))
    }

    /// Measures contestants at one cell in one round. Returns a result for each key, in their order. By default, measures one
    /// contestant after the other, in an order that changes from round to round, until the run is stopped.
    fn measure(&mut self, keys: &[Key], notebook: &mut Notebook<'_>) -> Vec<Result<Sample, Absence>> {
        let round = keys.first().map_or(1, |key| key.round);
        let mut results: Vec<Result<Sample, Absence>> =
            keys.iter().map(|_| Err(Absence::failed("the run was stopped"))).collect();
        for place in order(round.saturating_sub(1), keys.len()) {
            if notebook.is_stopped() {
                break;
            }
            notebook.progress.begin(keys[place].to_string());
            results[place] = self.measure_one(&keys[place], notebook);
        }
        results
    }

    /// Returns true if the samples so far answer the question: no further cell is measured then, and none is missing. It is called
    /// before each batch. `contestants` are those of the plan. By default false.
    fn is_decided(&self, records: &Records, contestants: &[String]) -> bool {
        let _ = (records, contestants);
        false
    }

    /// The share of the run's time that a cell takes, by which it advances the progress bar. A measurement can advance the bar by
    /// parts of its share. By default 1.
    fn weight(&self, key: &Key) -> usize {
        let _ = key;
        1
    }

    /// Runs after the last round. By default, does nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if the record cannot be written.
    fn finish(&mut self, notebook: &mut Notebook<'_>) -> anyhow::Result<()> {
        let _ = notebook;
        Ok(())
    }
}

impl Mode {
    /// The kind.
    pub fn kind(&self) -> ModeKind {
        match self {
            Self::Closed(_) => ModeKind::Closed,
            Self::Rate(_) => ModeKind::Rate,
            Self::Store(_) => ModeKind::Store,
            Self::Tasks(_) => ModeKind::Tasks,
            Self::Page(_) => ModeKind::Page,
            Self::Search(_) => ModeKind::Search,
            Self::Hold(_) => ModeKind::Hold,
            Self::Scenario(_) => ModeKind::Scenario,
            Self::Trial(_) => ModeKind::Trial,
            Self::Overload(_) => ModeKind::Overload,
            Self::Compare(_) => ModeKind::Compare,
        }
    }

    /// The times and the rate of the requests to servers; `None` if the mode has requests of its own, or none.
    pub fn requests(&self) -> Option<RequestSettings> {
        Some(match self {
            Self::Closed(mode) | Self::Compare(mode) => mode.requests(),
            Self::Rate(mode) => mode.requests(),
            Self::Search(mode) => mode.requests(),
            Self::Hold(mode) => mode.requests(),
            Self::Trial(mode) => mode.requests(),
            Self::Overload(mode) => mode.requests(),
            Self::Store(_) | Self::Tasks(_) | Self::Page(_) | Self::Scenario(_) => return None,
        })
    }

    /// The name of the figure that is compared.
    pub fn compared(&self) -> &'static str {
        match self {
            Self::Closed(_) | Self::Page(_) | Self::Compare(_) => figures::REQUESTS_PER_S,
            Self::Rate(_) => figures::P99_US,
            Self::Store(mode) => mode.compared(),
            Self::Tasks(_) => figures::TOTAL_DURATION_MS,
            Self::Search(_) => figures::CAPACITY_PER_S,
            Self::Hold(mode) => mode.compared(),
            Self::Scenario(_) => figures::ERRORS,
            Self::Trial(_) => figures::THROUGHPUT_RATIO,
            Self::Overload(_) => figures::GOODPUT_SHARE,
        }
    }

    /// The workload in words, with all values of the settings that vary.
    pub fn in_words(&self, workload: &BenchWorkload, sweep: &Sweep) -> String {
        let in_words = || workload.in_words(sweep);
        match self {
            Self::Closed(ClosedMode { requests: Some(requests), .. }) => {
                format!("{} requests; {}", count(*requests as f64), in_words())
            }
            Self::Closed(_) | Self::Rate(_) | Self::Search(_) | Self::Hold(_) | Self::Trial(_) | Self::Compare(_) => {
                in_words()
            }
            Self::Overload(mode) => format!("{}; {}", in_words(), mode.in_words()),
            Self::Tasks(mode) => mode.to_string(),
            Self::Page(mode) => mode.load(workload, sweep),
            Self::Scenario(mode) => mode.to_string(),
            Self::Store(_) => store::in_words(workload, sweep),
        }
    }

    /// Checks what the types of the keys do not.
    pub(super) fn check(&self, definition: &Definition) -> Result<(), Misuse> {
        let (reads, checked) = match self {
            Self::Closed(mode) => (requests::READS, mode.check(definition)),
            Self::Rate(mode) => (requests::READS, mode.check(definition)),
            Self::Trial(mode) => (requests::READS, mode.check(definition)),
            Self::Store(mode) => (store::READS, mode.check(definition)),
            Self::Tasks(mode) => (tasks::READS, mode.check(definition)),
            Self::Page(mode) => (page::READS, mode.check(definition)),
            Self::Scenario(mode) => (scenario::READS, mode.check(definition)),
            Self::Search(mode) => (search::READS, mode.check(definition)),
            Self::Hold(mode) => (mode.reads(), mode.check(definition)),
            Self::Overload(mode) => (overload::READS, mode.check(definition)),
            Self::Compare(mode) => (closed::COMPARE_READS, mode.check_comparison(definition)),
        };
        reads.check(definition).and(checked)
    }
}

impl Default for Mode {
    fn default() -> Self {
        Self::Closed(ClosedMode::default())
    }
}

/// The kind is `closed` by default.
impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut settings = toml::Table::deserialize(deserializer)?;
        settings.entry("kind").or_insert_with(|| ModeKind::default().to_string().into());
        let read = |settings: toml::Table| Self::deserialize(settings).map_err(|error| error.message().to_owned());
        read(settings.clone()).map_err(|why| {
            // The parser does not name the key of a wrong value: it is the key without which the value is not found.
            let is_wrong = |key: &&String| {
                let others = settings.iter().filter(|(other, _)| other != key);
                read(others.map(|(key, value)| (key.clone(), value.clone())).collect()).err().as_ref() != Some(&why)
            };
            let wrong = settings.keys().filter(|key| why.starts_with("invalid ") && *key != "kind").find(is_wrong);
            D::Error::custom(wrong.map_or(why.clone(), |key| format!("{key}: {why}")))
        })
    }
}

/// Checks the times of a mode.
fn check_times<const N: usize>(definition: &Definition, times: [(&str, Duration); N]) -> Result<(), Misuse> {
    let allowed = Duration::from_millis(10)..=Duration::from_secs(3600);
    match times.into_iter().find(|(_, time)| !allowed.contains(time)) {
        Some((key, _)) => Err(definition.misuse(key, "it must be from 10ms to 1h")),
        None => Ok(()),
    }
}

/// Checks the goal for the p99.
fn check_goal(definition: &Definition, p99: Option<Duration>) -> Result<(), Misuse> {
    match p99.filter(Duration::is_zero) {
        Some(_) => Err(definition.misuse("p99", "it must be above 0")),
        None => Ok(()),
    }
}

/// Checks the percentage of CPU time that a slowed contestant wastes.
fn check_slowed(definition: &Definition, slowed: Option<f64>) -> Result<(), Misuse> {
    match slowed.filter(|percent| !(*percent > 0.0 && *percent <= 1000.0)) {
        Some(_) => Err(definition.misuse("slowed", "it must be above 0 and at most 1000 per cent")),
        None => Ok(()),
    }
}

/// Checks a fixed rate, if there is one, and rates in per cent.
fn check_rate(definition: &Definition, rate: Option<f64>) -> Result<(), Misuse> {
    let percents = definition.sweep.get(&SweepAxis::RatePercent);
    let why_wrong = match percents {
        Some(all) if all.iter().any(|one| one.number() > Some(100)) => Some("it must be from 1 to 100 per cent"),
        Some(_) if rate.is_some() || definition.sweep.contains_key(&SweepAxis::Rate) => Some("there is a `rate`, too"),
        Some(_) if definition.workload.service.is_some() => Some("the null server does not have the service"),
        _ => None,
    };
    if let Some(why) = why_wrong {
        return Err(definition.misuse("rate_percent", why));
    }
    match rate.filter(|rate| !(1.0..=1e7).contains(rate)) {
        Some(_) => Err(definition.misuse("rate", "it must be from 1 to 10000000 requests a second")),
        None => Ok(()),
    }
}
