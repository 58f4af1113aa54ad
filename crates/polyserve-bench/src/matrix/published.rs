//! The published matrix.

use serde::Deserialize;

use super::CellMethod;
use crate::published::{self, MATRIX_GET, MATRIX_PUT};

/// A published line.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PublishedCell {
    /// `rust` or `go`.
    pub(super) lang: String,
    pub(super) pool_size: usize,
    pub(super) requests: u64,
    pub(super) connections: usize,
    pub(super) avg_cpu_pct: f64,
    pub(super) max_cpu_pct: f64,
    pub(super) avg_mem_pct: f64,
    pub(super) max_mem_pct: f64,
    pub(super) total_s: f64,
    pub(super) per_request_ms: f64,
    #[serde(rename = "received_kB_s")]
    pub(super) received_kb_s: f64,
    #[serde(rename = "sent_kB_s")]
    pub(super) sent_kb_s: f64,
    pub(super) connect_ms: f64,
    pub(super) processing_ms: f64,
}

/// The lines of both files.
pub(super) fn rows() -> anyhow::Result<Vec<(CellMethod, PublishedCell)>> {
    let mut rows = Vec::new();
    for (method, text) in [(CellMethod::Get, MATRIX_GET), (CellMethod::Put, MATRIX_PUT)] {
        rows.extend(published::rows(text)?.into_iter().map(|row| (method, row)));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The columns agree with each other.
    #[test]
    fn the_columns_are_what_they_are_taken_for() {
        let rows = rows().unwrap();
        assert_eq!(rows.len(), 72);
        for (_, row) in rows {
            let mean = row.total_s * 1000.0 * row.connections as f64 / row.requests as f64;
            assert!((mean - row.per_request_ms).abs() < 0.01 * mean + 0.001, "{row:?}");
            // Means: the sum of the parts, each rounded to a millisecond, is the total.
            assert!((row.connect_ms + row.processing_ms - row.per_request_ms).abs() <= 2.0, "{row:?}");
        }
    }
}
