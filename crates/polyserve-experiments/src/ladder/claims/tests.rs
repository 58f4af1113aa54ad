//! Made-up ladders that confirm, refute or leave undecided each claim.

use super::*;
use crate::ladder::fixtures::{absent, cell, contestant, results};
use polyserve_report::ClaimVerdict;
use serde_json::{Value, json};

/// A rung of warp with all published steps.
fn with_all_steps(name: &str, step: &str, below: &str) -> Value {
    let (lto, allocator) = (String::from("fat"), String::from("jemalloc"));
    let settings = BuildSettings { lto, allocator, pipeline_flush: true, ..BuildSettings::lowest() };
    let mut line = contestant(name, "rung", Some(step), Some(below));
    line["settings"] = serde_json::to_value(settings).unwrap();
    line
}

/// A made-up ladder. `lto`, `flush`, `clock` and `native` are the factors of these steps; `spread` is the noise.
/// jemalloc has 0.45 of the gain of `flush`; the hash has the factor of the clock; the wakers have 0.27 of the loss of
/// `native`.
fn lines(rounds: usize, [lto, flush, clock, native]: [f64; 4], spread: f64) -> Vec<Value> {
    let mut lines = vec![
        contestant("warp", "rung", None, None),
        contestant("warp (again)", "control", None, None),
        contestant("warp+lto", "rung", Some("lto"), Some("warp")),
        contestant("warp+lto+jemalloc", "rung", Some("jemalloc"), Some("warp+lto")),
        contestant("warp+lto+pipeline-flush", "rung", Some("pipeline-flush"), Some("warp+lto")),
        with_all_steps("warp+clock", "clock-reads", "warp+lto+pipeline-flush"),
        contestant("warp+native", "rung", Some("target-cpu"), Some("warp+clock")),
        contestant("warp+wakers", "rung", Some("waker-array"), Some("warp+clock")),
        contestant("warp+hash", "rung", Some("header-hash"), Some("warp+clock")),
        contestant("go-fasthttp", "reference", None, None),
    ];
    for round in 1..=rounds {
        // A multiplicative hash scatters the noise: it differs between contestants.
        let noise = |phase: usize| {
            let hash = ((round * 31 + phase) as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            1.0 + spread * (hash as f64 / (1 << 23) as f64 - 1.0)
        };
        let mut speed = 1000.0;
        lines.push(cell("warp", round, speed * noise(0)));
        lines.push(cell("warp (again)", round, speed * noise(1)));
        for (phase, (name, factor)) in
            [("warp+lto", lto), ("warp+lto+pipeline-flush", flush), ("warp+clock", clock), ("warp+native", native)]
                .into_iter()
                .enumerate()
        {
            speed *= factor;
            lines.push(cell(name, round, speed * noise(phase + 2)));
        }
        let top = 1000.0 * lto * flush * clock;
        lines.push(cell("warp+wakers", round, top * (1.0 - 0.27 * (1.0 - native)) * noise(7)));
        lines.push(cell("warp+hash", round, top * clock * noise(8)));
        lines.push(cell("warp+lto+jemalloc", round, 1000.0 * lto * (1.0 + 0.45 * (flush - 1.0)) * noise(9)));
        // With all steps as published, warp does 3.7 % more.
        lines.push(cell("go-fasthttp", round, 1053.0 * noise(6)));
    }
    lines
}

fn claim_about(lines: &[Value], word: &str) -> Claim {
    let all = claims(&results(lines));
    assert_eq!(all.len(), 8);
    all.into_iter().find(|claim| claim.claim.contains(word)).unwrap()
}

#[test]
fn what_is_measured_as_published_is_confirmed() {
    let lines = lines(12, [1.05, 1.04, 1.0, 0.88], 0.005);
    for word in ["(LTO)", "jemalloc", "Flushing", "clock", "native", "fasthttp", "wakers", "aHash"] {
        let claim = claim_about(&lines, word);
        assert_eq!(claim.verdict, ClaimVerdict::Confirmed, "{claim:?}");
    }
    assert!(claim_about(&lines, "(LTO)").figure.starts_with("warp 1.05"));
}

#[test]
fn what_is_measured_otherwise_is_refuted() {
    let lines = lines(12, [1.01, 1.0, 1.06, 1.0], 0.005);
    for word in ["(LTO)", "jemalloc", "Flushing", "clock", "native", "wakers", "aHash"] {
        let claim = claim_about(&lines, word);
        assert_eq!(claim.verdict, ClaimVerdict::Refuted, "{claim:?}");
    }
    let slower = self::lines(12, [0.9, 1.0, 1.0, 1.0], 0.005);
    assert_eq!(claim_about(&slower, "fasthttp").verdict, ClaimVerdict::Refuted);
}

/// Regression test: any gain above the published gain confirmed a claim, such as 243 % for 3.8 %.
#[test]
fn a_difference_that_is_too_large_is_refuted() {
    for (factors, word) in [
        ([1.2, 1.04, 1.0, 0.88], "(LTO)"),
        ([1.05, 1.2, 1.0, 0.88], "jemalloc"),
        ([1.05, 3.43, 1.0, 0.88], "Flushing"),
        ([1.05, 1.04, 1.0, 0.7], "native"),
        ([1.05, 1.04, 1.0, 0.7], "wakers"),
        ([1.05, 1.75, 1.0, 0.88], "fasthttp"),
    ] {
        let claim = claim_about(&lines(12, factors, 0.005), word);
        assert_eq!(claim.verdict, ClaimVerdict::Refuted, "{claim:?}");
    }
    let near = claim_about(&lines(12, [1.075, 1.04, 1.0, 0.88], 0.005), "(LTO)");
    assert_eq!(near.verdict, ClaimVerdict::Undecided, "the end of the equivalence interval: {near:?}");
}

#[test]
fn what_the_data_cannot_tell_is_undecided() {
    let few = lines(9, [1.05, 1.04, 1.0, 0.88], 0.005);
    let noisy = lines(12, [1.05, 1.04, 1.0, 0.9], 0.3);
    for lines in [&few, &noisy] {
        for word in ["(LTO)", "jemalloc", "Flushing", "clock", "native", "wakers", "aHash"] {
            assert_eq!(claim_about(lines, word).verdict, ClaimVerdict::Undecided, "{word}");
        }
    }
    assert!(claim_about(&few, "(LTO)").figure.contains("only 9 rounds"));
    for claim in claims(&results(&[])) {
        assert!(claim.verdict == ClaimVerdict::Undecided && !claim.figure.is_empty(), "{claim:?}");
    }
}

/// The published load sends one request at a time.
#[test]
fn what_is_measured_with_several_requests_at_once_is_undecided() {
    let mut results = results(&lines(12, [1.05, 1.04, 1.0, 0.88], 0.005));
    results.pipeline = 16;
    for claim in claims(&results) {
        assert_eq!(claim.verdict, ClaimVerdict::Undecided, "{claim:?}");
        assert!(claim.figure.contains("16 requests"), "{claim:?}");
    }
}

#[test]
fn what_is_measured_over_fewer_connections_is_undecided() {
    let mut results = results(&lines(12, [1.05, 1.04, 1.0, 0.88], 0.005));
    results.connections = Some(64);
    for claim in claims(&results) {
        assert_eq!(claim.verdict, ClaimVerdict::Undecided, "{claim:?}");
        assert!(claim.figure.contains("over 64 connections"), "{claim:?}");
    }
}

/// If something else than the server limits the throughput, all servers seem equally fast.
#[test]
fn what_a_full_client_or_an_idle_server_may_hide_is_undecided() {
    let words = ["(LTO)", "Flushing", "clock", "native"];
    for (idle, seconds, why) in
        [("client_idle_s", json!(0.0), "client's"), ("server_idle_s", json!(0.1), "90.9 % only")]
    {
        let bound = |factors: [f64; 4]| {
            let mut lines = lines(12, factors, 0.005);
            for cell in lines.iter_mut().filter(|line| line["kind"] == "cell") {
                cell[idle] = seconds.clone();
            }
            lines
        };
        let (alike, different) = (bound([1.0; 4]), bound([1.05, 1.04, 1.06, 0.88]));
        let large = bound([1.2, 1.2, 1.2, 0.7]);
        for word in words {
            let claim = claim_about(&alike, word);
            assert!(claim.verdict == ClaimVerdict::Undecided && claim.figure.contains(why), "{claim:?}");
            let expected = if word == "clock" { ClaimVerdict::Refuted } else { ClaimVerdict::Undecided };
            assert_eq!(claim_about(&different, word).verdict, expected, "it may be larger than it seems: {word}");
            assert_eq!(claim_about(&large, word).verdict, ClaimVerdict::Refuted, "it is too large in any case: {word}");
        }
        let claim = claim_about(&bound([0.9, 1.0, 1.0, 1.0]), "fasthttp");
        assert!(claim.verdict == ClaimVerdict::Undecided && claim.figure.contains(why), "{claim:?}");
    }
    let mut unknown = lines(12, [1.0; 4], 0.005);
    for cell in unknown.iter_mut().filter(|line| line["kind"] == "cell" && line["name"] == "go-fasthttp") {
        cell["server_idle_s"] = Value::Null;
    }
    let claim = claim_about(&unknown, "fasthttp");
    assert!(
        claim.verdict == ClaimVerdict::Undecided && claim.figure.contains("go-fasthttp were is not known"),
        "{claim:?}"
    );
    assert_eq!(claim_about(&unknown, "(LTO)").verdict, ClaimVerdict::Refuted, "only fasthttp is not known");
}

#[test]
fn the_top_has_every_published_step() {
    for (setting, value, step) in [
        ("lto", json!("thin"), "lto"),
        ("allocator", json!("system"), "jemalloc"),
        ("pipeline_flush", json!(false), "pipeline-flush"),
    ] {
        let mut lines = lines(12, [1.05, 1.04, 1.0, 0.88], 0.005);
        let top = lines.iter_mut().find(|line| line["name"] == "warp+clock").unwrap();
        top["settings"][setting] = value;
        let claim = claim_about(&lines, "fasthttp");
        assert_eq!(claim.verdict, ClaimVerdict::Undecided, "{claim:?}");
        assert!(claim.figure.starts_with("warp+clock 1.0") && claim.figure.ends_with(&format!("without {step}")));
    }
    assert_eq!(lacking(None), ["lto", "jemalloc", "pipeline-flush"]);
}

/// The published top has no steps of ours.
#[test]
fn a_step_of_ours_is_above_the_top() {
    let mut lines = lines(12, [1.05, 1.04, 1.0, 0.88], 0.005);
    let mut ours = with_all_steps("warp+units", "codegen-units", "warp+clock");
    ours["settings"]["codegen_units"] = json!(1);
    lines.insert(6, ours);
    lines.extend((1..=12).map(|round| cell("warp+units", round, 5000.0)));
    let claim = claim_about(&lines, "fasthttp");
    assert!(claim.verdict == ClaimVerdict::Confirmed && claim.figure.starts_with("warp+clock 1.0"), "{claim:?}");
}

#[test]
fn an_absent_contestant_is_named() {
    let mut lines = lines(12, [1.05, 1.04, 1.0, 0.88], 0.005);
    lines.retain(|line| line["name"] != "go-fasthttp");
    lines.push(absent("go-fasthttp", "reference", "go is not installed"));
    lines.push(json!({"kind": "failure", "name": "warp+lto", "round": 3, "reason": "failed", "why": "it died"}));
    assert!(claim_about(&lines, "fasthttp").figure.contains("go is not installed"));
    let claim = claim_about(&lines, "(LTO)");
    assert_eq!((claim.verdict, claim.figure.as_str()), (ClaimVerdict::Undecided, "warp+lto: it died"));
    assert!(claim_about(&lines, "jemalloc").figure.contains("it died"));
}
