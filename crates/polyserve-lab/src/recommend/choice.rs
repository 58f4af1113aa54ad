//! The result: a ranked choice, its margin, its ties, and whether the latency goal was met.
//!
//! The winner has the highest throughput among the candidates that meet the goal. If no candidate meets the goal, the winner
//! has the lowest p99. A p99 is the median of the rounds' p99s, so a single disturbed round decides nothing.
//!
//! A candidate is a tie if the interval of its ratio to the winner overlaps the band of ties: the interval of the first
//! candidate's ratio to itself. The margin is the winner's ratio to the first candidate that is no tie.
//!
//! Invariant: a ratio is of two figures of the same round. Cost: one estimate for each candidate.

use std::time::Duration;

use polyserve::catalog::Catalog;
use serde::{Deserialize, Serialize};

use super::candidates::Candidate;
use super::lines::Lines;
use super::prediction::Predictions;
use super::workload::Workload;
use crate::capacity::{Sample, SearchEnd};
use crate::compare::ranking::{self, Latencies, Ranking, RankingEntry, RankingRow, Rate, throughput_ratio};
use crate::compare::{Key, Role};
use crate::experiment::{Failed, distinct};
use crate::machine::Cores;
use crate::statistics::{Estimate, Interval, MIN_ROUNDS, Verdict, median_of, tie_band};

/// The recommendation, and all that it is based on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recommendation {
    /// The workload.
    pub workload: Workload,
    /// The parts of the workload that are defaults.
    pub defaulted: Vec<String>,
    /// Why these candidates.
    pub because: Vec<String>,
    /// The cores of the servers; empty in older records.
    #[serde(default)]
    pub server_cores: String,
    /// The cores of the client; empty in older records.
    #[serde(default)]
    pub client_cores: String,
    /// The number of whole rounds.
    pub rounds: usize,
    /// Whether these are enough for a verdict.
    pub decided: bool,
    /// The rate of the latencies.
    pub rate: Option<Rate>,
    /// Ratios within are ties.
    pub tie_band: Option<Interval>,
    /// The best first.
    pub ranked: Vec<Ranked>,
    /// The winner; `None` if no candidate was measured.
    pub choice: Option<Choice>,
    /// The winner's capacity for each goal; none if it was not searched.
    #[serde(default)]
    pub capacity: Vec<CapacityFigure>,
    /// Why the capacity was not searched.
    #[serde(default)]
    pub no_capacity: Option<String>,
    /// The predictions before the measurement; `None` if the null server failed, and in older records.
    #[serde(default)]
    pub predicted: Option<Predictions>,
    /// Whether a candidate meets the latency goal; `None` without a goal, and if the p99 is too near to the goal.
    pub goal_met: Option<bool>,
    /// Whether the client was busy while it measured the winner. The servers may then be faster than measured.
    #[serde(default)]
    pub client_full: bool,
    /// The candidates without figures, and why.
    pub failed: Vec<Failed<Key>>,
    /// The share of the cores' time that other processes used, if it is known.
    pub others: Option<f64>,
    /// Whether the time was up before the last round.
    pub time_was_up: bool,
    /// The time in seconds that is enough for a verdict, if there was too little.
    #[serde(default)]
    pub enough_s: Option<u64>,
    /// Whether the run was ended early.
    pub interrupted: bool,
}

/// A ranked candidate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ranked {
    /// Its rank. Ties with the winner have rank 1; the others have their place.
    pub rank: usize,
    /// The candidate.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// Requests per second, relative to the winner; `None` for the winner.
    pub of_winner: Option<Estimate>,
    /// The verdict on that; `None` for the winner, and without a ratio.
    pub verdict: Option<Verdict>,
    /// Whether the candidate meets the latency goal; `None` without a goal, and if the p99 is too near to the goal.
    pub meets_goal: Option<bool>,
    /// The 95 % interval of its p99 in microseconds; `None` with too few rounds.
    #[serde(default)]
    pub p99_interval: Option<Interval>,
    /// The settings that it was measured with, as flags.
    #[serde(default)]
    pub settings: Vec<String>,
    /// Requests per second.
    pub requests_per_s: f64,
    /// Requests per second of the server's CPU time.
    pub requests_per_cpu_s: Option<f64>,
    /// The latency at the fixed rate: medians over the rounds.
    pub latency: Option<Latencies>,
    /// Resident memory under load, in bytes.
    pub loaded_bytes: Option<f64>,
    /// The busy side: `server`, `client`, `both` or `neither`.
    pub saturated: String,
}

/// The winner.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Choice {
    /// The candidate.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// The candidates with a difference to the choice that is within the noise.
    pub ties: Vec<String>,
    /// The ratio to the first candidate that is slower, and no tie, and meets the goal as well.
    pub margin: Option<Margin>,
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
    pub fn of(samples: &[(u64, Sample)]) -> Vec<Self> {
        let goals = distinct(samples.iter().map(|(goal_us, _)| *goal_us));
        let figure = |goal_us: u64| {
            let own: Vec<&Sample> = samples.iter().filter(|(goal, _)| *goal == goal_us).map(|(_, own)| own).collect();
            let is_majority = |end: &SearchEnd| own.iter().filter(|sample| sample.end == *end).count() * 2 > own.len();
            let rates = || own.iter().map(|sample| sample.per_s);
            Some(Self {
                goal_us,
                requests_per_s: median_of(rates())?,
                low: rates().fold(f64::INFINITY, f64::min),
                high: rates().fold(0.0, f64::max),
                searches: own.len(),
                end: [SearchEnd::Below, SearchEnd::Above].into_iter().find(is_majority),
            })
        };
        goals.into_iter().filter_map(figure).collect()
    }
}

/// The winner's ratio to another candidate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Margin {
    /// The other candidate.
    pub over: String,
    /// The ratio of requests per second.
    pub ratio: f64,
    /// The ends of the ratio's interval.
    pub interval: Interval,
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
    /// The settings of the candidates by name, as flags.
    pub settings: &'a [(String, Vec<String>)],
    /// Why these candidates.
    pub because: &'a [String],
    /// The cores of the servers, and of the client.
    pub cores: [Cores; 2],
    /// The seed of the resamples.
    pub seed: u64,
    /// The time of the run, if it was up before the last round.
    pub time_up: Option<Duration>,
}

impl Recommendation {
    /// The `kind` of its line in a journal.
    pub const KIND: &str = "recommendation";

    /// The recommendation that follows from a ranking and its figures.
    pub fn of(basis: &Basis<'_>, ranking: &Ranking, entries: &[RankingEntry<'_>]) -> Self {
        let Basis { workload, candidates, seed, .. } = *basis;
        let goal = workload.p99_goal_ms;
        let is_ranked = |role: Role| matches!(role, Role::Baseline | Role::Ranked);
        let entries: Vec<&RankingEntry<'_>> = entries.iter().filter(|entry| is_ranked(entry.role)).collect();
        let mut rows: Vec<Standing<'_>> = (ranking.rows.iter())
            .filter(|row| is_ranked(row.role))
            .filter_map(|row| {
                let candidate = candidates.iter().find(|one| one.name() == row.name)?;
                let entry = entries.iter().find(|entry| entry.name == row.name)?;
                let latency = entry.usual_latencies();
                let p99_interval = p99_interval(entry, seed);
                let meets_goal = goal.and_then(|goal| meets(latency, p99_interval, goal));
                let own = basis.settings.iter().find(|(name, _)| *name == row.name);
                let settings = own.map_or(&[][..], |(_, settings)| settings);
                Some(Standing { row, candidate, entry, latency, p99_interval, settings, meets_goal })
            })
            .collect();
        let has_one = |meets_goal: Option<bool>| rows.iter().any(|row| row.meets_goal == meets_goal);
        let goal_met = match goal {
            Some(_) if has_one(Some(true)) => Some(true),
            Some(_) if !has_one(None) => Some(false),
            _ => None,
        };
        // The rows are in the order of their throughput, and the sort is stable. Undecided candidates are in the middle.
        match goal_met {
            Some(false) => rows.sort_by(|a, b| p99(a.latency).total_cmp(&p99(b.latency))),
            _ => rows.sort_by_key(|one| match one.meets_goal {
                Some(true) => 0,
                None => 1,
                Some(false) => 2,
            }),
        }
        let band = ranking.bands.throughput.map(symmetric_band);
        let rounds = entries.iter().map(|entry| entry.rounds.iter().flatten().count()).max().unwrap_or(0);
        let ranked = ranked(&rows, &band.unwrap_or_else(|| tie_band(None)), goal_met, seed);
        let choice = ranked.first().map(|first| Choice {
            candidate: first.candidate.clone(),
            ties: ranked[1..].iter().filter(|one| one.rank == 1).map(|one| one.candidate.name()).collect(),
            margin: ranked.iter().filter(|_| goal_met != Some(false)).find_map(|one| margin(first, one)),
            lines: Lines::of(basis.catalog, &first.candidate),
        });
        Self {
            workload: workload.clone(),
            defaulted: basis.defaulted.to_vec(),
            because: basis.because.to_vec(),
            server_cores: basis.cores[0].to_string(),
            client_cores: basis.cores[1].to_string(),
            rounds,
            decided: rounds >= MIN_ROUNDS,
            rate: ranking.rate.clone(),
            tie_band: band,
            ranked,
            choice,
            capacity: Vec::new(),
            no_capacity: None,
            predicted: None,
            goal_met,
            client_full: rows.first().is_some_and(|first| is_client_full(&first.row.saturated, &basis.cores)),
            failed: ranking.failed.clone(),
            others: ranking.others,
            time_was_up: basis.time_up.is_some(),
            enough_s: basis.time_up.filter(|_| rounds < MIN_ROUNDS).map(|time| seconds_for_verdict(time, rounds)),
            interrupted: ranking.interrupted && basis.time_up.is_none(),
        }
    }
}

impl Recommendation {
    /// Adds what was predicted, with the measured figures next to it.
    pub fn add_predictions(&mut self, mut predicted: Predictions) {
        for prediction in &mut predicted.candidates {
            let Some(ranked) = self.ranked.iter().find(|ranked| ranked.candidate.name() == prediction.name) else {
                continue;
            };
            let latency = ranked.latency.filter(|latency| !latency.overloaded);
            prediction.measured_per_s = Some(ranked.requests_per_s);
            prediction.measured_p99_us = latency.map(|latency| latency.p99_us);
        }
        self.predicted = Some(predicted);
    }
}

/// Returns the seconds that are enough for a verdict, if `time` was enough for `rounds` rounds. At least one round counts, and
/// one more is added for the round that was cut short.
fn seconds_for_verdict(time: Duration, rounds: usize) -> u64 {
    let round_s = time.as_secs_f64() / rounds.max(1) as f64;
    (round_s * (MIN_ROUNDS + 1) as f64 / 60.0).ceil() as u64 * 60
}

/// A candidate with its figures.
struct Standing<'a> {
    candidate: &'a Candidate,
    row: &'a RankingRow,
    entry: &'a RankingEntry<'a>,
    latency: Option<Latencies>,
    p99_interval: Option<Interval>,
    settings: &'a [String],
    meets_goal: Option<bool>,
}

/// Returns whether the client limited a contestant with this busy side. If the client uses a core of the server and both are
/// busy, each took time from the other.
fn is_client_full(saturated: &str, [server, client]: &[Cores; 2]) -> bool {
    saturated == "client" || saturated == "both" && server.share_one_with(client)
}

/// Returns `rows` with their ranks; the first row is the winner's. If no candidate meets the goal, latency decides, and
/// there are no ties.
fn ranked(rows: &[Standing<'_>], band: &Interval, goal_met: Option<bool>, seed: u64) -> Vec<Ranked> {
    let mut ranked: Vec<Ranked> = Vec::new();
    for Standing { candidate, row, entry, latency, p99_interval, settings, meets_goal } in rows {
        let winner = rows.first().filter(|winner| winner.row.name != row.name);
        let of_winner = winner.and_then(|winner| throughput_ratio(entry, winner.entry, seed));
        let verdict = of_winner.map(|ratio| ratio.verdict(band));
        let meets_alike = winner.is_some_and(|winner| winner.meets_goal == *meets_goal);
        let is_tie = verdict == Some(Verdict::Tie) && meets_alike && goal_met != Some(false);
        ranked.push(Ranked {
            rank: if ranked.is_empty() || is_tie { 1 } else { 2 },
            candidate: (*candidate).clone(),
            of_winner,
            verdict,
            meets_goal: *meets_goal,
            p99_interval: *p99_interval,
            settings: settings.to_vec(),
            requests_per_s: row.requests_per_s,
            requests_per_cpu_s: row.requests_per_cpu_s,
            latency: *latency,
            loaded_bytes: row.loaded_bytes,
            saturated: row.saturated.clone(),
        });
    }
    // A candidate with a wide interval may be a tie although a faster one is none.
    ranked.sort_by_key(|one| one.rank);
    let ties = ranked.iter().filter(|one| one.rank == 1).count();
    ranked.iter_mut().enumerate().skip(ties).for_each(|(place, one)| one.rank = place + 1);
    ranked
}

/// Returns the band of ties for the ratio of any two candidates: it also contains the inverse ratios.
fn symmetric_band(Interval { low, high }: Interval) -> Interval {
    Interval { low: low.min(high.recip()), high: high.max(low.recip()) }
}

/// Returns the ratio of `first` to `other`, if `other` is slower and meets the goal as well.
fn margin(first: &Ranked, other: &Ranked) -> Option<Margin> {
    let Estimate { ratio, interval, .. } = other.of_winner?;
    let is_slower = other.verdict == Some(Verdict::Slower) && other.meets_goal == first.meets_goal;
    let interval = Interval { low: interval.high.recip(), high: interval.low.recip() };
    is_slower.then(|| Margin { over: other.candidate.name(), ratio: ratio.recip(), interval })
}

/// Returns whether the p99 is within the goal. `None` if the interval of the p99 contains the goal: the p99 is too near to it.
fn meets(latency: Option<Latencies>, interval: Option<Interval>, goal_ms: f64) -> Option<bool> {
    let goal_us = goal_ms * 1000.0;
    let Some(latency) = latency.filter(|latency| !latency.overloaded) else { return Some(false) };
    match interval {
        Some(Interval { high, .. }) if high <= goal_us => Some(true),
        Some(Interval { low, .. }) if low > goal_us => Some(false),
        Some(_) => None,
        None => Some(latency.p99_us <= goal_us),
    }
}

/// Returns the interval of the median of the rounds' p99s; `None` with fewer rounds than a verdict needs.
fn p99_interval(entry: &RankingEntry<'_>, seed: u64) -> Option<Interval> {
    let p99s: Vec<f64> = entry.rounds.iter().flatten().filter_map(|round| ranking::p99(round)).collect();
    let estimate = Estimate::of(&p99s, seed).filter(|estimate| estimate.rounds >= MIN_ROUNDS)?;
    // JSON has no infinity, which the p99 of a round without an answer is.
    Some(estimate.interval).filter(|interval| interval.high.is_finite())
}

/// Returns the p99 in microseconds; infinity if the candidate was overloaded.
fn p99(latency: Option<Latencies>) -> f64 {
    latency.filter(|latency| !latency.overloaded).map_or(f64::INFINITY, |latency| latency.p99_us)
}

#[cfg(test)]
mod tests;
