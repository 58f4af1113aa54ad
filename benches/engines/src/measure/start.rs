//! The start with a million entities: the time until all are in memory, and their size in memory and on disk.
//!
//! Each engine starts in a new process. The files are in the page cache.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use polyserve_core::{Entity, EntityRepo as _};
use polyserve_durable::{Durable, DurableOptions};
use polyserve_memory::Sharded;

use super::engine::{DurableEngine, StoreEngine, open};
use super::{median, resident};
use crate::Failure;

const ENTITIES: i64 = 1_000_000;
const STARTS: usize = 5;
const FROM_SNAPSHOT: &str = "durable, from a snapshot";
const MIB: f64 = 1024.0 * 1024.0;
const NAMES: [&str; 5] = ["durable", FROM_SNAPSHOT, "redb", "fjall", "heed"];

pub fn start(scratch: &Path) -> Result<(), Failure> {
    println!("start: {ENTITIES} entities of 15 characters, {STARTS} starts in turn");
    for (number, name) in NAMES.iter().enumerate() {
        eprintln!("fills {name}");
        fill(name, &scratch.join(format!("start-{number}")))?;
    }
    let mut seconds = vec![Vec::new(); NAMES.len()];
    let mut memory = seconds.clone();
    for _ in 0..STARTS {
        for (number, name) in NAMES.iter().enumerate() {
            let directory = scratch.join(format!("start-{number}"));
            let child = Command::new(std::env::current_exe()?).arg("start-of").arg(name).arg(directory).output()?;
            let printed = String::from_utf8(child.stdout)?;
            let [time, bytes] = printed.split_whitespace().collect::<Vec<_>>()[..] else {
                return Err(format!("{name}: {}", String::from_utf8_lossy(&child.stderr)).into());
            };
            seconds[number].push(time.parse()?);
            memory[number].push(bytes.parse()?);
        }
    }
    println!("{:32} {:>8} {:>12} {:>11}", "contestant", "time (s)", "memory (MiB)", "disk (MiB)");
    for (number, name) in NAMES.iter().enumerate() {
        let disk = bytes_below(&scratch.join(format!("start-{number}")))?;
        let (time, memory) = (median(seconds[number].clone()), median(memory[number].clone()));
        println!("{name:32} {time:>8.2} {:>12.0} {:>11.0}", memory / MIB, disk as f64 / MIB);
    }
    Ok(())
}

/// Returns the bytes on disk of a file, or of all files in a directory.
fn bytes_below(path: &Path) -> Result<u64, Failure> {
    use std::os::unix::fs::MetadataExt as _;
    if !path.is_dir() {
        return Ok(path.metadata()?.blocks() * 512);
    }
    fs::read_dir(path)?.map(|file| bytes_below(&file?.path())).sum()
}

fn fill(name: &str, directory: &Path) -> Result<(), Failure> {
    let engine = open_log(name, directory)?;
    let ids: Vec<i64> = (0..ENTITIES).collect();
    for chunk in ids.chunks(10_000) {
        let entities: Vec<_> = chunk.iter().map(|id| Entity::new(*id, "fifteen letters", 60.750847)).collect();
        engine.put_all(&entities)?;
    }
    drop(engine);
    if name == FROM_SNAPSHOT {
        let store = Durable::open_with(directory, Sharded::new(), &DurableOptions::default().compact_from(1))?;
        // A write starts a compaction.
        store.put(Entity::new(0, "fifteen letters", 60.750847)).wait()?;
        let end = Instant::now() + Duration::from_secs(60);
        while !fs::read_dir(directory)?.any(|file| is_snapshot(&file)) {
            if Instant::now() > end {
                return Err("there is no snapshot after a minute".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    Ok(())
}

/// Opens an engine. The durable store never compacts its log.
fn open_log(name: &str, directory: &Path) -> Result<Box<dyn StoreEngine>, Failure> {
    if !["durable", FROM_SNAPSHOT].contains(&name) {
        return open(name, directory);
    }
    let options = DurableOptions::default().compact_from(u64::MAX);
    Ok(Box::new(DurableEngine(Durable::open_with(directory, Sharded::new(), &options)?)))
}

fn is_snapshot(file: &std::io::Result<fs::DirEntry>) -> bool {
    file.as_ref().is_ok_and(|file| {
        let name = file.file_name().to_string_lossy().into_owned();
        name.starts_with("snapshot-") && !name.ends_with(".tmp")
    })
}

/// Opens an engine and waits until every entity is in memory. Prints the time in seconds, and the memory of this
/// process in bytes.
pub fn start_of(name: &str, directory: &Path) -> Result<(), Failure> {
    let started = Instant::now();
    let memory = Sharded::new();
    let engine = open_log(name, directory)?;
    engine.load(&memory)?;
    let elapsed = started.elapsed();
    let last = ENTITIES - 1;
    let loaded = memory.len().wait()?;
    if (loaded != 0 && loaded != ENTITIES as u64) || engine.get(last)?.is_none_or(|entity| entity.id != last) {
        return Err(format!("{loaded} entities are there").into());
    }
    println!("{} {}", elapsed.as_secs_f64(), resident(std::process::id())?);
    Ok(())
}
