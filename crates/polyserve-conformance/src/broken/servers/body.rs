//! Bodies of requests, read from the connection's input.

use polyserve_core::ServerConfig;
use polyserve_core::http::StatusCode;

use super::Flaw;
use super::head::{Framing, RequestError, is_token, refuse};

/// A body that is being read.
#[derive(Debug)]
pub(super) struct PartialBody {
    pub(super) body: Vec<u8>,
    stage: BodyStage,
    trailers: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyStage {
    Length(usize),
    Size,
    Data(usize),
    DataEnd,
    Trailers,
    Done,
}

/// The maximum length of a line between chunks, and of all trailers together.
const MAX_LINE: usize = 4096;

impl PartialBody {
    pub(super) fn new(framing: Framing) -> Self {
        let stage = match framing {
            Framing::Length(length) => BodyStage::Length(length),
            Framing::Chunked => BodyStage::Size,
        };
        Self { body: Vec::new(), stage, trailers: 0 }
    }

    /// Reads what it can from `input`. Returns whether the body is complete.
    pub(super) fn take(
        &mut self,
        input: &mut Vec<u8>,
        config: &ServerConfig,
        flaw: Option<Flaw>,
    ) -> Result<bool, RequestError> {
        loop {
            match self.stage {
                BodyStage::Done => return Ok(true),
                BodyStage::Length(left) | BodyStage::Data(left) => {
                    let count = left.min(input.len());
                    self.body.extend(input.drain(..count));
                    if flaw == Some(Flaw::TakesOnlyOneLine) && self.body.contains(&b'\n') {
                        return refuse(StatusCode::BAD_REQUEST, "The body has a line break.");
                    }
                    if flaw == Some(Flaw::LimitsNesting) && self.body.iter().filter(|b| b"[{".contains(b)).count() > 64
                    {
                        return refuse(StatusCode::BAD_REQUEST, "The body has too many levels.");
                    }
                    let left = if flaw == Some(Flaw::NeedsHeadAndBodyInOneRead) { 0 } else { left - count };
                    self.stage = match (self.stage, left) {
                        (BodyStage::Length(_), 0) => BodyStage::Done,
                        (BodyStage::Length(_), left) => BodyStage::Length(left),
                        (_, 0) => BodyStage::DataEnd,
                        (_, left) => BodyStage::Data(left),
                    };
                    if left > 0 {
                        return Ok(false);
                    }
                }
                BodyStage::DataEnd => match input.as_slice() {
                    [b'\r', b'\n', ..] => {
                        input.drain(..2);
                        self.stage = BodyStage::Size;
                    }
                    [] | [b'\r'] => return Ok(false),
                    _ => return refuse(StatusCode::BAD_REQUEST, "A chunk is longer than its size."),
                },
                BodyStage::Size | BodyStage::Trailers => {
                    match line(input, self.stage == BodyStage::Trailers && flaw == Some(Flaw::TakesBareLfAfterChunks))?
                    {
                        None => return Ok(false),
                        Some(line) => self.take_line(&line, config, flaw)?,
                    }
                }
            }
        }
    }

    fn take_line(&mut self, line: &[u8], config: &ServerConfig, flaw: Option<Flaw>) -> Result<(), RequestError> {
        if self.stage == BodyStage::Trailers {
            self.trailers += line.len();
            self.stage = if line.is_empty() { BodyStage::Done } else { BodyStage::Trailers };
            let is_valid = line.is_empty()
                || line.split(|b| *b == b':').next().is_some_and(|name| {
                    name.len() < line.len() && !name.is_empty() && name.iter().all(u8::is_ascii_graphic)
                });
            return match self.trailers > MAX_LINE || !is_valid {
                true => refuse(StatusCode::BAD_REQUEST, "The trailers are none, or too long."),
                false => Ok(()),
            };
        }
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (size, extension) = line.split_at(digits);
        if !is_extension(extension) && flaw != Some(Flaw::TakesAnyChunkExtension) {
            return refuse(StatusCode::BAD_REQUEST, "What follows a chunk's size is no extension.");
        }
        let size = std::str::from_utf8(size).ok();
        let Some(size) = size.and_then(|size| usize::from_str_radix(size, 16).ok()) else {
            return refuse(StatusCode::BAD_REQUEST, "A chunk's size is no number.");
        };
        if size.saturating_add(self.body.len()) > config.max_body && flaw != Some(Flaw::TakesAnyChunkedLength) {
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, "The body is too large.");
        }
        self.stage = if size == 0 { BodyStage::Trailers } else { BodyStage::Data(size) };
        Ok(())
    }
}

/// Whether `rest` is a sequence of chunk extensions, by RFC 9112, section 7.1.1.
fn is_extension(mut rest: &[u8]) -> bool {
    while !rest.is_empty() {
        let Some((b';', after)) = rest.trim_ascii_start().split_first() else { return false };
        let Some(after) = after_token(after.trim_ascii_start()) else { return false };
        rest = after;
        if let Some((b'=', value)) = after.trim_ascii_start().split_first() {
            let value = value.trim_ascii_start();
            let after = if value.starts_with(b"\"") { after_quoted(value) } else { after_token(value) };
            let Some(after) = after else { return false };
            rest = after;
        }
    }
    true
}

/// Returns the rest after the token at the start of `bytes`.
fn after_token(bytes: &[u8]) -> Option<&[u8]> {
    let end = (0..bytes.len()).find(|&at| !is_token(&bytes[at..=at])).unwrap_or(bytes.len());
    (end > 0).then(|| &bytes[end..])
}

/// Returns the rest after the quoted string at the start of `bytes`.
fn after_quoted(bytes: &[u8]) -> Option<&[u8]> {
    let mut escaped = false;
    for (at, &byte) in bytes.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(&bytes[at + 1..]),
            _ => {}
        }
    }
    None
}

/// Returns the next line without its end, or `None` if it has not ended.
fn line(input: &mut Vec<u8>, lf_ends_it: bool) -> Result<Option<Vec<u8>>, RequestError> {
    for (at, &byte) in input.iter().enumerate().take(MAX_LINE) {
        let after_cr = at > 0 && input[at - 1] == b'\r';
        match byte {
            b'\n' if after_cr => {
                let mut line: Vec<u8> = input.drain(..=at).collect();
                line.truncate(at - 1);
                return Ok(Some(line));
            }
            b'\n' if lf_ends_it => {
                let mut line: Vec<u8> = input.drain(..=at).collect();
                line.truncate(at);
                return Ok(Some(line));
            }
            _ if after_cr => return refuse(StatusCode::BAD_REQUEST, "A CR stands alone between chunks."),
            b'\t' | b'\r' => {}
            0..b' ' | 0x7f => return refuse(StatusCode::BAD_REQUEST, "A control byte stands between chunks."),
            _ => {}
        }
    }
    if input.len() >= MAX_LINE {
        refuse(StatusCode::BAD_REQUEST, "A line between chunks is too long.")
    } else {
        Ok(None)
    }
}
