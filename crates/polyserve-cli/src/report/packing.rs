//! Makes the records on the page small: figures with few digits, lists of objects as tables, and one histogram of latencies
//! for each contestant.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// The significant digits of a figure on the page. A chart shows fewer.
const DIGITS: usize = 4;

/// Rounds every fraction in `value` to [`DIGITS`] significant digits.
pub(super) fn rounded(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(rounded),
        Value::Object(fields) => fields.values_mut().for_each(rounded),
        Value::Number(number) if number.is_f64() => {
            let short = number.as_f64().and_then(|figure| format!("{figure:.*e}", DIGITS - 1).parse::<f64>().ok());
            if let Some(short) = short {
                *value = Value::from(short);
            }
        }
        _ => {}
    }
}

/// Converts each list of objects with the same fields to a table: the fields once, then a row for each object. `unpacked` in
/// `dom.js` undoes it.
pub(super) fn packed(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(fields.into_iter().map(|(name, value)| (name, packed(value))).collect()),
        Value::Array(values) => {
            let alike = values.len() > 1 && values.windows(2).all(|pair| has_same_fields(&pair[0], &pair[1]));
            if !alike {
                return Value::Array(values.into_iter().map(packed).collect());
            }
            let columns: Vec<String> = values[0].as_object().into_iter().flat_map(Map::keys).cloned().collect();
            let row = |value: Value| match value {
                Value::Object(fields) => Value::Array(fields.into_iter().map(|(_, value)| packed(value)).collect()),
                other => other,
            };
            json!({"$columns": columns, "$rows": values.into_iter().map(row).collect::<Vec<_>>()})
        }
        other => other,
    }
}

fn has_same_fields(first: &Value, second: &Value) -> bool {
    match (first, second) {
        (Value::Object(first), Value::Object(second)) => first.keys().eq(second.keys()),
        _ => false,
    }
}

/// Undoes [`packed`], as the scripts do it.
#[cfg(test)]
pub(super) fn unpacked(value: Value) -> Value {
    match value {
        Value::Array(values) => values.into_iter().map(unpacked).collect(),
        Value::Object(mut fields) => match (fields.remove("$columns"), fields.remove("$rows")) {
            (Some(Value::Array(columns)), Some(Value::Array(rows))) => {
                let object = |row: &Value| -> Value {
                    let fields = columns.iter().zip(row.as_array().unwrap());
                    let fields = fields.map(|(name, value)| (name.as_str().unwrap().into(), unpacked(value.clone())));
                    Value::Object(fields.collect())
                };
                rows.iter().map(object).collect()
            }
            _ => Value::Object(fields.into_iter().map(|(name, value)| (name, unpacked(value))).collect()),
        },
        other => other,
    }
}

/// The latencies of each contestant in all turns but the warm-up: a line for each name. The page draws nothing else of the
/// turns, and their histograms are the largest part of a record.
pub(super) fn latencies_by_name(turns: &[Value]) -> Vec<Value> {
    let mut names: Vec<(&str, BTreeMap<u64, u64>)> = Vec::new();
    for turn in turns.iter().filter(|turn| turn["round"].as_u64() > Some(0)) {
        let Some(histogram) = turn["latency"]["histogram"].as_array() else { continue };
        let name = turn["name"].as_str().unwrap_or_default();
        let index = names.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            names.push((name, BTreeMap::new()));
            names.len() - 1
        });
        for bucket in histogram {
            let [Some(value), Some(count)] = [bucket[0].as_u64(), bucket[1].as_u64()] else { continue };
            *names[index].1.entry(coarse(value)).or_default() += count;
        }
    }
    names
        .into_iter()
        .map(|(name, counts)| {
            let histogram: Vec<_> = counts.into_iter().collect();
            json!({ "name": name, "round": 1, "latency": { "histogram": histogram } })
        })
        .collect()
}

/// Rounds a value up by at most 3 %. A curve on the page shows no smaller difference.
fn coarse(value: u64) -> u64 {
    let step = (value / 64 + 1).next_power_of_two();
    value.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_objects_are_tables_on_the_page() {
        let value = json!({
            "all": [{"a": 1, "b": [{"c": 2}, {"c": null}]}, {"a": [], "b": []}],
            "mixed": [{"a": 1}, {"b": 2}, 3],
        });
        let packed = packed(value.clone());
        assert_eq!(packed["all"]["$columns"], json!(["a", "b"]));
        assert_eq!(packed["mixed"], value["mixed"]);
        assert_eq!(unpacked(packed), value);
    }

    #[test]
    fn the_page_has_one_histogram_for_each_contestant() {
        let turn = |round, name, histogram| json!({"round": round, "name": name, "latency": {"histogram": histogram}});
        let turns = [
            turn(0, "a", json!([[1, 9]])),
            turn(1, "a", json!([[10, 2], [1_000_001, 1]])),
            turn(1, "b", json!([[7, 1]])),
            turn(2, "a", json!([[10, 3], [1_000_002, 4]])),
            json!({"round": 2, "name": "c", "latency": null}),
        ];
        let merged = latencies_by_name(&turns);
        assert_eq!(merged[0], turn(1, "a", json!([[10, 5], [coarse(1_000_001), 5]])));
        assert_eq!(merged[1..], [turn(1, "b", json!([[7, 1]]))]);
        for value in [1, 63, 64, 65, 1000, 123_456, 987_654_321] {
            assert!((value..=value + value / 32).contains(&coarse(value)), "{value}: {}", coarse(value));
        }
    }

    #[test]
    fn figures_have_few_digits_and_counts_have_all() {
        let mut value = json!({"a": [0.123_456_789, 1.0, 123_456_789, "0.123456789"]});
        rounded(&mut value);
        assert_eq!(value, json!({"a": [0.1235, 1.0, 123_456_789, "0.123456789"]}));
    }
}
