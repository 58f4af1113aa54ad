//! The head that a thread has decoded last, without its method and target: clients repeat the rest.
//!
//! Invariant: [`LastHead::read`] returns what [`decode::head`] would, or nothing. What is remembered was found valid, and does
//! not depend on the method, on the target or on limits that are not checked again.
//!
//! Cost: one pass over the target and a comparison of the rest, in place of several passes over the head. A head that is not like the
//! last one costs about a fiftieth more, and one in [`REMEMBER_EVERY`] of these is copied: clients may take turns.

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

/// What follows the target of a head: the version and the header fields.
pub(super) struct LastHead {
    /// The fields, in the text from the space before the version to the end of the head.
    rest: KeptFields,
    version: Version,
    framing: Framing,
    keep_alive: bool,
    expects_continue: bool,
    /// Number of heads that were not like this one since one was remembered.
    others: u8,
}

impl LastHead {
    /// Nothing is remembered.
    pub(super) fn none() -> Self {
        Self {
            rest: KeptFields::default(),
            version: Version::HTTP_11,
            framing: Framing::Length(0),
            keep_alive: true,
            expects_continue: false,
            others: REMEMBER_EVERY,
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
        if let Decoded::Head(parsed) = &decoded {
            self.remember(input.get(..parsed.length).unwrap_or_default(), parsed);
        }
        decoded
    }

    /// Reads a head that ends like this one. If it does not, [`decode`](Self::decode) must follow.
    #[allow(clippy::inline_always)] // the head is then never stored and moved, which stalls the processor
    #[inline(always)]
    pub(super) fn read<'a>(&'a self, input: &'a [u8], limits: &Limits) -> Option<Parsed<'a>> {
        let known = self.rest.text().as_bytes();
        let (method, after) = method(input)?;
        let (target, rest) = split_uri(after)?;
        let (rest, after) = rest.split_at_checked(known.len())?;
        let is_known = rest == known && !known.is_empty() && self.rest.count() <= limits.max_headers;
        if !is_known || !target.starts_with('/') {
            return None;
        }
        let length = input.len().saturating_sub(after.len());
        let headers = Headers::kept(&self.rest);
        let parsed = Parsed {
            head: Head { method, target, version: self.version, headers, certificate: None },
            length,
            framing: self.framing,
            keep_alive: self.keep_alive,
            expects_continue: self.expects_continue,
        };
        (length <= limits.max_head).then_some(parsed)
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
        for (name, value) in parsed.head.headers.iter() {
            places.try_push([place(name.as_bytes().as_ptr_range())?, place(value.as_ptr_range())?]).ok()?;
        }
        if rest.len() > MAX_BYTES || !self.rest.set(ascii_text(rest)?, places) {
            return None;
        }
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
    fn known(last: &LastHead, input: &str, limits: &Limits) -> Option<String> {
        let parsed = last.read(input.as_bytes(), limits)?;
        Some(format!("{:?}", Decoded::Head(parsed)))
    }

    fn decoded(last: &mut LastHead, input: &str, limits: &Limits) -> String {
        let known = known(last, input, limits);
        known.unwrap_or_else(|| format!("{:?}", last.decode(input.as_bytes(), limits, &mut Fields::new())))
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
        let (mut last, mut hits) = (LastHead::none(), 0);
        for rest in &rests {
            let first = format!("GET /1{rest}");
            for (second, expected) in heads.iter().zip(&expected) {
                for _ in 0..REMEMBER_EVERY {
                    decoded(&mut last, &first, &LIMITS);
                }
                let is_read = known(&last, second, &LIMITS).is_some();
                hits += usize::from(is_read && second.ends_with(rest));
                let found = [&LIMITS, &small].map(|limits| decoded(&mut last, second, limits));
                assert_eq!(found, *expected, "{second:?} after {first:?}");
            }
        }
        // Seven rests are remembered, and four lines are read.
        assert_eq!(hits, 7 * 4);
    }
}
