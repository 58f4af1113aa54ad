//! Plain tables of the lines of a record: a table for each kind, a column for each field. They can show every record, also of
//! unknown experiments.
//!
//! Invariant: every field of every line is in a column; points join the names of nested fields. Cost: a pass over the lines
//! of a kind, at most `MAX_COLUMNS` columns.

use polyserve_bench::journal::Header;
use polyserve_bench::report::Table;
use serde_json::{Map, Value};

/// The max number of columns. Further fields are left out, and a column has their number.
const MAX_COLUMNS: usize = 64;
/// Fields that are nested deeper than this are shown as JSON.
const MAX_DEPTH: usize = 4;
/// The max number of items of a list that is shown. For a longer list, the table has the length.
const MAX_ITEMS: usize = 8;

/// Returns an experiment's own tables, and a plain table of each kind of `lines` but the header. If an own table has the name
/// of the kind, the plain table is called `lines of KIND`.
pub(crate) fn with_plain_tables(own: Vec<(String, Table)>, lines: &[Value]) -> Vec<(String, Table)> {
    let mut kinds: Vec<&str> = Vec::new();
    for kind in lines.iter().filter_map(|line| line["kind"].as_str()) {
        if kind != Header::KIND && !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let mut tables = own;
    for kind in kinds {
        let taken = tables.iter().any(|(name, _)| name == kind);
        let name = if taken { format!("lines of {kind}") } else { kind.to_owned() };
        tables.push((name, of_kind(lines, kind)));
    }
    tables
}

/// The lines of one kind.
fn of_kind(lines: &[Value], kind: &str) -> Table {
    let rows: Vec<Vec<(String, String)>> = lines.iter().filter(|line| line["kind"] == kind).map(fields).collect();
    let mut columns: Vec<&str> = Vec::new();
    let mut left_out = false;
    for (name, _) in rows.iter().flatten() {
        if !columns.contains(&name.as_str()) {
            left_out |= columns.len() == MAX_COLUMNS;
            columns.truncate(MAX_COLUMNS);
            if !left_out {
                columns.push(name);
            }
        }
    }
    // Columns with names come before columns with figures.
    let is_text = |column: &str| rows.iter().flatten().any(|(name, cell)| name == column && is_name(cell));
    columns.sort_by_cached_key(|column| !is_text(column));
    let mut header = columns.clone();
    if left_out {
        header.push("(more fields)");
    }
    let mut table = Table::of_numbers(&header);
    for row in &rows {
        let cell = |column: &&str| row.iter().find(|(name, _)| name == column).map(|(_, cell)| cell.clone());
        let mut cells: Vec<String> = columns.iter().map(|column| cell(column).unwrap_or_default()).collect();
        if left_out {
            cells.push(row.iter().filter(|(name, _)| !columns.contains(&name.as_str())).count().to_string());
        }
        table.row(cells);
    }
    table
}

fn fields(line: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    if let Value::Object(fields) = line {
        flatten(fields, "", 0, &mut found);
    }
    found.retain(|(name, _)| name != "kind");
    found
}

fn flatten(fields: &Map<String, Value>, prefix: &str, depth: usize, found: &mut Vec<(String, String)>) {
    for (name, value) in fields {
        let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            Value::Object(inner) if depth < MAX_DEPTH => flatten(inner, &name, depth + 1, found),
            _ => found.push((name, shown(value))),
        }
    }
}

/// Returns true if the cell is neither a figure, nor a boolean, nor a list.
fn is_name(cell: &str) -> bool {
    let is_list = cell.starts_with('[') || cell.ends_with(" items");
    !cell.is_empty() && !is_list && !["true", "false"].contains(&cell) && cell.parse::<f64>().is_err()
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.as_f64().filter(|_| number.is_f64()).map_or(number.to_string(), figure),
        Value::Array(items) if items.len() > MAX_ITEMS => format!("{} items", items.len()),
        other => other.to_string(),
    }
}

/// The value with six significant digits. No measurement is more precise.
fn figure(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { (5 - value.abs().log10().floor() as i32).clamp(0, 9) as usize };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_column_for_each_field_of_any_line() {
        let lines = [
            json!({"kind": "environment", "cpu": "one"}),
            json!({"kind": "cell", "name": "a", "total_s": 1.23456789, "of": {"low": 1, "high": null}}),
            json!({"kind": "failure", "why": "because"}),
            json!({"kind": "cell", "name": "b", "list": [1, 2]}),
            json!("no object"),
        ];
        let tables = with_plain_tables(vec![("failure".into(), Table::of_texts(&["own"]))], &lines);
        let names: Vec<&str> = tables.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["failure", "cell", "lines of failure"]);
        let cells = tables[1].1.rows();
        assert_eq!(cells[0], ["name", "of.high", "of.low", "total_s", "list"]);
        assert_eq!(cells[1], ["a", "", "1", "1.23457", ""]);
        assert_eq!(cells[2], ["b", "", "", "", "[1,2]"]);
    }

    #[test]
    fn columns_are_bounded_and_it_says_so() {
        let many: Map<String, Value> = (0..100).map(|number| (format!("field{number:03}"), json!(number))).collect();
        let mut line = Value::Object(many);
        line["kind"] = json!("cell");
        let tables = with_plain_tables(Vec::new(), &[line]);
        let cells = tables[0].1.rows();
        assert_eq!((cells[0].len(), cells[0][64].as_str(), cells[1][64].as_str()), (65, "(more fields)", "36"));
    }

    #[test]
    fn figures_are_as_long_as_they_are_worth() {
        assert_eq!(
            [0.0, 123_456.789, 0.000_123_456_78, 1e9, -2.5].map(figure),
            ["0", "123457", "0.000123457", "1000000000", "-2.5"]
        );
    }
}
