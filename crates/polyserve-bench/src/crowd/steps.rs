//! The bytes that the connections of a crowd send, and their times.

use super::CrowdKind;

/// The steps of each connection: `first` at once, then one step at each turn.
#[derive(Clone, Debug)]
pub(super) struct ConnectionSteps {
    /// The bytes that are sent once the connection is open.
    pub(super) first: Vec<u8>,
    /// The steps that follow.
    pub(super) then: Then,
}

/// The step of a connection at its turn.
#[derive(Clone, Debug)]
pub(super) enum Then {
    /// No turns. The connection waits for an answer with status 200 that ends with these bytes, and stays idle.
    Idle(Vec<u8>),
    /// Sends the next byte of this text at each turn. After the end of the text, sends its last byte again.
    Write(Vec<u8>),
    /// Reads a few bytes.
    Read,
}

/// The ids of the small entity, and of the large entity for slow readers.
pub(crate) const SMALL_ID: i64 = 0;
pub(crate) const LARGE_ID: i64 = 1;

/// The number of requests that a slow reader pipelines.
const PIPELINED_REQUESTS: usize = 16;

/// The content length of a body that never ends, in bytes.
const CONTENT_LENGTH: usize = 60_000;

impl ConnectionSteps {
    /// The steps of `kind` for `host`. The answer to an idle connection ends with `body`.
    pub(super) fn of(kind: CrowdKind, host: &str, body: &str) -> Self {
        let get = |id| format!("GET /{id} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let (first, then) = match kind {
            CrowdKind::Idle => (get(SMALL_ID), Then::Idle(body.into())),
            CrowdKind::SlowHeads => {
                let rest = format!("ET /{SMALL_ID} HTTP/1.1\r\nHost: {host}\r\nX-Slow: a");
                ("G".into(), Then::Write(rest.into()))
            }
            CrowdKind::SlowBodies => {
                let fields =
                    format!("Host: {host}\r\nContent-Type: application/json\r\nContent-Length: {CONTENT_LENGTH}");
                (format!("PUT /{SMALL_ID} HTTP/1.1\r\n{fields}\r\n\r\n"), Then::Write(b"{ ".to_vec()))
            }
            CrowdKind::SlowReaders => (get(LARGE_ID).repeat(PIPELINED_REQUESTS), Then::Read),
        };
        Self { first: first.into_bytes(), then }
    }
}
