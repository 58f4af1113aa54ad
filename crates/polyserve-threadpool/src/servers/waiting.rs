//! Waiting for sockets with `poll(2)`, and for a shutdown among them.

use std::io::{self, PipeReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyserve_core::serving::House;
use polyserve_core::{ServerConfig, Service, Shutdown, net};
use rustix::event::{PollFd, PollFlags, Timespec};

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

/// A pipe that becomes readable, for good, once the shutdown has begun.
fn wake_on_begin(shutdown: &Shutdown) -> io::Result<PipeReader> {
    let (reader, writer) = io::pipe()?;
    shutdown.on_begin(move || {
        // A pipe that is full is readable already.
        let _ = (&writer).write(&[1]);
    });
    Ok(reader)
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
