//! The conformance kit for stores over an engine. The engine is a disk that is slow, that hangs, or that fails.

mod common;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_conformance::engine::{Connector, EngineControl, EngineSubject};
use polyserve_conformance::engine_conformance;
use polyserve_core::{Answer, Entity, EntityRepo as _, Put, RepoError};
use polyserve_durable::disk::{Directory, Disk, DiskFile, FileId, NamedFile};
use polyserve_durable::{Durable, DurableOptions};
use polyserve_memory::Sharded;

use common::TestDir;

engine_conformance!(kit, subject());

fn subject() -> EngineSubject {
    let absent = || {
        let disk = ControlledDisk::new();
        fs::write(disk.dir.join("file"), "not a directory").unwrap();
        disk.connector_below("file")
    };
    EngineSubject::new(|| Ok(ControlledDisk::new()), "cannot create the directory", absent).reads_from_memory()
}

/// A directory with stores, and the faults of their disk.
struct ControlledDisk {
    dir: Arc<TestDir>,
    faults: Arc<Faults>,
}

/// What the disk does wrong.
#[derive(Debug, Default)]
struct Faults {
    state: Mutex<FaultState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct FaultState {
    hangs: bool,
    /// The error of each call.
    error: Option<ErrorKind>,
    /// The time that a sync of a file takes.
    delay: Duration,
    /// The number of writes to files.
    writes: u64,
    /// The error of a write to a file, which has written its first bytes.
    write_error: Option<ErrorKind>,
    /// The error of a sync of a file.
    sync_error: Option<ErrorKind>,
}

impl ControlledDisk {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("disk-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        Self { dir: Arc::new(TestDir::new(&name)), faults: Arc::default() }
    }

    /// A connector to stores in directories below `name`.
    fn connector_below(&self, name: &str) -> Connector {
        let (dir, name, faults) = (Arc::clone(&self.dir), PathBuf::from(name), Arc::clone(&self.faults));
        Arc::new(move |name_space, limits| {
            let directory = Directory::lock(&dir.join(&name).join(name_space))?;
            let disk: Arc<dyn Disk> = Arc::new(FaultyDisk { directory, faults: Arc::clone(&faults) });
            // As many writes may be in the batch that is synced.
            let options = DurableOptions::default().queue(limits.operations.get() / 2);
            Ok(Arc::new(Durable::open_on(&disk, Sharded::new(), &options)?))
        })
    }

    /// Opens the store `store`.
    fn open(&self) -> Durable<Sharded> {
        let directory = Directory::lock(&self.dir.join("store")).unwrap();
        let faulty: Arc<dyn Disk> = Arc::new(FaultyDisk { directory, faults: Arc::clone(&self.faults) });
        Durable::open_on(&faulty, Sharded::new(), &DurableOptions::default()).unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut FaultState)) {
        change(&mut self.faults.state.lock().unwrap());
        self.faults.changed.notify_all();
    }
}

impl EngineControl for ControlledDisk {
    fn connector(&self) -> Connector {
        self.connector_below("")
    }

    fn slow_down(&mut self, delay: Duration) {
        self.change(|state| state.delay = delay);
    }

    fn pause(&mut self) {
        self.change(|state| state.hangs = true);
    }

    fn resume(&mut self) {
        self.change(|state| state.hangs = false);
    }

    fn stop(&mut self) {
        self.change(|state| state.error = Some(ErrorKind::Other));
    }

    fn restart(&mut self) {
        self.change(|state| state.error = None);
    }

    fn refuse_writes(&mut self) -> Result<(), String> {
        self.change(|state| state.write_error = Some(ErrorKind::StorageFull));
        Ok(())
    }

    fn accept_writes(&mut self) {
        self.change(|state| state.write_error = None);
    }
}

impl Faults {
    /// Waits while the disk hangs. Returns the time that a sync takes.
    fn pass(&self) -> io::Result<Duration> {
        let state = self.changed.wait_while(self.state.lock().unwrap(), |state| state.hangs).unwrap();
        state.error.map_or(Ok(state.delay), |kind| Err(io::Error::new(kind, "no secret is in the reason")))
    }
}

/// Regression test: the error of a write to a full disk had the reason in its source alone, which clients do not see.
#[test]
fn the_reason_why_writes_stopped_is_for_clients() {
    for (kind, expected) in
        [(ErrorKind::StorageFull, "no space is left on the disk"), (ErrorKind::Other, "a write to the disk failed")]
    {
        let disk = ControlledDisk::new();
        let store = disk.open();
        assert_eq!(store.put(Entity::new(1, "text", 0.5)).wait().unwrap(), Put::Created);
        disk.change(|state| state.error = Some(kind));
        for is_first in [true, false] {
            let error = store.put(Entity::new(2, "text", 0.5)).wait().unwrap_err();
            match error {
                // What the first has written cannot be cut off. It may have been done, and no later one is.
                RepoError::Unavailable(_) if !is_first => panic!("{error:?}"),
                RepoError::ReadOnly(_) if is_first => panic!("{error:?}"),
                RepoError::Unavailable(reason) | RepoError::ReadOnly(reason) => {
                    assert_eq!(reason.to_string(), expected);
                    let cause = reason.source().expect("there is a cause").to_string();
                    assert!(cause.contains("no secret"), "{cause}");
                }
                other => panic!("{other:?}"),
            }
            // The disk is whole again, and the store still takes no writes.
            disk.change(|state| state.error = None);
        }
    }
}

/// Regression test: after a write to a full disk had failed once, each later write failed too, also when the disk had room.
#[test]
fn a_write_without_room_is_rejected_and_later_ones_succeed() {
    let disk = ControlledDisk::new();
    let store = disk.open();
    let put = |id| store.put(Entity::new(id, "text", 0.5)).wait();
    assert_eq!(put(1).unwrap(), Put::Created);
    assert!(store.status().wait().is_ok());
    for (kind, is_full) in [
        (ErrorKind::StorageFull, true),
        (ErrorKind::QuotaExceeded, true),
        (ErrorKind::FileTooLarge, true),
        (ErrorKind::Other, false),
    ] {
        disk.change(|state| state.write_error = Some(kind));
        for id in [1, 2, 3] {
            match put(id) {
                Err(RepoError::Full(_)) if is_full => {}
                Err(RepoError::NotDone(_)) if !is_full => {}
                other => panic!("{kind}: {other:?}"),
            }
            let status = store.status().wait();
            assert!(matches!(status, Err(RepoError::Full(_) | RepoError::NotDone(_))), "{kind}: {status:?}");
        }
        assert_eq!(store.len().wait().unwrap(), 1, "reads go on, and show no rejected write");
        disk.change(|state| state.write_error = None);
        let deadline = Instant::now() + Duration::from_secs(60);
        while let Err(error) = store.status().wait() {
            assert!(Instant::now() < deadline, "{kind}: there is room again, without a write: {error}");
        }
        assert_eq!(put(1).unwrap(), Put::Replaced, "{kind}");
    }
    drop(store);
    assert_eq!(disk.open().recovery().entities, 1);
}

/// Regression test: each question for the status of a full store wrote 64 KiB, cut and synced them, on the thread that commits.
#[test]
fn questions_for_the_status_of_a_full_store_share_a_try() {
    let disk = ControlledDisk::new();
    let store = disk.open();
    disk.change(|state| state.write_error = Some(ErrorKind::StorageFull));
    let begin = Instant::now();
    assert!(matches!(store.put(Entity::new(1, "text", 0.5)).wait(), Err(RepoError::Full(_))));
    let writes = || disk.faults.state.lock().unwrap().writes;
    let before = writes();
    for _ in 0..1_000 {
        assert!(matches!(store.status().wait(), Err(RepoError::Full(_))));
    }
    let (tries, seconds) = (writes() - before, begin.elapsed().as_secs());
    assert!(tries <= seconds, "{tries} tries in {seconds} s");
}

/// Regression test: while the disk hung, a status that came less than a second after another one was good.
#[test]
fn no_status_of_a_disk_that_hangs_is_good() {
    let disk = ControlledDisk::new();
    let store = disk.open();
    disk.change(|state| state.hangs = true);
    let put = store.put(Entity::new(1, "text", 0.5));
    let questions: Vec<_> = (0..3).map(|_| store.status()).collect();
    let waiting = questions.iter().filter(|answer| matches!(answer, Answer::Later(_))).count();
    disk.change(|state| state.hangs = false);
    assert_eq!(waiting, questions.len());
    assert_eq!(put.wait().unwrap(), Put::Created);
    questions.into_iter().for_each(|answer| answer.wait().unwrap());
}

/// A failed fsync, also that of a cut, stops all writes, and the status is that of a write.
///
/// Regression test: after a failed fsync, its write was answered as one that was not done, and the next start found it.
#[test]
fn a_failed_fsync_stops_all_writes() {
    for write_error in [None, Some(ErrorKind::StorageFull)] {
        let disk = ControlledDisk::new();
        let store = disk.open();
        let put = |id| store.put(Entity::new(id, "text", 0.5)).wait();
        assert_eq!(put(1).unwrap(), Put::Created);
        disk.change(|state| (state.write_error, state.sync_error) = (write_error, Some(ErrorKind::StorageFull)));
        assert!(matches!(put(2), Err(RepoError::Unavailable(_))), "it may have been done");
        disk.change(|state| (state.write_error, state.sync_error) = (None, None));
        assert!(matches!(store.status().wait(), Err(RepoError::ReadOnly(_))));
        assert!(matches!(put(3), Err(RepoError::ReadOnly(_))), "it was not done");
        drop(store);
        // The fsync that was to cut the frame off has failed after the cut.
        assert_eq!(disk.open().recovery().entities, if write_error.is_none() { 2 } else { 1 });
    }
}

/// A directory on a disk with faults.
#[derive(Debug)]
struct FaultyDisk {
    directory: Arc<Directory>,
    faults: Arc<Faults>,
}

/// A file on a disk with faults.
#[derive(Debug)]
struct FaultyFile {
    file: Box<dyn DiskFile>,
    faults: Arc<Faults>,
}

impl FaultyDisk {
    fn file(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(FaultyFile { file, faults: Arc::clone(&self.faults) })
    }
}

impl Disk for FaultyDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.faults.pass()?;
        self.directory.list()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.faults.pass()?;
        Ok(self.file(self.directory.open(name)?))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.faults.pass()?;
        Ok(self.file(self.directory.create(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.faults.pass()?;
        self.directory.rename(from, to)
    }

    fn link(&self, name: &str, second: &str) -> io::Result<()> {
        self.faults.pass()?;
        self.directory.link(name, second)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.faults.pass()?;
        self.directory.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.faults.pass()?;
        self.directory.sync()
    }

    fn room(&self) -> io::Result<u64> {
        self.faults.pass()?;
        self.directory.room()
    }

    fn verify(&self) -> Result<(), String> {
        self.directory.verify()
    }

    fn verify_file(&self, file: &NamedFile) -> Result<(), String> {
        self.directory.verify_file(file)
    }

    fn verify_lock(&self) -> Result<(), String> {
        self.directory.verify_lock()
    }

    fn note_log(&self) -> io::Result<()> {
        self.directory.note_log()
    }

    fn has_noted_log(&self) -> bool {
        self.directory.has_noted_log()
    }
}

impl DiskFile for FaultyFile {
    fn len(&self) -> io::Result<u64> {
        self.faults.pass()?;
        self.file.len()
    }

    fn id(&self) -> io::Result<FileId> {
        self.file.id()
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.faults.pass()?;
        self.file.read_at(into, offset)
    }

    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.faults.pass()?;
        let mut state = self.faults.state.lock().unwrap();
        state.writes += 1;
        let write_error = state.write_error;
        drop(state);
        let Some(kind) = write_error else {
            return self.file.write_all_at(bytes, offset);
        };
        self.file.write_all_at(&bytes[..bytes.len() / 2], offset)?;
        Err(kind.into())
    }

    fn reserve(&mut self, len: u64) -> io::Result<()> {
        self.faults.pass()?;
        self.file.reserve(len)
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.faults.pass()?;
        self.file.set_len(len)
    }

    fn sync(&mut self) -> io::Result<()> {
        thread::sleep(self.faults.pass()?);
        let failure = self.faults.state.lock().unwrap().sync_error;
        failure.map_or_else(|| self.file.sync(), |kind| Err(kind.into()))
    }

    fn drop_cache(&mut self) -> io::Result<()> {
        self.faults.pass()?;
        self.file.drop_cache()
    }
}
