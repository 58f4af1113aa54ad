//! `polyserve report`: pages of records that other tests' experiments leave, and what is spliced of them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{misused, printed, run, text};

/// Real records, and a place of this test's own.
const RECORDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/records");

fn place(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("a path of ours is text")
}

/// How the page looks and works is `ci/browser.sh`'s.
#[test]
fn all_records_of_a_directory_make_one_page() {
    let page = place("page").join("page.html");
    let said = printed(&["report", RECORDS, "--json", "--html", shown(&page)]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["html"], shown(&page));
    let records = said["records"].as_array().unwrap();
    assert_eq!(records.len(), fs::read_dir(RECORDS).unwrap().filter(|file| is_record(file.as_ref().unwrap())).count());
    for record in records {
        let tables = record["tables"].as_array().unwrap();
        assert!(!tables.is_empty() && record["lines"].as_u64() > Some(1), "{record}");
    }
    let page = fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("default-src 'none'"));
    for record in records {
        // The file and its directory, and not where that is.
        let file = record["file"].as_str().unwrap();
        let short = file.rsplitn(3, '/').take(2).collect::<Vec<_>>();
        assert!(page.contains(&format!("{}/{}", short[1], short[0])) && !page.contains(file), "{record}");
    }
}

#[test]
fn claims_are_spliced_with_their_verdicts() {
    let dir = place("claims");
    fs::copy(Path::new(RECORDS).join("tasks.jsonl"), dir.join("tasks.jsonl")).unwrap();
    let page = dir.join("docs.md");
    fs::write(&page, "<!-- claims of tasks.jsonl -->\n<!-- end -->\n").unwrap();
    printed(&["report", "--splice", shown(&page)]);
    let said = fs::read_to_string(&page).unwrap();
    let rows: Vec<&str> = said.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
    let verdicts = ["| confirmed |", "| refuted |", "| undecided |"];
    assert!(rows.len() > 1, "{said}");
    assert!(rows.iter().all(|row| verdicts.iter().any(|verdict| row.contains(verdict))), "{said}");
}

/// As a run leaves it that was killed in the middle of a line.
#[test]
fn a_run_that_was_cut_off_is_shown_and_marked() {
    let dir = place("cut");
    let text = fs::read_to_string(Path::new(RECORDS).join("page.jsonl")).unwrap();
    // Records of older formats do not have a line that says how the run ended.
    let text = text.replacen(r#""experiment":"page""#, r#""experiment":"page","format":3"#, 1);
    fs::write(dir.join("page.jsonl"), &text[..text.len() / 2]).unwrap();
    let said = printed(&["report", shown(&dir), "--json", "--html", shown(&dir.join("page.html"))]);
    let said: Value = serde_json::from_str(&said).unwrap();
    let short_of = said["records"][0]["short_of"].as_str().unwrap();
    assert!(short_of == "the run has not ended, or it was killed", "{short_of}");
    assert!(fs::read_to_string(dir.join("page.html")).unwrap().contains(short_of));
}

fn is_record(file: &fs::DirEntry) -> bool {
    file.path().extension().is_some_and(|extension| extension == "jsonl")
}

/// The page goes where the command is run, and people are told.
#[test]
fn by_default_it_is_made_here() {
    let here = place("here");
    let output = super::polyserve(&["report", RECORDS]).current_dir(&here).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().last(), Some("report.html"));
    assert!(here.join("report.html").is_file());
}

#[test]
fn pages_are_spliced_and_checked() {
    let dir = place("splice");
    fs::copy(Path::new(RECORDS).join("page.jsonl"), dir.join("page.jsonl")).unwrap();
    let page = dir.join("docs.md");
    let before = "before\n\n<!-- table cell of page.jsonl -->\n<!-- end -->\n\nafter\n";
    fs::write(&page, before).unwrap();
    let check = || run(&["report", "--splice", shown(&page), "--check"]);
    let output = check();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(said.contains("docs.md: tables as their records said: 0 of 1\n"), "{said}");
    assert!(said.contains("docs.md: table cell of page.jsonl: differs from its record"), "{said}");
    assert!(said.lines().any(|line| line.starts_with("+| ")), "{said}");
    assert_eq!(fs::read_to_string(&page).unwrap(), before, "a check writes nothing");

    printed(&["report", "--splice", shown(&page)]);
    let after = fs::read_to_string(&page).unwrap();
    let (head, tail) = ("before\n\n<!-- table cell of page.jsonl -->\n\n| ", "<!-- end -->\n\nafter\n");
    assert!(after.starts_with(head) && after.ends_with(tail), "{after}");
    assert!(after.contains("\n`polyserve page "), "{after}");
    let output = check();
    assert!(output.status.success());
    assert!(text(&output.stdout).ends_with("docs.md: tables as their records say: 1\n"), "{}", text(&output.stdout));
    printed(&["report", "--splice", shown(&page)]);
    assert_eq!(fs::read_to_string(&page).unwrap(), after);

    fs::write(&page, after.replace("| ---: |", "| 7 |")).unwrap();
    assert_eq!(check().status.code(), Some(1));

    // What looks at nothing says so.
    fs::write(&page, "no marker\n").unwrap();
    let output = run(&["report", "--splice", shown(&page), "--check", "--json"]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), said["pages"][0]["tables"].as_u64()), (Some(0), Some(0)));
    assert!(text(&check().stdout).ends_with("docs.md: no table of a record\n"));
}

#[test]
fn charts_are_spliced_and_checked() {
    let dir = place("charts");
    fs::copy(Path::new(RECORDS).join("stores-workers.jsonl"), dir.join("stores-workers.jsonl")).unwrap();
    let page = dir.join("docs.md");
    fs::write(&page, "<!-- chart workers read uniform of stores-workers.jsonl -->\n<!-- end -->\n").unwrap();
    let check = || run(&["report", "--splice", shown(&page), "--check"]);
    assert_eq!(check().status.code(), Some(1));
    assert!(!dir.join("charts").exists(), "a check writes nothing");
    printed(&["report", "--splice", shown(&page)]);
    let output = check();
    assert!(output.status.success(), "{}", text(&output.stdout));
    let said = text(&output.stdout);
    assert!(said.ends_with("docs.md: tables and charts as their records say: 1\n"), "{said}");

    let link = "charts/stores-workers-workers-read-uniform.svg";
    assert!(fs::read_to_string(&page).unwrap().contains(&format!("]({link})\n\n`polyserve scale ")));
    let file = dir.join(link);
    let svg = fs::read_to_string(&file).unwrap();
    fs::write(&file, svg.replace("bare/dashmap", "dashmap/bare")).unwrap();
    let output = check();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("dashmap/bare</text>"), "{}", text(&output.stdout));
    fs::remove_file(&file).unwrap();
    let output = check();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains(&format!("+{link}, ")), "{}", text(&output.stdout));
    assert!(!file.exists());
    let output = run(&["report", "--splice", shown(&page), "--json"]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), said["pages"][0]["charts"][0].as_str()), (Some(0), Some(link)));
    assert_eq!(fs::read_to_string(&file).unwrap(), svg);
}

#[test]
fn what_cannot_be_done_is_a_misuse() {
    let dir = place("misuse");
    let page = dir.join("docs.md");
    let spliced = |text: &str| {
        fs::write(&page, text).unwrap();
        misused(&["report", "--splice", shown(&page)])
    };
    assert!(spliced("<!-- table a of none.jsonl -->\n<!-- end -->\n").contains("there is no record"));
    assert!(spliced("<!-- table a of none.jsonl -->\n").contains("docs.md: line 1: "));
    fs::copy(Path::new(RECORDS).join("page.jsonl"), dir.join("page.jsonl")).unwrap();
    let said = spliced("<!-- table nothing of page.jsonl -->\n<!-- end -->\n");
    assert!(said.contains("there is no table \"nothing\"") && said.contains("cell"), "{said}");
    let said = spliced("<!-- chart workers read of page.jsonl -->\n<!-- end -->\n");
    assert!(said.contains("there is no chart \"workers read\""), "{said}");
    for (args, why) in [
        (&[][..], "required"),
        (&["--check"], "required"),
        (&["--splice=/no/such/page.md"], "/no/such/page.md"),
        (&["/no/such/dir"], "/no/such/dir"),
        (&[concat!(env!("CARGO_MANIFEST_DIR"), "/src")], "there is no record in"),
    ] {
        let said = misused(&[&["report"], args].concat());
        assert!(said.contains(why), "{args:?}: {said}");
    }
}
