//! CSV files of samples.
//!
//! Cost: each row is converted to JSON once.

use serde::Serialize;
use serde_json::Value;

/// The text of a CSV file with this header. A column has the name of its field in the JSON of a row; a field that is null or
/// absent is empty.
///
/// # Errors
///
/// Returns an error if a row cannot be JSON, or cannot be written.
pub fn csv(header: &str, rows: impl IntoIterator<Item = impl Serialize>) -> anyhow::Result<String> {
    let columns: Vec<&str> = header.split(',').collect();
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record(&columns)?;
    for row in rows {
        let row = serde_json::to_value(row)?;
        csv.write_record(columns.iter().map(|column| match &row[*column] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        }))?;
    }
    Ok(String::from_utf8(csv.into_inner()?)?)
}

/// Returns the JSON of a row for [`csv`](fn@csv), with whole floats as `1` instead of `1.0`.
pub(crate) fn with_short_floats(row: &impl Serialize) -> Value {
    let mut row = serde_json::to_value(row).unwrap_or_default();
    for field in row.as_object_mut().into_iter().flat_map(serde_json::Map::values_mut) {
        if let Some(float) = field.as_f64().filter(|_| field.is_f64()) {
            *field = float.to_string().into();
        }
    }
    row
}
