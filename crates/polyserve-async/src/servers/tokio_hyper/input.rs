//! Whether hyper has input that belongs to no request yet.
//!
//! hyper does not report the end of a request in its input. Idle timeout, eviction and drain need to know whether a further
//! request has begun. This file answers that without a second parser, from two facts:
//!
//! * hyper waits for input only after it has passed on every complete head. So if it waits, and its input ends with an empty
//!   line, nothing is left.
//! * The first head of the input ends at the first empty line. So if it came with one read, the end of its request is known.
//!
//! If neither decides, the connection takes hyper apart and looks at the rest, which is rare: see
//! [`Input::nothing_follows`].
//!
//! A head that is written as most clients do has a known length: one space after each colon, and nothing else. So a further request
//! is expected to end there. This decides whether an answer announces a close, and nothing else: a client may write its heads
//! otherwise.
//!
//! Cost: a few comparisons for each read, a search for the end of the first head, and an addition for each field of a head.

use polyserve_core::Headers;
use polyserve_serving::http1::decode::RequestLine;

/// The input since hyper was last known to have no rest.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// The number of bytes that hyper has read.
    read: u64,
    /// The number of bytes of the requests that hyper has passed on.
    used: u64,
    /// `used` is the number if clients write heads as most do. Otherwise it is exact.
    is_estimated: bool,
    /// The length of the first head, if the first read had it all, and hyper has not passed it on.
    first_head: Option<u64>,
    /// The last three bytes.
    tail: [u8; 3],
    /// More than empty lines were read.
    pub(super) has_text: bool,
}

impl Input {
    /// Adds bytes that hyper reads.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        if self.read == 0 {
            self.first_head = head_len(bytes);
        }
        self.read = self.read.saturating_add(bytes.len() as u64);
        for byte in bytes.last_chunk::<3>().map_or(bytes, <[u8; 3]>::as_slice) {
            let [_, second, third] = self.tail;
            self.tail = [second, third, *byte];
        }
        self.has_text = self.has_text || bytes.iter().any(|byte| !matches!(byte, b'\r' | b'\n'));
    }

    /// Adds a request that hyper has passed on, with a body of `body` bytes.
    pub(super) fn passed_on(&mut self, line: &RequestLine<'_>, headers: Headers<'_>, body: u64) {
        if let Some(head) = self.first_head.take() {
            self.used = head.saturating_add(body);
            return;
        }
        self.is_estimated = true;
        const LINE: usize = "  HTTP/1.1\r\n\r\n".len();
        let fields = headers.iter().map(|(name, value)| name.len() + ": \r\n".len() + value.len());
        let head = LINE + line.method.len() + line.target.len() + fields.sum::<usize>();
        self.used = self.used.saturating_add(head as u64).saturating_add(body);
    }

    /// Whether all input belongs to requests that hyper has passed on. `waits`: hyper has no request, and waits for input. Then true
    /// is certain, and false means unknown. Otherwise it is an expectation.
    pub(super) fn nothing_follows(&self, waits: bool) -> bool {
        let ends_with_empty_line = matches!(self.tail, [_, b'\n', b'\n'] | [b'\n', b'\r', b'\n']);
        let all_is_used = self.read == self.used && !(self.is_estimated && waits);
        !self.has_text || all_is_used || (waits && ends_with_empty_line)
    }

    /// The number of bytes that belong to no request, if clients write heads as most do.
    pub(super) fn rest(&self) -> u64 {
        self.read.saturating_sub(self.used)
    }
}

/// Returns the length of the head at the start of `bytes`: its first empty line ends it. `None` if it is not complete, or if empty
/// lines precede it.
fn head_len(bytes: &[u8]) -> Option<u64> {
    if matches!(bytes.first(), Some(b'\r' | b'\n')) {
        return None;
    }
    let after_line = |at: usize| match bytes.get(at + 1..)? {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    };
    memchr::memchr_iter(b'\n', bytes).find_map(after_line).map(|length| length as u64)
}
