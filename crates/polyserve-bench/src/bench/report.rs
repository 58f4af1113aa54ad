//! The result of an experiment: a row for each contestant at each cell, with ranks, tables and charts.

use std::fmt;

use crate::report::figures::{count, counted};
use crate::report::svg::{Chart, DASHES, GREY, Marker, Series, Style};
use crate::report::{Claim, EMPTY_CELL, Table, or_empty, shown_claims};
use anyhow::Context as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::definition::{ChartDefinition, ChartKind};
use super::derived;
use super::experiment::{BenchPlan, DefinedExperiment, Key, Sample};
use super::figures::{self, Better, NamedFigure, NamedFigures};
use super::heat_map;
use super::mode::ModeKind;
use super::mode::hold::kept;
use super::mode::limit::{CellLimit, LIMIT};
use super::mode::requests::{CellRate, RATE};
use super::mode::scenario::{self, ScenarioErrors};
use super::mode::search::SearchEnd;
use super::mode::trial::TrialResult;
use super::published::{self, PublishedFigures};
use super::sweep::{CellValue, SweepAxis, SweepCell};
use crate::charts;
use crate::claim::{ClaimDefinition, ClaimRow, ClaimSet};
use crate::compare::ranking::{BUSY, is_server_full};
use crate::contestants::GO;
use crate::experiment::{Failed, Reason, Records, again, csv, distinct, first_of, with_short_floats};
use crate::output::{LATE_NOTE, is_client_late, rate_text};
use crate::statistics::{Compared, Estimate, Interval, MIN_ROUNDS, median_of, shared_ranks, tie_band};
use crate::stores::bare::PREFIX;
use crate::tasks;
use crate::turn::{CONTRACT, Contract, MAX_BEHIND, Role};

/// A contestant at a cell.
#[derive(Clone, Debug, Serialize)]
pub struct BenchRow {
    /// The contestant.
    pub contestant: String,
    /// The values of the sweep.
    pub cell: SweepCell,
    /// The role.
    pub role: Role,
    /// The rank at the cell, from 1. Contestants without a difference share a rank. References have none.
    pub rank: Option<usize>,
    /// The number of rounds.
    pub rounds: usize,
    /// The medians over the rounds.
    pub figures: NamedFigures,
    /// The compared figure, relative to the baseline at the cell.
    pub compared: Option<Compared>,
}

/// The result of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The answer in a sentence.
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
    pub not_run: Vec<Failed<Key>>,
    /// The contestants that failed, or took too long.
    pub failed: Vec<Failed<Key>>,
    /// The rounds of a scenario in which something was wrong. They fail the command.
    pub errors: Vec<ScenarioErrors>,
    /// Whether a scenario had no error, or a trial has passed; `None` in other modes, and if a trial was ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passed: Option<bool>,
    /// The verdicts on the definition's claims; none if the run has too few rounds.
    pub claims: Vec<Claim>,
    /// Whether it was ended early.
    pub interrupted: bool,
}

/// A sample with its round.
type RoundSample<'a> = (usize, &'a Sample);

/// The samples of a cell.
struct CellSamples<'a> {
    all: Vec<(&'a Key, &'a Sample)>,
    figure: NamedFigure,
    baseline: &'a str,
    seed: u64,
}

impl CellSamples<'_> {
    fn of(&self, name: &str) -> Vec<RoundSample<'_>> {
        self.all.iter().filter(|(key, _)| key.contestant == name).map(|(key, sample)| (key.round, *sample)).collect()
    }

    /// The ratio of two contestants' figures, round by round.
    fn ratio(&self, name: &str, base: &str) -> Option<Estimate> {
        let base = self.of(base);
        let ratios = self.of(name).into_iter().filter_map(|(round, sample)| {
            let (_, base) = base.iter().find(|(base_round, _)| *base_round == round)?;
            Some(sample.figures.get(self.figure.name)? / base.figures.get(self.figure.name)?)
        });
        Estimate::of(&ratios.collect::<Vec<_>>(), self.seed)
    }

    /// The rows of the cell, the best first; then the baseline's second entry and the references.
    fn rows(&self) -> Vec<BenchRow> {
        let control = again(self.baseline);
        let band = tie_band(self.ratio(&control, self.baseline).as_ref());
        let row = |name: &str| {
            let own = self.of(name);
            let (_, first) = own.first()?;
            let names = distinct(own.iter().flat_map(|(_, sample)| sample.figures.keys()));
            let median =
                |figure: &str| median_of(own.iter().filter_map(|(_, sample)| sample.figures.get(figure).copied()));
            let figures = names.into_iter().filter_map(|figure| Some((figure.clone(), median(figure)?))).collect();
            // A second entry is compared with the first one.
            let base = first_of(name).unwrap_or(self.baseline);
            let ratio = self.ratio(name, base).filter(|_| name != self.baseline);
            let (key, _) = self.all.first()?;
            Some(BenchRow {
                contestant: name.to_owned(),
                cell: key.cell.clone(),
                role: first.role,
                rank: None,
                rounds: own.len(),
                figures,
                compared: ratio.map(|ratio| Compared::of(ratio, &band)),
            })
        };
        let names = distinct(self.all.iter().map(|(key, _)| key.contestant.as_str()));
        let rows = names.into_iter().filter_map(row);
        let (mut ranked, others): (Vec<BenchRow>, Vec<BenchRow>) = rows.partition(BenchRow::is_ranked);
        let value = |row: &BenchRow| row.figures.get(self.figure.name).copied();
        let worst = if self.figure.better == Better::Higher { 0.0 } else { f64::INFINITY };
        ranked.sort_by(|a, b| {
            let [a, b] = [a, b].map(|row| value(row).unwrap_or(worst));
            if self.figure.better == Better::Higher { b.total_cmp(&a) } else { a.total_cmp(&b) }
        });
        let ranks = shared_ranks(ranked.len(), |first, other| {
            let ratio = self.ratio(&ranked[other].contestant, &ranked[first].contestant);
            let [first, other] = [first, other].map(|place| value(&ranked[place]));
            ratio.map_or(first != other, |ratio| ratio.verdict(&band).is_different())
        });
        ranked.iter_mut().zip(ranks).for_each(|(row, rank)| row.rank = Some(rank));
        ranked.into_iter().chain(others).collect()
    }
}

impl BenchRow {
    /// Whether it is a contestant of its own: neither a limit nor a second entry.
    pub(crate) fn is_ranked(&self) -> bool {
        matches!(self.role, Role::Baseline | Role::Ranked)
    }

    /// Whether it is a limit of what a contestant can reach: a null server, or a bare map.
    fn is_limit(&self) -> bool {
        self.role == Role::Limit || self.contestant.starts_with(PREFIX)
    }

    fn figure(&self, name: &str) -> Option<f64> {
        self.figures.get(name).copied()
    }

    /// Whether the contestant could not keep the fixed rate. Its latencies depend on the length of the slice.
    fn is_overloaded(&self) -> bool {
        self.figure(figures::BEHIND).is_some_and(|behind| behind > MAX_BEHIND)
    }

    /// A figure for a table.
    fn text(&self, figure: &NamedFigure) -> String {
        let Some(value) = self.figure(figure.name) else {
            return if self.is_overloaded() { String::new() } else { EMPTY_CELL.to_owned() };
        };
        let is_latency = [figures::P50_US, figures::P99_US].contains(&figure.name);
        let lateness = self.figure(figures::LATENESS_P99_US).unwrap_or(0.0);
        match figure.name {
            figures::REQUESTS_PER_S => rate_text(value, self.figure("under_way")),
            figures::CAPACITY_PER_S => self.capacity_text(&figure.text(value)),
            figures::P50_US if self.is_overloaded() => String::from("overloaded"),
            figures::P99_US if self.is_overloaded() => String::new(),
            figures::CPU_US if !self.is_full() => format!("~{}", figure.text(value)),
            _ if is_latency && is_client_late(lateness, value) => format!("~{}", figure.text(value)),
            _ => figure.text(value),
        }
    }

    /// A capacity with the end of its search.
    fn capacity_text(&self, value: &str) -> String {
        let bound = match SearchEnd::of(self.figure(figures::SEARCH_END).unwrap_or_default()) {
            SearchEnd::Below => "< ",
            SearchEnd::Between => "",
            SearchEnd::Above => ">= ",
        };
        let full = if self.is_client_full() { "~" } else { "" };
        format!("{bound}{full}{value}")
    }

    /// Whether the client had no time left, so that it may be the limit of a capacity.
    fn is_client_full(&self) -> bool {
        self.figure(figures::CLIENT_BUSY).is_some_and(|busy| busy >= BUSY)
    }

    /// Whether the cost can be compared: the server's cores were full, and the client's were not.
    fn is_full(&self) -> bool {
        is_server_full(self.figure(figures::SERVER_BUSY), self.figure(figures::CLIENT_BUSY))
    }
}

impl Report {
    /// The result of these records.
    ///
    /// # Errors
    ///
    /// Returns an error if the header or a fact does not have its fields.
    pub fn of(records: &Records<DefinedExperiment>) -> anyhow::Result<Self> {
        let plan: BenchPlan = serde_json::from_value(records.header.plan.clone())?;
        let name = plan.compared.as_str();
        let figure = NamedFigure::named(name).ok_or_else(|| anyhow::anyhow!("there is no figure {name}"))?;
        let measured: Vec<(&Key, &Sample)> =
            records.samples().filter(|(key, _)| records.absence(key).is_none()).collect();
        let mut cells = distinct(measured.iter().map(|(key, _)| &key.cell));
        cells.sort();
        let seed = records.header.environment.seed;
        let rows = cells.into_iter().flat_map(|cell| {
            let all = measured.iter().copied().filter(|(key, _)| key.cell == *cell).collect();
            CellSamples { all, figure, baseline: &plan.baseline, seed }.rows()
        });
        let rows: Vec<BenchRow> = rows.collect();
        let (not_run, failed): (Vec<_>, Vec<_>) =
            records.absences().partition(|(_, absence)| absence.reason == Reason::NotAvailable);
        let claims = claims(&plan, records, seed)?;
        let tables = tables(&plan, &rows, records)?;
        let charts = charts_of_all(&plan, &rows, records)?;
        Ok(Self {
            answer: match plan.mode {
                ModeKind::Scenario => scenario::answer(records)?,
                ModeKind::Trial => TrialResult::of(&plan, records)?.answer(),
                _ => answer(&plan, &rows, figure, !claims.is_empty()),
            },
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

    fn table(&self) -> Table {
        let has = |figure: &&NamedFigure| self.rows.iter().any(|row| row.figures.contains_key(figure.name));
        let mut columns: Vec<&NamedFigure> =
            figures::ALL.iter().filter(|figure| figure.column.is_some()).filter(has).collect();
        columns.sort_by_key(|figure| figure.name != self.plan.compared); // it is the first one
        let axes: Vec<String> = self.plan.axes.iter().map(ToString::to_string).collect();
        let mut header: Vec<&str> = axes.iter().map(String::as_str).collect();
        header.extend(["contestant", "#"]);
        let titles = || columns.iter().filter_map(|figure| figure.column);
        header.extend(titles().take(1));
        header.extend(["ratio, 95 %", "verdict"]);
        header.extend(titles().skip(1));
        let contestant = axes.len();
        let mut table = Table::of_numbers(&header).named_by(contestant + 1).with_texts_in(contestant);
        table = table.with_texts_in(contestant + 4);
        let higher = NamedFigure::named(&self.plan.compared).is_none_or(|figure| figure.better == Better::Higher);
        let (more, less) = if higher { ("faster", "slower") } else { ("slower", "faster") };
        for row in &self.rows {
            let mut cells: Vec<String> =
                self.plan.axes.iter().map(|axis| or_empty(row.cell.get(axis).map(CellValue::to_string))).collect();
            cells.push(row.contestant.clone());
            cells.push(row.rank.map_or_else(String::new, |rank| rank.to_string()));
            let mut texts = columns.iter().map(|figure| row.text(figure));
            cells.extend(texts.next());
            cells.push(row.compared.map(|compared| ratio_text(&compared.estimate)).unwrap_or_default());
            cells.push(match (row.role, row.compared) {
                (Role::Baseline, _) => String::from("baseline"),
                (Role::Same, _) => String::from("A/A"),
                (Role::Limit, _) => String::from("limit"),
                (_, compared) => compared.map_or_else(String::new, |compared| compared.in_words(more, less)),
            });
            cells.extend(texts);
            table.row(cells);
        }
        table
    }

    /// The best contestant of each cell, under its name: a column for each value of the first chart's axis. Null servers and bare
    /// maps are limits: the best contestant is a share of the best of them.
    fn best_table(&self) -> Option<(String, Table)> {
        let x = self.plan.charts.iter().find_map(|chart| chart.x)?;
        let figure = NamedFigure::named(&self.plan.compared)?;
        let others: Vec<SweepAxis> = self.plan.axes.iter().copied().filter(|axis| *axis != x).collect();
        let places = distinct(self.rows.iter().filter_map(|row| row.cell.get(&x)));
        if places.is_empty() {
            return None;
        }
        let texts = places.iter().map(ToString::to_string);
        let header: Vec<String> = others.iter().map(ToString::to_string).chain(texts).collect();
        let mut table = Table::of_texts(&header.iter().map(String::as_str).collect::<Vec<_>>());
        let rest = |cell: &SweepCell| -> Vec<Option<CellValue>> {
            others.iter().map(|axis| cell.get(axis).cloned()).collect()
        };
        for part in distinct(self.rows.iter().map(|row| rest(&row.cell))) {
            let best = |place: &&CellValue| {
                let here = || self.rows.iter().filter(|row| row.cell.get(&x) == Some(place) && rest(&row.cell) == part);
                let best = here().find(|row| row.is_ranked() && !row.is_limit())?;
                let value = best.figure(figure.name)?;
                let limits = here().filter(|row| row.is_limit() && row.role != Role::Same);
                let limits = limits.filter_map(|row| Some((&row.contestant, row.figure(figure.name)?)));
                let is_higher = figure.better == Better::Higher;
                let limit = limits.max_by(|(_, a), (_, b)| if is_higher { a.total_cmp(b) } else { b.total_cmp(a) });
                let share = limit.map(|(name, limit)| format!(", {:.2} of {name}", value / limit)).unwrap_or_default();
                Some(format!("{} {}{share}", best.contestant, best.text(&figure)))
            };
            let row = part.iter().map(|value| value.as_ref().map_or_else(String::new, CellValue::to_string));
            table.row(row.chain(places.iter().map(|place| or_empty(best(place)))).collect());
        }
        Some((format!("the best by {x}"), table))
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
    pub(super) fn csv(&self, records: &Records<DefinedExperiment>) -> anyhow::Result<String> {
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

/// The verdicts on the definition's claims. A run with too few rounds answers none: its answer says so. A bound of a page is a matter
/// of seconds, so one round decides a claim that needs no more.
fn claims(plan: &BenchPlan, records: &Records<DefinedExperiment>, seed: u64) -> anyhow::Result<Vec<Claim>> {
    // A pattern that stands for no contestant of the run has no claim.
    let takes_part = |claim: &ClaimDefinition| plan.contestants.iter().any(|name| claim.left.match_name(name));
    let is_asked = |claim: &ClaimDefinition| claim.contestant_names().next().is_some() || takes_part(claim);
    let min_rounds = |claim: &ClaimDefinition| match (&claim.right, plan.mode) {
        _ if claim.rule.is_of_cells() => claim.min_rounds(),
        (None, ModeKind::Page) => claim.least.unwrap_or(1),
        _ => plan.mode.min_rounds(),
    };
    let mut claims: Vec<ClaimDefinition> = definition_key(plan, "claim")?;
    claims.retain(|claim| is_asked(claim) && plan.rounds >= min_rounds(claim).min(plan.mode.min_rounds()));
    if claims.is_empty() || plan.quick {
        return Ok(Vec::new());
    }
    let set = ClaimSet { name: plan.name.clone(), baseline: Some(plan.baseline.clone()), claims };
    let at_cell =
        |row: ClaimRow, key: &Key| key.cell.iter().fold(row, |row, (axis, value)| row.at(&axis.to_string(), value));
    let is_right = |(key, _): &(&Key, &Sample)| records.absence(key).is_none();
    let measured = records.samples().filter(is_right).map(|(key, sample)| {
        let row = ClaimRow { figures: sample.figures.clone(), ..ClaimRow::new(&key.contestant, key.round) };
        at_cell(row, key)
    });
    let absent = records.absences();
    let absent = absent.map(|(key, absence)| at_cell(ClaimRow::absent(&key.contestant, &absence.why), key));
    let rows = derived::rows(plan.mode, measured.chain(absent).collect(), records)?;
    let verdicts = set.verdicts(&rows, seed);
    with_published_verdicts(verdicts, set, &definition_key(plan, "published")?)
}

/// The claims about many cells, with the verdicts on them by the published tables. These have one round and no noise, so every
/// difference in them counts.
fn with_published_verdicts(
    claims: Vec<Claim>,
    mut set: ClaimSet,
    published: &[PublishedFigures],
) -> anyhow::Result<Vec<Claim>> {
    let rows = published.iter().map(PublishedFigures::claim_rows).collect::<anyhow::Result<Vec<_>>>()?.concat();
    if !set.claims.iter().any(|claim| claim.rule.is_of_cells()) {
        return Ok(claims);
    }
    set.baseline = None;
    set.claims.iter_mut().filter(|claim| claim.rule.is_of_cells()).for_each(|claim| claim.least = Some(1));
    let is_judged = |definition: &ClaimDefinition| {
        let mut names = definition.contestant_names();
        definition.rule.is_of_cells() && names.any(|name| rows.iter().any(|row| row.contestant == *name))
    };
    let by_tables = set.verdicts(&rows, 0);
    let with = |((claim, by_tables), definition): ((Claim, Claim), &ClaimDefinition)| match is_judged(definition) {
        true => {
            let Claim { verdict, figure, .. } = by_tables;
            claim.with_published(format!("the article's tables, by the same test: {verdict}. {figure}"))
        }
        false => claim,
    };
    Ok(claims.into_iter().zip(by_tables).zip(&set.claims).map(with).collect())
}

/// A key of the definition that is a list; empty if it is not given.
fn definition_key<T: DeserializeOwned>(plan: &BenchPlan, key: &str) -> anyhow::Result<Vec<T>> {
    let value = plan.definition.get(key).cloned();
    value.map_or_else(|| Ok(Vec::new()), |value| serde_json::from_value(value).with_context(|| key.to_owned()))
}

/// The published figures next to those of the rows, and the tables of the mode.
fn tables(
    plan: &BenchPlan,
    rows: &[BenchRow],
    records: &Records<DefinedExperiment>,
) -> anyhow::Result<Vec<(String, Table)>> {
    let published: Vec<PublishedFigures> = definition_key(plan, "published")?;
    let published = published::table(&published, rows, &plan.axes)?;
    let mut tables: Vec<(String, Table)> =
        published.map(|table| (String::from("published, and here"), table)).into_iter().collect();
    if plan.mode == ModeKind::Tasks {
        tables.extend(tasks::table::tables(records, rows)?);
    }
    if plan.mode == ModeKind::Scenario {
        tables.extend(scenario::table::tables(records)?);
    }
    if plan.mode == ModeKind::Trial {
        tables.push((String::from("Verdicts of comparisons"), TrialResult::of(plan, records)?.table()));
    }
    let kept = (plan.mode == ModeKind::Hold).then(|| kept::table(records, rows, &plan.axes)).flatten();
    tables.extend(
        kept.map(|table| (String::from("the throughput next to the crowd, as a share of that without"), table)),
    );
    Ok(tables)
}

/// The charts of the definition.
fn charts_of_all(
    plan: &BenchPlan,
    rows: &[BenchRow],
    records: &Records<DefinedExperiment>,
) -> anyhow::Result<Vec<(String, Chart)>> {
    let published: Vec<PublishedFigures> = definition_key(plan, "published")?;
    let mut charts = Vec::new();
    for chart in &plan.charts {
        let at = |row: &&BenchRow| chart.at.iter().all(|(axis, value)| row.cell.get(axis) == Some(value));
        let rows: Vec<&BenchRow> = rows.iter().filter(at).collect();
        match chart.kind {
            ChartKind::Schedule => charts.extend(tasks::table::schedule_chart(records, chart)?),
            ChartKind::Heat => charts.extend(heat_map::charts(&rows, chart, &published)?),
            ChartKind::Lines | ChartKind::Ratios => charts.extend(charts_of(plan, &rows, chart, &published)?),
        }
    }
    Ok(charts)
}

/// The charts of one entry: one for each combination of the other axes.
fn charts_of(
    plan: &BenchPlan,
    rows: &[&BenchRow],
    chart: &ChartDefinition,
    published: &[PublishedFigures],
) -> anyhow::Result<Vec<(String, Chart)>> {
    let Some(y) = chart.y else { return Ok(Vec::new()) };
    let x = chart.x.filter(|_| chart.kind == ChartKind::Lines);
    let rest = |cell: &SweepCell| -> SweepCell {
        cell.iter().filter(|(axis, _)| Some(**axis) != x).map(|(axis, value)| (*axis, value.clone())).collect()
    };
    let mut charts = Vec::new();
    for part in distinct(rows.iter().map(|row| rest(&row.cell))) {
        let own: Vec<&BenchRow> = rows.iter().copied().filter(|row| rest(&row.cell) == part).collect();
        let place: String = part.iter().map(|(axis, value)| format!(", {axis} {value}")).collect();
        let title = format!("{}{place}", y.column.unwrap_or(y.name));
        let drawn = match x {
            Some(axis) => {
                let grey = published_lines(published, axis, y, &part)?;
                line_chart(&title, axis, y, &own).map(|lines| with_grey_lines(lines, chart.bound, axis, &own, grey))
            }
            None => {
                let ratio = |row: &&BenchRow| Some((row.contestant.clone(), row.compared?.estimate));
                let control = again(&plan.baseline);
                let same = own.iter().find(|row| row.contestant == control).and_then(|row| row.compared);
                let band = same.map(|same| tie_band(Some(&same.estimate)));
                let axis = format!("relative to {}", plan.baseline);
                charts::ratios(title.clone(), axis, band, own.iter().filter(|row| row.is_ranked()).filter_map(ratio))
            }
        };
        charts.extend(drawn.map(|chart| (title, chart)));
    }
    Ok(charts)
}

/// The figure of a row along an axis.
fn point(row: &BenchRow, axis: SweepAxis, figure: NamedFigure) -> Option<(u64, f64)> {
    Some((row.cell.get(&axis)?.number()?, row.figure(figure.name)?))
}

/// A line for each contestant.
fn line_chart(title: &str, axis: SweepAxis, y: NamedFigure, own: &[&BenchRow]) -> Option<Chart> {
    let line = |name: &str| {
        let points = own.iter().filter(|row| row.contestant == name && !row.is_overloaded());
        (name.to_owned(), points.filter_map(|row| point(row, axis, y)).collect())
    };
    let names = distinct(own.iter().filter(|row| row.role != Role::Same).map(|row| row.contestant.as_str()));
    charts::lines(title.to_owned(), axis.to_string(), names.into_iter().map(line))
}

/// The chart with the published lines above the others, and the bound below them.
fn with_grey_lines(
    chart: Chart,
    bound: Option<NamedFigure>,
    axis: SweepAxis,
    own: &[&BenchRow],
    published: Vec<Series>,
) -> Chart {
    let Chart::Lines(mut chart) = chart else { return chart };
    if let Some(bound) = bound {
        let mut points: Vec<(u64, f64)> = own.iter().filter_map(|row| point(row, axis, bound)).collect();
        points.sort_by_key(|(x, _)| *x);
        points.dedup_by_key(|(x, _)| *x);
        let style = Style { colour: GREY, dashes: Some(DASHES[0]), mark: Marker::Circle, is_hollow: true };
        let name = String::from("bound of a pool");
        chart.lines.splice(0..0, (!points.is_empty()).then_some(Series { name, style, points }));
    }
    chart.lines.extend(published);
    Chart::Lines(chart)
}

/// The published figures at these values of the other axes, as grey lines.
fn published_lines(
    all: &[PublishedFigures],
    axis: SweepAxis,
    y: NamedFigure,
    rest: &SweepCell,
) -> anyhow::Result<Vec<Series>> {
    let mut lines = Vec::new();
    for (one, mark) in all.iter().zip(Marker::ALL.into_iter().cycle()) {
        let rows = one.rows()?;
        let is_here = |cell: &SweepCell| cell.iter().all(|(axis, x)| rest.get(axis).is_none_or(|own| own == x));
        let here = rows.iter().filter(|row| is_here(&row.cell));
        let points = here.filter_map(|row| Some((row.cell.get(&axis)?.number()?, *row.figures.get(y.name)?)));
        let points: Vec<(u64, f64)> = points.filter(|(_, figure)| *figure > 0.0).collect();
        let style = Style { colour: GREY, dashes: None, mark, is_hollow: true };
        lines.extend((!points.is_empty()).then(|| Series { name: format!("published: {}", one.name), style, points }));
    }
    Ok(lines)
}

/// Whether the run has passed, in the modes that pass or fail.
fn passed(plan: &BenchPlan, records: &Records<DefinedExperiment>) -> anyhow::Result<Option<bool>> {
    Ok(match plan.mode {
        ModeKind::Scenario => Some(scenario::errors(records)?.is_empty()),
        ModeKind::Trial if !records.is_interrupted() => Some(TrialResult::of(plan, records)?.is_passed()),
        _ => None,
    })
}

/// A ratio with its interval, if there are enough rounds for one.
pub(crate) fn ratio_text(estimate: &Estimate) -> String {
    let Estimate { ratio, interval: Interval { low, high }, rounds } = estimate;
    if *rounds < MIN_ROUNDS { format!("{ratio:.2}") } else { format!("{ratio:.2} [{low:.2}, {high:.2}]") }
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
