//! Stack for code of an entity's type, which recurses over a nested value: reading, writing, copying and dropping it.
//!
//! A body has at most 128 levels, and code that serde derives takes at most 64 KiB of stack for a level.
//! A thread may have less stack than that: a server may have a thread for each connection, and a caller's runtime has any stack.
//! So the stack grows if what remains is too small.
//!
//! Invariant: a value that was read from a body is noted before anything else sees it. [`for_values`] then has stack for the most
//! deeply nested value of the process. What a body nests in fields that the type ignores is no part of the value, and is not noted.
//!
//! Cost: a load of an atomic for each call of [`for_values`] while no value has more than two levels. Later, for the life of
//! the process, the remaining stack is computed as well: a thread-local variable and a subtraction. If it is too small for the most
//! deeply nested value, a new stack is mapped for the call, touched and unmapped, once for each request: system calls and page
//! faults. Only pages that are touched take memory. A thread that has [`FOR_ANY_VALUE`] never grows its stack.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The maximum depth of a body's nesting. RFC 8259 (section 9) allows such a limit.
pub(crate) const MAX_DEPTH: usize = 128;

/// The stack for one level in bytes: 64 KiB for code of the type, and a fifth more for the count of levels, and for the search for
/// the field that is wrong.
const PER_LEVEL: usize = 80 * 1024;

/// The stack in bytes for code that does not recurse.
const RESERVE: usize = 64 * 1024;

/// What a new stack has more than is needed, in bytes. Calls within a call of [`for_values`] then need no other one.
const SPARE: usize = 3 * RESERVE;

/// The stack of a thread that needs no growth, in bytes, for stores that run code of an entity's type on a thread of their own. The
/// system takes memory only for the part that is used.
pub const FOR_ANY_VALUE: usize = needed(MAX_DEPTH) + SPARE;

/// A value of at most this many levels has enough stack on every thread of this project's servers. It is not noted.
pub(crate) const SHALLOW: usize = 2;

/// The levels that take as much stack as the hash of a large body in a debug build. In a release build the hash takes little.
pub(crate) const HASH_IN_DEBUG: usize = 15;

/// The depth of the most deeply nested value that was read, if it is more than [`SHALLOW`].
static DEEPEST: AtomicUsize = AtomicUsize::new(0);

const fn needed(depth: usize) -> usize {
    depth * PER_LEVEL + RESERVE
}

/// Returns the number of levels that [`for_values`] has stack for.
pub(crate) fn noted() -> usize {
    DEEPEST.load(Ordering::Relaxed).max(SHALLOW)
}

/// Whether the present stack is enough for a value of `depth` levels, and such values are noted.
pub(crate) fn is_enough_and_noted(depth: usize) -> bool {
    depth <= noted() && stacker::remaining_stack().is_some_and(|remaining| remaining >= needed(depth))
}

/// Notes that there are values of `depth` levels.
pub(crate) fn note(depth: usize) {
    if depth > noted() {
        DEEPEST.fetch_max(depth, Ordering::Relaxed);
    }
}

/// Runs code that recurses over a value of `depth` levels.
pub(crate) fn for_depth<T>(depth: usize, run: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(needed(depth), needed(depth) + SPARE, run)
}

/// Whether the present stack is enough for [`for_values`] without a new one.
#[inline]
pub(crate) fn is_enough_for_values() -> bool {
    match DEEPEST.load(Ordering::Relaxed) {
        0 => true,
        deepest => stacker::remaining_stack().is_some_and(|remaining| remaining >= needed(deepest)),
    }
}

/// Runs code that may recurse over any value that was read from a body.
///
/// ```
/// use polyserve_core::stack;
/// assert_eq!(stack::for_values(|| vec![1].clone()), [1]);
/// ```
#[inline]
pub fn for_values<T>(run: impl FnOnce() -> T) -> T {
    match DEEPEST.load(Ordering::Relaxed) {
        0 => run(),
        deepest => for_depth(deepest, run),
    }
}
