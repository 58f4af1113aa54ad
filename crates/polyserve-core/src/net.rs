//! Sockets, as every server here wants them.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};

use socket2::{Domain, Protocol, Socket, Type};

use crate::config::ServerConfig;

/// Binds and listens as `config` says. Connections inherit `TCP_NODELAY` on Linux; elsewhere
/// [`prepare`] sets it.
///
/// # Errors
///
/// Where the address is taken or not ours, or deferred accept is asked for where the system has none.
pub fn listen(addr: SocketAddr, config: &ServerConfig) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&addr.into())?;
    socket.listen(i32::try_from(config.backlog).unwrap_or(i32::MAX))?;
    let listener = TcpListener::from(socket);
    if config.defer_accept {
        polyserve_sys::defer_accept(&listener, config.idle_timeout)?;
    }
    Ok(listener)
}

/// Sets what an accepted connection did not inherit.
///
/// # Errors
///
/// Where the connection is gone already.
pub fn prepare(stream: &std::net::TcpStream) -> io::Result<()> {
    if cfg!(target_os = "linux") { Ok(()) } else { stream.set_nodelay(true) }
}

/// The address that `text`, `HOST:PORT`, names; a host name is resolved, its first IPv4 address preferred.
///
/// # Errors
///
/// Where it is no address and no name that resolves.
pub fn resolve(text: &str) -> io::Result<SocketAddr> {
    let found: Vec<SocketAddr> = text.to_socket_addrs().map_err(|error| named(text, &error))?.collect();
    let preferred = found.iter().find(|addr| addr.is_ipv4()).or(found.first());
    preferred.copied().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{text:?} has no address")))
}

fn named(text: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{text:?} is not an address like 127.0.0.1:8001: {error}"))
}

/// Whether an error of `accept` concerns that one connection only, so that the next may be accepted at once.
pub fn is_connection_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_resolved_and_nonsense_is_named() {
        assert_eq!(resolve("localhost:80").unwrap().port(), 80);
        assert!(resolve("nonsense").unwrap_err().to_string().contains("nonsense"));
    }

    #[test]
    fn the_backlog_and_the_options_are_set() {
        let config = ServerConfig::default().with(|c| c.defer_accept = cfg!(target_os = "linux"));
        let listener = listen("127.0.0.1:0".parse().unwrap(), &config).unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        std::io::Write::write_all(&mut &client, b"x").unwrap();
        let (stream, _) = listener.accept().unwrap();
        prepare(&stream).unwrap();
        assert!(stream.nodelay().unwrap());
    }
}
