//! Samples with their keys, and CSV files of them.
//!
//! Cost: each row is converted to JSON once.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A key and its sample: the fields of a sample's line in the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row<K, S> {
    /// The key.
    #[serde(flatten)]
    pub key: K,
    /// The sample.
    #[serde(flatten)]
    pub sample: S,
}

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
