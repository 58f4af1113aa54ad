//! The chunked transfer coding (RFC 9112, 7.1), decoded byte by byte.
//!
//! Extensions and trailers must follow the grammar, and are then dropped. Together with the leading zeros of sizes they are bounded by
//! the limit of a head. A line ends in CRLF only.
//!
//! Invariant: the result does not depend on how the bytes were split. Cost: a state transition for each byte of a chunk's
//! frame; data is copied in blocks.

use polyserve_core::http::StatusCode;
use polyserve_core::is_token;

use super::decode::Limits;
use super::refusal::Refusal;
use super::syntax::is_text;

/// The state of a chunked body that is being read.
#[derive(Debug)]
pub struct Chunked {
    state: ChunkState,
    /// Number of bytes of the present chunk that are missing.
    remaining: u64,
    /// Number of data bytes so far.
    total: u64,
    /// Whether the present size has a digit.
    has_digit: bool,
    /// Number of bytes of leading zeros, extensions and trailers so far.
    overhead: usize,
    trailers: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    Size,
    /// In white space after the size or after an extension's value: only a semicolon may follow.
    BeforeSemicolon,
    /// After a semicolon: the extension's name must follow.
    NameStart,
    Name,
    /// In white space after a name: an equals sign or a semicolon must follow.
    AfterName,
    /// After an equals sign: the extension's value must follow.
    ValueStart,
    /// In a value that is a token.
    Token,
    /// In a value that is a quoted string.
    Quoted,
    /// After a backslash in a quoted string.
    Escaped,
    /// After the closing quote.
    AfterQuoted,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Done,
}

impl Default for Chunked {
    fn default() -> Self {
        Self { state: ChunkState::Size, remaining: 0, total: 0, has_digit: false, overhead: 0, trailers: 0 }
    }
}

const MALFORMED: Refusal = Refusal { status: StatusCode::BAD_REQUEST, detail: "The chunked body is malformed." };
const TOO_LARGE: Refusal =
    Refusal { status: StatusCode::PAYLOAD_TOO_LARGE, detail: "The body is larger than this server takes." };
const TOO_LONG: Refusal = Refusal {
    status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
    detail: "What the chunks carry besides data is longer than this server takes.",
};

impl Chunked {
    /// Creates the state before the first byte.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the body is complete.
    pub fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// Reads from `input` and appends data to `body`. Returns the number of bytes used: all of them, unless the body is
    /// complete before the end of `input`.
    ///
    /// # Errors
    ///
    /// Returns a [`Refusal`] if the body is malformed or exceeds `limits`.
    pub fn decode(&mut self, input: &[u8], body: &mut Vec<u8>, limits: &Limits) -> Result<usize, Refusal> {
        self.read(input, limits, |data| body.extend_from_slice(data))
    }

    /// Reads from `input` as [`decode`](Self::decode) does, and drops the data.
    ///
    /// # Errors
    ///
    /// Returns a [`Refusal`] if the body is malformed or exceeds `limits`.
    pub fn skip(&mut self, input: &[u8], limits: &Limits) -> Result<usize, Refusal> {
        self.read(input, limits, |_| ())
    }

    fn read(&mut self, input: &[u8], limits: &Limits, mut take: impl FnMut(&[u8])) -> Result<usize, Refusal> {
        let mut rest = input;
        while let Some((&byte, after)) = rest.split_first() {
            match self.state {
                ChunkState::Done => break,
                ChunkState::Data => {
                    rest = self.data(rest, &mut take);
                    continue;
                }
                ChunkState::Size => self.size(byte, limits)?,
                ChunkState::SizeLf => self.end_of_size(byte)?,
                ChunkState::DataCr => self.expect(byte, b'\r', ChunkState::DataLf)?,
                ChunkState::DataLf => self.expect(byte, b'\n', ChunkState::Size)?,
                ChunkState::TrailerStart
                | ChunkState::TrailerName
                | ChunkState::TrailerValue
                | ChunkState::TrailerLf
                | ChunkState::EndLf => self.trailer(byte, limits)?,
                _ => self.extension(byte, limits)?,
            }
            rest = after;
        }
        Ok(input.len().saturating_sub(rest.len()))
    }

    fn expect(&mut self, byte: u8, expected: u8, next: ChunkState) -> Result<(), Refusal> {
        if byte != expected {
            return Err(MALFORMED);
        }
        self.state = next;
        Ok(())
    }

    fn data<'b>(&mut self, input: &'b [u8], take: &mut impl FnMut(&[u8])) -> &'b [u8] {
        let count = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(input.len());
        let (data, rest) = input.split_at_checked(count).unwrap_or((input, &[]));
        take(data);
        self.remaining = self.remaining.saturating_sub(count as u64);
        self.total = self.total.saturating_add(count as u64);
        if self.remaining == 0 {
            self.state = ChunkState::DataCr;
        }
        rest
    }

    fn size(&mut self, byte: u8, limits: &Limits) -> Result<(), Refusal> {
        match byte {
            b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F' => {
                let digit = (byte as char).to_digit(16).unwrap_or_default();
                let is_leading_zero = self.has_digit && self.remaining == 0;
                self.has_digit = true;
                // Another reader may wrap a size that does not fit 64 bits, so it is malformed, not only too large.
                self.remaining = self.remaining.checked_mul(16).ok_or(MALFORMED)?.saturating_add(u64::from(digit));
                if is_leading_zero { self.count_overhead(limits) } else { Ok(()) }
            }
            b'\r' | b';' | b' ' | b'\t' if self.has_digit => {
                if self.remaining > (limits.max_body as u64).saturating_sub(self.total) {
                    return Err(TOO_LARGE);
                }
                self.extension(byte, limits)
            }
            _ => Err(MALFORMED),
        }
    }

    /// Reads a byte after a size's digits, up to the CR. The grammar is that of RFC 9112, 7.1.1:
    /// `*( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )`.
    fn extension(&mut self, byte: u8, limits: &Limits) -> Result<(), Refusal> {
        self.state = match (self.state, byte) {
            (ChunkState::Size | ChunkState::Name | ChunkState::Token | ChunkState::AfterQuoted, b'\r') => {
                ChunkState::SizeLf
            }
            (
                ChunkState::Size
                | ChunkState::BeforeSemicolon
                | ChunkState::Name
                | ChunkState::AfterName
                | ChunkState::Token
                | ChunkState::AfterQuoted,
                b';',
            ) => ChunkState::NameStart,
            (ChunkState::Name | ChunkState::AfterName, b'=') => ChunkState::ValueStart,
            (
                ChunkState::Size | ChunkState::BeforeSemicolon | ChunkState::Token | ChunkState::AfterQuoted,
                b' ' | b'\t',
            ) => ChunkState::BeforeSemicolon,
            (ChunkState::Name | ChunkState::AfterName, b' ' | b'\t') => ChunkState::AfterName,
            (ChunkState::NameStart | ChunkState::ValueStart, b' ' | b'\t') => self.state,
            (ChunkState::NameStart | ChunkState::Name, byte) if is_token(byte) => ChunkState::Name,
            (ChunkState::ValueStart | ChunkState::Token, byte) if is_token(byte) => ChunkState::Token,
            (ChunkState::ValueStart | ChunkState::Escaped, b'"') => ChunkState::Quoted,
            (ChunkState::Quoted, b'"') => ChunkState::AfterQuoted,
            (ChunkState::Quoted, b'\\') => ChunkState::Escaped,
            (ChunkState::Quoted | ChunkState::Escaped, byte) if is_text(byte) => ChunkState::Quoted,
            _ => return Err(MALFORMED),
        };
        match (self.state, byte) {
            (ChunkState::SizeLf, _) | (ChunkState::NameStart, b';') => Ok(()), // delimiters do not count towards the limit
            _ => self.count_overhead(limits),
        }
    }

    fn end_of_size(&mut self, byte: u8) -> Result<(), Refusal> {
        if byte != b'\n' {
            return Err(MALFORMED);
        }
        self.state = if self.remaining == 0 { ChunkState::TrailerStart } else { ChunkState::Data };
        self.has_digit = false;
        Ok(())
    }

    fn trailer(&mut self, byte: u8, limits: &Limits) -> Result<(), Refusal> {
        match (self.state, byte) {
            (ChunkState::TrailerStart, b'\r') => self.state = ChunkState::EndLf,
            (ChunkState::TrailerStart, byte) if is_token(byte) => {
                self.trailers = self.trailers.saturating_add(1);
                if self.trailers > limits.max_headers {
                    return Err(TOO_LONG);
                }
                self.state = ChunkState::TrailerName;
                self.count_overhead(limits)?;
            }
            (ChunkState::TrailerName, b':') => self.state = ChunkState::TrailerValue,
            (ChunkState::TrailerName, byte) if is_token(byte) => self.count_overhead(limits)?,
            (ChunkState::TrailerValue, b'\r') => self.state = ChunkState::TrailerLf,
            (ChunkState::TrailerValue, byte) if is_text(byte) => self.count_overhead(limits)?,
            (ChunkState::TrailerLf, b'\n') => self.state = ChunkState::TrailerStart,
            (ChunkState::EndLf, b'\n') => self.state = ChunkState::Done,
            _ => return Err(MALFORMED),
        }
        Ok(())
    }

    fn count_overhead(&mut self, limits: &Limits) -> Result<(), Refusal> {
        self.overhead = self.overhead.saturating_add(1);
        if self.overhead > limits.max_head { Err(TOO_LONG) } else { Ok(()) }
    }
}
