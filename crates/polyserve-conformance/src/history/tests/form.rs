//! The format: a written history is read back, and an invalid line is refused with its number.

use std::io::{BufReader, Read as _};

use polyserve_core::EntityRef;
use serde_json::json;

use super::{History, history};
use crate::history::{InvalidHistory, MAX_OPERATIONS, entity, value_of};

fn refused(text: &str) -> String {
    History::read(text.as_bytes()).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn what_is_written_is_read_back() {
    let every = history(&[
        "0 put 1 created 0..10",
        "1 put 2 replaced 5..18446744073709551614",
        "2 put 3 unknown 6..",
        "0 get absent 20..30",
        "1 get 2 20..20",
        "1 get unknown 20..",
        "2 remove removed 30..40",
        "2 remove absent 50..60",
        "3 remove unknown 70..",
        "0 put 4 if absent created 80..81",
        "0 put 5 if present replaced 82..83",
        "0 put 6 if 5 refused 84..85",
        "0 put 7 if 6 unknown 86..",
        "0 remove if absent refused 88..89",
        "0 remove if present absent 90..91",
        "0 remove if 5 removed 92..93",
        "0 remove if 5 unknown 94..",
    ]);
    let mut bytes = Vec::new();
    every.write(&mut bytes, &json!({"server": "any", "keys": 1})).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (header, first) = (text.lines().next().unwrap(), text.lines().nth(1).unwrap());
    assert!(header.contains(r#""kind":"header""#) && header.contains(r#""server":"any""#), "{header}");
    assert_eq!(first, r#"{"process":0,"op":"put","key":1,"value":1,"call":0,"return":10,"outcome":"created"}"#);
    assert_eq!(History::read(text.as_bytes()).unwrap().operations(), every.operations());
    let last = r#"{"process":0,"op":"remove","key":1,"condition":5,"call":94,"outcome":"unknown"}"#;
    assert_eq!(text.lines().last().unwrap(), last);
    assert_eq!(every.unknown(), 5);
}

#[test]
fn what_other_tools_add_is_skipped() {
    let line = r#"{"process":0,"op":"get","key":-1,"call":1,"return":2,"outcome":"absent","node":"n1"}"#;
    assert_eq!(History::read(format!("\n{line}\n\n").as_bytes()).unwrap().operations().len(), 1);
    assert_eq!(History::read(&b""[..]).unwrap().operations(), []);
}

#[test]
fn what_is_no_history_is_refused_with_its_line() {
    let put = r#"{"process":0,"op":"put","key":1,"value":7,"call":1,"return":2,"outcome":"created"}"#;
    for (line, expected) in [
        ("nonsense", "line 2 of the history: expected"),
        ("{}", "missing field"),
        (r#"{"process":0,"op":"cas","key":1,"call":1,"return":2,"outcome":"absent"}"#, "unknown variant `cas`"),
        (r#"{"process":0,"op":"get","key":1,"call":1,"return":2,"outcome":"found"}"#, "needs a value"),
        (r#"{"process":0,"op":"put","key":1,"call":1,"return":2,"outcome":"created"}"#, "needs a value"),
        (r#"{"process":0,"op":"get","key":1,"value":3,"call":1,"return":2,"outcome":"absent"}"#, "has no value"),
        (r#"{"process":0,"op":"get","key":1,"call":1,"outcome":"absent"}"#, "needs its return"),
        (r#"{"process":0,"op":"put","key":1,"value":3,"call":1,"return":2,"outcome":"found"}"#, "never found"),
        (r#"{"process":0,"op":"get","key":1,"call":2,"return":1,"outcome":"absent"}"#, "before its call"),
        (r#"{"process":-1,"op":"get","key":1,"call":2,"return":1,"outcome":"absent"}"#, "invalid value"),
        (r#"{"process":0,"op":"remove","key":1,"call":1,"return":2,"outcome":"refused"}"#, "never refused"),
        (r#"{"process":0,"op":"get","key":1,"condition":5,"call":1,"outcome":"unknown"}"#, "a get has no condition"),
        (r#"{"process":0,"op":"remove","key":1,"condition":"x","call":1,"outcome":"unknown"}"#, "a condition is"),
        (
            r#"{"process":0,"op":"get","key":1,"value":5,"call":1,"return":18446744073709551615,"outcome":"found"}"#,
            "stands for never",
        ),
        (put, "for the second time"),
    ] {
        let message = refused(&format!("{put}\n{line}\n"));
        assert!(message.contains(expected) && message.contains("line 2"), "{line}: {message}");
    }
    assert!(refused(r#"{"kind":"header","format":9}"#).contains("format 9"));
    assert!(refused(&" ".repeat(70_000)).contains("longer than"));
    let backwards = history(&["0 get absent 5..6"]).operations()[0];
    let backwards = super::Operation { returned: 4, ..backwards };
    let InvalidHistory { place, why } = History::new(vec![backwards]).unwrap_err();
    assert!(place == 0 && why.contains("before its call") && MAX_OPERATIONS > 1_000_000);
}

/// Reading stops although the source is endless.
#[test]
fn what_has_too_many_operations_is_refused_at_the_first() {
    let line = r#"{"process":0,"op":"get","key":1,"call":1,"return":2,"outcome":"absent"}"#;
    let three = format!("{line}\n{line}\n\n{line}\n");
    assert_eq!(History::read_at_most(3, three.as_bytes()).unwrap().operations().len(), 3);
    let four = format!("{three}{line}\n");
    let endless = four.as_bytes().chain(BufReader::new(std::io::repeat(b'\n')));
    let refused = History::read_at_most(3, endless).unwrap_err().to_string();
    assert!(refused.contains("line 5") && refused.contains("at most 3 operations"), "{refused}");
}

/// An entity with parts of two puts, or with another id, has no value.
#[test]
fn a_torn_entity_shows() {
    for value in [0, 1, 2, 9, 10, 12_345_678_901] {
        assert_eq!(value_of(3, entity(3, value).as_ref()), Ok(value));
    }
    let (one, other) = (entity(3, 1), entity(3, 2));
    let torn = EntityRef { value: other.value, ..one.as_ref() };
    assert!(value_of(3, torn).unwrap_err().to_string().contains("torn"));
    assert!(value_of(4, one.as_ref()).unwrap_err().to_string().contains("the id 3"));
    for (description, value) in
        [("", 0.0), ("+3", 3.0), ("03", 3.0), ("3é", 3.0), ("3", 3.5), ("3", f64::NAN), ("-3", -3.0)]
    {
        assert!(value_of(3, EntityRef { id: 3, description, value }).is_err(), "{description:?} with {value}");
    }
}
