//! The few system calls of polyserve that no maintained safe wrapper offers, behind a safe API. The one home of
//! `unsafe` in the workspace: every block is argued.

use std::io;
use std::net::TcpListener;
use std::time::Duration;

/// Asks the kernel to hand a connection over only when its first byte is there, or after about `timeout` (whole
/// seconds, rounded up). Source: `tcp(7)`, `TCP_DEFER_ACCEPT`.
///
/// # Errors
///
/// Where the system call fails, or the system has no such option.
#[cfg(target_os = "linux")]
pub fn defer_accept(listener: &TcpListener, timeout: Duration) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    let whole = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
    let seconds = libc::c_int::try_from(whole.max(1)).unwrap_or(libc::c_int::MAX);
    let length = libc::socklen_t::try_from(size_of_val(&seconds)).expect("an int's size fits");
    // SAFETY: the descriptor is open, for `listener` is borrowed; the pointer and the length describe `seconds`, which
    // lives until the call returns, and the kernel only reads from it.
    let result = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            length,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Always an error: deferred accept is Linux's.
///
/// # Errors
///
/// [`io::ErrorKind::Unsupported`].
#[cfg(not(target_os = "linux"))]
pub fn defer_accept(_listener: &TcpListener, _timeout: Duration) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "deferred accept needs Linux"))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpStream;

    #[test]
    fn a_silent_connection_is_not_handed_over() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        defer_accept(&listener, Duration::from_secs(60)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let addr = listener.local_addr().unwrap();
        let _silent = TcpStream::connect(addr).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let mut talking = TcpStream::connect(addr).unwrap();
        talking.write_all(b"x").unwrap();
        listener.set_nonblocking(false).unwrap();
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(peer, talking.local_addr().unwrap());
    }
}
