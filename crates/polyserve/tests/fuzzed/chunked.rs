//! A chunked body in one piece, byte by byte, and skipped.
//!
//! The first byte of an input selects the limits. The rest is the body, and what follows it.

use polyserve::serving::http1::chunked::Chunked;
use polyserve::serving::http1::decode::{Limits, Refusal};

/// The end of a body: the number of bytes used, or why it is refused, and whether it is complete.
#[derive(Debug, PartialEq)]
struct End {
    used: Result<usize, Refusal>,
    is_done: bool,
}

/// Reads a part of a body.
type ReadStep<'a> = dyn FnMut(&mut Chunked, &[u8]) -> Result<usize, Refusal> + 'a;

pub(crate) fn check(input: &[u8]) {
    let [limits, body @ ..] = input else { return };
    let limits = match limits % 2 {
        0 => Limits { max_head: 16 * 1024, max_headers: 100, max_body: 1024 * 1024 },
        _ => Limits { max_head: 16, max_headers: 2, max_body: 8 },
    };
    let (mut whole, mut parts) = (Vec::new(), Vec::new());
    let at_once = read(body, body.len().max(1), &mut |chunked, part| chunked.decode(part, &mut whole, &limits));
    let by_byte = read(body, 1, &mut |chunked, part| chunked.decode(part, &mut parts, &limits));
    assert_eq!((&at_once, &whole), (&by_byte, &parts));
    assert!(whole.len() <= limits.max_body && whole.len() <= body.len());
    for length in [3, body.len().max(1)] {
        assert_eq!(read(body, length, &mut |chunked, part| chunked.skip(part, &limits)), at_once);
    }
    // The data of a body, in one chunk, is the same data again.
    if at_once.is_done {
        let mut again = Vec::new();
        let encoded = match whole.len() {
            0 => b"0\r\n\r\n".to_vec(),
            length => [format!("{length:x}\r\n").as_bytes(), &whole, b"\r\n0\r\n\r\n"].concat(),
        };
        let read = read(&encoded, encoded.len(), &mut |chunked, part| chunked.decode(part, &mut again, &limits));
        assert_eq!((read.used, again), (Ok(encoded.len()), whole));
    }
}

/// Reads a body in parts of this length.
fn read(body: &[u8], length: usize, step: &mut ReadStep<'_>) -> End {
    let (mut chunked, mut used) = (Chunked::new(), 0);
    for part in body.chunks(length) {
        match step(&mut chunked, part) {
            Ok(count) => {
                used += count;
                assert!(count == part.len() || chunked.is_done(), "bytes are left before the end");
                if chunked.is_done() {
                    break;
                }
            }
            Err(refusal) => return End { used: Err(refusal), is_done: false },
        }
    }
    End { used: Ok(used), is_done: chunked.is_done() }
}
