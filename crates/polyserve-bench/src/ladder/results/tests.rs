use serde_json::{Value, json};

use super::*;
use crate::ladder::fixtures::{absent, cell, contestant, results};

fn lines() -> Vec<Value> {
    let mut lines = vec![
        contestant("warp", "rung", None, None),
        contestant("warp (again)", "control", None, None),
        contestant("warp+lto", "rung", Some("lto"), Some("warp")),
    ];
    for round in 1..=10 {
        lines.extend([cell("warp", round, 100.0), cell("warp (again)", round, 102.0), cell("warp+lto", round, 110.0)]);
    }
    lines
}

fn verdict(lines: &[Value]) -> Option<Verdict> {
    results(lines).throughput("warp+lto", "warp").map(|ratio| ratio.verdict)
}

#[test]
fn ratios_are_of_rounds_and_held_against_the_control() {
    let all = results(&lines());
    let ratio = all.throughput("warp+lto", "warp").unwrap();
    assert_eq!((ratio.estimate.ratio, ratio.estimate.rounds, ratio.verdict), (1.1, 10, Verdict::Faster));
    assert_eq!((ratio.band.low, ratio.band.high), (1.0, 1.02));
    assert_eq!(all.subjects(), ["warp"]);
    assert_eq!(all.rung("warp", "lto").unwrap().name, "warp+lto");
    // Within the noise.
    let mut noisy = lines();
    noisy.extend((1..=10).map(|round| cell("warp (again)", round, 111.0)));
    assert_eq!(verdict(&noisy), Some(Verdict::TooFewRounds));
    // Without a control no difference is more than noise.
    let alone: Vec<Value> = lines().into_iter().filter(|line| line["name"] != "warp (again)").collect();
    assert_eq!(verdict(&alone), Some(Verdict::TooFewRounds));
}

#[test]
fn a_later_line_counts() {
    let mut lines = lines();
    lines.push(json!({"kind": "failure", "name": "warp+lto", "round": 10, "reason": "failed", "why": "it died"}));
    assert_eq!(verdict(&lines), None);
    assert_eq!(results(&lines).failed.len(), 1);
    lines.extend((1..=10).map(|round| cell("warp+lto", round, 90.0)));
    assert_eq!(verdict(&lines), Some(Verdict::Slower), "it was measured again");
    let absent = |name: &str, role: &str| absent(name, role, "any");
    lines.extend([absent("warp+lto", "rung"), absent("warp+lto+jemalloc", "rung"), absent("go-fasthttp", "reference")]);
    lines.push(json!({"kind": "failure", "name": "warp", "round": 0, "reason": "failed", "why": "it did not start"}));
    lines.push(contestant("warp+lto", "rung", Some("lto"), Some("warp")));
    let all = results(&lines);
    let not_run = |name: &str, role| NotRun { name: name.into(), role, why: "any".into() };
    assert_eq!(
        all.not_run,
        [not_run("warp+lto+jemalloc", RungRole::Rung), not_run("go-fasthttp", RungRole::Reference)]
    );
    assert_eq!((all.entries.len(), all.failed.len()), (3, 0));
}

/// A wrong answer stays, although a later attempt succeeded.
#[test]
fn no_later_line_makes_a_wrong_answer_good() {
    let mut lines = lines();
    lines.push(json!({"kind": "failure", "name": "warp+lto", "round": 10, "reason": "wrong", "why": "a wrong answer"}));
    lines.extend((1..=10).map(|round| cell("warp+lto", round, 90.0)));
    lines.push(
        json!({"kind": "failure", "name": "warp+lto", "round": 3, "reason": "failed", "why": "it did not start"}),
    );
    lines.push(cell("warp+lto", 3, 90.0));
    let all = results(&lines);
    assert_eq!(verdict(&lines), None);
    assert_eq!(all.failed.iter().map(|failed| failed.why.as_str()).collect::<Vec<_>>(), ["a wrong answer"]);
    assert!(!all.has_figures("warp+lto") && all.has_figures("warp"));
}

#[test]
fn busy_shares_and_medians() {
    let all = results(&lines());
    assert_eq!((all.client_busy("warp"), all.server_busy("warp")), (Some(0.5), Some(1.0)));
    assert_eq!(all.client_busy("unknown"), None);
    // A server that was idle only while the connections were opened.
    let mut opened = lines();
    for cell in opened.iter_mut().filter(|line| line["kind"] == "cell") {
        (cell["server_idle_s"], cell["server_busy"]) = (json!(4.0), json!(0.99));
    }
    assert_eq!(results(&opened).server_busy("warp"), Some(0.99));
    assert_eq!(all.median("unknown", |sample| Some(sample.requests_per_s)), None);
    assert_eq!(all.median("warp", |sample| Some(sample.requests_per_s)), Some(100.0));
}

/// Regression test: the cost of a turn without an answer was left out, as if it had not been measured.
#[test]
fn a_turn_without_an_answer_is_the_worst() {
    let mut lines = lines();
    for round in 6..=10 {
        let mut silent = cell("warp+lto", round, 0.0);
        (silent["answered"], silent["requests_per_cpu_s"]) = (0.into(), Value::Null);
        lines.push(silent);
    }
    assert_eq!(results(&lines).cost("warp+lto", "warp").unwrap().estimate.rounds, 10);
}
