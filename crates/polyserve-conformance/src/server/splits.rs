//! A request may be split at any byte, and its body may have any size.

use super::prelude::*;
use crate::client::shown;

/// Requests in every framing, and the bodies of their echoes.
fn samples() -> [(Vec<u8>, &'static [&'static str]); 4] {
    let pair = [with_body("PUT", "/1", "", b"one"), chunked("POST", "/2", b"two, chunked", 5)].concat();
    [
        (b"GET /1?q HTTP/1.1\r\nHost: a\r\nX-Empty:\r\nAccept: */*\r\n\r\n".to_vec(), &[""]),
        (with_body("PUT", "/1", "", b"\r\nGET / HTTP/1.1\r\n\r\n"), &["\r\nGET / HTTP/1.1\r\n\r\n"]),
        (
            b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
              4;x=1;y=\"a\"\r\nwiki\r\n0a\r\n0123456789\r\n000\r\nTrailer: dropped\r\nX: y\r\n\r\n"
                .to_vec(),
            &["wiki0123456789"],
        ),
        (pair, &["one", "two, chunked"]),
    ]
}

/// A request that arrives in two parts is the same request. Tried at every byte of requests in every framing.
pub(super) fn a_request_may_be_split_anywhere(subject: &ServerSubject) {
    let live = echo(subject);
    for (bytes, bodies) in samples() {
        let mut client = live.client();
        for at in 1..bytes.len() {
            let (head, tail) = bytes.split_at(at);
            send_parts(&mut client, &[head, tail]);
            for body in bodies {
                assert_eq!(client.expect(200).text(), *body, "split at {at} of {}", shown(&bytes));
            }
        }
    }
}

/// A request may arrive byte by byte.
pub(super) fn a_request_may_arrive_byte_by_byte(subject: &ServerSubject) {
    let live = echo(subject);
    for (bytes, bodies) in samples() {
        let mut client = live.client();
        for byte in bytes.chunks(1) {
            send_parts(&mut client, &[byte, b""]);
        }
        for body in bodies {
            assert_eq!(client.expect(200).text(), *body, "{}", client.show());
        }
    }
}

/// Bytes that are read past the end of a request belong to the next request.
pub(super) fn a_piece_may_end_inside_the_next_request(subject: &ServerSubject) {
    let live = echo(subject);
    let sample = with_body("POST", "/", "", b"0123456789");
    let bytes = sample.repeat(40);
    for size in [sample.len() + 1, sample.len() + 20, sample.len() - 1, sample.len() / 2 + 1, 3 * sample.len() - 5] {
        let mut client = live.client();
        let parts: Vec<&[u8]> = bytes.chunks(size).collect();
        send_parts(&mut client, &parts);
        for n in 0..40 {
            assert_eq!(client.expect(200).text(), "0123456789", "answer {n}, pieces of {size}");
        }
    }
}

/// Bodies with sizes around those of common buffers arrive whole. Tested with a length and in chunks.
pub(super) fn bodies_of_every_size_come_through(subject: &ServerSubject) {
    let live = echo(subject);
    let mut client = live.client();
    for length in [0, 1, 2, 511, 4095, 4096, 4097, 16_383, 16_384, 16_385, 65_535, 65_536, 65_537, 300_000] {
        let body = pattern(length);
        client.send(&with_body("POST", "/", "", &body)).expect("the server takes the request");
        check_pattern(&client.expect(200).body, length);
        for chunk in [length.div_ceil(3).max(1), 16_384, 70_000] {
            client.send(&chunked("POST", "/", &body, chunk)).expect("the server takes the request");
            check_pattern(&client.expect(200).body, length);
        }
    }
}
