//! The cost of the seam. Three stores take turns in one process: a bare map, the same map behind `Arc<dyn EntityRepo>`, and
//! the same map as a repo of a known type.
//!
//! A store set has the baseline twice and each other store once. A round is one turn of each store. The order of the turns is
//! balanced: each store follows each other store equally often. After each [`ROUNDS_PER_FILLING`] rounds all stores are made again in a new
//! process, with other hash secrets and other random ids.
//!
//! A filling has one ratio: a store's time in all its rounds divided by the baseline's. Rounds of one filling share hash
//! secrets and memory layout, so they are not independent. The intervals are therefore resampled over fillings.
//!
//! A batch is one seam run: the rounds of one filling. The first seam run that fails ends the command with an error.
//!
//! Invariant: the baseline's second entry was made and filled like any other store, so its interval (A/A) shows the noise
//! between fillings. Cost: store sets x threads x rounds x stores x the gets of a turn; the entities of a store set at once.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::report::{Summary, Table, or_empty};
use polyserve::catalog::Catalog;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::store_set::{Lookups, StoreSet, StoreSetSettings};
use crate::charts;
use crate::experiment::{Absence, Batch, Experiment, Failed, Notebook, Plan, Records, again, order};
use crate::statistics::{Estimate, MIN_ROUNDS, Verdict, median_of, tie_band};

/// The name of the experiment, of its command and of its record.
pub const NAME: &str = "seam";
/// Rounds of a filling.
pub const ROUNDS_PER_FILLING: usize = 2;

/// Stores that take turns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeamGroup {
    /// The baseline, which is entered twice.
    pub baseline: String,
    /// The other stores.
    pub stores: Vec<String>,
}

/// The plan of the measurement.
#[derive(Clone, Debug)]
pub struct SeamSetup {
    /// The groups, in their order.
    pub groups: Vec<SeamGroup>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Whether a get waits for the previous get. Both kinds can be given; every round then has both.
    pub lookups: Vec<Lookups>,
    /// Rounds.
    pub rounds: usize,
    /// Stored entities.
    pub keys: u64,
    /// Bytes of a description.
    pub payload_bytes: usize,
    /// Gets of each thread in a turn.
    pub gets: u64,
    /// The seed of the draws.
    pub seed: u64,
}

/// Executes a seam run, and returns a sample for each key.
pub type SeamMeasure = Box<dyn FnMut(&SeamRun) -> Result<Vec<SeamSample>, Absence>>;

/// Stores and their baselines, turn by turn.
pub struct Seam {
    /// The plan of the measurement.
    pub setup: SeamSetup,
    /// The threshold of a ratio's upper bound.
    pub at_most: Option<f64>,
    /// Executes a seam run.
    pub measure: SeamMeasure,
}

impl fmt::Debug for Seam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seam").field("setup", &self.setup).field("at_most", &self.at_most).finish_non_exhaustive()
    }
}

/// A store's turn.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The baseline.
    pub baseline: String,
    /// The store; the baseline's second entry is `NAME (again)`.
    pub name: String,
    /// Threads.
    pub threads: usize,
    /// Whether a get waited for the previous get.
    pub lookups: Lookups,
    /// The round, from 1.
    pub round: usize,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { baseline, name, threads, lookups, round } = self;
        write!(f, "round {round}: {name} against {baseline}, {threads} threads, {lookups} gets")
    }
}

/// The measurement of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Gets of all threads.
    pub gets: u64,
    /// From the first thread's start to the last one's end, in seconds.
    pub elapsed_s: f64,
}

/// A measured turn.
pub type SeamSample = (Key, Sample);

impl SeamSetup {
    /// The time limit of a seam run: far longer than any store needs.
    pub fn patience(&self) -> Duration {
        let stores = self.groups.iter().map(|group| group.stores.len() as u64 + 2).max().unwrap_or(0);
        let threads = self.threads.iter().max().map_or(1, |threads| *threads as u64);
        let turns = (ROUNDS_PER_FILLING * self.lookups.len()) as u64 * threads;
        let operations = stores.saturating_mul(self.gets.saturating_mul(turns).saturating_add(self.keys));
        Duration::from_secs(60) + Duration::from_micros(operations.saturating_mul(20))
    }

    fn runs(&self) -> Vec<SeamRun> {
        let settings = |threads: &usize| StoreSetSettings {
            keys: self.keys,
            payload_bytes: self.payload_bytes,
            threads: *threads,
            gets: self.gets,
            seed: self.seed,
        };
        let fillings = |plan: StoreSetPlan| {
            (0..self.rounds.div_ceil(ROUNDS_PER_FILLING)).map(move |filling| {
                let rounds = filling * ROUNDS_PER_FILLING + 1..=self.rounds.min((filling + 1) * ROUNDS_PER_FILLING);
                let rounds = rounds.flat_map(|round| self.lookups.iter().map(move |lookups| (round, *lookups)));
                SeamRun { plan: plan.clone(), filling, rounds: rounds.collect() }
            })
        };
        let runs = |group: &SeamGroup| {
            let store_set = |threads| StoreSetPlan { group: group.clone(), settings: settings(threads) };
            self.threads.iter().map(store_set).flat_map(fillings).collect::<Vec<_>>()
        };
        self.groups.iter().flat_map(runs).collect()
    }
}

impl Experiment for Seam {
    const NAME: &'static str = NAME;
    const SAMPLE: &'static str = "turn";
    const UNITS: &'static str = "turns";
    type Key = Key;
    type Sample = Sample;
    type Report = Report;

    fn describe(&self) -> Value {
        let SeamSetup { groups, threads, lookups, rounds, keys, payload_bytes, gets, seed: _ } = &self.setup;
        json!({
            "groups": groups, "threads": threads, "lookups": lookups, "rounds": rounds, "keys": keys,
            "payload_bytes": payload_bytes, "gets": gets, "at_most": self.at_most, "rounds_per_filling": ROUNDS_PER_FILLING,
        })
    }

    fn plan(&self) -> Plan<Key> {
        Plan::new(self.setup.runs().iter().map(|run| Batch::together(run.turns().map(|(_, key)| key))).collect())
    }

    fn measure_together(&mut self, keys: &[Key], notebook: &mut Notebook<'_, Self>) -> Vec<Result<Sample, Absence>> {
        let has_turn = |run: &SeamRun| run.turns().any(|(_, key)| keys.first() == Some(&key));
        let result = match self.setup.runs().into_iter().find(has_turn) {
            Some(run) => {
                notebook.progress.begin(run.to_string());
                (self.measure)(&run).map_err(|absence| Absence { why: format!("{run}: {}", absence.why), ..absence })
            }
            None => Err(Absence::failed("the turn is not planned")),
        };
        let sample = |key: &Key| {
            let turns = result.as_ref().map_err(Clone::clone)?;
            let measured = turns.iter().find(|(of, _)| of == key).map(|(_, sample)| *sample);
            measured.ok_or_else(|| Absence::failed("its process did not measure it"))
        };
        keys.iter().map(sample).collect()
    }

    /// One process measures all stores of a store set, so a failure excludes all of them.
    fn excludes(_: &Absence, of: &Key, key: &Key) -> bool {
        (&of.baseline, of.threads) == (&key.baseline, key.threads)
    }

    fn is_essential(&self, _: &Key) -> bool {
        true
    }

    fn report(records: &Records<Self>) -> anyhow::Result<Report> {
        Ok(Report::of(records))
    }

    fn summarize(_: &Records<Self>, report: &Report) -> anyhow::Result<Summary> {
        let tables = if report.rows.is_empty() {
            Vec::new()
        } else {
            vec![("compared with the bare map".into(), table(&report.rows))]
        };
        let rows = report.rows.iter().map(|row| {
            let SeamRow { name, threads, lookups, time, .. } = row;
            (format!("{name}, {threads} threads, {lookups}"), *time)
        });
        let chart =
            charts::ratios("Time of a get against the bare map".into(), "time, bare map = 1".into(), None, rows);
        let charts = charts::drawn([("time", chart)]);
        Ok(Summary { tables, charts, ..Summary::default() })
    }

    fn is_passed(report: &Report) -> bool {
        report.interrupted || report.above().next().is_none()
    }
}

/// A group and the settings that it is measured with.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoreSetPlan {
    group: SeamGroup,
    settings: StoreSetSettings,
}

impl StoreSetPlan {
    /// The stores and the names of their entries: the baseline, its second entry, and the other stores.
    fn stores(&self) -> Vec<(&str, String)> {
        let (baseline, others) = (&*self.group.baseline, self.group.stores.iter().map(|name| (&**name, name.clone())));
        [(baseline, baseline.to_owned()), (baseline, again(baseline))].into_iter().chain(others).collect()
    }
}

/// The rounds of one filling, in a process of their own. The places of entities in memory depend on the history of the heap.
/// They change the time of a lookup by up to a fifth.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SeamRun {
    plan: StoreSetPlan,
    /// The number of the filling, from 0.
    filling: usize,
    rounds: Vec<(usize, Lookups)>,
}

impl fmt::Display for SeamRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (SeamGroup { baseline, stores }, threads) = (&self.plan.group, self.plan.settings.threads);
        write!(f, "{} against {baseline}, {threads} threads, filling {}", stores.join(", "), self.filling + 1)
    }
}

impl SeamRun {
    /// The turns in their order: the index of the store in its store set, and the cell.
    fn turns(&self) -> impl Iterator<Item = (usize, Key)> {
        let (stores, StoreSetPlan { group, settings }) = (self.plan.stores(), &self.plan);
        self.rounds.iter().flat_map(move |(round, lookups)| {
            let key = |place: usize| Key {
                baseline: group.baseline.clone(),
                name: stores[place].1.clone(),
                threads: settings.threads,
                lookups: *lookups,
                round: *round,
            };
            order(round - 1, stores.len()).into_iter().map(|place| (place, key(place))).collect::<Vec<_>>()
        })
    }

    /// Fills the stores and measures their turns.
    ///
    /// # Errors
    ///
    /// Returns an error if a store fails or has a wrong entity.
    pub fn run(&self, catalog: &Catalog) -> anyhow::Result<Vec<SeamSample>> {
        let settings = &self.plan.settings;
        let stores = self.plan.stores();
        let names: Vec<&str> = stores.iter().map(|(name, _)| *name).collect();
        let store_set = StoreSet::new(catalog, &names, settings, self.filling)?;
        let gets = settings.gets * settings.threads as u64;
        let turn = |(place, key): (usize, Key)| {
            let elapsed_s = store_set.turn(place, key.lookups)?.as_secs_f64();
            Ok((key, Sample { gets, elapsed_s }))
        };
        self.turns().map(turn).collect()
    }
}

type Rounds<'a> = BTreeMap<usize, &'a Sample>;

/// A store relative to its baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SeamRow {
    /// The baseline.
    pub baseline: String,
    /// The store.
    pub name: String,
    /// Threads.
    pub threads: usize,
    /// Whether a get waited for the previous get.
    pub lookups: Lookups,
    /// Its time divided by the baseline's.
    pub time: Estimate,
    /// The time of the baseline's second entry divided by the first's.
    pub same: Option<Estimate>,
    /// Gets a second, median.
    pub per_s: f64,
    /// The baseline's gets a second.
    pub baseline_per_s: f64,
}

/// The result of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Stores, by baseline and threads.
    pub rows: Vec<SeamRow>,
    /// The threshold of a ratio's upper bound, if one was given.
    pub at_most: Option<f64>,
    /// Turns that failed; their store sets have no rows.
    pub failed: Vec<Failed<Key>>,
    /// Whether it was ended early.
    pub interrupted: bool,
}

impl Report {
    /// The result of these records.
    pub fn of(records: &Records<Seam>) -> Self {
        let seed = records.header.environment.seed;
        // By baseline, threads and lookups, then by store, then by round.
        let mut store_sets: BTreeMap<(&str, usize, Lookups), BTreeMap<&str, Rounds<'_>>> = BTreeMap::new();
        for (key, sample) in records.samples().filter(|(key, _)| records.absence(key).is_none()) {
            let store_set = store_sets.entry((&key.baseline, key.threads, key.lookups)).or_default();
            store_set.entry(&key.name).or_default().insert(key.round, sample);
        }
        let rounds_per_filling = records.header.plan["rounds_per_filling"].as_u64().unwrap_or(1).max(1) as usize;
        let mut rows = Vec::new();
        for ((baseline, threads, lookups), store_set) in &store_sets {
            let ratio = |name: &str| {
                let (candidate_rounds, baseline_rounds) = (store_set.get(name)?, store_set.get(baseline)?);
                let mut fillings: BTreeMap<usize, [f64; 2]> = BTreeMap::new();
                for (round, turn) in candidate_rounds {
                    let Some(baseline_turn) = baseline_rounds.get(round) else { continue };
                    let times = fillings.entry(round.saturating_sub(1) / rounds_per_filling).or_default();
                    times[0] += turn.elapsed_s;
                    times[1] += baseline_turn.elapsed_s;
                }
                let ratios: Vec<f64> = fillings.values().map(|[candidate, baseline]| candidate / baseline).collect();
                Estimate::of(&ratios, seed)
            };
            let per_s = |name: &str| {
                let turns = store_set.get(name).into_iter().flat_map(BTreeMap::values);
                median_of(turns.map(|turn| turn.gets as f64 / turn.elapsed_s)).unwrap_or(0.0)
            };
            let same = again(baseline);
            for name in store_set.keys().filter(|name| *name != baseline && **name != same) {
                rows.extend(ratio(name).map(|time| SeamRow {
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
        Self {
            rows,
            at_most: records.header.plan["at_most"].as_f64(),
            failed: records.failed(),
            interrupted: records.is_interrupted(),
        }
    }

    /// The rows with an upper bound above the threshold.
    pub fn above(&self) -> impl Iterator<Item = &SeamRow> {
        self.rows.iter().filter(|row| self.at_most.is_some_and(|at_most| row.time.interval.high > at_most))
    }
}

impl SeamRow {
    /// The verdict on the time, with the baseline's own interval (A/A) as the band of ties.
    fn verdict(&self) -> Verdict {
        self.time.verdict(&tie_band(self.same.as_ref()))
    }
}

fn table(rows: &[SeamRow]) -> Table {
    Table::of_columns(
        rows,
        &[
            ("store", &|row| row.name.clone()),
            ("baseline", &|row| row.baseline.clone()),
            ("threads", &|row| row.threads.to_string()),
            ("gets", &|row| row.lookups.to_string()),
            ("time ratio, 95 %", &|row| format!("{:.3} {}", row.time.ratio, row.time.interval)),
            ("verdict", &|row| row.verdict().in_words("slower", "faster").to_owned()),
            ("A/A, 95 %", &|row| or_empty(row.same.map(|same| same.interval.to_string()))),
            ("gets (M/s)", &|row| format!("{:.2}", row.per_s / 1e6)),
            ("baseline (M/s)", &|row| format!("{:.2}", row.baseline_per_s / 1e6)),
            ("fillings", &|row| row.time.rounds.to_string()),
        ],
    )
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", table(&self.rows))?;
        if self.rows.iter().any(|row| row.time.rounds < MIN_ROUNDS) {
            writeln!(
                f,
                "too few fillings for a verdict: {MIN_ROUNDS} are needed, {} rounds",
                MIN_ROUNDS * ROUNDS_PER_FILLING
            )?;
        }
        if let Some(at_most) = self.at_most {
            for row in self.above() {
                let (name, baseline, high) = (&row.name, &row.baseline, row.time.interval.high);
                let (threads, lookups) = (row.threads, row.lookups);
                writeln!(
                    f,
                    "above {at_most}: {name} against {baseline}, {threads} threads, {lookups} gets: up to {high:.3}"
                )?;
            }
        }
        self.failed.iter().try_for_each(|failed| writeln!(f, "no figures: {}: {}", failed.key, failed.why))
    }
}
