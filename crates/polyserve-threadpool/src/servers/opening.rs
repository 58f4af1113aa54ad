//! What a server that polls by itself opens with: a listener, and a pipe that tells of the shutdown.

use std::io::{self, PipeReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use polyserve_core::serving::ServerState;
use polyserve_core::{ServerConfig, Service, Shutdown, net};

/// What a server that accepts by itself opens with.
pub(super) struct Opening {
    /// It does not block.
    pub(super) listener: TcpListener,
    pub(super) local_addr: SocketAddr,
    pub(super) server: Arc<ServerState>,
    /// Becomes readable, for good, once the shutdown has begun.
    pub(super) wake: PipeReader,
}

impl Opening {
    pub(super) fn new(addr: SocketAddr, config: &ServerConfig, service: Arc<dyn Service>) -> io::Result<Self> {
        let listener = net::listen(addr, config)?;
        listener.set_nonblocking(true)?;
        let local_addr = listener.local_addr()?;
        let server = Arc::new(ServerState::new(service, config));
        let wake = wake_on_begin(&server.shutdown)?;
        Ok(Self { listener, local_addr, server, wake })
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
