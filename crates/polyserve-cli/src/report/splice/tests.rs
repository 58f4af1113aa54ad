use super::*;
use serde_json::json;

fn known(wanted: &Wanted<'_>) -> anyhow::Result<Due> {
    let text = match wanted {
        Wanted::Table { name: "t", path: "x.jsonl" } => "\n| a |\n\n",
        Wanted::Claims { paths } if paths == &["x.jsonl", "y.jsonl"] => "claims\n",
        other => return Err(Misuse(format!("{other:?}")).into()),
    };
    Ok(Due { text: text.into(), in_file: None })
}

fn done(text: &str) -> (String, Vec<Difference>) {
    splice(text, &mut known).unwrap()
}

fn refused(text: &str) -> String {
    let error = splice(text, &mut known).unwrap_err();
    assert!(error.is::<Misuse>(), "{error:#}");
    format!("{error:#}")
}

#[test]
fn what_is_outside_stays_and_twice_is_as_once() {
    let page = "# Title \t\n<!-- a comment -->\n<!-- table t of x.jsonl -->\nold\n<!-- end -->\nafter, without an end";
    let (spliced, differences) = done(page);
    let due =
        "# Title \t\n<!-- a comment -->\n<!-- table t of x.jsonl -->\n\n| a |\n\n<!-- end -->\nafter, without an end";
    assert_eq!(spliced, due);
    assert_eq!((differences.len(), differences[0].what.as_str()), (1, "table t of x.jsonl"));
    assert_eq!(differences[0].to_string(), "-old\n+\n+| a |\n+\n");
    assert_eq!(done(&spliced), (spliced.clone(), Vec::new()));
    assert_eq!(done("nothing\nasked").0, "nothing\nasked");
}

#[test]
fn lines_end_as_the_pages_do() {
    let page = "a\r\n<!-- claims of x.jsonl y.jsonl -->\r\n<!-- end -->\r\nb\r\n";
    let (spliced, differences) = done(page);
    assert_eq!(spliced, "a\r\n<!-- claims of x.jsonl y.jsonl -->\r\nclaims\r\n<!-- end -->\r\nb\r\n");
    assert_eq!(differences[0].to_string(), "+claims\n");
    assert_eq!(done(&spliced).1, []);
}

#[test]
fn only_the_lines_that_differ_are_said() {
    let said = difference("t".into(), "same\nold\nlast\n", "same\nnew\nnewer\nlast\n").to_string();
    assert_eq!(said, "-old\n+new\n+newer\n");
}

/// A page that tells how this is done shows the markers.
#[test]
fn a_block_of_code_is_text() {
    for page in ["```text\n<!-- table no of no -->\n<!-- end -->\n```\n", "~~~~\n```\n<!-- end -->\n~~~~\n"] {
        assert_eq!(done(page), (page.to_owned(), Vec::new()));
    }
}

#[test]
fn markers_that_make_no_sense_are_refused() {
    for (page, why) in [
        ("<!-- table t of x.jsonl -->\n", "line 1: <!-- table t of x.jsonl --> has no <!-- end -->"),
        ("<!-- end -->", "line 1: <!-- end --> ends nothing"),
        ("<!-- table t of x.jsonl -->\n<!-- table t of x.jsonl -->\n<!-- end -->", "line 2: "),
        ("\n<!-- table t -->\n<!-- end -->", "line 2: \"<!-- table t -->\" is not"),
        ("<!-- table t of a b -->\n<!-- end -->", "is not <!-- table NAME of PATH -->"),
        ("<!-- claims x -->\n<!-- end -->", "is not <!-- claims of PATH... -->"),
        ("<!-- chart workers read -->\n<!-- end -->", "is not <!-- chart AXIS WORKLOAD [DIST] of PATH -->"),
        ("<!-- chart a b of x.jsonl -->\n<!-- end -->", "line 1: Chart { name: \"a b\", path: \"x.jsonl\" }"),
        ("<!-- table other of x.jsonl -->\n<!-- end -->", "line 1: Table"),
    ] {
        let said = refused(page);
        assert!(said.contains(why), "{page:?}: {said}");
    }
}

#[test]
fn below_a_table_stands_what_made_it() {
    let header = json!({
        "kind": "environment", "command": ["/a/polyserve", "page", "--out=x", "`"], "date": "2026-11-21T18:00:00Z",
        "cpu": "One|Two", "cores": 1, "kernel": "6.1", "commit": "abc"
    });
    let lines = vec![header, json!({"kind": "cell", "server": "a", "n": 1.5})];
    let record = |lines| Record::new(Path::new("x.jsonl"), "x", lines);
    let whole = record(lines.clone());
    assert_eq!(origin(&whole), r"`` polyserve page '`' ``, 2026-11-21, One\|Two, 1 core, Linux 6.1, commit abc");
    let bare = record(lines[1..].to_vec());
    assert!(origin(&bare).ends_with("; not complete: nothing says where and with what it was measured"));
    assert_eq!(table(&whole, "cell").unwrap().rows()[1], ["a", "1.5"]);
    let said = table(&whole, "pools").unwrap_err().to_string();
    assert_eq!(said, "there is no table \"pools\" of x.jsonl; there are: cell");
    assert!(claims(&[Rc::new(whole)]).unwrap_err().to_string().contains("nothing was published"));
}

const STORES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/records/stores-workers.jsonl");

/// A directory with a record of stores and a page that shows two of its charts.
fn place(name: &str) -> (PathBuf, PathBuf) {
    let dir = std::env::temp_dir().join(format!("polyserve-splice-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(dir.join("day")).unwrap();
    fs::copy(STORES, dir.join("day/stores.jsonl")).unwrap();
    let page = dir.join("page.md");
    let chart = |name: &str| format!("<!-- chart {name} of day/stores.jsonl -->\n<!-- end -->\n");
    fs::write(&page, ["# Title\n", &chart("workers read uniform"), &chart("workers insert")].concat()).unwrap();
    (dir, page)
}

fn read(page: &Path) -> Page {
    spliced(&[page.to_owned()]).unwrap().remove(0)
}

#[test]
fn a_chart_is_a_file_near_its_page() {
    let (dir, path) = place("chart");
    let page = read(&path);
    assert_eq!((page.tables, page.charts.len(), page.differences.len()), (0, 2, 2));
    let said = page.differences[0].to_string();
    assert!(said.contains("+![Chart: operations a second of 4 stores, read uniform"), "{said}");
    assert!(said.contains("+charts/day-stores-workers-read-uniform.svg, "), "{said}");
    assert!(!dir.join("charts").exists(), "to read writes nothing");
    page.write().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let line = text.lines().find(|line| line.starts_with("![")).unwrap();
    assert!(line.ends_with("](charts/day-stores-workers-read-uniform.svg)"), "{line}");
    assert!(text.contains("\n`polyserve scale --in-process "), "{text}");
    let again = read(&path);
    assert_eq!((again.differences, again.spliced), (vec![], text));
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_chart_that_was_changed_or_is_gone_differs() {
    let (dir, path) = place("changed");
    read(&path).write().unwrap();
    let file = dir.join("charts/day-stores-workers-insert.svg");
    let right = fs::read_to_string(&file).unwrap();
    fs::write(&file, right.replacen("<polyline ", "<polyline class=\"x\" ", 1)).unwrap();
    let said = &read(&path).differences;
    assert_eq!((said.len(), said[0].what.as_str()), (1, "chart workers insert of day/stores.jsonl"));
    assert_eq!((said[0].stale.len(), said[0].due.len()), (1, 1), "{}", said[0]);
    // No text, but a file.
    fs::write(&file, [0xff]).unwrap();
    assert_eq!(read(&path).differences.len(), 1);
    fs::remove_file(&file).unwrap();
    let page = read(&path);
    assert!(page.differences[0].to_string().starts_with("+charts/day-stores-workers-insert.svg, "));
    assert!(!file.exists());
    page.write().unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), right);
    assert_eq!(read(&path).differences, []);
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn two_charts_are_never_one_file() {
    let (dir, path) = place("one");
    fs::create_dir_all(dir.join("other/day")).unwrap();
    let text = fs::read_to_string(STORES).unwrap();
    let less = text.lines().filter(|line| !line.contains("\"name\":\"std_mutex\"")).map(|line| format!("{line}\n"));
    fs::write(dir.join("other/day/stores.jsonl"), less.collect::<String>()).unwrap();
    let other = dir.join("other.md");
    fs::write(&other, "<!-- chart workers insert of other/day/stores.jsonl -->\n<!-- end -->\n").unwrap();
    let error = spliced(&[path, other]).unwrap_err();
    assert!(error.is::<Misuse>(), "{error:#}");
    assert!(error.to_string().contains("two charts would be "), "{error:#}");
    fs::remove_dir_all(&dir).unwrap();
}
