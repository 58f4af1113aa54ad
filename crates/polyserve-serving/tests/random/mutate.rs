//! Streams that are malformed, or nearly valid.

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use super::reader::Rules;

/// Parts of requests, and typical faults.
const FRAGMENTS: [&[u8]; 81] = [
    b"\r\n",
    b"\r\n",
    b"\r\n\r\n",
    b"\r\n\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b";",
    b",",
    b"=",
    b"\"",
    b"#",
    b"\x7f",
    b"\x80",
    b"\xff\xfe",
    b"\xc3\xa9",
    b"\n\n",
    b"\r\r\n",
    b"\r\n ",
    b"\x16\x03\x01",
    b"GET / HTTP/1.1\r\n",
    b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"PUT /2 HTTP/1.1\r\nHost:a\r\n",
    b"HEAD /3 HTTP/1.0\r\n\r\n",
    b"POST /later HTTP/1.1\r\nhost: b\r\n",
    b"HEAD ",
    b"GET ",
    b"PRI * HTTP/2.0\r\n",
    b"BREW /pot HTTP/1.1\r\n",
    b"CONNECT a:1 HTTP/1.1\r\n",
    b"OPTIONS * HTTP/1.1\r\n",
    b"GET http://:80/ HTTP/1.1\r\n",
    b" HTTP/1.1",
    b" HTTP/1.0",
    b" HTTP/1.2",
    b" HTTP/1.",
    b" HTTP/0.9",
    b"/refuse",
    b"/panic",
    b"http://",
    b"*",
    b"Host: a\r\n",
    b"Host: [::1]:x\r\n",
    b"Host : a\r\n",
    b"Host: a%2\r\n",
    b"Content-Length: ",
    b"Content-Length: 5\r\n",
    b"Content-Length: 3\r\n",
    b"Content-Length: 99999999999999999999999\r\n",
    b"Content-Length: 1, 1\r\n",
    b"5\r\nhello\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer-Encoding: ",
    b"chunked",
    b"0\r\n\r\n",
    b"0\r\nT: v\r\n\r\n",
    b"1\r\nx\r\n",
    b"ffffffffffffffff",
    b"00000000000000000",
    b"3;a=b\r\nabc\r\n",
    b"0;a=\"\\\"\"\r\n",
    b";a",
    b"=\"",
    b"\\",
    b"{",
    b"?",
    b"?%|",
    b"%",
    b"%41",
    b"Expect: 100-continue\r\n",
    b"Expect: tea\r\n",
    b"Connection: close\r\n",
    b"Connection: keep-alive\r\n",
    b"a: b\r\n",
    b": ",
    b"-1",
    b"+1",
];

/// Creates a stream of fragments only.
pub(crate) fn garbage(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut stream = Vec::new();
    for _ in 0..rng.random_range(1..25) {
        add_fragment(rng, &mut stream);
    }
    stream
}

/// Changes `stream` in a few places.
pub(crate) fn mutate(rng: &mut ChaCha8Rng, stream: &mut Vec<u8>) {
    for _ in 0..rng.random_range(1..6) {
        let at = rng.random_range(0..=stream.len());
        let end = (at + rng.random_range(0..12)).min(stream.len());
        match rng.random_range(0..9) {
            0 if at < stream.len() => stream[at] ^= 1 << rng.random_range(0..8),
            1 if at < stream.len() => stream[at] = rng.random(),
            2 => drop(stream.drain(at..end)),
            3 => {
                let again = stream[at..end].to_vec();
                stream.splice(at..at, again);
            }
            4 => stream.truncate(at),
            5 => stream.insert(at, rng.random()),
            6 => {
                // A fragment that is a line is inserted after the end of a line.
                let lf = stream[at..].iter().position(|&b| b == b'\n').map_or(at, |lf| at + lf + 1);
                let mut fragment = Vec::new();
                add_fragment(rng, &mut fragment);
                stream.splice(lf..lf, fragment);
            }
            _ => {
                let mut fragment = Vec::new();
                add_fragment(rng, &mut fragment);
                stream.splice(at..at, fragment);
            }
        }
    }
}

fn add_fragment(rng: &mut ChaCha8Rng, stream: &mut Vec<u8>) {
    match rng.random_range(0..30) {
        0 => stream.extend(std::iter::repeat_n(b'x', rng.random_range(1..400))),
        1 => stream.extend(b"a:\r\n".repeat(rng.random_range(1..120))),
        2 => stream.extend(b"\r\n".repeat(rng.random_range(1..40))),
        3 => stream.extend((0..rng.random_range(1..30)).map(|_| rng.random::<u8>())),
        _ => stream.extend_from_slice(FRAGMENTS.choose(rng).copied().unwrap_or_default()),
    }
}

/// Returns the default limits, or limits that streams exceed.
pub(crate) fn rules(rng: &mut ChaCha8Rng) -> Rules {
    if rng.random_range(0..2) == 0 {
        Rules { max_head: 16 * 1024, max_headers: 100, max_body: 1024 * 1024 }
    } else {
        Rules {
            max_head: rng.random_range(64..400),
            max_headers: rng.random_range(1..=10),
            max_body: rng.random_range(0..100),
        }
    }
}
