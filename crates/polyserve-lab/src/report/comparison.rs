//! What a comparison's record shows: its ranking, read tolerantly, for the field has grown since the first of them.
//!
//! Invariant: the figures are those of the ranking's line. Cost: a pass over the lines.

use serde_json::Value;

use super::experiments::Tables;
use crate::output::Table;

const RANKING: &str = "ranking";

/// The last line is the ranking, and says so itself where it was ended early.
pub fn is_short_of(lines: &[Value]) -> Option<String> {
    let ranking = lines.iter().any(|line| line["kind"] == RANKING);
    (!ranking).then(|| String::from("the run has no ranking: it was ended before one was made"))
}

/// `ranking`: everybody beside the baseline, with intervals and verdicts; `turns` has all that they rest on.
///
/// # Errors
///
/// None; what is missing is a gap.
pub fn tables(lines: &[Value]) -> anyhow::Result<Tables> {
    let Some(ranking) = lines.iter().rev().find(|line| line["kind"] == RANKING) else { return Ok(Vec::new()) };
    let rows: &[Value] = ranking["rows"].as_array().map_or(&[], Vec::as_slice);
    let limits: Vec<&str> = (rows.iter().flat_map(|row| row["shares"].as_array()).next())
        .map_or(Vec::new(), |shares| shares.iter().filter_map(|share| share["of"].as_str()).collect());
    let mut header: Vec<String> = ["server", "throughput", "95 %", "", "requests/s"].map(String::from).to_vec();
    header.extend(limits.iter().map(|limit| format!("of {limit}")));
    header.extend(["cost", "95 %", "", "p50", "p99", "p99.9", "memory", "saturated"].map(String::from));
    let mut table = Table::of_numbers(&header.iter().map(String::as_str).collect::<Vec<_>>());
    for row in rows {
        let mut cells = vec![text(&row["name"])];
        cells.extend(compared(&row["throughput"], &row["role"], ["faster", "slower"]));
        cells.push(number(&row["requests_per_s"], 0));
        let shares: &[Value] = row["shares"].as_array().map_or(&[], Vec::as_slice);
        cells.extend(limits.iter().map(|limit| {
            let share = shares.iter().find(|share| share["of"] == *limit);
            share.map_or(String::new(), |share| number(&share["throughput"]["ratio"], 2))
        }));
        let mut cost = compared(&row["cost"], &row["role"], ["cheaper", "dearer"]);
        if !row["cost_void"].is_null() && row["role"] == "ranked" {
            cost[2] = String::from("does not count");
        }
        cells.extend(cost);
        match row["bound"].as_str() {
            Some(bound) => cells.extend([format!("<= {bound}"), String::new(), String::new()]),
            None => cells.extend(["p50_us", "p99_us", "p999_us"].map(|name| time(&row["latency"][name]))),
        }
        cells.push(row["loaded_bytes"].as_f64().map_or(String::new(), |bytes| format!("{:.1} MB", bytes / 1e6)));
        cells.push(text(&row["saturated"]));
        table.row(cells);
    }
    Ok(vec![(RANKING.to_owned(), table)])
}

fn compared(compared: &Value, role: &Value, [more, less]: [&str; 2]) -> [String; 3] {
    let (low, high) = (&compared["interval"]["low"], &compared["interval"]["high"]);
    let interval = if low.is_null() { String::new() } else { format!("[{}, {}]", number(low, 3), number(high, 3)) };
    let said = match (role.as_str(), compared["verdict"].as_str()) {
        (Some("baseline"), _) => "baseline",
        (Some("same"), _) => "A/A",
        (Some("limit"), _) => "limit",
        (_, Some("faster")) => more,
        (_, Some("slower")) => less,
        (_, Some("tie")) => "tie",
        (_, Some("too_few_rounds")) => "too few rounds",
        _ => "",
    };
    [number(&compared["ratio"], 3), interval, said.to_owned()]
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn number(value: &Value, digits: usize) -> String {
    value.as_f64().map_or(String::new(), |number| format!("{number:.digits$}"))
}

fn time(microseconds: &Value) -> String {
    match microseconds.as_f64() {
        None => String::new(),
        Some(time) if time < 1000.0 => format!("{time:.0} us"),
        Some(time) => format!("{:.1} ms", time / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_ranking_with_gaps() {
        let ratio = json!({"ratio": 1.25, "interval": {"low": 1.2, "high": 1.3}, "verdict": "faster"});
        let full = json!({
            "name": "a", "role": "ranked", "throughput": ratio, "cost": ratio, "cost_void": {"why": "no_latency"},
            "requests_per_s": 1234.5, "shares": [{"of": "null", "throughput": {"ratio": 0.5}}], "loaded_bytes": 2e6,
            "latency": {"p50_us": 90.0, "p99_us": 1500.0, "p999_us": null}, "saturated": "server"
        });
        let bare = json!({"name": "b", "role": {"slowed": 5.0}});
        let line = json!({"kind": "ranking", "rows": [full, bare]});
        let tables = tables(&[json!({"kind": "environment"}), line]).unwrap();
        let rows = tables[0].1.rows();
        let last = rows[0].len() - 1;
        assert_eq!(rows[1][..6], ["a", "1.250", "[1.200, 1.300]", "faster", "1234", "0.50"]);
        assert_eq!(rows[1][8..], ["does not count", "90 us", "1.5 ms", "", "2.0 MB", "server"]);
        assert_eq!((rows[2].len() - 1, rows[2][0].as_str(), rows[2][1..].concat().as_str()), (last, "b", ""));
    }

    #[test]
    fn without_a_ranking_it_is_short() {
        assert!(is_short_of(&[json!({"kind": "turn"})]).is_some());
        assert!(is_short_of(&[json!({"kind": "ranking"})]).is_none());
    }
}
