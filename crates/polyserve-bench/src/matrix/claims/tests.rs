//! Verdicts on synthetic records.

use crate::experiment::{Experiment as _, Records};
use crate::report::ClaimVerdict::{self, Confirmed, Refuted, Undecided};
use serde_json::{Value, json};

use super::*;
use crate::matrix::{Matrix, fixtures};

/// The verdicts on the claims by the lines of a record.
fn claims(lines: &[Value]) -> anyhow::Result<Vec<Claim>> {
    Ok(Matrix::report(&Records::of(lines)?)?.claims)
}

/// The figures that differ between cells.
#[derive(Clone, Copy)]
struct CellFigures {
    cpu_pct: f64,
    cpu_us: f64,
    memory: f64,
    request_ms: f64,
    connect_ms: f64,
    received: f64,
}

/// The place of a cell.
#[derive(Clone, Copy)]
struct At {
    is_go: bool,
    is_put: bool,
    pool: usize,
    connections: usize,
}

/// Figures for which every claim of the article holds.
fn as_claimed(at: At) -> CellFigures {
    let (pool, connections) = (at.pool as f64, at.connections as f64);
    let (go, put) = (f64::from(u8::from(at.is_go)), f64::from(u8::from(at.is_put)));
    let many = if at.connections >= 1000 { 1.0 } else { 0.0 };
    // Rust uses less CPU up to 4 cores; beyond, Go does.
    let steep = if at.is_go { 0.05 } else { 0.3 };
    CellFigures {
        cpu_pct: 100.0 * (1.0 + steep * (pool / 5.5).ln()) / connections.powf(0.02),
        cpu_us: 20.0 + 5.0 * put,
        memory: (0.1 + 0.2 * go) * pool.powf(if at.is_go { 0.1 } else { 0.3 }),
        request_ms: connections * (1.0 + 0.2 * go) * (1.0 + 0.5 * many),
        connect_ms: 1.0 - 0.3 * go * many,
        received: 1000.0 - 200.0 * go,
    }
}

const ROUNDS: u32 = 2;

fn cell(at: At, control: bool, round: u32, figures: CellFigures) -> Value {
    // Two measurements of one cell differ by 1 %.
    let noise = if control { 1.0 + 0.01 * f64::from(round % 2) } else { 1.0 };
    let CellFigures { cpu_pct, cpu_us, memory, request_ms, connect_ms, received } = figures;
    let (name, lang) = if at.is_go { (TWIN.to_owned(), "go") } else { (format!("{CLASSIC}/{REPO}"), "rust") };
    let mut line = fixtures::cell(&name, lang, control, round);
    let figures = [
        ("avg_cpu_pct", cpu_pct),
        ("avg_mem_pct", memory),
        ("per_request_ms", request_ms),
        ("received_kB_s", received),
        ("connect_ms", connect_ms),
        ("processing_ms", request_ms - connect_ms),
        ("server_cpu_us_per_request", cpu_us),
    ];
    figures.into_iter().for_each(|(field, figure)| line[field] = json!(figure * noise));
    line["method"] = json!(if at.is_put { "put" } else { "get" });
    (line["pool_size"], line["connections"]) = (json!(at.pool), json!(at.connections));
    line["client_busy_pct"] = json!(50.0);
    line
}

fn header() -> Value {
    fixtures::header(&json!({}), "0,1,2,3")
}

/// A record of the published matrix.
fn record(figures: impl Fn(At) -> CellFigures) -> Vec<Value> {
    let mut lines = vec![header()];
    for round in 1..=ROUNDS {
        for connections in [10, 100, 1000] {
            for pool in [2, 4, 8, 16, 32, 64] {
                for is_put in [false, true] {
                    for (is_go, control) in [(false, false), (true, false), (false, true)] {
                        let at = At { is_go, is_put, pool, connections };
                        lines.push(cell(at, control, round, figures(at)));
                    }
                }
            }
        }
    }
    lines
}

fn verdicts(lines: &[Value]) -> Vec<ClaimVerdict> {
    claims(lines).unwrap().iter().map(|claim| claim.verdict).collect()
}

#[test]
fn what_is_so_is_confirmed() {
    let claims = claims(&record(as_claimed)).unwrap();
    assert_eq!(claims.len(), 11);
    for claim in claims {
        assert_eq!((claim.experiment.as_str(), claim.verdict), (NAME, Confirmed), "{claim:?}");
        let published = claim.published.as_deref().unwrap();
        assert!(published.starts_with("the article's tables, by the same test: "), "{claim:?}");
    }
}

/// The opposite of each: what grows falls, and Go and Rust change places.
#[test]
fn what_is_the_other_way_round_is_refuted() {
    let turned = |at: At| {
        let CellFigures { cpu_pct, cpu_us, memory, received, .. } =
            as_claimed(At { is_go: !at.is_go, is_put: !at.is_put, ..at });
        let request_ms = 10.0 - f64::from(u8::from(at.is_go));
        let connect_ms = 1.0 + f64::from(u8::from(at.is_go));
        let (cpu_pct, memory) = (9000.0 / cpu_pct / (at.connections as f64).powf(0.04), 1.0 / memory);
        CellFigures {
            cpu_pct,
            cpu_us,
            memory: memory * if at.is_go { 0.001 } else { 1.0 },
            request_ms,
            connect_ms,
            received,
        }
    };
    let lines = record(|at| {
        let figures = turned(at);
        // More per cent with more connections.
        CellFigures { cpu_pct: figures.cpu_pct * (at.connections as f64).powf(0.1), ..figures }
    });
    // Two claims have their own data below: a less steep fall counts as steeper, and the order of the languages is
    // reversed twice.
    let is_below = |claim: &Claim| ["steeply", "until the pool exceeds"].iter().any(|name| claim.claim.contains(name));
    for claim in claims(&lines).unwrap().into_iter().filter(|claim| !is_below(claim)) {
        assert_eq!(claim.verdict, Refuted, "{claim:?}");
    }
    let assert_refuted = |change: fn(At, &mut CellFigures), name: &str| {
        let lines = record(|at| {
            let mut figures = as_claimed(at);
            change(at, &mut figures);
            figures
        });
        let all = claims(&lines).unwrap();
        let claim = all.iter().find(|claim| claim.claim.contains(name)).unwrap();
        assert_eq!(claim.verdict, Refuted, "{claim:?}");
    };
    assert_refuted(|at, figures| figures.memory = (at.pool as f64).powf(if at.is_go { 0.3 } else { 0.1 }), "steeply");
    assert_refuted(|at, figures| figures.cpu_pct = if at.is_go { 50.0 } else { 90.0 }, "until the pool exceeds");
}

#[test]
fn of_too_little_nothing_is_said() {
    let all = record(as_claimed);
    let without = |leave_out: fn(&Value) -> bool| -> Vec<Value> {
        all.iter().filter(|line| line["kind"] != "cell" || !leave_out(line)).cloned().collect()
    };
    let alone = verdicts(&without(|line| line["lang"] == "go"));
    assert!(alone.iter().take(8).all(|verdict| *verdict == Undecided), "{alone:?}");
    let few = verdicts(&without(|line| line["round"] != 1 || line["connections"] != 10 || line["pool_size"] != 2));
    assert_eq!(few, [Undecided; 11]);
    assert_eq!(verdicts(&[header()]), [Undecided; 11]);
    assert!(claims(&[]).is_err() && claims(&all[1..]).is_err());
}

/// Without a control the noise is unknown.
#[test]
fn without_a_control_no_difference_counts() {
    let lines: Vec<Value> = record(as_claimed).into_iter().filter(|line| line["control"] != true).collect();
    assert_eq!(verdicts(&lines), [Undecided; 11]);
}

/// The servers as they were run then have their own verdicts, next to those of the release builds.
#[test]
fn the_published_builds_are_judged_too() {
    let mut lines = record(as_claimed);
    let release = verdicts(&lines);
    let of_builds: Vec<Value> = lines.iter().skip(1).filter(|line| line["control"] == false).cloned().collect();
    for mut line in of_builds {
        let is_go = line["lang"] == "go";
        line["contestant"] = json!(if is_go { PRINTING.to_owned() } else { format!("{DEBUG}{CLASSIC}/{REPO}") });
        // The debug build is slower than Go.
        line["per_request_ms"] = json!(line["per_request_ms"].as_f64().unwrap() * if is_go { 1.0 } else { 3.0 });
        lines.push(line);
    }
    let claims = claims(&lines).unwrap();
    let (as_run, own): (Vec<&Claim>, Vec<&Claim>) =
        claims.iter().partition(|claim| claim.claim.ends_with(" (as run then)"));
    assert!(own.iter().all(|claim| claim.claim.ends_with(" (release builds)")));
    assert_eq!(own.iter().map(|claim| claim.verdict).collect::<Vec<_>>(), release);
    assert_eq!(as_run.len(), 11);
    for claim in as_run {
        let expected = if claim.claim.starts_with("Rust answers faster") { Refuted } else { Confirmed };
        assert_eq!(claim.verdict, expected, "{claim:?}");
        assert!(claim.published.is_some(), "{claim:?}");
    }
}

/// A difference below the control's is noise.
#[test]
fn what_is_within_the_noise_is_not_told() {
    let alike = |at: At| CellFigures { request_ms: 5.0 + 0.01 * f64::from(u8::from(at.is_go)), ..as_claimed(at) };
    let mut lines = record(alike);
    let verdict =
        |lines: &[Value]| claims(lines).unwrap().into_iter().find(|claim| claim.claim.contains("faster")).unwrap();
    assert_eq!(verdict(&lines).verdict, Refuted, "they are alike, to a hundredth");
    for line in lines.iter_mut().filter(|line| line["control"] == true) {
        line["per_request_ms"] = json!(9.0);
    }
    assert_eq!(verdict(&lines).verdict, Undecided, "the noise hides it");
}

fn judged(lines: &[Value], name: &str) -> Claim {
    claims(lines).unwrap().into_iter().find(|claim| claim.claim.contains(name)).unwrap()
}

/// Ten times the connections take ten times as long: only more than that is a jump.
#[test]
fn a_jump_is_more_than_follows_from_the_numbers() {
    type By = fn(At) -> f64;
    let cases: [(By, ClaimVerdict); 4] = [
        (|_| 1.5, Confirmed),
        (|_| 1.0, Refuted),
        (|_| 0.2, Refuted),
        // Some jump, and as many do the opposite.
        (|at| if at.is_put { 1.5 } else { 0.5 }, Undecided),
    ];
    for (by, verdict) in cases {
        let many = |at: At| if at.connections >= 1000 { by(at) } else { 1.0 };
        let lines = record(|at| CellFigures { request_ms: at.connections as f64 * many(at), ..as_claimed(at) });
        let claim = judged(&lines, "jumps");
        assert_eq!(claim.verdict, verdict, "{claim:?}");
        assert!(claim.figure.contains("at 1000 connections to that at 100, divided by 10"), "{claim:?}");
    }
}

/// The record, with a full client at these pool sizes.
fn with_full_client(mut lines: Vec<Value>, pools: &[usize]) -> Vec<Value> {
    for line in lines.iter_mut().filter(|line| pools.iter().any(|pool| line["pool_size"] == *pool)) {
        line["client_busy_pct"] = json!(95.0);
    }
    lines
}

/// A full client makes all servers look alike.
#[test]
fn a_full_client_refutes_nothing() {
    let alike =
        |at: At| CellFigures { request_ms: at.connections as f64, connect_ms: 1.0, received: 1000.0, ..as_claimed(at) };
    let concerned = ["faster", "transfers", "jumps", "(connecting)"];
    let with_room = verdicts(&record(alike));
    // A sixth of the cells is not enough, a third is.
    let (sixth_full, third_full) = (with_full_client(record(alike), &[2]), with_full_client(record(alike), &[2, 4]));
    assert_eq!(verdicts(&sixth_full), with_room);
    for (claim, with_room) in claims(&third_full).unwrap().into_iter().zip(with_room) {
        let is_concerned = concerned.iter().any(|name| claim.claim.contains(name));
        assert_eq!(claim.figure.contains("the client was full in 33 %"), is_concerned, "{claim:?}");
        if is_concerned {
            assert_eq!((with_room, claim.verdict), (Refuted, Undecided), "{claim:?}");
        } else {
            assert_eq!(claim.verdict, with_room, "{claim:?}");
        }
    }
    // A full client does not explain the opposite difference.
    let opposite =
        |at: At| CellFigures { request_ms: if at.is_go { 1.0 } else { 2.0 } * at.connections as f64, ..alike(at) };
    assert_eq!(judged(&with_full_client(record(opposite), &[2, 4]), "faster").verdict, Refuted);
    // A difference is real if a full client does not hide it. But the client's own time grows with the connections too.
    let different = with_full_client(record(as_claimed), &[2, 4]);
    for (name, verdict) in concerned.into_iter().zip([Confirmed, Confirmed, Undecided, Confirmed]) {
        assert_eq!(judged(&different, name).verdict, verdict, "{name}");
    }
}

/// Regression test: on shared cores the client's threads are never full by themselves, because the server has the rest.
#[test]
fn a_client_that_shares_its_cores_is_full_if_both_fill_them() {
    let shared = |client_pct: f64| {
        let mut lines = with_full_client(record(as_claimed), &[]);
        lines[0]["client_cores"] = lines[0]["server_cores"].clone();
        lines.iter_mut().skip(1).for_each(|line| line["client_busy_pct"] = json!(client_pct));
        judged(&lines, "jumps").verdict
    };
    assert_eq!((shared(20.0), shared(94.0)), (Confirmed, Undecided));
}

#[test]
fn a_full_client_counts_where_the_claim_is() {
    let full_at = |connections: usize| {
        let mut lines = record(as_claimed);
        for line in lines.iter_mut().filter(|line| line["connections"] == connections) {
            line["client_busy_pct"] = json!(99.0);
            line["processing_ms"] = json!(1.0);
        }
        lines
    };
    assert_eq!(judged(&full_at(1000), "(connecting)").verdict, Undecided);
    assert_eq!(judged(&full_at(10), "(connecting)").verdict, Confirmed);
    assert_eq!(judged(&full_at(10), "jumps").verdict, Confirmed);
    assert_eq!(judged(&full_at(100), "jumps").verdict, Undecided);
}

#[test]
fn where_the_cores_are_full_the_time_of_a_request_stands_for_them() {
    let full = |at: At| CellFigures { cpu_pct: 399.0, cpu_us: 10.0 + at.pool as f64, ..as_claimed(at) };
    let all = claims(&record(full)).unwrap();
    assert!(all[0].figure.contains("full in 100 %") && all[0].verdict == Confirmed, "{:?}", all[0]);
}
