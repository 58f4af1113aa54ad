//! A point of a repo, without HTTP: threads that get and put, straight on it, in a process of its own.
//!
//! An entity says by itself what it must be: its value is the number of its version, and its description follows from id
//! and version. So a reader can tell that what it was shown is of the right id, whole, and something that was put,
//! without a table of what was put, which would take the repo's place in the cache.
//!
//! Invariant: every entity that is read is checked, and in the end the repo counts as many as were stored. Cost: the
//! times below; the entities; the checking of an entity, about 10 ns for each 100 bytes.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use polyserve::repo::{Lookup, Put};
use polyserve::{Entity, EntityRef, EntityRepo, Shutdown};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::report::Shown;
use super::run::{Instrument, Job};
use crate::compare::Unfit;
use crate::launch::Launch;
use crate::machine::Cores;
use crate::machine::proc;

/// What a process of its own is told, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operations {
    /// The repo's name.
    pub repo: String,
    /// Threads.
    pub threads: usize,
    /// Entities; all are stored first.
    pub keys: u64,
    /// Bytes of a description.
    pub payload_bytes: usize,
    /// The weight of getting.
    pub get: u32,
    /// The weight of putting.
    pub put: u32,
    /// Of the draws.
    pub seed: u64,
    /// How long it runs before it counts.
    pub warm_up_s: f64,
    /// How long it counts.
    pub time_s: f64,
}

/// Between two looks at the clock: operations.
const BATCH: u64 = 64;
/// A description is so many bytes over and over.
const BLOCK: usize = 16;

/// Thoroughly mixed bits of a number: splitmix64.
fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// What the description of this version repeats: hexadecimal digits.
fn block(id: i64, version: u64) -> [u8; BLOCK] {
    let bits = mixed(id.cast_unsigned() ^ version.rotate_left(32));
    std::array::from_fn(|place| b"0123456789abcdef"[(bits >> (4 * place)) as usize & 15])
}

/// The entity that `id` is at `version`.
fn entity(id: i64, version: u64, payload_bytes: usize) -> Entity {
    let block = block(id, version).map(char::from);
    let description: String = block.iter().cycle().take(payload_bytes).collect();
    Entity::new(id, description, version as f64)
}

/// Whether this is the entity of `id` at one of the versions up to `last`, whole.
fn is_right(id: i64, found: EntityRef<'_>, payload_bytes: usize, last: u64) -> bool {
    let version = found.value as u64;
    let block = block(id, version);
    let mut pieces = found.description.as_bytes().chunks(BLOCK);
    found.id == id
        && version as f64 == found.value
        && version <= last
        && found.description.len() == payload_bytes
        && pieces.all(|piece| *piece == block[..piece.len()])
}

/// What a thread has done while it counted.
#[derive(Clone, Copy, Debug)]
struct Done {
    operations: u64,
    elapsed: Duration,
    cpu: Duration,
}

impl Operations {
    /// Runs them on `repo`, here. The memory is this process's.
    ///
    /// # Errors
    ///
    /// Where the repo fails, or shows what nobody has put there.
    pub fn run(&self, make: impl FnOnce() -> std::io::Result<Arc<dyn EntityRepo>>) -> anyhow::Result<Shown> {
        let resident = || proc::resident(std::process::id()).ok().map(|resident| resident.now);
        let start_bytes = resident();
        let repo = make().with_context(|| format!("the repo {}", self.repo))?;
        for id in 0..self.keys.cast_signed() {
            let put = repo.put(entity(id, 0, self.payload_bytes)).wait()?;
            if put != Put::Created {
                bail!("the first put of {id} was {put:?}");
            }
        }
        let filled_bytes = resident();
        let done = self.threads(&*repo)?;
        let loaded_bytes = resident();
        let count = repo.len().wait()?;
        if count != self.keys {
            bail!("in the end it counts {count} entities of {}", self.keys);
        }
        let sum = |of: fn(&Done) -> f64| done.iter().map(of).sum::<f64>();
        let answered: u64 = done.iter().map(|done| done.operations).sum();
        let per_s = sum(|done| done.operations as f64 / done.elapsed.as_secs_f64());
        let (cpu_s, elapsed_s) = (sum(|done| done.cpu.as_secs_f64()), sum(|done| done.elapsed.as_secs_f64()));
        let elapsed_s = elapsed_s / done.len() as f64;
        let cores = Cores::available()?.count().min(self.threads) as f64;
        Ok(Shown {
            answered,
            elapsed_s,
            per_s,
            per_thread_s: Some(per_s / self.threads as f64),
            cpu_us: Some(cpu_s * 1e6 / answered as f64).filter(|cpu| cpu.is_finite()),
            server_busy_pct: Some(cpu_s / elapsed_s / cores * 100.0),
            start_bytes,
            filled_bytes,
            loaded_bytes,
            ..Shown::default()
        })
    }

    fn threads(&self, repo: &dyn EntityRepo) -> anyhow::Result<Vec<Done>> {
        let cores = Cores::available()?;
        let (start, last) = (Barrier::new(self.threads), AtomicU64::new(0));
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for number in 0..self.threads {
                let core = cores.numbers()[number % cores.count()];
                let (start, last) = (&start, &last);
                threads.push(scope.spawn(move || {
                    let pinned = Cores::from(core).pin(); // before anything can fail, for the others wait
                    start.wait();
                    pinned?;
                    self.thread(number, repo, last)
                }));
            }
            let joined =
                threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("a thread panicked"))));
            joined.collect()
        })
    }

    fn thread(&self, number: usize, repo: &dyn EntityRepo, last: &AtomicU64) -> anyhow::Result<Done> {
        let mut random = mixed(self.seed ^ mixed(number as u64));
        let all = u64::from(self.get) + u64::from(self.put);
        let mut until = |end: Instant| {
            let mut operations = 0;
            loop {
                for _ in 0..BATCH {
                    random = mixed(random);
                    // The high half of a product: uneven by next to nothing.
                    let below = |bits: u64, bound: u64| ((u128::from(bits) * u128::from(bound)) >> 64) as u64;
                    let id = below(random, self.keys).cast_signed();
                    match below(mixed(!random), all) {
                        place if place < u64::from(self.get) => self.get(repo, id, last)?,
                        _ => self.put(repo, id, last)?,
                    }
                }
                operations += BATCH;
                let now = Instant::now();
                if now >= end {
                    return anyhow::Ok((operations, now));
                }
            }
        };
        let (_, begun) = until(Instant::now() + Duration::from_secs_f64(self.warm_up_s))?;
        let before = cpu();
        let (operations, ended) = until(begun + Duration::from_secs_f64(self.time_s))?;
        Ok(Done { operations, elapsed: ended - begun, cpu: cpu().saturating_sub(before) })
    }

    fn get(&self, repo: &dyn EntityRepo, id: i64, last: &AtomicU64) -> anyhow::Result<()> {
        let mut shown = None;
        // A version is counted before it is put.
        let right = |found: EntityRef<'_>| is_right(id, found, self.payload_bytes, last.load(Ordering::Acquire));
        let found = repo.get(id, &mut |found| shown = Some(right(found))).wait()?;
        let is_whole = match found {
            Lookup::Visited => shown.with_context(|| format!("{id} was visited, but nothing was shown"))?,
            Lookup::Fetched(entity) => {
                right(EntityRef { id: entity.id, description: &entity.description, value: entity.value })
            }
            Lookup::Absent => bail!("{id} is gone"),
        };
        if is_whole { Ok(()) } else { Err(anyhow!("what was shown of {id} is nothing that was put there")) }
    }

    fn put(&self, repo: &dyn EntityRepo, id: i64, last: &AtomicU64) -> anyhow::Result<()> {
        let version = last.fetch_add(1, Ordering::AcqRel) + 1;
        match repo.put(entity(id, version, self.payload_bytes)).wait()? {
            Put::Replaced => Ok(()),
            Put::Created => Err(anyhow!("{id} was gone: a put of it created it")),
        }
    }
}

/// Processor time of this thread.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// What starts the processes.
#[derive(Debug)]
pub struct Processes {
    /// Begun where the run is to end now.
    pub stop: Shutdown,
    /// How long one may take, the storing of its entities too.
    pub patience: Duration,
}

/// How often a stop is looked for.
const LOOK: Duration = Duration::from_millis(50);

impl Instrument for Processes {
    fn measure(&mut self, job: &Job, _rate: Option<f64>) -> Result<Shown, Unfit> {
        let said = self.said(&job.launch)?;
        serde_json::from_str(said.trim()).map_err(|error| Unfit::wrong(format!("it said {said:?}: {error}")))
    }

    fn is_paced(&self) -> bool {
        false
    }
}

impl Processes {
    /// What `launch` prints until its good end.
    fn said(&self, launch: &Launch) -> Result<String, Unfit> {
        let cannot = |error: std::io::Error| {
            let why = format!("{} cannot be started: {error}", launch.program.display());
            Unfit { why, wrong: false }
        };
        let mut command = Command::new(&launch.program);
        command.args(&launch.args).envs(launch.env.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(cannot)?;
        // Its number is its own until it is waited for, so this is the process itself.
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).map_err(|error| cannot(error.into()))?;
        let (sender, ended) = channel();
        let reading = thread::Builder::new().name("operations".into()).spawn(move || sender.send(read(child)));
        reading.map_err(cannot)?;
        let deadline = Instant::now() + self.patience;
        loop {
            let (why, wrong) = match ended.recv_timeout(LOOK) {
                Ok(read) => return read,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Unfit { why: "nobody knows how it ended".into(), wrong: false });
                }
                Err(RecvTimeoutError::Timeout) if self.stop.is_begun() => ("the run is over", false),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => ("it took too long", true),
                Err(RecvTimeoutError::Timeout) => continue,
            };
            let _ = pidfd_send_signal(&pidfd, Signal::KILL); // it may just have ended
            let _ = ended.recv();
            return Err(Unfit { why: why.into(), wrong });
        }
    }
}

/// What the process has printed when it has ended well.
fn read(mut child: Child) -> Result<String, Unfit> {
    let (mut out, mut err) = (String::new(), String::new());
    let cannot = |error: std::io::Error| Unfit { why: format!("its output cannot be read: {error}"), wrong: false };
    // One line, and what fits a pipe: neither blocks it.
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut out).map_err(cannot)?;
    }
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut err).map_err(cannot)?;
    }
    let status = child.wait().map_err(cannot)?;
    if status.success() { Ok(out) } else { Err(Unfit::wrong(format!("it ended by itself: {status}: {}", err.trim()))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyserve::Answer;
    use polyserve::catalog::Catalog;
    use polyserve::repo::{Removed, RepoError};

    fn operations(threads: usize, payload_bytes: usize) -> Operations {
        let (repo, times) = (String::from("any"), 0.005);
        Operations { repo, threads, keys: 50, payload_bytes, get: 1, put: 1, seed: 1, warm_up_s: times, time_s: times }
    }

    #[test]
    fn every_repo_of_the_catalog_keeps_what_is_put() {
        for entry in Catalog::builtin().repos() {
            for payload_bytes in [0, 15, 1000] {
                let shown = operations(2, payload_bytes).run(|| (entry.make)()).unwrap();
                assert!(shown.answered > 0 && shown.per_s > 0.0 && shown.per_thread_s > Some(0.0), "{}", entry.name);
            }
        }
    }

    /// A repo that shows an entity with something wrong in it.
    #[derive(Debug)]
    struct Wrong {
        within: Arc<dyn EntityRepo>,
        change: fn(EntityRef<'_>) -> Entity,
    }

    impl EntityRepo for Wrong {
        fn get(&self, id: i64, visit: &mut dyn FnMut(EntityRef<'_>)) -> Answer<Result<Lookup, RepoError>> {
            self.within.get(id, &mut |found| {
                let Entity { id, description, value } = (self.change)(found);
                visit(EntityRef { id, description: &description, value });
            })
        }

        fn put(&self, entity: Entity) -> Answer<Result<Put, RepoError>> {
            self.within.put(entity)
        }

        fn remove(&self, id: i64) -> Answer<Result<Removed, RepoError>> {
            self.within.remove(id)
        }

        fn len(&self) -> Answer<Result<u64, RepoError>> {
            self.within.len()
        }
    }

    #[test]
    fn what_nobody_put_there_is_found() {
        let changes: [fn(EntityRef<'_>) -> Entity; 5] = [
            |found| Entity::new(found.id + 1, found.description, found.value),
            |found| Entity::new(found.id, found.description, found.value + 1.0),
            |found| Entity::new(found.id, found.description, found.value + 0.5),
            |found| Entity::new(found.id, &found.description[..20], found.value),
            // The end of another version.
            |found| {
                Entity::new(
                    found.id,
                    found.description[..16].to_owned() + &found.description[..24].replace('a', "b"),
                    found.value,
                )
            },
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let make = || {
                let within = (Catalog::builtin().repo("two_level").unwrap().make)()?;
                Ok(Arc::new(Wrong { within, change }) as Arc<dyn EntityRepo>)
            };
            let error = operations(1, 40).run(make).unwrap_err().to_string();
            assert!(error.contains("is nothing that was put there"), "{number}: {error}");
        }
    }

    #[test]
    fn a_process_that_fails_says_why() {
        let processes = Processes { stop: Shutdown::new(), patience: Duration::from_secs(60) };
        let shell = |script: &str| Launch {
            program: "/bin/sh".into(),
            args: ["-c", script].map(Into::into).into(),
            env: Vec::new(),
            address: crate::launch::AddressFrom::Json,
        };
        assert_eq!(processes.said(&shell("echo hello")).unwrap(), "hello\n");
        let unfit = processes.said(&shell("echo no memory >&2; exit 3")).unwrap_err();
        assert!(unfit.why.contains("exit status: 3: no memory") && unfit.wrong, "{unfit:?}");
        let missing = Launch { program: "/no/such/program".into(), ..shell("") };
        let unfit = processes.said(&missing).unwrap_err();
        assert!(unfit.why.contains("/no/such/program cannot be started") && !unfit.wrong, "{unfit:?}");
        let hasty = Processes { patience: Duration::ZERO, ..processes };
        let unfit = hasty.said(&shell("exec tail -f /dev/null")).unwrap_err();
        assert!(unfit.why.contains("too long") && unfit.wrong, "{unfit:?}");
    }
}
