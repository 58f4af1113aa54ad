//! The `polyserve` command with the built-in catalog. Its allocator is the system's. The features `jemalloc` and `mimalloc`
//! replace it; with both, jemalloc is used.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use polyserve::catalog::Catalog;
use polyserve_bench::allocator;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[cfg(all(feature = "mimalloc", not(feature = "jemalloc")))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ALLOCATOR_NAME: &str = if cfg!(feature = "jemalloc") {
    allocator::JEMALLOC
} else if cfg!(feature = "mimalloc") {
    allocator::MIMALLOC
} else {
    allocator::SYSTEM
};

fn main() -> ExitCode {
    polyserve_cli::main_with_allocator(Catalog::builtin(), ALLOCATOR_NAME)
}
