//! The reasons for stores that a memory limit leaves out.

use crate::report::figures::count;
use polyserve::catalog::{RepoCriteria, RepoEntry};

/// Returns a sentence for each store that needs more memory than the limit of `criteria`. `left_out` has the stores and the
/// bytes that each needs, as in [`RepoChoice`](polyserve::catalog::RepoChoice).
pub fn reasons(left_out: &[(&RepoEntry, u64)], criteria: &RepoCriteria) -> Vec<String> {
    let number = |number: u64| count(number as f64);
    let (keys, limit) = (number(criteria.keys), number(criteria.memory_limit.unwrap_or(0) >> 10));
    let too_large = |(entry, bytes): &(&RepoEntry, u64)| {
        let (name, needed) = (&entry.name, number(bytes.div_ceil(1 << 10)));
        format!("{name} is left out: {keys} entities need about {needed} KiB there, and the limit is {limit} KiB")
    };
    left_out.iter().map(too_large).collect()
}
