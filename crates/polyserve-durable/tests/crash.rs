//! Kills a process that uses a durable store, at random moments, again and again: no answered write is lost, none is torn, and
//! no value that a reader has seen is taken back. The history across all kills is checked for linearizability.
//!
//! A kill leaves the system's page cache, so this test shows recovery and acknowledgement. The simulated disk shows the fsyncs.
//!
//! `POLYSERVE_CRASHES` is the number of kills: 10 by default, 200 in `ci/deep.sh`. `POLYSERVE_SEED` sets the seed.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use polyserve_conformance::history::{Call, CallAnswer, CheckVerdict, History, Operation, check, entity, value_of};
use polyserve_core::{EntityRepo, EntityRepoExt, Put, Removed};
use polyserve_durable::{Durable, DurableOptions};
use polyserve_memory::Sharded;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::time::{ClockId, clock_gettime};

const THREADS: u64 = 6;
/// The keys that one life writes. The next life writes the next ones, so that lost answers do not pile up on one key.
const KEYS: i64 = 4;
const GROUPS: i64 = 16;

/// The directory, as the child's argument.
const DIRECTORY: &str = "POLYSERVE_CRASH_DIRECTORY";
const LIFE: &str = "POLYSERVE_CRASH_LIFE";
const SEED: &str = "POLYSERVE_SEED";

/// The time of a clock that all processes share, in nanoseconds.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok()?.parse().ok()
}

fn open(directory: &Path) -> Durable<Sharded> {
    // Small logs, so that kills hit compactions too.
    let options = DurableOptions::default().compact_from(64 << 10);
    Durable::open_with(directory, Sharded::new(), &options).expect("the store opens after a kill")
}

/// Reads a key. Returns the value, after a check that it is whole.
fn read(store: &Durable<Sharded>, key: i64) -> Option<u64> {
    let found = store.fetch(&key).wait().unwrap()?;
    Some(value_of(key, found.as_ref()).unwrap_or_else(|wrong| panic!("key {key}: {wrong:?}")))
}

/// Writes a line in one call, so that a kill does not cut it.
fn report(line: &str) {
    std::io::stdout().lock().write_all(line.as_bytes()).expect("the parent reads");
}

/// The process that is killed. It reports each operation before its call, and again after its answer:
/// `c PROCESS KEY OPERATION VALUE TIME` and `r PROCESS TIME RESULT`.
#[test]
fn child() {
    let Some(directory) = env::var_os(DIRECTORY) else { return };
    let (life, seed) = (number(LIFE).unwrap(), number(SEED).unwrap());
    let store = open(Path::new(&directory));
    let group = life as i64 % GROUPS * KEYS;
    for key in 0..KEYS * GROUPS {
        let called = now();
        let value = read(&store, key).map_or(-1, |value| value as i64);
        report(&format!("\nc 0 {key} get 0 {called}\nr 0 {} {value}\n", now()));
    }
    report("\nready\n");
    thread::scope(|scope| {
        for process in 1..=THREADS {
            let store = &store;
            scope.spawn(move || {
                let mut random = ChaCha8Rng::seed_from_u64(seed ^ (life << 8) ^ process);
                for count in 0.. {
                    let key = group + random.random_range(0..KEYS);
                    let value = (life * THREADS + process) * 10_000_000 + count;
                    let called = now();
                    match random.random_range(0..10) {
                        0..5 => {
                            report(&format!("\nc {process} {key} put {value} {called}\n"));
                            let put = store.put(entity(key, value)).wait().unwrap();
                            report(&format!("\nr {process} {} {}\n", now(), i32::from(put == Put::Created)));
                        }
                        5 => {
                            report(&format!("\nc {process} {key} remove 0 {called}\n"));
                            let removed = store.remove(&key).wait().unwrap();
                            report(&format!("\nr {process} {} {}\n", now(), i32::from(removed == Removed::Removed)));
                        }
                        _ => {
                            report(&format!("\nc {process} {key} get 0 {called}\n"));
                            let value = read(store, key).map_or(-1, |value| value as i64);
                            report(&format!("\nr {process} {} {value}\n", now()));
                        }
                    }
                }
            });
        }
    });
}

/// Reads the reports of a life. Its processes get numbers that no other life has.
fn operations(life: u64, lines: &[String]) -> Vec<Operation> {
    let mut pending: Vec<Option<(i64, Call, u64)>> = vec![None; THREADS as usize + 1];
    let mut operations = Vec::new();
    let process_id = |process: usize| (life * (THREADS + 1)) as u32 + process as u32;
    for line in lines {
        let fields: Vec<&str> = line.split(' ').collect();
        match *fields.as_slice() {
            ["c", process, key, operation, value, time] => {
                let call = match operation {
                    "get" => Call::Get,
                    "put" => Call::Put(value.parse().unwrap()),
                    _ => Call::Remove,
                };
                pending[process.parse::<usize>().unwrap()] = Some((key.parse().unwrap(), call, time.parse().unwrap()));
            }
            ["r", process, time, result] => {
                let process: usize = process.parse().unwrap();
                let (key, call, called) = pending[process].take().expect("a call comes before its answer");
                let result: i64 = result.parse().unwrap();
                let answer = Some(match call {
                    Call::Get => u64::try_from(result).map_or(CallAnswer::Absent, CallAnswer::Found),
                    Call::Put(_) if result == 1 => CallAnswer::Created,
                    Call::Put(_) => CallAnswer::Replaced,
                    Call::Remove if result == 1 => CallAnswer::Removed,
                    Call::Remove => CallAnswer::Absent,
                });
                let (process, condition, returned) = (process_id(process), None, time.parse().unwrap());
                operations.push(Operation { process, key, call, condition, answer, called, returned });
            }
            _ => {}
        }
    }
    for (process, lost) in pending.into_iter().enumerate() {
        let Some((key, call, called)) = lost.filter(|(_, call, _)| *call != Call::Get) else { continue };
        let (process, condition, answer) = (process_id(process), None, None);
        operations.push(Operation { process, key, call, condition, answer, called, returned: 0 });
    }
    operations
}

/// Runs a child and kills it some time after it has begun to write. Returns its reports.
fn run_and_kill(directory: &Path, life: u64, seed: u64, delay: Duration) -> (ExitStatus, Vec<String>) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(LIFE, life.to_string())
        .env(SEED, seed.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let (ready_sender, ready_receiver) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut lines = Vec::new();
        for line in stdout.lines() {
            let line = line.unwrap();
            if line == "ready" {
                let _ = ready_sender.send(());
            }
            lines.push(line);
        }
        lines
    });
    let ready = ready_receiver.recv_timeout(Duration::from_secs(60));
    if ready.is_ok() {
        // The moment of the kill is drawn, so this is no synchronisation.
        thread::sleep(delay);
    }
    let _ = child.kill();
    let status = child.wait().unwrap();
    let lines = reader.join().unwrap();
    assert!(ready.is_ok(), "the child ended with {status} before it wrote: {lines:?}");
    (status, lines)
}

#[test]
fn kills_take_back_nothing() {
    let kills = number("POLYSERVE_CRASHES").unwrap_or(10);
    let seed = number(SEED).unwrap_or_else(|| UNIX_EPOCH.elapsed().map_or(1, |time| time.as_micros() as u64));
    eprintln!("seed {seed}");
    let directory: PathBuf = env::temp_dir().join(format!("polyserve-crash-{}", std::process::id()));
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut history, mut lost) = (Vec::new(), 0);
    let answered = |history: &[Operation]| {
        let is_answered = |operation: &&Operation| !operation.is_unknown() && matches!(operation.call, Call::Put(_));
        history.iter().filter(is_answered).count() as u64
    };
    // On a slow machine a life may end before its first answer. More lives make up for it.
    let deadline = Instant::now() + Duration::from_secs(60);
    for life in 0.. {
        if life >= kills && (answered(&history) >= kills || Instant::now() >= deadline) {
            break;
        }
        let delay = Duration::from_micros(random.random_range(0..60_000));
        let (status, lines) = run_and_kill(&directory, life, seed, delay);
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "life {life} ended by itself");
        let operations = operations(life, &lines);
        lost += operations.iter().filter(|operation| operation.is_unknown()).count();
        history.extend(operations);
    }
    let store = open(&directory);
    for key in 0..KEYS * GROUPS {
        let called = now();
        let answer = Some(read(&store, key).map_or(CallAnswer::Absent, CallAnswer::Found));
        let (process, call, condition) = (u32::MAX, Call::Get, None);
        history.push(Operation { process, key, call, condition, answer, called, returned: now() });
    }
    drop(store);
    fs::remove_dir_all(&directory).unwrap();
    let writes = answered(&history);
    eprintln!(
        "{kills} kills or more, {} operations, {writes} answered puts, {lost} writes without an answer",
        history.len()
    );
    assert!(writes >= kills, "the lives are too short to show anything");
    match check(&History::new(history).unwrap()) {
        CheckVerdict::Linearizable => {}
        verdict => panic!("seed {seed}: {verdict:?}"),
    }
}
