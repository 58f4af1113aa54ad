//! Made-up ladders that confirm, refute or leave undecided each claim.

use crate::report::ClaimVerdict;
use serde_json::{Value, json};

use super::*;
use crate::ladder::fixtures::{absent, cell, contestant, results};

const TOP: &str = "warp+lto+jemalloc+pipeline-flush";

/// A made-up ladder. `lto`, `flush`, `clock` and `native` are the factors of these steps; `spread` is the noise. jemalloc has
/// 0.45 of the gain of `flush`; the hash has the factor of the clock; the wakers have 0.27 of the loss of `native`.
fn lines(rounds: usize, [lto, flush, clock, native]: [f64; 4], spread: f64) -> Vec<Value> {
    let jemalloc = 1.0 + 0.45 * (flush - 1.0);
    let ladder: [(&str, &str, f64); 7] = [
        ("lto", "warp", lto),
        ("jemalloc", "warp+lto", jemalloc),
        ("pipeline-flush", "warp+lto+jemalloc", flush),
        ("clock-reads", TOP, clock),
        ("header-hash", TOP, clock),
        ("waker-array", TOP, 1.0 - 0.27 * (1.0 - native)),
        ("codegen-units", TOP, 1.0),
    ];
    let mut speeds = vec![(String::from("warp"), 1000.0), (String::from("warp (again)"), 1000.0)];
    let mut lines = vec![contestant("warp", "rung", None, None), contestant("warp (again)", "control", None, None)];
    let native = ("target-cpu", "warp+lto+jemalloc+pipeline-flush+codegen-units", native);
    for (step, below, factor) in ladder.into_iter().chain([native]) {
        let name = format!("{below}+{step}");
        let speed = speeds.iter().find(|(name, _)| name == below).unwrap().1 * factor;
        lines.push(contestant(&name, "rung", Some(step), Some(below)));
        speeds.push((name, speed));
    }
    lines.push(contestant("go-fasthttp", "reference", None, None));
    // With these steps, warp does 3.7 % more.
    speeds.push(("go-fasthttp".into(), 1000.0 * 1.05 * 1.018 * 1.04 / 1.037));
    for round in 1..=rounds {
        for (phase, (name, speed)) in speeds.iter().enumerate() {
            // A multiplicative hash scatters the noise: it differs between contestants.
            let hash = ((round * 31 + phase) as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            lines.push(cell(name, round, speed * (1.0 + spread * (hash as f64 / (1 << 23) as f64 - 1.0))));
        }
    }
    lines
}

fn claim_about(lines: &[Value], word: &str) -> Claim {
    let all = claims(&results(lines)).unwrap();
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
    assert!(claim_about(&lines, "(LTO)").figure.starts_with("warp+lto 1.05"));
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
    for claim in claims(&results(&[])).unwrap() {
        assert!(claim.verdict == ClaimVerdict::Undecided && !claim.figure.is_empty(), "{claim:?}");
    }
}

/// The published load sends one request at a time.
#[test]
fn what_is_measured_with_several_requests_at_once_is_undecided() {
    let mut results = results(&lines(12, [1.05, 1.04, 1.0, 0.88], 0.005));
    results.pipeline = 16;
    for claim in claims(&results).unwrap() {
        assert_eq!(claim.verdict, ClaimVerdict::Undecided, "{claim:?}");
        assert!(claim.figure.contains("connections 1000, pipeline 1"), "{claim:?}");
    }
}

#[test]
fn what_is_measured_over_fewer_connections_is_undecided() {
    let mut results = results(&lines(12, [1.05, 1.04, 1.0, 0.88], 0.005));
    results.connections = Some(64);
    for claim in claims(&results).unwrap() {
        assert_eq!(claim.verdict, ClaimVerdict::Undecided, "{claim:?}");
        assert!(claim.figure.contains("connections 1000, pipeline 1"), "{claim:?}");
    }
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

/// The client of the published ladder was not full, and its server was.
#[test]
fn a_full_client_may_hide_a_difference() {
    let mut lines = lines(12, [1.05, 1.04, 1.0, 0.88], 0.005);
    lines.iter_mut().filter(|line| line["kind"] == "cell").for_each(|line| line["client_idle_s"] = json!(0.0));
    for claim in claims(&results(&lines)).unwrap() {
        assert_eq!(claim.verdict, ClaimVerdict::Undecided, "{claim:?}");
        assert!(claim.figure.contains("client's cores were busy"), "{claim:?}");
    }
}
