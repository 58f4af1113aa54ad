//! A cache of parsed answer heads.
//!
//! Invariant: a head is taken from the cache only if all its bytes are the same, except for the 29 bytes of the `Date`
//! value, which must still be a date. Cost of a cached head: two comparisons, and a check of the date when it changes. The
//! cache is a ring of 32 heads, so a server that never repeats a head costs a parse for each answer.

use super::wrong::Wrong;

/// The parsed fields of a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnswerFields {
    pub(crate) status: u16,
    pub(crate) framing: Framing,
    /// Whether the server closes the connection after this answer.
    pub(crate) closes: bool,
}

/// How the end of the body is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(u64),
    Chunked,
    /// The body ends with the connection.
    #[default]
    UntilEnd,
}

/// The cache of heads.
#[derive(Debug)]
pub(crate) struct Heads {
    cached: Vec<CachedHead>,
    /// The last head for each length of a body, modulo [`HINTS`]: an index into `cached`.
    likely: [u8; HINTS],
    /// The last head: an index into `cached`.
    last: usize,
    /// The entry of the full ring that was replaced last.
    oldest: usize,
    /// The last checked date.
    date: [u8; DATE_LEN],
}

#[derive(Debug)]
struct CachedHead {
    bytes: Vec<u8>,
    /// The offset of the date, if any.
    date: Option<usize>,
    parsed: AnswerFields,
}

const HINTS: usize = 256;
const MAX_CACHED: usize = 32;
const MAX_FIELDS: usize = 96;
/// The max length of a head.
const MAX_HEAD: usize = 64 << 10;
const DATE_LEN: usize = 29;

impl Default for Heads {
    fn default() -> Self {
        Self { cached: Vec::with_capacity(MAX_CACHED), likely: [0; HINTS], last: 0, oldest: 0, date: [0; DATE_LEN] }
    }
}

impl Heads {
    /// Returns the head at the start of `bytes` and its length, if it is the last one with a body of this length.
    #[inline]
    pub(crate) fn likely(&mut self, bytes: &[u8], length: usize) -> Option<(AnswerFields, usize)> {
        let at = usize::from(self.likely[length % HINTS]);
        self.cached.get(at)?.compare(bytes, &mut self.date)
    }

    /// Returns the head at the start of `bytes` and its length, or `None` if the head is not complete.
    pub(crate) fn find(&mut self, bytes: &[u8]) -> Result<Option<(AnswerFields, usize)>, Wrong> {
        let order = std::iter::once(self.last).chain(0..self.cached.len());
        for at in order {
            if let Some(found) = self.cached.get(at).and_then(|head| head.compare(bytes, &mut self.date)) {
                self.note(at, found.0);
                return Ok(Some(found));
            }
        }
        let Some((parsed, length, date)) = parse(bytes)? else { return Ok(None) };
        let head = CachedHead { bytes: bytes.get(..length).unwrap_or_default().to_vec(), date, parsed };
        let at = if self.cached.len() < MAX_CACHED {
            self.cached.push(head);
            self.cached.len() - 1
        } else {
            self.oldest = (self.oldest + 1) % MAX_CACHED;
            self.cached[self.oldest] = head;
            self.oldest
        };
        self.note(at, parsed);
        Ok(Some((parsed, length)))
    }

    fn note(&mut self, at: usize, parsed: AnswerFields) {
        self.last = at;
        if let Framing::Length(length) = parsed.framing {
            self.likely[(length % HINTS as u64) as usize] = at as u8;
        }
    }
}

impl CachedHead {
    #[inline]
    fn compare(&self, bytes: &[u8], last_date: &mut [u8; DATE_LEN]) -> Option<(AnswerFields, usize)> {
        let length = self.bytes.len();
        let bytes = bytes.get(..length)?;
        match self.date {
            None if bytes == self.bytes => {}
            None => return None,
            Some(at) => {
                let (before, rest) = bytes.split_at_checked(at)?;
                let (date, after) = rest.split_at_checked(DATE_LEN)?;
                if before != self.bytes.get(..at)? || after != self.bytes.get(at + DATE_LEN..)? {
                    return None;
                }
                if date != last_date {
                    if !is_date(date) {
                        return None;
                    }
                    last_date.copy_from_slice(date);
                }
            }
        }
        Some((self.parsed, length))
    }
}

/// Whether `text` has the form `Sun, 06 Nov 1994 08:49:37 GMT`.
fn is_date(text: &[u8]) -> bool {
    const DAYS: [&[u8]; 7] = [b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun"];
    const MONTHS: [&[u8]; 12] =
        [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
    let is_form = text.len() == DATE_LEN
        && text.iter().zip(b"___, __ ___ ____ __:__:__ GMT").all(|(byte, form)| *form == b'_' || byte == form);
    let digits = |range| text.get(range).is_some_and(|digits: &[u8]| digits.iter().all(u8::is_ascii_digit));
    is_form
        && DAYS.contains(&&text[..3])
        && MONTHS.contains(&&text[8..11])
        && [5..7, 12..16, 17..19, 20..22, 23..25].into_iter().all(digits)
}

type FoundHead = (AnswerFields, usize, Option<usize>);

/// Parses a head. Returns the fields, the length, and the offset of the date.
fn parse(bytes: &[u8]) -> Result<Option<FoundHead>, Wrong> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= MAX_HEAD => length,
        Ok(httparse::Status::Partial) if bytes.len() <= MAX_HEAD => return Ok(None),
        Ok(_) => return Err(Wrong::at("the head is too long", bytes)),
        Err(error) => return Err(Wrong::at(&format!("no head of an HTTP answer ({error})"), bytes)),
    };
    // httparse also takes an LF without its CR, and skips empty lines before the status line.
    let head = bytes.get(..length).unwrap_or_default();
    if head.starts_with(b"\r\n")
        || memchr::memchr_iter(b'\n', head).any(|at| at == 0 || head.get(at - 1) != Some(&b'\r'))
    {
        return Err(Wrong::at("a line of the head is empty, or ends with LF without CR", head));
    }
    let is_http_1_0 = response.version == Some(0);
    let (mut content_length, mut is_chunked, mut is_encoded, mut close, mut keep_alive) =
        (None, false, false, false, false);
    let mut date = None;
    for httparse::Header { name, value } in response.headers.iter() {
        if name.eq_ignore_ascii_case("content-length") {
            let size = size(value).filter(|size| content_length.is_none_or(|other| other == *size));
            content_length = Some(size.ok_or_else(|| Wrong::at("a Content-Length that is none", value))?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            let last = value.rsplit(|&byte| byte == b',').next().unwrap_or_default();
            (is_encoded, is_chunked) = (true, last.trim_ascii().eq_ignore_ascii_case(b"chunked"));
        } else if name.eq_ignore_ascii_case("connection") {
            let tokens = || value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
            close |= tokens().any(|token| token.eq_ignore_ascii_case(b"close"));
            keep_alive |= tokens().any(|token| token.eq_ignore_ascii_case(b"keep-alive"));
        } else if name.eq_ignore_ascii_case("date") && is_date(value) {
            date = Some((value.as_ptr() as usize).wrapping_sub(bytes.as_ptr() as usize));
        }
    }
    let framing = match (content_length, is_encoded) {
        (Some(_), true) => return Err(Wrong::at("Content-Length and Transfer-Encoding at once", bytes)),
        (Some(length), false) => Framing::Length(length),
        (None, _) if is_chunked => Framing::Chunked,
        (None, _) => Framing::UntilEnd,
    };
    let parsed = AnswerFields {
        status: response.code.unwrap_or_default(),
        framing,
        closes: close || (is_http_1_0 && !keep_alive),
    };
    Ok(Some((parsed, length, date)))
}

fn size(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok().filter(|_| is_number)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\nhello";

    fn find(head: &str) -> Result<Option<(AnswerFields, usize)>, Wrong> {
        Heads::default().find(head.as_bytes())
    }

    fn framing(fields: &str) -> Framing {
        find(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n")).unwrap().unwrap().0.framing
    }

    fn closes(version: &str, fields: &str) -> bool {
        find(&format!("{version} 200 OK\r\nContent-Length: 0\r\n{fields}\r\n")).unwrap().unwrap().0.closes
    }

    #[test]
    fn a_head_is_known_again_whatever_its_date() {
        let mut heads = Heads::default();
        let first = heads.find(HEAD).unwrap().unwrap();
        assert_eq!(
            first,
            (AnswerFields { status: 200, framing: Framing::Length(5), ..AnswerFields::default() }, HEAD.len() - 5)
        );
        let later = String::from_utf8_lossy(HEAD).replace("Sun, 06 Nov 1994 08:49:37", "Mon, 07 Dec 2026 00:00:00");
        assert_eq!(heads.find(later.as_bytes()).unwrap().unwrap(), first);
        assert_eq!(heads.cached.len(), 1);
        // A head without a valid date is a new head.
        let odd = String::from_utf8_lossy(HEAD).replace("08:49:37", "08-49-37");
        assert_eq!(heads.find(odd.as_bytes()).unwrap().unwrap(), first);
        assert_eq!((heads.cached.len(), heads.cached[1].date), (2, None));
        assert_eq!(heads.find(&HEAD[..HEAD.len() - 6]).unwrap(), None);
    }

    /// A head that differs in any byte outside the date must be parsed again.
    #[test]
    fn a_head_that_differs_is_never_taken_for_a_known_one() {
        let head = &HEAD[..HEAD.len() - 5];
        for at in 0..head.len() {
            let mut heads = Heads::default();
            heads.find(head).unwrap().unwrap();
            let mut other = head.to_vec();
            other[at] ^= 1;
            let known = heads.find(&other);
            assert_eq!(known, Heads::default().find(&other), "byte {at}");
            assert!(heads.likely(&other, 5).is_none_or(|likely| known == Ok(Some(likely))), "byte {at}");
            let (start, length) = (heads.cached[0].date.unwrap(), heads.cached.len());
            assert!(
                known.is_err() || known == Ok(None) || length == 2 || (start..start + DATE_LEN).contains(&at),
                "{at}"
            );
        }
    }

    #[test]
    fn the_ring_is_bounded_and_forgets_the_oldest() {
        let mut heads = Heads::default();
        for length in 0..1000_u64 {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            let (parsed, _) = heads.find(head.as_bytes()).unwrap().unwrap();
            assert_eq!(parsed.framing, Framing::Length(length));
        }
        assert_eq!(heads.cached.len(), MAX_CACHED);
    }

    #[test]
    fn framing_and_persistence_are_read_in_any_case() {
        assert_eq!(framing("CONTENT-LENGTH: 7\r\n"), Framing::Length(7));
        assert_eq!(framing("content-length: 7\r\nContent-Length: 7\r\n"), Framing::Length(7));
        assert_eq!(framing("Transfer-Encoding: gzip, Chunked\r\n"), Framing::Chunked);
        assert_eq!(framing("Transfer-Encoding: gzip\r\n"), Framing::UntilEnd);
        assert_eq!(framing(""), Framing::UntilEnd);
        assert!(!closes("HTTP/1.1", "") && closes("HTTP/1.0", ""));
        assert!(closes("HTTP/1.1", "connection: foo, CLOSE\r\n") && !closes("HTTP/1.0", "Connection: Keep-Alive\r\n"));
    }

    #[test]
    fn what_is_no_head_is_wrong() {
        let broken = [
            "nonsense\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        ];
        for head in broken {
            assert!(find(head).is_err(), "{head}");
        }
        // Regression test: httparse takes these heads.
        let lines = [
            "HTTP/1.1 200 OK\nContent-Length: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\n",
            "HTTP/1.1 200 OK\nContent-Length: 1\n\n",
            "\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n",
            "\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n",
        ];
        for head in lines {
            let Wrong(why) = find(head).unwrap_err();
            assert!(why.starts_with("a line of the head is empty, or ends with LF without CR"), "{head:?}: {why}");
        }
        assert!(find(&format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(MAX_HEAD))).is_err());
        assert_eq!(find("HTTP/1.1 2"), Ok(None));
    }
}
