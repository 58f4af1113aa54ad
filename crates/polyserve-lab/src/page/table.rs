//! The rows as a table for people, and as CSV.

use std::fmt;
use std::io;

use super::{Measured, Row};
use crate::output::Table;

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

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::of_numbers(&[
            "SERVER",
            "WORKERS",
            "REQUESTS/S",
            "BOUND",
            "OF IT",
            "REQUESTS",
            "TOTAL",
            "MEAN",
            "P50",
            "P90",
            "P99",
            "MAX",
            "CPU",
        ]);
        for row in &self.rows {
            let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
            let mut cells = vec![
                row.server.clone(),
                or_dash(row.workers.map(|workers| workers.to_string())),
                format!("{:.1}", row.requests_per_s),
                or_dash(row.bound_per_s.map(|bound| format!("{bound:.1}"))),
                format!("{:.0} %", row.of_bound * 100.0),
                row.requests.to_string(),
                format!("{:.2} s", row.total_s),
            ];
            cells.extend([row.mean_ms, row.p50_ms, row.p90_ms, row.p99_ms, row.max_ms].map(|ms| format!("{ms:.1} ms")));
            cells.push(or_dash(row.server_busy.map(|busy| format!("{:.0} %", busy * 100.0))));
            table.row(cells);
        }
        write!(f, "{table}")?;
        if let Some(Row { connections, every, wait_s, .. }) = self.rows.first() {
            let all = self.connections_bound_per_s;
            writeln!(f, "BOUND: workers x {every} / {wait_s} s, where a worker sits through the wait")?;
            writeln!(
                f,
                "{connections} connections ask for at most {connections} x {every} / {wait_s} s = {all:.1} a second"
            )?;
            writeln!(f, "OF IT: of the lower of these two; latencies in closed loop, a connection for each request")?;
        }
        for failed in &self.failed {
            let workers = failed.workers.map_or_else(String::new, |workers| format!(" with {workers} workers"));
            writeln!(f, "no figures: {}{workers}: {}", failed.server, failed.why)?;
        }
        if self.interrupted { writeln!(f, "ended early") } else { Ok(()) }
    }
}
