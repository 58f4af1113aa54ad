//! Which of the servers runs here.

use std::sync::OnceLock;

use crate::IoUring;

/// Returns the name of the server to take on this system: `io_uring` if the kernel has it and nothing forbids it, else `epoll`. Then it
/// logs once what is missing.
///
/// # Cost
///
/// The first call makes a ring, and drops it.
pub fn available() -> &'static str {
    static NAME: OnceLock<&str> = OnceLock::new();
    NAME.get_or_init(|| match IoUring::check() {
        Ok(()) => "io_uring",
        Err(error) => {
            tracing::warn!(%error, "per_core is epoll, not io_uring");
            "epoll"
        }
    })
}
