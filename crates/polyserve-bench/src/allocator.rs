//! Names of allocators in records of measurements. This library sets no allocator: a program sets its allocator, and passes
//! the name for its records.

/// The allocator of a program that sets none.
pub const SYSTEM: &str = "the system's";
/// tikv-jemallocator: the allocator of the `polyserve` binary with the feature `jemalloc`.
pub const JEMALLOC: &str = "jemalloc";
/// mimalloc: the allocator of the `polyserve` binary with the feature `mimalloc` and without `jemalloc`.
pub const MIMALLOC: &str = "mimalloc";
