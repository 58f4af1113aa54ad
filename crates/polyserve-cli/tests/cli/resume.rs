//! Comparisons that were recorded in part, and are resumed.

use std::fs;

use polyserve_lab::compare::Ranking;
use polyserve_lab::compare::contestant::Role;
use serde_json::Value;

use super::compare::{TINY, compared, comparison, fresh, kind, lines, serve};
use super::printed;

/// As after a crash: the last round is not whole, and is measured again. Earlier rounds are kept, and so is the rate.
#[test]
fn a_comparison_resumes_after_its_last_whole_round() {
    let dir = fresh("goes-on");
    let out = format!("--out={}", dir.display());
    let args = ["compare", "--servers=pool_server", "--repos=two_level,std_mutex", "--rounds=2", "--name=get-1", &out];
    let args = [&args[..], &TINY, &["--json"]].concat();
    printed(&args);
    let file = dir.join("get-1.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    let all: Vec<&str> = text.lines().collect();
    let is_of = |line: &&str, round: u64| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["kind"] == "turn" && line["round"] == round
    };
    let first = all.iter().position(|line| is_of(line, 2)).unwrap();
    let kept = all[..=first].join("\n") + "\n";
    fs::write(&file, format!("{kept}{{\"kind\":\"turn\",\"rou")).unwrap();
    let ranking: Value = serde_json::from_str(&printed(&args)).unwrap();
    assert_eq!((&ranking["rounds"], &ranking["interrupted"]), (&2.into(), &false.into()));
    assert!(ranking["rows"].as_array().unwrap().iter().all(|row| row["throughput"]["rounds"] == 2), "{ranking}");
    let after = fs::read_to_string(&file).unwrap();
    let added: Vec<&str> = after.strip_prefix(&kept).expect("what was recorded stays").lines().collect();
    let of = |round: u64| added.iter().filter(|line| is_of(line, round)).count();
    assert_eq!((of(0), of(1), of(2)), (0, 0, 4), "{added:?}");
    let rate = |line: &str| serde_json::from_str::<Value>(line).unwrap()["latency"]["rate"].clone();
    let rates: Vec<_> =
        all[first..].iter().chain(&added).filter(|line| is_of(line, 2)).map(|line| rate(line)).collect();
    assert!(rates[0].is_f64() && rates.iter().all(|rate| *rate == rates[0]), "{rates:?}");
}

/// A contestant that gave a wrong answer is not measured again: it may give right answers by luck.
#[test]
fn a_contestant_that_did_wrong_stays_out() {
    let dir = fresh("stays-out");
    let mut comparison =
        comparison(vec![serve("base", Role::Baseline, "leader_followers"), serve("wrong", Role::Ranked, "null_epoll")]);
    let mut run = || compared(Some(&dir), &mut comparison).unwrap();
    let why = |ranking: &Ranking| {
        ranking.failed.iter().map(|failed| (failed.key.round, failed.why.clone())).collect::<Vec<_>>()
    };
    let first = run();
    let second = run();
    assert!(why(&first).len() == 1 && why(&first) == why(&second), "{:?} {:?}", first.failed, second.failed);
    assert_eq!(lines(&dir).iter().filter(|line| kind(line) == "failure").count(), 1);
}
