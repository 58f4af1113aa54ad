//! One memory budget for a whole server: the bytes that connections keep while they wait.
//!
//! A connection that waits keeps the received bytes of an incomplete body, or the bytes of answers that its client has not
//! taken. A [`Reservation`] counts these bytes. It belongs to the connection, so that it is released however the connection
//! ends.
//!
//! If the budget is used up, a new body and the answer to a safe method become 503. The small answer of a write always fits.
//!
//! Invariant: the number of reserved bytes is the sum of all reservations.
//!
//! Cost: nothing for at most [`FREE_BYTES`], which is what a small request keeps. Beyond that, an addition to a shared number for
//! each step of [`STEP`] bytes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use polyserve_core::Reply;
use polyserve_core::http::header::RETRY_AFTER;
use polyserve_core::http::{HeaderValue, StatusCode};

/// A connection may keep this number of bytes without a reservation.
pub const FREE_BYTES: usize = 4 * 1024;

/// Bytes are reserved in steps of this size.
pub const STEP: usize = 16 * 1024;

/// The memory budget of a server. Clones share it.
#[derive(Clone)]
pub struct MemoryBudget(Arc<BudgetState>);

/// Aligned so that its counter shares no cache line with other data.
#[repr(align(128))]
struct BudgetState {
    limit: usize,
    reserved: AtomicUsize,
}

impl MemoryBudget {
    /// A budget of `limit` bytes, of which nothing is reserved.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(BudgetState { limit, reserved: AtomicUsize::new(0) }))
    }

    /// Whether a connection may keep `bytes` more bytes. Cost: at most one load.
    ///
    /// ```
    /// use polyserve_serving::memory::{MemoryBudget, Reservation};
    /// let budget = MemoryBudget::new(1 << 20);
    /// let mut reservation = Reservation::default();
    /// reservation.set(&budget, 1 << 20);
    /// assert!(budget.has_room(1_000) && !budget.has_room(10_000));
    /// drop(reservation);
    /// assert!(budget.has_room(10_000));
    /// ```
    pub fn has_room(&self, bytes: usize) -> bool {
        let bytes = in_steps(bytes);
        bytes == 0 || self.reserved().saturating_add(bytes) <= self.0.limit
    }

    /// The number of reserved bytes. It may exceed the limit: what cannot be refused is reserved too.
    pub fn reserved(&self) -> usize {
        self.0.reserved.load(Ordering::Relaxed)
    }

    /// Whether `other` is a clone of this budget.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBudget").field("limit", &self.0.limit).field("reserved", &self.reserved()).finish()
    }
}

/// The bytes that one connection keeps while it waits. They are released when it is dropped.
#[derive(Default)]
pub struct Reservation(Option<Box<ReservedBytes>>);

/// In a box, because most connections never reserve anything.
struct ReservedBytes {
    budget: MemoryBudget,
    bytes: usize,
}

impl Reservation {
    /// Reserves for `bytes` kept bytes in all, whether there is room or not.
    #[inline]
    pub fn set(&mut self, budget: &MemoryBudget, bytes: usize) {
        if bytes > FREE_BYTES || self.0.is_some() {
            self.change(budget, bytes);
        }
    }

    /// Like [`set`](Self::set), but returns false, and changes nothing, if there is no room for a larger reservation.
    #[inline]
    #[must_use]
    pub fn try_set(&mut self, budget: &MemoryBudget, bytes: usize) -> bool {
        let more = in_steps(bytes).saturating_sub(self.bytes());
        if more == 0 {
            self.set(budget, bytes);
            return true;
        }
        // One step: two connections must not get the same room.
        let BudgetState { limit, reserved } = &*budget.0;
        let add = |sum: usize| sum.checked_add(more).filter(|sum| sum <= limit);
        let has_room = reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok();
        if has_room {
            self.reserved(budget).bytes += more;
        }
        has_room
    }

    /// Releases what exceeds `bytes` kept bytes.
    pub fn shrink(&mut self, bytes: usize) {
        if let Some(reserved) = &mut self.0 {
            let bytes = in_steps(bytes);
            if bytes == 0 {
                self.0 = None;
            } else if bytes < reserved.bytes {
                reserved.resize(bytes);
            }
        }
    }

    /// Whether nothing is reserved.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The number of reserved bytes, in whole steps.
    pub fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |reserved| reserved.bytes)
    }

    #[cold]
    fn change(&mut self, budget: &MemoryBudget, bytes: usize) {
        let bytes = in_steps(bytes);
        if bytes == 0 {
            self.0 = None;
            return;
        }
        self.reserved(budget).resize(bytes);
    }

    fn reserved(&mut self, budget: &MemoryBudget) -> &mut ReservedBytes {
        self.0.get_or_insert_with(|| Box::new(ReservedBytes { budget: budget.clone(), bytes: 0 }))
    }
}

impl ReservedBytes {
    fn resize(&mut self, bytes: usize) {
        let reserved = &self.budget.0.reserved;
        if self.bytes < bytes {
            reserved.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else if self.bytes > bytes {
            reserved.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        self.budget.0.reserved.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reservation").field(&self.bytes()).finish()
    }
}

/// Rounds up to whole steps. At most [`FREE_BYTES`] are none.
fn in_steps(bytes: usize) -> usize {
    if bytes <= FREE_BYTES { 0 } else { bytes.div_ceil(STEP).saturating_mul(STEP) }
}

/// The 503 if the memory is used up.
pub fn out_of_memory_reply() -> Reply {
    let detail = "The memory of this server is used up for now.";
    Reply::problem(StatusCode::SERVICE_UNAVAILABLE, detail).with_field(RETRY_AFTER, HeaderValue::from_static("1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_released_with_its_owner() {
        let budget = MemoryBudget::new(4 * STEP);
        let mut first = Reservation::default();
        first.set(&budget, FREE_BYTES);
        assert_eq!((first.bytes(), budget.reserved()), (0, 0));
        assert!(first.try_set(&budget, FREE_BYTES + 1) && first.try_set(&budget, 3 * STEP));
        assert_eq!((first.bytes(), budget.reserved()), (3 * STEP, 3 * STEP));
        let mut second = Reservation::default();
        assert!(!second.try_set(&budget, STEP + 1) && second.try_set(&budget, STEP));
        assert!(!first.try_set(&budget, 3 * STEP + 1) && first.bytes() == 3 * STEP);
        second.set(&budget, 5 * STEP);
        assert_eq!(budget.reserved(), 8 * STEP, "what cannot be refused is counted too");
        assert!(second.try_set(&budget, 100) && budget.reserved() == 3 * STEP);
        drop(first);
        assert_eq!(budget.reserved(), 0);
    }
}
