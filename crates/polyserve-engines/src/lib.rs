//! Starts the engines of `polyserve-cluster` on loopback: etcd with three members, Redis Cluster with three masters and three
//! replicas, and PostgreSQL. For tests and measurements, and to try the stores out.
//!
//! Each engine is the real one, as the system has it installed. It has a directory below the system's temporary one, which is
//! removed at the end, and a process group. If this process is killed, so is the engine: the thread that starts an engine has
//! to live as long as the engine.
//!
//! The program `polyserve-engines` starts them and prints a name for `polyserve serve --repo` for each.
#![forbid(unsafe_code)]

pub mod etcd;
pub mod postgres;
pub mod process;
pub mod redis;
pub mod slow;

use etcd::EtcdCluster;
use postgres::PostgresServer;
use redis::RedisNodes;

use process::{EngineProcess, Missing};

/// A kind of engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// etcd with three members.
    Etcd,
    /// Redis Cluster with three masters, each with a replica.
    Redis,
    /// One PostgreSQL server.
    Postgres,
}

impl EngineKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Etcd, Self::Redis, Self::Postgres];

    /// Returns the name of the store over this engine.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Redis => "redis_cluster",
            Self::Postgres => "postgres",
        }
    }

    /// Starts an engine, and waits until it serves.
    ///
    /// # Errors
    ///
    /// Returns an error if the engine is not installed.
    ///
    /// # Panics
    ///
    /// Panics if the engine does not start.
    pub fn start(self) -> Result<RunningEngine, Missing> {
        Ok(match self {
            Self::Etcd => RunningEngine::Etcd(EtcdCluster::start()?),
            Self::Redis => RunningEngine::Redis(RedisNodes::start()?),
            Self::Postgres => RunningEngine::Postgres(PostgresServer::start()?),
        })
    }
}

/// A running engine. It ends when this is dropped.
#[derive(Debug)]
pub enum RunningEngine {
    /// etcd.
    Etcd(EtcdCluster),
    /// Redis Cluster.
    Redis(RedisNodes),
    /// PostgreSQL.
    Postgres(PostgresServer),
}

impl RunningEngine {
    /// Returns the URLs of its nodes, separated by commas.
    pub fn urls(&self) -> String {
        match self {
            Self::Etcd(etcd) => etcd.urls(),
            Self::Redis(redis) => redis.urls(),
            Self::Postgres(postgres) => postgres.url(),
        }
    }

    /// Returns the ids of all processes of its nodes.
    pub fn process_ids(&mut self) -> Vec<u32> {
        match self {
            Self::Etcd(etcd) => etcd.processes().map(|process| process.id()).collect(),
            Self::Redis(redis) => redis.processes().map(|process| process.id()).collect(),
            Self::Postgres(postgres) => postgres.process_ids(),
        }
    }

    /// Pauses all nodes until [`resume`](Self::resume).
    pub fn stop(&mut self) {
        match self {
            Self::Etcd(etcd) => etcd.processes().for_each(|process| process.stop()),
            Self::Redis(redis) => redis.processes().for_each(|process| process.stop()),
            Self::Postgres(postgres) => postgres.stop(),
        }
    }

    /// Continues all nodes after [`stop`](Self::stop).
    pub fn resume(&mut self) {
        match self {
            Self::Etcd(etcd) => etcd.processes().for_each(|process| process.resume()),
            Self::Redis(redis) => redis.processes().for_each(|process| process.resume()),
            Self::Postgres(postgres) => postgres.resume(),
        }
    }

    /// Ends all nodes, as `kill -9` does.
    pub fn kill(&mut self) {
        match self {
            Self::Etcd(etcd) => etcd.processes().for_each(EngineProcess::kill),
            Self::Redis(redis) => redis.processes().for_each(EngineProcess::kill),
            Self::Postgres(postgres) => postgres.kill(),
        }
    }

    /// Starts all nodes again, and waits until they serve.
    ///
    /// # Panics
    ///
    /// Panics if a node does not start.
    pub fn restart(&mut self) {
        match self {
            Self::Etcd(etcd) => etcd.run(),
            Self::Redis(redis) => redis.restart(),
            Self::Postgres(postgres) => postgres.restart(),
        }
    }

    /// Makes the engine refuse to store anything, or store again. It answers reads. PostgreSQL ends its clients' connections too.
    ///
    /// # Panics
    ///
    /// Panics if the engine does not answer.
    pub fn refuse_writes(&mut self, refuse: bool) {
        match self {
            Self::Etcd(etcd) => etcd.refuse_writes(refuse),
            Self::Redis(redis) => redis.refuse_writes(refuse),
            Self::Postgres(postgres) => postgres.refuse_writes(refuse),
        }
    }

    /// Ends the connections of all clients, and waits until the clients have noticed it, and the engine serves.
    ///
    /// # Panics
    ///
    /// Panics if the engine or a client does not.
    pub fn end_connections(&mut self) {
        match self {
            Self::Etcd(etcd) => etcd.end_connections(),
            Self::Redis(redis) => redis.end_connections(),
            Self::Postgres(postgres) => postgres.end_connections(),
        }
    }
}
