//! [`ListenOn`]: the address or the bound listener of a server.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener, ToSocketAddrs};

/// The address or the bound listener of a server. [`IntoListenOn`] lists the types that convert to it.
#[derive(Debug)]
pub enum ListenOn {
    /// An address, which the server binds. Port 0 picks a free port.
    Addr(SocketAddr),
    /// A bound listener, for example from socket activation. The server sets its backlog, `TCP_NODELAY` and non-blocking
    /// mode, and deferred accept if that is configured. `TCP_NODELAY` is not set on connections that already wait in the
    /// listener's queue.
    Listener(TcpListener),
}

impl From<SocketAddr> for ListenOn {
    fn from(addr: SocketAddr) -> Self {
        Self::Addr(addr)
    }
}

impl From<TcpListener> for ListenOn {
    fn from(listener: TcpListener) -> Self {
        Self::Listener(listener)
    }
}

/// A type that names the address or the bound listener of a server.
///
/// ```
/// use std::net::{Ipv4Addr, SocketAddr, TcpListener};
/// use polyserve_core::{IntoListenOn, ListenOn};
///
/// # fn main() -> std::io::Result<()> {
/// let addr = SocketAddr::from(([127, 0, 0, 1], 8001));
/// for on in [
///     addr.into_listen_on()?,
///     "127.0.0.1:8001".into_listen_on()?, // or a host name
///     ([127, 0, 0, 1], 8001).into_listen_on()?,
///     (Ipv4Addr::LOCALHOST, 8001).into_listen_on()?,
/// ] {
///     assert!(matches!(on, ListenOn::Addr(named) if named == addr));
/// }
/// let bound = TcpListener::bind("127.0.0.1:0")?;
/// assert!(matches!(bound.into_listen_on()?, ListenOn::Listener(_)));
/// # Ok(())
/// # }
/// ```
pub trait IntoListenOn {
    /// Returns the address or the listener. A name is resolved, which may block.
    ///
    /// # Errors
    ///
    /// Returns an error if a text is neither an address nor a name that resolves.
    fn into_listen_on(self) -> io::Result<ListenOn>;
}

impl IntoListenOn for ListenOn {
    fn into_listen_on(self) -> io::Result<ListenOn> {
        Ok(self)
    }
}

impl IntoListenOn for &str {
    fn into_listen_on(self) -> io::Result<ListenOn> {
        resolve_address(self).map(ListenOn::Addr)
    }
}

impl IntoListenOn for String {
    fn into_listen_on(self) -> io::Result<ListenOn> {
        self.as_str().into_listen_on()
    }
}

impl<I: Into<IpAddr>> IntoListenOn for (I, u16) {
    fn into_listen_on(self) -> io::Result<ListenOn> {
        Ok(ListenOn::Addr(self.into()))
    }
}

impl IntoListenOn for TcpListener {
    fn into_listen_on(self) -> io::Result<ListenOn> {
        Ok(ListenOn::Listener(self))
    }
}

macro_rules! addresses {
    ($($addr:ty),*) => {$(
        impl IntoListenOn for $addr {
            fn into_listen_on(self) -> io::Result<ListenOn> {
                Ok(ListenOn::Addr(self.into()))
            }
        }
    )*};
}

addresses!(SocketAddr, SocketAddrV4, SocketAddrV6);

/// Returns the address of `text`, which is `HOST:PORT`. A host name is resolved; its first IPv4 address is preferred.
///
/// # Errors
///
/// Returns an error that quotes `text` if it is neither an address nor a name that resolves.
///
/// ```
/// assert_eq!(polyserve_core::resolve_address("127.0.0.1:8001")?.port(), 8001);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn resolve_address(text: &str) -> io::Result<SocketAddr> {
    resolve_addresses(text).map(|addrs| addrs[0])
}

/// Returns all addresses of `text`, at least one, for a client that tries one after the other. IPv4 addresses come first. A server
/// on `localhost` may listen on one of `127.0.0.1` and `[::1]` only.
///
/// # Errors
///
/// Returns the errors of [`resolve_address`].
pub fn resolve_addresses(text: &str) -> io::Result<Vec<SocketAddr>> {
    let mut addrs: Vec<SocketAddr> = text.to_socket_addrs().map_err(|error| resolve_error(text, &error))?.collect();
    addrs.sort_by_key(SocketAddr::is_ipv6); // stable: the order of the resolver stays otherwise
    addrs.dedup();
    if addrs.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("{text:?} has no address")));
    }
    Ok(addrs)
}

fn resolve_error(text: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{text:?} is not an address like 127.0.0.1:8001: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_resolved_and_nonsense_is_named() {
        assert_eq!(resolve_address("localhost:80").unwrap().port(), 80);
        assert_eq!(resolve_addresses("localhost:80").unwrap()[0], resolve_address("localhost:80").unwrap());
        assert_eq!(resolve_addresses("[::1]:80").unwrap(), ["[::1]:80".parse().unwrap()]);
        assert!(resolve_address("nonsense").unwrap_err().to_string().contains("nonsense"));
    }
}
