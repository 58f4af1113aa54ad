//! The stores under test, and their engines.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use polyserve_cluster::{ConnectError, StoreLimits};
use polyserve_core::{EntityRepo, Identifiable};

use crate::run::etcd::EtcdCluster;
use crate::run::postgres::PostgresServer;
use crate::run::redis::RedisNodes;
use crate::run::{Missing, Process};

/// A store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Etcd,
    Redis,
    Postgres,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Etcd, Self::Redis, Self::Postgres];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Redis => "redis_cluster",
            Self::Postgres => "postgres",
        }
    }

    /// Whether this build has the store.
    pub(crate) fn built(self) -> Result<(), Missing> {
        let (feature, is_on) = match self {
            Self::Etcd => ("etcd", cfg!(feature = "etcd")),
            Self::Redis => ("redis", cfg!(feature = "redis")),
            Self::Postgres => ("postgres", cfg!(feature = "postgres")),
        };
        if is_on { Ok(()) } else { Err(Missing(format!("the feature `{feature}` is off"))) }
    }

    /// Starts an engine.
    pub(crate) fn start(self) -> Result<Engine, Missing> {
        self.built()?;
        Ok(match self {
            Self::Etcd => Engine::Etcd(EtcdCluster::start()?),
            Self::Redis => Engine::Redis(RedisNodes::start()?),
            Self::Postgres => Engine::Postgres(PostgresServer::start()?),
        })
    }

    /// Connects a store to an engine. Stores with one name space share their entities.
    #[allow(unused_variables, clippy::needless_pass_by_value, reason = "a build without a store does not use them")]
    pub(crate) fn connect<E: Identifiable>(
        self,
        urls: &str,
        name_space: &str,
        limits: StoreLimits,
    ) -> Result<Arc<dyn EntityRepo<E>>, ConnectError> {
        match self {
            #[cfg(feature = "etcd")]
            Self::Etcd => {
                let options = polyserve_cluster::EtcdOptions::default().prefix(format!("{name_space}/"));
                Ok(Arc::new(polyserve_cluster::Etcd::<E>::connect(urls, options.limits(limits))?))
            }
            #[cfg(feature = "redis")]
            Self::Redis => {
                let options = polyserve_cluster::RedisOptions::default().prefix(format!("{name_space}:"));
                Ok(Arc::new(polyserve_cluster::RedisCluster::<E>::connect(urls, options.limits(limits))?))
            }
            #[cfg(feature = "postgres")]
            Self::Postgres => {
                let options = polyserve_cluster::PostgresOptions::default().table(name_space);
                Ok(Arc::new(polyserve_cluster::Postgres::<E>::connect(urls, options.limits(limits))?))
            }
            #[allow(unreachable_patterns)]
            _ => unreachable!("no test of a store runs without its feature"),
        }
    }
}

/// Connects a store to a Redis Cluster. Its writes wait for this number of replicas.
#[allow(unused_variables, clippy::needless_pass_by_value, reason = "a build without the store does not use them")]
pub(crate) fn connect_redis(
    urls: &str,
    prefix: &str,
    replicas: u32,
    limits: StoreLimits,
) -> Result<Arc<dyn EntityRepo>, ConnectError> {
    #[cfg(feature = "redis")]
    {
        let options = polyserve_cluster::RedisOptions::default().prefix(prefix).replicas(replicas).limits(limits);
        Ok(Arc::new(polyserve_cluster::RedisCluster::<polyserve_core::Entity>::connect(urls, options)?))
    }
    #[cfg(not(feature = "redis"))]
    unreachable!("no test of a store runs without its feature")
}

/// A name space that no other test of this run has.
pub(crate) fn name_space() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("t{}", COUNT.fetch_add(1, Relaxed))
}

/// A running engine.
pub(crate) enum Engine {
    Etcd(EtcdCluster),
    Redis(RedisNodes),
    Postgres(PostgresServer),
}

impl Engine {
    pub(crate) fn urls(&self) -> String {
        match self {
            Self::Etcd(etcd) => etcd.urls(),
            Self::Redis(redis) => redis.urls(),
            Self::Postgres(postgres) => postgres.url(),
        }
    }

    /// Stops all nodes, until [`resume`](Self::resume).
    pub(crate) fn stop(&mut self) {
        match self {
            Self::Etcd(etcd) => etcd.processes().for_each(|process| process.stop()),
            Self::Redis(redis) => redis.processes().for_each(|process| process.stop()),
            Self::Postgres(postgres) => postgres.stop(),
        }
    }

    pub(crate) fn resume(&mut self) {
        match self {
            Self::Etcd(etcd) => etcd.processes().for_each(|process| process.resume()),
            Self::Redis(redis) => redis.processes().for_each(|process| process.resume()),
            Self::Postgres(postgres) => postgres.resume(),
        }
    }

    /// Ends all nodes, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        match self {
            Self::Etcd(etcd) => etcd.processes().for_each(Process::kill),
            Self::Redis(redis) => redis.processes().for_each(Process::kill),
            Self::Postgres(postgres) => postgres.kill(),
        }
    }

    /// Starts all nodes again, and waits until they serve.
    pub(crate) fn restart(&mut self) {
        match self {
            Self::Etcd(etcd) => etcd.run(),
            Self::Redis(redis) => redis.restart(),
            Self::Postgres(postgres) => postgres.restart(),
        }
    }
}
