//! A parser of chunked bodies.

use super::wrong::Wrong;

/// The state of a chunked body.
#[derive(Debug, Default)]
pub(crate) enum Chunks {
    #[default]
    Size,
    Data(u64),
    /// The line break after a chunk's data.
    End,
    Trailer,
    Over,
}

/// The max length of a size line or a trailer line.
const MAX_LINE: usize = 8 << 10;

impl Chunks {
    /// Whether the last chunk and all trailers are complete.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Over)
    }

    /// Parses one step of `bytes`. Returns the piece of the body, which may be empty, and the number of used bytes. Returns
    /// `None` if a step needs more bytes.
    pub(crate) fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(&'a [u8], usize)>, Wrong> {
        match self {
            Self::Size => {
                let Some((line, used)) = line(bytes)? else { return Ok(None) };
                let digits = line.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii_end();
                *self = match size(digits) {
                    Some(0) => Self::Trailer,
                    Some(size) => Self::Data(size),
                    None => return Err(Wrong::at("no chunk's size", line)),
                };
                Ok(Some((&[], used)))
            }
            Self::Data(left) => {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                let Some((piece, _)) = bytes.split_at_checked(length).filter(|_| length > 0) else { return Ok(None) };
                *left -= length as u64;
                if *left == 0 {
                    *self = Self::End;
                }
                Ok(Some((piece, length)))
            }
            Self::End => match bytes {
                [b'\r', b'\n', ..] => {
                    *self = Self::Size;
                    Ok(Some((&[], 2)))
                }
                [] | [b'\r'] => Ok(None),
                _ => Err(Wrong::at("a chunk is longer than its size", bytes)),
            },
            Self::Trailer => {
                let Some((line, used)) = line(bytes)? else { return Ok(None) };
                if line.is_empty() {
                    *self = Self::Over;
                }
                Ok(Some((&[], used)))
            }
            Self::Over => Ok(None),
        }
    }
}

/// Returns the first line without its line break, and its length with the line break.
fn line(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, Wrong> {
    match memchr::memchr(b'\n', bytes) {
        Some(end) => match bytes.get(..end).and_then(|line| line.strip_suffix(b"\r")) {
            Some(line) => Ok(Some((line, end + 1))),
            None => Err(Wrong::at("a chunk's line without CR", bytes)),
        },
        None if bytes.len() > MAX_LINE => Err(Wrong::at("a chunk's line is too long", bytes)),
        None => Ok(None),
    }
}

fn size(digits: &[u8]) -> Option<u64> {
    let is_size = (1..=16).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_size)?;
    u64::from_str_radix(text, 16).ok()
}
