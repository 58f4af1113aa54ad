//! The cells as CSV: the published columns, then the columns that describe the server. One file for each method, as published.

use serde::Serialize;

use super::{Cell, Method};

/// A line. The names of the fields are the header.
#[derive(Serialize)]
struct CsvRow<'a> {
    lang: &'a str,
    pool_size: Option<usize>,
    requests: u64,
    connections: usize,
    avg_cpu_pct: f64,
    max_cpu_pct: Option<f64>,
    avg_mem_pct: f64,
    max_mem_pct: Option<f64>,
    total_s: f64,
    per_request_ms: f64,
    #[serde(rename = "received_kB_s")]
    received_kb_s: f64,
    #[serde(rename = "sent_kB_s")]
    sent_kb_s: f64,
    connect_ms: f64,
    processing_ms: f64,
    server: &'a str,
    executor: &'a str,
    repo: &'a str,
    variant: &'a str,
}

/// The header, for a file without a row.
const HEADER: [&str; 18] = [
    "lang",
    "pool_size",
    "requests",
    "connections",
    "avg_cpu_pct",
    "max_cpu_pct",
    "avg_mem_pct",
    "max_mem_pct",
    "total_s",
    "per_request_ms",
    "received_kB_s",
    "sent_kB_s",
    "connect_ms",
    "processing_ms",
    "server",
    "executor",
    "repo",
    "variant",
];

/// The cells of `method`: contestant by contestant, as published, then by connections, pool size and round. The control is
/// left out.
///
/// # Errors
///
/// Returns an error if the CSV writer fails.
pub(super) fn of_method(cells: &[Cell], method: Method) -> anyhow::Result<String> {
    let mut names: Vec<&str> = Vec::new();
    for cell in cells {
        if !names.contains(&cell.key.contestant.as_str()) {
            names.push(&cell.key.contestant);
        }
    }
    let place = |cell: &Cell| names.iter().position(|name| *name == cell.key.contestant);
    let mut those: Vec<&Cell> = cells.iter().filter(|cell| cell.key.method == method && !cell.key.control).collect();
    those.sort_by_key(|cell| (place(cell), cell.key.connections, cell.key.pool_size, cell.key.round));
    let mut csv = ::csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    csv.write_record(HEADER)?;
    for cell in those {
        csv.serialize(row(cell))?;
    }
    Ok(String::from_utf8(csv.into_inner()?)?)
}

fn row(Cell { key, sample }: &Cell) -> CsvRow<'_> {
    let origin = &sample.origin;
    CsvRow {
        lang: &origin.lang,
        pool_size: key.pool_size,
        requests: sample.requests,
        connections: key.connections,
        avg_cpu_pct: six(sample.avg_cpu_pct),
        max_cpu_pct: sample.max_cpu_pct.map(six),
        avg_mem_pct: six(sample.avg_mem_pct),
        max_mem_pct: sample.max_mem_pct.map(six),
        total_s: six(sample.total_s),
        per_request_ms: six(sample.per_request_ms),
        received_kb_s: six(sample.received_kb_s),
        sent_kb_s: six(sample.sent_kb_s),
        connect_ms: six(sample.connect_ms),
        processing_ms: six(sample.processing_ms),
        server: &origin.server,
        executor: &origin.executor,
        repo: &origin.repo,
        variant: &origin.variant,
    }
}

/// Rounds to six decimals: of milliseconds, a nanosecond.
fn six(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}
