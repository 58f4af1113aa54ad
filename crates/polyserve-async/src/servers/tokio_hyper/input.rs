//! Whether hyper has input that belongs to no request yet.
//!
//! hyper does not report the end of a request in its input. Idle timeout, eviction and drain need to know whether a further
//! request has begun. This file answers that without a second parser, from two facts:
//!
//! * hyper waits for input only after it has passed on every complete head. So if it waits, and its input ends with an empty
//!   line, nothing is left.
//! * A head that is written as most clients do has a known length: one space after each colon, and nothing else.
//!
//! If neither decides, the connection takes hyper apart and looks at the rest, which is rare: see
//! [`Input::nothing_follows`].
//!
//! Cost: a few comparisons for each read, and an addition for each field of a head.

use polyserve_core::Headers;
use polyserve_serving::http1::decode::RequestLine;

/// The input since hyper was last known to have no rest.
#[derive(Debug)]
pub(super) struct Input {
    /// The number of bytes that hyper has read.
    read: u64,
    /// The number of bytes of the requests that hyper has passed on, as most clients write them.
    used: u64,
    /// The last three bytes.
    tail: [u8; 3],
    /// Only empty lines were read.
    pub(super) is_blank: bool,
}

impl Input {
    /// No input.
    pub(super) const NONE: Self = Self { read: 0, used: 0, tail: [0; 3], is_blank: true };

    /// Adds bytes that hyper reads.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        self.read = self.read.saturating_add(bytes.len() as u64);
        for byte in bytes.last_chunk::<3>().map_or(bytes, <[u8; 3]>::as_slice) {
            let [_, second, third] = self.tail;
            self.tail = [second, third, *byte];
        }
        self.is_blank = self.is_blank && bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n'));
    }

    /// Adds a request that hyper has passed on, with a body of `body` bytes.
    pub(super) fn passed_on(&mut self, line: &RequestLine<'_>, headers: Headers<'_>, body: u64) {
        const LINE: usize = "  HTTP/1.1\r\n\r\n".len();
        let fields = headers.iter().map(|(name, value)| name.len() + ": \r\n".len() + value.len());
        let head = LINE + line.method.len() + line.target.len() + fields.sum::<usize>();
        self.used = self.used.saturating_add(head as u64).saturating_add(body);
    }

    /// Whether all input is known to belong to requests that hyper has passed on. `waits`: hyper has no request, and waits for
    /// input. Then false means unknown.
    pub(super) fn nothing_follows(&self, waits: bool) -> bool {
        let ends_with_empty_line = matches!(self.tail, [_, b'\n', b'\n'] | [b'\n', b'\r', b'\n']);
        self.is_blank || self.read == self.used || (waits && ends_with_empty_line)
    }

    /// The number of bytes that belong to no request, if clients write heads as most do.
    pub(super) fn rest(&self) -> u64 {
        self.read.saturating_sub(self.used)
    }
}
