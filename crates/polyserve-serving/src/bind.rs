//! Opening a server: a listener that does not block, the state of the run, and a wake pipe.

use std::io::{self, PipeReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use polyserve_core::{ListenOn, ServerConfig, Service};

use super::ServerState;
use crate::net;

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

impl ServerState {
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
}
