//! A recommendation for people: the advice, the ranking, what it was measured for and with, and the lines of Rust.

use std::fmt::{self, Write as _};
use std::time::Duration;

use serde_json::Value;

use super::choice::{CapacityFigure, Choice, Recommendation};
use crate::bench::mode::search::SearchEnd;
use crate::journal::of_kind;
use crate::report::figures::{count, time_us};
use crate::report::{MAX_NAME, Summary, shortened};
use crate::statistics::MIN_ROUNDS;

/// Returns the last recommendation of a record.
///
/// # Errors
///
/// Returns an error if a line does not have the fields of a recommendation.
pub fn last(lines: &[Value]) -> anyhow::Result<Option<Recommendation>> {
    Ok(of_kind::<Recommendation>(lines, Recommendation::KIND)?.pop())
}

/// Returns the advice of a recommendation, and the tables and charts of its ranking.
pub fn summary(recommendation: &Recommendation) -> Summary {
    let mut ranked = recommendation.ranking.summary();
    let for_workload = format!("recommended for: {}", recommendation.workload);
    let advice = recommendation.advice().into_iter().chain([for_workload]).chain(recommendation.measured_with());
    ranked.answer.splice(..0, advice);
    ranked
}

impl fmt::Display for Recommendation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write(&mut text)?;
        // A name with locations may be longer than a line. The code needs it whole.
        let names: Vec<&str> = self.ranking.rows.iter().map(|row| row.name.as_str()).collect();
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
        self.advice().iter().try_for_each(|line| writeln!(f, "{line}"))?;
        writeln!(f, "{}", self.ranking)?;
        writeln!(f, "recommended for: {}", self.workload)?;
        if !self.defaulted.is_empty() {
            writeln!(f, "by default: {}", self.defaulted.join(", "))?;
        }
        self.because.iter().try_for_each(|why| writeln!(f, "{why}"))?;
        if !self.server_cores.is_empty() {
            let (servers, client) = (&self.server_cores, &self.client_cores);
            writeln!(f, "measured on: cores {servers} for the server, {client} for the client")?;
        }
        self.measured_with().iter().try_for_each(|line| writeln!(f, "{line}"))?;
        if self.time_was_up {
            writeln!(f, "the time was up before the last round")?;
        }
        if let Some(seconds) = self.enough_s {
            let time = humantime::format_duration(Duration::from_secs(seconds));
            writeln!(f, "a verdict needs {MIN_ROUNDS} rounds: --time {} is enough", time.to_string().replace(' ', ""))?;
        }
        Ok(())
    }

    /// The settings of each server.
    fn measured_with(&self) -> Vec<String> {
        self.settings.iter().map(|(server, flags)| format!("measured with: {server} {}", flags.join(" "))).collect()
    }

    /// Which candidate to use, and up to which rate it keeps a goal. The answer of the ranking has its ratio to the next one.
    fn advice(&self) -> Vec<String> {
        let Some(Choice { candidate, .. }) = &self.choice else {
            return vec![String::from("no candidate was measured, so none is recommended")];
        };
        let name = candidate.name();
        let is_goal_open = self.workload.p99_goal_ms.is_some() && self.ranking.goal_met.is_none();
        let mut lines = vec![match self.ranking.goal_met {
            Some(false) => format!("no candidate keeps the goal; the nearest is {name}"),
            _ if self.decided && !self.client_full && !is_goal_open => format!("use {name}"),
            _ => format!("undecided; the best so far is {name}"),
        }];
        lines.extend(self.capacity.iter().map(CapacityFigure::to_string));
        lines.extend(self.no_capacity.iter().map(|why| format!("its capacity was not searched: {why}")));
        let full = "client full: the client had no time left, so the servers may be able to do more";
        lines.extend(self.client_full.then(|| full.to_owned()));
        lines
    }
}

impl fmt::Display for CapacityFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { goal_us, searches, end, .. } = self;
        let bound = match end {
            Some(SearchEnd::Below) => "less than ",
            Some(SearchEnd::Above) => "at least ",
            _ => "",
        };
        let goal = time_us(*goal_us as f64);
        let [per_s, low, high] = [self.requests_per_s, self.low, self.high].map(count);
        write!(f, "it keeps a p99 of {goal} up to {bound}{per_s} req/s ({low} to {high} in {searches} searches)")
    }
}
