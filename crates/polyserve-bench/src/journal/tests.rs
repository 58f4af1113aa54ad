use super::*;
use crate::fixtures::{self, TestDir};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Cell {
    size: u32,
}

fn header(plan: Value) -> Header {
    fixtures::header("sizes", plan)
}

fn plan() -> Value {
    serde_json::json!({"most": 3})
}

#[test]
fn a_run_goes_on_where_the_last_one_ended() {
    let dir = TestDir::new("journal-on");
    let mut first = Journal::open(Some(&dir), &header(plan())).unwrap();
    first.line("cell", &Cell { size: 1 }).unwrap();
    first.line("note", &Cell { size: 9 }).unwrap();
    drop(first);
    let path = dir.join("sizes.jsonl");
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(br#"{"kind":"cell","si"#).unwrap(); // it was killed as it wrote
    let mut later = header(plan());
    later.environment.date = "another".into();
    let mut second = Journal::open(Some(&dir), &later).unwrap();
    assert_eq!(of_kind::<Cell>(second.lines_before(), "cell").unwrap(), [Cell { size: 1 }]);
    second.line("cell", &Cell { size: 2 }).unwrap();
    let lines = read(&path).unwrap();
    assert_eq!(of_kind::<Cell>(&lines, "cell").unwrap(), [Cell { size: 1 }, Cell { size: 2 }]);
    assert_eq!(lines.last(), Some(&as_line("cell", &Cell { size: 2 }).unwrap()));
    assert_eq!(of_kind::<Header>(&lines, Header::KIND).unwrap().len(), 2);
    assert_eq!(first_header(&lines).unwrap(), header_as_read(&lines));
}

/// A process that is being started has copies of all open files until it runs its own program.
#[test]
fn a_copy_of_the_file_does_not_hold_the_lock() {
    let dir = TestDir::new("journal-lock");
    let open = || Journal::open(Some(&dir), &header(plan()));
    let first = open().unwrap();
    let inherited = first.file.as_ref().unwrap().try_clone().unwrap();
    assert!(open().unwrap_err().to_string().contains("is being written by another process"));
    drop(first);
    open().unwrap();
    drop(inherited);
}

fn header_as_read(lines: &[Value]) -> Header {
    serde_json::from_value(lines[0].clone()).unwrap()
}

#[test]
fn a_record_of_another_format_is_not_read() {
    let dir = TestDir::new("journal-format");
    fs::create_dir_all(&*dir).unwrap();
    let path = dir.join("sizes.jsonl");
    let mut line = serde_json::to_value(header(plan())).unwrap();
    line["kind"] = Header::KIND.into();
    for (format, is_read) in [(FORMAT - 1, false), (FORMAT, true), (FORMAT + 1, false)] {
        line["format"] = format.into();
        fs::write(&path, format!("{line}\n")).unwrap();
        assert_eq!(read(&path).is_ok(), is_read, "{format}");
    }
}

#[test]
fn what_every_run_finds_out_anew_is_written_once() {
    let dir = TestDir::new("journal-once");
    for _ in 0..3 {
        let mut journal = Journal::open(Some(&dir), &header(plan())).unwrap();
        [1, 2].iter().for_each(|size| journal.once("absent", &Cell { size: *size }).unwrap());
        journal.once("cell", &Cell { size: 1 }).unwrap();
    }
    let lines = read(&dir.join("sizes.jsonl")).unwrap();
    assert_eq!(of_kind::<Cell>(&lines, "absent").unwrap(), [1, 2].map(|size| Cell { size }));
    assert_eq!((of_kind::<Cell>(&lines, "cell").unwrap().len(), lines.len()), (1, 3 + 3));
}

#[test]
fn another_plan_or_build_is_not_mixed_in() {
    let dir = TestDir::new("journal-other");
    drop(Journal::open(Some(&dir), &header(plan())).unwrap());
    let path = dir.join("sizes.jsonl");
    let before = fs::read(&path).unwrap();
    let mut rebuilt = header(plan());
    rebuilt.environment.commit = "another".into();
    for other in [header(serde_json::json!({"most": 4})), rebuilt] {
        let error = Journal::open(Some(&dir), &other).unwrap_err();
        assert!(error.is::<Misuse>() && error.to_string().contains("sizes.jsonl"), "{error}");
    }
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn two_do_not_write_at_once() {
    let dir = TestDir::new("journal-two");
    let first = Journal::open(Some(&dir), &header(plan())).unwrap();
    let error = Journal::open(Some(&dir), &header(plan())).unwrap_err();
    assert!(error.is::<Misuse>() && error.to_string().contains("another process"), "{error}");
    drop(first);
    Journal::open(Some(&dir), &header(plan())).unwrap();
}

#[test]
fn what_is_no_record_is_not_touched() {
    let dir = TestDir::new("journal-none");
    fs::create_dir_all(&*dir).unwrap();
    let path = dir.join("sizes.jsonl");
    for text in ["a diary\n", "{\"kind\":\"cell\"}\n"] {
        fs::write(&path, text).unwrap();
        Journal::open(Some(&dir), &header(plan())).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn one_directory_holds_an_experiment_under_several_names() {
    let dir = TestDir::new("journal-named");
    for (name, most) in [("sizes-1.5", 1), ("sizes-1.6", 2)] {
        Journal::named(Some(&dir), name, &header(serde_json::json!({"most": most}))).unwrap();
        let lines = read(&dir.join(format!("{name}.jsonl"))).unwrap();
        assert_eq!(first_header(&lines).unwrap().experiment, "sizes");
    }
    for (name, is_one) in
        [("a", true), ("get-1.5_b", true), ("", false), ("../a", false), (".a", false), ("a b", false)]
    {
        assert_eq!(file_name(name).is_ok(), is_one, "{name:?}");
    }
}

#[test]
fn without_a_directory_nothing_is_kept() {
    let mut none = Journal::open(None, &header(plan())).unwrap();
    none.line("cell", &Cell { size: 1 }).unwrap();
    assert_eq!(of_kind::<Cell>(none.lines_before(), "cell").unwrap(), []);
}
