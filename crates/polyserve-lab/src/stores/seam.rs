//! What the seam costs: a bare map, the same map behind `Arc<dyn EntityRepo>`, and as a repo of a type that the compiler knows,
//! take turns in one process.
//!
//! A field holds the baseline twice and the others once. A round is one turn of each, in an order that balances who comes
//! after whom; a round's ratio is its own time over the baseline's. After each [`BLOCK`] rounds all of them are made anew, in
//! a new process, with other secrets of the hasher and other draws, so that no luck of one filling decides.
//!
//! Invariant: the baseline's second entry was made and filled like any other, so its interval (A/A) shows what such luck
//! is worth. Cost: fields x threads x rounds x stores x the gets of a turn; the entities of a field at once.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use polyserve::Shutdown;
use polyserve::catalog::Catalog;
use polyserve_report::{Table, or_nothing};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::twins::{Field, Ground, Lookups};
use crate::experiment::again;
use crate::experiment::order;
use crate::journal::{Journal, first_header, of_kind};
use crate::progress::Progress;
use crate::statistics::{Estimate, Interval, LEAST_ROUNDS, median};

/// The experiment's name, its command's and its file's.
pub const NAME: &str = "seam";
/// The kind of a [`Turn`] in a record.
pub const TURN: &str = "turn";
/// Rounds between two fillings.
pub const BLOCK: usize = 3;

/// Who takes turns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Beside whom; entered twice.
    pub baseline: String,
    /// The others.
    pub stores: Vec<String>,
}

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Fields, one after the other.
    pub groups: Vec<Group>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Whether a get waits for the one before: one of them or both, each in every round.
    pub lookups: Vec<Lookups>,
    /// Rounds.
    pub rounds: usize,
    /// Stored entities.
    pub keys: u64,
    /// Bytes of a description.
    pub payload_bytes: usize,
    /// Gets of each thread in a turn.
    pub gets: u64,
    /// Of the draws.
    pub seed: u64,
    /// Begun where the run is to end now.
    pub stop: Shutdown,
}

/// A store's turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Beside whom.
    pub baseline: String,
    /// The store; the baseline's second entry is `NAME (again)`.
    pub name: String,
    /// Threads.
    pub threads: usize,
    /// Whether a get waited for the one before.
    pub lookups: Lookups,
    /// The round, from 1.
    pub round: usize,
    /// Gets of all threads.
    pub gets: u64,
    /// From the first thread's start to the last one's end, in seconds.
    pub elapsed_s: f64,
}

impl Experiment {
    /// Fillings of the whole run.
    pub fn steps(&self) -> usize {
        self.groups.len() * self.threads.len() * self.rounds.div_ceil(BLOCK)
    }

    /// How long one filling with its rounds may take at most: far longer than any store needs.
    pub fn patience(&self) -> Duration {
        let stores = self.groups.iter().map(|group| group.stores.len() as u64 + 2).max().unwrap_or(0);
        let threads = self.threads.iter().max().map_or(1, |threads| *threads as u64);
        let turns = (BLOCK * self.lookups.len()) as u64 * threads;
        let operations = stores.saturating_mul(self.gets.saturating_mul(turns).saturating_add(self.keys));
        Duration::from_mins(1) + Duration::from_micros(operations.saturating_mul(20))
    }

    /// Has `measure` measure what `journal` has not yet; answers all turns that there are then.
    ///
    /// # Errors
    ///
    /// Those of `measure`, and where the journal cannot be read or written.
    pub fn run(
        &self,
        measure: &mut dyn FnMut(&Visit) -> anyhow::Result<Vec<Turn>>,
        journal: &mut Journal,
        progress: &mut Progress,
    ) -> anyhow::Result<Vec<Turn>> {
        let mut turns: Vec<Turn> = journal.before(TURN)?;
        for mut visit in self.visits() {
            visit.rounds.retain(|round| !visit.field.has(*round, &turns));
            if visit.rounds.is_empty() {
                progress.were_over(1);
                continue;
            }
            if self.stop.is_begun() {
                return Ok(turns);
            }
            progress.begin(visit.to_string());
            let measured = measure(&visit);
            if self.stop.is_begun() {
                return Ok(turns); // it was cut short
            }
            for turn in measured? {
                journal.line(TURN, &turn)?;
                turns.retain(|other| other.place() != turn.place());
                turns.push(turn);
            }
            progress.turn_over();
        }
        Ok(turns)
    }

    fn visits(&self) -> Vec<Visit> {
        let ground = |threads: &usize| Ground {
            keys: self.keys,
            payload_bytes: self.payload_bytes,
            threads: *threads,
            gets: self.gets,
            seed: self.seed,
        };
        let blocks = |field: Entered| {
            (0..self.rounds.div_ceil(BLOCK)).map(move |block| {
                let rounds = block * BLOCK + 1..=self.rounds.min((block + 1) * BLOCK);
                let rounds = rounds.flat_map(|round| self.lookups.iter().map(move |lookups| (round, *lookups)));
                Visit { field: field.clone(), block, rounds: rounds.collect() }
            })
        };
        let fields = |group: &Group| {
            let entered = |threads| Entered { group: group.clone(), ground: ground(threads) };
            self.threads.iter().map(entered).flat_map(blocks).collect::<Vec<_>>()
        };
        self.groups.iter().flat_map(fields).collect()
    }
}

/// Who is asked, and what.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entered {
    group: Group,
    ground: Ground,
}

impl Entered {
    /// The stores, and what they are called; the baseline's second entry is the second.
    fn stores(&self) -> Vec<(&str, String)> {
        let (baseline, others) = (&*self.group.baseline, self.group.stores.iter().map(|name| (&**name, name.clone())));
        [(baseline, baseline.to_owned()), (baseline, again(baseline))].into_iter().chain(others).collect()
    }

    /// Whether all have taken their turn in this round.
    fn has(&self, (round, lookups): (usize, Lookups), turns: &[Turn]) -> bool {
        self.stores().iter().all(|(_, name)| {
            let place = (&*self.group.baseline, &**name, self.ground.threads, lookups, round);
            turns.iter().any(|turn| turn.place() == place)
        })
    }
}

/// Some rounds on one filling, in a process of their own: what a heap has been through decides where in it things come to
/// lie, and that is up to a fifth of a lookup's time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Visit {
    field: Entered,
    /// Which filling.
    block: usize,
    rounds: Vec<(usize, Lookups)>,
}

impl fmt::Display for Visit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Group { baseline, stores }, threads) = (&self.field.group, self.field.ground.threads);
        write!(f, "{} beside {baseline}, {threads} threads, filling {}", stores.join(", "), self.block + 1)
    }
}

impl Visit {
    /// Fills the stores and has them take their turns.
    ///
    /// # Errors
    ///
    /// Where a store fails or shows what it should not.
    pub fn run(&self, catalog: &Catalog) -> anyhow::Result<Vec<Turn>> {
        let Entered { group, ground } = &self.field;
        let stores = self.field.stores();
        let names: Vec<&str> = stores.iter().map(|(name, _)| *name).collect();
        let field = Field::new(catalog, &names, ground, self.block)?;
        let mut turns = Vec::new();
        for (round, lookups) in &self.rounds {
            for place in order(round - 1, names.len()) {
                let elapsed_s = field.turn(place, *lookups)?.as_secs_f64();
                turns.push(Turn {
                    baseline: group.baseline.clone(),
                    name: stores[place].1.clone(),
                    threads: ground.threads,
                    lookups: *lookups,
                    round: *round,
                    gets: ground.gets * ground.threads as u64,
                    elapsed_s,
                });
            }
        }
        Ok(turns)
    }
}

impl Turn {
    /// What no two turns have in common.
    fn place(&self) -> (&str, &str, usize, Lookups, usize) {
        (&self.baseline, &self.name, self.threads, self.lookups, self.round)
    }
}

type Rounds<'a> = BTreeMap<usize, &'a Turn>;

/// A store beside its baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Beside whom.
    pub baseline: String,
    /// The store.
    pub name: String,
    /// Threads.
    pub threads: usize,
    /// Whether a get waited for the one before.
    pub lookups: Lookups,
    /// Its time over the baseline's.
    pub time: Estimate,
    /// The baseline's second entry over the first.
    pub same: Option<Estimate>,
    /// Gets a second, median.
    pub per_s: f64,
    /// The baseline's.
    pub baseline_per_s: f64,
}

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Stores, by baseline and threads.
    pub rows: Vec<Row>,
    /// The most that a ratio's upper bound may be, where something was asked for.
    pub at_most: Option<f64>,
    /// Whether it was ended early.
    pub interrupted: bool,
}

impl Report {
    /// What these turns make together.
    pub fn of(turns: &[Turn], seed: u64, at_most: Option<f64>, interrupted: bool) -> Self {
        // By baseline, threads and lookups, then by store, then by round.
        let mut fields: BTreeMap<(&str, usize, Lookups), BTreeMap<&str, Rounds<'_>>> = BTreeMap::new();
        for turn in turns {
            let field = fields.entry((&turn.baseline, turn.threads, turn.lookups)).or_default();
            field.entry(&turn.name).or_default().insert(turn.round, turn);
        }
        let mut rows = Vec::new();
        for ((baseline, threads, lookups), field) in &fields {
            let ratio = |name: &str| {
                let (own, other) = (field.get(name)?, field.get(baseline)?);
                let both = own.iter().filter_map(|(round, turn)| Some(turn.elapsed_s / other.get(round)?.elapsed_s));
                Estimate::of(&both.collect::<Vec<_>>(), seed)
            };
            let per_s = |name: &str| {
                let turns = field.get(name).into_iter().flat_map(BTreeMap::values);
                median(&mut turns.map(|turn| turn.gets as f64 / turn.elapsed_s).collect::<Vec<_>>())
            };
            let same = again(baseline);
            for name in field.keys().filter(|name| *name != baseline && **name != same) {
                rows.extend(ratio(name).map(|time| Row {
                    baseline: (*baseline).to_owned(),
                    name: (*name).to_owned(),
                    threads: *threads,
                    lookups: *lookups,
                    time,
                    same: ratio(&same),
                    per_s: per_s(name),
                    baseline_per_s: per_s(baseline),
                }));
            }
        }
        Self { rows, at_most, interrupted }
    }

    /// The rows whose upper bound is above what was asked for.
    pub fn above(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| self.at_most.is_some_and(|most| row.time.interval.high > most))
    }
}

fn table(rows: &[Row]) -> Table {
    let header = [
        "STORE",
        "BESIDE",
        "THREADS",
        "GETS",
        "TIME, BASELINE 1",
        "95 %",
        "THE BASELINE AGAIN",
        "M GETS/S",
        "BASELINE'S",
        "ROUNDS",
    ];
    let mut table = Table::of_numbers(&header);
    let interval = |of: &Interval| of.to_string();
    for row in rows {
        table.row(vec![
            row.name.clone(),
            row.baseline.clone(),
            row.threads.to_string(),
            row.lookups.to_string(),
            format!("{:.3}", row.time.ratio),
            interval(&row.time.interval),
            or_nothing(row.same.as_ref().map(|same| interval(&same.interval))),
            format!("{:.2}", row.per_s / 1e6),
            format!("{:.2}", row.baseline_per_s / 1e6),
            row.time.rounds.to_string(),
        ]);
    }
    table
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", table(&self.rows))?;
        if self.rows.iter().any(|row| row.time.rounds < LEAST_ROUNDS) {
            writeln!(
                f,
                "too few rounds: intervals of fewer than {LEAST_ROUNDS} rounds are narrower than they should be"
            )?;
        }
        if let Some(most) = self.at_most {
            for row in self.above() {
                let (name, baseline, high) = (&row.name, &row.baseline, row.time.interval.high);
                let (threads, lookups) = (row.threads, row.lookups);
                writeln!(
                    f,
                    "above {most}: {name} beside {baseline}, {threads} threads, {lookups} gets: up to {high:.3}"
                )?;
            }
        }
        if self.interrupted { writeln!(f, "ended early") } else { Ok(()) }
    }
}

/// The report that these lines make.
///
/// # Errors
///
/// Where there is no header, or a line is not what it should be.
pub fn report(lines: &[Value]) -> anyhow::Result<Report> {
    let header = first_header(lines)?;
    let at_most = header.plan["at_most"].as_f64();
    Ok(Report::of(&of_kind::<Turn>(lines, TURN)?, header.environment.seed, at_most, false))
}

/// Its table.
///
/// # Errors
///
/// As [`report`].
pub fn tables(lines: &[Value]) -> anyhow::Result<Vec<(String, Table)>> {
    let report = report(lines)?;
    Ok(if report.rows.is_empty() { Vec::new() } else { vec![("beside the bare map".into(), table(&report.rows))] })
}
