//! Answers that the kernel has not accepted yet.

use crate::http1::scratch::Scratch;

/// The rest of an output, and the offsets at which its answers end.
#[derive(Debug)]
pub(super) struct Unsent {
    bytes: Vec<u8>,
    sent: usize,
    ends: Vec<usize>,
}

impl Unsent {
    /// Returns the output after its first `count` bytes, and the number of answers that are complete in those bytes.
    pub(super) fn split(scratch: &Scratch, count: usize) -> (Option<Box<Self>>, u64) {
        let complete = scratch.ends.partition_point(|end| *end <= count);
        let rest = scratch.out.get(count..).filter(|rest| !rest.is_empty()).map(|rest| {
            let ends = scratch.ends.iter().skip(complete).map(|end| end.saturating_sub(count)).collect();
            Box::new(Self { bytes: rest.to_vec(), sent: 0, ends })
        });
        (rest, complete as u64)
    }

    /// Returns the size of the buffers.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity().saturating_add(self.ends.capacity().saturating_mul(size_of::<usize>()))
    }

    pub(super) fn rest(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    /// Appends `other`.
    pub(super) fn append(&mut self, other: &Self) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(other.rest());
        self.ends.extend(other.ends.iter().map(|end| end.saturating_add(start)));
    }

    /// Marks `count` more bytes as sent. Returns the number of answers that they complete.
    pub(super) fn advance(&mut self, count: usize) -> u64 {
        let before = self.answers_sent();
        self.sent = self.sent.saturating_add(count);
        self.answers_sent().saturating_sub(before)
    }

    fn answers_sent(&self) -> u64 {
        self.ends.partition_point(|end| *end <= self.sent) as u64
    }
}
