//! Names of allocators, as records of measurements have them. Only a program can set its allocator: this library sets none,
//! and records hold the name that the program gives.

/// The allocator of a program that sets none.
pub const SYSTEM: &str = "the system's";
/// tikv-jemallocator; the `polyserve` binary's with the feature `jemalloc`.
pub const JEMALLOC: &str = "jemalloc";
/// mimalloc; the `polyserve` binary's with the feature `mimalloc`, but not with both.
pub const MIMALLOC: &str = "mimalloc";
