//! The ladder as a table for people, as a waterfall, and as CSV; beside the published one.

use std::fmt;
use std::io;

use polyserve_lab::statistics::{Estimate, Interval, Verdict};
use polyserve_report::Claim;
use polyserve_report::{NOTHING, Table, or_nothing, shown_claims};
use serde::Serialize;
use serde_json::Value;

use super::record::{Contestant, Ratio, Recorded, Role};
use crate::published::LADDER;

/// A contestant's figures: medians over its rounds, and its ratios. Also a line of kind `rung`, and a row of the CSV.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The name, as in the published ladder where there is such a rung.
    pub rung: String,
    /// Requests a second.
    pub requests_per_s: Option<f64>,
    /// Answers a second, in 2^20 bytes.
    #[serde(rename = "transfer_MB_s")]
    pub transfer_mb_s: Option<f64>,
    /// Requests for each second of the server's CPU time.
    pub requests_per_cpu_s: Option<f64>,
    /// Whose ladder it is on.
    pub subject: String,
    /// What it adds.
    pub step: Option<String>,
    /// Whether nothing stands on it.
    pub aside: bool,
    /// The directory that it was built in.
    pub variant: Option<String>,
    /// The rung below.
    pub below: Option<String>,
    /// Requests a second beside the one below; of a control, beside the lowest rung.
    pub ratio: Option<f64>,
    /// The lower end of its 95 % interval.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// What may be said of it.
    pub verdict: Option<Verdict>,
    /// Rounds that it rests on.
    pub rounds: usize,
    /// Requests a second beside the lowest rung.
    pub cumulative: Option<f64>,
    /// The lower end of its 95 % interval.
    pub cumulative_low: Option<f64>,
    /// The upper end.
    pub cumulative_high: Option<f64>,
    /// Requests a second beside fasthttp.
    pub against_fasthttp: Option<f64>,
    /// The lower end of its 95 % interval.
    pub against_fasthttp_low: Option<f64>,
    /// The upper end.
    pub against_fasthttp_high: Option<f64>,
    /// What may be said of it.
    pub against_fasthttp_verdict: Option<Verdict>,
    /// Requests a second beside net/http.
    pub against_nethttp: Option<f64>,
    /// The lower end of its 95 % interval.
    pub against_nethttp_low: Option<f64>,
    /// The upper end.
    pub against_nethttp_high: Option<f64>,
    /// Requests for each second of CPU time beside the one below. Latencies are not taken, so it decides nothing.
    pub cost_ratio: Option<f64>,
    /// The lower end of its 95 % interval.
    pub cost_low: Option<f64>,
    /// The upper end.
    pub cost_high: Option<f64>,
    /// The server's CPU time as a share of what others left of its cores' time.
    pub server_busy: Option<f64>,
    /// The client's.
    pub client_busy: Option<f64>,
    /// Optimisation at link time.
    pub lto: Option<String>,
    /// Codegen units of each crate.
    pub codegen_units: Option<u32>,
    /// The allocator.
    pub allocator: Option<String>,
    /// For which processor it was built.
    pub target_cpu: Option<String>,
    /// Whether pipelined answers leave together.
    pub pipeline_flush: Option<bool>,
    /// Whether the `Date` is formatted once a second.
    pub date_cache: Option<bool>,
    /// The length of the program, in bytes.
    pub program_bytes: u64,
    /// The length of an answer, in bytes.
    pub answer_bytes: u64,
}

/// The references' names.
pub const FASTHTTP: &str = "go-fasthttp";
/// net/http's.
pub const NETHTTP: &str = "go-nethttp";

/// The rows of everybody who has figures, in their order.
pub fn rows(recorded: &Recorded) -> Vec<Row> {
    let with_figures = recorded.contestants.iter().filter(|one| recorded.has_figures(&one.name));
    with_figures.map(|one| row(recorded, one)).collect()
}

fn row(recorded: &Recorded, one: &Contestant) -> Row {
    let Contestant { name, role, subject, settings, .. } = one;
    let lowest = recorded.rungs(subject).find(|rung| rung.below.is_none()).map(|rung| rung.name.as_str());
    let other = if *role == Role::Control { lowest } else { one.below.as_deref() };
    let beside = |other: Option<&str>| other.and_then(|other| recorded.throughput(name, other));
    let to = |reference: &str| beside(Some(reference).filter(|_| *role == Role::Rung));
    let (below, cumulative) = (beside(other), beside(lowest.filter(|_| *role == Role::Rung)));
    let cost = other.and_then(|other| recorded.cost(name, other));
    let (fasthttp, nethttp) = (to(FASTHTTP), to(NETHTTP));
    let set = settings.as_ref();
    Row {
        rung: name.clone(),
        requests_per_s: recorded.middle(name, |cell| Some(cell.requests_per_s)),
        transfer_mb_s: recorded.middle(name, |cell| Some(cell.transfer_mb_s)),
        requests_per_cpu_s: recorded.middle(name, |cell| cell.requests_per_cpu_s),
        subject: subject.clone(),
        step: one.step.clone(),
        aside: one.aside,
        variant: set.map(ToString::to_string),
        below: one.below.clone(),
        ratio: below.map(ratio),
        low: below.map(low),
        high: below.map(high),
        verdict: below.map(|ratio| ratio.verdict),
        rounds: recorded.cells(name).len(),
        cumulative: cumulative.map(ratio),
        cumulative_low: cumulative.map(low),
        cumulative_high: cumulative.map(high),
        against_fasthttp: fasthttp.map(ratio),
        against_fasthttp_low: fasthttp.map(low),
        against_fasthttp_high: fasthttp.map(high),
        against_fasthttp_verdict: fasthttp.map(|ratio| ratio.verdict),
        against_nethttp: nethttp.map(ratio),
        against_nethttp_low: nethttp.map(low),
        against_nethttp_high: nethttp.map(high),
        cost_ratio: cost.map(ratio),
        cost_low: cost.map(low),
        cost_high: cost.map(high),
        server_busy: recorded.busy(name, |cell| cell.server_cpu_s.zip(cell.server_idle_s)),
        client_busy: recorded.busy(name, |cell| Some((cell.client_cpu_s, cell.client_idle_s?))),
        lto: set.map(|set| set.lto.clone()),
        codegen_units: set.map(|set| set.codegen_units),
        allocator: set.map(|set| set.allocator.clone()),
        target_cpu: set.map(|set| set.target_cpu.clone()),
        pipeline_flush: set.map(|set| set.pipeline_flush),
        date_cache: set.map(|set| set.date_cache),
        program_bytes: one.program_bytes,
        answer_bytes: one.answer_bytes,
    }
}

fn ratio(ratio: Ratio) -> f64 {
    ratio.estimate.ratio
}

fn low(ratio: Ratio) -> f64 {
    ratio.estimate.interval.low
}

fn high(ratio: Ratio) -> f64 {
    ratio.estimate.interval.high
}

/// Writes the rows as CSV, with a header; the published columns come first.
///
/// # Errors
///
/// Where `out` fails.
pub fn write_csv(rows: &[Row], out: impl io::Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    for row in rows {
        csv.serialize(row).map_err(io::Error::other)?;
    }
    csv.flush()
}

/// The named tables of recorded lines.
///
/// # Errors
///
/// Where a line is not what its kind says.
pub fn tables(lines: &[Value]) -> anyhow::Result<Vec<(String, Table)>> {
    let recorded = Recorded::of(lines)?;
    let rows = rows(&recorded);
    Ok(vec![
        (String::from("ladder"), ladder(&rows)),
        (String::from("waterfall"), waterfall(&rows)),
        (String::from("published"), published(&recorded)?),
    ])
}

fn ladder(rows: &[Row]) -> Table {
    let mut table = Table::of_numbers(&[
        "RUNG",
        "REQUESTS/S",
        "MB/S",
        "REQUESTS/CPU S",
        "BESIDE THE ONE BELOW",
        "",
        "BESIDE FASTHTTP",
        "",
        "SERVER BUSY",
    ]);
    for row in rows {
        let number = |figure: Option<f64>| or_nothing(figure.map(|figure| format!("{figure:.0}")));
        table.row(vec![
            row.rung.clone(),
            number(row.requests_per_s),
            or_nothing(row.transfer_mb_s.map(|figure| format!("{figure:.2}"))),
            number(row.requests_per_cpu_s),
            interval(row.ratio, row.low, row.high),
            or_nothing(row.verdict.map(said)),
            interval(row.against_fasthttp, row.against_fasthttp_low, row.against_fasthttp_high),
            or_nothing(row.against_fasthttp_verdict.map(said)),
            or_nothing(row.server_busy.map(percent)),
        ]);
    }
    table
}

/// What each step adds, and what all up to it have added; the bar is the latter, the longest of a subject has all marks.
fn waterfall(rows: &[Row]) -> Table {
    const MARKS: f64 = 40.0;
    let most = |subject: &str| {
        let own = rows.iter().filter(|row| row.subject == subject).filter_map(|row| row.cumulative);
        own.fold(1.0, f64::max) - 1.0
    };
    let mut table = Table::of_texts(&["SUBJECT", "STEP", "GAIN", "ALL TOGETHER", ""]);
    for row in rows.iter().filter(|row| row.cumulative.is_some()) {
        let gain = |ratio: Option<f64>| or_nothing(ratio.map(|ratio| format!("{:+.1} %", (ratio - 1.0) * 100.0)));
        let share = row.cumulative.map_or(0.0, |all| (all - 1.0) / most(&row.subject));
        let marks = if share > 0.0 { (share * MARKS).round() as usize } else { 0 }; // none of a NaN
        let step = row.step.clone().unwrap_or_else(|| "(lowest rung)".into());
        let step = if row.aside { format!("{step} (aside)") } else { step };
        let all = if row.step.is_some() { gain(row.cumulative) } else { NOTHING.to_owned() };
        table.row(vec![row.subject.clone(), step, gain(row.ratio), all, "#".repeat(marks)]);
    }
    table
}

/// The published ladder, each rung beside the one below it there, and what was measured of the same rung here.
fn published(recorded: &Recorded) -> anyhow::Result<Table> {
    let mut table = Table::of_numbers(&[
        "PUBLISHED RUNG",
        "REQUESTS/S",
        "MB/S",
        "BESIDE THE ONE BELOW",
        "HERE",
        "BESIDE FASTHTTP",
        "HERE",
    ]);
    let rows: Vec<(String, f64, f64)> =
        csv::Reader::from_reader(LADDER.as_bytes()).deserialize().collect::<Result<_, _>>()?;
    let of = |wanted: &str| rows.iter().find(|(name, ..)| name == wanted).map(|(_, requests_per_s, _)| *requests_per_s);
    for (name, requests_per_s, megabytes) in &rows {
        let below = name.rsplit_once('+').map(|(below, _)| below);
        let beside = |other: Option<&str>| {
            let there = other.and_then(of).map(|other| format!("{:.3}", requests_per_s / other));
            let here = other.and_then(|other| recorded.throughput(name, other));
            [or_nothing(there), or_nothing(here.map(|ratio| shown(&ratio.estimate)))]
        };
        let mut cells = vec![name.clone(), format!("{requests_per_s:.0}"), format!("{megabytes:.2}")];
        cells.extend(beside(below));
        cells.extend(beside(Some(FASTHTTP).filter(|reference| reference != name)));
        table.row(cells);
    }
    Ok(table)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn interval(ratio: Option<f64>, low: Option<f64>, high: Option<f64>) -> String {
    let whole = ratio.zip(low).zip(high);
    or_nothing(whole.map(|((ratio, low), high)| format!("{ratio:.3} {}", Interval { low, high })))
}

/// An estimate as text: `1.050 [1.020, 1.080]`.
pub(super) fn shown(Estimate { ratio, interval, .. }: &Estimate) -> String {
    format!("{ratio:.3} {interval}")
}

fn said(verdict: Verdict) -> String {
    String::from(match verdict {
        Verdict::Faster => "faster",
        Verdict::Slower => "slower",
        Verdict::Tie => "tie",
        Verdict::TooFewRounds => "too few rounds",
    })
}

/// What is printed of a run.
#[derive(Debug)]
pub struct Shown<'a> {
    /// What is recorded.
    pub recorded: &'a Recorded,
    /// What was asked, in words.
    pub asked: &'a str,
    /// What is to be said of the published claims.
    pub claims: &'a [Claim],
    /// Whether it was ended early.
    pub interrupted: bool,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { recorded, asked, claims, interrupted } = self;
        let rows = rows(recorded);
        if !rows.is_empty() {
            writeln!(f, "{asked}\n\n{}\n{}", ladder(&rows), waterfall(&rows))?;
            let idle = rows
                .iter()
                .filter(|row| row.server_busy.is_some_and(|busy| busy < polyserve_lab::compare::ranking::BUSY));
            for row in idle {
                let busy = or_nothing(row.server_busy.map(percent));
                writeln!(f, "{}: its core was busy for {busy} only, so it could have done more", row.rung)?;
            }
        }
        for one in &recorded.not_run {
            let why = one.why.strip_prefix("not run: ").unwrap_or(&one.why);
            writeln!(f, "{}: not run: {why}", one.name)?;
        }
        for one in &recorded.failed {
            writeln!(f, "no figures: {}: {}", one.name, one.why)?;
        }
        write!(f, "\n{}", shown_claims(claims))?;
        if *interrupted { writeln!(f, "ended early") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::made_up::{cell, contestant};

    fn lines() -> Vec<Value> {
        let mut lines = vec![
            contestant("go-fasthttp", "reference", None, None),
            contestant("warp", "rung", None, None),
            contestant("warp (again)", "control", None, None),
            contestant("warp+lto", "rung", Some("lto"), Some("warp")),
            contestant("go-nethttp", "reference", None, None),
        ];
        let speeds = [
            ("go-fasthttp", 88.0),
            ("go-nethttp", 44.0),
            ("warp", 100.0),
            ("warp (again)", 100.0),
            ("warp+lto", 110.0),
        ];
        for round in 1..=10 {
            lines.extend(speeds.map(|(name, speed)| cell(name, round, speed)));
        }
        lines
    }

    #[test]
    fn rows_and_csv() {
        let rows = rows(&Recorded::of(&lines()).unwrap());
        let names: Vec<&str> = rows.iter().map(|row| row.rung.as_str()).collect();
        assert_eq!(names, ["warp", "warp (again)", "warp+lto", "go-fasthttp", "go-nethttp"]);
        let lto = &rows[2];
        assert_eq!((lto.ratio, lto.cumulative, lto.against_fasthttp), (Some(1.1), Some(1.1), Some(1.25)));
        let nethttp = [lto.against_nethttp, lto.against_nethttp_low, lto.against_nethttp_high];
        assert_eq!((nethttp, rows[1].against_nethttp_low), ([Some(2.5); 3], None));
        assert_eq!((rows[0].ratio, rows[1].ratio, rows[3].ratio), (None, Some(1.0), None));
        let mut csv = Vec::new();
        write_csv(&rows, &mut csv).unwrap();
        let csv = String::from_utf8(csv).unwrap();
        let header = LADDER.lines().next().unwrap();
        assert!(csv.starts_with(&format!("{header},")) && csv.contains("\nwarp+lto,110.0,1.0,"), "{csv}");
    }

    #[test]
    fn the_published_ladder_stands_beside_ours() {
        let tables = tables(&lines()).unwrap();
        let [(_, ladder), (_, waterfall), (_, published)] = &tables[..] else { panic!("{tables:?}") };
        assert!(ladder.to_string().contains("1.100 [1.100, 1.100]"), "{ladder}");
        assert!(waterfall.to_string().contains(&format!("+10.0 %  +10.0 %       {}\n", "#".repeat(40))), "{waterfall}");
        let published = published.to_string();
        let row = published.lines().find(|line| line.starts_with("warp+lto ")).unwrap();
        let cells: Vec<&str> = row.split_whitespace().collect();
        let wanted = ["warp+lto", "1099343", "139.44", "1.052", "1.100", "[1.100,", "1.100]", "0.953", "1.250"];
        assert_eq!(cells[..wanted.len()], wanted, "{published}");
        assert_eq!(published.lines().count(), 7);
    }
}
