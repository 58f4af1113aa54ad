//! Bytes of a client to a server that speaks TLS: any bytes, and requests in records of any length, which are answered as without TLS.
//!
//! The first byte of an input selects which of both the rest is, the second the length of the parts in which it arrives.

use std::io::{Read as _, Write as _};
use std::sync::{Arc, LazyLock};

use polyserve::serving::http1::Session;
use polyserve::serving::{Connection, ServerState, Step, ThreadBuffers, Turn};
use polyserve::{Echo, ServerConfig, TlsConfig};
use rustls::crypto::ring::default_provider;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// What a connection without a request may keep, in bytes.
const MAX_KEPT: usize = 80 * 1024 + 16 * 1024;

/// A server with TLS, and the settings of its clients.
static TLS: LazyLock<(ServerState, Arc<ClientConfig>)> = LazyLock::new(|| {
    let issued =
        rcgen::generate_simple_self_signed([String::from("localhost")]).expect("the system has random numbers");
    let tls = TlsConfig::new(issued.cert.pem().as_str(), issued.signing_key.serialize_pem().as_str())
        .expect("they belong together");
    let mut roots = RootCertStore::empty();
    roots.add(issued.cert.der().clone()).expect("it is a certificate");
    let client = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let client = client.with_safe_default_protocol_versions().expect("ring has them").with_root_certificates(roots);
    let config = ServerConfig::default().tls(tls);
    (ServerState::new(Arc::new(Echo), &config), Arc::new(client.with_no_client_auth()))
});

static PLAIN: LazyLock<ServerState> = LazyLock::new(|| ServerState::new(Arc::new(Echo), &ServerConfig::default()));

pub(crate) fn check(input: &[u8]) {
    let [kind, length, bytes @ ..] = input else { return };
    let length = usize::from(*length) + 1;
    if kind % 2 == 0 {
        let mut peer = Peer::new(&TLS.0);
        bytes.chunks(length).for_each(|part| peer.receive(part));
        assert!(peer.is_closed || peer.connection.reserved_bytes() <= MAX_KEPT);
        return;
    }
    let mut peer = Peer::new(&PLAIN);
    bytes.chunks(length).for_each(|part| peer.receive(part));
    let (answered, closed) = (without_dates(&peer.output), peer.is_closed);
    let mut peer = Peer::new(&TLS.0);
    let mut client =
        ClientConnection::new(Arc::clone(&TLS.1), "localhost".try_into().expect("a name")).expect("it is valid");
    let mut answers = Vec::new();
    while client.is_handshaking() {
        exchange(&mut peer, &mut client, &mut answers);
    }
    for part in bytes.chunks(length) {
        client.writer().write_all(part).expect("it is buffered");
        exchange(&mut peer, &mut client, &mut answers);
    }
    assert_eq!(
        (without_dates(&answers).escape_ascii().to_string(), peer.is_closed),
        (answered.escape_ascii().to_string(), closed)
    );
}

/// Passes what both sides have to send.
fn exchange(peer: &mut Peer<'_>, client: &mut ClientConnection, answers: &mut Vec<u8>) {
    let mut sent = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut sent).expect("a vector takes all");
    }
    peer.receive(&sent);
    let mut output = &std::mem::take(&mut peer.output)[..];
    while !output.is_empty() {
        client.read_tls(&mut output).expect("a slice can be read");
        client.process_new_packets().expect("the server speaks TLS");
        let _ = client.reader().read_to_end(answers); // an error: nothing more is there for now
    }
}

/// The answers without their dates, which may differ by a second.
fn without_dates(answers: &[u8]) -> Vec<u8> {
    const DATE: &[u8] = b"\r\nDate: ";
    const LENGTH: usize = DATE.len() + "Sun, 06 Nov 1994 08:49:37 GMT".len();
    let (mut kept, mut rest) = (Vec::new(), answers);
    while let Some(at) = rest.windows(DATE.len()).position(|window| window == DATE) {
        kept.extend_from_slice(&rest[..at]);
        rest = rest.get(at + LENGTH..).unwrap_or_default();
    }
    kept.extend_from_slice(rest);
    kept
}

/// A connection, and its client's side of the socket.
struct Peer<'a> {
    server: &'a ServerState,
    connection: Connection,
    buffers: ThreadBuffers,
    output: Vec<u8>,
    is_closed: bool,
}

impl<'a> Peer<'a> {
    fn new(server: &'a ServerState) -> Self {
        let (connection, buffers) = (Connection::new(Session::new()), ThreadBuffers::new());
        Self { server, connection, buffers, output: Vec::new(), is_closed: false }
    }

    /// Serves the connection until it waits for more than these bytes.
    fn receive(&mut self, mut bytes: &[u8]) {
        if self.is_closed {
            return;
        }
        self.buffers.begin_turn();
        let mut turn = Turn::new(self.server, &mut self.buffers);
        let mut step = self.connection.begin_turn(&mut turn);
        loop {
            step = match step {
                Step::Read { .. } if bytes.is_empty() => self.connection.on_empty(&mut turn),
                Step::Read { .. } => {
                    let count = bytes.len().min(turn.buffers.input.len());
                    turn.buffers.input[..count].copy_from_slice(&bytes[..count]);
                    bytes = &bytes[count..];
                    self.connection.on_bytes(&mut turn, count)
                }
                Step::Write { .. } => {
                    let output = self.connection.output(turn.buffers);
                    self.output.extend_from_slice(output);
                    let count = output.len();
                    self.connection.on_written(&mut turn, count)
                }
                Step::Yield => {
                    turn.buffers.begin_turn();
                    self.connection.begin_turn(&mut turn)
                }
                Step::Wait(_) => return,
                Step::Await => panic!("the service answers at once"),
                Step::Linger | Step::Leave | Step::Close => break,
            };
        }
        self.is_closed = true;
        let _ = self.connection.abandon(self.server);
    }
}
