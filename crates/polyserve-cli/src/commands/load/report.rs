//! The result of a load, as text and as JSON.

use std::fmt;
use std::time::Duration;

use polyserve_bench::output::MAX_LITTLES_LAW_ERROR;
use polyserve_bench::report::Table;
use polyserve_bench::report::figures::{count, counted};
use polyserve_load::{AnswerCheck, Arrivals, ChangingAnswer, Load, Pace, Report, Usage};
use serde::Serialize;

/// A report with the settings of its load.
#[derive(Serialize)]
pub(crate) struct LoadSummary<'a> {
    url: String,
    connections: usize,
    threads: usize,
    /// Requests a second, in open loop.
    rate: Option<f64>,
    /// The spacing of the requests, in open loop.
    arrivals: Arrivals,
    /// The number of pipelined requests; `null` if every request has its own connection.
    pipeline: Option<usize>,
    requests_per_s: f64,
    requests_per_server_cpu_s: Option<f64>,
    p99_goal: Option<P99Goal>,
    #[serde(flatten)]
    report: &'a Report,
}

/// A goal for the latency of 99 % of the requests.
#[derive(Clone, Copy, Serialize)]
struct P99Goal {
    goal_ns: u64,
    /// The measured latency; `null` without a request.
    p99_ns: Option<u64>,
    /// Requests that were never sent have no latency in a closed loop, and count as late in an open one. `null` if a signal ended
    /// the load: a part of a load is no verdict.
    met: Option<bool>,
}

/// The share of its time from which the client counts as saturated.
const SATURATED: f64 = 0.95;
const MIN_ANSWERS_PER_CONNECTION: u64 = 100;
/// The p99 of the lateness that causes a warning, in nanoseconds.
const LATE_NS: u64 = 1_000_000;

impl<'a> LoadSummary<'a> {
    pub(crate) fn new(url: String, load: &Load, report: &'a Report, p99: Option<Duration>, is_stopped: bool) -> Self {
        let goal = |time: Duration| {
            let goal_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            let p99_ns = (!report.latency.is_empty()).then(|| report.latency.value_at_quantile(0.99));
            let met = (!is_stopped).then(|| p99_ns.is_some_and(|p99| p99 <= goal_ns));
            P99Goal { goal_ns, p99_ns, met }
        };
        let rate = match load.pace {
            Pace::Rate(rate) => Some(rate),
            Pace::Closed => None,
        };
        let pipeline = match load.usage {
            Usage::KeepAlive { pipeline } => Some(pipeline),
            Usage::Close => None,
        };
        Self {
            url,
            connections: load.connections,
            threads: load.threads,
            rate,
            arrivals: load.arrivals,
            pipeline,
            requests_per_s: report.per_second(),
            requests_per_server_cpu_s: report.per_server_cpu_second(),
            p99_goal: p99.map(goal),
            report,
        }
    }

    /// Whether the goal is missed; false without a goal, without a request and without a verdict.
    pub(crate) fn is_goal_missed(&self) -> bool {
        self.p99_goal.is_some_and(|goal| goal.met == Some(false) && goal.p99_ns.is_some())
    }

    fn goal(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(P99Goal { goal_ns, p99_ns, met }) = self.p99_goal else { return Ok(()) };
        let p99 = p99_ns.map_or_else(|| String::from("not measured"), time);
        let verdict = match met {
            Some(true) => "met",
            Some(false) => "NOT MET",
            None => "no verdict, because the load was stopped",
        };
        let since = match self.rate {
            Some(_) => "from the time that a request was due",
            None => "closed loop, from the send; with --rate, from the time that a request is due",
        };
        writeln!(f, "goal: p99 at most {}: {verdict}, it was {p99} ({since})", time(goal_ns))
    }

    fn failures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = &self.report.failed;
        let kinds = [
            ("wrong", failed.wrong),
            ("timeouts", failed.timeouts),
            ("connect", failed.connect),
            ("broken", failed.broken),
        ];
        let kinds = kinds.into_iter().map(|(name, count)| (name.to_owned(), count));
        let statuses = failed.status.iter().map(|(status, count)| (format!("status {status}"), *count));
        let named: Vec<String> =
            kinds.chain(statuses).filter(|kind| kind.1 > 0).map(|(name, count)| format!("{name} {count}")).collect();
        if !named.is_empty() {
            writeln!(f, "FAILED: {}", named.join(", "))?;
        }
        match &self.report.first_failure {
            Some(first) => writeln!(f, "first failure: {first}"),
            None => Ok(()),
        }
    }

    fn latencies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = format!("latency ({})", self.report.latency_kind);
        let mut table = Table::of_numbers(&[named.as_str(), "p50", "p90", "p99", "p99.9", "max", "mean"]);
        let mut row = |name: &str, histogram: &hdrhistogram::Histogram<u64>| {
            let quantiles = [0.5, 0.9, 0.99, 0.999].map(|quantile| histogram.value_at_quantile(quantile));
            let values = quantiles.into_iter().chain([histogram.max(), histogram.mean() as u64]).map(time);
            table.row(std::iter::once(name.to_owned()).chain(values).collect());
        };
        if !self.report.latency.is_empty() {
            row("  answers", &self.report.latency);
        }
        if let Some(parts) = self.report.phases.as_ref().filter(|parts| !parts.connect.is_empty()) {
            row("  of which connecting", &parts.connect);
            row("  of which after connecting", &parts.processing);
        }
        if let Some(lateness) = self.report.lateness.as_ref().filter(|lateness| !lateness.is_empty()) {
            row("  of which the client's lateness", lateness);
        }
        write!(f, "{table}")
    }

    fn warnings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.report;
        // In an open loop the time of busy waiting is no work.
        if report.client_busy >= SATURATED {
            writeln!(f, "warning: the client was saturated: the server may be able to do more")?;
        }
        let is_closed_loop = self.rate.is_none() && self.pipeline == Some(1);
        let under_way = report.under_way() / self.connections as f64;
        let is_long = report.answered >= MIN_ANSWERS_PER_CONNECTION * self.connections as u64;
        if is_closed_loop && is_long && (under_way - 1.0).abs() > MAX_LITTLES_LAW_ERROR {
            let law = format!("{under_way:.2} of the connections (Little's law)");
            writeln!(f, "warning: rate x mean latency is {law}: connections were idle or replaced")?;
        }
        let late = report.lateness.as_ref().map_or(0, |lateness| lateness.value_at_quantile(0.99));
        if late >= LATE_NS {
            writeln!(f, "warning: the client was late by {} for one request in a hundred", time(late))?;
        }
        if report.unsent > 0 {
            writeln!(f, "warning: {} requests were due but not sent: no connection was free", report.unsent)?;
        }
        if report.unfinished > 0 {
            writeln!(f, "warning: {} requests had no answer when the load was stopped", report.unfinished)?;
        }
        Ok(())
    }
}

impl fmt::Display for LoadSummary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, connections, threads, requests_per_s, report, .. } = self;
        let usage = match self.pipeline {
            None => "a connection for each request".to_owned(),
            Some(1) => "kept".to_owned(),
            Some(depth) => format!("kept, {depth} requests at once"),
        };
        let per_s = |per_s: f64| if per_s < 100.0 { format!("{per_s:.1}") } else { count(per_s) };
        let pace = self.rate.map_or_else(
            || "closed loop".to_owned(),
            |rate| format!("{} requests/s, {} arrivals", per_s(rate), self.arrivals),
        );
        writeln!(f, "{url}: {connections} connections ({usage}), threads {threads}, {pace}")?;
        let (seconds, answered) = (report.elapsed.as_secs_f64(), report.answered);
        let (per_s, answers) = (per_s(*requests_per_s), count(answered as f64));
        let late = late(answered, report.answered_late);
        writeln!(f, "{per_s} requests/s: {answers} right answers in {seconds:.3} s{late}")?;
        self.failures(f)?;
        for ChangingAnswer { request, judged, .. } in &report.changing {
            let judged =
                if *judged == AnswerCheck::Length { "its status and its length are" } else { "only its status is" };
            writeln!(f, "{request}: the body of the answer changes, so {judged} judged")?;
        }
        self.goal(f)?;
        self.latencies(f)?;
        let per_second = |bytes: u64| if seconds > 0.0 { bytes as f64 / 1024.0 / seconds } else { 0.0 };
        let (received, sent) = (per_second(report.bytes_received), per_second(report.bytes_sent));
        writeln!(f, "received {received:.1} KiB/s, sent {sent:.1} KiB/s")?;
        let (opened, reconnects) = (report.connections_opened, report.reconnects);
        let again = counted(report.retried, "request");
        writeln!(f, "connections: {opened} opened, {reconnects} reconnects, {again} sent again")?;
        writeln!(f, "client: {:.1} % busy", report.client_busy * 100.0)?;
        if let (Some(busy), Some(per_second)) = (report.server_busy, self.requests_per_server_cpu_s) {
            writeln!(
                f,
                "server: {busy:.2} cores, {} requests for each second of its processor time",
                count(per_second)
            )?;
        }
        self.warnings(f)
    }
}

/// The end of the sentence about the right answers, if none arrived in time.
fn late(answered: u64, answered_late: u64) -> String {
    match (answered, answered_late) {
        (0, 0) => String::from("; nothing was verified"),
        (0, late) => format!("; {} came after that time", count(late as f64)),
        _ => String::new(),
    }
}

/// A number of nanoseconds, with a readable unit.
fn time(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => format!("{:.1} us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_answers_are_named_if_there_are_no_others() {
        assert_eq!(late(0, 64), "; 64 came after that time");
        assert_eq!(late(0, 0), "; nothing was verified");
        assert_eq!(late(1, 64), "");
    }

    #[test]
    fn times_are_for_people() {
        assert_eq!(
            [0, 1_500, 999_999, 1_000_000, 2_500_000_000].map(time),
            ["0 ns", "1.5 us", "1000.0 us", "1.00 ms", "2.50 s"]
        );
    }
}
