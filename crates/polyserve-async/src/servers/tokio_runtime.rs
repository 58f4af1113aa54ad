//! tokio, as a [`Runtime`]. It watches sockets edge-triggered: a read that did not fill its buffer is not repeated, for
//! what comes later is a new edge.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::runtime::Handle;

use super::runtime::{Direction, Moved, Runtime, Watched};

/// A tokio runtime.
#[derive(Clone, Debug)]
pub(crate) struct Tokio(pub(crate) Handle);

impl Runtime for Tokio {
    type Watched = TcpStream;

    fn watch(socket: std::net::TcpStream) -> io::Result<TcpStream> {
        TcpStream::from_std(socket)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.0.spawn(task));
    }
}

impl Watched for TcpStream {
    fn poll_io(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        mut attempt: impl FnMut() -> io::Result<Moved>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let interest = match direction {
                Direction::Read => {
                    ready!(self.poll_read_ready(cx))?;
                    Interest::READABLE
                }
                Direction::Write => {
                    ready!(self.poll_write_ready(cx))?;
                    Interest::WRITABLE
                }
            };
            let mut moved = None;
            let tried = self.try_io(interest, || {
                let Moved { count, drained } = attempt()?;
                moved = Some(count);
                // It is this error that makes tokio forget the readiness that the attempt was made with, and no later one.
                if drained { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            match (moved, tried) {
                (Some(count), _) => return Poll::Ready(Ok(count)),
                (None, Err(error)) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Poll::Ready(Err(error));
                }
                (None, _) => {}
            }
        }
    }
}
