//! The groups of rounds as tables and as CSV, next to the published ones.

use serde::Deserialize;

use super::{ScenarioRound, rounds};
use crate::bench::experiment::Key;
use crate::bench::sweep::{SweepAxis, SweepCell};
use crate::contestants::GO;
use crate::experiment::{Records, csv, distinct, with_short_floats};
use crate::published::{self, STRESS};
use crate::report::Table;
use crate::report::figures::count;
use crate::scenario::round::GroupOutcome;

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
