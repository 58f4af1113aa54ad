//! One memory budget for a whole server: the bytes that connections keep while they wait.
//!
//! A connection that waits keeps the received bytes of an incomplete body, or the bytes of answers that its client has not
//! taken. A [`Reservation`] counts these bytes. It belongs to the connection, so that it is released however the connection
//! ends.
//!
//! If the budget is used up, a new body and the answer to a safe method become 503. The small answer of a write always fits.
//!
//! A large answer to an unsafe method is sent in any case, because its request was done. So such a request is refused before the
//! service is called: while the budget is exceeded, if an answer to its method has exceeded the budget before
//! ([`MemoryBudget::admits`]).
//!
//! Invariant: the number of reserved bytes is the sum of all reservations. It exceeds the limit by what cannot be refused: the heads
//! and pipelined requests of connections, and the answers to requests of unsafe methods that were in work when the limit was reached.
//!
//! Cost: nothing for at most [`FREE_BYTES`], which is what a small request keeps. Beyond that, an addition to a shared number for
//! each step of [`STEP`] bytes. A request of an unsafe method costs a load of a number that seldom changes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use polyserve_core::http::{HeaderValue, Method};
use polyserve_core::{Reply, Unavailable};

/// A connection may keep this number of bytes without a reservation.
pub const FREE_BYTES: usize = 4 * 1024;

/// Bytes are reserved in steps of this size.
pub const STEP: usize = 16 * 1024;

/// What the budget distinguishes of a method: a bit if it is unsafe, so that the answer to its request must be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodClass(u8);

impl MethodClass {
    /// Returns the class of `method`.
    #[inline]
    pub fn of(method: &Method) -> Self {
        Self(match *method {
            Method::GET | Method::HEAD | Method::OPTIONS => 0,
            Method::POST => 1,
            Method::PUT => 2,
            Method::DELETE => 4,
            Method::PATCH => 8,
            _ => 16,
        })
    }

    /// Whether a request changes nothing, so that its answer may be refused.
    #[inline]
    pub fn is_safe(self) -> bool {
        self.0 == 0
    }
}

/// The memory budget of a server. Clones share it.
#[derive(Clone)]
pub struct MemoryBudget(Arc<BudgetState>);

struct BudgetState {
    limit: usize,
    refused: AtomicU64,
    /// A bit for each unsafe method of which an answer did not fit.
    overrun: AtomicU8,
    reserved: Counter,
}

/// Aligned so that it shares no cache line with other data.
#[repr(align(128))]
struct Counter(AtomicUsize);

impl MemoryBudget {
    /// A budget of `limit` bytes, of which nothing is reserved.
    pub fn new(limit: usize) -> Self {
        let (refused, overrun, reserved) = (AtomicU64::new(0), AtomicU8::new(0), Counter(AtomicUsize::new(0)));
        Self(Arc::new(BudgetState { limit, refused, overrun, reserved }))
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
        self.0.reserved.0.load(Ordering::Relaxed)
    }

    /// The number of bytes that may be reserved.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Counts a request that is refused because of the budget, and returns the answer.
    #[cold]
    pub fn refuse(&self) -> Reply {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
        out_of_memory_reply()
    }

    /// The number of requests that were refused.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// Whether a request of `method` may be passed to the service. If not, it is to be [refused](Self::refuse): the budget is
    /// exceeded, and the answer to such a request, which cannot be refused, did not fit before.
    ///
    /// # Cost
    ///
    /// A load, unless such an answer did not fit before.
    #[inline]
    pub fn admits(&self, method: MethodClass) -> bool {
        let overrun = self.0.overrun.load(Ordering::Relaxed);
        overrun == 0 || overrun & method.0 == 0 || self.reserved() <= self.0.limit
    }

    /// Notes that the answer to a request of `method`, which is not refused, did not fit. Does nothing if the method is safe.
    #[cold]
    pub fn note_overrun(&self, method: MethodClass) {
        self.0.overrun.fetch_or(method.0, Ordering::Relaxed);
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
        let BudgetState { limit, reserved, .. } = &*budget.0;
        let add = |sum: usize| sum.checked_add(more).filter(|sum| sum <= limit);
        let has_room = reserved.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok();
        if has_room {
            self.reserved(budget).bytes += more;
        }
        has_room
    }

    /// Reserves for `bytes` kept bytes in all, of which most are the answer to a request of the unsafe `method`, whether there is room
    /// or not. Notes if there is none.
    pub fn set_unsafe(&mut self, budget: &MemoryBudget, bytes: usize, method: MethodClass) {
        if !self.try_set(budget, bytes) {
            budget.note_overrun(method);
            self.set(budget, bytes);
        }
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
        let reserved = &self.budget.0.reserved.0;
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
        self.budget.0.reserved.0.fetch_sub(self.bytes, Ordering::Relaxed);
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
    static OUT_OF_MEMORY: Unavailable = Unavailable::new("The memory of this server is used up for now.");
    Reply::unavailable(&OUT_OF_MEMORY, const { HeaderValue::from_static("1") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_refused_while_its_answers_exceed_the_budget() {
        let (budget, patch) = (MemoryBudget::new(4 * STEP), MethodClass::of(&Method::PATCH));
        let [mut first, mut second] = [Reservation::default(), Reservation::default()];
        first.set_unsafe(&budget, 4 * STEP, patch);
        assert!(budget.admits(patch), "the budget is used up, and not exceeded");
        second.set_unsafe(&budget, STEP, patch);
        assert_eq!(budget.reserved(), 5 * STEP);
        for (method, is_admitted) in [
            (Method::PATCH, false),
            (Method::POST, true),
            (Method::PUT, true),
            (Method::DELETE, true),
            (Method::GET, true),
        ] {
            assert_eq!(budget.admits(MethodClass::of(&method)), is_admitted, "{method:?}");
        }
        drop(second);
        assert!(budget.admits(patch));
    }

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
