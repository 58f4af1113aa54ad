//! Whether a record holds all that its plan asked for: a run that was ended early, or goes on while it is read, does not.
//!
//! Invariant: what has failed and what cannot run here is there, with its reason; only what nothing is said of is
//! missing. Of a failure that a rerun tries again nothing is said once there was one: it counts where it is of the last
//! run. That somebody takes no part is written once, and counts until there is a figure of it. A plan that is not
//! understood misses nothing. Cost: a few passes over the lines and a place for each planned cell.

use std::collections::HashSet;

use polyserve_lab::journal::Header;
use serde_json::{Value, json};

/// What one cell is of: some fields of its line.
type Place = String;

/// The kinds of lines that a cell may have come to, beside itself.
const ENDS: [&str; 4] = ["cell", "failure", "not_run", "refusal"];
const FAILURE: &str = "failure";

/// What cells came to. Failures of runs before the last one do not count, but for those that no rerun tries again.
fn ends(lines: &[Value]) -> impl Iterator<Item = &Value> {
    let last = lines.iter().rposition(|line| line["kind"] == Header::KIND).unwrap_or(0);
    let counts = move |(at, line): &(usize, &Value)| {
        let is_end = ENDS.iter().any(|kind| line["kind"] == *kind);
        is_end && (line["kind"] != FAILURE || *at > last || line["wrong"] == true)
    };
    lines.iter().enumerate().filter(counts).map(|(_, line)| line)
}

/// Those of them that are failures.
fn failures(lines: &[Value]) -> impl Iterator<Item = &Value> {
    ends(lines).filter(|line| line["kind"] == FAILURE)
}

/// A field of a line; for a failure it may stand in a field `cell` of it.
fn field<'a>(line: &'a Value, name: &str) -> &'a Value {
    if line[name].is_null() && line["cell"].is_object() { &line["cell"][name] } else { &line[name] }
}

/// The places that have a line, by these fields.
fn there(lines: &[Value], fields: &[&str]) -> HashSet<Place> {
    ends(lines).map(|line| place(fields.iter().map(|name| field(line, name)))).collect()
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

/// A comparison's last line is its ranking, which says itself where it was ended early.
pub fn compare(lines: &[Value]) -> Option<String> {
    let ranking = lines.iter().any(|line| line["kind"] == "ranking");
    (!ranking).then(|| String::from("the run has no ranking: it was ended before one was made"))
}

/// Everybody who takes part x rounds. One that has failed is out of its run.
pub fn ladder(lines: &[Value]) -> Option<String> {
    let out: HashSet<Place> = failures(lines).map(|line| place([&line["name"]])).collect();
    let there = there(lines, &["name", "round"]);
    let mut planned = Vec::new();
    for who in lines.iter().filter(|line| line["kind"] == "contestant").map(|line| &line["name"]) {
        for round in 1..=plan(lines)["rounds"].as_u64().unwrap_or(0) {
            if !out.contains(&place([who])) {
                planned.push(vec![place([who, &json!(round)])]);
            }
        }
    }
    missing(&planned, &there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::needless_pass_by_value)] // as json! makes it
    fn header(plan: Value) -> Value {
        json!({"kind": "environment", "plan": plan})
    }

    #[test]
    fn rungs_and_axes() {
        let one = json!({"kind": "contestant", "name": "a"});
        let turn = json!({"kind": "cell", "name": "a", "round": 1});
        let lines = [header(json!({"rounds": 2})), one, turn];
        assert!(ladder(&lines).unwrap().starts_with("1 of 2"));
        let failed = |wrong: bool| json!({"kind": "failure", "name": "a", "round": 2, "wrong": wrong});
        assert_eq!(ladder(&[&lines[..], &[failed(false)]].concat()), None);
        let again = |wrong: bool| [&lines[..], &[failed(wrong)], &lines[..1]].concat();
        assert!(ladder(&again(false)).unwrap().starts_with("1 of 2"), "it is tried again");
        assert_eq!(ladder(&again(true)), None, "it is not");
    }

    #[test]
    fn a_comparison_without_a_ranking() {
        assert!(compare(&[json!({"kind": "turn"})]).is_some());
        assert!(compare(&[json!({"kind": "ranking"})]).is_none());
    }

    #[test]
    fn a_plan_of_another_kind_misses_nothing() {
        assert_eq!(ladder(&[header(json!("any")), json!({"kind": "cell"})]), None);
    }
}
