//! A counter of requests. It counts the empty lines that end heads, and reads nothing else.
//!
//! A body counts as a part of the next head, so a body with an empty line counts as a request.
//!
//! Invariant: the count does not depend on how the bytes were split. Cost: one search (`memchr`) over the bytes.

use memchr::memmem::Finder;

const END: &[u8] = b"\r\n\r\n";

/// The state of a connection: the number of bytes of a head's end that it has received last, 0 to 3.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heads {
    seen: usize,
}

/// The search for a head's end, prepared once a thread.
#[derive(Debug)]
pub(super) struct Ends {
    finder: Finder<'static>,
}

impl Ends {
    pub(super) fn new() -> Self {
        Self { finder: Finder::new(END) }
    }

    /// Returns the number of heads that end within `bytes`, which follow the bytes that `heads` has seen.
    pub(super) fn count(&self, heads: &mut Heads, bytes: &[u8]) -> usize {
        let mut count = 0;
        let mut rest = bytes;
        while heads.seen > 0 {
            let Some((byte, tail)) = rest.split_first() else { return count };
            rest = tail;
            heads.seen = match *byte {
                byte if byte == END[heads.seen] => heads.seen + 1,
                b'\r' => 1,
                _ => 0,
            };
            if heads.seen == END.len() {
                heads.seen = 0;
                count += 1;
            }
        }
        let mut end = 0;
        for at in self.finder.find_iter(rest) {
            count += 1;
            end = at + END.len();
        }
        let tail = &rest[end..];
        heads.seen = (1..END.len()).rev().find(|seen| tail.ends_with(&END[..*seen])).unwrap_or(0);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(pieces: &[&[u8]]) -> usize {
        let (ends, mut heads) = (Ends::new(), Heads::default());
        pieces.iter().map(|piece| ends.count(&mut heads, piece)).sum()
    }

    /// Every text of up to 8 of the bytes that matter, in every split into three.
    #[test]
    fn the_count_does_not_depend_on_the_split() {
        for length in 0..=8_u32 {
            for number in 0..3_usize.pow(length) {
                let text: Vec<u8> = (0..length).map(|digit| b"\r\nx"[number / 3_usize.pow(digit) % 3]).collect();
                // A plain count of ends that do not overlap.
                let (mut rest, mut whole) = (text.as_slice(), 0);
                while let Some(at) = rest.windows(END.len()).position(|window| window == END) {
                    (rest, whole) = (&rest[at + END.len()..], whole + 1);
                }
                for first in 0..=text.len() {
                    for second in first..=text.len() {
                        let pieces = [&text[..first], &text[first..second], &text[second..]];
                        assert_eq!(count(&pieces), whole, "{pieces:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_put_is_one() {
        let put: &[u8] = b"PUT /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(count(&[put, put, b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n"]), 3);
    }
}
