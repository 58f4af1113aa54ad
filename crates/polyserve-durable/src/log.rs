//! The log that is being written: one frame for each fsync.
//!
//! Invariant: every frame of a log is synced before the next one is written, and before the next log is created. So a crash
//! tears at most the last frame of the last log.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile};
use crate::format::{FileHeader, FrameBuffer, HEADER, Kind};
use crate::mistakes::unless;

/// The end of the name of a snapshot that is not complete. The next start removes it.
pub(crate) const INCOMPLETE: &str = ".tmp";

/// Returns a number that clients cannot guess. std takes the keys of its hashes from the system's random numbers.
fn salt() -> u32 {
    (RandomState::new().build_hasher().finish() >> 32) as u32
}

/// An open log.
#[derive(Debug)]
pub(crate) struct Log {
    disk: Arc<dyn Disk>,
    file: Box<dyn DiskFile>,
    header: FileHeader,
    /// The offset behind the last frame.
    end: u64,
    next_frame: u64,
}

impl Log {
    /// Creates the log with this number. Its name and its header are durable before this returns.
    pub(crate) fn create(disk: &Arc<dyn Disk>, number: u64) -> io::Result<Self> {
        let header = FileHeader { kind: Kind::Log, number, salt: salt() };
        let mut file = disk.create(&Kind::Log.file_name(number))?;
        file.write_all_at(&header.encode(), 0)?;
        unless!(NoHeaderSync, file.sync()?);
        unless!(NoLogNameSync, disk.sync()?);
        Ok(Self { disk: Arc::clone(disk), file, header, end: HEADER as u64, next_frame: 1 })
    }

    /// Goes on with a log that was read to its end. Cuts what stands behind its last frame.
    pub(crate) fn reopen(
        disk: &Arc<dyn Disk>,
        mut file: Box<dyn DiskFile>,
        header: FileHeader,
        (end, next_frame): (u64, u64),
    ) -> io::Result<Self> {
        if file.len()? > end {
            file.set_len(end)?;
            file.sync()?;
        }
        unless!(NoNameSyncAtOpen, disk.sync()?);
        Ok(Self { disk: Arc::clone(disk), file, header, end, next_frame })
    }

    /// Returns the number of the log.
    pub(crate) fn number(&self) -> u64 {
        self.header.number
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.end
    }

    /// Writes a frame and syncs it. After an error, the log must not be used any more: it is unknown what is on the disk.
    pub(crate) fn append(&mut self, frame: &mut FrameBuffer) -> io::Result<()> {
        let bytes = frame.seal(self.header.salt, self.next_frame);
        self.file.write_all_at(bytes, self.end)?;
        unless!(NoFrameSync, self.file.sync()?);
        self.end += bytes.len() as u64;
        self.next_frame += 1;
        Ok(())
    }

    /// Begins the next log. The old one is complete.
    pub(crate) fn rotate(&mut self) -> io::Result<()> {
        let disk = Arc::clone(&self.disk);
        *self = Self::create(&disk, self.number() + 1)?;
        Ok(())
    }
}

/// Writes a file under a name that marks it as incomplete, and renames it when it is complete and synced.
#[derive(Debug)]
pub(crate) struct SnapshotWriter {
    disk: Arc<dyn Disk>,
    file: Box<dyn DiskFile>,
    header: FileHeader,
    frame: FrameBuffer,
    end: u64,
    next_frame: u64,
}

/// The bytes of records from which a frame of a snapshot is written.
const SNAPSHOT_FRAME: usize = 1 << 20;

impl SnapshotWriter {
    /// Creates the snapshot with this number.
    pub(crate) fn create(disk: &Arc<dyn Disk>, number: u64) -> io::Result<Self> {
        let header = FileHeader { kind: Kind::Snapshot, number, salt: salt() };
        let mut file = disk.create(&(Kind::Snapshot.file_name(number) + INCOMPLETE))?;
        file.write_all_at(&header.encode(), 0)?;
        let frame = FrameBuffer::new();
        Ok(Self { disk: Arc::clone(disk), file, header, frame, end: HEADER as u64, next_frame: 1 })
    }

    /// Adds a record.
    pub(crate) fn push(&mut self, record: &[u8]) -> io::Result<()> {
        self.frame.push(record);
        if self.frame.len() >= SNAPSHOT_FRAME { self.write_frame() } else { Ok(()) }
    }

    fn write_frame(&mut self) -> io::Result<()> {
        let bytes = self.frame.seal(self.header.salt, self.next_frame);
        self.file.write_all_at(bytes, self.end)?;
        self.end += bytes.len() as u64;
        self.next_frame += 1;
        self.frame.clear();
        Ok(())
    }

    /// Completes the snapshot: it is durable under its name before this returns. Returns its length.
    pub(crate) fn finish(mut self) -> io::Result<u64> {
        if !self.frame.is_empty() {
            self.write_frame()?;
        }
        self.write_frame()?; // a frame without records is the end
        unless!(NoSnapshotSync, self.file.sync()?);
        let name = Kind::Snapshot.file_name(self.header.number);
        self.disk.rename(&(name.clone() + INCOMPLETE), &name)?;
        unless!(NoSnapshotNameSync, self.disk.sync()?);
        Ok(self.end)
    }
}
