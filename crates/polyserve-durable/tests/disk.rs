//! The conformance kit for stores over an engine. The engine is a disk that is slow, that hangs, or that fails.

mod common;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use polyserve_conformance::engine::{Connector, EngineControl, EngineSubject};
use polyserve_conformance::engine_conformance;
use polyserve_core::{Entity, EntityRepo as _, Put, RepoError};
use polyserve_durable::disk::{Directory, Disk, DiskFile};
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
        let directory = Directory::lock(&disk.dir.join("store")).unwrap();
        let faulty: Arc<dyn Disk> = Arc::new(FaultyDisk { directory, faults: Arc::clone(&disk.faults) });
        let store = Durable::open_on(&faulty, Sharded::new(), &DurableOptions::default()).unwrap();
        assert_eq!(store.put(Entity::new(1, "text", 0.5)).wait().unwrap(), Put::Created);
        disk.change(|state| state.error = Some(kind));
        for _ in 0..2 {
            match store.put(Entity::new(2, "text", 0.5)).wait() {
                Err(RepoError::ReadOnly(reason)) => {
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
}

impl DiskFile for FaultyFile {
    fn len(&self) -> io::Result<u64> {
        self.faults.pass()?;
        self.file.len()
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.faults.pass()?;
        self.file.read_at(into, offset)
    }

    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.faults.pass()?;
        self.file.write_all_at(bytes, offset)
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.faults.pass()?;
        self.file.set_len(len)
    }

    fn sync(&mut self) -> io::Result<()> {
        thread::sleep(self.faults.pass()?);
        self.file.sync()
    }

    fn drop_cache(&mut self) -> io::Result<()> {
        self.faults.pass()?;
        self.file.drop_cache()
    }
}
