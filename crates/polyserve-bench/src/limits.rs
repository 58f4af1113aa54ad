//! The limits on descriptors and ports of this process, and so on connections.
//!
//! Invariant: the returned number of connections can be opened, unless this process opens more descriptors than its caller
//! passed. Cost: a few system calls.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Misuse;

/// Raises the limit on open descriptors to the max that needs no privileges: every connection needs a descriptor.
/// Returns the limit; `u64::MAX` if unlimited.
pub fn raise_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
    {
        tracing::warn!(%error, "the limit on open descriptors could not be raised");
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns the number of open descriptors. It is an estimate on systems without proc(5).
pub(crate) fn open_descriptors() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(64, |entries| entries.count() as u64)
}

/// Descriptors that are reserved for other uses: records, pipes to other processes, the files that watch them.
const SPARE_DESCRIPTORS: u64 = 64;

/// Returns the max number of further connections. `also` is the number of descriptors that are needed for other purposes,
/// in addition to the spare descriptors of any command. Raises the limit first. A server in its own process has the same limit
/// for itself.
pub fn connections(also: u64) -> u64 {
    let reserved = open_descriptors().saturating_add(SPARE_DESCRIPTORS).saturating_add(also);
    raise_descriptors().saturating_sub(reserved)
}

/// Returns the max number of connections of one address to one server: nine tenths of the system's ephemeral ports.
pub(crate) fn ports() -> u64 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ends = range.split_whitespace().filter_map(|end| end.parse::<u64>().ok());
    let (first, last) = (ends.next().unwrap_or(49_152), ends.next().unwrap_or(65_535));
    last.saturating_sub(first) / 10 * 9
}

/// Checks that `--connections` asks for no more than `limit`.
///
/// # Errors
///
/// Returns [`Misuse`] if `requested` is above `limit`.
pub fn check_connections(requested: usize, limit: u64) -> Result<(), Misuse> {
    if requested as u64 <= limit {
        return Ok(());
    }
    Err(Misuse(format!("--connections {requested}: at most {limit} with this limit on open descriptors")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_back_is_not_dealt_out() {
        let all = connections(0);
        assert!(all > 0 && ports() > 0, "{all}");
        assert_eq!(connections(u64::MAX), 0);
        // Other tests of this process open and close descriptors meanwhile.
        assert!(connections(1000) < all);
    }

    #[test]
    fn a_request_above_the_limit_is_refused_with_the_limit() {
        assert!(check_connections(5, 5).is_ok());
        let Misuse(why) = check_connections(6, 5).unwrap_err();
        assert!(why.contains("at most 5") && why.contains("--connections 6"), "{why}");
    }
}
