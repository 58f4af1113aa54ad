//! How loops hand new connections to each other, so that each has as many as the others. Without it, the kernel selects the loop by the
//! client's address and port: with few connections, one loop may have most of them.
//!
//! Invariant: a connection is counted for one loop, from the time that it was accepted until it is closed. A loop that has ended gets
//! none: then the one that has accepted the connection serves it.
//!
//! Cost: for each connection a look at the count of each loop; for one that is handed over, a lock and a wake-up. Nothing for a request.

use std::net::{SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use polyserve_core::sync::{Mutex, lock};
use polyserve_serving::WokenList;

/// The number in the [`WokenList`] of a loop that has been given connections.
pub(crate) const GIVEN: usize = usize::MAX - 2;

/// A connection, with the address of its other end.
pub(crate) type NewConnection = (TcpStream, Option<SocketAddr>);

/// What the loops of a run know about each other.
#[derive(Debug)]
pub(crate) struct Spread {
    loops: Vec<Inbox>,
}

/// What a loop is given.
#[derive(Debug, Default)]
struct Inbox {
    /// The number of its connections, with those that it is given.
    open: AtomicUsize,
    /// `None`: the loop has ended.
    given: Mutex<Option<Vec<NewConnection>>>,
    /// Wakes the loop. Set before it runs.
    woken: OnceLock<WokenList>,
}

impl Spread {
    pub(crate) fn new(loops: usize) -> Self {
        Self { loops: (0..loops).map(|_| Inbox::default()).collect() }
    }

    /// A loop begins: it can be given connections.
    pub(crate) fn begin(&self, shard: usize, woken: &WokenList) {
        if let Some(inbox) = self.loops.get(shard) {
            let _ = inbox.woken.set(woken.clone());
            *lock(&inbox.given) = Some(Vec::new());
        }
    }

    /// Counts a connection that the loop `shard` has accepted, and returns it unless a loop with fewer connections gets it.
    pub(crate) fn keep(&self, shard: usize, accepted: NewConnection) -> Option<NewConnection> {
        let own = self.loops.get(shard)?;
        let (other, open) =
            self.loops.iter().map(|inbox| (inbox, inbox.open.load(Ordering::Relaxed))).min_by_key(|it| it.1)?;
        if open < own.open.load(Ordering::Relaxed)
            && let Some(given) = lock(&other.given).as_mut()
            && let Some(woken) = other.woken.get()
        {
            other.open.fetch_add(1, Ordering::Relaxed);
            given.push(accepted);
            woken.wake(GIVEN);
            return None;
        }
        own.open.fetch_add(1, Ordering::Relaxed);
        Some(accepted)
    }

    /// The connections that a loop was given since the last call.
    pub(crate) fn take(&self, shard: usize) -> Vec<NewConnection> {
        let inbox = self.loops.get(shard);
        inbox.and_then(|inbox| lock(&inbox.given).as_mut().map(std::mem::take)).unwrap_or_default()
    }

    /// A connection of a loop has ended.
    pub(crate) fn close(&self, shard: usize) {
        if let Some(inbox) = self.loops.get(shard) {
            inbox.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Ends a loop, unless it was given connections that it has not taken. Returns whether it has ended.
    pub(crate) fn end(&self, shard: usize) -> bool {
        let Some(inbox) = self.loops.get(shard) else { return true };
        let mut given = lock(&inbox.given);
        let has_ended = given.as_ref().is_none_or(Vec::is_empty);
        if has_ended {
            *given = None;
        }
        has_ended
    }
}
