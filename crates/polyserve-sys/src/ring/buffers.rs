//! The buffers that the kernel receives into: it selects one for each receive, and has it back when it was [released](Buffers::release).
//!
//! Invariant: a buffer is either the kernel's or ours. `is_ours` says which, and only a buffer that is ours is read or given back.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

/// The alignment of memory that is shared with the kernel.
const PAGE: usize = 4096;

/// The space between two buffers. Without it, the first bytes of all buffers would compete for the same few places of the cache.
const GAP: usize = 64;

/// Bytes that were received, in a buffer of the ring.
#[derive(Debug)]
pub struct ReceivedBytes {
    id: u16,
    length: u32,
}

/// The buffers of a ring.
#[derive(Debug)]
pub(super) struct Buffers {
    /// What the kernel reads: the buffers that it may use, as a ring of `count` entries.
    entries: Memory,
    data: Memory,
    count: u16,
    size: u32,
    /// The number of buffers that were given to the kernel, modulo 2^16.
    tail: u16,
    is_ours: Vec<bool>,
}

impl Buffers {
    /// The group of the buffers: a ring has one.
    pub(super) const GROUP: u16 = 0;

    /// Registers `count` buffers of `size` bytes with `ring`, which must not outlive them while a receive is in flight.
    pub(super) fn new(ring: &IoUring, count: u16, size: u32) -> io::Result<Self> {
        if !count.is_power_of_two() || size == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let entries = Memory::new(usize::from(count) * size_of::<BufRingEntry>());
        let data = Memory::new(usize::from(count) * (size as usize + GAP));
        // SAFETY: the memory holds `count` entries, is aligned to a page, and lives as long as `ring` or longer: `Ring` drops its
        // `IoUring` before its `Buffers`. The kernel only reads the entries.
        unsafe { ring.submitter().register_buf_ring_with_flags(entries.start.as_ptr() as u64, count, Self::GROUP, 0)? };
        let is_ours = vec![true; usize::from(count)];
        let mut buffers = Self { entries, data, count, size, tail: 0, is_ours };
        (0..count).for_each(|id| buffers.give(id));
        buffers.publish();
        Ok(buffers)
    }

    /// The start of a buffer.
    fn start(&self, id: u16) -> NonNull<u8> {
        let offset = usize::from(id) * (self.size as usize + GAP);
        // SAFETY: `id` is below `count`, as every caller has checked with `is_ours`, so that the offset is within the memory.
        unsafe { self.data.start.add(offset) }
    }

    /// Marks a buffer as ours: the kernel has used it for a receive that has returned `result`.
    pub(super) fn take(&mut self, id: u16, result: i32) -> ReceivedBytes {
        if let Some(is_ours) = self.is_ours.get_mut(usize::from(id)) {
            *is_ours = true;
        }
        ReceivedBytes { id, length: u32::try_from(result).unwrap_or(0).min(self.size) }
    }

    /// The bytes of a buffer that is ours. Empty if it is not.
    pub(super) fn bytes(&self, received: &ReceivedBytes) -> &[u8] {
        if self.is_ours.get(usize::from(received.id)) != Some(&true) {
            return &[];
        }
        // SAFETY: the buffer is ours, so the kernel does not write to it, and it is not given to the kernel while it is borrowed, for
        // which `self` would be borrowed mutably. All of its memory is initialised, and `length` is at most its size.
        unsafe { slice::from_raw_parts(self.start(received.id).as_ptr(), received.length as usize) }
    }

    /// Gives a buffer to the kernel, if it is ours.
    #[allow(clippy::needless_pass_by_value)] // the bytes are not used any more
    pub(super) fn release(&mut self, received: ReceivedBytes) {
        let ReceivedBytes { id, .. } = received;
        self.give(id);
        self.publish();
    }

    fn give(&mut self, id: u16) {
        match self.is_ours.get_mut(usize::from(id)) {
            Some(is_ours @ true) => *is_ours = false,
            _ => return,
        }
        let (address, size) = (self.start(id).as_ptr() as u64, self.size);
        let place = self.tail & (self.count - 1);
        // SAFETY: the place is below `count`, so the entry is within the memory, which is zeroed and aligned for entries. The kernel
        // does not read this entry before the tail is published: at most `count` buffers exist, and this one was not the kernel's.
        let entry = unsafe { &mut *self.entries.start.cast::<BufRingEntry>().add(usize::from(place)).as_ptr() };
        entry.set_addr(address);
        entry.set_len(size);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Tells the kernel how many buffers it was given.
    fn publish(&self) {
        // SAFETY: `entries` begins with an entry, which is initialised, and the tail lies in it. All accesses of this process to the
        // tail are atomic, and the kernel only reads it.
        let tail = unsafe { &*BufRingEntry::tail(self.entries.start.cast().as_ptr()).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }

    /// Does not free the buffers.
    pub(super) fn leak(&mut self) {
        (self.data.is_leaked, self.entries.is_leaked) = (true, true);
    }
}

/// Zeroed memory, aligned to a page.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
    is_leaked: bool,
}

// SAFETY: the memory belongs to this value alone, as in a `Box<[u8]>`.
unsafe impl Send for Memory {}

impl Memory {
    fn new(length: usize) -> Self {
        let layout = Layout::from_size_align(length.max(1), PAGE).expect("it is at most 2^16 times 4 GiB");
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Self { start, layout, is_leaked: false }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if !self.is_leaked {
            // SAFETY: the memory was allocated with this layout, and is not used any more.
            unsafe { dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}
