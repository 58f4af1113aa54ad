//! The loop of a thread that serves one connection from its first byte to its close.
//!
//! How such a thread waits differs between servers and is their [`Transport`].

use std::io;
use std::time::Instant;

use super::{ServerState, ThreadBuffers, WaitOutcome, wait_for_answer};
use crate::http1::{Phase, Session, Want};

/// A socket, as a thread that may wait uses it.
pub trait Transport {
    /// Reads some bytes, waiting until `deadline` at the latest. While the phase is idle, the connection may be told
    /// to leave.
    fn read(&mut self, buffer: &mut [u8], phase: Phase, deadline: Instant) -> io::Result<Read>;

    /// Writes until all is written, `deadline` has passed or the client is gone; says how much was written. `last`: the
    /// connection is closed next.
    fn write(&mut self, bytes: &[u8], last: bool, deadline: Instant) -> usize;

    /// The thread is about to wait for an answer that comes later.
    fn about_to_wait(&mut self) {}
}

/// What a read brought.
#[derive(Debug)]
pub enum Read {
    /// So many bytes.
    Bytes(usize),
    /// The client sends no more.
    End,
    /// The deadline.
    TimedOut,
    /// Nothing; a shutdown has begun meanwhile, with a deadline of its own.
    Again,
    /// The connection was idle, and its thread is wanted elsewhere.
    Leave,
}

/// Serves a connection to its end; says whether it must linger.
pub fn drive(transport: &mut impl Transport, server: &ServerState, buffers: &mut ThreadBuffers) -> bool {
    let mut session = Session::new();
    let mut want = session.want();
    let mut stage = session.stage();
    let mut deadline = Instant::now() + stage.1.timeout(&server.config);
    let linger = loop {
        let last = matches!(want, Want::Close { .. });
        if !buffers.scratch.out().is_empty() && !write(transport, &mut session, last, server, buffers) {
            server.abandon(&mut session);
            break false;
        }
        server.count(&mut session);
        match want {
            Want::Close { linger } => break linger,
            Want::Write => {}
            Want::Read(phase) => {
                if session.stage() != stage {
                    stage = session.stage();
                    deadline = Instant::now() + phase.timeout(&server.config);
                }
                match read(transport, &mut session, phase, deadline, server, buffers) {
                    Some(next) => want = next,
                    None => break false,
                }
                continue;
            }
            Want::Answer => {
                transport.about_to_wait();
                match wait_for_answer(&mut session, server) {
                    WaitOutcome::Here => {}
                    WaitOutcome::TimedOut => {
                        buffers.refresh(server);
                        want = session.time_out(&server.env, &mut buffers.scratch);
                        continue;
                    }
                    WaitOutcome::Cut => {
                        server.abandon(&mut session);
                        break false;
                    }
                }
            }
        }
        buffers.refresh(server);
        want = session.resume(&server.env, &mut buffers.scratch);
    };
    server.count(&mut session);
    linger
}

fn write(
    transport: &mut impl Transport,
    session: &mut Session,
    last: bool,
    server: &ServerState,
    buffers: &mut ThreadBuffers,
) -> bool {
    let out = buffers.scratch.out();
    let whole = out.len();
    let written = transport.write(out, last, Instant::now() + server.config.write_timeout);
    session.written(written, &mut buffers.scratch);
    written == whole
}

fn read(
    transport: &mut impl Transport,
    session: &mut Session,
    phase: Phase,
    deadline: Instant,
    server: &ServerState,
    buffers: &mut ThreadBuffers,
) -> Option<Want> {
    let read = transport.read(&mut buffers.input, phase, server.within(deadline));
    match read {
        Ok(Read::Bytes(count)) => Some(buffers.receive(count, session, server, false)),
        Ok(Read::End) if server.is_over() => {
            server.abandon(session); // it may be this side that ended it
            None
        }
        Ok(Read::End) => Some(session.end_of_input()),
        Ok(Read::TimedOut) if !server.is_over() => {
            buffers.refresh(server);
            Some(session.time_out(&server.env, &mut buffers.scratch))
        }
        Ok(Read::Again) => Some(session.want()),
        Ok(Read::Leave) => None,
        Ok(Read::TimedOut) | Err(_) => {
            server.abandon(session);
            None
        }
    }
}
