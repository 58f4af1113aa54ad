//! Requests as bytes, and the expected answers.
//!
//! Invariant: the bytes of a request are a function of the traffic, the host and the usage. The bit of a key is set only
//! after a PUT of one of the key's updates had the expected answer. Cost of a request: three to five short copies into a
//! reused buffer. If the traffic has PUTs, a GET also reads the key's bit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::request_stream::PlannedRequest;
use crate::rows::{Entities, Rows};
use crate::traffic::{AnswerCheck, Exchange, Exchanges, Traffic, TrafficPlan};

/// The requests of a [`Traffic`], encoded for a host.
#[derive(Clone, Debug)]
pub(crate) struct EncodedRequests {
    traffic: Traffic,
    get_tail: Vec<u8>,
    put_head: Vec<u8>,
    put_tail: Vec<u8>,
    fixed: Vec<Vec<u8>>,
    /// If the traffic has PUTs: one bit for each key, set when a PUT was acknowledged. Shared by all threads.
    updated: Option<Arc<[AtomicU64]>>,
}

const GET: &[u8] = b"GET /";
const OK: &[u16] = &[200];
const STORED: &[u16] = &[200, 201];

impl EncodedRequests {
    /// Encodes `traffic` for `host`. With `closes`, every request has `Connection: close`.
    pub(crate) fn new(traffic: &Traffic, host: &str, closes: bool) -> Self {
        let close = if closes { "Connection: close\r\n" } else { "" };
        let fields = &*traffic.fields;
        let fixed = match &*traffic.plan {
            TrafficPlan::Exchanges(Exchanges { all, .. }) => {
                all.iter().map(|exchange| encode(exchange, host, close)).collect()
            }
            TrafficPlan::Entities(_) => Vec::new(),
        };
        Self {
            traffic: traffic.clone(),
            get_tail: format!(" HTTP/1.1\r\nHost: {host}\r\n{fields}{close}\r\n").into(),
            put_head: format!("PUT / HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: ")
                .into(),
            put_tail: format!("\r\n{fields}{close}\r\n").into(),
            fixed,
            updated: updates(traffic),
        }
    }

    /// Returns the request as it is sent now: a GET becomes a `GetUpdated` if a PUT of the key was acknowledged before.
    #[inline]
    pub(crate) fn sent_now(&self, planned: PlannedRequest) -> PlannedRequest {
        let (Some(updated), PlannedRequest::Get(key)) = (&self.updated, planned) else { return planned };
        // Acquire, paired with the release below: a request that is sent after this load is sent after that answer.
        let is_updated = |word: &AtomicU64| word.load(Ordering::Acquire) & bit(key) != 0;
        if updated.get(key as usize / 64).is_some_and(is_updated) { PlannedRequest::GetUpdated(key) } else { planned }
    }

    /// Notes that the request had the expected answer.
    #[inline]
    pub(crate) fn acknowledged(&self, planned: PlannedRequest) {
        let (Some(updated), PlannedRequest::Put(key, _)) = (&self.updated, planned) else { return };
        let Some(word) = updated.get(key as usize / 64) else { return };
        if word.load(Ordering::Relaxed) & bit(key) == 0 {
            word.fetch_or(bit(key), Ordering::Release);
        }
    }

    /// Appends the bytes of the request.
    pub(crate) fn write(&self, planned: PlannedRequest, out: &mut Vec<u8>) {
        match planned {
            PlannedRequest::Get(key) | PlannedRequest::GetUpdated(key) => {
                out.extend_from_slice(GET);
                out.extend_from_slice(itoa::Buffer::new().format(key).as_bytes());
                out.extend_from_slice(&self.get_tail);
            }
            PlannedRequest::Put(key, version) => {
                let row = self.rows().and_then(|rows| rows.get(key, version)).unwrap_or_default();
                out.extend_from_slice(&self.put_head);
                out.extend_from_slice(itoa::Buffer::new().format(row.len()).as_bytes());
                out.extend_from_slice(&self.put_tail);
                out.extend_from_slice(row);
            }
            PlannedRequest::Fixed(at) => out.extend_from_slice(self.fixed.get(at as usize).map_or(&[], Vec::as_slice)),
        }
    }

    /// Returns the expected answers to the request.
    pub(crate) fn expected(&self, planned: PlannedRequest) -> Expected<'_> {
        match planned {
            PlannedRequest::Get(key) => self.rows_from(key, 0),
            PlannedRequest::GetUpdated(key) => self.rows_from(key, 1),
            PlannedRequest::Put(..) => Expected { statuses: STORED, ..Expected::EMPTY },
            PlannedRequest::Fixed(at) => match &*self.traffic.plan {
                TrafficPlan::Exchanges(Exchanges { all, is_known, .. }) => match all.get(at as usize) {
                    Some(exchange) if *is_known => Expected::of(exchange),
                    Some(exchange) => {
                        let statuses = if exchange.has_given_status { &*exchange.statuses } else { &[] };
                        Expected { statuses, bodies: Bodies::Any, ..Expected::of(exchange) }
                    }
                    None => Expected::EMPTY,
                },
                TrafficPlan::Entities(_) => Expected::EMPTY,
            },
        }
    }

    /// Returns a description of the request for error messages.
    pub(crate) fn name(&self, planned: PlannedRequest) -> String {
        match (planned, &*self.traffic.plan) {
            (PlannedRequest::Get(key), _) => format!("GET /{key}"),
            (PlannedRequest::GetUpdated(key), _) => format!("GET /{key} after an acknowledged PUT of {key}"),
            (PlannedRequest::Put(key, _), _) => format!("PUT / of {key}"),
            (PlannedRequest::Fixed(at), TrafficPlan::Exchanges(Exchanges { all, .. })) => all
                .get(at as usize)
                .map_or_else(String::new, |exchange| format!("{} {}", exchange.method, exchange.target)),
            (PlannedRequest::Fixed(_), TrafficPlan::Entities(_)) => String::new(),
        }
    }

    /// Returns the rows of `key`, from row number `first`.
    fn rows_from(&self, key: u32, first: u32) -> Expected<'_> {
        match self.rows() {
            Some(rows) => Expected { statuses: OK, bodies: Bodies::Rows(rows, key, first), ..Expected::EMPTY },
            None => Expected::EMPTY,
        }
    }

    fn rows(&self) -> Option<&Rows> {
        match &*self.traffic.plan {
            TrafficPlan::Entities(Entities { rows, .. }) => Some(rows),
            TrafficPlan::Exchanges(_) => None,
        }
    }
}

/// Returns a cleared bit for each key, if the traffic updates entities. The first rows are stored before the load.
fn updates(traffic: &Traffic) -> Option<Arc<[AtomicU64]>> {
    match &*traffic.plan {
        TrafficPlan::Entities(Entities { rows, keys, .. }) if rows.per_key() > 1 && !traffic.is_filling => {
            Some((0..keys.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
        }
        TrafficPlan::Entities(_) | TrafficPlan::Exchanges(_) => None,
    }
}

fn bit(key: u32) -> u64 {
    1 << (key % 64)
}

fn encode(exchange: &Exchange, host: &str, close: &str) -> Vec<u8> {
    let Exchange { method, target, headers, body, .. } = exchange;
    let own_host = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let host = own_host.map_or(host, |(_, value)| value.trim());
    let mut text = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{close}");
    for (name, value) in headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")) {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if let Some(body) = body {
        text.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    text.push_str("\r\n");
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(body.as_deref().unwrap_or_default());
    bytes
}

/// The expected answers to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    pub(crate) statuses: &'a [u16],
    /// Whether the request was HEAD: the answer ends with its head.
    pub(crate) is_head: bool,
    /// What of the answer is compared.
    pub(crate) judged: AnswerCheck,
    bodies: Bodies<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Bodies<'a> {
    Empty,
    /// Any body: the answer is not known yet.
    Any,
    /// The rows of a key: the number of the key, and the number of the first allowed row.
    Rows(&'a Rows, u32, u32),
    List(&'a [Vec<u8>]),
}

impl<'a> Expected<'a> {
    const EMPTY: Self = Self { statuses: &[], is_head: false, judged: AnswerCheck::Body, bodies: Bodies::Empty };

    fn of(exchange: &'a Exchange) -> Self {
        let Exchange { statuses, judged, answers, .. } = exchange;
        Self { statuses, is_head: exchange.method == "HEAD", judged: *judged, bodies: Bodies::List(answers) }
    }

    /// Whether the answer is to be discovered: any body is right.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self.bodies, Bodies::Any)
    }

    pub(crate) fn takes(&self, status: u16) -> bool {
        // Without given statuses, every 2xx and a 304 is right while the answer is discovered.
        let is_any = self.is_unknown() && self.statuses.is_empty();
        if is_any { (200..300).contains(&status) || status == 304 } else { self.statuses.contains(&status) }
    }

    /// Returns the number of right bodies, at most 32.
    pub(crate) fn count(&self) -> u32 {
        match self.bodies {
            Bodies::Empty | Bodies::Any => 1,
            Bodies::Rows(rows, _, first) => rows.per_key() - first,
            Bodies::List(list) => list.len() as u32,
        }
    }

    /// Returns the right body number `index`.
    pub(crate) fn body(&self, index: u32) -> &'a [u8] {
        match self.bodies {
            Bodies::Empty | Bodies::Any => &[],
            Bodies::Rows(rows, key, first) => rows.get(key, first + index).unwrap_or_default(),
            Bodies::List(list) => list.get(index as usize).map_or(&[], Vec::as_slice),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Data, EntityVersion};
    use crate::dist::Dist;

    fn text(requests: &EncodedRequests, planned: PlannedRequest) -> String {
        let mut out = Vec::new();
        requests.write(planned, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn requests_byte_for_byte() {
        let data = Data::new(5);
        let traffic = Traffic::entities(&data, 2, Dist::Uniform, "get=1,put=1".parse().unwrap(), 0).unwrap();
        let requests = EncodedRequests::new(&traffic, "h:1", false);
        assert_eq!(text(&requests, PlannedRequest::Get(1)), "GET /1 HTTP/1.1\r\nHost: h:1\r\n\r\n");
        let expected = requests.expected(PlannedRequest::Get(1));
        assert_eq!(expected.count(), 3);
        let body = String::from_utf8(expected.body(EntityVersion::SecondUpdate as u32).to_vec()).unwrap();
        let head = "PUT / HTTP/1.1\r\nHost: h:1\r\nContent-Type: application/json\r\nContent-Length: ";
        let put = format!("{head}{}\r\nConnection: close\r\n\r\n{body}", body.len());
        requests.acknowledged(PlannedRequest::Put(1, EntityVersion::FirstUpdate as u32));
        assert_eq!(
            (requests.sent_now(PlannedRequest::Get(0)), requests.sent_now(PlannedRequest::Get(1))),
            (PlannedRequest::Get(0), PlannedRequest::GetUpdated(1))
        );
        let updated = requests.clone().expected(PlannedRequest::GetUpdated(1)).count();
        assert_eq!((updated, requests.expected(PlannedRequest::GetUpdated(1)).body(1)), (2, body.as_bytes()));
        assert_eq!(text(&requests, PlannedRequest::GetUpdated(1)), text(&requests, PlannedRequest::Get(1)));
        let closing = EncodedRequests::new(&traffic, "h:1", true);
        assert_eq!(text(&closing, PlannedRequest::Put(1, EntityVersion::SecondUpdate as u32)), put);
        assert_eq!(text(&closing, PlannedRequest::Get(0)), "GET /0 HTTP/1.1\r\nHost: h:1\r\nConnection: close\r\n\r\n");
        let one = Traffic::one("POST", "/x", Some(b"ab"), Some("text/plain")).unwrap();
        let expected = "POST /x HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nab";
        assert_eq!(text(&EncodedRequests::new(&one, "h", false), PlannedRequest::Fixed(0)), expected);
    }
}
