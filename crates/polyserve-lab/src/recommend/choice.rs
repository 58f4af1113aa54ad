//! What came of it: a ranked choice, its margin, its ties, and whether the latency goal was met.
//!
//! The winner is the one of the most requests a second among those that meet the goal; where nobody meets it, the one of the
//! lowest p99. A p99 is the median of the rounds' own: one round in which somebody else took the machine decides nothing. It
//! is a tie with everybody whose ratio to it has an interval that meets the band of ties, which is what the
//! first candidate shows beside itself. Its margin is over the first one that is no tie.
//!
//! Invariant: every ratio is taken round by round between the two that it is of. Cost: an estimate a candidate.

use polyserve::catalog::Catalog;
use serde::{Deserialize, Serialize};

use super::candidates::Candidate;
use super::lines::Lines;
use super::workload::Workload;
use crate::compare::ranking::{Entry, Latencies, Ranking, Rate, Row, throughput_ratio};
use crate::compare::{Key, Role};
use crate::experiment::Failed;
use crate::statistics::{Estimate, Interval, LEAST_ROUNDS, Verdict, tie_band};

/// What is recommended, and all that it rests on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recommendation {
    /// The workload.
    pub workload: Workload,
    /// What of it was not said, and is taken as a default.
    pub defaulted: Vec<String>,
    /// Why these candidates.
    pub because: Vec<String>,
    /// Rounds that were whole.
    pub rounds: usize,
    /// Whether these are enough to decide anything.
    pub decided: bool,
    /// At what rate latencies were taken.
    pub rate: Option<Rate>,
    /// Ratios within are ties.
    pub tie_band: Option<Interval>,
    /// The best first.
    pub ranked: Vec<Ranked>,
    /// The winner; none where nobody was measured.
    pub choice: Option<Choice>,
    /// Whether anybody meets the latency goal; none where there is no goal.
    pub goal_met: Option<bool>,
    /// Who is out, and why.
    pub failed: Vec<Failed<Key>>,
    /// Which share of the cores' time others have had, if that is known.
    pub others: Option<f64>,
    /// Whether the time was over before all rounds were.
    pub time_was_up: bool,
    /// Whether it was ended early.
    pub interrupted: bool,
}

/// A candidate's place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ranked {
    /// Its place: ties with the winner share the first, all others are counted on.
    pub rank: usize,
    /// Who.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// Requests a second beside the winner's; none for the winner.
    pub of_winner: Option<Estimate>,
    /// What may be said of that; none for the winner, and with no ratio.
    pub verdict: Option<Verdict>,
    /// Whether it meets the latency goal; none where there is no goal.
    pub meets_goal: Option<bool>,
    /// Requests a second.
    pub requests_per_s: f64,
    /// Requests for each second of the server's CPU time.
    pub requests_per_cpu_s: Option<f64>,
    /// The latency at the fixed rate: the median of what each round shows by itself.
    pub latency: Option<Latencies>,
    /// Resident memory under load, in bytes.
    pub loaded_bytes: Option<f64>,
    /// Who had no time to spare: `server`, `client`, `both` or `neither`.
    pub saturated: String,
}

/// The winner.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Choice {
    /// Who.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// Who cannot be told from it.
    pub ties: Vec<String>,
    /// By how much it does more than the first one that is no tie and meets the goal as well as it does.
    pub margin: Option<Margin>,
    /// How to use it.
    pub lines: Lines,
}

/// A ratio to another one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Margin {
    /// Whom.
    pub over: String,
    /// Requests a second, beside that one's.
    pub ratio: f64,
    /// The ends of the ratio's interval.
    pub interval: Interval,
}

/// What a recommendation is made of, beside what was measured.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// The catalog with the candidates.
    pub catalog: &'a Catalog,
    /// The workload.
    pub workload: &'a Workload,
    /// What of it is a default.
    pub defaulted: &'a [String],
    /// Who took part.
    pub candidates: &'a [Candidate],
    /// Why they.
    pub because: &'a [String],
    /// Of the resamples.
    pub seed: u64,
    /// Whether the time was over first.
    pub time_was_up: bool,
}

impl Recommendation {
    /// The `kind` of its line in a journal.
    pub const KIND: &str = "recommendation";

    /// What `ranking` and the turns that it rests on say.
    pub fn of(asked: &Asked<'_>, ranking: &Ranking, entries: &[Entry<'_>]) -> Self {
        let Asked { workload, candidates, seed, .. } = *asked;
        let goal = workload.p99_goal_ms;
        let is_ranked = |role: Role| matches!(role, Role::Baseline | Role::Ranked);
        let entries: Vec<&Entry<'_>> = entries.iter().filter(|entry| is_ranked(entry.role)).collect();
        let mut rows: Vec<Standing<'_>> = (ranking.rows.iter())
            .filter(|row| is_ranked(row.role))
            .filter_map(|row| {
                let candidate = candidates.iter().find(|one| one.name() == row.name)?;
                let entry = entries.iter().find(|entry| entry.name == row.name)?;
                let latency = entry.usual_latencies();
                Some(Standing { row, candidate, entry, latency, meets_goal: goal.map(|goal| meets(latency, goal)) })
            })
            .collect();
        let goal_met = goal.map(|_| rows.iter().any(|one| one.meets_goal == Some(true)));
        // They come by their requests a second, and the sort is stable.
        match goal_met {
            Some(false) => rows.sort_by(|a, b| p99(a.latency).total_cmp(&p99(b.latency))),
            _ => rows.sort_by_key(|one| one.meets_goal == Some(false)),
        }
        let band = ranking.bands.throughput.map(either_way);
        let rounds = entries.iter().map(|entry| entry.rounds.iter().flatten().count()).max().unwrap_or(0);
        let ranked = ranked(&rows, &band.unwrap_or_else(|| tie_band(None)), goal_met, seed);
        let choice = ranked.first().map(|first| Choice {
            candidate: first.candidate.clone(),
            ties: ranked[1..].iter().filter(|one| one.rank == 1).map(|one| one.candidate.name()).collect(),
            margin: ranked.iter().filter(|_| goal_met != Some(false)).find_map(|one| margin(first, one)),
            lines: Lines::of(asked.catalog, &first.candidate),
        });
        Self {
            workload: workload.clone(),
            defaulted: asked.defaulted.to_vec(),
            because: asked.because.to_vec(),
            rounds,
            decided: rounds >= LEAST_ROUNDS,
            rate: ranking.rate.clone(),
            tie_band: band,
            ranked,
            choice,
            goal_met,
            failed: ranking.failed.clone(),
            others: ranking.others,
            time_was_up: asked.time_was_up,
            interrupted: ranking.interrupted && !asked.time_was_up,
        }
    }
}

/// A candidate, and what it has shown.
struct Standing<'a> {
    candidate: &'a Candidate,
    row: &'a Row,
    entry: &'a Entry<'a>,
    latency: Option<Latencies>,
    meets_goal: Option<bool>,
}

/// The places of `rows`, the first of which has won. Where nobody meets the goal there are no ties: it is no matter of
/// requests a second then.
fn ranked(rows: &[Standing<'_>], band: &Interval, goal_met: Option<bool>, seed: u64) -> Vec<Ranked> {
    let mut ranked: Vec<Ranked> = Vec::new();
    for Standing { candidate, row, entry, latency, meets_goal } in rows {
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
            requests_per_s: row.requests_per_s,
            requests_per_cpu_s: row.requests_per_cpu_s,
            latency: *latency,
            loaded_bytes: row.loaded_bytes,
            saturated: row.saturated.clone(),
        });
    }
    // One with a wide interval may be a tie behind one that is none.
    ranked.sort_by_key(|one| one.rank);
    let ties = ranked.iter().filter(|one| one.rank == 1).count();
    ranked.iter_mut().enumerate().skip(ties).for_each(|(place, one)| one.rank = place + 1);
    ranked
}

/// The band for ratios of any two, whichever of them is below: what the baseline shows beside itself has no direction.
fn either_way(Interval { low, high }: Interval) -> Interval {
    Interval { low: low.min(high.recip()), high: high.max(low.recip()) }
}

/// What `first` does of `other`, which must be surely less, and no worse by the goal.
fn margin(first: &Ranked, other: &Ranked) -> Option<Margin> {
    let Estimate { ratio, interval, .. } = other.of_winner?;
    let surely = other.verdict == Some(Verdict::Slower) && other.meets_goal == first.meets_goal;
    let interval = Interval { low: interval.high.recip(), high: interval.low.recip() };
    surely.then(|| Margin { over: other.candidate.name(), ratio: ratio.recip(), interval })
}

fn meets(latency: Option<Latencies>, goal_ms: f64) -> bool {
    latency.is_some_and(|latency| !latency.overloaded && latency.p99_us <= goal_ms * 1000.0)
}

/// In microseconds; an overloaded one has none to speak of.
fn p99(latency: Option<Latencies>) -> f64 {
    latency.filter(|latency| !latency.overloaded).map_or(f64::INFINITY, |latency| latency.p99_us)
}

#[cfg(test)]
mod tests;
