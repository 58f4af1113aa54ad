//! The low-water mark of a connection's socket: so many bytes must be there before its task is woken.
//!
//! While a body is awaited whole, and its length is known, a piece of it is of no use: the mark is what is missing, and
//! the kernel keeps the pieces until then. A wake-up is dear where memory that was left for a second is: hyper's connection
//! lies on four or five pages. An end of the input and errors wake the task all the same.
//!
//! Invariants: when hyper waits for the socket, the mark is at most what it has yet to read of the present request. hyper
//! asks the socket for more only when it has handed on all that it read, so what the service misses then is with the kernel
//! or still to come. Where hyper has not asked, the mark may be an older one: then hyper wakes itself and asks, and the mark
//! is set anew; the kernel looks at that moment whether enough is there. In every other wait it is 1. Cost: two system
//! calls for a body that is waited for, none for one that comes with its head.

use polyserve_core::net;

use super::line::Line;

/// No mark is higher: a receive buffer takes more than this, and a body that comes fast is read while it comes.
const HIGHEST: u64 = 16 * 1024;

/// What a socket begins with.
const LOWEST: u64 = 1;

/// One connection's present mark, in bytes.
pub(super) struct Mark(u64);

impl Mark {
    /// That of a new socket.
    pub(super) fn new() -> Self {
        Self(LOWEST)
    }

    /// Has the task woken when `missing` bytes are there, or [`HIGHEST`] of them.
    pub(super) fn await_bytes(&mut self, line: &Line, missing: u64) {
        let mark = missing.clamp(LOWEST, HIGHEST);
        // It fails only where the socket is gone, which hyper's next read is told.
        if self.0 != mark && line.place.with_socket(|socket| net::set_receive_low_water(socket, mark as usize)).is_ok()
        {
            self.0 = mark;
        }
    }

    /// Has the task woken by any byte.
    pub(super) fn lower(&mut self, line: &Line) {
        self.await_bytes(line, LOWEST);
    }
}
