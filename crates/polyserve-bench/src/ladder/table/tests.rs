//! The tables of the ladder.

use crate::compare::ranking::BUSY;
use serde_json::Value;

use super::*;
use crate::ladder::fixtures::{cell, contestant, results};

fn lines() -> Vec<Value> {
    let mut lines = vec![
        contestant("go-fasthttp", "reference", None, None),
        contestant("warp", "rung", None, None),
        contestant("warp (again)", "control", None, None),
        contestant("warp+lto", "rung", Some("lto"), Some("warp")),
        contestant("go-nethttp", "reference", None, None),
    ];
    let speeds =
        [("go-fasthttp", 88.0), ("go-nethttp", 44.0), ("warp", 100.0), ("warp (again)", 100.0), ("warp+lto", 110.0)];
    for round in 1..=10 {
        lines.extend(speeds.map(|(name, speed)| cell(name, round, speed)));
    }
    lines
}

#[test]
fn rows_and_csv() {
    let rows = rows(&results(&lines()));
    let names: Vec<&str> = rows.iter().map(|row| row.rung.as_str()).collect();
    assert_eq!(names, ["warp", "warp (again)", "warp+lto", "go-fasthttp", "go-nethttp"]);
    let lto = &rows[2];
    assert_eq!((lto.ratio, lto.cumulative, lto.against_fasthttp), (Some(1.1), Some(1.1), Some(1.25)));
    let nethttp = [lto.against_nethttp, lto.against_nethttp_low, lto.against_nethttp_high];
    assert_eq!((nethttp, rows[1].against_nethttp_low), ([Some(2.5); 3], None));
    assert_eq!((rows[0].ratio, rows[1].ratio, rows[3].ratio), (None, Some(1.0), None));
    let csv = csv(&rows).unwrap();
    let header = LADDER.lines().next().unwrap();
    assert!(csv.starts_with(&format!("{header},")) && csv.contains("\nwarp+lto,110.0,1.0,"), "{csv}");
}

/// A cost is marked unless the server was full and the client was not.
#[test]
fn a_cost_that_cannot_be_compared_is_marked() {
    let mut rows = rows(&results(&lines()));
    let mut cost = |server_busy, client_busy| {
        (rows[0].server_busy, rows[0].client_busy) = (server_busy, client_busy);
        rows[0].requests_per_cpu_s = Some(2000.0);
        ladder(&rows).rows()[1][3].clone()
    };
    assert_eq!(cost(Some(BUSY), Some(0.5)), "2,000");
    for (server, client) in [(Some(0.9), Some(0.5)), (Some(0.99), Some(0.99)), (None, Some(0.5)), (Some(0.99), None)] {
        assert_eq!(cost(server, client), "~2,000", "{server:?} {client:?}");
    }
}

#[test]
fn the_published_ladder_has_our_ratios() {
    let results = results(&lines());
    let tables = tables(&rows(&results), &results).unwrap();
    let [(_, ladder), (_, waterfall), (_, published)] = &tables[..] else { panic!("{tables:?}") };
    assert!(ladder.to_string().contains("1.100 [1.100, 1.100]"), "{ladder}");
    assert!(waterfall.to_string().contains(&format!("+10.0 %  +10.0 %          {}\n", "#".repeat(40))), "{waterfall}");
    let published = published.wide();
    let row = published.lines().find(|line| line.starts_with("warp+lto ")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    let expected = ["warp+lto", "1,099,343", "139.44", "1.052", "1.100", "[1.100,", "1.100]", "0.953", "1.250"];
    assert_eq!(cells[..expected.len()], expected, "{published}");
    assert_eq!(published.lines().count(), 7);
}

/// tokio has the last published step today, and our rung reverts the step.
#[test]
fn the_step_that_tokio_has_is_compared_the_other_way_round() {
    let with = "warp+lto+jemalloc+pipeline-flush";
    let without = format!("{with}+waker-array");
    let mut lines = lines();
    lines.extend([
        contestant(with, "rung", Some("pipeline-flush"), Some("warp+lto")),
        contestant(&without, "rung", Some("waker-array"), Some(with)),
    ]);
    for round in 1..=10 {
        lines.extend([cell(with, round, 100.0), cell(&without, round, 80.0)]);
    }
    let published = published(&results(&lines)).unwrap();
    let row = published.rows().last().unwrap();
    assert_eq!((row[0].as_str(), row[3].as_str()), (format!("{with}{IN_TOKIO}").as_str(), "1.029"));
    assert!(row[4].starts_with("1.250 ") && row[6].starts_with("1.136 "), "{row:?}");
    let ratio = published_ratio().unwrap();
    let [there, back] = [ratio(&format!("{with}{IN_TOKIO}"), with).unwrap(), ratio(&without, with).unwrap()];
    assert!((there * back - 1.0).abs() < 1e-9, "{there} {back}");
    assert_eq!(ratio("warp", "another"), None);
}
