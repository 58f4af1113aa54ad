//! The heads that a thread has decoded last, without method and target: clients repeat the rest.
//!
//! Invariant: [`LastHeads::head`] returns what [`decode::head`] would. What is remembered was found valid with a path as its target, and
//! does not depend on the method, on the path or on limits that are not checked again. Only `*` may come without the name of a host, so
//! a head with another target than a path is neither remembered nor read here.
//!
//! The bodies of a client differ in length. So a head with another `Content-Length` of as many digits is like the last one: its number
//! takes the place of the known one.
//!
//! Cost: one pass over the target and a comparison of the rest, in place of several passes over the head; a second comparison if the
//! `Content-Length` is another one. A head that is not like the last one costs about a fiftieth more, and one in [`REMEMBER_EVERY`] of
//! these is copied: clients may take turns.

use std::fmt;
use std::ops::Range;

use arrayvec::ArrayVec;
use polyserve_core::http::{Method, Version};
use polyserve_core::{Head, Headers, KeptFields};
use polyserve_sys::ascii_text;

use super::connection_fields::Framing;
use super::decode::{self, Decoded, Fields, Limits, Parsed};
use super::syntax::split_uri;

/// The length of the longest rest that is remembered, in bytes.
const MAX_BYTES: usize = 512;

/// The number of fields of a rest that is remembered.
const MAX_FIELDS: usize = 16;

/// One in this number of heads that are not like the last one takes its place.
const REMEMBER_EVERY: u8 = 8;

/// The heads that a thread has decoded last: one of a request that may have a body, and one of any other. A client that reads and
/// writes sends other fields with a body.
#[derive(Debug)]
pub struct LastHeads {
    with_body: LastHead,
    without_body: LastHead,
}

/// The parts of a head that ends like the last one.
struct KnownHead<'b> {
    method: &'static Method,
    target: &'b str,
    length: usize,
}

impl LastHeads {
    /// Nothing is remembered.
    pub fn none() -> Self {
        Self { with_body: LastHead::none(), without_body: LastHead::none() }
    }

    /// Decodes the head at the start of `input`, as [`decode::head`] does.
    pub fn head<'b: 'a, 'a>(&'a mut self, input: &'b [u8], limits: &Limits, fields: &'a mut Fields<'b>) -> Decoded<'a> {
        match self.of(input).find(input, limits) {
            Some(known) => Decoded::Head(self.of(input).parsed(known)),
            None => self.decode(input, limits, fields),
        }
    }

    /// Decodes a head that does not end like the last one, and may remember it.
    pub(super) fn decode<'b: 'a, 'a>(
        &mut self,
        input: &'b [u8],
        limits: &Limits,
        fields: &'a mut Fields<'b>,
    ) -> Decoded<'a> {
        let decoded = decode::head(input, limits, fields);
        if let Decoded::Head(parsed) = &decoded
            && is_path(parsed.head.target)
        {
            self.of(input).remember(input.get(..parsed.length).unwrap_or_default(), parsed);
        }
        decoded
    }

    /// Reads a head that ends like the last one. If it does not, [`decode`](Self::decode) must follow.
    #[allow(clippy::inline_always)] // the head is then never stored and moved, which stalls the processor
    #[inline(always)]
    pub(super) fn read<'a>(&'a mut self, input: &'a [u8], limits: &Limits) -> Option<Parsed<'a>> {
        let last = self.of(input);
        let known = last.find(input, limits)?;
        Some(last.parsed(known))
    }

    /// The head that one in `input` may be like. PUT, POST and PATCH have a body, and no other known method begins with a P.
    #[allow(clippy::inline_always)] // as for `read`
    #[inline(always)]
    fn of(&mut self, input: &[u8]) -> &mut LastHead {
        if input.first() == Some(&b'P') { &mut self.with_body } else { &mut self.without_body }
    }
}

/// What follows the target of a head: the version and the header fields.
struct LastHead {
    /// The fields, in the text from the space before the version to the end of the head.
    rest: KeptFields,
    /// Where the number of the `Content-Length` is in the text, if there is one field of this name.
    length_place: Option<Range<usize>>,
    version: Version,
    framing: Framing,
    keep_alive: bool,
    expects_continue: bool,
    /// Number of heads that were not like this one since one was remembered.
    others: u8,
}

impl LastHead {
    fn none() -> Self {
        Self {
            rest: KeptFields::default(),
            length_place: None,
            version: Version::HTTP_11,
            framing: Framing::Length(0),
            keep_alive: true,
            expects_continue: false,
            others: REMEMBER_EVERY,
        }
    }

    /// Finds the parts of a head that ends like this one.
    #[allow(clippy::inline_always)] // as for `LastHeads::read`
    #[inline(always)]
    fn find<'b>(&mut self, input: &'b [u8], limits: &Limits) -> Option<KnownHead<'b>> {
        let known = self.rest.text().as_bytes();
        let (method, after) = method(input)?;
        let (target, rest) = split_uri(after)?;
        let (rest, after) = rest.split_at_checked(known.len())?;
        let may_be_known = !known.is_empty() && self.rest.count() <= limits.max_headers && is_path(target);
        let length = input.len().saturating_sub(after.len());
        let is_known = may_be_known && length <= limits.max_head && (rest == known || self.takes_length(rest));
        is_known.then_some(KnownHead { method, target, length })
    }

    #[allow(clippy::inline_always)] // as for `LastHeads::read`
    #[inline(always)]
    fn parsed<'a>(&'a self, KnownHead { method, target, length }: KnownHead<'a>) -> Parsed<'a> {
        let headers = Headers::kept(&self.rest);
        Parsed {
            head: Head { method, target, version: self.version, headers, certificate: None },
            method,
            length,
            framing: self.framing,
            keep_alive: self.keep_alive,
            expects_continue: self.expects_continue,
        }
    }

    /// Whether `rest` differs from what is remembered in the number of its `Content-Length` only. If so, that is remembered from now on.
    #[inline(never)]
    fn takes_length(&mut self, rest: &[u8]) -> bool {
        let Some((length, start, end)) = self.other_length(rest) else { return false };
        self.framing = Framing::Length(length);
        self.rest.replace_end(start, end)
    }

    /// Returns the number of the `Content-Length` of `rest`, its place and the text from there on, if nothing else differs.
    fn other_length<'b>(&self, rest: &'b [u8]) -> Option<(u64, usize, &'b str)> {
        let known = self.rest.text().as_bytes();
        let place = self.length_place.as_ref()?;
        let (known, known_end) = known.split_at_checked(place.end)?;
        let (head, head_end) = rest.split_at_checked(place.end)?;
        let (known, _) = known.split_at_checked(place.start)?;
        let (head, number) = head.split_at_checked(place.start)?;
        if known != head || known_end != head_end {
            return None;
        }
        Some((whole_number(number)?, place.start, ascii_text(rest.get(place.start..)?)?))
    }

    /// Remembers a head that is valid. `bytes` are the whole head.
    fn remember(&mut self, bytes: &[u8], parsed: &Parsed<'_>) {
        self.others = self.others.saturating_add(1);
        if self.others >= REMEMBER_EVERY {
            self.others = 0;
            if self.set(bytes, parsed).is_none() {
                self.rest.clear();
            }
        }
    }

    /// Returns `None` if the rest is not to be remembered.
    fn set(&mut self, bytes: &[u8], parsed: &Parsed<'_>) -> Option<()> {
        let target_end = parsed.head.target.as_bytes().as_ptr_range().end.addr();
        let rest = bytes.get(target_end.checked_sub(bytes.as_ptr().addr())?..)?;
        let place = |part: Range<*const u8>| {
            Some(part.start.addr().checked_sub(target_end)?..part.end.addr().checked_sub(target_end)?)
        };
        let mut places = ArrayVec::<_, MAX_FIELDS>::new();
        let (mut length_place, mut length_fields) = (None, 0_usize);
        for (name, value) in parsed.head.headers.iter() {
            let value = place(value.as_ptr_range())?;
            if name.eq_ignore_ascii_case("content-length") {
                length_place = Some(value.clone());
                length_fields = length_fields.saturating_add(1);
            }
            places.try_push([place(name.as_bytes().as_ptr_range())?, value]).ok()?;
        }
        if rest.len() > MAX_BYTES || !self.rest.set(ascii_text(rest)?, places) {
            return None;
        }
        self.length_place = length_place.filter(|_| length_fields == 1);
        self.version = parsed.head.version;
        self.framing = parsed.framing;
        self.keep_alive = parsed.keep_alive;
        self.expects_continue = parsed.expects_continue;
        Some(())
    }
}

impl fmt::Debug for LastHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastHead").field("length", &self.rest.text().len()).finish_non_exhaustive()
    }
}

/// Reads a number of at most 19 digits. An `u64` holds each of them.
fn whole_number(text: &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
    }
    (text.len() <= 19).then_some(number)
}

/// Whether a target has the form of a path.
#[inline]
fn is_path(target: &str) -> bool {
    target.starts_with('/')
}

/// Returns the method that a head begins with, and what follows the space after it.
#[allow(clippy::inline_always)]
#[inline(always)]
fn method(input: &[u8]) -> Option<(&'static Method, &[u8])> {
    if let Some((b"GET ", after)) = input.split_first_chunk() {
        return Some((&Method::GET, after));
    }
    Some(match input {
        [b'P', b'U', b'T', b' ', after @ ..] => (&Method::PUT, after),
        [b'H', b'E', b'A', b'D', b' ', after @ ..] => (&Method::HEAD, after),
        [b'P', b'O', b'S', b'T', b' ', after @ ..] => (&Method::POST, after),
        [b'D', b'E', b'L', b'E', b'T', b'E', b' ', after @ ..] => (&Method::DELETE, after),
        [b'P', b'A', b'T', b'C', b'H', b' ', after @ ..] => (&Method::PATCH, after),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { max_head: 400, max_headers: 3, max_body: 10 };

    /// The head as it is read by comparison with the last one.
    fn known(last: &mut LastHeads, input: &str, limits: &Limits) -> Option<String> {
        let parsed = last.read(input.as_bytes(), limits)?;
        Some(format!("{:?}", Decoded::Head(parsed)))
    }

    fn decoded(last: &mut LastHeads, input: &str, limits: &Limits) -> String {
        format!("{:?}", last.head(input.as_bytes(), limits, &mut Fields::new()))
    }

    /// Whatever a thread has decoded before, a head has the same result.
    #[test]
    fn a_head_is_decoded_as_on_a_thread_that_remembers_nothing() {
        let lines = [
            "GET /1",
            "PUT /1?a=%20",
            "GET /2?{}",
            "HEAD /",
            "DELETE /%4",
            "OPTIONS *",
            "OPTIONS /1",
            "POST http://a/1",
            "PATCH a",
            "PATCH /1",
            "BREW /1",
            "get /1",
            "GET  /1",
            "GET /1 ",
            "GET ",
            "GET",
            "GET /\u{e9}",
        ];
        let long = "x".repeat(300);
        let rests = [
            " HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            " HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\nExpect: 100-continue\r\n\r\nGET".to_owned(),
            " HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\nExpect: 100-continue\r\n\r\nGET".to_owned(),
            " HTTP/1.1\r\nHost: a\r\nContent-Length: 70\r\nExpect: 100-continue\r\n\r\nGET".to_owned(),
            " HTTP/1.1\r\nHost: a\r\nContent-Length: 0x\r\nExpect: 100-continue\r\n\r\nGET".to_owned(),
            " HTTP/1.1\r\nHost: b\r\nContent-Length: 8\r\nExpect: 100-continue\r\n\r\nGET".to_owned(),
            " HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\nExpect: 200-continue\r\n\r\nGET".to_owned(),
            " HTTP/1.1\r\nContent-Length: 99999999999999999999\r\nHost: a\r\n\r\n".to_owned(),
            " HTTP/1.1\r\nContent-Length: 00000000000000000010\r\nHost: a\r\n\r\n".to_owned(),
            " HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\nHost: a\r\n\r\n".to_owned(),
            " HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\nHost: a\r\n\r\n".to_owned(),
            " HTTP/1.0\r\nContent-Length: 6\r\nX: 6\r\n\r\n".to_owned(),
            " HTTP/1.0\r\nContent-Length: 6\r\nX: 7\r\n\r\n".to_owned(),
            " HTTP/1.1\r\nHost:a  \r\nX:\r\nConnection: close\r\n\r\n".to_owned(),
            " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n".to_owned(),
            " HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_owned(),
            " HTTP/1.0\r\n\r\n".to_owned(),
            " HTTP/1.1\r\n\r\n".to_owned(),
            " HTTP/1.1\r\nHost: a\r\nX: \u{e9}\r\n\r\n".to_owned(),
            " HTTP/1.1\r\nHost: a\r\nX: y\n\r\n".to_owned(),
            " HTTP/1.1\r\nHost: a\r\n\n".to_owned(),
            " HTTP/1.1\r\nHost: a\r\nA: b\r\nC: d\r\nE: f\r\n\r\n".to_owned(),
            format!(" HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n"),
            " HTTP/1.1\r\nHost: a\r\nX".to_owned(),
        ];
        let heads: Vec<String> =
            lines.iter().flat_map(|line| rests.iter().map(move |rest| format!("{line}{rest}"))).collect();
        let small = Limits { max_head: 40, max_headers: 1, ..LIMITS };
        let expected: Vec<[String; 2]> = heads
            .iter()
            .map(|head| {
                [&LIMITS, &small].map(|limits| {
                    let mut fields = Fields::new();
                    format!("{:?}", decode::head(head.as_bytes(), limits, &mut fields))
                })
            })
            .collect();
        let (mut last, mut hits) = (LastHeads::none(), 0);
        for rest in &rests {
            let first = ["GET", "PUT"].map(|method| format!("{method} /1{rest}"));
            for (second, expected) in heads.iter().zip(&expected) {
                for _ in 0..REMEMBER_EVERY {
                    for first in &first {
                        decoded(&mut last, first, &LIMITS);
                    }
                }
                let is_read = known(&mut last, second, &LIMITS).is_some();
                hits += usize::from(is_read && second.ends_with(rest));
                let found = [&LIMITS, &small].map(|limits| decoded(&mut last, second, limits));
                assert_eq!(found, *expected, "{second:?} after {rest:?}");
            }
        }
        // Fourteen rests are remembered, and four lines are read.
        assert_eq!(hits, 14 * 4);
    }

    /// Regression test: the bodies of a client differ in length, and each other length was a head of its own.
    #[test]
    fn a_head_with_another_content_length_is_like_the_last_one() {
        let head = |length: &str| format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        let mut last = LastHeads::none();
        decoded(&mut last, &head("57"), &LIMITS);
        for (length, framing) in [("59", 59), ("57", 57), ("57", 57), ("09", 9)] {
            let input = head(length);
            let parsed = last.read(input.as_bytes(), &LIMITS).unwrap();
            assert_eq!((parsed.framing, parsed.length), (Framing::Length(framing), input.len()));
            assert_eq!(parsed.head.headers.get("content-length"), Some(length.as_bytes()));
            assert_eq!(parsed.head.headers.get("host"), Some(&b"a"[..]));
        }
        for length in ["7", "100", "+7", "7 ", "0x"] {
            assert!(last.read(head(length).as_bytes(), &LIMITS).is_none(), "{length}");
        }
        assert!(last.read(head("57").as_bytes(), &LIMITS).is_some());
    }

    /// Regression test: `OPTIONS *` may name no host. After it, a request for a path was served without the name of a host too.
    #[test]
    fn a_head_without_the_name_of_a_host_allows_no_other() {
        for host in ["Host:", "Host: :80"] {
            let mut last = LastHeads::none();
            for _ in 0..REMEMBER_EVERY {
                decoded(&mut last, &format!("OPTIONS * HTTP/1.1\r\n{host}\r\n\r\n"), &LIMITS);
            }
            let head = format!("GET / HTTP/1.1\r\n{host}\r\n\r\n");
            assert!(decoded(&mut last, &head, &LIMITS).starts_with("Refused"), "{host}");
        }
    }

    /// Regression test: of a client that reads and writes in turn, neither head was like the last one.
    #[test]
    fn a_client_may_read_and_write_in_turn() {
        let mut last = LastHeads::none();
        let heads = ["GET /1 HTTP/1.1\r\nHost: a\r\n\r\n", "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"];
        for head in heads {
            decoded(&mut last, head, &LIMITS);
        }
        assert!(heads.iter().all(|head| known(&mut last, head, &LIMITS).is_some()));
    }
}
