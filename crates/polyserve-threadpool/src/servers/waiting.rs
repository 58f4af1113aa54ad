//! Waiting for sockets with `poll(2)`, and for a shutdown among them.

use std::io::{self, PipeReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use polyserve_core::{ServerConfig, Service, Shutdown, net};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::desk::House;

/// After the shutdown's deadline, threads that are not in foreign code end within this.
pub(super) const LAST_GRACE: Duration = Duration::from_millis(500);

/// How long an accept loop rests when the system has no descriptor or memory left.
pub(super) const ACCEPT_REST: Duration = Duration::from_millis(50);

/// What a server that accepts by itself opens with.
pub(super) struct Opening {
    /// It does not block.
    pub(super) listener: TcpListener,
    pub(super) local_addr: SocketAddr,
    pub(super) house: Arc<House>,
    /// Becomes readable, for good, once the shutdown has begun.
    pub(super) wake: PipeReader,
}

impl Opening {
    pub(super) fn new(addr: SocketAddr, config: &ServerConfig, service: Arc<dyn Service>) -> io::Result<Self> {
        let listener = net::listen(addr, config)?;
        listener.set_nonblocking(true)?;
        let local_addr = listener.local_addr()?;
        let house = Arc::new(House::new(service, config));
        let wake = wake_on_begin(&house.shutdown)?;
        Ok(Self { listener, local_addr, house, wake })
    }
}

/// Something that goes wrong again and again, and is logged once a second at the most. Cost: a clock and a swap.
#[derive(Debug)]
pub(super) struct Complaint {
    start: Instant,
    /// Seconds since the start of when it was logged last, plus one; 0 before.
    last: AtomicU64,
}

impl Complaint {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), last: AtomicU64::new(0) }
    }

    /// Whether it is to be logged now; then not again within this second.
    pub(super) fn is_due(&self) -> bool {
        self.is_due_after(self.start.elapsed())
    }

    fn is_due_after(&self, elapsed: Duration) -> bool {
        let now = elapsed.as_secs() + 1;
        self.last.swap(now, Ordering::Relaxed) != now
    }
}

/// A pipe that becomes readable, for good, once the shutdown has begun.
fn wake_on_begin(shutdown: &Shutdown) -> io::Result<PipeReader> {
    let (reader, writer) = io::pipe()?;
    shutdown.on_begin(move || {
        // A pipe that is full is readable already.
        let _ = (&writer).write(&[1]);
    });
    Ok(reader)
}

/// The connections that wait to be accepted when a drain begins; the listener is closed after them. Clients that
/// connect again and again cannot draw it out: no more are taken than could wait at once.
pub(super) fn last_guests(listener: TcpListener, house: &House) -> Vec<TcpStream> {
    let mut guests = Vec::new();
    for _ in 0..house.config.backlog {
        match listener.accept() {
            Ok((stream, _)) => guests.push(stream),
            Err(error) if net::is_connection_error(&error) => {}
            Err(_) => break,
        }
    }
    drop(listener);
    guests
}

/// Waits until one of `sockets` is ready for what it is asked, or `deadline` has passed; says which are. Interrupted, it
/// says that none is.
pub(super) fn wait<'fd>(
    sockets: impl IntoIterator<Item = (BorrowedFd<'fd>, PollFlags)>,
    deadline: Option<Instant>,
    ready: &mut Vec<bool>,
) -> io::Result<()> {
    let mut polled: Vec<_> = sockets.into_iter().map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)).collect();
    let timeout = deadline.map(|deadline| timespec(deadline.saturating_duration_since(Instant::now())));
    match rustix::event::poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    ready.clear();
    ready.extend(polled.iter().map(|fd| !fd.revents().is_empty()));
    Ok(())
}

/// Rounded up to a millisecond, so that a wait never ends just before its time.
fn timespec(duration: Duration) -> Timespec {
    let rounded = duration.saturating_add(Duration::from_millis(1));
    Timespec {
        tv_sec: i64::try_from(rounded.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(rounded.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While descriptors were out, each of twenty attempts a second was logged.
    #[test]
    fn a_complaint_is_made_once_a_second() {
        let complaint = Complaint::new();
        let due = |millis| complaint.is_due_after(Duration::from_millis(millis));
        assert_eq!([0, 50, 999, 1000, 1050, 3000].map(due), [true, false, false, true, false, true]);
    }
}
