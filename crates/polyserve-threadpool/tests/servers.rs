//! The servers: through the server kit, the pool server over each executor.

use std::sync::Arc;

use polyserve_conformance::server::ServerSubject;
use polyserve_conformance::server_conformance;
use polyserve_core::{ConfigError, ServerConfig};
use polyserve_threadpool::{
    CrossbeamPool, LeaderFollowers, MpscPool, PoolClassic, PoolServer, Sequential, StealingPool, ThreadPerConnection,
};

server_conformance!(sequential, ServerSubject::new(Sequential::new));
server_conformance!(thread_per_connection, ServerSubject::new(ThreadPerConnection::new));
server_conformance!(leader_followers, ServerSubject::new(LeaderFollowers::new));
server_conformance!(pool_classic_over_mpsc_pool, ServerSubject::new(classic_over_mpsc_pool).pooled());
server_conformance!(pool_classic_over_crossbeam_pool, ServerSubject::new(classic_over_crossbeam_pool).pooled());
server_conformance!(pool_classic_over_stealing_pool, ServerSubject::new(classic_over_stealing_pool).pooled());
server_conformance!(pool_server_over_mpsc_pool, pool(over_mpsc_pool));
server_conformance!(pool_server_over_crossbeam_pool, pool(over_crossbeam_pool));
server_conformance!(pool_server_over_stealing_pool, pool(over_stealing_pool));

/// Declares that deferred answers block a worker.
fn pool(make: fn(ServerConfig) -> Result<PoolServer, ConfigError>) -> ServerSubject {
    ServerSubject::new(make).deviating(|declared| declared.later_answers_hold_a_worker = true)
}

fn over_mpsc_pool(config: ServerConfig) -> Result<PoolServer, ConfigError> {
    PoolServer::new(config, |config| Ok(Arc::new(MpscPool::new(config.into())?)))
}

fn over_crossbeam_pool(config: ServerConfig) -> Result<PoolServer, ConfigError> {
    PoolServer::new(config, |config| Ok(Arc::new(CrossbeamPool::new(config.into())?)))
}

fn over_stealing_pool(config: ServerConfig) -> Result<PoolServer, ConfigError> {
    PoolServer::new(config, |config| Ok(Arc::new(StealingPool::new(config.into())?)))
}

fn classic_over_mpsc_pool(config: ServerConfig) -> Result<PoolClassic, ConfigError> {
    PoolClassic::new(config, |config| Ok(Arc::new(MpscPool::new(config.into())?)))
}

fn classic_over_crossbeam_pool(config: ServerConfig) -> Result<PoolClassic, ConfigError> {
    PoolClassic::new(config, |config| Ok(Arc::new(CrossbeamPool::new(config.into())?)))
}

fn classic_over_stealing_pool(config: ServerConfig) -> Result<PoolClassic, ConfigError> {
    PoolClassic::new(config, |config| Ok(Arc::new(StealingPool::new(config.into())?)))
}
