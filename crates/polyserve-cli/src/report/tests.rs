use super::*;
use serde_json::json;

fn record(lines: Vec<Value>) -> Record {
    Record::new(Path::new("x.jsonl"), "page", lines)
}

#[test]
fn a_command_is_shown_as_it_is_typed() {
    let shown = |words: &[&str]| shown_command(&json!({ "command": words }));
    assert_eq!(shown(&["/a/b/polyserve", "page", "--quick", "--out", "/x"]), "polyserve page --quick");
    assert_eq!(shown(&["polyserve", "--out=/x", "page", "a b", "it's", ""]), r"polyserve page 'a b' 'it'\''s' ''");
    assert_eq!(shown(&["/a/strategies-31e87db897fc347b", "--bench"]), "cargo bench -p polyserve-benches");
    assert_eq!(
        shown(&["/a/strategies-31e87db897fc347b", "dispatch", "--bench"]),
        "cargo bench -p polyserve-benches -- dispatch"
    );
    assert_eq!(shown_command(&json!({})), "unknown");
}

#[test]
fn a_record_that_is_not_complete_has_a_reason() {
    let (header, cell) = (json!({"kind": "environment"}), json!({"kind": "cell"}));
    let short = |lines: &[&Value]| record(lines.iter().map(|line| (*line).clone()).collect()).incomplete_reason();
    assert_eq!(short(&[&header, &cell]), None);
    assert!(short(&[&cell]).unwrap().contains("no header"));
    assert!(short(&[&header]).unwrap().contains("nothing was recorded"));
    let ended = json!({"kind": "end", "interrupted": true});
    assert!(short(&[&header, &cell, &ended]).unwrap().contains("ended early"));
    // A later run continued it.
    assert_eq!(short(&[&header, &ended, &header, &cell]), None);
}

#[test]
fn a_record_is_named_by_what_it_says_or_by_its_file() {
    let dir = std::env::temp_dir().join(format!("polyserve-report-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let named =
        write("a.jsonl", "{\"kind\":\"environment\",\"experiment\":\"recommend\"}\n{\"kind\":\"cell\"}\n{\"cut");
    let unnamed = write("bench-put.jsonl", "{\"kind\":\"environment\"}\n");
    write("notes.txt", "nothing");
    assert_eq!(Record::read(&named).unwrap().lines.len(), 2, "what was cut off is no line");
    // Records are in the order of the experiments, not of the files.
    let names: Vec<String> = read(&[unnamed, dir.clone()]).unwrap().into_iter().map(|record| record.name).collect();
    assert_eq!(names, ["bench", "bench", "recommend"]);
    fs::create_dir(dir.join("day")).unwrap();
    write("day/tasks.jsonl", "{\"kind\":\"environment\"}\n");
    let found = read(std::slice::from_ref(&dir)).unwrap();
    assert!(found.iter().any(|record| record.path.ends_with("day/tasks.jsonl")), "records in a directory are found");
    let broken = write("b.jsonl", "{\"kind\":1}\nno json\n");
    let message = format!("{:#}", Record::read(&broken).unwrap_err());
    assert!(message.contains("b.jsonl: line 2"), "{message}");
    fs::remove_dir_all(&dir).unwrap();
    let error = read(&[dir]).unwrap_err();
    assert!(error.is::<Misuse>(), "{error}");
}
