//! How many connections of a table count as open, and how many as lingering.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a connection counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountedAs {
    /// It counts towards the limit.
    Open,
    /// It has sent its last answer or rejection and is not closed yet, or it was evicted and has received nothing since.
    Lingering,
}

/// The numbers of connections by what they count as. Both are in one atomic, so no check whether any is left misses a connection
/// that changes from one to the other. Each is below 2^32.
#[derive(Debug, Default)]
pub(super) struct Counts(AtomicU64);

const HALF: u32 = 32;

impl CountedAs {
    const fn one(self) -> u64 {
        match self {
            Self::Open => 1 << HALF,
            Self::Lingering => 1,
        }
    }

    fn of(self, counts: u64) -> usize {
        let count = match self {
            Self::Open => counts >> HALF,
            Self::Lingering => counts & u64::from(u32::MAX),
        };
        usize::try_from(count).unwrap_or(usize::MAX)
    }
}

impl Counts {
    pub(super) fn get(&self, kind: CountedAs) -> usize {
        kind.of(self.0.load(Ordering::SeqCst))
    }

    /// The number of all connections.
    pub(super) fn all(&self) -> usize {
        let counts = self.0.load(Ordering::SeqCst);
        CountedAs::Open.of(counts).saturating_add(CountedAs::Lingering.of(counts))
    }

    pub(super) fn add(&self, kind: CountedAs) {
        self.0.fetch_add(kind.one(), Ordering::SeqCst);
    }

    pub(super) fn subtract(&self, kind: CountedAs) {
        self.0.fetch_sub(kind.one(), Ordering::SeqCst);
    }

    /// Counts a connection, and returns true, unless the number of its kind has reached `max`. At the limit this number never
    /// exceeds `max`, not even for a moment. Otherwise a concurrent caller could fail although a connection has just ended.
    pub(super) fn add_below(&self, kind: CountedAs, max: usize) -> bool {
        self.update(|counts| (kind.of(counts) < max).then(|| counts.wrapping_add(kind.one())))
    }

    /// Counts an open connection as lingering, and returns true, unless `max` linger.
    pub(super) fn linger_below(&self, max: usize) -> bool {
        let change = CountedAs::Lingering.one().wrapping_sub(CountedAs::Open.one());
        self.update(|counts| (CountedAs::Lingering.of(counts) < max).then(|| counts.wrapping_add(change)))
    }

    /// Counts a lingering connection as open.
    pub(super) fn reopen(&self) {
        let change = CountedAs::Open.one().wrapping_sub(CountedAs::Lingering.one());
        self.0.fetch_add(change, Ordering::SeqCst);
    }

    fn update(&self, change: impl Fn(u64) -> Option<u64>) -> bool {
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    /// Regression test: a rejected connection was in the count for a moment. If a connection ended in that moment, the
    /// next one was rejected as well, although there was room.
    #[test]
    fn a_rejected_connection_takes_no_place() {
        let (counts, done) = (Counts::default(), AtomicBool::new(false));
        let rejected = thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert!(!counts.add_below(CountedAs::Open, 0));
                }
            });
            let rejected = (0..300_000).filter(|_| {
                let admitted = counts.add_below(CountedAs::Open, 1);
                if admitted {
                    counts.subtract(CountedAs::Open);
                }
                !admitted
            });
            let rejected = rejected.count();
            done.store(true, Ordering::Relaxed);
            rejected
        });
        assert_eq!(rejected, 0);
    }

    #[test]
    fn a_connection_counts_as_one_of_two() {
        let counts = Counts::default();
        let both = || (counts.get(CountedAs::Open), counts.get(CountedAs::Lingering));
        assert!(counts.add_below(CountedAs::Open, 1) && !counts.add_below(CountedAs::Open, 1));
        assert!(!counts.linger_below(0) && counts.linger_below(1));
        assert_eq!((both(), counts.all()), ((0, 1), 1));
        counts.add(CountedAs::Open);
        assert!(!counts.linger_below(1));
        counts.reopen();
        assert_eq!((both(), counts.all()), ((2, 0), 2));
        counts.subtract(CountedAs::Open);
        counts.subtract(CountedAs::Open);
        assert_eq!((both(), counts.all()), ((0, 0), 0));
    }
}
