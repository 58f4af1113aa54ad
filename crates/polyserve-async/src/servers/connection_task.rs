//! One connection as a task, from accept to close, on our codec and any runtime.
//!
//! This is the driver of a [`Connection`], which decides what is done next and how long it waits. The driver reads, writes and
//! waits on a socket of a runtime.
//!
//! The first read comes before the socket is registered with the runtime: usually the first request has arrived when its
//! connection is accepted. So a connection that is answered and closed at once is never registered.
//!
//! The buffers belong to the thread, so an idle connection has none.
//!
//! Invariant: a task that waits is woken by its socket, its answer, its deadline or a shutdown. After the process was stopped,
//! the runtime may not have reported the bytes in the socket. So at a deadline the socket is read without asking the runtime.
//!
//! Fairness: a poll is a turn. A task that has more to do yields, so that the runtime looks at its sockets before the task goes
//! on.
//!
//! Cost: a read and a write for each batch of requests; a clock read for each wait.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use polyserve_serving::http1::Session;
use polyserve_serving::net;
use polyserve_serving::{Connection, HasSent, ServerState, Step, ThreadBuffers, Turn, with_buffers};

use super::toolkit::{AdmitResult, AsyncSocket, ConnectionEntry, ConnectionRegistry, Direction, Transfer};

/// A connection that was accepted. Polling it serves the connection.
pub(crate) struct ConnectionTask<S: AsyncSocket> {
    registry: Arc<ConnectionRegistry<S>>,
    entry: Arc<ConnectionEntry<S>>,
    connection: Connection,
    waker: Option<Waker>,
}

impl<S: AsyncSocket> ConnectionTask<S> {
    /// Adds an accepted connection to the registry, and returns its task. Past `max_connections` the connection is
    /// [rejected](Self::reject).
    pub(crate) fn admit(registry: &Arc<ConnectionRegistry<S>>, stream: TcpStream, shard: usize) -> Option<Self> {
        match registry.admit(stream, shard) {
            AdmitResult::Serve(entry) => {
                let connection = Connection::new(Session::from_peer(entry.peer()));
                Some(Self { registry: Arc::clone(registry), entry, connection, waker: None })
            }
            rejected => Self::reject(registry, rejected),
        }
    }

    /// Sends a 503 on a connection that is not to be served. Returns a task that lets it linger, or `None` if the connection
    /// is closed because too many linger.
    pub(crate) fn reject(registry: &Arc<ConnectionRegistry<S>>, rejected: AdmitResult<S>) -> Option<Self> {
        match rejected {
            AdmitResult::Serve(entry) | AdmitResult::Reject(entry) => {
                // An error is ignored here: the task's next read returns an error too.
                let _ = entry.with_socket(|socket| send_rejection(&registry.server, socket));
                Some(Self::lingering(Arc::clone(registry), entry))
            }
            AdmitResult::Close(stream) => {
                // The kernel resets a connection that is closed with unread bytes.
                let _ = with_buffers(|buffers| net::receive(&stream, &mut buffers.input));
                let _ = send_rejection(&registry.server, stream.as_fd());
                None
            }
        }
    }

    /// The task of a connection that has sent its last answer, and that counts as lingering.
    pub(crate) fn lingering(registry: Arc<ConnectionRegistry<S>>, entry: Arc<ConnectionEntry<S>>) -> Self {
        Self { registry, entry, connection: Connection::lingering(), waker: None }
    }

    /// Serves a turn.
    fn run(&mut self, cx: &mut Context<'_>, buffers: &mut ThreadBuffers) -> Poll<()> {
        let Self { registry, entry, connection, waker } = self;
        if waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            entry.set_waker(cx.waker());
            *waker = Some(cx.waker().clone());
        }
        buffers.begin_turn();
        let mut turn = Turn { is_evicted: entry.is_evicted(), ..Turn::new(&registry.server, buffers) };
        let mut step = entry.calling(|| connection.begin_turn(&mut turn));
        loop {
            step = match step {
                Step::Read { past_report } => match read(registry, entry, cx, turn.buffers, past_report) {
                    Poll::Pending => connection.on_empty(&mut turn),
                    Poll::Ready(Ok(0)) => connection.on_end(&mut turn),
                    Poll::Ready(Ok(count)) => {
                        if !connection.is_lingering() {
                            entry.set_busy();
                            turn.is_evicted = entry.is_evicted();
                        }
                        entry.calling(|| connection.on_bytes(&mut turn, count))
                    }
                    Poll::Ready(Err(error)) if error.kind() == ErrorKind::Interrupted => step,
                    Poll::Ready(Err(_)) => connection.on_error(&mut turn),
                },
                Step::Write { last, past_report } => {
                    let is_new = connection.is_new_output();
                    let output = connection.output(turn.buffers);
                    match write(entry, cx, output, last, is_new, past_report) {
                        Poll::Pending => connection.on_blocked(&mut turn),
                        Poll::Ready(Ok(count)) if count > 0 => {
                            entry.calling(|| connection.on_written(&mut turn, count))
                        }
                        Poll::Ready(Err(error)) if error.kind() == ErrorKind::Interrupted => step,
                        Poll::Ready(_) => connection.on_error(&mut turn),
                    }
                }
                Step::Await => match entry.calling(|| connection.poll_answer(cx)) {
                    Poll::Ready(()) => entry.calling(|| connection.on_answer(&mut turn)),
                    Poll::Pending => connection.on_pending(&mut turn),
                },
                Step::Wait(_) => {
                    match connection.idle() {
                        Some(HasSent(has_sent)) => {
                            entry.set_idle(|| registry.idle_since(connection.waiting_since(), has_sent));
                        }
                        None if connection.is_lingering() => {} // it is quiet
                        None => entry.set_busy(),
                    }
                    registry.set_deadline(entry, connection.deadline());
                    break Poll::Pending;
                }
                Step::Yield => {
                    S::yield_turn(cx);
                    break Poll::Pending;
                }
                Step::Linger => {
                    let lingers = entry.with_socket(|socket| net::shutdown(socket, Shutdown::Write)).is_ok()
                        && registry.begin_linger(entry);
                    if lingers { connection.on_lingering(&mut turn) } else { Step::Close }
                }
                Step::Close => break Poll::Ready(()),
            };
        }
    }
}

/// Reads into the thread's buffer. If nothing is there, the socket is registered with the runtime. `past_report`: reads once
/// without asking the runtime.
fn read<S: AsyncSocket>(
    registry: &ConnectionRegistry<S>,
    entry: &ConnectionEntry<S>,
    cx: &mut Context<'_>,
    buffers: &mut ThreadBuffers,
    past_report: bool,
) -> Poll<io::Result<usize>> {
    let mut attempt = || {
        let count = entry.with_socket(|socket| net::receive(socket, &mut buffers.input))?;
        Ok(Transfer { count, drained: count < buffers.input.len() && count > 0 })
    };
    if past_report || entry.socket().is_none() {
        let tried = try_once(&mut attempt);
        if past_report || tried.is_ready() {
            return tried;
        }
        registry.register(entry)?;
    }
    match entry.socket() {
        Some(socket) => socket.poll_io(cx, Direction::Read, attempt),
        None => Poll::Ready(Err(ErrorKind::NotConnected.into())),
    }
}

/// Writes once. If the kernel takes nothing, the socket is registered with the runtime. `is_new`: the socket usually takes new
/// output, so the runtime is not asked. `past_report`: it is not asked at all.
fn write<S: AsyncSocket>(
    entry: &ConnectionEntry<S>,
    cx: &mut Context<'_>,
    output: &[u8],
    last: bool,
    is_new: bool,
    past_report: bool,
) -> Poll<io::Result<usize>> {
    let attempt = || {
        let count = entry.with_socket(|socket| net::send(socket, output, last))?;
        Ok(Transfer { count, drained: count < output.len() })
    };
    if is_new || past_report {
        let tried = try_once(attempt);
        if past_report || tried.is_ready() {
            return tried;
        }
    }
    entry.register()?;
    match entry.socket() {
        Some(socket) => socket.poll_io(cx, Direction::Write, attempt),
        None => Poll::Ready(Err(ErrorKind::NotConnected.into())),
    }
}

/// Makes one attempt, whether or not the runtime has reported the socket as ready. Returns `Pending`, and sets no waker, if
/// the attempt would block.
fn try_once(attempt: impl FnOnce() -> io::Result<Transfer>) -> Poll<io::Result<usize>> {
    match attempt() {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
        result => Poll::Ready(result.map(|transfer| transfer.count)),
    }
}

/// Sends a 503, counts it, and closes the writing side.
fn send_rejection(server: &ServerState, socket: BorrowedFd<'_>) -> io::Result<()> {
    with_buffers(|buffers| {
        buffers.refresh(server);
        let mut session = server.rejecting(socket);
        let _ = session.reject(&server.env, &mut buffers.scratch);
        let sent = net::send(socket, buffers.scratch.out(), true);
        session.written(*sent.as_ref().unwrap_or(&0), &mut buffers.scratch);
        server.abandon(&mut session);
        sent.and_then(|_| net::shutdown(socket, Shutdown::Write))
    })
}

impl<S: AsyncSocket> Future for ConnectionTask<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        with_buffers(|buffers| self.get_mut().run(cx, buffers))
    }
}

impl<S: AsyncSocket> Drop for ConnectionTask<S> {
    fn drop(&mut self) {
        let _ = self.connection.abandon(&self.registry.server); // a runtime that ends drops its tasks
        if self.connection.take_cut() {
            self.registry.count_cut(&self.entry);
        }
        self.registry.remove(&self.entry, self.connection.is_lingering());
    }
}

#[cfg(all(test, feature = "tokio"))]
mod tests;
