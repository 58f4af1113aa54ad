//! The expected answers to the requests that the plain reader found, and the comparison with the output.

use super::reader::{Fault, Head, Step};
use super::service::{Call, answer_to, early_status};
use crate::wire::DATE;

/// The expected output of a connection.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    pub(crate) calls: Vec<Call>,
    pub(crate) answers: Vec<Expect>,
    /// Whether the server closes before the client does.
    pub(crate) closed: bool,
    /// Whether a refused request expects `100 Continue`. Then whether its body had arrived decides whether the
    /// connection stays open.
    pub(crate) depends_on_arrival: bool,
}

/// One expected answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    Continue,
    /// A final answer. If `body` is `None`, the expected body is a problem (RFC 9457) with this status.
    Final {
        status: u16,
        body: Option<Vec<u8>>,
        head_only: bool,
        connection: Option<&'static str>,
    },
}

/// The interim answer.
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

impl Expected {
    /// Derives the answers from `steps`, which arrive in one piece. A connection serves at most `max_requests`.
    pub(crate) fn of(steps: &[Step], max_requests: u64) -> Self {
        let mut expected = Self::default();
        for step in steps {
            if expected.closed {
                break;
            }
            match step {
                Step::Request(head, body) => expected.request(head, body, max_requests),
                Step::Cut(head, fault) => expected.cut(head, *fault, max_requests),
                Step::Refused { status, head_only } => expected.refused(*status, *head_only),
            }
        }
        expected
    }

    fn request(&mut self, head: &Head, body: &[u8], max_requests: u64) {
        let early = early_status(&head.target);
        if let Some(status) = early {
            let has_body = head.chunked || !body.is_empty();
            self.depends_on_arrival |= head.expects_continue && has_body;
            // A chunked body is never read together with its head, so the head alone decides.
            let ambiguous = head.expects_continue && head.chunked;
            return self.answer(head, status, None, ambiguous, max_requests);
        }
        if head.expects_continue && head.chunked {
            self.answers.push(Expect::Continue);
        }
        self.calls.push(Call::of(head, body));
        let (status, text) = answer_to(&head.target, &head.method, body);
        self.answer(head, status, text, false, max_requests);
    }

    fn cut(&mut self, head: &Head, fault: Fault, max_requests: u64) {
        if let Some(status) = early_status(&head.target) {
            self.answer(head, status, None, head.expects_continue || fault == Fault::TooLarge, max_requests);
            // The rest of the body is read nevertheless.
            self.closed |= matches!(fault, Fault::Refused(_));
            return;
        }
        if fault == Fault::TooLarge {
            return self.answer(head, 413, None, true, max_requests);
        }
        if head.expects_continue {
            self.answers.push(Expect::Continue);
        }
        if let Fault::Refused(status) = fault {
            self.refused(status, head.method == "HEAD");
        }
    }

    fn refused(&mut self, status: u16, head_only: bool) {
        self.answers.push(Expect::Final { status, body: None, head_only, connection: Some("close") });
        self.closed = true;
    }

    fn answer(&mut self, head: &Head, status: u16, body: Option<Vec<u8>>, ambiguous: bool, max_requests: u64) {
        let answered = self.answers.iter().filter(|answer| matches!(answer, Expect::Final { .. })).count() as u64;
        self.closed = !head.keep_alive || ambiguous || answered + 1 == max_requests;
        let connection = if self.closed {
            Some("close")
        } else if head.is_1_0 {
            Some("keep-alive")
        } else {
            None
        };
        self.answers.push(Expect::Final { status, body, head_only: head.method == "HEAD", connection });
    }

    /// Checks that `out` contains exactly these answers.
    pub(crate) fn check(&self, out: &[u8]) -> Result<(), String> {
        let mut rest = out;
        for (n, expect) in self.answers.iter().enumerate() {
            rest = match expect {
                Expect::Continue => rest.strip_prefix(CONTINUE).ok_or_else(|| format!("answer {n} is not the 100"))?,
                Expect::Final { status, body, head_only, connection } => {
                    check_answer(rest, *status, body.as_deref(), *head_only, *connection)
                        .map_err(|why| format!("answer {n}: {why}, expected {}", summary(expect)))?
                }
            };
        }
        if rest.is_empty() { Ok(()) } else { Err(format!("more is answered: {}", rest.escape_ascii())) }
    }
}

fn summary(expect: &Expect) -> String {
    let text = format!("{expect:?}");
    text.chars().take(200).collect()
}

/// Checks the first answer of `out`, and returns the bytes after it.
fn check_answer<'o>(
    out: &'o [u8],
    status: u16,
    body: Option<&[u8]>,
    head_only: bool,
    connection: Option<&str>,
) -> Result<&'o [u8], String> {
    let end = out.windows(4).position(|w| w == b"\r\n\r\n").ok_or("there is no whole head")?;
    let head = std::str::from_utf8(&out[..end]).map_err(|_| "the head is not text")?;
    let rest = &out[end + 4..];
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap_or_default();
    let code = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..4)).unwrap_or_default();
    if code != format!("{status} ") {
        return Err(format!("it is {line:?}"));
    }
    let fields: Vec<(&str, &str)> = lines
        .map(|line| line.split_once(": ").ok_or(line))
        .collect::<Result<_, _>>()
        .map_err(|line| format!("{line:?}"))?;
    let field = |name: &str| {
        let mut values = fields.iter().filter(|(n, _)| *n == name).map(|(_, value)| *value);
        let value = values.next();
        if values.next().is_some() { Err(format!("there is more than one {name}")) } else { Ok(value) }
    };
    if field("Date")? != Some(DATE) || field("Connection")? != connection {
        return Err(format!("Date or Connection is wrong in {fields:?}"));
    }
    let length = match field("Content-Length")? {
        None if status == 204 => 0,
        Some(digits) if status != 204 => digits.parse().map_err(|_| "the length is no number")?,
        other => return Err(format!("the length is {other:?}")),
    };
    let length = if head_only { 0 } else { length };
    let (sent, rest) = rest.split_at_checked(length).ok_or("the body is not whole")?;
    let says_status = || String::from_utf8_lossy(sent).contains(&format!("\"status\":{status},"));
    match body {
        _ if head_only => Ok(rest),
        Some(body) if body == sent => Ok(rest),
        None if says_status() && field("Content-Type")? == Some("application/problem+json") => Ok(rest),
        _ => Err(format!("the body is {}", sent.escape_ascii())),
    }
}
