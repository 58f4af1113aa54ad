//! The bodies of PUT: valid JSON, valid entities, and values that are stored without loss.

use std::sync::Arc;

use polyserve_core::{Entity, EntityService};

use super::repos::MapRepo;
use super::status_table::{ONE, entities};
use super::subject::ServerSubject;
use super::wire::{check_problem, chunked, get, put, with_body};
use crate::client::shown;
use crate::property::Outcome;

/// A body that is not JSON by RFC 8259 is answered with 400, with a problem.
pub(super) fn a_body_that_is_not_json_is_a_bad_request(subject: &ServerSubject) -> Outcome {
    let live = entities(subject);
    let member = |value: &str| format!(r#"{{"id":1,"description":"d","value":2,"x":{value}}}"#).into_bytes();
    let mut bodies: Vec<Vec<u8>> = [
        "",
        " ",
        "{",
        "}",
        "[",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{\"id\":1,}",
        "{id:1}",
        "{'id':1}",
        "{\"id\" 1}",
        "{\"id\":1 \"x\":2}",
        "{\"id\":}",
        "{1:1}",
        "{\"id\":1}}",
        "{}{}",
        "{} x",
        "nul",
        "TRUE",
        "NaN",
        "Infinity",
        "-Infinity",
        "undefined",
        "// comment\n{}",
        "{}/**/",
        "\"",
        "\"a",
        "'a'",
        "\u{feff}{}",
        "\u{a0}{}",
        "\u{c}{}",
    ]
    .iter()
    .map(|body| body.as_bytes().to_vec())
    .collect();
    for value in [
        "01",
        "-01",
        "+1",
        "1.",
        ".1",
        "-.1",
        "1e",
        "1e+",
        "0x1",
        "1_000",
        "--1",
        "-",
        "1.e1",
        "\"\\x41\"",
        "\"\\u12\"",
        "\"\\u123g\"",
        "\"a\nb\"",
        "\"a\tb\"",
        "\"a\0b\"",
        "\"\\",
        "tru",
        "nulll",
        "[1,,2]",
        "{\"a\":1,,\"b\":2}",
        "1 2",
    ] {
        bodies.push(member(value));
    }
    for broken in [&b"\xff"[..], b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80"] {
        bodies.push([&br#"{"id":1,"description":""#[..], broken, br#"","value":2}"#].concat());
    }
    for body in bodies {
        let mut client = live.client();
        client.send(&with_body("PUT", "/", "", &body)).expect("the server takes the request");
        let response = client.receive().unwrap_or_else(|failure| panic!("{}: {failure}", shown(&body)));
        assert_eq!(response.status, 400, "{}\n{}", shown(&body), client.show());
        check_problem(&response);
    }
    live.ask(&get("/1"), 404);
    Outcome::Held
}

/// A body that is valid JSON but no entity is answered with 422, with a problem. In such a body a field is missing,
/// repeated or of another type, or a number does not fit.
pub(super) fn json_that_is_no_entity_is_unprocessable(subject: &ServerSubject) -> Outcome {
    let live = entities(subject);
    for body in [
        "null",
        "true",
        "1",
        "\"x\"",
        "[]",
        "{}",
        " [ ] ",
        "[1,\"d\",2,3]",
        r#"{"description":"d","value":2}"#,
        r#"{"id":1,"value":2}"#,
        r#"{"id":1,"description":"d"}"#,
        r#"{"id":1,"id":1,"description":"d","value":2}"#,
        r#"{"id":1,"description":"d","description":"d","value":2}"#,
        r#"{"id":1,"description":"d","value":2,"value":2}"#,
        r#"{"id":1,"\u0069d":1,"description":"d","value":2}"#,
        r#"{"id":"1","description":"d","value":2}"#,
        r#"{"id":1.5,"description":"d","value":2}"#,
        r#"{"id":-0.0,"description":"d","value":2}"#,
        r#"{"id":null,"description":"d","value":2}"#,
        r#"{"id":true,"description":"d","value":2}"#,
        r#"{"id":9223372036854775808,"description":"d","value":2}"#,
        r#"{"id":-9223372036854775809,"description":"d","value":2}"#,
        r#"{"id":99999999999999999999999999999999,"description":"d","value":2}"#,
        r#"{"id":1,"description":null,"value":2}"#,
        r#"{"id":1,"description":1,"value":2}"#,
        r#"{"id":1,"description":["d"],"value":2}"#,
        r#"{"id":1,"description":"d","value":"2"}"#,
        r#"{"id":1,"description":"d","value":null}"#,
        r#"{"id":1,"description":"d","value":{}}"#,
        r#"{"id":1,"description":"d","value":1e400}"#,
        r#"{"id":1,"description":"d","value":-1e999999}"#,
        r#"{"ID":1,"description":"d","value":2}"#,
    ] {
        let mut client = live.client();
        client.send(&put("/", body)).expect("the server takes the request");
        let response = client.receive().unwrap_or_else(|failure| panic!("{body}: {failure}"));
        assert_eq!(response.status, 422, "{body}\n{}", client.show());
        check_problem(&response);
    }
    live.ask(&get("/1"), 404);
    Outcome::Held
}

/// Any JSON form of an entity is stored: white space, order, escapes, exponents, unknown members.
pub(super) fn every_json_form_of_an_entity_is_stored(subject: &ServerSubject) -> Outcome {
    let live = entities(subject);
    for (body, expected) in [
        (
            " \r\n\t{ \"value\" : 2.5 , \"description\" : \"d\" , \"id\" : 1 } \n",
            r#"{"id":1,"description":"d","value":2.5}"#,
        ),
        (r#"{"\u0069d":1,"description":"\u0064","value":25e-1}"#, r#"{"id":1,"description":"d","value":2.5}"#),
        (
            r#"{"id":1,"description":"\ud83e\udd80","value":0.25E+1}"#,
            "{\"id\":1,\"description\":\"\u{1f980}\",\"value\":2.5}",
        ),
        (r#"{"id":1,"description":"d","value":2.5,"x":[{"y":[]}]}"#, r#"{"id":1,"description":"d","value":2.5}"#),
        (r#"{"id":-0,"description":"-0","value":-0}"#, r#"{"id":0,"description":"-0","value":-0.0}"#),
    ] {
        let mut client = live.client();
        client.send(&put("/", body)).expect("the server takes the request");
        client.expect_one_of(&[200, 201]);
        let path = if expected.contains("\"id\":0") { "/0" } else { "/1" };
        assert_eq!(live.ask(&get(path), 200).text(), expected, "stored as {body}");
    }
    Outcome::Held
}

/// A million nested brackets are answered with 400, and do not overflow the stack, however they arrive.
pub(super) fn a_million_brackets_are_a_bad_request(subject: &ServerSubject) -> Outcome {
    let live = entities(subject);
    let open = "[".repeat(1_000_000);
    let objects = "{\"a\":".repeat(200_000);
    let closed = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
    for body in [open, objects, closed] {
        check_problem(&live.ask(&put("/", &body), 400));
        check_problem(&live.ask(&chunked("PUT", "/", body.as_bytes(), 100_000), 400));
    }
    live.ask(&put("/", ONE), 201);
    Outcome::Held
}

/// A value round-trips bit for bit: integers, the smallest and the largest numbers, and numbers that are hard to parse.
pub(super) fn a_value_comes_back_bit_for_bit(subject: &ServerSubject) -> Outcome {
    let live = entities(subject);
    let mut values = vec![
        0.0,
        -0.0,
        1.0,
        -1.0,
        5.0,
        0.1,
        1.0 / 3.0,
        60.750_847,
        1e15,
        1e16,
        1e21,
        1e22,
        1e23,
        9_007_199_254_740_993.0,
        5e-324,
        2.225_073_858_507_201e-308,
        f64::MIN_POSITIVE,
        f64::MAX,
        f64::MIN,
        f64::EPSILON,
    ];
    // A fixed sequence of bits, by xorshift.
    let mut bits = 0x9E37_79B9_7F4A_7C15_u64;
    while values.len() < 200 {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        values.extend(Some(f64::from_bits(bits)).filter(|value| value.is_finite()));
    }
    let mut client = live.client();
    for value in values {
        for form in [format!("{value:?}"), format!("{value:e}")] {
            client.send(&put("/", &format!(r#"{{"id":1,"description":"","value":{form}}}"#))).expect("it is sent");
            client.expect_one_of(&[200, 201]);
            let text = client.ask(&get("/1"), 200).text();
            let digits = text.split("\"value\":").nth(1).and_then(|rest| rest.strip_suffix('}'));
            let parsed: f64 = digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(parsed.to_bits(), value.to_bits(), "{form} came back as {text}");
        }
    }
    Outcome::Held
}

/// A description round-trips: empty, long, with quotes, with control characters, and with characters of every Unicode plane.
pub(super) fn a_description_comes_back_whole(subject: &ServerSubject) -> Outcome {
    let live = entities(subject);
    let mut client = live.client();
    let long = "long \u{2603} \" \\ ".repeat(5_000);
    for text in [
        "",
        "\"",
        "\\",
        "\\n",
        "a\r\n\t\u{8}\u{c}\0\u{1f}\u{7f}",
        "\u{e9}\u{2028}\u{ffff}\u{1f980}",
        "</script>",
        &long,
    ] {
        let entity = serde_json::json!({"id": 1, "description": text, "value": 1.5});
        client.send(&put("/", &entity.to_string())).expect("the server takes the request");
        client.expect_one_of(&[200, 201]);
        let got: serde_json::Value = serde_json::from_slice(&client.ask(&get("/1"), 200).body).expect("it is JSON");
        assert_eq!(got, entity);
    }
    Outcome::Held
}

/// No error repeats more than 100 bytes of the request, from its head or its body.
pub(super) fn errors_do_not_echo_the_request(subject: &ServerSubject) -> Outcome {
    let live = entities(subject);
    let z = "z".repeat(5_000);
    for (request, status) in [
        (get(&format!("/{z}")), 400),
        (get(&format!("/{z}/{z}")), 404),
        (with_body("PUT", "/", &format!("Content-Encoding: {z}\r\n"), ONE.as_bytes()), 415),
        (put("/", &format!(r#"{{"id":"{z}","description":"d","value":2}}"#)), 422),
        (put("/", &format!(r#"{{"id":1,"description":"d","{z}":1,"{z}":2}}"#)), 422),
        (put("/", &format!(r#"{{"id":1,"description":"d","value":2,"{z}"}}"#)), 400),
        (put("/", &z), 400),
        (get(&format!("/{}", "9".repeat(5_000))), 400),
    ] {
        let text = live.ask(&request, status).text();
        let echoed = text.matches('z').count().max(text.matches('9').count());
        assert!(echoed <= 100, "{echoed} bytes are echoed: {text}");
    }
    Outcome::Held
}

/// A body of exactly the limit is accepted. One more byte is answered with 413, by length and chunked.
pub(super) fn a_body_past_the_limit_is_too_large(subject: &ServerSubject) -> Outcome {
    let service = Arc::new(EntityService::new(MapRepo::<Entity>::default()));
    let live = subject.live(service, |config| config.max_body = 1000);
    let entity = |length: usize| {
        let fixed = r#"{"id":1,"description":"","value":2}"#.len();
        format!(r#"{{"id":1,"description":"{}","value":2}}"#, "d".repeat(length - fixed))
    };
    live.ask(&put("/", &entity(1000)), 201);
    live.ask(&chunked("PUT", "/", entity(1000).as_bytes(), 300), 200);
    for length in [1001, 1100, 5000] {
        subject.check_early_problem(&live.ask(&put("/", &entity(length)), 413));
        for chunk in [1, 300, 10_000] {
            subject.check_early_problem(&live.ask(&chunked("PUT", "/", entity(length).as_bytes(), chunk), 413));
        }
    }
    assert_eq!(live.ask(&get("/1"), 200).text(), entity(1000).replace(":2}", ":2.0}"));
    Outcome::Held
}
