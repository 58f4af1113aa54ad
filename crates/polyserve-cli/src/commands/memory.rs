//! The flag `--store-memory`: a limit for the choice of stores. `recommend` and `compare` share it. The flag `--memory` is a
//! setting of servers.

use polyserve::env::parse_bytes;

/// The memory limit.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct MemoryArgs {
    /// The max memory for the entities, such as 64MiB. A store that is known to need more is left out. [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) store_memory: Option<u64>,
}

/// Parses a number of bytes.
pub(crate) fn bytes(text: &str) -> Result<u64, &'static str> {
    parse_bytes(text).ok_or("it is a number of bytes such as 65536, 64MiB or 1GiB")
}
