//! The `polyserve` command, over the built-in catalog.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use polyserve::catalog::Catalog;

fn main() -> ExitCode {
    polyserve_lab::main_with_allocator(Catalog::builtin(), "the system's")
}
