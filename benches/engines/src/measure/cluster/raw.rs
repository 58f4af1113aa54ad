//! Reads by a client library without a server: the same keys, concurrency and threads as a store, without HTTP.

use std::cell::Cell;
use std::time::{Duration, Instant};

use redis::AsyncCommands as _;
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::spawn_local;

use crate::Failure;

/// The number of connections to PostgreSQL, as in a store.
const SESSIONS: usize = 4;

/// Reads with `readers` tasks for `time`. Prints the reads per second.
pub(super) fn read(repo: &str, keys: u64, readers: usize, time: Duration) -> Result<(), Failure> {
    let (name, urls) = repo.split_once(':').ok_or("NAME:LOCATION is missing")?;
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    let rate = runtime.block_on(async {
        match name {
            "etcd" => {
                let member = urls.split(',').next().unwrap_or(urls);
                let client = etcd_client::Client::connect([member], None).await?.kv_client();
                let get = async |_, id| {
                    let found = client.clone().get(format!("polyserve/{id}"), None).await?;
                    Ok(found.kvs().first().map(|pair| pair.value().to_vec()))
                };
                repeated(keys, readers, time, get).await
            }
            "redis_cluster" => {
                let client = redis::cluster::ClusterClient::new(urls.split(',').collect::<Vec<_>>())?;
                let connection = client.get_async_connection().await?;
                repeated(keys, readers, time, async |_, id| {
                    Ok(connection.clone().get(format!("polyserve:{id}")).await?)
                })
                .await
            }
            "postgres" => {
                let mut sessions = Vec::new();
                for _ in 0..SESSIONS {
                    let (client, connection) = tokio_postgres::connect(urls, tokio_postgres::NoTls).await?;
                    spawn_local(connection);
                    let get = client.prepare("SELECT value FROM polyserve WHERE id = $1").await?;
                    sessions.push((client, get));
                }
                let get = async |reader: usize, id: u64| {
                    let (client, get) = &sessions[reader % SESSIONS];
                    let row = client.query_opt(get, &[&id.to_string()]).await?;
                    Ok(row.map(|row| row.try_get::<_, String>(0)).transpose()?.map(String::into_bytes))
                };
                repeated(keys, readers, time, get).await
            }
            _ => Err(format!("{name} is no engine").into()),
        }
    })?;
    println!("{rate}");
    Ok(())
}

/// Reads with all tasks after a warm-up of a fifth of `time`. Every value must be the entity with the requested id.
async fn repeated(
    keys: u64,
    readers: usize,
    time: Duration,
    get: impl AsyncFn(usize, u64) -> Result<Option<Vec<u8>>, Failure>,
) -> Result<f64, Failure> {
    let start = Instant::now() + time / 5;
    let end = start + time;
    let count = Cell::new(0_u64);
    let reader = async |reader: usize| {
        let mut id = reader as u64 * 7_919 % keys;
        loop {
            let value = get(reader, id).await?.ok_or_else(|| format!("the entity {id} is missing"))?;
            if !value.starts_with(format!("{{\"id\":{id},").as_bytes()) {
                return Err(format!("not the entity {id}: {}", String::from_utf8_lossy(&value)).into());
            }
            let now = Instant::now();
            if now >= end {
                return Ok::<(), Failure>(());
            }
            count.set(count.get() + u64::from(now >= start));
            id = (id + 7_919) % keys;
        }
    };
    futures_util::future::try_join_all((0..readers).map(&reader)).await?;
    Ok(count.get() as f64 / time.as_secs_f64())
}
