//! The end of a body: given by its length, given by its chunks, or ambiguous.

use polyserve_serving::http1::{Phase, Want};

use super::support::*;

/// A request with these fields, and the bytes after its head.
fn post(fields: &str, after: &str) -> Vec<u8> {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n{after}").into_bytes()
}

/// A request after the body. Its answer proves that the body ended at the right byte.
const NEXT: &str = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n";

/// Checks that the body is `expected`, and that the next request is answered.
#[track_caller]
fn framed(fields: &str, sent: &str, expected: &str) {
    let answers = ok(&echo_text("POST", "/", expected)) + &ok(&echo_text("GET", "/next", ""));
    let asked = ask_twice(&env(), &post(fields, &format!("{sent}{NEXT}")));
    assert_eq!(asked, (answers, Want::Read(Phase::Idle)), "{fields:?} {sent:?}");
}

/// Checks that the request is refused with `status`, and that nothing after it is answered.
#[track_caller]
fn refused(status: u16, fields: &str, sent: &str) {
    super::support::refused(status, &post(fields, sent));
}

#[test]
fn lengths() {
    framed("", "", "");
    framed("Content-Length: 0\r\n", "", "");
    framed("Content-Length: 5\r\n", "hello", "hello");
    framed("content-length:5\r\n", "GET /", "GET /");
    framed("Content-Length: \t5 \t\r\n", "hello", "hello");
    framed("Content-Length: 005\r\n", "hello", "hello");
    framed("Content-Length: 5\r\nContent-Length: 5\r\n", "hello", "hello");
    framed("Content-Length: 5\r\nX: y\r\ncontent-length: 05\r\n", "hello", "hello");
    framed("Content-Length: 00000000000000000000000000000005\r\n", "hello", "hello");
    for length in ["", " ", "-5", "+5", "5a", "0x5", "5.0", "5,5", "5, 5", "5 5", "5;", "\"5\"", "\u{665}", "1e1"] {
        refused(400, &format!("Content-Length: {length}\r\n"), "hello");
    }
    refused(400, "Content-Length: 5\r\nContent-Length: 6\r\n", "hello!");
    refused(400, "Content-Length: 0\r\nContent-Length:\r\n", "");
    // Lengths past 64 bits: one is too large, and two that differ are ambiguous.
    refused(413, "Content-Length: 18446744073709551616\r\n", "");
    refused(413, "Content-Length: 18446744073709551620\r\n", "four"); // 4, were it to wrap
    refused(413, "Content-Length: 99999999999999999999999999\r\n", "");
    refused(400, "Content-Length: 99999999999999999999999998\r\nContent-Length: 99999999999999999999999999\r\n", "");
}

#[test]
fn transfer_codings() {
    for value in ["chunked", "Chunked", "CHUNKED", " \tchunked \t"] {
        framed(&format!("Transfer-Encoding: {value}\r\n"), "5\r\nhello\r\n0\r\n\r\n", "hello");
    }
    for value in ["gzip, chunked", "gzip,chunked", "identity, chunked", "gzip, deflate, chunked", "x;a=b, chunked"] {
        refused(501, &format!("Transfer-Encoding: {value}\r\n"), "0\r\n\r\n");
    }
    refused(501, "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n");
    for value in [
        "",
        "gzip",
        "identity",
        "chunked, gzip",
        "chunked, chunked",
        "chunked, identity",
        "chunked,",
        ",chunked",
        "gzip,, chunked",
        "chunked;q=1",
        "chunked chunked",
        "xchunked",
        "chunkedx",
        "\"chunked\"",
        "\u{b}chunked",
        "gzip, chunked, chunked",
    ] {
        refused(400, &format!("Transfer-Encoding: {value}\r\n"), "0\r\n\r\n");
    }
    refused(400, "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n");
    refused(400, "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n", "0\r\n\r\n");
    refused(400, "Transfer-Encoding: chunked\r\nTransfer-Encoding:\r\n", "0\r\n\r\n");
}

#[test]
fn both_or_of_the_wrong_version_is_in_doubt() {
    for length in ["0", "5", "13"] {
        refused(400, &format!("Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n"), "5\r\nhello\r\n0\r\n\r\n");
        refused(400, &format!("Content-Length: {length}\r\nTransfer-Encoding: gzip, chunked\r\n"), "0\r\n\r\n");
    }
    let env = env();
    let old = b"POST / HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(statuses(ask(&env, old).0.as_bytes()), (vec![400], 1));
}

const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

#[test]
fn chunks() {
    for (sent, expected) in [
        ("0\r\n\r\n", ""),
        ("00\r\n\r\n", ""),
        ("5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", "hello"),
        ("0000000000000005\r\nhello\r\n0\r\n\r\n", "hello"),
        ("A\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
        ("a\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
        ("4\r\n0\r\n\r\r\n0\r\n\r\n", "0\r\n\r"),
        ("5;a\r\nhello\r\n0;b=c\r\n\r\n", "hello"),
        ("5 ; a=\"b;\\\"c\" ; d\r\nhello\r\n0\t;x\r\n\r\n", "hello"),
        ("5;a=b;c=\"\";d=\"\\\\\"\r\nhello\r\n0;e \t= \tf\t;g=\"\t\u{e9}\\\u{e9}\"\r\n\r\n", "hello"),
        ("5\r\nhello\r\n0\r\nT: v\r\nU:\r\n\r\n", "hello"),
        ("5\r\nhello\r\n0\r\nContent-Length: 3\r\nHost: b\r\n\r\n", "hello"),
    ] {
        framed(CHUNKED, sent, expected);
    }
}

#[test]
fn chunks_that_are_none() {
    // Each is a complete body except for one fault.
    for sent in [
        "\r\n0\r\n\r\n",
        ";a\r\n0\r\n\r\n",
        "x\r\n0\r\n\r\n",
        "-0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5_\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\rxhello\r\n0\r\n\r\n",
        "5\r\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\rx0\r\n\r\n",
        "5\r\nhellox\n0\r\n\r\n",
        "5\r\nhello!\r\n0\r\n\r\n",
        "5;\r\nhello\r\n0\r\n\r\n",
        "5; \r\nhello\r\n0\r\n\r\n",
        "5;=b\r\nhello\r\n0\r\n\r\n",
        "5;a\nhello\r\n0\r\n\r\n",
        "5;a\rb\r\nhello\r\n0\r\n\r\n",
        "5;a\0\r\nhello\r\n0\r\n\r\n",
        "5;a\u{7f}\r\nhello\r\n0\r\n\r\n",
        "5,a\r\nhello\r\n0\r\n\r\n",
        "00000000000000005\r\nhello\r\n0\r\n\r\n",
        "00000000000000000\r\n\r\n",
        "0\r\n T: v\r\n\r\n",
        "0\r\nT\r\n\r\n",
        "0\r\nT : v\r\n\r\n",
        "0\r\n: v\r\n\r\n",
        "0\r\nT: \0\r\n\r\n",
        "0\r\nT: a\rb\r\n\r\n",
        "0\r\nT: v\n\r\n",
        "0\r\nT: v\rx\r\n",
        "0\r\n\n",
        "0\r\n\rx",
        "0\n\r\n",
        "0\rx\r\n",
    ] {
        refused(400, CHUNKED, sent);
    }
    // Extensions outside the grammar of RFC 9112, 7.1.1. They were accepted once from their second byte on.
    for extension in [
        ";bad[=x",
        ";a=\"x",
        ";a=\"x\\\"",
        ";a=\"x\"y",
        ";a=\"x\"\"y\"",
        ";a=",
        ";a= ",
        ";a=;b",
        ";a=b=c",
        ";a b",
        ";a=b c",
        ";a ",
        ";a=b ",
        ";a=\"b\" ",
        ";a;",
        ";a;;b",
        ";a,b",
        ";a=b[",
        ";a=\"\u{1}\"",
        ";a=\"\\\u{1}\"",
        ";a=\"\u{7f}\"",
        ";a\u{e9}",
        ";a=\u{e9}",
    ] {
        refused(400, CHUNKED, &format!("5{extension}\r\nhello\r\n0\r\n\r\n"));
        refused(400, CHUNKED, &format!("5\r\nhello\r\n0{extension}\r\n\r\n"));
    }
    for sent in ["100001\r\n", "ffffffffffffffff\r\n", "7fffffffffffffff\r\n"] {
        refused(413, CHUNKED, sent);
    }
}

#[test]
fn any_method_may_have_a_body() {
    for method in ["GET", "PUT", "DELETE", "OPTIONS", "PATCH"] {
        let request = format!("{method} /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi{NEXT}");
        let answers = ok(&echo_text(method, "/x", "hi")) + &ok(&echo_text("GET", "/next", ""));
        assert_eq!(ask(&env(), request.as_bytes()).0, answers);
    }
    let request = format!("HEAD /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi{NEXT}");
    let head = ok(&echo_text("HEAD", "/x", "hi"));
    let answers =
        head.strip_suffix(&echo_text("HEAD", "/x", "hi")).unwrap().to_owned() + &ok(&echo_text("GET", "/next", ""));
    assert_eq!(ask(&env(), request.as_bytes()).0, answers);
}

#[test]
fn a_refused_body_of_a_head_request_gets_no_body_either() {
    let (output, want) = ask(&env(), b"HEAD / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx");
    assert!(output.starts_with("HTTP/1.1 400 ") && output.ends_with("\r\n\r\n"), "{output}");
    assert_eq!(want, LINGER);
}
