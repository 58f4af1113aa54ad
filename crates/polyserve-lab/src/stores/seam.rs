//! What the seam costs: a bare map and the same map behind `Arc<dyn EntityRepo>` take turns in one process.
//!
//! A field holds the baseline twice and the others once. A round is one turn of each, in an order that balances who comes
//! after whom; a round's ratio is its own time over the baseline's. After each [`BLOCK`] rounds all of them are made anew,
//! with other secrets of the hasher, another place in the heap and other draws, so that no luck of one filling decides.
//!
//! Invariant: the baseline's second entry was made and filled like any other, so its interval (A/A) shows what such luck
//! is worth. Cost: fields x threads x rounds x stores x the gets of a turn; the entities of a field at once.

use std::collections::BTreeMap;
use std::fmt;

use polyserve::Shutdown;
use polyserve::catalog::Catalog;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::report::again;
use super::twins::{Field, Ground};
use crate::compare::contestant::order;
use crate::journal::{Journal, first_header, of_kind};
use crate::output::{Table, or_nothing};
use crate::progress::Progress;
use crate::statistics::{Estimate, Interval, LEAST_ROUNDS, median};

/// The experiment's name, its command's and its file's.
pub const NAME: &str = "seam";
/// The kind of a [`Turn`] in a record.
pub const TURN: &str = "turn";
/// Rounds between two fillings.
pub const BLOCK: usize = 10;

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
    /// The round, from 1.
    pub round: usize,
    /// Gets of all threads.
    pub gets: u64,
    /// From the first thread's start to the last one's end, in seconds.
    pub elapsed_s: f64,
}

impl Experiment {
    /// Turns of the whole run.
    pub fn steps(&self) -> usize {
        let stores: usize = self.groups.iter().map(|group| group.stores.len() + 2).sum();
        stores * self.threads.len() * self.rounds
    }

    /// Measures what `journal` has not yet; answers all turns that there are then.
    ///
    /// # Errors
    ///
    /// Where a store fails or shows what it should not, or the journal cannot be read or written.
    pub fn run(&self, catalog: &Catalog, journal: &mut Journal, progress: &mut Progress) -> anyhow::Result<Vec<Turn>> {
        let mut turns: Vec<Turn> = journal.before(TURN)?;
        for group in &self.groups {
            for threads in &self.threads {
                for block in 0..self.rounds.div_ceil(BLOCK) {
                    self.block(catalog, group, *threads, block, &mut turns, journal, progress)?;
                    if self.stop.is_begun() {
                        return Ok(turns);
                    }
                }
            }
        }
        Ok(turns)
    }

    #[allow(clippy::too_many_arguments)] // where it is, and where it goes
    fn block(
        &self,
        catalog: &Catalog,
        group: &Group,
        threads: usize,
        block: usize,
        turns: &mut Vec<Turn>,
        journal: &mut Journal,
        progress: &mut Progress,
    ) -> anyhow::Result<()> {
        let rounds = block * BLOCK + 1..=self.rounds.min((block + 1) * BLOCK);
        let names: Vec<&str> = [&group.baseline; 2].into_iter().chain(&group.stores).map(String::as_str).collect();
        let entered = |place: usize| if place == 1 { again(names[1]) } else { names[place].to_owned() };
        let is_there = |turn: &Turn, round: usize, name: &str| {
            turn.baseline == group.baseline && turn.threads == threads && turn.round == round && turn.name == name
        };
        let missing: Vec<usize> = rounds
            .filter(|round| {
                let is_whole =
                    (0..names.len()).all(|place| turns.iter().any(|turn| is_there(turn, *round, &entered(place))));
                !is_whole
            })
            .collect();
        progress.were_over((self.rounds.min((block + 1) * BLOCK) - block * BLOCK - missing.len()) * names.len());
        if missing.is_empty() {
            return Ok(());
        }
        progress.begin(format!("filling {} beside {}", group.stores.join(", "), group.baseline));
        let ground =
            Ground { keys: self.keys, payload_bytes: self.payload_bytes, threads, gets: self.gets, seed: self.seed };
        let field = Field::new(catalog, &names, &ground, block)?;
        for round in missing {
            for place in order(round - 1, names.len()) {
                if self.stop.is_begun() {
                    return Ok(());
                }
                let name = entered(place);
                progress.begin(format!("round {round}: {name}, {threads} threads"));
                let elapsed_s = field.turn(place)?.as_secs_f64();
                let baseline = group.baseline.clone();
                let turn = Turn { baseline, name, threads, round, gets: self.gets * threads as u64, elapsed_s };
                journal.line(TURN, &turn)?;
                turns.retain(|other| {
                    (&other.baseline, &other.name, other.threads, other.round)
                        != (&turn.baseline, &turn.name, threads, round)
                });
                turns.push(turn);
                progress.turn_over();
            }
        }
        Ok(())
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
        // By baseline and threads, then by store, then by round.
        let mut fields: BTreeMap<(&str, usize), BTreeMap<&str, Rounds<'_>>> = BTreeMap::new();
        for turn in turns {
            let field = fields.entry((&turn.baseline, turn.threads)).or_default();
            field.entry(&turn.name).or_default().insert(turn.round, turn);
        }
        let mut rows = Vec::new();
        for ((baseline, threads), field) in &fields {
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
                writeln!(f, "above {most}: {name} beside {baseline}, {} threads: up to {high:.3}", row.threads)?;
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
