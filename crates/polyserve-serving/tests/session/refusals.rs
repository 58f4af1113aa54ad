//! Heads that are refused, with status and close, and similar heads that are valid.

use polyserve_serving::http1::{Phase, Want};

use super::support::*;

#[track_caller]
fn served(bytes: &[u8]) {
    let (output, want) = ask_twice(&env(), bytes);
    let case = bytes.escape_ascii();
    let expected = ((vec![200], 0), Want::Read(Phase::Idle));
    assert_eq!((statuses(output.as_bytes()), want), expected, "b\"{case}\" gets {output}");
}

/// A request with this request line and the fields that it needs.
fn line(line: &str) -> Vec<u8> {
    format!("{line}\r\nHost: a\r\n\r\n").into_bytes()
}

/// A request with one more field line, or other bytes in its place.
fn field(field: &[u8]) -> Vec<u8> {
    [b"GET / HTTP/1.1\r\nHost: a\r\n", field, b"\r\n\r\n"].concat()
}

#[test]
fn request_lines_that_are_none() {
    for text in [
        "GET /",
        "GET",
        "GET / ",
        "GET /  HTTP/1.1",
        "GET  / HTTP/1.1",
        " GET / HTTP/1.1",
        "\tGET / HTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET /a b HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "GET /\tHTTP/1.1",
        "G(T / HTTP/1.1",
        "G\0T / HTTP/1.1",
        "\u{16}\u{3}\u{1}",
        "GET /\u{7f} HTTP/1.1",
        "GET /\u{e9} HTTP/1.1",
        "GET /a\u{1}b HTTP/1.1",
        "GET /a#b HTTP/1.1",
        "GET / http/1.1",
        "GET / HTTP/0.9",
        "GET / HTTP/1",
        "GET / HTTP/1.",
        "GET / HTTP/11",
        "GET / HTTP/1.1.1",
        "GET / HTTP/1.10",
        "GET / HTTP/01.1",
        "GET / HTTP/-1.1",
        "GET / HTTP/a.b",
        "GET / HTTPS/1.1",
        "GET / XXXX/1.1",
        "GET / FTP/1.1",
        "PRI * HTTP/2.0",
        "HTTP/1.1 200 OK",
    ] {
        refused(400, &line(text));
    }
    refused(400, b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n");
}

#[test]
fn versions_that_are_not_spoken() {
    for version in ["1.2", "1.9", "2.0", "2.1", "3.0", "9.9"] {
        refused(505, &line(&format!("GET / HTTP/{version}")));
    }
    refused(505, &line("PRI / HTTP/2.0"));
}

#[test]
fn methods_that_are_not_known() {
    for text in ["TRACE / HTTP/1.1", "CONNECT a:80 HTTP/1.1", "BREW /pot HTTP/1.1", "get / HTTP/1.1", "GETS / HTTP/1.1"]
    {
        refused(501, &line(text));
    }
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
        served(&line(&format!("{method} / HTTP/1.1")));
    }
}

#[test]
fn targets() {
    for target in
        ["*", "a", "a/b", "?x", "http://", "http:///x", "http://:80/", "http://a b/", "http://u@a/", "ftp://a/", "a:80"]
    {
        refused(400, &line(&format!("GET {target} HTTP/1.1")));
    }
    for target in
        ["/", "//", "/?", "/a%20b?%C3%a9", "http://a", "HTTPS://a:1/x?y", "http://[::1]?x", "/?http://", "/a[0]?b[]=c"]
    {
        served(&line(&format!("GET {target} HTTP/1.1")));
    }
    served(&line("OPTIONS * HTTP/1.1"));
}

/// Regression test: targets with bytes that no URI may hold reached the service: all printable bytes but `#` were accepted.
/// Later, queries were refused that browsers send.
#[test]
fn bytes_of_targets() {
    let in_uri = b"!$&'()*+,-./0123456789:;=?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]_abcdefghijklmnopqrstuvwxyz~";
    let check = |is_valid: bool, target: &[&[u8]]| {
        let bytes = [b"GET ", &target.concat()[..], b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        if is_valid { served(&bytes) } else { refused(400, &bytes) }
    };
    for byte in 0..=u8::MAX {
        for before in [&b"/"[..], b"/a", b"http://a/"] {
            check(in_uri.contains(&byte), &[before, &[byte]]);
            check(byte.is_ascii_hexdigit(), &[before, b"%", &[byte], b"0"]);
            check(byte.is_ascii_hexdigit(), &[before, b"%0", &[byte]]);
        }
        check(false, &[b"*", &[byte]]);
        for before in [&b"/?"[..], b"/a?b=", b"http://a/?", b"http://a?"] {
            check(byte > b' ' && byte < 0x7f && !b"\"#<>".contains(&byte), &[before, &[byte]]);
        }
    }
    for target in ["/%", "/a%%20", "/%20%", "/%0%00", "http://a/%", "/%-1", "/%+1", "/%?a", "/{?a", "/\u{e9}?a"] {
        check(false, &[target.as_bytes()]);
    }
    for target in ["/%00%fF%25", "/?%", "/?a=%4", "/?\u{e9}\u{2603}\u{1F980}", "/1?%zz&{a|b}?^`\\"] {
        check(true, &[target.as_bytes()]);
    }
    // A target is a text: what is not UTF-8 is refused, in a query too.
    for query in [&b"\xc3\xa9\xc3"[..], b"\xed\xa0\x80"] {
        check(false, &[b"/1?q=", query]);
    }
}

#[test]
fn line_ends_and_control_bytes() {
    for bytes in [
        &b"GET / HTTP/1.1\nHost: a\r\n\r\n"[..],
        b"GET / HTTP/1.1\r\nHost: a\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\n",
        b"GET / HTTP/1.1\n\n",
        b"GET / HTTP/1.1\rHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\r\nHost: a\r\n\r\n",
        b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\rGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\r\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\0",
    ] {
        refused(400, bytes);
    }
    for value in [&b"X: a\rb"[..], b"X: a\nb", b"X: a\0b", b"X: a\x01b", b"X: \x7f", b"X: a\r", b"X:\r", b"X: \x1b[0m"]
    {
        refused(400, &field(value));
    }
}

#[test]
fn field_lines() {
    for line in [
        &b"X"[..],
        b"X : a",
        b"X\t: a",
        b": a",
        b"X Y: a",
        b" X: a",
        b"\tX: a",
        b"X: a\r\n folded",
        b"X: a\r\n\tfolded",
        b"X:\r\n ",
        b"X(: a",
        b"X\xe9: a",
        b"X\0: a",
        b"\"X\": a",
    ] {
        refused(400, &field(line));
    }
    refused(400, b"GET / HTTP/1.1\r\n Host: a\r\n\r\n");
    for line in
        [&b"X:"[..], b"X: ", b"X:a", b"X: \t a \t ", b"X: \xe9\xff\x80", b"X: a:b", b"!#$%&'*+-.^_`|~: a", b"X: \"\\"]
    {
        served(&field(line));
    }
}

#[test]
fn hosts() {
    let get = |version: &str, fields: &str| format!("GET / HTTP/{version}\r\n{fields}\r\n").into_bytes();
    let long = "a".repeat(100);
    let valid = [
        "",
        "a",
        "a:80",
        "a:",
        "a:000080",
        "[::1]",
        "[::1]:80",
        "[v1.a:b]",
        "A.b-c_d~e",
        "%41",
        "a%20b",
        "%C3%A9",
        ":",
        ":80",
        "!$&'()*+,;=",
    ];
    for host in valid.into_iter().chain(["localhost:8001", "127.0.0.1", "127.0.0.1:", "[::ffff:1.2.3.4]", &long]) {
        served(&get("1.1", &format!("Host: {host}\r\n")));
    }
    let invalid = [
        "a b", "a, b", "a/b", "u@a", "a:b", "a:1:2", "a:-1", "a:+1", "a%", "a%2", "a%2x", "[", "[]", "[x]", "[::1",
        "::1", "[::1]x", "[::1]:x", "[:::1]", "[v1.]", "[v.a]", "[vg.a]", "[v1a]", "a[::1]", "a\"b", "<a>", "a\\b",
        "a?b", "a#b", "a^b", "{a}", "a|b", "\u{e9}", "[\u{e9}]", "http://a",
    ];
    for host in invalid.into_iter().chain(["[1.2.3.4]", "[fe80::1%25eth0]", &format!("{long}/")]) {
        refused(400, &get("1.1", &format!("Host: {host}\r\n")));
    }
    for fields in ["", "X: a\r\n", "Host: a\r\nhOST: b\r\n", "Host:\r\nHost:\r\n", "Host : a\r\n"] {
        refused(400, &get("1.1", fields));
    }
    for fields in ["hOsT:a\r\n", "HOST: \t a \t\r\n", "Host:\r\n", "X: y\r\nHost: a\r\n"] {
        served(&get("1.1", fields));
    }
    // HTTP/1.0 needs no host, but the host must be valid if there is one.
    assert_eq!(statuses(ask(&env(), &get("1.0", "")).0.as_bytes()).0, [200]);
    refused(400, &get("1.0", "Host: a\r\nHost: a\r\n"));
    refused(400, &get("1.0", "Host: a b\r\n"));
}

#[test]
fn what_cannot_become_a_request_is_not_waited_for() {
    let env = env();
    for bytes in [&b"\x16\x03\x01\x02\x00\x01"[..], b"\0", b"{", b"\"", b"GET\t", b"GET / HTTP/1.1\n", b"a: b\r\n"] {
        assert_eq!(ask(&env, bytes).1, LINGER, "b\"{}\"", bytes.escape_ascii());
    }
    for bytes in [&b"G"[..], b"GET", b"GET ", b"GET / HTTP/1.1\r", b"GET / HTTP/1.1\r\nX", b"\r"] {
        assert_eq!(ask(&env, bytes).1, Want::Read(Phase::Head), "b\"{}\"", bytes.escape_ascii());
    }
}

#[test]
fn blank_lines_before_a_request_are_skipped_up_to_a_bound() {
    for count in [1, 2, 32] {
        served(&[b"\r\n".repeat(count), line("GET / HTTP/1.1")].concat());
    }
    refused(400, &[b"\r\n".repeat(33), line("GET / HTTP/1.1")].concat());
    // The bound applies to each request.
    let env = env();
    let mut wire = Wire::new(&env);
    for _ in 0..4 {
        let _ = wire.send(&[b"\r\n".repeat(32), line("GET / HTTP/1.1")].concat());
        assert_eq!(wire.take_output(), ok(&echo_text("GET", "/", "")));
    }
}

#[test]
fn a_refused_head_request_gets_no_body() {
    let (output, want) = ask(&env(), b"HEAD / HTTP/1.1\r\n\r\n");
    assert!(output.starts_with("HTTP/1.1 400 Bad Request\r\n") && output.ends_with("\r\n\r\n"), "{output}");
    assert_eq!((output.matches("\r\n\r\n").count(), want), (1, LINGER));
}

#[test]
fn a_refusal_names_its_reason() {
    let (output, _) = ask(&env(), b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(output, refusal(polyserve_core::http::StatusCode::BAD_REQUEST, "The Host header field is missing."));
}
