//! The server kit on the pool server over executors of async runtimes. Only this crate depends on both.
#![cfg(all(feature = "threadpool", feature = "tokio", feature = "smol", feature = "futures"))]

use std::sync::Arc;

use polyserve::runtimes::executors::{FuturesTasks, SmolTasks, TokioBlocking, TokioTasks};
use polyserve::threadpool::PoolServer;
use polyserve::{ConfigError, ServerConfig};
use polyserve_conformance::server::ServerSubject;
use polyserve_conformance::server_conformance;

server_conformance!(pool_server_over_tokio_tasks, pool(over_tokio_tasks));
server_conformance!(pool_server_over_tokio_blocking, pool(over_tokio_blocking));
server_conformance!(pool_server_over_smol_tasks, pool(over_smol_tasks));
server_conformance!(pool_server_over_futures_tasks, pool(over_futures_tasks));

/// Declares that deferred answers block a worker.
fn pool(make: fn(ServerConfig) -> Result<PoolServer, ConfigError>) -> ServerSubject {
    ServerSubject::new(make).deviating(|declared| declared.later_answers_hold_a_worker = true)
}

fn over_tokio_tasks(config: ServerConfig) -> Result<PoolServer, ConfigError> {
    PoolServer::new(config, |config| Ok(Arc::new(TokioTasks::new(config.into())?)))
}

fn over_tokio_blocking(config: ServerConfig) -> Result<PoolServer, ConfigError> {
    PoolServer::new(config, |config| Ok(Arc::new(TokioBlocking::new(config.into())?)))
}

fn over_smol_tasks(config: ServerConfig) -> Result<PoolServer, ConfigError> {
    PoolServer::new(config, |config| Ok(Arc::new(SmolTasks::new(config.into())?)))
}

fn over_futures_tasks(config: ServerConfig) -> Result<PoolServer, ConfigError> {
    PoolServer::new(config, |config| Ok(Arc::new(FuturesTasks::new(config.into())?)))
}
