//! What the members of a crowd say, and when.

use super::Kind;

/// What each member does: `first` at once, then a step now and then.
#[derive(Clone, Debug)]
pub(super) struct Script {
    /// What is sent as soon as there is a connection.
    pub(super) first: Vec<u8>,
    /// What follows.
    pub(super) then: Then,
}

/// What a member does when it is its turn.
#[derive(Clone, Debug)]
pub(super) enum Then {
    /// It waits for an answer of status 200 that ends so, and has no turns.
    Rest(Vec<u8>),
    /// It sends a byte of this, and the last one over and over.
    Write(Vec<u8>),
    /// It reads a few bytes.
    Read,
}

/// The entity that all may ask for, and the large one of those who read slowly.
pub(super) const SMALL: i64 = 0;
pub(super) const LARGE: i64 = 1;

/// Answers that a slow reader asks for at once.
const PIPELINED: usize = 16;

/// Bytes of a body that is announced and never comes.
const ANNOUNCED: usize = 60_000;

impl Script {
    /// That of `kind`, against `host`. Whoever rests is answered `body`.
    pub(super) fn of(kind: Kind, host: &str, body: &str) -> Self {
        let get = |id| format!("GET /{id} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let (first, then) = match kind {
            Kind::Idle => (get(SMALL), Then::Rest(body.into())),
            Kind::SlowHeads => {
                let rest = format!("ET /{SMALL} HTTP/1.1\r\nHost: {host}\r\nX-Slow: a");
                ("G".into(), Then::Write(rest.into()))
            }
            Kind::SlowBodies => {
                let fields = format!("Host: {host}\r\nContent-Type: application/json\r\nContent-Length: {ANNOUNCED}");
                (format!("PUT /{SMALL} HTTP/1.1\r\n{fields}\r\n\r\n"), Then::Write(b"{ ".to_vec()))
            }
            Kind::SlowReaders => (get(LARGE).repeat(PIPELINED), Then::Read),
        };
        Self { first: first.into_bytes(), then }
    }
}
