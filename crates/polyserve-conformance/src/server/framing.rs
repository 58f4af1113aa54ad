//! The end of a request: lengths, chunks, and messages with an ambiguous end.

use std::sync::Arc;
use std::time::Duration;

use polyserve_core::Echo;

use super::keep_alive::echo;
use super::subject::ServerSubject;
use super::wire::{check_pattern, chunked, get, pattern, request, with_body};
use crate::client::shown;
use crate::property::Outcome;

const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"];

/// Every known method reaches the service with its body.
pub fn every_known_method_reaches_the_service(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    let mut client = live.client();
    for method in METHODS {
        let sized = with_body(method, "/any/path?q", "", b"hello");
        for (bytes, is_chunked) in [(sized, false), (chunked(method, "/any/path?q", b"hello", 2), true)] {
            client.send(&bytes).expect("the server takes the request");
            let response = if method == "HEAD" {
                let head = client.receive_head().unwrap_or_else(|failure| panic!("HEAD: {failure}"));
                assert_eq!((head.status, head.header("Content-Length")), (200, Some("5")));
                head
            } else {
                let response = client.expect(200);
                assert_eq!(response.text(), "hello", "{method}");
                response
            };
            if is_chunked {
                subject.after_chunked(&live, &mut client, &response);
            }
        }
    }
    Outcome::Held
}

/// Bodies with sizes around those of common buffers arrive whole. Tested with a length and in chunks.
pub fn bodies_of_every_size_come_through(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    let mut client = live.client();
    for length in [0, 1, 2, 511, 4095, 4096, 4097, 16_383, 16_384, 16_385, 65_535, 65_536, 65_537, 300_000] {
        let body = pattern(length);
        client.send(&with_body("POST", "/", "", &body)).expect("the server takes the request");
        check_pattern(&client.expect(200).body, length);
        for chunk in [length.div_ceil(3).max(1), 16_384, 70_000] {
            client.send(&chunked("POST", "/", &body, chunk)).expect("the server takes the request");
            let response = client.expect(200);
            check_pattern(&response.body, length);
            subject.after_chunked(&live, &mut client, &response);
        }
    }
    Outcome::Held
}

/// A body of exactly `max_body` is accepted. A body with one more byte is answered with 413, and the connection ends.
/// Tested with a length and in chunks.
pub fn max_body_is_exact(subject: &ServerSubject) -> Outcome {
    let live = subject.live(Arc::new(Echo), |config| config.max_body = 20_000);
    let (largest, too_large) = (pattern(20_000), pattern(20_001));
    check_pattern(&live.ask(&with_body("POST", "/", "", &largest), 200).body, 20_000);
    for chunk in [1_000, 20_000] {
        check_pattern(&live.ask(&chunked("POST", "/", &largest, chunk), 200).body, 20_000);
    }
    subject.refused_for_good(&live, &with_body("POST", "/", "", &too_large), &[413]);
    for chunk in [1_000, 20_001] {
        subject.refused_for_good(&live, &chunked("POST", "/", &too_large, chunk), &[413]);
    }
    // The length alone decides: the server does not wait for such a body.
    for length in ["20001", "4294967296", "9223372036854775807", "18446744073709551615"] {
        let fields = format!("Content-Length: {length}\r\n");
        subject.refused_for_good(&live, &request("POST", "/", &fields), &[413]);
    }
    // A length beyond 64 bits may be answered with 400, as a number that the server cannot read.
    let too_long = "Content-Length: 99999999999999999999999999\r\n";
    subject.refused_for_good(&live, &request("POST", "/", too_long), &[413, 400]);
    let none = subject.live(Arc::new(Echo), |config| config.max_body = 0);
    none.ask(&get("/"), 200);
    none.ask(&with_body("POST", "/", "", b""), 200);
    subject.refused_for_good(&none, &with_body("POST", "/", "", b"a"), &[413]);
    Outcome::Held
}

/// A `Content-Length` with anything but digits is answered with 400, and the connection ends.
pub fn a_length_is_digits(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    for length in ["+5", "-5", "0x5", "5, 5", "5,6", "", "5 5", "5a", "a", "5.0", "1e1", "\"5\"", "5;", "-0", "\u{b2}"]
    {
        let bytes = request("POST", "/", &format!("Content-Length: {length}\r\n"));
        subject.refused_for_good(&live, &[bytes.as_slice(), b"hello"].concat(), &[400]);
    }
    Outcome::Held
}

/// A repeated `Content-Length` is accepted if the values are equal, and is answered with 400 if they differ.
pub fn a_repeated_length_must_agree(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    let with_lengths = |a, b| {
        [request("POST", "/", &format!("Content-Length: {a}\r\ncontent-length: {b}\r\n")), b"hello".to_vec()].concat()
    };
    assert_eq!(live.ask(&with_lengths("5", "5"), 200).text(), "hello");
    for (a, b) in [("5", "6"), ("6", "5"), ("0", "5"), ("5", "0"), ("5", ""), ("5", "x")] {
        subject.refused_for_good(&live, &with_lengths(a, b), &[400]);
    }
    Outcome::Held
}

/// A `Content-Length` together with `Transfer-Encoding` is answered with 400, and the connection ends: such a request
/// may smuggle another request.
pub fn length_with_chunked_is_refused(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        "transfer-encoding: Chunked\r\ncontent-length: 15\r\n",
    ] {
        let bytes = [request("POST", "/", fields).as_slice(), b"5\r\nhello\r\n0\r\n\r\n"].concat();
        if subject.deviations.chunked_overrides_length {
            assert_eq!(live.ask(&bytes, 200).text(), "hello", "{}", shown(&bytes));
        } else {
            subject.refused_for_good(&live, &bytes, &[400]);
        }
    }
    Outcome::Held
}

/// `chunked` must be the only coding. Another coding before `chunked` is answered with 501. Any coding after `chunked`,
/// also a second `chunked`, is answered with 400.
pub fn chunked_is_the_only_coding(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    let unknown: &[u16] = if subject.deviations.unknown_coding_is_400 { &[400] } else { &[501] };
    for (codings, statuses) in [
        ("gzip, chunked", unknown),
        ("gzip,chunked", unknown),
        // RFC 9112 allows both statuses for an unknown coding without `chunked` (sections 6.1 and 6.3).
        ("gzip", &[400, 501]),
        ("identity", &[400, 501]),
        ("xchunked", &[400, 501]),
        ("chunkedx", &[400, 501]),
        ("chunked x", &[400, 501]),
        ("\"chunked\"", &[400, 501]),
        ("chunked, gzip", &[400]),
        ("chunked, identity", &[400]),
        ("chunked, chunked", &[400]),
    ] {
        let bytes = request("POST", "/", &format!("Transfer-Encoding: {codings}\r\n"));
        subject.refused_for_good(&live, &[bytes.as_slice(), b"5\r\nhello\r\n0\r\n\r\n"].concat(), statuses);
    }
    let twice = request("POST", "/", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n");
    subject.refused_for_good(&live, &[twice.as_slice(), b"5\r\nhello\r\n0\r\n\r\n"].concat(), &[400]);
    for coding in ["CHUNKED", "Chunked", "\tchunked\t"] {
        let bytes = request("POST", "/", &format!("Transfer-Encoding: {coding}\r\n"));
        assert_eq!(live.ask(&[bytes.as_slice(), b"5\r\nhello\r\n0\r\n\r\n"].concat(), 200).text(), "hello", "{coding}");
    }
    Outcome::Held
}

/// A transfer coding in HTTP/1.0 is answered with 400, and the connection ends.
pub fn chunked_is_unknown_to_1_0(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    for keep in ["", "Connection: keep-alive\r\n"] {
        let head = format!("POST / HTTP/1.0\r\n{keep}Transfer-Encoding: chunked\r\n\r\n");
        let mut client = live.client();
        let sent = client.send(&[head.as_bytes(), b"5\r\nhello\r\n0\r\n\r\n", &get("/next")].concat());
        subject.check_early_problem(&client.expect(400));
        client.expect_end();
        drop(sent);
    }
    Outcome::Held
}

/// A chunk size may have leading zeros, and digits in upper or lower case. Extensions are skipped and trailers dropped.
pub fn chunks_may_carry_more_than_data(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    let mut client = live.client();
    for (body, text) in [
        ("5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("0005\r\nhello\r\n0000\r\n\r\n", "hello"),
        ("A\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
        ("a\r\n0123456789\r\n1\r\n!\r\n0\r\n\r\n", "0123456789!"),
        ("5;ext\r\nhello\r\n0;last=\"1\"\r\n\r\n", "hello"),
        ("5;a=1;b=\"x y; \\\" z\"\r\nhello\r\n0\r\n\r\n", "hello"),
        ("5\r\nhello\r\n0\r\nTrailer: a\r\nContent-Length: 7\r\nX:\r\n\r\n", "hello"),
        ("2\r\n\r\n\r\n0\r\n\r\n", "\r\n"),
        ("0\r\n\r\n", ""),
    ] {
        let head = request("POST", "/", "Transfer-Encoding: chunked\r\n");
        let response = client.ask(&[head.as_slice(), body.as_bytes()].concat(), 200);
        assert_eq!(response.text(), text, "{body:?}");
        subject.after_chunked(&live, &mut client, &response);
    }
    Outcome::Held
}

/// An invalid chunked body is answered with 400, and the connection ends. A size that is too large may be answered with 413.
pub fn broken_chunks_are_refused(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    for (body, statuses) in [
        (&b"-1\r\nhello\r\n0\r\n\r\n"[..], &[400][..]),
        (b"+5\r\nhello\r\n0\r\n\r\n", &[400]),
        (b"0x5\r\nhello\r\n0\r\n\r\n", &[400]),
        (b"g\r\nhello\r\n0\r\n\r\n", &[400]),
        (b"\r\nhello\r\n0\r\n\r\n", &[400]),
        (b";x\r\nhello\r\n0\r\n\r\n", &[400]),
        (b" 5\r\nhello\r\n0\r\n\r\n", &[400]),
        (b"5 5\r\nhello\r\n0\r\n\r\n", &[400]),
        (b"5_\r\nhello\r\n0\r\n\r\n", &[400]),
        (b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n", &[400, 413]),
        (b"10000000000000005\r\nhello\r\n0\r\n\r\n", &[400, 413]),
        (b"5\nhello\r\n0\r\n\r\n", &[400]),
        (b"5\rhello\r\n0\r\n\r\n", &[400]),
        (b"5\r\nhelloX\r\n0\r\n\r\n", &[400]),
        (b"5\r\nhello0\r\n\r\n\r\n", &[400]),
        (b"5\r\nhello\n0\r\n\r\n", &[400]),
        (b"5\r\nhello\r\r\n0\r\n\r\n", &[400]),
        (b"5;a\nb\r\nhello\r\n0\r\n\r\n", &[400]),
        (b"5;a\rb\r\nhello\r\n0\r\n\r\n", &[400]),
        (b"0\r\nTrailer a\r\n\r\n", &[400]),
        (b"0\r\nA : b\r\n\r\n", &[400]),
        (b"0\r\nA: b\nB: c\r\n\r\n", &[400]),
    ] {
        let head = request("POST", "/", "Transfer-Encoding: chunked\r\n");
        subject.refused_for_good(&live, &[head.as_slice(), body].concat(), statuses);
    }
    let control =
        [request("POST", "/", "Transfer-Encoding: chunked\r\n").as_slice(), b"5;a\0\r\nhello\r\n0\r\n\r\n"].concat();
    if subject.deviations.chunk_extensions_hold_anything {
        assert_eq!(live.ask(&control, 200).text(), "hello", "{}", shown(&control));
    } else {
        subject.refused_for_good(&live, &control, &[400]);
    }
    too_large_a_chunk(subject);
    Outcome::Held
}

/// Sends a chunk with a size that exceeds any body.
#[track_caller]
fn too_large_a_chunk(subject: &ServerSubject) {
    let live = subject.live(Arc::new(Echo), |config| {
        config.max_body = 1000;
        config.body_timeout = Duration::from_millis(300);
    });
    let head = request("POST", "/", "Transfer-Encoding: chunked\r\n");
    let chunk = [head.as_slice(), b"ffffffffffffffff\r\nhello"].concat();
    let believed = subject.deviations.chunk_sizes_are_believed;
    subject.refused_unfinished(&live, &chunk, if believed { &[408] } else { &[400, 413] });
    if believed {
        subject.refused_unfinished(&live, &[chunk, pattern(1000)].concat(), &[413]);
    }
}

/// Endless chunk extensions and endless trailers are refused, whatever the limits on head and body.
pub fn what_chunks_carry_is_bounded(subject: &ServerSubject) -> Outcome {
    let live = subject.live(Arc::new(Echo), |config| {
        config.max_head = 2048;
        config.max_body = 2048;
    });
    let head = request("POST", "/", "Transfer-Encoding: chunked\r\n");
    let extension = format!("1;{}", "x".repeat(200_000));
    let trailers = format!("0\r\n{}", "X-Trailer: y\r\n".repeat(20_000));
    for body in [extension, trailers] {
        subject.refused_unfinished(&live, &[head.as_slice(), body.as_bytes()].concat(), &[400, 413, 431]);
    }
    live.ask(&get("/"), 200);
    Outcome::Held
}

/// After a message with an ambiguous end, no request of its connection is answered.
pub fn nothing_follows_a_doubtful_message(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    let hidden = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let length = hidden.len();
    for head in [
        format!("Content-Length: {length}\r\nContent-Length: 0\r\n"),
        format!("Content-Length: 0\r\nContent-Length: {length}\r\n"),
        format!("Content-Length: {length}, 0\r\n"),
        format!("Content-Length: +{length}\r\n"),
        "Transfer-Encoding: xchunked\r\n".to_owned(),
        "Transfer-Encoding: chunked, identity\r\n".to_owned(),
        format!("Transfer-Encoding: identity\r\nContent-Length: {length}\r\n"),
        format!("Content-Length: {length}\r\nTransfer-Encoding : chunked\r\n"),
        format!("Content-Length: {length}\r\n Transfer-Encoding: chunked\r\n"),
        "Content-Length : 0\r\n".to_owned(),
        "X: y\rContent-Length: 0\r\n".to_owned(),
    ] {
        for chunk in ["0\r\n\r\n", ""] {
            let bytes = [request("POST", "/", &head), chunk.as_bytes().to_vec(), hidden.as_bytes().to_vec()].concat();
            subject.refused_for_good(&live, &bytes, &[400, 501]);
        }
    }
    Outcome::Held
}
