//! The choice of repos for a workload, by the crossings that were recorded.
//!
//! Each entry of the catalog has its own rule, so the choice needs no second list of names. The rules come from the records
//! `stores-workers`, `stores-keys`, `stores-payload` and `stores-memory` of 2026-11-25, which `docs/STRATEGIES.md` shows. The
//! records have 0, 5, 50 and 100 % writes; a rule between two of them is a guess, and `recommend` measures what the rules
//! select.

use super::{Catalog, RepoEntry};

/// The percentage of reads from which readers without locks lead (`stores-workers`: at 100 % they do, at 95 % not).
const HARDLY_WRITES: u32 = 99;

/// The max percentage of reads of a workload that writes much (`stores-workers`, half puts).
const WRITES_MUCH: u32 = 50;

/// The bytes of text from which an entity is large: copying it costs more than finding it (`stores-payload`, between 256 and
/// 4096 bytes).
const LARGE_PAYLOAD: u64 = 4096;

/// What the choice of a repo depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepoCriteria {
    /// The percentage of requests that read.
    pub reads_pct: u32,
    /// The number of entities.
    pub keys: u64,
    /// The bytes of an entity's text.
    pub payload_bytes: u64,
    /// The number of cores on which requests run.
    pub cores: usize,
    /// Whether each request waits for something else than a lock.
    pub waits: bool,
    /// The max number of bytes that all entities may use.
    pub memory_limit: Option<u64>,
}

impl RepoCriteria {
    /// Whether requests run on several cores and do not wait.
    pub fn is_parallel(&self) -> bool {
        self.cores > 1 && !self.waits
    }

    /// Whether at least 99 % of the requests read.
    pub fn hardly_writes(&self) -> bool {
        self.reads_pct >= HARDLY_WRITES
    }

    /// Whether at least half of the requests write.
    pub fn writes_much(&self) -> bool {
        self.reads_pct <= WRITES_MUCH
    }

    /// Whether an entity's text has at least 4 KiB.
    pub fn is_large(&self) -> bool {
        self.payload_bytes >= LARGE_PAYLOAD
    }

    /// Estimates the bytes of all entities in a repo that needs `overhead` bytes for each, in addition to the text.
    pub fn bytes(&self, overhead: u64) -> u64 {
        self.keys.saturating_mul(self.payload_bytes.saturating_add(overhead))
    }
}

/// The rule that tells for which workloads a repo is a candidate.
#[derive(Clone, Copy, Debug)]
pub struct RepoRule {
    /// Whether the repo is a candidate.
    pub when: fn(&RepoCriteria) -> bool,
    /// The reason, after "is a candidate: ".
    pub why: &'static str,
    /// The resident bytes of an entity in addition to its text, after all entities were removed and stored again.
    pub overhead: u64,
    /// Whether it is the one to take without a measurement. It comes first.
    pub usual: bool,
}

/// The repos for a workload, and the reasons.
#[derive(Clone, Debug, Default)]
pub struct RepoChoice<'a> {
    /// The candidates, the usual one first, each with a sentence that says why.
    pub repos: Vec<(&'a RepoEntry, String)>,
    /// The repos that need more memory than the limit, each with the bytes that it needs.
    pub left_out: Vec<(&'a RepoEntry, u64)>,
}

impl Catalog {
    /// Returns the repos that suit a workload: at most three, by the rules of their entries. Repos without a rule are not
    /// among them.
    ///
    /// ```
    /// # #[cfg(feature = "scc")] {
    /// use polyserve::catalog::{Catalog, RepoCriteria};
    /// let two_cores = RepoCriteria {
    ///     reads_pct: 95, keys: 10_000, payload_bytes: 15, cores: 2, waits: false, memory_limit: None,
    /// };
    /// let catalog = Catalog::builtin();
    /// let names: Vec<&str> = catalog.repos_for(&two_cores).repos.iter().map(|(entry, _)| entry.name.as_str()).collect();
    /// assert_eq!(names, ["sharded", "scc"]);
    /// # }
    /// ```
    pub fn repos_for(&self, criteria: &RepoCriteria) -> RepoChoice<'_> {
        let mut choice = RepoChoice::default();
        let rules = self.repos().iter().filter_map(|entry| Some((entry, entry.rule()?)));
        let mut candidates: Vec<_> = rules.filter(|(_, rule)| (rule.when)(criteria)).collect();
        candidates.sort_by_key(|(_, rule)| !rule.usual);
        for (entry, RepoRule { why, overhead, .. }) in candidates {
            let bytes = criteria.bytes(overhead);
            match criteria.memory_limit {
                Some(limit) if bytes > limit => choice.left_out.push((entry, bytes)),
                _ => choice.repos.push((entry, format!("{} is a candidate: {why}", entry.name))),
            }
        }
        choice
    }
}

#[cfg(all(test, feature = "memory", feature = "papaya", feature = "scc"))]
mod tests {
    use super::*;

    const USUAL: RepoCriteria =
        RepoCriteria { reads_pct: 95, keys: 10_000, payload_bytes: 15, cores: 1, waits: false, memory_limit: None };

    fn names(criteria: RepoCriteria) -> Vec<String> {
        Catalog::builtin().repos_for(&criteria).repos.iter().map(|(entry, _)| entry.name.clone()).collect()
    }

    #[test]
    fn the_workload_decides() {
        let table = [
            (USUAL, ["sharded", "std_rwlock"].as_slice()),
            (RepoCriteria { cores: 2, ..USUAL }, &["sharded", "scc"]),
            (RepoCriteria { cores: 2, reads_pct: 100, ..USUAL }, &["sharded", "papaya"]),
            (RepoCriteria { cores: 2, reads_pct: 100, keys: 1_000_000, ..USUAL }, &["sharded"]),
            (RepoCriteria { reads_pct: 50, ..USUAL }, &["sharded", "std_rwlock", "packed"]),
            (RepoCriteria { cores: 2, reads_pct: 0, ..USUAL }, &["sharded", "packed"]),
            (RepoCriteria { waits: true, cores: 8, ..USUAL }, &["sharded"]),
            (RepoCriteria { reads_pct: 51, ..USUAL }, &["sharded", "std_rwlock"]),
            (RepoCriteria { cores: 2, reads_pct: 99, keys: 100_000, ..USUAL }, &["sharded", "papaya"]),
            (RepoCriteria { cores: 2, reads_pct: 99, keys: 100_001, ..USUAL }, &["sharded"]),
            (RepoCriteria { cores: 2, reads_pct: 98, ..USUAL }, &["sharded", "scc"]),
            (RepoCriteria { cores: 2, reads_pct: 51, ..USUAL }, &["sharded", "scc"]),
            (RepoCriteria { cores: 2, reads_pct: 50, keys: 999_999, ..USUAL }, &["sharded", "packed"]),
            (RepoCriteria { cores: 2, reads_pct: 50, keys: 1_000_000, ..USUAL }, &["sharded"]),
            (RepoCriteria { cores: 2, reads_pct: 50, payload_bytes: 4095, ..USUAL }, &["sharded", "packed"]),
            (RepoCriteria { cores: 2, reads_pct: 50, payload_bytes: 4096, ..USUAL }, &["sharded", "two_level"]),
            (RepoCriteria { cores: 2, reads_pct: 100, payload_bytes: 4095, ..USUAL }, &["sharded", "papaya"]),
            (RepoCriteria { cores: 2, reads_pct: 100, payload_bytes: 4096, ..USUAL }, &["sharded"]),
            (RepoCriteria { memory_limit: Some(1 << 20), ..USUAL }, &["packed"]),
            (RepoCriteria { memory_limit: Some(1 << 30), ..USUAL }, &["sharded", "std_rwlock", "packed"]),
        ];
        for (criteria, expected) in table {
            assert_eq!(names(criteria), expected, "{criteria:?}");
        }
    }

    #[test]
    fn a_limit_that_no_repo_keeps_leaves_none_and_says_why() {
        let catalog = Catalog::builtin();
        let choice = catalog.repos_for(&RepoCriteria { memory_limit: Some(1024), ..USUAL });
        assert!(choice.repos.is_empty());
        assert!(!choice.left_out.is_empty() && choice.left_out.iter().all(|(_, bytes)| *bytes > 1024), "{choice:?}");
    }
}
