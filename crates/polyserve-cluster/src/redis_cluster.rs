//! `redis_cluster`: a key for each entity in a Redis Cluster, which spreads keys over its masters.
//!
//! Promises: linearizable while no master fails. **A failover may lose acknowledged writes**: a master acknowledges a
//! write before its replicas have it. [`RedisOptions::replicas`] makes that less likely and does not exclude it: a write
//! is acknowledged after that number of replicas has it in memory, but the cluster may elect another replica. A master
//! that was cut off or paused also serves until it notices that it was replaced: its reads may be stale, and the writes
//! that it acknowledges then are lost.
//!
//! **A Redis that evicts loses acknowledged writes too**: with `maxmemory` and a `maxmemory-policy` of `allkeys-...`, a full
//! master removes entities. A store logs a warning when it opens. Set `maxmemory-policy noeviction`: a full master then refuses
//! puts. It needs Redis 6.2 or later, for `SET` with `GET`, and its protocol RESP3.
//!
//! * A key is the prefix and the text of the id; its value is the JSON of the entity. A put is one `SET` with `GET`:
//!   its answer tells `Created` from `Replaced`. A write with a condition is a script that compares the bytes of the
//!   entity that the condition was evaluated on.
//! * There is one connection to each node, and a second one after a read was late. Requests are pipelined on it. With
//!   `replicas`, each write is followed by a `WAIT`, and a node serves the next request of the connection only after
//!   it. So writes to a master take turns, each of about a round trip to a replica.
//! * `MOVED` and `ASK` are followed, also to a node that has no slot yet. A request that the cluster refused, because a slot moves or has
//!   no master yet, is repeated until its deadline. If a node does not answer, or is cut off from the others, the cluster's layout is
//!   read anew.
//! * `len` visits all keys of the database with `SCAN`, and takes some bytes of memory for each. It fails if a master is not
//!   connected, or a slot has none.
//!
//! Source: the [Redis Cluster specification](https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/).
//!
//! A scan shows entities in the order of the slots of their keys. An entity that stays is shown once, also if its slot moves meanwhile.
//! A page costs the names of all keys of the slots that it reads. If there are fewer entities than slots, that is a command for each of
//! up to 16,384 slots. The user of an `ACL` needs the right to `EVAL` and `CLUSTER GETKEYSINSLOT`.
//!
//! *Wins when* throughput must grow with machines, and a failover may lose the last moment's writes. *Loses when* a lost
//! write matters.

mod cluster;
mod link;
mod pages;
mod reply;

use polyserve_core::{Entity, Identifiable};
use redis::cluster::ClusterClientBuilder;
use redis::{
    ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, ProtocolVersion, TlsCertificates,
};

use self::cluster::Cluster;
use crate::error::ConnectError;
use crate::limits::StoreLimits;
use crate::remote::{Remote, unique_name};
use crate::tls::EngineTls;
use crate::urls;

/// A store in a Redis Cluster.
///
/// ```no_run
/// use polyserve_cluster::{RedisCluster, RedisOptions};
/// use polyserve_core::{Entity, EntityRepo, EntityRepoExt};
///
/// let nodes = "redis://10.0.0.1:6379,redis://10.0.0.2:6379,redis://10.0.0.3:6379";
/// let store = RedisCluster::<Entity>::connect(nodes, RedisOptions::default())?;
/// store.put(Entity::new(1, "first", 0.5)).wait()?;
/// assert_eq!(store.fetch(&1).wait()?, Some(Entity::new(1, "first", 0.5)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RedisCluster<E: Identifiable = Entity> {
    remote: Remote<E, Cluster>,
}

/// The settings of a [`RedisCluster`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RedisOptions {
    /// The text that begins each key. Stores with the same prefix share their entities. No prefix may begin with the
    /// prefix of another store, because [`len`](polyserve_core::EntityRepo::len) counts by prefix. Default: `polyserve:`.
    pub prefix: String,
    /// The number of replicas that have a write before it is acknowledged. Default: 0.
    pub replicas: u32,
    /// The password of all nodes, if the URLs have none. Default: none.
    pub password: Option<String>,
    /// The authorities that may have issued the nodes' certificates, and the certificate of the store: for `rediss` URLs. Default: none.
    pub tls: Option<EngineTls>,
    /// How long to wait, and how much to hold.
    pub limits: StoreLimits,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self { prefix: "polyserve:".into(), replicas: 0, password: None, tls: None, limits: StoreLimits::default() }
    }
}

impl RedisOptions {
    /// Sets the text that begins each key.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// Sets the number of replicas that have a write before it is acknowledged.
    #[must_use]
    pub fn replicas(self, replicas: u32) -> Self {
        Self { replicas, ..self }
    }

    /// Sets the password of all nodes.
    #[must_use]
    pub fn password(self, password: impl Into<String>) -> Self {
        Self { password: Some(password.into()), ..self }
    }

    /// Sets the authorities and the certificate of the store, for `rediss` URLs.
    #[must_use]
    pub fn tls(self, tls: EngineTls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Sets how long to wait, and how much to hold.
    #[must_use]
    pub fn limits(self, limits: StoreLimits) -> Self {
        Self { limits, ..self }
    }
}

impl<E: Identifiable> RedisCluster<E> {
    /// Connects to the cluster of the nodes at `urls`, which are separated by commas: `redis://HOST:PORT,...`, or
    /// `rediss://HOST:PORT,...` with [`RedisOptions::tls`]. The other nodes of the cluster are found through these. All URLs have the same
    /// user and password. With `rediss`, every node is asked over TLS.
    ///
    /// It blocks this thread until the cluster has answered.
    ///
    /// # Errors
    ///
    /// Returns an error if a URL is invalid, or if the cluster does not answer within the connect timeout. What can never
    /// succeed, such as a wrong password or a server that is no cluster, fails at once.
    pub fn connect(urls: &str, options: RedisOptions) -> Result<Self, ConnectError> {
        let RedisOptions { prefix, replicas, password, tls, limits } = options;
        let mut nodes = Vec::new();
        for (url, number) in urls::split(urls).into_iter().zip(1..) {
            let example = "an example: redis://127.0.0.1:6379";
            let node = url.into_connection_info();
            // The URL may have a password, so the message does not show it.
            let invalid =
                |error| ConnectError::caused(format!("the Redis URL number {number} is invalid; {example}"), error);
            let node = node.map_err(invalid)?;
            if let ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } = node.addr()
                && host.contains([',', ' ', '%'])
            {
                let what =
                    format!("the Redis URL number {number} has no valid host; each URL has its own scheme; {example}");
                return Err(ConnectError::new(what));
            }
            nodes.push(node);
        }
        // The store bounds the time of each attempt itself, and decides what is sent again. So the client has no response
        // timeout: that would be two more timers for each request.
        let max_wait = limits.timeout / 3;
        let has_password = nodes.iter().any(|node| node.redis_settings().password().is_some());
        let is_secure = |node: &ConnectionInfo| match node.addr() {
            // The fragment #insecure of a URL makes the client take any certificate.
            ConnectionAddr::TcpTls { insecure: true, .. } => {
                Err(ConnectError::new("a Redis URL ends with #insecure, so that any certificate would be taken"))
            }
            addr => Ok(matches!(addr, ConnectionAddr::TcpTls { .. })),
        };
        let secure = nodes.iter().map(is_secure).collect::<Result<Vec<_>, _>>()?;
        let has_tls = secure.contains(&true);
        if has_tls && secure.contains(&false) {
            return Err(ConnectError::new("the Redis URLs are redis:// and rediss://, and a cluster has one of them"));
        }
        let mut client = ClusterClientBuilder::new(nodes);
        if let (false, Some(password)) = (has_password, password) {
            client = client.password(password);
        }
        if has_tls {
            client = client.certs(certificates(tls.unwrap_or_default())?);
        }
        let client = client
            .retries(0)
            // A connection that ends gives notice only over RESP3.
            .use_protocol(ProtocolVersion::RESP3)
            .connection_timeout(max_wait / 2)
            .build()
            .map_err(|error| ConnectError::caused("the Redis URLs do not describe a cluster", error))?;
        let max_opening = limits.max_opening();
        let open = move || Cluster::new(client, replicas, max_wait, max_opening);
        Ok(Self { remote: Remote::connect(limits, prefix, open)? })
    }

    /// Connects to a new, empty store, with a prefix of its own. The entities are removed when the store is dropped. For
    /// measurements and tests.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`connect`](Self::connect).
    pub fn temporary(urls: &str, options: RedisOptions) -> Result<Self, ConnectError> {
        let prefix = format!("{}{}", unique_name(), options.prefix);
        let mut store = Self::connect(urls, options.prefix(prefix))?;
        store.remote.make_temporary();
        Ok(store)
    }
}

/// The authorities and the certificate in the form of the client library.
fn certificates(tls: EngineTls) -> Result<TlsCertificates, ConnectError> {
    if tls.ca.is_none() {
        let what = "the Redis URL is rediss, and needs the authorities of the nodes: RedisOptions::tls, or the file of \
                    REDISCLI_CACERT for a command";
        return Err(ConnectError::new(what));
    }
    tls.check("Redis")?;
    let client_tls = tls.identity.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
    Ok(TlsCertificates { client_tls, root_cert: tls.ca })
}

crate::remote::repo!(RedisCluster);
