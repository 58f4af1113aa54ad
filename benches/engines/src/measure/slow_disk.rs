//! A directory and a redb file with slow syncs.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use polyserve_durable::disk::{Directory, Disk, DiskFile, FileId, NamedFile};

use crate::Failure;

#[derive(Debug)]
pub struct SlowDisk(Arc<Directory>, Duration);

#[derive(Debug)]
struct SlowFile(Box<dyn DiskFile>, Duration);

impl SlowDisk {
    /// Creates a disk where each sync of a file takes `delay` longer.
    pub fn new(directory: Arc<Directory>, delay: Duration) -> Self {
        Self(directory, delay)
    }

    fn slow(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(SlowFile(file, self.1))
    }
}

impl Disk for SlowDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.slow(self.0.open(name)?))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.slow(self.0.create(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn link(&self, name: &str, second: &str) -> io::Result<()> {
        self.0.link(name, second)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn room(&self) -> io::Result<u64> {
        self.0.room()
    }

    fn verify(&self) -> Result<(), String> {
        self.0.verify()
    }

    fn verify_file(&self, file: &NamedFile) -> Result<(), String> {
        self.0.verify_file(file)
    }

    fn verify_lock(&self) -> Result<(), String> {
        self.0.verify_lock()
    }

    fn note_log(&self) -> io::Result<()> {
        self.0.note_log()
    }

    fn has_noted_log(&self) -> bool {
        self.0.has_noted_log()
    }
}

impl DiskFile for SlowFile {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn id(&self) -> io::Result<FileId> {
        self.0.id()
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(into, offset)
    }

    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn reserve(&mut self, len: u64) -> io::Result<()> {
        self.0.reserve(len)
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&mut self) -> io::Result<()> {
        thread::sleep(self.1);
        self.0.sync()
    }

    fn drop_cache(&mut self) -> io::Result<()> {
        self.0.drop_cache()
    }
}

/// The file of redb with slow syncs, which it counts.
#[derive(Debug)]
pub struct SlowBackend {
    file: redb::backends::FileBackend,
    delay: Duration,
    syncs: Arc<AtomicU64>,
}

impl SlowBackend {
    pub fn create(path: &Path, delay: Duration) -> Result<Self, Failure> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        Ok(Self { file: redb::backends::FileBackend::new(file)?, delay, syncs: Arc::default() })
    }

    /// Returns the counter of syncs.
    pub fn syncs(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.syncs)
    }
}

impl redb::StorageBackend for SlowBackend {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        thread::sleep(self.delay);
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}
