//! Which of the servers runs here.

use std::sync::Once;

use crate::IoUring;

/// Returns the name of the server to take on this system: `io_uring` if the kernel has it and nothing forbids it, else `epoll`. Then it
/// logs once what is missing.
///
/// # Cost
///
/// That of [`IoUring::check`].
pub fn available() -> &'static str {
    static LOGGED: Once = Once::new();
    let Err(error) = IoUring::check() else { return "io_uring" };
    LOGGED.call_once(|| tracing::warn!(%error, "per_core is epoll, not io_uring"));
    "epoll"
}
