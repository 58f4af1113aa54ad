//! Reports of answers that wait to be written.
//!
//! A line is formatted when it is written, and not when its answer is made: a thread that serves would format it among other work, for
//! which the processor has neither the code nor the tables at hand, and would copy it. A report is shorter than its line.
//!
//! Cost of a report: a copy of its values and its texts. No allocation once there was room for as many.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use polyserve_core::http::{StatusCode, Version};
use polyserve_core::{AnswerReport, TraceId};

/// The max number of bytes of a target, and of a field, in a line. A longer one is cut, and ends with `...`.
pub(super) const MAX_TEXT: usize = 2048;

/// The capacity that is kept for texts, in bytes.
const KEPT_CAPACITY: usize = 1024 * 1024;

/// Reports in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Reports {
    answers: Vec<KeptAnswer>,
    /// The method, the target and the user of each report, without a space between them.
    texts: String,
    /// The referer and the user agent of each report.
    fields: Vec<u8>,
}

/// A report without its texts.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeptAnswer {
    pub(super) made: Instant,
    pub(super) status: StatusCode,
    pub(super) bytes: u64,
    pub(super) elapsed: Option<Duration>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) trace: Option<TraceId>,
    request: Option<KeptRequest>,
    /// The length of the user's name.
    user: Option<usize>,
    referer: Option<KeptField>,
    user_agent: Option<KeptField>,
}

/// The length of a field's value.
#[derive(Clone, Copy, Debug)]
struct KeptField {
    length: u16,
    is_cut: bool,
}

/// A request line: the lengths of its texts.
#[derive(Clone, Copy, Debug)]
struct KeptRequest {
    method: usize,
    target: usize,
    is_cut: bool,
    version: Version,
}

/// A report with its texts.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoggedReport<'a> {
    pub(super) answer: &'a KeptAnswer,
    pub(super) request: Option<LoggedRequest<'a>>,
    pub(super) user: Option<&'a str>,
    pub(super) referer: Option<LoggedField<'a>>,
    pub(super) user_agent: Option<LoggedField<'a>>,
}

/// The value of a field, or the first part of a long one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoggedField<'a> {
    pub(super) value: &'a [u8],
    pub(super) is_cut: bool,
}

/// A request line.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoggedRequest<'a> {
    pub(super) method: &'a str,
    /// The target, or the first part of a long one.
    pub(super) target: &'a str,
    pub(super) is_cut: bool,
    pub(super) version: Version,
}

impl Reports {
    pub(super) fn len(&self) -> usize {
        self.answers.len()
    }

    pub(super) fn push(&mut self, report: &AnswerReport<'_>) {
        let request = report.request.map(|request| {
            let (method, target) = (request.method.as_str(), cut(request.target));
            self.texts.push_str(method);
            self.texts.push_str(target);
            let is_cut = target.len() < request.target.len();
            KeptRequest { method: method.len(), target: target.len(), is_cut, version: request.version }
        });
        let user = report.user.map(|user| {
            self.texts.push_str(user);
            user.len()
        });
        let [referer, user_agent] = [report.referer, report.user_agent].map(|value| Some(self.keep_field(value?)));
        let AnswerReport { made, status, bytes, elapsed, peer, trace, .. } = *report;
        self.answers.push(KeptAnswer { made, status, bytes, elapsed, peer, trace, request, user, referer, user_agent });
    }

    fn keep_field(&mut self, value: &[u8]) -> KeptField {
        let kept = value.get(..MAX_TEXT).unwrap_or(value);
        self.fields.extend_from_slice(kept);
        KeptField { length: kept.len() as u16, is_cut: kept.len() < value.len() }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = LoggedReport<'_>> {
        let mut rest = self.texts.as_str();
        let mut take = move |length: usize| {
            let (text, after) = rest.split_at_checked(length).unwrap_or_default(); // it has all texts
            rest = after;
            text
        };
        let mut fields = self.fields.as_slice();
        let mut take_field = move |KeptField { length, is_cut }| {
            let (value, after) = fields.split_at_checked(length.into()).unwrap_or_default();
            fields = after;
            LoggedField { value, is_cut }
        };
        self.answers.iter().map(move |answer| {
            let request = answer.request.map(|KeptRequest { method, target, is_cut, version }| LoggedRequest {
                method: take(method),
                target: take(target),
                is_cut,
                version,
            });
            let user = answer.user.map(&mut take);
            let [referer, user_agent] = [answer.referer, answer.user_agent].map(|field| field.map(&mut take_field));
            LoggedReport { answer, request, user, referer, user_agent }
        })
    }

    pub(super) fn clear(&mut self) {
        self.answers.clear();
        self.texts.clear();
        self.texts.shrink_to(KEPT_CAPACITY);
        self.fields.clear();
        self.fields.shrink_to(KEPT_CAPACITY);
    }
}

impl LoggedReport<'_> {
    /// The length of the texts, in bytes.
    pub(super) fn texts_length(&self) -> usize {
        let fields = [self.referer, self.user_agent].map(|field| field.map_or(0, |field| field.value.len()));
        let request = self.request.map_or(0, |request| request.method.len() + request.target.len());
        request + self.user.map_or(0, str::len) + fields.iter().sum::<usize>()
    }
}

/// The target, or its start if it is long.
fn cut(target: &str) -> &str {
    if target.len() <= MAX_TEXT {
        return target;
    }
    let end = (0..=MAX_TEXT).rev().find(|at| target.is_char_boundary(*at)).unwrap_or_default();
    target.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use polyserve_core::ReportedRequest;
    use polyserve_core::http::Method;

    use super::*;

    #[test]
    fn each_report_has_its_texts() {
        let long = "\u{e9}".repeat(MAX_TEXT);
        let cut = format!("/{}", "\u{e9}".repeat(MAX_TEXT / 2 - 1));
        let long_field = [b'x'; MAX_TEXT + 1];
        let fields: [Option<&[u8]>; 4] = [None, Some(b""), Some(b"a\xff"), Some(&long_field)];
        let (method, long) = (Method::from_bytes(b"BREW").expect("it is a token"), format!("/{long}"));
        let request = |target| ReportedRequest { method: &method, target, version: Version::HTTP_11 };
        let answers: [(_, _, &str); 5] = [
            (Some(request("/1")), Some("alice"), "/1"),
            (None, None, ""),
            (None, Some("b\u{f6}b"), ""),
            (Some(request(&long)), None, &cut),
            (Some(request("")), Some(""), ""),
        ];
        let mut reports = Reports::default();
        for _ in 0..2 {
            for (bytes, (request, user, _)) in answers.iter().enumerate() {
                let mut report = AnswerReport::new(StatusCode::OK, bytes, None, None).to(*request);
                report.user = *user;
                (report.referer, report.user_agent) = (fields[bytes % 4], fields[(bytes + 1) % 4]);
                reports.push(&report);
            }
            assert_eq!((reports.len(), reports.iter().count()), (answers.len(), answers.len()));
            for (bytes, (report, (request, user, target))) in reports.iter().zip(answers).enumerate() {
                let expected = request.map(|_| ("BREW", target, target == cut));
                assert_eq!(report.request.map(|line| (line.method, line.target, line.is_cut)), expected);
                assert_eq!((report.answer.bytes, report.user), (bytes as u64, user));
                for (field, sent) in [(report.referer, fields[bytes % 4]), (report.user_agent, fields[(bytes + 1) % 4])]
                {
                    let kept = sent.map(|sent| (&sent[..sent.len().min(MAX_TEXT)], sent.len() > MAX_TEXT));
                    assert_eq!(field.map(|field| (field.value, field.is_cut)), kept);
                }
            }
            reports.clear();
        }
    }
}
