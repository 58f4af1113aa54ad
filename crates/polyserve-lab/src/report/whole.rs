//! Whether a record holds all that its plan asked for: a run that was ended early, or goes on while it is read, does not.
//!
//! Invariant: what has failed and what cannot run here is there, with its reason; only what nothing is said of is
//! missing. A plan that is not understood misses nothing. Cost: a pass over the lines and a place for each planned cell.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::journal::Header;

/// What one cell is of: some fields of its line.
type Place = String;

/// The kinds of lines that a cell may have come to, beside itself.
const ENDS: [&str; 4] = ["cell", "failure", "not_run", "refusal"];

/// The places that have a line, by these fields; for a failure they may stand in a field `cell` of it.
fn there<'a>(lines: &'a [Value], fields: &'a [&str]) -> HashSet<Place> {
    let ends = lines.iter().filter(|line| ENDS.iter().any(|kind| line["kind"] == *kind));
    ends.map(|line| {
        let within = if line["cell"].is_object() { &line["cell"] } else { line };
        place(fields.iter().map(|field| if line[*field].is_null() { &within[*field] } else { &line[*field] }))
    })
    .collect()
}

fn place<'a>(values: impl IntoIterator<Item = &'a Value>) -> Place {
    values.into_iter().map(Value::to_string).collect::<Vec<_>>().join("\u{1f}")
}

/// How many of the planned places have none of the lines that would do.
fn missing(planned: &[Vec<Place>], there: &HashSet<Place>) -> Option<String> {
    let missing = planned.iter().filter(|any| !any.iter().any(|place| there.contains(place))).count();
    (missing > 0).then(|| format!("{missing} of {} planned measurements are not there", planned.len()))
}

fn plan(lines: &[Value]) -> &Value {
    lines.iter().find(|line| line["kind"] == Header::KIND).map_or(&Value::Null, |header| &header["plan"])
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A comparison's last line is its ranking, which says itself where it was ended early.
pub fn compare(lines: &[Value]) -> Option<String> {
    let ranking = lines.iter().any(|line| line["kind"] == "ranking");
    (!ranking).then(|| String::from("the run has no ranking: it was ended before one was made"))
}

/// Contestants x pools x connections x methods x rounds; one pool for who has none.
pub fn matrix(lines: &[Value]) -> Option<String> {
    let plan = plan(lines);
    let there = there(lines, &["contestant", "pool_size", "connections", "method", "round"]);
    let mut planned = Vec::new();
    for who in list(&plan["contestants"]) {
        let has_pool =
            |line: &Value| line["contestant"] == *who && line["kind"] == "cell" && !line["pool_size"].is_null();
        let none = [Value::Null];
        let pools = if lines.iter().any(has_pool) { list(&plan["pools"]) } else { &none };
        let out = place([who, &Value::Null, &Value::Null, &Value::Null, &Value::Null]);
        for pool in pools {
            for connections in list(&plan["connections"]) {
                for method in list(&plan["methods"]) {
                    for round in 1..=plan["rounds"].as_u64().unwrap_or(1) {
                        planned.push(vec![place([who, pool, connections, method, &json!(round)]), out.clone()]);
                    }
                }
            }
        }
    }
    missing(&planned, &there)
}

/// The published servers and the sweep.
pub fn page(lines: &[Value]) -> Option<String> {
    let plan = plan(lines);
    let there = there(lines, &["part", "server", "workers"]);
    let of = |part: &'static str| {
        list(&plan[part]).iter().map(move |one| {
            let any = json!(part);
            vec![place([&any, &one[0], &one[1]]), place([&any, &one[0], &Value::Null])]
        })
    };
    missing(&of("published").chain(of("sweep")).collect::<Vec<_>>(), &there)
}

/// Contestants x numbers of tasks, at once; and in series where a number is of whole batches.
pub fn tasks(lines: &[Value]) -> Option<String> {
    let plan = plan(lines);
    let there = there(lines, &["contestant", "tasks", "series"]);
    let batch = plan["series"].as_u64().unwrap_or(0);
    let mut planned = Vec::new();
    for who in list(&plan["contestants"]) {
        for count in list(&plan["counts"]) {
            let in_series = count.as_u64().is_some_and(|count| batch > 0 && count > batch && count % batch == 0);
            for series in if in_series { vec![0, batch] } else { vec![0] } {
                let out = |series: u64| place([who, &Value::Null, &json!(series)]);
                planned.push(vec![place([who, count, &json!(series)]), out(series), out(0)]);
            }
        }
    }
    missing(&planned, &there)
}

/// Everybody who takes part x rounds.
pub fn ladder(lines: &[Value]) -> Option<String> {
    let failed: HashSet<Place> =
        lines.iter().filter(|line| line["kind"] == "failure").map(|line| place([&line["name"]])).collect();
    let there = there(lines, &["name", "round"]);
    let mut planned = Vec::new();
    for who in lines.iter().filter(|line| line["kind"] == "contestant").map(|line| &line["name"]) {
        for round in 1..=plan(lines)["rounds"].as_u64().unwrap_or(0) {
            if !failed.contains(&place([who])) {
                planned.push(vec![place([who, &json!(round)])]);
            }
        }
    }
    missing(&planned, &there)
}

/// Every place of every axis, of everybody who is at one of them, x rounds.
pub fn scale(lines: &[Value]) -> Option<String> {
    let plan = plan(lines);
    let there = there(lines, &["axis", "x", "name", "round"]);
    let mut planned = Vec::new();
    for axis in list(&plan["axes"]) {
        let own = |line: &&Value| line["axis"] == axis["axis"] && line["kind"] == "cell";
        let names: HashSet<&str> = lines.iter().filter(own).filter_map(|line| line["name"].as_str()).collect();
        if names.is_empty() {
            planned.push(vec![place([&axis["axis"]])]);
        }
        for name in names.iter().map(|name| json!(name)) {
            for x in list(&axis["points"]) {
                let ends = |round: &Value| place([&axis["axis"], x, &name, round]);
                let always = [ends(&Value::Null), place([&axis["axis"], &Value::Null, &name, &Value::Null])];
                for round in 1..=plan["rounds"].as_u64().unwrap_or(1) {
                    planned.push([ends(&json!(round))].into_iter().chain(always.clone()).collect());
                }
            }
        }
    }
    missing(&planned, &there)
}

/// Servers x kinds of crowds.
pub fn crowd(lines: &[Value]) -> Option<String> {
    let plan = plan(lines);
    let rows = lines.iter().filter(|line| line["kind"] == "row").map(|line| &line["row"]);
    let there: HashSet<Place> = rows.map(|row| place([&row["name"], &row["kind"]])).collect();
    let crowds = list(&plan["crowds"]).iter().map(|crowd| &crowd["kind"]);
    let planned = crowds.flat_map(|kind| list(&plan["servers"]).iter().map(move |server| vec![place([server, kind])]));
    missing(&planned.collect::<Vec<_>>(), &there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::needless_pass_by_value)] // as json! makes it
    fn header(plan: Value) -> Value {
        json!({"kind": "environment", "plan": plan})
    }

    #[test]
    fn a_matrix() {
        let plan = json!({"contestants": ["a", "b", "go"], "pools": [2, 4], "connections": [10], "methods": ["get"], "rounds": 1});
        let cell = |who: &str, pool: Value| json!({"kind": "cell", "contestant": who, "pool_size": pool, "connections": 10, "method": "get", "round": 1});
        let out = json!({"kind": "failure", "contestant": "go", "cell": null, "why": "not run: go is not installed"});
        let mut lines = vec![header(plan), cell("a", json!(2)), cell("b", Value::Null), out];
        assert_eq!(matrix(&lines).unwrap(), "1 of 4 planned measurements are not there");
        let of = json!({"method": "get", "connections": 10, "pool_size": 4, "round": 1});
        lines.push(json!({"kind": "failure", "contestant": "a", "cell": of, "why": "wrong"}));
        assert_eq!(matrix(&lines), None);
    }

    #[test]
    fn tasks_and_their_series() {
        let plan = json!({"contestants": ["a", "b"], "counts": [1, 2, 4], "series": 2});
        let cell =
            |count: u64, series: u64| json!({"kind": "cell", "contestant": "a", "tasks": count, "series": series});
        let out = json!({"kind": "failure", "contestant": "b", "tasks": null, "series": 0});
        let mut lines = vec![header(plan), cell(1, 0), cell(2, 0), cell(4, 0), out];
        assert_eq!(tasks(&lines).unwrap(), "1 of 8 planned measurements are not there");
        lines.push(cell(4, 2));
        assert_eq!(tasks(&lines), None);
    }

    #[test]
    fn pages_rungs_axes_and_crowds() {
        let plan = json!({"published": [["a", 100, 10]], "sweep": [["a", 1, 10], ["b", null, 10]]});
        let cell = |part: &str, who: &str, workers: Value| json!({"kind": "cell", "part": part, "server": who, "workers": workers});
        let lines = [header(plan), cell("published", "a", json!(100)), cell("sweep", "b", Value::Null)];
        assert!(page(&lines).unwrap().starts_with("1 of 3"));

        let one = json!({"kind": "contestant", "name": "a"});
        let turn = json!({"kind": "cell", "name": "a", "round": 1});
        let lines = [header(json!({"rounds": 2})), one, turn];
        assert!(ladder(&lines).unwrap().starts_with("1 of 2"));
        let failed = json!({"kind": "failure", "name": "a", "round": 2});
        assert_eq!(ladder(&[&lines[..], &[failed]].concat()), None);

        let plan =
            json!({"axes": [{"axis": "keys", "points": [1, 10]}, {"axis": "workers", "points": [1]}], "rounds": 1});
        let lines = [header(plan), json!({"kind": "cell", "axis": "keys", "x": 1, "name": "a", "round": 1})];
        assert!(scale(&lines).unwrap().starts_with("2 of 3"));

        let plan = json!({"servers": ["a", "b"], "crowds": [{"kind": "idle"}]});
        let lines = [header(plan), json!({"kind": "row", "row": {"name": "a", "kind": "idle"}})];
        assert!(crowd(&lines).unwrap().starts_with("1 of 2"));
    }

    #[test]
    fn a_comparison_without_a_ranking() {
        assert!(compare(&[json!({"kind": "turn"})]).is_some());
        assert!(compare(&[json!({"kind": "ranking"})]).is_none());
    }

    #[test]
    fn a_plan_of_another_kind_misses_nothing() {
        for whole in [matrix, page, tasks, ladder, scale, crowd] {
            assert_eq!(whole(&[header(json!("any")), json!({"kind": "cell"})]), None);
        }
    }
}
