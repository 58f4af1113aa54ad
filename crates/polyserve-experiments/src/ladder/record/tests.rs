use super::*;
use crate::ladder::made_up::{cell, contestant};
use serde_json::json;

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
    Recorded::of(lines).unwrap().throughput("warp+lto", "warp").map(|ratio| ratio.verdict)
}

#[test]
fn ratios_are_of_rounds_and_held_against_the_control() {
    let recorded = Recorded::of(&lines()).unwrap();
    let ratio = recorded.throughput("warp+lto", "warp").unwrap();
    assert_eq!((ratio.estimate.ratio, ratio.estimate.rounds, ratio.verdict), (1.1, 10, Verdict::Faster));
    assert_eq!((ratio.band.low, ratio.band.high), (1.0, 1.02));
    assert_eq!(recorded.subjects(), ["warp"]);
    assert_eq!(recorded.rung("warp", "lto").unwrap().name, "warp+lto");
    // Within the noise.
    let mut noisy = lines();
    noisy.extend((1..=10).map(|round| cell("warp (again)", round, 111.0)));
    assert_eq!(verdict(&noisy), Some(Verdict::Tie));
    // Without a control nothing is different.
    let alone: Vec<Value> = lines().into_iter().filter(|line| line["name"] != "warp (again)").collect();
    assert_eq!(verdict(&alone), Some(Verdict::Tie));
}

#[test]
fn a_later_line_counts() {
    let mut lines = lines();
    lines.push(json!({"kind": "failure", "name": "warp+lto", "round": 10, "why": "it died"}));
    assert_eq!(verdict(&lines), None);
    assert_eq!(Recorded::of(&lines).unwrap().failed.len(), 1);
    lines.extend((1..=10).map(|round| cell("warp+lto", round, 90.0)));
    assert_eq!(verdict(&lines), Some(Verdict::Slower), "it was tried again");
    let not_run = |name: &str| json!({"kind": "not_run", "name": name, "role": "rung", "why": "any"});
    lines.extend([not_run("warp+lto"), not_run("warp+lto+jemalloc")]);
    lines.push(contestant("warp+lto", "rung", Some("lto"), Some("warp")));
    let recorded = Recorded::of(&lines).unwrap();
    assert_eq!(recorded.not_run.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["warp+lto+jemalloc"]);
    assert_eq!(recorded.contestants.len(), 3);
}

/// Who is asked often enough may be lucky.
#[test]
fn no_later_line_makes_a_wrong_answer_good() {
    let mut lines = lines();
    lines.push(json!({"kind": "failure", "name": "warp+lto", "round": 10, "why": "a wrong answer", "wrong": true}));
    lines.extend((1..=10).map(|round| cell("warp+lto", round, 90.0)));
    lines.push(json!({"kind": "failure", "name": "warp+lto", "round": 3, "why": "it did not start"}));
    lines.push(cell("warp+lto", 3, 90.0));
    let recorded = Recorded::of(&lines).unwrap();
    assert_eq!(verdict(&lines), None);
    assert_eq!(recorded.failed.iter().map(|one| one.why.as_str()).collect::<Vec<_>>(), ["a wrong answer"]);
    assert!(recorded.did_wrong("warp+lto") && !recorded.has_figures("warp+lto") && !recorded.did_wrong("warp"));
}

#[test]
fn how_busy_somebody_was() {
    let recorded = Recorded::of(&lines()).unwrap();
    let client = |cell: &Cell| Some((cell.client_cpu_s, cell.client_idle_s?));
    assert_eq!(recorded.busy("warp", client), Some(0.5));
    assert_eq!(recorded.busy("warp", |_| None), None);
    assert_eq!(recorded.middle("nobody", |cell| Some(cell.requests_per_s)), None);
}
