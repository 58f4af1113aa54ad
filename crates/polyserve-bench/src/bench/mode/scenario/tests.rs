use serde_json::{Value, json};

use super::*;
use crate::bench::{BenchResult, Definition, NAME, Report};
use crate::fixtures;
use crate::report::{Claim, ClaimVerdict};

/// The listings.
const RUST: &str = "twin/entity";
const GO: &str = "go/entity-rwmutex";

/// A round of this contestant, with this number of errors and of refused requests.
fn lines(contestant: &str, connection_use: &str, requests: u64, errors: u64, refused: u64) -> [Value; 2] {
    let key = Key {
        contestant: contestant.into(),
        cell: SweepCell::from([(SweepAxis::ConnectionUse, connection_use.into())]),
        round: 1,
    };
    let group = |phase: &str| GroupOutcome {
        phase: phase.into(),
        samples: 100,
        requests_per_s: 1234.5,
        received_kb_s: 60.0,
        sent_kb_s: 70.0,
        ..GroupOutcome::default()
    };
    let groups = [group("put-new"), group("get"), group("put-update")];
    let total = GroupOutcome { samples: requests, refused, ..group("total") };
    let groups = groups.into_iter().chain([total]).collect();
    let outcome = RoundOutcome { groups, error_count: errors, ..RoundOutcome::default() };
    let sample = Sample { role: Role::Ranked, figures: figures_of(&outcome) };
    let errors = if errors > 0 { vec![String::from("get of 5: status 500")] } else { Vec::new() };
    let round = ScenarioRound { key: key.clone(), groups: outcome.groups, errors };
    let mut row = crate::journal::as_line("row", &sample).unwrap();
    let key = serde_json::to_value(&key).unwrap();
    for field in ["contestant", "cell", "round"] {
        row[field] = key[field].clone();
    }
    [crate::journal::as_line(ROUND, &round).unwrap(), row]
}

/// The record of these lines. The planned contestants may lack rounds.
fn records(contestants: &[&str], lines: &[Value]) -> Records {
    let definition = Definition::read("stress", &[]).unwrap();
    let plan = json!({
        "name": "stress", "about": "", "workload": "", "mode": "scenario", "compared": figures::ERRORS,
        "axes": ["connection_use"], "contestants": contestants, "baseline": contestants[0], "charts": [], "quick": false,
        "rounds": 1, "definition": definition.table, "settings": {},
    });
    fixtures::records(&fixtures::header(NAME, plan), lines).unwrap()
}

/// A run that cannot answer the claims says so once, and has none.
#[test]
fn a_run_that_cannot_answer_the_claims_says_so() {
    let lines = [lines(RUST, "burst", 40_000, 0, 0)];
    let mut records = records(&[RUST, GO], lines.as_flattened());
    let report = Report::of(&records).unwrap();
    assert!(report.claims.len() == 2 && !report.answer.contains("claims"), "{}", report.answer);
    records.header.plan["quick"] = true.into();
    let report = Report::of(&records).unwrap();
    assert!(report.claims.is_empty());
    assert!(report.answer.ends_with("The quick part answers none of the definition's claims."));
    assert_eq!(report.to_string().matches("claims").count(), 1, "{report}");
    records.header.plan["quick"] = false.into();
    records.header.plan["definition"]["claim"][1]["left"] = "go/another".into();
    let report = Report::of(&records).unwrap();
    assert_eq!(report.claims.len(), 1);
    let unanswered = "This run, of 1 round and 2 contestants, answers 1 of the definition's 2 claims.";
    assert!(report.answer.ends_with(unanswered), "{}", report.answer);
}

fn claims(contestants: &[&str], lines: &[[Value; 2]]) -> Vec<Claim> {
    Report::of(&records(contestants, lines.as_flattened())).unwrap().claims
}

fn verdicts(lines: &[[Value; 2]]) -> [ClaimVerdict; 2] {
    let claims = claims(&[RUST, GO], lines);
    [claims[0].verdict, claims[1].verdict]
}

/// Whether the command succeeds with this report.
fn is_passed(report: &Report) -> bool {
    BenchResult::Report(Box::new(report.clone())).is_passed()
}

#[test]
fn rounds_of_the_published_size_decide() {
    let (undecided, confirmed, refuted) = (ClaimVerdict::Undecided, ClaimVerdict::Confirmed, ClaimVerdict::Refuted);
    assert_eq!(verdicts(&[]), [undecided; 2]);
    assert_eq!(verdicts(&[lines(RUST, "burst", 400, 0, 0), lines(GO, "close", 40_000, 0, 0)]), [undecided; 2]);
    let good = [lines(RUST, "burst", 40_000, 0, 0), lines(GO, "burst", 40_000, 0, 0)];
    assert_eq!(verdicts(&good), [confirmed; 2]);
    let debug = format!("{RUST}-debug-printing");
    let wrong = [good[0].clone(), lines(&debug, "burst", 40_000, 3, 0), good[1].clone()];
    assert_eq!(verdicts(&wrong), [refuted, confirmed]);
    let figure = &claims(&[RUST, GO], &wrong)[0].figure;
    assert_eq!(figure, &format!("errors: 1 of 2 rounds not as claimed: {debug} 3"));
    let others = [lines("tokio_tcp/two_level", "burst", 40_000, 3, 0), lines("go/nethttp", "burst", 40_000, 0, 0)];
    assert_eq!(verdicts(&others), [undecided; 2], "not the published servers");
}

/// The published servers refused nothing.
#[test]
fn a_round_with_refused_requests_decides_nothing() {
    let refusing = lines(RUST, "burst", 40_000, 0, 7);
    let claim = claims(&[RUST], std::slice::from_ref(&refusing)).remove(0);
    assert!(claim.figure.ends_with("; 1 round without it: it had 503s from a full queue"), "{claim:?}");
    assert_eq!(claim.verdict, ClaimVerdict::Undecided);
    let both = [refusing, lines(&format!("{RUST}-debug-printing"), "burst", 40_000, 0, 0)];
    let claims = claims(&[RUST], &both);
    assert_eq!((claims.len(), claims[0].verdict), (1, ClaimVerdict::Confirmed), "no server in Go took part");
    assert!(claims[0].figure.starts_with("errors: 0 in 1 round; "), "{claims:?}");
}

/// An error counts even if its round had refused requests.
#[test]
fn a_round_with_refused_requests_and_an_error_refutes() {
    let claims = claims(&[RUST], &[lines(RUST, "burst", 40_000, 1, 7)]);
    assert_eq!(claims[0].verdict, ClaimVerdict::Refuted, "{claims:?}");
}

/// A round with errors fails the run, and its contestant is named. It has figures, so it is not measured again.
#[test]
fn a_contestant_with_errors_has_not_passed() {
    let both = [lines("a/any", "close", 40, 0, 0), lines("b/any", "close", 40, 2, 0)];
    let records = records(&["a/any", "b/any"], both.as_flattened());
    let report = Report::of(&records).unwrap();
    assert!(!is_passed(&report));
    assert_eq!(report.answer, "1 of 2 contestants failed: `b/any`.");
    assert_eq!(
        (report.errors.len(), report.errors[0].key.contestant.as_str(), report.errors[0].count),
        (1, "b/any", 2)
    );
    let text = report.to_string();
    assert!(text.contains("error: round 1: b/any, connection_use close: get of 5: status 500"), "{text}");
    assert!(text.contains("and 1 more errors of round 1: b/any"), "{text}");
    assert!(report.rows.iter().all(|row| row.figures.contains_key(figures::REQUESTS_PER_S)), "{report:?}");
    let good = records_of(&both[..1]);
    let report = Report::of(&good).unwrap();
    assert!(is_passed(&report) && report.answer.starts_with("No request had a wrong answer"));
}

fn records_of(lines: &[[Value; 2]]) -> Records {
    records(&["a/any"], lines.as_flattened())
}

/// Refusals alone verify nothing.
#[test]
fn a_contestant_without_a_verified_answer_has_not_passed() {
    let report = Report::of(&records_of(&[lines("a/any", "burst", 40, 0, 40)])).unwrap();
    assert!(!is_passed(&report));
    assert!(report.to_string().contains("a/any, connection_use burst: no answer was verified"), "{report}");
}

#[test]
fn a_server_that_cannot_be_tested_has_not_passed() {
    let failure = json!({
        "kind": "failure", "contestant": "b/any", "cell": {"connection_use": "close"}, "round": 1, "reason": "failed",
        "why": "no memory",
    });
    let records = records(&["a/any"], &[&lines("a/any", "close", 40, 0, 0)[..], &[failure]].concat());
    let report = Report::of(&records).unwrap().to_string();
    assert!(records.is_failed());
    assert!(report.contains("no figures: round 1: b/any, connection_use close: no memory"), "{report}");
}

/// A record can have two lines about a round, if the first run was killed before the second line of the round.
#[test]
fn the_last_line_about_a_round_counts() {
    let [mut first, row] = lines("a/any", "close", 40, 0, 0);
    let [last, _] = lines("a/any", "close", 40, 0, 0);
    first["groups"][0]["samples"] = 7.into();
    let rounds = rounds(&records(&["a/any"], &[first, last, row])).unwrap();
    assert_eq!((rounds.len(), rounds[0].groups[0].samples), (1, 100));
}

#[test]
fn the_published_rows_stand_above_ours_of_their_mode() {
    let both = [lines("some/any", "burst", 400, 0, 0), lines("some/any", "close", 400, 0, 0)];
    let records = records(&["some/any"], both.as_flattened());
    let tables = tables(&records).unwrap();
    let [(burst, rows), (_, close)] = &tables[..] else { panic!("{tables:?}") };
    assert_eq!(burst, "groups, connection_use burst");
    let rows = rows.rows();
    assert_eq!((rows.len(), close.rows().len()), (1 + 8 + 4, 1 + 4));
    assert_eq!(rows[4], ["rust (published)", "total", "40,000", "0", "0.00", "882", "57", "185"]);
    assert_eq!(rows[8], ["go (published)", "total", "40,000", "0", "0.00", "1,663", "107", "349"]);
    assert_eq!(rows[9], ["some/any", "put-new", "100", "0", "0.00", "1,234", "60", "70"]);
    let csv = groups_csv(&records).unwrap();
    assert_eq!(csv.lines().count(), 1 + 2 * 4);
    assert!(csv.starts_with(crate::published::STRESS.lines().next().unwrap()), "{csv}");
}

#[test]
fn each_figure_of_a_round_is_registered() {
    let drain = Some(DrainCounts { answered: 1, cut: 0, stuck: 0 });
    let groups = vec![GroupOutcome::default()];
    let figures = figures_of(&RoundOutcome { store_count: Some(1), drain, groups, ..RoundOutcome::default() });
    assert_eq!(figures.len(), 16);
    assert!(figures.keys().all(|name| figures::NamedFigure::named(name).is_some()), "{figures:?}");
}
