//! Restarts without loss, by `serve --handover SOCKET`: the next process takes the listeners of the present one.
//!
//! The next process connects to the socket when all its settings are checked, and sends [`HELLO`]. The present one sends its listeners,
//! waits for the answer [`GO`], and drains. The next one may open a large store before it answers, so this wait has no limit. It ends with
//! the connection, or when another process asks: the last one takes over. Meanwhile clients wait in the queues of the listeners, which no process closes. The present process holds the
//! connection until it ends, so the next one knows when it has ended.
//!
//! Invariant: a process serves until the next one has said [`GO`], or until a signal. From a signal on, nothing is handed over. The socket is
//! for its user and for root: the file's mode keeps others out, and each process looks at the user of the other one. A next process of
//! root takes the listeners of any user, so the directory of its socket must be root's. A connection that sends no [`HELLO`] holds up no other one, and is closed after [`HELLO_LIMIT`]. Cost: a waiting thread, and one for each
//! connection that has not been answered, at most [`MAX_WAITING`].

use std::fs;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use polyserve::ServerConfig;
use polyserve::serving::ACCEPT_BACKOFF;
use polyserve::serving::net::listen;
use polyserve::sync::lock;
use polyserve_bench::Misuse;
use polyserve_sys::peer;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::process::geteuid;

use super::admin::check_directory_of;

/// The first byte of the next process.
const HELLO: u8 = b'?';
/// The time limit for the first byte, which the next process sends at once.
const HELLO_LIMIT: Duration = Duration::from_secs(5);
/// The max number of connections that have not sent their first byte, or wait for their answer. Others wait in the queue of the socket.
const MAX_WAITING: usize = 64;
/// The answer of the next process: it takes over.
const GO: u8 = b'!';
/// The first byte of the message with the listeners. Then comes the grace of the drain, in milliseconds.
const VERSION: u8 = 1;
const MESSAGE: usize = 1 + size_of::<u64>();
/// The most listeners that a process has.
const LISTENERS: usize = 2;
/// The time between two looks for another process that asks.
const ASK_PAUSE: Duration = Duration::from_millis(100);
/// The time limit for the listeners, and for the end of a process after its drain.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Checks that a socket can be at `path`, which `source` has named. It is found before the repo is opened.
pub(crate) fn check_path(source: &str, path: &Path) -> Result<(), Misuse> {
    let wrong = |why: &dyn std::fmt::Display| Misuse(format!("{source} {}: {why}", path.display()));
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(wrong(&"the file is no socket")),
        Err(error) if error.kind() == ErrorKind::NotFound => check_directory_of(path).map_err(|error| wrong(&error))?,
        Err(error) => return Err(wrong(&error)),
        Ok(_) => {}
    }
    UnixAddr::from_pathname(path).map(drop).map_err(|error| wrong(&error))
}

/// The listeners of a server.
#[derive(Debug)]
pub(crate) struct Listeners {
    /// For entities.
    pub(crate) entities: TcpListener,
    /// Of the admin address, if there is one.
    pub(crate) admin: Option<TcpListener>,
}

impl Listeners {
    /// Takes the listeners of the process at the socket `path`, if there is one, and binds an address that it does not have. That process
    /// goes on until [`PresentProcess::drain`].
    ///
    /// # Errors
    ///
    /// Returns an error if an address cannot be bound, or if the process does not hand over.
    pub(crate) fn take(
        path: &Path,
        entities: SocketAddr,
        admin: Option<SocketAddr>,
        config: &ServerConfig,
    ) -> anyhow::Result<(Self, Option<PresentProcess>)> {
        let (taken, present) = PresentProcess::connect(path)?.unzip();
        let (old_entities, old_admin) = match taken {
            Some(taken) => (Some(taken.entities), taken.admin),
            None => (None, None),
        };
        let entities = or_bound(old_entities, entities, config)?;
        let admin = admin.map(|addr| or_bound(old_admin, addr, config)).transpose()?;
        Ok((Self { entities, admin }, present))
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        let admin = self.admin.as_ref().map(TcpListener::try_clone).transpose()?;
        Ok(Self { entities: self.entities.try_clone()?, admin })
    }

    /// Sends the listeners to the next process.
    fn send(&self, connection: &UnixStream, drain_grace: Duration) -> io::Result<()> {
        let grace = u64::try_from(drain_grace.as_millis()).unwrap_or(u64::MAX);
        let mut message = [VERSION; MESSAGE];
        message[1..].copy_from_slice(&grace.to_be_bytes());
        let listeners = [Some(&self.entities), self.admin.as_ref()];
        let descriptors: Vec<_> = listeners.iter().flatten().map(|listener| listener.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LISTENERS))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        rights.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(connection, &[IoSlice::new(&message)], &mut rights, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

/// Checks that a process at the other end belongs to this user, or to root.
fn check_user(user: u32) -> io::Result<()> {
    if [geteuid().as_raw(), 0].contains(&user) {
        return Ok(());
    }
    Err(io::Error::new(ErrorKind::PermissionDenied, "the process belongs to another user"))
}

/// Returns a listener that was taken, if it has the address; port 0 is any port. Otherwise binds the address.
fn or_bound(taken: Option<TcpListener>, addr: SocketAddr, config: &ServerConfig) -> anyhow::Result<TcpListener> {
    let is_same = |actual: SocketAddr| addr == actual || (addr.port() == 0 && addr.ip() == actual.ip());
    let taken = taken.filter(|listener| listener.local_addr().is_ok_and(is_same));
    taken.map_or_else(|| listen(addr.into(), config), Ok).with_context(|| format!("cannot serve on {addr}"))
}

/// Reads a byte; `None` is the end. A signal does not end the wait.
fn read_byte(mut connection: &UnixStream, limit: Duration) -> io::Result<Option<u8>> {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        connection.set_read_timeout(Some(left))?;
        let mut byte = [0];
        match connection.read(&mut byte) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(Some(byte[0])),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
}

/// The listeners of this process, which the next one can take at a socket.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    path: PathBuf,
    socket: Arc<UnixListener>,
    /// `None` once they are withdrawn.
    listeners: Arc<Mutex<Option<Listeners>>>,
    drain_grace: Duration,
}

impl Offer {
    /// Binds the socket, in place of that of a process that has ended.
    pub(crate) fn new(path: &Path, listeners: Listeners, drain_grace: Duration) -> anyhow::Result<Self> {
        let bind = || {
            match fs::symlink_metadata(path) {
                Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
                // It was made after the check of the settings. The bind refuses it.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            let socket = UnixListener::bind(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
            Ok(socket)
        };
        let socket = bind().with_context(|| format!("cannot hand over at {}", path.display()))?;
        let listeners = Arc::new(Mutex::new(Some(listeners)));
        Ok(Self { path: path.to_owned(), socket: Arc::new(socket), listeners, drain_grace })
    }

    /// Waits until the next process takes over. It waits for the end of this one. After [`withdraw`](Self::withdraw), this does
    /// not return.
    pub(crate) fn wait(&self) {
        let connections = loop {
            match self.greeted() {
                Ok(connections) => break connections,
                Err(error) => {
                    tracing::error!(%error, "no process can take over for now: no thread can be started");
                    thread::sleep(HELLO_LIMIT);
                }
            }
        };
        let mut asking = None;
        loop {
            let connection =
                asking.take().map_or_else(|| connections.recv().map_err(io::Error::other).and_then(|asked| asked), Ok);
            match connection.and_then(|connection| self.hand_over(connection, &connections, &mut asking)) {
                Ok(true) if lock(&self.listeners).is_some() => return,
                Ok(true) => {} // a signal was first
                Ok(false) => tracing::warn!("a process asked for the listeners, and did not take over"),
                Err(error) => {
                    tracing::warn!(%error, "the listeners cannot be handed over");
                    thread::sleep(ACCEPT_BACKOFF);
                }
            }
        }
    }

    /// Sends the listeners, and waits until the process takes over or ends, or until another one asks, which is then in `asking`. Returns
    /// whether the process takes over.
    fn hand_over(
        &self,
        connection: UnixStream,
        connections: &Receiver<io::Result<UnixStream>>,
        asking: &mut Option<UnixStream>,
    ) -> io::Result<bool> {
        // The listeners stay open for a process that has them, whatever happens here.
        let listeners = lock(&self.listeners).as_ref().map(Listeners::try_clone).transpose()?;
        let Some(listeners) = listeners else { return Ok(false) };
        let peer = peer(&connection)?;
        check_user(peer.user)?;
        listeners.send(&connection, self.drain_grace)?;
        let answer = loop {
            match read_byte(&connection, ASK_PAUSE) {
                Err(error) if error.kind() == ErrorKind::TimedOut => {}
                answer => break answer?,
            }
            match connections.try_recv() {
                Ok(Ok(another)) => {
                    *asking = Some(another);
                    // From now on the process cannot answer. What it has answered before counts.
                    connection.shutdown(Shutdown::Read)?;
                    break read_byte(&connection, ASK_PAUSE)?;
                }
                Ok(Err(error)) => tracing::warn!(%error, "no other process can ask for the listeners for now"),
                Err(_) => {} // no other process asks
            }
        };
        let is_taken = answer == Some(GO);
        if is_taken {
            tracing::info!(pid = peer.pid, "the next process takes over, and this one drains");
            Box::leak(Box::new(connection)); // its end is that of the process
        }
        Ok(is_taken)
    }

    /// Accepts connections on a thread, and returns those that have sent [`HELLO`].
    ///
    /// # Errors
    ///
    /// Returns an error if the system refuses the thread. A connection for which it refuses one is closed.
    fn greeted(&self) -> io::Result<Receiver<io::Result<UnixStream>>> {
        let (greeted, connections) = sync_channel(1);
        let (socket, waiting) = (Arc::clone(&self.socket), Arc::new(()));
        thread::Builder::new().name("polyserve-handover".into()).spawn(move || {
            loop {
                // A thread holds a share of `waiting`, and this one holds the first. The pause is short next to the max wait of the next
                // process.
                while Arc::strong_count(&waiting) > MAX_WAITING {
                    thread::sleep(ACCEPT_BACKOFF);
                }
                let connection = match socket.accept() {
                    Ok((connection, _)) => connection,
                    Err(error) => {
                        if greeted.send(Err(error)).is_err() {
                            return; // this process is handed over
                        }
                        thread::sleep(ACCEPT_BACKOFF);
                        continue;
                    }
                };
                let (greeted, share) = (greeted.clone(), Arc::clone(&waiting));
                let greet = move || {
                    match read_byte(&connection, HELLO_LIMIT) {
                        Ok(Some(HELLO)) => drop(greeted.send(Ok(connection))), // an error: this process is handed over
                        _ => {
                            tracing::warn!(
                                "a connection to the socket of the handover has not asked for the listeners"
                            );
                        }
                    }
                    drop(share);
                };
                if let Err(error) = thread::Builder::new().spawn(greet) {
                    tracing::warn!(%error, "no thread can be started for a connection to the socket of the handover");
                    thread::sleep(ACCEPT_BACKOFF);
                }
            }
        })?;
        Ok(connections)
    }

    /// Hands nothing over any more: this process ends, and closes its listeners.
    pub(crate) fn withdraw(&self) {
        *lock(&self.listeners) = None;
        let _ = fs::remove_file(&self.path); // an error: it is gone
    }
}

/// The process that serves, until [`drain`](Self::drain).
#[derive(Debug)]
pub(crate) struct PresentProcess {
    connection: UnixStream,
    drain_grace: Duration,
}

impl PresentProcess {
    /// Asks the process at `path` for its listeners; `None` if there is no process.
    fn connect(path: &Path) -> anyhow::Result<Option<(Listeners, Self)>> {
        let connection = match UnixStream::connect(path) {
            Ok(connection) => connection,
            // There is no process, or it has ended.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                return Ok(None);
            }
            Err(error) => return Err(error).with_context(|| format!("--handover {}", path.display())),
        };
        let received = Self::receive(connection);
        received.map(Some).with_context(|| format!("the process at {} does not hand over", path.display()))
    }

    fn receive(connection: UnixStream) -> anyhow::Result<(Listeners, Self)> {
        // A listener of another user has another reader. Root decides by the place of the socket.
        if !geteuid().is_root() {
            check_user(peer(&connection)?.user)?;
        }
        (&connection).write_all(&[HELLO])?;
        connection.set_read_timeout(Some(MAX_WAIT))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LISTENERS))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let mut message = [0; MESSAGE];
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut message)];
            match recvmsg(&connection, &mut parts, &mut rights, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                received => break received?,
            }
        };
        let mut listeners = Vec::new();
        for part in rights.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = part {
                listeners.extend(descriptors.map(TcpListener::from));
            }
        }
        let mut listeners = listeners.into_iter();
        let (MESSAGE, Some(entities)) = (received.bytes, listeners.next()) else { bail!("it ended the connection") };
        let [VERSION, grace @ ..] = message else { bail!("it speaks another version of this") };
        let drain_grace = Duration::from_millis(u64::from_be_bytes(grace));
        Ok((Listeners { entities, admin: listeners.next() }, Self { connection, drain_grace }))
    }

    /// Makes the process drain, and waits for its end.
    ///
    /// # Errors
    ///
    /// Returns an error if the process does not end.
    pub(crate) fn drain(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        (&self.connection).write_all(&[GO]).context("the process at the socket does not wait any longer")?;
        let end = read_byte(&self.connection, self.drain_grace.saturating_add(MAX_WAIT));
        end.context("the process that hands over does not end")?;
        let milliseconds = begun.elapsed().as_millis();
        tracing::info!(milliseconds, "the process before has drained and ended");
        Ok(())
    }
}
