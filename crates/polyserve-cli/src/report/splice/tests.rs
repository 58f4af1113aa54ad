use super::*;
use serde_json::json;

fn test_content(marker: &PageMarker<'_>) -> anyhow::Result<SplicedContent> {
    let text = match marker {
        PageMarker::Table(RecordPart { name: "t", path: "x.jsonl", chosen }) if chosen.is_empty() => "\n| a |\n\n",
        PageMarker::Table(RecordPart { name: "t", path: "x.jsonl", chosen }) if chosen == &["a, 95 %", "of b"] => {
            "two\n"
        }
        PageMarker::Claims { paths, words: "" } if paths == &["x.jsonl", "y.jsonl"] => "claims\n",
        PageMarker::Claims { paths, words: "as run then" } if paths == &["x.jsonl"] => "chosen\n",
        other => return Err(Misuse(format!("{other:?}")).into()),
    };
    Ok(SplicedContent { text: text.into(), file_difference: None })
}

fn splice_page(text: &str) -> (String, Vec<Difference>) {
    splice(text, &mut test_content).unwrap()
}

fn rejected(text: &str) -> String {
    let error = splice(text, &mut test_content).unwrap_err();
    assert!(error.is::<Misuse>(), "{error:#}");
    format!("{error:#}")
}

#[test]
fn what_is_outside_stays_and_twice_is_as_once() {
    let page = "# Title \t\n<!-- a comment -->\n<!-- table t of x.jsonl -->\nold\n<!-- end -->\nafter, without an end";
    let (spliced, differences) = splice_page(page);
    let expected =
        "# Title \t\n<!-- a comment -->\n<!-- table t of x.jsonl -->\n\n| a |\n\n<!-- end -->\nafter, without an end";
    assert_eq!(spliced, expected);
    assert_eq!((differences.len(), differences[0].what.as_str()), (1, "table t of x.jsonl"));
    assert_eq!(differences[0].to_string(), "-old\n+\n+| a |\n+\n");
    assert_eq!(splice_page(&spliced), (spliced.clone(), Vec::new()));
    assert_eq!(splice_page("nothing\nasked").0, "nothing\nasked");
}

#[test]
fn lines_end_as_the_pages_do() {
    let page = "a\r\n<!-- claims of x.jsonl y.jsonl -->\r\n<!-- end -->\r\nb\r\n";
    let (spliced, differences) = splice_page(page);
    assert_eq!(spliced, "a\r\n<!-- claims of x.jsonl y.jsonl -->\r\nclaims\r\n<!-- end -->\r\nb\r\n");
    assert_eq!(differences[0].to_string(), "+claims\n");
    assert_eq!(splice_page(&spliced).1, []);
}

/// The names of columns have commas, and words such as "of".
#[test]
fn a_marker_chooses_columns_and_claims() {
    let page = "<!-- table t of x.jsonl | a, 95 % | of b -->\n<!-- end -->\n";
    assert_eq!(splice_page(page).0, "<!-- table t of x.jsonl | a, 95 % | of b -->\ntwo\n<!-- end -->\n");
    let page = "<!-- claims of x.jsonl | as run then -->\n<!-- end -->\n";
    assert_eq!(splice_page(page).0, "<!-- claims of x.jsonl | as run then -->\nchosen\n<!-- end -->\n");
}

#[test]
fn only_the_lines_that_differ_are_said() {
    let text = difference("t".into(), "same\nold\nlast\n", "same\nnew\nnewer\nlast\n").to_string();
    assert_eq!(text, "-old\n+new\n+newer\n");
}

/// A page that explains markers shows them in a block of code.
#[test]
fn a_block_of_code_is_text() {
    for page in ["```text\n<!-- table no of no -->\n<!-- end -->\n```\n", "~~~~\n```\n<!-- end -->\n~~~~\n"] {
        assert_eq!(splice_page(page), (page.to_owned(), Vec::new()));
    }
}

#[test]
fn markers_that_make_no_sense_are_refused() {
    for (page, why) in [
        ("<!-- table t of x.jsonl -->\n", "line 1: <!-- table t of x.jsonl --> has no <!-- end -->"),
        ("<!-- end -->", "line 1: <!-- end --> ends nothing"),
        ("<!-- table t of x.jsonl -->\n<!-- table t of x.jsonl -->\n<!-- end -->", "line 2: "),
        ("\n<!-- table t -->\n<!-- end -->", "line 2: \"<!-- table t -->\" is not"),
        ("<!-- table t of a b -->\n<!-- end -->", "is not <!-- table NAME of PATH | COLUMN... -->"),
        ("<!-- claims x -->\n<!-- end -->", "is not <!-- claims of PATH... -->"),
        ("<!-- chart workers read -->\n<!-- end -->", "is not <!-- chart NAME of PATH | LINE... -->"),
        (
            "<!-- chart a b of x.jsonl -->\n<!-- end -->",
            "line 1: Chart(RecordPart { name: \"a b\", path: \"x.jsonl\", chosen: [] })",
        ),
        ("<!-- table other of x.jsonl -->\n<!-- end -->", "line 1: Table"),
    ] {
        let message = rejected(page);
        assert!(message.contains(why), "{page:?}: {message}");
    }
}

#[test]
fn below_a_table_stands_what_made_it() {
    let header = json!({
        "kind": "environment", "command": ["/a/polyserve", "page", "--out=x", "`"], "date": "2026-11-21T18:00:00Z",
        "cpu": "One|Two", "cores": 1, "kernel": "6.1", "commit": "abc"
    });
    let bench = json!({"kind": "bench", "group": "cell", "bench": "a", "ns": 1.5, "low_ns": 1.0, "high_ns": 2.0});
    let lines = vec![header, bench];
    let record = |lines| Record::new(Path::new("x.jsonl"), "benches", lines);
    let whole = record(lines.clone());
    assert_eq!(origin(&whole), r"`` polyserve page '`' ``, 2026-11-21, One\|Two, 1 core, Linux 6.1, commit abc");
    let bare = record(lines[1..].to_vec());
    assert!(origin(&bare).ends_with("; not complete: it has no header with the machine and the command"));
    assert_eq!(table(&whole, "cell").unwrap().rows()[1], ["a", "1.50", "[1.00, 2.00]"]);
    let message = table(&whole, "pools").unwrap_err().to_string();
    assert_eq!(message, "there is no table \"pools\" of x.jsonl; there are: cell");
    assert!(claims(&[Rc::new(whole)], "").unwrap_err().to_string().contains("nothing was published"));
}
