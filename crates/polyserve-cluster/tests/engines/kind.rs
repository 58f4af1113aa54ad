//! The stores under test.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use polyserve_cluster::{ConnectError, StoreLimits};
use polyserve_core::{EntityRepo, Identifiable};
use polyserve_engines::process::{MAX_WAIT, Missing, output, program};

pub(crate) use polyserve_engines::{EngineKind as Kind, RunningEngine};

/// Limits that are so long that no operation fails because the machine is busy.
pub(crate) fn long_limits() -> StoreLimits {
    StoreLimits::default().timeout(Duration::from_secs(30)).connect_timeout(MAX_WAIT)
}

/// The store over an engine.
pub(crate) trait Connect: Copy {
    /// Returns an error if this build does not have the store.
    fn built(self) -> Result<(), Missing>;

    /// Connects a store to an engine. Stores with one name space share their entities.
    fn connect<E: Identifiable>(
        self,
        urls: &str,
        name_space: &str,
        limits: StoreLimits,
    ) -> Result<Arc<dyn EntityRepo<E>>, ConnectError>;

    /// Connects a store that removes its entities when it is dropped.
    fn connect_temporary(self, urls: &str) -> Result<Arc<dyn EntityRepo>, ConnectError>;

    /// Returns the number of keys or tables of temporary stores.
    fn count_temporary(self, urls: &str) -> u64;
}

impl Connect for Kind {
    fn built(self) -> Result<(), Missing> {
        let (feature, is_on) = match self {
            Self::Etcd => ("etcd", cfg!(feature = "etcd")),
            Self::Redis => ("redis", cfg!(feature = "redis")),
            Self::Postgres => ("postgres", cfg!(feature = "postgres")),
        };
        if is_on { Ok(()) } else { Err(Missing(format!("the feature `{feature}` is off"))) }
    }

    #[allow(unused_variables, clippy::needless_pass_by_value, reason = "a build without a store does not use them")]
    fn connect<E: Identifiable>(
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

    #[allow(unused_variables, reason = "a build without a store does not use them")]
    fn connect_temporary(self, urls: &str) -> Result<Arc<dyn EntityRepo>, ConnectError> {
        match self {
            #[cfg(feature = "etcd")]
            Self::Etcd => Ok(Arc::new(polyserve_cluster::Etcd::<polyserve_core::Entity>::temporary(
                urls,
                polyserve_cluster::EtcdOptions::default().limits(long_limits()),
            )?)),
            #[cfg(feature = "redis")]
            Self::Redis => Ok(Arc::new(polyserve_cluster::RedisCluster::<polyserve_core::Entity>::temporary(
                urls,
                polyserve_cluster::RedisOptions::default().limits(long_limits()),
            )?)),
            #[cfg(feature = "postgres")]
            Self::Postgres => Ok(Arc::new(polyserve_cluster::Postgres::<polyserve_core::Entity>::temporary(
                urls,
                polyserve_cluster::PostgresOptions::default().limits(long_limits()),
            )?)),
            #[allow(unreachable_patterns)]
            _ => unreachable!("no test of a store runs without its feature"),
        }
    }

    #[allow(unused_variables, reason = "a build without a store does not use them")]
    fn count_temporary(self, urls: &str) -> u64 {
        match self {
            #[cfg(feature = "etcd")]
            Self::Etcd => {
                let options = polyserve_cluster::EtcdOptions::default().prefix("temporary_").limits(long_limits());
                polyserve_cluster::Etcd::<polyserve_core::Entity>::connect(urls, options).unwrap().len().wait().unwrap()
            }
            #[cfg(feature = "redis")]
            Self::Redis => {
                let options = polyserve_cluster::RedisOptions::default().prefix("temporary_").limits(long_limits());
                polyserve_cluster::RedisCluster::<polyserve_core::Entity>::connect(urls, options)
                    .unwrap()
                    .len()
                    .wait()
                    .unwrap()
            }
            Self::Postgres => {
                let mut psql = Command::new(program("psql").expect("it comes with PostgreSQL"));
                let sql = r"SELECT count(*) FROM pg_tables WHERE tablename LIKE '%temporary\_%'";
                output(psql.args([urls, "-Atc", sql])).trim().parse().expect("psql prints a number")
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
    password: Option<&str>,
    limits: StoreLimits,
) -> Result<Arc<dyn EntityRepo>, ConnectError> {
    #[cfg(feature = "redis")]
    {
        let mut options = polyserve_cluster::RedisOptions::default().prefix(prefix).replicas(replicas).limits(limits);
        options.password = password.map(str::to_owned);
        Ok(Arc::new(polyserve_cluster::RedisCluster::<polyserve_core::Entity>::connect(urls, options)?))
    }
    #[cfg(not(feature = "redis"))]
    unreachable!("no test of a store runs without its feature")
}

/// Connects a store to an etcd cluster that has users, with the default prefix.
#[allow(unused_variables, clippy::needless_pass_by_value, reason = "a build without the store does not use them")]
pub(crate) fn connect_etcd(
    urls: &str,
    user: Option<(&str, &str)>,
    limits: StoreLimits,
) -> Result<Arc<dyn EntityRepo>, ConnectError> {
    #[cfg(feature = "etcd")]
    {
        let mut options = polyserve_cluster::EtcdOptions::default().limits(limits);
        if let Some((name, password)) = user {
            options = options.user(name, password);
        }
        Ok(Arc::new(polyserve_cluster::Etcd::<polyserve_core::Entity>::connect(urls, options)?))
    }
    #[cfg(not(feature = "etcd"))]
    unreachable!("no test of a store runs without its feature")
}

/// A name space that no other test of this run has.
pub(crate) fn name_space() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("t{}", COUNT.fetch_add(1, Relaxed))
}
