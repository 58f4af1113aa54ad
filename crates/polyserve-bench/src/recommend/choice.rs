//! The result: the comparison of the candidates, and the lines that use its winner.
//!
//! The winner is the first contestant of the [`Ranking`]: of the candidates that meet the goal, it has the highest throughput.

use std::time::Duration;

use polyserve::catalog::Catalog;
use serde::{Deserialize, Serialize};

use super::candidates::Candidate;
use super::lines::Lines;
use super::workload::Workload;
use crate::bench::mode::search::SearchEnd;
use crate::bench::ranking::{Ranking, RankingRow};
use crate::bench::{self, CellValue, Sample, SweepAxis, figures};
use crate::experiment::distinct;
use crate::machine::Cores;
use crate::statistics::{MIN_ROUNDS, median_of};

/// The recommendation, and all that it is based on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recommendation {
    /// The workload.
    pub workload: Workload,
    /// The parts of the workload that are defaults.
    pub defaulted: Vec<String>,
    /// Why these candidates.
    pub because: Vec<String>,
    /// The cores of the servers.
    pub server_cores: String,
    /// The cores of the client.
    pub client_cores: String,
    /// The comparison of the candidates.
    #[serde(flatten)]
    pub ranking: Ranking,
    /// The settings that the servers were measured with, as flags.
    pub settings: Vec<(String, Vec<String>)>,
    /// The winner; `None` if no candidate was measured.
    pub choice: Option<Choice>,
    /// Whether the rounds are enough for a verdict.
    pub decided: bool,
    /// The winner's capacity for each goal; none if it was not searched.
    pub capacity: Vec<CapacityFigure>,
    /// Why the capacity was not searched.
    pub no_capacity: Option<String>,
    /// Whether the client was busy while it measured the winner. The servers may then be faster than measured.
    pub client_full: bool,
    /// Whether the time was up before the last round.
    pub time_was_up: bool,
    /// The time in seconds that is enough for a verdict, if there was too little.
    pub enough_s: Option<u64>,
}

/// The winner.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Choice {
    /// The candidate.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// How to use it.
    pub lines: Lines,
}

/// The max rate at which the winner keeps a goal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityFigure {
    /// The goal: the max p99, in microseconds.
    pub goal_us: u64,
    /// Requests per second: the median of the searches.
    pub requests_per_s: f64,
    /// The result of the lowest search.
    pub low: f64,
    /// The result of the highest search.
    pub high: f64,
    /// The number of searches.
    pub searches: usize,
    /// How most of the searches ended, if not between two rates.
    pub end: Option<SearchEnd>,
}

impl CapacityFigure {
    /// The figures of these searches, by goal.
    pub fn of<'a>(searches: impl Iterator<Item = (&'a bench::Key, &'a Sample)>) -> Vec<Self> {
        let goal = |key: &bench::Key| key.cell.get(&SweepAxis::GoalUs).and_then(CellValue::number);
        let searches: Vec<(u64, &Sample)> = searches.filter_map(|(key, found)| Some((goal(key)?, found))).collect();
        let figure = |goal_us: u64| {
            let own: Vec<&Sample> = searches.iter().filter(|(goal, _)| *goal == goal_us).map(|(_, own)| *own).collect();
            let values = |figure: &'static str| own.iter().filter_map(move |found| found.figures.get(figure).copied());
            let rates = || values(figures::CAPACITY_PER_S);
            Some(Self {
                goal_us,
                requests_per_s: median_of(rates())?,
                low: rates().fold(f64::INFINITY, f64::min),
                high: rates().fold(0.0, f64::max),
                searches: own.len(),
                end: median_of(values(figures::SEARCH_END)).map(SearchEnd::of).filter(|end| *end != SearchEnd::Between),
            })
        };
        distinct(searches.iter().map(|(goal, _)| *goal)).into_iter().filter_map(figure).collect()
    }
}

/// The inputs of a recommendation, in addition to the ranking.
#[derive(Clone, Debug)]
pub struct Basis<'a> {
    /// The catalog with the candidates.
    pub catalog: &'a Catalog,
    /// The workload.
    pub workload: &'a Workload,
    /// The parts of the workload that are defaults.
    pub defaulted: &'a [String],
    /// The candidates.
    pub candidates: &'a [Candidate],
    /// The settings of the candidates by their names as contestants, as flags.
    pub settings: &'a [(String, Vec<String>)],
    /// Why these candidates.
    pub because: &'a [String],
    /// The cores of the servers, and of the client.
    pub cores: [Cores; 2],
    /// The time of the run, if it was up before the last round.
    pub time_up: Option<Duration>,
}

impl Recommendation {
    /// The `kind` of its line in a journal.
    pub const KIND: &str = "recommendation";

    /// The recommendation that follows from a ranking.
    pub fn of(basis: &Basis<'_>, ranking: Ranking) -> Self {
        let of_itself = |row: &RankingRow| row.throughput.map(|compared| compared.estimate.rounds);
        let rounds = ranking.rows.iter().filter_map(of_itself).max().unwrap_or(0);
        let decided = rounds >= MIN_ROUNDS;
        let service = basis.workload.service.as_ref().map(|(name, _)| name.as_str());
        let first = ranking.rows.iter().find(|row| row.rank.is_some());
        let candidate = first.and_then(|row| basis.candidates.iter().find(|one| one.contestant() == row.name));
        let choice = candidate.map(|candidate| Choice {
            candidate: candidate.clone(),
            lines: Lines::of(basis.catalog, candidate, service),
        });
        let settings = basis.candidates.iter().filter_map(|one| {
            let (_, settings) =
                basis.settings.iter().find(|(name, flags)| *name == one.contestant() && !flags.is_empty())?;
            Some((one.server.clone(), settings.clone()))
        });
        Self {
            workload: basis.workload.clone(),
            defaulted: basis.defaulted.to_vec(),
            because: basis.because.to_vec(),
            server_cores: basis.cores[0].to_string(),
            client_cores: basis.cores[1].to_string(),
            settings: distinct(settings),
            choice,
            decided,
            capacity: Vec::new(),
            no_capacity: None,
            client_full: first.is_some_and(|first| is_client_full(&first.saturated, &basis.cores)),
            time_was_up: basis.time_up.is_some(),
            enough_s: basis.time_up.filter(|_| !decided).map(|time| seconds_for_verdict(time, rounds)),
            ranking: Ranking { interrupted: ranking.interrupted && basis.time_up.is_none(), ..ranking },
        }
    }
}

/// Returns the seconds that are enough for a verdict, if `time` was enough for `rounds` rounds. At least one round counts, and
/// one more is added for the round that was cut short.
fn seconds_for_verdict(time: Duration, rounds: usize) -> u64 {
    let round_s = time.as_secs_f64() / rounds.max(1) as f64;
    (round_s * (MIN_ROUNDS + 1) as f64 / 60.0).ceil() as u64 * 60
}

/// Returns whether the client limited a contestant with this busy side. If the client uses a core of the server and both are
/// busy, each took time from the other.
fn is_client_full(saturated: &str, [server, client]: &[Cores; 2]) -> bool {
    saturated == "client" || saturated == "both" && server.share_one_with(client)
}

#[cfg(test)]
mod tests;
