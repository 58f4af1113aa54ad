//! A chunked body (RFC 9112, 7.1), decoded byte by byte.
//!
//! Extensions are skipped and trailers dropped, both checked for form and bounded together by the head's limit. A line
//! ends in CRLF and nothing else. Invariant: the outcome does not depend on how the bytes arrived.

use super::decode::Limits;
use super::refusal::Refusal;
use super::syntax::{is_text, is_token};
use crate::service::Status;

/// A chunked body that is being read.
#[derive(Debug)]
pub struct Chunked {
    state: State,
    /// Of this chunk, in bytes.
    remaining: u64,
    /// Bytes of data so far.
    total: u64,
    digits: u8,
    /// Bytes of extensions and trailers so far.
    overhead: usize,
    trailers: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
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
        Self { state: State::Size, remaining: 0, total: 0, digits: 0, overhead: 0, trailers: 0 }
    }
}

const MALFORMED: Refusal = Refusal { status: Status::BAD_REQUEST, detail: "The chunked body is malformed." };
const TOO_LARGE: Refusal =
    Refusal { status: Status::CONTENT_TOO_LARGE, detail: "The body is larger than this server takes." };
const TOO_LONG: Refusal = Refusal {
    status: Status::HEADER_FIELDS_TOO_LARGE,
    detail: "The chunk extensions and trailers are longer than this server takes.",
};

impl Chunked {
    /// A body of which nothing has been read.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the last byte has been read.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Reads from `input`, appending data to `body`; answers how many bytes were used. All are, unless it is done.
    ///
    /// # Errors
    ///
    /// A refusal where the body is malformed or larger than `limits` allow.
    pub fn decode(&mut self, input: &[u8], body: &mut Vec<u8>, limits: &Limits) -> Result<usize, Refusal> {
        let mut rest = input;
        while let Some((&byte, after)) = rest.split_first() {
            match self.state {
                State::Done => break,
                State::Data => {
                    rest = self.data(rest, body);
                    continue;
                }
                State::Size => self.size(byte, limits)?,
                State::SizeLf => self.end_of_size(byte)?,
                State::DataCr => self.expect(byte, b'\r', State::DataLf)?,
                State::DataLf => self.expect(byte, b'\n', State::Size)?,
                State::TrailerStart | State::TrailerName | State::TrailerValue | State::TrailerLf | State::EndLf => {
                    self.trailer(byte, limits)?
                }
                _ => self.extension(byte, limits)?,
            }
            rest = after;
        }
        Ok(input.len().saturating_sub(rest.len()))
    }

    fn expect(&mut self, byte: u8, expected: u8, next: State) -> Result<(), Refusal> {
        if byte != expected {
            return Err(MALFORMED);
        }
        self.state = next;
        Ok(())
    }

    fn data<'b>(&mut self, input: &'b [u8], body: &mut Vec<u8>) -> &'b [u8] {
        let take = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(input.len());
        let (data, rest) = input.split_at_checked(take).unwrap_or((input, &[]));
        body.extend_from_slice(data);
        self.remaining = self.remaining.saturating_sub(take as u64);
        self.total = self.total.saturating_add(take as u64);
        if self.remaining == 0 {
            self.state = State::DataCr;
        }
        rest
    }

    fn size(&mut self, byte: u8, limits: &Limits) -> Result<(), Refusal> {
        match byte {
            b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F' if self.digits < 16 => {
                let digit = (byte as char).to_digit(16).unwrap_or_default();
                self.remaining = (self.remaining << 4) | u64::from(digit);
                self.digits = self.digits.saturating_add(1);
                let room = (limits.max_body as u64).saturating_sub(self.total);
                if self.remaining > room { Err(TOO_LARGE) } else { Ok(()) }
            }
            b'\r' | b';' | b' ' | b'\t' if self.digits > 0 => self.extension(byte, limits),
            _ => Err(MALFORMED),
        }
    }

    /// Reads a byte after a size's digits, up to the CR. The grammar is that of RFC 9112, 7.1.1:
    /// `*( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )`.
    fn extension(&mut self, byte: u8, limits: &Limits) -> Result<(), Refusal> {
        self.state = match (self.state, byte) {
            (State::Size | State::Name | State::Token | State::AfterQuoted, b'\r') => State::SizeLf,
            (
                State::Size
                | State::BeforeSemicolon
                | State::Name
                | State::AfterName
                | State::Token
                | State::AfterQuoted,
                b';',
            ) => State::NameStart,
            (State::Name | State::AfterName, b'=') => State::ValueStart,
            (State::Size | State::BeforeSemicolon | State::Token | State::AfterQuoted, b' ' | b'\t') => {
                State::BeforeSemicolon
            }
            (State::Name | State::AfterName, b' ' | b'\t') => State::AfterName,
            (State::NameStart | State::ValueStart, b' ' | b'\t') => self.state,
            (State::NameStart | State::Name, byte) if is_token(byte) => State::Name,
            (State::ValueStart | State::Token, byte) if is_token(byte) => State::Token,
            (State::ValueStart | State::Escaped, b'"') => State::Quoted,
            (State::Quoted, b'"') => State::AfterQuoted,
            (State::Quoted, b'\\') => State::Escaped,
            (State::Quoted | State::Escaped, byte) if is_text(byte) => State::Quoted,
            _ => return Err(MALFORMED),
        };
        match (self.state, byte) {
            (State::SizeLf, _) | (State::NameStart, b';') => Ok(()), // delimiters do not count towards the limit
            _ => self.spend(limits),
        }
    }

    fn end_of_size(&mut self, byte: u8) -> Result<(), Refusal> {
        if byte != b'\n' {
            return Err(MALFORMED);
        }
        self.state = if self.remaining == 0 { State::TrailerStart } else { State::Data };
        self.digits = 0;
        Ok(())
    }

    fn trailer(&mut self, byte: u8, limits: &Limits) -> Result<(), Refusal> {
        match (self.state, byte) {
            (State::TrailerStart, b'\r') => self.state = State::EndLf,
            (State::TrailerStart, byte) if is_token(byte) => {
                self.trailers = self.trailers.saturating_add(1);
                if self.trailers > limits.max_headers {
                    return Err(TOO_LONG);
                }
                self.state = State::TrailerName;
                self.spend(limits)?;
            }
            (State::TrailerName, b':') => self.state = State::TrailerValue,
            (State::TrailerName, byte) if is_token(byte) => self.spend(limits)?,
            (State::TrailerValue, b'\r') => self.state = State::TrailerLf,
            (State::TrailerValue, byte) if is_text(byte) => self.spend(limits)?,
            (State::TrailerLf, b'\n') => self.state = State::TrailerStart,
            (State::EndLf, b'\n') => self.state = State::Done,
            _ => return Err(MALFORMED),
        }
        Ok(())
    }

    fn spend(&mut self, limits: &Limits) -> Result<(), Refusal> {
        self.overhead = self.overhead.saturating_add(1);
        if self.overhead > limits.max_head { Err(TOO_LONG) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { max_head: 64, max_headers: 3, max_body: 32 };

    fn decode(input: &[u8]) -> Result<(Vec<u8>, usize, bool), Refusal> {
        let (mut chunked, mut body) = (Chunked::new(), Vec::new());
        let used = chunked.decode(input, &mut body, &LIMITS)?;
        Ok((body, used, chunked.is_done()))
    }

    #[test]
    fn every_split_reads_the_same() {
        let input: &[u8] = b"5;a=\"b\"\r\nhello\r\n0A \t;x\r\n, world!!\n\r\n0\r\nTrailer: v\r\nX:\r\n\r\nGET /";
        let end = input.len() - 5;
        assert_eq!(decode(input), Ok((b"hello, world!!\n".to_vec(), end, true)));
        for split in 0..=end {
            let (mut chunked, mut body) = (Chunked::new(), Vec::new());
            let (first, second) = input.split_at(split);
            assert_eq!(chunked.decode(first, &mut body, &LIMITS), Ok(split));
            assert_eq!(chunked.decode(second, &mut body, &LIMITS), Ok(end - split));
            assert!(chunked.is_done());
            assert_eq!(body, b"hello, world!!\n");
        }
    }

    #[test]
    fn what_is_malformed_is_refused() {
        let malformed: [&[u8]; 21] = [
            b"\r\n",
            b";x\r\n",
            b"-1\r\n",
            b"+1\r\n",
            b"0x1\r\n",
            b"1_0\r\n",
            b" 1\r\n",
            b"1 \r\n",
            b"1\n",
            b"1;a\n",
            b"1\rX",
            b"1;a\rb\r\n",
            b"1;\0\r\n",
            b"1;\r\n",
            b"1; =\r\n",
            b"1\r\nab\r\n",
            b"1\r\na\n",
            b"0\r\n\n",
            b"0\r\n fold\r\n",
            b"0\r\na b: c\r\n",
            b"0\r\nnocolon\r\n",
        ];
        for input in malformed {
            assert_eq!(decode(input), Err(MALFORMED), "{}", String::from_utf8_lossy(input));
        }
        assert_eq!(decode(b"00000000000000001\r\n"), Err(MALFORMED));
    }

    #[test]
    fn everything_is_bounded() {
        assert!(!decode(b"20\r\n").unwrap().2);
        for large in ["21\r\n", "ffffffffffffffff\r\n", "1f\r\n0123456789012345678901234567890\r\n2\r\n"] {
            assert_eq!(decode(large.as_bytes()), Err(TOO_LARGE), "{large}");
        }
        let extension = format!("1;{}\r\n", "x".repeat(65));
        let trailer = format!("0\r\nA: {}\r\n\r\n", "x".repeat(65));
        for long in [extension.as_str(), trailer.as_str(), "0\r\na:\r\nb:\r\nc:\r\nd:\r\n\r\n"] {
            assert_eq!(decode(long.as_bytes()), Err(TOO_LONG), "{long}");
        }
    }
}
