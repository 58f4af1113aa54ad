//! The mode `scenario`: the published groups of requests, with every answer and the final state verified.
//!
//! There are PUTs of new ids, GETs, and two PUTs to each existing id, which race. As published, a burst runs the groups one after
//! the other, each with all its connections at once, and reads answers while it sends. In a milder form the groups run at once
//! on a number of connections.
//!
//! Each round has a new server in a process of its own. A server of ours prints its own counts and its store's count of entities
//! at its end, and both are compared with the clients' counts. Other servers print only a part of this. The figures are no
//! measure of speed, so the baseline has no second entry.
//!
//! Invariant: a round in which something was wrong has figures and a number of errors, and fails the command. It is not measured
//! again. Cost: a thread for each client, and a process for each round.

use std::fmt;

use polyserve::Shutdown;
use serde::{Deserialize, Serialize};

use super::{ReadKeys, Turns};
use crate::Misuse;
use crate::bench::definition::Definition;
use crate::bench::experiment::{Key, Sample};
use crate::bench::figures::{self, NamedFigures};
use crate::bench::pattern::ContestantOrigin;
use crate::bench::sweep::{CellValue, SweepAxis, SweepCell};
use crate::claim::ClaimRow;
use crate::contestants::GO;
use crate::data::Data;
use crate::experiment::{Absence, Notebook, Records, csv, distinct, with_short_floats};
use crate::launch::Launch;
use crate::launch::drain::DrainCounts;
use crate::published::{self, STRESS};
use crate::report::Table;
use crate::report::figures::{count, counted};
use crate::scenario::Scenario;
use crate::scenario::round::{self, FinalState, GroupOutcome, RoundOutcome};
use crate::turn::Role;

pub use crate::scenario::round::ScenarioConnections;

#[cfg(test)]
mod tests;

/// The published groups of requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScenarioMode {
    /// The number of new ids, and of existing ids. A round has four times as many requests.
    pub ids: u64,
    /// The use of connections, unless the sweep has it.
    pub connection_use: ScenarioConnections,
}

/// What the mode reads of a definition. Its requests are the published ones.
pub(super) const READS: ReadKeys = ReadKeys {
    origins: &[ContestantOrigin::Catalog, ContestantOrigin::Peer],
    has_sizes: true,
    axes: &[SweepAxis::ConnectionUse, SweepAxis::Connections, SweepAxis::Workers],
    workload: &["connections", "workers"],
};

impl Default for ScenarioMode {
    /// As published.
    fn default() -> Self {
        Self { ids: 10_000, connection_use: ScenarioConnections::Burst }
    }
}

/// In words: `4,000 requests to 1,000 new ids and 1,000 existing ids`.
impl fmt::Display for ScenarioMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [requests, ids] = [self.ids * 4, self.ids].map(|number| count(number as f64));
        write!(f, "{requests} requests to {ids} new ids and {ids} existing ids")
    }
}

impl ScenarioMode {
    /// The max number of ids: their fates are held in memory.
    const MAX_IDS: u64 = 100_000_000;

    pub(super) fn check(&self, definition: &Definition) -> Result<(), Misuse> {
        if !(1..=Self::MAX_IDS).contains(&self.ids) {
            return Err(definition.misuse("ids", format!("it must be from 1 to {}", Self::MAX_IDS)));
        }
        Ok(())
    }

    /// The use of connections at a cell.
    pub fn connection_use(&self, cell: &SweepCell) -> ScenarioConnections {
        cell.get(&SweepAxis::ConnectionUse).and_then(CellValue::word_as).unwrap_or(self.connection_use)
    }
}

/// A server at a cell.
#[derive(Clone, Debug)]
pub struct ScenarioServer {
    /// The name.
    pub name: String,
    /// The role.
    pub role: Role,
    /// The cell.
    pub cell: SweepCell,
    /// The number of connections of a group, unless it is a burst.
    pub connections: usize,
    /// Whether its answers may lack a `Date`, as those of a published listing do.
    pub without_date: bool,
    /// Its process.
    pub launch: Launch,
    /// Whether it serves one connection at a time.
    pub is_single: bool,
}

/// Servers that run the scenario.
#[derive(Debug)]
pub struct ScenarioTurns {
    /// The settings.
    pub mode: ScenarioMode,
    /// The servers at all cells.
    pub servers: Vec<ScenarioServer>,
    /// The values.
    pub data: Data,
    /// The max number of connections of a burst.
    pub max_connections: u64,
    /// Begun when the run must end.
    pub stop: Shutdown,
}

/// The `kind` of a [`ScenarioRound`]'s line.
pub(crate) const ROUND: &str = "round";

/// What a round has in addition to its figures. If a record has several lines about a round, the last one counts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScenarioRound {
    /// The contestant, the cell and the round.
    #[serde(flatten)]
    pub key: Key,
    /// The groups, and the total.
    pub groups: Vec<GroupOutcome>,
    /// The first few errors.
    pub errors: Vec<String>,
}

/// The errors of a round.
#[derive(Clone, Debug, Serialize)]
pub struct ScenarioErrors {
    /// The contestant, the cell and the round.
    #[serde(flatten)]
    pub key: Key,
    /// The number of errors.
    pub count: u64,
    /// The first few.
    pub first: Vec<String>,
}

impl Turns for ScenarioTurns {
    fn measure_one(&mut self, key: &Key, notebook: &mut Notebook<'_>) -> Result<Sample, Absence> {
        let server = self.servers.iter().find(|one| one.name == key.contestant && one.cell == key.cell);
        let server = server.ok_or_else(|| Absence::failed(format!("{key} is not planned")))?;
        let mut scenario = Scenario::new(self.mode.ids, self.data);
        scenario.without_date = server.without_date;
        let connections = (self.mode.connection_use(&key.cell), server.connections, self.max_connections);
        let outcome = round::run((&server.launch, server.is_single), &scenario, connections, &self.stop);
        let outcome = outcome.map_err(|error| Absence::failed(format!("{error:#}")))?;
        let figures = figures_of(&outcome);
        let round = ScenarioRound { key: key.clone(), groups: outcome.groups, errors: outcome.errors };
        notebook.fact(ROUND, &round).map_err(|error| Absence::failed(error.to_string()))?;
        Ok(Sample { role: server.role, figures })
    }
}

/// The figures of a round, by their names.
fn figures_of(outcome: &RoundOutcome) -> NamedFigures {
    let number = |number: u64| Some(number as f64);
    let FinalState { checked, present, wrong } = outcome.final_state;
    let drained = |count: fn(&DrainCounts) -> u64| outcome.drain.as_ref().map(|drain| count(drain) as f64);
    let total = outcome.groups.last();
    let verified = |group: &GroupOutcome| group.samples.saturating_sub(group.errors + group.refused) as f64;
    let all = [
        (figures::ERRORS, number(outcome.error_count)),
        (figures::SAMPLES, total.map(|total| total.samples as f64)),
        (figures::VERIFIED, total.map(verified)),
        (figures::REFUSED, total.map(|total| total.refused as f64)),
        (figures::REQUESTS_PER_S, total.map(|total| total.requests_per_s)),
        ("connections_at_once", number(outcome.connections_at_once)),
        ("connections_opened", number(outcome.connections)),
        ("reconnects", number(outcome.reconnects)),
        ("answered", number(outcome.answers)),
        ("server_answered", drained(|drain| drain.answered)),
        ("server_cut", drained(|drain| drain.cut)),
        ("server_stuck", drained(|drain| drain.stuck)),
        (figures::STORED, outcome.store_count.and_then(number)),
        ("final_checked", number(checked)),
        ("final_present", number(present)),
        ("final_wrong", number(wrong)),
    ];
    figures::known(all).collect()
}

/// The rounds of a record, each once.
///
/// # Errors
///
/// Returns an error if a line does not have its fields.
pub(crate) fn rounds(records: &Records) -> anyhow::Result<Vec<ScenarioRound>> {
    let all: Vec<ScenarioRound> = records.facts(ROUND)?;
    let last = |key: &Key| all.iter().rfind(|round| round.key == *key).cloned();
    Ok(distinct(records.samples().map(|(key, _)| key)).into_iter().filter_map(last).collect())
}

/// The rounds with errors, and those without a verified answer.
///
/// # Errors
///
/// Returns an error if a line does not have its fields.
pub(crate) fn errors(records: &Records) -> anyhow::Result<Vec<ScenarioErrors>> {
    let rounds = rounds(records)?;
    let wrong = records.samples().filter_map(|(key, sample)| {
        let figure = |name: &str| sample.figures.get(name).map(|figure| *figure as u64);
        let count = figure(figures::ERRORS)?;
        let mut first = rounds.iter().find(|round| round.key == *key).map(|round| round.errors.clone());
        if count == 0 && figure(figures::VERIFIED) == Some(0) {
            first = Some(vec![String::from("no answer was verified")]);
        } else if count == 0 {
            return None;
        }
        Some(ScenarioErrors { key: key.clone(), count, first: first.unwrap_or_default() })
    });
    Ok(wrong.collect())
}

impl fmt::Display for ScenarioErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.iter().try_for_each(|error| writeln!(f, "error: {}: {error}", self.key))?;
        let more = self.count.saturating_sub(self.first.len() as u64);
        if more > 0 { writeln!(f, "and {more} more errors of {}", self.key) } else { Ok(()) }
    }
}

/// The answer in a sentence.
pub(crate) fn answer(records: &Records) -> anyhow::Result<String> {
    let contestants = distinct(records.samples().map(|(key, _)| &key.contestant)).len() as u64;
    let errors = errors(records)?;
    let wrong = distinct(errors.iter().map(|errors| format!("`{}`", errors.key.contestant)));
    Ok(match (contestants, wrong.as_slice()) {
        (0, _) => String::from("No contestant has figures."),
        (_, []) => format!("No request had a wrong answer: {} took part.", counted(contestants, "contestant")),
        (_, wrong) => {
            format!("{} of {} failed: {}.", wrong.len(), counted(contestants, "contestant"), wrong.join(", "))
        }
    })
}

/// The rows of claims. A round decides nothing if a server with bounded queues rejected a request by a right 503: the published
/// servers rejected none.
pub(crate) fn claim_rows(rows: Vec<ClaimRow>) -> Vec<ClaimRow> {
    let row = |mut row: ClaimRow| {
        let figure = |name: &str| row.figures.get(name).copied().unwrap_or_default();
        if figure(figures::REFUSED) > 0.0 && figure(figures::ERRORS) == 0.0 {
            row.figures.retain(|name, _| name == figures::SAMPLES);
            row.why = Some("it had 503s from a full queue".into());
        }
        row
    };
    rows.into_iter().map(row).collect()
}

/// A published row.
#[derive(Debug, Deserialize)]
struct PublishedRow {
    lang: String,
    #[serde(flatten)]
    group: GroupOutcome,
}

/// A table for each cell. The published rows stand above those of bursts.
pub(crate) fn tables(records: &Records) -> anyhow::Result<Vec<(String, Table)>> {
    let rounds = rounds(records)?;
    let published: Vec<PublishedRow> = published::rows(STRESS)?;
    let table = |cell: &SweepCell| {
        let header =
            ["contestant", "phase", "samples", "refused", "error %", "requests/s", "received KiB/s", "sent KiB/s"];
        let mut table = Table::of_numbers(&header).with_texts_in(1);
        let is_burst = cell.get(&SweepAxis::ConnectionUse).is_none_or(|value| value.word() == "burst");
        for PublishedRow { lang, group } in published.iter().filter(|_| is_burst) {
            table.row(cells(&format!("{lang} (published)"), group));
        }
        for ScenarioRound { key, groups, .. } in rounds.iter().filter(|round| round.key.cell == *cell) {
            groups.iter().for_each(|group| table.row(cells(&key.contestant, group)));
        }
        let place = cell.iter().map(|(axis, value)| format!("{axis} {value}")).collect::<Vec<_>>().join(", ");
        (if place.is_empty() { String::from("groups") } else { format!("groups, {place}") }, table)
    };
    let cells = distinct(rounds.iter().map(|round| &round.key.cell));
    Ok(cells.into_iter().map(table).collect())
}

fn cells(name: &str, group: &GroupOutcome) -> Vec<String> {
    let GroupOutcome { phase, samples, refused, error_pct, requests_per_s, received_kb_s, sent_kb_s, .. } = group;
    let counts = [*samples, *refused].map(|number| count(number as f64));
    let rates = [requests_per_s, received_kb_s, sent_kb_s].map(|rate| count(*rate));
    [name, phase].map(str::to_owned).into_iter().chain(counts).chain([format!("{error_pct:.2}")]).chain(rates).collect()
}

/// The rounds as CSV, a row for each group. The published columns come first.
pub(crate) fn groups_csv(records: &Records) -> anyhow::Result<String> {
    const COLUMNS: &str = "lang,phase,samples,error_pct,requests_per_s,received_kB_s,sent_kB_s,contestant,connection_use,\
                           round,errors,refused";
    let row = |Key { contestant, cell, round }: &Key, group: &GroupOutcome| {
        let mut row = with_short_floats(group);
        row["lang"] = if contestant.starts_with(GO) { "go" } else { "rust" }.into();
        row["contestant"] = contestant.as_str().into();
        row["connection_use"] = serde_json::json!(cell.get(&SweepAxis::ConnectionUse));
        row["round"] = (*round).into();
        row
    };
    let rounds = rounds(records)?;
    csv(COLUMNS, rounds.iter().flat_map(|round| round.groups.iter().map(|group| row(&round.key, group))))
}
