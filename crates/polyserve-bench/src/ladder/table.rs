//! The ladder as a table, as a waterfall and as CSV, and the published ladder.

use std::collections::HashMap;

use crate::compare::ranking::is_server_full;
use crate::output::rate_text;
use crate::report::figures::count;
use crate::report::{EMPTY_CELL, Table, or_empty};
use crate::statistics::{Estimate, Interval, Verdict};
use serde::Serialize;

use super::record::{RungEntry, RungRole};
use super::results::{Ratio, Results};
use super::rung::RungStep;
use crate::published::{self, LADDER};

/// The figures of a contestant: medians over its rounds, and its ratios. Also a line of kind `rung`, and a row of the CSV.
#[derive(Clone, Debug, Serialize)]
pub struct RungRow {
    /// The contestant's name; the published name if the rung was published.
    pub rung: String,
    /// Requests per second.
    pub requests_per_s: Option<f64>,
    /// Bytes of answers per second, in units of 2^20 bytes.
    #[serde(rename = "transfer_MB_s")]
    pub transfer_mb_s: Option<f64>,
    /// Requests for each second of the server's CPU time.
    pub requests_per_cpu_s: Option<f64>,
    /// The subject.
    pub subject: String,
    /// The step that the rung adds.
    pub step: Option<String>,
    /// Whether no other rung builds on this one.
    pub aside: bool,
    /// The name of the directory of the build.
    pub variant: Option<String>,
    /// The name of the rung below.
    pub below: Option<String>,
    /// The ratio of requests per second to the rung below; for a control, to the lowest rung.
    pub ratio: Option<f64>,
    /// The lower end of the 95 % interval of `ratio`.
    pub low: Option<f64>,
    /// The upper end of the 95 % interval of `ratio`.
    pub high: Option<f64>,
    /// The verdict on `ratio`.
    pub verdict: Option<Verdict>,
    /// The number of rounds.
    pub rounds: usize,
    /// Requests under way as a share of the connections: 1 by Little's law. `None` if several requests are sent at
    /// once.
    pub under_way: Option<f64>,
    /// The ratio of requests per second to the lowest rung.
    pub cumulative: Option<f64>,
    /// The lower end of the 95 % interval of `cumulative`.
    pub cumulative_low: Option<f64>,
    /// The upper end of the 95 % interval of `cumulative`.
    pub cumulative_high: Option<f64>,
    /// The ratio of requests per second to fasthttp.
    pub against_fasthttp: Option<f64>,
    /// The lower end of the 95 % interval of `against_fasthttp`.
    pub against_fasthttp_low: Option<f64>,
    /// The upper end of the 95 % interval of `against_fasthttp`.
    pub against_fasthttp_high: Option<f64>,
    /// The verdict on `against_fasthttp`.
    pub against_fasthttp_verdict: Option<Verdict>,
    /// The ratio of requests per second to net/http.
    pub against_nethttp: Option<f64>,
    /// The lower end of the 95 % interval of `against_nethttp`.
    pub against_nethttp_low: Option<f64>,
    /// The upper end of the 95 % interval of `against_nethttp`.
    pub against_nethttp_high: Option<f64>,
    /// The ratio of requests for each second of CPU time to the rung below. It decides nothing: latencies are not measured.
    pub cost_ratio: Option<f64>,
    /// The lower end of the 95 % interval of `cost_ratio`.
    pub cost_low: Option<f64>,
    /// The upper end of the 95 % interval of `cost_ratio`.
    pub cost_high: Option<f64>,
    /// The server's CPU time as a share of its cores' time, without the time that other processes took.
    pub server_busy: Option<f64>,
    /// The client's CPU time as a share of its cores' time, without the time that other processes took.
    pub client_busy: Option<f64>,
    /// The link-time optimisation.
    pub lto: Option<String>,
    /// The number of codegen units of each crate.
    pub codegen_units: Option<u32>,
    /// The allocator.
    pub allocator: Option<String>,
    /// The processor that it was built for.
    pub target_cpu: Option<String>,
    /// Whether pipelined answers are sent together.
    pub pipeline_flush: Option<bool>,
    /// Whether the `Date` of our servers is formatted once a second. That of warp is on every rung.
    pub date_cache: Option<bool>,
    /// The name of the patch of a dependency.
    pub patch: Option<String>,
    /// The length of the program, in bytes.
    pub program_bytes: u64,
    /// The length of an answer, in bytes.
    pub answer_bytes: u64,
}

impl RungRow {
    /// Whether the rung's cost can be compared.
    pub(super) fn is_full(&self) -> bool {
        is_server_full(self.server_busy, self.client_busy)
    }
}

/// The name of the reference on fasthttp.
pub const FASTHTTP: &str = "go-fasthttp";
/// The name of the reference on net/http.
pub const NETHTTP: &str = "go-nethttp";

/// The rows of the contestants that have figures, in their order.
pub fn rows(results: &Results) -> Vec<RungRow> {
    let with_figures = results.entries.iter().filter(|entry| results.has_figures(&entry.name));
    with_figures.map(|entry| row(results, entry)).collect()
}

fn row(results: &Results, entry: &RungEntry) -> RungRow {
    let RungEntry { name, role, subject, settings, .. } = entry;
    let lowest = results.rungs(subject).find(|rung| rung.below.is_none()).map(|rung| rung.name.as_str());
    let baseline = if *role == RungRole::Control { lowest } else { entry.below.as_deref() };
    let ratio_to = |baseline: Option<&str>| baseline.and_then(|baseline| results.throughput(name, baseline));
    let to_reference = |reference: &str| ratio_to(Some(reference).filter(|_| *role == RungRole::Rung));
    let (below, cumulative) = (ratio_to(baseline), ratio_to(lowest.filter(|_| *role == RungRole::Rung)));
    let cost = baseline.and_then(|baseline| results.cost(name, baseline));
    let (fasthttp, nethttp) = (to_reference(FASTHTTP), to_reference(NETHTTP));
    let settings = settings.as_ref();
    RungRow {
        rung: name.clone(),
        requests_per_s: results.median(name, |sample| Some(sample.requests_per_s)),
        transfer_mb_s: results.median(name, |sample| Some(sample.transfer_mb_s)),
        requests_per_cpu_s: results.median(name, |sample| sample.requests_per_cpu_s),
        subject: subject.clone(),
        step: entry.step.clone(),
        aside: entry.aside,
        variant: settings.map(ToString::to_string),
        below: entry.below.clone(),
        ratio: below.map(ratio),
        low: below.map(low),
        high: below.map(high),
        verdict: below.map(|ratio| ratio.verdict),
        rounds: results.samples(name).len(),
        under_way: results.median(name, |sample| sample.under_way),
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
        server_busy: results.server_busy(name),
        client_busy: results.client_busy(name),
        lto: settings.map(|set| set.lto.clone()),
        codegen_units: settings.map(|set| set.codegen_units),
        allocator: settings.map(|set| set.allocator.clone()),
        target_cpu: settings.map(|set| set.target_cpu.clone()),
        pipeline_flush: settings.map(|set| set.pipeline_flush),
        date_cache: settings.map(|set| set.date_cache),
        patch: settings.and_then(|set| set.patch.clone()),
        program_bytes: entry.program_bytes,
        answer_bytes: entry.answer_bytes,
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

/// The rows as CSV, with a header. The published columns come first.
///
/// # Errors
///
/// Returns an error if a row cannot be written.
pub fn csv(rows: &[RungRow]) -> anyhow::Result<String> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    for row in rows {
        csv.serialize(row)?;
    }
    Ok(String::from_utf8(csv.into_inner()?)?)
}

/// The tables of a result, by name. `rungs` are the rows of `results`.
///
/// # Errors
///
/// Returns an error if the published figures are not CSV.
pub fn tables(rungs: &[RungRow], results: &Results) -> anyhow::Result<Vec<(String, Table)>> {
    Ok(vec![
        (String::from("ladder"), ladder(rungs)),
        (String::from("waterfall"), waterfall(rungs)),
        (String::from("published"), published(results)?),
    ])
}

pub(super) fn ladder(rows: &[RungRow]) -> Table {
    Table::of_columns(
        rows,
        &[
            ("rung", &|row| row.rung.clone()),
            ("req/s", &|row| or_empty(row.requests_per_s.map(|per_s| rate_text(per_s, row.under_way)))),
            ("MiB/s", &|row| or_empty(row.transfer_mb_s.map(|figure| format!("{figure:.2}")))),
            ("req/CPU s", &|row| {
                let doubt = if row.is_full() { "" } else { "~" };
                or_empty(row.requests_per_cpu_s.map(|per_s| format!("{doubt}{}", count(per_s))))
            }),
            ("over the rung below, 95 %", &|row| interval(row.ratio, row.low, row.high)),
            ("verdict", &|row| or_empty(row.verdict.map(verdict_text))),
            ("over fasthttp, 95 %", &|row| {
                interval(row.against_fasthttp, row.against_fasthttp_low, row.against_fasthttp_high)
            }),
            ("verdict", &|row| or_empty(row.against_fasthttp_verdict.map(verdict_text))),
            ("server busy", &|row| or_empty(row.server_busy.map(percent))),
        ],
    )
}

/// The gain of each step, and the gain of all steps up to that step. The bar shows the second gain. The largest gain of
/// a subject has a full bar.
pub(super) fn waterfall(rows: &[RungRow]) -> Table {
    const MARKS: f64 = 40.0;
    let max = |subject: &str| {
        let own = rows.iter().filter(|row| row.subject == subject).filter_map(|row| row.cumulative);
        own.fold(1.0, f64::max) - 1.0
    };
    let mut table = Table::of_texts(&["server", "step", "gain", "cumulative gain", ""]);
    for row in rows.iter().filter(|row| row.cumulative.is_some()) {
        let gain = |ratio: Option<f64>| or_empty(ratio.map(|ratio| format!("{:+.1} %", (ratio - 1.0) * 100.0)));
        let share = row.cumulative.map_or(0.0, |all| (all - 1.0) / max(&row.subject));
        let marks = if share > 0.0 { (share * MARKS).round() as usize } else { 0 }; // also for NaN
        let step = row.step.clone().unwrap_or_else(|| "(lowest rung)".into());
        let step = if row.aside { format!("{step} (aside)") } else { step };
        let all = if row.step.is_some() { gain(row.cumulative) } else { EMPTY_CELL.to_owned() };
        table.row(vec![row.subject.clone(), step, gain(row.ratio), all, "#".repeat(marks)]);
    }
    table
}

/// The gain of the flush of pipelined answers, of a subject.
#[derive(Clone, Debug, Serialize)]
pub struct FlushRow {
    /// The subject.
    pub subject: String,
    /// The number of requests at once on a connection.
    pub pipeline: usize,
    /// The ratio of requests per second to the rung below.
    pub throughput: Ratio,
    /// The ratio of requests for each second of the server's CPU time to the rung below.
    pub cost: Option<Ratio>,
}

/// The gain of the flush of each subject that has the rung.
pub(super) fn flush_rows(results: &Results) -> Vec<FlushRow> {
    let row = |subject: &str| {
        let rung = results.rung(subject, RungStep::PipelineFlush.name())?;
        let below = rung.below.as_deref()?;
        let (throughput, cost) = (results.throughput(&rung.name, below)?, results.cost(&rung.name, below));
        Some(FlushRow { subject: subject.to_owned(), pipeline: results.pipeline, throughput, cost })
    };
    results.subjects().into_iter().filter_map(row).collect()
}

pub(super) fn flush(rows: &[FlushRow]) -> Table {
    Table::of_columns(
        rows,
        &[
            ("server", &|row| row.subject.clone()),
            ("requests at once", &|row| row.pipeline.to_string()),
            ("throughput with the flush, 95 %", &|row| shown(&row.throughput.estimate)),
            ("verdict", &|row| verdict_text(row.throughput.verdict)),
            ("requests per CPU second, 95 %", &|row| or_empty(row.cost.map(|cost| shown(&cost.estimate)))),
        ],
    )
}

/// The published step that is part of tokio today. Our rung [`RungStep::WakerArray`] reverts the step, so the
/// comparison is reversed.
const IN_TOKIO: &str = "+tokio-waker-array";

/// A function that returns the published ratio of requests per second of a rung to another one.
///
/// # Errors
///
/// Returns an error if the published figures are not CSV.
pub(super) fn published_ratio() -> anyhow::Result<impl Fn(&str, &str) -> Option<f64>> {
    let rows: HashMap<String, f64> =
        published::rows::<(String, f64, f64)>(LADDER)?.into_iter().map(|(name, per_s, _)| (name, per_s)).collect();
    Ok(move |own: &str, other: &str| {
        if own.strip_suffix(RungStep::WakerArray.name()).is_some_and(|below| below.strip_suffix('+') == Some(other)) {
            return Some(rows.get(other)? / rows.get(&format!("{other}{IN_TOKIO}"))?);
        }
        Some(rows.get(own)? / rows.get(other)?)
    })
}

/// The published ladder, and the measured ratios of the same rungs.
fn published(results: &Results) -> anyhow::Result<Table> {
    let mut table = Table::of_numbers(&[
        "published rung",
        "req/s",
        "MiB/s",
        "over the rung below",
        "over the rung below, here",
        "over fasthttp",
        "over fasthttp, here",
    ]);
    let rows: Vec<(String, f64, f64)> = published::rows(LADDER)?;
    let ratio = published_ratio()?;
    for (name, requests_per_s, megabytes) in &rows {
        let below = name.rsplit_once('+').map(|(below, _)| below);
        // Our rung without the step is above our rung with the step.
        let with_step = name.strip_suffix(IN_TOKIO);
        let without_step = with_step.map(|with| format!("{with}+{}", RungStep::WakerArray.name()));
        let measured_name = with_step.unwrap_or(name);
        let ratios = |baseline: Option<&str>| {
            let published_text = baseline.and_then(|baseline| ratio(name, baseline)).map(|ratio| format!("{ratio:.3}"));
            let baseline = if baseline == with_step { without_step.as_deref() } else { baseline };
            let measured_ratio = baseline.and_then(|baseline| results.throughput(measured_name, baseline));
            [or_empty(published_text), or_empty(measured_ratio.map(|ratio| shown(&ratio.estimate)))]
        };
        let mut cells = vec![name.clone(), count(*requests_per_s), format!("{megabytes:.2}")];
        cells.extend(ratios(below));
        cells.extend(ratios(Some(FASTHTTP).filter(|reference| reference != name)));
        table.row(cells);
    }
    Ok(table)
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn interval(ratio: Option<f64>, low: Option<f64>, high: Option<f64>) -> String {
    let whole = ratio.zip(low).zip(high);
    or_empty(whole.map(|((ratio, low), high)| format!("{ratio:.3} {}", Interval { low, high })))
}

/// An estimate as text: `1.050 [1.020, 1.080]`.
pub(super) fn shown(Estimate { ratio, interval, .. }: &Estimate) -> String {
    format!("{ratio:.3} {interval}")
}

fn verdict_text(verdict: Verdict) -> String {
    verdict.in_words("faster", "slower").to_owned()
}

#[cfg(test)]
mod tests;
