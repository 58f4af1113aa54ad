//! How a connection's last answer leaves: together with the end of the connection.
//!
//! Bytes that are said to have more after them wait in the kernel for what comes next; where that is a close, or a
//! shutdown of the writing side, they leave in one segment with it. It saves a segment for each connection, which on a
//! short one is a fifth of what the server's core does, and the client a wake-up. What the kernel has taken it delivers,
//! with or without more.

use rustix::net::SendFlags;

/// The flags to send with. `last`: nothing but the connection's end follows.
pub(super) fn flags(last: bool) -> SendFlags {
    if last { SendFlags::NOSIGNAL | MORE } else { SendFlags::NOSIGNAL }
}

#[cfg(target_os = "linux")]
const MORE: SendFlags = SendFlags::MORE;
#[cfg(not(target_os = "linux"))]
const MORE: SendFlags = SendFlags::empty();
