//! The few system calls and one instruction of polyserve that no maintained safe wrapper offers, behind a safe API. The one
//! home of `unsafe` in the workspace: every block is argued.

use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::time::Duration;

/// Asks the kernel to hand a connection over only when its first byte is there, or after about `timeout` (whole
/// seconds, rounded up). Source: `tcp(7)`, `TCP_DEFER_ACCEPT`.
///
/// # Errors
///
/// Where the system call fails, or the system has no such option.
#[cfg(target_os = "linux")]
pub fn defer_accept(listener: &TcpListener, timeout: Duration) -> io::Result<()> {
    let whole = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
    let seconds = libc::c_int::try_from(whole.max(1)).unwrap_or(libc::c_int::MAX);
    set_int(listener, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds)
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

/// Asks the kernel to call `socket` readable only when at least `bytes` are there to be read. 1 is what a socket begins
/// with; 0 means 1, and the kernel bounds it by half of the largest receive buffer. An end of the input, an error, and a
/// buffer that is full make it readable all the same. Who watches it already is told where enough is there now. Source:
/// `socket(7)`, `SO_RCVLOWAT`, which `select`, `poll` and `epoll` heed since Linux 2.6.28.
///
/// # Errors
///
/// Where the system call fails, or the system's pollers are not known to heed the option.
#[cfg(target_os = "linux")]
pub fn set_receive_low_water(socket: impl AsFd, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set_int(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)
}

/// Always an error: what the option does to pollers is known of Linux.
///
/// # Errors
///
/// [`io::ErrorKind::Unsupported`].
#[cfg(not(target_os = "linux"))]
pub fn set_receive_low_water(_socket: impl AsFd, _bytes: usize) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "a low-water mark for pollers needs Linux"))
}

/// Asks the processor to fetch the cache line at `address`, and does not wait for it. A hint: any address will do, for one
/// that is not mapped is not fetched, and nothing is read or written that the program could see. Nothing happens on
/// processors other than x86-64. Source: Intel's and AMD's manuals, `PREFETCHT0`.
#[inline(always)]
pub fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction is of SSE, which every x86-64 has; it takes any address, and faults at none.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Sets an option whose value is an int.
#[cfg(target_os = "linux")]
fn set_int(socket: impl AsFd, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    let length = libc::socklen_t::try_from(size_of_val(&value)).expect("an int's size fits");
    // SAFETY: the descriptor is open, for it is borrowed; the pointer and the length describe `value`, which lives until
    // the call returns, and the kernel only reads from it.
    let result =
        unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, (&raw const value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
    use std::io::Write;
    use std::net::{Shutdown, TcpStream};

    const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
    const NONE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

    /// Wherever nothing is, nothing happens.
    #[test]
    fn any_address_can_be_fetched() {
        let here = 1_u8;
        prefetch(&raw const here);
        prefetch(std::ptr::null::<u8>());
        prefetch(std::ptr::without_provenance::<u64>(usize::MAX));
    }

    /// Both ends of a connection.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sending = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (sending, listener.accept().unwrap().0)
    }

    /// Sends `text`, and waits until it is all there.
    fn deliver(mut sending: &TcpStream, receiving: &TcpStream, text: &[u8]) {
        sending.write_all(text).unwrap();
        let mut buffer = vec![0; text.len()];
        while receiving.peek(&mut buffer).unwrap() < text.len() {}
    }

    fn is_readable_within(socket: &TcpStream, timeout: &Timespec) -> bool {
        poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(timeout)).unwrap() == 1
    }

    #[test]
    fn a_socket_below_its_mark_is_not_readable() {
        let (mut sending, receiving) = pair();
        deliver(&sending, &receiving, b"ab");
        assert!(is_readable_within(&receiving, &NONE));
        set_receive_low_water(&receiving, 3).unwrap();
        assert!(!is_readable_within(&receiving, &NONE));
        sending.write_all(b"c").unwrap();
        assert!(is_readable_within(&receiving, &PATIENCE));
    }

    #[test]
    fn an_end_is_seen_below_the_mark() {
        let (sending, receiving) = pair();
        deliver(&sending, &receiving, b"ab");
        set_receive_low_water(&receiving, 3).unwrap();
        sending.shutdown(Shutdown::Write).unwrap();
        assert!(is_readable_within(&receiving, &PATIENCE));
    }

    /// Who watches edges, as tokio does, would else never hear of what came below a mark that is lowered then.
    #[test]
    fn a_lowered_mark_is_an_edge_where_enough_is_there() {
        let (sending, receiving) = pair();
        deliver(&sending, &receiving, b"ab");
        set_receive_low_water(&receiving, 3).unwrap();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let (data, flags) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN | epoll::EventFlags::ET);
        epoll::add(&epoll, &receiving, data, flags).unwrap();
        let wait = |timeout| {
            let mut events = Vec::with_capacity(1);
            epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(timeout)).unwrap()
        };
        assert_eq!(wait(&NONE), 0);
        set_receive_low_water(&receiving, 2).unwrap();
        assert_eq!(wait(&PATIENCE), 1);
        assert_eq!(wait(&NONE), 0, "it is an edge");
        set_receive_low_water(&receiving, 1).unwrap();
        assert_eq!(wait(&PATIENCE), 1, "and again");
    }

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
