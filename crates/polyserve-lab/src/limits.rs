//! How many descriptors and ports this process may have, and so how many connections.
//!
//! Invariant: what is promised here can be had, unless this process opens more than it said that it would. Cost: a few
//! system calls.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Misuse;

/// Raises the limit on open descriptors as far as the system lets it without privileges: every connection needs one.
/// Answers the limit; `u64::MAX` where there is none.
pub fn raise_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
    {
        tracing::warn!(%error, "the limit on open descriptors could not be raised");
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many descriptors are open now; a guess where the system does not say.
pub fn open_descriptors() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(64, |entries| entries.count() as u64)
}

/// Descriptors that are kept for anything but connections: records, pipes to other processes, what they are watched with.
const SPARE: u64 = 64;

/// How many connections can be had more, where `also` descriptors are needed beside them and those that any command may
/// need, and `ends` of each connection are in this process: 1, or 2 where the server is in it too. Raises the limit first.
/// A server in a process of its own has the same limit again.
pub fn connections(also: u64, ends: u64) -> u64 {
    let kept = open_descriptors().saturating_add(SPARE).saturating_add(also);
    raise_descriptors().saturating_sub(kept) / ends.max(1)
}

/// How many connections one address can have to one server: the ports that the system deals out, a tenth kept back.
pub fn ports() -> u64 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ends = range.split_whitespace().filter_map(|end| end.parse::<u64>().ok());
    let (first, last) = (ends.next().unwrap_or(49_152), ends.next().unwrap_or(65_535));
    last.saturating_sub(first) / 10 * 9
}

/// Checks that `--connections` asks for no more than `room`.
///
/// # Errors
///
/// [`Misuse`] if it asks for more.
pub fn enough(asked: usize, room: u64) -> Result<(), Misuse> {
    if asked as u64 <= room {
        return Ok(());
    }
    Err(Misuse(format!("--connections may be {room} at most with this limit on open descriptors, not {asked}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_back_is_not_dealt_out() {
        let all = connections(0, 1);
        assert!(all > 0 && ports() > 0, "{all}");
        assert_eq!((connections(u64::MAX, 1), connections(u64::MAX, 0)), (0, 0));
        // Other tests of this process open and close descriptors meanwhile.
        assert!(connections(0, 2) < all && connections(1000, 1) < all);
    }

    #[test]
    fn who_asks_for_more_is_told_how_many_there_are() {
        assert!(enough(5, 5).is_ok());
        let Misuse(why) = enough(6, 5).unwrap_err();
        assert!(why.contains("5 at most") && why.contains("not 6"), "{why}");
    }
}
