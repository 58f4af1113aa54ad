//! The measurements of the durable store next to embedded engines, and of the stores over engines.

mod batched;
mod cluster;
mod engine;
mod header;
mod slow_disk;
mod start;

use std::fs::{self, File};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::{Entity, EntityRepo, Visit};
use polyserve_durable::disk::{Directory, Disk};
use polyserve_durable::{Durable, DurableOptions};
use polyserve_memory::Sharded;
use rustix::time::{ClockId, clock_gettime};

use self::batched::Batched;
use self::engine::{DurableEngine, NAMES, Redb, StoreEngine, open};
use self::slow_disk::{SlowBackend, SlowDisk};
use crate::{Failure, figures};

/// The number of rounds of each measurement. Every contestant runs once per round, in turn.
const ROUNDS: usize = 7;
/// The time of one contestant in a round.
const SLICE: Duration = Duration::from_millis(700);
/// The number of ids of a writer.
const IDS: i64 = 1_000;

/// Measures the part that the first argument names.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    if let Some(result) = cluster::run_if_child(args) {
        return result;
    }
    if let [part, name, directory] = args
        && part == "start-of"
    {
        return start::start_of(name, Path::new(directory));
    }
    let header = header::header(args);
    let mut args = args.iter();
    let part = args.next().map_or("all", String::as_str);
    if part == "cluster" {
        return cluster::measure(&Scratch::new()?.0, &header, args.next().map(Path::new));
    }
    let writers: usize = args.next().map_or(Ok(64), |writers| writers.parse())?;
    let scratch = Scratch::new()?;
    let runs = |name: &str| part == name || part == "all";
    if !["writes", "delay", "reads", "start", "all"].contains(&part) {
        return Err(format!("{part:?} is none of writes, delay, reads, start, all, cluster, model").into());
    }
    print!("{}", figures::header_lines(&header));
    if runs("writes") {
        writes(&scratch.0, writers)?;
    }
    if runs("delay") {
        delay(&scratch.0, writers)?;
    }
    if runs("reads") {
        reads(&scratch.0)?;
    }
    if runs("start") {
        start::start(&scratch.0)?;
    }
    Ok(())
}

/// A directory that is removed when this value is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> std::io::Result<Self> {
        let path = std::env::current_dir()?.join(format!("target/engines-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the processor time that this process has used.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the resident memory of a process in bytes.
fn resident(id: u32) -> Result<f64, Failure> {
    let statm = fs::read_to_string(format!("/proc/{id}/statm"))?;
    let pages: f64 = statm.split(' ').nth(1).ok_or("statm has no second field")?.parse()?;
    Ok(pages * rustix::param::page_size() as f64)
}

/// Returns the median time of an fdatasync after a write of 100 bytes.
fn sync_time(directory: &Path) -> Result<Duration, Failure> {
    let path = directory.join("sync");
    let file = File::create(&path)?;
    let mut times = Vec::new();
    for count in 0..200 {
        file.write_all_at(&[b'x'; 100], count * 100)?;
        let start = Instant::now();
        file.sync_data()?;
        times.push(start.elapsed().as_secs_f64());
    }
    fs::remove_file(path)?;
    Ok(Duration::from_secs_f64(median(times)))
}

/// Writes with all writers for a slice. Returns the puts per second, and the processor time of one put in seconds.
fn write_for_a_slice(engine: &dyn StoreEngine, writers: usize, round: usize) -> Result<(f64, f64), Failure> {
    let end = AtomicBool::new(false);
    let (start, cpu) = (Instant::now(), processor_time());
    let counts = thread::scope(|scope| {
        let threads: Vec<_> = (0..writers as i64)
            .map(|writer| {
                let end = &end;
                scope.spawn(move || {
                    let mut count = 0;
                    while !end.load(Ordering::Relaxed) {
                        let id = writer * IDS + count % IDS;
                        engine.put(&Entity::new(id, format!("round {round}, put {count}"), count as f64 + 0.5))?;
                        count += 1;
                    }
                    Ok::<i64, Failure>(count)
                })
            })
            .collect();
        thread::sleep(SLICE);
        end.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a writer panicked")?).collect::<Result<Vec<_>, _>>()
    })?;
    let (seconds, cpu_used) = (start.elapsed().as_secs_f64(), processor_time() - cpu);
    for (writer, count) in (0..).zip(&counts) {
        // Every answer was a success. The last put of each writer must be stored.
        let last = count - 1;
        let expected = Entity::new(writer * IDS + last % IDS, format!("round {round}, put {last}"), last as f64 + 0.5);
        if last >= 0 && engine.get(expected.id)?.as_ref() != Some(&expected) {
            return Err(format!("put {last} of writer {writer} is not there").into());
        }
    }
    let puts = counts.iter().sum::<i64>() as f64;
    Ok((puts / seconds, cpu_used.as_secs_f64() / puts))
}

fn writes(scratch: &Path, writers: usize) -> Result<(), Failure> {
    println!("writes: {writers} writers, {ROUNDS} rounds of {} ms for each contestant", SLICE.as_millis());
    let engines: Vec<_> = (0..)
        .zip(NAMES)
        .map(|(number, name)| open(name, &scratch.join(format!("writes-{number}"))))
        .collect::<Result<_, _>>()?;
    let mut rates = vec![Vec::new(); NAMES.len()];
    let mut costs = rates.clone();
    let (mut syncs, mut batches) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        syncs.push(sync_time(scratch)?.as_secs_f64());
        for (number, engine) in engines.iter().enumerate() {
            let before = engine.counts();
            let (rate, cost) = write_for_a_slice(&**engine, writers, round)?;
            rates[number].push(rate);
            costs[number].push(cost);
            if let (0, Some(before), Some(after)) = (number, before, engine.counts()) {
                let syncs = (after.syncs - before.syncs) as f64;
                let batch = (after.writes - before.writes) as f64 / syncs;
                let time = (after.sync_nanos - before.sync_nanos) as f64 / 1e9 / syncs;
                batches.push((batch, batch / (writers as f64 / 2.0).min(rate * time)));
            }
        }
    }
    println!("an fdatasync of 100 bytes takes {:.3} ms", median(syncs) * 1e3);
    println!("{:32} {:>12} {:>16} {:>14} {:>10}", "contestant", "PUT/s", "durable is (x)", "CPU us a PUT", "CPU share");
    for (number, name) in NAMES.iter().enumerate() {
        let ratios = rates[0].iter().zip(&rates[number]).map(|(durable, engine)| durable / engine).collect();
        let (rate, cost) = (median(rates[number].clone()), median(costs[number].clone()));
        println!("{name:32} {rate:>12.0} {:>16.2} {:>14.1} {:>9.0}%", median(ratios), cost * 1e6, cost * rate * 100.0);
    }
    let median_of = |field: fn(&(f64, f64)) -> f64| median(batches.iter().map(field).collect());
    println!(
        "durable: {:.1} writes for each fsync, {:.2} of min(N/2, arrivals during one)",
        median_of(|b| b.0),
        median_of(|b| b.1)
    );
    Ok(())
}

/// Measures group commit on a disk with 5 ms added to each fsync.
fn delay(scratch: &Path, writers: usize) -> Result<(), Failure> {
    const EXTRA_DELAY: Duration = Duration::from_millis(5);
    let contestants = ["durable", "redb", "redb, batched"];
    let mut rates = vec![Vec::new(); contestants.len()];
    let mut sizes = rates.clone();
    for round in 0..ROUNDS {
        let directory = scratch.join(format!("delay-{round}"));
        let disk: Arc<dyn Disk> = Arc::new(SlowDisk::new(Directory::lock(&directory)?, EXTRA_DELAY));
        let durable = DurableEngine(Durable::open_on(&disk, Sharded::new(), &DurableOptions::default())?);
        let file = SlowBackend::create(&scratch.join(format!("redb-{round}")), EXTRA_DELAY)?;
        let file_batched = SlowBackend::create(&scratch.join(format!("redb-batched-{round}")), EXTRA_DELAY)?;
        let syncs = [file.syncs(), file_batched.syncs()];
        let redb = |file| Redb::new(redb::Builder::new().create_with_backend(file)?);
        let engines: [Box<dyn StoreEngine>; 3] =
            [Box::new(durable), Box::new(redb(file)?), Box::new(Batched::new(Box::new(redb(file_batched)?)))];
        for (number, engine) in engines.iter().enumerate() {
            let count = || match number {
                0 => engine.counts().map_or(0, |counts| counts.syncs),
                number => syncs[number - 1].load(Ordering::Relaxed),
            };
            let before = count();
            let (start, (rate, _)) = (Instant::now(), write_for_a_slice(&**engine, writers, round)?);
            rates[number].push(rate);
            sizes[number].push(rate * start.elapsed().as_secs_f64() / (count() - before) as f64);
        }
    }
    println!("delay: with an fsync of 5 ms more, {writers} writers");
    println!("{:32} {:>12} {:>16} {:>12}", "contestant", "PUT/s", "writes an fsync", "of N/2");
    for (number, name) in contestants.iter().enumerate() {
        let (rate, size) = (median(rates[number].clone()), median(sizes[number].clone()));
        println!("{name:32} {rate:>12.0} {size:>16.1} {:>12.2}", size / (writers as f64 / 2.0));
    }
    Ok(())
}

/// The times of a get in one round, in seconds.
struct GetTimes {
    memory: f64,
    durable: f64,
    redb: f64,
}

/// Measures a get of the durable store, next to a get of the repo in memory that it uses.
fn reads(scratch: &Path) -> Result<(), Failure> {
    const KEYS: i64 = 10_000;
    let memory = Sharded::new();
    let durable = Durable::open(scratch.join("reads"), Sharded::new())?;
    let redb = engine::open("redb", &scratch.join("reads-redb"))?;
    let mut answers = Vec::new();
    for id in 0..KEYS {
        let entity = Entity::new(id, "fifteen letters", id as f64);
        memory.put(entity.clone()).wait()?;
        answers.push(durable.put(entity));
    }
    for answer in answers {
        answer.wait()?;
    }
    redb.put_all(&(0..KEYS).map(|id| Entity::new(id, "fifteen letters", id as f64)).collect::<Vec<_>>())?;
    let mut times = Vec::new();
    for _ in 0..31 {
        times.push(GetTimes {
            memory: gets(&memory, KEYS),
            durable: gets(&durable, KEYS),
            redb: gets_of_engine(&*redb, KEYS)?,
        });
    }
    let ratio = median(times.iter().map(|times| times.durable / times.memory).collect());
    let median_ns = |field: fn(&GetTimes) -> f64| median(times.iter().map(field).collect()) * 1e9;
    println!(
        "reads: a get takes {:.1} ns in memory, {:.1} ns in durable: {ratio:.3} times as long; {:.1} ns in redb",
        median_ns(|times| times.memory),
        median_ns(|times| times.durable),
        median_ns(|times| times.redb)
    );
    Ok(())
}

/// Returns the time of a get in seconds.
fn gets(repo: &impl EntityRepo, keys: i64) -> f64 {
    const GETS: i64 = 300_000;
    let (start, mut sum, mut id) = (Instant::now(), 0.0, 1);
    for _ in 0..GETS {
        id = (id * 48_271 + 11) % keys;
        let answer =
            repo.get(black_box(&id), Visit::new(&mut |shown| sum += shown.fields().map_or(0.0, |entity| entity.value)));
        assert!(answer.is_now());
    }
    black_box(sum);
    start.elapsed().as_secs_f64() / GETS as f64
}

/// Returns the time of a get of an engine in seconds. Every get has its own transaction.
fn gets_of_engine(engine: &dyn StoreEngine, keys: i64) -> Result<f64, Failure> {
    const GETS: i64 = 30_000;
    let (start, mut sum, mut id) = (Instant::now(), 0.0, 1);
    for _ in 0..GETS {
        id = (id * 48_271 + 11) % keys;
        sum += engine.get(black_box(id))?.ok_or("an entity is missing")?.value;
    }
    black_box(sum);
    Ok(start.elapsed().as_secs_f64() / GETS as f64)
}
