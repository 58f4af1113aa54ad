//! The claims of the definition `matrix` on made-up rows.

use std::path::Path;

use super::*;
use crate::bench::Definition;
use crate::bench::derived::of_pool;
use crate::report::Claim;
use crate::report::ClaimVerdict::{self, Confirmed, Refuted, Undecided};

const RUST: &str = "twin/entity-printing";
const RUST_DEBUG: &str = "twin/entity-debug-printing";
const GO: &str = "go/entity-rwmutex-printing";
const RELEASE: &str = "(release)";
const AS_RUN: &str = "(as run)";
/// The number of claims about each of the two builds.
const CLAIMS: usize = 14;
const ROUNDS: usize = 5;
const CORES: f64 = 4.0;

fn definition() -> Definition {
    Definition::parse(Path::new("matrix.toml"), include_str!("../../../defs/matrix.toml"), &[]).unwrap()
}

/// The claims with this end, with their verdicts.
fn claims_of(rows: &[ClaimRow], end: &str) -> Vec<Claim> {
    let claims = definition().claims.into_iter().filter(|claim| claim.text.ends_with(end)).collect();
    ClaimSet { name: "matrix".into(), baseline: Some(RUST.into()), claims }.verdicts(rows, 0)
}

fn claims(rows: &[ClaimRow]) -> Vec<Claim> {
    claims_of(rows, RELEASE)
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

fn cell(at: At, control: bool, round: usize, figures: CellFigures) -> ClaimRow {
    // Two measurements of one cell differ by 1 %.
    let noise = if control { 1.0 + 0.01 * (round % 2) as f64 } else { 1.0 };
    let CellFigures { cpu_pct, cpu_us, memory, request_ms, connect_ms, received } = figures;
    let name = if at.is_go { GO.to_owned() } else { RUST.to_owned() };
    let name = if control { again(&name) } else { name };
    let figures = [
        ("avg_cpu_pct", cpu_pct),
        ("avg_mem_pct", memory),
        ("per_request_ms", request_ms),
        ("received_kB_s", received),
        ("sent_kB_s", received / 2.0),
        ("connect_ms", connect_ms),
        ("processing_ms", request_ms - connect_ms),
        ("cpu_us_per_request", cpu_us),
    ];
    let row = ClaimRow::new(name, round)
        .at("method", if at.is_put { "put" } else { "get" })
        .at("workers", at.pool as f64)
        .at("connections", at.connections as f64)
        .with("cores", CORES)
        .with("server_busy", cpu_pct / 100.0 / CORES)
        .with(CLIENT_FULL, 0.0);
    of_pool(figures.into_iter().fold(row, |row, (figure, value)| row.with(figure, value * noise)))
}

/// The rows of the published matrix.
fn record(figures: impl Fn(At) -> CellFigures) -> Vec<ClaimRow> {
    let mut rows = Vec::new();
    for round in 1..=ROUNDS {
        for connections in [10, 100, 1000] {
            for pool in [2, 4, 8, 16, 32, 64] {
                for is_put in [false, true] {
                    for (is_go, control) in [(false, false), (true, false), (false, true)] {
                        let at = At { is_go, is_put, pool, connections };
                        rows.push(cell(at, control, round, figures(at)));
                    }
                }
            }
        }
    }
    rows
}

fn verdicts(rows: &[ClaimRow]) -> Vec<ClaimVerdict> {
    claims(rows).iter().map(|claim| claim.verdict).collect()
}

fn judged(rows: &[ClaimRow], name: &str) -> Claim {
    claims(rows).into_iter().find(|claim| claim.claim.contains(name)).unwrap()
}

fn number(row: &ClaimRow, axis: &str) -> f64 {
    match &row.cell[axis] {
        AxisValue::Number(number) => *number,
        AxisValue::Text(text) => panic!("{axis} is {text}"),
    }
}

fn is_control(row: &ClaimRow) -> bool {
    row.contestant == again(RUST)
}

fn set(row: &mut ClaimRow, figure: &str, value: f64) {
    row.figures.insert(figure.into(), value);
}

#[test]
fn what_is_so_is_confirmed() {
    let claims = claims(&record(as_claimed));
    assert_eq!(claims.len(), CLAIMS);
    for claim in claims {
        assert_eq!((claim.experiment.as_str(), claim.verdict), ("matrix", Confirmed), "{claim:?}");
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
    let rows = record(|at| {
        let figures = turned(at);
        // More per cent with more connections.
        CellFigures { cpu_pct: figures.cpu_pct * (at.connections as f64).powf(0.1), ..figures }
    });
    // Some claims have their own data below: a less steep fall counts as steeper, and the order of the languages is
    // reversed twice.
    let is_below = |claim: &Claim| ["steeply", "the pool exceeds"].iter().any(|name| claim.claim.contains(name));
    for claim in claims(&rows).into_iter().filter(|claim| !is_below(claim)) {
        assert_eq!(claim.verdict, Refuted, "{claim:?}");
    }
    let assert_refuted = |change: fn(At, &mut CellFigures), name: &str| {
        let rows = record(|at| {
            let mut figures = as_claimed(at);
            change(at, &mut figures);
            figures
        });
        let claim = judged(&rows, name);
        assert_eq!(claim.verdict, Refuted, "{claim:?}");
    };
    assert_refuted(|at, figures| figures.memory = (at.pool as f64).powf(if at.is_go { 0.3 } else { 0.1 }), "steeply");
    assert_refuted(|at, figures| figures.cpu_pct = if at.is_go { 50.0 } else { 90.0 }, "until the pool exceeds");
    assert_refuted(|at, figures| figures.cpu_pct = if at.is_go { 90.0 } else { 50.0 }, "once the pool exceeds");
}

#[test]
fn of_too_little_nothing_is_said() {
    let all = record(as_claimed);
    let without = |leave_out: fn(&ClaimRow) -> bool| -> Vec<ClaimRow> {
        all.iter().filter(|row| !leave_out(row)).cloned().collect()
    };
    assert_eq!(verdicts(&without(|row| row.contestant == GO)), [Undecided; CLAIMS]);
    let few = without(|row| row.round != 1 || number(row, "connections") != 10.0 || number(row, "workers") != 2.0);
    assert_eq!(verdicts(&few), [Undecided; CLAIMS]);
    let four_rounds = without(|row| row.round == 5);
    assert_eq!(verdicts(&four_rounds), [Undecided; CLAIMS]);
    assert_eq!(claims(&four_rounds)[0].figure, "4 rounds; at least 5 are needed");
    assert_eq!(verdicts(&[]), [Undecided; CLAIMS]);
}

/// Without a control the noise is unknown.
#[test]
fn without_a_control_no_difference_counts() {
    let rows: Vec<ClaimRow> = record(as_claimed).into_iter().filter(|row| !is_control(row)).collect();
    assert_eq!(verdicts(&rows), [Undecided; CLAIMS]);
}

/// The servers as they were run then have their own verdicts, next to those of the release builds.
#[test]
fn the_published_builds_are_judged_too() {
    let mut rows = record(as_claimed);
    let of_build: Vec<ClaimRow> = rows.iter().filter(|row| row.contestant == RUST).cloned().collect();
    for mut row in of_build {
        row.contestant = RUST_DEBUG.into();
        // The debug build is slower than Go.
        let request_ms = row.figures["per_request_ms"] * 3.0;
        set(&mut row, "per_request_ms", request_ms);
        rows.push(row);
    }
    let all = claims_of(&rows, "");
    let (as_run, release): (Vec<&Claim>, Vec<&Claim>) = all.iter().partition(|claim| claim.claim.ends_with(AS_RUN));
    assert!(release.iter().all(|claim| claim.claim.ends_with(RELEASE) && claim.verdict == Confirmed), "{release:?}");
    assert_eq!((as_run.len(), release.len()), (CLAIMS, CLAIMS));
    for claim in as_run {
        let expected = if claim.claim.starts_with("Rust answers faster") { Refuted } else { Confirmed };
        assert_eq!(claim.verdict, expected, "{claim:?}");
    }
}

/// A difference below the control's is noise.
#[test]
fn what_is_within_the_noise_is_not_told() {
    let alike = |at: At| CellFigures { request_ms: 5.0 + 0.01 * f64::from(u8::from(at.is_go)), ..as_claimed(at) };
    let mut rows = record(alike);
    assert_eq!(judged(&rows, "faster").verdict, Refuted, "they are alike, to a hundredth");
    rows.iter_mut().filter(|row| is_control(row)).for_each(|row| set(row, "per_request_ms", 9.0));
    assert_eq!(judged(&rows, "faster").verdict, Undecided, "the noise hides it");
}

/// In every case is every cell: one that is the other way round refutes the claim, and one within the noise leaves it open.
#[test]
fn a_claim_about_every_case_holds_in_every_cell() {
    let with = |go_to_rust: f64| {
        let is_one = |at: At| at.is_go && !at.is_put && at.pool == 8 && at.connections == 100;
        let of = |at: At| if is_one(at) { 100.0 * go_to_rust } else { as_claimed(at).request_ms };
        judged(&record(|at| CellFigures { request_ms: of(at), ..as_claimed(at) }), "faster")
    };
    assert_eq!((with(1.1).verdict, with(1.001).verdict, with(0.9).verdict), (Confirmed, Undecided, Refuted));
    let figure = with(0.9).figure;
    let start = format!("request (ms), {GO} to {RUST}: above 1 in 35 of 36 cells, below in 1; median 1.200");
    assert!(figure.starts_with(&start), "{figure}");
}

/// A jump is at least twice the time.
#[test]
fn a_jump_is_a_jump() {
    type By = fn(At) -> f64;
    let cases: [(By, ClaimVerdict); 4] = [
        (|_| 10.0, Confirmed),
        (|_| 1.0, Refuted),
        (|_| 0.2, Refuted),
        // Some jump, and as many do the opposite.
        (|at| if at.is_put { 10.0 } else { 0.5 }, Undecided),
    ];
    for (by, verdict) in cases {
        let many = |at: At| if at.connections >= 1000 { by(at) } else { 1.0 };
        let rows = record(|at| CellFigures { request_ms: 10.0 * many(at), ..as_claimed(at) });
        let claim = judged(&rows, "jumps");
        assert_eq!(claim.verdict, verdict, "{claim:?}");
        assert!(claim.figure.starts_with("request (ms), connections 1000 to connections 100: median "), "{claim:?}");
    }
}

/// The record, with a full client at these pool sizes.
fn with_full_client(mut rows: Vec<ClaimRow>, pools: &[f64]) -> Vec<ClaimRow> {
    rows.iter_mut().filter(|row| pools.contains(&number(row, "workers"))).for_each(|row| set(row, CLIENT_FULL, 1.0));
    rows
}

/// A full client makes all servers look alike.
#[test]
fn a_full_client_refutes_nothing() {
    let alike =
        |at: At| CellFigures { request_ms: at.connections as f64, connect_ms: 1.0, received: 1000.0, ..as_claimed(at) };
    let concerned = ["faster", "received", "sent", "jumps", "(connecting)", "processing"];
    let with_room = verdicts(&record(alike));
    // A sixth of the cells is not enough, a third is.
    let (sixth_full, third_full) =
        (with_full_client(record(alike), &[2.0]), with_full_client(record(alike), &[2.0, 4.0]));
    assert_eq!(verdicts(&sixth_full), with_room);
    for (claim, with_room) in claims(&third_full).into_iter().zip(with_room) {
        let is_concerned = concerned.iter().any(|name| claim.claim.contains(name));
        assert_eq!(claim.figure.contains("the client was full in 33 %"), is_concerned, "{claim:?}");
        if is_concerned {
            let with_more = if claim.claim.contains("jumps") { Confirmed } else { Refuted };
            assert_eq!((with_room, claim.verdict), (with_more, Undecided), "{claim:?}");
        } else {
            assert_eq!(claim.verdict, with_room, "{claim:?}");
        }
    }
    // A full client does not explain the opposite difference.
    let opposite =
        |at: At| CellFigures { request_ms: if at.is_go { 1.0 } else { 2.0 } * at.connections as f64, ..alike(at) };
    assert_eq!(judged(&with_full_client(record(opposite), &[2.0, 4.0]), "faster").verdict, Refuted);
    // A difference is real if a full client does not hide it. But the client's own time grows with the connections too.
    let different = with_full_client(record(as_claimed), &[2.0, 4.0]);
    let expected = [Confirmed, Confirmed, Confirmed, Undecided, Confirmed, Confirmed];
    for (name, verdict) in concerned.into_iter().zip(expected) {
        assert_eq!(judged(&different, name).verdict, verdict, "{name}");
    }
}

#[test]
fn a_full_client_counts_where_the_claim_is() {
    let full_at = |connections: f64| {
        let mut rows = record(as_claimed);
        for row in rows.iter_mut().filter(|row| number(row, "connections") == connections) {
            set(row, CLIENT_FULL, 1.0);
            set(row, "processing_ms", 1.0);
        }
        rows
    };
    assert_eq!(judged(&full_at(1000.0), "processing").verdict, Undecided);
    assert_eq!(judged(&full_at(10.0), "processing").verdict, Confirmed);
    assert_eq!(judged(&full_at(10.0), "jumps").verdict, Confirmed);
    assert_eq!(judged(&full_at(100.0), "jumps").verdict, Undecided);
}

#[test]
fn where_the_cores_are_full_the_time_of_a_request_stands_for_them() {
    let full = |at: At| CellFigures { cpu_pct: 399.0, cpu_us: 10.0 + at.pool as f64, ..as_claimed(at) };
    let all = claims(&record(full));
    assert!(all[0].figure.contains("full in 100 %") && all[0].verdict == Confirmed, "{:?}", all[0]);
}

#[test]
fn growth_is_fitted_through_all_points() {
    let factors = |figures: &[f64]| -> Vec<f64> {
        let cell = |(value, workers): (&f64, f64)| CellMedian {
            cell: [("workers".to_owned(), AxisValue::Number(workers)), ("connections".to_owned(), 10.0.into())].into(),
            value: *value,
            rounds: 1,
        };
        let cells: Vec<CellMedian> = figures.iter().zip([2.0, 4.0, 8.0, 16.0]).map(cell).collect();
        series(&cells, "workers").iter().map(|growth| growth.factor).collect()
    };
    assert!((factors(&[1.0, 2.0, 4.0, 8.0])[0] - 8.0).abs() < 1e-9);
    assert!((factors(&[3.0, 3.0, 3.0])[0] - 1.0).abs() < 1e-9);
    assert!(factors(&[1.0, 2.0]).is_empty());
    assert!(factors(&[4.0, 3.0, 2.0, 1.9])[0] < 0.6);
}

/// The published tables have no control, so every difference in them counts, and they do not state the number of cores.
#[test]
fn the_published_tables_are_judged_by_the_same_rules() {
    let definition = definition();
    let rows: Vec<ClaimRow> = definition.published.iter().flat_map(|one| one.claim_rows().unwrap()).collect();
    let of = |name: &str| rows.iter().filter(|row| row.contestant == name).count();
    assert_eq!((of(RUST), of(RUST_DEBUG), of(GO)), (36, 36, 36));
    let mut set = ClaimSet { name: "matrix".into(), baseline: None, claims: definition.claims };
    set.claims.iter_mut().for_each(|claim| claim.least = Some(1));
    let verdicts: Vec<ClaimVerdict> = set.verdicts(&rows, 0).iter().map(|claim| claim.verdict).collect();
    let expected = [
        Undecided, // CPU grows with the pool: its error is too large for 28 claims
        Undecided, Undecided, // the number of cores is not published
        Confirmed, // CPU falls as connections grow
        Undecided, // memory grows with the pool: it does in Rust
        Confirmed, // more steeply in Rust
        Confirmed, // less memory
        Refuted,   // faster in every case: not in 3 of 36
        Confirmed, Undecided, // received; sent in 18 cells only
        Confirmed, // a jump
        Undecided, Undecided, // connecting and processing
        Confirmed, // PUT costs more
    ];
    assert_eq!(verdicts, [expected, expected].concat());
}

/// The published columns agree with each other, so they are what they are taken for.
#[test]
fn the_published_columns_agree() {
    let definition = definition();
    let rows: Vec<ClaimRow> = definition.published.iter().flat_map(|one| one.claim_rows().unwrap()).collect();
    for row in &rows {
        let figure = |name: &str| *row.figures.get(name).unwrap_or_else(|| panic!("{name}: {row:?}"));
        let Some(AxisValue::Number(connections)) = row.cell.get("connections") else { panic!("{row:?}") };
        let (mean, shown) = (figure("total_s") * 1000.0 * connections / figure("requests"), figure("per_request_ms"));
        assert!((mean - shown).abs() < 0.01 * mean + 0.001, "{row:?}");
        // Means: the sum of the parts, each rounded to a millisecond, is the whole.
        assert!((figure("connect_ms") + figure("processing_ms") - shown).abs() <= 2.0, "{row:?}");
    }
}
