//! A safe API for the system calls and the instruction that no maintained crate wraps safely, and for a cast that std does not offer.
//! This is the only crate of the workspace with `unsafe` code. Every block states why it is sound.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(all(feature = "io-uring", target_os = "linux"))]
pub mod ring;

use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::slice;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Sets a listener to accept a connection only after its first byte has arrived, or after about `timeout`, rounded up to
/// whole seconds. Source: `tcp(7)`, `TCP_DEFER_ACCEPT`.
///
/// # Errors
///
/// Returns an error if the system call fails, or if the system does not have the option.
#[cfg(target_os = "linux")]
pub fn defer_accept(listener: &TcpListener, timeout: Duration) -> io::Result<()> {
    let rounded_up = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
    let seconds = libc::c_int::try_from(rounded_up.max(1)).unwrap_or(libc::c_int::MAX);
    set_int(listener, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds)
}

/// Always returns an error: only Linux has deferred accept.
///
/// # Errors
///
/// [`io::ErrorKind::Unsupported`].
#[cfg(not(target_os = "linux"))]
pub fn defer_accept(_listener: &TcpListener, _timeout: Duration) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "deferred accept needs Linux"))
}

/// The process at the other end of a connection, as it was when it connected or listened.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its id; `None` if it is in a PID namespace that this process does not see.
    pub pid: Option<u32>,
    /// Its user.
    pub user: u32,
}

/// Returns the process at the other end of `connection`. Source: `SO_PEERCRED`, `unix(7)`. std has it in no stable form, and rustix takes
/// the id for one that is never 0, which it is in another PID namespace.
///
/// # Errors
///
/// Returns an error if the system call fails.
///
/// ```
/// # #[cfg(target_os = "linux")] {
/// let (connection, _other) = std::os::unix::net::UnixStream::pair()?;
/// assert_eq!(polyserve_sys::peer(&connection)?.pid, Some(std::process::id()));
/// # }
/// # Ok::<(), std::io::Error>(())
/// ```
#[cfg(target_os = "linux")]
pub fn peer(connection: &std::os::unix::net::UnixStream) -> io::Result<Peer> {
    use std::os::fd::AsRawFd as _;
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).map_err(io::Error::other)?;
    let descriptor = connection.as_raw_fd();
    // SAFETY: `peer` is valid for writes of `length` bytes, which is its size, and the kernel writes no more than that. Every value of its
    // fields is valid.
    let result = unsafe {
        libc::getsockopt(
            descriptor,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast::<libc::c_void>(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Peer { pid: u32::try_from(peer.pid).ok().filter(|pid| *pid > 0), user: peer.uid })
}

/// Returns the number of connections that wait to be accepted from `listener`. Source: `tcp_get_info` of Linux, which tells it of a
/// listener in `tcpi_unacked` (`TCP_INFO`, `tcp(7)`).
///
/// # Errors
///
/// Returns an error if the system call fails, or if the system does not tell the number.
///
/// ```
/// use std::net::{TcpListener, TcpStream};
///
/// # #[cfg(target_os = "linux")] {
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// assert_eq!(polyserve_sys::waiting_connections(&listener)?, 0);
/// let _client = TcpStream::connect(listener.local_addr()?)?;
/// assert_eq!(polyserve_sys::waiting_connections(&listener)?, 1);
/// # }
/// # Ok::<(), std::io::Error>(())
/// ```
#[cfg(target_os = "linux")]
pub fn waiting_connections(listener: impl AsFd) -> io::Result<u32> {
    use std::os::fd::AsRawFd as _;
    let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).map_err(io::Error::other)?;
    let descriptor = listener.as_fd().as_raw_fd();
    // SAFETY: `info` is valid for writes of `length` bytes, which is its size, and the kernel writes no more than that.
    let result = unsafe {
        libc::getsockopt(descriptor, libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut length)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all fields are integers, for which zeros are valid, as is all that the kernel has written over them.
    Ok(unsafe { info.assume_init() }.tcpi_unacked)
}

/// Always returns an error: only Linux tells the number.
///
/// # Errors
///
/// [`io::ErrorKind::Unsupported`].
#[cfg(not(target_os = "linux"))]
pub fn waiting_connections(_listener: impl AsFd) -> io::Result<u32> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "the number of waiting connections needs Linux"))
}

/// Sets the number of bytes at which `socket` becomes readable. The default is 1; 0 means 1; the kernel limits the value to
/// half of the max receive buffer. The end of the input, an error, and a full buffer make the socket readable too. If enough
/// bytes have arrived already, a registered poller gets an event. Source: `socket(7)`, `SO_RCVLOWAT`, which `select`, `poll`
/// and `epoll` support since Linux 2.6.28.
///
/// # Errors
///
/// Returns an error if the system call fails, or if the system's pollers may ignore the option.
#[cfg(target_os = "linux")]
pub fn set_receive_low_water(socket: impl AsFd, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set_int(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)
}

/// Always returns an error: the effect of the option on pollers is known only for Linux.
///
/// # Errors
///
/// [`io::ErrorKind::Unsupported`].
#[cfg(not(target_os = "linux"))]
pub fn set_receive_low_water(_socket: impl AsFd, _bytes: usize) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "a low-water mark for pollers needs Linux"))
}

/// Prefetches the cache line at `address`, without waiting. This is a hint with no visible effect on memory, so any address
/// is allowed: an address that is not mapped is not fetched. Does nothing on processors other than x86-64. Source: Intel's
/// and AMD's manuals, `PREFETCHT0`.
#[inline(always)]
pub fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction belongs to SSE, which every x86-64 has. It accepts any address, and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Returns words that are 0. A large number of them takes memory only where they are written: the system gives it page by page.
///
/// ```
/// use std::sync::atomic::Ordering;
///
/// let words = polyserve_sys::zeroed_words(1 << 22);
/// assert_eq!((words.len(), words[1 << 21].load(Ordering::Relaxed)), (1 << 22, 0));
/// ```
#[cfg(target_pointer_width = "64")]
pub fn zeroed_words(count: usize) -> Box<[AtomicU64]> {
    const { assert!(align_of::<AtomicU64>() == align_of::<u64>()) };
    // For a vector of zeros std asks the allocator for zeros, and writes nothing.
    let words = Box::into_raw(vec![0_u64; count].into_boxed_slice());
    // SAFETY: the pointer comes from a box, which it was the only owner of. An `AtomicU64` has the size and the bit validity of a `u64`,
    // by its documentation, and the same alignment, by the assertion. So the layout with which the new box frees the words is that of the
    // old one.
    unsafe { Box::from_raw(words as *mut [AtomicU64]) }
}

/// The same, for processors on which an `AtomicU64` may need a higher alignment than a `u64`: each word is written.
#[cfg(not(target_pointer_width = "64"))]
pub fn zeroed_words(count: usize) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

/// Size in bytes of a huge page, of x86-64 and of most other processors, and its alignment.
pub const HUGE_PAGE: usize = 2 << 20;

/// Asks the system for huge pages in `memory`, for each part that is aligned to [`HUGE_PAGE`] and as large. This is a hint
/// with no effect on the contents: it saves time when memory is read that no cache has. A system call, which has the most effect before
/// the memory is first written. Does nothing on systems other than Linux, or if the system does not allow it. Source: `madvise(2)`,
/// `MADV_HUGEPAGE`.
pub fn advise_huge_pages<T>(memory: &[T]) {
    #[cfg(target_os = "linux")]
    {
        let range = memory.as_ptr_range();
        let start = range.start.addr().next_multiple_of(HUGE_PAGE);
        let end = range.end.addr() & !(HUGE_PAGE - 1);
        if start < end {
            let start = memory.as_ptr().with_addr(start).cast_mut().cast();
            // SAFETY: the range is within `memory`, so it is mapped, and the advice changes no contents: the kernel replaces pages by a
            // larger page with the same contents.
            let _ = unsafe { libc::madvise(start, end - start.addr(), libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
}

/// Returns `bytes` as a text if they are ASCII. For short texts it costs less than [`str::from_utf8`], which reads most of them byte by
/// byte.
///
/// ```
/// assert_eq!(polyserve_sys::ascii_text(b"Host"), Some("Host"));
/// assert_eq!(polyserve_sys::ascii_text("\u{e9}".as_bytes()), None);
/// ```
#[inline]
pub fn ascii_text(bytes: &[u8]) -> Option<&str> {
    // Up to this length, a loop over the bytes is shorter than the one over words.
    const SHORT: usize = 8;
    let is_ascii = if bytes.len() <= SHORT { bytes.iter().all(u8::is_ascii) } else { bytes.is_ascii() };
    // SAFETY: ASCII is UTF-8.
    is_ascii.then(|| unsafe { str::from_utf8_unchecked(bytes) })
}

/// Splits `bytes` before the first one that is not in `set`, a set of ASCII bytes: `true` at the index of each of them.
///
/// ```
/// let digits: [bool; 128] = std::array::from_fn(|byte| (byte as u8).is_ascii_digit());
/// assert_eq!(polyserve_sys::split_ascii(b"42 or 7", &digits), ("42", &b" or 7"[..]));
/// assert_eq!(polyserve_sys::split_ascii("\u{e9}".as_bytes(), &digits), ("", "\u{e9}".as_bytes()));
/// ```
#[inline]
pub fn split_ascii<'a>(bytes: &'a [u8], set: &[bool; 128]) -> (&'a str, &'a [u8]) {
    let is_in = |byte: &u8| set.get(usize::from(*byte)) == Some(&true);
    let (text, rest) = bytes.split_at(bytes.iter().position(|byte| !is_in(byte)).unwrap_or(bytes.len()));
    // SAFETY: ASCII is UTF-8. Each byte of the text is an index of `set`, so it is below 128.
    (unsafe { str::from_utf8_unchecked(text) }, rest)
}

/// Bytes that are stored as words, with a text from word `TEXT` on.
///
/// The words of the text are checked to be ASCII while they are stored. A check of the stored bytes would read them in other units, and a
/// core that reads in other units what it has just stored waits for the stores, and for all earlier loads.
///
/// ```
/// use polyserve_sys::WordBytes;
///
/// let mut bytes = WordBytes::<4, 1>::default();
/// bytes.store([u64::MAX, u64::from_le_bytes(*b"eight le"), u64::from_le_bytes(*b"tters\0\0\0")]);
/// assert_eq!(bytes.text(13), Some("eight letters"));
/// assert_eq!(bytes.bytes()[..9], *b"\xff\xff\xff\xff\xff\xff\xff\xffe");
/// assert_eq!([bytes.word(0), bytes.word(4)], [Some(u64::MAX), None]);
/// assert_eq!(WordBytes::<2, 1>::of([7, u64::from_le_bytes(*b"eight le")]).text(5), Some("eight"));
/// bytes.store([7, u64::MAX]);
/// assert_eq!(bytes.text(8), None); // no UTF-8
/// ```
#[derive(Debug)]
pub struct WordBytes<const N: usize, const TEXT: usize> {
    words: [[u8; 8]; N],
    /// All words that were ever stored from `TEXT` on, by a bitwise or.
    text: u64,
}

impl<const N: usize, const TEXT: usize> Default for WordBytes<N, TEXT> {
    fn default() -> Self {
        Self { words: [[0; 8]; N], text: 0 }
    }
}

impl<const N: usize, const TEXT: usize> WordBytes<N, TEXT> {
    /// Creates the bytes of these words, in little-endian order.
    #[inline]
    pub fn of(words: [u64; N]) -> Self {
        let mut bytes = Self::default();
        // No `map` of the array: the compiler makes that some calls.
        let mut place = 0;
        while place < N {
            bytes.words[place] = words[place].to_le_bytes();
            if place >= TEXT {
                bytes.text |= words[place];
            }
            place += 1;
        }
        bytes
    }

    /// Stores words from the first on, in little-endian order, over those that were there. Ignores more than `N`.
    #[inline]
    pub fn store(&mut self, words: impl IntoIterator<Item = u64>) {
        let mut words = words.into_iter();
        let (head, text) = self.words.split_at_mut(TEXT);
        for (bytes, word) in head.iter_mut().zip(words.by_ref()) {
            *bytes = word.to_le_bytes();
        }
        for (bytes, word) in text.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
            self.text |= word;
        }
    }

    /// Returns the bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.words.as_flattened()
    }

    /// Returns the word at `place`, if there is one.
    #[inline]
    pub fn word(&self, place: usize) -> Option<u64> {
        self.words.get(place).map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// Returns `length` bytes from word `TEXT` on; `None` if they are not UTF-8, or if there are fewer.
    #[inline]
    pub fn text(&self, length: usize) -> Option<&str> {
        let words = &self.words[TEXT..];
        if length > size_of_val(words) {
            return None;
        }
        // SAFETY: the bytes are those of `words` from the first on, and `words` has as many. It is not `as_flattened`, which is a call where
        // it is not inlined.
        let bytes = unsafe { slice::from_raw_parts(words.as_ptr().cast(), length) };
        if self.text & 0x8080_8080_8080_8080 != 0 {
            return str::from_utf8(bytes).ok();
        }
        // SAFETY: ASCII is UTF-8. All bytes from word `TEXT` on are ASCII: `text` has the upper bit of each byte with which the value was
        // created, by `default` or `of`, and of each byte that `store` has stored. No other function changes them.
        Some(unsafe { str::from_utf8_unchecked(bytes) })
    }
}

/// What a process does when a signal arrives. See [`signal_disposition`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalDisposition {
    /// The action of the system, which for most signals ends the process.
    Default,
    /// Nothing. A parent such as `nohup` or a shell that starts a background job ignores signals for its children.
    Ignored,
    /// A handler of this program runs.
    Handled,
}

/// Returns what this process does when signal number `signal` arrives. Source: `sigaction(2)`.
///
/// # Errors
///
/// Returns an error if there is no such signal.
#[cfg(unix)]
pub fn signal_disposition(signal: i32) -> io::Result<SignalDisposition> {
    let mut present = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the new action is null, so that the disposition does not change. The other pointer is of memory for one action,
    // which lives until the call returns.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), present.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it has filled the memory.
    Ok(match unsafe { present.assume_init() }.sa_sigaction {
        libc::SIG_DFL => SignalDisposition::Default,
        libc::SIG_IGN => SignalDisposition::Ignored,
        _ => SignalDisposition::Handled,
    })
}

/// Sets an integer option of a socket.
#[cfg(target_os = "linux")]
fn set_int(socket: impl AsFd, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    let length = libc::socklen_t::try_from(size_of_val(&value)).expect("an int's size fits");
    // SAFETY: the descriptor is borrowed, so it is open. The pointer and the length describe `value`, which lives until the
    // call returns. The kernel only reads `value`.
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
    use std::sync::atomic::Ordering;

    const MAX_WAIT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
    const NO_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

    #[test]
    fn dispositions() {
        use signal_hook::consts::{SIGPIPE, SIGUSR1, SIGUSR2};

        // The runtime of Rust ignores SIGPIPE.
        assert_eq!(signal_disposition(SIGPIPE).unwrap(), SignalDisposition::Ignored);
        assert_eq!(signal_disposition(SIGUSR1).unwrap(), SignalDisposition::Default);
        let _signals = signal_hook::iterator::Signals::new([SIGUSR2]).unwrap();
        assert_eq!(signal_disposition(SIGUSR2).unwrap(), SignalDisposition::Handled);
        assert!(signal_disposition(0).is_err());
    }

    /// An address that is not mapped has no effect.
    #[test]
    fn any_address_can_be_fetched() {
        let here = 1_u8;
        prefetch(&raw const here);
        prefetch(std::ptr::null::<u8>());
        prefetch(std::ptr::without_provenance::<u64>(usize::MAX));
    }

    #[test]
    fn advice_changes_no_contents() {
        let words = zeroed_words(3 * HUGE_PAGE / size_of::<u64>());
        words[1].store(7, Ordering::Relaxed);
        words[words.len() / 2].store(8, Ordering::Relaxed);
        advise_huge_pages(&words);
        advise_huge_pages(&words[..1]);
        advise_huge_pages::<u8>(&[]);
        let written = [1, words.len() / 2].map(|at| words[at].load(Ordering::Relaxed));
        assert_eq!((written, words[2].load(Ordering::Relaxed)), ([7, 8], 0));
    }

    /// Returns both ends of a connection.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sending = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (sending, listener.accept().unwrap().0)
    }

    /// Sends `text`, and waits until all of the text has arrived.
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
        assert!(is_readable_within(&receiving, &NO_WAIT));
        set_receive_low_water(&receiving, 3).unwrap();
        assert!(!is_readable_within(&receiving, &NO_WAIT));
        sending.write_all(b"c").unwrap();
        assert!(is_readable_within(&receiving, &MAX_WAIT));
    }

    #[test]
    fn an_end_is_seen_below_the_mark() {
        let (sending, receiving) = pair();
        deliver(&sending, &receiving, b"ab");
        set_receive_low_water(&receiving, 3).unwrap();
        sending.shutdown(Shutdown::Write).unwrap();
        assert!(is_readable_within(&receiving, &MAX_WAIT));
    }

    /// If enough bytes have arrived before the mark is lowered, lowering it must be an edge. Otherwise an edge-triggered
    /// poller, such as tokio, would miss these bytes.
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
        assert_eq!(wait(&NO_WAIT), 0);
        set_receive_low_water(&receiving, 2).unwrap();
        assert_eq!(wait(&MAX_WAIT), 1);
        assert_eq!(wait(&NO_WAIT), 0, "it is an edge");
        set_receive_low_water(&receiving, 1).unwrap();
        assert_eq!(wait(&MAX_WAIT), 1, "and again");
    }

    #[test]
    fn a_silent_connection_is_not_handed_over() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        defer_accept(&listener, Duration::from_secs(60)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let addr = listener.local_addr().unwrap();
        let _silent = TcpStream::connect(addr).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let mut sender = TcpStream::connect(addr).unwrap();
        sender.write_all(b"x").unwrap();
        listener.set_nonblocking(false).unwrap();
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(peer, sender.local_addr().unwrap());
    }
}
