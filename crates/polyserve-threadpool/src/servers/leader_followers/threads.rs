//! The threads: which one leads, which are idle, what each serves, and how many connections are open.
//!
//! A [`ConnectionThread`] accepts in [`RunState::accept`], serves in [`BlockingIo`] and closes in
//! [`ConnectionThread::serve`].

use std::cell::Cell;
use std::collections::HashMap;
use std::io::{self, ErrorKind, PipeReader};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use polyserve_core::sync::{lock, read};
use polyserve_serving::net;
use polyserve_serving::{
    ACCEPT_BACKOFF, Bound, FoundConnections, IdleQueue, LingeringSet, ServerState, ThreadBuffers, wait,
};
use rustix::event::{PollFd, PollFlags};

use super::connection::{BlockingIo, Leader, LeaderRole, LeaderStatus, set_first_timeouts};
use super::connection_slot::{ConnectionSlot, IdleClock};

/// The stack of a thread. It is enough for the loop, the parser's header fields and an ordinary service, also with
/// entities of six levels. For entities that nest deeper the stack grows (`polyserve_core::stack`). Only address space is
/// reserved: pages that are never touched take no memory.
const STACK_SIZE: usize = 512 * 1024;

/// Max idle threads; a further one ends. Each holds its buffers.
const MAX_IDLE_THREADS: usize = 128;

/// How long a thread stays idle before it ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// What a thread does next.
enum Assignment {
    /// Accept, and wait for the listener if no connection waits.
    Lead,
    /// Serve this connection, which counts as open.
    Serve(TcpStream),
}

/// The state that all threads of a run share.
pub(super) struct RunState {
    pub(super) server: Arc<ServerState>,
    pub(super) table: Mutex<ThreadTable>,
    /// Removed by the drain, so that no thread keeps the port. Locked to accept or to wait, never while serving.
    pub(super) listener: RwLock<Option<TcpListener>>,
    /// Readable once the shutdown has begun.
    wake: PipeReader,
    /// The connections that linger until their clients have read the last answer. They do not count as open.
    pub(super) lingering: Mutex<LingeringSet>,
    /// The number of connections accepted since the start.
    pub(super) accepted: AtomicU64,
    pub(super) leader: LeaderStatus,
    /// Threads that serve and have not waited since they got a connection.
    pub(super) unblocked: AtomicUsize,
    /// The supervisor sleeps until it is woken.
    pub(super) asleep: AtomicBool,
    pub(super) supervisor: OnceLock<Thread>,
    /// The number of connections that count towards `max_connections`.
    open: AtomicUsize,
    clock: Arc<IdleClock>,
    /// The connections that are evicted next.
    idle: Mutex<IdleQueue<Arc<ThreadSlot>>>,
}

/// The threads of a run.
#[derive(Default)]
pub(super) struct ThreadTable {
    /// By the thread's number.
    pub(super) threads: HashMap<u64, (JoinHandle<()>, Arc<ThreadSlot>)>,
    /// The idle threads. The last one is used first, because its caches are warm.
    pub(super) idle: Vec<(Arc<ThreadSlot>, Thread)>,
    /// The numbers of the threads that have ended and can be joined.
    pub(super) ended: Vec<u64>,
    /// There is a leader, or a thread has the assignment to lead.
    pub(super) has_leader: bool,
    /// The drain has begun: no thread becomes idle.
    pub(super) closed: bool,
    next_number: u64,
}

/// A thread, as the other threads see it.
pub(super) struct ThreadSlot {
    number: u64,
    /// Written only while the thread is idle, or before it starts.
    assignment: Mutex<Option<Assignment>>,
    pub(super) connection: ConnectionSlot,
}

impl RunState {
    pub(super) fn new(bound: Bound) -> io::Result<Self> {
        set_first_timeouts(&bound.listener, &bound.server.config)?;
        let lingering = LingeringSet::new(bound.server.config.linger_timeout);
        Ok(Self {
            wake: bound.server.wake_pipe()?,
            server: Arc::new(bound.server),
            table: Mutex::default(),
            listener: RwLock::new(Some(bound.listener)),
            lingering: Mutex::new(lingering),
            accepted: AtomicU64::new(0),
            leader: LeaderStatus::new(),
            unblocked: AtomicUsize::new(0),
            asleep: AtomicBool::new(false),
            supervisor: OnceLock::new(),
            open: AtomicUsize::new(0),
            clock: Arc::new(IdleClock::new()),
            idle: Mutex::default(),
        })
    }

    /// Makes another thread the leader. The caller was the leader, or there is none.
    pub(super) fn promote(self: &Arc<Self>) {
        let mut table = lock(&self.table);
        table.has_leader = false;
        if self.server.shutdown.is_begun() {
            return;
        }
        if let Err((error, _)) = self.assign(&mut table, Assignment::Lead) {
            drop(table);
            polyserve_core::throttled!(warn, %error, "cannot start a thread");
            self.wake_supervisor(); // it accepts until there is a leader
        }
    }

    /// Passes `stream`, which counts as open, to another thread. Rejects it if no thread can be started.
    pub(super) fn hand_over(self: &Arc<Self>, stream: TcpStream) {
        let failed = self.assign(&mut lock(&self.table), Assignment::Serve(stream));
        if let Err((error, assignment)) = failed {
            polyserve_core::throttled!(warn, %error, "cannot start a thread");
            self.count_closed();
            if let Some(Assignment::Serve(stream)) = assignment {
                self.reject(stream);
            }
        }
    }

    /// Passes `assignment` to an idle thread, or to a new one. The caller holds the lock, so a new thread is in the table
    /// before it ends.
    fn assign(
        self: &Arc<Self>,
        table: &mut ThreadTable,
        assignment: Assignment,
    ) -> Result<(), (io::Error, Option<Assignment>)> {
        table.has_leader |= matches!(assignment, Assignment::Lead);
        if let Some((thread_slot, thread)) = table.idle.pop() {
            *lock(&thread_slot.assignment) = Some(assignment);
            thread.unpark();
            return Ok(());
        }
        let number = table.next_number;
        let connection = ConnectionSlot::new(Arc::clone(&self.clock));
        let thread_slot = Arc::new(ThreadSlot { number, assignment: Mutex::new(Some(assignment)), connection });
        let (shared, its_slot) = (Arc::clone(self), Arc::clone(&thread_slot));
        // Created on the new thread: if the start fails, its drop would wait for the lock that the caller holds.
        let main = move || ConnectionThread::new(shared, its_slot).run();
        match thread::Builder::new().name("connection".into()).stack_size(STACK_SIZE).spawn(main) {
            Ok(thread) => {
                table.threads.insert(number, (thread, thread_slot));
                table.next_number += 1;
                Ok(())
            }
            Err(error) => {
                let assignment = lock(&thread_slot.assignment).take();
                table.has_leader &= !matches!(assignment, Some(Assignment::Lead));
                Err((error, assignment))
            }
        }
    }

    /// Accepts the next connection of the backlog, and rejects connections above the limit. Returns `None` if the
    /// backlog is empty.
    pub(super) fn accept(&self) -> io::Result<Option<TcpStream>> {
        loop {
            let accepted = match &*read(&self.listener) {
                Some(listener) => listener.accept(),
                None => return Ok(None),
            };
            match accepted {
                Ok((stream, _)) => {
                    // The order matters: either the supervisor reads the new number before it sleeps, or it is woken.
                    self.accepted.fetch_add(1, Ordering::SeqCst);
                    self.wake_supervisor();
                    if let Some(stream) = self.admit(stream) {
                        return Ok(Some(stream));
                    }
                    // Rejected clients that reconnect again and again must not delay the drain.
                    if self.server.shutdown.is_begun() {
                        return Ok(None);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if net::is_connection_error(&error) => {}
                Err(error) => {
                    polyserve_core::throttled!(warn, %error, "cannot accept");
                    return Err(error);
                }
            }
        }
    }

    /// Waits until a connection can be accepted, or a shutdown begins. Only the leader calls this.
    fn wait_for_listener(&self) -> io::Result<()> {
        let listener = read(&self.listener);
        let Some(listener) = &*listener else { return Ok(()) };
        let mut polled = [listener.as_fd(), self.wake.as_fd()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        self.leader.set(Leader::Polling);
        let result = rustix::event::poll(&mut polled, None);
        self.leader.set(Leader::Busy);
        match result {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Counts a new connection as open, or rejects it.
    pub(super) fn admit(&self, stream: TcpStream) -> Option<TcpStream> {
        if net::prepare(&stream).is_err() {
            return None;
        }
        let max = self.server.config.max_connections;
        let increment = |open: usize| (open < max).then_some(open + 1);
        let is_below_max = self.open.fetch_update(Ordering::SeqCst, Ordering::SeqCst, increment).is_ok();
        if is_below_max || self.evict() {
            return Some(stream);
        }
        self.clock.set_crowded();
        self.reject(stream);
        None
    }

    /// Returns the number of connections that count towards `max_connections`.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    fn count_closed(&self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }

    /// Evicts the connection that has been idle for longest. The new connection counts in its place. Returns false if no
    /// connection is idle.
    fn evict(&self) -> bool {
        let search = |found: &mut FoundConnections<Arc<ThreadSlot>>| {
            for (_, thread_slot) in lock(&self.table).threads.values() {
                if let Some(since) = thread_slot.connection.idle_since() {
                    found.offer(since, || Arc::clone(thread_slot));
                }
            }
        };
        let evict = |since, thread_slot: &Arc<ThreadSlot>| thread_slot.connection.evict(since);
        lock(&self.idle).evict_one(self.clock.now(), search, evict)
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

/// A thread that serves connections, one at a time. When it is dropped, also by a panic, it gives up its connection and
/// its role.
struct ConnectionThread {
    shared: Arc<RunState>,
    thread_slot: Arc<ThreadSlot>,
    /// This thread is the leader: it must ensure that connections are accepted.
    leads: Cell<bool>,
    /// This thread counts in [`RunState::unblocked`].
    is_unblocked: Cell<bool>,
}

impl ConnectionThread {
    const fn new(shared: Arc<RunState>, thread_slot: Arc<ThreadSlot>) -> Self {
        Self { shared, thread_slot, leads: Cell::new(false), is_unblocked: Cell::new(false) }
    }

    fn run(self) {
        let mut buffers = ThreadBuffers::new();
        let mut assignment = lock(&self.thread_slot.assignment).take();
        while let Some(current) = assignment {
            self.set_unblocked(true);
            let mut next = match current {
                Assignment::Serve(stream) => Some(stream),
                Assignment::Lead => {
                    self.leads.set(true);
                    self.next_connection()
                }
            };
            while let Some(stream) = next {
                self.serve(stream, &mut buffers);
                next = self.next_connection();
            }
            buffers.shrink();
            assignment = self.next_assignment();
        }
    }

    fn serve(&self, stream: TcpStream, buffers: &mut ThreadBuffers) {
        let (shared, slot) = (&self.shared, &self.thread_slot.connection);
        let stream = slot.attach(stream);
        let lingers = BlockingIo::new(self, &shared.leader, &shared.server, slot, &stream).run(buffers);
        let counts_as_open = slot.detach();
        // The last handle: the socket closes here if the connection does not linger.
        if let Some(stream) = Arc::into_inner(stream).filter(|_| lingers) {
            lock(&shared.lingering).add(stream);
            shared.wake_supervisor();
        }
        if counts_as_open {
            shared.count_closed();
        }
        self.set_unblocked(true);
        tracing::trace!(thread = self.thread_slot.number, "closed");
    }

    /// Accepts a connection. If the backlog is empty, the leader waits for a connection; any other thread returns `None`.
    fn next_connection(&self) -> Option<TcpStream> {
        while !self.shared.server.shutdown.is_begun() {
            match self.shared.accept() {
                Ok(Some(stream)) => return Some(stream),
                Ok(None) | Err(_) if !self.leads() => return None,
                Ok(None) => {
                    if let Err(error) = self.shared.wait_for_listener() {
                        polyserve_core::throttled!(warn, %error, "cannot wait for connections");
                        thread::park_timeout(ACCEPT_BACKOFF);
                    }
                }
                Err(_) => {
                    let wake = (self.shared.wake.as_fd(), PollFlags::IN);
                    let _ = wait([wake], Some(Instant::now() + ACCEPT_BACKOFF), &mut Vec::new());
                }
            }
        }
        None
    }

    /// Becomes idle and waits for an assignment, at most for [`IDLE_TIMEOUT`]. Becomes the leader if there is none. Returns
    /// `None` if the thread is to end.
    fn next_assignment(&self) -> Option<Assignment> {
        self.set_unblocked(false);
        self.leads.set(false); // a leader comes here only at the end
        let mut table = lock(&self.shared.table);
        if table.closed || self.shared.server.shutdown.is_begun() {
            return None;
        }
        if !table.has_leader {
            table.has_leader = true;
            return Some(Assignment::Lead);
        }
        if table.idle.len() >= MAX_IDLE_THREADS {
            return None;
        }
        table.idle.push((Arc::clone(&self.thread_slot), thread::current()));
        drop(table);
        let deadline = Instant::now() + IDLE_TIMEOUT;
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if !remaining.is_zero() {
                thread::park_timeout(remaining);
            }
            let assignment = lock(&self.thread_slot.assignment).take();
            if assignment.is_some() {
                return assignment;
            }
            let mut table = lock(&self.shared.table);
            // Only an idle thread gets an assignment, under this lock. A thread that was removed from the idle threads has
            // one, or is to end.
            let Some(index) =
                table.idle.iter().position(|(thread_slot, _)| Arc::ptr_eq(thread_slot, &self.thread_slot))
            else {
                return lock(&self.thread_slot.assignment).take();
            };
            if Instant::now() >= deadline {
                table.idle.remove(index);
                return None;
            }
        }
    }

    fn set_unblocked(&self, unblocked: bool) {
        if self.is_unblocked.replace(unblocked) != unblocked {
            let change = if unblocked { AtomicUsize::fetch_add } else { AtomicUsize::fetch_sub };
            change(&self.shared.unblocked, 1, Ordering::Relaxed);
        }
    }
}

impl LeaderRole for ConnectionThread {
    fn leads(&self) -> bool {
        self.leads.get()
    }

    fn promote_new_leader(&self) {
        self.set_unblocked(false);
        if self.leads.replace(false) {
            self.shared.promote();
        }
    }
}

impl Drop for ConnectionThread {
    fn drop(&mut self) {
        if self.thread_slot.connection.detach() {
            self.shared.count_closed();
        }
        self.promote_new_leader();
        lock(&self.shared.table).ended.push(self.thread_slot.number);
        self.shared.wake_supervisor();
    }
}
