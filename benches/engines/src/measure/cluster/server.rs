//! The server over a repo, run as a child process.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use polyserve_async::TokioTcp;
use polyserve_cluster::{Etcd, Postgres, RedisCluster};
use polyserve_core::{Entity, EntityRepo, EntityService, ServerConfig, ServerExt as _};
use polyserve_durable::Durable;
use polyserve_memory::Sharded;

use crate::Failure;

/// Prints the address of the server, and serves until standard input ends.
pub(super) fn serve(repo: &str) -> Result<(), Failure> {
    let server = TokioTcp::new(ServerConfig::default())?;
    let running = server.serve("127.0.0.1:0", EntityService::new(open(repo)?))?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", running.local_addr())?;
    out.flush()?;
    let _ = std::io::stdin().read(&mut [0]);
    running.shutdown()?;
    Ok(())
}

fn open(repo: &str) -> Result<Arc<dyn EntityRepo>, Failure> {
    let (name, location) = repo.split_once(':').ok_or("NAME:LOCATION is missing")?;
    Ok(match name {
        "memory" => Arc::new(Sharded::new()),
        "durable" => Arc::new(Durable::open(location, Sharded::new())?),
        "etcd" => Arc::new(Etcd::<Entity>::connect(location, Default::default())?),
        "redis_cluster" => Arc::new(RedisCluster::<Entity>::connect(location, Default::default())?),
        "postgres" => Arc::new(Postgres::<Entity>::connect(location, Default::default())?),
        _ => return Err(format!("there is no repo {name}").into()),
    })
}
