//! The cells as CSV: the published columns, then the columns that describe the server. One file for each method, as published.

use crate::experiment::{csv, distinct};
use serde_json::Value;

use super::{Cell, CellMethod};

/// The columns.
const COLUMNS: &str = "\
    lang,pool_size,requests,connections,avg_cpu_pct,max_cpu_pct,avg_mem_pct,max_mem_pct,total_s,per_request_ms,\
    received_kB_s,sent_kB_s,connect_ms,processing_ms,server,executor,repo,variant";

/// The cells of `method` without the control, sorted by contestant, as published, then by connections, pool size and
/// round.
pub(super) fn of_method(cells: &[Cell], method: CellMethod) -> anyhow::Result<String> {
    let names = distinct(cells.iter().map(|cell| &cell.key.contestant));
    let place = |cell: &Cell| names.iter().position(|name| **name == cell.key.contestant);
    let mut selected: Vec<&Cell> = cells.iter().filter(|cell| cell.key.method == method && !cell.key.control).collect();
    selected.sort_by_key(|cell| (place(cell), cell.key.connections, cell.key.pool_size, cell.key.round));
    csv(COLUMNS, selected.into_iter().map(with_six_decimals))
}

/// The JSON of a cell, to six decimals: of milliseconds, a nanosecond.
fn with_six_decimals(cell: &Cell) -> Value {
    let mut row = serde_json::to_value(cell).unwrap_or_default();
    for field in row.as_object_mut().into_iter().flat_map(serde_json::Map::values_mut) {
        if let Some(float) = field.as_f64().filter(|_| field.is_f64()) {
            *field = ((float * 1e6).round() / 1e6).into();
        }
    }
    row
}
