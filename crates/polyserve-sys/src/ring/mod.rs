//! An io_uring behind a safe API: connections are accepted, bytes are received into buffers of the ring, bytes that are shared with the
//! ring are sent, and descriptors are polled.
//!
//! The ring owns each socket that it was [given](Ring::add) until no operation on the socket is in flight. So an operation never
//! reaches another file that has got the same descriptor, and a completion never belongs to another socket. The kernel writes only to
//! the buffers of the ring, which the ring frees only if no operation may still write to them. It reads only bytes that the ring shares
//! with their owner until the send has ended, so that they are neither changed nor freed.
//!
//! Completions come from [`Ring::enter`] only: the kernel does its deferred work there.
//!
//! Cost: [`Ring::enter`] is one system call for all operations that were armed. An operation goes on until it fails or is cancelled, so
//! a connection that stays open is armed once.
//!
//! Source: `io_uring_setup(2)`, `io_uring_enter(2)`, `io_uring_multishot(7)`, `io_uring_provided_buffers(7)`.

mod buffers;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use buffers::Buffers;
pub use buffers::ReceivedBytes;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

/// The number of operations that can be armed between two calls of [`Ring::enter`] without a further system call.
const SUBMISSIONS: u32 = 1024;

/// The number of completions that the kernel stores before it has to allocate memory.
const COMPLETIONS: u32 = 4096;

/// The number of completions from which on no more are asked for, so that the buffers suffice for them.
const MAX_GATHERED: usize = 128;

/// How long [`Ring::end`] waits at most: rounds of this time.
const END_ROUND: Duration = Duration::from_millis(1);
const MAX_END_ROUNDS: u32 = 100;

/// A ring of one thread. `S`: the sockets.
pub struct Ring<S> {
    // Dropped first, so that the kernel cancels what is in flight.
    ring: IoUring,
    buffers: Buffers,
    sockets: Vec<Slot<S>>,
    free: Vec<u32>,
    /// The number of operations in flight.
    in_flight: usize,
    /// Operations for which the submission queue had no room.
    delayed: VecDeque<squeue::Entry>,
    /// Memory for the completions that are being looked at.
    taken: Vec<cqueue::Entry>,
}

/// What is done with a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RingOperation {
    /// Accepts connections until it fails or is cancelled. They do not block, and are closed by `exec`.
    Accept = 0,
    /// Receives bytes until it fails, the input ends, it is cancelled, or no buffer is left (`ENOBUFS`).
    Receive = 1,
    /// Waits once until the socket takes output.
    AwaitRoom = 2,
    /// Reports each time that the descriptor becomes readable.
    AwaitInput = 3,
    /// Sends bytes. It begins by [`Ring::send`] only.
    Send = 4,
}

/// Not an operation that is reported: it cancels another.
const CANCEL: u8 = 7;

/// A socket of a ring. It is not used again for another socket of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketKey {
    index: u32,
    generation: u32,
}

/// The bits of a generation: with an index and an operation, it fits in the 64 bits of a completion.
const GENERATION_MASK: u32 = (1 << 24) - 1;

struct Slot<S> {
    generation: u32,
    /// The operations in flight, as bits.
    in_flight: u8,
    /// What is being sent.
    output: Option<Rc<Vec<u8>>>,
    tag: usize,
    /// `None`: the slot is free.
    socket: Option<S>,
    /// The socket was removed, and waits for what is in flight.
    is_removed: bool,
}

/// A result of an operation.
#[derive(Debug)]
pub struct Completion {
    /// The tag of the socket.
    pub tag: usize,
    /// What was done.
    pub outcome: RingResult,
    /// The operation has ended, and has to be armed again if it is to go on.
    pub is_last: bool,
}

/// What an operation has brought.
#[derive(Debug)]
pub enum RingResult {
    /// A connection was accepted.
    Accepted(OwnedFd),
    /// Bytes were received. [Release](Ring::release) them soon.
    Received(ReceivedBytes),
    /// The input has ended.
    Ended,
    /// The descriptor is ready.
    Ready,
    /// This number of bytes was sent, which may be less than was given.
    Sent(usize),
    /// The operation has failed.
    Failed(RingOperation, io::Error),
}

impl<S> fmt::Debug for Ring<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("sockets", &(self.sockets.len() - self.free.len())).finish_non_exhaustive()
    }
}

impl<S: AsFd> Ring<S> {
    /// Creates a ring for this thread: only the thread that creates it may use it. `buffers`: the number of buffers, a power of 2.
    /// `buffer_size`: the size of each, in bytes.
    ///
    /// # Errors
    ///
    /// Returns an error that names what is missing: the kernel has no io_uring, is older than Linux 6.1, or a setting or a filter of the
    /// system forbids it, as containers often do.
    pub fn new(buffers: u16, buffer_size: u32) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS)
            .build(SUBMISSIONS)
            .map_err(|error| explain("io_uring_setup", error))?;
        let buffers = Buffers::new(&ring, buffers, buffer_size)
            .map_err(|error| explain("registering a ring of buffers with io_uring", error))?;
        Ok(Self {
            ring,
            buffers,
            sockets: Vec::new(),
            free: Vec::new(),
            in_flight: 0,
            delayed: VecDeque::new(),
            taken: Vec::new(),
        })
    }

    /// Adds a socket. `tag` is in its completions.
    pub fn add(&mut self, socket: S, tag: usize) -> SocketKey {
        let index = self.free.pop().unwrap_or_else(|| {
            self.sockets.push(Slot {
                generation: 0,
                in_flight: 0,
                output: None,
                tag: 0,
                socket: None,
                is_removed: false,
            });
            u32::try_from(self.sockets.len() - 1).expect("a process has less than 2^32 descriptors")
        });
        let slot = &mut self.sockets[index as usize];
        (slot.socket, slot.tag, slot.is_removed) = (Some(socket), tag, false);
        SocketKey { index, generation: slot.generation }
    }

    fn slot(&mut self, key: SocketKey) -> Option<&mut Slot<S>> {
        let slot = self.sockets.get_mut(key.index as usize)?;
        (slot.generation == key.generation && slot.socket.is_some() && !slot.is_removed).then_some(slot)
    }

    /// Whether `operation` is in flight: its last completion was not [taken](Self::completions).
    pub fn is_armed(&mut self, key: SocketKey, operation: RingOperation) -> bool {
        self.slot(key).is_some_and(|slot| slot.in_flight & operation.bit() != 0)
    }

    /// Begins `operation`, at the next [`enter`](Self::enter). Does nothing if it is in flight, if the socket was removed, or if it is a
    /// send.
    pub fn arm(&mut self, key: SocketKey, operation: RingOperation) {
        if operation == RingOperation::Send {
            return;
        }
        let Some(fd) = self.begin(key, operation) else { return };
        let entry = match operation {
            RingOperation::Accept => {
                opcode::AcceptMulti::new(fd).flags(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC).build()
            }
            RingOperation::Receive => opcode::RecvMulti::new(fd, Buffers::GROUP).build(),
            RingOperation::AwaitRoom => opcode::PollAdd::new(fd, libc::POLLOUT as u32).build(),
            RingOperation::AwaitInput => opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(true).build(),
            RingOperation::Send => return, // see above
        };
        self.push(entry.user_data(key.user_data(operation as u8)));
    }

    /// Sends `range` of `bytes`, from the next [`enter`](Self::enter) on. Its completion says how many bytes the socket took; until then
    /// the ring shares `bytes`. A client that is gone raises no signal. `more`: as `MSG_MORE` of `send(2)`, more bytes or the close follow.
    /// Does nothing, and returns false, if a send of the socket is in flight, if the socket was removed, or if `range` is not in `bytes`.
    pub fn send(&mut self, key: SocketKey, bytes: Rc<Vec<u8>>, range: Range<usize>, more: bool) -> bool {
        let Some((start, length)) = bytes.get(range).map(|part| (part.as_ptr(), part.len())) else { return false };
        let Some(fd) = self.begin(key, RingOperation::Send) else { return false };
        if let Some(slot) = self.slot(key) {
            slot.output = Some(bytes);
        }
        let flags = libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
        // What exceeds this number stays unsent.
        let entry = opcode::Send::new(fd, start, u32::try_from(length).unwrap_or(u32::MAX)).flags(flags).build();
        self.push(entry.user_data(key.user_data(RingOperation::Send as u8)));
        true
    }

    /// Notes that `operation` is in flight, and returns the descriptor of its socket; `None` if it was in flight, or if the socket was
    /// removed.
    fn begin(&mut self, key: SocketKey, operation: RingOperation) -> Option<Fd> {
        let slot = self.slot(key)?;
        if slot.in_flight & operation.bit() != 0 {
            return None;
        }
        let fd = Fd(slot.socket.as_ref()?.as_fd().as_raw_fd());
        slot.in_flight |= operation.bit();
        self.in_flight += 1;
        Some(fd)
    }

    /// Ends `operation`, soon after the next [`enter`](Self::enter). Its last completion follows.
    pub fn cancel(&mut self, key: SocketKey, operation: RingOperation) {
        if self.is_armed(key, operation) {
            self.push_cancel(key, operation);
        }
    }

    /// Removes a socket. Its operations are cancelled, and it has no more completions. It is dropped once no operation is in flight.
    pub fn remove(&mut self, key: SocketKey) {
        let Some(slot) = self.slot(key) else { return };
        slot.is_removed = true;
        let in_flight = slot.in_flight;
        for operation in RingOperation::ALL {
            if in_flight & operation.bit() != 0 {
                self.push_cancel(key, operation);
            }
        }
        self.free_if_done(key.index);
    }

    fn free_if_done(&mut self, index: u32) {
        let slot = &mut self.sockets[index as usize];
        if slot.is_removed && slot.in_flight == 0 {
            (slot.socket, slot.is_removed) = (None, false);
            slot.generation = (slot.generation + 1) & GENERATION_MASK;
            self.free.push(index);
        }
    }

    fn push_cancel(&mut self, key: SocketKey, operation: RingOperation) {
        let entry = opcode::AsyncCancel::new(key.user_data(operation as u8)).build();
        self.push(entry.user_data(key.user_data(CANCEL)));
    }

    /// Queues an entry. It does not call the kernel, so that completions come from [`enter`](Self::enter) only.
    fn push(&mut self, entry: squeue::Entry) {
        if !self.delayed.is_empty() || !self.try_push(&entry) {
            self.delayed.push_back(entry);
        }
    }

    fn try_push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: the descriptor of an entry belongs to a socket of `sockets`, which is dropped only after the last completion of the
        // operation. The kernel selects the memory to write to from `buffers`, which outlives each receive. The only pointer of ours is
        // that of a send: it lies in a `Vec` of which the socket's slot has a share until the completion of the send. Until
        // then, the `Vec` is neither changed nor dropped, because a shared `Rc` gives no mutable access. The kernel only reads it.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    /// Starts what was armed. If `waits`, waits for a completion, at most for `timeout`.
    ///
    /// # Errors
    ///
    /// Returns the error of `io_uring_enter(2)`. A signal, a timeout and a full completion queue are no errors.
    pub fn enter(&mut self, waits: bool, timeout: Option<Duration>) -> io::Result<()> {
        while let Some(entry) = self.delayed.pop_front() {
            if !self.try_push(&entry) {
                self.delayed.push_front(entry);
                if let Err(error) = self.ring.submit() {
                    return if is_usual(&error) { Ok(()) } else { Err(error) }; // the rest is submitted by the next call
                }
            }
        }
        let waits = waits && timeout != Some(Duration::ZERO);
        let result = match timeout {
            Some(timeout) if waits => {
                let timeout = Timespec::from(timeout);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
            _ => self.ring.submit_and_wait(usize::from(waits)),
        };
        match result {
            Err(error) if !is_usual(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Takes the completions that are there, and appends them to `completions`: all that the kernel has, or at least 128. No other ones
    /// come before the next [`enter`](Self::enter): until then, what a socket receives stays in the socket, and may be read from there.
    pub fn completions(&mut self, completions: &mut Vec<Completion>) {
        let mut queue = std::mem::take(&mut self.taken);
        queue.extend(self.ring.completion());
        while self.has_more(queue.len()) && self.ring.submit().is_ok() {
            let gathered = queue.len();
            queue.extend(self.ring.completion());
            if queue.len() == gathered {
                break; // the flag is late: another core sets it for work that was done meanwhile, and then nothing resets it
            }
        }
        for entry in queue.drain(..) {
            completions.extend(self.completion(&entry));
        }
        self.taken = queue;
    }

    /// Returns whether the kernel holds completions back: it has found no room for them, or has more work than it does in one call, which
    /// is 20 operations since Linux 6.13.
    fn has_more(&mut self, gathered: usize) -> bool {
        let submission = self.ring.submission();
        submission.cq_overflow() || submission.taskrun() && gathered < MAX_GATHERED
    }

    fn completion(&mut self, entry: &cqueue::Entry) -> Option<Completion> {
        let (key, operation) = SocketKey::from_user_data(entry.user_data());
        let operation = RingOperation::ALL.into_iter().find(|known| *known as u8 == operation)?;
        let is_last = !cqueue::more(entry.flags());
        let bytes = cqueue::buffer_select(entry.flags()).map(|id| self.buffers.take(id, entry.result()));
        let slot = self.sockets.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation)?;
        if is_last {
            slot.in_flight &= !operation.bit();
            self.in_flight -= 1;
            if operation == RingOperation::Send {
                slot.output = None;
            }
        }
        let (tag, is_removed) = (slot.tag, slot.is_removed);
        let outcome = match (operation, entry.result()) {
            // SAFETY: the kernel has made this descriptor for us, and nothing else knows it.
            (RingOperation::Accept, fd @ 0..) => RingResult::Accepted(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }),
            (_, error @ ..0) => RingResult::Failed(operation, io::Error::from_raw_os_error(-error)),
            (RingOperation::Receive, _) => RingResult::Ended, // or bytes, see below
            (RingOperation::AwaitRoom | RingOperation::AwaitInput, _) => RingResult::Ready,
            (RingOperation::Send, count) => RingResult::Sent(count as usize),
        };
        let outcome = match bytes {
            Some(bytes) if entry.result() > 0 && !is_removed => RingResult::Received(bytes),
            Some(bytes) => {
                self.buffers.release(bytes);
                outcome
            }
            None => outcome,
        };
        if is_removed {
            self.free_if_done(key.index);
            return None;
        }
        Some(Completion { tag, outcome, is_last })
    }

    /// Removes all sockets, and waits until they are closed, which takes the kernel a moment; at most 100 ms. Dropping the ring does the
    /// same later.
    pub fn end(&mut self) {
        for index in 0..self.sockets.len() {
            let generation = self.sockets[index].generation;
            self.remove(SocketKey { index: index as u32, generation });
        }
        let mut rounds = 0;
        while self.in_flight > 0 && rounds < MAX_END_ROUNDS {
            let _ = self.enter(true, Some(END_ROUND)); // an error: the next round or the drop goes on
            self.completions(&mut Vec::new());
            rounds += 1;
        }
    }

    /// The number of operations in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The bytes that were received.
    pub fn bytes(&self, received: &ReceivedBytes) -> &[u8] {
        self.buffers.bytes(received)
    }

    /// Gives the buffer of `received` back to the kernel.
    pub fn release(&mut self, received: ReceivedBytes) {
        self.buffers.release(received);
    }
}

impl<S> Drop for Ring<S> {
    fn drop(&mut self) {
        if self.in_flight > 0 {
            // The kernel may use them until it has cancelled what is in flight, after the ring is closed.
            self.buffers.leak();
            self.sockets.iter_mut().filter_map(|slot| slot.output.take()).for_each(std::mem::forget);
        }
    }
}

impl RingOperation {
    const ALL: [Self; 5] = [Self::Accept, Self::Receive, Self::AwaitRoom, Self::AwaitInput, Self::Send];

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl SocketKey {
    fn user_data(self, operation: u8) -> u64 {
        u64::from(self.index) | u64::from(self.generation) << 32 | u64::from(operation) << 56
    }

    fn from_user_data(data: u64) -> (Self, u8) {
        let [.., operation] = data.to_le_bytes();
        (Self { index: data as u32, generation: (data >> 32) as u32 & GENERATION_MASK }, operation)
    }
}

/// Whether [`Ring::enter`] has nothing to report: the next call goes on.
fn is_usual(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN))
}

/// Adds to an error of `call` what it means.
fn explain(call: &str, error: io::Error) -> io::Error {
    let why = match error.raw_os_error() {
        Some(libc::ENOSYS) => "the kernel has no io_uring",
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is forbidden here, by kernel.io_uring_disabled or by the system call filter of a container"
        }
        Some(libc::EINVAL) => "the kernel is older than Linux 6.1",
        Some(libc::ENOMEM) => "there is not enough memory, or RLIMIT_MEMLOCK is too low",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{call} has failed ({error}): {why}"))
}
