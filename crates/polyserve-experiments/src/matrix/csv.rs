//! The cells as CSV: the published columns, then which server it was. A file for each method, as published.

use std::io;

use serde::Serialize;

use super::{Cell, Method};

/// A line. Its names are the header.
#[derive(Serialize)]
struct Row<'a> {
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

/// Writes the cells of `method`, contestant by contestant as they were published, each by its connections, pool and round. The control is not among
/// them: it is no contestant.
///
/// # Errors
///
/// Where `out` fails.
pub fn write(cells: &[Cell], method: Method, out: impl io::Write) -> io::Result<()> {
    let mut names: Vec<&str> = Vec::new();
    for cell in cells {
        if !names.contains(&cell.who.contestant.as_str()) {
            names.push(&cell.who.contestant);
        }
    }
    let place = |cell: &Cell| names.iter().position(|name| *name == cell.who.contestant);
    let mut those: Vec<&Cell> = cells.iter().filter(|cell| cell.method == method && !cell.who.control).collect();
    those.sort_by_key(|cell| (place(cell), cell.connections, cell.pool_size, cell.round));
    let mut csv = ::csv::WriterBuilder::new().has_headers(false).from_writer(out);
    csv.write_record(HEADER)?;
    for cell in those {
        csv.serialize(row(cell)).map_err(io::Error::other)?;
    }
    csv.flush()
}

fn row(cell: &Cell) -> Row<'_> {
    let Cell { who, .. } = cell;
    Row {
        lang: &who.lang,
        pool_size: cell.pool_size,
        requests: cell.requests,
        connections: cell.connections,
        avg_cpu_pct: six(cell.avg_cpu_pct),
        max_cpu_pct: cell.max_cpu_pct.map(six),
        avg_mem_pct: six(cell.avg_mem_pct),
        max_mem_pct: cell.max_mem_pct.map(six),
        total_s: six(cell.total_s),
        per_request_ms: six(cell.per_request_ms),
        received_kb_s: six(cell.received_kb_s),
        sent_kb_s: six(cell.sent_kb_s),
        connect_ms: six(cell.connect_ms),
        processing_ms: six(cell.processing_ms),
        server: &who.server,
        executor: &who.executor,
        repo: &who.repo,
        variant: &who.variant,
    }
}

/// To six decimals: a nanosecond of a millisecond, and more than the figure is worth.
fn six(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}
