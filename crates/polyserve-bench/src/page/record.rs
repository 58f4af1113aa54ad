//! The samples of a record.

use std::fmt;

use crate::experiment::{RecordRow, distinct};
use crate::statistics::median_of;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A part of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum PagePart {
    /// The published set-up: pools of 100, 100 connections, 10 000 requests, of which every 10th waits.
    Published,
    /// The published set-up with the published listings, and with servers in other languages.
    Twins,
    /// Pools of every size, and the servers that hold no thread during a wait.
    Sweep,
}

/// The source of the page.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum PageSource {
    /// In the server's memory.
    #[default]
    Memory,
    /// In a file that is read for each request, as published.
    File,
}

/// A server with a number of workers, in a part of the run and in a round.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The part.
    pub part: PagePart,
    /// The server's name.
    pub server: String,
    /// Its number of workers, if it was chosen.
    pub workers: Option<usize>,
    /// The source of its page. Records without this field have the page in memory.
    #[serde(default)]
    pub page: PageSource,
    /// The round, from 1. Records without this field have one round.
    #[serde(default = "first_round")]
    pub round: usize,
}

fn first_round() -> usize {
    1
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.server)?;
        if let Some(workers) = self.workers {
            write!(f, " with {workers} workers")?;
        }
        if self.page == PageSource::File && self.part != PagePart::Twins {
            f.write_str(", page from a file")?;
        }
        Ok(())
    }
}

/// The measurement of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The columns that were published.
    #[serde(flatten)]
    pub figures: PageFigures,
    /// The server's name in the published figures.
    pub published_as: Option<String>,
    /// The columns that were not published.
    #[serde(flatten)]
    pub bounds: Bounds,
    /// The resources of the server, and the published rows and bytes.
    #[serde(flatten)]
    pub details: Details,
}

/// The columns that were published, and are measured again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PageFigures {
    /// From the first request to the last answer, in seconds.
    pub total_s: f64,
    /// Requests a second.
    pub requests_per_s: f64,
    /// The mean time of a request, in milliseconds. A measured time begins with the first packet of the connection.
    pub mean_ms: f64,
    /// The median, in milliseconds. All quantiles were published in whole milliseconds.
    pub p50_ms: f64,
    /// 66 %.
    pub p66_ms: f64,
    /// 75 %.
    pub p75_ms: f64,
    /// 80 %.
    pub p80_ms: f64,
    /// 90 %.
    pub p90_ms: f64,
    /// 95 %.
    pub p95_ms: f64,
    /// 98 %.
    pub p98_ms: f64,
    /// 99 %.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// The resources of a server, and the bytes that it sent. Earlier records have none of these fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Details {
    /// The server's CPU time for each request, in microseconds.
    pub cpu_us_per_request: Option<f64>,
    /// The server's peak resident memory, in bytes.
    pub peak_memory_bytes: Option<u64>,
    /// The length of the page, in bytes.
    pub page_bytes: Option<u64>,
    /// The bytes that the client received, with heads.
    pub received_bytes: Option<u64>,
    /// The phases of the requests.
    pub phases: Option<Phases>,
}

/// The published rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phases {
    /// From the start of the connect to the established connection.
    pub connect: PhaseFigures,
    /// From the established connection to the first byte.
    pub waiting: PhaseFigures,
    /// From the established connection to the last byte.
    pub processing: PhaseFigures,
    /// From the start of the connect to the last byte.
    pub total: PhaseFigures,
}

/// The times of a phase, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseFigures {
    /// The minimum.
    pub min_ms: f64,
    /// The mean.
    pub mean_ms: f64,
    /// The standard deviation.
    pub sd_ms: f64,
    /// The median.
    pub median_ms: f64,
    /// The maximum.
    pub max_ms: f64,
}

/// The load of a server, and the bounds of its throughput.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// The max number of requests a second that its workers answer, if a wait holds a worker.
    pub bound_per_s: Option<f64>,
    /// The max number of requests a second that the connections send.
    pub connections_bound_per_s: f64,
    /// The throughput as a share of the lower of the two bounds.
    pub of_bound: f64,
    /// The number of requests.
    pub requests: u64,
    /// The number of concurrent connections.
    pub connections: usize,
    /// The page waited on one request in this number of requests.
    pub every: u64,
    /// The length of a wait.
    pub wait_s: f64,
    /// The server's CPU time in cores.
    pub server_busy: Option<f64>,
}

/// A sample and its key.
pub type PageRow = RecordRow<Key, Sample>;

/// The rows that represent this published contestant.
pub(super) fn measured_as<'a>(rows: &'a [PageRow], published: &str) -> impl Iterator<Item = &'a PageRow> {
    rows.iter().filter(move |row| row.sample.published_as.as_deref() == Some(published))
}

/// A server's name, and how it has the page.
pub(super) fn origin(row: &PageRow) -> String {
    let how = match (row.key.part, row.key.page) {
        (PagePart::Twins, _) => "here, its listing",
        (_, PageSource::Memory) => "here",
        (_, PageSource::File) => "here, from a file",
    };
    format!("{} ({how})", row.key.server)
}

/// The max number of requests a second if one request in `every` waits for `wait_s`, and at most `waiting` wait at once.
pub(super) fn bound(waiting: usize, every: u64, wait_s: f64) -> f64 {
    waiting as f64 * every as f64 / wait_s
}

/// The CPU time for each request, in microseconds. In earlier records it is computed from the CPU use.
pub(super) fn cpu_us(row: &PageRow) -> Option<f64> {
    let derived = || Some(row.sample.bounds.server_busy? / row.sample.figures.requests_per_s * 1e6);
    row.sample.details.cpu_us_per_request.or_else(derived)
}

/// The peak resident memory in MiB.
pub(super) fn peak_mib(row: &PageRow) -> Option<f64> {
    row.sample.details.peak_memory_bytes.map(|bytes| bytes as f64 / (1 << 20) as f64)
}

/// The medians over the rounds of a part: a row for each server, number of workers and page, in the order of the first
/// rounds.
pub(super) fn medians(rows: &[PageRow], part: PagePart) -> Vec<PageRow> {
    let of_first_round = |row: &PageRow| Key { round: 1, ..row.key.clone() };
    let own: Vec<&PageRow> = rows.iter().filter(|row| row.key.part == part).collect();
    let merged = |key: Key| {
        let rounds: Vec<&PageRow> = own.iter().copied().filter(|row| of_first_round(row) == key).collect();
        match rounds[..] {
            [] => None,
            [row] => Some(row.clone()),
            _ => {
                let values: Vec<Value> =
                    rounds.iter().filter_map(|row| serde_json::to_value(&row.sample).ok()).collect();
                let sample = serde_json::from_value(median_value(&values)).ok()?;
                Some(PageRow { key, sample })
            }
        }
    };
    distinct(own.iter().map(|row| of_first_round(row))).into_iter().filter_map(merged).collect()
}

/// Returns the medians of the numbers in JSON values of one shape. Values of other types are copied from the first JSON
/// value.
fn median_value(values: &[Value]) -> Value {
    match values.first() {
        Some(Value::Object(fields)) => {
            let field =
                |name: &String| median_value(&values.iter().map(|value| value[name].clone()).collect::<Vec<_>>());
            Value::Object(fields.keys().map(|name| (name.clone(), field(name))).collect())
        }
        Some(first @ Value::Number(_)) => {
            let median = median_of(values.iter().filter_map(Value::as_f64)).unwrap_or_default();
            if first.is_u64() { Value::from(median.round() as u64) } else { Value::from(median) }
        }
        first => first.cloned().unwrap_or_default(),
    }
}
