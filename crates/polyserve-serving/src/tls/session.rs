//! One TLS connection without its socket, over rustls.
//!
//! rustls decrypts in the buffer that the driver has read into, so a connection keeps bytes only of an incomplete record.

use std::fmt;
use std::time::Instant;

use polyserve_core::{ClientCertificate, HandshakeFailure, TlsConfig};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{Error, HandshakeKind, SupportedCipherSuite};
use webpki::EndEntityCert;

use crate::ServerState;
use crate::http1::{OUTPUT_BOUND, Phase};
use crate::memory::{MemoryBudget, Reservation};
use crate::tls::Received;

/// Max bytes that a connection keeps of a message of a handshake, or of a record: the longest that TLS has, with the records around it.
const MAX_PENDING: usize = 80 * 1024;

/// The plain bytes of a full record.
const RECORD: usize = 16 * 1024;

/// The bytes that a record adds at most, in the versions and ciphers that are spoken: head, nonce, type and tag.
const RECORD_OVERHEAD: usize = 5 + 8 + 1 + 16;

/// What a thread lends the TLS of a connection for a turn.
#[derive(Debug, Default)]
pub struct TlsBuffers {
    /// The bytes of the session that were received last.
    pub plain: Vec<u8>,
    /// The output, of which nothing is written.
    sealed: Vec<u8>,
}

impl TlsBuffers {
    /// Bytes that the buffers can hold without an allocation.
    pub fn capacity(&self) -> usize {
        self.plain.capacity().saturating_add(self.sealed.capacity())
    }

    /// Releases the buffers if they hold more than `limit` bytes and no output waits to be written.
    pub fn trim(&mut self, limit: usize) {
        if self.capacity() > limit && self.sealed.is_empty() {
            *self = Self::default();
        }
    }

    /// Drops the bytes of the session. It has received them.
    pub fn clear_plain(&mut self) {
        self.plain.clear();
    }

    /// Drops the output.
    pub fn clear(&mut self) {
        self.sealed.clear();
    }
}

/// The TLS of a connection of which bytes have arrived.
pub struct TlsSession(Box<TlsState>);

struct TlsState {
    connection: UnbufferedServerConnection,
    config: Option<TlsConfig>,
    /// The received bytes of an incomplete record, or of an incomplete message of a handshake.
    pending: Vec<u8>,
    /// The output that the kernel has not accepted, of which this number of bytes was accepted since.
    unsent: Vec<u8>,
    sent: usize,
    /// The number of answers that end in the output.
    answers: u64,
    /// The handshake ended in a drain, and the request of the client is awaited.
    awaits_request: bool,
    /// The stage of the last wait without a begun request, and when that wait began.
    quiet: Option<((u64, Phase), Instant)>,
    /// The number of records that were sealed.
    records: u64,
    /// `close_notify` or an alert is in the output, or was sent.
    has_ended: bool,
    reservation: Reservation,
}

impl fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_handshaking = self.is_handshaking();
        f.debug_struct("TlsSession").field("is_handshaking", &is_handshaking).finish_non_exhaustive()
    }
}

impl TlsSession {
    /// The session of a new connection, which may negotiate HTTP/2 if `has_http2`. Returns `None` if the server does not speak TLS, or if
    /// rustls refuses the configuration.
    pub fn new(server: &ServerState, has_http2: bool) -> Option<Self> {
        let config = server.config.tls.as_ref()?;
        let of_version = if has_http2 { config.http2() } else { config.http1() };
        let connection = UnbufferedServerConnection::new(of_version).ok()?;
        Some(Self::over(connection, Some(config.clone())))
    }

    /// `config` verifies the certificates of clients that resume a session.
    pub(crate) fn over(connection: UnbufferedServerConnection, config: Option<TlsConfig>) -> Self {
        Self(Box::new(TlsState {
            connection,
            config,
            pending: Vec::new(),
            unsent: Vec::new(),
            sent: 0,
            answers: 0,
            awaits_request: false,
            quiet: None,
            records: 0,
            has_ended: false,
            reservation: Reservation::default(),
        }))
    }

    /// Whether the handshake has not ended.
    pub fn is_handshaking(&self) -> bool {
        self.0.connection.is_handshaking() && !self.0.has_ended
    }

    /// Gives up the handshake. Returns false if it has ended.
    pub fn give_up_handshake(&mut self) -> bool {
        let is_handshaking = self.is_handshaking();
        self.0.has_ended |= is_handshaking;
        is_handshaking
    }

    /// Whether the handshake has negotiated HTTP/2.
    pub fn is_http2(&self) -> bool {
        self.0.connection.alpn_protocol() == Some(b"h2")
    }

    /// The certificate that the client has shown in the handshake, or in that of the session that it resumes. `None` if the server does
    /// not ask for one, or before the end of the handshake.
    pub fn client_certificate(&self) -> Option<ClientCertificate> {
        let shown = self.0.connection.peer_certificates()?.first()?;
        let certificate = EndEntityCert::try_from(shown).ok()?;
        Some(ClientCertificate::new(certificate.valid_dns_names().chain(certificate.valid_uri_names())))
    }

    /// Whether the client has begun what may become a request: a handshake, or a record.
    pub fn has_part(&self) -> bool {
        self.is_handshaking() || self.0.awaits_request || !self.0.pending.is_empty()
    }

    /// Sets whether the first request of the connection counts as begun.
    pub fn await_request(&mut self, awaits_request: bool) {
        self.0.awaits_request = awaits_request;
    }

    /// Returns when the wait in `stage` began, which begins or goes on at `now`. A record that came in parts and had no bytes of a
    /// request does not end a wait for the first byte of one.
    pub fn wait_since(&mut self, stage: (u64, Phase), now: Instant) -> Instant {
        if !matches!(stage.1, Phase::FirstByte | Phase::Idle) {
            return now;
        }
        let (_, since) = self.0.quiet.filter(|(quiet, _)| *quiet == stage).unwrap_or((stage, now));
        self.0.quiet = Some((stage, since));
        since
    }

    /// Whether half of the records are sealed that the keys may be used for. TLS 1.3 changes its keys, and TLS 1.2 has one set of them.
    pub fn has_worn_keys(&self) -> bool {
        match self.0.connection.negotiated_cipher_suite() {
            Some(SupportedCipherSuite::Tls12(suite)) => self.0.records >= suite.common.confidentiality_limit / 2,
            _ => false,
        }
    }

    /// Processes bytes that the client sent. Appends the bytes for the session to [`TlsBuffers::plain`], and those for the client to
    /// the output.
    pub fn receive(&mut self, bytes: &mut [u8], buffers: &mut TlsBuffers, memory: &MemoryBudget) -> Received {
        let was_handshaking = self.is_handshaking();
        let mut received = Received::default();
        let state = &mut *self.0;
        let result = if state.pending.is_empty() {
            let result = state.process(bytes, buffers, &mut received);
            result.map(|used| state.pending.extend_from_slice(bytes.get(used..).unwrap_or_default()))
        } else {
            let mut pending = std::mem::take(&mut state.pending);
            pending.extend_from_slice(bytes);
            let result = state.process(&mut pending, buffers, &mut received);
            result.map(|used| {
                if used < pending.len() {
                    pending.drain(..used);
                    pending.shrink_to_fit(); // only the rest is kept, and counted
                    state.pending = pending;
                }
            })
        };
        // Whatever follows the handshake, a session that is not resumed has no request.
        let resumed = if was_handshaking { state.check_resumed(buffers) } else { Ok(()) };
        let result = resumed.and(result);
        let kept = state.pending.capacity();
        // A handshake can be refused. A record of a request cannot, and is bounded like a head.
        let has_room = !was_handshaking || state.reservation.try_set(memory, kept);
        let failure = if let Err(error) = result {
            tracing::debug!(%error, "a TLS connection failed");
            Some(reason(&error))
        } else if !has_room {
            tracing::debug!("no memory for a TLS handshake");
            Some(HandshakeFailure::Memory)
        } else if kept > MAX_PENDING {
            tracing::debug!("a TLS message is too long");
            Some(HandshakeFailure::Protocol)
        } else {
            state.reservation.set(memory, kept);
            None
        };
        received.failed = failure.is_some();
        received.handshake_failure = failure.filter(|_| was_handshaking);
        if received.failed {
            (state.has_ended, state.awaits_request, state.pending) = (true, false, Vec::new());
            buffers.clear_plain(); // no answer would be sent
        }
        received.handshake_ended = was_handshaking && !received.failed && !self.is_handshaking();
        received
    }

    /// Appends `plain` to the output, encrypted. Returns false if that is not possible.
    pub fn seal(&mut self, plain: &[u8], buffers: &mut TlsBuffers, memory: &MemoryBudget) -> bool {
        let records = plain.len().div_ceil(RECORD);
        let room = plain.len().saturating_add(records.saturating_mul(RECORD_OVERHEAD));
        let state = &mut *self.0;
        state.records = state.records.saturating_add(records as u64);
        let is_sealed = state
            .write(&mut buffers.sealed, |traffic, sealed| append(sealed, room, |free| traffic.encrypt(plain, free)));
        if buffers.sealed.len() > OUTPUT_BOUND {
            // The session releases the memory of the answer.
            state.reservation.set(memory, buffers.sealed.len());
        }
        is_sealed
    }

    /// Notes the answers that end in what was sealed last.
    pub fn note_answers(&mut self, answers: u64) {
        self.0.answers = self.0.answers.saturating_add(answers);
    }

    /// Appends `close_notify` to the output, once.
    pub fn end(&mut self, buffers: &mut TlsBuffers) {
        let state = &mut *self.0;
        if !std::mem::replace(&mut state.has_ended, true) && !state.connection.is_handshaking() {
            state.write(&mut buffers.sealed, |traffic, sealed| {
                append(sealed, RECORD_OVERHEAD + 2, |free| traffic.queue_close_notify(free))
            });
        }
    }

    /// The bytes to write.
    pub fn output<'a>(&'a self, buffers: &'a TlsBuffers) -> &'a [u8] {
        if self.0.unsent.is_empty() { &buffers.sealed } else { self.0.unsent.get(self.0.sent..).unwrap_or_default() }
    }

    /// Moves the output into the session, for a driver that [writes](Self::kept) it later.
    pub fn keep(&mut self, buffers: &mut TlsBuffers, memory: &MemoryBudget) {
        let state = &mut *self.0;
        if !buffers.sealed.is_empty() {
            state.unsent.append(&mut buffers.sealed);
            state.reservation.set(memory, state.unsent.capacity().saturating_add(state.pending.capacity()));
        }
    }

    /// The output that was [kept](Self::keep), and that the kernel has not taken.
    pub fn kept(&self) -> &[u8] {
        self.0.unsent.get(self.0.sent..).unwrap_or_default()
    }

    /// The kernel has taken the first `count` bytes of the output; the session keeps the others. If none are left, returns the number
    /// of answers that were in the output.
    pub fn written(&mut self, count: usize, buffers: &mut TlsBuffers, memory: &MemoryBudget) -> Option<u64> {
        let state = &mut *self.0;
        if state.unsent.is_empty() {
            state.unsent.extend_from_slice(buffers.sealed.get(count..).unwrap_or_default());
            buffers.sealed.clear();
        } else {
            state.sent = state.sent.saturating_add(count);
        }
        let is_done = state.sent >= state.unsent.len();
        if is_done {
            (state.unsent, state.sent) = (Vec::new(), 0);
        }
        state.reservation.set(memory, state.unsent.capacity().saturating_add(state.pending.capacity()));
        is_done.then(|| std::mem::take(&mut state.answers))
    }

    /// The number of bytes of the output that were tried to be written, and that the kernel has not accepted.
    pub fn unsent(&self) -> usize {
        self.0.unsent.len().saturating_sub(self.0.sent)
    }

    /// Whether the output has the end of an answer.
    pub fn has_answers(&self) -> bool {
        self.0.answers > 0
    }

    /// The memory that is reserved for the connection, in bytes.
    pub fn reserved_bytes(&self) -> usize {
        self.0.reservation.bytes()
    }
}

impl TlsState {
    /// Processes the records in `incoming`. Returns the number of bytes that are not needed any more.
    fn process(
        &mut self,
        incoming: &mut [u8],
        buffers: &mut TlsBuffers,
        received: &mut Received,
    ) -> Result<usize, Error> {
        let mut used = 0_usize;
        loop {
            let rest = incoming.get_mut(used..).unwrap_or_default();
            let UnbufferedStatus { discard, state } = self.connection.process_tls_records(rest);
            let mut done = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        buffers.plain.extend_from_slice(record?.payload);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(data)) => encode(data, &mut buffers.sealed)?,
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => received.input_ended = true,
                Ok(_) => done = true,
                Err(error) => {
                    self.take_alerts(rest, &mut buffers.sealed);
                    return Err(error);
                }
            }
            used = used.saturating_add(discard);
            if done {
                return Ok(if received.input_ended { incoming.len() } else { used });
            }
        }
    }

    /// Checks that the certificates of a resumed session are still valid: a session may outlive them, and rustls verifies only those that
    /// are shown. Otherwise nothing is left to send, not even a ticket, and no request that came with the end of the handshake. rustls
    /// has no alert for this.
    fn check_resumed(&self, buffers: &mut TlsBuffers) -> Result<(), Error> {
        let is_resumed = self.connection.handshake_kind() == Some(HandshakeKind::Resumed);
        let shown = self.connection.peer_certificates().filter(|_| is_resumed && !self.connection.is_handshaking());
        let (Some(shown), Some(config)) = (shown, &self.config) else { return Ok(()) };
        config.verify_client(shown).inspect_err(|_| {
            buffers.clear();
            buffers.clear_plain();
        })
    }

    /// Appends what is to be sent after an error.
    fn take_alerts(&mut self, incoming: &mut [u8], sealed: &mut Vec<u8>) {
        // Without an alert, rustls would read the wrong bytes again.
        while self.connection.wants_write()
            && let Ok(ConnectionState::EncodeTlsData(data)) = self.connection.process_tls_records(incoming).state
        {
            if encode(data, sealed).is_err() {
                return;
            }
        }
    }

    /// Calls `write` once the connection can send. Returns false if it cannot, or if `write` returns false.
    fn write(
        &mut self,
        sealed: &mut Vec<u8>,
        mut write: impl FnMut(&mut WriteTraffic<'_, rustls::server::ServerConnectionData>, &mut Vec<u8>) -> bool,
    ) -> bool {
        loop {
            // No record in it is complete: these were processed when they came.
            let UnbufferedStatus { discard, state } = self.connection.process_tls_records(&mut self.pending);
            let result = match state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => Some(write(&mut traffic, sealed)),
                Ok(ConnectionState::EncodeTlsData(data)) => encode(data, sealed).err().map(|_| false),
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    None
                }
                _ => Some(false),
            };
            self.pending.drain(..discard.min(self.pending.len()));
            if let Some(result) = result {
                return result;
            }
        }
    }
}

/// Why a handshake fails with this error.
fn reason(error: &Error) -> HandshakeFailure {
    match error {
        Error::AlertReceived(_) => HandshakeFailure::ClientAlert,
        Error::InvalidCertificate(_) | Error::NoCertificatesPresented => HandshakeFailure::Certificate,
        _ => HandshakeFailure::Protocol,
    }
}

/// Appends a message of a handshake, or an alert.
fn encode<Data>(mut data: EncodeTlsData<'_, Data>, sealed: &mut Vec<u8>) -> Result<(), Error> {
    let (start, mut room) = (sealed.len(), RECORD_OVERHEAD);
    loop {
        sealed.resize(start.saturating_add(room), 0);
        match data.encode(sealed.get_mut(start..).unwrap_or_default()) {
            Ok(count) => {
                sealed.truncate(start.saturating_add(count));
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(size)) if size.required_size > room => room = size.required_size,
            Err(error) => {
                sealed.truncate(start);
                return Err(Error::General(error.to_string()));
            }
        }
    }
}

/// Appends what `write` writes. Calls it again if it needs more than `room`.
fn append(
    sealed: &mut Vec<u8>,
    mut room: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> bool {
    let start = sealed.len();
    loop {
        sealed.resize(start.saturating_add(room), 0);
        match write(sealed.get_mut(start..).unwrap_or_default()) {
            Ok(count) => {
                sealed.truncate(start.saturating_add(count));
                return true;
            }
            Err(EncryptError::InsufficientSize(size)) if size.required_size > room => room = size.required_size,
            Err(_) => {
                sealed.truncate(start);
                return false;
            }
        }
    }
}

#[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
mod tests {
    use std::io::Write as _;

    use polyserve_conformance::tls::TestAuthority;
    use polyserve_core::{Echo, ServerConfig, Service as _};
    use rand::{RngExt as _, SeedableRng as _};
    use rustls::ClientConnection;

    use super::*;

    /// The bytes that the client has to send.
    fn sent(client: &mut ClientConnection) -> Vec<u8> {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).expect("a vector takes all");
        }
        bytes
    }

    /// A client and a server after their handshake.
    fn connected(
        server: &ServerState,
        authority: &TestAuthority,
        buffers: &mut TlsBuffers,
    ) -> (ClientConnection, TlsSession) {
        let name = "localhost".try_into().expect("it is a name");
        let mut client = ClientConnection::new(authority.client(rustls::ALL_VERSIONS, None), name)
            .expect("the configuration is valid");
        client.set_buffer_limit(None);
        let mut session = TlsSession::new(server, false).expect("the server has TLS");
        while client.is_handshaking() || session.is_handshaking() {
            assert!(!session.receive(&mut sent(&mut client), buffers, &server.http.memory).failed);
            client.read_tls(&mut buffers.sealed.as_slice()).expect("a slice can be read");
            client.process_new_packets().expect("the server speaks TLS");
            buffers.clear();
        }
        (client, session)
    }

    /// Regression test: the room of the kept bytes was compared with the bound, and it is up to twice their number. An upload was
    /// abandoned if its bytes came in certain pieces.
    #[test]
    fn an_upload_comes_through_in_any_pieces() {
        let authority = TestAuthority::new();
        let config = ServerConfig::default().tls(authority.issue().server());
        let server = ServerState::new(Echo.into_shared(), &config);
        let upload = vec![b'x'; 300_000];
        for seed in 0..100 {
            let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
            let mut buffers = TlsBuffers::default();
            let (mut client, mut session) = connected(&server, &authority, &mut buffers);
            client.writer().write_all(&upload).expect("there is no limit");
            let mut sealed = sent(&mut client);
            let mut rest = sealed.as_mut_slice();
            while !rest.is_empty() {
                let length = random.random_range(1..=32 * 1024).min(rest.len());
                let (piece, others) = rest.split_at_mut(length);
                assert!(!session.receive(piece, &mut buffers, &server.http.memory).failed, "seed {seed}");
                rest = others;
            }
            assert!(buffers.plain.ends_with(&upload), "seed {seed}");
        }
    }

    /// Regression test: rustls read the wrong bytes a second time, which panics in a debug build, and the client got no alert.
    #[test]
    fn garbage_gets_an_alert() {
        let config = ServerConfig::default().tls(TestAuthority::new().issue().server());
        let server = ServerState::new(Echo.into_shared(), &config);
        let (mut buffers, mut session) =
            (TlsBuffers::default(), TlsSession::new(&server, false).expect("the server has TLS"));
        assert!(session.receive(&mut [0; 64], &mut buffers, &server.http.memory).failed);
        assert_eq!((buffers.sealed.len(), buffers.sealed[0], buffers.sealed[5]), (7, 21, 2), "one fatal alert");
    }
}
