//! How loops hand new connections to each other, so that each has as many as the others. Without it, the kernel selects the loop by the
//! client's address and port: with few connections, one loop may have most of them.
//!
//! Invariant: a connection is counted for one loop, and in the table, from the time that it was accepted until it is closed. A loop that
//! has ended gets none: then the one that has accepted the connection serves it.
//!
//! Cost: for each connection a look at the count of each loop; for one that is handed over, a lock and a wake-up. Nothing for a request.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use polyserve_core::sync::{Mutex, lock};
use polyserve_serving::{ConnectionTable, ReservedPlace, WokenList};

use crate::loop_socket::LoopSocket;

/// The number in the [`WokenList`] of a loop that has been given connections.
pub(crate) const GIVEN: usize = usize::MAX - 2;

/// A connection that was accepted.
#[derive(Debug)]
pub(crate) struct NewConnection {
    pub(crate) stream: TcpStream,
    /// The address of its other end.
    pub(crate) peer: Option<SocketAddr>,
    /// `None` if it is to be rejected.
    pub(crate) place: Option<ReservedPlace>,
}

impl NewConnection {
    /// Counts the connection in `table` at once: a loop that gets it may be blocked for long.
    pub(crate) fn counted(
        (stream, peer): (TcpStream, Option<SocketAddr>),
        table: &ConnectionTable<LoopSocket>,
    ) -> Self {
        Self { stream, peer, place: table.reserve(|| Some(peer?.ip())) }
    }
}

/// What the loops of a run know about each other.
#[derive(Debug)]
pub(crate) struct Spread {
    loops: Vec<Inbox>,
}

/// What a loop is given by others. It takes connections from [`LoopShare::begin`] to [`LoopShare::try_end`].
#[derive(Debug, Default)]
struct Inbox {
    /// The number of its connections, with those that it is given.
    open: AtomicUsize,
    /// `None`: none is taken.
    given: Mutex<Option<Vec<NewConnection>>>,
    /// Wakes the loop. Set before it runs.
    woken: OnceLock<WokenList>,
}

/// The part of one loop. If the run does not spread its connections, a loop keeps those that it accepts.
#[derive(Debug)]
pub(crate) struct LoopShare {
    /// The number of the loop.
    pub(crate) shard: usize,
    spread: Option<Arc<Spread>>,
}

impl Spread {
    pub(crate) fn new(loops: usize) -> Self {
        Self { loops: (0..loops).map(|_| Inbox::default()).collect() }
    }
}

impl LoopShare {
    pub(crate) fn new(shard: usize, spread: Option<Arc<Spread>>) -> Self {
        Self { shard, spread }
    }

    fn inbox(&self) -> Option<&Inbox> {
        self.spread.as_ref()?.loops.get(self.shard)
    }

    /// The loop begins: it can be given connections.
    pub(crate) fn begin(&self, woken: &WokenList) {
        if let Some(inbox) = self.inbox() {
            let _ = inbox.woken.set(woken.clone());
            *lock(&inbox.given) = Some(Vec::new());
        }
    }

    /// Counts a connection that the loop has accepted, and returns it unless a loop with fewer connections gets it. The loop keeps those
    /// that it rejects.
    pub(crate) fn keep(&self, accepted: NewConnection) -> Option<NewConnection> {
        let (Some(spread), Some(own)) = (&self.spread, self.inbox()) else { return Some(accepted) };
        let (other, open) =
            spread.loops.iter().map(|inbox| (inbox, inbox.open.load(Ordering::Relaxed))).min_by_key(|it| it.1)?;
        if accepted.place.is_some()
            && open < own.open.load(Ordering::Relaxed)
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

    /// The connections that the loop was given since the last call.
    pub(crate) fn take(&self) -> Vec<NewConnection> {
        self.inbox().and_then(|inbox| lock(&inbox.given).as_mut().map(std::mem::take)).unwrap_or_default()
    }

    /// A connection of the loop has ended, or was not added.
    pub(crate) fn close(&self) {
        if let Some(inbox) = self.inbox() {
            inbox.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Closes the inbox of a loop that wants to end, so that it is given no more connections. Does nothing if it has not taken all.
    /// Returns whether the inbox is closed, and the loop may end.
    pub(crate) fn try_end(&self) -> bool {
        let Some(inbox) = self.inbox() else { return true };
        let mut given = lock(&inbox.given);
        if given.as_ref().is_some_and(|given| !given.is_empty()) {
            return false;
        }
        *given = None;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use polyserve_core::{Reply, Request, ServerConfig};
    use polyserve_serving::ServerState;

    use super::*;

    /// Regression test: a connection counted when the loop that got it had time for it. With a loop that was blocked, a server had more
    /// than `max_connections`.
    #[test]
    fn a_connection_counts_before_its_loop_takes_it() {
        let config = ServerConfig::default().max_connections(4);
        let service = |_: Request<'_>| Reply::text("");
        let server = Arc::new(ServerState::new(Arc::new(service), &config));
        let table = ConnectionTable::<LoopSocket>::multiplexed(server, 2);
        let spread = Arc::new(Spread::new(2));
        let shares = [0, 1].map(|shard| LoopShare::new(shard, Some(Arc::clone(&spread))));
        let woken = WokenList::new(|| {});
        shares.iter().for_each(|share| share.begin(&woken));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut clients = Vec::new();
        let mut kept = Vec::new();
        for _ in 0..10 {
            clients.push(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            let (stream, peer) = listener.accept().unwrap();
            kept.extend(shares[0].keep(NewConnection::counted((stream, Some(peer)), &table)));
        }
        assert_eq!(table.open(), 4);
        let given = shares[1].take();
        assert!(given.len() == 2 && given.iter().all(|connection| connection.place.is_some()));
        assert_eq!(kept.iter().filter(|connection| connection.place.is_none()).count(), 6, "they are rejected");
        for place in given.into_iter().chain(kept).filter_map(|connection| connection.place) {
            table.release(place);
        }
        assert!(table.is_empty());
    }
}
