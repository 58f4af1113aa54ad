//! The threads: which one leads, which are idle, and what each serves.
//!
//! A [`ConnectionThread`] accepts in [`RunState::accept`], and serves and closes in [`ConnectionThread::serve`].

use std::cell::Cell;
use std::io::{self, PipeReader};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::thread::{self, JoinHandle, Thread, ThreadId};
use std::time::{Duration, Instant};

use polyserve_core::sync::{lock, read};
use polyserve_core::{ServerConfig, cores};
use polyserve_serving::blocking::{ThreadConnection, ThreadRole, serve_until_linger};
use polyserve_serving::net::{self, wait};
use polyserve_serving::{
    ACCEPT_BACKOFF, AcceptRules, AfterAccept, Bound, ConnectionTable, LingeringSet, ServerState, TableEntry,
    into_stream,
};
use rustix::event::{PollFd, PollFlags};

use super::super::CONNECTION_STACK;

/// Max idle threads; a further one ends. Each holds its buffers.
const MAX_IDLE_THREADS: usize = 128;

/// How long a thread stays idle before it ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a leader waits for the first byte of a new connection before it makes another thread the leader. The kernel
/// may round it up to a tick.
const FIRST_WAIT: Duration = Duration::from_millis(1);

/// Whether connections inherit the timeouts of their listener.
const INHERITED: bool = cfg!(target_os = "linux");

/// Sets the timeouts of new connections on `listener`. They inherit them, which saves two system calls for each.
fn set_first_timeouts(listener: &TcpListener, config: &ServerConfig) -> io::Result<()> {
    let socket = socket2::SockRef::from(listener);
    socket.set_read_timeout(Some(FIRST_WAIT))?;
    socket.set_write_timeout(Some(config.write_timeout))
}

/// A connection that counts as open.
type OpenEntry = Arc<TableEntry<ThreadConnection>>;

/// What a thread does next.
enum Assignment {
    /// Accept, and wait for the listener if no connection waits.
    Lead,
    /// Serve this connection.
    Serve(OpenEntry),
    /// End, because the drain has begun.
    End,
}

/// What the leader is doing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leader {
    /// It accepts, serves, or does not exist.
    Busy,
    /// It waits for the listener.
    Polling,
    /// It waits, at most for [`FIRST_WAIT`], for the first byte of a new connection.
    AwaitingFirstByte,
}

/// The state that all threads of a run share.
pub(super) struct RunState {
    pub(super) server: Arc<ServerState>,
    pub(super) connections: Arc<ConnectionTable<ThreadConnection>>,
    pub(super) threads: Mutex<Threads>,
    /// Removed by the drain, so that no thread keeps the port. Locked to accept or to wait, never while serving.
    pub(super) listener: RwLock<Option<TcpListener>>,
    /// Readable once the shutdown has begun.
    wake: PipeReader,
    /// The connections that linger until their clients have read the last answer. They do not count as open.
    pub(super) lingering: Mutex<LingeringSet>,
    /// The number of connections accepted since the start.
    pub(super) accepted: AtomicU64,
    /// A [`Leader`], as a number.
    leader: AtomicU8,
    /// The last new connection sent nothing within [`FIRST_WAIT`].
    silent_starts: AtomicBool,
    /// Threads that serve and have not waited since they got a connection.
    pub(super) unblocked: AtomicUsize,
    /// The supervisor sleeps until it is woken.
    pub(super) asleep: AtomicBool,
    pub(super) supervisor: OnceLock<Thread>,
}

/// The threads of a run.
#[derive(Default)]
pub(super) struct Threads {
    /// Some may have ended.
    pub(super) handles: Vec<JoinHandle<()>>,
    /// The idle threads. The last one is used first, because its caches are warm.
    idle: Vec<(ThreadId, Sender<Assignment>)>,
    /// There is a leader, or a thread has the assignment to lead.
    pub(super) has_leader: bool,
    /// The drain has begun: no thread becomes idle.
    is_closed: bool,
}

impl Threads {
    /// Ends the idle threads. No thread becomes idle after that.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        for (_, thread) in self.idle.drain(..) {
            let _ = thread.send(Assignment::End);
        }
    }
}

impl RunState {
    pub(super) fn new(bound: Bound) -> io::Result<Self> {
        set_first_timeouts(&bound.listener, &bound.server.config)?;
        let server = Arc::new(bound.server);
        Ok(Self {
            wake: server.wake_pipe()?,
            connections: Arc::new(ConnectionTable::new(Arc::clone(&server), cores())),
            threads: Mutex::default(),
            listener: RwLock::new(Some(bound.listener)),
            lingering: Mutex::new(LingeringSet::new(Arc::clone(&server))),
            accepted: AtomicU64::new(0),
            leader: AtomicU8::new(Leader::Busy as u8),
            silent_starts: AtomicBool::new(false),
            unblocked: AtomicUsize::new(0),
            asleep: AtomicBool::new(false),
            supervisor: OnceLock::new(),
            server,
        })
    }

    fn set_leader(&self, leader: Leader) {
        self.leader.store(leader as u8, Ordering::SeqCst);
    }

    pub(super) fn leader_is(&self, leader: Leader) -> bool {
        self.leader.load(Ordering::SeqCst) == leader as u8
    }

    /// Makes another thread the leader. The caller was the leader, or there is none.
    pub(super) fn promote(self: &Arc<Self>) {
        let mut threads = lock(&self.threads);
        threads.has_leader = false;
        if self.server.shutdown.is_begun() {
            return;
        }
        if let Err(error) = self.assign(&mut threads, Assignment::Lead) {
            drop(threads);
            polyserve_core::throttled!(warn, %error, "cannot start a thread");
            self.wake_supervisor(); // it accepts until there is a leader
        }
    }

    /// Passes a connection to another thread. Rejects it if no thread can be started.
    pub(super) fn hand_over(self: &Arc<Self>, connection: OpenEntry) {
        let assigned = self.assign(&mut lock(&self.threads), Assignment::Serve(Arc::clone(&connection)));
        if let Err(error) = assigned {
            polyserve_core::throttled!(warn, %error, "cannot start a thread");
            self.connections.remove(&connection);
            if let Some(stream) = into_stream(connection) {
                self.reject(stream);
            }
        }
    }

    /// Passes `assignment` to an idle thread, or to a new one. The caller holds the lock, so an idle thread does not give up
    /// waiting.
    fn assign(self: &Arc<Self>, threads: &mut Threads, assignment: Assignment) -> io::Result<()> {
        let leads = matches!(assignment, Assignment::Lead);
        threads.has_leader |= leads;
        if let Some((_, thread)) = threads.idle.pop() {
            let _ = thread.send(assignment); // an idle thread has its receiver
            return Ok(());
        }
        let shared = Arc::clone(self);
        // Created on the new thread: if the start fails, its drop would wait for the lock that the caller holds.
        let main = move || ConnectionThread::new(shared).run(assignment);
        match thread::Builder::new().name("connection".into()).stack_size(CONNECTION_STACK).spawn(main) {
            Ok(thread) => {
                threads.handles.push(thread);
                if threads.handles.len() > 2 * (self.connections.len() + MAX_IDLE_THREADS) {
                    threads.handles.retain(|thread| !thread.is_finished());
                }
                Ok(())
            }
            Err(error) => {
                threads.has_leader &= !leads;
                Err(error)
            }
        }
    }

    /// Accepts the next connection of the backlog, and rejects connections above the limit. The drain has rules of its own.
    pub(super) fn accept(&self) -> AfterAccept<OpenEntry> {
        let mut rules = AcceptRules::new(self.server.config.backlog);
        loop {
            let after = match &*read(&self.listener) {
                Some(listener) => rules.attempt(&self.server, || listener.accept()),
                None => return AfterAccept::End,
            };
            match after {
                AfterAccept::Serve((stream, _)) => {
                    // The order matters: either the supervisor reads the new number before it sleeps, or it is woken.
                    self.accepted.fetch_add(1, Ordering::SeqCst);
                    self.wake_supervisor();
                    if let Some(connection) = self.admit(stream) {
                        return AfterAccept::Serve(connection);
                    }
                }
                AfterAccept::Again => {}
                AfterAccept::Wait => return AfterAccept::Wait,
                AfterAccept::BackOff => return AfterAccept::BackOff,
                AfterAccept::End => return AfterAccept::End,
            }
        }
    }

    /// Waits until a connection can be accepted, or a shutdown begins. Only the leader calls this.
    fn wait_for_listener(&self) -> io::Result<()> {
        let listener = read(&self.listener);
        let Some(listener) = &*listener else { return Ok(()) };
        let mut polled = [listener.as_fd(), self.wake.as_fd()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        self.set_leader(Leader::Polling);
        let result = rustix::event::poll(&mut polled, None);
        self.set_leader(Leader::Busy);
        match result {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Counts a new connection as open, or rejects it.
    pub(super) fn admit(&self, stream: TcpStream) -> Option<OpenEntry> {
        if net::prepare(&stream).is_err() {
            return None;
        }
        let timeouts = [FIRST_WAIT, self.server.config.write_timeout].map(|timeout| INHERITED.then_some(timeout));
        let shard = self.accepted.load(Ordering::Relaxed) as usize;
        match self.connections.admit(ThreadConnection::blocking(stream, timeouts), shard) {
            Ok(connection) => Some(connection),
            Err(connection) => {
                self.reject(connection.into());
                None
            }
        }
    }

    fn reject(&self, stream: TcpStream) {
        lock(&self.lingering).reject(stream, &self.server);
        self.wake_supervisor();
    }

    /// Wakes the supervisor if it sleeps.
    fn wake_supervisor(&self) {
        if self.asleep.load(Ordering::SeqCst)
            && let Some(supervisor) = self.supervisor.get()
        {
            supervisor.unpark();
        }
    }
}

/// A thread that serves connections, one at a time. When it is dropped, also by a panic, it gives up its role.
struct ConnectionThread {
    shared: Arc<RunState>,
    id: ThreadId,
    /// Where this thread gets its assignments while it is idle.
    assigned: (Sender<Assignment>, Receiver<Assignment>),
    /// This thread is the leader: it must ensure that connections are accepted.
    leads: Cell<bool>,
    /// This thread counts in [`RunState::unblocked`].
    is_unblocked: Cell<bool>,
}

impl ConnectionThread {
    fn new(shared: Arc<RunState>) -> Self {
        let id = thread::current().id();
        Self { shared, id, assigned: channel(), leads: Cell::new(false), is_unblocked: Cell::new(false) }
    }

    fn run(self, first: Assignment) {
        let mut assignment = first;
        loop {
            self.set_unblocked(true);
            let mut next = match assignment {
                Assignment::Serve(connection) => Some(connection),
                Assignment::Lead => {
                    self.leads.set(true);
                    self.next_connection()
                }
                Assignment::End => return,
            };
            while let Some(connection) = next {
                self.serve(connection);
                next = self.next_connection();
            }
            assignment = self.next_assignment();
        }
    }

    fn serve(&self, connection: OpenEntry) {
        let shared = &self.shared;
        if let Some(stream) = serve_until_linger(connection, &shared.connections, self, Instant::now()) {
            lock(&shared.lingering).add(stream);
            shared.wake_supervisor();
        }
        self.set_unblocked(true);
        tracing::trace!(thread = ?self.id, "closed");
    }

    /// Accepts a connection. If the backlog is empty, the leader waits for a connection; any other thread returns `None`.
    fn next_connection(&self) -> Option<OpenEntry> {
        while !self.shared.server.shutdown.is_begun() {
            match self.shared.accept() {
                AfterAccept::Serve(connection) => return Some(connection),
                _ if !self.leads.get() => return None,
                AfterAccept::Again | AfterAccept::Wait | AfterAccept::End => {
                    if let Err(error) = self.shared.wait_for_listener() {
                        polyserve_core::throttled!(warn, %error, "cannot wait for connections");
                        thread::park_timeout(ACCEPT_BACKOFF);
                    }
                }
                AfterAccept::BackOff => {
                    let wake = (self.shared.wake.as_fd(), PollFlags::IN);
                    let _ = wait([wake], Some(Instant::now() + ACCEPT_BACKOFF), &mut Vec::new());
                }
            }
        }
        None
    }

    /// Becomes idle and waits for an assignment, at most for [`IDLE_TIMEOUT`]. Becomes the leader if there is none.
    fn next_assignment(&self) -> Assignment {
        self.set_unblocked(false);
        self.leads.set(false); // a leader comes here only at the end
        let mut threads = lock(&self.shared.threads);
        if threads.is_closed || self.shared.server.shutdown.is_begun() {
            return Assignment::End;
        }
        if !threads.has_leader {
            threads.has_leader = true;
            return Assignment::Lead;
        }
        if threads.idle.len() >= MAX_IDLE_THREADS {
            return Assignment::End;
        }
        let (sender, assigned) = &self.assigned;
        threads.idle.push((self.id, sender.clone()));
        drop(threads);
        if let Ok(assignment) = assigned.recv_timeout(IDLE_TIMEOUT) {
            return assignment;
        }
        // Only an idle thread gets an assignment, under this lock. A thread that was removed from the idle threads has one.
        lock(&self.shared.threads).idle.retain(|(id, _)| *id != self.id);
        assigned.try_recv().unwrap_or(Assignment::End)
    }

    fn set_unblocked(&self, unblocked: bool) {
        if self.is_unblocked.replace(unblocked) != unblocked {
            let change = if unblocked { AtomicUsize::fetch_add } else { AtomicUsize::fetch_sub };
            change(&self.shared.unblocked, 1, Ordering::Relaxed);
        }
    }
}

/// The leader waits for the first byte of a new connection for [`FIRST_WAIT`], because it usually follows. It does not while new
/// connections are silent: it would wait for each of them before it accepts the next. Before a longer wait, the leader makes
/// another thread the leader.
impl ThreadRole for ConnectionThread {
    fn begin_first_read(&self) -> Option<Duration> {
        if self.shared.silent_starts.load(Ordering::Relaxed) {
            return None;
        }
        if self.leads.get() {
            self.shared.set_leader(Leader::AwaitingFirstByte);
        }
        Some(FIRST_WAIT)
    }

    fn end_first_read(&self, waited: Option<Duration>) {
        if self.leads.get() {
            self.shared.set_leader(Leader::Busy);
        }
        let is_silent = waited.is_none_or(|waited| waited > FIRST_WAIT);
        if is_silent != self.shared.silent_starts.load(Ordering::Relaxed) {
            self.shared.silent_starts.store(is_silent, Ordering::Relaxed);
        }
    }

    fn about_to_wait(&self) {
        self.set_unblocked(false);
        if self.leads.replace(false) {
            self.shared.set_leader(Leader::Busy);
            self.shared.promote();
        }
    }
}

impl Drop for ConnectionThread {
    fn drop(&mut self) {
        self.about_to_wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: each connection cost two system calls for timeouts that it can inherit from its listener.
    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "only Linux hands a listener's timeouts on")]
    fn connections_inherit_the_timeouts() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = ServerConfig::default();
        set_first_timeouts(&listener, &config).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let read_timeout = stream.read_timeout().unwrap().unwrap();
        assert!(read_timeout >= FIRST_WAIT && read_timeout <= Duration::from_millis(20), "{read_timeout:?}");
        assert_eq!(stream.write_timeout().unwrap(), Some(config.write_timeout));
    }
}
