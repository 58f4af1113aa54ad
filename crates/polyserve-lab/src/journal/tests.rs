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
    assert_eq!(second.before::<Cell>("cell").unwrap(), [Cell { size: 1 }]);
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

/// `thread_per_connection` was once the name of the leader/followers server. A table made from an old record must
/// not show the old measurement under the name of another server.
#[test]
fn an_old_record_shows_the_new_name_of_its_server() {
    let dir = TestDir::new("journal-format");
    fs::create_dir_all(&*dir).unwrap();
    let path = dir.join("sizes.jsonl");
    let mut old =
        serde_json::to_value(header(serde_json::json!({"servers": ["thread_per_connection/two_level"]}))).unwrap();
    old["kind"] = Header::KIND.into();
    old["command"] = serde_json::json!(["polyserve", "--servers", "thread_per_connection"]);
    old.as_object_mut().unwrap().remove("format");
    let cell = serde_json::json!({"kind": "cell", "server": "thread_per_connection", "not": "thread_per_connections"});
    fs::write(&path, format!("{old}\n{cell}\n")).unwrap();
    let lines = read(&path).unwrap();
    assert_eq!(lines[0]["plan"]["servers"][0], "leader_followers/two_level");
    assert_eq!(lines[0]["command"][2], "thread_per_connection");
    assert_eq!((&lines[1]["server"], &lines[1]["not"]), (&"leader_followers".into(), &"thread_per_connections".into()));
    let error = Journal::open(Some(&dir), &header(plan())).unwrap_err();
    assert!(error.is::<Misuse>(), "{error}");

    old["format"] = FORMAT.into();
    fs::write(&path, format!("{old}\n{cell}\n")).unwrap();
    assert_eq!(read(&path).unwrap()[1], cell);
    old["format"] = (FORMAT + 1).into();
    fs::write(&path, format!("{old}\n")).unwrap();
    assert!(read(&path).unwrap_err().root_cause().to_string().contains("newer"));
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
    assert_eq!(none.before::<Cell>("cell").unwrap(), []);
}
