//! The limit on the open connections of one client address.
//!
//! Each connection that is admitted [takes a place](PeerLimit::admit) of its address, and frees it when the place is dropped, which is
//! when its socket closes. An IPv4 address counts alone. An IPv6 address counts with all others of its /64 network, because one client
//! has such a network as a rule.
//!
//! # Cost
//!
//! Without a limit: a branch for each connection. With one: a system call for the address, and a lock when a connection is admitted and
//! when it closes. Only addresses with a connection take memory.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use polyserve_core::sync::{Mutex, lock};
use polyserve_core::{ServerConfig, TrustedProxies};

/// The number of open connections of each client address, and the limit on it.
#[derive(Debug)]
pub struct PeerLimit {
    max: Option<u64>,
    exempt: TrustedProxies,
    open: Mutex<HashMap<IpAddr, NonZeroU64>>,
    refused: AtomicU64,
}

/// The place of a connection among those of its client address. It is free again when this is dropped.
#[derive(Debug, Default)]
pub struct PeerPlace(Option<Box<TakenPlace>>);

/// In a box, because the connections of a server without a limit have none.
#[derive(Debug)]
struct TakenPlace {
    limit: Arc<PeerLimit>,
    client: IpAddr,
}

impl PeerLimit {
    /// The limit of a server without connections.
    pub fn new(config: &ServerConfig) -> Arc<Self> {
        let (max, exempt) = (config.max_connections_per_peer, config.trusted_proxies.clone());
        Arc::new(Self { max, exempt, open: Mutex::default(), refused: AtomicU64::new(0) })
    }

    /// Takes the place of a new connection. `peer` returns the address of its client. A connection without an
    /// address, or of a trusted proxy, is not limited.
    ///
    /// Returns `None`, and counts that, if the address has as many open connections as it may have. The caller then rejects the
    /// connection.
    pub fn admit(self: &Arc<Self>, peer: impl FnOnce() -> Option<IpAddr>) -> Option<PeerPlace> {
        let Some(max) = self.max else { return Some(PeerPlace::default()) };
        let Some(client) = peer().filter(|peer| !self.exempt.contains(*peer)).map(client) else {
            return Some(PeerPlace::default());
        };
        let mut open = lock(&self.open);
        let count = open.get(&client).map_or(0, |count| count.get());
        if count >= max {
            drop(open);
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        open.insert(client, NonZeroU64::MIN.saturating_add(count));
        Some(PeerPlace(Some(Box::new(TakenPlace { limit: Arc::clone(self), client }))))
    }

    /// The number of connections that were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Drop for PeerPlace {
    fn drop(&mut self) {
        let Some(place) = self.0.take() else { return };
        let TakenPlace { limit, client } = *place;
        let mut open = lock(&limit.open);
        match open.get(&client).and_then(|count| NonZeroU64::new(count.get() - 1)) {
            Some(count) => drop(open.insert(client, count)),
            None => drop(open.remove(&client)),
        }
    }
}

/// The address under which the connections of a client are counted.
fn client(peer: IpAddr) -> IpAddr {
    const NETWORK: u128 = !(u64::MAX as u128);
    match peer.to_canonical() {
        IpAddr::V6(addr) => Ipv6Addr::from_bits(addr.to_bits() & NETWORK).into(),
        v4 => v4,
    }
}

#[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
mod tests {
    use super::*;

    fn limit(max: u64) -> Arc<PeerLimit> {
        PeerLimit::new(&ServerConfig::default().max_connections_per_peer(max))
    }

    fn admit(limit: &Arc<PeerLimit>, peer: &str) -> Option<PeerPlace> {
        limit.admit(|| Some(peer.parse().expect("it is an address")))
    }

    #[test]
    fn an_address_has_its_places_and_no_other_takes_them() {
        let limit = limit(2);
        let [first, second] = [(); 2].map(|()| admit(&limit, "192.0.2.1"));
        assert!(first.is_some() && second.is_some());
        assert!(admit(&limit, "192.0.2.1").is_none() && admit(&limit, "::ffff:192.0.2.1").is_none());
        assert!(admit(&limit, "192.0.2.2").is_some(), "another client is served");
        assert_eq!(limit.refused(), 2);
        drop(first);
        let third = admit(&limit, "192.0.2.1");
        assert!(third.is_some() && admit(&limit, "192.0.2.1").is_none());
        drop((second, third));
        assert_eq!(lock(&limit.open).len(), 0, "an address without connections takes no memory");
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_client() {
        let limit = limit(1);
        let _open = admit(&limit, "2001:db8:0:1::1");
        assert!(admit(&limit, "2001:db8:0:1:ffff::2").is_none());
        assert!(admit(&limit, "2001:db8:0:2::1").is_some());
    }

    #[test]
    fn a_trusted_proxy_is_not_limited() {
        let config = ServerConfig::default().max_connections_per_peer(1);
        let limit = PeerLimit::new(&config.trusted_proxies("192.0.2.0/28".parse().expect("it is a network")));
        let places = ["192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1"].map(|peer| admit(&limit, peer));
        assert!(places.iter().all(Option::is_some));
        let _open = admit(&limit, "192.0.2.16");
        assert!(admit(&limit, "192.0.2.16").is_none());
    }

    #[test]
    fn what_has_no_address_or_no_limit_is_admitted() {
        let limited = limit(1);
        let places = [(); 3].map(|()| limited.admit(|| None));
        assert!(places.iter().all(Option::is_some));
        let free = PeerLimit::new(&ServerConfig::default());
        let places = [(); 3].map(|()| free.admit(|| panic!("the address is not asked for")));
        assert!(places.iter().all(Option::is_some));
    }
}
