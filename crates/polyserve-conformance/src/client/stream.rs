//! The connection of a [`Client`](super::Client): a socket, or TLS over one.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

#[cfg(feature = "tls")]
use crate::tls::{self, TlsStream};

/// A connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Tls(TlsStream),
}

impl Stream {
    /// Connects. If the server speaks TLS, the handshake ends before this returns; if it fails, the next call finds that out.
    pub(crate) fn connect(source: Option<IpAddr>, addr: SocketAddr, max_wait: Duration) -> io::Result<Self> {
        let socket = match source {
            None => TcpStream::connect_timeout(&addr, max_wait)?,
            Some(source) => connect_from(source, addr)?,
        };
        socket.set_nodelay(true)?;
        #[cfg(feature = "tls")]
        if let Some(trust) = tls::trust_of(addr) {
            let stream = trust.stream(socket);
            let result = trust.shake_hands(&stream, Instant::now() + max_wait);
            if result.is_err_and(|error| tls::is_rejection(&error)) {
                stream.reject();
            }
            return Ok(Self::Tls(stream));
        }
        Ok(Self::Plain(socket))
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.socket(),
        }
    }

    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Plain(socket) => Self::Plain(socket.try_clone()?),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Self::Tls(stream.clone()),
        })
    }

    /// Reads some bytes, waiting until `deadline` at the latest.
    pub(crate) fn read(&self, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => read_some(socket, buffer, deadline),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.read(buffer, deadline),
        }
    }

    /// Sends all of `bytes`, waiting until `deadline` at the latest.
    pub(crate) fn send(&self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        let socket = match self {
            Self::Plain(socket) => socket,
            #[cfg(feature = "tls")]
            Self::Tls(stream) => return stream.send(bytes, deadline),
        };
        while !bytes.is_empty() {
            bytes = &bytes[write_some(socket, bytes, deadline)?..];
        }
        Ok(())
    }

    pub(super) fn half_close(&self, _deadline: Instant) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.shutdown(Shutdown::Write),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.half_close(_deadline),
        }
    }

    /// The number of bytes that can be read now, 0 at the end. Does not wait: an error of the kind `WouldBlock` if nothing came.
    pub(super) fn peek_now(&self) -> io::Result<usize> {
        let socket = match self {
            Self::Plain(socket) => socket,
            #[cfg(feature = "tls")]
            Self::Tls(stream) => return stream.peek_now(),
        };
        let peeked = socket.set_nonblocking(true).and_then(|()| socket.peek(&mut [0]));
        let _ = socket.set_nonblocking(false);
        peeked
    }

    /// Waits for bytes, and leaves them in the socket, or in the session.
    pub(super) fn peek(&self, deadline: Instant) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => {
                socket.set_read_timeout(Some(left(deadline)?))?;
                socket.peek(&mut [0])
            }
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.peek(deadline),
        }
    }
}

/// Connects from an address of this machine. The system limits the time.
fn connect_from(source: IpAddr, addr: SocketAddr) -> io::Result<TcpStream> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddr::new(source, 0))?;
    connect(&socket, &addr)?;
    Ok(socket.into())
}

/// Reads some bytes of a socket, waiting until `deadline` at the latest.
pub(crate) fn read_some(mut socket: &TcpStream, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
    loop {
        socket.set_read_timeout(Some(left(deadline)?))?;
        match socket.read(buffer) {
            Err(error) if is_timeout(&error) => {}
            result => return result,
        }
    }
}

/// Writes some bytes to a socket, waiting until `deadline` at the latest.
pub(crate) fn write_some(mut socket: &TcpStream, bytes: &[u8], deadline: Instant) -> io::Result<usize> {
    loop {
        socket.set_write_timeout(Some(left(deadline)?))?;
        match socket.write(bytes) {
            Err(error) if is_timeout(&error) => {}
            result => return result,
        }
    }
}

/// The time until `deadline`. A timeout below a microsecond would mean no timeout.
pub(crate) fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left.max(Duration::from_millis(1))) }
}

pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
