//! Bodies of PUT: bodies that are not JSON, JSON that is no entity, and entities that round-trip.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::repos::{LaterRepo, MapRepo};
use super::{ONE, ask, get, put, request, serve};

#[test]
fn what_is_not_json_is_400() {
    let env = serve(MapRepo::default());
    for body in [
        &b""[..],
        b" ",
        b"{",
        b"}",
        b"x",
        b"{}}",
        b"nul",
        b"NaN",
        b"Infinity",
        b"-",
        b"01",
        b".5",
        b"5.",
        b"1e",
        b"+1",
        b"0x10",
        b"'a'",
        b"\"a",
        b"\"\\x\"",
        b"\"\\u12\"",
        b"\"a\nb\"",
        b"\"\x01\"",
        b"[1,]",
        b"[1 2]",
        b"{\"a\":1,}",
        b"{\"a\" 1}",
        b"{a:1}",
        b"{\"a\":1}x",
        b"1 2",
        b"// c\n1",
        b"\xef\xbb\xbf1",
        b"\"\xff\"",
        b"\"\xc3\"",
        b"\xed\xa0\x80",
        b"\0",
        b"\x0c{}",
        br#"{"id":1,"description":"d","value":2"#,
        br#"{"id":1,"description":"d","value":2}}"#,
        br#"{"id":"wrong","description":"d","value":2"#,
        br#"{"id":1,"description":"d","value":NaN}"#,
        br#"{"id":1,"description":"d","value":02}"#,
        br#"{"id":1,"description":"d","value":2,}"#,
    ] {
        let response = ask(&env, &request("PUT", "/", "", body));
        response.check_problem(400);
    }
    get(&env, "/1").check_problem(404);
}

#[test]
fn what_is_no_entity_is_422() {
    let env = serve(MapRepo::default());
    for body in [
        "null",
        "true",
        "1",
        "\"\"",
        "[]",
        "{}",
        " { } ",
        r#"[1,"d",2]"#,
        r#"[{"id":1,"description":"d","value":2}]"#,
        r#"{"id":1}"#,
        r#"{"description":"d","value":2}"#,
        r#"{"id":1,"value":2}"#,
        r#"{"id":1,"description":"d"}"#,
        r#"{"ID":1,"description":"d","value":2}"#,
        r#"{"id":1,"id":1,"description":"d","value":2}"#,
        r#"{"id":1,"description":"d","description":"d","value":2}"#,
        r#"{"id":1,"description":"d","value":2,"value":2}"#,
        r#"{"id":"1","description":"d","value":2}"#,
        r#"{"id":1.0,"description":"d","value":2}"#,
        r#"{"id":1e0,"description":"d","value":2}"#,
        r#"{"id":null,"description":"d","value":2}"#,
        r#"{"id":9223372036854775808,"description":"d","value":2}"#,
        r#"{"id":-9223372036854775809,"description":"d","value":2}"#,
        r#"{"id":99999999999999999999999999,"description":"d","value":2}"#,
        r#"{"id":1,"description":null,"value":2}"#,
        r#"{"id":1,"description":5,"value":2}"#,
        r#"{"id":1,"description":["d"],"value":2}"#,
        r#"{"id":1,"description":"\ud800","value":2}"#,
        r#"{"id":1,"description":"\udc00\ud800","value":2}"#,
        r#"{"id":1,"description":"d","value":"2"}"#,
        r#"{"id":1,"description":"d","value":null}"#,
        r#"{"id":1,"description":"d","value":true}"#,
        r#"{"id":1,"description":"d","value":1e309}"#,
        r#"{"id":1,"description":"d","value":-1e999}"#,
        r#"{"id":1,"description":"d","value":1e99999999999999999999}"#,
    ] {
        let response = put(&env, "/", body);
        assert_eq!(response.status, 422, "{body}: {response:?}");
        response.check_problem(422);
    }
    get(&env, "/1").check_problem(404);
}

/// Spellings of an entity, and how the service shows it.
#[test]
fn one_entity_many_spellings() {
    let env = serve(MapRepo::default());
    for (body, expected) in [
        (ONE, ONE),
        (" {\n\"value\" : 60.750847 ,\t\"description\":\"aZ09\",\r\n\"id\":1 } ", ONE),
        (
            r#"{"id":1,"description":"\u0061Z\u003009","value":6.0750847e1,"more":[{"id":2}],"":null}"#,
            r#"{"id":1,"description":"aZ009","value":60.750847}"#,
        ),
        (r#"{"\u0069d":1,"description":"","value":5}"#, r#"{"id":1,"description":"","value":5.0}"#),
        (
            r#"{"id":1,"description":"\"\\\/\b\f\n\r\t\u0000\u001F\u007f","value":0}"#,
            r#"{"id":1,"description":"\"\\/\b\f\n\r\t\u0000\u001f","value":0.0}"#,
        ),
        (
            r#"{"id":1,"description":"é\u2028\ud83e\udd80","value":-0.0}"#,
            "{\"id\":1,\"description\":\"é\u{2028}🦀\",\"value\":-0.0}",
        ),
        (r#"{"id":1,"description":"d","value":1e-400}"#, r#"{"id":1,"description":"d","value":0.0}"#),
        (r#"{"id":1,"description":"d","value":1E+2}"#, r#"{"id":1,"description":"d","value":100.0}"#),
        (
            r#"{"id":1,"description":"d","value":18446744073709551616}"#,
            r#"{"id":1,"description":"d","value":1.8446744073709552e+19}"#,
        ),
    ] {
        let response = put(&env, "/1", body);
        assert!(matches!(response.status, 200 | 201), "{body}: {response:?}");
        assert_eq!(get(&env, "/1").body.replace('\u{7f}', ""), expected, "{body}");
    }
}

/// Each ASCII character by itself, so that no escape of another character hides a fault.
#[test]
fn every_character_comes_back() {
    let env = serve(MapRepo::default());
    for c in (0..=0x7f_u8).map(char::from).chain(['\u{80}', '\u{2028}', '\u{feff}', '\u{10ffff}']) {
        let entity = serde_json::json!({"id": 1, "description": format!("a{c}b"), "value": 1.5});
        assert!(matches!(put(&env, "/", &entity.to_string()).status, 200 | 201), "{c:?}");
        let json = get(&env, "/1").body;
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap(), entity, "{c:?} is shown as {json}");
    }
}

/// All values round-trip, including integers and all bit patterns of finite numbers.
#[test]
fn a_value_round_trips_bit_for_bit() {
    let env = serve(MapRepo::default());
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let random = std::iter::repeat_with(|| f64::from_bits(rng.random())).filter(|value| value.is_finite()).take(2000);
    let special = [
        0.0,
        -0.0,
        5.0,
        -1.0,
        1e15,
        1e16,
        1e17,
        1e21,
        1e22,
        f64::MAX,
        f64::MIN_POSITIVE,
        5e-324,
        0.1,
        9007199254740993.0,
    ];
    for value in random.chain(special) {
        for spelling in [format!("{value:e}"), format!("{value:?}")] {
            let response = put(&env, "/", &format!(r#"{{"id":1,"description":"","value":{spelling}}}"#));
            assert!(matches!(response.status, 200 | 201), "{spelling}");
            let json = get(&env, "/1").body;
            let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert_eq!(parsed["value"].as_f64().unwrap().to_bits(), value.to_bits(), "{spelling} is shown as {json}");
        }
    }
}

#[test]
fn a_million_brackets_cost_a_400() {
    let env = serve(MapRepo::default());
    for body in ["[".repeat(1_000_000), "{\"a\":".repeat(200_000), "[{".repeat(400_000) + "x"] {
        put(&env, "/", &body).check_problem(400);
    }
    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"id":1,"description":"d","value":2,"x":{open}{close}}}"#)
    };
    assert_eq!(put(&env, "/", &nested(127)).status, 201);
    for depth in [128, 1000, 100_000] {
        put(&env, "/", &nested(depth)).check_problem(400);
    }
    // Brackets in a string do not nest.
    let text = format!(r#"{{"id":2,"description":"{}","value":2}}"#, "[{\\\"".repeat(1000));
    assert_eq!(put(&env, "/", &text).status, 201);
}

#[test]
fn an_error_echoes_at_most_100_bytes() {
    let env = serve(MapRepo::default());
    let long = "x".repeat(5000);
    for body in [
        format!(r#"{{"id":"{long}","description":"d","value":2}}"#),
        format!(r#"{{"id":1,"description":"d","value":"{long}"}}"#),
        format!(r#"{{"id":1,"description":"d","value":2,"{long}":"#),
        format!(r#"{{"id":"{}","description":"d","value":2}}"#, "é".repeat(5000)),
        long.clone(),
    ] {
        let response = put(&env, "/", &body);
        assert!(matches!(response.status, 400 | 422));
        let echoed = response.body.matches('x').count() + 2 * response.body.matches('é').count();
        assert!(echoed <= 100, "{echoed} bytes: {response:?}");
    }
    assert!(get(&env, &format!("/{long}")).body.matches('x').count() < 10);
}

#[test]
fn past_the_body_limit_is_413() {
    let env = serve(MapRepo::default());
    let body = format!(r#"{{"id":1,"description":"{}","value":2}}"#, "x".repeat(1024 * 1024));
    put(&env, "/", &body).check_problem(413);
}

/// A repo that answers later gives the same bytes.
#[test]
fn later_is_the_same() {
    let (now, later) = (serve(MapRepo::default()), serve(LaterRepo::default()));
    for (method, target, body) in [
        ("GET", "/1", ""),
        ("PUT", "/", ONE),
        ("PUT", "/1", ONE),
        ("GET", "/1", ""),
        ("HEAD", "/1", ""),
        ("DELETE", "/1", ""),
        ("DELETE", "/1", ""),
        ("PUT", "/", "x"),
    ] {
        let bytes = request(method, target, "", body.as_bytes());
        let (first, second) = (ask(&now, &bytes), ask(&later, &bytes));
        assert_eq!(format!("{first:?}"), format!("{second:?}"), "{method} {target}");
    }
}
