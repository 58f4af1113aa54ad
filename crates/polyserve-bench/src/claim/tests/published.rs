//! The claims of the definitions `ladder`, `page` and `page-workers`, on made-up rows with the published figures, and with others.

use std::path::Path;

use super::*;
use crate::bench::Definition;

/// A definition, and how far the rounds of its contestants lie apart.
const LADDER: (&str, &str, f64) = ("ladder.toml", include_str!("../../../defs/ladder.toml"), 0.002);
const PAGE: (&str, &str, f64) = ("page.toml", include_str!("../../../defs/page.toml"), 0.000_05);
const PAGE_WORKERS: (&str, &str, f64) = ("page-workers.toml", include_str!("../../../defs/page-workers.toml"), 0.0);

fn claims((file, text, _): (&str, &str, f64)) -> Vec<ClaimDefinition> {
    Definition::parse(Path::new(file), text, &[]).unwrap().claims
}

/// A published ratio. "less" is a half here.
fn published_ratio(claim: &ClaimDefinition) -> f64 {
    match claim.published.as_deref() {
        Some("less") => 0.5,
        Some(text) => text.parse().unwrap_or(1.0),
        None => panic!("{}: nothing is published", claim.text),
    }
}

/// Rows of the published cells, of a left side that differs from the right side by this factor.
fn rows_of(claim: &ClaimDefinition, ratio: f64, rounds: usize, spread: f64) -> Vec<ClaimRow> {
    let right = claim.right.as_deref().unwrap();
    let (second, left) = (format!("{right} (again)"), &claim.left.all()[0]);
    let all = [(right, 1.0), (second.as_str(), 1.0), (left, ratio)];
    let rows = all.into_iter().flat_map(|(name, speed)| rows(name, rounds, speed, spread));
    let of_cell = |row: ClaimRow| {
        let (row, figure) = (row.at("connections", 1000.0).at("source", "file"), claim.figure.as_str());
        let speed = row.figures["speed"];
        row.with(figure, speed).with("wait_s", 2.0).with(SERVER_BUSY, 1.0).with(CLIENT_BUSY, 0.5)
    };
    rows.map(of_cell).collect()
}

#[test]
fn a_published_ratio_is_confirmed_and_another_is_not() {
    for file in [LADDER, PAGE] {
        let claims: Vec<ClaimDefinition> = claims(file).into_iter().filter(|claim| claim.right.is_some()).collect();
        assert!(claims.len() >= 5, "{claims:?}");
        for claim in claims {
            let set = ClaimSet { name: "any".into(), baseline: claim.right.clone(), claims: vec![claim.clone()] };
            let verdict = |rows: &[ClaimRow]| judged(&set, rows).verdict;
            let (ratio, spread) = (published_ratio(&claim), file.2);
            let rows = |ratio, rounds, spread| rows_of(&claim, ratio, rounds, spread);
            assert_eq!(verdict(&rows(ratio, 12, spread)), Confirmed, "{}", claim.text);
            assert_eq!(verdict(&rows(ratio.max(1.0) * 1.2, 12, spread)), Refuted, "{}", claim.text);
            assert_eq!(verdict(&rows(ratio, 9, spread)), Undecided, "{}", claim.text);
            let in_noise = if ratio > 0.5 { Undecided } else { Confirmed };
            assert_eq!(verdict(&rows(ratio, 12, 0.3)), in_noise, "{}", claim.text);
            // The published load has another number of connections, sends one request at a time, and reads a file.
            let elsewhere = rows(ratio, 12, spread).into_iter();
            let elsewhere = elsewhere.map(|row| row.at("connections", 64.0).at("source", "memory"));
            assert_eq!(verdict(&elsewhere.collect::<Vec<_>>()), Undecided, "{}", claim.text);
            let pipelined = rows(ratio, 12, spread).into_iter().map(|row| row.at("pipeline", 16.0));
            let expected = if file.0 == LADDER.0 { Undecided } else { Confirmed };
            assert_eq!(verdict(&pipelined.collect::<Vec<_>>()), expected, "{}", claim.text);
        }
    }
}

/// The waits decide: each server answers nearly as many requests as its workers and its connections can ask for, and no more.
#[test]
fn a_bound_is_reached_and_not_exceeded() {
    for (file, number, least) in [(PAGE, 1, 10), (PAGE_WORKERS, 3, 1)] {
        let claims: Vec<ClaimDefinition> = claims(file).into_iter().filter(|claim| claim.right.is_none()).collect();
        assert_eq!(claims.len(), number);
        for claim in claims {
            let set = ClaimSet { name: "any".into(), baseline: None, claims: vec![claim.clone()] };
            let verdict = |share: f64, wait_s: f64, rounds: usize| {
                let row = |name: &String, round| {
                    let row = ClaimRow::new(name.replace('*', "any"), round).at("workers", 8.0).at("source", "file");
                    row.with("wait_s", wait_s).with(&claim.figure, share)
                };
                let rows = claim.left.all().iter().flat_map(|name| (1..=rounds).map(move |round| row(name, round)));
                judged(&set, &rows.collect::<Vec<_>>()).verdict
            };
            let text = &claim.text;
            assert_eq!(verdict(0.98, 2.0, least), Confirmed, "{text}");
            assert_eq!([verdict(1.125, 2.0, least), verdict(0.5, 2.0, least)], [Refuted; 2], "{text}");
            assert_eq!(verdict(0.98, 0.2, least), Undecided, "{text}: with short waits the client may be the limit");
            assert_eq!(verdict(0.98, 2.0, least - 1), Undecided, "{text}");
        }
    }
}
