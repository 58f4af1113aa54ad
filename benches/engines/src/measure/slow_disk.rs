//! A directory with slow syncs.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use polyserve_durable::disk::{Directory, Disk, DiskFile};

#[derive(Debug)]
pub struct SlowDisk(Arc<Directory>, Duration);

#[derive(Debug)]
struct SlowFile(Box<dyn DiskFile>, Duration);

impl SlowDisk {
    /// Creates a disk that takes `more` time for each sync of a file.
    pub fn new(directory: Arc<Directory>, more: Duration) -> Self {
        Self(directory, more)
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
}

impl DiskFile for SlowFile {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(into, offset)
    }

    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
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
