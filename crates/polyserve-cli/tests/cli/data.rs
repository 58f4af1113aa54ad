use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use super::{Dir, polyserve, printed};

#[test]
fn ids_count_up_and_the_seed_decides_the_rest() {
    let csv = printed("data --count 300 --seed 7");
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("id,description,value"));
    assert!(lines.map(|line| line.split(',').next().unwrap().parse::<i64>().unwrap()).eq(0..300));
    assert!(csv.starts_with(&printed("data --count 50 --seed 7")), "fewer ids are the first ones");
    assert_ne!(csv, printed("data --count 300 --seed 8"));
}

#[test]
fn updates_are_two_lines_an_id() {
    let csv = printed("data --count 3 --first-id -1 --updates --no-header");
    let ids: Vec<&str> = csv.lines().map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(ids, ["-1", "-1", "0", "0", "1", "1"]);
    let lines: std::collections::HashSet<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 6, "the two updates differ");
}

#[test]
fn a_file_has_what_standard_output_would() {
    let dir = Dir::new("data");
    dir.write("data.csv", "");
    assert_eq!(printed(&format!("data --count 20 --out {dir}/data.csv")), "");
    assert_eq!(dir.read("data.csv"), printed("data --count 20"));
}

#[test]
fn json_lines_are_entities() {
    for line in printed("data --count 5 --json").lines() {
        let entity: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(entity["id"].is_i64() && entity["description"].is_string() && entity["value"].is_f64(), "{line}");
    }
}

/// Regression test: `polyserve data --count 1000000 | head` panicked, as `println!` does.
#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let mut command = polyserve("data --count 9000000000000000000");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(line, "id,description,value\n");
}
