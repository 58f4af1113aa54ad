//! `polyserve report`: pages of recorded runs, and tables and charts that are spliced from them.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Dir, array, ended, has, json, misused, parsed, polyserve, printed, text};

/// Real records.
const RECORDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/records");

/// A directory with a copy of this record and with this page, `docs.md`.
fn place(record: &str, page: &str) -> Dir {
    static PLACES: AtomicUsize = AtomicUsize::new(0);
    let dir = Dir::new(&format!("report-{}", PLACES.fetch_add(1, Ordering::Relaxed)));
    dir.write("docs.md", page);
    fs::copy(Path::new(RECORDS).join(record), dir.path(record)).unwrap();
    dir
}

/// `ci/browser.sh` tests how the page looks and works.
#[test]
fn all_records_of_a_directory_make_one_page() {
    let dir = Dir::new("report-page");
    fs::create_dir_all(dir.path("")).unwrap();
    let html = dir.path("page.html");
    let output = polyserve("report --json").args([RECORDS, "--html"]).arg(&html).output().unwrap();
    let report = parsed(&output);
    assert_eq!(report["html"].as_str(), html.to_str());
    // The figures of claims are long: the text has their verdicts only, and each record is one line.
    let output = polyserve("report").args([RECORDS, "--html"]).arg(&html).output().unwrap();
    let lines = text(&output.stdout);
    assert!(lines.contains("; claims: ") && lines.contains(" refuted, "), "{lines}");
    assert_eq!(lines.lines().count(), array(&report["records"]).len() + 1, "{lines}");
    let records = array(&report["records"]);
    let files = fs::read_dir(RECORDS).unwrap().map(|file| file.unwrap().path());
    assert_eq!(records.len(), files.filter(|file| file.extension().is_some_and(|kind| kind == "jsonl")).count());
    for record in records {
        assert!(!array(&record["tables"]).is_empty() && record["lines"].as_u64() > Some(1), "{record}");
    }
    let page = dir.read("page.html");
    assert!(page.starts_with("<!doctype html>") && page.contains("default-src 'none'"));
    for record in records {
        // The page has the names of the file and its directory, and no longer path.
        let file = record["file"].as_str().unwrap();
        let short = file.rsplitn(3, '/').take(2).collect::<Vec<_>>();
        assert!(page.contains(&format!("{}/{}", short[1], short[0])) && !page.contains(file), "{record}");
    }
}

#[test]
fn claims_are_spliced_with_their_verdicts() {
    let dir = place("tasks.jsonl", "<!-- claims of tasks.jsonl -->\n<!-- end -->\n");
    printed(&format!("report --splice {dir}/docs.md"));
    let page = dir.read("docs.md");
    let mut rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
    let verdicts = ["confirmed", "refuted", "undecided"];
    let total = rows.pop().unwrap();
    assert!(rows.len() > 1, "{page}");
    let count = |verdict: &str| rows.iter().filter(|row| row.ends_with(&format!("| {verdict} |"))).count();
    let counts = verdicts.map(|verdict| format!("{} {verdict}", count(verdict))).join(", ");
    assert_eq!(total, format!("| in all | {} claims | {counts} |", rows.len()));
    assert_eq!(verdicts.map(count).iter().sum::<usize>(), rows.len(), "{page}");
}

/// A run that is killed can leave half a line.
#[test]
fn a_run_that_was_cut_off_is_shown_and_marked() {
    let dir = place("page.jsonl", "");
    let text = dir.read("page.jsonl");
    dir.write("page.jsonl", &text[..text.len() / 2]);
    let report = json(&format!("report {dir} --html {dir}/page.html"));
    let short_of = report["records"][0]["short_of"].as_str().unwrap();
    assert!(short_of == "the run has not ended, or it was killed", "{short_of}");
    has(&dir.read("page.html"), &[short_of]);
}

/// The page is written to the current directory, and the command prints its path.
#[test]
fn by_default_it_is_made_here() {
    let dir = place("page.jsonl", "here");
    let output = polyserve("report page.jsonl").current_dir(dir.path("")).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().last(), Some("report.html"));
    assert!(dir.path("report.html").is_file());
}

#[test]
fn pages_are_spliced_and_checked() {
    let before = "before\n\n<!-- table rows of page.jsonl -->\n<!-- end -->\n\nafter\n";
    let dir = place("page.jsonl", before);
    let check = |code: i32| text(&ended(code, &format!("report --splice {dir}/docs.md --check")).stdout);
    let output = check(1);
    has(&output, &["docs.md: tables that were up to date: 0 of 1\n"]);
    has(&output, &["docs.md: table rows of page.jsonl: differs from its record", "\n+| "]);
    assert_eq!(dir.read("docs.md"), before, "a check writes nothing");

    printed(&format!("report --splice {dir}/docs.md"));
    let after = dir.read("docs.md");
    let (head, tail) = ("before\n\n<!-- table rows of page.jsonl -->\n\n| ", "<!-- end -->\n\nafter\n");
    assert!(after.starts_with(head) && after.ends_with(tail), "{after}");
    has(&after, &["\n`polyserve page "]);
    assert!(check(0).ends_with("docs.md: tables up to date: 1\n"));
    printed(&format!("report --splice {dir}/docs.md"));
    assert_eq!(dir.read("docs.md"), after);

    dir.write("docs.md", after.replace("| ---: |", "| 7 |"));
    check(1);

    // The output states that no table was compared.
    dir.write("docs.md", "no marker\n");
    let report = json(&format!("report --splice {dir}/docs.md --check"));
    assert_eq!(report["pages"][0]["tables"], 0);
    assert!(check(0).ends_with("docs.md: no table from a record\n"));
}

#[test]
fn charts_are_spliced_and_checked() {
    let page = "<!-- chart operations/s, operation read of stores-workers.jsonl -->\n<!-- end -->\n";
    let dir = place("stores-workers.jsonl", page);
    let check = |code: i32| text(&ended(code, &format!("report --splice {dir}/docs.md --check")).stdout);
    check(1);
    assert!(!dir.path("charts").exists(), "a check writes nothing");
    printed(&format!("report --splice {dir}/docs.md"));
    assert!(check(0).ends_with("docs.md: tables and charts up to date: 1\n"));

    let link = "charts/stores-workers-operations-s--operation-read.svg";
    has(&dir.read("docs.md"), &[&format!("]({link})\n\n`polyserve scale ")]);
    let svg = dir.read(link);
    dir.write(link, svg.replace("bare/dashmap", "dashmap/bare"));
    has(&check(1), &["dashmap/bare</text>"]);
    // A file that is not text.
    dir.write(link, [0xff]);
    check(1);
    fs::remove_file(dir.path(link)).unwrap();
    has(&check(1), &[&format!("+{link}, ")]);
    assert!(!dir.path(link).exists());
    let report = json(&format!("report --splice {dir}/docs.md"));
    assert_eq!(report["pages"][0]["charts"][0], link);
    assert_eq!(dir.read(link), svg);
}

#[test]
fn two_charts_are_never_one_file() {
    let chart = |record: &str| format!("<!-- chart operations/s, operation insert of {record} -->\n<!-- end -->\n");
    let dir = place("stores-workers.jsonl", &chart("day/stores.jsonl"));
    let record = dir.read("stores-workers.jsonl");
    let less =
        record.lines().filter(|line| !line.contains("\"contestant\":\"std_mutex\"")).map(|line| format!("{line}\n"));
    dir.write("day/stores.jsonl", &record);
    dir.write("other/day/stores.jsonl", less.collect::<String>());
    dir.write("other.md", chart("other/day/stores.jsonl"));
    has(&misused(&format!("report --splice {dir}/docs.md {dir}/other.md")), &["two charts have the same file "]);
}

#[test]
fn a_marker_that_makes_no_sense_is_a_misuse() {
    for (page, why) in [
        ("<!-- table a of none.jsonl -->\n<!-- end -->\n", "there is no record"),
        ("<!-- table a of none.jsonl -->\n", "docs.md: line 1: "),
        ("<!-- table nothing of page.jsonl -->\n<!-- end -->\n", "there is no table \"nothing\""),
        ("<!-- table nothing of page.jsonl -->\n<!-- end -->\n", "rows"),
        ("<!-- chart workers read of page.jsonl -->\n<!-- end -->\n", "there is no chart \"workers read\""),
    ] {
        let dir = place("page.jsonl", page);
        has(&misused(&format!("report --splice {dir}/docs.md")), &[why]);
    }
    let dir = place("page.jsonl", "");
    fs::create_dir_all(dir.path("empty")).unwrap();
    has(&misused(&format!("report {dir}/empty")), &["there is no record in"]);
}
