//! Refusals and their bytes: when they come, and what they say. Which other requests are refused is in the wire corpus.

use polyserve_serving::http1::{Phase, SessionStep};

use super::support::*;

/// Regression test: targets with bytes that no URI may hold reached the service: all printable bytes but `#` were accepted.
/// Later, queries were refused that browsers send.
#[test]
fn bytes_of_targets() {
    let in_uri = b"!$&'()*+,-./0123456789:;=?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]_abcdefghijklmnopqrstuvwxyz~";
    let check = |is_valid: bool, target: &[&[u8]]| {
        let bytes = [b"GET ", &target.concat()[..], b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        let (output, step) = ask_twice(&server(), &bytes);
        let expected =
            if is_valid { ((vec![200], 0), SessionStep::Read(Phase::Idle)) } else { ((vec![400], 1), LINGER) };
        let case = bytes.escape_ascii();
        assert_eq!((statuses(output.as_bytes()), step), expected, "b\"{case}\" gets {output}");
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
fn what_cannot_become_a_request_is_not_waited_for() {
    let server = server();
    for bytes in [&b"\x16\x03\x01\x02\x00\x01"[..], b"\0", b"{", b"\"", b"GET\t", b"GET / HTTP/1.1\n", b"a: b\r\n"] {
        assert_eq!(ask(&server, bytes).1, LINGER, "b\"{}\"", bytes.escape_ascii());
    }
    for bytes in [&b"G"[..], b"GET", b"GET ", b"GET / HTTP/1.1\r", b"GET / HTTP/1.1\r\nX", b"\r"] {
        assert_eq!(ask(&server, bytes).1, SessionStep::Read(Phase::Head), "b\"{}\"", bytes.escape_ascii());
    }
}

#[test]
fn blank_lines_before_a_request_are_skipped_up_to_a_bound() {
    // The bound applies to each request. The corpus has both sides of the bound.
    let server = server();
    let mut wire = Wire::new(&server);
    for _ in 0..4 {
        let _ = wire.send(&[b"\r\n".repeat(32), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()].concat());
        assert_eq!(wire.take_output(), ok(&echo_text("GET", "/", "")));
    }
}

#[test]
fn a_refusal_names_its_reason() {
    let (output, _) = ask(&server(), b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(output, refusal(polyserve_core::http::StatusCode::BAD_REQUEST, "The Host header field is missing."));
}
