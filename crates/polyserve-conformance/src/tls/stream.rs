//! The client's side of a TLS connection.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use polyserve_core::sync::{Mutex, lock};
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConfig, ClientConnection, ProtocolVersion};

use crate::client::{imf_fixdate, is_timeout, left, read_some, write_some};

/// A connection over TLS. Clones share it: one may read while another writes.
///
/// No call lasts longer than the timeout that is set.
#[derive(Clone, Debug)]
pub struct TlsStream {
    socket: Arc<TcpStream>,
    session: Arc<Mutex<ClientSession>>,
    /// Encrypted bytes that the kernel has not taken. Locked before the session.
    unsent: Arc<Mutex<Vec<u8>>>,
}

#[derive(Debug)]
struct ClientSession {
    tls: ClientConnection,
    /// Received bytes.
    plain: Vec<u8>,
    /// The server has rejected the handshake. Nothing is sent or received any more.
    is_rejected: bool,
}

impl TlsStream {
    /// The TLS of a socket on which nothing was sent, to a server at 127.0.0.1.
    ///
    /// # Panics
    ///
    /// Panics if `config` has no cipher.
    pub fn new(socket: TcpStream, config: Arc<ClientConfig>) -> Self {
        Self::to(socket, config, super::loopback())
    }

    /// [`new`](Self::new), to a server with this name.
    ///
    /// # Panics
    ///
    /// Panics if `config` has no cipher.
    pub fn to(socket: TcpStream, config: Arc<ClientConfig>, name: ServerName<'static>) -> Self {
        let tls = ClientConnection::new(config, name).expect("the configuration has ciphers");
        let session = Arc::new(Mutex::new(ClientSession { tls, plain: Vec::new(), is_rejected: false }));
        Self { socket: Arc::new(socket), session, unsent: Arc::default() }
    }

    /// After [`is_rejection`]: from now on, what is read is a 503 in place of the alert, so that properties of rejections need not know of
    /// TLS. What is sent is dropped.
    pub(crate) fn reject(&self) {
        let date = imf_fixdate(SystemTime::now());
        let fields =
            "Retry-After: 1\r\nContent-Type: application/problem+json\r\nContent-Length: 2\r\nConnection: close";
        let answer = format!("HTTP/1.1 503 Service Unavailable\r\n{fields}\r\nDate: {date}\r\n\r\n{{}}");
        let mut session = lock(&self.session);
        (session.plain, session.is_rejected) = (answer.into_bytes(), true);
    }

    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Ends the handshake, and waits until the server has ended it too.
    ///
    /// # Errors
    ///
    /// Returns an error if it fails, or has not ended at `deadline`.
    pub fn shake_hands(&self, deadline: Instant) -> io::Result<()> {
        self.end_handshake(deadline)?;
        self.await_server(deadline).map(drop)
    }

    /// Ends the client's part of the handshake.
    pub(super) fn end_handshake(&self, deadline: Instant) -> io::Result<()> {
        self.flush(deadline)?;
        while lock(&self.session).tls.is_handshaking() {
            self.receive(deadline)?;
            self.flush(deadline)?;
        }
        self.flush(deadline)
    }

    /// Ends the client's part of the handshake. Its last bytes, what was [queued](Self::queue) before, and `behind` are one write.
    pub(crate) fn end_handshake_with(&self, behind: &[u8], deadline: Instant) -> io::Result<()> {
        self.flush(deadline)?;
        while lock(&self.session).tls.is_handshaking() {
            self.receive(deadline)?;
            let mut output = self.take_output();
            if !lock(&self.session).tls.is_handshaking() {
                output.extend_from_slice(behind);
            }
            (&*self.socket).write_all(&output)?;
        }
        Ok(())
    }

    /// Waits until the server has ended its part. With TLS 1.3 the client ends first, and the server sends tickets, or an alert, when it
    /// has read the client's end. Returns false if nothing came until `deadline`.
    pub(super) fn await_server(&self, deadline: Instant) -> io::Result<bool> {
        if lock(&self.session).tls.protocol_version() != Some(ProtocolVersion::TLSv1_3) {
            return Ok(true);
        }
        self.socket.set_read_timeout(Some(left(deadline)?))?;
        // The next read returns another error too.
        Ok(!self.socket.peek(&mut [0]).is_err_and(|error| is_timeout(&error)))
    }

    /// Whether the handshake resumed an earlier session, and the protocol that was negotiated.
    pub fn negotiated(&self) -> (bool, Option<Vec<u8>>) {
        let session = lock(&self.session);
        let resumed = session.tls.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
        (resumed, session.tls.alpn_protocol().map(<[u8]>::to_vec))
    }

    /// The bytes that the session is about to send, which are then not sent.
    pub fn take_output(&self) -> Vec<u8> {
        let mut output = Vec::new();
        while lock(&self.session).tls.write_tls(&mut output).is_ok_and(|count| count > 0) {}
        output
    }

    /// Changes the keys of what is sent from now on, and asks the server to do the same. Only TLS 1.3 can.
    pub fn change_keys(&self) {
        let _ = lock(&self.session).tls.refresh_traffic_keys(); // an error: it is not TLS 1.3
    }

    /// Encrypts `bytes` for [`take_output`](Self::take_output).
    pub fn queue(&self, bytes: &[u8]) {
        let _ = lock(&self.session).tls.writer().write(bytes); // it writes to memory
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    ///
    /// Returns an error if the server has closed, or does not take them before `deadline`.
    pub fn send(&self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() && !lock(&self.session).is_rejected {
            let count = lock(&self.session).tls.writer().write(bytes)?;
            bytes = &bytes[count..];
            self.flush(deadline)?;
        }
        Ok(())
    }

    /// Sends what the session has to send.
    fn flush(&self, deadline: Instant) -> io::Result<()> {
        let mut unsent = lock(&self.unsent);
        {
            let mut session = lock(&self.session);
            if session.is_rejected {
                return Ok(());
            }
            while session.tls.wants_write() {
                session.tls.write_tls(&mut *unsent)?;
            }
        }
        while !unsent.is_empty() {
            let count = write_some(&self.socket, &unsent, deadline)?;
            unsent.drain(..count);
        }
        Ok(())
    }

    /// Reads from the socket once. Returns false at its end.
    fn receive(&self, deadline: Instant) -> io::Result<bool> {
        let mut buffer = [0; 16 * 1024];
        let count = read_some(&self.socket, &mut buffer, deadline)?;
        let is_handshaking = self.process(&buffer[..count])?;
        if count == 0 && is_handshaking {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(count > 0)
    }

    /// Passes what was read to the session. No bytes are the end.
    fn process(&self, mut bytes: &[u8]) -> io::Result<bool> {
        let ClientSession { tls, plain, .. } = &mut *lock(&self.session);
        loop {
            tls.read_tls(&mut bytes)?;
            tls.process_new_packets().map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            // Ends with an error unless the server has ended the connection.
            let _ = tls.reader().read_to_end(plain);
            if bytes.is_empty() {
                return Ok(tls.is_handshaking());
            }
        }
    }

    /// Waits for bytes, or for the end, and keeps them. Returns their number, 0 at the end.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn peek(&self, deadline: Instant) -> io::Result<usize> {
        loop {
            if let Some(count) = self.received() {
                return Ok(count);
            }
            if !self.receive(deadline)? && !lock(&self.session).has_ended() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// The number of bytes that have been received, 0 at the end. `None` if neither has come.
    fn received(&self) -> Option<usize> {
        let mut session = lock(&self.session);
        let has_some = !session.plain.is_empty() || session.has_ended();
        has_some.then_some(session.plain.len())
    }

    /// Reads some bytes. 0 is the end that the server has announced by `close_notify`.
    ///
    /// # Errors
    ///
    /// Returns an error if nothing comes before `deadline`, or if the connection ends without an announcement.
    pub fn read(&self, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
        let count = self.peek(deadline)?.min(buffer.len());
        let mut session = lock(&self.session);
        buffer[..count].copy_from_slice(&session.plain[..count]);
        session.plain.drain(..count);
        Ok(count)
    }

    /// The number of bytes that can be read now, 0 at the end.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection is lost, or of the kind `WouldBlock` if nothing came.
    pub fn peek_now(&self) -> io::Result<usize> {
        loop {
            if let Some(count) = self.received() {
                return Ok(count);
            }
            self.socket.set_nonblocking(true)?;
            let mut buffer = [0; 16 * 1024];
            let read = (&*self.socket).read(&mut buffer);
            self.socket.set_nonblocking(false)?;
            match read? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => self.process(&buffer[..count])?,
            };
        }
    }

    /// Announces the end, and closes the sending side.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection has ended.
    pub fn half_close(&self, deadline: Instant) -> io::Result<()> {
        lock(&self.session).tls.send_close_notify();
        self.flush(deadline)?;
        self.socket.shutdown(Shutdown::Write)
    }
}

impl ClientSession {
    /// Whether the server has announced the end, or has rejected the handshake.
    fn has_ended(&mut self) -> bool {
        self.is_rejected || matches!(self.tls.reader().read(&mut [0]), Ok(0))
    }
}

/// Whether a handshake has failed because the server is full.
pub(crate) fn is_rejection(error: &io::Error) -> bool {
    let alert = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(alert, Some(rustls::Error::AlertReceived(AlertDescription::InternalError)))
}
