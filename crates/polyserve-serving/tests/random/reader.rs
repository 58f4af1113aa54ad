//! A plain reading of RFC 9112, with which the codec is compared.
//!
//! The reader has the whole stream, keeps no state between calls and shares no code with the codec. It is written to be
//! compared with the RFC by eye, not to be fast. If the RFC leaves a choice, the reader makes a decision:
//!
//! 1. Up to 32 empty lines are skipped before a request line; one more is refused. RFC 9112, 2.2, asks for at least
//!    one.
//! 2. A line is judged when it is complete. The first 16 bytes of a request line are judged as they arrive: they begin
//!    with a method, or are refused. So a head that never ends is refused for a fault in its complete lines only.
//! 3. The first of several faults counts. Faults of lines come first, in the order of the lines. Then come `Host` and
//!    `Content-Length`, framing, method, target and expectation. Within a field line the order is form, number, line
//!    end.
//! 4. A head that exceeds the limit is answered with 431. If the request line exceeds it, the answer is 414, or 501 if
//!    the method alone does.
//! 5. A path has the bytes of a URI; brackets may stand anywhere. A query has any text without control bytes, space, `"`,
//!    `#`, `<` and `>`, as the URL standard has it; the text is UTF-8. The codec does not interpret the path.
//! 6. `Content-Length: 5, 5` on one line is answered with 400, although RFC 9110, 8.6, allows both. Leading zeros are
//!    valid, and lengths are equal if their values are.
//! 7. An empty element in Transfer-Encoding is answered with 400. Unknown codings before a single final chunked are
//!    answered with 501. All else is 400.
//! 8. Empty elements of `Expect` are ignored. Any element but `100-continue` is answered with 417. In HTTP/1.0 the
//!    field is ignored.
//! 9. A port has any number of digits, as in the grammar. Nothing else may follow a host. Only a target of `*` may have an
//!    empty host.
//! 10. A chunk size that is too large is answered with 413 at its end. It may have leading zeros. A size or a length that does
//!     not fit 64 bits is answered with 400.
//! 11. Extensions without their semicolons, white space, trailers and leading zeros of sizes are bounded together by the limit of a
//!     head: 431.
//! 12. `PRI * HTTP/2.0` is answered with 400. Other versions of the form digit, dot, digit are answered with 505 from
//!     1.2 up, and nothing else is.

use super::grammar::{authority, is_absolute, is_space, is_target, is_tchar, is_text, trim};

/// The limits of a request's size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) max_head: usize,
    pub(crate) max_headers: usize,
    pub(crate) max_body: usize,
}

/// One element of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A complete request.
    Request(Head, Vec<u8>),
    /// A request with a complete head and an incomplete body.
    Cut(Head, Fault),
    /// Bytes that are refused with this status.
    Refused { status: u16, head_only: bool },
}

/// The reason why a body is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The stream ends within the body.
    Short,
    /// The Content-Length exceeds the limit.
    TooLarge,
    /// The chunks are refused with this status.
    Refused(u16),
}

/// A valid head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) is_1_0: bool,
    pub(crate) fields: Vec<(String, Vec<u8>)>,
    pub(crate) keep_alive: bool,
    pub(crate) expects_continue: bool,
    pub(crate) chunked: bool,
}

/// Reads a stream up to its end, or up to the request that ends it.
pub(crate) fn read(stream: &[u8], rules: &Rules) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut at = 0;
    loop {
        let mut blank = 0;
        while blank < 32 && stream[at..].starts_with(b"\r\n") {
            at += 2;
            blank += 1;
        }
        let rest = &stream[at..];
        let (length, head, body_length) = match read_head(rest, rules) {
            Ok(read) => read,
            Err(Stop::Short) => return steps,
            Err(Stop::Refused(status)) => {
                steps.push(Step::Refused { status, head_only: rest.starts_with(b"HEAD ") });
                return steps;
            }
        };
        at += length;
        let keep_alive = head.keep_alive;
        match read_body(&stream[at..], &head, body_length, rules) {
            Ok((length, body)) => {
                at += length;
                steps.push(Step::Request(head, body));
                if !keep_alive {
                    return steps;
                }
            }
            Err(fault) => {
                steps.push(Step::Cut(head, fault));
                return steps;
            }
        }
    }
}

enum Stop {
    Short,
    Refused(u16),
}

/// Returns the length of the head, the head, and its Content-Length.
fn read_head(bytes: &[u8], rules: &Rules) -> Result<(usize, Head, u128), Stop> {
    if bytes.is_empty() || bytes == b"\r" {
        return Err(Stop::Short);
    }
    let prefix = &bytes[..bytes.len().min(16)];
    if let Some(end) = prefix.iter().position(|&b| !is_tchar(b))
        && (end == 0 || prefix[end] != b' ')
    {
        return Err(Stop::Refused(400));
    }
    let past_limit =
        |is_request_line: bool| match bytes[..rules.max_head.min(bytes.len())].iter().position(|&b| !is_tchar(b)) {
            _ if !is_request_line => 431,
            None => 501,
            Some(end) if bytes[end] == b' ' => 414,
            Some(_) => 400,
        };
    let mut at = 0;
    let mut line = None;
    let mut fields = Vec::new();
    loop {
        let first = line.is_none();
        let Some(end) = bytes[at..].iter().position(|&b| b == b'\n').map(|lf| at + lf + 1) else {
            let too_long = bytes.len() > rules.max_head;
            return Err(if too_long { Stop::Refused(past_limit(first)) } else { Stop::Short });
        };
        if end > rules.max_head {
            return Err(Stop::Refused(past_limit(first)));
        }
        let text = &bytes[at..end - 1];
        at = end;
        let without_cr = text.strip_suffix(b"\r");
        let text = without_cr.unwrap_or(text);
        if first {
            line = Some(request_line(text, without_cr.is_some())?);
        } else if text.is_empty() && without_cr.is_some() {
            break;
        } else {
            fields.push(field_line(text)?);
            if fields.len() > rules.max_headers {
                return Err(Stop::Refused(431));
            }
        }
        if without_cr.is_none() {
            return Err(Stop::Refused(400));
        }
    }
    let (method, target, is_1_0) = line.unwrap();
    let (head, length) = validate_head(method, target, is_1_0, fields)?;
    Ok((at, head, length))
}

/// `method SP request-target SP HTTP-version`.
fn request_line(text: &[u8], ends_in_crlf: bool) -> Result<(String, String, bool), Stop> {
    let parts: Vec<&[u8]> = text.split(|&b| b == b' ').collect();
    let [method, target, version] = parts[..] else { return Err(Stop::Refused(400)) };
    let is_method = !method.is_empty() && method.iter().all(|&b| is_tchar(b));
    if !is_method || target.is_empty() || !is_target(target) {
        return Err(Stop::Refused(400));
    }
    let text = |part: &[u8]| String::from_utf8(part.to_vec()).unwrap();
    match version {
        b"HTTP/1.1" | b"HTTP/1.0" => Ok((text(method), text(target), version == b"HTTP/1.0")),
        b"HTTP/2.0" if (method, target) == (b"PRI", b"*") => Err(Stop::Refused(400)),
        [b'H', b'T', b'T', b'P', b'/', b'1'..=b'9', b'.', b'0'..=b'9'] if ends_in_crlf => Err(Stop::Refused(505)),
        _ => Err(Stop::Refused(400)),
    }
}

/// `field-name ":" OWS field-value OWS`.
fn field_line(text: &[u8]) -> Result<(String, Vec<u8>), Stop> {
    let Some(colon) = text.iter().position(|&b| b == b':') else { return Err(Stop::Refused(400)) };
    let (name, value) = (&text[..colon], trim(&text[colon + 1..]));
    let is_name = !name.is_empty() && name.iter().all(|&b| is_tchar(b));
    if !is_name || !value.iter().all(|&b| is_text(b)) {
        return Err(Stop::Refused(400));
    }
    Ok((String::from_utf8(name.to_vec()).unwrap(), value.to_vec()))
}

/// Checks that need the whole head.
fn validate_head(
    method: String,
    target: String,
    is_1_0: bool,
    fields: Vec<(String, Vec<u8>)>,
) -> Result<(Head, u128), Stop> {
    let all = |name: &str| -> Vec<&[u8]> {
        fields.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_slice()).collect()
    };
    let elements = |name: &str| -> Vec<String> {
        let values = all(name);
        let parts = values.iter().flat_map(|value| value.split(|&b| b == b','));
        parts.map(|part| String::from_utf8_lossy(trim(part)).to_ascii_lowercase()).collect()
    };
    let refuse = |status| Err(Stop::Refused(status));

    let hosts = all("host");
    let lengths = all("content-length");
    let is_number = |value: &&[u8]| !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    if hosts.len() > 1 || (hosts.is_empty() && !is_1_0) || !lengths.iter().all(is_number) {
        return refuse(400);
    }
    let digits = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap().trim_start_matches('0').to_owned();
    let lengths: Vec<String> = lengths.into_iter().map(digits).collect();
    let is_valid = |host: &&[u8]| authority(host).is_some_and(|host| !host.is_empty() || target == "*");
    if lengths.windows(2).any(|pair| pair[0] != pair[1]) || !hosts.iter().all(is_valid) {
        return refuse(400);
    }
    let length = match lengths.first().filter(|digits| !digits.is_empty()).map(|digits| digits.parse::<u64>()) {
        Some(Err(_)) => return refuse(400),
        Some(Ok(length)) => u128::from(length),
        None => 0,
    };

    let codings = elements("transfer-encoding");
    let chunked = !codings.is_empty();
    if chunked {
        let ends_in_one =
            codings.iter().filter(|c| *c == "chunked").count() == 1 && codings.last().unwrap() == "chunked";
        if is_1_0 || !lengths.is_empty() || !ends_in_one || codings.iter().any(String::is_empty) {
            return refuse(400);
        }
        if codings.len() > 1 {
            return refuse(501);
        }
    }
    if !["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"].contains(&method.as_str()) {
        return refuse(501);
    }
    let names_the_server = target == "*" && method == "OPTIONS";
    if !target.starts_with('/') && !names_the_server && !is_absolute(&target) {
        return refuse(400);
    }
    let mut expectations = elements("expect");
    expectations.retain(|e| !e.is_empty() && !is_1_0);
    if expectations.iter().any(|e| e != "100-continue") {
        return refuse(417);
    }
    let options = elements("connection");
    let has = |option: &str| options.iter().any(|o| o == option);
    let keep_alive = !has("close") && (!is_1_0 || has("keep-alive"));
    let expects_continue = !expectations.is_empty();
    Ok((Head { method, target, is_1_0, fields, keep_alive, expects_continue, chunked }, length))
}

fn read_body(bytes: &[u8], head: &Head, length: u128, rules: &Rules) -> Result<(usize, Vec<u8>), Fault> {
    if head.chunked {
        return read_chunks(bytes, rules);
    }
    if length > rules.max_body as u128 {
        return Err(Fault::TooLarge);
    }
    let length = length as usize;
    bytes.get(..length).map(|body| (length, body.to_vec())).ok_or(Fault::Short)
}

/// `*chunk last-chunk trailer-section CRLF`.
fn read_chunks(bytes: &[u8], rules: &Rules) -> Result<(usize, Vec<u8>), Fault> {
    let mut body = Vec::new();
    let mut cursor = Cursor { bytes, at: 0, remaining: rules.max_head };
    loop {
        let size = cursor.size(rules.max_body - body.len())?;
        cursor.extensions()?;
        cursor.exactly(b"\r\n")?;
        if size == 0 {
            break;
        }
        body.extend_from_slice(cursor.bytes.get(cursor.at..cursor.at + size).ok_or(Fault::Short)?);
        cursor.at += size;
        cursor.exactly(b"\r\n")?;
    }
    for count in 1.. {
        if cursor.peek()? == b'\r' {
            break;
        }
        if !is_tchar(cursor.peek()?) {
            return Err(Fault::Refused(400));
        }
        if count > rules.max_headers {
            return Err(Fault::Refused(431));
        }
        while is_tchar(cursor.peek()?) {
            cursor.spend()?;
        }
        cursor.exactly(b":")?;
        while is_text(cursor.peek()?) {
            cursor.spend()?;
        }
        cursor.exactly(b"\r\n")?;
    }
    cursor.exactly(b"\r\n")?;
    Ok((cursor.at, body))
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The number of bytes of extensions, trailers and leading zeros that may still follow.
    remaining: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Result<u8, Fault> {
        self.bytes.get(self.at).copied().ok_or(Fault::Short)
    }

    fn exactly(&mut self, expected: &[u8]) -> Result<(), Fault> {
        for &byte in expected {
            if self.peek()? != byte {
                return Err(Fault::Refused(400));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn spend(&mut self) -> Result<(), Fault> {
        self.at += 1;
        self.remaining = self.remaining.checked_sub(1).ok_or(Fault::Refused(431))?;
        Ok(())
    }

    fn size(&mut self, max_size: usize) -> Result<usize, Fault> {
        let (mut size, mut has_digit) = (0_u128, false);
        while let Some(digit) = (self.peek()? as char).to_digit(16) {
            let follows_zeros = has_digit && size == 0;
            (size, has_digit) = (size * 16 + u128::from(digit), true);
            if size > u128::from(u64::MAX) {
                return Err(Fault::Refused(400));
            }
            if follows_zeros { self.spend()? } else { self.at += 1 }
        }
        match self.peek()? {
            b'\r' | b';' | b' ' | b'\t' if has_digit && size <= max_size as u128 => Ok(size as usize),
            b'\r' | b';' | b' ' | b'\t' if has_digit => Err(Fault::Refused(413)),
            _ => Err(Fault::Refused(400)),
        }
    }

    /// `*( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] )`.
    fn extensions(&mut self) -> Result<(), Fault> {
        let before = self.at;
        while is_space(self.peek()?) {
            self.spend()?;
        }
        if self.peek()? != b';' {
            return if self.at > before { Err(Fault::Refused(400)) } else { Ok(()) };
        }
        self.at += 1;
        self.spaces()?;
        self.token()?;
        let before = self.at;
        self.spaces()?;
        if self.peek()? == b'=' {
            self.spend()?;
            self.spaces()?;
            if self.peek()? == b'"' { self.quoted_string()? } else { self.token()? }
        } else if self.at > before && self.peek()? != b';' {
            return Err(Fault::Refused(400));
        }
        self.extensions()
    }

    fn spaces(&mut self) -> Result<(), Fault> {
        while is_space(self.peek()?) {
            self.spend()?;
        }
        Ok(())
    }

    fn token(&mut self) -> Result<(), Fault> {
        if !is_tchar(self.peek()?) {
            return Err(Fault::Refused(400));
        }
        while is_tchar(self.peek()?) {
            self.spend()?;
        }
        Ok(())
    }

    /// `DQUOTE *( qdtext / quoted-pair ) DQUOTE`.
    fn quoted_string(&mut self) -> Result<(), Fault> {
        self.spend()?;
        while self.peek()? != b'"' {
            if self.peek()? == b'\\' {
                self.spend()?;
            }
            if !is_text(self.peek()?) {
                return Err(Fault::Refused(400));
            }
            self.spend()?;
        }
        self.spend()
    }
}
