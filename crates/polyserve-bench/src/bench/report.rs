//! The result of an experiment: a row for each contestant at each cell, with ranks, tables and charts.

mod charts;
mod claims;
mod row;
mod table;

use std::fmt;

use anyhow::Context as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::experiment::{BenchPlan, Key, Sample};
use super::figures::{self, Better, NamedFigure};
use super::mode::ModeKind;
use super::mode::hold::kept_table;
use super::mode::limit::{CellLimit, LIMIT};
use super::mode::requests::{CellRate, RATE};
use super::mode::scenario::{self, ScenarioErrors};
use super::mode::trial::TrialResult;
use super::published::{self, PublishedFigures};
use super::ranking;
use super::sweep::SweepAxis;
use crate::contestants::GO;
use crate::experiment::{Failed, Reason, Records, csv, distinct, with_short_floats};
use crate::output::LATE_NOTE;
use crate::report::figures::{count, counted};
use crate::report::svg::Chart;
use crate::report::{Claim, Table, shown_claims};
use crate::statistics::MIN_ROUNDS;
use crate::tasks;
use crate::turn::{CONTRACT, Contract};

pub use row::BenchRow;
pub(crate) use table::ratio_text;

use charts::charts_of_all;
use claims::claims;
use row::CellContestants;

/// The result of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The answer in a sentence. Another one follows if the run cannot answer all claims of the definition.
    pub answer: String,
    /// The description of the run.
    #[serde(flatten)]
    pub plan: BenchPlan,
    /// The rows, by cell and rank.
    pub rows: Vec<BenchRow>,
    /// The tables besides that of the rows.
    #[serde(skip)]
    tables: Vec<(String, Table)>,
    /// The charts.
    #[serde(skip)]
    charts: Vec<(String, Chart)>,
    /// The fixed rates that were not given.
    pub rates: Vec<CellRate>,
    /// The limits of searches.
    pub limits: Vec<CellLimit>,
    /// The contract of each foreign contestant.
    pub contracts: Vec<Contract>,
    /// The contestants that could not take part at a cell.
    pub not_run: Vec<Failed>,
    /// The contestants that failed, or took too long.
    pub failed: Vec<Failed>,
    /// The rounds of a scenario in which something was wrong. They fail the command.
    pub errors: Vec<ScenarioErrors>,
    /// Whether a scenario had no error, or a trial has passed; `None` in other modes, and if a trial was ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passed: Option<bool>,
    /// The verdicts on the claims of the definition that the run can answer.
    pub claims: Vec<Claim>,
    /// Whether it was ended early.
    pub interrupted: bool,
}

impl Report {
    /// The result of these records.
    pub(crate) fn of(records: &Records) -> anyhow::Result<Self> {
        let plan: BenchPlan = serde_json::from_value(records.header.plan.clone())?;
        let name = plan.compared.as_str();
        let figure = NamedFigure::named(name).ok_or_else(|| anyhow::anyhow!("there is no figure {name}"))?;
        let mut cells = distinct(records.samples().map(|(key, _)| &key.cell));
        cells.sort();
        let (seed, baseline) = (records.header.environment.seed, plan.baseline.as_str());
        let rows_at = |cell| {
            let entries = ranking::entries(records, &plan.contestants, cell)?;
            Ok(CellContestants { entries, cell, figure, baseline, seed }.rows())
        };
        let rows = cells.into_iter().map(rows_at).collect::<anyhow::Result<Vec<_>>>()?.concat();
        let (not_run, failed): (Vec<_>, Vec<_>) =
            records.absences().partition(|(_, absence)| absence.reason == Reason::NotAvailable);
        let (claims, unanswered) = claims(&plan, records, seed)?;
        let tables = tables(&plan, &rows, records)?;
        let charts = charts_of_all(&plan, &rows, records)?;
        let answer = match plan.mode {
            ModeKind::Scenario => scenario::answer(records)?,
            ModeKind::Trial => TrialResult::of(&plan, records)?.answer(),
            _ => answer(&plan, &rows, figure, !claims.is_empty()),
        };
        Ok(Self {
            answer: [answer].into_iter().chain(unanswered).collect::<Vec<_>>().join(" "),
            rows,
            tables,
            charts,
            rates: records.facts(RATE)?,
            limits: records.facts(LIMIT)?,
            contracts: records.facts(CONTRACT)?,
            not_run: not_run.into_iter().map(Failed::new).collect(),
            failed: failed.into_iter().map(Failed::new).collect(),
            passed: passed(&plan, records)?,
            // The good client's errors next to a crowd are figures.
            errors: if plan.mode == ModeKind::Scenario { scenario::errors(records)? } else { Vec::new() },
            claims,
            interrupted: records.is_interrupted(),
            plan,
        })
    }

    /// The table of the rows, then the others, each with its name.
    pub(super) fn tables(&self) -> Vec<(String, Table)> {
        let own = [(String::from("rows"), self.table())];
        own.into_iter().chain(self.best_table()).chain(self.tables.clone()).collect()
    }

    /// The charts of the definition. A chart of lines has the values of the other axes in its name.
    pub(super) fn charts(&self) -> Vec<(String, Chart)> {
        self.charts.clone()
    }

    /// All samples: a column for each axis and each measured figure.
    pub(super) fn csv(&self, records: &Records) -> anyhow::Result<String> {
        let axes: Vec<String> = self.plan.axes.iter().map(SweepAxis::to_string).collect();
        let is_known = |name: &&str| records.samples().any(|(_, sample)| sample.figures.contains_key(*name));
        let known = figures::ALL.iter().map(|figure| figure.name).filter(is_known);
        let first: Vec<String> = definition_key(&self.plan, "columns")?;
        let others = ["contestant"].into_iter().chain(axes.iter().map(String::as_str)).chain(["round"]).chain(known);
        let header: Vec<&str> = distinct(first.iter().map(String::as_str).chain(others));
        let published: Vec<PublishedFigures> = definition_key(&self.plan, "published")?;
        let row = |(key, sample): (&Key, &Sample)| {
            let lang = if key.contestant.starts_with(GO) { "go" } else { "rust" };
            let mut row = Map::from_iter([
                (String::from("contestant"), Value::from(key.contestant.clone())),
                (String::from("server"), Value::from(key.contestant.clone())), // its published column
                (String::from("lang"), Value::from(lang)),                     // and another one
                (String::from("round"), Value::from(key.round)),
            ]);
            let published_name =
                |(column, axis): (&String, &SweepAxis)| Some((column.clone(), json!(key.cell.get(axis)?)));
            row.extend(published.iter().flat_map(|one| &one.axes).filter_map(published_name));
            row.extend(key.cell.iter().map(|(axis, value)| (axis.to_string(), json!(value))));
            row.extend(sample.figures.iter().map(|(name, value)| (name.clone(), Value::from(*value))));
            with_short_floats(&row)
        };
        csv(&header.join(","), records.samples().map(row))
    }
}

/// A key of the definition that is a list; empty if it is not given.
fn definition_key<T: DeserializeOwned>(plan: &BenchPlan, key: &str) -> anyhow::Result<Vec<T>> {
    let value = plan.definition.get(key).cloned();
    value.map_or_else(|| Ok(Vec::new()), |value| serde_json::from_value(value).with_context(|| key.to_owned()))
}

/// The published figures next to those of the rows, and the tables of the mode.
fn tables(plan: &BenchPlan, rows: &[BenchRow], records: &Records) -> anyhow::Result<Vec<(String, Table)>> {
    let published: Vec<PublishedFigures> = definition_key(plan, "published")?;
    let published = published::table(&published, rows, &plan.axes)?;
    let mut tables: Vec<(String, Table)> =
        published.map(|table| (String::from("published, and here"), table)).into_iter().collect();
    if plan.mode == ModeKind::Tasks {
        tables.extend(tasks::table::tables(records, rows)?);
    }
    if plan.mode == ModeKind::Scenario {
        tables.extend(scenario::tables(records)?);
    }
    if plan.mode == ModeKind::Trial {
        tables.push((String::from("Verdicts of comparisons"), TrialResult::of(plan, records)?.table()));
    }
    let kept = (plan.mode == ModeKind::Hold).then(|| kept_table(records, rows, &plan.axes)).flatten();
    tables.extend(
        kept.map(|table| (String::from("the throughput next to the crowd, as a share of that without"), table)),
    );
    Ok(tables)
}

/// Whether the run has passed, in the modes that pass or fail.
fn passed(plan: &BenchPlan, records: &Records) -> anyhow::Result<Option<bool>> {
    Ok(match plan.mode {
        ModeKind::Scenario => Some(scenario::errors(records)?.is_empty()),
        ModeKind::Trial if !records.is_interrupted() => Some(TrialResult::of(plan, records)?.is_passed()),
        _ => None,
    })
}

/// The answer in a sentence.
fn answer(plan: &BenchPlan, rows: &[BenchRow], figure: NamedFigure, has_claims: bool) -> String {
    let what = match figure.name {
        figures::REQUESTS_PER_S => String::from("serves the most requests"),
        figures::OPERATIONS_PER_S => String::from("does the most operations"),
        figures::CAPACITY_PER_S => String::from("keeps the goal at the highest rate"),
        figures::BYTES_PER_CONNECTION => String::from("takes the least memory for a connection"),
        name => {
            let side = if figure.better == Better::Higher { "highest" } else { "lowest" };
            format!("has the {side} {}", figure.column.unwrap_or(name))
        }
    };
    let cells = distinct(rows.iter().map(|row| &row.cell)).len();
    let rounds = rows.iter().map(|row| row.rounds).max().unwrap_or(0);
    if rounds < plan.mode.min_rounds() || (plan.quick && rounds < MIN_ROUNDS) {
        let part = if plan.quick { "the quick part of the definition" } else { "the run" };
        let nothing = if has_claims { "No contestant is ranked before another" } else { "Nothing is decided" };
        let has = counted(rounds as u64, "round");
        let claims = if has_claims { " The claims about bounds are judged." } else { "" };
        return format!("{nothing}: {part} has {has}, and {MIN_ROUNDS} are needed.{claims}");
    }
    if plan.mode == ModeKind::Tasks {
        return tasks::table::answer(rows);
    }
    let first = rows.iter().filter(|row| row.rank == Some(1));
    let mut winners: Vec<(&str, usize)> = Vec::new();
    for row in first {
        match winners.iter_mut().find(|(name, _)| *name == row.contestant) {
            Some((_, count)) => *count += 1,
            None => winners.push((&row.contestant, 1)),
        }
    }
    winners.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let Some((best, count)) = winners.first().copied() else { return String::from("No contestant has figures.") };
    if cells > 1 {
        return format!("`{best}` {what} at {count} of {}, alone or with others.", counted(cells as u64, "cell"));
    }
    match winners.as_slice() {
        [_] => format!("`{best}` {what}."),
        all => {
            let names: Vec<String> = all.iter().map(|(name, _)| format!("`{name}`")).collect();
            format!("No difference was found between {}: they share the first rank.", names.join(", "))
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BenchPlan { name, about, workload, .. } = &self.plan;
        let axes: Vec<String> = self.plan.axes.iter().map(ToString::to_string).collect();
        let varied = if axes.is_empty() { String::new() } else { format!("; varied: {}", axes.join(", ")) };
        let about = if about.is_empty() { String::new() } else { format!(": {about}") };
        writeln!(f, "{}\n\n{name}{about}\nworkload: {workload}{varied}\n", self.answer)?;
        if let Some((title, table)) = self.best_table() {
            writeln!(f, "{title}\n{table}")?;
        }
        writeln!(f, "{}", self.table())?;
        let rounds = self.rows.iter().map(|row| row.rounds).max().unwrap_or(0);
        let compared =
            NamedFigure::named(&self.plan.compared).and_then(|figure| figure.column).unwrap_or(&self.plan.compared);
        let (rounds, baseline) = (counted(rounds as u64, "round"), &self.plan.baseline);
        writeln!(f, "medians of {rounds}; ratio and verdict: {compared}, relative to {baseline} at the same cell")?;
        if self.rows.iter().any(|row| row.figure(figures::P99_US).is_some()) {
            match self.plan.mode {
                ModeKind::Store => writeln!(f, "p50, p99: of one operation in 64, with one reading of the clock")?,
                _ => writeln!(f, "p50, p99: at the rate, from the intended start\n{LATE_NOTE}")?,
            }
        }
        if self.rows.iter().any(|row| row.figure(figures::CPU_US).is_some() && !row.is_full()) {
            writeln!(f, "~ before a cost: the server's cores were not full, or the client's were")?;
        }
        if self.rows.iter().any(BenchRow::is_overloaded) {
            writeln!(f, "overloaded: more than 1 % of the requests that were due could not be sent")?;
        }
        self.tables.iter().try_for_each(|(name, table)| writeln!(f, "\n{name}\n{table}"))?;
        for CellLimit { name, per_s, .. } in &self.limits {
            writeln!(f, "limit: {name} answers {} req/s in closed loop", count(*per_s))?;
        }
        let has_capacity = |row: &BenchRow| row.figure(figures::CAPACITY_PER_S).is_some();
        if self.rows.iter().any(|row| has_capacity(row) && row.is_client_full()) {
            writeln!(f, "~ before a capacity: the client was full at that rate, so the server may be able to do more")?;
        }
        if !self.claims.is_empty() {
            write!(f, "\n{}\n", shown_claims(&self.claims))?;
        }
        let lacks = |row: &BenchRow, figure: &str| row.figure(figure).is_none();
        if self.plan.mode == ModeKind::Scenario && self.rows.iter().any(|row| lacks(row, figures::STORED)) {
            writeln!(f, "unknown: the number of entities in a store, if the server does not print it")?;
        }
        self.errors.iter().try_for_each(|errors| write!(f, "{errors}"))?;
        self.contracts.iter().try_for_each(|contract| writeln!(f, "{contract}"))?;
        self.not_run.iter().try_for_each(|one| writeln!(f, "not run: {}: {}", one.key, one.why))?;
        self.failed.iter().try_for_each(|one| writeln!(f, "no figures: {}: {}", one.key, one.why))
    }
}
