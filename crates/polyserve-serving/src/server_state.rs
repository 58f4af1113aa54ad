//! The opening of a server, the state that all threads of one run share, and the wait for an answer.
//!
//! Cost: an addition for each batch of answers. [`ServerState::is_over`] is one load until a shutdown has begun.

use std::cell::RefCell;
use std::io::{self, PipeReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::http::StatusCode;
use polyserve_core::sync::thread::JoinHandle;
use polyserve_core::sync::{Mutex, lock};
use polyserve_core::{
    AnswerReport, Counters, Drain, HandshakeFailure, ListenOn, ServerConfig, Service, Shutdown, ThreadRegistration,
    park_until,
};

use crate::answer_count::{AnswerCount, AnswerCounter};
use crate::http1::{HttpState, Session, TimeLimit};
use crate::{EVICTION_GRACE, PeerLimit, net};

/// The time after the shutdown's deadline within which all threads end that are not in the service's code.
pub const SHUTDOWN_SLACK: Duration = Duration::from_millis(500);

/// The state that all threads of one run of a server share.
#[derive(Debug)]
pub struct ServerState {
    /// The service, and the limits of the codec.
    pub http: HttpState,
    /// The configuration of the run, with every limit.
    pub config: ServerConfig,
    /// The shutdown of the run.
    pub shutdown: Shutdown,
    /// The server was given its listener, which other processes may share.
    shares_listener: bool,
    /// The open connections of each client address.
    pub peers: Arc<PeerLimit>,
    answered: AnswerCount,
    cut: AtomicU64,
    rejected: AtomicU64,
    rejected_queue: AtomicU64,
    panics: AtomicU64,
    handshakes: AtomicU64,
    /// By [`HandshakeFailure`].
    failed_handshakes: [AtomicU64; HandshakeFailure::ALL.len()],
    drain_pipe: OnceLock<PipeReader>,
    making_drain_pipe: Mutex<()>,
}

impl ServerState {
    /// The state of a run that has not answered any request.
    pub fn new(service: Arc<dyn Service>, config: &ServerConfig) -> Self {
        Self {
            http: HttpState::new(service, config),
            config: config.clone(),
            shutdown: Shutdown::new(),
            shares_listener: false,
            peers: PeerLimit::new(config),
            answered: AnswerCount::default(),
            cut: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            rejected_queue: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            handshakes: AtomicU64::new(0),
            failed_handshakes: std::array::from_fn(|_| AtomicU64::new(0)),
            drain_pipe: OnceLock::new(),
            making_drain_pipe: Mutex::new(()),
        }
    }

    /// Notes what the server listens on. A listener that was given is never shut down, because other processes may share it.
    #[must_use]
    pub fn listening_on(self, on: &ListenOn) -> Self {
        Self { shares_listener: matches!(on, ListenOn::Listener(_)), ..self }
    }

    pub(crate) fn shares_listener(&self) -> bool {
        self.shares_listener
    }

    /// Returns a pipe that becomes readable when the shutdown begins, and stays readable. A thread that waits with
    /// `poll(2)` adds it to the sockets that it waits for.
    ///
    /// # Errors
    ///
    /// Returns an error if the process has no descriptor left.
    pub fn wake_pipe(&self) -> io::Result<PipeReader> {
        let (reader, writer) = io::pipe()?;
        self.shutdown.on_begin(move || {
            // A pipe that is full is readable already.
            let _ = (&writer).write(&[1]);
        });
        Ok(reader)
    }

    /// Returns a descriptor that is readable once a shutdown has begun. All threads share it. Returns `None` if the process has no
    /// descriptor left for it.
    pub(crate) fn drain_fd(&self) -> Option<BorrowedFd<'_>> {
        if self.drain_pipe.get().is_none() {
            // The writing end of a pipe lives as long as the run, so only one is made.
            let _one = lock(&self.making_drain_pipe);
            if self.drain_pipe.get().is_none()
                && let Ok(pipe) = self.wake_pipe()
            {
                let _ = self.drain_pipe.set(pipe);
            }
        }
        self.drain_pipe.get().map(PipeReader::as_fd)
    }

    /// Adds the answers, the panics and the rejection of a session since the last call.
    #[inline]
    pub fn count(&self, session: &mut Session) {
        self.count_by(session, |answered| self.answered.add(answered));
    }

    /// Like [`count`](Self::count), for the thread that has this counter.
    #[inline]
    pub(crate) fn count_own(&self, session: &mut Session, counter: &mut AnswerCounter) {
        self.count_by(session, |answered| self.answered.add_own(answered, counter));
    }

    #[inline]
    fn count_by(&self, session: &mut Session, add: impl FnOnce(u64)) {
        let answered = session.take_answered();
        if answered > 0 {
            add(answered);
        }
        if session.has_failures() {
            self.count_failures(session);
        }
    }

    #[cold]
    fn count_failures(&self, session: &mut Session) {
        if session.take_rejected() {
            self.rejected.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(panics) = session.take_panics() {
            self.panics.fetch_add(u64::from(panics.count), Ordering::Relaxed);
            panics.log(&self.http.failures);
        }
    }

    /// Counts a panic of the service. [`count`](Self::count) counts those that a session has caught.
    pub fn count_panic(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that is rejected because the queue of the server is full, next to what [`reject`](crate::reject) counts.
    pub fn count_full_queue(&self) {
        self.rejected_queue.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a TLS handshake that has succeeded.
    pub fn count_handshake(&self) {
        self.handshakes.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a TLS handshake that has failed. Reports it if the server has refused it: `alert` is the number of bytes that the client
    /// gets, and `peer` the address of the client.
    pub fn count_failed_handshake(&self, failure: HandshakeFailure, peer: Option<SocketAddr>, alert: usize) {
        self.failed_handshakes[failure as usize].fetch_add(1, Ordering::Relaxed);
        if let Some(status) = failure.reported_status() {
            self.report_alert(status, peer, alert);
        }
    }

    /// Reports what was refused without an answer.
    pub(crate) fn report_alert(&self, status: StatusCode, peer: Option<SocketAddr>, alert: usize) {
        if let Some(hook) = &self.http.on_answer {
            hook.call(&AnswerReport::new(status, alert, None, peer));
        }
    }

    /// Returns the counters of a run with `open` open connections, for [`Running::start`](polyserve_core::Running::start).
    pub fn counters(&self, open: usize) -> Counters {
        let mut counters = Counters::default();
        counters.open = open as u64;
        counters.answered = self.answered.sum();
        counters.rejected = self.rejected.load(Ordering::Relaxed);
        counters.rejected_peers = self.peers.refused();
        counters.rejected_queue = self.rejected_queue.load(Ordering::Relaxed);
        counters.panics = self.panics.load(Ordering::Relaxed);
        let memory = &self.http.memory;
        (counters.reserved_bytes, counters.memory_limit) = (memory.reserved() as u64, memory.limit() as u64);
        counters.memory_refused = memory.refused();
        counters.handshakes = self.handshakes.load(Ordering::Relaxed);
        counters.failed_handshakes =
            HandshakeFailure::ALL.map(|failure| self.failed_handshakes[failure as usize].load(Ordering::Relaxed));
        counters.overload_refused = self.http.admission.as_ref().map_or([0; 2], |admission| admission.refused());
        counters
    }

    /// Adds to the number of answers. An answer counts when the kernel has accepted its last byte.
    #[inline]
    pub fn count_answered(&self, answered: u64) {
        if answered > 0 {
            self.answered.add(answered);
        }
    }

    /// Counts a request as cut.
    pub fn count_cut(&self) {
        self.cut.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the result of a run, of which `stuck` threads are stuck in the service's code.
    pub fn drained(&self, stuck: usize) -> Drain {
        Drain::new(self.answered.sum(), self.cut.load(Ordering::Relaxed), stuck as u64)
    }

    /// Joins threads that have no work left, at the end of a run. Leaves those behind that have not ended [`SHUTDOWN_SLACK`] after the
    /// shutdown's deadline: the destructors of a service's thread-locals may take any time. Returns the results of the others.
    pub fn join(&self, threads: Vec<JoinHandle<()>>) -> Vec<thread::Result<()>> {
        let now = Instant::now();
        let deadline = self.shutdown.deadline().map_or(now, |deadline| deadline.max(now));
        join_until(threads, deadline + SHUTDOWN_SLACK)
    }

    /// Whether the shutdown's deadline has passed, so that work is to be cut.
    pub fn is_over(&self) -> bool {
        self.shutdown.deadline().is_some_and(|deadline| deadline <= Instant::now())
    }

    /// The time from which a drain closes a connection that was accepted at `accepted` and has not sent a byte: [`EVICTION_GRACE`] after
    /// the drain has begun and the connection was accepted, or the shutdown's deadline if that is earlier. Returns `None` if no
    /// shutdown has begun.
    pub fn silent_until(&self, accepted: Instant) -> Option<Instant> {
        Some(self.within(self.shutdown.begun_at()?.max(accepted) + EVICTION_GRACE))
    }

    /// Whether a drain closes a connection that was accepted at `accepted` and has not sent a byte.
    pub fn closes_silent(&self, accepted: Instant) -> bool {
        self.silent_until(accepted).is_some_and(|until| until <= Instant::now())
    }

    /// Returns `deadline`, or the shutdown's deadline if that is earlier.
    pub fn within(&self, deadline: Instant) -> Instant {
        self.shutdown.deadline().map_or(deadline, |cut| cut.min(deadline))
    }
}

/// Joins threads, at the latest until `deadline`. Leaves the others behind. Returns the results of the threads that were joined.
///
/// After its work, a thread still runs the destructors of its thread-locals. A service may have such a thread-local, and its destructor
/// may take any time. std joins without a limit, so another thread joins.
///
/// Cost: starts and ends a thread. If the system cannot start it, all threads are left behind.
#[cfg(not(any(polyserve_loom, polyserve_shuttle)))]
pub fn join_until(threads: Vec<JoinHandle<()>>, deadline: Instant) -> Vec<thread::Result<()>> {
    let (count, (sender, results)) = (threads.len(), std::sync::mpsc::channel());
    let joining = thread::Builder::new().name("join".into()).spawn(move || {
        for thread in threads {
            let _ = sender.send(thread.join()); // an error: the deadline has passed
        }
    });
    let left = || deadline.saturating_duration_since(Instant::now());
    let results: Vec<_> = (0..count).map_while(|_| results.recv_timeout(left()).ok()).collect();
    if results.len() == count {
        let _ = joining.map(JoinHandle::join); // it has nothing left to do
    }
    results
}

/// Joins threads. A model checker has no thread that does not end.
#[cfg(any(polyserve_loom, polyserve_shuttle))]
pub fn join_until(threads: Vec<JoinHandle<()>>, _deadline: Instant) -> Vec<thread::Result<()>> {
    threads.into_iter().map(JoinHandle::join).collect()
}

/// A server that is bound and does not serve yet.
#[derive(Debug)]
pub struct Bound {
    /// The listener. It does not block.
    pub listener: TcpListener,
    /// The bound address, with the real port.
    pub local_addr: SocketAddr,
    /// The state that all threads of the run share.
    pub server: ServerState,
}

/// Listens within the limits of `config`, and creates the state of a run that serves `service`.
///
/// # Errors
///
/// Returns the error of [`net::listen`].
pub fn bind(on: ListenOn, config: &ServerConfig, service: Arc<dyn Service>) -> io::Result<Bound> {
    let server = ServerState::new(service, config).listening_on(&on);
    let listener = net::listen(on, config)?;
    listener.set_nonblocking(true)?;
    let local_addr = listener.local_addr()?;
    Ok(Bound { listener, local_addr, server })
}

/// How a wait for an answer ended.
#[derive(Debug)]
pub enum WaitOutcome {
    /// The answer is there.
    Here,
    /// The answer timeout has passed.
    TimedOut,
    /// The shutdown's deadline has passed.
    Cut,
}

thread_local! {
    /// The registration of this thread with the shutdown of the server that it served last.
    static REGISTRATION: RefCell<Option<ThreadRegistration>> = const { RefCell::new(None) };
}

/// Registers this thread with `shutdown`, if it is not registered yet.
fn register(shutdown: &Shutdown) {
    let _ = REGISTRATION.try_with(|registration| {
        let mut registration = registration.borrow_mut();
        if !registration.as_ref().is_some_and(|registration| registration.belongs_to(shutdown)) {
            *registration = Some(shutdown.register_thread());
        }
    });
}

/// Parks this thread until the answer that `poll_answer` polls is there.
///
/// # Cost
///
/// No lock except that of the answer, and one at the first wait of a thread: it registers the thread, so that a shutdown
/// unparks the thread.
pub fn wait_for_answer(server: &ServerState, mut poll_answer: impl FnMut(&mut Context<'_>) -> Poll<()>) -> WaitOutcome {
    let timeout = Instant::now() + TimeLimit::Answer.of(&server.config);
    register(&server.shutdown);
    loop {
        let draining = server.shutdown.is_begun();
        let deadline = server.within(timeout);
        let woken = park_until(Some(deadline), |cx| match poll_answer(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            // A drain may have begun since its deadline was read, so the loop starts again. A drain that
            // begins after this check unparks the thread.
            Poll::Pending if !draining && server.shutdown.is_begun() => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        });
        match woken {
            Some(true) => return WaitOutcome::Here,
            Some(false) => {}
            None if server.is_over() => return WaitOutcome::Cut,
            None if Instant::now() >= timeout => return WaitOutcome::TimedOut,
            None => {}
        }
    }
}

#[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};

    use polyserve_core::http::StatusCode;
    use polyserve_core::{Answer, Completer, Reply, Request, promise};

    use super::*;
    use crate::ThreadBuffers;

    const MAX_WAIT: Duration = Duration::from_secs(60);

    /// Sends the completer of each answer.
    struct Promises(Mutex<Sender<Completer<Reply>>>);

    impl Service for Promises {
        fn call(&self, _: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
            let (completer, answer) = promise(Reply::empty(StatusCode::INTERNAL_SERVER_ERROR));
            self.0.lock().unwrap().send(completer).unwrap();
            answer
        }
    }

    /// Waits for an answer, as a server does.
    fn ask(server: &ServerState) -> WaitOutcome {
        let (mut session, mut buffers) = (Session::new(), ThreadBuffers::new());
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let _ = session.receive(request, &mut server.http.turn(&mut buffers.http));
        wait_for_answer(server, |cx| session.poll_answer(cx))
    }

    /// Regression test: each wait took a lock that all threads share, twice.
    #[test]
    fn a_wait_takes_no_lock_of_the_shutdown() {
        let (sender, completers) = channel();
        let (server, (outcome, outcomes)) =
            (ServerState::new(Arc::new(Promises(Mutex::new(sender))), &ServerConfig::default()), channel());
        std::thread::scope(|scope| {
            let (trigger, triggers) = channel();
            scope.spawn(|| {
                for () in triggers {
                    outcome.send(matches!(ask(&server), WaitOutcome::Here)).unwrap();
                }
            });
            trigger.send(()).unwrap();
            completers.recv_timeout(MAX_WAIT).unwrap().complete(Reply::empty(StatusCode::OK)).unwrap();
            assert!(outcomes.recv_timeout(MAX_WAIT).unwrap());
            let ended = server.shutdown.while_locked(|| {
                trigger.send(()).unwrap();
                completers.recv_timeout(MAX_WAIT).unwrap().complete(Reply::empty(StatusCode::OK)).unwrap();
                outcomes.recv_timeout(MAX_WAIT)
            });
            drop(trigger);
            assert_eq!(ended, Ok(true));
        });
    }

    #[test]
    fn a_drain_wakes_a_thread_that_waits() {
        let (sender, completers) = channel();
        let server = ServerState::new(Arc::new(Promises(Mutex::new(sender))), &ServerConfig::default());
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let waiting = scope.spawn(|| ask(&server));
                let completer = completers.recv_timeout(MAX_WAIT).unwrap();
                server.shutdown.begin(Instant::now());
                assert!(matches!(waiting.join().unwrap(), WaitOutcome::Cut));
                drop(completer);
            }
        });
    }
}
