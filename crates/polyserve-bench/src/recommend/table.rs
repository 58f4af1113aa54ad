//! A recommendation for people.

use std::fmt::{self, Write as _};
use std::time::Duration;

use crate::report::figures::{bytes, count, counted, time_us};
use crate::report::{MAX_NAME, Summary, Table, or_empty, shortened};
use serde_json::Value;

use super::choice::{CapacityFigure, Choice, Margin, Ranked, Recommendation};
use crate::bench::mode::search::SearchEnd;
use crate::bench::ranking::SERVER_FULL;
use crate::bench::ranking::table::{latencies, met, verdict_note};
use crate::charts;
use crate::experiment::distinct;
use crate::journal::of_kind;
use crate::output::LATE_NOTE;
use crate::statistics::{Interval, MIN_ROUNDS};
use crate::turn::Rate;

/// Returns the last recommendation of a record.
///
/// # Errors
///
/// Returns an error if a line does not have the fields of a recommendation.
pub fn last(lines: &[Value]) -> anyhow::Result<Option<Recommendation>> {
    Ok(of_kind::<Recommendation>(lines, Recommendation::KIND)?.pop())
}

/// Returns the table of the ranked candidates, with its name.
pub fn tables(recommendation: &Recommendation) -> Vec<(String, Table)> {
    vec![(format!("Recommended for: {}", recommendation.workload), ranked(recommendation))]
}

/// Returns the answer of a recommendation, its tables, and its charts.
pub fn summary(recommendation: &Recommendation) -> Summary {
    let Recommendation { ranked, tie_band, rate, .. } = recommendation;
    let mut text = String::new();
    let _ = recommendation.write_answer(&mut text).and_then(|()| recommendation.write_settings(&mut text)); // a string takes all text
    let answer = text.lines().filter(|line| !line.is_empty()).map(String::from).collect();
    let ratios = ranked.iter().filter_map(|one| Some((one.candidate.name(), one.row.of_first?.estimate)));
    let axis = "requests a second, the choice = 1".into();
    let ratios = charts::ratios("Throughput against the choice".into(), axis, *tie_band, ratios);
    let names: Vec<String> = ranked.iter().map(|one| one.candidate.name()).collect();
    let latencies = names.iter().zip(ranked).filter_map(|(name, one)| Some((name.as_str(), one.row.latency.as_ref()?)));
    let title = rate.as_ref().map(|rate| format!("Latency (us) at {}", latency_rate(rate)));
    let latencies = title.and_then(|title| charts::latencies(title, latencies));
    let charts = charts::drawn([("ratios", ratios), ("latencies", latencies)]);
    Summary { answer, tables: tables(recommendation), charts, ..Summary::default() }
}

fn ranked(recommendation: &Recommendation) -> Table {
    let Recommendation { workload, ranked, .. } = recommendation;
    let has_workers = ranked.iter().any(|one| one.candidate.workers.is_some());
    let met = workload.p99_goal_ms.map(|goal| format!("<= {}?", time_us(goal * 1000.0)));
    let mut header = vec!["#", "contestant"];
    header.extend(has_workers.then_some("workers"));
    header.extend(["req/s", "ratio, 95 %", "verdict", "p50", "p99"]);
    header.extend(met.as_deref());
    header.extend(["CPU us/req", "memory", "saturated"]);
    let texts = ["contestant", "verdict", "saturated"];
    let places = |name: &&str| header.iter().position(|column| column == name);
    let table = Table::of_numbers(&header).named_by(2);
    let mut table = texts.iter().filter_map(places).fold(table, Table::with_texts_in);
    for row in ranked {
        table.row(cells(row, has_workers, workload.p99_goal_ms.is_some()));
    }
    table
}

fn cells(Ranked { candidate, row, .. }: &Ranked, has_workers: bool, has_goal: bool) -> Vec<String> {
    let ratio = row.of_first.map(|compared| format!("{:.3} {}", compared.estimate.ratio, compared.estimate.interval));
    let verdict = row.of_first.map_or_else(String::new, |compared| compared.in_words("more", "fewer"));
    let mut cells = vec![or_empty(row.rank.map(|rank| rank.to_string())), candidate.name()];
    cells.extend(has_workers.then(|| or_empty(candidate.workers.map(|workers| workers.to_string()))));
    cells.extend([count(row.requests_per_s), or_empty(ratio), verdict]);
    let [p50, p99, _] = latencies(row);
    let is_known = has_goal && row.latency.is_some_and(|latency| !latency.overloaded);
    let interval = row.p99_interval.filter(|_| is_known);
    let interval = interval.map(|Interval { low, high }| format!(" [{}, {}]", time_us(low), time_us(high)));
    cells.extend([p50, p99 + &interval.unwrap_or_default()]);
    cells.extend(has_goal.then(|| met(row.meets_goal).to_owned()));
    let doubt = if row.saturated == SERVER_FULL { "" } else { "~" };
    cells.push(or_empty(row.requests_per_cpu_s.map(|per_s| format!("{doubt}{:.2}", 1e6 / per_s))));
    cells.push(or_empty(row.loaded_bytes.map(bytes)));
    cells.push(row.saturated.clone());
    cells
}

/// The rate of the latencies, with its arrivals and its origin.
fn latency_rate(rate: &Rate) -> String {
    format!("{} req/s ({}), {}", count(rate.requests_per_s), rate.arrivals, rate.origin())
}

impl fmt::Display for Recommendation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write(&mut text)?;
        // A name with locations may be longer than a line. The code needs them whole.
        let names: Vec<String> = self.ranked.iter().map(|one| one.candidate.name()).collect();
        for (name, short) in names.iter().zip(shortened(&names, MAX_NAME)) {
            text = text.replace(name, &short);
        }
        f.write_str(&text)?;
        let Some(Choice { lines, .. }) = &self.choice else { return Ok(()) };
        match &lines.feature {
            Some(feature) => writeln!(f, "\n// polyserve = {{ features = [\"{feature}\"] }}")?,
            None => writeln!(f, "\n// polyserve with its default features")?,
        }
        writeln!(f, "{}", lines.import)?;
        lines.code.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl Recommendation {
    fn write(&self, f: &mut String) -> fmt::Result {
        self.write_answer(f)?;
        writeln!(f, "\nworkload: {}", self.workload)?;
        if !self.defaulted.is_empty() {
            writeln!(f, "by default: {}", self.defaulted.join(", "))?;
        }
        self.because.iter().try_for_each(|why| writeln!(f, "{why}"))?;
        writeln!(f, "\n{}", ranked(self))?;
        if let Some(rate) = &self.rate {
            writeln!(f, "p50, p99: from the intended start at {}", latency_rate(rate))?;
            writeln!(f, "{LATE_NOTE}")?;
        }
        if let Some(band) = self.tie_band {
            writeln!(f, "ratio: throughput relative to the first. Candidates without a difference share a rank.")?;
            writeln!(f, "{}", verdict_note(band))?;
        }
        if self.ranked.iter().any(|one| one.row.requests_per_cpu_s.is_some() && one.row.saturated != SERVER_FULL) {
            writeln!(
                f,
                "~ before a cost: the server's cores were not full, or the client's were, so costs cannot be compared"
            )?;
        }
        if let Some(others) = self.others.filter(|others| *others > 0.05) {
            writeln!(f, "other processes had {:.0} % of the cores' time: the intervals are wider", others * 100.0)?;
        }
        if !self.server_cores.is_empty() {
            writeln!(
                f,
                "measured on: cores {} for the server, {} for the client",
                self.server_cores, self.client_cores
            )?;
        }
        self.write_settings(f)?;
        if self.ranked.iter().any(|one| one.candidate.workers.is_none()) {
            writeln!(f, "a server without --workers above has its default number of workers, if it has workers")?;
        }
        self.failed.iter().try_for_each(|failed| writeln!(f, "not run: {}: {}", failed.name, failed.why))?;
        let rounds = counted(self.rounds as u64, "round");
        if self.time_was_up {
            writeln!(f, "the time was up after {rounds}")?;
        }
        if self.interrupted {
            writeln!(f, "ended early, after {rounds}")?;
        }
        if let Some(seconds) = self.enough_s {
            let time = humantime::format_duration(Duration::from_secs(seconds));
            writeln!(f, "a verdict needs {MIN_ROUNDS} rounds: --time {} is enough", time.to_string().replace(' ', ""))?;
        }
        Ok(())
    }

    fn write_settings(&self, f: &mut String) -> fmt::Result {
        let settings = self.ranked.iter().map(|one| (one.candidate.server.as_str(), one.settings.join(" ")));
        let settings = distinct(settings.filter(|(_, settings)| !settings.is_empty()));
        settings.iter().try_for_each(|(server, settings)| writeln!(f, "measured with: {server} {settings}"))
    }

    fn write_answer(&self, f: &mut String) -> fmt::Result {
        let Some(Choice { candidate, ties, margin, .. }) = &self.choice else {
            return writeln!(f, "no candidate was measured, so none is recommended");
        };
        let goal = self.workload.p99_goal_ms.map(|goal| Duration::from_secs_f64(goal / 1000.0));
        let name = candidate.name();
        let is_goal_open = goal.is_some() && self.goal_met.is_none();
        let is_decided = self.decided && !self.client_full && !is_goal_open;
        let name = if is_decided { format!("use {name}") } else { format!("undecided; the best so far is {name}") };
        match (self.goal_met, goal) {
            (None, Some(goal)) => {
                writeln!(f, "{name}: it is too near to tell whether it keeps 99 % of the requests within {goal:?}")?;
            }
            (Some(false), Some(goal)) => {
                writeln!(f, "no candidate keeps 99 % of the requests within {goal:?}; the nearest: {name}")?;
            }
            (Some(true), Some(goal)) => writeln!(f, "{name}: it keeps 99 % of the requests within {goal:?}")?,
            _ => writeln!(f, "{name}")?,
        }
        for CapacityFigure { goal_us, requests_per_s, low, high, searches, end } in &self.capacity {
            let bound = match end {
                Some(SearchEnd::Below) => "less than ",
                Some(SearchEnd::Above) => "at least ",
                _ => "",
            };
            let (goal, per_s) = (time_us(*goal_us as f64), count(*requests_per_s));
            let (low, high) = (count(*low), count(*high));
            writeln!(
                f,
                "it keeps a p99 of {goal} up to {bound}{per_s} req/s ({low} to {high} in {searches} searches)"
            )?;
        }
        if let Some(why) = &self.no_capacity {
            writeln!(f, "its capacity was not searched: {why}")?;
        }
        if self.client_full {
            writeln!(f, "client full: the client had no time left, so the servers may be able to do more")?;
        }
        if self.rounds < MIN_ROUNDS {
            writeln!(f, "too few rounds for a verdict: {} of {MIN_ROUNDS}", self.rounds)?;
        }
        if !ties.is_empty() {
            writeln!(f, "no difference was found between it and: {}", ties.join(", "))?;
        }
        if let Some(Margin { over, ratio, interval }) = margin {
            writeln!(f, "its throughput is {ratio:.3} {interval} times the throughput of {over}")?;
        }
        Ok(())
    }
}
