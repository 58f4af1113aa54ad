//! Restarts without loss, by `serve --handover SOCKET`: the next process takes the listeners of the present one.
//!
//! The next process connects to the socket when all its settings are checked. The present one sends its listeners, waits for the answer
//! [`GO`], and drains. Meanwhile clients wait in the queues of the listeners, which no process closes. The present process holds the
//! connection until it ends, so the next one knows when the repo is free, and opens it.
//!
//! Invariant: a process serves until the next one has said [`GO`]. Cost: one waiting thread.

use std::fs;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read as _, Write as _};
use std::iter;
use std::mem::{self, MaybeUninit};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use polyserve::ServerConfig;
use polyserve::serving::net::listen;
use polyserve_bench::Misuse;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::process::{Signal, geteuid, getpid, kill_process};

/// The answer of the next process: it takes over.
const GO: u8 = b'!';
/// The first byte of the message with the listeners. Then comes the grace of the drain, in milliseconds.
const VERSION: u8 = 1;
const MESSAGE: usize = 1 + size_of::<u64>();
/// The most listeners that a process has.
const LISTENERS: usize = 2;
/// The time limit for a message of the other process, which is at its start or waits for this.
const PATIENCE: Duration = Duration::from_secs(30);

/// The listeners of a server.
#[derive(Debug)]
pub(crate) struct Listeners {
    /// For entities.
    pub(crate) entities: TcpListener,
    /// Of the admin address, if there is one.
    pub(crate) admin: Option<TcpListener>,
}

impl Listeners {
    /// Takes the listeners of the process at the socket `path`, if there is one, and waits for its end. An address that it does not
    /// have is bound before it drains.
    ///
    /// # Errors
    ///
    /// Returns an error if an address cannot be bound, and if the process does not hand over or does not end.
    pub(crate) fn take_over(
        path: &Path,
        entities: SocketAddr,
        admin: Option<SocketAddr>,
        config: &ServerConfig,
    ) -> anyhow::Result<Self> {
        let mut present = Present::connect(path)?;
        let mut taken = present.as_mut().map(|present| mem::take(&mut present.listeners)).unwrap_or_default();
        let mut take_or_bind = |addr: SocketAddr| {
            let has_address = |listener: &mut TcpListener| {
                let is_same = |actual: SocketAddr| addr == actual || (addr.port() == 0 && addr.ip() == actual.ip());
                listener.local_addr().is_ok_and(is_same)
            };
            let taken = taken.extract_if(.., has_address).next();
            let listener = taken.map_or_else(|| listen(addr.into(), config), Ok);
            listener.with_context(|| format!("cannot serve on {addr}"))
        };
        let listeners = Self { entities: take_or_bind(entities)?, admin: admin.map(take_or_bind).transpose()? };
        if let Some(present) = present {
            present.drain()?;
        }
        Ok(listeners)
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        let admin = self.admin.as_ref().map(TcpListener::try_clone).transpose()?;
        Ok(Self { entities: self.entities.try_clone()?, admin })
    }

    /// Waits at the socket `path` for the next process, in a thread. When that takes over, sets `has_begun`, and sends this process a
    /// SIGTERM.
    pub(crate) fn offer(self, path: &Path, drain_grace: Duration, has_begun: Arc<AtomicBool>) -> anyhow::Result<()> {
        let socket = bind(path).with_context(|| format!("cannot hand over at {}", path.display()))?;
        let wait = move || {
            for connection in socket.incoming() {
                match connection.and_then(|connection| self.send(connection, drain_grace)) {
                    Ok(Some(connection)) => return end(&connection, &has_begun),
                    Ok(None) => tracing::warn!("a process asked for the listeners, and ended before it took over"),
                    Err(error) => tracing::warn!(%error, "the listeners cannot be handed over"),
                }
            }
        };
        thread::Builder::new().name("polyserve-handover".into()).spawn(wait).context("no thread for the handover")?;
        Ok(())
    }

    /// Sends the listeners. Returns the connection if the other process takes over.
    fn send(&self, connection: UnixStream, drain_grace: Duration) -> io::Result<Option<UnixStream>> {
        let peer = socket_peercred(&connection)?.uid;
        if peer != geteuid() && !peer.is_root() {
            return Err(io::Error::new(ErrorKind::PermissionDenied, "the process belongs to another user"));
        }
        connection.set_read_timeout(Some(PATIENCE))?;
        let grace = u64::try_from(drain_grace.as_millis()).unwrap_or(u64::MAX);
        let mut message = [VERSION; MESSAGE];
        message[1..].copy_from_slice(&grace.to_be_bytes());
        let listeners = iter::once(&self.entities).chain(&self.admin);
        let descriptors: Vec<_> = listeners.map(TcpListener::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LISTENERS))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        rights.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(&connection, &[IoSlice::new(&message)], &mut rights, SendFlags::NOSIGNAL)?;
        let mut answer = [0];
        let read = (&connection).read(&mut answer)?;
        Ok((answer[..read] == [GO]).then_some(connection))
    }
}

/// Binds the socket, in place of that of a process that has ended.
fn bind(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(socket)
}

/// Starts the drain. The connection is open until the process has ended.
fn end(_connection: &UnixStream, has_begun: &AtomicBool) {
    has_begun.store(true, Ordering::Release);
    if let Err(error) = kill_process(getpid(), Signal::TERM) {
        tracing::error!(%error, "the drain cannot be started");
    }
    loop {
        thread::park();
    }
}

/// The process that serves, and its listeners.
#[derive(Debug)]
struct Present {
    listeners: Vec<TcpListener>,
    connection: UnixStream,
    drain_grace: Duration,
}

impl Present {
    /// Asks the process at `path` for its listeners; `None` if there is no process.
    fn connect(path: &Path) -> anyhow::Result<Option<Self>> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Ok(found) if !found.file_type().is_socket() => {
                return Err(Misuse(format!("--handover {}: the file is no socket", path.display())).into());
            }
            _ => {}
        }
        let connection = match UnixStream::connect(path) {
            Ok(connection) => connection,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(None), // its process has ended
            Err(error) => return Err(error).with_context(|| format!("--handover {}", path.display())),
        };
        let received = Self::receive(connection);
        received.map(Some).with_context(|| format!("the process at {} does not hand over", path.display()))
    }

    fn receive(connection: UnixStream) -> anyhow::Result<Self> {
        connection.set_read_timeout(Some(PATIENCE))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LISTENERS))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let mut message = [0; MESSAGE];
        let received =
            recvmsg(&connection, &mut [IoSliceMut::new(&mut message)], &mut rights, RecvFlags::CMSG_CLOEXEC)?;
        let mut listeners = Vec::new();
        for part in rights.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = part {
                listeners.extend(descriptors.map(TcpListener::from));
            }
        }
        let [VERSION, grace @ ..] = message else { bail!("it speaks another version of this") };
        if received.bytes != MESSAGE || listeners.is_empty() {
            bail!("its message is not whole");
        }
        Ok(Self { listeners, connection, drain_grace: Duration::from_millis(u64::from_be_bytes(grace)) })
    }

    /// Makes the process drain, and waits for its end.
    fn drain(mut self) -> anyhow::Result<()> {
        self.connection.write_all(&[GO]).context("the process ended before it handed over")?;
        self.connection.set_read_timeout(Some(self.drain_grace.saturating_add(PATIENCE)))?;
        match self.connection.read(&mut [0]) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
            Err(error) => Err(error).context("the process that hands over does not end"),
        }
    }
}
