//! Sockets: listeners, what servers do with connections, and a wait for them.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use polyserve_core::{ListenOn, ServerConfig};
use rustix::event::{PollFd, Timespec};
use rustix::net::RecvFlags;
use socket2::{Domain, Protocol, Socket, Type};

use crate::discard;

/// What [`wait`] waits for.
pub use rustix::event::PollFlags;
/// The flags of [`send_flags`].
pub use rustix::net::SendFlags;

/// The max length of an output that leaves in one flight with the end of its connection. A longer output may wait in the kernel for the
/// client, and a reset drops what waits. Source: the upper bound of TCP's initial window, RFC 6928.
pub const FIRST_FLIGHT: usize = 14_600;

/// Returns a listener within the limits of `config`: binds an address, or prepares a listener that is bound. Connections
/// inherit `TCP_NODELAY` on Linux; elsewhere [`accept`] and [`prepare`] set it.
///
/// # Errors
///
/// Returns an error if the address is in use or not local, or if `config` sets deferred accept and the system has none.
///
/// ```
/// // A server that polls: a listener that does not block, a connection, and its bytes.
/// use polyserve_core::{IntoListenOn, ServerConfig};
/// use polyserve_serving::net;
/// use std::io::{ErrorKind, Read, Write};
/// use std::net::{Shutdown, TcpStream};
///
/// let listener = net::listen("127.0.0.1:0".into_listen_on()?, &ServerConfig::default())?;
/// listener.set_nonblocking(true)?;
/// let mut client = TcpStream::connect(listener.local_addr()?)?;
/// let connection = loop {
///     match net::accept(&listener) {
///         Ok(connection) => break connection,
///         Err(error) if error.kind() == ErrorKind::WouldBlock || net::is_connection_error(&error) => {}
///         Err(error) => return Err(error),
///     }
/// };
/// assert_eq!(net::peer(&connection), Some(client.local_addr()?));
///
/// let mut buffer = [0; 8];
/// assert_eq!(net::receive(&connection, &mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
/// client.write_all(b"ping")?;
/// net::set_receive_low_water(&connection, 1)?;
/// let count = loop {
///     match net::receive(&connection, &mut buffer) {
///         Err(error) if error.kind() == ErrorKind::WouldBlock => {}
///         received => break received?,
///     }
/// };
/// assert_eq!(net::send(&connection, &buffer[..count], true)?, count);
/// net::shutdown(&connection, Shutdown::Write)?;
/// let mut answer = String::new();
/// client.read_to_string(&mut answer)?;
/// assert_eq!(answer, &"ping"[..count]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn listen(on: ListenOn, config: &ServerConfig) -> io::Result<TcpListener> {
    let socket = match on {
        ListenOn::Addr(addr) => {
            let socket = new_socket(addr)?;
            socket.bind(&addr.into())?;
            socket
        }
        ListenOn::Listener(listener) => {
            let socket = Socket::from(listener);
            socket.set_tcp_nodelay(true)?;
            socket
        }
    };
    start_listening(socket, config)
}

/// Binds `count` listeners to one address, each with a queue of its own. The kernel spreads connections over them. Port 0
/// picks one free port for all. If `on` is a bound listener, all `count` results are that listener, with one queue.
///
/// # Errors
///
/// Returns the errors of [`listen`]. Returns an error if another process shares the address in this way already, because
/// the first listener is bound exclusively.
///
/// ```
/// use polyserve_core::{IntoListenOn, ServerConfig};
/// use polyserve_serving::net;
/// let listeners = net::listen_together("127.0.0.1:0".into_listen_on()?, 2, &ServerConfig::default())?;
/// assert_eq!(listeners[0].local_addr()?, listeners[1].local_addr()?);
/// # Ok::<(), std::io::Error>(())
/// ```
#[cfg(unix)]
pub fn listen_together(on: ListenOn, count: usize, config: &ServerConfig) -> io::Result<Vec<TcpListener>> {
    let addr = match on {
        ListenOn::Addr(addr) => addr,
        ListenOn::Listener(_) => {
            let listener = listen(on, config)?;
            let mut listeners = (1..count).map(|_| listener.try_clone()).collect::<io::Result<Vec<_>>>()?;
            listeners.push(listener);
            return Ok(listeners);
        }
    };
    let first = new_socket(addr)?;
    first.bind(&addr.into())?;
    first.set_reuse_port(true)?; // from now on
    let first = start_listening(first, config)?;
    let addr = first.local_addr()?;
    let mut listeners = vec![first];
    for _ in 1..count {
        let other = new_socket(addr)?;
        other.set_reuse_port(true)?;
        other.bind(&addr.into())?;
        listeners.push(start_listening(other, config)?);
    }
    Ok(listeners)
}

fn new_socket(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket)
}

fn start_listening(socket: Socket, config: &ServerConfig) -> io::Result<TcpListener> {
    socket.listen(i32::try_from(config.backlog).unwrap_or(i32::MAX))?;
    let listener = TcpListener::from(socket);
    if config.defer_accept {
        polyserve_sys::defer_accept(&listener, config.first_byte_timeout)?;
    }
    Ok(listener)
}

/// Sets the options that an accepted connection did not inherit from its listener.
///
/// # Errors
///
/// Returns an error if the client is gone.
pub fn prepare(stream: &std::net::TcpStream) -> io::Result<()> {
    if cfg!(target_os = "linux") { Ok(()) } else { stream.set_nodelay(true) }
}

/// Accepts a connection from a listener that does not block. The connection is [prepared](prepare), and does not block either.
///
/// # Errors
///
/// Returns the error of `accept(2)`; [`io::ErrorKind::WouldBlock`] if no connection waits.
pub fn accept(listener: impl AsFd) -> io::Result<TcpStream> {
    Ok(accept_from(listener)?.0)
}

/// Like [`accept`], with the address of the connection's other end, which costs less than [`peer`].
///
/// # Errors
///
/// Those of [`accept`].
pub fn accept_from(listener: impl AsFd) -> io::Result<(TcpStream, Option<SocketAddr>)> {
    #[cfg(target_os = "linux")]
    {
        use rustix::net::SocketFlags;
        let (stream, peer) = rustix::net::acceptfrom_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        Ok((stream.into(), peer.and_then(|peer| peer.try_into().ok())))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let (stream, peer) = rustix::net::acceptfrom(listener)?;
        let stream = TcpStream::from(stream);
        match stream.set_nonblocking(true).and_then(|()| prepare(&stream)) {
            Ok(()) => Ok((stream, peer.and_then(|peer| peer.try_into().ok()))),
            Err(_) => Err(io::ErrorKind::ConnectionAborted.into()), // the client is gone
        }
    }
}

/// Returns the address of a connection's other end, or `None` if the client has left.
///
/// # Cost
///
/// A system call.
pub fn peer(stream: impl AsFd) -> Option<SocketAddr> {
    socket2::SockRef::from(&stream).peer_addr().ok()?.as_socket()
}

/// Receives what is there, without waiting; 0 bytes at the end.
///
/// # Errors
///
/// Returns the error of `recv(2)`; [`io::ErrorKind::WouldBlock`] if nothing is there.
pub fn receive(stream: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (count, _) = rustix::net::recv(stream, buffer, RecvFlags::DONTWAIT)?;
    Ok(count)
}

/// Whether bytes have arrived that were not received yet. An end of the input or an error is no such byte.
pub fn has_input(stream: impl AsFd) -> bool {
    rustix::net::recv(stream, &mut [0], RecvFlags::DONTWAIT | RecvFlags::PEEK).is_ok_and(|(count, _)| count > 0)
}

/// Sets the min number of bytes at which pollers report `stream` as readable. The end of the input and errors are always
/// reported. If enough bytes are there already, a poller that watches the socket reports it. The default is 1.
///
/// Does nothing on systems other than Linux: there the socket is readable earlier than necessary.
///
/// # Errors
///
/// Returns the error of `setsockopt(2)`.
pub fn set_receive_low_water(stream: impl AsFd, bytes: usize) -> io::Result<()> {
    if cfg!(target_os = "linux") { polyserve_sys::set_receive_low_water(stream, bytes) } else { Ok(()) }
}

/// Closes one direction of a connection, or both, for all handles of the socket.
///
/// # Errors
///
/// Returns an error if the client is gone.
pub fn shutdown(stream: impl AsFd, how: Shutdown) -> io::Result<()> {
    socket2::SockRef::from(&stream).shutdown(how)
}

/// Closes the writing side of a connection. Its client reads the end of the output.
///
/// # Errors
///
/// Returns an error if the client is gone.
pub fn end_output(stream: impl AsFd) -> io::Result<()> {
    shutdown(stream, Shutdown::Write)
}

/// Ends a connection that is idle, or that cannot linger, and that the caller closes next: closes the writing side, and discards what
/// has arrived. A request may be on its way: its client reads the end, not a reset, and may repeat the request.
///
/// # Errors
///
/// Returns an error if the client is gone.
pub fn leave(stream: impl AsFd, buffer: &mut [u8]) -> io::Result<()> {
    end_output(&stream)?;
    discard(stream, buffer);
    Ok(())
}

/// Sends what the kernel takes, without waiting. `last`: as in [`send_flags`].
///
/// # Errors
///
/// Returns the error of `send(2)`; [`io::ErrorKind::WouldBlock`] if the kernel takes nothing. A client that is gone raises
/// no signal.
pub fn send(stream: impl AsFd, bytes: &[u8], last: bool) -> io::Result<usize> {
    Ok(rustix::net::send(stream, bytes, send_flags(last) | SendFlags::DONTWAIT)?)
}

/// Returns the flags to send with. `last`: only the close of the connection follows.
///
/// On Linux, the last bytes are sent with `MSG_MORE`: they wait in the kernel and leave in one segment with the close, or with
/// the shutdown of the writing side. That saves a segment for each connection, which is a large part of the server's CPU
/// time on short connections, and it saves the client a wake-up. The kernel delivers all bytes that it has accepted, whether
/// more follow or not.
pub fn send_flags(last: bool) -> SendFlags {
    #[cfg(target_os = "linux")]
    const MORE: SendFlags = SendFlags::MORE;
    #[cfg(not(target_os = "linux"))]
    const MORE: SendFlags = SendFlags::empty();
    if last { SendFlags::NOSIGNAL | MORE } else { SendFlags::NOSIGNAL }
}

/// Returns the number of connections that wait to be accepted.
///
/// # Errors
///
/// Returns an error if the system does not tell it.
pub(crate) fn waiting_connections(listener: impl AsFd) -> io::Result<u32> {
    polyserve_sys::waiting_connections(listener)
}

/// Whether an error of `accept` concerns one connection only, so that the next can be accepted at once.
pub fn is_connection_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// Waits until one of `sockets` is ready for its flags, or `deadline` has passed. Stores in `ready`, for each socket, whether
/// it is ready. If a signal interrupts the wait, none is.
///
/// # Cost
///
/// Two allocations, and a check of each socket by `poll(2)`.
///
/// # Errors
///
/// Returns the error of `poll(2)` if the system has no memory for it.
pub fn wait<'fd>(
    sockets: impl IntoIterator<Item = (BorrowedFd<'fd>, PollFlags)>,
    deadline: Option<Instant>,
    ready: &mut Vec<bool>,
) -> io::Result<()> {
    let mut polled: Vec<_> = sockets.into_iter().map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)).collect();
    match rustix::event::poll(&mut polled, deadline.and_then(timeout).as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    ready.clear();
    ready.extend(polled.iter().map(|fd| !fd.revents().is_empty()));
    Ok(())
}

/// Returns the time until `deadline`, or `None` if it is too long for the system. A timeout of zero does not wait.
fn timeout(deadline: Instant) -> Option<Timespec> {
    deadline.saturating_duration_since(Instant::now()).try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two runs that share a port by accident would each get half of all connections.
    #[test]
    fn listeners_together_keep_others_out() {
        let config = ServerConfig::default();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let together = listen_together(any.into(), 3, &config).unwrap();
        let addr = together[0].local_addr().unwrap();
        assert!(together.iter().all(|listener| listener.local_addr().unwrap() == addr));
        for error in [listen(addr.into(), &config).map(drop), listen_together(addr.into(), 2, &config).map(drop)] {
            assert_eq!(error.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        }
        drop(together);
        assert_eq!(listen_together(addr.into(), 2, &config).unwrap().len(), 2);
    }

    #[test]
    fn the_backlog_and_the_options_are_set() {
        let config = ServerConfig::default().defer_accept(cfg!(target_os = "linux"));
        let bound = TcpListener::bind("127.0.0.1:0").unwrap();
        for on in [SocketAddr::from(([127, 0, 0, 1], 0)).into(), ListenOn::Listener(bound)] {
            let listener = listen(on, &config).unwrap();
            listener.set_nonblocking(true).unwrap();
            let silent = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            assert_eq!(accept(&listener).is_err(), config.defer_accept, "a silent client is accepted later");
            listener.set_nonblocking(false).unwrap();
            let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            std::io::Write::write_all(&mut &client, b"x").unwrap();
            let (stream, peer) = accept_from(&listener).unwrap();
            assert_eq!(peer, Some(client.local_addr().unwrap()));
            assert!(stream.nodelay().unwrap());
            drop(silent);
        }
    }

    /// Regression test: a poll with a deadline that has passed waited for a millisecond. This happened for each answer of the
    /// sequential server.
    #[test]
    fn a_deadline_that_has_passed_is_a_timeout_of_zero() {
        assert_eq!(timeout(Instant::now()), Some(Timespec { tv_sec: 0, tv_nsec: 0 }));
    }
}
