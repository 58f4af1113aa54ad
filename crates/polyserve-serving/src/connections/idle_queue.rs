//! Which idle connection is closed for a new one at the limit on connections.
//!
//! Connections that have never sent a byte come first, then the others. In both groups, the connection that has been idle for
//! longest is the first. A connection that has been idle for less than [`EVICTION_GRACE`] is never closed.
//!
//! Cost: a search looks at every connection and keeps the first 64. The next search follows when these are used up or
//! [`EVICTION_GRACE`] later. In between, no other connection can have become old enough. So the admission of a
//! connection costs O(1) amortised, whether an idle connection is found or not.

use std::collections::VecDeque;

use crate::EVICTION_GRACE;

/// The max number of connections that one search keeps.
const MAX_FOUND: usize = 64;

/// The bit of an [`IdleSince`] that is set if the connection has sent something.
const HAS_SENT: u64 = 1 << 63;

/// The time since which a connection is idle, and whether it has ever sent anything, as a number that fits in an atomic. A
/// smaller number is closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdleSince(u64);

impl IdleSince {
    /// A connection that is idle since `millis`, in milliseconds since any fixed start.
    ///
    /// ```
    /// use polyserve_serving::IdleSince;
    /// assert!(IdleSince::new(9, false) < IdleSince::new(7, true));
    /// assert!(IdleSince::new(7, true).has_sent());
    /// ```
    #[inline]
    pub fn new(millis: u64, has_sent: bool) -> Self {
        let since = millis.min(HAS_SENT - 3) + 1;
        Self(if has_sent { since | HAS_SENT } else { since })
    }

    /// The number: neither zero, nor one of the two largest.
    #[inline]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The time of [`bits`](Self::bits).
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether the connection has ever sent anything.
    pub fn has_sent(self) -> bool {
        self.0 & HAS_SENT != 0
    }

    /// The time since which the connection is idle, in milliseconds.
    pub fn millis(self) -> u64 {
        (self.0 & !HAS_SENT).saturating_sub(1)
    }

    /// Whether the connection has been idle for [`EVICTION_GRACE`] at `now`.
    fn is_over(self, now: u64) -> bool {
        now.saturating_sub(self.millis()) > EVICTION_GRACE.as_millis() as u64
    }
}

/// The idle connections that the last search found, in the order in which they are closed.
#[derive(Debug)]
pub struct IdleQueue<C> {
    found: VecDeque<FoundConnection<C>>,
    /// The time of the last search.
    searched_at: Option<u64>,
    /// The last search found more connections than it kept.
    has_more: bool,
}

impl<C> Default for IdleQueue<C> {
    fn default() -> Self {
        Self { found: VecDeque::new(), searched_at: None, has_more: false }
    }
}

impl<C> IdleQueue<C> {
    /// Calls `evict` with idle connections, in their order, until one is evicted. Returns false if none is.
    ///
    /// `now`: in milliseconds since the start that the connections use. `search`: offers every idle connection. `evict`:
    /// returns false if the connection is not idle any more since that time, or has input.
    pub fn evict_one(
        &mut self,
        now: u64,
        search: impl Fn(&mut FoundConnections<C>),
        mut evict: impl FnMut(IdleSince, &C) -> bool,
    ) -> bool {
        let grace = EVICTION_GRACE.as_millis() as u64;
        let mut is_due = self.searched_at.is_none_or(|searched_at| now.saturating_sub(searched_at) > grace);
        let mut searches = 0;
        loop {
            if is_due {
                self.search(now, &search);
                searches += 1;
            }
            while self.found.front().is_some_and(|found| found.since.is_over(now)) {
                if self.found.pop_front().is_some_and(|found| evict(found.since, &found.connection)) {
                    return true;
                }
            }
            is_due = self.found.is_empty() && self.has_more;
            if !is_due || searches == MAX_SEARCHES {
                return false;
            }
        }
    }

    fn search(&mut self, now: u64, search: impl Fn(&mut FoundConnections<C>)) {
        let mut found = FoundConnections { now, first: Vec::with_capacity(MAX_FOUND), has_more: false };
        search(&mut found);
        self.has_more = found.has_more;
        self.searched_at = Some(now);
        self.found = found.first.into();
    }
}

/// The max number of searches for one new connection. A search fails if 64 connections become active during it.
const MAX_SEARCHES: u32 = 2;

/// The first connections that a search of an [`IdleQueue`] was offered.
#[derive(Debug)]
pub struct FoundConnections<C> {
    now: u64,
    /// In the order of their ranks.
    first: Vec<FoundConnection<C>>,
    has_more: bool,
}

impl<C> FoundConnections<C> {
    /// Offers an idle connection. Calls `connection` only if it is among the first.
    pub fn offer(&mut self, since: IdleSince, connection: impl FnOnce() -> C) {
        // Connections that may not be closed yet come last, in the order in which they may be.
        let is_young = !since.is_over(self.now);
        let rank = (is_young, if is_young { since.millis() } else { since.0 });
        let place = self.first.partition_point(|found| found.rank <= rank);
        self.has_more |= self.first.len() == MAX_FOUND;
        if place < MAX_FOUND {
            self.first.truncate(MAX_FOUND - 1);
            self.first.insert(place, FoundConnection { rank, since, connection: connection() });
        }
    }
}

#[derive(Debug)]
struct FoundConnection<C> {
    rank: (bool, u64),
    since: IdleSince,
    connection: C,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    /// Connections by their numbers, and the number of searches.
    #[derive(Default)]
    struct Idle {
        connections: RefCell<Vec<(IdleSince, usize)>>,
        searches: Cell<usize>,
        queue: RefCell<IdleQueue<usize>>,
    }

    impl Idle {
        fn add(&self, millis: u64, has_sent: bool, number: usize) {
            self.connections.borrow_mut().push((IdleSince::new(millis, has_sent), number));
        }

        /// Evicts a connection at `now`, and returns its number.
        fn evict(&self, now: u64) -> Option<usize> {
            let mut evicted = None;
            let search = |found: &mut FoundConnections<usize>| {
                self.searches.set(self.searches.get() + 1);
                self.connections.borrow().iter().for_each(|(since, number)| found.offer(*since, || *number));
            };
            let is_evicted = self.queue.borrow_mut().evict_one(now, search, |since, number| {
                let mut connections = self.connections.borrow_mut();
                let index = connections.iter().position(|connection| *connection == (since, *number));
                evicted = index.map(|index| connections.swap_remove(index).1);
                evicted.is_some()
            });
            assert_eq!(is_evicted, evicted.is_some());
            evicted
        }
    }

    #[test]
    fn silent_connections_are_first_and_young_ones_stay() {
        let idle = Idle::default();
        for (millis, has_sent, number) in
            [(100, true, 0), (90, true, 1), (120, false, 2), (149, false, 3), (110, false, 4)]
        {
            idle.add(millis, has_sent, number);
        }
        assert_eq!(idle.evict(140), None);
        // A young silent connection does not hide an older one that has sent something.
        assert_eq!([idle.evict(195), idle.evict(195), idle.evict(195)], [Some(4), Some(2), Some(1)]);
        assert_eq!([idle.evict(195), idle.evict(199)], [Some(0), None]);
        assert_eq!([idle.evict(200), idle.evict(200)], [Some(3), None]);
    }

    /// Under an attack each connection is refused or evicts another. Neither may look at all connections each time.
    #[test]
    fn a_search_is_rare_at_the_limit() {
        let idle = Idle::default();
        (0..10_000).for_each(|number| idle.add(number as u64 % 500, true, number));
        assert!((0..6400).all(|_| idle.evict(1000).is_some()));
        assert!(idle.searches.get() <= 101, "{} searches for 6 400 evictions", idle.searches.get());
        let young = Idle::default();
        (0..10_000).for_each(|number| young.add(990, false, number));
        assert!((0..5000).all(|step| young.evict(990 + step / 100).is_none()));
        assert!(young.searches.get() <= 2, "{} searches for 5 000 refusals", young.searches.get());
        assert!(young.evict(1041).is_some());
    }

    #[test]
    fn an_active_connection_is_passed_over() {
        let idle = Idle::default();
        (0..200).for_each(|number| idle.add(number as u64, true, number));
        assert_eq!(idle.evict(1000), Some(0));
        idle.connections.borrow_mut().retain(|(_, number)| *number >= 150);
        assert_eq!(idle.evict(1001), Some(150));
    }
}
