//! Answers, parsed strictly.

use super::date;

/// The max length of a body. No server of the kit sends a longer one.
pub(super) const MAX_BODY: usize = 1 << 30;

/// An answer as it arrived: header fields in their order and case.
///
/// A [`Client`](super::Client) returns an answer only if it is well-formed:
///
/// * Every line ends with CRLF, and no CR or LF stands alone.
/// * The status line is `HTTP/1.x`, three digits and a reason. Names are tokens and values printable.
/// * There is exactly one `Content-Length`, of digits (none in a 1xx or 204), and no `Transfer-Encoding`.
/// * Every answer but a 1xx has exactly one `Date`, an IMF-fixdate with the right weekday.
///
/// The last two are for the servers of this project: see [`Client::of_any_server`](super::Client::of_any_server).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The minor version: 0 or 1.
    pub minor: u8,
    /// The status.
    pub status: u16,
    /// The reason phrase, which may be empty.
    pub reason: String,
    /// The header fields.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The number of bytes of the head and the body, as they were received.
    pub length: usize,
    /// Whether the body has lasted until the end of the connection.
    pub lasts_to_end: bool,
}

impl Response {
    /// The first value of the field `name`. Ignores upper and lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Every value of the field `name`, in any case.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.headers.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Returns whether the field `name`, a comma-separated list, has this member. Ignores upper and lower case.
    pub fn lists(&self, name: &str, member: &str) -> bool {
        self.all(name).flat_map(|value| value.split(',')).any(|m| m.trim().eq_ignore_ascii_case(member))
    }

    /// Whether the answer says `Connection: close`.
    pub fn closes(&self) -> bool {
        self.lists("Connection", "close")
    }

    /// Whether the server sends no other answer on this connection: it says so, the version is HTTP/1.0 without `keep-alive`, or the
    /// body has lasted until the end of the connection.
    pub fn is_last(&self) -> bool {
        let is_kept = self.minor > 0 || self.lists("Connection", "keep-alive");
        self.closes() || self.lasts_to_end || !is_kept
    }

    /// Whether the answer says both `Connection: close` and `Connection: keep-alive`. A client of HTTP/1.0 may believe the latter.
    pub(crate) fn contradicts_itself(&self) -> bool {
        self.closes() && self.lists("Connection", "keep-alive")
    }

    /// Whether another answer to the same request follows.
    pub fn is_interim(&self) -> bool {
        self.status < 200
    }

    /// The `Date`, in seconds since 1970.
    pub fn date(&self) -> Option<u64> {
        self.header("Date").and_then(date::parse)
    }

    /// The body as text, for comparison and messages.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Reads one answer, which is all of `bytes`. An answer to HEAD has no body.
    pub(crate) fn read(bytes: &[u8], to_head: bool) -> Result<Self, String> {
        let end = head_end(bytes)?.ok_or("its head does not end")?;
        let mut response = Self::parse(&bytes[..end])?;
        response.check_date()?;
        let length = if to_head { 0 } else { response.body_length(false)? };
        response.body = bytes[end..].to_vec();
        response.length = bytes.len();
        if response.body.len() == length {
            Ok(response)
        } else {
            Err(format!("{} bytes follow its head", response.body.len()))
        }
    }

    /// Parses a head that ends with an empty line.
    pub(super) fn parse(head: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(head).map_err(|_| "the head is not ASCII")?;
        let mut lines = text.split("\r\n");
        let status_line = lines.next().unwrap_or_default();
        let (minor, status, reason) = parse_status_line(status_line)
            .ok_or_else(|| format!("the status line is {:?}", status_line.escape_debug().to_string()))?;
        let mut headers = Vec::new();
        for line in lines.take_while(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').ok_or("a field has no colon")?;
            if name.is_empty() || !name.bytes().all(is_tchar) {
                return Err(format!("the field name {name:?} is no token"));
            }
            let value = value.trim_matches([' ', '\t']);
            if !value.bytes().all(|b| (b' '..=b'~').contains(&b)) {
                return Err(format!("the value of {name} is not printable"));
            }
            headers.push((name.to_owned(), value.to_owned()));
        }
        Ok(Self { minor, status, reason: reason.to_owned(), headers, body: Vec::new(), length: 0, lasts_to_end: false })
    }

    /// Checks the fields that every answer must have. Returns the length of the body. `to_head`: it answers a HEAD, and may leave out
    /// the length.
    pub(super) fn body_length(&self, to_head: bool) -> Result<usize, String> {
        if self.all("Transfer-Encoding").next().is_some() {
            return Err("it has a Transfer-Encoding, though its length is known".into());
        }
        let lengths: Vec<&str> = self.all("Content-Length").collect();
        let bodiless = self.is_interim() || self.status == 204;
        let length = match lengths.as_slice() {
            [] if bodiless || to_head || self.status == 304 => 0,
            [_, ..] if bodiless => return Err(format!("a {} has a Content-Length", self.status)),
            [length] if !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit()) => length
                .parse()
                .ok()
                .filter(|length| *length <= MAX_BODY)
                .ok_or("its Content-Length is beyond counting")?,
            lengths => return Err(format!("its Content-Length is {lengths:?}")),
        };
        Ok(if self.status == 304 { 0 } else { length })
    }

    /// Checks that there is one valid `Date`, except in a 1xx.
    pub(super) fn check_date(&self) -> Result<(), String> {
        if self.is_interim() || (self.all("Date").count() == 1 && self.date().is_some()) {
            return Ok(());
        }
        Err(format!("its Date is {:?}", self.all("Date").collect::<Vec<_>>()))
    }
}

fn parse_status_line(line: &str) -> Option<(u8, u16, &str)> {
    let rest = line.strip_prefix("HTTP/1.")?;
    let (minor, rest) = rest.split_once(' ')?;
    let (status, reason) = rest.split_once(' ')?;
    let minor = match minor {
        "0" => 0,
        "1" => 1,
        _ => return None,
    };
    let three = status.len() == 3 && status.bytes().all(|b| b.is_ascii_digit());
    let status = status.parse().ok().filter(|status| three && (100..600).contains(status))?;
    reason.bytes().all(|b| (b' '..=b'~').contains(&b)).then_some((minor, status, reason))
}

fn is_tchar(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

/// Returns the end of the head at the start of `bytes`, if the head has ended.
pub(super) fn head_end(bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    let mut line = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        match (byte, bytes.get(at + 1)) {
            (b'\r', Some(b'\n') | None) => {}
            (b'\r', Some(_)) => return Err("a CR stands alone"),
            (b'\n', _) if at == 0 || bytes[at - 1] != b'\r' => return Err("an LF stands alone"),
            (b'\n', _) if at == line + 1 => {
                return if line == 0 { Err("it begins with an empty line") } else { Ok(Some(at + 1)) };
            }
            (b'\n', _) => line = at + 1,
            _ => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

    fn read(answer: &str) -> Result<Response, String> {
        Response::read(answer.as_bytes(), false)
    }

    #[test]
    fn what_is_well_formed_is_read() {
        let response =
            read(&format!("HTTP/1.1 200 OK\r\n{DATE}content-LENGTH: 5\r\nConnection: a, Close\r\n\r\nhello")).unwrap();
        assert_eq!((response.status, response.closes(), response.date()), (200, true, Some(784_111_777)));
        assert_eq!(response.text(), "hello");
        assert_eq!(response.headers[1].0, "content-LENGTH");
        assert_eq!(read("HTTP/1.1 100 Continue\r\n\r\n").unwrap().body, b"");
        assert_eq!(read(&format!("HTTP/1.0 204 \r\n{DATE}\r\n")).unwrap().minor, 0);
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for (head, why) in [
            ("HTTP/1.1 200 OK\nContent-Length: 0\n\n".to_owned(), "LF stands alone"),
            ("HTTP/1.1 200 OK\rContent-Length: 0\r\n\r\n".to_owned(), "CR stands alone"),
            (format!("\r\nHTTP/1.1 200 OK\r\n{DATE}Content-Length: 0\r\n\r\n"), "empty line"),
            (format!("HTTP/1.1 200 OK\r\n{DATE}\r\n"), "Content-Length is []"),
            (format!("HTTP/1.1 200 OK\r\n{DATE}Content-Length: 1\r\nContent-Length: 1\r\n\r\n"), "Content-Length is"),
            (format!("HTTP/1.1 200 OK\r\n{DATE}Content-Length: +1\r\n\r\n"), "Content-Length is"),
            (format!("HTTP/1.1 200 OK\r\n{DATE}Content-Length: {}\r\n\r\n", u64::MAX), "beyond counting"),
            (format!("HTTP/1.1 200 OK\r\n{DATE}Content-Length: {}0\r\n\r\n", u64::MAX), "beyond counting"),
            (format!("HTTP/1.1 204 No Content\r\n{DATE}Content-Length: 0\r\n\r\n"), "204 has"),
            (format!("HTTP/1.1 200 OK\r\n{DATE}Transfer-Encoding: chunked\r\n\r\n"), "Transfer-Encoding"),
            (format!("HTTP/1.1 200 OK\r\n{DATE}{DATE}Content-Length: 0\r\n\r\n"), "Date"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned(), "Date is []"),
            ("HTTP/1.1 200 OK\r\nDate: today\r\nContent-Length: 0\r\n\r\n".to_owned(), "Date is"),
            (format!("HTTP/1.1 20 OK\r\n{DATE}Content-Length: 0\r\n\r\n"), "status line"),
            (format!("HTTP/2.0 200 OK\r\n{DATE}Content-Length: 0\r\n\r\n"), "status line"),
            (format!("HTTP/1.1 200 OK\r\n{DATE}Content-Length : 0\r\n\r\n"), "no token"),
            (format!("HTTP/1.1 200 OK\r\n{DATE}Content-Length: 0\r\nX: \x01\r\n\r\n"), "not printable"),
        ] {
            let refused = read(&head).unwrap_err();
            assert!(refused.contains(why), "{head:?}: {refused}");
        }
    }
}
