//! The size of an entity in bytes, in the memory of the server or in the engine.

use std::fs;
use std::path::Path;

use polyserve_load::data::Data;
use polyserve_load::{Dist, Load, Mix, Traffic, prefill_for};
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::spawn_local;

use super::super::resident;
use super::ChildProcess;
use crate::Failure;

/// Returns the number of entities to store for the measurement. It is smaller for etcd: one connection stores the
/// entities one after another, and each waits for an fsync on three members.
fn entities(name: &str) -> u64 {
    if name == "etcd" { 5_000 } else { 50_000 }
}

/// Stores entities, and returns the growth per entity in bytes.
pub(super) fn bytes_per_entity(server: &ChildProcess, repo: &str) -> Result<f64, Failure> {
    let (name, location) = repo.split_once(':').ok_or("NAME:LOCATION is missing")?;
    let bytes = || match name {
        "memory" => resident(server.child.id()),
        "durable" => directory_bytes(Path::new(location)),
        _ => engine_bytes(name, location),
    };
    let before = bytes()?;
    let traffic = Traffic::entities(&Data::new(7), entities(name), Dist::default(), Mix { get: 1, put: 0 }, 0)?;
    let stored = prefill_for(&Load::new(server.line.parse()?, traffic))?;
    // The first `KEYS` entities were already stored.
    Ok((bytes()? - before) / (stored - super::KEYS) as f64)
}

fn directory_bytes(path: &Path) -> Result<f64, Failure> {
    let mut bytes = 0.0;
    for entry in fs::read_dir(path)? {
        bytes += entry?.metadata()?.len() as f64;
    }
    Ok(bytes)
}

fn engine_bytes(name: &str, urls: &str) -> Result<f64, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(async {
        match name {
            // One member is enough: every member has all entities.
            "etcd" => {
                let member = urls.split(',').next().unwrap_or(urls);
                let status = etcd_client::Client::connect([member], None).await?.maintenance_client().status().await?;
                Ok(status.db_size() as f64)
            }
            // The sum of all nodes. Half of them are replicas.
            "redis_cluster" => {
                let mut bytes = 0.0;
                for url in urls.split(',') {
                    let mut node = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
                    let memory: String = redis::cmd("INFO").arg("memory").query_async(&mut node).await?;
                    let used = memory.lines().find_map(|line| line.strip_prefix("used_memory:"));
                    bytes += used.ok_or("INFO has no used_memory")?.trim().parse::<f64>()?;
                }
                Ok(bytes / 2.0)
            }
            "postgres" => {
                let (client, connection) = tokio_postgres::connect(urls, tokio_postgres::NoTls).await?;
                spawn_local(connection);
                let row = client.query_one("SELECT pg_total_relation_size('polyserve')", &[]).await?;
                Ok(row.try_get::<_, i64>(0)? as f64)
            }
            _ => Err(format!("{name} is no engine").into()),
        }
    })
}
