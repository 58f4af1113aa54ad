//! The order of contestants, their shared ranks, and the answer in a sentence.
//!
//! The order is by throughput. With a goal for the p99, the contestants that meet it come first, then those of which it is too
//! near to tell. If no contestant meets the goal, the order is by p99.
//!
//! Invariant: a contestant that differs from the baseline, by the table, does not share its rank. Two other contestants differ by the
//! ratio of their rounds. The sentence claims only differences that were found. Cost: two or three estimates for each contestant.

use std::time::Duration;

use crate::report::figures::{count, counted, time_us};

use super::{Figure, Intervals, Latencies, Ranking, RankingEntry, RankingRow, p99, ratios, throughput};
use crate::statistics::{Compared, Estimate, Interval, MIN_ROUNDS, Verdict, shared_ranks, tie_band};
use crate::turn::Role;

/// The number of ties that a sentence names.
const MAX_NAMED: usize = 3;

impl Ranking {
    /// Orders the rows of ranked contestants, and sets their places.
    pub(super) fn place(&mut self, entries: &[RankingEntry<'_>], intervals: Intervals, p99_band: Option<Interval>) {
        let entry_of = |row: &RankingRow| entries.iter().find(|entry| entry.name == row.name);
        let compared = |own: &RankingRow, other: &RankingRow, figure: Figure, band: Option<Interval>| {
            let estimate = intervals.estimate(&ratios(entry_of(own)?, entry_of(other)?, figure))?;
            Some(Compared::of(estimate, &band.unwrap_or_else(|| tie_band(None)).symmetric()))
        };
        let mut placed: Vec<RankingRow> = self.rows.extract_if(.., |row| row.role.is_ranked()).collect();
        if let Some(goal_us) = self.goal_us {
            for row in &mut placed {
                row.p99_interval = entry_of(row).and_then(|entry| p99_interval(entry, intervals));
                row.meets_goal = meets(row.latency, row.p99_interval, goal_us);
            }
            let has_one = |meets_goal: Option<bool>| placed.iter().any(|row| row.meets_goal == meets_goal);
            self.goal_met = if has_one(Some(true)) { Some(true) } else { (!has_one(None)).then_some(false) };
            // The rows are in the order of their throughput, and the sort is stable.
            match self.goal_met {
                Some(false) => placed.sort_by(|a, b| p99_us(a).total_cmp(&p99_us(b))),
                _ => placed.sort_by_key(|row| match row.meets_goal {
                    Some(true) => 0,
                    None => 1,
                    Some(false) => 2,
                }),
            }
        }
        let band = self.bands.throughput;
        let baseline = placed.iter().position(|row| row.role == Role::Baseline);
        let baseline = baseline.filter(|_| self.goal_met != Some(false)); // the order is by throughput
        let ranks = shared_ranks(placed.len(), baseline, |first, own| {
            let (own, first) = (&placed[own], &placed[first]);
            if self.goal_met == Some(false) {
                // Of two that were overloaded, none has a lower p99.
                let is_different =
                    || compared(own, first, p99, p99_band).is_none_or(|found| found.verdict.is_different());
                return p99_us(own) > p99_us(first) && is_different();
            }
            let rows = [first, own].map(|row| (row.role, row.throughput));
            own.meets_goal != first.meets_goal || differ(rows, || compared(own, first, throughput, band))
        });
        for (place, rank) in ranks.into_iter().enumerate() {
            let first = placed.first().filter(|_| place > 0);
            let of_first = first.and_then(|first| compared(&placed[place], first, throughput, band));
            let p99_of_first = first.and_then(|first| compared(&placed[place], first, p99, p99_band));
            let row = &mut placed[place];
            (row.rank, row.of_first, row.p99_of_first) = (Some(rank), of_first, p99_of_first);
        }
        self.rows.splice(..0, placed);
    }

    /// The answer in a sentence: the first contestant, and how many times the requests of the next one it serves.
    pub(crate) fn answer(&self) -> String {
        let placed: Vec<&RankingRow> = self.rows.iter().filter(|row| row.rank.is_some()).collect();
        let Some((first, others)) = placed.split_first() else { return String::from("no contestant was measured") };
        let name = format!("`{}`", first.name);
        let rounds = first.throughput.map_or(self.rounds, |compared| compared.estimate.rounds);
        if rounds < MIN_ROUNDS {
            let most = format!("the highest throughput so far has {name}, {} req/s", count(first.requests_per_s));
            return format!("too few rounds for a verdict: {rounds} of {MIN_ROUNDS}; {most}");
        }
        let goal = self.goal_us.map(|goal_us| Duration::from_secs_f64(goal_us / 1e6));
        let keeps = match (goal, self.goal_met) {
            (Some(goal), Some(false)) => {
                return format!("no contestant keeps a p99 of {goal:?}; the nearest is {name}{}", its_p99(first));
            }
            (Some(goal), None) => format!("it is too near to tell whether {name} keeps a p99 of {goal:?}; "),
            (Some(goal), Some(true)) => format!("of those that keep a p99 of {goal:?}, "),
            (None, _) => String::new(),
        };
        let alike = || others.iter().filter(|row| row.meets_goal == first.meets_goal);
        let is_next = |row: &RankingRow| differ([first, row].map(|row| (row.role, row.throughput)), || row.of_first);
        let ties: Vec<String> = alike().filter(|row| !is_next(row)).map(|row| row.name.clone()).collect();
        let next = alike().find(|row| is_next(row));
        let served = match next.and_then(|next| Some((next, next.of_first?.estimate))) {
            Some((next, estimate)) => {
                let Estimate { ratio, interval, .. } = inverted(estimate);
                let Interval { low, high } = interval;
                let p99 = at_p99(first, next);
                format!("{name} serves {ratio:.2} [{low:.2}, {high:.2}] times the requests of `{}`{p99}", next.name)
            }
            None => format!("{name} serves {} req/s", count(first.requests_per_s)),
        };
        match ties.as_slice() {
            [] => format!("{keeps}{served}"),
            ties => format!("{keeps}{served}; no difference was found between it and {}", named(ties)),
        }
    }
}

/// The inverse of a ratio.
fn inverted(Estimate { ratio, interval, rounds }: Estimate) -> Estimate {
    let interval = Interval { low: interval.high.recip(), high: interval.low.recip() };
    Estimate { ratio: ratio.recip(), interval, rounds }
}

/// Whether two contestants differ, each with its role and its comparison with the baseline: by that comparison if one is the
/// baseline, as in the table; else by `compared`.
pub(in crate::bench) fn differ(
    rows: [(Role, Option<Compared>); 2],
    compared: impl FnOnce() -> Option<Compared>,
) -> bool {
    let compared = match rows {
        [(Role::Baseline, _), (_, of_baseline)] | [(_, of_baseline), (Role::Baseline, _)] => of_baseline,
        _ => compared(),
    };
    compared.is_some_and(|compared| compared.verdict.is_different())
}

/// The p99s of the two in words, with the verdict on their ratio.
fn at_p99(first: &RankingRow, next: &RankingRow) -> String {
    let Some(compared) = next.p99_of_first else { return String::new() };
    let [own, other] = [first, next].map(|row| time_us(p99_us(row)));
    match compared.verdict {
        _ if [first, next].iter().any(|row| p99_us(row).is_infinite() || row.bound.is_some()) => String::new(),
        Verdict::Tie => String::from(" at the same p99"),
        Verdict::Faster => format!(" at a lower p99 ({own}, not {other})"),
        Verdict::Slower => format!(" at a higher p99 ({own}, not {other})"),
        Verdict::TooFewRounds => format!(" (p99 {own} and {other}: too few rounds to tell which is lower)"),
    }
}

fn its_p99(row: &RankingRow) -> String {
    let p99_us = p99_us(row);
    if p99_us.is_finite() { format!(", with {}", time_us(p99_us)) } else { String::new() }
}

/// The names in words. Of many, the first.
fn named(names: &[String]) -> String {
    let mut shown: Vec<String> = names.iter().take(MAX_NAMED).map(|name| format!("`{name}`")).collect();
    if let Some(more) = names.len().checked_sub(MAX_NAMED).filter(|more| *more > 0) {
        shown.push(counted(more as u64, "other"));
    }
    match shown.pop() {
        Some(last) if !shown.is_empty() => format!("{} and {last}", shown.join(", ")),
        last => last.unwrap_or_default(),
    }
}

/// Returns whether the p99 is within the goal. `None` if the interval of the p99 contains the goal: the p99 is too near to it.
fn meets(latency: Option<Latencies>, interval: Option<Interval>, goal_us: f64) -> Option<bool> {
    let Some(latency) = latency.filter(|latency| !latency.overloaded) else { return Some(false) };
    match interval {
        Some(Interval { high, .. }) if high <= goal_us => Some(true),
        Some(Interval { low, .. }) if low > goal_us => Some(false),
        Some(_) => None,
        None => Some(latency.p99_us <= goal_us),
    }
}

/// Returns the interval of the median of the rounds' p99s; `None` with fewer rounds than a verdict needs.
fn p99_interval(entry: &RankingEntry<'_>, intervals: Intervals) -> Option<Interval> {
    let p99s: Vec<f64> = entry.rounds.iter().flatten().filter_map(|round| p99(round)).collect();
    let estimate = intervals.estimate(&p99s).filter(|estimate| estimate.rounds >= MIN_ROUNDS)?;
    // JSON has no infinity, which the p99 of a round without an answer is.
    Some(estimate.interval).filter(|interval| interval.high.is_finite())
}

/// Returns the p99 in microseconds; infinity if the contestant was overloaded or has none.
fn p99_us(row: &RankingRow) -> f64 {
    row.latency.filter(|latency| !latency.overloaded).map_or(f64::INFINITY, |latency| latency.p99_us)
}
