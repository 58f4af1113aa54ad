//! The wire corpus: requests as bytes, the statuses that may answer each, and how the connection goes on.
//!
//! The cases are data, in `corpus.txt`, which explains its form. The server kit sends them over sockets, and so
//! does the kit of a server at an [`address`](crate::address), which has cases of its own. The tests of the codec give them to a
//! session without a socket, and so does the kit of the entity [`service`](crate::service).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use polyserve_core::{Echo, Entity, EntityService, ServerConfig, Service};

use crate::NamedEntity;
use crate::address::Group;
use crate::client::{Response, shown};
use crate::repo::{LaterReference, Reference};
use crate::server::PanickingService;

/// The limit of cases that are sent to a store that answers later.
const LATER: &str = "answers=later";

/// The service of cases that are not sent to an echo or to a store.
const SERVICE: &str = "service=panicking";

const CORPUS: &str = include_str!("corpus.txt");

/// A request of the corpus, or several, and what a server does.
#[derive(Clone, Debug)]
pub struct Case {
    /// The name of its property, or of its group if only the codec decides so.
    pub property: &'static str,
    /// What decides the answer.
    pub scope: CaseScope,
    /// The subject of a property at an address.
    pub group: Option<Group>,
    /// Its line in the corpus.
    pub line: usize,
    /// The bytes that a client sends.
    pub bytes: Vec<u8>,
    /// What a server does.
    pub expected: ExpectedAnswer,
    limits: &'static str,
}

/// What decides the answer to a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaseScope {
    /// Every server.
    Server,
    /// This project's codec.
    Codec,
    /// The entity service. The cases of its properties depend on those before them.
    Entities,
    /// A server of entities at an address. The cases of its properties depend on those before them.
    Address,
    /// Every server, over time and by its service. The cases of its properties are dialogues.
    Dialogue,
}

/// What a server does.
#[derive(Clone, Debug)]
pub struct ExpectedAnswer {
    /// The statuses that may be the answer. The codec answers with the first. None if nothing is to be answered.
    pub statuses: Vec<u16>,
    /// How the connection goes on.
    pub end: CaseEnd,
    /// The body of the answer, if it matters.
    pub body: Option<Vec<u8>>,
    /// A text of the answer, in upper or lower case: of the header fields if it contains `: `, or else of the body.
    pub text: Option<String>,
    /// Whether the answer is not to have the text.
    pub lacks_text: bool,
}

impl ExpectedAnswer {
    /// Returns what is wrong with the status, the body and the text of an answer to `case`.
    pub(crate) fn fault(&self, case: &Case, response: &Response) -> Option<String> {
        let length = response.header("Content-Length");
        let is_body_right = match &self.body {
            Some(body) if case.is_head() => length == Some(body.len().to_string().as_str()),
            Some(body) => response.body == *body || response.status >= 400,
            None => true,
        };
        let fields = response.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
        let [fields, body] = [fields.collect(), response.text()].map(|text: String| text.to_ascii_lowercase());
        let has_text = self.text.as_ref().is_none_or(|text| {
            let answer = if text.contains(": ") { &fields } else { &body };
            answer.contains(&text.to_ascii_lowercase()) != self.lacks_text
        });
        let answer = fields + &body;
        let is_right = self.statuses.contains(&response.status) && is_body_right && has_text;
        (!is_right).then(|| format!("{} with {answer}, not {self:?}, to {case}", response.status))
    }
}

/// How a connection goes on after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaseEnd {
    /// It is kept.
    Keep,
    /// The answer announces the end of the connection, and nothing after it is answered.
    Last,
    /// The same, whether the answer announces it or not.
    Ends,
    /// It is kept, or its end is announced.
    Free,
    /// As [`Last`](Self::Last). The request does not end, and the server does not wait for the rest.
    Unfinished,
    /// It is kept, and the next case goes on with it.
    Then,
    /// As [`Then`](Self::Then), or its end is announced, and the next case is left out.
    Maybe,
}

impl Case {
    /// Returns `config` with the limits of this case.
    ///
    /// # Panics
    ///
    /// Panics if the corpus names an unknown limit.
    pub fn configured(&self, config: ServerConfig) -> ServerConfig {
        let of_services = ["store=", SERVICE, LATER];
        let is_limit = |limit: &&str| !of_services.iter().any(|start| limit.starts_with(start));
        self.limits.split_whitespace().filter(is_limit).fold(config, |config, limit| {
            let (name, value) = limit.split_once('=').expect("a limit is NAME=N");
            let number = || value.parse::<u32>().expect("a limit is a number");
            let (count, time) = (|| number() as usize, || Duration::from_millis(number().into()));
            match name {
                "max_head" => config.max_head(count()),
                "max_headers" => config.max_headers(count()),
                "max_body" => config.max_body(count()),
                "min_body_rate" => config.min_body_rate(number()),
                "requests_per_connection" => config.requests_per_connection(u64::from(number())),
                "head_timeout_ms" => config.head_timeout(time()),
                "body_timeout_ms" => config.body_timeout(time()),
                "answer_timeout_ms" => config.answer_timeout(time()),
                unknown => panic!("the corpus has an unknown limit: {unknown}"),
            }
        })
    }

    /// Makes the service that answers: an echo, one that panics, or the entity service over a new store, which answers later if
    /// `later`.
    ///
    /// # Panics
    ///
    /// Panics if the corpus names an unknown store.
    pub fn service(&self, later: bool) -> Arc<dyn Service> {
        if self.limits.contains(SERVICE) {
            return PanickingService::shared();
        }
        if !self.is_of_entities() {
            return Arc::new(Echo);
        }
        let later = later || self.limits.contains(LATER);
        match (self.limits.starts_with("store=named"), later) {
            (true, false) => crate::server::named_service(Reference::default()),
            (true, true) => crate::server::named_service(LaterReference::<NamedEntity>::default()),
            (false, false) => Arc::new(EntityService::new(Reference::<Entity>::default())),
            (false, true) => Arc::new(EntityService::new(LaterReference::<Entity>::default())),
        }
    }

    /// Whether the entity service answers.
    pub(crate) fn is_of_entities(&self) -> bool {
        self.scope == CaseScope::Entities || self.limits.contains("store=")
    }

    /// Whether entity 1 is stored before the first case.
    pub(crate) fn needs_entity(&self) -> bool {
        self.scope == CaseScope::Entities && self.limits.is_empty()
    }

    /// Whether both cases can be sent to one server.
    pub fn has_limits_of(&self, other: &Self) -> bool {
        self.limits == other.limits
    }

    /// Whether the request is a HEAD, so that its answer has no body.
    pub fn is_head(&self) -> bool {
        self.bytes.starts_with(b"HEAD ")
    }

    /// Whether the request is of HTTP/1.0.
    pub fn is_1_0(&self) -> bool {
        self.bytes.split(|byte| *byte == b'\n').next().is_some_and(|line| line.ends_with(b" HTTP/1.0\r"))
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "corpus.txt:{}, {}: {}", self.line, self.property, shown(&self.bytes))
    }
}

/// Returns the cases of the corpus, in its order.
///
/// # Panics
///
/// Panics if a line of the corpus has no valid form.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let (mut property, mut scope, mut group, mut limits) = ("", CaseScope::Server, None, "");
    let (mut templates, mut templates_end) = (Vec::new(), false);
    for (line, text) in (1..).zip(CORPUS.lines()) {
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let sections = [
            ('[', ']', CaseScope::Server),
            ('(', ')', CaseScope::Codec),
            ('<', '>', CaseScope::Entities),
            ('{', '}', CaseScope::Address),
            ('"', '"', CaseScope::Dialogue),
        ];
        let section = sections.iter().find_map(|&(open, close, scope)| Some((enclosed(text, open, close)?, scope)));
        if let Some(section) = section {
            ((property, scope), limits, group) = (section, "", None);
            if let Some((name, of)) = property.split_once(": ") {
                property = name;
                group = Some(Group::named(of).unwrap_or_else(|| panic!("line {line}: no group: {of}")));
            }
        } else if let Some(given) = text.strip_prefix("config ") {
            limits = given;
        } else if let Some(template) = text.strip_prefix("in ") {
            if std::mem::take(&mut templates_end) {
                templates.clear();
            }
            templates.push(template);
        } else {
            templates_end = true;
            let (expected, value) =
                text.split_once(" |").unwrap_or_else(|| panic!("line {line} of the corpus has no ` |`"));
            let value = value.strip_prefix(' ').unwrap_or(value);
            for template in &templates {
                cases.push(Case {
                    property,
                    scope,
                    group,
                    line,
                    bytes: unescaped(&template.replace("{}", value)),
                    expected: parse_expected(expected, line),
                    limits,
                });
            }
        }
    }
    cases
}

/// Returns the names and the groups of the properties with cases of this scope, in the order of the corpus.
pub(crate) fn properties_of(scope: CaseScope) -> Vec<(&'static str, Option<Group>)> {
    let cases = cases().into_iter().filter(|case| case.scope == scope);
    let mut properties: Vec<_> = cases.map(|case| (case.property, case.group)).collect();
    properties.dedup();
    properties
}

/// Returns the cases of a property of a server, or of the entity service.
pub(crate) fn cases_of(property: &str) -> Vec<Case> {
    select(|case| case.property == property && case.scope != CaseScope::Address)
}

/// Returns the cases of a property of a server at an address.
pub(crate) fn cases_of_address(property: &str) -> Vec<Case> {
    select(|case| case.property == property && case.scope == CaseScope::Address)
}

fn select(is_asked_for: impl Fn(&Case) -> bool) -> Vec<Case> {
    let selected: Vec<Case> = cases().into_iter().filter(is_asked_for).collect();
    assert!(!selected.is_empty(), "the corpus has no such case");
    selected
}

fn enclosed(text: &'static str, open: char, close: char) -> Option<&'static str> {
    text.strip_prefix(open)?.strip_suffix(close)
}

fn parse_expected(text: &str, line: usize) -> ExpectedAnswer {
    let (statuses, rest) = text.split_once(' ').unwrap_or((text, ""));
    let (end, detail) = rest.split_at(rest.find(['=', '~', '!']).unwrap_or(rest.len()));
    let end = match end {
        "keep" => CaseEnd::Keep,
        "last" => CaseEnd::Last,
        "ends" => CaseEnd::Ends,
        "free" | "" => CaseEnd::Free,
        "unfinished" => CaseEnd::Unfinished,
        "then" => CaseEnd::Then,
        "maybe" => CaseEnd::Maybe,
        unknown => panic!("line {line}: an unknown end: {unknown}"),
    };
    let status = |status: &str| status.parse().unwrap_or_else(|_| panic!("line {line}: no status: {status}"));
    ExpectedAnswer {
        statuses: statuses.split(',').filter(|status| *status != "-").map(status).collect(),
        end,
        body: detail.strip_prefix('=').map(unescaped),
        text: detail.strip_prefix(['~', '!']).map(|text| String::from_utf8(unescaped(text)).expect("it is a text")),
        lacks_text: detail.starts_with('!'),
    }
}

/// Splits a text at the bracket that closes it.
fn split_at_close(text: &str) -> (&str, &str) {
    let mut depth = 0;
    let end = text.find(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth < 0
    });
    let end = end.expect("a repetition ends with )");
    (&text[..end], &text[end + 1..])
}

/// Returns the bytes of a text with escapes.
fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, escape)) = rest.split_once('\\') {
        bytes.extend_from_slice(before.as_bytes());
        let (kind, after) = escape.split_at(1);
        rest = after;
        match kind {
            "r" => bytes.push(b'\r'),
            "n" => bytes.push(b'\n'),
            "t" => bytes.push(b'\t'),
            "0" => bytes.push(0),
            "\\" | "\"" => bytes.extend_from_slice(kind.as_bytes()),
            "x" => {
                let (digits, after) = after.split_at(2);
                bytes.push(u8::from_str_radix(digits, 16).expect("two hex digits follow \\x"));
                rest = after;
            }
            "*" => {
                let (count, after) = after.split_once('(').expect("\\*N( begins a repetition");
                let (repeated, after) = split_at_close(after);
                bytes.extend(unescaped(repeated).repeat(count.parse().expect("\\* has a number")));
                rest = after;
            }
            "L" => {
                let (body, after) = split_at_close(after.strip_prefix('(').expect("\\L( begins a body"));
                let body = unescaped(body);
                bytes.extend(format!("Content-Length: {}\r\n\r\n", body.len()).into_bytes());
                bytes.extend(body);
                rest = after;
            }
            unknown => panic!("the corpus has an unknown escape: \\{unknown}"),
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_line_is_a_case_in_each_template() {
        let hosts = cases_of("any_other_host_is_refused");
        assert_eq!(hosts[0].bytes, b"GET / HTTP/1.1\r\n\r\n");
        assert_eq!(hosts.last().map(|case| case.bytes.as_slice()), Some(&b"GET http://a/ HTTP/1.1\r\n\r\n"[..]));
        let fields = cases_of("broken_fields_are_refused");
        assert_eq!(fields[0].bytes, b"GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n");
        assert_eq!(fields[1].bytes, b"GET / HTTP/1.1\r\nX : y\r\nHost: a\r\n\r\n");
        let fields = cases_of("more_fields_than_the_limit_are_too_many");
        assert!(fields[0].has_limits_of(&fields[1]) && !fields[1].has_limits_of(&fields[2]));
        assert_eq!(unescaped(r"X: y\r\n\L(a\*2(b))"), b"X: y\r\nContent-Length: 3\r\n\r\nabb");
        assert_eq!(unescaped(r"\*2(a\*2(b)\r)\x41|\\"), b"abb\rabb\rA|\\");
    }

    /// A condition that names the stored entity.
    #[test]
    fn the_tag_of_the_entity_is_right() {
        let tag = polyserve_core::ETag::of(crate::server::status_table::ONE.as_bytes()).to_string();
        assert!(CORPUS.contains(&format!("If-Match: {tag}")), "{tag}");
    }

    /// A section that no kit names would never be sent.
    #[test]
    fn each_property_of_the_corpus_is_in_a_kit() {
        let names: HashSet<_> = crate::server::PROPERTIES.iter().map(|property| property.name).collect();
        for case in cases() {
            match case.scope {
                CaseScope::Server | CaseScope::Dialogue => assert!(names.contains(case.property), "{case}"),
                CaseScope::Address => assert!(case.group.is_some(), "{case}"),
                CaseScope::Codec | CaseScope::Entities => {}
            }
        }
    }

    /// No case takes an answer with another status, or an empty one in place of the body or the text that it names.
    #[test]
    fn a_wrong_answer_is_a_fault() {
        let canned = |status: u16, length: &str| {
            let head = format!("HTTP/1.1 {status} \r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n{length}\r\n");
            Response::read(head.as_bytes(), true).expect("it is an answer")
        };
        for case in cases().into_iter().filter(|case| !case.expected.statuses.is_empty()) {
            let expected = &case.expected;
            // One case takes no length.
            let length = if expected.lacks_text && case.is_head() { "" } else { "Content-Length: 0\r\n" };
            assert!(expected.fault(&case, &canned(299, length)).is_some(), "{case}");
            let has_more = expected.body.as_ref().is_some_and(|body| !body.is_empty())
                || expected.text.is_some() && !expected.lacks_text;
            assert_eq!(expected.fault(&case, &canned(expected.statuses[0], length)).is_some(), has_more, "{case}");
        }
    }
}
