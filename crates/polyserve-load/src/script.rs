//! Requests as bytes, and the answers that they may get.
//!
//! Invariant: the bytes of a request are a function of the traffic, the host and the usage. Cost of a request: three to
//! five short copies into a buffer that has grown.

use crate::draws::{Ask, Entities, Rows};
use crate::traffic::{Exchange, Plan, Traffic};

/// A traffic as it is written to a host.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    traffic: Traffic,
    get_tail: Vec<u8>,
    put_head: Vec<u8>,
    put_tail: Vec<u8>,
    fixed: Vec<Vec<u8>>,
}

const GET: &[u8] = b"GET /";
const OK: &[u16] = &[200];
const STORED: &[u16] = &[200, 201];

impl Script {
    /// `closes`: every request says that it is its connection's last.
    pub(crate) fn new(traffic: &Traffic, host: &str, closes: bool) -> Self {
        let close = if closes { "Connection: close\r\n" } else { "" };
        let fixed = match &*traffic.plan {
            Plan::Exchanges(all) => all.iter().map(|exchange| written(exchange, host, close)).collect(),
            Plan::Unknown(exchange) => vec![written(exchange, host, close)],
            Plan::Entities(_) => Vec::new(),
        };
        Self {
            traffic: traffic.clone(),
            get_tail: format!(" HTTP/1.1\r\nHost: {host}\r\n{close}\r\n").into(),
            put_head: format!("PUT / HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: ")
                .into(),
            put_tail: format!("\r\n{close}\r\n").into(),
            fixed,
        }
    }

    /// Appends the bytes of `ask`.
    pub(crate) fn write(&self, ask: Ask, out: &mut Vec<u8>) {
        match ask {
            Ask::Get(key) => {
                out.extend_from_slice(GET);
                out.extend_from_slice(itoa::Buffer::new().format(key).as_bytes());
                out.extend_from_slice(&self.get_tail);
            }
            Ask::Put(key, draw) => {
                let row = self.rows().and_then(|rows| rows.get(key, draw)).unwrap_or_default();
                out.extend_from_slice(&self.put_head);
                out.extend_from_slice(itoa::Buffer::new().format(row.len()).as_bytes());
                out.extend_from_slice(&self.put_tail);
                out.extend_from_slice(row);
            }
            Ask::Fixed(at) => out.extend_from_slice(self.fixed.get(at as usize).map_or(&[], Vec::as_slice)),
        }
    }

    /// What may be answered to `ask`.
    pub(crate) fn expected(&self, ask: Ask) -> Expected<'_> {
        match ask {
            Ask::Get(key) => match self.rows() {
                Some(rows) => Expected { statuses: OK, is_head: false, bodies: Bodies::Rows(rows, key) },
                None => Expected::EMPTY,
            },
            Ask::Put(..) => Expected { statuses: STORED, is_head: false, bodies: Bodies::Empty },
            Ask::Fixed(at) => match &*self.traffic.plan {
                Plan::Exchanges(all) => all.get(at as usize).map_or(Expected::EMPTY, Expected::of),
                Plan::Unknown(exchange) => Expected { bodies: Bodies::Any, ..Expected::of(exchange) },
                Plan::Entities(_) => Expected::EMPTY,
            },
        }
    }

    /// `ask`, for people.
    pub(crate) fn name(&self, ask: Ask) -> String {
        match (ask, &*self.traffic.plan) {
            (Ask::Get(key), _) => format!("GET /{key}"),
            (Ask::Put(key, _), _) => format!("PUT / of {key}"),
            (Ask::Fixed(_), Plan::Unknown(Exchange { method, target, .. })) => format!("{method} {target}"),
            (Ask::Fixed(at), Plan::Exchanges(all)) => {
                all.get(at as usize).map_or_else(String::new, |one| format!("{} {}", one.method, one.target))
            }
            (Ask::Fixed(_), Plan::Entities(_)) => String::new(),
        }
    }

    fn rows(&self) -> Option<&Rows> {
        match &*self.traffic.plan {
            Plan::Entities(Entities { rows, .. }) => Some(rows),
            Plan::Exchanges(_) | Plan::Unknown(_) => None,
        }
    }
}

fn written(exchange: &Exchange, host: &str, close: &str) -> Vec<u8> {
    let Exchange { method, target, headers, body, .. } = exchange;
    let mut text = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{close}");
    for (name, value) in headers {
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

/// What may be answered to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    pub(crate) statuses: &'a [u16],
    /// Whether the request was HEAD: the answer ends with its head.
    pub(crate) is_head: bool,
    bodies: Bodies<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Bodies<'a> {
    Empty,
    /// Any: the answer is to be learned.
    Any,
    Rows(&'a Rows, u32),
    List(&'a [Vec<u8>]),
}

impl<'a> Expected<'a> {
    const EMPTY: Self = Self { statuses: &[], is_head: false, bodies: Bodies::Empty };

    fn of(exchange: &'a Exchange) -> Self {
        let is_head = exchange.method == "HEAD";
        Self { statuses: &exchange.statuses, is_head, bodies: Bodies::List(&exchange.answers) }
    }

    /// Whether the answer is to be learned: every 2xx is right, with any body.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self.bodies, Bodies::Any)
    }

    pub(crate) fn takes(&self, status: u16) -> bool {
        if self.is_unknown() { (200..300).contains(&status) } else { self.statuses.contains(&status) }
    }

    /// How many bodies are right, at most 32.
    pub(crate) fn count(&self) -> u32 {
        match self.bodies {
            Bodies::Empty | Bodies::Any => 1,
            Bodies::Rows(rows, _) => rows.each(),
            Bodies::List(list) => list.len() as u32,
        }
    }

    /// One of them.
    pub(crate) fn body(&self, index: u32) -> &'a [u8] {
        match self.bodies {
            Bodies::Empty | Bodies::Any => &[],
            Bodies::Rows(rows, key) => rows.get(key, index).unwrap_or_default(),
            Bodies::List(list) => list.get(index as usize).map_or(&[], Vec::as_slice),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Data, Draw};
    use crate::dist::Dist;

    fn text(script: &Script, ask: Ask) -> String {
        let mut out = Vec::new();
        script.write(ask, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn requests_byte_for_byte() {
        let data = Data::new(5);
        let traffic = Traffic::entities(&data, 2, Dist::Uniform, "get=1,put=1".parse().unwrap(), 0).unwrap();
        let script = Script::new(&traffic, "h:1", false);
        assert_eq!(text(&script, Ask::Get(1)), "GET /1 HTTP/1.1\r\nHost: h:1\r\n\r\n");
        let expected = script.expected(Ask::Get(1));
        assert_eq!(expected.count(), 3);
        let body = String::from_utf8(expected.body(Draw::SecondUpdate as u32).to_vec()).unwrap();
        let head = "PUT / HTTP/1.1\r\nHost: h:1\r\nContent-Type: application/json\r\nContent-Length: ";
        let put = format!("{head}{}\r\nConnection: close\r\n\r\n{body}", body.len());
        let closing = Script::new(&traffic, "h:1", true);
        assert_eq!(text(&closing, Ask::Put(1, Draw::SecondUpdate as u32)), put);
        assert_eq!(text(&closing, Ask::Get(0)), "GET /0 HTTP/1.1\r\nHost: h:1\r\nConnection: close\r\n\r\n");
        let one = Traffic::one("POST", "/x", Some(b"ab"), Some("text/plain")).unwrap();
        let written = "POST /x HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nab";
        assert_eq!(text(&Script::new(&one, "h", false), Ask::Fixed(0)), written);
    }
}
