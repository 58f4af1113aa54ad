//! The header fields that govern a connection: the framing of a body, persistence, expectations, and the host.
//!
//! A request is refused if two readers could disagree about its end (RFC 9112, 6.3 and 11.2).
//!
//! Cost: one pass over the fields, no allocation.

use polyserve_core::Headers;
use polyserve_core::http::{StatusCode, Version};

use super::refusal::{Refusal, bad_request, refusal};

/// How a body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// By its length in bytes; 0 if there is no body.
    Length(u64),
    /// By the chunked transfer coding.
    Chunked,
}

/// The values of the fields that govern the connection.
#[derive(Default)]
pub(super) struct ConnectionFields<'a> {
    pub(super) host: Option<&'a [u8]>,
    /// The digits of the Content-Length, without leading zeros.
    length: Option<&'a [u8]>,
    codings: Option<Codings>,
    /// Whether an Expect field asks for `100 Continue`.
    expects_100: bool,
    /// Whether an Expect field asks for anything else.
    unknown_expectation: bool,
    close: bool,
    keep_alive: bool,
}

impl<'a> ConnectionFields<'a> {
    /// Collects the fields from `headers`.
    ///
    /// # Errors
    ///
    /// Returns a [`Refusal`] if there are several hosts, or if a Content-Length is invalid or contradicts another.
    pub(super) fn read(headers: Headers<'a>) -> Result<Self, Refusal> {
        let mut fields = Self::default();
        for (name, value) in headers.iter() {
            match name.len() {
                4 if name.eq_ignore_ascii_case("host") => fields.add_host(value)?,
                6 if name.eq_ignore_ascii_case("expect") => fields.add_expectations(value),
                10 if name.eq_ignore_ascii_case("connection") => fields.add_options(value),
                14 if name.eq_ignore_ascii_case("content-length") => fields.add_content_length(value)?,
                17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                    fields.codings.get_or_insert_default().add(value);
                }
                _ => {}
            }
        }
        Ok(fields)
    }

    fn add_host(&mut self, value: &'a [u8]) -> Result<(), Refusal> {
        match self.host.replace(value) {
            None => Ok(()),
            Some(_) => Err(bad_request("There is more than one Host header field.")),
        }
    }

    fn add_expectations(&mut self, value: &[u8]) {
        for expectation in elements(value).filter(|expectation| !expectation.is_empty()) {
            let known = expectation.eq_ignore_ascii_case(b"100-continue");
            self.expects_100 |= known;
            self.unknown_expectation |= !known;
        }
    }

    fn add_options(&mut self, value: &[u8]) {
        for option in elements(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn add_content_length(&mut self, value: &'a [u8]) -> Result<(), Refusal> {
        if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
            return Err(bad_request("The Content-Length is not a number."));
        }
        let zeros = value.iter().take_while(|&&b| b == b'0').count();
        let digits = value.get(zeros..).unwrap_or_default();
        match self.length.replace(digits) {
            Some(first) if first != digits => {
                Err(bad_request("There are several Content-Length header fields, and they differ."))
            }
            _ => Ok(()),
        }
    }

    /// Whether the client allows the connection to stay open (RFC 9112, 9.3).
    pub(super) fn keeps_alive(&self, version: Version) -> bool {
        !self.close && (version != Version::HTTP_10 || self.keep_alive)
    }

    /// Whether the client waits for `100 Continue` (RFC 9110, 10.1.1). An HTTP/1.0 client never does.
    ///
    /// # Errors
    ///
    /// Returns a [`Refusal`] if the client has another expectation.
    pub(super) fn expects_continue(&self, version: Version) -> Result<bool, Refusal> {
        if version == Version::HTTP_10 {
            Ok(false)
        } else if self.unknown_expectation {
            Err(refusal(StatusCode::EXPECTATION_FAILED, "The expectation is not known here."))
        } else {
            Ok(self.expects_100)
        }
    }

    /// Returns the framing of the body (RFC 9112, 6.1 and 6.3).
    ///
    /// # Errors
    ///
    /// Returns a [`Refusal`] if the end of the body is in doubt, or if a transfer coding other than chunked is used.
    pub(super) fn framing(&self, version: Version) -> Result<Framing, Refusal> {
        let Some(codings) = &self.codings else {
            return self.length.map_or(Ok(0), parse_number).map(Framing::Length);
        };
        if self.length.is_some() {
            return Err(bad_request("There are both Transfer-Encoding and Content-Length."));
        }
        if version == Version::HTTP_10 {
            return Err(bad_request("HTTP/1.0 has no Transfer-Encoding."));
        }
        match codings {
            // RFC 9110 lets a reader ignore an empty element, but another reader may not. So it is refused.
            Codings { last_is_chunked: true, chunked: 1, empty: false, count: 1 } => Ok(Framing::Chunked),
            Codings { last_is_chunked: true, chunked: 1, empty: false, .. } => {
                Err(refusal(StatusCode::NOT_IMPLEMENTED, "The only transfer coding known here is chunked."))
            }
            _ => Err(bad_request("The Transfer-Encoding does not end in one chunked.")),
        }
    }
}

/// The transfer codings of a request. The elements of all its Transfer-Encoding fields form one list.
#[derive(Default)]
struct Codings {
    count: usize,
    chunked: usize,
    last_is_chunked: bool,
    empty: bool,
}

impl Codings {
    fn add(&mut self, value: &[u8]) {
        for coding in elements(value) {
            self.count = self.count.saturating_add(1);
            self.last_is_chunked = coding.eq_ignore_ascii_case(b"chunked");
            self.chunked = self.chunked.saturating_add(usize::from(self.last_is_chunked));
            self.empty |= coding.is_empty();
        }
    }
}

/// Returns the elements of a comma-separated list, including empty ones.
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(<[u8]>::trim_ascii)
}

/// Parses decimal digits. Another reader may wrap a number that does not fit 64 bits, so it is malformed, not only too large.
fn parse_number(digits: &[u8]) -> Result<u64, Refusal> {
    let number = digits.iter().try_fold(0, |sum: u64, b| {
        let digit = u64::from(b.wrapping_sub(b'0'));
        sum.checked_mul(10)?.checked_add(digit)
    });
    number.ok_or(bad_request("The Content-Length does not fit 64 bits."))
}
