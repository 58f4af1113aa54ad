//! `serve` under systemd: a socket that outlives the process, and messages about its state (`Type=notify`).
//!
//! With a passed socket, clients wait in its queue while the process is replaced, so a restart refuses none. Without systemd, all of
//! this does nothing.

use std::ffi::OsStr;
use std::io;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use listenfd::ListenFd;
use polyserve_bench::Misuse;
use rustix::net::getpeername;
use sd_notify::NotifyState;

/// Returns the socket that the process was given (`LISTEN_FDS`), if there is one.
///
/// # Errors
///
/// Returns an error if the socket does not listen, if there are several, or if `is_listen_given`: two addresses contradict.
pub(crate) fn passed_listener(is_listen_given: bool) -> Result<Option<TcpListener>, Misuse> {
    let mut passed = ListenFd::from_env();
    if passed.len() > 1 {
        return Err(Misuse(format!("the process was given {} sockets, and it serves one", passed.len())));
    }
    let listener = passed.take_tcp_listener(0);
    let listener = listener.map_err(|error| Misuse(format!("the socket that the process was given: {error}")))?;
    if listener.as_ref().is_some_and(|listener| getpeername(listener).is_ok_and(|peer| peer.is_some())) {
        let why = "the socket that the process was given is a connection, and none that listens: a socket unit needs Accept=no";
        return Err(Misuse(why.into()));
    }
    if listener.is_some() && is_listen_given {
        return Err(Misuse("the process was given a socket to listen on: leave --listen out".into()));
    }
    Ok(listener)
}

/// Tells systemd that requests are answered.
pub(crate) fn notify_ready() {
    notify(&NotifyState::Ready);
}

/// Tells systemd that the end has begun.
pub(crate) fn notify_stopping() {
    notify(&NotifyState::Stopping);
}

/// Sends a message.
pub(super) fn notify(state: &NotifyState<'_>) {
    if let Some(name) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(error) = send(&name, &format!("{state}\n"))
    {
        tracing::warn!(%error, "systemd cannot be told about the state of the process");
    }
}

/// The max time in which a message is sent: a systemd that reads none must hold neither the server nor its end.
const MAX_SEND: Duration = Duration::from_secs(2);

/// Sends `message` to the socket at a path, or to `@NAME`, which has no path.
fn send(name: &OsStr, message: &str) -> io::Result<()> {
    let addr = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    }?;
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(MAX_SEND))?;
    socket.send_to_addr(message.as_bytes(), &addr).map(drop)
}
